"""Reads the rows that a run is to answer: of files, splits, or as they were typed."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bertctl.catalog.datasets import find_dataset
from bertctl.config.recipe_sections import DataSection
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
from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import SILENT, Listener

CHUNK = 2048
"""Rows that are answered at once. They are in memory, and batches are formed among them by length.
"""


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
    loaded_data = with_data(run, data).load_data([split], listener=listener, skipped=skipped)
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


def with_data(run: TrainedRun, data: str | None) -> TrainedRun:
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
