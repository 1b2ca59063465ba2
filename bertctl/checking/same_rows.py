"""Which rows of all splits have the same text, what is to be learned of them, and their examples.

The checks of `duplicates.py` use it.
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bertctl.arrays import Ints
from bertctl.checking.findings import SHOWN_EXAMPLES, Example, shorten
from bertctl.checking.subject import BETWEEN_FIELDS, Subject
from bertctl.data.groups import first_positions
from bertctl.data.packed_columns import selected

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
            (M,) the positions of the rows, text after text, and (M,) the number of the text of each
            row: an index of `texts`.
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

        # Row i of the result is `repeated_rows[i + distance]`. All rows of a text have the same
        # distance: where they begin in `repeated_rows`, less where they begin in the result.
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
        examples: list[Example] = []
        for row, twin in zip(
            rows[:SHOWN_EXAMPLES].tolist(), twins[:SHOWN_EXAMPLES].tolist(), strict=True
        ):
            place = self.place(row)
            twin_place = self.place(twin)
            text = shorten(_text(self._subject, place), limit=80)
            if with_twin_text:
                twin_text = f"{shorten(_text(self._subject, twin_place), limit=80)} at "
            else:
                twin_text = "as at "
            excerpt = f"{text} / {twin_text}{_file_and_line(self._subject, twin_place)}"
            split, index = place
            examples.append(Example(self._subject.splits[split].where(index), excerpt))
        return tuple(examples)

    def conflict_example(self, first_row: int) -> Example:
        """Returns a text with its label in the first row, and those in up to three later rows.

        Args:
            first_row: Position of the first row with the text.
        """
        positions = self.alike(first_row)[:4]
        first_place, *later_places = [self.place(position) for position in positions]
        later_answers = "; ".join(
            f"{_shown_answer(self._subject, place)} at {_file_and_line(self._subject, place)}"
            for place in later_places
        )
        split, index = first_place
        text = shorten(_text(self._subject, first_place), limit=60)
        excerpt = f"{text} = {_shown_answer(self._subject, first_place)}; {later_answers}"
        return Example(self._subject.splits[split].where(index), excerpt)


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


def _file_and_line(subject: Subject, place: Place) -> str:
    """Returns file and line without the folder, for a second place in one line."""
    return subject.splits[place[0]].where(place[1]).rpartition("/")[2]
