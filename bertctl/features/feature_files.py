"""The formats of feature files.

Each is made of a folder of arrays (`store.py`) when all vectors are there.

.npy          vectors (N, D), or (N, K, D) for K layers
.npz          vectors; of tokens also offsets (N + 1), spans (T, 2) and ids (T)
.safetensors  the same arrays
.h5           the same arrays, as data sets (extra `h5`)
.parquet      id, text, label, vector (a list of fixed size; for several layers a column each)
.jsonl        google-research/bert's layout, six decimals
"""

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Array
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.features.store import VectorLayout, stored_arrays, stored_rows
from bertctl.words import hinted
from bertctl.writing import atomic_write, link_file

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMALS = 6
_GROUP_ROWS = 65536
"""Rows of a row group in Parquet, at most."""
_GROUP_NUMBERS = 1 << 24
"""Numbers of all vectors of a row group, at most: 64 MB."""


def check_output(output: Path, *, by_token: bool) -> None:
    """Refuses a suffix that is no format, before anything is loaded.

    Raises:
        UsageError: Unknown suffix; a single array for token vectors, which need their offsets
            beside them.
        UnavailableError: A format whose extra is not installed.
    """
    suffix = output.suffix.lower()
    if suffix not in _WRITERS:
        if suffix:
            message = f"'{suffix}' is not a format of features"
        else:
            message = "the output has no suffix that says its format"
        raise UsageError(
            hinted(f"{output}: {message}", suffix, _WRITERS),
            remedy=f"Formats: {', '.join(_WRITERS)}.",
        )
    if by_token and suffix == ".npy":
        message = (
            f"{output}: token vectors are flat vectors and offsets, and {suffix} holds one array"
        )
        remedy = (
            f"Formats that hold both: {', '.join(name for name in _WRITERS if name != suffix)}."
        )
        raise UsageError(message, remedy=remedy)
    if suffix == ".h5" and find_spec("h5py") is None:
        message = "writing .h5 needs the package h5py"
        raise UnavailableError(
            message, remedy="Install it: pip install 'bertctl[h5]'; or take .npz."
        )


def write_features(output: Path, layout: VectorLayout, folder: Path) -> None:
    """Writes the arrays of a folder as one file, which appears under its name when it is whole.

    Raises:
        UnavailableError: The disk is full.
    """
    write = _WRITERS[output.suffix.lower()]
    atomic_write(output, lambda aside: write(aside, layout, folder))


def _write_npy(path: Path, layout: VectorLayout, folder: Path) -> None:  # noqa: ARG001
    """Links the stored vectors.npy to the output: it has the output's content already."""
    link_file(folder / "vectors.npy", path)


def _write_npz(path: Path, layout: VectorLayout, folder: Path) -> None:
    """Writes the arrays of a folder by name, as numpy does."""
    with path.open("wb") as out:
        np.savez(out, **stored_arrays(folder, layout))  # type: ignore[arg-type]


def _write_safetensors(path: Path, layout: VectorLayout, folder: Path) -> None:
    """Writes the arrays of a folder by name as safetensors."""
    from safetensors.numpy import save_file

    save_file(stored_arrays(folder, layout), path)


def _write_h5(path: Path, layout: VectorLayout, folder: Path) -> None:
    """Writes the arrays of a folder as data sets of an HDF5 file."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in stored_arrays(folder, layout).items():
            file.create_dataset(name, data=array)


def _write_jsonl(path: Path, layout: VectorLayout, folder: Path) -> None:
    """Writes a line per row in the format of BERT's original extract_features.py.

    Its field `linex_index` is the number of the row; the spelling is the original's.
    """
    arrays = stored_arrays(folder, layout)
    vectors = arrays["vectors"].reshape(-1, len(layout.layers), layout.size)
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for number, row in enumerate(stored_rows(folder)):
            document: dict[str, Any] = {"linex_index": number}
            if layout.by_token:
                token_range = slice(
                    int(arrays["offsets"][number]), int(arrays["offsets"][number + 1])
                )
                if "ids" in arrays:
                    names = [layout.token_names[i] for i in arrays["ids"][token_range].tolist()]
                else:  # vectors of words, which the row lists or the spans cut out of its text
                    names = row.get("words") or [
                        row["text"][begin:end]
                        for begin, end in arrays["spans"][token_range].tolist()
                    ]
                tokens = zip(names, vectors[token_range], strict=True)
                document["features"] = [
                    {"token": name, "layers": _layers(layout.layers, token_vectors)}
                    for name, token_vectors in tokens
                ]
            else:
                document |= {"id": row["id"], "pooling": layout.pooling}
                document["layers"] = _layers(layout.layers, vectors[number])
            out.write(json.dumps(document, ensure_ascii=False) + "\n")


def _layers(names: Sequence[str], vectors: Array) -> list[dict[str, Any]]:
    """Returns (K, D) vectors as google-research/bert's `extract_features.py` lays them out.

    That is `[{"index": -1, "values": [...]}, ...]`. A layer without a number has its name there.
    """
    rounded = np.round(vectors.astype(np.float64), _DECIMALS).tolist()
    return [
        {"index": int(name) if name.lstrip("-").isdecimal() else name, "values": values}
        for name, values in zip(names, rounded, strict=True)
    ]


def _write_parquet(path: Path, layout: VectorLayout, folder: Path) -> None:
    """Writes rows with their vectors as Parquet, a row group at a time.

    Raises:
        DataError: Labels of kinds that fit no column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = _tables(layout, folder)
    try:
        first_table = next(tables)
        with pq.ParquetWriter(path, first_table.schema) as writer:
            for table in chain([first_table], tables):
                writer.write_table(_cast(table, first_table.schema))
    except (pa.ArrowException, OverflowError) as error:
        remedy = "Make them of one kind in the input, or take .npz, which has no labels."
        raise DataError(
            f"the labels are of kinds that fit no column of Parquet: {error}", remedy=remedy
        ) from error


def _label_type(folder: Path) -> "pa.DataType | None":
    """Returns the Parquet type of the column of labels: text if labels have several types.

    A mixture of whole and decimal numbers is decimal. The type is None if there are no labels, and
    if they are lists, whose type Parquet finds out.
    """
    import pyarrow as pa

    kinds = {type(row.get("label")) for row in stored_rows(folder)} - {type(None)}
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if not kinds:
        return None
    if kinds == {int, float}:
        return types[float]
    if len(kinds) > 1:
        return types[str]
    [kind] = kinds
    return types.get(kind)


def _tables(layout: VectorLayout, folder: Path) -> "Iterator[pa.Table]":
    """Yields the row groups of a Parquet file: columns of the rows, then vectors and tokens."""
    import pyarrow as pa

    arrays = stored_arrays(folder, layout)
    vectors = arrays["vectors"].reshape(-1, len(layout.layers), layout.size)
    if len(layout.layers) == 1:
        names = ["vector"]
    else:
        names = [f"vector_{layer}" for layer in layout.layers]
    rows_per_group = min(_GROUP_ROWS, _GROUP_NUMBERS // (layout.size * len(layout.layers)))
    rows = stored_rows(folder)
    first_row = 0
    label_type = _label_type(folder)
    has_yielded = False
    while True:
        row_group = list(islice(rows, max(1, rows_per_group)))
        if not row_group and has_yielded:  # a shard without rows has one group without rows
            return
        has_yielded = True
        rows_end = first_row + len(row_group)
        columns = _row_columns(row_group, label_type, keep_text=layout.keep_text)
        # The group's vectors, of its rows or of their tokens, are those from `begin` to `end`.
        begin = first_row
        end = rows_end
        if layout.by_token:
            offsets = arrays["offsets"][first_row : rows_end + 1]
            begin, end = offsets[[0, -1]]
            starts = pa.array((offsets - begin).astype(np.int32))
        for layer, name in enumerate(names):
            flat = pa.array(np.ascontiguousarray(vectors[begin:end, layer]).ravel())
            lists = pa.FixedSizeListArray.from_arrays(flat, layout.size)
            if layout.by_token:
                columns[f"{name}s"] = pa.ListArray.from_arrays(starts, lists)
            else:
                columns[name] = lists
        if layout.by_token:
            spans = np.array(arrays["spans"][begin:end])
            values = {"begin": spans[:, 0].copy(), "end": spans[:, 1].copy()}
            if "ids" in arrays:
                values["token_ids"] = np.array(arrays["ids"][begin:end])
            columns |= {
                name: pa.ListArray.from_arrays(starts, pa.array(array))
                for name, array in values.items()
            }
        yield pa.table(columns)
        first_row = rows_end


def _row_columns(
    rows: Sequence[dict[str, Any]], label_type: "pa.DataType | None", *, keep_text: bool
) -> dict[str, Any]:
    """Returns what is stored of rows as columns of a Parquet file: id, texts, label.

    Args:
        rows: A row group. Labels in it become text if the column is text.
        label_type: Type of the column of labels; None if Parquet finds it out.
        keep_text: Whether there is a column of texts even without rows.
    """
    import pyarrow as pa

    if label_type == pa.string():
        for row in rows:
            if row.get("label") is not None:
                row["label"] = str(row["label"])
    names = dict.fromkeys(chain.from_iterable(rows))  # in order, each once
    if not rows:
        names = dict.fromkeys(["id", "text"] if keep_text else ["id"])
    types = {"id": pa.string(), "text": pa.string(), "label": label_type}
    columns = {}
    for name in names:
        cells = [row.get(name) for row in rows]
        columns[name] = pa.array(cells, types.get(name))
    return columns


def _cast(table: "pa.Table", schema: "pa.Schema") -> "pa.Table":
    """Returns the table with the columns and types of the first row group."""
    import pyarrow as pa

    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(len(table), field.type))
    return table.select(schema.names).cast(schema)


_WRITERS: dict[str, Callable[[Path, VectorLayout, Path], None]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
    ".h5": _write_h5,
}
