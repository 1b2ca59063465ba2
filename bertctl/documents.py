"""Files that others wrote: JSON by one reader, and every error of loading such a file as one of
ours.

A file is refused for its size, bytes that are no UTF-8, nesting, halves of surrogate pairs, or
another shape than the published schema (`schemas/NAME.json`) has. A reader asks less than a writer
promises, so that runs of other versions can be read: keys that the schema does not know are let
through, and `x-read` says which of the required ones it needs.
"""

import functools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertctl.errors import BertctlError, DataError, UnavailableError, is_out_of_memory
from bertctl.memory import require_memory
from bertctl.version import __version__
from bertctl.words import human_bytes

JSON_LIMIT = 64 * 2**20
"""Bytes of a JSON file; the largest tokenizer.json in use (Gemma's, 256,000 tokens) has half of
it."""

SAVE_WEIGHTS = "Write it with save_pretrained of transformers; pickled weights are never loaded."
"""What to do about weights that are no safetensors file, or a part of one."""

_PART = 2**16  # bytes that are read at once: `read(limit)` asks for memory for all of them
_MOST_IDS = 2**24
_HALF = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
_SCHEMAS = Path(__file__).with_name("schemas")


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def loading(
    what: object, *, kind: type[BertctlError] = DataError, remedy: str = ""
) -> Iterator[None]:
    """Turns whatever goes wrong inside into one of our errors: for what somebody else's file makes
    a library do.

    Our own errors, and memory that ran out, go through as they are.

    Args:
        what: is being loaded, for the message.
        kind: of the error that is raised.
        remedy: what to do about it.
    """
    try:
        yield
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # of a library in Rust: no Exception
        if (
            isinstance(error, BertctlError)
            or is_out_of_memory(error)
            or not (isinstance(error, Exception) or panic)
        ):
            raise
        said = next(iter(str(error).strip().splitlines()), "")[:300]
        raise kind(
            f"{what} can't be used: {type(error).__name__}: {said}", remedy=remedy
        ) from error


def read_text(
    path: Path, *, limit: int = JSON_LIMIT, kind: type[BertctlError] = UnavailableError
) -> str:
    """Returns a file of UTF-8, without its byte-order mark.

    Raises:
        UnavailableError: it can't be read.
        BertctlError: of `kind`: it is larger than `limit` bytes, or is no UTF-8.
    """
    try:
        # A pipe would be waited for. Path.open takes no opener.
        with open(
            path, "rb", opener=lambda place, flags: os.open(place, flags | os.O_NONBLOCK)
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise kind(f"{path} is no regular file", file=path)
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


def read_json(
    path: Path,
    schema: str = "",
    *,
    limit: int = JSON_LIMIT,
    kind: type[BertctlError] = UnavailableError,
    remedy: str = "",
) -> dict[str, Any]:
    """Returns the object that a JSON file holds.

    Args:
        path: of the file.
        schema: name of the published schema that it follows; any object will do where it is empty.
        limit: bytes of it.
        kind: of the error where it is no object at all.
        remedy: what to do about a file that is refused.

    Raises:
        UnavailableError: it can't be read.
        BertctlError: of `kind`: it is too large, no UTF-8, or no JSON object.
        DataError: it does not follow the schema.
    """
    return _parsed(
        read_text(path, limit=limit, kind=kind),
        path,
        None,
        schema,
        kind,
        remedy,
    )


def read_json_lines(
    path: Path, schema: str, *, limit: int = 2**32, remedy: str = ""
) -> list[dict[str, Any]]:
    """Returns the objects of a JSON Lines file, blank lines left out.

    Raises:
        UnavailableError: it can't be read.
        DataError: a line that is no object, or does not follow the schema; which one.
    """
    lines = enumerate(read_text(path, limit=limit, kind=DataError).split("\n"), start=1)
    return [
        _parsed(
            text,
            path,
            i,
            schema,
            DataError,
            remedy,
        )
        for i, text in lines
        if text.strip()
    ]


def weight_files(index: Path) -> list[Path]:
    """Returns the files, beside it, that an index of a model's weights names.

    Raises:
        UnavailableError: it is no index, or names a file elsewhere.
    """
    with loading(f"the model in {index.parent}", kind=UnavailableError, remedy=SAVE_WEIGHTS):
        names = sorted({*read_json(index)["weight_map"].values()})
        if elsewhere := [name for name in names if Path(name).name != name]:
            raise ValueError(f"{index.name} names a file elsewhere: {elsewhere[0]:.100}")
    return [index.parent / name for name in names]


def refuse_far_ids(ids: Iterable[object], file: Path) -> None:
    """Refuses a vocabulary of which `tokenizers` would list 2^31 ids that are not in use, in 8 GB
    of memory.

    Raises:
        DataError: an id of it is too high.
    """
    highest = max((index for index in ids if isinstance(index, int)), default=0)
    if highest >= _MOST_IDS:
        message = (
            f"{file}: a token has the id {highest}, and no vocabulary in use has {_MOST_IDS:,} ids"
        )
        raise DataError(message, remedy="Number its tokens from 0 on, without gaps.", file=file)


def parse(text: str) -> Any:
    """Returns what a JSON text holds.

    Raises:
        ValueError: it is no JSON, or half of a surrogate pair stands in it, which is no character;
            where.
        RecursionError: nested too deeply.
    """
    document = json.loads(text)
    if (half := _HALF.search(text)) and not is_whole(json.dumps(document, ensure_ascii=False)):
        raise json.JSONDecodeError(
            "half of a surrogate pair, which is no character", text, half.start()
        )
    return document


_SMALL_TEXT = 2**20

_BYTES_OF_JSON = {"{": 240, "[": 72, ",": 40, '"': 30}
"""Bytes that Python takes for what these characters begin, part or enclose."""


def require_room_for_json(text: str, source: object) -> None:
    """Refuses a JSON text that would take more memory as objects than is free: `[[],[],` takes 24
    times its size.

    Raises:
        DeviceError: there is too little memory.
    """
    if len(text) < _SMALL_TEXT:
        return
    n_bytes = len(text) + sum(
        size * text.count(character) for character, size in _BYTES_OF_JSON.items()
    )
    remedy = "Write it as JSON Lines, with an object per line, or split it."
    require_memory(
        n_bytes,
        f"the JSON of {source}",
        remedy=remedy,
        libraries=False,
    )


def is_whole(text: str) -> bool:
    """Whether every character is one: half of a surrogate pair is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_encoding(name: str) -> bool:
    """Whether Python knows an encoding of texts by this name."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def _parsed(
    text: str, path: Path, line: int | None, schema: str, kind: type[BertctlError], remedy: str
) -> dict[str, Any]:
    if line:
        where = f"{path}:{line}"
    else:
        where = str(path)
    require_room_for_json(text, path)
    try:
        document = parse(text)
        if schema and line is None:  # what runs hold has no infinity: JSON has none
            json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else error
        raise kind(f"{where}: no JSON: {said}", remedy=remedy, file=path) from error
    if not isinstance(document, dict):
        raise kind(
            f"{where}: {type(document).__name__} where an object is needed",
            remedy=remedy,
            file=path,
        )
    if schema:
        _check(
            document,
            path,
            where,
            schema,
            remedy,
        )
    return document


def _check(document: Mapping[str, Any], path: Path, where: str, schema: str, remedy: str) -> None:
    from pydantic_core import ValidationError

    try:
        _validator(schema).validate_python(document, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            given = ""
        else:
            given = f", {json.dumps(first['input'], default=str)[:60]} given"
        if place == "schema":
            given += f" (written by another bertctl than this {__version__})"
        raise DataError(
            f"{where}: {place[:200]}: {first['msg'].lower()}{given}", remedy=remedy, file=path
        ) from error


@functools.cache
def _validator(name: str) -> Any:
    from pydantic_core import SchemaValidator

    whole = published_schema(name)
    return SchemaValidator(_core(whole, whole.get("$defs", {})))


def published_schema(name: str) -> dict[str, Any]:
    """Returns the JSON Schema of a kind of file that runs hold."""
    schema: dict[str, Any] = json.loads((_SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def _core(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """Returns what pydantic's core makes a validator of, for the part of JSON Schema that the
    published ones use.
    """
    from pydantic_core import core_schema as core

    if "$ref" in schema:
        schema = {**schema, **defs[schema["$ref"].rsplit("/", 1)[1]]}
    else:
        schema = schema
    kinds = schema.get("type")
    several = (
        [{**schema, "type": kind} for kind in kinds]
        if isinstance(kinds, list)
        else schema.get("oneOf")
    )
    if several:
        return core.union_schema([_core(one, defs) for one in several])
    if "const" in schema or "enum" in schema:
        return core.literal_schema(schema.get("enum", [schema.get("const")]))
    low = schema.get("minimum")
    high = schema.get("maximum")
    match kinds:
        case "object":
            needed = schema.get("x-read", schema.get("required", ()))
            fields = {
                name: core.typed_dict_field(_core(inner, defs), required=name in needed)
                for name, inner in schema.get("properties", {}).items()
            }
            others = schema.get("additionalProperties")
            if isinstance(others, Mapping):
                extras = _core(others, defs)
            else:
                extras = None
            return core.typed_dict_schema(fields, extra_behavior="allow", extras_schema=extras)
        case "array":
            return core.list_schema(_core(schema.get("items", {}), defs))
        case "integer":
            return core.int_schema(ge=low, le=2**63 - 1 if high is None else high)
        case "number":
            return core.float_schema(ge=low, le=high)
    plain: dict[Any, Any] = {
        "string": core.str_schema,
        "boolean": core.bool_schema,
        "null": core.none_schema,
    }
    return plain.get(kinds, core.any_schema)()
