"""Rows that stand twice.

They do exactly or nearly, inside a split or in two of them, with one label or with several.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from bertctl.arrays import Floats, Ints, sorted_unique
from bertctl.checking.findings import (
    SHOWN_EXAMPLES,
    Example,
    Finding,
    FindingRules,
    examples_at,
    shorten,
)
from bertctl.checking.near import SIMILARITY, near_pairs, similarity
from bertctl.checking.subject import BETWEEN_FIELDS, Subject
from bertctl.data.groups import first_positions, normalised
from bertctl.data.packed_columns import selected
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

Place = tuple[str, int]
"""Split and row."""


class SameRows:
    """Rows of all splits, and which of them have the same text, ignoring case and spacing.

    The rows of all splits are numbered through, split after split: the number of a row is its
    position. A text is known by the position of the first row that has it.

    Args:
        subject: The splits that are checked.

    Attributes:
        splits: Names of the splits.
        starts: (splits + 1,) position of each split's first row, and N.
        first: (N,) for each row, the position of the first row with the same text.
        repeated: Positions of the rows whose text another row has too, in ascending order.
        distinct: Positions of the first row of each different text that is not blank.
        n_texts: Number of different texts that are not blank.
        has_fields: Whether texts consist of several fields.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.splits = list(subject.splits)
        self.starts = np.cumsum([0, *(len(rows) for rows in subject.splits.values())])
        # For each row, the position of the first row with the same text. While it is computed,
        # `_comparable_keys` fills `blank` and sets `has_fields`.
        blank = bytearray()
        self.has_fields = False
        self.first = first_positions(self._comparable_keys(blank))
        is_blank = np.frombuffer(blank, dtype=np.bool_)

        positions = np.arange(len(self.first))
        is_later = self.first != positions
        has_twin = is_later.copy()
        has_twin[self.first[is_later]] = True
        self.repeated = np.flatnonzero(has_twin)
        self.distinct = np.flatnonzero(~is_later & ~is_blank)
        self.n_texts = len(self.distinct)
        self._answers: dict[Hashable, int] = {}  # what is to be learned of a row -> its number

    def _comparable_keys(self, blank: bytearray) -> Iterator[str]:
        """Yields the text of each row, split after split; blank texts are "".

        Appends to `blank` whether the text of each row is blank, and sets `has_fields`.
        """
        for split in self.splits:
            for key in self._subject.keys[split]:
                if key.strip(f" {BETWEEN_FIELDS}"):
                    comparable = key
                else:
                    comparable = ""
                blank.append(not comparable)
                self.has_fields = self.has_fields or BETWEEN_FIELDS in key
                yield comparable

    def place(self, position: int) -> Place:
        """Returns the split of a position, and the number of its row in that split."""
        number = int(np.searchsorted(self.starts, position, side="right")) - 1
        return self.splits[number], int(position - self.starts[number])

    def key(self, position: int) -> str:
        """Returns the text of the row at a position, without case and with single spaces."""
        split, row = self.place(position)
        return self._subject.keys[split][row]

    def keys(self, positions: Ints) -> Iterator[str]:
        """Yields the texts of the rows at ascending positions."""
        for number, split in enumerate(self.splits):
            start, end = self.starts[number : number + 2]
            yield from selected(
                self._subject.keys[split],
                positions[(positions >= start) & (positions < end)] - start,
            )

    def repeated_in(self, split: str) -> Ints:
        """Returns the positions of a split's rows whose text another row has too, of any split."""
        number = self.splits.index(split)
        start, end = self.starts[number : number + 2]
        positions: Ints = self.repeated[(self.repeated >= start) & (self.repeated < end)]
        return positions

    @cached_property
    def _by_text(self) -> tuple[Ints, Ints]:
        """Returns (R,) the repeated rows sorted by text, then row; and (R,) their texts.

        A repeated row is one whose text another row has too. A text is the position of the first
        row that has it.
        """
        order = np.argsort(self.first[self.repeated], kind="stable")
        repeated_rows = self.repeated[order]
        return repeated_rows, self.first[repeated_rows]

    @cached_property
    def _by_text_and_row(self) -> Ints:
        """Returns (R,) a number for each repeated row, ascending: first row of its text x N + row.

        A binary search in them finds the first row of a text from some position on.
        """
        repeated_rows, texts = self._by_text
        n_rows = len(self.first)
        numbers: Ints = texts * n_rows + repeated_rows
        return numbers

    def alike(self, first_row: int) -> Sequence[int]:
        """Returns the positions of all rows with the same text, given the first of them."""
        repeated_rows, texts = self._by_text
        begin, end = np.searchsorted(texts, [first_row, first_row + 1])
        if begin < end:
            positions: list[int] = repeated_rows[begin:end].tolist()
            return positions
        return [first_row]  # no other row has the text

    def rows_of(self, texts: Ints) -> tuple[Ints, Ints]:
        """Returns all rows that have one of some texts.

        Args:
            texts: (T,) position of the first row of each text.

        Returns:
            (M,) the positions of the rows, those of the first text first, and (M,) the number of
            the text of each row: an index of `texts`.
        """
        repeated_rows, texts_of_repeated = self._by_text
        # The rows of a text are a slice of `repeated_rows`. A text that occurs once isn't there: it
        # has only its first row.
        begins = np.searchsorted(texts_of_repeated, texts)
        sizes = np.searchsorted(texts_of_repeated, texts, side="right") - begins
        occurs_once = sizes == 0
        sizes[occurs_once] = 1
        numbers = np.repeat(np.arange(len(texts)), sizes)
        rows = texts[numbers]

        # A repeated text's rows begin at one place of the result and at another one of
        # `repeated_rows`. The distance of these places leads from each index to its row.
        begins_in_result = np.cumsum(sizes) - sizes
        indices = np.arange(len(numbers)) + np.repeat(begins - begins_in_result, sizes)
        is_repeated = ~occurs_once[numbers]
        rows[is_repeated] = repeated_rows[indices[is_repeated]]
        return rows, numbers

    def first_in(self, split: str, texts: Ints) -> Ints:
        """Returns (T,) the position of the first row of a split that has each text; -1 for none.

        A position is the number of a row in all splits, one split after another. A text is known
        by the position of the first row that has it.

        Args:
            split: Name of the split.
            texts: (T,) the texts; the first row of a text may be in any split.
        """
        number = self.splits.index(split)
        start, end = self.starts[number : number + 2]
        # If a text begins in this split, its first row is the answer.
        rows = np.where((texts >= start) & (texts < end), texts, -1)

        # Otherwise it is the text's first row from `start` on, if that row is before `end`.
        # Such a row repeats an earlier one, and the repeated rows are sorted by text, then row.
        repeated_rows, texts_of_repeated = self._by_text
        if len(repeated_rows):
            n_rows = len(self.first)
            searched = texts * n_rows + start  # the form of `_by_text_and_row`: text x N + row
            indices = np.searchsorted(self._by_text_and_row, searched)
            indices = np.minimum(indices, len(repeated_rows) - 1)
            candidates = repeated_rows[indices]
            is_in_split = (candidates >= start) & (candidates < end)
            is_same_text = texts_of_repeated[indices] == texts
            is_match = is_in_split & is_same_text
            rows[is_match] = candidates[is_match]
        return rows

    def answers(self, positions: Ints) -> Ints:
        """Returns a number for what is to be learned from each row, such as its label.

        Equal answers have equal numbers, in all calls. Rows without an answer have -1.

        Args:
            positions: (R,) positions of the rows, of any splits.
        """
        numbers = np.full(len(positions), -1, dtype=np.int64)
        for number, split in enumerate(self.splits):
            start, end = self.starts[number : number + 2]
            chosen = np.flatnonzero((positions >= start) & (positions < end))
            rows = (positions[chosen] - start).tolist()
            answers = (_answer(self._subject, (split, row)) for row in rows)
            numbers[chosen] = np.fromiter(
                map(self._number_of, answers), dtype=np.int64, count=len(rows)
            )
        return numbers

    def _number_of(self, answer: Hashable | None) -> int:
        """Returns the number of an answer, a new one for an answer that is new; -1 for none."""
        if answer is None:
            return -1
        return self._answers.setdefault(answer, len(self._answers))

    def with_another_label(self, rows: Ints, twins: Ints) -> str:
        """Returns how many rows have another label than their twins, as the end of a sentence.

        Args:
            rows: (R,) positions of rows.
            twins: (R,) position of the row that each one is like.
        """
        answers = self.answers(rows)
        answers_of_twins = self.answers(twins)
        have_answers = (answers >= 0) & (answers_of_twins >= 0)
        n_differing = int((have_answers & (answers != answers_of_twins)).sum())
        if n_differing:
            return f"; {n_differing:,} with another label"
        return ""

    def twins(
        self, rows: Ints, twins: Ints, *, with_twin_text: bool = False
    ) -> tuple[Example, ...]:
        """Returns the first rows as examples, each with the row that it is like.

        Args:
            rows: (R,) positions.
            twins: (R,) position of the row that each one is like.
            with_twin_text: Whether the text of the twin is shown too, and not just its place.
        """
        pairs = zip(rows[:SHOWN_EXAMPLES].tolist(), twins[:SHOWN_EXAMPLES].tolist(), strict=True)
        return _twins(
            self._subject,
            [(self.place(row), self.place(twin)) for row, twin in pairs],
            with_twin_text=with_twin_text,
        )


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

    The split whose repeated text comes first in the data comes first.
    """
    # (position of the text's first row, position of the row that repeats it): the first pair.
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
        if len(repeated_rows) > _MANY * n_rows:
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
            if earlier == "train" and len(shared_rows) > _COPIED * n_rows:
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
    examples = [
        _conflict_example(subject, same_rows, first_row) for first_row in shown_conflicts.tolist()
    ]
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
    answers = same_rows.answers(same_rows.repeated)
    texts = same_rows.first[same_rows.repeated]
    has_answer = answers >= 0
    n_different = int(answers.max(initial=0)) + 1
    # Text and answer as one number, so that the different pairs of them can be counted.
    pairs = sorted_unique(texts[has_answer] * n_different + answers[has_answer])
    texts_with_answer, n_answers = np.unique(pairs // n_different, return_counts=True)
    conflicts: Ints = texts_with_answer[n_answers > 1]
    return conflicts


def _conflict_example(subject: Subject, same_rows: SameRows, first_row: int) -> Example:
    """Returns a text with its label in the first row, and those in up to three later rows.

    Args:
        subject: The splits that are checked.
        same_rows: Their rows by text.
        first_row: Position of the first row with the text.
    """
    positions = same_rows.alike(first_row)[:4]
    first_place, *later_places = [same_rows.place(position) for position in positions]
    later_answers = "; ".join(
        f"{_shown_answer(subject, place)} at {_place(subject, place)}" for place in later_places
    )
    split, index = first_place
    text = shorten(_text(subject, first_place), limit=60)
    excerpt = f"{text} = {_shown_answer(subject, first_place)}; {later_answers}"
    return Example(subject.splits[split].where(index), excerpt)


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
            rows, pair_numbers = same_rows.rows_of(texts)
            for earlier_split in subject.splits:
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
        numbers = np.flatnonzero(similar.alike)
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

    Their similarity is low, as one text is much longer, so `_near` does not find them. A sample of
    each split is looked up, if a row is one text. Without other splits, training rows are looked up
    in other training rows: some of them will be held out.
    """
    train_columns = subject.texts["train"] if "train" in subject.splits else {}
    if len(train_columns) != 1:
        return
    train_keys = subject.keys["train"]
    # Length of all training texts, one behind the other, each between blanks.
    n_letters = max(0, sum(map(len, train_keys)) + 3 * len(train_keys) - 1)
    splits = [name for name in subject.splits if name != "train"] or ["train"]
    looked_up: dict[str, dict[int, str]] = {}  # of each split: row -> text
    for split in splits:
        keys = subject.keys[split]
        # Each text that is looked up reads all letters once.
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
        if len(contained_rows) > _CONTAINED * len(sampled):
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


def _twins(
    subject: Subject, pairs: Sequence[tuple[Place, Place]], *, with_twin_text: bool = False
) -> tuple[Example, ...]:
    """Returns rows as examples, each with the place, or text and place, of the row it is like."""
    examples: list[Example] = []
    for place, twin in pairs[:SHOWN_EXAMPLES]:
        text = shorten(_text(subject, place), limit=80)
        if with_twin_text:
            twin_text = f"{shorten(_text(subject, twin), limit=80)} at "
        else:
            twin_text = "as at "
        twin_place = _place(subject, twin)
        examples.append(
            Example(subject.splits[place[0]].where(place[1]), f"{text} / {twin_text}{twin_place}")
        )
    return tuple(examples)


def _remedy(earlier: str, later: str) -> str:
    """Returns what to do about rows of one split that an earlier split has too."""
    if earlier == "train":
        return "Take them out of train: a score on rows that were trained on is too good."
    return (
        f"Take them out of {earlier}: settings that were chosen on {earlier} fit {later} too well."
    )


def _answer(subject: Subject, place: Place) -> Hashable | None:
    """Returns what is to be learned of a row, as a value that can be compared.

    It is None for a row without a label, and for scores and spans.
    """
    split, index = place
    rows = subject.splits[split]
    if not rows.has("label") or "scores" in subject.checks:
        return None
    names = subject.label_sets[split]
    if names is not None:
        return tuple(sorted(names[index])) or None
    value = rows.columns["label"][index]
    if isinstance(value, list | tuple):
        return tuple(map(str, value))
    if isinstance(value, Hashable):
        return value
    return None


def _shown_answer(subject: Subject, place: Place) -> str:
    """Returns the answer of a row as one short line."""
    answer: Any = _answer(subject, place)
    return shorten(
        " ".join(map(str, answer)) if isinstance(answer, tuple) else str(answer), limit=40
    )


def _text(subject: Subject, place: Place) -> str:
    """Returns all fields of a row that the model reads, as one line."""
    split, index = place
    fields = (
        str(column[index]).replace(BETWEEN_FIELDS, " / ").strip()
        for column in subject.texts[split].values()
    )
    return " | ".join(fields)


def _place(subject: Subject, place: Place) -> str:
    """Returns file and line without the folder, for a second place in one line."""
    return subject.splits[place[0]].where(place[1]).rpartition("/")[2]
