"""Long texts in several windows.

One answer is made from the vectors that the network's last layer would read of each.

The windows are computed some at a time, as many as the batch has texts, so that a batch takes the
memory that it takes when each of its texts has one window, however long they are. In training the
windows' activations are not kept but for the last such chunk: the backward pass computes the others
again, chunk by chunk, with the random numbers (dropout) that they had. The gradients are those of
the whole document (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; Gao et al.
2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup").

Letters: U windows of B texts, T tokens, D size of a vector, C outputs.
"""

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertctl.modeling.heads import last_layer
from bertctl.modeling.stored_weights import stored_weights
from bertctl.runtime.heap import trim_heap

_QUERY = "window_pooling.query"


class WindowPooling(nn.Module):
    """Makes one vector, and of it the answer, of each text.

    Args:
        how: mean, max, first, attention, or logits for the mean of the windows' own answers.
        size: D.
    """

    def __init__(self, how: str, size: int) -> None:
        super().__init__()
        self.how = how
        if how == "attention":  # zeros: at first all windows weigh the same
            self.query = nn.Parameter(torch.zeros(size + 2))

    def forward(self, vectors: Tensor, owners: Tensor, last: nn.Module) -> Tensor:
        """Returns (B, C) answers.

        Args:
            vectors: (U, D).
            owners: (U,) text of each window.
            last: the last layer, from D to C.
        """
        if self.how == "logits":
            vectors = last(vectors)
        pooled = torch.stack(
            [self._pool(vectors[owners == text]) for text in range(int(owners.max()) + 1)]
        )
        if self.how == "logits":
            return pooled
        scores: Tensor = last(pooled)
        return scores

    def _pool(self, vectors: Tensor) -> Tensor:
        if self.how == "attention":
            # Where a window stands says something too: the last two entries are about the first and
            # the last one. The root has a step of AdamW move the scores as far as the learning rate
            # of a new layer would.
            root = math.sqrt(vectors.shape[1])
            ends = vectors.new_zeros(len(vectors), 2)
            ends[0, 0] = ends[-1, 1] = root
            scores = torch.cat([vectors, ends], dim=1) @ self.query * root
            return torch.softmax(scores, dim=0) @ vectors
        return {"max": vectors.amax(dim=0), "first": vectors[0]}.get(self.how, vectors.mean(dim=0))


def pool_windows(network: nn.Module, how: str, trained: Mapping[str, Tensor]) -> None:
    """Makes the network take `owners` (U,) beside the inputs of U windows.

    The first windows of all texts come before the others.

    Without it, it computes as before.

    Args:
        network: a model of transformers with one answer for each text.
        how: see `WindowPooling`.
        trained: the attention's vector, where there is one; see `saved_query`.
    """
    from transformers.modeling_outputs import SequenceClassifierOutput

    _, last = last_layer(network)
    network.window_pooling = pooling = WindowPooling(how, last.in_features)
    network.load_state_dict(trained, strict=False)
    alone: Any = network.forward

    def vectors(**inputs: Tensor) -> Tensor:
        # Each chunk has half-precision copies of the weights of its own: the gradients of one that
        # they share would be added up in half precision.
        torch.clear_autocast_cache()
        # the little that is kept of each chunk stands in the holes of the heap, which would go on
        # growing
        trim_heap()
        with last.register_forward_hook(lambda _, hook_inputs, __: hook_inputs[0]):
            last_inputs: Tensor = alone(**inputs).logits
        return last_inputs

    def forward(*, owners: Tensor | None = None, **inputs: Tensor) -> Any:
        if owners is None:
            return alone(**inputs)
        texts = int(owners.max()) + 1
        *others, final = zip(
            *(torch.split(tensor, texts) for tensor in inputs.values()), strict=True
        )
        run = vectors
        if torch.is_grad_enabled():
            run = functools.partial(checkpoint, vectors, use_reentrant=False)
        last_inputs = [run(**dict(zip(inputs, chunk, strict=True))) for chunk in others]
        last_inputs.append(vectors(**dict(zip(inputs, final, strict=True))))
        return SequenceClassifierOutput(logits=pooling(torch.cat(last_inputs), owners, last))

    network.forward = forward


def saved_query(folder: Path) -> dict[str, Tensor]:
    """Returns the attention's vector by its name, if one was saved beside the weights."""
    from safetensors import safe_open

    stored = stored_weights(folder).get(_QUERY)
    if stored is None:
        return {}
    with safe_open(stored.file, framework="pt") as file:
        return {_QUERY: file.get_tensor(_QUERY)}
