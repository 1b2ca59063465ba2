"""A model ready to compute: its network, its tokenizer, and the one way it is saved."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from bertctl.modeling.tensors import copy_tensor
from bertctl.runtime.batching import Padding
from bertctl.writing import failures_of, replacing

if TYPE_CHECKING:
    from torch import nn

    from bertctl.modeling.lora import Adapter


@dataclass
class Model:
    """A model ready to compute.

    Attributes:
        network: The transformers model with its head, or one of `torch_bert.py`; on the CPU until
            something moves it.
        tokenizer: The library's tokenizer, truncation and padding off.
        saved_tokenizer: What is saved beside the model: transformers' tokenizer, or one of
            `bert_to_train.py`; None where it is only read.
        padding: How texts of a batch are padded.
        has_segments: Whether the family takes token type ids.
        cls_id: Id of the token that stands for a text; None where there is none.
        new_weights: Names of weights that were not in the model's files, so that they were drawn by
            chance.
        frozen: Names of the parameters that a training run leaves as they are.
        adapter: What LoRA trains; None where it is not used.
    """

    network: "nn.Module"
    tokenizer: Tokenizer
    saved_tokenizer: Any
    padding: Padding
    has_segments: bool
    cls_id: int | None = None
    new_weights: tuple[str, ...] = ()
    frozen: frozenset[str] = frozenset()
    adapter: "Adapter | None" = None

    def trainable_parameters(self) -> "dict[str, nn.Parameter]":
        """Returns the parameters that training changes, by name."""
        return {
            name: parameter
            for name, parameter in self.network.named_parameters()
            if parameter.requires_grad
        }

    def trainable_state(self) -> dict[str, Any]:
        """Returns the weights that a training run changes, by name; tied weights are there once.

        Checkpoints, the best weights and their average consist of these weights. They are tensors
        that share the network's memory. A word table that trains only some of its rows is a
        `SavedRows` instead.
        """
        return {name: weight for name, weight in self._weights().items() if name not in self.frozen}

    def copy_weights(self) -> dict[str, Any]:
        """Returns copies of the weights that a training run changes, in host memory, by name.

        If only some rows of a word table are trained (a `SavedRows`), only these are copied.
        """
        from bertctl.modeling.fast.used_tokens import SavedRows

        copies: dict[str, Any] = {}
        for name, weight in self.trainable_state().items():
            if isinstance(weight, SavedRows):
                copies[name] = replace(weight, trained=copy_tensor(weight.trained))
            else:
                copies[name] = copy_tensor(weight)
        return copies

    def _weights(self) -> dict[str, Any]:
        """Returns all weights by name; tied weights are there once, by the first of their names.

        They are tensors, but for a word table of which only some rows are trained: that is a
        `SavedRows`, and its trained rows are the tensor `trained`.
        """
        from bertctl.modeling.fast.used_tokens import SavedRows

        weights: dict[str, Any] = {}
        data_pointers: set[int] = set()
        for name, weight in self.network.state_dict().items():
            if isinstance(weight, SavedRows):
                tensor = weight.trained
            else:
                tensor = weight
            # Empty tensors share the address 0, though they are not tied.
            is_empty = not tensor.numel()
            if tensor.data_ptr() not in data_pointers or is_empty:
                weights[name] = weight
            data_pointers.add(tensor.data_ptr())
        return weights

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Puts copied weights back into the network.

        Raises:
            RuntimeError: Weights of another network.
        """
        self.network.load_state_dict(weights, strict=False)  # tied weights stand there once

    def save(self, folder: Path, *, weights: Mapping[str, Any] | None = None) -> None:
        """Writes config, tokenizer and weights as `save_pretrained` lays them out.

        Each file is replaced atomically.

        A full disk leaves the files of the last save as they were. With LoRA the weights are
        merged, and a folder within has the adapter.

        Args:
            folder: Folder that is written.
            weights: A trainable state in place of the network's.

        Raises:
            UnavailableError: The disk is full, or the place can't be written.
        """
        from bertctl.modeling.fast.used_tokens import save_with_tables
        from bertctl.modeling.heads import score_heads
        from bertctl.modeling.lora import ADAPTER, merged_state
        from bertctl.modeling.sentence_head import save_head, sentence_head

        network: Any = self.network
        state: dict[str, Any]
        if weights is None:
            state = network.state_dict()
        else:
            state = {**self._weights(), **weights}
        # A head of scores trains standardised ones. The file gets weights that give the scores
        # themselves, as plain transformers would load them.
        for name, head in score_heads(network).items():
            state = head.folded(state, name)
        # The adapter is saved from the weights before they are merged.
        if self.adapter is None:
            unmerged_state = None
        else:
            unmerged_state = state
            state = merged_state(network, state)
        with replacing(folder) as aside:
            with failures_of(folder / "model.safetensors", replaced=True):
                sentences = sentence_head(self.network)
                if sentences is not None:
                    aside.mkdir()
                    # The head goes into folders of its own, as sentence-transformers has them; the
                    # encoder's weights are left.
                    state = save_head(sentences, aside, state)
                save_with_tables(
                    lambda tensors: network.save_pretrained(aside, state_dict=tensors),
                    state,
                    aside / "model.safetensors",
                )
            self.saved_tokenizer.save_pretrained(aside)
            if self.adapter is not None and unmerged_state is not None:
                self.adapter.save(network, unmerged_state, aside / ADAPTER)
            # safetensors makes files that only the owner may read, whatever the umask says.
            for path in aside.rglob("*.safetensors"):
                shutil.copymode(aside / "config.json", path)

    def load(self, folder: Path) -> None:
        """Loads the weights that `save` wrote to a folder into the network, in place.

        With an adapter, only its weights are read: the others were not trained.
        """
        from safetensors.torch import load_file

        from bertctl.modeling.fast.torch_bert import Encoder, Network
        from bertctl.modeling.fast.used_tokens import stored_tables
        from bertctl.modeling.heads import score_heads
        from bertctl.modeling.lora import ADAPTER
        from bertctl.modeling.sentence_head import saved_head
        from bertctl.modeling.window_pooling import saved_query

        network_class: Any = type(self.network)
        saved: Mapping[str, Any]
        if self.adapter is not None:
            frozen = self.network.state_dict()
            saved = {**frozen, **self.adapter.load(frozen, folder / ADAPTER)}
        elif network_class in (Encoder, Network):
            file = folder / "model.safetensors"
            # A word table of which only some rows are trained stays in its file.
            saved = {**load_file(file), **stored_tables(self.network, file)}
        else:
            # Transformers knows which tied weights are in the file only once, and which weights
            # have another name there.
            saved = network_class.from_pretrained(
                folder, use_safetensors=True, dtype="float32"
            ).state_dict()
        extra = saved_query(folder) | saved_head(self.network, folder)
        self.network.load_state_dict({**saved, **extra}, strict=True)
        # Saved weights give the scores themselves, not standardised ones.
        for head in score_heads(self.network).values():
            head.take_folded()
