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
from bertctl.modeling.load import DROPOUT_FIELDS, fit_head, loadable, read_as
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource
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
    """The files of a tokenizer.

    Attributes:
        tokenizer: tokenizer.json.
        config: tokenizer_config.json.
        ids: of its special tokens by role, such as `pad_token`.
    """

    tokenizer: Tokenizer
    config: dict[str, Any]
    ids: Mapping[str, int]

    def save_pretrained(self, folder: Path) -> None:
        """Writes both."""
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
    """Returns a model, its head perhaps a new one, as `load_model` does.

    It is None where it is left to transformers.

    Args:
        source: where the files are.
        auto_class: name of the Auto class in transformers that has the head, or none.
        head: config fields of the head (num_labels, id2label, ...).
        dropout: for every dropout of the network; None leaves the model's own.

    Raises:
        UnavailableError: files that can't be read.
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
    """Returns the tokenizer of BERT or one of its like.

    It is as it reads and is saved under a head; None of another kind.

    Raises:
        UnavailableError: a file that can't be read.
    """
    special_tokens_map = read_json_if_there(source.folder / "special_tokens_map.json")
    tokenizer_config = read_json_if_there(source.folder / "tokenizer_config.json")
    if "roberta" in family_of(source.config):
        of_family = "Roberta"
    else:
        of_family = "Bert"
    class_name = (
        tokenizer_config.get("tokenizer_class") or source.config.get("tokenizer_class") or of_family
    )
    kind = class_name.removesuffix("Fast").removesuffix("Tokenizer")
    is_usual = kind in _ROLES and not any(
        (special_tokens_map | tokenizer_config).get(name) for name in _UNUSUAL
    )
    types_fit = all(
        type(tokenizer_config[name]) in types
        for name, types in _TYPES.items()
        if name in tokenizer_config
    )
    if is_usual and types_fit:
        tokenizer_and_roles = whole_tokenizer(source.folder)
    else:
        tokenizer_and_roles = None
    if tokenizer_and_roles is None or (source.folder / "chat_template.jinja").exists():
        return None
    tokenizer, ids = tokenizer_and_roles
    read_as(tokenizer, source, auto_class)
    tokenizer_config |= {} if source.lowercase is None else {"do_lower_case": source.lowercase}
    added = {
        number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()
    }
    silent = {
        role: text
        for role, text in _ROLES[kind].items()
        if role not in special_tokens_map | tokenizer_config
    }
    roles = silent | {role: added[number] for role, number in ids.items()}
    numbers = {text: number for number, text in added.items()}
    is_whole = {*roles.values()} <= numbers.keys() and {"pad_token", "cls_token"} <= roles.keys()
    if not is_whole or tokenizer.get_vocab_size() > source.config.get("vocab_size", 0):
        return None
    is_bert = _ROLES[kind] is _BERTS
    if is_bert and not (
        roles.items() >= _BERTS.items() and is_bert_pipeline(tokenizer, tokenizer_config)
    ):
        return None
    public_config = {
        name: value for name, value in tokenizer_config.items() if name not in _PRIVATE
    }
    sides = dict.fromkeys(("padding_side", "truncation_side"), "right")
    # The second one reads tokenizer.json as it is; classes of other families make parts of it anew.
    if is_bert:
        name = "BertTokenizer"
    else:
        name = "PreTrainedTokenizerFast"
    ours = {"clean_up_tokenization_spaces": False, "tokenizer_class": name, "backend": "tokenizers"}
    length = model_positions(source.config) or tokenizer_config.get("model_max_length")
    config = public_config | roles | sides | ours | ({"model_max_length": length} if length else {})
    return TokenizerFiles(tokenizer, config, {role: numbers[text] for role, text in roles.items()})


def _config(
    source: ModelSource, head: Mapping[str, Any], pad: int, dropout: float | None
) -> dict[str, Any]:
    """Returns the config.json of a model under a head."""
    from bertctl.modeling.fast.torch_bert import FAMILIES

    if "id2label" in head:
        of_labels = {"num_labels"}
    else:
        of_labels = set()
    model_fields = {
        name: value
        for name, value in source.config.items()
        if name not in {*_NOT_OF_A_MODEL, *of_labels}
    }
    of_head = {name: value for name, value in head.items() if name != "num_labels"}
    if "id2label" in head:
        of_head["id2label"] = {str(number): name for number, name in head["id2label"].items()}
    config = {
        **model_fields,
        "score_scale": None,
        **of_head,
        "dtype": "float32",
        "transformers_version": version("transformers"),
    }
    family = FAMILIES.get(family_of(config))
    if dropout is not None and family is not None:
        config |= dict.fromkeys(
            {*family.dropout_fields(), *config.keys() & {*DROPOUT_FIELDS}}, dropout
        )
    if family_of(config) in COUNTS_FROM_PAD:
        return config
    return config | {"pad_token_id": pad}
