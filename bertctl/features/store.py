"""Where vectors lie while they are computed.

It is one folder of growing arrays per process, which a killed attempt leaves whole. The file that
was asked for is made of it at the end.

    vectors.npy   (N, D), or (N, K, D) for K layers; of tokens or words one behind the other
    rows.jsonl    id, texts and label of each row
    counts.npy    (N,) tokens of each row; with token vectors, as what follows
    spans.npy     (T, 2) first and last + 1 character of each token
    ids.npy       (T,) token ids; not of words
    offsets.npy   (N,) where each row begins in rows.jsonl, in bytes; of an index
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from bertctl.appended import AppendedArray, AppendedFile, AppendedOffsets, open_array
from bertctl.arrays import Array
from bertctl.data.rows import Rows
from bertctl.features.encoder import TokenVectors
from bertctl.words import count
from bertctl.writing import replacing_file


@dataclass(frozen=True)
class VectorLayout:
    """Layout of every row of a feature file.

    Attributes:
        layers: Names, K.
        size: D.
        dtype: float32 or float16.
        by_token: Whether a row has a vector for each token or word, not one for the whole text.
        pooling: Its name, `none` for tokens, or `words-...`.
        token_names: Name of each token id, for JSON lines of tokens; empty otherwise.
        keep_text: Whether texts are kept beside the vectors.
    """

    layers: tuple[str, ...]
    size: int
    dtype: str
    by_token: bool
    pooling: str
    token_names: tuple[str, ...] = ()
    keep_text: bool = True

    @property
    def vector_shape(self) -> tuple[int, ...]:
        """Returns (D,), or (K, D) for several layers."""
        if len(self.layers) == 1:
            return (self.size,)
        return (len(self.layers), self.size)

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
        """Returns name -> shape of a row and type of its numbers, for each array of a folder."""
        shapes: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
            "vectors": (self.vector_shape, self.dtype)
        }
        if self.by_token:
            shapes |= {"counts": ((), np.int64), "spans": ((2,), np.int32)}
            if not self.pooling.startswith("words"):
                shapes["ids"] = ((), np.int32)
        return shapes


@contextmanager
def outliving(rows: Callable[[], int]) -> Iterator[None]:
    """Adds to the message of a command that is stopped how many rows are saved, within `with`.

    With `--resume` the next command continues from these rows.

    Args:
        rows: Returns how many rows are saved by now.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"{count(rows(), 'row')} are whole")
        raise


class VectorStore:
    """Folder that rows are added to.

    Args:
        folder: Made anew unless `state` is given.
        layout: Layout of its rows.
        state: What `commit` returned last, to continue from there: what lies behind it is cut off.
            None empties the folder.
        has_offsets: Whether offsets.npy has the offset of each row in rows.jsonl, so that single
            rows can be read.
    """

    def __init__(
        self,
        folder: Path,
        layout: VectorLayout,
        state: Mapping[str, Any] | None,
        *,
        has_offsets: bool = False,
    ) -> None:
        """Opens the folder's arrays: as long as they were at `state`, or empty if it is None."""
        if state is None:
            # The hidden lock file stays: the caller holds it.
            for file in folder.glob("[!.]*"):
                file.unlink()
        self._layout = layout
        self._rows = state["rows"] if state else 0
        self._lines = AppendedFile(folder / "rows.jsonl", state["bytes"] if state else None)
        self._arrays: dict[str, AppendedArray] = {}
        for name, (shape, dtype) in layout.arrays.items():
            rows = None
            if state:
                # `counts` has a number for each row, the other arrays something for each vector.
                rows = state["rows" if name == "counts" else "vectors"]
            self._arrays[name] = AppendedArray(folder / f"{name}.npy", shape, dtype, rows=rows)
        self._offsets: AppendedOffsets | None = None
        if has_offsets:
            n_bytes = 0
            digest = ""
            if state:
                n_bytes = state["bytes"]
                digest = state.get("offsets_sha256", "")
            path = folder / "offsets.npy"
            self._offsets = AppendedOffsets(
                path,
                lines=folder / "rows.jsonl",
                n_lines=self._rows,
                n_bytes=n_bytes,
                digest=digest,
            )

    def append(self, rows: Rows, vectors: Array, tokens: TokenVectors | None) -> None:
        """Adds rows with their vectors.

        Args:
            rows: N rows.
            vectors: (N, K, D) for K layers, or (T, K, D) for T tokens (or words) of all rows.
            tokens: Counts, spans and ids of the tokens; None for vectors of texts.
        """
        self._arrays["vectors"].append(vectors.reshape(-1, *self._layout.vector_shape))
        # Vectors of texts have no other arrays.
        for name, array in self._arrays.items():
            if name != "vectors":
                array.append(getattr(tokens, name))
        if self._layout.keep_text:
            column_names = ["text", "pair", "words", "label", "tags"]
        else:
            column_names = ["label"]
        names = [name for name in column_names if rows.has(name)]
        lines: list[dict[str, Any]] = []
        for i, row_id in enumerate(rows.ids):
            values = {name: rows.columns[name][i] for name in names}
            lines.append({"id": row_id, **values})
        # JSON lines name words by their characters. Only here is known which text of a pair a span
        # is in, so the words of pairs are written down.
        if tokens is not None and self._layout.token_names and rows.has("pair"):
            token_spans = zip(tokens.spans.tolist(), tokens.second.tolist(), strict=True)
            for line, count in zip(lines, tokens.counts.tolist(), strict=True):
                line["words"] = [
                    line["pair" if in_second_text else "text"][slice(*span)]
                    for span, in_second_text in islice(token_spans, count)
                ]
        encoded = [
            f"{json.dumps(line, ensure_ascii=False, default=str)}\n".encode() for line in lines
        ]
        self._lines.append(b"".join(encoded))
        if self._offsets is not None:
            self._offsets.append([len(line) for line in encoded])
        self._rows += len(rows)

    def commit(self) -> dict[str, Any]:
        """Syncs what was added to the disk, so that it survives a kill.

        Returns:
            The state that the next attempt opens the folder with.
        """
        for array in self._arrays.values():
            array.sync()
        state = {
            "rows": self._rows,
            "vectors": self._arrays["vectors"].rows,
            "bytes": self._lines.sync(),
        }
        if self._offsets is None:
            return state
        return state | {"offsets_sha256": self._offsets.sync()}

    def close(self) -> None:
        """Closes the files."""
        self._lines.close()
        if self._offsets is not None:
            self._offsets.close()
        for array in self._arrays.values():
            array.close()


def join_stores(
    folders: Sequence[Path],
    chunks: Sequence[tuple[int, int, int]],
    into: Path,
    layout: VectorLayout,
) -> None:
    """Puts the chunks of several processes in the order of the input, in one folder.

    Args:
        folders: Folders of process 0, 1, ...
        chunks: Process, rows and vectors of each chunk, in order of the input.
        into: The folder to make.
        layout: Layout of the rows.
    """
    shutil.rmtree(into, ignore_errors=True)
    for name, (shape, dtype) in layout.arrays.items():
        sources = [open_array(folder / f"{name}.npy") for folder in folders]
        joined = AppendedArray(into / f"{name}.npy", shape, dtype, None)
        positions = [0] * len(folders)  # what was taken of each source
        for process, rows, vectors in chunks:
            # `counts` has an entry per row; a row may have several vectors, one for each token.
            n_entries = rows if name == "counts" else vectors
            begin = positions[process]
            joined.append(sources[process][begin : begin + n_entries])
            positions[process] += n_entries
        joined.sync()
        joined.close()
    with ExitStack() as files, replacing_file(into / "rows.jsonl") as out:
        lines = [files.enter_context((folder / "rows.jsonl").open("rb")) for folder in folders]
        for process, rows, _ in chunks:
            out.writelines(lines[process].readline() for _ in range(rows))


def stored_arrays(folder: Path, layout: VectorLayout) -> dict[str, Array]:
    """Returns the arrays of a folder by name, mapped into memory.

    In place of `counts`, the tokens of each row, there are `offsets`: (N + 1,) where each row's
    tokens begin.
    """
    arrays = {name: open_array(folder / f"{name}.npy") for name in layout.arrays}
    if layout.by_token:
        arrays["offsets"] = np.concatenate(
            [np.zeros(1, dtype=np.int64), np.cumsum(arrays.pop("counts"))]
        )
    return arrays


def stored_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields id, texts and label of each row."""
    with (folder / "rows.jsonl").open("rb") as lines:
        yield from map(json.loads, lines)
