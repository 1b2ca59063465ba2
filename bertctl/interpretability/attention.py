"""Attention of a model, for one text whole and for many in batches.

It is as transformers' eager implementation gives it.

Letters: L layers, H heads, B texts, T tokens, D size of a head.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from bertctl.arrays import Floats32, Ints
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.errors import UsageError
from bertctl.inference.engine import Engine
from bertctl.interpretability.attention_tap import tapped
from bertctl.memory import require_memory
from bertctl.modeling.build import load_frozen
from bertctl.modeling.families import family_of, model_sizes, read_length
from bertctl.modeling.layers import layer_count
from bertctl.modeling.source import ModelSource
from bertctl.runtime.cpu import available_cores
from bertctl.runtime.device import choose_compute
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.windows import Truncation, WindowEncoder

if TYPE_CHECKING:
    from tokenizers import Encoding
    from torch import Tensor

    from bertctl.modeling.model import Model


_NUMBERS = 1 << 26  # attentions in memory at once (256 MB)
_SUM_TOLERANCE = 1e-4

SAME = 1e-5
"""Largest difference of two attentions that are the same but for rounding."""


def numbers_in(typed: str | None, count: int, noun: str) -> tuple[int, ...]:
    """Returns the numbers of layers or heads that were typed, in order, each once.

    Of 12 layers, "1-3,6,-1" is (1, 2, 3, 6, 12). Without anything typed it is all.

    Args:
        typed: Numbers and ranges, from 1 on; -1 is the last.
        count: How many there are.
        noun: What is counted, for messages.

    Raises:
        UsageError: No number, or none from 1 to `count`.
    """
    if typed is None:
        return tuple(range(1, count + 1))

    numbers: set[int] = set()
    for typed_range in typed.split(","):
        low = high = 0  # no number of a layer: refused below if nothing matches
        match = re.fullmatch(r"\s*(-?\d{1,6})\s*(?:-\s*(\d{1,6}))?\s*", typed_range)
        if match is not None:
            low = _counted_from_1(int(match[1]), count)
            high = _counted_from_1(int(match[2] or match[1]), count)
        if not 1 <= low <= high <= count:
            remedy = (
                f"It has {noun}s 1 to {count}: `{noun}s=1-3,{count}` for some of them, -1 for the "
                "last."
            )
            raise UsageError(f"the model has no {noun} '{typed_range.strip()}'", remedy=remedy)
        numbers.update(range(low, high + 1))
    return tuple(sorted(numbers))


def _counted_from_1(number: int, count: int) -> int:
    """Returns a number counted from 1; a negative one is counted from the end, -1 is the last."""
    if number < 0:
        return number + count + 1
    return number


class AttentionReader:
    """Reads the attention of an encoder, in fp32; the model is loaded when it is first needed.

    Args:
        source: The model's files.
        runtime: Where it computes.
        max_length: Longest text in tokens; by the model, at most 512, when None.

    Raises:
        UsageError: An encoder and a decoder.
    """

    def __init__(
        self, source: ModelSource, runtime: RuntimeSection, *, max_length: int | None = None
    ) -> None:
        self.source = source
        self._runtime = runtime.model_copy(update={"precision": "fp32"})
        self.layers = layer_count(source.config)
        self.family = family_of(source.config)
        self.max_length = max_length or read_length(source.config)

    @cached_property
    def model(self) -> "Model":
        """Model, which gives its attention."""
        model = load_frozen(self.source, choose_compute(self._runtime), plain=True)
        # Other implementations do not return attention weights.
        cast(Any, model.network).set_attn_implementation("eager")
        return model

    @cached_property
    def engine(self) -> Engine:
        """Engine that passes texts through the model."""
        return Engine.of(self.model, choose_compute(self._runtime))

    def encode(self, texts: TextChunk) -> tuple[list["Encoding"], list[int]]:
        """Returns each text, or pair, as tokens, and how many tokens of it were cut off.

        Raises:
            UsageError: A length that leaves no room; a text of which no token is left.
            UnavailableError: A model that can't be loaded.
        """
        limits = Truncation(self.max_length)
        tokenizer = self.model.tokenizer
        limits.check(tokenizer, pair=texts.pairs is not None)
        encodings = []
        cut = []
        for encoded in WindowEncoder(tokenizer, limits).encode(texts):
            encoding = encoded.windows[0]
            encodings.append(encoding)
            cut.append(encoded.full_length - len(encoding))
        if not all(map(len, encodings)):
            raise UsageError("a text has no tokens", remedy="Give texts with words in them.")
        return encodings, cut

    def read(self, encodings: Sequence["Encoding"]) -> "Iterator[tuple[Ints, list[Tensor]]]":
        """Yields batch by batch which B texts it has, and the (B, H, T, T) attention of each layer.

        Raises:
            UsageError: A family that has no attention of every token to every token.
        """
        longest = max(map(len, encodings))
        # Weights for each token. If the config does not say the number of heads, 16 is assumed.
        n_heads = model_sizes(self.source.config)["heads"] or 16
        numbers = self.layers * n_heads * longest
        n_bytes = 8 * numbers * longest  # in fp32, with room for a copy
        require_memory(n_bytes, f"the attention of {longest} tokens", threads=available_cores())
        budget = max(1, _NUMBERS // numbers)
        for indices, mask, output in self.engine.line_outputs(
            encodings, budget, output_attentions=True
        ):
            attentions = [layer.float() for layer in getattr(output, "attentions", None) or ()]
            size = (*mask.shape, mask.shape[1])
            is_complete = len(attentions) == self.layers and all(
                (len(attention), *attention.shape[2:]) == size for attention in attentions
            )
            if not is_complete:
                raise self._refusal("no attention of all tokens to all")
            # How far a token's attention is from adding up to 1, at most, in each layer.
            sum_errors = [
                float(((attention.sum(dim=-1) - 1).abs() * mask[:, None]).max())
                for attention in attentions
            ]
            if max(sum_errors) > _SUM_TOLERANCE:
                raise self._refusal("rows of attention that do not sum to 1")
            yield indices, attentions

    def _refusal(self, fault: str) -> UsageError:
        """Returns the error for a model whose attention is of another kind."""
        return UsageError(
            f"'{self.source.name}' has {fault} (its family is '{self.family}')",
            remedy="Give an encoder that has, such as BERT, RoBERTa, DeBERTa or ModernBERT.",
        )


def read_attention(
    reader: AttentionReader,
    text: str,
    pair: str | None = None,
    *,
    layers: str | None = None,
    heads: str | None = None,
) -> dict[str, Any]:
    """Returns what each token of a text, or pair, attends to.

    Args:
        reader: The model.
        text: The text.
        pair: The second text.
        layers: Numbers of the layers to return, as typed ("1-3,6"); None for all.
        heads: Numbers of the heads to return, as typed; None for all.

    Returns:
        The name of the `model`; in `scores`, a sentence on how the attention is computed; in `cut`,
        how many tokens were left out. As arrays: `tokens` (T,), their `sides` (T,) as `sides_of`
        returns them, the numbers of `layers` and `heads` counted from 1, and `attentions`
        (L, H, T, T) from each token to each, whose rows sum to 1. If the attention is the softmax
        of products of queries and keys, also `queries` and `keys` (L, H, T, D), and the `scaling`
        (L,) of the products.

    Raises:
        UsageError: A layer or head that the model does not have; a family without attention.
    """
    chosen = numbers_in(layers, reader.layers, "layer")
    known = model_sizes(reader.source.config)["heads"]
    if known:
        numbers_in(heads, known, "head")  # before the model is loaded
    [encoding], [cut] = reader.encode(TextChunk([text], None if pair is None else [pair]))
    [(_, attentions)] = reader.read([encoding])
    numbers = numbers_in(heads, attentions[0].shape[1], "head")
    picked = np.ix_([layer - 1 for layer in chosen], [head - 1 for head in numbers])

    def of_layers(tensors: "Sequence[Tensor]") -> Floats32:
        """Returns the chosen layers and heads of a (1, H, ...) tensor for each layer."""
        return np.stack([tensor[0].cpu().numpy() for tensor in tensors])[picked]

    reason = (
        f"the family '{reader.family}' computes its scores in a way of its own, as a rule not "
        "query · key alone"
    )
    note = f"query and key are not shown: {reason}"
    facts = {
        "tokens": encoding.tokens,
        "sides": sides_of(encoding),
        "layers": chosen,
        "heads": numbers,
    }
    arrays = {name: np.asarray(values) for name, values in facts.items()} | {
        "attentions": of_layers(attentions)
    }
    document: dict[str, Any] = {"model": reader.source.name, "scores": note, "cut": cut, **arrays}
    # The pass is for what the tap records; its outputs are not used.
    with tapped(reader.model.network) as tap:
        list(reader.engine.line_outputs([encoding], len(encoding)))
    scores = tap.scores
    # A family that computes its attention itself has called no tap, or with other heads.
    if not scores or scores[0].query.shape[1] != attentions[0].shape[1]:
        return document
    # Query and key are shown only if softmax of their products is what the model has computed.
    differences = [
        layer.weights() - probabilities
        for layer, probabilities in zip(scores, attentions, strict=True)
    ]
    largest_difference = max(float(difference.abs().max()) for difference in differences)
    if largest_difference > SAME:
        return document
    return document | {
        "queries": of_layers([layer.query for layer in scores]),
        "keys": of_layers([layer.key for layer in scores]),
        "scaling": np.array([scores[layer - 1].scaling for layer in chosen], dtype=np.float32),
        "scores": "softmax(query · key / √d), seen in the model: the largest difference is "
        f"{largest_difference:.1e}",
    }


def sides_of(encoding: "Encoding") -> NDArray[np.int8]:
    """Returns (T,) the side of each token.

    It is 0 for tokens of the first text, 1 for those of the second, and -1 for special ones.
    """
    sides = [-1 if sequence is None else sequence for sequence in encoding.sequence_ids]
    return np.array(sides, dtype=np.int8)
