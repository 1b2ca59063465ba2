"""Which files describe a network of `torch_bert.py`, and that network with their weights.

Whatever is not as those families have it (another activation, a decoder, a head of another kind,
weights that config.json does not describe) is left to transformers, which knows it or says what is
wrong.
"""

from collections.abc import Mapping, Sequence
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
    """Description of a network by a model's files.

    Attributes:
        family: Family of the network.
        config: Content of its config.json.
        sizes: The sizes in it, by the names of `SIZES`, and `pad`, the id of the padding token.
        stored: The weights in the files, by name.
        encoder_prefix: How the names of the encoder's weights begin in the files, such as `bert.`;
            empty if only an encoder was saved.
    """

    family: Family
    config: Mapping[str, Any]
    sizes: Mapping[str, int]
    stored: Mapping[str, StoredTensor]
    encoder_prefix: str

    def encoder(self, shares: Shares, *, has_pooler: bool) -> Encoder:
        """Returns the encoder without weights, to be filled by `_fill`."""
        return Encoder(
            self.family,
            self.config,
            self.sizes,
            shares,
            has_pooler=has_pooler,
        )

    def network(self, kind: str, shares: Shares) -> Network | None:
        """Returns the encoder under a head, without weights, to be filled by `_fill`.

        None if the head is none of `torch_bert.py`, or config.json doesn't name its outputs.

        Args:
            kind: Kind of the head, such as `SequenceClassification`.
            shares: Probabilities of the dropouts.
        """
        if kind == "MultipleChoice":
            outputs = 1
        else:
            outputs = _outputs(self.config)
        is_known = kind in (*OF_TOKENS, *OF_TEXTS)
        is_unusual = (kind, self.family.encoder) in _UNUSUAL
        if not outputs or not is_known or is_unusual:
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
        """Returns the weight in the files for each parameter of a network, by the parameter's name.

        None where the files have no such weight, or one of another shape.
        """
        tensors: dict[str, StoredTensor | None] = {}
        for name, parameter in network.named_parameters():
            tensor = self.stored.get(self.stored_as(name, network))
            tensors[name] = None
            if tensor is not None and tensor.shape == parameter.shape:
                tensors[name] = tensor
        return tensors

    def stored_as(self, name: str, network: Encoder | Network) -> str:
        """Returns the name in the files of a parameter of a network.

        Args:
            name: Name of the parameter in the network.
            network: An encoder, or one under a head. The files may have either.
        """
        if isinstance(network, Network):
            prefix = f"{self.family.encoder}."
        else:
            prefix = ""
        if name.startswith(prefix):
            return self.encoder_prefix + name.removeprefix(prefix)
        return name


def _described(source: ModelSource, config: Mapping[str, Any]) -> _Described | None:
    """Returns the description of a network, None if it is none of `torch_bert.py`.

    Args:
        source: The model's files.
        config: Config of the network; it differs from the files' config.json if the head is new.
    """
    family = FAMILIES.get(family_of(config))
    if family is None or not _is_plain(config, family):
        return None
    sizes = _sizes(config, family)
    if sizes is None:
        return None
    stored = stored_weights(source.folder)
    # Transformers renames these old names of weights.
    if any(name.endswith((".gamma", ".beta")) for name in stored):
        return None
    prefix = f"{family.encoder}."
    has_prefix = any(name.startswith(prefix) for name in stored)
    return _Described(
        family=family,
        config=config,
        sizes=sizes,
        stored=stored,
        encoder_prefix=prefix if has_prefix else "",
    )


def read_network(source: ModelSource, auto_class: str) -> Encoder | Network | None:
    """Returns a model's network for inference, on the CPU and in fp32.

    None if it is none of `torch_bert.py`, or if the files lack any of its weights. Transformers
    loads it then, or says what is wrong.

    Args:
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the head.

    Raises:
        UnavailableError: The weights can't be read.
    """
    description = _described(source, source.config)
    if description is None:
        return None
    with torch.device("meta"):
        network = _network_as_saved(description, auto_class)
    if network is None:
        return None
    weights = {}
    for name, tensor in description.stored_tensors(network).items():
        if tensor is None:
            return None
        weights[name] = tensor
    if isinstance(network, Network):
        keep_in_fp32(network)
    _fill(network, weights)
    align(network)
    network.requires_grad_(requires_grad=False)
    return network.eval()


def _network_as_saved(description: _Described, auto_class: str) -> Encoder | Network | None:
    """Returns the network that an Auto class loads, without weights or dropout.

    None if the files have another head than the Auto class.
    """
    no_dropout = Shares()
    if auto_class == BARE:
        has_pooler = (
            description.family.has_pooler
            and f"{description.encoder_prefix}pooler.dense.weight" in description.stored
        )
        return description.encoder(no_dropout, has_pooler=has_pooler)
    kind = auto_class.removeprefix("AutoModelFor")
    has_this_head = kind in str(description.config.get("architectures"))
    if not description.encoder_prefix or not has_this_head:
        return None
    return description.network(kind, no_dropout)


def network_to_train(
    source: ModelSource, auto_class: str, config: Mapping[str, Any]
) -> tuple[Encoder | Network, tuple[str, ...]] | None:
    """Returns a network on the CPU and in fp32, and the names of its new weights.

    The files may lack weights of the pooler and of the head. These are drawn by torch's generator,
    as transformers does it.

    None if only transformers can load the model: `torch_bert.py` has no such network, or it isn't
    certain which weights of it are in the files.

    Args:
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the head.
        config: Config of the network to be trained, with the fields of a new head.

    Raises:
        UnavailableError: The weights can't be read.
    """
    description = _described(source, config)
    if description is None:
        return None
    kind = auto_class.removeprefix("AutoModelFor")
    dropout_shares = _shares(config, description.family, kind)
    has_deviation = type(config.get("initializer_range")) is float  # of new weights
    if (
        dropout_shares is None
        or not has_deviation
        or not _is_valid(source.config, description.family)
    ):
        return None
    network: Encoder | Network | None
    with torch.device("meta"):
        if auto_class == BARE:
            network = description.encoder(dropout_shares, has_pooler=description.family.has_pooler)
        else:
            network = description.network(kind, dropout_shares)
    if network is None:
        return None

    weights = {}  # those in the files
    new_weights = []
    for name, tensor in description.stored_tensors(network).items():
        if tensor is None:
            new_weights.append(name)
        else:
            weights[name] = tensor
    new_modules = dict.fromkeys(_module_of(name) for name in new_weights)  # each once, in order
    # Below, a module is drawn as a whole. Transformers would keep its weight if only its bias is
    # new.
    has_half_module = any(_module_of(name) in new_modules for name in weights)
    if (
        _lacks_encoder_weight(network, description.family, new_weights)
        or has_half_module
        or _has_other_names(description, network, new_weights)
    ):
        return None

    _fill(network, weights, is_trained=True)
    drawn = {name: torch.empty(network.get_parameter(name).shape) for name in new_weights}
    network.load_state_dict(drawn, strict=False, assign=True)
    for module in new_modules:
        initialise(network, network.get_submodule(module))
    network.requires_grad_(requires_grad=True)
    return network.eval(), tuple(new_weights)


def _module_of(parameter: str) -> str:
    """Returns the name of the module that a parameter belongs to."""
    return parameter.rpartition(".")[0]


def _lacks_encoder_weight(
    network: Encoder | Network, family: Family, new_weights: Sequence[str]
) -> bool:
    """Returns whether a new weight is the encoder's, but not its pooler's."""
    prefix = f"{family.encoder}." if isinstance(network, Network) else ""
    return any(name.startswith(prefix) and "pooler" not in name for name in new_weights)


def _has_other_names(
    description: _Described, network: Encoder | Network, new_weights: Sequence[str]
) -> bool:
    """Returns whether the files may have new weights of a network under other names.

    Transformers looks up each name also with the encoder's prefix added or removed. A weight in the
    files under one of these names may be the new one, unless the name is expected there for another
    parameter of the network.

    Args:
        description: The network's family, and the names of the weights in the files.
        network: The network.
        new_weights: Names of its parameters that the files seem to lack.
    """
    prefix = f"{description.family.encoder}."
    names: set[str] = set()
    for name in new_weights:
        names |= {name, prefix + name, name.removeprefix(prefix)}
    expected_names = set()
    for name, _ in network.named_parameters():
        expected_names.add(description.stored_as(name, network))
    # A name that is expected belongs to the parameter that expects it, not to a new one.
    other_names = names - expected_names
    return not description.stored.keys().isdisjoint(other_names)


def _sizes(config: Mapping[str, Any], family: Family) -> dict[str, int] | None:
    """Returns the sizes in a config.json, by the names of `SIZES`, and `pad`.

    None if a size is missing (transformers then has a default), is no positive whole number, or has
    another value under the name that BERT has for it.
    """
    sizes = {}
    for size, name, usual_name in zip(SIZES, family.sizes, _USUAL_SIZES, strict=True):
        number = config.get(name)
        if type(number) is not int or number <= 0 or config.get(usual_name, number) != number:
            return None
        sizes[size] = number
    pad_id = config.get("pad_token_id")
    if type(pad_id) is not int or sizes["hidden"] % sizes["heads"]:
        return None
    return {**sizes, "pad": pad_id}


def _outputs(config: Mapping[str, Any]) -> int:
    """Returns how many outputs a config.json gives the head.

    0 if its labels are not numbered as usual, or `num_labels` is another number than theirs.
    """
    labels = config.get("id2label", {})
    if not isinstance(labels, dict):
        return 0
    for label_number in labels:
        if not label_number.isdecimal() or str(int(label_number)) != label_number:
            return 0
    number = config.get("num_labels", len(labels) or 2)
    if type(number) is int and len(labels) in (0, number):
        return number
    return 0


def _is_plain(config: Mapping[str, Any], family: Family) -> bool:
    """Returns whether a config.json has all fields of its family, with the usual values."""
    epsilon = family.epsilon or config.get("layer_norm_eps")
    has_epsilon = type(epsilon) is float and epsilon > 0
    n_segments = config.get("type_vocab_size")
    has_segments = not family.has_segments or (type(n_segments) is int and n_segments > 0)
    has_width = family.encoder != "electra" or type(config.get("embedding_size")) is int
    is_usual = all(config.get(name) in (None, value) for name, value in _USUAL.items())
    is_changed = config.get("pruned_heads") or config.get("long_text")
    has_gelu = config.get(family.activation) == "gelu"
    return has_epsilon and has_segments and has_width and is_usual and not is_changed and has_gelu


def _is_valid(config: Mapping[str, Any], family: Family) -> bool:
    """Returns whether transformers would load the config.json of a model that gets a new head.

    `_described` has checked the config with the new head's fields; this one has the old head's.
    """
    has_truths = all(type(config[name]) is bool for name in _TRUTHS if name in config)
    has_ids = all(type(config.get(name)) in (int, type(None)) for name in _IDS)
    has_outputs = _outputs(config) > 0
    # The new head replaces what an earlier one said of long texts.
    is_plain = _is_plain({**config, "long_text": None}, family)
    return has_truths and has_ids and has_outputs and is_plain


def _shares(config: Mapping[str, Any], family: Family, kind: str) -> Shares | None:
    """Returns the probabilities of the dropouts by a config.json.

    None if one is no number from 0 to below 1.

    Args:
        config: Config of the network.
        family: Family of the network, which names the fields.
        kind: Kind of the head, such as `SequenceClassification`.
    """
    # Each field is its name in config.json and its default; None if there is no such dropout.
    fields = [*family.dropouts, family.of_heads.get(kind)]
    shares = [0.0 if field is None else config.get(field[0], field[1]) for field in fields]
    # A head without a probability of its own has that of the embeddings.
    if shares[-1] is None and fields[-1] == ("classifier_dropout", None):
        shares[-1] = shares[-2]
    if all(type(share) in (int, float) and 0 <= share < 1 for share in shares):
        return Shares(*shares)
    return None


def _fill(
    network: Encoder | Network, weights: Mapping[str, StoredTensor], *, is_trained: bool = False
) -> None:
    """Gives a network the weights of files, in fp32.

    Args:
        network: Without weights; changed in place.
        weights: Weights by the names of the parameters.
        is_trained: Whether they will be trained. They are then copied, since the file may be
            overwritten; otherwise they may share memory with the mapped file.
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
