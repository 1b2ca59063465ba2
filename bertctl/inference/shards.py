"""`--shard K/N`, then `--merge`: machines that never meet share the work of a verb.

The result is that of one machine.

`predict` and `extract-features` deal out whole chunks of rows (`answer_parts.py`,
`features/extract_rows.py`). Where OUT has `{shard}` in its name, each shard is a file under its own
name, and there is nothing to merge.

The metrics of `evaluate` are about all rows, so it shares the work as processes do
(`Engine.forward`): batches are formed once, every N-th is a shard's, and what the model gives for
all of them is a sum. The summands wait in OUT.parts/K-of-N.zip: for each sum, in order, the `rows`
that are not 0 and their `values`. The merge reads the rows again and makes metrics and files of the
sums by the same code as ever; of each forward pass it computes one batch, to know the shapes. The
comment of a file seals what it was made of.
"""

import hashlib
import itertools
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load, save

from bertctl.arrays import Array
from bertctl.documents import loading
from bertctl.errors import UsageError
from bertctl.runtime.launch import Workers, is_worker
from bertctl.words import shorten
from bertctl.writing import replacing

if TYPE_CHECKING:
    from bertctl.inference.trained_run import TrainedRun

_RECORD = re.compile(r"\d+-of-\d+")

AGAIN = "Run that shard again, with the run, the rows and the options of the others."
PLACEHOLDER = "{shard}"
"""Stands for `00001-of-00100` in the name of an output whose shards need no merge."""


def shard_name(number: int, count: int) -> str:
    """Returns how files that need no merge name a shard.

    It is `00001-of-00100`, which sorts as numbers do.
    """
    return f"{number:05}-of-{count:05}"


def read_shard(text: str | None) -> tuple[int, int] | None:
    """Reads `--shard`: `2/8` is the second of eight.

    Raises:
        UsageError: Not of this form, or out of range.
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(
            f"`shard={text}`: no such shard",
            remedy="Such as `shard=2`/8, the second of eight.",
        )
    return int(match[1]), int(match[2])


@dataclass(frozen=True)
class Sharing:
    """Part of the work that this command does.

    It is a shard, the merge of all shards, or all of the work.

    Attributes:
        shard: Number, from 1, and count.
        paths: Records of the shards, OUT.parts/K-of-N and a suffix; of a shard, its own one. Empty
            where the shards need no merge.
    """

    shard: tuple[int, int] | None = None
    paths: tuple[Path, ...] = ()

    @classmethod
    def read(
        cls,
        shard: str | None,
        merge: bool,
        output: Path | None,
        processes: int,
        suffix: str,
        *,
        by_name: bool = True,
    ) -> "Sharing":
        """Returns what `--shard K/N` and `--merge` mean; nothing is loaded.

        Shards write records into the folder OUT.parts, which the merge finds there.

        Args:
            shard: The shard as it was typed, such as "2/8"; None without.
            merge: Whether --merge was typed.
            output: OUT.
            processes: `--num-processes`.
            suffix: Suffix of the records of shards.
            by_name: Whether `{shard}` in the name of OUT makes a file of each shard.

        Raises:
            UsageError: No such shard; options that exclude each other; shards that are missing, or
                of several counts.
        """
        number_and_count = read_shard(shard)
        is_pattern = output is not None and PLACEHOLDER in str(output)
        if is_pattern:
            _check_pattern(
                output,
                number_and_count,
                merge=merge,
                by_name=by_name,
            )
        if not (number_and_count or merge):
            return cls()
        if output is None or (number_and_count and merge) or processes > 1 or is_worker():
            remedy = (
                "Give `output=OUT` with `shard=1/2`, then with `shard=2/2`, then with "
                "`merge=True`: shards go to OUT.parts."
            )
            raise UsageError(
                "`shard=` and `merge=True` exclude each other and `num_processes=`, and need "
                "`output=`",
                remedy=remedy,
            )
        if is_pattern:
            return cls(number_and_count)
        folder = parts_folder(output)
        if number_and_count:
            number, count = number_and_count
            return cls(number_and_count, (folder / f"{number}-of-{count}{suffix}",))

        # A merge needs all records of one count: 1-of-3, 2-of-3, 3-of-3.
        names = {
            path.stem for path in folder.glob(f"*-of-*{suffix}") if _RECORD.fullmatch(path.stem)
        }
        # If there are records of several counts, the largest count is expected, and records of
        # other counts are refused. If there is no record at all, 1-of-1 is reported as missing.
        count = max((int(name.rpartition("-")[2]) for name in names), default=1)
        expected = [f"{number}-of-{count}" for number in range(1, count + 1)]
        missing_or_unexpected = sorted(names.symmetric_difference(expected))
        if missing_or_unexpected:
            remedy = (
                "Run the same command with `shard=K/N` for each that is missing; delete those of "
                "another N."
            )
            shard_names = shorten(", ".join(missing_or_unexpected), 200)
            raise UsageError(
                f"{folder}: missing, or of another whole: {shard_names}", remedy=remedy
            )
        return cls(None, tuple(folder / f"{name}{suffix}" for name in expected))

    @property
    def is_merge(self) -> bool:
        """Whether this command merges shards."""
        return self.shard is None and bool(self.paths)

    @property
    def needs_merge(self) -> bool:
        """Whether this command writes a shard that counts only once `--merge` has joined all."""
        return self.shard is not None and bool(self.paths)

    @property
    def reports_skipped(self) -> bool:
        """Whether this command reports the rows that were skipped.

        Every shard reads all rows, so all shards skip the same ones, and only one command may
        report them: the merge or, if the shards need no merge, the first shard.
        """
        if self.shard is None:  # the merge, or a command without shards
            return True
        number, _ = self.shard
        return number == 1 and not self.needs_merge

    def resolve(self, output: Path) -> Path:
        """Returns where this command writes.

        A shard that needs no merge writes to OUT with its own name in place of `{shard}`.

        Args:
            output: OUT.
        """
        if self.shard is None or self.needs_merge:
            return output
        return Path(str(output).replace(PLACEHOLDER, shard_name(*self.shard)))

    @contextmanager
    def workers(self, run: "TrainedRun", all_workers: Workers) -> Iterator[Workers]:
        """Yields the workers that compute: one shard, the merge of all shards, or all processes.

        Raises:
            DataError: A file that is damaged.
        """
        if not self.paths:
            yield all_workers
            return
        if self.shard:
            with replacing(self.paths[0]) as aside, zipfile.ZipFile(aside, "w") as file:
                yield _Shard(
                    self.shard[0] - 1,
                    self.shard[1],
                    by=run.hash,
                    files=[file],
                )
            return
        with loading(self.paths[0].parent, remedy=AGAIN):
            files = [zipfile.ZipFile(path) for path in self.paths]
        # The process of rank r begins at batch r. No split has so many batches, so the merge
        # computes none. As its rank is a multiple of the number of shards, it counts as the first
        # process (`is_first`), which writes.
        rank_beyond_all_batches = 2**40 * len(files)
        yield _Shard(
            rank_beyond_all_batches,
            len(files),
            is_apart=False,
            by=run.hash,
            files=files,
        )


def parts_folder(output: Path) -> Path:
    """Returns the folder of the shards that are to be merged into an output: OUT.parts."""
    return output.with_name(f"{output.name}.parts")


def _check_pattern(
    output: Path | None, shard: tuple[int, int] | None, *, merge: bool, by_name: bool
) -> None:
    """Refuses an output with `{shard}` in its name, unless each shard writes a file of its own.

    Args:
        output: The output, whose name has `{shard}`.
        shard: Number and count of the shard; None without `shard=`.
        merge: Whether shards are merged.
        by_name: Whether the verb can write a file for each shard.

    Raises:
        UsageError: `{shard}` is of no use here; the error says what to type.
    """
    if not by_name:
        message = f"`output={output}`: the scores of shards are merged, so they have one place"
        raise UsageError(message, remedy=f"Leave {PLACEHOLDER} out.")
    if merge:
        readable = str(output).replace(PLACEHOLDER, "*")
        message = f"`output={output}`: shards with names of their own need no merge"
        raise UsageError(message, remedy=f"Read them as one input: '{readable}'.")
    if shard is None:
        message = f"`output={output}` has a place for the shard, but `shard=` is missing"
        raise UsageError(message, remedy="Add `shard=K/N`, such as `shard=1/100`.")


@dataclass(frozen=True)
class _Shard(Workers):
    """One shard of a sharded `evaluate`, or the merge of all shards, as `Workers` that share sums.

    A shard (`is_apart`) runs on a machine of its own and never meets the others. It writes its part
    of each sum to its zip file. The merge runs after all shards. It computes nothing of its own,
    reads the sums from their files, and writes metrics and predictions.

    Attributes:
        is_apart: Whether this is a shard; False for the merge.
        by: Hash of the run, which goes into the seal.
        files: The file of this shard; of the merge the files of all shards, in their order.
        numbers: Numbers the sums, in the order in which they are asked for.
    """

    is_apart: bool = True
    by: str = ""
    files: Sequence[zipfile.ZipFile] = ()
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def seen(self, chunks: Iterable[Any]) -> Iterator[Any]:
        """Yields chunks of rows, and then seals this shard with their hash, or checks the seals.

        Raises:
            UsageError: A shard was made of other rows, or by another run.
        """
        digest = hashlib.sha256(self.by.encode())
        for rows in chunks:
            digest.update(json.dumps([rows.ids, rows.columns], default=str).encode())
            yield rows
        # A shard has one file, of its own number. The merge has all files, from shard 1 on.
        first_number = 1 + self.rank % self.count
        for number, file in enumerate(self.files, start=first_number):
            seal = f"{number}/{self.count} {digest.hexdigest()}".encode()
            if self.is_apart:
                file.comment = seal
            elif file.comment != seal:
                raise UsageError(
                    f"{file.filename} is another shard, or of other rows, run or options",
                    remedy=AGAIN,
                )

    def sum(self, values: Array) -> Array:
        """Returns the sum of an array over all shards.

        Each row is computed by one shard and is 0 in the others, so the merge puts rows in their
        place and adds nothing. A shard writes its rows that are not 0 to its file, and returns its
        own values. The merge begins with zeros, and reads the files of all shards.
        """
        name = str(next(self.numbers))
        if self.is_apart:
            rows = np.unique(np.nonzero(values)[0])
            self.files[0].writestr(
                zipfile.ZipInfo(name), save({"rows": rows, "values": values[rows]})
            )
            return values
        for file in self.files:
            with loading(
                f"{file.filename}, as a shard of these rows,", kind=UsageError, remedy=AGAIN
            ):
                arrays = load(file.read(name))
                values[arrays["rows"]] = arrays["values"]  # no other shard has these rows
        return values
