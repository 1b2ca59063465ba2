"""The files that features are kept in: which formats there are, how a finished folder of parts becomes one of them, and
how they are read again.

    .npy          vectors (N, D), or (N, K, D) for K layers; grows in place, readable while it is written
    .jsonl        google-research/bert's layout; grows in place
    .npz          vectors; tokens: also offsets (N + 1), spans (T, 2) and ids (T)
    .safetensors  the same arrays
    .parquet      id, text, label, vector (a list of fixed size; for several layers a column each)
    .h5           the same arrays as .npz, as data sets (extra `h5`)
"""

import json
import shutil
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.features.arrays import GrowingArray, open_array, portions
from bertctl.features.jsonl import text_line, token_line
from bertctl.features.sinks import LineSink, NpySink, PartSink, Shape, Sink
from bertctl.run_folder import atomic_write
from bertctl.words import did_you_mean

IN_PLACE = (".npy", ".jsonl")
SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".jsonl", ".h5")
_TOKEN_SUFFIXES = (".npz", ".safetensors", ".parquet", ".jsonl", ".h5")


def check_output(output: Path, *, by_token: bool) -> None:
    """Refuse a suffix that is no format, before anything is loaded.

    Raises:
        UsageError: unknown suffix; a single array for token vectors, which need their offsets beside them.
        UnavailableError: a format whose extra is not installed.
    """
    suffix = output.suffix.lower()
    if suffix not in SUFFIXES:
        hint = did_you_mean(suffix, SUFFIXES)
        what = f"'{suffix}' is no format of features" if suffix else "the output has no suffix that says its format"
        raise UsageError(f"{output}: {what}" + (f": {hint}" if hint else ""), remedy=f"Formats: {', '.join(SUFFIXES)}.")
    if by_token and suffix not in _TOKEN_SUFFIXES:
        raise UsageError(
            f"{output}: token vectors are flat vectors and offsets, and {suffix} holds one array",
            remedy=f"Formats that hold both: {', '.join(_TOKEN_SUFFIXES)}.",
        )
    if suffix == ".h5":
        try:
            import h5py  # noqa: F401
        except ImportError as error:
            raise UnavailableError(
                "writing .h5 needs the package h5py", remedy="Install it: pip install 'bertctl[h5]'; or take .npz."
            ) from error


def sidecar_of(output: Path) -> Path:
    """OUT.json."""
    return output.with_name(f"{output.name}.json")


def parts_of(output: Path) -> Path:
    """OUT.parts, the folder in which whole rows lie until the file can be made."""
    return output.with_name(f"{output.name}.parts")


def open_sink(output: Path, shape: Shape, *, part: int | None, state: Mapping[str, int] | None) -> Sink:
    """Where the vectors go.

    Args:
        output: OUT.
        shape: of its rows.
        part: number of the process, where there are several.
        state: what `commit` gave, to go on from there; None starts anew.
    """
    if part is None and output.suffix == ".npy":
        return NpySink(output, shape, state)
    if part is None and output.suffix == ".jsonl":
        return LineSink(output, shape, state)
    return PartSink(parts_of(output) / str(part or 0), shape, state)


def finish(output: Path, shape: Shape, folder: Path) -> None:
    """Make OUT of a folder of parts; the folder goes.

    Raises:
        UnavailableError: the disk is full; the folder stays.
    """
    makers = {
        ".npy": _make_npy, ".jsonl": _make_jsonl, ".npz": _make_npz,
        ".safetensors": _make_safetensors, ".parquet": _make_parquet, ".h5": _make_h5,
    }  # fmt: skip
    atomic_write(output, lambda aside: makers[output.suffix.lower()](aside, shape, folder))


def join_parts(folders: Sequence[Path], windows: Sequence[tuple[int, int, int]], into: Path, shape: Shape) -> None:
    """The windows of several processes in order, as one folder of parts.

    Args:
        folders: of process 0, 1, ...
        windows: process, rows and vectors of each window, in order of the input.
        into: the folder to make.
        shape: of the rows.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    names = [path.name for path in sorted(folders[0].glob("*.npy"))]
    for name in names:
        sources = [open_array(folder / name) for folder in folders]
        array = GrowingArray(into / name, sources[0].shape[1:], sources[0].dtype)
        at = [0] * len(folders)
        for process, rows, vectors in windows:
            count = rows if name == "counts.npy" or not shape.by_token else vectors
            array.append(sources[process][at[process] : at[process] + count])
            at[process] += count
        array.close()
    lines = [(folder / "rows.jsonl").open("rb") for folder in folders]
    with (into / "rows.jsonl").open("wb") as out:
        for process, rows, _ in windows:
            out.writelines(lines[process].readline() for _ in range(rows))
    for file in lines:
        file.close()


def _arrays(folder: Path, shape: Shape) -> dict[str, NDArray[Any]]:
    found = {"vectors": open_array(folder / "vectors.npy")}
    if shape.by_token:
        counts = open_array(folder / "counts.npy")
        found["offsets"] = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        found["spans"] = open_array(folder / "spans.npy")
        if (folder / "ids.npy").exists():
            found["ids"] = open_array(folder / "ids.npy")
    return found


def _row_documents(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "rows.jsonl").open("rb") as lines:
        for line in lines:
            yield json.loads(line)


def _make_npy(path: Path, shape: Shape, folder: Path) -> None:
    array = GrowingArray(path, shape.row_shape, shape.dtype)
    for rows in portions(open_array(folder / "vectors.npy")):
        array.append(rows)
    array.close()


def _make_npz(path: Path, shape: Shape, folder: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in _arrays(folder, shape).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(array))
                for rows in portions(array):
                    member.write(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")


def _make_safetensors(path: Path, shape: Shape, folder: Path) -> None:
    """By hand, for safetensors' own writer takes whole arrays in memory: the length of the header, the header in JSON,
    the arrays one behind the other.
    """
    kinds = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32"}
    arrays = _arrays(folder, shape)
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            _write_portions(array, out)


def _write_portions(array: NDArray[Any], out: BinaryIO) -> None:
    for rows in portions(array):
        out.write(np.ascontiguousarray(rows).tobytes())


def _make_jsonl(path: Path, shape: Shape, folder: Path) -> None:
    arrays = _arrays(folder, shape)
    vectors = arrays["vectors"].reshape(-1, len(shape.layers), shape.size)
    with path.open("wb") as out:
        for number, row in enumerate(_row_documents(folder)):
            if not shape.by_token:
                out.write(text_line(number, row["id"], shape, vectors[number]))
                continue
            inside = slice(int(arrays["offsets"][number]), int(arrays["offsets"][number + 1]))
            if "ids" in arrays:
                names = [shape.pieces[i] for i in arrays["ids"][inside].tolist()]
            else:
                names = row.get("words") or [row["text"][a:b] for a, b in arrays["spans"][inside].tolist()]
            out.write(token_line(number, names, shape, vectors[inside]))


def _make_parquet(path: Path, shape: Shape, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = _arrays(folder, shape)
    vectors = arrays["vectors"].reshape(-1, len(shape.layers), shape.size)
    names = ["vector"] if len(shape.layers) == 1 else [f"vector_{layer}" for layer in shape.layers]
    group = max(1, min(65536, (1 << 26) // (4 * shape.size * len(shape.layers))))
    writer: Any = None
    documents = _row_documents(folder)
    n_rows = len(arrays["offsets"]) - 1 if shape.by_token else len(vectors)
    types: Any = None
    for first in range(0, n_rows, group):
        rows = [next(documents) for _ in range(min(group, n_rows - first))]
        inside = slice(first, first + len(rows))
        columns: dict[str, Any] = {}
        for name in dict.fromkeys(key for row in rows for key in row):
            columns[name] = pa.array([row.get(name) for row in rows])
        offsets = None
        if shape.by_token:
            offsets = arrays["offsets"][first : first + len(rows) + 1]
            inside = slice(int(offsets[0]), int(offsets[-1]))
        for layer, name in enumerate(names):
            flat = pa.array(np.ascontiguousarray(vectors[inside, layer]).ravel())
            lists = pa.FixedSizeListArray.from_arrays(flat, shape.size)
            if offsets is not None:
                lists = pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), lists)
            columns[name if offsets is None else f"{name}s"] = lists
        if offsets is not None:
            starts = pa.array((offsets - offsets[0]).astype(np.int32))
            for name, column in (("begin", 0), ("end", 1)):
                values = pa.array(np.ascontiguousarray(arrays["spans"][inside, column]))
                columns[name] = pa.ListArray.from_arrays(starts, values)
            if "ids" in arrays:
                columns["token_ids"] = pa.ListArray.from_arrays(starts, pa.array(np.array(arrays["ids"][inside])))
        table = pa.table(columns)
        if writer is None:
            types = table.schema
            writer = pq.ParquetWriter(path, types)
        writer.write_table(_as(table, types))
    writer.close()


def _as(table: Any, types: Any) -> Any:
    """The table with the types of the first row group.

    Raises:
        DataError: a column that is text here and numbers there.
    """
    import pyarrow as pa

    if table.schema.equals(types):
        return table
    try:
        for name in types.names:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table), types.field(name).type))
        return table.select(types.names).cast(types)
    except pa.ArrowInvalid as error:
        raise DataError(f"a column changes its type in the middle of the input: {error}") from error


def _make_h5(path: Path, shape: Shape, folder: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in _arrays(folder, shape).items():
            data = file.create_dataset(name, shape=array.shape, dtype=array.dtype)
            at = 0
            for rows in portions(array):
                data[at : at + len(rows)] = rows
                at += len(rows)


@dataclass(frozen=True)
class FeatureFile:
    """Features read again.

    Attributes:
        path: the file.
        vectors: (N, D) or (N, K, D); a map of the file where the format allows it.
        labels: N labels, where the file has them.
        sidecar: content of OUT.json; empty where there is none.
    """

    path: Path
    vectors: NDArray[np.floating]
    labels: list[Any] | None
    sidecar: dict[str, Any]


def is_feature_file(name: str) -> bool:
    """Whether a name is that of features, not of texts: by its suffix, or by the sidecar of a Parquet file."""
    path = Path(name)
    if path.suffix == ".parquet":
        return sidecar_of(path).exists()
    return path.suffix in (".npy", ".npz", ".safetensors", ".h5")


def read_features(path: Path) -> FeatureFile:
    """Read features with one vector a row (and layer).

    Raises:
        UnavailableError: not there.
        DataError: cut short, not finished, token vectors, NaN or infinite numbers.
    """
    if not path.is_file():
        raise UnavailableError(f"{path} does not exist", remedy="Make it: bertctl extract-features INPUT -o OUT.npy")
    sidecar: dict[str, Any] = {}
    if sidecar_of(path).is_file():
        sidecar = json.loads(sidecar_of(path).read_text(encoding="utf-8"))
        if not sidecar.get("complete", True):
            raise DataError(
                f"{path} is not finished: {sidecar['rows']} rows are whole",
                remedy="Go on with the same command and --resume.",
            )
    try:
        vectors, labels = _read(path)
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} can't be read; it may have been cut short: {str(error).splitlines()[0]}",
            remedy="Extract the features again.",
        ) from error
    if sidecar and len(vectors) != sidecar.get("rows", len(vectors)):
        raise DataError(
            f"{path} has {len(vectors)} rows, and {sidecar_of(path).name} says {sidecar['rows']}: it was cut short, or "
            "is another file's",
            remedy="Extract the features again.",
        )
    at = 0
    for rows in portions(vectors):
        bad = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
        if bad.size:
            raise DataError(
                f"{path}, row {at + int(bad[0]) + 1}: the vector has NaN or infinite numbers",
                remedy="Extract the features again; with --dtype float32 where they were float16.",
            )
        at += len(rows)
    return FeatureFile(path, vectors, labels, sidecar)


def _read(path: Path) -> tuple[NDArray[np.floating], list[Any] | None]:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return open_array(path), None
    if suffix == ".parquet":
        return _read_parquet(path)
    arrays: Mapping[str, NDArray[Any]]
    if suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    elif suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            arrays = load_file(path)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    elif suffix == ".h5":
        import h5py

        with h5py.File(path) as file:
            arrays = {name: np.asarray(file[name]) for name in file}
    else:
        raise UsageError(f"{path}: features can't be read from '{suffix}'", remedy=f"Formats: {', '.join(SUFFIXES)}.")
    if "offsets" in arrays:
        raise DataError(f"{path} holds token vectors", remedy="Give features with one vector a row: --pooling mean.")
    return arrays["vectors"], None


def _read_parquet(path: Path) -> tuple[NDArray[np.floating], list[Any] | None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    names = [name for name in table.column_names if name == "vector" or name.startswith("vector_")]
    if not names:
        raise DataError(f"{path} has no column 'vector'", remedy=f"Columns there: {', '.join(table.column_names)}.")
    parts = []
    for name in names:
        column = table.column(name).combine_chunks()
        parts.append(column.values.to_numpy(zero_copy_only=False).reshape(len(table), -1))
    labels = table.column("label").to_pylist() if "label" in table.column_names else None
    return (parts[0] if len(parts) == 1 else np.stack(parts, axis=1)), labels
