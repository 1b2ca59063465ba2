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
    """A network of a frozen encoder, a pooling and a probe's linear head.

    Args:
        loaded: The encoder, on its device.
        head: The linear head that was trained on the encoder's vectors.
        source: Files of the encoder, for its number of layers and the pooling that its folder
            describes.

    Attributes:
        weight: (C, D) of the head.
        bias: (C,) of the head.
        special: Ids of the special tokens.
    """

    weight: Tensor
    bias: Tensor
    special: Tensor

    def __init__(self, loaded: Model, head: LinearHead, source: ModelSource) -> None:
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
        """Returns `logits` in fp32: (B, C), or (B, T, C) from a probe on words.

        Args:
            owners: (U,) number of the text of each window; None if each text is one window. As many
                windows are computed at once as there are texts, so that long texts take no more
                memory.
            **inputs: (U, T) inputs of the encoder, or (B, T).
        """
        if owners is None:
            n_texts = len(inputs["input_ids"])
        else:
            n_texts = int(owners.max()) + 1
        chunks = zip(*(torch.split(tensor, n_texts) for tensor in inputs.values()), strict=True)
        # The weights have the precision already: under autocast the same products would come out
        # differently.
        with torch.autocast(device_type=self.weight.device.type, enabled=False):
            parts = []
            for chunk in chunks:
                chunk_inputs = dict(zip(inputs, chunk, strict=True))
                parts.append(self.window_vectors(**chunk_inputs))
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
        """Linear head that was trained on the encoder's vectors, with its layer and pooling."""
        return self._head

    def answers(self, vector: Tensor) -> Tensor:
        """Returns logits (..., C) of vectors (..., D)."""
        if self._head.normalize:
            vector = vector / vector.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        return vector @ self.weight.T + self.bias

    def window_vectors(self, attention_mask: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the vectors that the head reads, and how many tokens count in each text.

        Args:
            attention_mask: (B, T), 0 for padding.
            **inputs: (B, T) other inputs of the encoder.

        Returns:
            (B, D) vectors, or (B, T, D) from a probe on words; and (B,) numbers of tokens.
        """
        head = self._head
        mask = attention_mask.bool()
        # The encoder is quicker without a mask. An exported graph must take any mask, so it can't
        # look at this one.
        has_no_padding = not torch.compiler.is_compiling() and bool(mask.all())
        if not has_no_padding:
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
        # A network without a pooler never gets a head that reads one.
        elif head.pooling == "pooler" and pooled is not None:
            vector = pooled.float()
        elif self.sentences is not None:
            vector = self.sentences(joined, mask)
        else:
            (vector,) = pool(
                joined,
                None if has_no_padding else mask,
                [head.pooling],
                counted=counted,
                cls_last=self._cls_last,
            )
        # Windows are weighed by these numbers, so none may be 0.
        counted_tokens = mask if counted is None else counted
        return vector, counted_tokens.sum(dim=1).clamp(min=1)
