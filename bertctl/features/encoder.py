"""The frozen encoder: token ids in, vectors out, in batches of like lengths under a token budget.

Letters: N rows, U windows, T tokens of all windows together, B windows in a batch, L tokens of the
longest of them, D size of a vector.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from bertctl.arrays import Bools, Floats32, Ints, Ints32, positions_of
from bertctl.catalog.config_keys import WORD_VECTORS
from bertctl.errors import UsageError
from bertctl.features.encoded_windows import EncodedWindows
from bertctl.features.extract_job import VectorNames
from bertctl.inference.engine import Engine, TorchBackend
from bertctl.modeling.build import load_frozen
from bertctl.modeling.layers import (
    WORD_EMBEDDINGS,
    LayerChoice,
    choose_layers,
    join_states,
    layer_count,
    read_states,
    states_needed,
)
from bertctl.modeling.pooling import check_poolings, join_windows, pool, pool_words, unit_length
from bertctl.modeling.sentence_folder import SentenceModules, read_modules
from bertctl.modeling.source import ModelFiles, ModelSource
from bertctl.runtime.batching import token_budget_plan
from bertctl.runtime.device import Compute
from bertctl.runtime.side_by_side import side_by_side
from bertctl.tasks.sequences import padded_texts
from bertctl.tasks.tagging.word_windows import WordFeatures
from bertctl.tokenization.encode import EncodedTexts
from bertctl.tokenization.layout import Layout, special_ids
from bertctl.words import unknown

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertctl.modeling.model import Model


_OF_LAST = {"pooler", "model"}
"""Poolings that read the last layer."""

CPU_BUDGET = 4096
"""Tokens of a batch, padding included: enough to keep the cores busy, small enough for their
caches."""
GPU_BUDGET = 65536


@dataclass(frozen=True)
class VectorSpec:
    """Choice of the vectors that are computed.

    Attributes:
        layers: How a token's vector is made.
        poolings: How a text's is made of them, each for each layer; `("none",)` for the tokens
            themselves.
        words: How a word's is made of its tokens'; None for no words.
        special_tokens: Whether [CLS], [SEP] and their like count in mean and max (and are among the
            tokens).
        normalize: Whether each vector is brought to length 1.
        windows: How the vectors of a row's windows become one.
        sentence_modules: How the model's own folder makes a text's vector, where that is the
            pooling.
    """

    layers: tuple[LayerChoice, ...]
    poolings: tuple[str, ...] = ("mean",)
    words: str | None = None
    special_tokens: bool = True
    normalize: bool = False
    windows: str = "mean"
    sentence_modules: SentenceModules | None = None

    @classmethod
    def of(cls, names: VectorNames, source: ModelFiles, windows: str = "mean") -> Self:
        """Returns the vectors that these names mean for a model.

        Args:
            names: Layers, poolings and prompt, as they were typed.
            source: The model's files.
            windows: How the windows of a long text are pooled.

        Raises:
            UsageError: An unknown layer or pooling, or a learned one.
        """
        if names.words is not None:
            check_poolings([names.words], of="words")
        check_poolings([windows], of="windows")
        layers = choose_layers(names.layers, layer_count(source.config))
        poolings = check_poolings(names.poolings)
        if "model" in poolings or names.prompt:
            sentence_modules = folder_modules(source, names.prompt)
        else:
            sentence_modules = None
        return cls(
            layers,
            poolings,
            names.words,
            names.special_tokens,
            names.normalize,
            windows,
            sentence_modules,
        )

    @property
    def by_token(self) -> bool:
        """Whether a row has a vector for each token or word, not one for the whole text."""
        return self.words is not None or "none" in self.poolings

    def pairs(self, n_layers: int) -> list[tuple[LayerChoice, str]]:
        """Returns the pairs of a layer and a pooling; a text gets a vector for each pair.

        The poolings "pooler" and "model" (as the model's folder says) read the last layer only.

        Raises:
            UsageError: One of these two without the last layer.
        """
        last_layers = [
            layer for layer in self.layers if layer.join == "one" and layer.states == (n_layers,)
        ]
        for name in _OF_LAST & {*self.poolings}:
            if not last_layers:
                message = (
                    f"the pooling '{name}' reads the last layer, and that is not among the layers"
                )
                raise UsageError(message, remedy="Add it: `layers=last`.")
        return [
            (layer, pooling)
            for layer, pooling in itertools.product(self.layers, self.poolings)
            if pooling not in _OF_LAST or layer is last_layers[0]
        ]


def frozen_engine(loaded: "Model", compute: Compute) -> Engine:
    """Returns the engine of a bare encoder, as `load_frozen` gave it."""
    # The weights have their precision already. With "fp32" the backend uses no autocast, under
    # which the numbers would differ a little.
    backend = TorchBackend(loaded.network, loaded.has_segments, replace(compute, precision="fp32"))
    return Engine(backend, loaded.tokenizer, loaded.padding, compute)


class TextEncoder(Protocol):
    """What makes vectors of texts: a network of torch, or an export."""

    spec: VectorSpec
    engine: Engine

    @property
    def source(self) -> ModelFiles:
        """The files of the model."""

    @property
    def sizes(self) -> list[int]:
        """Returns D, the size of a text's vector, for each pair of layer and pooling."""

    def texts(
        self, windows: EncodedWindows, *, done: Callable[[int], None] | None = None
    ) -> list[Floats32]:
        """Returns (N, D) vectors of the rows for each layer and pooling."""

    def tokens(self, windows: EncodedWindows) -> "TokenVectors":
        """Returns a vector for each token, or word, of each row."""


class Encoder:
    """Computes vectors with a bare encoder, whose weights are never changed.

    Args:
        source: The model's files.
        loaded: The model, as `load_frozen` gave it.
        spec: Which vectors to compute.
        engine: Computes its forward pass.
        budget: Tokens of a batch; None for the usual number on the device.

    Attributes:
        pairs: Layer and pooling of each vector that a text, or token, gets.
        states: Numbers of the hidden states that the layers are made of.
        widths: Hidden state -> numbers of its vectors.
        cls_last: Whether [CLS] is a text's last token.
        sentences: Makes a text's vector as the model's folder says; None for other poolings.
    """

    def __init__(
        self,
        source: ModelSource,
        loaded: "Model",
        spec: VectorSpec,
        engine: Engine,
        *,
        budget: int | None = None,
    ) -> None:
        # A model of static word vectors has none for special tokens and unknown words, so these do
        # not count in a mean.
        if source.config.get(WORD_VECTORS):
            spec = replace(spec, special_tokens=False)
        self.source = source
        self.spec = spec
        self.engine = engine
        self.n_layers = layer_count(source.config)
        # Layer and pooling of each vector of a text, a word or a token.
        if spec.by_token:
            self.pairs = [(layer, spec.words or "none") for layer in spec.layers]
        else:
            self.pairs = spec.pairs(self.n_layers)
        self.states = states_needed(spec.layers)
        network: Any = loaded.network
        self._word_table: nn.Module = network.get_input_embeddings()
        hidden = int(network.config.hidden_size)
        # ALBERT's embeddings are smaller than its hidden states.
        embedding_size = int(self._word_table.weight.shape[1])
        self.widths = {
            state: embedding_size if state == WORD_EMBEDDINGS else hidden for state in self.states
        }
        self._budget = budget or (CPU_BUDGET if engine.compute.device == "cpu" else GPU_BUDGET)
        self._special = sorted(special_ids(engine.tokenizer))
        if "cls" in spec.poolings:
            self.cls_last = _cls_last(loaded)
        else:
            self.cls_last = False
        if "pooler" in spec.poolings:
            check_pooler(source, loaded)
        self.sentences: Any = None
        if spec.sentence_modules is not None:
            from bertctl.modeling.sentence_head import SentenceHead, load_head

            self.sentences = load_head(
                SentenceHead(spec.sentence_modules, hidden), source.folder
            ).to(engine.compute.device)

    @classmethod
    def open(cls, source: ModelSource, spec: VectorSpec, compute: Compute) -> Self:
        """Loads the model, and returns its encoder."""
        loaded = load_frozen(source, compute)
        return cls(source, loaded, spec, frozen_engine(loaded, compute))

    @property
    def sizes(self) -> list[int]:
        """Returns D, the size of a text's vector, for each pair of layer and pooling."""
        # The pooling `model` is the one that the model's folder describes.
        is_model_pooling = self.spec.poolings == ("model",)
        if self.sentences is not None and is_model_pooling:
            return [self.sentences.size]
        sizes = []
        for layer, pooling in self.pairs:
            size = layer.size(self.widths[layer.states[0]])
            if layer.is_learned:  # its states lie side by side until a probe has learned their mix
                size *= len(layer.states)
            if pooling == "mean-max":
                size *= 2
            sizes.append(size)
        return sizes

    def texts(
        self, windows: EncodedWindows, *, done: Callable[[int], None] | None = None
    ) -> list[Floats32]:
        """Returns (N, D) vectors of the rows, an array for each pair of layer and pooling.

        The vectors of a row's windows become one vector; see `join_windows`.

        Args:
            windows: Windows of N rows.
            done: Called with the number of windows of each batch.
        """
        vectors_by_pair = [
            np.empty((len(windows.owner), size), dtype=np.float32) for size in self.sizes
        ]
        # `_pooled` adds "pooler" and "model", which `self.pairs` has for the last layer alone.
        poolings = [how for how in self.spec.poolings if how not in _OF_LAST]
        for batch in self._forward(windows.encoded):
            by_layer = {layer: self._pooled(batch, layer, poolings) for layer in self.spec.layers}
            for target, (layer, how) in zip(vectors_by_pair, self.pairs, strict=True):
                target[batch.indices] = by_layer[layer][how].float().cpu().numpy()
            if done is not None:
                done(len(batch.indices))
        has_several_windows = len(windows.owner) != windows.rows
        if has_several_windows:
            counts = self._counted(windows.encoded)
            vectors_by_pair = [
                join_windows(
                    vectors,
                    windows.owner,
                    counts,
                    how,
                    self.spec.windows,
                )
                for vectors, (_, how) in zip(vectors_by_pair, self.pairs, strict=True)
            ]
        normalise = self.spec.normalize or (
            self.sentences is not None and self.sentences.sentence_modules.normalised
        )
        if normalise:
            return [unit_length(vectors) for vectors in vectors_by_pair]
        return vectors_by_pair

    def _pooled(
        self, batch: "_EncodedBatch", layer: LayerChoice, poolings: Sequence[str]
    ) -> "dict[str, Tensor]":
        """Returns the (B, D) vectors of a batch's windows by the name of the pooling.

        Args:
            batch: Hidden states of B windows.
            layer: Layer whose states are pooled.
            poolings: Poolings of tokens; "pooler" and "model" are added where they are needed.
        """
        if batch.pooled is None:
            vectors_by_pooling = {}
        else:
            vectors_by_pooling = {"pooler": batch.pooled}
        if poolings or "model" in self.spec.poolings:
            vectors = join_states(layer, batch.states)
            pooled = pool(
                vectors,
                batch.mask,
                poolings,
                counted=batch.counted,
                cls_last=self.cls_last,
            )
            vectors_by_pooling |= dict(zip(poolings, pooled, strict=True))
            if "model" in self.spec.poolings:
                vectors_by_pooling["model"] = self.sentences(vectors, batch.mask)
        return vectors_by_pooling

    def tokens(self, windows: EncodedWindows) -> "TokenVectors":
        """Returns a vector for each token, or word, of each row."""
        token_places = windows.places
        if token_places is None:
            raise ValueError("these windows were encoded without their tokens' places")
        encoded = windows.encoded
        token_vectors = self._vectors_of_tokens(encoded)
        is_kept = token_places.kept
        if self.spec.words is not None or not self.spec.special_tokens:
            is_kept = is_kept & (token_places.words >= 0)  # special tokens are of no word
        vectors = [layer_vectors[is_kept] for layer_vectors in token_vectors]
        ids = encoded.ids[is_kept]
        spans = token_places.spans[is_kept]
        in_second_text = token_places.second[is_kept]
        row_of = np.repeat(windows.owner, encoded.lengths)[is_kept]
        if self.spec.words is not None:
            words = token_places.words[is_kept]
            per_row = token_places.word_counts
            if per_row is None:  # a text has words up to the last one that a token belongs to
                per_row = np.zeros(windows.rows, dtype=np.int64)
                np.maximum.at(per_row, row_of, words + 1)
            # The words of all rows get running numbers. From here on, there is a vector for each.
            words_before = np.cumsum(per_row) - per_row
            word_of = words_before[row_of] + words
            vectors, spans = _by_word(
                vectors,
                spans,
                word_of,
                n_words=int(per_row.sum()),
                how=self.spec.words,
            )
            row_of = np.repeat(np.arange(windows.rows), per_row)
            words_of_second = word_of[in_second_text]
            in_second_text = np.isin(np.arange(len(row_of)), words_of_second)
            ids = np.zeros(0, dtype=np.int32)
        counts = np.bincount(row_of, minlength=windows.rows).astype(np.int64)
        if self.spec.normalize:
            vectors = [unit_length(layer_vectors) for layer_vectors in vectors]
        return TokenVectors(
            vectors=vectors,
            counts=counts,
            ids=ids,
            spans=spans,
            second=in_second_text,
        )

    def _vectors_of_tokens(self, encoded: EncodedTexts) -> list[Floats32]:
        """Returns (T, D) vectors of all tokens of windows, for each layer."""
        token_vectors = [
            np.empty((len(encoded.ids), size), dtype=np.float32) for size in self.sizes
        ]
        for batch in self._forward(encoded):
            positions = positions_of(batch.indices, encoded.starts)  # of the batch's tokens
            for target, (layer, _) in zip(token_vectors, self.pairs, strict=True):
                joined = join_states(layer, batch.states)
                if batch.mask is None:
                    flat = joined.reshape(-1, joined.shape[-1])
                else:
                    flat = joined[batch.mask]
                target[positions] = flat.float().cpu().numpy()
        return token_vectors

    def first_tokens(
        self,
        features: WordFeatures,
        into: Mapping[int, Floats32],
        *,
        done: Callable[[int], None] | None = None,
    ) -> None:
        """Computes the hidden states of each word's first token, as fine-tuning reads them.

        Args:
            features: W words, each in the window that answers for it.
            into: Hidden state -> (W, H) array, which is filled here.
            done: Called with the number of windows of each batch.
        """
        import torch

        for batch in self._forward(features.encoded):
            # For each word of the batch: its number among all words, the number of its window in
            # the batch, and the position of its first token in that window.
            words = features.prediction_indices(batch.indices)
            n_words_of_window = features.weights[batch.indices]
            windows = np.repeat(np.arange(len(batch.indices)), n_words_of_window)
            first_tokens = (torch.from_numpy(windows), torch.from_numpy(features.places[words]))
            for state, target in into.items():
                target[words] = batch.states[state][first_tokens].float().cpu().numpy()
            if done is not None:
                done(len(batch.indices))

    def _forward(self, encoded: EncodedTexts) -> "Iterator[_EncodedBatch]":
        """Yields the windows in batches of similar lengths, with their hidden states.

        Several batches are computed at once where that is faster.
        """
        import torch

        plan = token_budget_plan(
            encoded.lengths, self._budget, one_length=self.engine.padding.unwanted
        )
        special = torch.tensor(self._special, device=self.engine.compute.device)
        work = functools.partial(self._batch, encoded, special)
        with self.engine.backend.inference():
            yield from side_by_side(work, plan, self.engine.at_once(self._budget))

    def _batch(self, encoded: EncodedTexts, special: "Tensor", indices: Ints) -> "_EncodedBatch":
        """Computes the hidden states of some texts, and notes which of their tokens are pooled.

        Args:
            encoded: All texts.
            special: Ids of special tokens. They are not pooled if `spec.special_tokens` is off.
            indices: (B,) which of the texts.
        """
        import torch

        inputs = padded_texts(encoded, indices, self.engine.padding)
        inputs = {name: tensor.to(self.engine.compute.device) for name, tensor in inputs.items()}
        is_text = inputs["attention_mask"].bool()
        if self.spec.special_tokens:
            counted = None  # all tokens are pooled, so no mask is needed
        else:
            counted = is_text & ~torch.isin(inputs["input_ids"], special)
        has_padding = not bool(is_text.all())
        if not has_padding:  # there is nothing to mask
            del inputs["attention_mask"]
        states, pooler_output = read_states(
            self.engine.backend,
            self._word_table,
            inputs,
            self.states,
            self.n_layers,
        )
        return _EncodedBatch(
            indices,
            states,
            pooled=pooler_output,
            mask=is_text if has_padding else None,
            counted=counted,
        )

    def _counted(self, encoded: EncodedTexts) -> Ints:
        """Returns the (U,) tokens of each window that count in its mean."""
        counts = encoded.lengths
        if not self.spec.special_tokens:
            special = np.isin(encoded.ids, self._special)
            n_special = np.add.reduceat(special, encoded.starts[:-1])
            # A window that has only special tokens counts as one token.
            counts = np.maximum(counts - n_special, 1)
        return counts


@dataclass(frozen=True)
class _EncodedBatch:
    """What the encoder gives for B windows.

    Attributes:
        indices: (B,) the windows.
        states: Hidden state -> (B, L, H).
        pooled: (B, H) output of the pooler, where there is one.
        mask: (B, L) what is no padding; None where nothing is.
        counted: (B, L) what counts in mean and max; None for all that is no padding.
    """

    indices: Ints
    states: "dict[int, Tensor]"
    pooled: "Tensor | None"
    mask: "Tensor | None"
    counted: "Tensor | None"


@dataclass(frozen=True)
class TokenVectors:
    """Vectors of tokens, or words.

    Attributes:
        vectors: For each layer (K, D), K tokens (or words) of all rows together.
        counts: (N,) how many each row has.
        ids: (K,) token ids; empty for words.
        spans: (K, 2) first and last + 1 character of each.
        second: (K,) whether it is of the second text.
    """

    vectors: list[Floats32]
    counts: Ints
    ids: Ints32
    spans: Ints32
    second: Bools


def folder_modules(source: ModelFiles, prompt: str | None) -> SentenceModules:
    """Returns how a model's folder makes a text's vector.

    Args:
        source: The model's files.
        prompt: Name of one of its prompts, which is put before each text; None for its default one.

    Raises:
        UsageError: The folder says nothing, or has no such prompt.
    """
    sentence_modules = read_modules(source.folder)
    if sentence_modules is None:
        message = (
            f"the folder of '{source.name}' does not define how a text's vector is made (it has no "
            "modules.json)"
        )
        raise UsageError(
            message, remedy="Use `pooling=mean`, or cls; to search an index, leave `model=` out."
        )
    if prompt is not None and prompt not in sentence_modules.prompts:
        message = unknown(
            f"prompt in the folder of '{source.name}'", prompt, sentence_modules.prompts
        )
        raise UsageError(
            message, remedy=f"Prompts: {', '.join(sentence_modules.prompts) or 'none'}."
        )
    if prompt is None:
        return sentence_modules
    return replace(sentence_modules, default_prompt=prompt)


def check_pooler(source: ModelSource, loaded: "Model") -> None:
    """Refuses a pooler that was never trained.

    Raises:
        UsageError: The model has no pooler, or its file lacks weights of the pooler.
    """
    if not has_trained_pooler(loaded):
        message = f"'{source.name}' has no pooler with trained weights"
        raise UsageError(
            message, remedy="Use `pooling=cls` for the vector that a pooler would read, or mean."
        )


def has_trained_pooler(loaded: "Model") -> bool:
    """Returns whether a network has a pooler whose weights were all in the model's files."""
    has_pooler = getattr(loaded.network, "pooler", None) is not None
    return has_pooler and not any("pooler" in name for name in loaded.new_weights)


def _cls_last(loaded: "Model") -> bool:
    """Returns whether [CLS] ends an encoded text (True) or begins it (False).

    Raises:
        UsageError: The model puts no [CLS] before or behind a text.
    """
    number = loaded.cls_id
    slots = Layout.of(loaded.tokenizer, pair=False).slots  # special tokens, text, special tokens
    ids_before_text = slots[0].ids
    ids_behind_text = slots[-1].ids
    if number in ids_before_text:
        return False
    if number in ids_behind_text:
        return True
    raise UsageError("the model puts no [CLS] into a text", remedy="Use `pooling=mean`.")


def _by_word(
    vectors: Sequence[Floats32], spans: Ints32, word_of: Ints, n_words: int, how: str
) -> tuple[list[Floats32], Ints32]:
    """Returns the (W, D) vectors of words for each layer, and their (W, 2) characters.

    A word that no token belongs to (one of control characters) gets zeros.

    Args:
        vectors: (T, D) vectors of tokens for each layer.
        spans: (T, 2) first character of each token, and the one after its last.
        word_of: (T,) word of each token.
        n_words: W.
        how: How the tokens of a word are pooled.
    """
    import torch

    joined = [
        pool_words(torch.from_numpy(vector), torch.from_numpy(word_of), n_words, how).numpy()
        for vector in vectors
    ]
    begins = np.full(n_words, np.iinfo(np.int32).max, dtype=np.int32)
    ends = np.zeros(n_words, dtype=np.int32)
    np.minimum.at(begins, word_of, spans[:, 0])
    np.maximum.at(ends, word_of, spans[:, 1])
    begins[begins > ends] = 0  # of words without a token
    return joined, np.stack([begins, ends], axis=1)
