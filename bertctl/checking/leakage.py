"""What predicts the label without reading: another column, the length of the text, a single word.

Letters: N rows, C labels.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from bertctl.arrays import sorted_unique
from bertctl.checking.findings import Example, Finding, FindingRules, examples_at, listed
from bertctl.checking.subject import Subject
from bertctl.data.packed_columns import (
    CodedValues,
    PackedTexts,
    codes_of,
    different_values,
    is_many,
    mapped_values,
    selected,
)
from bertctl.data.rows import Rows
from bertctl.data.word_splitting import split_words
from bertctl.words import as_number, count_of, percent

_RULES = FindingRules("leakage")

_ENOUGH_ROWS = 40  # rows below which nothing is said of the labels
_ENOUGH_OF_LABEL = 20  # rows below which nothing is said of one label
_KNOWN = 0.99  # share of the rows whose label another column tells
_AUC = 0.9  # how well the length orders one label before the rest
_PRECISION = 0.97  # share of the texts with a word that have the label
_COVERAGE = 0.25  # share of the label's texts that have the word
_LIFT = 0.15  # how much more often the label comes with the word than in all rows
_MOST_LABELS = 100  # labels above which nothing is looked for: they are hardly classes
_MOST_SHOWN = 20  # labels that are shown with a word that predicts them
_SAMPLED = 1000  # texts of a label of many rows by which its frequent words are found
_FIRST_WORDS = 400  # words of a text that are looked at


def check_leakage(subject: Subject) -> Iterator[Finding]:
    """Yields findings on columns, lengths of texts and words that predict the label.

    The training rows are looked at, or those of the first split if there are none. Rows with
    several labels are not looked at.
    """
    if "train" in subject.splits:
        split = "train"
    else:
        split = next(iter(subject.splits), "")
    if split:
        sets = subject.label_sets[split]  # a tuple of labels for each row
    else:
        sets = None
    if sets is None:
        return
    different_sets = different_values(sets)
    if any(len(names) > 1 for names in different_sets):
        return
    rows = subject.splits[split]
    all_have_labels = all(different_sets)
    labelled: Sequence[int] = range(len(sets))  # numbers of the rows that have a label
    if not all_have_labels:
        labelled = array("q", (i for i, names in enumerate(sets) if names))
    labels = codes_of(mapped_values(_at(sets, labelled), itemgetter(0)))
    # Few rows say nothing, and neither does one label. Very many values are hardly labels.
    n_labels = len(labels.values)
    if len(labels) < _ENOUGH_ROWS or n_labels < 2 or n_labels > _MOST_LABELS:
        return
    yield from _columns(rows, split, labelled, labels)
    yield from _lengths(subject, split, labelled, labels)
    yield from _words(subject, split, labelled, labels)


def _at(values: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Returns the values of these rows.

    Args:
        values: (N,) values of all rows.
        indices: (L,) numbers of the rows, ascending. A range stands for all rows.
    """
    if isinstance(indices, range):
        return values
    return selected(values, indices)


def _columns(
    rows: Rows, split: str, labelled: Sequence[int], labels: CodedValues
) -> Iterator[Finding]:
    """Yields findings on columns that predict the label.

    Such a column has values for which nearly all rows with the value have the same label. Columns
    with many values for the number of rows are left out, as they would predict any label.

    Args:
        rows: Rows of the split.
        split: Name of the split.
        labelled: (L,) numbers of the rows that have a label.
        labels: (L,) their labels.
    """
    n_of_most_frequent = Counter(labels).most_common(1)[0][1]
    has_one_main_label = n_of_most_frequent > _KNOWN * len(labels)
    if has_one_main_label:
        return  # every column would predict the label
    for name, column in rows.columns.items():
        if name in ("text", "pair", "label"):
            continue
        values = _grouped(_at(column, labelled))
        if values is None:
            continue
        coded = codes_of(values)
        n_predicted = _n_predicted_by(coded, labels)
        n_values = len(sorted_unique(coded.codes))
        has_too_many_values = 5 * n_values > len(labels)
        predicts_nearly_all = n_predicted >= _KNOWN * len(labels)
        if n_values < 2 or has_too_many_values or not predicts_nearly_all:
            continue
        frequent = Counter(coded).most_common(3)
        pairs = "; ".join(
            f"{value!r} is {_usual_label(value, coded, labels)!r}" for value, _ in frequent
        )
        examples = examples_at(rows, labelled, partial(_cell_and_label, rows, column))
        share = percent(n_predicted, len(labels))
        message = (
            f"the column '{name}' determines the label in {share} of the rows of {split}: {pairs}"
        )
        yield _RULES.finding(
            "leaky-column",
            split,
            (n_predicted, len(labels)),
            examples,
            message=message,
        )


def _n_predicted_by(values: CodedValues, labels: CodedValues) -> int:
    """Returns how many rows have the label that most rows with their value have.

    That is how many labels the column would predict.
    """
    pairs, sizes = np.unique(
        values.codes.astype(np.int64) * len(labels.values) + labels.codes, return_counts=True
    )
    # Pairs are sorted by value: where it changes, the labels of the next value begin.
    value_codes = pairs // len(labels.values)
    begins = np.flatnonzero(np.diff(value_codes, prepend=-1))
    return int(np.maximum.reduceat(sizes, begins).sum())


def _cell_and_label(rows: Rows, column: Sequence[Any], index: int) -> str:
    """Returns what a row has in a column, and its label, for people."""
    return f"{column[index]!r}, label {rows.columns['label'][index]!r}"


def _usual_label(value: Any, values: CodedValues, labels: CodedValues) -> str:
    """Returns the label that most rows with a value have."""
    rows = np.flatnonzero(values.codes == values.values.index(value))
    label: str = Counter(labels.select(rows)).most_common(1)[0][0]
    return label


def _grouped(values: Sequence[Any]) -> Sequence[Any] | None:
    """Returns a column's values, grouped if hardly any two rows have the same one.

    Values that many rows share are returned as they are. Other numbers are replaced by the number
    of their range: there are 20 ranges, with about as many rows each. Other texts, and lists, can't
    be grouped: the result is None.
    """
    try:
        n_different = _number_of_different(values)
    except TypeError:
        return None  # lists can't be counted
    are_shared = n_different <= len(values) // 5
    if are_shared:
        return values
    # What is not a number becomes NaN.
    numbers = np.fromiter(map(as_number, values), dtype=np.float64, count=len(values))
    if not np.isfinite(numbers).all():
        return None
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, 21)[1:-1]))
    return list(np.searchsorted(edges, numbers).tolist())


def _number_of_different(values: Sequence[Any]) -> int:
    """Returns how many values are different; of a large file by their hashes."""
    if isinstance(values, PackedTexts):
        hashes = np.fromiter(map(hash, values), dtype=np.int64, count=len(values))
        return len(sorted_unique(hashes))
    return len(set(values))


def _lengths(
    subject: Subject, split: str, labelled: Sequence[int], labels: CodedValues
) -> Iterator[Finding]:
    """Yields findings on labels that the length of a text predicts.

    Nearly all texts with such a label are longer than texts with another label, or nearly all are
    shorter. The area under the ROC curve (AUC) measures it.

    Args:
        subject: The splits that are checked.
        split: Name of the split.
        labelled: (L,) numbers of the rows that have a label.
        labels: (L,) their labels.
    """
    names = sorted(labels.values)
    rows = subject.splits[split]
    for field, column in subject.texts[split].items():
        lengths = np.fromiter(map(len, _at(column, labelled)), dtype=np.int64, count=len(labelled))
        # Ranks count from 1 and ties have their mean rank, as in the Mann-Whitney statistic.
        ordered = np.sort(lengths)
        n_shorter = np.searchsorted(ordered, lengths)
        n_not_longer = np.searchsorted(ordered, lengths, "right")
        ranks = (n_shorter + n_not_longer + 1) / 2
        # What tells one of two labels apart tells the other one too.
        tested_names = names if len(names) > 2 else names[:1]
        for name in tested_names:
            has_label = labels.codes == labels.values.index(name)
            n_with_label = int(has_label.sum())
            n_without_label = int((~has_label).sum())
            if min(n_with_label, n_without_label) < _ENOUGH_OF_LABEL:
                continue
            # The Mann-Whitney U: pairs of a text with the label and a shorter text without it. As a
            # share of all such pairs it is the AUC; near 0 the label's texts are the shorter ones.
            n_longer = ranks[has_label].sum() - n_with_label * (n_with_label + 1) / 2
            auc = n_longer / (n_with_label * n_without_label)
            is_predicted = max(auc, 1 - auc) >= _AUC  # texts with the label are longer, or shorter
            if not is_predicted:
                continue
            if len(names) > 2:
                other_labels = "the others"
            else:
                other_labels = repr(names[1])
            examples = examples_at(
                rows, [labelled[int(i)] for i in np.flatnonzero(has_label)[:3]], column.__getitem__
            )
            median = int(np.median(lengths[has_label]))
            other_median = int(np.median(lengths[~has_label]))
            message = (
                f"the label {name!r} can be predicted from the length of the {field} alone: the "
                f"median length is {median:,} characters, and that of {other_labels} "
                f"{other_median:,} (AUC {max(auc, 1 - auc):.3f})"
            )
            yield _RULES.finding(
                "leaky-length",
                split,
                (n_with_label, len(labels)),
                examples,
                message=message,
            )


def _words(
    subject: Subject, split: str, labelled: Sequence[int], labels: CodedValues
) -> Iterator[Finding]:
    """Yields findings on words that many texts of one label have, and hardly any other text.

    Args:
        subject: The splits that are checked.
        split: Name of the split.
        labelled: (L,) numbers of the rows that have a label.
        labels: (L,) their labels.
    """
    of_label = Counter(labels)
    rows = subject.splits[split]
    for field, column in subject.texts[split].items():
        leaks = _leaky_words(_at(column, labelled), labels, of_label)
        if not leaks:
            continue
        examples = []
        n_rows_with_words = 0  # rows with the most frequent word of each label
        for name, leaky_words in leaks.items():
            n_with_label, word, n_with_word = leaky_words[0]
            n_rows_with_words += n_with_word
            other_words = [other_word for _, other_word, _ in leaky_words[1:]]
            if other_words:
                also = f"; other such words: {listed(other_words, limit=4)}"
            else:
                also = ""
            first_row = next(i for i in labelled if word in _features(column[i]))
            where = rows.where(first_row)
            precision = (
                f"{percent(n_with_label, n_with_word)} of the {n_with_word:,} rows that contain it "
                "have this label"
            )
            share_of_label = percent(n_with_label, of_label[name])
            coverage = f"{share_of_label} of the rows with this label contain it"
            sentence = f"'{word}' predicts {name!r}: {precision}, and {coverage}{also}"
            examples.append(Example(where, sentence))
        predicted = count_of(len(leaks), len(of_label), "label")
        message = f"{predicted} can be predicted from a single word of the {field}"
        yield _RULES.finding(
            "leaky-word",
            split,
            (n_rows_with_words, len(labels)),
            tuple(examples[:_MOST_SHOWN]),
            message=message,
        )


def _leaky_words(
    texts: Sequence[str], labels: CodedValues, of_label: Mapping[str, int]
) -> dict[str, list[tuple[int, str, int]]]:
    """Returns the words that predict a label, by label, the most frequent word first.

    A word comes as (40, "refund", 41): 40 texts of the label have it, and 41 texts of any label.

    Args:
        texts: The N texts.
        labels: (N,) their labels.
        of_label: How many texts have each label.
    """
    total = len(labels)
    # Counting all words of a large file takes too much memory.
    candidates = _frequent_words(texts, labels) if is_many(total) else None
    if candidates is not None and not candidates:
        return {}

    by_label: dict[str, Counter[str]] = {name: Counter() for name in of_label}
    for text, label in zip(texts, labels, strict=True):
        words = _features(text)
        by_label[label].update(words if candidates is None else words & candidates)
    counts_of_words: Counter[str] = Counter()
    for counter in by_label.values():
        counts_of_words.update(counter)

    leaks: dict[str, list[tuple[int, str, int]]] = {}
    for name, counter in by_label.items():
        if of_label[name] < _ENOUGH_OF_LABEL:
            continue
        for word, count in counter.items():
            is_covering = count >= _COVERAGE * of_label[name]
            is_precise = count >= _PRECISION * counts_of_words[word]
            # A label that most rows have is precise for any word: it must be more frequent with it.
            lift = count / counts_of_words[word] - of_label[name] / total
            if is_covering and is_precise and lift >= _LIFT:
                leaks.setdefault(name, []).append((count, word, counts_of_words[word]))
    for words_of_label in leaks.values():
        words_of_label.sort(reverse=True)
    return leaks


def _frequent_words(texts: Sequence[str], labels: CodedValues) -> set[str]:
    """Returns the words that may be in enough texts of a label, judged by a sample of its texts.

    These are the words in at least half of `_COVERAGE` of the sample. A word in `_COVERAGE` of all
    texts of a label falls below that with a probability of 1e-20.
    """
    rng = np.random.default_rng(0)
    candidates: set[str] = set()
    for number in range(len(labels.values)):
        rows = np.flatnonzero(labels.codes == number)
        sample = np.sort(rng.choice(rows, min(_SAMPLED, len(rows)), replace=False))
        counts: Counter[str] = Counter()
        for text in selected(texts, sample):
            counts.update(_features(text))
        fewest_texts = _COVERAGE * len(sample) / 2
        candidates.update(word for word, count in counts.items() if count >= fewest_texts)
    return candidates


def _features(text: str) -> set[str]:
    """Returns the different words of a text, in lower case; of a long text the first ones."""
    words, _ = split_words(text[: 10 * _FIRST_WORDS].casefold())
    return set(words[:_FIRST_WORDS])
