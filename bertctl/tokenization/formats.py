"""Encoded texts as bytes for a file or a pipe: jsonl, ids, pieces, parquet, npz. All write portion by portion.

Letters: N texts, T tokens of all of them together, V pieces in the vocabulary.
"""

import io
import itertools
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bertctl.tokenization.encode import EncodedTexts
from bertctl.tokenization.reference import id_count, pieces_by_id

Format = Literal["jsonl", "ids", "pieces", "parquet", "npz"]

_FEW_IDS = 10_000
"""Ids written one by one before the table of all of them is made."""
_WIDEST = 32  # bytes; vocabularies with longer pieces are written token by token
_COPY = 1 << 20


class Writer(Protocol):
    """Takes portions in order."""

    def write(self, encoded: EncodedTexts) -> None:
        """One portion."""

    def close(self) -> None:
        """The rest: footers, archives. Not called when the work was broken off."""


class LineWriter:
    """One line a text: its ids, or its pieces, with a space between.

    Args:
        out: gets whole lines only.
        name: what an id is written as.
        names: (V,) the same for all ids; called once there is much to write, since making a table of them takes longer
            than a text.
    """

    def __init__(self, out: BinaryIO, name: Callable[[int], str], names: Callable[[], Sequence[str]]) -> None:
        self._out = out
        self._name = name
        self._names = names
        self._seen = 0
        self._size = 0
        self._table: _ByteTable | None = None

    def write(self, encoded: EncodedTexts) -> None:
        """One portion; what was written can be read at once."""
        self._seen += len(encoded.ids)
        if self._table is None and self._seen <= _FEW_IDS:
            self._out.write(self._lines(encoded).encode("utf-8", "surrogatepass"))
        else:
            self._out.write(self._joined(encoded))
        self._out.flush()

    def _lines(self, encoded: EncodedTexts) -> str:
        ids, starts = encoded.ids.tolist(), encoded.starts.tolist()
        return "".join(" ".join(map(self._name, ids[start:end])) + "\n" for start, end in itertools.pairwise(starts))

    def _joined(self, encoded: EncodedTexts) -> bytes:
        if self._table is None:
            names = self._names()
            self._size = len(names)
            self._table = _ByteTable([f"{name} " for name in names] + [f"{name}\n" for name in names] + ["\n"])
        index = encoded.ids.astype(np.int64)
        ends = encoded.starts[1:]
        filled = encoded.lengths > 0
        index[ends[filled] - 1] += self._size
        if not filled.all():  # a text without a token is an empty line
            index = np.insert(index, ends[~filled], 2 * self._size)
        return self._table.join(index)

    def close(self) -> None:
        """Nothing is left to write."""


class _ByteTable:
    """Joins byte strings by number. Strings of like width are gathered by numpy: 6 times as fast as `bytes.join`."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string.encode("utf-8", "surrogatepass") for string in strings]
        widest = max(map(len, self._strings))
        self._padded: NDArray[np.bytes_] | None = None
        if widest <= _WIDEST and not any(b"\0" in string for string in self._strings):
            self._padded = np.array(self._strings, dtype=f"S{-(-widest // 8) * 8}")

    def join(self, index: NDArray[np.int64]) -> bytes:
        if self._padded is None:
            return b"".join(map(self._strings.__getitem__, index.tolist()))
        gathered = self._padded[index].view(np.uint8)
        joined: bytes = gathered[gathered != 0].tobytes()
        return joined


class ParquetWriter:
    """Columns `ids` (list of int32), `type_ids` (list of uint8) and `full_length` (tokens before the cut)."""

    def __init__(self, out: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa = pa
        self._schema = pa.schema(
            [
                pa.field("ids", pa.list_(pa.int32())),
                pa.field("type_ids", pa.list_(pa.uint8())),
                pa.field("full_length", pa.int64()),
            ]
        )
        self._writer: Any = pq.ParquetWriter(out, self._schema)

    def write(self, encoded: EncodedTexts) -> None:
        """One row group."""
        pa = self._pa
        starts = pa.array(encoded.starts.astype(np.int32))
        columns = [
            pa.ListArray.from_arrays(starts, pa.array(encoded.ids)),
            pa.ListArray.from_arrays(starts, pa.array(encoded.type_ids)),
            pa.array(encoded.full_lengths),
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """The footer."""
        self._writer.close()


class NpzWriter:
    """`ids` (T,) int32, `type_ids` (T,) uint8, `offsets` (N + 1,) int64: text i is ids[offsets[i]:offsets[i + 1]].

    A .npy file begins with its length, so the arrays wait in temporary files until it is known.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._folder = tempfile.TemporaryDirectory(prefix="bertctl-")
        self._files: dict[str, BinaryIO] = {
            name: (Path(self._folder.name) / name).open("w+b") for name in ("ids", "type_ids", "offsets")
        }
        self._files["offsets"].write(np.zeros(1, dtype=np.int64).tobytes())
        self._tokens = 0

    def write(self, encoded: EncodedTexts) -> None:
        """One portion."""
        self._files["ids"].write(encoded.ids.tobytes())
        self._files["type_ids"].write(encoded.type_ids.tobytes())
        self._files["offsets"].write((encoded.starts[1:] + self._tokens).tobytes())
        self._tokens += len(encoded.ids)

    def close(self) -> None:
        """The archive."""
        types: dict[str, np.dtype[Any]] = {
            "ids": np.dtype(np.int32),
            "type_ids": np.dtype(np.uint8),
            "offsets": np.dtype(np.int64),
        }
        with zipfile.ZipFile(self._out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, file in self._files.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    member.write(_npy_header(types[name], file.tell() // types[name].itemsize))
                    file.seek(0)
                    while block := file.read(_COPY):
                        member.write(block)
                file.close()
        self._folder.cleanup()


def _npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    )
    return header.getvalue()


def ids_writer(out: BinaryIO, tokenizer: Tokenizer) -> LineWriter:
    """Ids as decimal numbers, a line for each text."""
    return LineWriter(out, str, lambda: [str(i) for i in range(id_count(tokenizer))])


def pieces_writer(out: BinaryIO, tokenizer: Tokenizer) -> LineWriter:
    """Pieces, a line for each text."""
    return LineWriter(out, lambda i: tokenizer.id_to_token(i) or "", lambda: pieces_by_id(tokenizer))
