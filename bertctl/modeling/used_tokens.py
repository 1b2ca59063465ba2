"""The word table in training: only the rows of tokens that the training rows have are trained.

The others get no gradient, so AdamW would only multiply them by 1 - learning rate x decay in each step. Of MiniLM's
30,522 rows a task of 600 texts has a tenth; their gradient, clipping and moments are a third of a step's fixed cost.

Letters: V rows of the table, U used ones, C numbers of a row.
"""

from collections.abc import Iterable, Mapping
from mmap import mmap
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer


class UsedRows(nn.Module):
    """A word table whose trained weight is (U, C); what is saved and loaded under its name is the whole (V, C)."""

    def __init__(self, plain: nn.Embedding, used: Tensor) -> None:
        """Takes over a table.

        Args:
            plain: the table.
            used: (U,) numbers of the rows that are trained, in their order.
        """
        super().__init__()
        self.whole = self.first = plain.weight.detach()
        self.used = used
        self.weight = nn.Parameter(self.whole[used])
        self.places = torch.full((len(self.whole),), -1).index_copy(0, used, torch.arange(len(used)))
        self.padding = None if plain.padding_idx is None else int(self.places[plain.padding_idx])
        self.decay = 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Returns (..., C) rows of (...) tokens; in training of used ones only."""
        places = self.places[ids]
        if self.training or bool((places >= 0).all()):
            return functional.embedding(places, self.weight, self.padding)
        found = functional.embedding(places.clamp(min=0), self.weight)
        found[places < 0] = self.whole[ids[places < 0]] * self.decay
        return found

    def follow(self, optimizer: Optimizer) -> None:
        """Has each step of an optimizer that decays the weight decay the other rows as much."""

        def decay(told: Optimizer, *_: Any) -> None:
            # The group is looked up in each step: accelerate puts others in place of those that were there.
            (group,) = (each for each in told.param_groups if any(one is self.weight for one in each["params"]))
            if self.weight.grad is not None:  # a weight without one is left alone
                self.decay *= 1.0 - float(group["lr"]) * group["weight_decay"]

        optimizer.register_step_post_hook(decay)

    def go_on(self, decay: float) -> None:
        """Puts the other rows to where they were after a part of the training: those of the start, decayed."""
        self.whole, self.decay = self.first, decay

    def _save_to_state_dict(self, destination: Any, prefix: str, *_: Any) -> None:
        room = None
        if self.whole.is_cpu:  # not of the heap, in which a copy that is let go leaves a gap too small for the next one
            room = torch.frombuffer(mmap(-1, self.whole.nbytes), dtype=self.whole.dtype).view(self.whole.shape)
        whole = torch.mul(self.whole, self.decay, out=room)
        destination[prefix + "weight"] = whole.index_copy_(0, self.used, self.weight.detach())

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *more: Any) -> None:
        given = state_dict.get(prefix + "weight")
        if given is None or given.shape != self.whole.shape:
            more[2].append(prefix + "weight")  # the missing keys
            return
        self.whole, self.decay = given.detach().to(self.whole), 1.0
        with torch.no_grad():
            self.weight.copy_(self.whole[self.used])

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.whole, self.first, self.used, self.places = map(fn, (self.whole, self.first, self.used, self.places))
        return self


def used_tokens(network: nn.Module, batches: Iterable[Tensor]) -> Tensor | None:
    """Returns which rows of a network's word table some batches of tokens use, (U,), if those are not all.

    Args:
        network: of transformers, or of `torch_bert.py`.
        batches: tokens, of any shape.

    Returns:
        Their numbers; None where the table is not trained, is no plain table, is shared by several parts, or the head
        guesses words: then each row has a gradient, and training puts words in place of others.
    """
    try:
        plain = network.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:
        return None
    guesses_words: Any = network.get_output_embeddings()  # type: ignore[operator]
    if type(plain) is not nn.Embedding or not plain.weight.requires_grad or guesses_words is not None:
        return None
    if sum(one is plain.weight for _, one in network.named_parameters(remove_duplicate=False)) > 1:
        return None
    is_used = torch.zeros(len(plain.weight), dtype=torch.bool)
    for ids in batches:
        is_used[ids.flatten()] = True
    if plain.padding_idx is not None:
        is_used[plain.padding_idx] = True
    return None if bool(is_used.all()) else is_used.nonzero().flatten()


def num_parameters(network: nn.Module, used: Tensor | None) -> tuple[int, int]:
    """Returns how many parameters a network has, and how many are trained: of its word table those of used rows."""
    whole = sum(one.numel() for one in network.parameters())
    trained = sum(one.numel() for one in network.parameters() if one.requires_grad)
    if used is not None:
        table: Any = network.get_input_embeddings()  # type: ignore[operator]
        trained -= (len(table.weight) - len(used)) * table.weight.shape[1]
    return whole, trained


def train_used_rows(network: nn.Module, used: Tensor | None) -> UsedRows | None:
    """Has a network train these rows of its word table alone, as `used_tokens` gives them; it is changed in place."""
    if used is None:
        return None
    plain: Any = network.get_input_embeddings()  # type: ignore[operator]
    rows = UsedRows(plain, used)
    rows.train(plain.training)
    (place,) = (name for name, part in network.named_modules() if part is plain)
    network.set_submodule(place, rows)
    return rows
