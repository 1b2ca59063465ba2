"""How answers are written.

JSON Lines, one JSON array, CSV, the GLUE server's files, and what a task has of its own.
"""

import csv
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from bertctl.catalog.dataset_row import DatasetRow, SplitRow
from bertctl.catalog.datasets import find_dataset
from bertctl.config.recipe_sections import DataSection
from bertctl.data.file_names import suffix_of
from bertctl.errors import UsageError
from bertctl.inference.carried_columns import SUFFIX, beside
from bertctl.inference.trained_run import TrainedRun
from bertctl.tasks.registry import TASKS
from bertctl.words import unknown
from bertctl.writing import replacing_text, write_array

GENERAL_FORMATS = ("jsonl", "json", "csv", "tsv", "glue")
"""Layouts of answers that every task has; a task's own are in `Task.formats`. `glue` is for the
GLUE server."""

GLUE_WORDS = ("mnli", "qnli", "rte", "ax")
"""Tasks whose official files have label words; the others have numbers."""


_FORMULA = re.compile(r"[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def layout_of(output: Path | None) -> str:
    """Returns the layout of answers by a file's suffix (before `.gz`), otherwise JSON Lines.

    Raises:
        UsageError: The suffix is of a format in which answers can't be written, such as Parquet.
    """
    if output:
        name = suffix_of(output).removeprefix(".")
    else:
        name = ""
    if name in ("parquet", "pq", "npy", "npz", "safetensors", "h5", "xlsx"):
        raise UsageError(
            f"{output}: answers are not written as {name}",
            remedy="Name it .jsonl, .json, .csv or .tsv.",
        )
    if name in ("json", "csv", "tsv", "conll"):
        return name
    return "jsonl"


def check_known(layout: str) -> None:
    """Refuses a layout of answers that no task has.

    Raises:
        UsageError: No task has it; the error names those that there are.
    """
    formats_of_tasks = itertools.chain.from_iterable(task.formats for task in TASKS.values())
    known = [*GENERAL_FORMATS, *dict.fromkeys(formats_of_tasks)]
    if layout not in known:
        raise UsageError(
            unknown("format", layout, known), remedy=f"Choose from {', '.join(known)}."
        )


def check_format(run: TrainedRun, layout: str, *, to_file: bool) -> None:
    """Refuses a layout of answers that this run's task does not have.

    Raises:
        UsageError: The task does not have it; the error names those that it has.
    """
    task_formats = run.task.formats
    known = (*GENERAL_FORMATS, *task_formats)
    if layout not in known:
        message = unknown(f"format of {run.task.name}", layout, known)
        raise UsageError(message, remedy=f"Choose from {', '.join(known)}.")
    if layout not in task_formats or to_file:
        return
    if task_formats[layout].extra:
        message = "writes several files"
    elif task_formats[layout].to_file:
        message = "can't be written to a terminal or a pipe"
    else:
        return
    raise UsageError(f"`format={layout}` {message}", remedy="Say where: `output=FILE`.")


def write_answers(
    answers: Iterable[dict[str, Any]], out: TextIO, *, layout: str, safe_csv: bool = False
) -> None:
    """Writes answers as they come.

    The layout is `jsonl`, `json` (one array), or `csv` and `tsv` with a column per probability.

    With `safe_csv`, a text that a spreadsheet would take for a formula has an apostrophe before it
    (OWASP, "CSV Injection"); what is a number stays.

    Each line is whole when it is written, so that whoever reads along, or stops us, has whole
    lines.
    """
    if layout == "jsonl":
        for answer in answers:
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
        return
    if layout == "json":
        write_array(answers, out)
        return
    writer: csv.DictWriter[str] | None = None
    for answer in answers:
        flat = _table_row(answer)
        if writer is None:
            delimiter = "\t" if layout == "tsv" else ","
            writer = csv.DictWriter(
                _LineFeeds(out),
                list(flat),
                lineterminator="\r\n",
                delimiter=delimiter,
            )
            writer.writeheader()
        writer.writerow(
            {name: _no_formula(cell) if safe_csv else cell for name, cell in flat.items()}
        )


class _LineFeeds:
    """File that makes the line ends of a CSV writer single line feeds.

    The writer quotes a field for the characters of its line end only, in Python before 3.11.9 and
    3.12.3: a carriage return in a text would end the row for whoever reads it.

    Args:
        out: Receives the lines.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, line: str) -> None:
        """Writes a line."""
        self._out.write(line.removesuffix("\r\n") + "\n")


def _table_row(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an answer as cells by column name.

    {"prediction": "a", "probabilities": {"a": 0.9}} has the columns `prediction` and
    `probability_a`. Columns with the probability of each label come last.
    """
    row: dict[str, Any] = {}
    probability_cells: dict[str, Any] = {}
    for name, value in answer.items():
        # A field has a suffix if the file has a column with its name.
        field = name.removesuffix(SUFFIX)
        if field == "probabilities" and isinstance(value, dict):
            probability_cells |= {
                f"probability_{label}": _digits(probability) for label, probability in value.items()
            }
        elif isinstance(value, dict) and "prediction" in value:
            # Several runs answered the row, and this field has the whole answer of one of them.
            row |= {f"{name}_{column}": cell for column, cell in _table_row(value).items()}
        elif isinstance(value, dict):
            row |= {f"{name}_{key}": _cell(nested) for key, nested in value.items()}
        elif field == "top" and _are_labels(value):
            for place, label in enumerate(value, start=1):
                probability_cells |= {
                    f"top_{place}": label["label"],
                    f"top_{place}_probability": _digits(label["probability"]),
                }
        elif field == "probability":
            row[name] = _digits(value)
        else:
            row[name] = _cell(value)
    return beside(row, probability_cells)


def _cell(value: Any) -> Any:
    """Returns a value as a table has it: lists, objects and booleans as JSON, others unchanged."""
    if isinstance(value, list | dict | bool):
        return json.dumps(value, ensure_ascii=False)
    return value


def _are_labels(value: Any) -> bool:
    """Returns whether a field is what `--top-k` gives."""
    return isinstance(value, list) and all(
        isinstance(item, dict) and "probability" in item for item in value
    )


def _digits(probability: Any) -> Any:
    """Returns a probability with the nine digits that tell all numbers of 32 bits apart."""
    if isinstance(probability, float):
        return f"{probability:.9g}"
    return probability


def _no_formula(cell: Any) -> Any:
    """Returns a cell, with an apostrophe in front if a spreadsheet would take it for a formula."""
    is_formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


def glue_splits(data: DataSection, split: str) -> tuple[DatasetRow, list[SplitRow]]:
    """Returns the GLUE data set and the splits that `split` means: `test` is both of MNLI's.

    Raises:
        UsageError: Not a GLUE data set, or a split that the server takes no answers for.
    """
    dataset = None
    split_rows: list[SplitRow] = []
    if data.name:
        dataset = find_dataset(data.name, data.datasets_file)
        split_rows = [
            row
            for row in dataset.splits
            if row.glue_file and (row.name == split or row.name.startswith(f"{split}_"))
        ]
    if dataset is None or not split_rows:
        if data.name:
            message = f"the data set '{data.name}'"
        else:
            message = "a file of your own"
        remedy = (
            "Use `split=test` on a run of one of the nine tasks, or `data=ax` on a run of mnli."
        )
        raise UsageError(
            f"the GLUE server takes no predictions for the split '{split}' of {message}",
            remedy=remedy,
        )
    return dataset, split_rows


def write_glue(answers: Iterable[dict[str, Any]], path: Path, *, dataset: DatasetRow) -> None:
    """Writes one file as the GLUE server takes it: a header, then index TAB prediction.

    Class names where the official training file has names, class numbers where it has numbers,
    scores with three decimals (gluebenchmark.com, FAQ; the sample submission has these forms).
    """
    number = {name: i for i, name in enumerate(dataset.labels)}

    with replacing_text(path) as out:
        out.write("index\tprediction\n")
        for index, answer in enumerate(answers):
            prediction = answer["prediction"]
            if not dataset.labels:
                cell = f"{min(max(prediction, 0.0), 5.0):.3f}"  # STS-B's scores are 0 to 5
            elif dataset.name in GLUE_WORDS:
                cell = prediction
            else:
                cell = str(number[prediction])
            out.write(f"{index}\t{cell}\n")
