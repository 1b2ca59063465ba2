"""Checks for duplicates: rows with the same or nearly the same text, in one split or in two.

The labels of such rows may differ, which is a finding of its own.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bertctl.arrays import Floats, Ints, sorted_unique
from bertctl.checking.findings import SHOWN_EXAMPLES, Finding, FindingRules, examples_at
from bertctl.checking.near import SIMILARITY, near_pairs, similarity
from bertctl.checking.same_rows import SameRows
from bertctl.checking.subject import BETWEEN_FIELDS, Subject
from bertctl.data.groups import normalised
from bertctl.data.table import in_chunks
from bertctl.words import count_of

_RULES = FindingRules("duplicates")

# texts that are looked up in others, and letters that are read for it: 1 to 2 s
_LOOKED_UP = 500
_READ = 2_000_000_000
_READ_AT_ONCE = 8192  # texts that are searched at once
_PHRASE = 3  # words from which a text that stands inside another one says something
_CONTAINED = 0.05  # share of the texts from which scores are too good
_COPIED = 0.9  # share of a split's rows from which it is the training file again
_MANY = 0.01  # share of a split's rows from which repeats inside it weigh on training


def check_duplicates(subject: Subject) -> Iterator[Finding]:
    """Yields exact and near duplicates, and texts with several labels.

    Duplicates are looked for inside each split and across each two splits.
    """
    same_rows = SameRows(subject)
    yield from _exact_inside(subject, same_rows)
    yield from _exact_across(subject, same_rows)
    yield from _conflicts(subject, same_rows)
    yield from _near(subject, same_rows)
    yield from _contained(subject)
    yield from _shared_contexts(subject)


def _exact_inside(subject: Subject, same_rows: SameRows) -> Iterator[Finding]:
    """Yields a finding for each split in which rows repeat the text of an earlier row of it.

    The findings are sorted by the position of the first text that a split repeats.
    """
    # Key by which a split is sorted: the smallest position of a text that it repeats (the position
    # of the first row with the text, in any split), then the first row that repeats this text.
    order: dict[str, tuple[int, int]] = {}
    repeats: dict[str, tuple[Ints, Ints]] = {}  # split -> rows that repeat a text, and their twins
    for split in subject.splits:
        rows = same_rows.repeated_in(split)
        texts = same_rows.first[rows]
        _, indices, text_numbers = np.unique(texts, return_index=True, return_inverse=True)
        first_rows = rows[indices]  # for each text, the first row of this split
        twins = first_rows[text_numbers]
        is_repeat = rows != twins
        if is_repeat.any():
            repeats[split] = (rows[is_repeat], twins[is_repeat])
            first_text = int(texts[is_repeat].min())
            repeats_first_text = is_repeat & (texts == first_text)
            order[split] = (first_text, int(rows[repeats_first_text][0]))
    for split in sorted(repeats, key=order.__getitem__):
        repeated_rows, twins = repeats[split]
        n_rows = len(subject.splits[split])
        are_many = len(repeated_rows) > _MANY * n_rows
        if are_many:
            severity = "warning"
        else:
            severity = "note"
        examples = same_rows.twins(repeated_rows, twins)
        yield _RULES.finding(
            "duplicate",
            split,
            (len(repeated_rows), n_rows),
            examples,
            severity=severity,
        )


def _exact_across(subject: Subject, same_rows: SameRows) -> Iterator[Finding]:
    """Yields, for each two splits, a finding on texts of the later one that the earlier one has.

    If nearly all rows of a split are in train, it is an error: the training file was given twice.
    """
    for earlier, later in combinations(subject.splits, 2):
        # Only texts that several rows have can be shared. A text is the position of its first row.
        earlier_rows = same_rows.repeated_in(earlier)
        texts, indices = np.unique(same_rows.first[earlier_rows], return_index=True)
        first_rows = earlier_rows[indices]  # for each text, the first row in the earlier split

        later_rows = same_rows.repeated_in(later)
        texts_of_later_rows = same_rows.first[later_rows]
        is_shared = np.isin(texts_of_later_rows, texts)
        shared_rows = later_rows[is_shared]
        if len(shared_rows):
            twins = first_rows[np.searchsorted(texts, texts_of_later_rows[is_shared])]
            n_rows = len(subject.splits[later])
            says = (
                f"are in {earlier} too, ignoring case and "
                f"spacing{same_rows.with_another_label(shared_rows, twins)}"
            )
            severity = None
            remedy = _remedy(earlier, later)
            is_copy = len(shared_rows) > _COPIED * n_rows  # nearly all rows
            if earlier == "train" and is_copy:
                severity = "error"
                otherwise = "rows of train are then held out. Scores on these say nothing."
                remedy = f"Give rows of their own for {later}, or no file: {otherwise}"
            counts = (len(shared_rows), n_rows)
            examples = same_rows.twins(shared_rows, twins)
            yield _RULES.finding(
                "duplicate-across-splits",
                later,
                counts,
                examples,
                says=says,
                severity=severity,
                remedy=remedy,
            )


def _conflicts(subject: Subject, same_rows: SameRows) -> Iterator[Finding]:
    """Yields a finding on texts that occur with different labels, in one split or in several."""
    conflicts = _conflicting_texts(same_rows)
    if not len(conflicts):
        return
    # Examples come in the order of their rows, whichever split they are in.
    split_numbers = np.searchsorted(same_rows.starts, conflicts, side="right") - 1
    row_numbers = conflicts - same_rows.starts[split_numbers]
    shown_conflicts = conflicts[np.argsort(row_numbers, kind="stable")[:SHOWN_EXAMPLES]]
    examples = [same_rows.conflict_example(first_row) for first_row in shown_conflicts.tolist()]
    texts = same_rows.first[same_rows.repeated]
    rows = same_rows.repeated[np.isin(texts, conflicts)]
    splits = [name for name in subject.splits if np.isin(same_rows.repeated_in(name), rows).any()]
    counts = (len(conflicts), same_rows.n_texts)
    message = f"{count_of(*counts, 'different text')} occur with different labels"
    remedy = "Decide on one label for each: no model can be right on both."
    if "labels" in subject.checks and not subject.several_labels:
        remedy += (
            " If both are meant, make it multi-label (`text_classification.multi_label=true`)."
        )
    only_split = splits[0] if len(splits) == 1 else ""
    yield _RULES.finding(
        "conflicting-labels",
        only_split,
        counts,
        tuple(examples),
        message=message,
        remedy=remedy,
    )


def _conflicting_texts(same_rows: SameRows) -> Ints:
    """Returns the texts with several labels, each as the position of the first row that has it."""
    # Rows whose text another row has too: the number of what is learned from each, and its text.
    answers = same_rows.answers(same_rows.repeated)
    texts = same_rows.first[same_rows.repeated]
    has_answer = answers >= 0
    n_different = int(answers.max(initial=0)) + 1
    # Text and answer as one number, so that the different pairs of them can be counted.
    pairs = sorted_unique(texts[has_answer] * n_different + answers[has_answer])
    texts_with_answer, n_answers = np.unique(pairs // n_different, return_counts=True)
    conflicts: Ints = texts_with_answer[n_answers > 1]
    return conflicts


@dataclass(frozen=True)
class _Nearest:
    """The most similar earlier row of each row of a split, as far as pairs were compared.

    Attributes:
        alike: (N,) similarity to the earlier row; 0 if no similar row is known.
        twins: (N,) position of the earlier row.
    """

    alike: Floats
    twins: Ints

    @classmethod
    def none(cls, n_rows: int) -> "_Nearest":
        """Returns the state before any comparison, for so many rows."""
        return cls(np.zeros(n_rows), np.zeros(n_rows, dtype=np.int64))

    def offer(self, rows: Ints, twins: Ints, alike: Floats) -> None:
        """Records twins that are more similar than those so far; of equal ones the earliest.

        Args:
            rows: (P,) rows of the split, some more than once.
            twins: (P,) position of a row that is like each one.
            alike: (P,) their similarities.
        """
        # Only the best twin of each row in this call: the most similar one, then the earliest.
        order = np.lexsort((twins, -alike, rows))
        ordered_rows = rows[order]
        is_best = np.ones(len(order), dtype=np.bool_)
        is_best[1:] = ordered_rows[1:] != ordered_rows[:-1]
        best = order[is_best]
        known = self.alike[rows[best]]
        is_earlier = twins[best] < self.twins[rows[best]]
        is_better = (alike[best] > known) | ((alike[best] == known) & is_earlier)
        best = best[is_better]
        self.alike[rows[best]] = alike[best]
        self.twins[rows[best]] = twins[best]


def _nearest_of_rows(subject: Subject, same_rows: SameRows) -> dict[tuple[str, str], _Nearest]:
    """Returns the most similar earlier row of each row that has a near duplicate.

    The key is (split of the earlier row, split of the row): a split is compared with itself and
    with the splits before it.
    """
    nearest: dict[tuple[str, str], _Nearest] = {}
    # Each different text is compared once. The rows that have it are found afterwards.
    for pairs, similarities in _near_texts(subject, same_rows):
        first_texts, second_texts = pairs
        # Either text of a pair may have the earlier row, which depends on the splits.
        for texts, similar_texts in ((first_texts, second_texts), (second_texts, first_texts)):
            # All rows with one of these texts, and for each row the pair that its text comes from.
            rows, pair_numbers = same_rows.rows_of(texts)
            for earlier_split in subject.splits:
                # For each row the first row with the other text of its pair; -1 if there is none.
                twins = same_rows.first_in(earlier_split, similar_texts)[pair_numbers]
                has_earlier_twin = (twins >= 0) & (twins < rows)
                for split, start, end in zip(
                    same_rows.splits, same_rows.starts, same_rows.starts[1:], strict=False
                ):
                    chosen = has_earlier_twin & (rows >= start) & (rows < end)
                    if not chosen.any():
                        continue
                    split_pair = (earlier_split, split)
                    if split_pair not in nearest:
                        nearest[split_pair] = _Nearest.none(len(subject.splits[split]))
                    nearest[split_pair].offer(
                        rows[chosen] - start, twins[chosen], similarities[pair_numbers[chosen]]
                    )
    return nearest


def _near_texts(subject: Subject, same_rows: SameRows) -> Iterator[tuple[Ints, Floats]]:
    """Yields pairs of texts that are near duplicates, some at a time, with their similarities.

    Each part has (2, P) the texts, each as the position of the first row that has it, and (P,) the
    similarities.
    """
    keys = same_rows.keys(same_rows.distinct)
    compared: Iterator[str] = keys
    if "answers" in subject.checks:
        # With its paragraph, each question on it would look alike. So the questions alone are
        # compared here, and both fields below.
        compared = (key.split(BETWEEN_FIELDS)[0] for key in keys)
    for first_numbers, second_numbers, similarities in near_pairs(compared):
        texts = same_rows.distinct[np.stack([first_numbers, second_numbers])]
        if same_rows.has_fields:
            is_alike = [
                _alike_in_each_field(same_rows.key(first), same_rows.key(second))
                for first, second in texts.T
            ]
            texts = texts[:, is_alike]
            similarities = similarities[is_alike]
        yield texts, similarities


def _near(subject: Subject, same_rows: SameRows) -> Iterator[Finding]:
    """Yields findings on near duplicates: inside each split, and across each two splits."""
    order = {split: number for number, split in enumerate(subject.splits)}
    nearest = _nearest_of_rows(subject, same_rows)
    for (earlier_split, split), similar in sorted(
        nearest.items(), key=lambda item: [order[name] for name in item[0]]
    ):
        numbers = np.flatnonzero(similar.alike)  # rows without a near duplicate have similarity 0
        rows = same_rows.starts[order[split]] + numbers
        twins = similar.twins[numbers]
        counts = (len(rows), len(subject.splits[split]))
        examples = same_rows.twins(rows, twins, with_twin_text=True)
        # Sentences that differ by a word differ in their tags, too.
        if "tags" in subject.checks:
            differing = ""
        else:
            differing = same_rows.with_another_label(rows, twins)
        if earlier_split == split:
            says = f"are nearly the same as an earlier row{differing}"
            yield _RULES.finding(
                "near-duplicate",
                split,
                counts,
                examples,
                says=says,
            )
        else:
            says = f"are nearly the same as a row of {earlier_split}{differing}"
            by_source = "Better still, split by source (document, author, thread) and not by row."
            remedy = f"{_remedy(earlier_split, split)} {by_source}"
            code = "near-duplicate-across-splits"
            yield _RULES.finding(
                code,
                split,
                counts,
                examples,
                says=says,
                remedy=remedy,
            )


def _alike_in_each_field(key: str, other_key: str) -> bool:
    """Returns whether each field of a row's key is like the same field of another row's key.

    Two questions on the same long sentence are two examples, although the whole keys are alike.

    Args:
        key: Fields of a row, joined by `BETWEEN_FIELDS`.
        other_key: Fields of a row whose whole key is like the first one.
    """
    fields = key.split(BETWEEN_FIELDS)
    other_fields = other_key.split(BETWEEN_FIELDS)
    if len(fields) != len(other_fields):
        return False
    if len(fields) == 1:
        return True
    return all(
        a == b or similarity(a, b) >= SIMILARITY for a, b in zip(fields, other_fields, strict=True)
    )


def _shared_contexts(subject: Subject) -> Iterator[Finding]:
    """Yields paragraphs that are read in training and in a later split."""
    if "answers" not in subject.checks:  # only question answering has paragraphs
        return
    contexts: dict[str, dict[str, int]] = {}  # of each split: paragraph -> its first row
    for split in subject.splits:
        contexts[split] = {}
        for i, context in enumerate(subject.texts[split]["context"]):
            contexts[split].setdefault(normalised(context), i)
    for earlier, later in combinations(subject.splits, 2):
        shared = {
            key: index for key, index in contexts[later].items() if key and key in contexts[earlier]
        }
        if shared:
            show = subject.texts[later]["context"].__getitem__
            says = f"are in {earlier} too"
            examples = examples_at(subject.splits[later], sorted(shared.values()), show)
            counts = (len(shared), len(contexts[later]))
            yield _RULES.finding(
                "context-across-splits",
                later,
                counts,
                examples,
                noun="paragraph",
                says=says,
            )


def _contained(subject: Subject) -> Iterator[Finding]:
    """Yields findings on texts that are a whole part of a longer training text.

    Their similarity is low, as one text is much longer, so `_near` does not find them. Only data
    with one text per row is looked at. A sample of each split is looked up in the training texts.
    Without other splits, training rows are looked up in other training rows: some of them will be
    held out.
    """
    train_columns = subject.texts["train"] if "train" in subject.splits else {}
    if len(train_columns) != 1:
        return
    train_keys = subject.keys["train"]
    # Length of the text that is searched: all training texts, each between blanks, on lines.
    n_letters = max(0, sum(map(len, train_keys)) + 3 * len(train_keys) - 1)
    splits = [name for name in subject.splits if name != "train"] or ["train"]
    looked_up: dict[str, dict[int, str]] = {}  # of each split: row -> text
    for split in splits:
        keys = subject.keys[split]
        # To look up one text, all these letters are read once. A split may read `_READ` of them.
        n_affordable = min(_LOOKED_UP, max(1, _READ // (n_letters + 1)))
        n_looked_up = min(n_affordable, len(keys))
        rows = [int(i) for i in np.linspace(0, len(keys) - 1, n_looked_up)]
        looked_up[split] = {i: f" {keys[i]} " for i in rows}
    texts: set[str] = set()
    for texts_of_split in looked_up.values():
        texts.update(texts_of_split.values())
    phrases = {text for text in texts if len(text.split()) >= _PHRASE}
    contained = _occurrences(phrases, train_keys)
    for split in splits:
        sampled = looked_up[split]
        contained_rows = [i for i, text in sampled.items() if text in contained]
        are_many = len(contained_rows) > _CONTAINED * len(sampled)
        if are_many:
            [column] = subject.texts[split].values()
            if split == "train":
                code = "contained"
            else:
                code = "contained-across-splits"
            examples = examples_at(subject.splits[split], contained_rows, column.__getitem__)
            if len(sampled) == len(column):
                noun = "row"
            else:
                noun = "sampled row"
            yield _RULES.finding(
                code,
                split,
                (len(contained_rows), len(sampled)),
                examples,
                noun=noun,
            )


def _occurrences(phrases: Collection[str], texts: Sequence[str]) -> set[str]:
    """Returns the phrases that are a part of a longer text.

    Args:
        phrases: Each begins and ends with a blank, so that it matches only whole words.
        texts: Texts that are searched.
    """
    occurrences: Counter[str] = Counter()
    for part in in_chunks(texts, _READ_AT_ONCE):
        padded = [f" {text} " for text in part]
        together = "\n".join(padded)
        for phrase in phrases:
            occurrences[phrase] += together.count(phrase)
        # A text that is the phrase and nothing else doesn't count.
        occurrences.subtract(text for text in padded if text in phrases)
    return {phrase for phrase, number in occurrences.items() if number > 0}


def _remedy(earlier: str, later: str) -> str:
    """Returns what to do about rows of one split that an earlier split has too."""
    if earlier == "train":
        return "Take them out of train: a score on rows that were trained on is too good."
    return (
        f"Take them out of {earlier}: settings that were chosen on {earlier} fit {later} too well."
    )
