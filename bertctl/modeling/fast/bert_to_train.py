"""BERT and its like to be trained by torch alone, and saved as transformers would."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertctl.documents import read_json_if_there
from bertctl.modeling.families import BARE, COUNTS_FROM_PAD, family_of, model_positions
from bertctl.modeling.load import DROPOUT_FIELDS, loadable
from bertctl.modeling.model import Model
from bertctl.modeling.saved_tokenizers import read_as
from bertctl.modeling.source import ModelSource
from bertctl.modeling.trained_heads import fit_head
from bertctl.runtime.batching import Padding
from bertctl.tokenization.tokenizer_files import SPECIAL_TOKENS, is_bert_pipeline, whole_tokenizer
from bertctl.writing import write_text

_BERTS = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
_ROBERTAS = {f"{role}_token": f"<{role}>" for role in ("unk", "pad", "mask")} | {
    **dict.fromkeys(("bos_token", "cls_token"), "<s>"),
    **dict.fromkeys(("eos_token", "sep_token"), "</s>"),
}
_ROLES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("Bert", "DistilBert", "Electra"), _BERTS),
    **dict.fromkeys(("Roberta", "XLMRoberta"), _ROBERTAS),
    "PreTrained": {},
    "TokenizersBackend": {},
}
"""Special tokens by role where the files say nothing, by the beginning of the tokenizer's class in
transformers."""
_TYPES = {
    "tokenize_chinese_chars": (bool,),
    "do_lower_case": (bool,),
    "strip_accents": (bool, type(None)),
}
_UNUSUAL = (
    "additional_special_tokens",
    "extra_special_tokens",
    "chat_template",
    "fast_tokenizer_files",
    "init_inputs",
)
"""Fields about a tokenizer that transformers knows what to do with."""

_PRIVATE = (
    "_name_or_path",
    "name_or_path",
    "special_tokens_map_file",
    "tokenizer_file",
    "vocab_file",
    "auto_map",
    "device_map",
    "slow_tokenizer_class",
    "added_tokens_decoder",
    "tokenizer_class",
)
"""What is not saved of a tokenizer_config.json: paths, names of code, and what tokenizer.json
has."""

_NOT_OF_A_MODEL = (
    "_name_or_path",
    "torch_dtype",
    "dtype",
    "auto_map",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "chunk_size_feed_forward",
    "long_text",
    "attn_implementation",
    "_attn_implementation",
)
"""What is not saved of a config.json: how a model is to be loaded or called, and what a head says
anew."""


@dataclass(frozen=True)
class TokenizerFiles:
    """Contents of a tokenizer's files.

    Attributes:
        tokenizer: Content of tokenizer.json.
        config: Content of tokenizer_config.json.
        ids: Ids of the special tokens by role, such as `pad_token`.
    """

    tokenizer: Tokenizer
    config: dict[str, Any]
    ids: Mapping[str, int]

    def save_pretrained(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json to a folder."""
        self.tokenizer.save(str(folder / "tokenizer.json"))
        text = json.dumps(
            self.config,
            indent=2,
            sort_keys=True,
            ensure_ascii=False,
        )
        write_text(folder / "tokenizer_config.json", f"{text}\n")


def bert_to_train(
    source: ModelSource, auto_class: str, head: Mapping[str, Any], *, dropout: float | None = None
) -> Model | None:
    """Returns the model to be trained that `load_model` returns, without importing transformers.

    None if its tokenizer or its network is unusual, or if the head has settings for long texts
    (`model.long_text`, other than `head`): `load_model` must load it then.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers that has the head.
        head: Config fields of the head (num_labels, id2label, ...). A head that was trained for the
            same labels is kept.
        dropout: Probability for every dropout of the network; None leaves the model's own.

    Raises:
        UnavailableError: The files can't be read.
    """
    from bertctl.modeling.fast.bert_files import network_to_train

    with loadable(source, auto_class):
        files = bert_tokenizer(source, auto_class)
        if files is None or head.get("long_text"):
            return None
        config = _config(source, head, files.ids["pad_token"], dropout)
        read = network_to_train(source, auto_class, config)
        if read is None:
            return None
        network, new_weights = read
        if auto_class != BARE:
            fit_head(
                network,
                source,
                auto_class,
                head,
                new_weights=new_weights,
            )
        segments = network.has_segments
        ids = files.ids
        input_names = ["input_ids", "attention_mask"]
        if segments:
            input_names.insert(1, "token_type_ids")
        files.config["model_input_names"] = input_names
        return Model(
            network=network,
            tokenizer=files.tokenizer,
            saved_tokenizer=files,
            padding=Padding(ids["pad_token"]),
            has_segments=segments,
            cls_id=ids["cls_token"],
            new_weights=new_weights,
        )


def bert_tokenizer(source: ModelSource, auto_class: str) -> TokenizerFiles | None:
    """Returns the tokenizer of a BERT-like model, ready to be used and saved with a head.

    None if transformers would read texts in another way than tokenizer.json, or if the files have
    settings that are not known here.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers that has the head.

    Raises:
        UnavailableError: A file can't be read.
    """
    special_tokens_map = read_json_if_there(source.folder / "special_tokens_map.json")
    tokenizer_config = read_json_if_there(source.folder / "tokenizer_config.json")
    fields = special_tokens_map | tokenizer_config
    kind = _tokenizer_kind(source, tokenizer_config)
    if kind not in _ROLES or not _has_usual_fields(fields, tokenizer_config):
        return None
    tokenizer_and_ids = whole_tokenizer(source.folder)
    if tokenizer_and_ids is None or (source.folder / "chat_template.jinja").exists():
        return None
    tokenizer, id_of_role = tokenizer_and_ids  # such as `cls_token` -> 101
    read_as(tokenizer, source, auto_class)
    if source.lowercase is not None:
        tokenizer_config |= {"do_lower_case": source.lowercase}

    # The special token of each role, such as `cls_token` -> [CLS]: those that the files name, and
    # the tokens of the tokenizer's class for roles that the files don't have.
    token_of_id = {
        number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()
    }
    roles = {role: token for role, token in _ROLES[kind].items() if role not in fields}
    roles |= {role: token_of_id[number] for role, number in id_of_role.items()}
    id_of_token = {token: number for number, token in token_of_id.items()}
    has_tokens = set(roles.values()) <= id_of_token.keys()
    has_needed_roles = "pad_token" in roles and "cls_token" in roles
    has_vectors = tokenizer.get_vocab_size() <= source.config.get("vocab_size", 0)
    if not (has_tokens and has_needed_roles and has_vectors):
        return None

    # Transformers builds a BERT's tokenizer anew from its fields, so these must describe it. It
    # reads tokenizer.json as it is for `PreTrainedTokenizerFast`.
    is_built_anew = _ROLES[kind] is _BERTS
    if is_built_anew:
        has_usual_tokens = roles.items() >= _BERTS.items()
        if not has_usual_tokens or not is_bert_pipeline(tokenizer, tokenizer_config):
            return None
        class_name = "BertTokenizer"
    else:
        class_name = "PreTrainedTokenizerFast"

    config = {name: value for name, value in tokenizer_config.items() if name not in _PRIVATE}
    config |= roles
    config |= {
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": class_name,
        "backend": "tokenizers",
    }
    length = model_positions(source.config) or tokenizer_config.get("model_max_length")
    if length:
        config["model_max_length"] = length
    role_ids = {role: id_of_token[token] for role, token in roles.items()}
    return TokenizerFiles(tokenizer, config, role_ids)


def _tokenizer_kind(source: ModelSource, tokenizer_config: Mapping[str, Any]) -> str:
    """Returns the class of a tokenizer, as `Bert` for `BertTokenizerFast`.

    The files may not name it. Then it is the one of the model's family.
    """
    class_of_family = "Roberta" if "roberta" in family_of(source.config) else "Bert"
    class_name: str = (
        tokenizer_config.get("tokenizer_class")
        or source.config.get("tokenizer_class")
        or class_of_family
    )
    return class_name.removesuffix("Fast").removesuffix("Tokenizer")


def _has_usual_fields(fields: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> bool:
    """Returns whether a tokenizer has no field that only transformers knows, or of another type.

    Args:
        fields: Fields of special_tokens_map.json and tokenizer_config.json together.
        tokenizer_config: Content of tokenizer_config.json.
    """
    if any(fields.get(name) for name in _UNUSUAL):
        return False
    return all(
        type(tokenizer_config[name]) in types
        for name, types in _TYPES.items()
        if name in tokenizer_config
    )


def _config(
    source: ModelSource, head: Mapping[str, Any], pad: int, dropout: float | None
) -> dict[str, Any]:
    """Returns the config.json of a model with a head.

    Args:
        source: The model's files.
        head: Config fields of the head, in place of those of a head that was trained before.
        pad: Id of the padding token.
        dropout: Probability for every dropout; None leaves the model's own.
    """
    from bertctl.modeling.fast.torch_bert import FAMILIES

    # `num_labels` follows from the labels' names, so it isn't saved if these are.
    left_out = set(_NOT_OF_A_MODEL)
    head_fields = {name: value for name, value in head.items() if name != "num_labels"}
    if "id2label" in head:
        left_out.add("num_labels")
        head_fields["id2label"] = {str(number): name for number, name in head["id2label"].items()}
    model_fields = {name: value for name, value in source.config.items() if name not in left_out}
    config = {
        **model_fields,
        # The scale of an earlier regression doesn't hold for a new head, which may have its own.
        "score_scale": None,
        **head_fields,
        "dtype": "float32",
        "transformers_version": version("transformers"),
    }
    family = FAMILIES.get(family_of(config))
    if dropout is not None and family is not None:
        # The family's fields, and any other that the files have.
        dropout_fields = family.dropout_fields() | (config.keys() & set(DROPOUT_FIELDS))
        config |= dict.fromkeys(dropout_fields, dropout)
    # These families count positions from their own padding id, whatever the tokenizer has.
    if family_of(config) in COUNTS_FROM_PAD:
        return config
    return config | {"pad_token_id": pad}
