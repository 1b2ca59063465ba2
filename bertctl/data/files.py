"""One file of a person's own as `Rows`: CSV, TSV, JSONL, Parquet, each also as .gz."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from bertctl.config.schema import DataSection
from bertctl.data.columns import Choice, choose_columns, rows_from, say_blank
from bertctl.data.delimited import SAMPLE_LINES, detect_layout, records
from bertctl.data.rows import Rows
from bertctl.data.table import Table, table_of_records
from bertctl.data.text_files import open_bytes, read_text, require_file, text_lines
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener

Kind = Literal["lines", "csv", "tsv", "jsonl", "parquet"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SUFFIXES: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "lines",
}


def kind_of(path: Path) -> Kind:
    """What a file is, by its suffix (before .gz).

    Raises:
        UsageError: a suffix that says nothing.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if suffix not in _SUFFIXES:
        raise UsageError(
            f"{path}: '{suffix}' is no suffix of a file that can be read" if suffix else f"{path} has no suffix",
            remedy=f"Suffixes: {', '.join(_SUFFIXES)}, each also with .gz.",
        )
    return _SUFFIXES[suffix]


def read_file(
    path: Path, settings: DataSection, *, split: str, label_needed: bool = True, listener: Listener = SILENT
) -> Rows:
    """A file's rows, under the canonical column names.

    Args:
        path: its suffix says what it is.
        settings: columns, delimiter, header and encoding, where the person said them.
        split: what the rows are to be called.
        label_needed: whether to refuse a file without a label column.
        listener: told of what was guessed and detected.

    Raises:
        UsageError: an unknown suffix, columns that can't be guessed.
        DataError: an empty file, bytes, records or columns that are not what they should be, with file and line.
        UnavailableError: not there.
    """
    rows, _, _ = read_file_choosing(path, settings, split=split, label_needed=label_needed, listener=listener)
    return rows


def read_file_choosing(
    path: Path, settings: DataSection, *, split: str, label_needed: bool, listener: Listener
) -> tuple[Rows, Choice, bool]:
    """As `read_file`; also which columns were taken, and whether the file had names for them."""
    table = read_table(path, settings, listener)
    choice = choose_columns(table, settings, label_needed=label_needed, listener=listener)
    rows, blank = rows_from(table, choice, split=split)
    say_blank(blank, len(rows), str(path), listener)
    return rows, choice, table.header


def read_table(path: Path, settings: DataSection, listener: Listener = SILENT) -> Table:
    """A file's columns as they are.

    Raises:
        UsageError: an unknown suffix.
        DataError: an empty file, bytes or records that are not what they should be, with file and line.
        UnavailableError: not there.
    """
    require_file(path)
    kind = kind_of(path)
    readers: Mapping[Kind, Callable[[Path, DataSection, Listener], Table]] = {
        "csv": _read_delimited,
        "tsv": _read_delimited,
        "lines": _read_delimited,
        "jsonl": _read_jsonl,
        "parquet": _read_parquet,
    }
    table = readers[kind](path, settings, listener)
    if not len(table):
        what = "has a header but no rows" if table.columns else "has no rows"
        raise DataError(f"{path} {what}", remedy="Give a file with rows.")
    return table


def _read_delimited(path: Path, settings: DataSection, listener: Listener) -> Table:
    lines = list(text_lines(read_text(path, settings.encoding, listener)))
    source = str(path)
    layout = detect_layout(
        lines[:SAMPLE_LINES], lines, tabs=kind_of(path) != "csv", settings=settings, source=source, listener=listener
    )
    found = records(lines, layout, source=source, listener=listener)
    return table_of_records(layout.names, found, source, header=layout.header)


def _read_jsonl(path: Path, settings: DataSection, listener: Listener) -> Table:
    objects = list(json_objects(text_lines(read_text(path, settings.encoding, listener)), str(path)))
    return table_of_objects(objects, str(path))


def json_objects(lines: Iterable[str], source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line; blank lines are no rows.

    Raises:
        DataError: a line that is not a JSON object, with file and line.
    """
    remedy = 'JSONL has one object a line: {"text": "...", "label": "..."}'
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            shown = f"{line.strip()[:80]!r}"
            raise DataError(f"{source}:{number}: this is not JSON: {error}: {shown}", remedy=remedy) from error
        if not isinstance(value, dict):
            raise DataError(f"{source}:{number}: {type(value).__name__} where an object is needed", remedy=remedy)
        yield number, value


def table_of_objects(objects: list[tuple[int, dict[str, Any]]], source: str) -> Table:
    """Objects as columns: all keys that occur, None where an object lacks one.

    Raises:
        DataError: a string that can't be written as UTF-8 (half a surrogate pair), with file and line.
    """
    names = dict.fromkeys(itertools.chain.from_iterable(value for _, value in objects))
    columns = {name: [value.get(name) for _, value in objects] for name in names}
    table = Table(columns, source, [number for number, _ in objects])
    for name, values in columns.items():
        strings = [value for value in values if isinstance(value, str)]
        try:
            "".join(strings).encode()
        except UnicodeEncodeError:
            index = next(i for i, value in enumerate(values) if isinstance(value, str) and not _is_utf8(value))
            raise DataError(
                f"{table.where(index)}: the string in '{name}' holds half a surrogate pair, which is no character",
                remedy="Write the file again with whole characters.",
            ) from None
    return table


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_parquet(path: Path, settings: DataSection, listener: Listener) -> Table:  # noqa: ARG001 - as the others
    with open_bytes(path) as file:
        parts = list(parquet_tables(file, str(path), batch_rows=1 << 16))
    names = parts[0].columns if parts else {}
    return Table(
        {name: list(itertools.chain.from_iterable(p.columns[name] for p in parts)) for name in names}, str(path)
    )


def parquet_tables(file: BinaryIO, source: str, *, batch_rows: int) -> Iterator[Table]:
    """The row groups of a Parquet file, in portions.

    Raises:
        DataError: not Parquet, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=batch_rows):
            yield Table(batch.to_pydict(), source)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{source} is not a Parquet file that can be read: {str(error).splitlines()[0]}") from error
