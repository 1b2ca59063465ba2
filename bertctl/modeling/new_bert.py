"""A BERT from nothing: its config by size or file, and a folder that is loaded like any other model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertctl.documents import loading, read_json
from bertctl.errors import UnavailableError, UsageError
from bertctl.words import unknown
from bertctl.writing import failures_of

_SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}
"""Layers and hidden size (Turc et al. 2019, "Well-Read Students Learn Better", table 1); heads are 64 wide."""


def bert_fields(size: str) -> Mapping[str, Any]:
    """Returns fields of a BertConfig.

    Args:
        size: of google-research/bert's miniatures, or a JSON file with such fields.

    Raises:
        UsageError: no such size, or a file that describes another family.
        UnavailableError: no such file.
    """
    if size in _SIZES:
        layers, hidden = _SIZES[size]
        return {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": hidden // 64,
            "intermediate_size": 4 * hidden,
        }
    if not ("/" in size or "." in size):
        raise UsageError(
            unknown("size", size, _SIZES), remedy=f"Sizes: {', '.join(_SIZES)}; or a JSON file with a BertConfig."
        )
    fields = read_json(Path(size))
    if not isinstance(fields, dict) or fields.get("model_type", "bert") != "bert":
        what = fields.get("model_type") if isinstance(fields, dict) else "no object"
        raise UsageError(f"{size} describes no BERT: {what!r}", remedy="Give the fields of a BertConfig.")
    return fields


def write_new_bert(folder: Path, size: str, tokenizer: Any, *, pairs: bool, seed: int) -> None:
    """Writes a BERT with random weights beside its tokenizer's files, as `save_pretrained` lays them out.

    Args:
        folder: has the tokenizer's files.
        size: see `bert_fields`.
        tokenizer: of the library `tokenizers`, with special tokens around texts.
        pairs: whether it has the head for next sentences too.
        seed: of the weights.

    Raises:
        UsageError: fields that make no BERT.
    """
    import transformers

    from bertctl.runtime.seeding import seed_everything

    own = {"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": tokenizer.token_to_id("[PAD]")}
    transformers.utils.logging.disable_progress_bar()
    seed_everything(seed)
    with loading(f"the BERT of '{size}'", kind=UsageError, remedy="Give the fields of a BertConfig that fit together."):
        config = transformers.BertConfig(**{**bert_fields(size), **own})
        network: Any = (transformers.BertForPreTraining if pairs else transformers.BertForMaskedLM)(config)
    with failures_of(folder / "model.safetensors"):
        network.save_pretrained(folder)


def require_tokens(tokenizer: Any, folder: Path) -> None:
    """Refuses a vocabulary that a BERT can't be trained with.

    Raises:
        UnavailableError: it lacks a special token.
    """
    missing = [name for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]") if tokenizer.token_to_id(name) is None]
    if missing:
        raise UnavailableError(
            f"the vocabulary in {folder} has no {', '.join(missing)}",
            remedy="Train one with `bertctl vocab train`, or leave --vocab out.",
        )
