"""Seeded damage that knows what it damages: bytes, JSON trees, lines, YAML and cells of tables.

`mutated(content, layout, random)` returns another content. The same random state gives the same
bytes on every machine.
"""

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

DEEP = "@deep@"
"""Stands in a tree for a nesting that no writer would write; put in as text."""

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    0.5,
    -0.0,
    1e-320,
    2**31,
    -(2**63),
    2**64,
    10**26,
    -(10**26),
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    " ",
    "0",
    "-1",
    "1e5",
    "true",
    "null",
    "nan",
    "x",
    "accuracy",
    "validation",
    "text-classification",
    "\x00",
    "a\x00b",
    "\x1b[31mred\x1b]0;title\x07",
    "first\n::error file=a.py::second",
    "one\r\ntwo",
    "\u2028",
    "\u202eabc",
    "\ufeff",
    "\U0010ffff",
    "\ud800",
    "é" * 300,
    "x" * 20_000,
    "../../outside",
    "/etc/passwd",
    "/dev/zero",
    "~",
    "~root",
    "a/b",
    "a//b",
    ".",
    "..",
    "http://127.0.0.1:9/x",
    "%s%n",
    "{0}",
    [],
    {},
    [[]],
    [None],
    [1, "a", {}],
    {"": None},
    {"a": {"b": []}},
    [[1, 2], [3]],
    ["x"] * 300,
    DEEP,
)
"""Values that a careful reader meets once in its life."""

CHUNKS: tuple[bytes, ...] = (
    b"",
    b"\x00",
    b"\x00" * 64,
    b"\xff",
    b"\xfe\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\r",
    b"\r\n",
    b"\n",
    b"\n\n",
    b"\t",
    b"\x1a",
    b"\x1b[2J",
    b'"',
    b"'",
    b",",
    b";",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"- ",
    b"---\n",
    b"...\n",
    b"&a ",
    b"*a",
    b"!!python/object/apply:os.system ['touch pwned']",
    b"<<: *a",
    b"? ",
    b"NaN",
    b"1e999",
    b"9" * 5_000,
    b"[" * 3_000,
    b"{" * 300,
    b'{"a":' * 2_000,
    b"x" * 50_000,
    b"\xf0\x9f\x98\x80",
    b"PK\x03\x04",
    b"PAR1",
    b"\x1f\x8b\x08\x00",
    b"\n::stop-commands::x\n",
    b"-DOCSTART- -X- O O\n\n",
    b"# text = x\n",
)

Change = Callable[[bytes, Random], bytes]


def mutated(content: bytes, layout: str, random: Random) -> bytes:
    """Returns the content with one to three things changed.

    Args:
        content: of a whole file.
        layout: one of `LAYOUTS`; every other name is bytes.
        random: decides.
    """
    structured = LAYOUTS.get(layout)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        change = structured if structured and random.random() < 0.7 else of_bytes
        content = change(content, random)
    return content


def of_bytes(content: bytes, random: Random) -> bytes:
    """Cuts, flips, drops, doubles or puts something in, somewhere."""
    start = random.randrange(len(content) + 1)
    end = min(len(content), start + random.choice((1, 1, 2, 8, 64, 1000)))
    kind = random.randrange(7)
    if kind == 0:
        return content[:start]
    if kind == 1 and start < len(content):
        return (
            content[:start]
            + bytes([content[start] ^ 1 << random.randrange(8)])
            + content[start + 1 :]
        )
    if kind == 2:
        return content[:start] + content[end:]
    if kind == 3:
        return content[:end] + content[start:end] * random.choice((1, 2, 50)) + content[end:]
    if kind == 4:
        return content[:start] + random.randbytes(random.choice((1, 4, 40))) + content[end:]
    if kind == 5 and random.random() < 0.2:
        return random.choice(CHUNKS)
    return content[:start] + random.choice(CHUNKS) + content[start:]


def of_json(content: bytes, random: Random) -> bytes:
    """Changes a place in the tree of a JSON document."""
    try:
        return _written(_of_tree(json.loads(content), random), random)
    except (
        ValueError,
        RecursionError,
    ):  # what is just not too deep to be read may be too deep to be written
        return of_bytes(content, random)


def of_lines(content: bytes, random: Random) -> bytes:
    """Changes, drops, doubles or swaps lines; a line that is JSON as a tree."""
    lines = content.split(b"\n")
    i = random.randrange(len(lines))
    j = random.randrange(len(lines))
    kind = random.randrange(6)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines[i] = (
            of_json(lines[i], random)
            if lines[i].lstrip()[:1] in (b"{", b"[")
            else of_bytes(lines[i], random)
        )
    return b"\n".join(lines)


def of_yaml(content: bytes, random: Random) -> bytes:
    """Changes a place in the tree of a YAML document, or its lines."""
    if random.random() < 0.4:
        return of_lines(content, random)
    try:
        document = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return of_bytes(content, random)
    changed = _of_tree(document, random)
    try:
        text = yaml.dump(changed, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)
    except UnicodeEncodeError:  # half of a surrogate pair: JSON is YAML too, and can say it
        text = json.dumps(changed, indent=1)
    return text.encode("utf-8", "surrogatepass").replace(
        DEEP.encode(), b"[" * random.choice((40, 400, 4_000))
    )


def of_cells(content: bytes, random: Random) -> bytes:
    """Changes a cell, a column or a line of a delimited table."""
    lines = content.split(b"\n")
    i = random.randrange(len(lines))
    separator = b"\t" if b"\t" in content else b","
    cells = lines[i].split(separator)
    k = random.randrange(len(cells))
    kind = random.randrange(5)
    if kind == 0:
        del cells[k]
    elif kind == 1:
        cells.insert(k, cells[random.randrange(len(cells))])
    elif kind == 2:
        cells[k] = b'"' + cells[k] + random.choice((b'"', b"", b'""', b'"x', b'\n"'))
    elif kind == 3:
        odd = random.choice(ODD)
        cells[k] = str(odd if odd != DEEP else "[" * 1000).encode("utf-8", "surrogatepass")
    else:
        return of_lines(content, random)
    lines[i] = separator.join(cells)
    return b"\n".join(lines)


def of_safetensors(content: bytes, random: Random) -> bytes:
    """Changes the header of a safetensors file, with or without its length."""
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    data = content[8 + length :]
    header = of_json(header, random)
    options = (
        len(header)
        if random.random() < 0.8
        else random.choice((0, 1, length, len(content) * 2, 2**40, 2**64 - 1))
    )
    return (
        options.to_bytes(8, "little")
        + header
        + (data if random.random() < 0.8 else data[: random.randrange(99)])
    )


LAYOUTS: dict[str, Change] = {
    "json": of_json,
    "jsonl": of_lines,
    "yaml": of_yaml,
    "csv": of_cells,
    "lines": of_lines,
    "safetensors": of_safetensors,
}


def layout_of(name: str) -> str:
    """Returns the layout of a file by its suffix."""
    suffix = name.rpartition(".")[2]
    same = {
        "tsv": "csv",
        "txt": "lines",
        "conll": "lines",
        "conllu": "lines",
        "yml": "yaml",
        "ipynb": "json",
    }
    return same.get(suffix, suffix)


def _of_tree(document: Any, random: Random) -> Any:
    """Returns a tree in which a node was replaced, dropped, doubled, renamed or wrapped.

    The tree itself is changed.
    """
    values = list(_places(document))
    if not values or random.random() < 0.04:
        return random.choice(ODD)
    parent, key = random.choice(values)
    kind = random.randrange(10)
    if kind < 5:
        parent[key] = random.choice(ODD)
    elif kind == 5:
        del parent[key]
    elif kind == 6:
        other_parent, other_key = random.choice(values)
        parent[key] = json.loads(json.dumps(other_parent[other_key]))
    elif kind == 7:
        parent[key] = random.choice(([parent[key]], {"value": parent[key]}, str(parent[key])))
    elif isinstance(parent, dict):
        name = random.choice([value for value in ODD if isinstance(value, str)])
        parent[name] = parent.pop(key) if kind == 8 else random.choice(ODD)
    else:
        parent.insert(key, parent[key])
    return document


def _places(document: Any) -> "list[tuple[Any, Any]]":
    results: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(results) < 4_000:
        node = waiting.pop(0)
        for key in _keys(node)[:200]:
            results.append((node, key))
            waiting.append(node[key])
    return results


def _keys(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    if isinstance(node, list):
        return list(range(len(node)))
    return []


def _written(document: Any, random: Random) -> bytes:
    is_ascii = random.random() < 0.5
    indent = random.choice((None, 2))
    text = json.dumps(document, ensure_ascii=is_ascii, indent=indent)
    depth = random.choice((20, 900, 1_100, 100_000))
    nested_lists = "[" * depth + "]" * depth
    return text.replace(f'"{DEEP}"', nested_lists).encode("utf-8", "surrogatepass")
