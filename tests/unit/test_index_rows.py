"""Rows of an index are read by their offsets.

Few bytes of many rows, and never those of another row.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertctl.appended import line_offsets, stored_offsets
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.features.store import VectorLayout, VectorStore
from bertctl.search.index import Index, IndexRows
from tests.made_indexes import index_document

_LAYOUT = VectorLayout(("last",), 2, "float32", by_token=False, pooling="")
_TEXTS = [f"{'long ' * (i % 7)}text {i} of café" for i in range(500)]


def _add(folder: Path, texts: list[str], state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Adds texts to a store in parts, and returns its state."""
    first = state["rows"] if state else 0
    store = VectorStore(folder, _LAYOUT, state, has_offsets=True)
    for start in range(0, len(texts), 64):
        part = texts[start : start + 64]
        ids = [str(first + start + i) for i in range(len(part))]
        store.append(
            Rows("", {"text": part}, ids, "memory"),
            np.zeros((len(part), 2), dtype=np.float32),
            None,
        )
    state = store.commit()
    store.close()
    return state


def _read(folder: Path, state: dict[str, Any], *numbers: int) -> list[tuple[str, str]]:
    index = Index(folder, index_document(**state))
    rows = IndexRows(index).read(numbers)
    ids_and_texts = []
    for number in numbers:
        row = rows[number]
        ids_and_texts.append((row["id"], row["text"]))
    return ids_and_texts


def _expected(*numbers: int) -> list[tuple[str, str]]:
    return [(str(number), _TEXTS[number]) for number in numbers]


def _shift_by_a_row(offsets: Path) -> None:
    array = np.load(offsets)
    array[:-1] = array[1:]
    np.save(offsets, array)


def _shift_by_a_byte(offsets: Path) -> None:
    np.save(offsets, np.load(offsets) + np.uint64(1))


def _of_another_type(offsets: Path) -> None:
    np.save(offsets, np.load(offsets).astype(np.int64))


_DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda offsets: offsets.write_bytes(b""),
    "not an array": lambda offsets: offsets.write_bytes(b"hello"),
    "cut short": lambda offsets: offsets.write_bytes(offsets.read_bytes()[:-8]),
    "too few": lambda offsets: np.save(offsets, np.load(offsets)[:-1]),
    "of another row": _shift_by_a_row,
    "of another byte": _shift_by_a_byte,
    "of another type": _of_another_type,
    "all zeros": lambda offsets: np.save(offsets, np.zeros(500, dtype=np.uint64)),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damaged_offsets_never_give_another_row(tmp_path: Path, damage: str) -> None:
    state = _add(tmp_path, _TEXTS)
    _DAMAGE[damage](tmp_path / "offsets.npy")

    rows = _read(tmp_path, state, 0, 1, 250, 499)

    assert rows == _expected(0, 1, 250, 499)


def test_few_bytes_are_read_of_many_rows(tmp_path: Path) -> None:
    state = _add(tmp_path, _TEXTS)
    (tmp_path / "rows.jsonl").chmod(0o600)
    content = (tmp_path / "rows.jsonl").read_bytes()
    expected = [3, 77, 499]
    lines = content.splitlines(keepends=True)
    sizes = [sum(map(len, lines[:number])) for number in expected]
    # All bytes but those of these rows and the line feeds before them are made unreadable.
    blank = bytearray(b"#" * len(content))
    for number, start in zip(expected, sizes, strict=True):
        first = start - 1
        last = start + len(lines[number])
        blank[first:last] = content[first:last]
    (tmp_path / "rows.jsonl").write_bytes(bytes(blank))

    rows = _read(tmp_path, state, *expected)

    assert rows == _expected(*expected)


def test_an_index_of_an_older_version_is_read_and_gets_its_offsets_when_it_grows(
    tmp_path: Path,
) -> None:
    state = _add(tmp_path, _TEXTS[:200])
    (tmp_path / "offsets.npy").unlink()
    old = {name: value for name, value in state.items() if name != "offsets_sha256"}
    assert _read(tmp_path, old, 5, 199) == _expected(5, 199)

    grown = _add(tmp_path, _TEXTS[200:], old)

    offsets = stored_offsets(tmp_path / "offsets.npy", 500, grown["offsets_sha256"])
    assert offsets is not None
    assert offsets.tolist() == line_offsets(tmp_path / "rows.jsonl", 500).tolist()
    assert _read(tmp_path, grown, 5, 200, 499) == _expected(5, 200, 499)


def test_what_a_kill_leaves_behind_the_whole_rows_is_no_row(tmp_path: Path) -> None:
    state = _add(tmp_path, _TEXTS[:200])
    killed = VectorStore(tmp_path, _LAYOUT, state, has_offsets=True)
    killed.append(
        Rows("", {"text": ["lost"] * 9}, ["x"] * 9, "memory"),
        np.zeros((9, 2), dtype=np.float32),
        None,
    )
    killed.commit()  # and no index.json after it
    killed.close()
    assert _read(tmp_path, state, 0, 199) == _expected(0, 199)

    again = _add(tmp_path, _TEXTS[200:], state)

    assert _read(tmp_path, again, 0, 199, 200, 499) == _expected(0, 199, 200, 499)


def test_rows_that_were_edited_are_found_by_their_lines(tmp_path: Path) -> None:
    state = _add(tmp_path, _TEXTS)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines(keepends=True)
    lines[10] = json.dumps({"id": "10", "text": "a text that somebody has changed"}) + "\n"
    (tmp_path / "rows.jsonl").write_text("".join(lines))

    rows = _read(tmp_path, state, 10, 300)

    assert rows == [("10", "a text that somebody has changed"), *_expected(300)]


def test_rows_that_are_lost_are_refused(tmp_path: Path) -> None:
    state = _add(tmp_path, _TEXTS)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "rows.jsonl").write_text("".join(lines[:400]))

    with pytest.raises(DataError, match="fewer rows than vectors"):
        _read(tmp_path, state, 450)
