"""Portions of texts through a tokenizer to a writer: in order, both cores busy, memory bounded."""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bertctl.errors import DataError, InterruptedRunError

if TYPE_CHECKING:  # numpy is slow to import, and one text needs none of it
    from bertctl.tokenization.encode import EncodedTexts, TextEncoder
    from bertctl.tokenization.formats import Writer

_AHEAD = 2  # portions that may wait for the writer


@dataclass(frozen=True)
class Portion:
    """Some texts, or pairs, of an input."""

    texts: Sequence[str]
    pairs: Sequence[str] | None = None


@dataclass
class Totals:
    """What went through.

    Attributes:
        texts: texts or pairs read.
        rows: rows written; more than `texts` with windows.
        tokens: tokens written, special tokens included.
        unknown: unknown tokens, before any cut.
        truncated: texts that lost tokens.
        lost: tokens they lost.
    """

    texts: int = 0
    rows: int = 0
    tokens: int = 0
    unknown: int = 0
    truncated: int = 0
    lost: int = 0

    def add(self, encoded: "EncodedTexts") -> None:
        """Count a portion without windows."""
        self.texts += len(encoded)
        self.rows += len(encoded)
        self.tokens += len(encoded.ids)
        self.unknown += int(encoded.unknown.sum())
        self.truncated += int(encoded.truncated.sum())
        self.lost += int((encoded.full_lengths - encoded.lengths).sum())


class Job(Protocol):
    """Encodes in the calling thread, writes in another."""

    totals: Totals

    def encode(self, portion: Portion) -> Any:
        """What `write` takes."""

    def write(self, encoded: Any) -> None:
        """Write it; called in order."""


class FlatJob:
    """Ids only, by the fastest exact way."""

    def __init__(self, encoder: "TextEncoder", writer: "Writer") -> None:
        self.totals = Totals()
        self._encoder = encoder
        self.write = writer.write

    def encode(self, portion: Portion) -> "EncodedTexts":
        """Ids of a portion."""
        encoded = self._encoder.encode(portion.texts, portion.pairs)
        self.totals.add(encoded)
        return encoded


def run(portions: Iterable[Portion], job: Job) -> Totals:
    """Encode and write all portions, in order, while the next is encoded.

    Raises:
        InterruptedRunError: Ctrl-C; whole portions were written.
    """
    waiting: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="writer") as writer:
        try:
            for portion in portions:
                waiting.append(writer.submit(job.write, _encode(job, portion)))
                while len(waiting) > _AHEAD or (waiting and waiting[0].done()):
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
        except KeyboardInterrupt as error:
            writer.shutdown(wait=True, cancel_futures=True)
            raise InterruptedRunError(
                f"interrupted after {job.totals.texts:,} texts; what was written ends with a whole line"
            ) from error
        except BaseException:
            writer.shutdown(wait=True, cancel_futures=True)
            raise
    return job.totals


def _encode(job: Job, portion: Portion) -> Any:
    before = job.totals.texts
    try:
        return job.encode(portion)
    except (TypeError, UnicodeEncodeError) as error:
        for number, text in enumerate(portion.texts):
            for part in (text, portion.pairs[number] if portion.pairs is not None else ""):
                if any("\ud800" <= c <= "\udfff" for c in part):
                    raise DataError(
                        f"text {before + number + 1} holds half of a surrogate pair, which is no character",
                        remedy=r"Repair the \ud... escapes of that row.",
                    ) from error
        raise
