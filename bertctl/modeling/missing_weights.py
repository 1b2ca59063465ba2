"""Weights that a model's files lack, and that transformers has therefore drawn at random.

They are refused, unless they are the head that is trained, or no answer depends on them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertctl.errors import UnavailableError
from bertctl.modeling.families import BARE, WORD_HEADS
from bertctl.modeling.source import ModelSource
from bertctl.words import command

if TYPE_CHECKING:
    from torch import nn

_WRAPPERS = {"module.": "DataParallel or DistributedDataParallel", "_orig_mod.": "torch.compile"}
"""Begin the names of weights that were saved together with what a model was wrapped in."""

_ORDER_HEAD = re.compile("relationship|sop_|pooler")
"""Names of weights that only heads for the order of sentences have."""


def random_weights(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of weights that the files lack or have in another shape, sorted.

    Transformers has drawn these weights at random.

    Args:
        info: What transformers reports of loading a network.
    """
    mismatched = [name for name, *_ in info.get("mismatched_keys", ())]
    names = {*info.get("missing_keys", ()), *mismatched}
    return tuple(sorted(names, key=weight_before_bias))


def weight_before_bias(name: str) -> tuple[str, bool, str]:
    """Returns what names of weights are sorted by: the layer's name, its weight before its bias."""
    return name.rpartition(".")[0], name.endswith("bias"), name


def refuse_random_encoder(
    network: "nn.Module", info: Mapping[str, Any], source: ModelSource
) -> None:
    """Refuses to train on an encoder with random weights.

    Transformers draws weights that the files lack, in the encoder as silently as in a new head. A
    pooler may be missing: models that were trained without one have none.

    Args:
        network: The network that was loaded.
        info: What transformers reports of loading it.
        source: The model's files.

    Raises:
        UnavailableError: Weights are missing, or have other shapes than config.json says.
    """
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    random_names = [
        name for name in random_weights(info) if not is_head(name) and "pooler" not in name
    ]
    if random_names:
        raise UnavailableError(
            f"the weights in {source.folder} are not those that its config.json describes: "
            f"{_described_names(random_names, info)} would be random",
            remedy=_prefix_remedy(info)
            or "Give a folder whose config.json and model.safetensors were saved together "
            "(save_pretrained).",
        )


def refuse_random_answers(
    network: "nn.Module",
    auto_class: str,
    info: Mapping[str, Any],
    source: ModelSource,
    saved_tokenizer: Any,
) -> None:
    """Refuses to answer with any weight that is not in the files.

    Args:
        network: The network that was loaded.
        auto_class: Name of the Auto class in transformers that has the head.
        info: What transformers reports of loading it.
        source: The model's files.
        saved_tokenizer: The model's tokenizer.

    Raises:
        UnavailableError: A weight that the answers are made with is missing, or is not of the shape
            by config.json.
    """
    from bertctl.modeling.heads import head_test

    random_names = random_weights(info)
    # A random pooler does no harm if the answers don't depend on it.
    poolers = [name for name in random_names if "pooler" in name]
    if poolers:
        reads_pooler = auto_class != BARE and _answers_with(
            network, poolers, auto_class, saved_tokenizer
        )
        if not reads_pooler:
            random_names = tuple(name for name in random_names if name not in poolers)
    if not random_names:
        return

    shapes = {name: shapes for name, *shapes in info.get("mismatched_keys", ())}
    is_head = head_test(network)
    is_of_head = all(is_head(name) or "pooler" in name for name in random_names)
    remedy = (
        "Give a folder whose config.json and model.safetensors were saved together "
        "(save_pretrained)."
    )
    if auto_class != BARE and auto_class not in WORD_HEADS and is_of_head:
        remedy = (
            "Give the folder of the whole model, as save_pretrained of its class wrote it. To "
            "train a new head: "
            f"{command('finetune FILE', model=source.folder)}"
        )
    if all(name in shapes for name in random_names):
        in_file, described = shapes[random_names[0]]
        fault = (
            f"{random_names[0]} has {_shape(in_file)} numbers in the file, and {_shape(described)} "
            "by config.json"
        )
    else:
        if len(random_names) == 1:
            verb = "is"
        else:
            verb = "are"
        fault = f"{_described_names(random_names, info)} {verb} not in the file"
    raise UnavailableError(
        f"the weights in {source.folder} are not those that its config.json describes: {fault}: "
        "its answers would be "
        "random",
        remedy=_prefix_remedy(info) or remedy,
    )


def new_word_heads(network: "nn.Module", info: Mapping[str, Any]) -> str:
    """Returns which heads of pretraining were not in the files, as the words after "has no ".

    Args:
        network: Model with the heads of pretraining.
        info: What transformers reports of loading it; `missing_keys` are weights that no file had.
    """
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    missing = [name for name in info.get("missing_keys", ()) if is_head(name) or "pooler" in name]
    order_weights = [name for name in missing if _ORDER_HEAD.search(name)]
    heads = []
    if len(order_weights) < len(missing):
        heads.append("masked-word head (its matrix is the table of token embeddings)")
    if order_weights:
        heads.append("head for the order of sentences")
    return " and no ".join(heads)


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)


def _described_names(names: Sequence[str], info: Mapping[str, Any]) -> str:
    """Returns the first three names of weights for a message, and how many there are in all.

    Args:
        names: Names of weights that the files lack, or have in another shape.
        info: What transformers reports of loading the network; it has those of another shape.
    """
    mismatched = {name for name, *_ in info.get("mismatched_keys", ())}
    visible_names = [
        f"{name} (of another shape)" if name in mismatched else name for name in names[:3]
    ]
    if len(names) > 3:
        total = f", ... ({len(names)} in all)"
    else:
        total = ""
    return ", ".join(visible_names) + total


def _prefix_remedy(info: Mapping[str, Any]) -> str:
    """Returns what to do about weights that were saved within a wrapper such as torch.compile.

    Empty if no name in the file begins with a wrapper's prefix.
    """
    for stored in sorted(info.get("unexpected_keys", ())):
        for prefix, wrapper in _WRAPPERS.items():
            if stored.startswith(prefix):
                return (
                    f"The names in the file begin with '{prefix}', which {wrapper} adds. "
                    f"Save the model inside: model.{prefix}save_pretrained(folder)."
                )
    return ""


def _answers_with(
    network: "nn.Module", names: Sequence[str], auto_class: str, saved_tokenizer: Any
) -> bool:
    """Returns whether a network's logits depend on some of its weights.

    The weights are filled with NaN for one forward pass; a logit that depends on them is NaN, too.
    Many families have a pooler that their head does not read, so that it does no harm if its
    weights are missing.

    True if the output has no logits, since nothing shows then that the weights are not needed.
    """
    import torch

    weights = network.state_dict(keep_vars=True)
    kept_weights = {name: weights[name].detach().clone() for name in names if name in weights}
    encoding = saved_tokenizer("a", return_tensors="pt")
    inputs = {name: encoding[name] for name in ("input_ids", "attention_mask")}
    if auto_class.endswith("MultipleChoice"):
        inputs = {name: ids[None] for name, ids in inputs.items()}  # (B, choices, T)
    try:
        with torch.no_grad():
            for name in kept_weights:
                weights[name].fill_(torch.nan)
            output = network.eval()(**inputs)
        logits = [value for name, value in output.items() if name.endswith("logits")]
        if not logits:
            return True
        return any(bool(value.isnan().any()) for value in logits)
    finally:
        with torch.no_grad():
            for name, values in kept_weights.items():
                weights[name].copy_(values)
