"""What the name of a file says: its format.

Also whether a word on the command line names a file at all.
"""

import glob
import os
import re
import shlex
from pathlib import Path
from typing import Literal, get_args

from bertctl.data.sources import MemoryFile
from bertctl.errors import UsageError

FileKind = Literal["lines", "csv", "tsv", "jsonl", "parquet"]
FILE_KINDS: tuple[FileKind, ...] = get_args(FileKind)

SUFFIXES: dict[str, FileKind] = {
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
"""What a file is by its suffix."""

_FILE_SUFFIXES = frozenset(
    (
        *SUFFIXES, ".gz", ".zip", ".bz2", ".xz", ".zst", ".conll", ".conllu", ".conllup", ".iob",
        ".iob2", ".bio", ".ann", ".pubtator", ".spacy", ".log", ".md", ".dat", ".data", ".text",
        ".xlsx", ".xls", ".ods", ".arrow", ".feather", ".pdf", ".docx",
    )
)  # fmt: skip
"""Suffixes by which a word is taken for the name of a file, whether or not such a file can be
read."""

_PATH = re.compile(r"(/|\./|\.\./|~[\w.-]*/)\S")
_LONGEST_NAME = 4096


class UnknownSuffixError(UsageError):
    """A file whose name does not say what it is."""


def suffix_of(path: Path | MemoryFile) -> str:
    """Returns the suffix that shows a file's kind, in lower case: `a.CSV.gz` -> `.csv`.

    It is `.gz` if there is no other suffix, and empty without any suffix.
    """
    if isinstance(path, MemoryFile):
        return path.suffix
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"] and len(suffixes) > 1:
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def kind_of(path: Path | MemoryFile) -> FileKind:
    """Returns the kind of a file by its suffix.

    Raises:
        UsageError: The file has no suffix, or one that is not known.
    """
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        if suffix:
            message = f"{path}: '{suffix}' is not a suffix of a file that can be read"
        else:
            message = f"{path} has no suffix"
        if suffix == ".arrow":
            remedy = (
                "Write the data as Parquet with the library `datasets`: "
                "Dataset.from_file(FILE).to_parquet(NEW)."
            )
            raise UnknownSuffixError(message, remedy=remedy)
        raise UnknownSuffixError(
            f"{message}, and its first bytes do not tell its format",
            remedy=f"Copy it to a name with one of {', '.join(SUFFIXES)}, each also with .gz: cp "
            f"{shlex.quote(str(path))} {shlex.quote(f'{Path(str(path)).stem}.txt')} for a table or "
            "for lines of text.",
        )
    return SUFFIXES[suffix]


def names_a_file(typed: str) -> bool:
    """Returns whether a word looks like a path.

    It begins like one, or ends in the suffix of a file.
    """
    if "\n" in typed or len(typed) > _LONGEST_NAME:
        return False
    if _PATH.match(typed):
        return True
    path = Path(typed)
    # The text "saved as .csv" has a blank before its suffix, and is no name.
    has_blank_before_suffix = path.stem != path.stem.rstrip()
    return path.suffix.lower() in _FILE_SUFFIXES and not has_blank_before_suffix


def is_pattern(typed: str) -> bool:
    """Returns whether a word stands for all files that match it.

    An example is `part-*.parquet`. It is no file's own name.
    """
    # Path.exists raises for long texts.
    return glob.has_magic(typed) and not os.path.exists(typed)  # noqa: PTH110


def is_text(typed: str) -> bool:
    """Returns whether a word on the command line is a text itself, not the name of a file.

    A text has a blank, or has neither a suffix nor a slash. A word that begins like a path or ends
    in the suffix of a file is no text, even if it has a blank and no such file exists: it is
    reported as a missing file.
    """
    # Path.exists raises for long texts.
    if typed == "-" or os.path.exists(typed) or names_a_file(typed):  # noqa: PTH110
        return False
    has_blank = any(map(str.isspace, typed))
    if not has_blank and is_pattern(typed) and glob.glob(typed):  # noqa: PTH207  # as it was typed
        return False
    return has_blank or not (Path(typed).suffix or "/" in typed)
