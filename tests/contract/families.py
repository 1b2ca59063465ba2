"""Model families as folders.

A tiny random network, and a tokenizer of its kind trained on the contract's texts.

The sizes are unequal, so that a mixed-up axis shows.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from task_examples import EXAMPLES
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

_SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
}
_POSITIONS = 64
_SPREAD = 0.3
"""Standard deviation of the numbers in each matrix."""


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        tokenizer: makes its tokenizer, padding on the side the family's class says.
        config: makes its configuration, given the size of the vocabulary and the tokenizer.
        segments: whether it tells a second sentence from the first by token type ids.
        classes: what the names of its networks' classes begin with.
        tasks: the tasks it is for; None for all whose head exists.
    """

    tokenizer: Callable[[], Any]
    config: Callable[[Any], Any]
    segments: bool
    classes: str
    tasks: tuple[str, ...] | None = None


def corpus() -> Iterable[str]:
    """Every text of the contract's examples."""

    def texts(value: object) -> Iterable[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            for inner in value.values():
                yield from texts(inner)
        elif isinstance(value, list | tuple):
            yield from (text for inner in value for text in texts(inner))

    for example in EXAMPLES.values():
        yield from texts(example.rows)


def _trained(model: Any, trainer: Any, pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def _word_piece() -> dict[str, int]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    model = models.WordPiece(unk_token="[UNK]")
    bert = normalizers.BertNormalizer(lowercase=True)
    return _trained(model, trainer, pre_tokenizers.BertPreTokenizer(), bert).get_vocab()


def _byte_level(special: list[str]) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    return _trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))


def _merges(tokenizer: Tokenizer) -> dict[str, Any]:
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}


def _unigram(special: list[str], unknown: str) -> list[tuple[str, float]]:
    trainer = trainers.UnigramTrainer(
        vocab_size=110, special_tokens=special, unk_token=unknown, show_progress=False
    )
    model = json.loads(_trained(models.Unigram(), trainer, pre_tokenizers.Metaspace()).to_str())[
        "model"
    ]
    return [(piece, score) for piece, score in model["vocab"]]


def _bert_tokenizer(name: str) -> Any:
    return getattr(transformers, name)(vocab=_word_piece())


def _roberta_tokenizer() -> Any:
    trained = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return transformers.RobertaTokenizerFast(**_merges(trained))


def _modernbert_tokenizer() -> Any:
    """As its hub files are.

    Byte-level BPE with BERT's special tokens, in the library's own class.
    """
    trained = _byte_level(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    special = [(name, trained.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    trained.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=special
    )
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, model_input_names=["input_ids", "attention_mask"], **names
    )


def _gpt2_tokenizer() -> Any:
    return transformers.GPT2TokenizerFast(**_merges(_byte_level(["<|endoftext|>"])))


def _openai_tokenizer() -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    model = models.BPE(unk_token="<unk>", end_of_word_suffix="</w>")
    bert = normalizers.BertNormalizer(lowercase=True)
    trained = _trained(model, trainer, pre_tokenizers.BertPreTokenizer(), bert)
    return transformers.OpenAIGPTTokenizerFast(**_merges(trained))


def _albert_tokenizer() -> Any:
    return transformers.AlbertTokenizerFast(
        vocab=_unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>"), unk_token="<unk>"
    )


def _xlnet_tokenizer() -> Any:
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    return transformers.XLNetTokenizerFast(vocab=_unigram(special, "<unk>"))


def _deberta_tokenizer() -> Any:
    return transformers.DebertaV2TokenizerFast(
        vocab=_unigram(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "[UNK]")
    )


def _xlm_roberta_tokenizer() -> Any:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    return transformers.XLMRobertaTokenizerFast(vocab=_unigram(special, "<unk>"))


def _t5_tokenizer() -> Any:
    return transformers.T5TokenizerFast(
        vocab=_unigram(["<pad>", "</s>", "<unk>"], "<unk>"), extra_ids=0
    )


_KINDS: Mapping[str, Callable[[], Any]] = {
    **dict.fromkeys(
        ("albert", "big_bird", "fnet", "nystromformer", "rembert", "yoso"), _albert_tokenizer
    ),
    **dict.fromkeys(
        ("camembert", "gte", "jina_embeddings_v3", "xlm-roberta", "xlm-roberta-xl", "xmod"),
        _xlm_roberta_tokenizer,
    ),
    **dict.fromkeys(
        ("data2vec-text", "ibert", "lilt", "longformer", "luke", "roberta", "roberta-prelayernorm"),
        _roberta_tokenizer,
    ),
    **dict.fromkeys(("deberta", "eurobert", "modernbert", "ultrabert"), _modernbert_tokenizer),
    **dict.fromkeys(("mt5", "t5", "umt5"), _t5_tokenizer),
    "deberta-v2": _deberta_tokenizer,
    "gpt2": _gpt2_tokenizer,
    "openai-gpt": _openai_tokenizer,
    "xlnet": _xlnet_tokenizer,
}
"""Families whose tokenizer is not BERT's, and how one of their kind is made."""


def _bert_like(name: str, **more: Any) -> Callable[[Any], Any]:
    def make(tokenizer: Any) -> Any:
        return getattr(transformers, name)(
            vocab_size=len(tokenizer),
            max_position_embeddings=_POSITIONS,
            pad_token_id=tokenizer.pad_token_id,
            **{**_SIZES, **more},
        )

    return make


def _distilbert_config(tokenizer: Any) -> Any:
    return transformers.DistilBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=_POSITIONS,
        dim=24,
        n_layers=2,
        n_heads=3,
        hidden_dim=37,
    )


def _roberta_config(tokenizer: Any) -> Any:
    return transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=_POSITIONS + 2,
        type_vocab_size=1,
        pad_token_id=1,
        **_SIZES,
    )


def _modernbert_config(tokenizer: Any) -> Any:
    return transformers.ModernBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=_POSITIONS,
        local_attention=16,
        global_attn_every_n_layers=2,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        **_SIZES,
    )


def _xlnet_config(tokenizer: Any) -> Any:
    return transformers.XLNetConfig(
        vocab_size=len(tokenizer), d_model=24, n_layer=2, n_head=3, d_inner=37
    )


def _gpt_config(name: str) -> Callable[[Any], Any]:
    def make(tokenizer: Any) -> Any:
        ends = {"bos_token_id": 0, "eos_token_id": 0} if name == "GPT2Config" else {}
        return getattr(transformers, name)(
            vocab_size=len(tokenizer),
            n_positions=_POSITIONS,
            n_embd=24,
            n_layer=2,
            n_head=3,
            **ends,
        )

    return make


FAMILIES: Mapping[str, Family] = {
    "bert": Family(
        lambda: _bert_tokenizer("BertTokenizerFast"), _bert_like("BertConfig"), True, "BertFor"
    ),
    "distilbert": Family(
        lambda: _bert_tokenizer("DistilBertTokenizerFast"),
        _distilbert_config,
        False,
        "DistilBertFor",
    ),
    "roberta": Family(_roberta_tokenizer, _roberta_config, False, "RobertaFor"),
    "albert": Family(
        _albert_tokenizer, _bert_like("AlbertConfig", embedding_size=20), True, "AlbertFor"
    ),
    "xlnet": Family(_xlnet_tokenizer, _xlnet_config, True, "XLNetFor"),
    "electra": Family(
        lambda: _bert_tokenizer("ElectraTokenizerFast"),
        _bert_like("ElectraConfig", embedding_size=20),
        True,
        "ElectraFor",
    ),
    "deberta-v2": Family(
        _deberta_tokenizer,
        _bert_like(
            "DebertaV2Config",
            relative_attention=True,
            position_biased_input=False,
            pos_att_type=["p2c", "c2p"],
            pooler_hidden_size=24,
        ),
        False,
        "DebertaV2For",
    ),
    "modernbert": Family(_modernbert_tokenizer, _modernbert_config, False, "ModernBertFor"),
    "openai-gpt": Family(
        _openai_tokenizer,
        _gpt_config("OpenAIGPTConfig"),
        False,
        "OpenAIGPTFor",
        ("text-classification",),
    ),
    "gpt2": Family(
        _gpt2_tokenizer, _gpt_config("GPT2Config"), False, "GPT2For", ("text-classification",)
    ),
}
"""Name of the family in transformers -> how to make one."""


def make_family(name: str, folder: Path, *, padding_side: str | None = None) -> Path:
    """A folder with the random encoder and its tokenizer, as a hub download would be.

    Args:
        name: a key of `FAMILIES`.
        folder: to be filled.
        padding_side: what the tokenizer's files are to say; the family's own side when left out.
    """
    family = FAMILIES[name]
    tokenizer = family.tokenizer()
    if padding_side is not None:
        tokenizer.padding_side = padding_side
    tokenizer.save_pretrained(folder)
    _save_network(family.config(tokenizer), folder)
    return folder


def make_encoder(name: str, folder: Path, **fields: Any) -> Path:
    """Makes a folder with a tiny random network of any family, and BERT's tokenizer.

    The family has a head in transformers.

    Args:
        name: the family's `model_type`.
        folder: to be filled.
        fields: of its config, over those of `encoder_config`.
    """
    tokenizer = _bert_tokenizer("BertTokenizerFast")
    tokenizer.save_pretrained(folder)
    _save_network(encoder_config(name, len(tokenizer), **fields), folder)
    return folder


def make_encoder_of_its_kind(name: str, folder: Path) -> Path:
    """The same with a tokenizer of the family's kind.

    BERT's where that is it, or where its own has no fast form.
    """
    tokenizer = _KINDS.get(name, lambda: _bert_tokenizer("BertTokenizerFast"))()
    tokenizer.save_pretrained(folder)
    roles = ("pad", "sep", "bos", "eos", "cls", "mask")
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in roles}
    supplied = {role: number for role, number in ids.items() if number is not None}
    _save_network(encoder_config(name, len(tokenizer), **supplied), folder)
    return folder


def _save_network(config: Any, folder: Path) -> None:
    """Saves a random encoder whose states differ from text to text.

    They differ by as much as those of a trained one.

    As transformers draws them, a network this small says the same of every text to 1e-5: whatever
    is wrong with it would be within the tolerance.
    """
    torch.manual_seed(0)
    network = transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1 and parameter.std() > 0:
                parameter.mul_(_SPREAD / parameter.std())
    network.save_pretrained(folder)


_EVERY = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 36,
    "pad_token_id": 0,
    "max_position_embeddings": _POSITIONS,
}
_T5 = {
    "d_model": 24,
    "num_layers": 2,
    "num_heads": 3,
    "d_kv": 8,
    "d_ff": 36,
    "eos_token_id": 3,
    "decoder_start_token_id": 0,
}
_XLM = {
    "max_position_embeddings": _POSITIONS,
    "pad_index": 0,
    "emb_dim": 24,
    "n_layers": 2,
    "n_heads": 3,
}
_OWN: Mapping[str, Mapping[str, Any]] = {
    "albert": {"embedding_size": 20},
    "big_bird": {"block_size": 8, "num_random_blocks": 1},
    "electra": {"embedding_size": 20},
    "funnel": {
        "block_sizes": [1, 1],
        "block_repeats": [1, 1],
        "num_decoder_layers": 1,
        "d_model": 24,
        "n_head": 3,
        "d_head": 8,
        "d_inner": 36,
        "architectures": ["FunnelModel"],
    },
    "longformer": {"attention_window": 8, "sep_token_id": 3},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "mobilebert": {
        "embedding_size": 12,
        "intra_bottleneck_size": 12,
        "true_hidden_size": 12,
        "num_feedforward_networks": 2,
    },
    "modernbert": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "roc_bert": {"enable_pronunciation": False, "enable_shape": False},
    "squeezebert": {"embedding_size": 24},
    "mt5": _T5,
    "t5": _T5,
    "umt5": _T5,
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}
"""What some families need besides, or in place of, the sizes of every family."""

_ALONE: Mapping[str, Mapping[str, Any]] = {
    "flaubert": _XLM,
    "xlm": _XLM,
    **{name: {"pad_token_id": 0} for name in ("funnel", "mt5", "t5", "umt5")},
    "xlnet": {"pad_token_id": 0, "d_model": 24, "n_layer": 2, "n_head": 3, "d_inner": 36},
}
"""In place of the sizes of every family."""

DECIDED_IN = (5, 24)
"""The release of transformers whose families are tried, stood for or refused: others have some more
or less."""

TRIED = (
    "albert",
    "bert",
    "big_bird",
    "camembert",
    "convbert",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "esmc",
    "eurobert",
    "flaubert",
    "fnet",
    "funnel",
    "gpt2",
    "gte",
    "ibert",
    "jina_embeddings_v3",
    "layoutlm",
    "lilt",
    "longformer",
    "luke",
    "megatron-bert",
    "mobilebert",
    "modernbert",
    "mpnet",
    "mt5",
    "nomic_bert",
    "nystromformer",
    "openai-gpt",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "squeezebert",
    "t5",
    "ultrabert",
    "umt5",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xlnet",
    "xmod",
    "yoso",
)
"""Families that the contract tries one by one."""

STOOD_FOR: Mapping[str, tuple[str, ...]] = {
    "gpt2": (
        "apertus",
        "arcee",
        "axk1",
        "axk2",
        "beam",
        "biogpt",
        "bloom",
        "cohere_compass_text",
        "deepseek_v2",
        "deepseek_v3",
        "diffllama",
        "doge",
        "exaone4",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "gpt-sw3",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "helium",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
        "jamba",
        "jetmoe",
        "llama",
        "minicpm3",
        "minimax",
        "ministral",
        "ministral3",
        "mistral",
        "mistral4",
        "mixtral",
        "modernbert-decoder",
        "mpt",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "openai_privacy_filter",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_next",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
        "zamba",
        "zamba2",
    ),
    "t5": ("bart", "bigbird_pegasus", "led", "mbart", "mvp", "plbart", "t5gemma"),
}
"""Families that are left to one of their kind: decoders, read by their last token; encoders with a
decoder."""


def encoder_config(name: str, tokens: int, **fields: Any) -> Any:
    """The config of a tiny network."""
    usual_sizes = _ALONE.get(name, _EVERY)
    of_family = _OWN.get(name, {})
    sizes = {**usual_sizes, **of_family, **fields}
    return transformers.AutoConfig.for_model(name, vocab_size=tokens, **sizes)
