"""Rows as a command line names them: a file, stdin, texts, questions about a text, or a split of the run's own data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertctl.errors import UsageError
from bertctl.progress import Listener

if TYPE_CHECKING:
    from bertctl.data.reading import SkippedRows
    from bertctl.data.rows import Rows
    from bertctl.inference.trained import TrainedRun


@dataclass(frozen=True)
class RowsGiven:
    """Holds what was typed; nothing is read before `chunks`.

    Attributes:
        file: path, `-` for stdin, or a text.
        texts: texts to take as they are.
        pairs: their second texts.
        split: of the run's own data, or of `data`.
        data: another data set's catalog name.
        questions: about `context`, a file or a text.
        context: see there.
        kind: format of the file; by its suffix when None.
    """

    file: str = ""
    texts: Sequence[str] = ()
    pairs: Sequence[str] = ()
    split: str | None = None
    data: str | None = None
    questions: Sequence[str] = ()
    context: str | None = None
    kind: str | None = None

    def check(self, verb: str) -> None:
        """Refuses what excludes each other, and nothing at all.

        Raises:
            UsageError: with what to give.
        """
        if bool(self.questions) == (self.context is None):
            raise UsageError(
                "--question and --context need each other",
                remedy='Such as --question "Who wrote it?" --context text.txt',
            )
        given = [bool(self.file), bool(self.texts or self.questions), bool(self.split or self.data)]
        if sum(given) > 1:
            raise UsageError(
                "a file, --text or --question, and --split or --data exclude each other", remedy="Give one of them."
            )
        if not any(given):
            raise UsageError(
                f"nothing to {verb}",
                remedy="Give a file, a text, - for stdin, or --split NAME for a split of the run's own data.",
            )

    def chunks(
        self, run: "TrainedRun", listener: Listener, skipped: "SkippedRows | None", layout: str = "jsonl"
    ) -> "tuple[Iterable[Rows], int]":
        """Returns the rows, some at a time, and how many there are, where that is known; else 0.

        Args:
            run: says how they are read.
            listener: hears what was guessed.
            skipped: gets rows that can't be read.
            layout: of the answers.
        """
        from bertctl.inference.predict import in_chunks, question_rows, split_rows, text_rows, unlabelled_rows

        if self.questions and self.context is not None:
            return [question_rows(run, self.questions, self.context, listener=listener)], len(self.questions)
        if self.texts:
            return [text_rows(run, self.texts, self.pairs)], len(self.texts)
        if self.split or self.data:
            split = self.split or "test"
            rows = split_rows(run, split, data=self.data, layout=layout, listener=listener, skipped=skipped)
            return in_chunks(rows), len(rows)
        return unlabelled_rows(run, self.file, kind=self.kind, layout=layout, listener=listener, skipped=skipped), 0
