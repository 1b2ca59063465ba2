"""Answers rows with the model of a run, chunk by chunk."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bertctl.config.task_names import PRETRAINING
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.inference.answer_parts import (
    ALL_CHUNKS,
    AnswerShare,
)
from bertctl.inference.carried_columns import SUFFIX, KeptColumns, beside, cells, shown_name
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import truncation_counts, warn_of_truncation
from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import SILENT, Listener
from bertctl.tasks.base import Features, Outputs
from bertctl.tasks.targets import Answered
from bertctl.words import command, listing


class Predictor:
    """Answers rows with a run's model, chunk by chunk.

    For each chunk `carry` and `answer` come first, then `line` for each of its rows. Counts and
    names of columns are collected over all chunks, and `finish` reports them.

    Args:
        run: An opened run.
        engine: Its model.
        top_k: Answer with so many labels, where the answers are labels.
        kept_columns: Columns of the file that are carried over.
        one_table: Whether all answers have the columns of the first ones, as in CSV.

    Attributes:
        counts: Examples, truncated examples, truncated and unknown tokens so far.

    Raises:
        UsageError: A run of pretraining.
    """

    def __init__(
        self,
        run: TrainedRun,
        engine: Engine,
        *,
        top_k: int | None = None,
        kept_columns: KeptColumns = KeptColumns(),  # noqa: B008
        one_table: bool = False,
    ) -> None:
        if run.recipe.task == PRETRAINING:
            raise UsageError(
                f"{run.folder.path} was pretrained: it answers no rows",
                remedy=f"{command('fill-mask', run.folder.path, 'TEXT')}, or fine-tune it: "
                f"{command('finetune FILE', model=run.folder.path)}",
            )
        self.run = run
        self._engine = engine
        self._top_k = top_k
        self._kept = kept_columns
        self._one_table = one_table
        self._carried: dict[str, Sequence[Any]] = {}  # of the chunk that is answered now
        self._table_columns: list[str] | None = None  # carried columns of the first chunk
        self._left_out: dict[str, None] = {}  # columns that a warning has named
        self._clashes: dict[str, None] = {}  # fields of answers that are columns of the file, too
        self.counts: dict[str, int] = {}

    def predict(
        self,
        chunks: Iterable[Rows],
        *,
        reads: Sequence[str] = (),
        total: int = 0,
        share: AnswerShare = ALL_CHUNKS,
        listener: Listener = SILENT,
    ) -> Iterator[dict[str, Any]]:
        """Yields an answer per row, in order: id, texts, prediction, probabilities, tokens, ....

        Args:
            chunks: Rows, some at a time; memory holds one chunk.
            reads: Further columns to be shown, where the rows have them.
            total: Number of rows in all the chunks, where that is known.
            share: Says which of the chunks are answered; of others nothing is computed.
            listener: Receives the progress.
        """
        n_rows = 0
        for rows, is_mine in share.marked(chunks):
            is_first = n_rows == 0  # a table has the columns that the first rows of the file have
            n_rows += len(rows)
            if is_mine or is_first:
                self.carry(rows, listener)
            if is_mine:
                answered = self.answer(rows)
            listener.advance("predicting", n_rows, total)
            if is_mine:
                for i in range(len(rows)):
                    yield self.line(answered, i, reads)

    def answer(self, source_rows: Rows) -> Answered:
        """Returns rows with their answers; prediction looks at no labels."""
        features = self.encode(source_rows)
        batch_size = self.run.recipe.evaluation.batch_size
        result = self._engine.forward(self.run.task, features, batch_size=batch_size)
        return self.decode(source_rows, features, result.outputs)

    def encode(self, source_rows: Rows) -> Features:
        """Returns rows as the model reads them."""
        return self.run.task.encode(
            without_labels(source_rows),
            self._engine.tokenizer,
            max_length=self.run.recipe.model.max_length,
        )

    def decode(self, source_rows: Rows, features: Features, outputs: Outputs) -> Answered:
        """Returns rows with the answers that outputs of the model mean, and counts them.

        Args:
            source_rows: The rows.
            features: The same, encoded.
            outputs: What the forward pass has collected of them.
        """
        for name, count in truncation_counts(features).items():
            self.counts[name] = self.counts.get(name, 0) + count
        answers = self.run.task.decode(outputs, features, without_labels(source_rows))
        return Answered(source_rows, features, outputs, answers)

    def line(self, answered: Answered, index: int, reads: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the answer to a row as files show it: id, texts, prediction, probabilities, ....

        Args:
            answered: Rows with their answers.
            index: Which of them.
            reads: Further columns of the rows to be shown.
        """
        line = self.input_fields(answered, index, reads)
        fields = self.answer_fields(answered, index)
        self._clashes |= dict.fromkeys(name for name in fields if name in line)
        return beside(line, fields)

    def input_fields(
        self, answered: Answered, index: int, reads: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Returns what a line shows of a row: id, texts, and columns of the file."""
        rows = answered.rows
        line = {"id": self._of_file(rows.answer_id(index))}
        if self.run.recipe.evaluation.keep_text:
            texts = rows.fields(index, (*self.run.task.answers.columns, *reads))
            line |= {shown_name(column, rows): value for column, value in texts.items()}
        line |= {name: self._of_file(value) for name, value in cells(self._carried, index).items()}
        return line

    def answer_fields(self, answered: Answered, index: int) -> dict[str, Any]:
        """Returns what a line shows of an answer: the answer, tokens, and truncated."""
        features = answered.features
        length = {
            "tokens": int(features.tokens[index]),
            "truncated": bool(features.truncated_tokens[index] > 0),
        }
        return {**self._shown(answered.answers[index]), **length}

    def _of_file(self, value: Any) -> Any:
        """Returns a value of the file as a line shows it; in a table, an object as JSON."""
        if self._one_table and isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        return value

    def carry(self, rows: Rows, listener: Listener) -> None:
        """Keeps the columns of a chunk that its answers will show beside their own.

        A table (CSV) has the columns of its first chunk; later chunks are filled up with blanks,
        and columns that begin later are left out with a warning.
        """
        task = self.run.task
        canonical = dict.fromkeys(
            (*READERS[task.name].columns, *task.columns, *task.answers.columns)
        )
        columns = self._kept.columns(rows, canonical)
        if not self._one_table:
            self._carried = columns
            return

        if self._table_columns is None:
            self._table_columns = [*columns]
        blank = [None] * len(rows)
        self._carried = {name: columns.get(name, blank) for name in self._table_columns}
        late_columns = [
            name
            for name in columns
            if name not in self._table_columns and name not in self._left_out
        ]
        if late_columns:
            self._left_out |= dict.fromkeys(late_columns)  # each is warned of once
            message = (
                f"{rows.source}: a table has no place for columns that begin after its first rows: "
                f"{listing(late_columns)}"
            )
            listener.warn(f"{message}. `format=jsonl` keeps them")

    def _shown(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns an answer with the probability of its prediction, as it is written.

        If `top_k` was asked for, the likeliest labels take the place of all probabilities.
        """
        probabilities = answer.get("probabilities")
        answer = _with_probability(answer)
        if self._top_k is None:
            return answer
        if not isinstance(probabilities, dict):
            message = (
                f"{self.run.folder.path} is a run of {self.run.task.name}, whose answers are not "
                "labels of a text"
            )
            raise UsageError(message, remedy="Leave `top_k=` out.")
        likeliest = sorted(probabilities.items(), key=lambda pair: -pair[1])[: self._top_k]
        top = [{"label": label, "probability": probability} for label, probability in likeliest]
        return {name: value for name, value in answer.items() if name != "probabilities"} | {
            "top": top
        }

    def finish(self, listener: Listener) -> None:
        """Ends the progress, and says what was truncated."""
        listener.finish("predicting")
        warn_of_clashes([*self._clashes], "the model's answers", listener)
        tell_truncation(self.run, self.counts, listener)


def without_labels(rows: Rows) -> Rows:
    """Returns rows without the column of labels."""
    columns = {name: values for name, values in rows.columns.items() if name != "label"}
    return replace(rows, columns=columns)


def warn_of_clashes(columns: Sequence[str], answers: str, listener: Listener) -> None:
    """Warns of names that the input and the answers both use, if there are any.

    Args:
        columns: The names. The columns of the answers get a suffix.
        answers: What these columns of the answers contain, for the sentence.
        listener: Receives the warning.
    """
    if columns:
        renamed = ", ".join(f"{name}{SUFFIX}" for name in columns)
        listener.warn(
            f"the input has its own {listing(columns)}, so {answers} are in {renamed}; "
            "`keep_columns=none` leaves the input's out"
        )


def tell_truncation(
    run: TrainedRun, counts: Mapping[str, int], listener: Listener, *, name: str = "input"
) -> None:
    """Reports what was truncated of the rows that were answered, if there were any."""
    if counts:
        max_length = run.recipe.model.max_length
        warn_of_truncation(
            name,
            counts,
            message=run.task.truncation,
            max_length=max_length,
            listener=listener,
        )


def _with_probability(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an answer with the probability of its label or choice behind the prediction.

    An answer that has no such probability, or has it already, is returned as it is.
    """
    prediction = answer["prediction"]
    probabilities = answer.get("probabilities")
    if probabilities is None or isinstance(prediction, list) or "probability" in answer:
        return answer
    leading = {"prediction": prediction, "probability": probabilities[prediction]}
    return leading | {name: value for name, value in answer.items() if name != "prediction"}
