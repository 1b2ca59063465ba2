"""What the families of transformers need and their config.json does not say.

They are facts by `model_type`, with reasons.
"""

from collections.abc import Mapping
from typing import Any

from bertctl.catalog.config_keys import WORD_VECTORS
from bertctl.errors import UsageError
from bertctl.modeling.transformers_internals import families_with
from bertctl.words import command

BARE = "AutoModel"
"""The class of transformers without a head: a task that has it trains vectors of texts."""

WORD_HEADS = ("AutoModelForMaskedLM", "AutoModelForPreTraining")
"""Classes with the heads of pretraining, which compute in the precision of the network."""

_OWN_CODE = "its network is custom code, which is never run"

REFUSED = {
    **dict.fromkeys(
        ("bros", "layoutlmv2", "layoutlmv3", "markuplm"),
        "it reads the positions of words on a page",
    ),
    **dict.fromkeys(
        ("gemma3", "lxmert", "modernvbert", "neomme", "t5gemma2", "ultravbert"), "it reads images"
    ),
    **dict.fromkeys(("neobert", "new"), _OWN_CODE),
    "canine": "it reads characters, without a tokenizer",
    "ctrl": "it has no fast tokenizer",
    "mra": "its attention is downloaded code; without it, transformers computes zeros",
    "perceiver": "its heads are decoders inside the network, which are random until it is trained",
    "qwen3_asr": "it reads sound",
    "reformer": "it reads only texts of one fixed length",
    "splinter": "its head needs the question tokens of its pretraining",
    "tapas": "it reads tables",
}
"""Families that can't be used, and why."""

COUNTS_FROM_PAD = frozenset(
    {
        "camembert",
        "data2vec-text",
        "esm",
        "ibert",
        "lilt",
        "longformer",
        "luke",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Families that count positions from the padding token's id + 1 (fairseq's way): their table is
longer than their input."""

_ONLY_FP32 = {
    "big_bird": "its sparse attention mixes fp32 with half precision",
    "deberta": "its mask value does not fit into half precision",
    "fnet": "torch has no Fourier transform in half precision",
    "xmod": "its adapters write half precision into fp32 tensors",
}
"""Families that can't compute in half precision, and why."""


_OF_VECTORS = ("SequenceClassification", "TokenClassification")
"""Heads that are a linear layer on a text's or a word's vector, as a probe is."""

_READS_PADDING = {
    "big_bird": "its random blocks include the padding",
    "convbert": "its convolutions reach into the padding",
    "fnet": "its Fourier transform mixes all positions",
    "funnel": "it shortens a text together with its padding",
    "nystromformer": "its landmarks are means that include the padding",
    "yoso": "its hashes count the padding",
}
"""Families whose answers depend on the padding, whatever the mask says, and why."""

_READS_PLACE = {"electra": "first", "flaubert": "first", "xlm": "first", "xlnet": "last"}
"""Families with a head that reads what summary_type says, and which place is never padding here."""


_SLOW_STEP = {
    "longformer": "it pads each text to a whole attention window (512 tokens in the models on "
    "the hub)"
}
"""Families whose training step takes more than 1.6 times that of a BERT of the same shape, and why;
measured by `tests/benchmarks/attention.py`."""

BERT_LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mixed": "attention.output.dense",
    "first_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "last_norm": "output.LayerNorm",
}
DISTILBERT_LAYER = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "mixed": "attention.out_lin",
    "first_norm": "sa_layer_norm",
    "inner": "ffn.lin1",
    "outer": "ffn.lin2",
    "last_norm": "output_layer_norm",
}
"""What transformers calls the parts of a layer of BERT, RoBERTa and ELECTRA, and of DistilBERT's,
in one order."""

PARTS_APART = {
    "deberta-v2": {"encoder.LayerNorm.": 0, "encoder.conv.": 1},
    "opt": {"decoder.final_layer_norm.": -1, "decoder.project_out.": -1},
}
"""Parts whose place among the names is not that in the network, with their depth; -1 is above all
layers. Each of DeBERTa's layers reads the normalised relative positions, and the second what the
convolution makes of the first."""

LOOKS_BACK = ("is_decoder", "add_cross_attention", "is_causal")
"""Fields of config.json of which none is true where each token looks at all others."""

SIZES = {
    "layers": ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers"),
    "hidden": ("hidden_size", "dim", "d_model", "n_embd", "emb_dim"),
    "heads": ("num_attention_heads", "n_heads", "n_head", "num_heads", "encoder_attention_heads"),
    "inner": (
        "intermediate_size",
        "hidden_dim",
        "d_inner",
        "n_inner",
        "d_ff",
        "ffn_dim",
        "encoder_ffn_dim",
        "ffn_hidden_size",
        "feed_forward_size",
    ),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
}
"""What the families call the sizes of a model."""


def model_sizes(config: Mapping[str, Any]) -> dict[str, int]:
    """Returns the sizes of a model by its config.json; 0 where it does not say.

    They are layers, hidden (the width), heads, inner (the width within a layer), vocabulary
    (tokens) and positions (rows of their table).

    Raises:
        ValueError, TypeError: one that is no number.
    """
    sizes = {}
    for size, names in SIZES.items():
        numbers = (config[name] for name in names if config.get(name))
        sizes[size] = int(next(numbers, 0))
    return sizes


def refuse_family(config: Mapping[str, Any], name: str) -> None:
    """Refuses a model of a family that can't be used.

    Raises:
        UsageError: The family is refused; the message has the reason.
    """
    family = family_of(config)
    # `auto_map` names custom code. It doesn't matter for a family that transformers itself has.
    needs_custom_code = "auto_map" in config and family not in families_with(BARE)
    reason = _OWN_CODE if needs_custom_code else REFUSED.get(family)
    if reason:
        remedy = (
            "Give an encoder of text, such as BERT, RoBERTa or ModernBERT "
            f"(`{command('recipes ls', models=True)}`)."
        )
        raise UsageError(f"'{name}' is of the family '{family}': {reason}", remedy=remedy)
    if family == "xmod" and not config.get("default_language"):
        message = (
            f"'{name}' has adapters for several languages, and its config.json names none to read "
            "(default_language)"
        )
        raise UsageError(
            message, remedy="Set default_language there to one of its languages, such as en_XX."
        )


def require_head(config: Mapping[str, Any], auto_class: str, name: str) -> None:
    """Refuses a family that has no network with the task's head in transformers.

    A head of our own on it would make a model that plain transformers can't load, and that no
    pipeline runs.

    Raises:
        UsageError: There is no such network, or the choices of a row would change each other's
            answers by their lengths. The message says what would do.
    """
    if config.get(WORD_VECTORS):
        message = f"'{name}' is a file of word vectors, without a network that could learn"
        raise UsageError(
            message,
            remedy="Type `bertctl probe` in place of `finetune`: a linear layer on its vectors.",
        )
    family = family_of(config)
    kind = auto_class.removeprefix("AutoModelFor")
    other_encoders = (
        "Give an encoder that has one, such as BERT, RoBERTa or ModernBERT "
        f"(`{command('recipes ls', models=True)}`)"
    )
    if family not in families_with(auto_class):
        by_vectors = kind in _OF_VECTORS and not config.get("is_encoder_decoder")
        probe = (
            ", or type `bertctl probe` in place of `finetune`: a linear layer on its frozen vectors"
        )
        raise UsageError(
            f"transformers has no network of the family '{family}' for this task ({kind}): "
            f"'{name}' can't be trained "
            "for it",
            remedy=other_encoders + (probe if by_vectors else "") + ".",
        )
    if auto_class == BARE and config.get("is_encoder_decoder"):
        message = (
            f"'{family}' is an encoder and a decoder, and a text's vector is made by an encoder "
            f"alone ('{name}')"
        )
        raise UsageError(message, remedy=other_encoders + ".")
    if family == "roformer":
        reason = "its head reads the padding"
    else:
        reason = reads_padding(config)
    if kind == "MultipleChoice" and reason:
        message = (
            f"the choices of a row are padded to one length, and '{family}' answers by its "
            f"padding: {reason}"
        )
        remedy = (
            "Give another encoder, such as BERT, RoBERTa or ModernBERT "
            f"(`{command('recipes ls', models=True)}`)."
        )
        raise UsageError(message, remedy=remedy)


def family_of(config: Mapping[str, Any]) -> str:
    """Returns the family's name by a model's config.json."""
    return str(config.get("model_type"))


def only_fp32(config: Mapping[str, Any]) -> str:
    """Returns why a model computes in fp32 whatever was asked for.

    It is an empty string where it need not.
    """
    family = family_of(config)
    if config.get(WORD_VECTORS):
        return "word vectors are read as they are"
    if family in _ONLY_FP32:
        return f"{family} in half precision: {_ONLY_FP32[family]}"
    return ""


def model_positions(config: Mapping[str, Any]) -> int | None:
    """Returns the longest input in tokens by the model's config.json.

    It is None where the model has no limit (XLNet).
    """
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(positions, int) or positions <= 0:
        return None
    family = family_of(config)
    # These families count positions from the padding id + 1, so the first ones are never used. For
    # MPNet the id is always 1 here, whatever its config says.
    if family == "mpnet":
        positions -= 2
    elif family in COUNTS_FROM_PAD:
        positions -= int(config.get("pad_token_id", 1)) + 1
    return positions


def read_length(config: Mapping[str, Any]) -> int:
    """Returns how many tokens of a text are read by default.

    That is what the model can read, at most 512.
    """
    return min(model_positions(config) or 512, 512)


def reads_padding(config: Mapping[str, Any]) -> str:
    """Returns why a text's answers depend on how far it is padded.

    It is an empty string where they don't.
    """
    family = family_of(config)
    # In some families `summary_type` chooses the token that the head reads. Padding is never at the
    # usual place, but may be at any other.
    usual_place = _READS_PLACE.get(family)
    if usual_place and config.get("summary_type", usual_place) != usual_place:
        return f"its head reads {config['summary_type']!r} (summary_type), where padding may stand"
    return _READS_PADDING.get(family, "")


def shortest_input(config: Mapping[str, Any]) -> int:
    """Returns how many tokens an encoder needs at least.

    Funnel halves a text from block to block, and the relative positions of its last block have at
    least two places: with 3 blocks it fails below 5 tokens.

    Example:
        >>> shortest_input({"model_type": "bert"})
        1
        >>> shortest_input({"model_type": "funnel", "block_sizes": [4, 4, 4]})
        5
    """
    if family_of(config) != "funnel":
        return 1
    n_blocks = len(config.get("block_sizes") or (4, 4, 4))
    return (1 << (n_blocks - 1)) + 1


def slow_step(config: Mapping[str, Any]) -> str:
    """Returns why a training step takes long for the model's shape.

    It is an empty string where it doesn't.
    """
    return _SLOW_STEP.get(family_of(config), "")
