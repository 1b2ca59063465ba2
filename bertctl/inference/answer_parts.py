"""Shards of `predict`.

Each one reads all rows, answers whole chunks of them, and writes a file of answers.

Chunks of rows (`predict.CHUNK`) are dealt out: of N shards the K-th answers the chunks K, K + N, K
+ 2N, ... Of other chunks it does no more than read them, and hash them, so that shards of other
rows are told apart. A shard is

    OUT.parts/part-00001-of-00100.jsonl   its answers, complete in themselves
    OUT.parts/1-of-100.json               which rows they are of, and what they were made with

The merge copies the chunks in the order of the input. Nothing is computed again.
"""

import gzip
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TextIO, cast

from bertctl.data.rows import Rows
from bertctl.documents import loading, read_json, sha256_of
from bertctl.errors import DataError, UsageError
from bertctl.inference.shards import AGAIN, parts_folder, shard_name
from bertctl.run_folder import SCHEMA
from bertctl.writing import write_json

LAYOUTS_OF_LINES = ("jsonl", "csv", "tsv")
"""Layouts whose parts are copied line by line; the parts of other ones are JSON Lines, written anew
by the merge."""

_TABLES = ("csv", "tsv")


class AnswerShare:
    """The chunks of rows that this command answers; without shards all of them."""

    def marked(self, chunks: Iterable[Rows]) -> Iterator[tuple[Rows, bool]]:
        """Yields all chunks, in order, each with whether this command answers it."""
        for rows in chunks:
            yield rows, True


ALL_CHUNKS = AnswerShare()


class AnswerShard(AnswerShare):
    """One shard of the answers, and what its record says of them.

    The record is counted while answers are computed and written: chunks and rows by `marked`, lines
    by the file of `counted`.

    Args:
        number: Which shard, from 1.
        count: How many shards there are.
        settings_hash: Hash of everything but the rows that decides the answers.
        layout: Layout of the part.
    """

    def __init__(self, number: int, count: int, settings_hash: str, layout: str) -> None:
        self._number = number
        self._count = count
        self._layout = layout
        # Hash of the settings and of all rows, also of those that other shards answer.
        self._seal = Seal(settings_hash)
        # Numbers of rows and of lines of each chunk that this shard has answered.
        self._chunks: list[dict[str, int]] = []
        # Chunks and rows of all shards so far.
        self._n_chunks = 0
        self._n_rows = 0
        self._lines = _CountedLines(has_header=layout in _TABLES)

    def counted(self, out: TextIO) -> TextIO:
        """Returns a file that counts its lines and passes them on to `out`."""
        self._lines.out = out
        return cast(TextIO, self._lines)

    def marked(self, chunks: Iterable[Rows]) -> Iterator[tuple[Rows, bool]]:
        """Yields all chunks, in order, each with whether this shard answers it.

        The answers to a chunk have been written when the next chunk is asked for.
        """
        for rows in chunks:
            self._seal.add(rows)  # all rows, so that a merge notices other ones
            is_mine = self._n_chunks % self._count == self._number - 1  # shards take turns
            lines_before = self._lines.count
            yield rows, is_mine
            if is_mine:
                self._chunks.append({"rows": len(rows), "lines": self._lines.count - lines_before})
            self._n_chunks += 1
            self._n_rows += len(rows)

    def write_record(self, path: Path, part: Path, counts: Mapping[str, int]) -> None:
        """Writes the JSON record by which a merge knows and checks this shard's answers.

        Args:
            path: Path of the record.
            part: The file of answers, which is complete.
            counts: Counts of examples and tokens of this shard.
        """
        document = {
            "schema": SCHEMA,
            "shard": [self._number, self._count],
            "file": part.name,
            "file_sha256": sha256_of(part),
            "layout": self._layout,
            "made_of": self._seal.digest(),
            "rows": self._n_rows,
            "chunks": self._chunks,
            "header": self._lines.header,
            "counts": dict(counts),
        }
        write_json(path, document)


class _CountedLines:
    """File that counts the lines of what is written, the header of a table left out.

    Args:
        has_header: Whether the first thing that is written is a header.
    """

    def __init__(self, *, has_header: bool) -> None:
        self.out: TextIO | None = None
        self.count = 0
        self.header = ""
        self._awaits_header = has_header

    def write(self, text: str) -> int:
        """Writes a text."""
        if self._awaits_header:
            self.header = text
            self._awaits_header = False
        else:
            self.count += text.count("\n")
        return cast(TextIO, self.out).write(text)


class Seal:
    """Hash of the settings and of all rows, by which shards of one whole are known.

    Args:
        settings_hash: Hash of everything but the rows that decides the answers.
    """

    def __init__(self, settings_hash: str) -> None:
        self._hash = hashlib.sha256(settings_hash.encode())

    def add(self, rows: Rows) -> None:
        """Adds the ids and columns of rows to the hash."""
        self._hash.update(json.dumps([rows.ids, rows.columns], default=str).encode())

    def digest(self) -> str:
        """Returns the hash of all that was added."""
        return self._hash.hexdigest()


def part_layout(layout: str) -> str:
    """Returns the layout in which shards write their answers, for an output with this layout.

    Layouts of lines stay, as their lines can be put together. Others are written as JSON Lines, and
    made into the output by the merge.
    """
    if layout in LAYOUTS_OF_LINES:
        return layout
    return "jsonl"


def part_path(output: Path, layout: str, shard: tuple[int, int]) -> Path:
    """Returns where a shard's answers go: OUT.parts/part-00001-of-00100.jsonl.

    Args:
        output: OUT.
        layout: Layout of OUT.
        shard: Number, from 1, and count.
    """
    suffix = f".{part_layout(layout)}"
    if output.suffix == ".gz":
        suffix += ".gz"
    return parts_folder(output) / f"part-{shard_name(*shard)}{suffix}"


class MergedParts:
    """All shards of an output, read in the order of the rows.

    Args:
        records: The shards' records, by number.
        settings_hash: Hash of the settings that the shards should have been made with.
        layout: Layout of the output.

    Raises:
        UsageError: Shards of several wholes.
        DataError: A record or a part is damaged.
    """

    def __init__(self, records: tuple[Path, ...], settings_hash: str, layout: str) -> None:
        self._paths = records
        self._seal = Seal(settings_hash)
        self._documents = [self._read_record(path, part_layout(layout)) for path in records]
        self._parts = [
            path.with_name(self._documents[number]["file"]) for number, path in enumerate(records)
        ]
        self._n_chunks = 0

    @property
    def counts(self) -> dict[str, int]:
        """The counts of all shards."""
        counts: dict[str, int] = {}
        for document in self._documents:
            for name, value in document["counts"].items():
                counts[name] = counts.get(name, 0) + value
        return counts

    def copy(self, chunks: Iterable[Rows], out: TextIO) -> None:
        """Writes the lines of all shards into one file, in the order of the rows.

        Parts of a table have a header each, which must be the same. It is written once.

        Args:
            chunks: All rows that the shards answered, by which the shards are checked.
            out: The merged file.

        Raises:
            UsageError: The headers or the rows differ.
        """
        headers = [document["header"] for document in self._documents if document["header"]]
        have_same_columns = len(set(headers)) <= 1
        if not have_same_columns:
            raise UsageError(
                f"{self._paths[0].parent}: the shards have different columns", remedy=AGAIN
            )
        out.write(headers[0] if headers else "")
        for lines in self._lines(chunks):
            out.write(b"".join(lines).decode())

    def answers(self, chunks: Iterable[Rows]) -> Iterator[dict[str, Any]]:
        """Yields the answers to all rows, of parts that are JSON Lines."""
        for lines in self._lines(chunks):
            yield from map(json.loads, lines)

    def _lines(self, chunks: Iterable[Rows]) -> Iterator[list[bytes]]:
        """Yields the lines of each chunk, in the order of the rows.

        Raises:
            UsageError: The rows are not those of the shards.
        """
        with ExitStack() as stack, loading(self._paths[0].parent, remedy=AGAIN):
            files = [stack.enter_context(closing(_PartLines(part))) for part in self._parts]
            for file, document in zip(files, self._documents, strict=True):
                file.read(document["header"].count("\n"))  # skips the header of a table
            positions = [0] * len(files)  # next chunk of each shard
            for rows in chunks:
                self._seal.add(rows)
                shard = self._n_chunks % len(files)  # shards take turns, chunk by chunk
                sizes = self._documents[shard]["chunks"]
                position = positions[shard]
                if position >= len(sizes) or sizes[position]["rows"] != len(rows):
                    raise self._other_whole(shard)
                n_lines = sizes[position]["lines"]
                lines = files[shard].read(n_lines)
                if len(lines) < n_lines:
                    raise DataError(f"{self._parts[shard]} has been cut short", remedy=AGAIN)
                yield lines
                positions[shard] += 1
                self._n_chunks += 1
            for shard, document in enumerate(self._documents):
                if document["made_of"] != self._seal.digest():
                    raise self._other_whole(shard)

    def _other_whole(self, shard: int) -> UsageError:
        """Returns the refusal of a shard that does not belong to this merge."""
        return UsageError(
            f"{self._paths[shard]} is another shard, or of other rows, run or options", remedy=AGAIN
        )

    def _read_record(self, path: Path, layout: str) -> dict[str, Any]:
        """Returns the record of a shard, whose answers are there as they were written.

        Raises:
            UsageError: The shard is one of another number of shards, or has another layout.
            DataError: Its answers are missing or damaged.
        """
        number = self._paths.index(path)
        document = read_json(path, kind=DataError, remedy=AGAIN)
        with loading(path, remedy=AGAIN):
            if document["shard"] != [number + 1, len(self._paths)] or document["layout"] != layout:
                raise self._other_whole(number)
            part = path.with_name(Path(document["file"]).name)
            if not part.is_file():
                raise DataError(f"{part} is missing", remedy=AGAIN)
            if sha256_of(part) != document["file_sha256"]:
                raise DataError(
                    f"{part} is damaged: it is not what its shard has written", remedy=AGAIN
                )
            return document


class _PartLines:
    """Lines of a part, read some at a time.

    A plain file is open only while it is read: there may be more shards than files that a process
    may open.

    Args:
        path: The part.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Bytes of a plain file that have been read.
        self._offset = 0
        # A compressed file can't be read from an offset on, so it stays open.
        self._packed = None
        if path.suffix == ".gz":
            self._packed = gzip.open(path)  # noqa: SIM115 - closed by `close`

    def read(self, count: int) -> list[bytes]:
        """Returns the next lines, at most so many."""
        if self._packed is not None:
            return list(itertools.islice(self._packed, count))
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines = list(itertools.islice(file, count))
        self._offset += sum(map(len, lines))
        return lines

    def close(self) -> None:
        """Closes the file."""
        if self._packed is not None:
            self._packed.close()
