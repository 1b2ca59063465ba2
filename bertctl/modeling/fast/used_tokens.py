"""The word table in training: only the rows of tokens that the training rows have are trained.

The others get no gradient, so AdamW would only multiply them by 1 - learning rate x decay in each
step. Of MiniLM's 30,522 rows a task of 600 texts has a tenth; their gradient, clipping and moments
are a third of a step's fixed cost.

Letters: V rows of the table, U used ones, C numbers of a row.
"""

import contextlib
import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from bertctl.arrays import in_a_file
from bertctl.modeling.stored_weights import tensors_in

_BLOCK = 2**12
"""Rows that are put together and written at once."""

_LARGE = 2**26
"""Bytes from which a table lies in a file."""


class StoredRows:
    """A word table in a file, (V, C) in fp32, of which only what is asked for is read.

    Nothing is kept in memory.
    """

    def __init__(self, rows: np.memmap[Any, Any]) -> None:
        self._rows = rows
        self.shape = torch.Size(rows.shape)

    def __getitem__(self, which: slice | Tensor) -> Tensor:
        """Returns copies of rows, (N, C)."""
        rows = torch.from_numpy(
            np.array(self._rows[which if isinstance(which, slice) else which.cpu().numpy()])
        )
        pages: Any = self._rows.base
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            pages.madvise(mmap.MADV_DONTNEED)  # those that were read count as ours otherwise
        return rows


def _kept(table: Tensor) -> Tensor | StoredRows:
    """Returns a table, in a file of its own if it is large and there is room.

    Few of its rows are asked for.
    """
    if table.is_cpu and table.nbytes >= _LARGE:
        with contextlib.suppress(OSError):
            return StoredRows(in_a_file(table.numpy()))
    return table


@dataclass(frozen=True)
class SavedRows:
    """A word table as it is saved: it is put together when it is written.

    Attributes:
        whole: (V, C) rows that are not trained.
        decay: what they are multiplied by.
        used: (U,) numbers of the rows that are trained.
        trained: (U, C) these.
    """

    whole: Tensor | StoredRows
    decay: float
    used: Tensor
    trained: Tensor

    def room(self) -> Tensor:
        """Returns zeros, (V, C), which take no memory as long as they are only read."""
        room = mmap.mmap(-1, 4 * self.whole.shape.numel(), access=mmap.ACCESS_COPY)
        return torch.frombuffer(room, dtype=torch.float32).view(self.whole.shape)

    def blocks(self) -> Iterable[Tensor]:
        """Yields all (V, C), some rows at a time."""
        used = self.used.cpu()
        for start in range(0, self.whole.shape[0], _BLOCK):
            block = self.whole[start : start + _BLOCK].cpu() * self.decay
            is_in_block = (used >= start) & (used < start + _BLOCK)
            yield block.index_copy_(0, used[is_in_block] - start, self.trained[is_in_block].cpu())


def save_with_tables(
    save: Callable[[dict[str, Tensor]], Any], weights: Mapping[str, Any], file: Path
) -> None:
    """Makes a library write weights, tensors or `SavedRows`, to a file.

    The latter are put in afterwards, block by block.

    Args:
        save: writes tensors by name.
        weights: by name.
        file: that it writes.
    """
    tables = {name: weight for name, weight in weights.items() if isinstance(weight, SavedRows)}
    save({**weights, **{name: weight.room() for name, weight in tables.items()}})
    for name, table in tables.items():
        with file.open("r+b") as out:
            out.seek(tensors_in(file)[name].first)
            for block in table.blocks():
                out.write(block.numpy().data)


class UsedRows(nn.Module):
    """Word table that trains only the (U, C) rows of the tokens in use.

    Its state dict has the whole (V, C) table.
    """

    def __init__(self, plain: nn.Embedding, used: Tensor) -> None:
        """Takes over a table.

        Args:
            plain: the table.
            used: (U,) numbers of the rows that are trained, in their order.
        """
        super().__init__()
        self.whole = self.first = _kept(plain.weight.detach())
        self.used = used
        self.weight = nn.Parameter(self.whole[used])
        self.places = torch.full((len(plain.weight),), -1).index_copy(
            0, used, torch.arange(len(used))
        )
        if plain.padding_idx is None:
            self.padding = None
        else:
            self.padding = int(self.places[plain.padding_idx])
        self.decay = 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Returns (..., C) rows of (...) tokens; in training of used ones only."""
        positions = self.places[ids]
        if self.training or bool((positions >= 0).all()):
            return functional.embedding(positions, self.weight, self.padding)
        rows = functional.embedding(positions.clamp(min=0), self.weight)
        rows[positions < 0] = self.whole[ids[positions < 0]].to(rows) * self.decay
        return rows

    def follow(self, optimizer: Optimizer) -> None:
        """Makes each step of an optimizer that decays the weight decay the other rows as much."""

        def decay(stepped_optimizer: Optimizer, *_: Any) -> None:
            # The group is looked up in each step: accelerate puts others in place of those that
            # were there.
            (group,) = (
                param_group
                for param_group in stepped_optimizer.param_groups
                if _has_parameter(param_group, self.weight)
            )
            if self.weight.grad is not None:  # a weight without one is left alone
                self.decay *= 1.0 - float(group["lr"]) * group["weight_decay"]

        optimizer.register_step_post_hook(decay)

    def go_on(self, decay: float) -> None:
        """Restores the other rows as they were after a part of the training.

        They are the rows of the start, decayed.
        """
        self.whole = self.first
        self.decay = decay

    def _save_to_state_dict(self, destination: Any, prefix: str, *_: Any) -> None:
        destination[prefix + "weight"] = SavedRows(
            self.whole, self.decay, self.used, self.weight.detach()
        )

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *more: Any) -> None:
        """Loads the whole table, saved as (V, C) or as `SavedRows`, and takes its used rows."""
        saved = state_dict.get(prefix + "weight")
        if isinstance(saved, SavedRows):
            self.whole = saved.whole
            self.decay = saved.decay
            rows = saved.trained
        elif saved is not None and saved.shape == self.whole.shape:
            if isinstance(saved, Tensor):
                self.whole = saved.to(self.places.device)
            else:
                self.whole = saved
            self.decay = 1.0
            rows = self.whole[self.used]
        else:
            more[2].append(prefix + "weight")  # the missing keys
            return
        with torch.no_grad():
            self.weight.copy_(rows)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.used = fn(self.used)
        self.places = fn(self.places)
        if isinstance(self.whole, Tensor):
            self.whole = fn(self.whole)
        if isinstance(self.first, Tensor):
            self.first = fn(self.first)
        return self


def used_tokens(network: nn.Module, batches: Iterable[Tensor]) -> Tensor | None:
    """Returns which rows of a network's word table some batches use, (U,); None if they use all.

    Args:
        network: of transformers, or of `torch_bert.py`.
        batches: tokens, of any shape.

    Returns:
        Their numbers; None where the table is not trained, is no plain table, is shared by several
        parts, or the head
        guesses words: then each row has a gradient, and training puts words in place of others.
    """
    try:
        plain = network.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:
        return None
    guesses_words: Any = network.get_output_embeddings()  # type: ignore[operator]
    if (
        type(plain) is not nn.Embedding
        or not plain.weight.requires_grad
        or guesses_words is not None
    ):
        return None
    if (
        sum(
            parameter is plain.weight
            for _, parameter in network.named_parameters(remove_duplicate=False)
        )
        > 1
    ):
        return None
    is_used = torch.zeros(len(plain.weight), dtype=torch.bool)
    for ids in batches:
        is_used[ids.flatten()] = True
    if plain.padding_idx is not None:
        is_used[plain.padding_idx] = True
    if bool(is_used.all()):
        return None
    return is_used.nonzero().flatten()


def stored_tables(network: nn.Module, file: Path) -> dict[str, StoredRows]:
    """Returns a network's word table in a file that was saved of it.

    There is one only if some rows of the table are trained.
    """
    names = {
        f"{name}.weight" for name, part in network.named_modules() if isinstance(part, UsedRows)
    }
    tables = {name: table for name, table in tensors_in(file).items() if name in names}
    return {
        name: StoredRows(
            np.memmap(
                file,
                "<f4",
                "r",
                table.first,
                table.shape,
            )
        )
        for name, table in tables.items()
    }


def num_parameters(network: nn.Module, used: Tensor | None) -> tuple[int, int, int]:
    """Returns how many parameters a network has.

    It also counts them without unused rows, and those that are trained.
    """
    total = sum(parameter.numel() for parameter in network.parameters())
    trained = sum(
        parameter.numel() for parameter in network.parameters() if parameter.requires_grad
    )
    unused = 0
    if used is not None:
        table: Any = network.get_input_embeddings()  # type: ignore[operator]
        unused = (len(table.weight) - len(used)) * table.weight.shape[1]
    return total, total - unused, trained - unused


def _has_parameter(group: Mapping[str, Any], weight: nn.Parameter) -> bool:
    """Returns whether a group of an optimizer has a weight."""
    return any(parameter is weight for parameter in group["params"])


def train_used_rows(network: nn.Module, used: Tensor | None) -> UsedRows | None:
    """Makes a network train these rows of its word table alone.

    `used_tokens` gives them. The network is changed in place.
    """
    if used is None:
        return None
    plain: Any = network.get_input_embeddings()  # type: ignore[operator]
    rows = UsedRows(plain, used)
    rows.train(plain.training)
    (place,) = (name for name, part in network.named_modules() if part is plain)
    network.set_submodule(place, rows)
    return rows
