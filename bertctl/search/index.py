"""An index: vectors of texts in a folder, which are searched without being read into memory.

    index.json            the model with its hash, layer, pooling, measure, number type, rows; how
                          the files were read
    vectors.npy           (N, D), for cosines of length 1; as int8 of nearly the same direction
    rows.jsonl            id, text and label of each row
    offsets.npy           (N,) byte at which each row begins in rows.jsonl; not in older indexes
    graph-HASH.usearch    perhaps, named by its source: the vectors again, and which are near

They grow; index.json says how much of them is whole, and which offsets are sound. Letters: N rows,
D size of a vector, K nearest rows.
"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertctl.appended import Offsets, line_offsets, open_array, stored_offsets
from bertctl.arrays import Array, Floats32
from bertctl.data.rows import Rows
from bertctl.documents import loading, read_json_document
from bertctl.errors import DataError, UnavailableError
from bertctl.metrics.similarity import COSINE
from bertctl.modeling.pooling import unit_length
from bertctl.run_documents.index_document import IndexDocument
from bertctl.search.graph import graph_class, new_graph, require_graph
from bertctl.search.nearest import Nearest, block_rows, recall
from bertctl.words import command
from bertctl.writing import atomic_write

MAKE_AGAIN = f"Make it again: {command('index CORPUS', output='INDEX', overwrite=True)}."
"""Remedy for an index that is damaged, or does not fit."""

_MEASURED_QUERIES = 100
"""Queries that are also searched for exactly, to measure the recall of the graph."""

_FEW = 20
"""With fewer queries than these, the recall is measured with rows of the index."""

_PIECE = 2**16  # bytes of rows.jsonl that are read at once where the end of a line is looked for
NOTHING_READ: dict[str, Any] = {"source": "", "rows": 0, "texts_sha256": ""}
"""What is read of a corpus before it is begun."""


@dataclass(frozen=True)
class Index:
    """Index, complete or not.

    Attributes:
        folder: Folder with its files.
        document: Content of index.json.
    """

    folder: Path
    document: IndexDocument

    @property
    def similarity(self) -> str:
        """Measure by which its rows are near; indexes of older versions know the cosine alone."""
        return self.document.similarity or COSINE

    @classmethod
    def open(cls, folder: Path, *, unfinished: bool = False) -> Self:
        """Opens the index in a folder, and checks that its files fit together.

        Args:
            folder: Folder of the index.
            unfinished: Whether an index that is not finished may be opened.

        Raises:
            UnavailableError: The folder has no index.
            DataError: The index is damaged, or is not finished.
        """
        path = folder / "index.json"
        vectors = folder / "vectors.npy"
        if not path.exists():
            message = f"{folder} is not an index: it has no index.json"
            raise UnavailableError(
                message, remedy=f"Make one: {command('index CORPUS', output='INDEX')}.", file=folder
            )
        document = read_json_document(path, IndexDocument, kind=DataError, remedy=MAKE_AGAIN)
        with loading(vectors, remedy=MAKE_AGAIN):
            stored = open_array(vectors)[: document.rows]
            layout = (document.rows, document.size, document.dtype)
            if (*stored.shape, stored.dtype.name) != layout:
                raise ValueError(
                    f"it holds {stored.shape} {stored.dtype}, and index.json says something else"
                )
        if not (document.complete or unfinished):
            message = f"{folder} is not finished: {document.rows:,} texts are in it"
            raise DataError(
                message,
                remedy="Type the command that made it again, with `resume=True`.",
                file=folder,
            )
        return cls(folder, document)

    def to_append(self) -> Self:
        """Returns the index as it is before a new corpus is added, of which it has no rows yet."""
        values = self.document.as_json()
        values.pop("recall", None)  # it was measured on the corpus before
        values["corpus"] = NOTHING_READ
        return replace(self, document=IndexDocument.model_validate(values))

    def has_begun(self, parts: Iterable[Rows]) -> bool:
        """Returns whether a corpus begins with the rows that were added to the index last.

        If so, the corpus is being added already, and these rows must not be added again.

        Args:
            parts: Rows of the corpus, some at a time; only so many are read as were added.
        """
        begun = self.document.corpus
        digest = hashlib.sha256()
        n_rows = 0
        remaining_parts = iter(parts)
        while n_rows < begun.rows and (rows := next(remaining_parts, None)):
            n_rows += len(rows)
            digest.update(hashed_bytes(rows))
        return n_rows == begun.rows and digest.hexdigest() == begun.texts_sha256

    def check(self, made: Mapping[str, Any]) -> None:
        """Refuses new vectors that are made in another way than the vectors of the index.

        Args:
            made: How the new vectors are made, by fields of index.json: model, model_hash, layer,
                pooling, similarity, ...

        Raises:
            DataError: Another model, or its files have changed, or texts are read in another way.
        """
        stored = {name: getattr(self.document, name) for name in made}
        stored["similarity"] = self.similarity  # older index.json files don't name it
        # One model may have several names, so its hash is compared and its name is not.
        differ = [name for name in made if name != "model" and made[name] != stored[name]]
        if differ:
            name = differ[0]
            if name == "model_hash":
                difference = "another model"
            else:
                difference = f"{name} {made[name]!r} in place of {stored[name]!r}"
            message = f"'{self.document.model}' made {self.folder}, and {difference} is given"
            raise DataError(
                message,
                remedy=f"Leave `model=` and its like out: an index knows its own. {MAKE_AGAIN}",
            )

    def nearest(self, queries: Floats32, top: int) -> Nearest:
        """Returns the K nearest rows of (Q, D) queries, by comparing each with all.

        The file is mapped anew for each block, so that the memory of those before is given back.

        Raises:
            DataError: something in it is no number.
        """
        nearest = Nearest(queries, top, self.similarity)
        rows = self.document.rows
        size = block_rows(len(queries))
        path = self.folder / "vectors.npy"
        for start in range(0, rows, size):
            block = as_read(open_array(path)[start : min(start + size, rows)], self.similarity)
            if not np.isfinite(block).all():
                raise DataError(
                    f"{path} is damaged: something in it is not a number",
                    remedy=MAKE_AGAIN,
                    file=path,
                )
            nearest.see(block, start)
        return nearest

    def search(
        self, queries: Iterable[tuple[Rows, Floats32]], top: int
    ) -> Iterator[dict[str, Any]]:
        """Yields a line for each of the K nearest rows of each query, the nearest first.

        On a tie the first row comes first.

        Raises:
            DataError: damaged files.
        """
        stored = IndexRows(self)
        for part, vectors in queries:
            nearest = self.nearest(vectors, top)
            lines = stored.read({*nearest.rows.ravel().tolist()})
            scores_of_queries = nearest.scores.tolist()
            for i, rows in enumerate(nearest.rows.tolist()):
                query_id = part.answer_id(i)
                query = part.columns["text"][i]
                scored_rows = zip(rows, scores_of_queries[i], strict=True)
                for rank, (row, score) in enumerate(scored_rows, start=1):
                    yield {
                        "query_id": query_id,
                        "query": query,
                        "rank": rank,
                        "score": round(score, 6),
                        **lines[row],
                    }


class IndexRows:
    """Rows of an index, by their numbers.

    Each is read by its offset, so that the others stay on the disk. Where an index has no sound
    offsets, the file is looked through once.

    Args:
        index: The index.
    """

    def __init__(self, index: Index) -> None:
        self._path = index.folder / "rows.jsonl"
        self._n_rows = index.document.rows
        # (N,) where each row's line begins in rows.jsonl: read from offsets.npy, if the file is the
        # one that index.json names by its hash, or found by looking through rows.jsonl.
        offsets = None
        digest = index.document.offsets_sha256
        if digest is not None:
            offsets = stored_offsets(index.folder / "offsets.npy", self._n_rows, digest)
        self._offsets_are_stored = offsets is not None
        if offsets is not None:
            self._offsets = offsets
        else:
            self._offsets = self._scanned()

    def read(self, numbers: Collection[int]) -> dict[int, dict[str, Any]]:
        """Returns rows by their numbers: id, text and label.

        Raises:
            DataError: The file is damaged.
        """
        with loading(self._path, remedy=MAKE_AGAIN), self._path.open("rb", buffering=0) as file:
            lines = {number: self._line(file, number) for number in sorted(numbers)}
            # rows.jsonl was changed after its offsets were stored: they are found anew.
            if self._offsets_are_stored and None in lines.values():
                self._offsets_are_stored = False
                self._offsets = self._scanned()
                lines = {number: self._line(file, number) for number in lines}
            rows = {
                number: dict(json.loads(line)) for number, line in lines.items() if line is not None
            }
        if len(rows) < len(lines) or not all({"id", "text"} <= row.keys() for row in rows.values()):
            message = (
                f"{self._path} is damaged: it has fewer rows than vectors, or one without an id "
                "and a text"
            )
            raise DataError(message, remedy=MAKE_AGAIN, file=self._path)
        return rows

    def _scanned(self) -> Offsets:
        """Returns where each row begins, found by looking through the whole file."""
        with loading(self._path, remedy=MAKE_AGAIN):
            return line_offsets(self._path, self._n_rows)

    def _line(self, file: io.FileIO, number: int) -> bytes | None:
        """Returns the line of a row; None if no line begins at its offset, or it ends elsewhere."""
        if number >= len(self._offsets):
            return None
        start = int(self._offsets[number])
        before = min(start, 1)  # the byte before the row is read too: it must be a line feed
        if number + 1 < len(self._offsets):
            size = int(self._offsets[number + 1]) - start
            content = os.pread(file.fileno(), before + size, start - before)
        else:
            # The last row ends where the file has a line feed, or not at all if it was cut off.
            content = _up_to_line_feed(file, start - before, skipped=before)
        begins_line = content[:before] in (b"", b"\n")
        line = content[before:]
        is_line = begins_line and line.find(b"\n") == len(line) - 1 and line != b""
        return line if is_line else None


def _up_to_line_feed(file: io.FileIO, start: int, *, skipped: int) -> bytes:
    """Returns the bytes of a file from an offset to the first line feed behind the skipped ones."""
    content = b""
    while piece := os.pread(file.fileno(), _PIECE, start + len(content)):
        content += piece
        end = content.find(b"\n", skipped)
        if end >= 0:
            return content[: end + 1]
    return content


@dataclass(frozen=True)
class ApproximateIndex(Index):
    """Index that is searched by a graph of its rows, which compares a query with few of them.

    The graph is that of Malkov & Yashunin (2018, "HNSW"), by usearch.

    Attributes:
        graph: usearch's, of all rows.
        measured: Recall of the graph, measured in the first search; empty before. `recall` is the
            share of the `at` nearest rows that the graph finds, `queries` the number of queries
            that it was measured with, and `of` what these were: `queries` of the search, or `texts`
            of the index.
    """

    graph: Any
    measured: dict[str, Any] = field(default_factory=dict)

    def nearest(self, queries: Floats32, top: int) -> Nearest:
        """Returns K rows near to (Q, D) queries, nearly always the nearest ones.

        The first call also measures the recall, and sets `measured`: some of the queries are
        searched for exactly as well. If there are too few queries, rows of the index take their
        place.
        """
        if not self.measured:
            takes_texts = len(queries) < _FEW < self.document.rows
            if takes_texts:
                sample = open_array(self.folder / "vectors.npy")[: self.document.rows]
                n_skipped = 1  # a row finds itself first
            else:
                sample = queries
                n_skipped = 0
            step = -(-len(sample) // _MEASURED_QUERIES)  # rounded up
            sample = as_read(sample[::step], self.similarity)
            approximate = self._near(sample, top + n_skipped).rows[:, n_skipped:]
            exact = super().nearest(sample, top + n_skipped).rows[:, n_skipped:]
            self.measured.update(
                recall=recall(approximate, exact), at=exact.shape[1], queries=len(sample)
            )
            self.measured["of"] = "texts" if takes_texts else "queries"
        return self._near(queries, top)

    def _near(self, queries: Floats32, top: int) -> Nearest:
        """Returns the K rows that the graph finds for (Q, D) queries.

        Their similarities are computed again from the stored vectors, so that ties have the order
        of an exact search.
        """
        stored = open_array(self.folder / "vectors.npy")
        results = []
        # The graph compares vectors of the index's number type, so queries are converted to it.
        for i, query in enumerate(as_stored(queries, self.document.dtype)):
            with loading(f"{self.folder}/graph-*.usearch", remedy="Delete it: it is made again."):
                rows = np.sort(self.graph.search(query, top).keys.astype(np.int64))
                block = as_read(stored[rows], self.similarity)
            # Of very many equal rows the graph may not reach all. Then the exact search answers.
            if len(rows) < min(top, self.document.rows):
                return super().nearest(queries, top)
            exact = Nearest(queries[i : i + 1], top, self.similarity)
            exact.see(block, first_row=0)
            # `exact` numbers the rows within the block; `rows` has their numbers in the index.
            results.append((rows[exact.rows[0]], exact.scores[0]))
        # It sees no rows itself, and takes the results of the queries.
        nearest = Nearest(queries, top, self.similarity)
        nearest.rows, nearest.scores = map(np.stack, zip(*results, strict=True))
        return nearest


def with_graph(index: Index, say: Callable[[str], None]) -> ApproximateIndex:
    """Returns an index with the graph of its vectors, which is made if the folder has none yet.

    Args:
        index: The index.
        say: Reports that a graph is being made.

    Raises:
        UnavailableError: usearch is not installed, or the graph can't be written.
        UsageError: A measure that usearch has no graph for.
        DataError: The graph's file is damaged.
    """
    require_graph(index.similarity, f", by which {index.folder} is searched")
    vectors = index.folder / "vectors.npy"
    rows = index.document.rows
    # The name changes with the vectors, so that an outdated graph is never used.
    made_of = f"{index.document.as_json()} {vectors.stat().st_size} {vectors.stat().st_mtime_ns}"
    path = index.folder / f"graph-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.usearch"
    if not path.is_file():
        say(f"making a graph of {rows:,} texts, which stays in {index.folder}")
        graph = new_graph(index.similarity, index.document.size, index.document.dtype)
        graph.add(np.arange(rows), open_array(vectors)[:rows])
        with loading(path, kind=UnavailableError, remedy="Leave `approximate=True` out."):
            atomic_write(path, graph.save)
        for outdated in {*index.folder.glob("graph-*.usearch")} - {path}:
            outdated.unlink(missing_ok=True)
    with loading(path, remedy=f"Delete {path}: it is made again."):
        return ApproximateIndex(
            index.folder, index.document, graph_class().restore(str(path), view=True)
        )


def hashed_bytes(rows: Rows) -> bytes:
    """Returns the bytes of rows that are hashed, so that a corpus is known again."""
    return "\x00".join(rows.columns["text"]).encode() + b"\x01"


def as_stored(vectors: Floats32, dtype: str) -> Array:
    """Returns (N, D) vectors as an index keeps them; as int8 the largest number of each is 127."""
    if dtype != "int8":
        return vectors.astype(dtype)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)


def as_read(stored: Array, similarity: str = COSINE) -> Floats32:
    """Returns stored (N, D) vectors in fp32.

    For cosines they have length 1 again, which int8 and rounding have changed.
    """
    if stored.dtype == np.float32:
        return stored
    vectors = stored.astype(np.float32)
    if similarity == COSINE:
        return unit_length(vectors)
    return vectors
