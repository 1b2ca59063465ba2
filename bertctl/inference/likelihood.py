"""How likely a text is to a model of masked words.

It is the sum over its tokens, each masked and asked for.

Letters: T tokens of a text.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from tokenizers import Encoding

from bertctl.errors import DataError
from bertctl.inference.masked_words import MaskedLine, MaskedModel
from bertctl.metrics.statistics import wilson_interval
from bertctl.modeling.pooling import finite
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.stream import TextChunk

Variant = Literal["within-word", "token"]

_TEXTS = 16  # that are looked at together; each is computed as often as it has tokens
_MOST = 700.0  # whose exponential is still a number


class Scorer:
    """Scores texts.

    Args:
        model: with its masked-word head.
        variant: what is masked beside a token: the tokens of its word that follow it (Kauf and
            Ivanova 2023), so that they don't give it away, or nothing (Salazar et al. 2020, section
            2.2).
    """

    def __init__(self, model: MaskedModel, variant: Variant = "within-word") -> None:
        self._model = model
        self._variant = variant
        self._texts = self._tokens = self._pairs = self._right = 0
        self._sum = 0.0

    def score(
        self, chunks: Iterable[TextChunk], *, listener: Listener = SILENT
    ) -> Iterator[dict[str, Any]]:
        """Yields an answer per text, in order.

        For a pair it has one for each side, and whether the first is the likelier.

        Args:
            chunks: texts; or pairs, the good one first.
            listener: hears of progress.

        Raises:
            DataError: a text that is empty, or has more tokens than the model reads; no text at
                all.
        """
        number = 0
        for chunk in chunks:
            sides = [self._scores(side, number) for side in chunk.sides]
            for answers in zip(*sides, strict=True):
                if len(answers) == 1:
                    yield {"id": number, **answers[0]}
                else:
                    good, bad = answers
                    difference = good["log_likelihood"] - bad["log_likelihood"]
                    self._pairs += 1
                    self._right += difference > 0
                    yield {
                        "id": number,
                        "right": difference > 0,
                        "difference": difference,
                        "good": good,
                        "bad": bad,
                    }
                number += 1
                listener.advance("scoring", number, 0)
        listener.finish("scoring")
        if not number:
            raise DataError("no texts to score", remedy="Give a file with lines or rows.")

    def summary(self) -> dict[str, Any]:
        """Returns the figures of all texts so far.

        For pairs it has the share in which the first text was the likelier.
        """
        figures = {"model": self._model.name, "pll": self._variant, "texts": self._texts}
        figures |= _figures(self._sum, self._tokens)
        if self._pairs:
            low, high = wilson_interval(self._right, self._pairs)
            share = {"value": self._right / self._pairs, "low": low, "high": high, "n": self._pairs}
            figures |= {"pairs": self._pairs, "right": self._right, "accuracy": share}
        return figures

    def _scores(self, texts: Sequence[str], first: int) -> Iterator[dict[str, Any]]:
        for i in range(0, len(texts), _TEXTS):
            part = texts[i : i + _TEXTS]
            encodings = [
                self._encode(text, number) for number, text in enumerate(part, start=first + i + 1)
            ]
            yield from self._answers(list(zip(part, encodings, strict=True)))

    def _encode(self, text: str, number: int) -> Encoding:
        encoding = self._model.tokenizer.encode(text)
        if not any(side is not None for side in encoding.sequence_ids):
            raise DataError(f"text {number} is empty", remedy="Give texts with at least one word.")
        if len(encoding) > self._model.length:
            raise DataError(
                f"text {number} has {len(encoding):,} tokens, special ones included, and the model "
                f"reads {self._model.length}: {text[:60]!r}",
                remedy="Score it in parts, such as its sentences.",
            )
        return encoding

    def _answers(self, texts: Sequence[tuple[str, Encoding]]) -> Iterator[dict[str, Any]]:
        lines: list[MaskedLine] = []
        gold: list[int] = []
        lines_of_texts = [self._lines(encoding) for _, encoding in texts]
        for (_, encoding), text_lines in zip(texts, lines_of_texts, strict=True):
            lines += text_lines
            gold += [encoding.ids[line.places[0]] for line in text_lines]

        scores = np.zeros(len(lines))
        for i, logarithms in self._model.logarithms(lines):
            scores[i] = float(logarithms[0, gold[i]])

        last = 0
        for (text, encoding), text_lines in zip(texts, lines_of_texts, strict=True):
            first = last
            last = last + len(text_lines)
            total = float(finite(scores[first:last], self._model.name).sum())
            self._texts += 1
            self._tokens += len(text_lines)
            self._sum += total

            pieces = []
            for line, score in zip(text_lines, scores[first:last], strict=True):
                [place] = line.places
                start, end = encoding.offsets[place]
                pieces.append(
                    {
                        "piece": encoding.tokens[place],
                        "start": start,
                        "end": end,
                        "log_likelihood": float(score),
                    }
                )
            yield {"text": text, **_figures(total, len(text_lines)), "pieces": pieces}

    def _lines(self, encoding: Encoding) -> list[MaskedLine]:
        """Returns the text as often as it has tokens, with another one masked each time."""
        lines = []
        words = encoding.word_ids
        for place, side in enumerate(encoding.sequence_ids):
            if side is None:
                continue
            ids = np.array(encoding.ids, dtype=np.int32)
            ids[place] = self._model.mask_id
            if self._variant == "within-word" and words[place] is not None:
                ids[[i for i in range(place, len(ids)) if words[i] == words[place]]] = (
                    self._model.mask_id
                )
            lines.append(MaskedLine(ids, encoding.type_ids, [place]))
        return lines


def _figures(total: float, tokens: int) -> dict[str, Any]:
    """Returns the sum of log-likelihoods and what follows from it.

    That is how many tokens, their mean, and the exponential of what it lacks to 0.
    """
    mean = total / max(tokens, 1)
    perplexity = math.exp(min(-mean, _MOST))
    return {
        "log_likelihood": total,
        "tokens": tokens,
        "per_token": mean,
        "pseudo_perplexity": perplexity,
    }
