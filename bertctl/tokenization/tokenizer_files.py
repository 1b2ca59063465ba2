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

# Names under which a tokenizer_config.json has the special tokens that a model uses.
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
        name: As it was given; `minilm` where its vocabulary takes the place of bert-base's.
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
            `bert-base`. If that is not cached, but the package of `minilm` is installed, `minilm`
            stands in, which has the same vocabulary.
        lowercase: for a bare `vocab.txt` whose folder does not say it; must not contradict a
            `tokenizer.json`.
        listener: receives a message about a stand-in, and about a tokenizer that is not BERT's.

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
    _add_listed_tokens(tokenizer, file.parent)
    document = json.loads(tokenizer.to_str())
    is_bert = (
        _type(document, "model") == "WordPiece"
        and _type(document, "pre_tokenizer") == "BertPreTokenizer"
    )
    stored_lowercase = (document.get("normalizer") or {}).get("lowercase")
    opened = OpenTokenizer(name, tokenizer, _kind(tokenizer, document, stored_lowercase), is_bert)
    if lowercase is not None and stored_lowercase not in (None, lowercase):
        state = "on" if stored_lowercase else "off"
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
    """Returns the tokenizer of a folder's tokenizer.json, and the ids of its special tokens.

    The ids are by role: `{"pad_token": 0, "cls_token": 101, ...}`.

    It is None if the folder has no such file, or if the files beside it contradict it or name
    tokens that it lacks. Then transformers must load the tokenizer, which adds such tokens.

    Raises:
        UnavailableError: A file can't be read.
    """
    if not (folder / "tokenizer.json").exists():
        return None
    tokenizer = load_tokenizer(read_text(folder / "tokenizer.json"))
    decoder = tokenizer.get_added_tokens_decoder()
    added = {token.content: number for number, token in decoder.items()}
    token_of_role: dict[str, str] = {}
    # Earlier releases of transformers wrote added tokens here (token -> id). Later ones still read
    # it if the other files have none.
    added_tokens_file = folder / "added_tokens.json"
    if added_tokens_file.exists() and not read_json(added_tokens_file).items() <= added.items():
        return None
    for file in (folder / "tokenizer_config.json", folder / "special_tokens_map.json"):
        tokenizer_config = read_json_if_there(file)
        listed_ids = {
            int(number): _added(token)
            for number, token in (tokenizer_config.get("added_tokens_decoder") or {}).items()
        }
        listed_tokens = _additional_tokens(tokenizer_config)
        config_tokens = {
            role: _content(tokenizer_config[role])
            for role in _ROLES
            if tokenizer_config.get(role) is not None
        }
        listed_tokens.update(config_tokens.values())
        # The two files may name a token for the same role.
        agrees = all(token_of_role.get(role, text) == text for role, text in config_tokens.items())
        lists_all_ids_or_none = listed_ids in ({}, decoder)
        has_all_tokens = listed_tokens <= added.keys() and lists_all_ids_or_none
        if not agrees or not has_all_tokens:
            return None
        token_of_role |= config_tokens
    return tokenizer, {role: added[text] for role, text in token_of_role.items()}


def _additional_tokens(tokenizer_config: Mapping[str, Any]) -> set[str]:
    """Returns the special tokens without a role that a tokenizer_config.json lists."""
    additional: set[str] = set()
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = tokenizer_config.get(name) or ()
        if isinstance(tokens, dict):  # role -> token, in later releases of transformers
            tokens = tokens.values()
        additional.update(map(_content, tokens))
    return additional


def _add_listed_tokens(tokenizer: Tokenizer, folder: Path) -> None:
    """Adds the tokens that files beside a vocabulary list, in the order of their ids.

    transformers adds them in that order, too. Tokens that the vocabulary has are left out.

    Args:
        tokenizer: Gets the tokens.
        folder: With the files.

    Raises:
        DataError: A file is not what it should be.
    """
    files = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    with loading(f"{folder} as a tokenizer", remedy=f"Repair what its {', '.join(files)} say."):
        config = _read_config(folder / "tokenizer_config.json")
        special_tokens_map = _read_config(folder / "special_tokens_map.json")
        id_of_added = _read_config(folder / "added_tokens.json")
        decoder = config.get("added_tokens_decoder") or {}
        added_tokens = {int(number): _added(token) for number, token in decoder.items()}
        lists = (
            part.get("additional_special_tokens") or () for part in (config, special_tokens_map)
        )
        special = set(map(_content, chain.from_iterable(lists)))
        if not added_tokens:  # earlier releases of transformers wrote added_tokens.json instead
            for text, number in id_of_added.items():
                added_tokens[int(number)] = AddedToken(
                    text, normalized=text not in special, special=text in special
                )
        known = tokenizer.get_vocab()
        in_order = [added_tokens[number] for number in sorted(added_tokens)]
        tokenizer.add_tokens([token for token in in_order if token.content not in known])


def _added(token: Any) -> AddedToken:
    """Returns a token of `added_tokens_decoder`, which is written with its properties.

    `{"content": "<ent>", "lstrip": false, ...}` -> `AddedToken("<ent>", lstrip=False, ...)`.
    """
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    flags = {name: bool(token[name]) for name in names if name in token}
    return AddedToken(_content(token), **flags)


def _content(token: Any) -> str:
    """Returns the text of a token that is written as such, or with its properties."""
    return str(token["content"] if isinstance(token, dict) else token)


def read_vocab_txt(file: Path, *, lowercase: bool) -> Tokenizer:
    """Returns BERT's pipeline around a vocabulary with one token per line.

    It does what google-research/bert `tokenization.py` does. Options of the normalizer
    (`strip_accents`, `tokenize_chinese_chars`) are read from a `tokenizer_config.json` beside it.

    Args:
        file: The vocabulary.
        lowercase: Whether texts are lower-cased.

    Raises:
        DataError: not UTF-8, a token twice, or no [UNK].
        UnavailableError: it can't be read.
    """
    vocabulary = _read_tokens(file)
    config = _read_config(file.parent / "tokenizer_config.json") | {"do_lower_case": lowercase}
    return bert_pipeline(vocabulary, config)


def bert_pipeline(vocabulary: dict[str, int], config: Mapping[str, Any]) -> Tokenizer:
    """Returns BERT's pipeline: BertNormalizer, BertPreTokenizer, WordPiece, [CLS] and [SEP].

    Args:
        vocabulary: Token -> id. Empty for a tokenizer that is to be trained.
        config: A tokenizer_config.json, with options of the normalizer.
    """
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

    If it is, its vocab.txt is enough: `BertTokenizer` of transformers makes the rest.

    Args:
        tokenizer: As a tokenizer.json has it.
        config: The tokenizer_config.json beside it.
    """
    ids: dict[str, int] = {}
    for token in SPECIAL_TOKENS:
        number = tokenizer.token_to_id(token)
        if number is not None:
            ids[token] = number
    document = json.loads(tokenizer.to_str())
    bert_document = json.loads(bert_pipeline(ids, config).to_str())
    del document["model"]["vocab"]
    del bert_document["model"]["vocab"]
    names = ("model", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return all(document[name] == bert_document[name] for name in names)


def _read_tokens(file: Path) -> dict[str, int]:
    """Returns the tokens of a vocab.txt with their ids: the numbers of their lines, from 0.

    Raises:
        DataError: Not UTF-8, a token twice, or no [UNK].
    """
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
    """Returns the error for a WordPiece vocabulary without its unknown token."""
    message = (
        f"{file} has no token {token}, which a WordPiece vocabulary needs for words it has no "
        "tokens for"
    )
    return DataError(
        message,
        remedy=f"Add a line {token} to it (in vocab.txt at the end, so that no other id moves).",
    )


def _read_json(file: Path) -> Tokenizer:
    """Returns the tokenizer of a tokenizer.json, with truncation and padding off.

    Raises:
        DataError: It is no tokenizer, has ids far beyond its tokens, or no unknown token.
    """
    text = read_text(file, kind=DataError)
    with loading(
        f"{file} as a tokenizer",
        remedy="Give the tokenizer.json that save_pretrained wrote, or the vocab.txt.",
    ):
        tokenizer = load_tokenizer(text)
    refuse_far_ids(tokenizer.get_vocab().values(), file)
    if isinstance(tokenizer.model, models.WordPiece):
        unknown_token = tokenizer.model.unk_token
        if tokenizer.token_to_id(unknown_token) is None:
            raise _no_unknown(file, unknown_token)
    return tokenizer


def _locate(name: str) -> Path:
    """Returns the file or the folder of a tokenizer, downloaded if need be.

    Args:
        name: Catalog name, file, folder, run folder or hub id.

    Raises:
        UsageError: No such model.
        UnavailableError: The file does not exist, or the hub is out of reach.
    """
    path = expanded_path(name)
    if name not in MODELS:
        is_file_name = path.suffix in (".json", ".txt")
        # If there is no file of that name, and it names no folder, it may still be a model's name.
        if is_file_name and (path.exists() or path.parent != Path()):
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
    """Returns the name of the default model, or of a stand-in if the default is not cached.

    The stand-in is a model with the same vocabulary, if the package that contains it is installed.
    """
    repo_folder = f"models--{MODELS[DEFAULT_MODEL].hub_id.replace('/', '--')}"
    snapshots = cache_folder() / repo_folder / "snapshots"
    is_cached = any(any(snapshots.glob(f"*/{file}")) for file in ("tokenizer.json", "vocab.txt"))
    if not is_cached and find_spec(MODELS[_STAND_IN].package) is not None:
        with suppress(BertctlError):  # a package without its files is no stand-in
            locate_model(_STAND_IN, weights=False)
            listener.say(
                f"{DEFAULT_MODEL} is not cached; using {_STAND_IN}, which has the same vocabulary"
            )
            return _STAND_IN
    return DEFAULT_MODEL


def _tokenizer_file(path: Path) -> Path:
    """Returns a file itself, or the tokenizer.json or vocab.txt of a folder.

    Raises:
        UnavailableError: The folder has neither.
    """
    for file in (path, path / "tokenizer.json", path / "vocab.txt"):
        if file.is_file():
            return file
    content = ", ".join(sorted(member.name for member in path.iterdir())[:10])
    message = f"{path} holds neither tokenizer.json nor vocab.txt (found: {content or 'nothing'})"
    remedy = (
        "Convert it once with transformers: "
        "AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)."
    )
    raise UnavailableError(message, remedy=remedy)


def _lowercase_of(file: Path, requested: bool | None) -> bool:
    """Returns whether texts are lower-cased for a vocab.txt, by its config or as requested.

    Raises:
        UsageError: Neither says it, or they contradict each other.
    """
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
    lowercase = stored if requested is None else requested
    if isinstance(lowercase, bool):
        return lowercase
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
    """Returns a JSON file beside a tokenizer; nothing if it does not exist."""
    return read_json_if_there(file, kind=DataError, remedy="Repair it, or move it away.")


def _type(document: dict[str, Any], part: str) -> str:
    """Returns the type of a part of a tokenizer.json, such as `WordPiece` of its `model`."""
    return str((document.get(part) or {}).get("type", ""))


def _kind(tokenizer: Tokenizer, document: dict[str, Any], lowercase: bool | None) -> str:
    """Returns a tokenizer in words: `WordPiece, 30,522 tokens, lower-cased`.

    Args:
        tokenizer: The tokenizer.
        document: Its tokenizer.json.
        lowercase: What its normalizer says; None if it says nothing.
    """
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
