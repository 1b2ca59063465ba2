"""Files that others wrote.

JSON is read by one reader, and every error of loading such a file is one of ours.

A file is refused for its size, bytes that are no UTF-8, nesting, halves of surrogate pairs, or
another shape than its model (`run_documents/`) has.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bertctl.errors import BertctlError, DataError, UnavailableError, is_out_of_memory
from bertctl.memory import require_memory
from bertctl.version import __version__
from bertctl.words import human_bytes

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")

JSON_LIMIT = 64 * 2**20
"""Bytes of a JSON file; the largest tokenizer.json in use (Gemma's, 256,000 tokens) has half of
it."""

SAVE_WEIGHTS = "Write it with save_pretrained of transformers; pickled weights are never loaded."
"""What to do about weights that are no safetensors file, or a part of one."""

_PART = 2**16  # bytes that are read at once: `read(limit)` asks for memory for all of them
_MOST_IDS = 2**24
_HALF = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def loading(
    noun: object, *, kind: type[BertctlError] = DataError, remedy: str = ""
) -> Iterator[None]:
    """Turns any error inside the context into one of bertctl's, for a file that others wrote.

    Such a file can make a library raise any error. Errors of bertctl, and of memory that ran out,
    are raised as they are.

    Args:
        noun: What is being loaded, for the message.
        kind: Class of the error that is raised.
        remedy: What to do about it.
    """
    try:
        yield
    except BaseException as error:
        # A library that is written in Rust may raise a PanicException, which is no Exception.
        is_failure = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        has_own_message = isinstance(error, BertctlError) or is_out_of_memory(error)
        if has_own_message or not is_failure:
            raise
        reason = next(iter(str(error).strip().splitlines()), "")[:300]
        raise kind(
            f"{noun} can't be used: {type(error).__name__}: {reason}", remedy=remedy
        ) from error


def read_text(
    path: Path, *, limit: int = JSON_LIMIT, kind: type[BertctlError] = UnavailableError
) -> str:
    """Returns the text of a UTF-8 file, without its byte-order mark.

    Args:
        path: The file.
        limit: Largest size in bytes.
        kind: Class of the error for a file that is too large, no UTF-8 or not a regular file.

    Raises:
        UnavailableError: The file can't be read.
        BertctlError: An error of `kind`.
    """
    try:
        # The builtin `open`, as `Path.open` takes no opener.
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise kind(f"{path} is not a regular file", file=path)
            # At most one part beyond the limit is read, which shows that the file is too large.
            content = bytearray()
            while len(content) <= limit and (part := file.read(_PART)):
                content += part
    except OSError as error:
        raise UnavailableError(f"{path} can't be read: {error.strerror}", file=path) from error
    if len(content) > limit:
        raise kind(
            f"{path} is larger than {human_bytes(limit)}, the most that is read of such a file",
            file=path,
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise kind(f"{path}:{line}: byte 0x{content[error.start]:02x} is not UTF-8") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Opens a path and returns the descriptor. A pipe is opened even if nobody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_json(
    path: Path,
    *,
    limit: int = JSON_LIMIT,
    kind: type[BertctlError] = UnavailableError,
    remedy: str = "",
) -> dict[str, Any]:
    """Returns the object that a JSON file holds.

    Args:
        path: The file.
        limit: Largest size in bytes.
        kind: Class of the error for a file that is too large, no UTF-8 or no JSON object.
        remedy: What to do about a file that is refused.

    Raises:
        UnavailableError: The file can't be read.
        BertctlError: An error of `kind`.
    """
    return _parsed(
        text=read_text(path, limit=limit, kind=kind),
        path=path,
        place=str(path),
        kind=kind,
        remedy=remedy,
    )


def read_json_if_there(
    path: Path, *, kind: type[BertctlError] = UnavailableError, remedy: str = ""
) -> dict[str, Any]:
    """Returns the object that a JSON file holds, or an empty one if there is no such file.

    Args:
        path: The file.
        kind: Class of the error if it holds no object.
        remedy: What to do about a file that is refused.

    Raises:
        UnavailableError: The file can't be read.
        BertctlError: An error of `kind`, see `read_json`.
    """
    if not path.exists():
        return {}
    return read_json(path, kind=kind, remedy=remedy)


def read_json_document(
    path: Path,
    model: type[Model],
    *,
    kind: type[BertctlError] = UnavailableError,
    remedy: str = "",
) -> Model:
    """Returns the document that a JSON file holds.

    Args:
        path: The file.
        model: The document's class in `run_documents/`.
        kind: Class of the error for a file that is too large, no UTF-8 or no JSON object.
        remedy: What to do about a file that is refused.

    Raises:
        UnavailableError: The file can't be read.
        BertctlError: An error of `kind`.
        DataError: The object does not fit the model. The message names the key and its value.
    """
    text = read_text(path, kind=kind)
    values = _parsed(text, path, str(path), kind, remedy)
    try:
        json.dumps(values, allow_nan=False)
    except ValueError as error:  # JSON has no infinity
        raise kind(f"{path}: no JSON: {error}", remedy=remedy, file=path) from error
    return _validated(values, model, path, str(path), remedy)


def read_json_lines(
    path: Path, model: "type[BaseModel] | None" = None, *, limit: int = 2**32, remedy: str = ""
) -> list[dict[str, Any]]:
    """Returns the objects of a JSON Lines file. Blank lines are left out.

    Args:
        path: The file.
        model: Class in `run_documents/` by which each line is checked; None accepts any object.
        limit: Largest size of the file in bytes.
        remedy: What to do about a file that is refused.

    Raises:
        UnavailableError: The file can't be read.
        DataError: A line is no object, or does not fit the model. The message names the line.
    """
    lines = read_text(path, limit=limit, kind=DataError).split("\n")
    objects = []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        place = f"{path}:{number}"
        values = _parsed(text, path, place, DataError, remedy)
        if model is not None:
            _validated(values, model, path, place, remedy)
        objects.append(values)
    return objects


def weight_files(index: Path) -> list[Path]:
    """Returns the files of a model's weights that their index names; they are in its folder.

    Args:
        index: The index, such as `model.safetensors.index.json`.

    Raises:
        UnavailableError: The file is no index, or names a file in another folder.
    """
    with loading(f"the model in {index.parent}", kind=UnavailableError, remedy=SAVE_WEIGHTS):
        names = sorted({*read_json(index)["weight_map"].values()})
        elsewhere = [name for name in names if Path(name).name != name]
        if elsewhere:
            raise ValueError(f"{index.name} names a file elsewhere: {elsewhere[0]:.100}")
    return [index.parent / name for name in names]


def refuse_far_ids(ids: Iterable[object], file: Path) -> None:
    """Refuses a vocabulary with ids far beyond its size.

    `tokenizers` would list 2^31 ids that are not in use, in 8 GB of memory.

    Args:
        ids: The ids of the vocabulary.
        file: The vocabulary's file, for the message.

    Raises:
        DataError: An id is too high.
    """
    highest = max((index for index in ids if isinstance(index, int)), default=0)
    if highest >= _MOST_IDS:
        message = (
            f"{file}: a token has the id {highest}, and no vocabulary in use has {_MOST_IDS:,} ids"
        )
        raise DataError(message, remedy="Number its tokens from 0 on, without gaps.", file=file)


def parse(text: str) -> Any:
    r"""Returns the value of a JSON text.

    Raises:
        ValueError: The text is no JSON, or a string in it has half of a surrogate pair, such as
            `\ud83d` alone. The message says where.
        RecursionError: The text is nested too deeply.
    """
    document = json.loads(text)
    # The pattern also matches after an escaped backslash, as in `\\ud83d`, which is no half. So
    # the values decide: written without escapes, they contain a half or not.
    half = _HALF.search(text)
    if half and not is_whole(json.dumps(document, ensure_ascii=False)):
        raise json.JSONDecodeError(
            "half of a surrogate pair, which is not a character", text, half.start()
        )
    return document


_SMALL_TEXT = 2**20

_BYTES_OF_JSON = {"{": 240, "[": 72, ",": 40, '"': 30}
"""Bytes that Python takes for what these characters begin, part or enclose."""


def require_room_for_json(text: str, source: object) -> None:
    """Refuses a JSON text that would take more memory as Python objects than is free.

    A text such as `[[],[],` takes 24 times its size. The size is estimated, without parsing.

    Args:
        text: The JSON text.
        source: Where it comes from, for the message.

    Raises:
        DeviceError: There is too little memory.
    """
    if len(text) < _SMALL_TEXT:
        return
    n_bytes = len(text) + sum(
        size * text.count(character) for character, size in _BYTES_OF_JSON.items()
    )
    require_memory(
        n_bytes,
        f"the JSON of {source}",
        remedy="Write it as JSON Lines, with an object per line, or split it.",
        libraries=False,  # parsing needs no torch, so no memory is reserved for it
    )


def is_whole(text: str) -> bool:
    """Returns whether a text has no halves of surrogate pairs, which are not characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_encoding(name: str) -> bool:
    """Returns whether Python knows a text encoding by this name."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def _parsed(
    text: str, path: Path, place: str, kind: type[BertctlError], remedy: str
) -> dict[str, Any]:
    """Returns the JSON object that a text holds.

    Args:
        text: The text.
        path: Its file.
        place: The file, or a line of it, for messages: `FILE` or `FILE:LINE`.
        kind: Class of the error for a text that is no JSON, or another value than an object.
        remedy: What to do about such a text.

    Raises:
        BertctlError: An error of `kind`.
    """
    require_room_for_json(text, path)
    try:
        values = parse(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise kind(f"{place}: no JSON: {reason}", remedy=remedy, file=path) from error
    if not isinstance(values, dict):
        raise kind(
            f"{place}: {type(values).__name__} where an object is needed",
            remedy=remedy,
            file=path,
        )
    return values


def _validated(
    values: Mapping[str, Any], model: type[Model], path: Path, place: str, remedy: str
) -> Model:
    """Returns the values of a JSON object as an instance of a model of `run_documents/`.

    Args:
        values: The values by key.
        model: Class of the document.
        path: File of the object.
        place: The file, or a line of it, for messages.
        remedy: What to do about values that don't fit.

    Raises:
        DataError: The values don't fit the model. The message names the first such key.
    """
    from pydantic_core import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            value_text = ""
        else:
            value_text = f", {json.dumps(problem['input'], default=str)[:60]} given"
        if key == "schema":
            value_text += f" (written by another bertctl than this {__version__})"
        raise DataError(
            f"{place}: {key[:200]}: {problem['msg'].lower()}{value_text}", remedy=remedy, file=path
        ) from error
