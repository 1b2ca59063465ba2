"""A frozen encoder with the linear head of a probe, as a model with logits.

The head reads a pooled vector of the encoder.

Letters: B texts, T tokens, U windows, D size of the vector, C outputs.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from bertctl.modeling.layers import choose_layers, join_states, layer_count, read_states
from bertctl.modeling.linear_head import FIRST_OF_WORD, LinearHead
from bertctl.modeling.model import Model
from bertctl.modeling.pooling import join_windows, pool
from bertctl.modeling.sentence_folder import SentenceModules, read_modules
from bertctl.modeling.sentence_head import SentenceHead, load_head
from bertctl.modeling.source import ModelSource
from bertctl.runtime.device import Compute
from bertctl.tokenization.layout import Layout, special_ids


def with_head(loaded: Model, head: LinearHead, source: ModelSource, compute: Compute) -> Model:
    """Returns the encoder with the head on top, as a model with logits."""
    network = ProbeNetwork(loaded, head, source)
    network.to(compute.device)
    network.eval()
    return replace(loaded, network=network)


class ProbeNetwork(nn.Module):
    """Encoder, pooled vector, logits."""

    weight: Tensor
    bias: Tensor
    special: Tensor

    def __init__(self, loaded: Model, head: LinearHead, source: ModelSource) -> None:
        """Takes over an encoder.

        Args:
            loaded: the encoder, on its device.
            head: what was trained on its vectors.
            source: where the encoder is from: how many layers it has, and what its folder says of
                pooling.
        """
        super().__init__()
        self.encoder = loaded.network
        self._head = head
        self._n_layers = layer_count(source.config)
        (self._layer,) = choose_layers([head.layer], self._n_layers)
        # XLNet's tokenizer puts [CLS] behind the text, those of most families before it.
        last_slot = Layout.of(loaded.tokenizer, pair=False).slots[-1]
        self._cls_last = loaded.cls_id in last_slot.ids
        self.sentences: nn.Module | None = None
        if head.pooling == "model":
            size: Any = loaded.network.config.hidden_size  # type: ignore[union-attr]
            modules = read_modules(source.folder) or SentenceModules()
            self.sentences = load_head(SentenceHead(modules, size), source.folder)
        self.register_buffer("weight", torch.from_numpy(head.weight.copy()))
        self.register_buffer("bias", torch.from_numpy(head.bias.copy()))
        self.register_buffer("special", torch.tensor(sorted(special_ids(loaded.tokenizer))))

    def get_input_embeddings(self) -> nn.Module:
        """Returns the encoder's token table."""
        table: nn.Module = self.encoder.get_input_embeddings()  # type: ignore[operator]
        return table

    def forward(self, *, owners: Tensor | None = None, **inputs: Tensor) -> SimpleNamespace:
        """Computes `logits` (B, C) fp32 of (B, T) ids; of a probe on words (B, T, C).

        `owners` (U,) is the text of each of U windows, of which as many are computed at once as
        there are texts.
        """
        if owners is None:
            texts = len(inputs["input_ids"])
        else:
            texts = int(owners.max()) + 1
        chunks = zip(*(torch.split(tensor, texts) for tensor in inputs.values()), strict=True)
        # The weights have the precision already: under autocast the same products would come out
        # differently.
        with torch.autocast(device_type=self.weight.device.type, enabled=False):
            parts = [
                self.window_vectors(**dict(zip(inputs, chunk, strict=True))) for chunk in chunks
            ]
            vector = torch.cat([vectors for vectors, _ in parts])
            if owners is not None:
                token_counts = torch.cat([counts for _, counts in parts])
                joined = join_windows(
                    vectors=vector.cpu().numpy(),
                    owners=owners.cpu().numpy(),
                    counts=token_counts.cpu().numpy(),
                    how=self._head.pooling,
                    windows=self._head.windows,
                )
                vector = torch.from_numpy(joined).to(vector.device)
            return SimpleNamespace(logits=self.answers(vector))

    @property
    def head(self) -> LinearHead:
        """What was trained on the encoder's vectors."""
        return self._head

    def answers(self, vector: Tensor) -> Tensor:
        """Returns logits (..., C) of vectors (..., D)."""
        if self._head.normalize:
            vector = vector / vector.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        return vector @ self.weight.T + self.bias

    def window_vectors(self, attention_mask: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (B, D) vectors, of words (B, T, D), and how many tokens count in each text's."""
        head = self._head
        mask = attention_mask.bool()
        # A graph that is exported takes any mask.
        full = not torch.compiler.is_compiling() and bool(mask.all())
        if not full:
            inputs["attention_mask"] = attention_mask
        table = self.get_input_embeddings()
        states, pooled = read_states(
            self.encoder,
            table,
            inputs,
            self._layer.states,
            self._n_layers,
        )
        joined = join_states(self._layer, states)
        if head.special_tokens:
            counted = None
        else:
            is_special = (inputs["input_ids"].unsqueeze(-1) == self.special).any(dim=-1)
            counted = mask & ~is_special
        if head.pooling == FIRST_OF_WORD:
            vector = joined.float()
        elif head.pooling == "pooler" and pooled is not None:
            vector = pooled.float()
        elif self.sentences is not None:
            vector = self.sentences(joined, mask)
        else:
            within = None if full else mask
            (vector,) = pool(
                joined,
                within,
                [head.pooling],
                counted=counted,
                cls_last=self._cls_last,
            )
        return vector, (mask if counted is None else counted).sum(dim=1).clamp(min=1)
