"""What the first bytes of a file say it is, whatever its name says.

It is packed, no text at all, JSON, or a table.
"""

import csv
import re
from collections.abc import Sequence

from bertctl.data.file_names import FileKind
from bertctl.data.names import known_name

HEAD = 65_536
"""Bytes that a file is judged by."""

GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"

_SAVE_SHEET = "Save the sheet as CSV (UTF-8)."
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (
        b"\xd0\xcf\x11\xe0",
        "not text but a spreadsheet or another document of Office (.xls, .doc)",
        _SAVE_SHEET,
    ),
    (b"\xfd7zXZ\0", "packed with xz", "Unpack it: xz -dc < {file} > unpacked.csv"),
    (b"BZh91AY&SY", "packed with bzip2", "Unpack it: bzip2 -dc < {file} > unpacked.csv"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "Unpack it: zstd -dc < {file} > unpacked.csv"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "Unpack it: lz4 -dc < {file} > unpacked.csv"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "Unpack it: 7z x {file}"),
    (b"Rar!\x1a\x07", "a RAR archive", "Unpack it: unrar x {file}"),
    (b"%PDF-", "not text, but a PDF", "Take its text out of it first."),
    (
        b"ARROW1",
        "an Arrow (Feather) file",
        "Write it as Parquet: pandas.read_feather(...).to_parquet('data.parquet').",
    ),
    (
        b"FEA1",
        "a Feather file",
        "Write it as Parquet: pandas.read_feather(...).to_parquet('data.parquet').",
    ),
    (b"Obj\x01", "an Avro file", "Write it as JSON Lines or Parquet."),
    (b"\x93NUMPY", "an array of numpy", "Write its rows as CSV or JSON Lines."),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "Write its rows as CSV, JSON Lines or Parquet."),
    (
        b"SQLite format 3\0",
        "an SQLite database",
        "Export the table as CSV: sqlite3 -header -csv {file} 'select ...'",
    ),
    (
        b"\x80\x04\x95",
        "a pickle, which is never loaded",
        "Write the data as CSV, JSON Lines or Parquet.",
    ),
    (
        b"\x80\x05\x95",
        "a pickle, which is never loaded",
        "Write the data as CSV, JSON Lines or Parquet.",
    ),
    (
        b"version https://git-lfs.github.com/spec/",
        "a pointer of Git LFS, not the file itself",
        "Get it: git lfs pull",
    ),
)
"""First bytes, what a file is that begins with them, and what to do about it."""

_HTML = re.compile(rb"\s*<(!doctype\s+html|html[\s>])", re.IGNORECASE)
_JSON_ROWS = re.compile(r'\s*(?:\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:')
_DELIMITERS = "\t,;|"
_LINES_OF_TABLE = 50
_LONGEST_CELL = 40


def no_rows_in(head: bytes) -> tuple[str, str] | None:
    """Returns what a file is and what to do about it, if its first bytes show that it has no rows.

    The result is None for a file that may have rows.
    """
    if head.startswith(b"PK\3\4"):
        return _zipped(head)
    if head[257:262] == b"ustar":  # where an archive of tar has its signature
        return "a tar archive", "Unpack it: tar -xf {file}"
    for signature, noun, remedy in _SIGNATURES:
        if head.startswith(signature):
            return noun, remedy
    return None


def _zipped(head: bytes) -> tuple[str, str]:
    """Returns what a zip archive is (Office writes its documents as such), and what to do."""
    if b"xl/" in head or b"spreadsheet" in head or b"[Content_Types].xml" in head:
        return "not text but a spreadsheet (or another document of Office)", _SAVE_SHEET
    return (
        "not text but a spreadsheet or a zip archive",
        "Save the sheet as CSV (UTF-8), or unpack it: unzip {file}",
    )


def is_page(head: bytes) -> bool:
    """Returns whether a file begins like a page of HTML.

    A user gets one by saving a site's page about a file instead of the file.
    """
    return _HTML.match(head) is not None


def begins_like_json_row(text: str) -> bool:
    """Returns whether a text begins like an object of JSON, or a list of them."""
    return _JSON_ROWS.match(text) is not None


def kind_of_head(head: bytes, encoding: str | None) -> FileKind | None:
    """Returns the kind of a file if its first bytes leave no doubt; else None.

    They leave no doubt for Parquet, for a JSON object or a list of objects, and for a table with a
    usual header.

    Args:
        head: The first bytes of the file, unpacked.
        encoding: The encoding in the settings, or None.

    Returns:
        `parquet`, `jsonl` (objects, on lines or in one JSON document), `csv` or `tsv`; None where
        it could be lines of text, too.
    """
    if head.startswith(PARQUET):
        return "parquet"
    text = _decoded(head, encoding)
    if begins_like_json_row(text):
        return "jsonl"
    if text.lstrip().startswith(("[", "{")):
        return None  # JSON without objects, or text in brackets
    lines = text.splitlines(keepends=True)
    if len(head) >= HEAD:
        lines = lines[:-1]  # the last one is cut off
    return _kind_of_table(lines[:_LINES_OF_TABLE])


def _decoded(head: bytes, encoding: str | None) -> str:
    """Returns the first bytes as text: UTF-16 by its byte-order mark, else `encoding` or UTF-8."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    return head.decode(encoding or "utf-8", "replace").removeprefix("\ufeff")


def _kind_of_table(lines: Sequence[str]) -> FileKind | None:
    """Returns the kind of a table if its first line has a usual column name; else None.

    The other lines must have as many fields. A header alone is a table if two of its names are
    usual ones.
    """
    if lines:
        header = lines[0].rstrip("\r\n")
    else:
        header = ""
    for delimiter in _DELIMITERS:
        names = [name.strip(' "') for name in header.split(delimiter)]
        n_known = sum(map(known_name, names))
        are_short = max(map(len, names)) <= _LONGEST_CELL
        is_header = len(names) > 1 and n_known > 0 and are_short
        if is_header and _fit(lines, delimiter, len(names), sure=n_known > 1):
            return "tsv" if delimiter == "\t" else "csv"
    return None


def _fit(lines: Sequence[str], delimiter: str, width: int, *, sure: bool) -> bool:
    """Returns whether nearly all records of a table have as many fields as its header.

    Args:
        lines: First lines of the file, with the header.
        delimiter: The character between fields.
        width: Number of fields of the header.
        sure: The result if the header is the only line.
    """
    try:
        widths = [len(record) for record in csv.reader(lines[1:], delimiter=delimiter) if record]
    except csv.Error:
        return False
    if not widths:
        return sure
    if len(widths) > 1:
        widths = widths[:-1]  # the last record may be cut off
    # Not all: a text may have a separator in it that is not quoted.
    n_fitting = sum(n_fields == width for n_fields in widths)
    return n_fitting >= 0.9 * len(widths)
