"""Chunks of texts through a tokenizer to a writer.

They stay in order, with both cores busy and bounded memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from bertctl.documents import is_whole
from bertctl.errors import DataError, InterruptedRunError, UnavailableError
from bertctl.session import carried

_AHEAD = 2
"""Chunks that may wait for the writer, to bound the memory."""


@dataclass(frozen=True)
class TextChunk:
    """Some consecutive texts, or pairs of texts, of an input.

    Attributes:
        texts: The texts, or the first ones of pairs.
        pairs: The second texts.
        ids: The ids that the input has for them; None where it has none.
    """

    texts: Sequence[str]
    pairs: Sequence[str] | None = None
    ids: Sequence[Any] | None = None

    @property
    def sides(self) -> list[Sequence[str]]:
        """Returns the texts, and the second texts where there are pairs."""
        if self.pairs is None:
            return [self.texts]
        return [self.texts, self.pairs]


@dataclass
class Totals:
    """Counts what was read and written so far.

    Attributes:
        texts: texts or pairs read.
        rows: rows written; more than `texts` with windows.
        tokens: tokens written, special tokens included.
        unknown: unknown tokens, before truncation.
        truncated: texts that lost tokens.
        lost: tokens they lost.
    """

    texts: int = 0
    rows: int = 0
    tokens: int = 0
    unknown: int = 0
    truncated: int = 0
    lost: int = 0


class ChunkEncoder(Protocol):
    """Encodes one chunk after the other and counts what it encoded."""

    totals: Totals

    def encode(self, chunk: TextChunk) -> Any:
        """Returns what the writer takes."""


def run(chunks: Iterable[TextChunk], encoder: ChunkEncoder, write: Callable[[Any], None]) -> Totals:
    """Encodes chunks one after the other, while another thread writes the ones before, in order.

    Args:
        chunks: Of texts.
        encoder: Encodes and counts them.
        write: Writes what the encoder makes of a chunk.

    Raises:
        InterruptedRunError: Ctrl-C; whole chunks were written.
    """
    waiting: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="writer") as writer:
        try:
            for chunk in chunks:
                # The writer's thread works in the session of this command.
                write_in_session = carried(write)
                waiting.append(writer.submit(write_in_session, _encode(encoder, chunk)))
                while len(waiting) > _AHEAD or (waiting and waiting[0].done()):
                    waiting.popleft().result()  # raises what the writer raised
            while waiting:
                waiting.popleft().result()
        except BaseException as error:
            writer.shutdown(wait=True, cancel_futures=True)
            if not isinstance(error, KeyboardInterrupt):
                raise
            raise InterruptedRunError(
                f"interrupted after {encoder.totals.texts:,} texts: stdout ends with a whole line, "
                "the file of `output=` is as it was before"
            ) from error
    return encoder.totals


def _encode(encoder: ChunkEncoder, chunk: TextChunk) -> Any:
    """Returns an encoded chunk.

    Raises:
        DataError: A text has half of a surrogate pair, which is why the library fails.
        UnavailableError: The library fails for another reason.
    """
    n_before = encoder.totals.texts
    try:
        return encoder.encode(chunk)
    except UnavailableError as error:
        for number, text in enumerate(chunk.texts):
            if chunk.pairs is not None:
                text += chunk.pairs[number]
            if not is_whole(text):
                message = (
                    f"text {n_before + number + 1} holds half of a surrogate pair, which is not a "
                    "character"
                )
                raise DataError(
                    message, remedy=r"Repair the \ud... escapes of that row."
                ) from error
        raise
