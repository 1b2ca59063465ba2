"""What the families of transformers need and their config.json does not say: facts by `model_type`, with reasons."""

from collections.abc import Mapping
from typing import Any

from bertctl.errors import UsageError

REFUSED = {
    **dict.fromkeys(("bros", "layoutlmv2", "layoutlmv3", "markuplm"), "it reads where words stand on a page"),
    **dict.fromkeys(("gemma3", "lxmert", "modernvbert", "neomme", "t5gemma2", "ultravbert"), "it reads images"),
    **dict.fromkeys(("neobert", "new"), "its network is code of its own, which is never run"),
    "canine": "it reads characters, without a tokenizer",
    "ctrl": "its tokenizer has no fast form",
    "mra": "its attention is code that is fetched, without which transformers computes zeros",
    "perceiver": "its heads are part of the network, which is random until they are trained with it",
    "qwen3_asr": "it reads sound",
    "reformer": "it reads texts of one length only",
    "splinter": "its head reads question marks of its own pretraining",
    "tapas": "it reads tables",
}
"""Families that can't be used, and why."""

COUNTS_FROM_PAD = frozenset({
    "camembert", "data2vec-text", "esm", "ibert", "lilt", "longformer", "luke", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
})  # fmt: skip
"""Families that count positions from the padding token's id + 1 (fairseq's way): their table is longer than their
input."""

_ONLY_FP32 = {
    "big_bird": "its sparse attention mixes fp32 with half precision",
    "deberta": "its mask is a number that half precision can't hold",
    "fnet": "torch has no Fourier transform in half precision",
    "xmod": "its adapters write half precision into fp32",
}
"""Families that can't compute in half precision, and why."""


_READS_PADDING = {
    "big_bird": "its blocks are drawn over the padding too",
    "convbert": "its convolutions reach into the padding",
    "fnet": "its Fourier transform mixes all positions",
    "funnel": "it halves a text with its padding",
    "nystromformer": "its landmarks are means over the padding too",
    "yoso": "its hashes count the padding",
}
"""Families whose answers depend on the padding, whatever the mask says, and why."""


def refuse_family(config: Mapping[str, Any], name: str) -> None:
    """Refuses a model of a family that can't be used.

    Raises:
        UsageError: with the reason.
    """
    family = family_of(config)
    if family in REFUSED:
        raise UsageError(
            f"'{name}' is of the family '{family}': {REFUSED[family]}",
            remedy="Give an encoder of text, such as BERT, RoBERTa or ModernBERT (`bertctl recipes ls --models`).",
        )


def family_of(config: Mapping[str, Any]) -> str:
    """Returns the family's name by a model's config.json."""
    return str(config.get("model_type"))


def only_fp32(config: Mapping[str, Any]) -> str:
    """Returns why a model computes in fp32 whatever was asked for; an empty string where it need not."""
    family = family_of(config)
    return f"{family} in half precision: {_ONLY_FP32[family]}" if family in _ONLY_FP32 else ""


def model_positions(config: Mapping[str, Any]) -> int | None:
    """Returns the longest input in tokens by the model's config.json, or None where it has no limit (XLNet)."""
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(positions, int) or positions <= 0:
        return None
    family = family_of(config)
    if family in COUNTS_FROM_PAD:  # MPNet's own number is fixed
        positions -= 2 if family == "mpnet" else int(config.get("pad_token_id", 1)) + 1
    return positions


def reads_padding(config: Mapping[str, Any]) -> str:
    """Returns why a text's answers depend on how far it is padded; an empty string where they don't."""
    return _READS_PADDING.get(family_of(config), "")
