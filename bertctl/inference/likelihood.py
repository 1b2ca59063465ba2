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

_TEXTS = 16
"""Texts that are computed together; each is computed as often as it has tokens."""

_MOST = 700.0
"""Largest exponent of e whose power is a finite number."""


class Scorer:
    """Scores texts.

    Args:
        model: The model, with its masked-word head.
        variant: What is masked beside a token: the tokens of its word that follow it (Kauf and
            Ivanova 2023), so that they don't give it away, or nothing (Salazar et al. 2020, section
            2.2).
    """

    def __init__(self, model: MaskedModel, variant: Variant = "within-word") -> None:
        self._model = model
        self._variant = variant
        # Totals of all texts so far, for the summary.
        self._texts = 0
        self._tokens = 0
        self._pairs = 0
        self._right = 0  # pairs whose good text is the likelier one
        self._sum = 0.0  # log-likelihoods of all texts

    def score(
        self, chunks: Iterable[TextChunk], *, listener: Listener = SILENT
    ) -> Iterator[dict[str, Any]]:
        """Yields the log-likelihood of each text, in order.

        For a pair it yields those of both texts, and whether the good one is the likelier.

        Args:
            chunks: Texts; or pairs, the good one first.
            listener: Receives progress messages.

        Raises:
            DataError: A text that is empty, or has more tokens than the model reads; no text at
                all.
        """
        number = 0
        for chunk in chunks:
            scored_columns = [self._scores(texts, number) for texts in chunk.sides]
            for answers in zip(*scored_columns, strict=True):
                if len(answers) == 1:
                    yield {"id": number, **answers[0]}
                else:
                    good, bad = answers
                    difference = good["log_likelihood"] - bad["log_likelihood"]
                    self._pairs += 1
                    is_right = difference > 0
                    if is_right:
                        self._right += 1
                    yield {
                        "id": number,
                        "right": is_right,
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

    def _scores(self, texts: Sequence[str], n_before: int) -> Iterator[dict[str, Any]]:
        """Yields the answer to each text, computing some texts together.

        Args:
            texts: Texts of a chunk.
            n_before: How many texts came before, so that errors say which text they are about.
        """
        for i in range(0, len(texts), _TEXTS):
            part = texts[i : i + _TEXTS]
            encodings = [
                self._encode(text, number)
                for number, text in enumerate(part, start=n_before + i + 1)
            ]
            yield from self._answers(list(zip(part, encodings, strict=True)))

    def _encode(self, text: str, number: int) -> Encoding:
        """Returns a text as tokens.

        Args:
            text: The text.
            number: What errors call it, from 1 on.

        Raises:
            DataError: The text has no token of its own, or more tokens than the model reads.
        """
        encoding = self._model.tokenizer.encode(text)
        # Special tokens belong to no sequence.
        if not any(sequence is not None for sequence in encoding.sequence_ids):
            raise DataError(f"text {number} is empty", remedy="Give texts with at least one word.")
        if len(encoding) > self._model.length:
            raise DataError(
                f"text {number} has {len(encoding):,} tokens, special ones included, and the model "
                f"reads {self._model.length}: {text[:60]!r}",
                remedy="Score it in parts, such as its sentences.",
            )
        return encoding

    def _answers(self, texts: Sequence[tuple[str, Encoding]]) -> Iterator[dict[str, Any]]:
        """Yields the answer to each text: its log-likelihood, and the one of each of its tokens.

        Each token is masked in a line of its own. Its log-likelihood is the log-probability that
        the model gives to this token at the mask.

        Args:
            texts: Texts with their tokens.
        """
        lines: list[MaskedLine] = []
        gold: list[int] = []
        lines_of_texts = [self._lines(encoding) for _, encoding in texts]
        for (_, encoding), text_lines in zip(texts, lines_of_texts, strict=True):
            lines += text_lines
            gold += [encoding.ids[line.places[0]] for line in text_lines]

        scores = np.zeros(len(lines))
        for i, logarithms in self._model.logarithms(lines):
            scores[i] = float(logarithms[0, gold[i]])

        end = 0
        for (text, encoding), text_lines in zip(texts, lines_of_texts, strict=True):
            begin = end
            end = begin + len(text_lines)
            text_scores = scores[begin:end]
            total = float(finite(text_scores, self._model.name).sum())
            self._texts += 1
            self._tokens += len(text_lines)
            self._sum += total

            pieces = []
            for line, score in zip(text_lines, text_scores, strict=True):
                [place] = line.places
                start_char, end_char = encoding.offsets[place]
                pieces.append(
                    {
                        "piece": encoding.tokens[place],
                        "start": start_char,
                        "end": end_char,
                        "log_likelihood": float(score),
                    }
                )
            yield {"text": text, **_figures(total, len(text_lines)), "pieces": pieces}

    def _lines(self, encoding: Encoding) -> list[MaskedLine]:
        """Returns the text as often as it has tokens, with another one masked each time.

        The variant "within-word" masks the later tokens of the same word, too: they would give the
        token away (Kauf and Ivanova 2023).
        """
        lines = []
        words = encoding.word_ids
        for place, sequence in enumerate(encoding.sequence_ids):
            if sequence is None:  # a special token
                continue
            ids = np.array(encoding.ids, dtype=np.int32)
            ids[place] = self._model.mask_id
            if self._variant == "within-word" and words[place] is not None:
                rest_of_word = [i for i in range(place, len(ids)) if words[i] == words[place]]
                ids[rest_of_word] = self._model.mask_id
            lines.append(MaskedLine(ids, encoding.type_ids, [place]))
        return lines


def _figures(total: float, tokens: int) -> dict[str, Any]:
    """Returns the sum of log-likelihoods, the number of tokens, their mean, and pseudo-perplexity.

    Pseudo-perplexity is e to the power of minus the mean (Salazar et al. 2020).
    """
    mean = total / max(tokens, 1)
    perplexity = math.exp(min(-mean, _MOST))  # a larger exponent would overflow
    return {
        "log_likelihood": total,
        "tokens": tokens,
        "per_token": mean,
        "pseudo_perplexity": perplexity,
    }
