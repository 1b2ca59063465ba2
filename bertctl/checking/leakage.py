"""What gives the label away without reading: another column, the length of the text, a single word.

Letters: N rows, C labels.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertctl.checking.findings import Example, Finding, FindingRules, examples_at, listed
from bertctl.checking.subject import Subject
from bertctl.data.rows import Rows
from bertctl.data.word_splitting import split_words
from bertctl.words import as_number, count_of, percent

_RULES = FindingRules("leakage")

_ENOUGH_ROWS = 40
_ENOUGH_OF_LABEL = 20
_KNOWN = 0.99  # share of the rows whose label another column tells
_AUC = 0.9  # how well the length orders one label before the rest
_PRECISION, _COVERAGE, _LIFT = 0.97, 0.25, 0.15  # of a word for a label
_MOST_LABELS, _MOST_SHOWN = 100, 20
_FIRST_WORDS = 400  # words of a text that are looked at


def check_leakage(subject: Subject) -> Iterator[Finding]:
    """Looks at the training rows of single-label classification; where there are none, at the first split."""
    split = "train" if "train" in subject.splits else next(iter(subject.splits), "")
    sets = subject.label_sets[split] if split else None
    if sets is None or any(len(names) > 1 for names in sets):
        return
    rows = subject.splits[split]
    labelled = [i for i, names in enumerate(sets) if names]
    labels = [sets[i][0] for i in labelled]
    if len(labels) < _ENOUGH_ROWS or not 2 <= len(set(labels)) <= _MOST_LABELS:
        return
    yield from _columns(rows, split, labelled, labels)
    yield from _lengths(subject, split, labelled, labels)
    yield from _words(subject, split, labelled, labels)


def _columns(rows: Rows, split: str, labelled: Sequence[int], labels: Sequence[str]) -> Iterator[Finding]:
    """Yields columns of which one value mostly goes with one label, though the values are far fewer than the rows."""
    majority = Counter(labels).most_common(1)[0][1]
    if majority > _KNOWN * len(labels):
        return
    for name, column in rows.columns.items():
        if name in ("text", "pair", "label"):
            continue
        values = _grouped([column[i] for i in labelled])
        if values is None:
            continue
        by_value: dict[Any, Counter[str]] = {}
        for value, label in zip(values, labels, strict=True):
            by_value.setdefault(value, Counter())[label] += 1
        told = sum(counts.most_common(1)[0][1] for counts in by_value.values())
        if len(by_value) < 2 or 5 * len(by_value) > len(labels) or told < _KNOWN * len(labels):
            continue
        frequent = sorted(by_value.items(), key=lambda item: -item[1].total())[:3]
        shown = "; ".join(f"{value!r} is {counts.most_common(1)[0][0]!r}" for value, counts in frequent)
        examples = examples_at(rows, labelled, lambda i, c=column: f"{c[i]!r}, label {rows.columns['label'][i]!r}")  # type: ignore[misc]
        share = percent(told, len(labels))
        message = f"the column '{name}' gives the label away in {share} of the rows of {split}: {shown}"
        yield _RULES.finding("leaky-column", split, (told, len(labels)), examples, message=message)


def _grouped(values: Sequence[Any]) -> list[Any] | None:
    """Returns values that can be counted; many numbers as 20 ranges of like size; None for anything else."""
    try:
        different = len(set(values))
    except TypeError:
        return None
    if different <= len(values) // 5:
        return list(values)
    numbers = np.array([as_number(value) for value in values])
    if not np.isfinite(numbers).all():
        return None
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, 21)[1:-1]))
    return list(np.searchsorted(edges, numbers).tolist())


def _lengths(subject: Subject, split: str, labelled: Sequence[int], labels: Sequence[str]) -> Iterator[Finding]:
    """Yields labels of which nearly every text is longer (or shorter) than nearly every text of the others."""
    names = sorted(set(labels))
    of_row = np.array(labels)
    rows = subject.splits[split]
    for field, column in subject.texts[split].items():
        lengths = np.array([len(column[i]) for i in labelled])
        ordered = np.sort(lengths)  # ranks from 1, ties at their mean, as the Mann-Whitney statistic wants them
        ranks = (np.searchsorted(ordered, lengths) + np.searchsorted(ordered, lengths, "right") + 1) / 2
        for name in names if len(names) > 2 else names[:1]:
            mine = of_row == name
            n, others = int(mine.sum()), int((~mine).sum())
            if min(n, others) < _ENOUGH_OF_LABEL:
                continue
            auc = (ranks[mine].sum() - n * (n + 1) / 2) / (n * others)
            if max(auc, 1 - auc) < _AUC:
                continue
            rest = "the others" if len(names) > 2 else repr(names[1])
            examples = examples_at(rows, [labelled[int(i)] for i in np.flatnonzero(mine)[:3]], column.__getitem__)
            own, other = (f"{int(np.median(lengths[which])):,}" for which in (mine, ~mine))
            half = f"half of these texts have up to {own} characters, those of {rest} {other}"
            message = f"the length of the {field} alone gives {name!r} away: {half} (AUC {max(auc, 1 - auc):.3f})"
            yield _RULES.finding("leaky-length", split, (n, len(labels)), examples, message=message)


def _words(subject: Subject, split: str, labelled: Sequence[int], labels: Sequence[str]) -> Iterator[Finding]:
    """Yields words that stand in a good part of one label's texts, and hardly anywhere else."""
    of_label = Counter(labels)
    total = len(labels)
    rows = subject.splits[split]
    for field, column in subject.texts[split].items():
        found: Counter[str] = Counter()
        by_label: dict[str, Counter[str]] = {name: Counter() for name in of_label}
        for i, label in zip(labelled, labels, strict=True):
            by_label[label].update(_features(column[i]))
        for counter in by_label.values():
            found.update(counter)
        leaks: dict[str, list[tuple[int, str, int]]] = {}
        for name, counter in by_label.items():
            if of_label[name] < _ENOUGH_OF_LABEL:
                continue
            for word, count in counter.items():
                lift = count / found[word] - of_label[name] / total
                if count >= max(_COVERAGE * of_label[name], _PRECISION * found[word]) and lift >= _LIFT:
                    leaks.setdefault(name, []).append((count, word, found[word]))
        if not leaks:
            continue
        examples = []
        for name, words in leaks.items():
            words.sort(reverse=True)
            count, word, everywhere = words[0]
            also = f"; so do {listed([w for _, w, _ in words[1:]], limit=4)}" if len(words) > 1 else ""
            where = next(rows.where(i) for i in labelled if word in _features(column[i]))
            told = f"{percent(count, everywhere)} of the {everywhere:,} rows with it have this label, and"
            covered = f"it stands in {percent(count, of_label[name])} of them{also}"
            examples.append(Example(where, f"'{word}' gives {name!r} away: {told} {covered}"))
        message = f"words in the {field} give {count_of(len(leaks), len(of_label), 'label')} away"
        counts = (sum(words[0][2] for words in leaks.values()), total)
        yield _RULES.finding("leaky-word", split, counts, tuple(examples[:_MOST_SHOWN]), message=message)


def _features(text: str) -> set[str]:
    words, _ = split_words(text[: 10 * _FIRST_WORDS].casefold())
    return set(words[:_FIRST_WORDS])
