"""Which files describe a network of `torch_bert.py`, and that network with their weights.

Whatever is not as those families have it (another activation, a decoder, a head of another kind,
weights that config.json does not describe) is left to transformers, which knows it or says what is
wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from bertctl.modeling.families import BARE, LOOKS_BACK, SIZES, family_of
from bertctl.modeling.fast.torch_bert import (
    FAMILIES,
    OF_TEXTS,
    OF_TOKENS,
    Encoder,
    Family,
    Network,
    Shares,
)
from bertctl.modeling.heads import keep_in_fp32
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import StoredTensor, stored_weights
from bertctl.modeling.tensors import align
from bertctl.modeling.transformers_internals import initialise

_USUAL = {
    "position_embedding_type": "absolute",
    **dict.fromkeys(("attn_implementation", "_attn_implementation"), "sdpa"),
    **dict.fromkeys((*LOOKS_BACK, "gradient_checkpointing"), False),
}
"""What config.json may say of a model that is as those of its family usually are, or leave out."""

_UNUSUAL = [("MultipleChoice", "electra")]
"""Heads with settings of their own."""

_TRUTHS = (
    "use_cache",
    "is_decoder",
    "add_cross_attention",
    "tie_word_embeddings",
    "sinusoidal_pos_embds",
    "summary_use_proj",
)
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Fields that change nothing here; transformers refuses other types than a truth, or than a whole
number or null."""

_USUAL_SIZES = tuple(names[0] for names in SIZES.values())


@dataclass(frozen=True)
class _Described:
    """What a model's files say of its network.

    Attributes:
        family: of it.
        config: its config.json.
        sizes: that this says, and `pad`.
        stored: the weights in the files.
        encoder_prefix: how the names of the encoder's begin.
    """

    family: Family
    config: Mapping[str, Any]
    sizes: Mapping[str, int]
    stored: Mapping[str, StoredTensor]
    encoder_prefix: str

    def encoder(self, shares: Shares, *, has_pooler: bool) -> Encoder:
        """Returns the encoder, its weights still to come."""
        return Encoder(
            self.family,
            self.config,
            self.sizes,
            shares,
            has_pooler=has_pooler,
        )

    def network(self, kind: str, shares: Shares) -> Network | None:
        """Returns the encoder under a head, its weights still to come.

        It is None of another kind of head.
        """
        if kind == "MultipleChoice":
            outputs = 1
        else:
            outputs = _outputs(self.config)
        if (
            not outputs
            or kind not in (*OF_TOKENS, *OF_TEXTS)
            or (kind, self.family.encoder) in _UNUSUAL
        ):
            return None
        has_pooler = self.family.reads_pooler(kind)
        return Network(
            encoder=self.encoder(shares, has_pooler=has_pooler),
            family=self.family,
            sizes=self.sizes,
            kind=kind,
            outputs=outputs,
            share=shares.head,
        )

    def stored_tensors(self, network: Encoder | Network) -> dict[str, StoredTensor | None]:
        """Returns the weight in the files of each parameter of a network.

        It is None where there is none of its shape.
        """
        tensors = {}
        for name, parameter in network.named_parameters():
            tensor = self.stored.get(self.stored_as(name, network))
            tensors[name] = (
                tensor if tensor is not None and tensor.shape == parameter.shape else None
            )
        return tensors

    def stored_as(self, name: str, network: Encoder | Network) -> str:
        """Returns what the files call a parameter of a network."""
        if isinstance(network, Network):
            prefix = f"{self.family.encoder}."
        else:
            prefix = ""
        if name.startswith(prefix):
            return self.encoder_prefix + name.removeprefix(prefix)
        return name


def _described(source: ModelSource, config: Mapping[str, Any]) -> _Described | None:
    """Returns what the files say, if it is as the family usually has it."""
    family = FAMILIES.get(family_of(config))
    if family is None:
        sizes = None
    else:
        sizes = _sizes(config, family)
    if family is None or sizes is None or not _is_plain(config, family):
        return None
    stored = stored_weights(source.folder)
    # These older names are left to transformers.
    if any(name.endswith((".gamma", ".beta")) for name in stored):
        return None
    prefix = f"{family.encoder}."
    return _Described(
        family,
        config,
        sizes,
        stored,
        prefix if any(name.startswith(prefix) for name in stored) else "",
    )


def read_network(source: ModelSource, auto_class: str) -> Encoder | Network | None:
    """Returns a model's network to answer with, on the CPU and in fp32.

    It is None where it is left to transformers.

    Args:
        source: the model's files.
        auto_class: name of the Auto class in transformers that has the head.

    Raises:
        UnavailableError: the weights can't be read.
    """
    description = _described(source, source.config)
    kind = auto_class.removeprefix("AutoModelFor")
    still = Shares()
    if description is None:
        return None
    with torch.device("meta"):
        if auto_class == BARE:
            has_pooler = (
                description.family.has_pooler
                and f"{description.encoder_prefix}pooler.dense.weight" in description.stored
            )
            network: Encoder | Network | None = description.encoder(still, has_pooler=has_pooler)
        else:
            is_saved_so = description.encoder_prefix and kind in str(
                source.config.get("architectures")
            )
            if is_saved_so:
                network = description.network(kind, still)
            else:
                network = None
    if network is None:
        tensors = {}
    else:
        tensors = description.stored_tensors(network)
    weights = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if network is None or len(weights) < len(tensors):
        return None
    if isinstance(network, Network):
        keep_in_fp32(network)
    _fill(network, weights)
    align(network)
    network.requires_grad_(requires_grad=False)
    return network.eval()


def network_to_train(
    source: ModelSource, auto_class: str, config: Mapping[str, Any]
) -> tuple[Encoder | Network, tuple[str, ...]] | None:
    """Returns a network on the CPU and in fp32, and its new weights by name.

    It is None where it is left to transformers.

    What the files lack of the pooler and of the head is drawn by torch's generator, as transformers
    does it.

    Args:
        source: the model's files.
        auto_class: name of the Auto class in transformers that has the head, or none.
        config: of the network as it is to be.

    Raises:
        UnavailableError: the weights can't be read.
    """
    description = _described(source, config)
    kind = auto_class.removeprefix("AutoModelFor")
    if description is None:
        shares = None
    else:
        shares = _shares(config, description.family, kind)
    deviation = config.get("initializer_range")
    if (
        description is None
        or shares is None
        or type(deviation) is not float
        or not _is_valid(source.config, description.family)
    ):
        return None
    network: Encoder | Network | None
    with torch.device("meta"):
        is_bare = auto_class == BARE
        if is_bare:
            network = description.encoder(shares, has_pooler=description.family.has_pooler)
        else:
            network = description.network(kind, shares)
    if network is None:
        tensors = {}
    else:
        tensors = description.stored_tensors(network)
    new_weights = [name for name, tensor in tensors.items() if tensor is None]
    prefix = f"{description.family.encoder}."
    encoder_prefix = "" if is_bare else prefix
    if network is None or any(
        name.startswith(encoder_prefix) and "pooler" not in name for name in new_weights
    ):
        return None
    modules = dict.fromkeys(name.rpartition(".")[0] for name in new_weights)
    halves = any(
        tensor is not None and name.rpartition(".")[0] in modules
        for name, tensor in tensors.items()
    )
    of_others = {description.stored_as(name, network) for name in tensors}
    elsewhere: set[str] = set()
    for name in new_weights:
        elsewhere |= {name, prefix + name, name.removeprefix(prefix)}
    elsewhere -= of_others
    # transformers keeps a half, and looks under either name
    if halves or elsewhere & description.stored.keys():
        return None
    _fill(
        network,
        {name: tensor for name, tensor in tensors.items() if tensor is not None},
        is_trained=True,
    )
    drawn = {name: torch.empty(network.get_parameter(name).shape) for name in new_weights}
    network.load_state_dict(drawn, strict=False, assign=True)
    for name in modules:
        initialise(network, network.get_submodule(name))
    network.requires_grad_(requires_grad=True)
    return network.eval(), tuple(new_weights)


def _sizes(config: Mapping[str, Any], family: Family) -> dict[str, int] | None:
    """Returns the sizes that config.json has to say.

    It is None where it leaves one to a class, or says one in two ways.
    """
    numbers = {size: config.get(name) for size, name in zip(SIZES, family.sizes, strict=True)}
    says_two = any(
        config.get(name, number) != number
        for name, number in zip(_USUAL_SIZES, numbers.values(), strict=True)
    )
    numbers["pad"] = config.get("pad_token_id")
    sizes = {
        size: number
        for size, number in numbers.items()
        if type(number) is int and (number > 0 or size == "pad")
    }
    if says_two or sizes.keys() != numbers.keys() or sizes["hidden"] % sizes["heads"]:
        return None
    return sizes


def _outputs(config: Mapping[str, Any]) -> int:
    """Returns how many answers config.json names; 0 where it does not say so in one way."""
    labels = config.get("id2label", {})
    if not isinstance(labels, dict) or not all(
        name.isdecimal() and str(int(name)) == name for name in labels
    ):
        return 0
    number = config.get("num_labels", len(labels) or 2)
    if type(number) is int and len(labels) in (0, number):
        return number
    return 0


def _is_plain(config: Mapping[str, Any], family: Family) -> bool:
    """Returns whether a model is as those of its family usually are."""
    epsilon = family.epsilon or config.get("layer_norm_eps")
    kinds = config.get("type_vocab_size")
    is_said = (
        type(epsilon) is float
        and epsilon > 0
        and (not family.has_segments or (type(kinds) is int and kinds > 0))
    )
    is_wide = family.encoder != "electra" or type(config.get("embedding_size")) is int
    is_usual = all(config.get(name) in (None, value) for name, value in _USUAL.items())
    is_changed = config.get("pruned_heads") or config.get("long_text")
    return (
        is_said
        and is_wide
        and is_usual
        and not is_changed
        and config.get(family.activation) == "gelu"
    )


def _is_valid(config: Mapping[str, Any], family: Family) -> bool:
    """Returns whether transformers would load a config.json.

    Only what the network's own checks don't see is looked at.
    """
    truths = all(type(config[name]) is bool for name in _TRUTHS if name in config)
    ids = all(type(config.get(name)) in (int, type(None)) for name in _IDS)
    return (
        truths
        and ids
        and bool(_outputs(config))
        and _is_plain({**config, "long_text": None}, family)
    )


def _shares(config: Mapping[str, Any], family: Family, kind: str) -> Shares | None:
    """Returns what the dropouts leave out in training, by config.json.

    It is None where it says so in an unusual way.
    """
    fields = [*family.dropouts, family.of_heads.get(kind)]
    shares = [0.0 if field is None else config.get(field[0], field[1]) for field in fields]
    if shares[-1] is None and fields[-1] == ("classifier_dropout", None):
        shares[-1] = shares[-2]
    if all(type(share) in (int, float) and 0 <= share < 1 for share in shares):
        return Shares(*shares)
    return None


def _fill(
    network: Encoder | Network, weights: Mapping[str, StoredTensor], *, is_trained: bool = False
) -> None:
    """Gives a network the weights of files.

    Weights that are trained are copied, since the file may be overwritten.
    """
    for file in {tensor.file for tensor in weights.values()}:
        with safe_open(file, framework="pt") as opened:
            for name, tensor in weights.items():
                if tensor.file == file:
                    # Mapping the file and copying would have the weight in memory twice.
                    if is_trained and tensor.dtype == "F32":
                        numbers = np.fromfile(file, "<f4", tensor.size, offset=tensor.first)
                        weight = torch.from_numpy(numbers).view(tensor.shape)
                    else:
                        weight = opened.get_tensor(tensor.name).to(torch.float32, copy=is_trained)
                    network.load_state_dict({name: weight}, strict=False, assign=True)
