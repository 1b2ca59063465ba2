"""`predict`: answers for any number of rows, in their order, in bounded memory."""

import collections
import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.inference.answer_parts import (
    ALL_CHUNKS,
    LAYOUTS_OF_LINES,
    AnswerShard,
    MergedParts,
    part_layout,
    part_path,
)
from bertctl.inference.carried_columns import KeptColumns
from bertctl.inference.layouts import glue_splits, write_answers, write_glue
from bertctl.inference.predictor import Predictor, tell_truncation
from bertctl.inference.rows_to_answer import CHUNK, with_data
from bertctl.inference.shards import Sharing
from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import SILENT, Listener
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import AnswerFormat
from bertctl.writing import replacing_text


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

    There are three cases: the merge of shards that were answered before; a shard whose answers will
    be merged; and answers that are final, to all rows or to a shard that has an output of its own.

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
        # Without rows `counts` is empty.
        return {"examples": 0, **merged.counts, "files": files}

    predictor = Predictor(
        run,
        run.load(workers),
        top_k=top_k,
        kept_columns=kept_columns,
        one_table=destination.layout in ("csv", "tsv"),
    )
    reads = task_format.reads if task_format else ()
    # The record of a shard is for its merge. A shard that needs no merge has none.
    if sharing.shard is not None and sharing.needs_merge:
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
    # `seen` refuses processes that read other rows than this one.
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
    # Without rows `counts` is empty.
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
    # Without rows `counts` is empty.
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
    run_on_data = with_data(run, data)
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
