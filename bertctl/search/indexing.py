"""Making an index, adding a corpus to one, and continuing one that is not finished."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.arrays import Floats32
from bertctl.data.rows import Rows
from bertctl.documents import loading, read_json_document
from bertctl.errors import DataError, UsageError
from bertctl.metrics.similarity import COSINE
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.index_document import IndexDocument
from bertctl.run_folder import SCHEMA
from bertctl.search.index import MAKE_AGAIN, NOTHING_READ, Index, as_read, as_stored, hashed_bytes
from bertctl.search.nearest import Nearest, recall
from bertctl.words import count
from bertctl.writing import refuse_input, refuse_links, write_json

if TYPE_CHECKING:
    from bertctl.search.vectors import TextVectors

_FILES = {"index.json", "vectors.npy", "rows.jsonl", "offsets.npy"}
"""Files of an index, besides the graphs of approximate searches, which are made again."""

_SAMPLE = 500
"""Rows that look for their nearest ones, to see what fewer bits cost."""

_AT = 10
"""Number of nearest rows that are compared then."""


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
    refuse_input(folder, replaces=True)  # the rows to add may be read from this very index
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


def _of_others(index: Index) -> int:
    """Returns how many rows of an index are from other corpora than the one that is added now."""
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
    # Rows that the index has of other corpora. Those that it has of this corpus are read again, and
    # get the same ids as before.
    if index is not None:
        n_before = _of_others(index)
        ids_from_files = _own_ids(index, n_before)
    else:
        n_before = 0
        ids_from_files = {}
    if not has_ids:
        if index is not None and ids_from_files:
            message = (
                f"the texts to add have no ids, and those of {index.folder} have, such as "
                f"'{next(iter(ids_from_files))}'"
            )
            raise DataError(message, remedy="Name the column with their ids: `id_column=NAME`.")
        for rows in parts:
            if n_before:
                yield replace(rows, ids=[str(n_before + int(number)) for number in rows.ids])
            else:
                yield rows
        return

    if ids_from_files:
        known_ids = ids_from_files
    else:  # the ids of the index's rows are their numbers
        known_ids = dict.fromkeys(map(str, range(n_before)))
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
    with loading(path, remedy=MAKE_AGAIN), path.open("rb") as file:
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
        previous = {"corpus": NOTHING_READ}
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
        self.position = NOTHING_READ | {"source": source}
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
                remedy = MAKE_AGAIN
            source = self.position["source"]
            raise DataError(
                f"the first rows of {source} are not those that {folder} has of it", remedy=remedy
            )
        for rows in remaining_parts:
            self._count(rows)
            yield rows

    def _count(self, rows: Rows) -> None:
        """Moves the position behind these rows."""
        self._digest.update(hashed_bytes(rows))
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
