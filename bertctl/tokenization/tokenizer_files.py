"""Opens a tokenizer, and says what kind it is.

It is opened by name, folder, run, hub id, `tokenizer.json` or bare `vocab.txt`.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from bertctl.catalog.hub_files import cache_folder
from bertctl.catalog.models import MODELS, locate_model
from bertctl.config.recipe_files import expanded_path
from bertctl.documents import loading, read_json, read_json_if_there, read_text, refuse_far_ids
from bertctl.errors import BertctlError, DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.reference import load_tokenizer

DEFAULT_MODEL = "bert-base"
_STAND_IN = "minilm"  # a package with bert-base-uncased's vocabulary, token for token
_UNKNOWN = "[UNK]"
SPECIAL_TOKENS = ("[PAD]", _UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
"""The special tokens of BERT, in the order of the ids that a trained vocabulary gives them."""

_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@dataclass(frozen=True)
class OpenTokenizer:
    """Tokenizer, ready to use.

    Attributes:
        name: as it was asked for, or what stood in.
        tokenizer: with truncation and padding off.
        kind: in words, such as `WordPiece, 30,522 tokens, lower-cased`.
        is_bert: whether it is BERT's pipeline: WordPiece on words of letters and digits.
    """

    name: str
    tokenizer: Tokenizer
    kind: str
    is_bert: bool


def open_tokenizer(
    name: str | None = None, *, lowercase: bool | None = None, listener: Listener = SILENT
) -> OpenTokenizer:
    """Finds and reads a tokenizer.

    Args:
        name: catalog name, folder, run folder, hub id, or a file `*.json` or `*.txt`. None is
            `bert-base`; where that is not cached and the package of `minilm` is installed, its
            identical vocabulary is used, and said.
        lowercase: for a bare `vocab.txt` whose folder does not say it; must not contradict a
            `tokenizer.json`.
        listener: is told of a stand-in, and of a tokenizer that is not BERT's.

    Raises:
        UsageError: no such model, or lower-casing that is unknown or contradicts the file.
        UnavailableError: no tokenizer there, or a hub out of reach.
        DataError: a vocabulary or tokenizer.json that is no good.
    """
    if name is None:
        name = _default_model(listener)
    file = _tokenizer_file(_locate(name))
    if file.suffix == ".txt":
        tokenizer = read_vocab_txt(file, lowercase=_lowercase_of(file, lowercase))
    else:
        tokenizer = _read_json(file)
    _add_told(tokenizer, file.parent)
    document = json.loads(tokenizer.to_str())
    is_bert = (
        _type(document, "model") == "WordPiece"
        and _type(document, "pre_tokenizer") == "BertPreTokenizer"
    )
    stored = (document.get("normalizer") or {}).get("lowercase")
    opened = OpenTokenizer(name, tokenizer, _kind(tokenizer, document, stored), is_bert)
    if lowercase is not None and stored is not None and stored != lowercase:
        state = "on" if stored else "off"
        message = f"{file} says lower-casing {state}, and the command line says the opposite"
        raise UsageError(
            message,
            remedy="Leave `lowercase=True` and `lowercase=False` out; they are for a bare "
            "vocab.txt.",
        )
    if not opened.is_bert:
        listener.say(f"{opened.name} is not a BERT tokenizer: {opened.kind}")
    return opened


def whole_tokenizer(folder: Path) -> tuple[Tokenizer, dict[str, int]] | None:
    """Returns the tokenizer of tokenizer.json, and the ids of its special tokens.

    The ids are by role, such as `pad_token`.

    None where a folder has no such file, or where those beside it name tokens that it has not:
    transformers adds them.

    Raises:
        UnavailableError: a file that can't be read.
    """
    if not (folder / "tokenizer.json").exists():
        return None
    tokenizer = load_tokenizer(read_text(folder / "tokenizer.json"))
    decoder = tokenizer.get_added_tokens_decoder()
    added = {token.content: number for number, token in decoder.items()}
    roles: dict[str, str] = {}
    # transformers reads it if the other files have no added tokens.
    older = folder / "added_tokens.json"
    if older.exists() and not read_json(older).items() <= added.items():
        return None
    for file in (folder / "tokenizer_config.json", folder / "special_tokens_map.json"):
        tokenizer_config = read_json_if_there(file)
        numbered = {
            int(number): _added(token)
            for number, token in (tokenizer_config.get("added_tokens_decoder") or {}).items()
        }
        more: set[str] = set()
        for name in ("additional_special_tokens", "extra_special_tokens"):
            tokens = tokenizer_config.get(name) or ()
            if isinstance(tokens, dict):
                tokens = tokens.values()
            more.update(map(_content, tokens))
        config_tokens = {
            role: _content(tokenizer_config[role])
            for role in _ROLES
            if tokenizer_config.get(role) is not None
        }
        agrees = all(roles.get(role, text) == text for role, text in config_tokens.items())
        if (
            not agrees
            or not {*config_tokens.values(), *more} <= added.keys()
            or numbered not in ({}, decoder)
        ):
            return None
        roles |= config_tokens
    return tokenizer, {role: added[text] for role, text in roles.items()}


def _add_told(tokenizer: Tokenizer, folder: Path) -> None:
    """Adds the tokens that files beside a vocabulary list, in the order of their ids.

    transformers adds them in that order, too.
    """
    files = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    with loading(f"{folder} as a tokenizer", remedy=f"Repair what its {', '.join(files)} say."):
        config = _read_config(folder / "tokenizer_config.json")
        roles = _read_config(folder / "special_tokens_map.json")
        older = _read_config(folder / "added_tokens.json")
        decoder = config.get("added_tokens_decoder") or {}
        added_tokens = {int(number): _added(token) for number, token in decoder.items()}
        lists = (part.get("additional_special_tokens") or () for part in (config, roles))
        special = set(map(_content, chain.from_iterable(lists)))
        if not added_tokens:
            for text, number in older.items():
                added_tokens[int(number)] = AddedToken(
                    text, normalized=text not in special, special=text in special
                )
        known = tokenizer.get_vocab()
        tokenizer.add_tokens(
            [
                added_tokens[number]
                for number in sorted(added_tokens)
                if added_tokens[number].content not in known
            ]
        )


def _added(token: Any) -> AddedToken:
    """Returns a token that is written with its properties."""
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(
        _content(token), **{flag: bool(token[flag]) for flag in flags if flag in token}
    )


def _content(token: Any) -> str:
    """Returns the text of a token that is written as such, or with its properties."""
    return str(token["content"] if isinstance(token, dict) else token)


def read_vocab_txt(file: Path, *, lowercase: bool) -> Tokenizer:
    """Returns BERT's pipeline around a vocabulary with one token per line.

    It is that of google-research/bert `tokenization.py`.

    Options of the normalizer (`strip_accents`, `tokenize_chinese_chars`) are read from a
    `tokenizer_config.json` beside it.

    Raises:
        DataError: not UTF-8, a token twice, or no [UNK].
        UnavailableError: it can't be read.
    """
    vocabulary = _read_tokens(file)
    config = _read_config(file.parent / "tokenizer_config.json") | {"do_lower_case": lowercase}
    return bert_pipeline(vocabulary, config)


def bert_pipeline(vocabulary: dict[str, int], config: Mapping[str, Any]) -> Tokenizer:
    """Returns BERT's pipeline with the options that a tokenizer_config.json says."""
    tokenizer = Tokenizer(
        models.WordPiece(vocabulary, unk_token=_UNKNOWN, max_input_chars_per_word=100)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    special = [
        AddedToken(token, normalized=False) for token in SPECIAL_TOKENS if token in vocabulary
    ]
    tokenizer.add_special_tokens(special)
    if "[CLS]" in vocabulary and "[SEP]" in vocabulary:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
        )
    return tokenizer


def is_bert_pipeline(tokenizer: Tokenizer, config: Mapping[str, Any]) -> bool:
    """Returns whether a tokenizer is BERT's own pipeline.

    `BertTokenizer` of transformers makes it of its vocabulary.

    Args:
        tokenizer: as a tokenizer.json has it.
        config: the tokenizer_config.json beside it.
    """
    ids: dict[str, int] = {}
    for token in SPECIAL_TOKENS:
        number = tokenizer.token_to_id(token)
        if number is not None:
            ids[token] = number
    parts = [json.loads(either.to_str()) for either in (tokenizer, bert_pipeline(ids, config))]
    for part in parts:
        del part["model"]["vocab"]
    names = ("model", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return all(parts[0][name] == parts[1][name] for name in names)


def _read_tokens(file: Path) -> dict[str, int]:
    """Returns the tokens of a vocab.txt with their ids, which are the numbers of their lines."""
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(read_text(file, kind=DataError).removesuffix("\n").split("\n")):
        token = line.removesuffix("\r")
        if token in vocabulary:
            message = (
                f"{file}:{number + 1}: the token '{token}' is on line {vocabulary[token] + 1} "
                "already"
            )
            remedy = (
                "A token has one id, its line. Replace the second one by a name of its own, such "
                "as [unused0]."
            )
            raise DataError(message, remedy=remedy)
        vocabulary[token] = number
    if "[UNK]" not in vocabulary:
        raise _no_unknown(file, "[UNK]")
    return vocabulary


def _no_unknown(file: Path, token: str) -> DataError:
    message = (
        f"{file} has no token {token}, which a WordPiece vocabulary needs for words it has no "
        "tokens for"
    )
    return DataError(
        message,
        remedy=f"Add a line {token} to it (in vocab.txt at the end, so that no other id moves).",
    )


def _read_json(file: Path) -> Tokenizer:
    text = read_text(file, kind=DataError)
    with loading(
        f"{file} as a tokenizer",
        remedy="Give the tokenizer.json that save_pretrained wrote, or the vocab.txt.",
    ):
        tokenizer = load_tokenizer(text)
    refuse_far_ids(tokenizer.get_vocab().values(), file)
    if (
        isinstance(tokenizer.model, models.WordPiece)
        and tokenizer.token_to_id(tokenizer.model.unk_token) is None
    ):
        raise _no_unknown(file, tokenizer.model.unk_token)
    return tokenizer


def _locate(name: str) -> Path:
    path = expanded_path(name)
    if name not in MODELS:
        if path.suffix in (".json", ".txt") and (path.exists() or path.parent != Path()):
            if not path.is_file():
                message = f"{path} does not exist"
                raise UnavailableError(
                    message, remedy="Give a tokenizer.json or a vocab.txt.", file=path
                )
            return path
        if path.is_dir() and any(
            (path / file).is_file() for file in ("tokenizer.json", "vocab.txt")
        ):
            return path
    return locate_model(name, weights=False)


def _default_model(listener: Listener) -> str:
    cached = (
        cache_folder() / f"models--{MODELS[DEFAULT_MODEL].hub_id.replace('/', '--')}" / "snapshots"
    )
    is_cached = any(any(cached.glob(f"*/{file}")) for file in ("tokenizer.json", "vocab.txt"))
    if not is_cached and find_spec(MODELS[_STAND_IN].package) is not None:
        with suppress(BertctlError):
            locate_model(_STAND_IN, weights=False)
            listener.say(
                f"{DEFAULT_MODEL} is not cached; using {_STAND_IN}, which has the same vocabulary"
            )
            return _STAND_IN
    return DEFAULT_MODEL


def _tokenizer_file(place: Path) -> Path:
    for file in (place, place / "tokenizer.json", place / "vocab.txt"):
        if file.is_file():
            return file
    content = ", ".join(sorted(p.name for p in place.iterdir())[:10])
    message = f"{place} holds neither tokenizer.json nor vocab.txt (found: {content or 'nothing'})"
    remedy = (
        "Convert it once with transformers: "
        "AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)."
    )
    raise UnavailableError(message, remedy=remedy)


def _lowercase_of(file: Path, requested: bool | None) -> bool:
    stored = _read_config(file.parent / "tokenizer_config.json").get("do_lower_case")
    if requested is not None and isinstance(stored, bool) and requested != stored:
        message = (
            f"{file.parent / 'tokenizer_config.json'} says do_lower_case {stored}, the command "
            "line the opposite"
        )
        raise UsageError(
            message,
            remedy="Leave `lowercase=True` and `lowercase=False` out; they are for a vocabulary "
            "without that file.",
        )
    if isinstance(known := stored if requested is None else requested, bool):
        return known
    message = (
        f"{file} does not tell if its text is lower-cased, and no "
        "tokenizer_config.json is beside it"
    )
    raise UsageError(
        message,
        remedy="Add `lowercase=True` (bert-base-uncased and its like) or `lowercase=False` "
        "(bert-base-cased).",
    )


def _read_config(file: Path) -> dict[str, Any]:
    return read_json_if_there(file, kind=DataError, remedy="Repair it, or move it away.")


def _type(document: dict[str, Any], part: str) -> str:
    return str((document.get(part) or {}).get("type", ""))


def _kind(tokenizer: Tokenizer, document: dict[str, Any], lowercase: bool | None) -> str:
    kind = _type(document, "model") or "unknown model"
    if "ByteLevel" in json.dumps([document.get("pre_tokenizer"), document.get("decoder")]):
        kind = f"byte-level {kind}"
    if lowercase is None:
        case = ""
    elif lowercase:
        case = ", lower-cased"
    else:
        case = ", cased"
    return f"{kind}, {tokenizer.get_vocab_size():,} tokens{case}"
