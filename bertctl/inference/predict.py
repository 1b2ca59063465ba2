"""`predict`: answers for any number of rows, in their order, in bounded memory."""

import collections
import functools
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.catalog.datasets import find_dataset
from bertctl.config.recipe_sections import DataSection
from bertctl.config.task_names import PRETRAINING
from bertctl.data.file_lists import files_of
from bertctl.data.file_names import is_text
from bertctl.data.question_files import questions_about, require_distinct_ids
from bertctl.data.read_options import ReaderOptions, ReadOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.data.table import Table
from bertctl.data.text_files import read_text, require_file
from bertctl.errors import UsageError
from bertctl.inference.answer_parts import (
    ALL_CHUNKS,
    LAYOUTS_OF_LINES,
    AnswerShard,
    AnswerShare,
    MergedParts,
    part_layout,
    part_path,
)
from bertctl.inference.carried_columns import SUFFIX, KeptColumns, beside, cells, shown_name
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import truncation_counts, warn_of_truncation
from bertctl.inference.layouts import glue_splits, write_answers, write_glue
from bertctl.inference.shards import Sharing
from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import SILENT, Listener
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import AnswerFormat, Features, Outputs
from bertctl.tasks.targets import Answered
from bertctl.words import command, listing
from bertctl.writing import replacing_text

# rows predicted at once: memory holds so many, and batches of like lengths are formed among them
CHUNK = 2048


@dataclass(frozen=True)
class Destination:
    """Where answers go.

    Attributes:
        output: A file; None writes to `stdout`.
        layout: `jsonl`, `json`, `csv`, or one that the task has of its own.
        stdout: Where answers go without `output`.
        safe_csv: Whether cells that look like formulas are escaped; see `write_answers`.
    """

    output: Path | None
    layout: str
    stdout: TextIO
    safe_csv: bool = False

    def write(
        self, answers: Iterable[dict[str, Any]], task_format: AnswerFormat | None
    ) -> list[str]:
        """Writes the answers, and returns the files.

        Args:
            answers: Answers, as `Predictor.predict` gives them.
            task_format: The layout, where the task has it and not `write_answers`.
        """
        if task_format:
            write = task_format.write
        else:
            write = functools.partial(write_answers, layout=self.layout, safe_csv=self.safe_csv)
        if self.output is None:
            write(answers, self.stdout)
            return []
        return self._write_files(answers, write, task_format)

    def merge(
        self, parts: MergedParts, chunks: Iterable[Rows], task_format: AnswerFormat | None
    ) -> list[str]:
        """Writes the answers of all shards, and returns the files.

        Args:
            parts: The shards.
            chunks: All rows, some at a time.
            task_format: The layout, where the task has it and not `write_answers`.
        """
        if task_format is not None or self.layout not in LAYOUTS_OF_LINES:
            return self.write(parts.answers(chunks), task_format)
        assert self.output is not None  # noqa: S101 - `Sharing.read` refuses a merge without -o
        with replacing_text(self.output) as out:
            parts.copy(chunks, out)
        return [str(self.output)]

    def _write_files(
        self,
        answers: Iterable[dict[str, Any]],
        write: Callable[..., None],
        task_format: AnswerFormat | None,
    ) -> list[str]:
        """Writes the output and its extra files (`answers.nbest.json`), and returns their paths."""
        assert self.output is not None  # noqa: S101 - as `write` has seen
        writers = {self.output: write}
        if task_format is not None and task_format.extra:
            # Each file needs all answers, and an iterator gives them once.
            answers = list(answers)
            for suffix, write_extra in task_format.extra.items():
                extra_path = self.output.with_name(self.output.stem + suffix)
                writers[extra_path] = write_extra

        for path, writer in writers.items():
            with replacing_text(path) as out:
                writer(answers, out)
        return [str(path) for path in writers]


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


def unlabelled_rows(
    run: TrainedRun,
    source: str | Sequence[str] | MemoryFile,
    *,
    kind: str | None = None,
    layout: str = "jsonl",
    listener: Listener = SILENT,
    skipped: SkippedRows | None = None,
) -> Iterator[Rows]:
    """Returns the rows of files, of stdin (`-`) or in memory, some at a time.

    The first ones are read and checked at once, before any answer is written. Rows have labels only
    if the layout of the answers shows them.

    Some layouts name a row by its id only, as SQuAD's does. For these all rows are read first, to
    see that no id occurs twice.

    Args:
        run: Says how the rows are read.
        source: A path or a pattern, several of them that are read as one file, `-`, or rows in
            memory.
        kind: Format of the file; by its suffix when None.
        layout: Layout of the answers, such as `jsonl`.
        listener: Receives what was guessed.
        skipped: Collects the rows that can't be read.

    Raises:
        DataError: Two rows have the same id, and the layout names rows by their ids.
    """
    reader = READERS[run.recipe.task]
    by_id = _is_by_id(run, layout)
    reader_options = ReaderOptions(
        kind=kind,
        listener=listener,
        hints=run.column_hints,
        skipped=skipped,
    )
    if layout in run.task.formats and "label" in run.task.formats[layout].reads:
        reader_options["keep_labels"] = True  # gold labels are written beside the answers
    if isinstance(source, str):
        source = [source]
    chunks = reader.stream(
        source if isinstance(source, MemoryFile) else files_of(source),
        run.file_settings,
        chunk_rows=None if by_id else CHUNK,
        **reader_options,
    )
    first_chunk = next(chunks, None)
    if first_chunk is None:
        return iter(())
    run.check_pairs(first_chunk)
    if by_id:  # without `chunk_rows` the first chunk is all rows
        require_distinct_ids(first_chunk)
        listener.expect(len(first_chunk))
        return first_chunk.parts(CHUNK)
    return itertools.chain([first_chunk], chunks)


def _is_by_id(run: TrainedRun, layout: str) -> bool:
    """Returns whether a layout names rows by their ids only, so that no id may occur twice."""
    return layout in run.task.formats and run.task.formats[layout].by_id


def split_rows(
    run: TrainedRun,
    split: str,
    *,
    data: str | None = None,
    layout: str = "jsonl",
    listener: Listener = SILENT,
    skipped: SkippedRows | None = None,
) -> Rows:
    """Returns a split of the run's own data, or of another catalog data set with the same labels.

    Args:
        run: An opened run.
        split: Its name.
        data: Another data set's catalog name.
        layout: Layout of the answers, such as `jsonl`.
        listener: Receives what was guessed.
        skipped: Collects the rows that can't be read.
    """
    loaded_data = _with_data(run, data).load_data([split], listener=listener, skipped=skipped)
    rows = loaded_data.splits[split]
    if _is_by_id(run, layout):
        require_distinct_ids(rows)
    return rows


def text_rows(run: TrainedRun, texts: Sequence[str], pairs: Sequence[str]) -> Rows:
    """Returns texts as a person typed them, or pairs of them.

    Args:
        run: Run that will answer them.
        texts: Texts, or the first text of each pair.
        pairs: The second text of each pair; empty for single texts.

    Raises:
        UsageError: The run does not read texts; there are not as many second texts as texts; the
            run reads pairs and gets none, or the reverse.
    """
    reader = READERS[run.recipe.task]
    reads_no_texts = not {"text", "words"} & set(run.task.columns)
    counts_differ = len(pairs) not in (0, len(texts))
    # `run.pairs` is None where nothing says whether the run was trained on pairs.
    lacks_pairs = bool(run.pairs) and not pairs
    takes_no_pairs = run.pairs is False or "pair" not in reader.columns
    has_needless_pairs = bool(pairs) and takes_no_pairs
    if reads_no_texts or counts_differ or lacks_pairs or has_needless_pairs:
        kind = {None: "", True: " on pairs", False: " on single texts"}[run.pairs]
        message = (
            f"{run.folder.path} is a run of {run.task.name}{kind}; `text=`: {len(texts)}, "
            f"`text_pair=`: {len(pairs)}"
        )
        remedy = (
            "Give `text=TEXT`, with `text_pair=TEXT` for a pair; `question=` and `context=`; or a "
            "file of rows."
        )
        raise UsageError(message, remedy=remedy)
    columns = {"text": texts}
    if pairs:
        columns["pair"] = pairs
    # Naming the columns keeps the reader from guessing others.
    section = DataSection(text_column="text", pair_column="pair" if pairs else None)
    options = ReadOptions(section, "predict", keep_labels=False)
    [reading] = reader.table_readings([Table(columns, "the command line")], options)
    return reading.rows


def question_rows(
    run: TrainedRun, questions: Sequence[str], context: str, *, listener: Listener = SILENT
) -> Rows:
    """Returns questions about a text file, or about a text.

    Raises:
        UsageError: A run that answers no questions.
        DataError: No question, or nothing in the file.
    """
    if not {"question", "context"} <= set(run.task.columns):
        message = f"{run.folder.path} is a run of {run.task.name}: it answers no questions"
        raise UsageError(
            message,
            remedy="Leave `question=` and `context=` out, or give a run of question-answering.",
        )
    if is_text(context):
        return questions_about(questions, context)
    require_file(Path(context))
    about = read_text(Path(context), run.file_settings.encoding, listener)
    return questions_about(questions, about, source=context)


def predict_rows(
    run: TrainedRun,
    chunks: Iterable[Rows],
    destination: Destination,
    *,
    total: int = 0,
    top_k: int | None = None,
    kept_columns: KeptColumns = KeptColumns(),  # noqa: B008
    workers: Workers = ALONE,
    sharing: Sharing = Sharing(),  # noqa: B008
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Writes an answer per row, or those of a shard, and returns counts and the files written.

    There are three cases: the merge of shards that were answered before, a shard whose answers will
    be merged, and answers that are written in place.

    Args:
        run: An opened run.
        chunks: Rows, some at a time.
        destination: Where the answers go.
        total: Number of rows in all the chunks, where that is known.
        top_k: Answer with so many labels.
        kept_columns: Columns of the file that general layouts carry over.
        workers: The processes that share the work; the first one writes.
        sharing: Says whether this is a shard of the work, or the merge of all shards.
        listener: Receives the progress.

    Raises:
        UsageError: Shards that are to be merged were made of other rows, or with other settings.
        DataError: Such a shard is damaged.
    """
    task_format = run.task.formats.get(destination.layout)
    if task_format:  # formats of a task have no place for further columns
        kept_columns = KeptColumns()
    settings_hash = _settings_hash(run, destination, top_k, kept_columns)
    if sharing.is_merge:
        merged = MergedParts(sharing.paths, settings_hash, destination.layout)
        watched = _watched(chunks, total, listener)
        files = destination.merge(merged, watched, task_format)
        listener.finish("merging")
        tell_truncation(run, merged.counts, listener)
        return {"examples": 0, **merged.counts, "files": files}

    predictor = Predictor(
        run,
        run.load(workers),
        top_k=top_k,
        kept_columns=kept_columns,
        one_table=destination.layout in ("csv", "tsv"),
    )
    reads = task_format.reads if task_format else ()
    if sharing.shard is not None and sharing.paths:
        shard = AnswerShard(*sharing.shard, settings_hash, part_layout(destination.layout))
        answers = predictor.predict(
            chunks,
            reads=reads,
            total=total,
            share=shard,
            listener=listener,
        )
        return _write_part(
            answers,
            predictor,
            shard,
            destination,
            sharing,
            listener,
        )

    share = ALL_CHUNKS
    if sharing.shard is not None:
        share = AnswerShard(*sharing.shard, settings_hash, destination.layout)
    chunks = workers.seen(chunks)
    answers = predictor.predict(
        chunks,
        reads=reads,
        total=total,
        share=share,
        listener=listener,
    )
    if not workers.is_first:
        # This process computes its share, and the first process writes.
        collections.deque(answers, maxlen=0)
        return dict(predictor.counts)
    files = destination.write(answers, task_format)
    predictor.finish(listener)
    return {"examples": 0, **predictor.counts, "files": files}


def _write_part(
    answers: Iterable[dict[str, Any]],
    predictor: Predictor,
    shard: AnswerShard,
    destination: Destination,
    sharing: Sharing,
    listener: Listener,
) -> dict[str, Any]:
    """Writes the answers of a shard that is to be merged, and its record.

    Args:
        answers: Answers to the shard's rows, as they are computed.
        predictor: Computes them, and counts.
        shard: Counts the lines of each chunk.
        destination: Output of the merge; the part is written beside it.
        sharing: Number of the shard, and path of its record.
        listener: Receives warnings.

    Returns:
        Counts of the shard, and its file.
    """
    [record] = sharing.paths  # a shard has one record, its own
    assert destination.output is not None  # noqa: S101 - `Sharing.read` refuses shards without -o
    assert sharing.shard is not None  # noqa: S101
    part = part_path(destination.output, destination.layout, sharing.shard)
    record.unlink(missing_ok=True)  # an earlier one is not about the new part
    with replacing_text(part) as out:
        layout = part_layout(destination.layout)
        write_answers(
            answers,
            shard.counted(out),
            layout=layout,
            safe_csv=destination.safe_csv,
        )
    predictor.finish(listener)
    shard.write_record(record, part, predictor.counts)
    return {"examples": 0, **predictor.counts, "files": [str(part)]}


def _settings_hash(
    run: TrainedRun, destination: Destination, top_k: int | None, kept_columns: KeptColumns
) -> str:
    """Returns the hash of everything but the rows that decides what the answers say.

    Shards are merged only if they have the same one.
    """
    task_format = run.task.formats.get(destination.layout)
    layout = [
        part_layout(destination.layout),
        destination.safe_csv,
        task_format.reads if task_format else (),
    ]
    return hashlib.sha256(
        json.dumps([run.hash, layout, top_k, kept_columns.names]).encode()
    ).hexdigest()


def _watched(chunks: Iterable[Rows], total: int, listener: Listener) -> Iterator[Rows]:
    """Yields the rows whose answers are merged, and reports after each chunk how many they were."""
    n_rows = 0
    for rows in chunks:
        n_rows += len(rows)
        listener.advance("merging", n_rows, total)
        yield rows


def predict_glue(
    run: TrainedRun,
    name: str,
    *,
    data: str | None,
    output: Path,
    overwrite: bool = False,
    workers: Workers = ALONE,
    sharing: Sharing = Sharing(),  # noqa: B008
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Writes the files that the GLUE server takes for a split; `test` is both test splits of MNLI.

    There are the three cases of `predict_rows`. Two splits are shared as one list of rows, the
    second split behind the first one.

    Args:
        run: An opened run.
        name: Name of the split.
        data: Another data set's catalog name, such as `ax`.
        output: Folder for one file per split.
        overwrite: Whether files that are there are replaced.
        workers: The processes that share the work; the first one writes.
        sharing: Says whether this is a shard of the work, or the merge of all shards.
        listener: Receives the progress.

    Returns:
        Counts, and the files written.

    Raises:
        UsageError: Not a GLUE data set, or a split that the server takes no answers for, or a file
            is there.
    """
    run_on_data = _with_data(run, data)
    dataset, split_rows = glue_splits(run_on_data.recipe.data, name)
    paths = {row.name: output / row.glue_file for row in split_rows}
    existing = [path for path in paths.values() if path.exists()]
    if existing and not overwrite:
        raise UsageError(
            f"{existing[0]} exists",
            remedy="Choose another folder with `output=`, or add `overwrite=True` to replace it.",
        )
    all_splits = run_on_data.load_data([*paths], listener=listener).splits
    splits = {split: all_splits[split] for split in paths}
    # Nothing is written to it: files of the GLUE server go to `paths`. It gives the hash of the
    # settings and the path of a shard's part.
    destination = Destination(output, "glue", io.StringIO())
    settings_hash = _settings_hash(run, destination, None, KeptColumns())
    if sharing.is_merge:
        merged = MergedParts(sharing.paths, settings_hash, "glue")
        _merge_glue(merged, splits, paths, dataset)
        tell_truncation(run, merged.counts, listener)
        return {**merged.counts, "files": [str(path) for path in paths.values()]}

    if sharing.shard is not None:
        chunks = _chunks_of(splits.values())
        total = sum(len(rows) for rows in splits.values())
        predictor = Predictor(run, run.load())
        shard = AnswerShard(*sharing.shard, settings_hash, part_layout("glue"))
        answers = predictor.predict(
            chunks,
            total=total,
            share=shard,
            listener=listener,
        )
        return _write_part(
            answers,
            predictor,
            shard,
            destination,
            sharing,
            listener,
        )

    # The processes agree on all rows before they load the model.
    splits = dict(zip(splits, workers.seen(splits.values()), strict=True))
    predictor = Predictor(run, run.load(workers))
    for split, rows in splits.items():
        answers = predictor.predict(rows.parts(CHUNK), total=len(rows), listener=listener)
        if workers.is_first:
            write_glue(answers, paths[split], dataset=dataset)
        else:  # this process computes its share, and the first process writes
            collections.deque(answers, maxlen=0)
    predictor.finish(listener)
    return {**predictor.counts, "files": [str(path) for path in paths.values()]}


def _merge_glue(
    merged: MergedParts, splits: Mapping[str, Rows], paths: Mapping[str, Path], dataset: DatasetRow
) -> None:
    """Writes the GLUE files of all shards.

    Args:
        merged: Answers of the shards, to the rows of the first split, then to those of the second.
        splits: Rows by split, in this order.
        paths: File of each split.
        dataset: The GLUE data set, which decides how a prediction is written.
    """
    # All answers are read first: only the last row shows that the shards are of these rows.
    predictions = [
        {"prediction": answer["prediction"]}
        for answer in merged.answers(_chunks_of(splits.values()))
    ]
    begin = 0
    for split, rows in splits.items():
        end = begin + len(rows)
        write_glue(predictions[begin:end], paths[split], dataset=dataset)
        begin = end


def _chunks_of(splits: Iterable[Rows]) -> Iterator[Rows]:
    """Yields the rows of splits in chunks of at most `CHUNK`, none of them of two splits."""
    for rows in splits:
        yield from rows.parts(CHUNK)


def _with_data(run: TrainedRun, data: str | None) -> TrainedRun:
    """Returns the run with another catalog data set in its recipe, where one is named.

    Raises:
        UsageError: The data set has other labels than the run.
    """
    if data is None:
        return run
    dataset = find_dataset(data, run.recipe.data.datasets_file)
    known = run.task.label_names
    if dataset.labels and set(known) != set(dataset.labels):
        raise UsageError(
            f"the labels of '{data}' ({', '.join(dataset.labels)}) are not those of "
            f"{run.folder.path} ({', '.join(known)})",
            remedy="Give a run that was trained on the same labels.",
        )
    return replace(run, recipe=run.recipe.with_fields("data", name=dataset.name))
