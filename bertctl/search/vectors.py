"""Vectors of texts, by a model that is made ready once."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertctl.arrays import Floats32
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.features.chunks import READ_ROWS, chunks
from bertctl.features.encoded_windows import RowEncoder
from bertctl.features.encoder import VectorSpec
from bertctl.features.extract_job import VectorNames
from bertctl.features.opening import find_files, longest_read, open_text_encoder
from bertctl.inference.evaluate import warn_of_truncation
from bertctl.metrics.similarity import COSINE
from bertctl.modeling.pooling import finite, unit_length
from bertctl.modeling.sentence_folder import SIDES, SentenceModules, read_modules
from bertctl.modeling.source import ModelFiles
from bertctl.progress import SILENT, Listener
from bertctl.runtime.heap import trim_heap
from bertctl.tasks.base import TruncationMessage
from bertctl.tokenization.long_texts import LongText
from bertctl.words import command, count


class TextVectors:
    """Model that computes a vector of each text.

    With several layers or poolings, their vectors are put side by side as one.

    Args:
        recipe: names the model, what is read of long texts, and where it computes.
        names: which vectors; without a pooling as the model's folder says, else the mean.
        length: longest input in tokens; None for what the folder says, else what the model can
            read, at most 512.
        side: `query` or `document`, of a search, for which the folder may have a prompt.
        similarity: Measure by which the vectors are compared; None for what the folder says, else
            the cosine. For cosines every vector is brought to length 1, for other measures it stays
            as the model makes it.

    Attributes:
        made: What the vectors are made with, for index.json: the model, a hash of its weights and
            settings, layer, pooling, longest input, what is read of longer texts, measure of
            similarity.
        unreadable: Numbers of the rows read last of which no token is in the vocabulary: their
            vectors say nothing.

    Raises:
        UsageError: no such model, layer or pooling; vectors of tokens.
        UnavailableError: files that are not there, or can't be loaded.
    """

    def __init__(
        self,
        recipe: Recipe,
        names: VectorNames,
        *,
        length: int | None = None,
        side: str = "",
        similarity: str | None = None,
    ) -> None:
        # The longest input may come from the model's files, which are found first. Until then any
        # length will do, and the shortest that a model section accepts is taken.
        source = find_files(recipe.with_fields("model", max_length=length or 4).model)
        sentence_modules = _modules_for(names, source)
        own_similarity: str = COSINE
        if sentence_modules is not None:
            own_similarity = sentence_modules.similarity
            prompt = names.prompt or _prompt_name(sentence_modules, side)
            names = replace(names, poolings=("model",), prompt=prompt)
            length = length or sentence_modules.max_length
        self.similarity = similarity or own_similarity
        # A dot product or a distance depends on the lengths of the vectors: they stay as they are.
        is_normalized = names.normalize and self.similarity == COSINE
        names = replace(names, poolings=names.poolings or ("mean",), normalize=is_normalized)
        long_text = LongText.of(
            recipe.with_fields("model", max_length=length or longest_read(source)).model
        )
        spec = VectorSpec.of(names, source, long_text.pooling)
        if spec.by_token:
            message = "vectors of tokens go into files"
            raise UsageError(
                message, remedy=f"Type `{command('extract-features', pooling='none')}`."
            )
        self._encoder = open_text_encoder(source, spec, recipe.runtime)
        # The same weights with another pooling or prompt make other vectors.
        made_by = hashlib.sha256(f"{source.content_hash()} {sentence_modules}".encode()).hexdigest()
        self.made: dict[str, Any] = {
            "model": source.name,
            "model_hash": made_by,
            "layer": ",".join(names.layers),
            "pooling": ",".join(names.poolings),
            "max_length": long_text.max_length,
            "size": sum(self._encoder.sizes),
            "long_text": long_text.fields().get("long_text"),
            "similarity": self.similarity,
        }
        self.unreadable: frozenset[int] = frozenset()
        self._rows = RowEncoder(
            self._encoder.engine.tokenizer,
            long_text,
            by_token=False,
            sentence_modules=spec.sentence_modules,
        )

    def stream(
        self, parts: Iterable[Rows], listener: Listener = SILENT
    ) -> Iterator[tuple[Rows, Floats32]]:
        """Yields rows with (N, D) vectors of their texts, in larger parts than they come in.

        At the end it reports how many texts were cut.

        Args:
            parts: Rows, whose column `text` is read.
            listener: Receives progress, and warnings of texts that are too long.

        Raises:
            DataError: Vectors that are no numbers.
        """
        counts = Counter[str]()
        yield from self._stream(parts, counts, listener)
        self._warn_of(counts, len(self.unreadable), listener)

    def _stream(
        self, parts: Iterable[Rows], counts: Counter[str], listener: Listener
    ) -> Iterator[tuple[Rows, Floats32]]:
        """Yields rows with their vectors, some at a time.

        At the end it sets `unreadable` to the numbers of these rows that have no known token.

        Args:
            parts: Rows, some at a time.
            counts: Counts of texts and tokens, and of what was cut, which are added to.
            listener: Receives progress messages.
        """
        unreadable: list[int] = []
        n_rows = 0
        for rows in chunks(parts):
            texts = replace(rows, columns={"text": rows.columns["text"]})
            windows = self._rows.encode(texts)
            counts.update(
                examples=len(rows),
                truncated=windows.truncated,
                lost_tokens=windows.truncated_tokens,
                unknown_tokens=windows.unknown,
                tokens=len(windows.encoded.ids),
            )
            unreadable += (n_rows + windows.all_unknown).tolist()
            n_rows += len(rows)

            computed = np.hstack(self._encoder.texts(windows))
            vectors = finite(computed, self.made["model"]).astype(np.float32)
            if self._encoder.spec.normalize:
                vectors = unit_length(vectors)
            yield rows, vectors
            trim_heap()
            listener.advance("texts", n_rows, 0)  # 0: the total is not known
        listener.finish("texts")
        self.unreadable = frozenset(unreadable)

    def _warn_of(self, counts: Counter[str], n_unreadable: int, listener: Listener) -> None:
        """Reports what was cut, and of how many texts the model knows nothing."""
        if n_unreadable:
            message = f"the model knows no token of {count(n_unreadable, 'text')}"
            listener.warn(f"{message}: their vectors are alike whatever they say")
        warn_of_truncation(
            "texts",
            counts,
            message=TruncationMessage(),
            max_length=self.made["max_length"],
            listener=listener,
        )

    def of(self, rows: Rows, listener: Listener = SILENT) -> Floats32:
        """Returns (N, D) vectors of all rows; see `stream`."""
        [(vectors, _)] = self.of_sides([rows], listener)
        return vectors

    def of_sides(
        self, sides: Sequence[Rows], listener: Listener = SILENT
    ) -> list[tuple[Floats32, frozenset[int]]]:
        """Returns (N, D) vectors of texts that are compared, and the numbers of unreadable rows.

        There is one result for each side. What was cut is reported once, for all sides together.
        """
        counts = Counter[str]()
        results = []
        for rows in sides:
            all_vectors = np.empty((len(rows), self.made["size"]), dtype=np.float32)
            n_done = 0
            for _, vectors in self._stream(rows.parts(READ_ROWS), counts, listener):
                all_vectors[n_done : n_done + len(vectors)] = vectors
                n_done += len(vectors)
            results.append((all_vectors, self.unreadable))  # of this side: `_stream` has set it
        self._warn_of(counts, sum(len(unreadable) for _, unreadable in results), listener)
        return results


def _modules_for(names: VectorNames, source: ModelFiles) -> SentenceModules | None:
    """Returns the pooling and further modules of the model's folder, if they make the vectors.

    They do unless another pooling, or another layer than the last one, is asked for. The result is
    None then, and for a folder without modules.

    Args:
        names: Layers and poolings that are asked for.
        source: The model's files.
    """
    asks_for_own_pooling = names.poolings in ((), ("model",))
    if asks_for_own_pooling and names.layers == ("last",):
        return read_modules(source.folder)
    return None


def _prompt_name(modules: SentenceModules, side: str) -> str | None:
    """Returns the name of the folder's prompt for one side of a search; None without a prompt.

    Args:
        modules: Modules of the folder, with its prompts.
        side: `query` or `document`; empty for neither.
    """
    for name in SIDES.get(side, ()):
        if name in modules.prompts:
            return name
    return None
