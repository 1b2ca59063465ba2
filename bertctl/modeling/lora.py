"""LoRA: linear layers of the encoder learn an update of low rank.

The layers stay as they are, and each learns its update beside its weight. See Hu et al. 2021,
"LoRA: Low-Rank Adaptation of Large Language Models".

The parameters are named and computed as peft does it, DoRA (Liu et al. 2024) and rank-stabilised
scaling (Kalajdzievski 2023) included. In evaluation a layer computes with the merged weight, which
is what a finished run saves: its model answers alike to the last bit.

Letters: N tokens, D inputs, C outputs, R rank.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.config.recipe_sections import LoraSection
from bertctl.errors import UsageError
from bertctl.modeling.heads import head_test
from bertctl.modeling.tensors import copy_tensor
from bertctl.words import listing

ADAPTER = "adapter"
"""Folder with the adapter, in the folder of a model and later beside it."""

WEIGHTS = "adapter_model.safetensors"
"""File with the adapter's weights, as peft calls it."""

_PEFT_PREFIX = "base_model.model."
_PEFT_NAMES = {"lora_A": "lora_A.weight", "lora_B": "lora_B.weight"}

_NOT_IN_TRANSFORMERS = ("sentence_head", "window_pooling")
"""Parts of a network that its class in transformers does not have: they are saved with the model.
"""


class LoraLayer(nn.Module):
    """A frozen linear layer W with a trained update: W + scaling * B A.

    Args:
        plain: The layer whose place it takes, `nn.Linear` or the `Conv1D` of transformers.
        settings: Rank, alpha, dropout, and the variant.

    Attributes:
        weight: (C, D) of the plain layer; (D, C) of a `Conv1D`.
        bias: (C,) of the plain layer, or None.
        lora_A: (R, D), drawn by chance.
        lora_B: (C, R), zeros at first: the update begins as nothing.
        lora_magnitude_vector: (C,) lengths of the merged weight's rows (DoRA); None otherwise.
        scaling: Factor of the update.
        dropout: Share of the update's inputs that training leaves out.
        is_transposed: Whether the plain layer is a `Conv1D`.
    """

    def __init__(self, plain: nn.Module, settings: LoraSection) -> None:
        super().__init__()
        weight: Any = plain.weight
        bias: Any = plain.bias
        self.is_transposed = _is_conv1d(plain)
        if self.is_transposed:
            self.in_features, self.out_features = weight.shape
        else:
            self.out_features, self.in_features = weight.shape
        self.weight = weight
        self.bias = bias
        self.dropout = settings.dropout
        self.scaling = scaling_of(settings)
        rank = settings.rank or 0
        self.lora_A = nn.Parameter(torch.empty(rank, self.in_features))
        self.lora_B = nn.Parameter(torch.zeros(self.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.lora_magnitude_vector: nn.Parameter | None = None
        if settings.dora:
            lengths = torch.linalg.vector_norm(self._to_or_from_rows(weight.detach()), dim=1)
            self.lora_magnitude_vector = nn.Parameter(lengths)

    @property
    def is_plain_update(self) -> bool:
        """Whether training adds the update to W x and nothing else: no dropout, no magnitudes."""
        return self.dropout == 0.0 and self.lora_magnitude_vector is None

    def forward(self, x: Tensor) -> Tensor:
        """Returns the (..., C) outputs of (..., D) inputs, in evaluation by the merged weight."""
        if not self.training:
            state = dict(self.named_parameters(recurse=False))
            return functional.linear(x, self._to_or_from_rows(self.merge(state)), self.bias)

        outputs = functional.linear(x, self._to_or_from_rows(self.weight), self.bias)
        dropped = functional.dropout(x, self.dropout)
        update = functional.linear(functional.linear(dropped, self.lora_A), self.lora_B)
        update = update * self.scaling
        if self.lora_magnitude_vector is None:
            return outputs + update

        # Section 4.3 of the DoRA paper: the norm counts as a constant in the backward pass.
        factor = self.lora_magnitude_vector / self._norms(self.weight, self.lora_A, self.lora_B)
        # The factor scales the products with W as well, but not the bias.
        if self.dropout:
            products = functional.linear(dropped, self._to_or_from_rows(self.weight))
        elif self.bias is None:
            products = outputs
        else:
            products = outputs - self.bias
        scaled: Tensor = outputs + (factor - 1) * products + factor * update
        return scaled.to(outputs.dtype)

    @torch.no_grad()
    def merge(self, state: Mapping[str, Tensor]) -> Tensor:
        """Returns the merged weight, in the plain layer's layout and precision.

        The layout is (C, D), or (D, C) if the plain layer is a `Conv1D`.

        Args:
            state: The layer's weights by name.
        """
        weight_CD = self._to_or_from_rows(state["weight"])
        update = _update(state["lora_A"], state["lora_B"], self.scaling)
        merged = weight_CD + update
        magnitude = state.get("lora_magnitude_vector")
        if magnitude is not None:
            norms = torch.linalg.vector_norm(merged, dim=1)
            merged = merged * (magnitude / norms)[:, None]
        return self._to_or_from_rows(merged)

    def _to_or_from_rows(self, weight: Tensor) -> Tensor:
        """Converts a weight from the plain layer's layout to (C, D), or back.

        The two differ only for a `Conv1D`, and transposing works in both directions.
        """
        if self.is_transposed:
            return weight.T
        return weight

    @torch.no_grad()
    def _norms(self, weight: Tensor, down: Tensor, up: Tensor) -> Tensor:
        """Returns (C,) lengths of the rows of W + scaling * B A."""
        merged = self._to_or_from_rows(weight) + _update(down, up, self.scaling)
        norms: Tensor = torch.linalg.vector_norm(merged, dim=1)
        return norms


def scaling_of(settings: LoraSection) -> float:
    """Returns the factor of the update: alpha / rank, or alpha / sqrt(rank) with rsLoRA."""
    rank = settings.rank or 1
    if settings.rslora:
        return settings.alpha_in_use / math.sqrt(rank)
    return settings.alpha_in_use / rank


def _update(down: Tensor, up: Tensor, scaling: float) -> Tensor:
    """Returns scaling * B A, (C, D), whatever precision the network computes in."""
    with torch.autocast(down.device.type, enabled=False):
        return (up @ down) * scaling


@dataclass(frozen=True)
class LoraParts:
    """Which parts of a network LoRA trains.

    Attributes:
        target_modules: Names of the linear layers that get an update.
        modules_to_save: Names of the modules that are trained as they are: the head, and what was
            drawn by chance in the encoder.
    """

    target_modules: tuple[str, ...]
    modules_to_save: tuple[str, ...]


def use_lora(
    network: nn.Module,
    settings: LoraSection,
    *,
    new_weights: Collection[str] = (),
    left_out: Collection[str] = (),
) -> LoraParts:
    """Puts LoRA layers into a network, in place, and freezes what it does not train.

    Args:
        network: A network with or without a head, on the CPU.
        settings: Rank, targets, and so on.
        new_weights: Names of weights that were drawn by chance: the layers that have them are
            trained whole.
        left_out: Names of weights whose layers get no update, because they are to stay frozen.

    Raises:
        UsageError: No linear layer fits.
    """
    parts = _choose_parts(network, settings, new_weights, left_out)
    for name in parts.target_modules:
        layer = LoraLayer(network.get_submodule(name), settings)
        layer.train(network.training)
        network.set_submodule(name, layer)
    is_head = head_test(network)
    trained_whole = {f"{name}." for name in parts.modules_to_save}
    for name, parameter in network.named_parameters():
        is_update = name.rpartition(".")[2].startswith("lora_")
        is_whole = is_head(name) or any(name.startswith(prefix) for prefix in trained_whole)
        if not (is_update or is_whole):
            parameter.requires_grad_(False)
    return parts


def _choose_parts(
    network: nn.Module,
    settings: LoraSection,
    new_weights: Collection[str],
    left_out: Collection[str],
) -> LoraParts:
    """Returns which layers get an update, and which modules are trained as they are.

    Args:
        network: The network, before LoRA.
        settings: Rank, targets, and so on.
        new_weights: Names of weights that were drawn by chance.
        left_out: Names of weights whose layers get no update.

    Raises:
        UsageError: No linear layer fits.
    """
    is_head = head_test(network)
    is_bare = not any(is_head(name) for name, _ in network.named_parameters())
    own_parts = tuple(f"{name}." for name in _NOT_IN_TRANSFORMERS)
    linear: list[str] = []
    modules_to_save: list[str] = []
    for name, module in network.named_modules():
        has_weights = any(True for _ in module.parameters())
        if not name or not has_weights or f"{name}.".startswith(own_parts):
            continue
        is_new = any(
            f"{name}.{weight}" in new_weights
            for weight, _ in module.named_parameters(recurse=False)
        )
        if is_head(f"{name}."):
            # The outermost module of the head stands for those in it.
            if "." not in name:
                modules_to_save.append(name)
        elif is_new:
            modules_to_save.append(name)
        elif _is_linear(module) and f"{name}.weight" not in left_out:
            linear.append(name)
    # A bare encoder's vectors are made of its states, and its pooler is not read.
    usable = [name for name in linear if not (is_bare and "pooler" in name)]
    target_modules = [name for name in usable if _is_targeted(name, settings.targets)]
    # An update of the pooler alone would leave all layers of the encoder as they are.
    if all("pooler" in name for name in target_modules):
        raise UsageError(_misfit(network, settings.targets), remedy=_fitting(usable))
    return LoraParts(target_modules=tuple(target_modules), modules_to_save=tuple(modules_to_save))


def _is_targeted(name: str, targets: Collection[str]) -> bool:
    """Returns whether a layer is among those that the recipe names, by the end of its name."""
    return not targets or any(f".{name}".endswith(f".{target}") for target in targets)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_conv1d(module)


def _is_conv1d(module: nn.Module) -> bool:
    """Returns whether a module is the linear layer of GPT-2 in transformers."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _misfit(network: nn.Module, targets: Sequence[str]) -> str:
    """Returns the message for a network without a linear layer that LoRA can adapt."""
    family = str(getattr(network.config, "model_type", "this family"))
    if targets:
        return f"lora.targets: no trained linear layer of {family} is called {listing(targets)}"
    return f"lora.rank: the layers of {family} have no linear layer that LoRA can adapt"


def _fitting(names: Collection[str]) -> str:
    """Returns the remedy: what the linear layers with these names in the network are called."""
    last_parts = sorted({name.rpartition(".")[2] for name in names if "pooler" not in name})
    if last_parts:
        return f"They are called {listing(last_parts)}; leave `lora.targets=` out for all of them."
    return "Leave `lora.rank=` out, or choose another model."


def lora_layers(network: nn.Module) -> dict[str, LoraLayer]:
    """Returns a network's LoRA layers by name."""
    return {
        name: module for name, module in network.named_modules() if isinstance(module, LoraLayer)
    }


def merged_state(network: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the weights of a network as its class in transformers has them: updates are merged.

    Args:
        network: A network with or without LoRA layers.
        state: All weights by name.
    """
    merged = dict(state)
    for name, layer in lora_layers(network).items():
        own_names = [own_name for own_name, _ in layer.named_parameters(recurse=False)]
        own_state = {own_name: merged.pop(f"{name}.{own_name}") for own_name in own_names}
        merged[f"{name}.weight"] = layer.merge(own_state)
        if layer.bias is not None:
            merged[f"{name}.bias"] = own_state["bias"]
    return {name: merged[name] for name in _in_order(state, merged)}


def _in_order(state: Mapping[str, Any], merged: Mapping[str, Any]) -> list[str]:
    return [name for name in state if name in merged]


class Adapter:
    """The adapter of a network with LoRA layers: what it holds, and its folder as peft has it.

    Args:
        settings: LoRA's settings in the recipe.
        parts: What is trained.
        base: Name of the model that it was trained on.
    """

    def __init__(self, settings: LoraSection, parts: LoraParts, base: str) -> None:
        self.settings = settings
        self.parts = parts
        self._base = base

    def save(self, network: nn.Module, state: Mapping[str, Any], folder: Path) -> None:
        """Writes the adapter's folder, with the head in it.

        Args:
            network: A network with LoRA layers.
            state: All weights by name.
            folder: Folder of the adapter, which is made here.
        """
        from peft import LoraConfig
        from safetensors.torch import save_file

        # The field of peft is a whole number.
        alpha = self.settings.alpha_in_use
        fields: dict[str, Any] = {"lora_alpha": int(alpha) if alpha.is_integer() else alpha}
        config = LoraConfig(
            r=self.settings.rank or 0,
            lora_dropout=self.settings.dropout,
            target_modules=list(self.parts.target_modules),
            modules_to_save=list(self.parts.modules_to_save) or None,
            use_rslora=self.settings.rslora,
            use_dora=self.settings.dora,
            fan_in_fan_out=any(layer.is_transposed for layer in lora_layers(network).values()),
            base_model_name_or_path=self._base,
            inference_mode=True,
            **fields,
        )
        folder.mkdir()
        config.save_pretrained(str(folder))
        file = folder / "adapter_config.json"
        document = json.loads(file.read_text(encoding="utf-8"))
        for name in ("target_modules", "modules_to_save"):  # peft keeps the first one as a set
            document[name] = document[name] and sorted(document[name])
        file.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        tensors = {_peft_name(name): copy_tensor(state[name]) for name in self._names(state)}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    def load(self, state: Mapping[str, Any], folder: Path) -> dict[str, Tensor]:
        """Returns the weights that `save` wrote, by their names in the network.

        Args:
            state: Weights of the network by name.
            folder: The adapter's.
        """
        from safetensors.torch import load_file

        tensors = load_file(folder / WEIGHTS)
        return {name: tensors[_peft_name(name)] for name in self._names(state)}

    def _names(self, state: Mapping[str, Any]) -> list[str]:
        """Returns which weights of a network are the adapter's."""
        prefixes = tuple(f"{name}." for name in self.parts.modules_to_save)
        return [
            name
            for name in state
            if name.rpartition(".")[2].startswith("lora_") or name.startswith(prefixes)
        ]


def _peft_name(name: str) -> str:
    """Returns what peft calls a weight of a network in the adapter's file."""
    module, _, last = name.rpartition(".")
    return f"{_PEFT_PREFIX}{module}.{_PEFT_NAMES.get(last, last)}"
