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
    """A word table in a file, (V, C) in fp32. An index reads some rows and keeps nothing in memory.

    Args:
        rows: (V, C), mapped from the file.

    Attributes:
        shape: V, C.
    """

    def __init__(self, rows: np.memmap[Any, Any]) -> None:
        self._rows = rows
        self.shape = torch.Size(rows.shape)

    def __getitem__(self, which: slice | Tensor) -> Tensor:
        """Returns copies of N rows, (N, C).

        Args:
            which: Slice of rows, or (N,) their numbers.
        """
        index = which if isinstance(which, slice) else which.cpu().numpy()
        rows = torch.from_numpy(np.array(self._rows[index]))
        # Pages that were read count as memory of this process until they are given back.
        pages: Any = self._rows.base
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            pages.madvise(mmap.MADV_DONTNEED)
        return rows


def _kept(table: Tensor) -> Tensor | StoredRows:
    """Returns a (V, C) table, moved to a temporary file if it is large and on the CPU.

    It stays in memory if the disk has no room. Few of its rows are read again during the training.
    """
    if table.is_cpu and table.nbytes >= _LARGE:
        with contextlib.suppress(OSError):
            return StoredRows(in_a_file(table.numpy()))
    return table


@dataclass(frozen=True)
class SavedRows:
    """A word table of which some rows were trained, put together only when it is written.

    Attributes:
        whole: (V, C) rows as they were before the training.
        decay: What the rows that were not trained are multiplied by.
        used: (U,) numbers of the trained rows.
        trained: (U, C) trained rows.
    """

    whole: Tensor | StoredRows
    decay: float
    used: Tensor
    trained: Tensor

    def room(self) -> Tensor:
        """Returns (V, C) zeros in fp32, which take no memory as long as they are only read."""
        n_bytes = 4 * self.whole.shape.numel()
        room = mmap.mmap(-1, n_bytes, access=mmap.ACCESS_COPY)
        return torch.frombuffer(room, dtype=torch.float32).view(self.whole.shape)

    def blocks(self) -> Iterable[Tensor]:
        """Yields the V rows of the table in order, `_BLOCK` at a time, decayed or trained."""
        used = self.used.cpu()
        for start in range(0, self.whole.shape[0], _BLOCK):
            block = self.whole[start : start + _BLOCK].cpu() * self.decay
            is_in_block = (used >= start) & (used < start + _BLOCK)
            yield block.index_copy_(0, used[is_in_block] - start, self.trained[is_in_block].cpu())


def save_with_tables(
    save: Callable[[dict[str, Tensor]], Any], weights: Mapping[str, Any], file: Path
) -> None:
    """Writes weights to a safetensors file through a library that only knows tensors.

    The library writes zeros for each `SavedRows`. Its rows are then written over them, block by
    block, so that the whole table is never in memory.

    Args:
        save: Writes tensors by name to `file`.
        weights: Tensors and `SavedRows` by name.
        file: The file that `save` writes.
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

    AdamW would multiply the other rows by a decay in each step. Here they stay as they are, and the
    product of all decays is one number. The state dict has the whole (V, C) table.

    Args:
        plain: The table that this one replaces.
        used: (U,) numbers of the rows that are trained, ascending.

    Attributes:
        weight: (U, C) trained rows.
        used: (U,) their numbers in the table.
        places: (V,) number of each row of the table in `weight`; -1 for rows that are not trained.
        padding: Number in `weight` of the padding token's row, which gets no gradient.
        whole: (V, C) the table as it was loaded last.
        first: (V, C) the table at the start of the training.
        decay: What the rows of `whole` that are not trained are to be multiplied by.
    """

    def __init__(self, plain: nn.Embedding, used: Tensor) -> None:
        super().__init__()
        # The whole table, as it was loaded last and at the start: at first both are the same.
        # A large table is a `StoredRows` in a file, no tensor.
        self.whole = self.first = _kept(plain.weight.detach())
        self.used = used
        self.weight = nn.Parameter(self.whole[used])
        # The place of each row of the table in `weight`, -1 if it isn't trained.
        self.places = torch.full((len(plain.weight),), -1).index_copy(
            0, used, torch.arange(len(used))
        )
        if plain.padding_idx is None:
            self.padding = None
        else:
            self.padding = int(self.places[plain.padding_idx])
        self.decay = 1.0  # no step has been taken yet

    def forward(self, ids: Tensor) -> Tensor:
        """Returns (..., C) rows of (...) tokens.

        In training all tokens must be used ones. Other texts, such as those of the test split, may
        have any.
        """
        positions = self.places[ids]
        if self.training or bool((positions >= 0).all()):
            return functional.embedding(positions, self.weight, self.padding)
        # A token whose row is not trained gets the trained row 0 first, and its own row below.
        rows = functional.embedding(positions.clamp(min=0), self.weight)
        is_untrained = positions < 0
        rows[is_untrained] = self.whole[ids[is_untrained]].to(rows) * self.decay
        return rows

    def follow(self, optimizer: Optimizer) -> None:
        """Registers a hook with an optimizer, so that its steps decay the rows not trained as well.

        Args:
            optimizer: AdamW with this module's `weight` in one of its groups.
        """

        def decay(stepped_optimizer: Optimizer, *_: Any) -> None:
            """Multiplies `self.decay` by the decay of the step that was just taken."""
            # The group is looked up in each step, as accelerate replaces an optimizer's groups.
            (group,) = (
                param_group
                for param_group in stepped_optimizer.param_groups
                if _has_parameter(param_group, self.weight)
            )
            if self.weight.grad is not None:  # a weight without one is left alone
                self.decay *= 1.0 - float(group["lr"]) * group["weight_decay"]

        optimizer.register_step_post_hook(decay)

    def go_on(self, decay: float) -> None:
        """Restores the rows that are not trained as they were at a checkpoint.

        They are the rows from the start of the training, decayed.

        Args:
            decay: Product of the decays until the checkpoint.
        """
        self.whole = self.first
        self.decay = decay

    def _save_to_state_dict(self, destination: Any, prefix: str, *_: Any) -> None:
        """Adds the whole table to a state dict, as a `SavedRows` in place of a tensor."""
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
            else:  # `StoredRows`, which stay in their file
                self.whole = saved
            self.decay = 1.0
            rows = self.whole[self.used]
        else:
            # Torch's further arguments begin with metadata, `strict` and the list of missing keys.
            more[2].append(prefix + "weight")
            return
        with torch.no_grad():
            self.weight.copy_(rows)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Applies a change of device or dtype to all tensors, also those that are no parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.used = fn(self.used)
        self.places = fn(self.places)
        # A large table is a `StoredRows`, which stays in its file.
        if isinstance(self.whole, Tensor):
            self.whole = fn(self.whole)
        if isinstance(self.first, Tensor):
            self.first = fn(self.first)
        return self


def used_tokens(network: nn.Module, batches: Iterable[Tensor]) -> Tensor | None:
    """Returns (U,) the numbers of the rows of a network's word table that some batches use.

    None if all rows are used, or if the table can't be replaced by a `UsedRows`: it is frozen, no
    plain table, shared by several modules, or the head predicts words. In the last case each row
    has a gradient, and training replaces words by others.

    Args:
        network: A network of transformers, or of `torch_bert.py`.
        batches: Token ids, of any shape. They are read only if the table can be replaced.
    """
    try:
        plain = network.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:
        return None
    word_head: Any = network.get_output_embeddings()  # type: ignore[operator]
    if type(plain) is not nn.Embedding or not plain.weight.requires_grad or word_head is not None:
        return None
    parameters = network.named_parameters(remove_duplicate=False)
    n_uses = sum(parameter is plain.weight for _, parameter in parameters)
    if n_uses > 1:
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
    """Returns the word table in a file of weights, to be read row by row.

    The key is the parameter's name. Empty if the network trains its whole word table, not only the
    rows of the tokens in use.

    Args:
        network: The network, with a `UsedRows` as its word table if only some rows are trained.
        file: Weights of the network, saved in fp32 by safetensors.
    """
    names = {
        f"{name}.weight" for name, part in network.named_modules() if isinstance(part, UsedRows)
    }
    tables = {name: table for name, table in tensors_in(file).items() if name in names}
    return {
        name: StoredRows(
            np.memmap(
                file,
                dtype="<f4",
                mode="r",
                offset=table.first,
                shape=table.shape,
            )
        )
        for name, table in tables.items()
    }


def num_parameters(network: nn.Module, used: Tensor | None) -> tuple[int, int, int]:
    """Returns the numbers of all parameters, of those in memory, and of those that are trained.

    Args:
        network: The network, before `train_used_rows` has replaced its word table.
        used: (U,) rows of the word table that will be trained, as texts use them. The other rows
            are neither trained nor in memory. None if the word table stays whole.
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
    """Makes a network train only some rows of its word table, and returns the new table.

    Args:
        network: Changed in place.
        used: (U,) numbers of these rows, from `used_tokens`. If it is None, the whole table is
            trained, and None is returned.
    """
    if used is None:
        return None
    plain: Any = network.get_input_embeddings()  # type: ignore[operator]
    rows = UsedRows(plain, used)
    rows.train(plain.training)
    (place,) = (name for name, part in network.named_modules() if part is plain)
    network.set_submodule(place, rows)
    return rows
