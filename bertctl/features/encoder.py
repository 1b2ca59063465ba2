"""The frozen encoder: units in, vectors out, in batches of like lengths under a token budget.

Letters: N rows, U units, T tokens of all units together, B units in a batch, L tokens of the longest of them, D size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import UsageError
from bertctl.features.units import Units
from bertctl.modeling.layers import LayerChoice, join_states, layer_count, read_states, states_needed
from bertctl.modeling.pooling import pool, pool_words
from bertctl.modeling.source import ModelSource
from bertctl.runtime.batching import Plan, token_budget_plan
from bertctl.runtime.device import Compute
from bertctl.tasks.word_windows import WordFeatures
from bertctl.tokenization.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

    from bertctl.modeling.load import LoadedModel

Vectors = NDArray[np.float32]
StatesOf = Callable[[Mapping[str, "Tensor"]], "tuple[dict[int, Tensor], Tensor | None]"]
"""A forward pass: inputs to hidden states by number, and the pooler's output."""

CPU_BUDGET = 4096
"""Tokens of a batch, padding included: enough to keep the cores busy, small enough for their caches."""
GPU_BUDGET = 65536


@dataclass(frozen=True)
class Wanted:
    """Which vectors.

    Attributes:
        layers: how a token's vector is made.
        poolings: how a text's is made of them, each for each layer; `("none",)` for the tokens themselves.
        words: how a word's is made of its pieces'; None for no words.
        special_tokens: whether [CLS], [SEP] and their like count in mean and max (and are among the tokens).
        normalize: whether each vector is brought to length 1.
    """

    layers: tuple[LayerChoice, ...]
    poolings: tuple[str, ...] = ("mean",)
    words: str | None = None
    special_tokens: bool = True
    normalize: bool = False

    @property
    def by_token(self) -> bool:
        """Whether a row has as many vectors as tokens, or words."""
        return self.words is not None or "none" in self.poolings

    def pairs(self, n_layers: int) -> list[tuple[LayerChoice, str]]:
        """Each layer with each pooling; the pooler reads the last layer only.

        Raises:
            UsageError: the pooler without the last layer.
        """
        last = [layer for layer in self.layers if layer.join == "one" and layer.states == (n_layers,)]
        if "pooler" in self.poolings and not last:
            raise UsageError(
                "the pooler reads the last layer, and that is not among the layers", remedy="Add it: --layers last."
            )
        return [
            (layer, pooling)
            for layer in self.layers
            for pooling in self.poolings
            if pooling != "pooler" or layer is last[0]
        ]


class Encoder:
    """A model put on its device in the precision it computes in; its weights are never changed.

    Args:
        source: the model's files.
        loaded: the bare encoder, as `load_frozen` gave it.
        wanted: which vectors.
        compute: device and precision.
        states_of: the forward pass of another backend; torch's when left out.
        budget: tokens of a batch.
    """

    def __init__(
        self,
        source: ModelSource,
        loaded: "LoadedModel",
        wanted: Wanted,
        compute: Compute,
        *,
        states_of: StatesOf | None = None,
        budget: int | None = None,
    ) -> None:
        self.source, self.loaded, self.wanted, self.compute = source, loaded, wanted, compute
        self.n_layers = layer_count(source.config)
        self.hidden = int(loaded.network.config.hidden_size)  # type: ignore[union-attr, arg-type]
        by_token = [(layer, wanted.words or "none") for layer in wanted.layers]
        self.pairs = by_token if wanted.by_token else wanted.pairs(self.n_layers)
        self._needed = states_needed(wanted.layers)
        self._budget = budget or (CPU_BUDGET if compute.device == "cpu" else GPU_BUDGET)
        self._states_of = states_of or self._torch_states
        layouts = [Layout.of(loaded.tokenizer, pair=pair) for pair in (False, True)]
        self._special = np.unique([i for layout in layouts for slot in layout.slots for i in slot.ids])
        self.cls_last = _cls_last(loaded, layouts[0]) if "cls" in wanted.poolings else False
        if "pooler" in wanted.poolings:
            check_pooler(source, loaded)

    @property
    def sizes(self) -> list[int]:
        """D of each of the pairs."""
        return [
            layer.size(self.hidden) * (len(layer.states) if layer.is_learned else 1) * (2 if how == "mean-max" else 1)
            for layer, how in self.pairs
        ]

    def texts(self, units: Units, *, done: Callable[[int], None] | None = None) -> list[Vectors]:
        """For each of the pairs, a vector for each row, (N, D).

        Windows of one row are pooled together: the mean over all their tokens (those that two windows share count in
        both), the maximum over all, the mean of their [CLS] vectors.
        """
        found = [np.empty((len(units.owner), size), dtype=np.float32) for size in self.sizes]
        poolings = [how for how in self.wanted.poolings if how != "pooler"]
        for batch, states, pooled, mask, counted in self._forward(units):
            at = 0
            for layer in self.wanted.layers:
                here = [how for each, how in self.pairs if each is layer]
                vectors = (
                    pool(join_states(layer, states), mask, poolings, counted=counted, cls_last=self.cls_last)
                    if poolings
                    else []
                )
                by_name = dict(zip(poolings, vectors, strict=True))
                for how in here:
                    vector = pooled if how == "pooler" else by_name[how]
                    if vector is None:
                        raise ValueError("a model without a pooler is refused when it is opened")
                    found[at][batch] = vector.float().cpu().numpy()
                    at += 1
            if done is not None:
                done(len(batch))
        if len(units.owner) != units.rows:
            counts = self._counted(units)
            found = [
                join_windows(vectors, units.owner, counts, units.rows, how)
                for vectors, (_, how) in zip(found, self.pairs, strict=True)
            ]
        return [unit_length(vectors) for vectors in found] if self.wanted.normalize else found

    def tokens(self, units: Units) -> "TokenVectors":
        """A vector for each token, or word, of each row."""
        if units.kept is None or units.words is None or units.spans is None:
            raise ValueError("these units were made without their tokens' places")
        found = [np.empty((len(units.ids), size), dtype=np.float32) for size in self.sizes]
        for batch, states, _, mask, _ in self._forward(units):
            places = np.concatenate([np.arange(units.starts[i], units.starts[i + 1]) for i in batch])
            for target, (layer, _) in zip(found, self.pairs, strict=True):
                joined = join_states(layer, states)
                flat = joined.reshape(-1, joined.shape[-1]) if mask is None else joined[mask]
                target[places] = flat.float().cpu().numpy()
        kept = (
            units.kept if self.wanted.special_tokens and self.wanted.words is None else units.kept & (units.words >= 0)
        )
        row_of = np.repeat(units.owner, units.lengths)[kept]
        vectors = [part[kept] for part in found]
        ids, spans, words = units.ids[kept], units.spans[kept], units.words[kept]
        if self.wanted.words is not None:
            per_row = np.zeros(units.rows, dtype=np.int64)
            np.maximum.at(per_row, row_of, words + 1)
            if units.word_counts is not None:
                per_row = units.word_counts
            vectors, spans = _by_word(vectors, row_of, words, spans, per_row, self.wanted.words)
            row_of = np.repeat(np.arange(units.rows), per_row)
            words = np.arange(len(row_of)) - (np.cumsum(per_row) - per_row)[row_of]
            ids = np.zeros(0, dtype=np.int32)
        counts = np.bincount(row_of, minlength=units.rows).astype(np.int64)
        if self.wanted.normalize:
            vectors = [unit_length(part) for part in vectors]
        return TokenVectors(vectors, counts, ids, spans, words)

    def first_pieces(
        self, features: WordFeatures, into: Mapping[int, Vectors], *, done: Callable[[int], None] | None = None
    ) -> None:
        """The hidden states of each word's first piece, as fine-tuning reads them.

        Args:
            features: W words, each in the unit that answers for it.
            into: (W, H) for each hidden state that the layers need, filled here.
            done: told of the units of each batch.
        """
        import torch

        for batch, states, _, _, _ in self._forward(Units.of(features.encoded)):
            words = features.prediction_indices(batch)
            units = np.repeat(np.arange(len(batch)), features.weights[batch])
            at = (torch.from_numpy(units), torch.from_numpy(features.places[words]))
            for state, target in into.items():
                target[words] = states[state][at].float().cpu().numpy()
            if done is not None:
                done(len(batch))

    @property
    def states(self) -> tuple[int, ...]:
        """The hidden states that the layers are made of."""
        return self._needed

    def _forward(self, units: Units) -> Any:
        """Batch by batch: its units, their hidden states, the pooler's output, what is no padding, what counts."""
        import torch

        plan: Plan = token_budget_plan(units.lengths, self._budget)
        with torch.inference_mode():
            for batch in plan:
                inputs, real = collate(units, batch, pad_id=self.loaded.padding.id)
                mask = None if real.all() else torch.from_numpy(real)
                counted = None
                if not self.wanted.special_tokens:
                    content = real & ~np.isin(inputs["input_ids"].numpy(), self._special)
                    counted = torch.from_numpy(content).to(self.compute.device)
                if mask is not None:
                    mask = mask.to(self.compute.device)
                moved = {
                    name: tensor.to(self.compute.device)
                    for name, tensor in inputs.items()
                    if name != "token_type_ids" or self.loaded.has_segments
                }
                if mask is not None:
                    moved["attention_mask"] = mask.long()
                states, pooled = self._states_of(moved)
                yield batch, states, pooled, mask, counted

    def _torch_states(self, inputs: Mapping[str, "Tensor"]) -> "tuple[dict[int, Tensor], Tensor | None]":
        return read_states(self.loaded.network, inputs, self._needed, self.n_layers)

    def _counted(self, units: Units) -> NDArray[np.int64]:
        """(U,) tokens of each unit that count in its mean."""
        counts = units.lengths
        if not self.wanted.special_tokens:
            special = np.isin(units.ids, self._special)
            counts = np.maximum(counts - np.add.reduceat(special, units.starts[:-1]), 1)
        return counts


@dataclass(frozen=True)
class TokenVectors:
    """The vectors of tokens, or words.

    Attributes:
        vectors: for each layer (K, D), K tokens (or words) of all rows together.
        counts: (N,) how many each row has.
        ids: (K,) pieces; empty for words.
        spans: (K, 2) first and last + 1 character of each.
        words: (K,) number of each token's word in its row, -1 for special tokens; for words their number.
    """

    vectors: list[Vectors]
    counts: NDArray[np.int64]
    ids: NDArray[np.int32]
    spans: NDArray[np.int32]
    words: NDArray[np.int64]


def collate(units: Units, batch: NDArray[np.int64], *, pad_id: int) -> "tuple[dict[str, Tensor], NDArray[np.bool_]]":
    """Some units as tensors (B, L), padded on the right to the longest; and (B, L) what is no padding."""
    import torch

    lengths = units.lengths[batch]
    columns = np.arange(int(lengths.max()))
    real = columns < lengths[:, None]
    places = np.minimum(units.starts[:-1][batch][:, None] + columns, len(units.ids) - 1)
    ids = np.where(real, units.ids[places], pad_id).astype(np.int64)
    types = np.where(real, units.type_ids[places], 0).astype(np.int64)
    return {"input_ids": torch.from_numpy(ids), "token_type_ids": torch.from_numpy(types)}, real


def join_windows(vectors: Vectors, owner: NDArray[np.int64], counts: NDArray[np.int64], rows: int, how: str) -> Vectors:
    """(U, D) vectors of windows to (N, D) of rows; see `Encoder.texts`."""
    if how == "mean-max":
        half = vectors.shape[1] // 2
        parts = [(vectors[:, :half], "mean"), (vectors[:, half:], "max")]
        return np.hstack([join_windows(part, owner, counts, rows, name) for part, name in parts])
    first = np.searchsorted(owner, np.arange(rows))
    if how == "max":
        return np.asarray(np.maximum.reduceat(vectors, first), dtype=np.float32)
    weights = counts.astype(np.float64) if how == "mean" else np.ones(len(owner))
    summed = np.add.reduceat(vectors * weights[:, None], first)
    return (summed / np.add.reduceat(weights, first)[:, None]).astype(np.float32)


def unit_length(vectors: Vectors) -> Vectors:
    """Each vector divided by its length; zeros stay zeros."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def check_pooler(source: ModelSource, loaded: "LoadedModel") -> None:
    """Refuse a pooler that was never trained.

    Raises:
        UsageError: the model has none, or its file has no weights for it.
    """
    from safetensors import safe_open

    names: list[str] = []
    for path in sorted(source.folder.glob("model*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            names += file.keys()
    if getattr(loaded.network, "pooler", None) is None or not any("pooler" in name for name in names):
        raise UsageError(
            f"'{source.name}' has no pooler with trained weights",
            remedy="Use --pooling cls for the vector that a pooler would read, or mean.",
        )


def _cls_last(loaded: "LoadedModel", layout: Layout) -> bool:
    """Whether [CLS] ends a text.

    Raises:
        UsageError: the model has no such token.
    """
    number = loaded.saved_tokenizer.cls_token_id
    before, after = layout.slots[0], layout.slots[-1]
    if number is not None and number in before.ids:
        return False
    if number is not None and number in after.ids:
        return True
    raise UsageError("the model puts no [CLS] into a text", remedy="Use --pooling mean.")


def _by_word(
    vectors: Sequence[Vectors],
    row_of: NDArray[np.int64],
    words: NDArray[np.int64],
    spans: NDArray[np.int32],
    per_row: NDArray[np.int64],
    how: str,
) -> tuple[list[Vectors], NDArray[np.int32]]:
    """Pieces to words, of which row n has `per_row[n]`: their vectors, their characters.

    A word that no piece belongs to (one of control characters) gets zeros.
    """
    import torch

    number = (np.cumsum(per_row) - per_row)[row_of] + words
    total = int(per_row.sum())
    joined = [pool_words(torch.from_numpy(part), torch.from_numpy(number), total, how).numpy() for part in vectors]
    begins = np.full(total, np.iinfo(np.int32).max, dtype=np.int32)
    ends = np.zeros(total, dtype=np.int32)
    np.minimum.at(begins, number, spans[:, 0])
    np.maximum.at(ends, number, spans[:, 1])
    begins[begins > ends] = 0
    return joined, np.stack([begins, ends], axis=1)
