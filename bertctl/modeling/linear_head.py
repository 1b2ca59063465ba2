"""A frozen encoder with a linear classifier on a pooled vector of it: what a probe trains, saves and loads.

RUN/probe.safetensors holds `weight` (C, D) and `bias` (C,), with the standardising of the vectors multiplied in, and
for a learned mix of layers `mix` (K,), for people to look at. RUN/probe.json says which vector is read, of which
encoder, and what the outputs are called. Letters: B texts, T tokens, D size of the vector, C outputs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats32
from bertctl.documents import loading, read_json
from bertctl.errors import UnavailableError
from bertctl.modeling.layers import choose_layers, join_states, layer_count, read_states
from bertctl.modeling.pooling import join_windows, pool
from bertctl.modeling.sentence_folder import SentenceModules, read_modules
from bertctl.modeling.source import ModelSource
from bertctl.run_folder import SCHEMA
from bertctl.runtime.device import Compute
from bertctl.tokenization.layout import Layout, special_ids
from bertctl.writing import atomic_write, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from bertctl.modeling.model import Model

DOCUMENT, WEIGHTS = "probe.json", "probe.safetensors"

FIRST_OF_WORD = "first"
"""The pooling of a probe on words: each is read by its first token, as in fine-tuning."""


@dataclass(frozen=True)
class LinearHead:
    """Is a trained probe, without its encoder.

    Attributes:
        layer: name of the layer choice.
        pooling: how its vectors become one; `FIRST_OF_WORD` for a vector each.
        special_tokens: whether special tokens count in it.
        normalize: whether it is brought to length 1.
        classifier: what was trained: logistic-regression or ridge.
        strength: C (of ridge: 1 / alpha).
        weight: (C, D).
        bias: (C,).
        mix: (K,) weights of a learned mix, already in `weight`; None for none.
        windows: how the vectors of a long text's windows become one.
    """

    layer: str
    pooling: str
    special_tokens: bool
    normalize: bool
    classifier: str
    strength: float
    weight: Floats32
    bias: Floats32
    mix: Floats32 | None = None
    windows: str = "mean"

    def save(self, folder: Path, *, source: ModelSource, head: Mapping[str, Any]) -> None:
        """Writes both files.

        Args:
            folder: RUN.
            source: the encoder, kept by name and hash.
            head: the task's outputs, as a fine-tuned model's config.json has them (num_labels, id2label, ...).
        """
        from safetensors.numpy import save_file

        arrays = {"weight": np.ascontiguousarray(self.weight), "bias": self.bias}
        if self.mix is not None:
            arrays["mix"] = self.mix
        atomic_write(folder / WEIGHTS, lambda aside: save_file(arrays, aside))
        fields = {name: value for name, value in asdict(self).items() if name not in ("weight", "bias", "mix")}
        document = {"schema": SCHEMA, "encoder": source.name, "encoder_hash": source.content_hash(), **fields}
        write_json(folder / DOCUMENT, document | {"head": dict(head)})


def is_probe(folder: Path) -> bool:
    """Returns whether a run folder holds a probe instead of a model."""
    return (folder / DOCUMENT).exists()


def read_probe(folder: Path) -> tuple[LinearHead, dict[str, Any]]:
    """Returns the head, and the content of probe.json.

    Raises:
        UnavailableError: a file is missing or damaged.
    """
    from safetensors.numpy import load_file

    again = "Run `bertctl probe` again with --overwrite."
    document = read_json(folder / DOCUMENT, "probe", remedy=again)
    with loading(folder / WEIGHTS, kind=UnavailableError, remedy=again):
        arrays = load_file(folder / WEIGHTS)
        fields = {name: document[name] for name in LinearHead.__dataclass_fields__ if name in document}
        return LinearHead(**fields, weight=arrays["weight"], bias=arrays["bias"], mix=arrays.get("mix")), document


def with_head(loaded: "Model", head: LinearHead, source: ModelSource, compute: Compute) -> "Model":
    """Returns the encoder with the head on top, as a model with logits."""
    import torch
    from torch import nn

    n_layers = layer_count(source.config)
    (layer,) = choose_layers([head.layer], n_layers)
    special = sorted(special_ids(loaded.tokenizer))
    table: nn.Module = loaded.network.get_input_embeddings()  # type: ignore[operator]
    sentences: nn.Module | None = None
    if head.pooling == "model":
        from bertctl.modeling.sentence_head import SentenceHead, load_head

        size: Any = loaded.network.config.hidden_size  # type: ignore[union-attr]
        sentences = load_head(SentenceHead(read_modules(source.folder) or SentenceModules(), size), source.folder)
    cls_last = loaded.cls_id in Layout.of(loaded.tokenizer, pair=False).slots[-1].ids

    class Probe(nn.Module):
        """Encoder, pooled vector, logits."""

        weight: "Tensor"
        bias: "Tensor"
        special: "Tensor"

        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.sentences = loaded.network, sentences
            self.register_buffer("weight", torch.from_numpy(head.weight.copy()))
            self.register_buffer("bias", torch.from_numpy(head.bias.copy()))
            self.register_buffer("special", torch.tensor(special))

        def get_input_embeddings(self) -> nn.Module:
            """Returns the encoder's token table."""
            return table

        def forward(self, *, owners: "Tensor | None" = None, **inputs: "Tensor") -> SimpleNamespace:
            """Computes `logits` (B, C) fp32 of (B, T) ids; of a probe on words (B, T, C).

            `owners` (U,) is the text of each of U windows, of which as many are computed at once as there are texts.
            """
            texts = len(inputs["input_ids"]) if owners is None else int(owners.max()) + 1
            chunks = zip(*(torch.split(one, texts) for one in inputs.values()), strict=True)
            # The weights have the precision already: under autocast the same products would come out differently.
            with torch.autocast(device_type=compute.device, enabled=False):
                parts = [self._vectors(**dict(zip(inputs, chunk, strict=True))) for chunk in chunks]
                vector, counts = (torch.cat(part) for part in zip(*parts, strict=True))
                if owners is not None:
                    own, number, of = (one.cpu().numpy() for one in (vector, owners, counts))
                    joined = join_windows(own, number, of, head.pooling, head.windows)
                    vector = torch.from_numpy(joined).to(vector.device)
                if head.normalize:
                    vector = vector / vector.norm(dim=-1, keepdim=True).clamp(min=1e-12)
                return SimpleNamespace(logits=vector @ self.weight.T + self.bias)

        def _vectors(
            self, input_ids: "Tensor", attention_mask: "Tensor", token_type_ids: "Tensor | None" = None
        ) -> "tuple[Tensor, Tensor]":
            """Returns (B, D) vectors, of words (B, T, D), and how many tokens count in each text's."""
            inputs = {"input_ids": input_ids}
            mask = attention_mask.bool()
            if token_type_ids is not None:
                inputs["token_type_ids"] = token_type_ids
            full = bool(mask.all())
            if not full:
                inputs["attention_mask"] = attention_mask
            states, pooled = read_states(self.encoder, table, inputs, layer.states, n_layers)
            joined = join_states(layer, states)
            counted = None if head.special_tokens else mask & ~torch.isin(input_ids, self.special)
            if head.pooling == FIRST_OF_WORD:
                vector = joined.float()
            elif head.pooling == "pooler" and pooled is not None:
                vector = pooled.float()
            elif self.sentences is not None:
                vector = self.sentences(joined, mask)
            else:
                (vector,) = pool(joined, None if full else mask, [head.pooling], counted=counted, cls_last=cls_last)
            return vector, (mask if counted is None else counted).sum(dim=1).clamp(min=1)

    return replace(loaded, network=Probe().to(compute.device).eval())
