"""Files of text or rows (plain, .gz, stdin): whether they are there, and their bytes.

A file that is missing, packed in an unknown way, or no file of rows is refused.
"""

import gzip
import io
import shlex
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Literal, cast

from bertctl.data.decoding import decoded_lines
from bertctl.data.file_contents import GZIP, HEAD, no_rows_in
from bertctl.data.pipes import is_read_once, regular
from bertctl.data.sources import MemoryFile, Source, source_name
from bertctl.errors import DataError, UnavailableError
from bertctl.progress import Listener
from bertctl.unpacking import unpacked
from bertctl.words import hinted, natural_order

_SIGNATURE = 512  # bytes by which packed files and other documents are known


def require_file(path: Path | MemoryFile) -> None:
    """Refuses a path that is no file; rows in memory are there.

    Raises:
        UnavailableError: nothing there (the nearest names in its folder are shown), or a folder.
    """
    if isinstance(path, MemoryFile) or path.is_file():
        return
    if path.is_dir():
        raise UnavailableError(
            f"{path} is a folder, not a file", remedy=names_in_folder(path), file=path
        )
    if path.exists():  # a pipe, /dev/stdin
        return
    if not path.parent.is_dir():
        message = f"{path} does not exist, nor does the folder {path.parent}"
        raise UnavailableError(message, remedy=for_a_text(path), file=path)
    message = hinted(f"{path} does not exist", path.name, (p.name for p in path.parent.iterdir()))
    raise UnavailableError(
        message, remedy=f"{names_in_folder(path.parent)} {for_a_text(path)}".strip(), file=path
    )


def for_a_text(path: Path) -> str:
    """Returns what to type if a text with blanks was meant, not a file; empty for other paths."""
    if not any(map(str.isspace, str(path))):
        return ""
    return "A text that looks like a file's name needs a blank before it and one behind it."


def names_in_folder(folder: Path) -> str:
    """Returns what there is in a folder, for a remedy: `In data: a.csv, old/.`."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if not visible:
        return f"{folder} is empty."
    names = sorted(
        (f"{path.name}/" if path.is_dir() else path.name for path in visible), key=natural_order
    )
    first_names = ", ".join(names[:12])
    if len(names) > 12:
        first_names += ", ..."
    return f"In {folder}: {first_names}."


@contextmanager
def open_bytes(source: Source) -> Iterator[BinaryIO]:
    """Opens the bytes of a file or of stdin.

    They are unpacked where they are gzip, whatever the file is called.

    Raises:
        UnavailableError: it is not there or can't be read.
        DataError: it is packed otherwise, damaged, or a document that holds no rows, such as a
            spreadsheet; or it is named .gz and is not gzip.
    """
    if isinstance(source, MemoryFile):
        with source.open() as opened:
            yield opened
        return
    name = source_name(source)
    if source != "-":
        require_file(source)
    try:
        with _opened(source) as raw:
            is_packed = raw.peek(len(GZIP)).startswith(GZIP)
            if is_packed:
                file: io.BufferedReader = unpacked(raw, name)
            else:
                file = raw
            head = file.peek(_SIGNATURE)
            _check_signature(head, source, is_packed=is_packed)
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        message = f"{name} breaks off or is damaged: {error}"
        raise DataError(
            message, remedy=f"Get the file again; gzip -t {shlex.quote(name)} tests it."
        ) from error
    except OSError as error:
        raise UnavailableError(f"{name} can't be read: {error.strerror or error}") from error


def _opened(source: Path | Literal["-"]) -> AbstractContextManager[io.BufferedReader]:
    """Opens the bytes of a file as they are, or of stdin, which is not closed at the end."""
    if source == "-":
        return nullcontext(cast(io.BufferedReader, sys.stdin.buffer))
    return regular(source).open("rb")


def _check_signature(head: bytes, source: Path | Literal["-"], *, is_packed: bool) -> None:
    """Refuses a file by its first bytes.

    Raises:
        DataError: it is packed twice, or in a way that is not read here; or it is no file of rows.
    """
    name = source_name(source)
    if is_packed and head.startswith(GZIP):
        raise DataError(f"{name} is packed with gzip twice", remedy="Unpack it once: gzip -d.")
    signature = no_rows_in(head)
    if signature is not None:
        noun, remedy = signature
        raise DataError(f"{name} is {noun}", remedy=remedy.format(file=shlex.quote(name)))
    is_plain = len(head) > 0 and not is_packed
    if is_plain and source != "-" and source.suffix.lower() == ".gz":
        plain = source.with_suffix("")
        remedy = (
            f"Rename it: mv {shlex.quote(name)} {shlex.quote(str(plain))}. Or pack it: gzip "
            f"{shlex.quote(plain.name)}."
        )
        raise DataError(
            f"{name} is named .gz but is not gzip: it begins with {head[:24]!r}", remedy=remedy
        )


def is_gzip(path: Path) -> bool:
    """Returns whether a file is gzip by its first bytes.

    It is False for what is neither a file nor a pipe.
    """
    if not path.is_file() and not is_read_once(path):
        return False
    with regular(path).open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def first_bytes(source: Source) -> bytes:
    """Returns the first bytes of a file or of stdin, unpacked, and leaves stdin as it is.

    For stdin these are the bytes that have come by now.

    Raises:
        UnavailableError: the file is not there or can't be read.
        DataError: it is packed in a way that is not read here, or is no file of rows.
    """
    if source != "-":
        with open_bytes(source) as file:
            return file.read(HEAD)
    head = cast(io.BufferedReader, sys.stdin.buffer).peek(1)
    if not head.startswith(GZIP):
        return head
    with suppress(zlib.error):  # refused where it is read
        return zlib.decompressobj(wbits=31).decompress(head, HEAD)
    return b""


def read_text(source: Source, encoding: str | None, listener: Listener) -> str:
    """Returns a whole text file, without its byte-order mark.

    Raises:
        UsageError: no such encoding.
        UnavailableError: the file does not exist.
        DataError: empty, or bytes that are not the encoding.
    """
    with open_bytes(source) as file:
        return "".join(
            decoded_lines(
                file,
                source_name(source),
                encoding,
                listener,
                all_stay=True,
            )
        )
