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
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bertctl.appended import Offsets, line_offsets, open_array, stored_offsets
from bertctl.arrays import Array, Floats32
from bertctl.data.rows import Rows
from bertctl.documents import loading, read_json_document
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.metrics.similarity import COSINE
from bertctl.modeling.pooling import unit_length
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.index_document import IndexDocument
from bertctl.run_folder import SCHEMA
from bertctl.search.graph import new_graph, require_graph
from bertctl.search.nearest import Nearest, block_rows, recall
from bertctl.words import command, count
from bertctl.writing import atomic_write, refuse_input, refuse_links, write_json

if TYPE_CHECKING:
    from bertctl.search.vectors import TextVectors

_AGAIN = f"Make it again: {command('index CORPUS', output='INDEX', overwrite=True)}."
_SAMPLE = 500
"""Rows that look for their nearest ones, to see what fewer bits cost."""

_AT = 10
"""Number of nearest rows that are compared then."""

_MEASURED_QUERIES = 100
"""Queries that are also searched for exactly, to measure the recall of the graph."""

_FEW = 20
"""With fewer queries than these, the recall is measured with rows of the index."""

_FILES = {"index.json", "vectors.npy", "rows.jsonl", "offsets.npy"}
_PIECE = 2**16  # bytes of rows.jsonl that are read at once where the end of a line is looked for
_NOTHING: dict[str, Any] = {"source": "", "rows": 0, "texts_sha256": ""}
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
        document = read_json_document(path, IndexDocument, kind=DataError, remedy=_AGAIN)
        with loading(vectors, remedy=_AGAIN):
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
        values["corpus"] = _NOTHING
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
            digest.update(_digested(rows))
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
                remedy=f"Leave `model=` and its like out: an index knows its own. {_AGAIN}",
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
                    f"{path} is damaged: something in it is not a number", remedy=_AGAIN, file=path
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
        with loading(self._path, remedy=_AGAIN), self._path.open("rb", buffering=0) as file:
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
            raise DataError(message, remedy=_AGAIN, file=self._path)
        return rows

    def _scanned(self) -> Offsets:
        """Returns where each row begins, found by looking through the whole file."""
        with loading(self._path, remedy=_AGAIN):
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
        nearest = Nearest(queries, top, self.similarity)
        stored = open_array(self.folder / "vectors.npy")
        results = []
        for i, query in enumerate(as_stored(queries, self.document.dtype)):
            with loading(f"{self.folder}/graph-*.usearch", remedy="Delete it: it is made again."):
                rows = np.sort(self.graph.search(query, top).keys.astype(np.int64))
                block = as_read(stored[rows], self.similarity)
            # The graph does not reach all of very many equal rows.
            if len(rows) < min(top, self.document.rows):
                return super().nearest(queries, top)
            exact = Nearest(queries[i : i + 1], top, self.similarity)
            exact.see(block, first_row=0)
            # `exact` numbers the rows within the block; `rows` has their numbers in the index.
            results.append((rows[exact.rows[0]], exact.scores[0]))
        nearest.rows, nearest.scores = map(np.stack, zip(*results, strict=True))
        return nearest


def with_graph(index: Index, say: Callable[[str], None]) -> ApproximateIndex:
    """Returns an index with its graph, which is made where there is none of just these vectors.

    Raises:
        UnavailableError: usearch is not installed, or the graph can't be written.
        UsageError: A measure that usearch has no graph for.
        DataError: its file is damaged.
    """
    require_graph(index.similarity, f", by which {index.folder} is searched")
    from usearch.index import Index as Graph

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
        return ApproximateIndex(index.folder, index.document, Graph.restore(str(path), view=True))


def open_existing(folder: Path, *, append: bool, resume: bool, overwrite: bool) -> Index | None:
    """Returns the index in a folder, to be added to or continued; None if a new one is made.

    Args:
        folder: Folder of the index.
        append: Whether rows are added to it.
        resume: Whether an earlier attempt is continued.
        overwrite: Whether it is replaced.

    Raises:
        UsageError: The folder has files and no argument says what to do with them, two arguments
            contradict each other, or the folder has files of something else.
        DataError: An index that is added to is damaged, or not finished.
    """
    if append and overwrite:
        raise UsageError(
            "`append=True` adds to an index and `overwrite=True` replaces it",
            remedy="Leave one of them out.",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder, but an index is one",
            remedy="Choose another place with `output=`.",
        )
    refuse_links(folder)
    refuse_input(folder, replaces=True)  # rows that are read out of it while it is written
    names = {path.name for path in folder.glob("[!.]*") if path.suffix != ".usearch"}
    if resume and "index.json" in names:
        return Index.open(folder, unfinished=True)
    if append:
        return Index.open(folder).to_append()
    if not names:
        return None
    has_index_alone = names <= _FILES
    # An attempt that was killed early leaves rows without index.json.
    has_rows = "rows.jsonl" in names
    if (overwrite or resume) and has_index_alone and has_rows:
        return None
    if has_index_alone:
        remedy = (
            "Add to it with `append=True`, continue with `resume=True`, or replace it: "
            "`overwrite=True`."
        )
    else:
        remedy = "It holds more than an index: choose another with `output=`."
    raise UsageError(f"{folder} is there", remedy=remedy)


def _digested(rows: Rows) -> bytes:
    """Returns the bytes of rows by which a corpus is known again."""
    return "\x00".join(rows.columns["text"]).encode() + b"\x01"


def _of_others(index: Index) -> int:
    """Returns how many rows were in an index before the corpus that is added now."""
    return index.document.rows - index.document.corpus.rows


def _rows_in(folder: Path) -> int:
    """Returns how many rows of an index are whole."""
    document = folder / "index.json"
    if document.exists():
        return read_json_document(document, IndexDocument).rows
    return 0


def identified(
    parts: Iterable[Rows], index: Index | None, listener: Listener, *, has_ids: bool
) -> Iterator[Rows]:
    """Yields rows with the ids that they get in an index.

    Ids from the file stay as they are. Rows without ids are numbered; if they are added to an
    index, the numbers continue after its rows. When all rows have been yielded, a warning reports
    the ids that occur twice.

    Args:
        parts: Rows, some at a time. Rows without ids of their own have their numbers, from 0.
        index: The index that they are added to, or that is continued; None for a new one.
        listener: Receives the warning.
        has_ids: Whether the rows have ids from the file.

    Raises:
        DataError: Rows without ids for an index whose texts have ids of their own.
    """
    if index is not None:
        n_before = _of_others(index)
        own_ids = _own_ids(index, n_before)
    else:
        n_before = 0
        own_ids = {}
    if not has_ids:
        if index is not None and own_ids:
            message = (
                f"the texts to add have no ids, and those of {index.folder} have, such as "
                f"'{next(iter(own_ids))}'"
            )
            raise DataError(message, remedy="Name the column with their ids: `id_column=NAME`.")
        for rows in parts:
            if n_before:
                yield replace(rows, ids=[str(n_before + int(number)) for number in rows.ids])
            else:
                yield rows
        return

    if own_ids:
        known_ids = own_ids
    else:
        known_ids = dict.fromkeys(map(str, range(n_before)))  # the numbers of the index's rows
    repeated: list[str] = []
    for rows in parts:
        for row_id in rows.ids:
            if row_id in known_ids:
                repeated.append(row_id)
            known_ids[row_id] = None
        yield rows
    if repeated:
        verb = "has" if len(repeated) == 1 else "have"
        message = f"{count(len(repeated), 'text')} of {rows.source} {verb} an id that"
        if index is not None:
            place = "there or in the index"
        else:
            place = "there"
        listener.warn(
            f"{message} another text {place} has, such as '{repeated[0]}': an id belongs to "
            "one text"
        )


def _own_ids(index: Index, n_rows: int) -> dict[str, None]:
    """Returns the different ids of the first rows of an index, in their order.

    There are none if ids are numbers of rows.
    """
    path = index.folder / "rows.jsonl"
    if not n_rows:
        return {}
    with loading(path, remedy=_AGAIN), path.open("rb") as file:
        ids = [str(json.loads(line)["id"]) for line in islice(file, n_rows)]
    # A file without ids gave its rows their numbers.
    are_numbers = all(row_id == str(number) for number, row_id in enumerate(ids))
    if are_numbers:
        return {}
    return dict.fromkeys(ids)


def make_index(
    folder: Path,
    source: str,
    parts: Iterable[Rows],
    model: "TextVectors",
    dtype: str,
    *,
    before: Index | None = None,
    listener: Listener = SILENT,
    remembered: Mapping[str, Any] | None = None,
) -> IndexDocument:
    """Makes an index, adds to one, or continues one that is not finished.

    The index is saved after each chunk of rows, so that a killed process loses at most one chunk.

    Args:
        folder: Folder of the index.
        source: Name of the corpus, for index.json and messages.
        parts: All rows of the corpus, some at a time. A later attempt has to give the same rows.
        model: Computes the vectors of rows.
        dtype: Number type of the stored vectors: float32, float16 or int8.
        before: The index that is added to or continued; None for a new one.
        listener: Receives progress, and warnings of texts that are cut.
        remembered: Fields of index.json on how the files are read, for rows that are added later.

    Returns:
        Content of index.json. Unless dtype is float32 it has the `recall` of the ten nearest rows:
        see `_RecallSample`.

    Raises:
        UsageError: int8 with a similarity that needs the length of vectors.
        DataError: The corpus does not begin with the rows that an unfinished index has of it.
    """
    from bertctl.features.store import VectorLayout, VectorStore, outliving

    if before:
        previous: dict[str, Any] = before.document.as_json()
    else:
        previous = {"corpus": _NOTHING}
    is_complete = previous.get("complete", False)
    begun = previous["corpus"]  # what earlier attempts have read of this corpus
    reader = _CorpusReader(source)
    sample = _RecallSample(model.similarity)

    earlier_sources = list(previous.get("sources", []))
    # If an unfinished index is resumed, the last source is this corpus.
    if earlier_sources and (begun["rows"] or not is_complete):
        earlier_sources = earlier_sources[:-1]
    if dtype == "int8" and model.similarity != COSINE:
        message = (
            f"int8 keeps the direction of vectors alone, and {model.similarity} similarity needs "
            "their length"
        )
        raise UsageError(
            message, remedy="Choose `dtype=float16` or float32, or `similarity=cosine`."
        )

    def saved(*, complete: bool) -> IndexDocument:
        """Writes the vectors to disk that are in the store so far, then index.json.

        Args:
            complete: Whether these are all rows of the corpus.

        Returns:
            Content of index.json.
        """
        rows_and_sizes = store.commit()
        n_read = reader.position["rows"]
        # Fields that were written before and are not known anew stay as they are.
        values = {
            **previous,
            **model.made,
            **(remembered or {}),
            **rows_and_sizes,
            "schema": SCHEMA,
            "dtype": dtype,
            "corpus": reader.position,
            "complete": complete,
            "sources": [*earlier_sources, {"source": source, "rows": n_read}],
        }
        if sample.has_neighbours:
            values["recall"] = sample.recall(n_rows=n_read - begun["rows"])
        document = IndexDocument.model_validate(values)
        write_json(folder / "index.json", document.as_json())
        return document

    layout = VectorLayout(
        (model.made["layer"],),
        model.made["size"],
        dtype,
        by_token=False,
        pooling="",
    )
    state = previous if before else None
    opened = closing(VectorStore(folder, layout, state, has_offsets=True))
    # If the command is stopped, `outliving` reports how many rows are saved.
    with opened as store, outliving(lambda: _rows_in(folder)):
        # An index that is added to stays complete on the disk until its first new rows are saved.
        if before is None:
            saved(complete=False)
        unread_rows = reader.unread(parts, begun=begun, folder=folder, complete=is_complete)
        for rows, vectors in model.stream(unread_rows, listener):
            stored = as_stored(vectors, dtype)
            store.append(rows, stored, None)
            if dtype != "float32":
                first_row = reader.position["rows"] - len(rows)
                sample.see(vectors, as_read(stored, model.similarity), first_row)
            saved(complete=False)
        return saved(complete=True)


class _CorpusReader:
    """Reads the rows of a corpus for an index, and counts and hashes them as they go by.

    Args:
        source: Name of the corpus.

    Attributes:
        position: How far the corpus is read, as `corpus` of index.json: the `source`, the number of
            `rows`, and the hash of their texts.
    """

    def __init__(self, source: str) -> None:
        self.position = _NOTHING | {"source": source}
        self._digest = hashlib.sha256()

    def unread(
        self, parts: Iterable[Rows], *, begun: Mapping[str, Any], folder: Path, complete: bool
    ) -> Iterator[Rows]:
        """Yields the rows of the corpus that an index does not have yet.

        Args:
            parts: All rows of the corpus, some at a time.
            begun: Position up to which the index has rows of the corpus, from its index.json.
            folder: Folder of the index.
            complete: Whether the index is complete.

        Raises:
            DataError: The rows up to that position are others than those of the index.
        """
        remaining_parts = iter(parts)
        while self.position["rows"] < begun["rows"] and (rows := next(remaining_parts, None)):
            self._count(rows)
        # The same rows may come from a file of another name.
        if self.position | {"source": ""} != {**begun, "source": ""}:
            if complete:
                remedy = "It is finished: add other rows with `append=True` alone."
            else:
                remedy = _AGAIN
            source = self.position["source"]
            raise DataError(
                f"the first rows of {source} are not those that {folder} has of it", remedy=remedy
            )
        for rows in remaining_parts:
            self._count(rows)
            yield rows

    def _count(self, rows: Rows) -> None:
        """Moves the position behind these rows."""
        self._digest.update(_digested(rows))
        n_rows = self.position["rows"] + len(rows)
        self.position.update(rows=n_rows, texts_sha256=self._digest.hexdigest())


class _RecallSample:
    """Sample of rows that measures what a number type of fewer bits costs.

    Each row of the sample looks for its nearest rows among all rows that are added: once by the
    stored vectors, and once by the exact ones. The recall is the share of the exact neighbours that
    the stored vectors find.

    Args:
        similarity: Measure by which rows are near.
    """

    def __init__(self, similarity: str) -> None:
        self._similarity = similarity
        self._searches: list[Nearest] = []  # by the stored vectors, and by the exact ones

    @property
    def has_neighbours(self) -> bool:
        """Returns whether the rows of the sample have found others than themselves."""
        return bool(self._searches) and self._searches[0].rows.shape[1] > 1

    def see(self, exact: Floats32, stored: Floats32, first_row: int) -> None:
        """Looks for nearer neighbours of the sample's rows among the next rows.

        The sample is taken from the rows of the first call, at equal distances. Its neighbours are
        looked for twice, by the stored and by the exact vectors, so that both can be compared.

        Args:
            exact: (N, D) vectors as the model computes them.
            stored: (N, D) the same vectors as they are read from the index.
            first_row: Number of the first of these rows in the corpus.
        """
        if not self._searches:
            step = max(1, len(exact) // _SAMPLE)
            queries = exact[::step][:_SAMPLE]
            n_nearest = _AT + 1  # a row finds itself first
            by_stored = Nearest(queries, n_nearest, self._similarity)
            by_exact = Nearest(queries, n_nearest, self._similarity)
            self._searches = [by_stored, by_exact]
        by_stored, by_exact = self._searches
        by_stored.see(stored, first_row)
        by_exact.see(exact, first_row)

    def recall(self, *, n_rows: int) -> dict[str, Any]:
        """Returns the entry `recall` of index.json.

        Args:
            n_rows: Number of rows that were searched.
        """
        by_stored, by_exact = self._searches
        n_queries = len(by_stored.rows)
        # A row finds itself first, which does not count.
        value = recall(by_stored.rows[:, 1:], by_exact.rows[:, 1:])
        return {"at": _AT, "value": value, "queries": n_queries, "rows": n_rows}


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
