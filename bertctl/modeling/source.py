"""What can be known, and refused, about a model before torch is imported.

It is its config, its tokenizer, and its case.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from bertctl.catalog.lock import file_sha256
from bertctl.catalog.models import SENTENCEPIECE_FILES, TOKENIZER_FILES, locate_model
from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.documents import loading, read_json, read_json_if_there, read_text, refuse_far_ids
from bertctl.errors import UnavailableError, UsageError
from bertctl.memory import require_memory
from bertctl.modeling.families import (
    model_positions,
    model_sizes,
    only_fp32,
    read_length,
    refuse_family,
)
from bertctl.modeling.kept_layers import check_kept_layers, kept_config
from bertctl.modeling.stored_weights import stored_weights
from bertctl.runtime.cpu import available_cores
from bertctl.runtime.device import Compute, choose_compute

_CASED_SHARE = 0.02
"""Share of tokens with a capital letter above which a vocabulary is cased (bert-base-cased 0.35,
uncased 0.0)."""

# transformers takes minutes for a config.json that is much larger.
_CONFIG_LIMIT = 8 * 2**20
"""Bytes of a config.json."""

_KEY_LIMIT = 1000
"""Keys of a config.json."""

_LABEL_LIMIT = 100_000
"""Labels of a model."""

_CONVERTERS = {"sentencepiece": "sentencepiece", "google": "protobuf"}
"""What converts a tokenizer of sentencepiece: modules, and the packages that bring them."""

_Tokenizer = dict[str, Any] | None
"""A tokenizer.json, where there is one."""

_TOKEN_KEYS = {
    "__type",
    "content",
    "id",
    "lstrip",
    "normalized",
    "rstrip",
    "single_word",
    "special",
}

_ATTENTION = (None, "eager", "sdpa")
_EXPERTS = (None, "eager", "batched_mm", "grouped_mm")
_HARMLESS: dict[str, tuple[str | None, ...]] = {
    **dict.fromkeys(("attn_implementation", "_attn_implementation"), _ATTENTION),
    **dict.fromkeys(("experts_implementation", "_experts_implementation"), _EXPERTS),
    **dict.fromkeys(
        ("quantization_config", "transformers_weights", "backbone", "use_pretrained_backbone"),
        (None,),
    ),
}
"""Keys of a config.json by which transformers fetches or runs something else, with the values that
do not: another implementation of attention is a kernel, which is downloaded code."""


class ModelFiles(Protocol):
    """What is known of a model on this disk, in whatever format it lies there."""

    @property
    def name(self) -> str:
        """As messages name it."""

    @property
    def folder(self) -> Path:
        """Its files."""

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""

    def content_hash(self) -> str:
        """Returns the hash of all that its vectors depend on."""


@dataclass(frozen=True)
class ModelSource:
    """A model on this disk, looked at but not loaded.

    Attributes:
        name: Name in the request: a name, folder or hub id.
        folder: Folder of its files.
        config: Content of its config.json; with `keep_layers`, for these layers only.
        max_length: Longest input, checked against the model's positions.
        lowercase: Whether text is lower-cased; None leaves it to the tokenizer's files.
        keep_layers: Layers that a model made of it has, counted from 1; empty for all of them.
    """

    name: str
    folder: Path
    config: dict[str, Any]
    max_length: int
    lowercase: bool | None
    keep_layers: tuple[int, ...] = ()

    def with_all_layers(self) -> "ModelSource":
        """Returns the same model with all layers of its files, also those that are left out."""
        if not self.keep_layers:
            return self
        config = read_json(self.folder / "config.json", limit=_CONFIG_LIMIT)
        return replace(self, config=config, keep_layers=())

    def content_hash(self) -> str:
        """Returns the SHA-256 of weights, config and tokenizer.

        It identifies the model: copies in other folders have the same hash.
        """
        import hashlib

        digest = hashlib.sha256()
        for path in sorted(self.folder.glob("*")):
            if path.suffix in (".safetensors", ".model") or path.name in (
                *TOKENIZER_FILES,
                "config.json",
            ):
                digest.update(f"{path.name} {file_sha256(path)}\n".encode())
        # Dense layers of sentence-transformers.
        for path in sorted(self.folder.glob("*_Dense/model.safetensors")):
            digest.update(f"{path.parent.name} {file_sha256(path)}\n".encode())
        return digest.hexdigest()

    def compute(
        self, runtime: RuntimeSection, *, reasons: Mapping[str, str] | None = None
    ) -> Compute:
        """Returns where and how this model computes: see `choose_compute`.

        Raises:
            DeviceError: The device is absent, or can't do the precision.
        """
        return choose_compute(runtime, only_fp32=only_fp32(self.config), reasons=reasons)


def inspect_model(settings: ModelSection, *, is_from_run: bool = False) -> ModelSource:
    """Returns a model's files, after checking them and the settings, without loading the model.

    Args:
        settings: Name of the model, its longest input, and so on.
        is_from_run: Whether the model was made by a run. A lock file can't know such a model.

    Raises:
        UsageError: No docstrings (-OO); an unknown name, a max_length over its positions, a wrong
            lower-casing, layers that are not there.
        UnavailableError: Files that are not there.
    """
    if sys.flags.optimize > 1:
        message = (
            "PYTHONOPTIMIZE=2 (python -OO) takes docstrings away, and transformers can't be "
            "imported without them"
        )
        raise UsageError(message, remedy="Unset PYTHONOPTIMIZE, or set it to 1.")
    folder = locate_model(settings.name, revision=settings.revision, is_from_run=is_from_run)
    config = read_json(folder / "config.json", limit=_CONFIG_LIMIT)
    _refuse_foreign(config, folder)
    refuse_family(config, settings.name)
    tokenizer_files = [name for name in TOKENIZER_FILES if (folder / name).exists()]
    if (
        tokenizer_files
        and set(tokenizer_files) <= set(SENTENCEPIECE_FILES)
        and not all(map(find_spec, _CONVERTERS))
    ):
        message = (
            f"{folder / tokenizer_files[0]} is a tokenizer of sentencepiece, and what converts it "
            "is not installed"
        )
        remedy = (
            f"pip install {' '.join(_CONVERTERS.values())}, or give a folder that has its "
            "tokenizer.json."
        )
        raise UnavailableError(message, remedy=remedy)
    if not tokenizer_files:
        message = (
            f"the model folder {folder} has no tokenizer (none of {', '.join(TOKENIZER_FILES)})"
        )
        raise UnavailableError(
            message,
            remedy="Save the tokenizer beside the model: tokenizer.save_pretrained(folder).",
        )
    with loading(
        f"the model in {folder}",
        kind=UnavailableError,
        remedy="Give files that save_pretrained wrote.",
    ):
        _check_length(settings, config)
        _check_size(config, folder)
        file = folder / "tokenizer.json"
        if file.exists():
            tokenizer = read_json(file)
        else:
            tokenizer = None
        _check_ids(tokenizer, folder, model_sizes(config)["vocabulary"])
        _check_added_tokens(tokenizer or {}, folder)
        lowercase = _case(settings, folder, tokenizer)
    keep_layers = tuple(settings.keep_layers or ())
    if keep_layers:
        check_kept_layers(keep_layers, config, settings.name)
        config = kept_config(config, keep_layers)
    return ModelSource(
        settings.name,
        folder,
        config,
        settings.max_length,
        lowercase,
        keep_layers=keep_layers,
    )


def _refuse_foreign(config: Any, folder: Path) -> None:
    """Refuses a config.json that makes transformers fetch or run anything outside the folder.

    It is searched with all its nested values. `auto_map`, which names code, needs no refusal: it is
    never run.

    Args:
        config: Content of config.json, or a value in it.
        folder: Folder of the model, for the message.

    Raises:
        UnavailableError: Kernels for attention or experts, other formats of weights, backbones.
    """
    if isinstance(config, list):
        for part in config:
            _refuse_foreign(part, folder)
    if not isinstance(config, dict):
        return
    for part in config.values():
        _refuse_foreign(part, folder)
    for name, value in config.items():
        fitting = _HARMLESS.get(name)
        if fitting is None:
            continue
        is_harmless = isinstance(value, str | None) and value in fitting
        if not is_harmless:
            fits = " and ".join(word for word in fitting if word) or "nothing else"
            raise UnavailableError(
                f"{folder / 'config.json'}: {name} is {str(value)[:60]!r}, which may be code or "
                "weights from elsewhere",
                remedy=f"{fits} would fit. Take the key out of config.json if the files of the "
                "folder are the model.",
            )


def _check_size(config: dict[str, Any], folder: Path) -> None:
    """Refuses a config of a model larger than its weights or the memory, before it is built.

    Raises:
        UnavailableError: Too many keys or labels, more layers than tensors, or weights that can't
            be read.
        DeviceError: Too little memory.
    """
    labels = max(
        config.get("num_labels") or 0,
        *(len(config.get(name) or ()) for name in ("id2label", "label2id")),
    )
    if len(config) > _KEY_LIMIT or labels > _LABEL_LIMIT:
        message = f"{folder / 'config.json'} has {len(config):,} keys and {labels:,} labels"
        raise UnavailableError(
            message, remedy=f"At most {_KEY_LIMIT:,} and {_LABEL_LIMIT:,} are read."
        )
    weights = stored_weights(folder)
    sizes = model_sizes(config)
    layers, hidden, inner = (sizes[name] for name in ("layers", "hidden", "inner"))
    # ALBERT's layers share their weights.
    if layers > len(weights) and not config.get("num_hidden_groups"):
        raise UnavailableError(
            f"{folder / 'config.json'} describes {layers:,} layers, and the weights beside it are "
            f"{len(weights):,} tensors",
            remedy="Give a folder whose config.json and model.safetensors were saved together "
            "(save_pretrained).",
        )
    layers = int(config.get("num_hidden_groups") or layers)
    # Parameters that transformers would make by config.json: tables of words and positions, four
    # matrices of the attention and two of the feed-forward part in each layer.
    table_parameters = (sizes["vocabulary"] + sizes["positions"]) * hidden
    layer_parameters = (4 * hidden + 2 * (inner or 4 * hidden)) * hidden
    described_bytes = 4 * (table_parameters + layers * layer_parameters)
    stored_bytes = sum(tensor.bytes for tensor in weights.values())
    needed_bytes = max(described_bytes, stored_bytes)
    require_memory(needed_bytes, f"the model in {folder}", threads=available_cores())


def _check_ids(tokenizer: _Tokenizer, folder: Path, n_vectors: int) -> None:
    """Refuses a vocabulary with ids that are far too large, or that the model has no vector for.

    A vocabulary of more tokens than vectors is refused later, with another message.

    Args:
        tokenizer: Content of tokenizer.json, None without that file.
        folder: Folder of the model.
        n_vectors: Rows of its word table.

    Raises:
        UnavailableError: There is such an id.
    """
    model = (tokenizer or {}).get("model") or {}
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        refuse_far_ids(vocabulary.values(), folder / "tokenizer.json")
        if len(vocabulary) <= n_vectors:
            _check_last_id(vocabulary.values(), folder / "tokenizer.json", n_vectors)
    file = folder / "vocab.json"
    if file.exists():
        refuse_far_ids(read_json(file).values(), file)


def _check_last_id(ids: Collection[int], file: Path, n_vectors: int) -> None:
    """Refuses a vocabulary whose largest id is over the model's vectors."""
    last_id = max(ids, default=0)
    if last_id >= n_vectors:
        message = (
            f"{file} has a token with the id {last_id}, and the model has vectors for {n_vectors}"
        )
        raise UnavailableError(
            message,
            remedy="Save both again: save_pretrained of the model and of its tokenizer.",
        )


def _check_added_tokens(tokenizer: dict[str, Any], folder: Path) -> None:
    """Refuses added tokens with unknown keys, which `tokenizers` prints on stdout as they are.

    Raises:
        UnavailableError: One of the files has a token with an unknown key.
    """
    files = {"tokenizer.json": tokenizer.get("added_tokens") or []}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        document = read_json_if_there(folder / name)
        files[name] = [*(document.get("added_tokens_decoder") or {}).values(), *document.values()]
    for name, tokens in files.items():
        for token in tokens:
            is_token = isinstance(token, dict) and "content" in token
            if not is_token:
                continue
            for key in sorted(set(token) - _TOKEN_KEYS):
                message = (
                    f"{folder / name}: the token {token['content']!r:.60} has the key {key!r:.60}"
                )
                raise UnavailableError(
                    message, remedy=f"The keys of a token are {', '.join(sorted(_TOKEN_KEYS))}."
                )


def _check_length(settings: ModelSection, config: dict[str, Any]) -> None:
    """Refuses a `model.max_length` that is over the positions of the model.

    Raises:
        UsageError: The length is over the positions.
    """
    positions = model_positions(config)
    if positions is not None and settings.max_length > positions:
        message = (
            f"max_length {settings.max_length} is over the {positions} positions of "
            f"'{settings.name}'"
        )
        remedy = (
            f"Use `model.max_length={positions}` or less, or a model with more positions "
            "(modernbert-base has 8,192)."
        )
        raise UsageError(message, remedy=remedy)


def _case(settings: ModelSection, folder: Path, tokenizer: _Tokenizer) -> bool | None:
    """Returns whether text is lower-cased; None leaves that to a tokenizer that is not BERT's.

    The recipe decides, else the tokenizer's files. If these contradict each other, or if there is
    only a vocab.txt, the vocabulary decides. The idea comes from google-research/bert,
    `tokenization.py::validate_case_matches_checkpoint`, which looks at the model's name only.

    Args:
        settings: Has the model's name, and perhaps `lowercase`.
        folder: The model's files.
        tokenizer: Content of tokenizer.json, None without that file.

    Raises:
        UsageError: The setting contradicts the name or the vocabulary, or nothing decides.
    """
    declared = set(_declared_lowercase(folder, tokenizer))
    if settings.lowercase is not None:
        lowercase = settings.lowercase
    elif len(declared) == 1:
        lowercase = declared.pop()
    else:
        lowercase = None
    # Whether the model is cased by its vocabulary (or its name), and why; None if unknown.
    evidence = _case_evidence(settings.name, _vocabulary(folder, tokenizer))
    if lowercase is None:
        is_contradictory = len(declared) > 1
        # Only a vocabulary, as the models of google-research/bert have.
        has_vocabulary_alone = (
            not declared
            and (folder / "vocab.txt").exists()
            and not (folder / "tokenizer.json").exists()
        )
        if has_vocabulary_alone and evidence is None:
            raise UsageError(
                f"{folder} does not tell if its text is lower-cased (no tokenizer_config.json "
                "with do_lower_case)",
                remedy="Add `model.lowercase=false` for a cased model, true for an uncased one.",
            )
        if evidence is not None and (has_vocabulary_alone or is_contradictory):
            is_cased, _ = evidence
            return not is_cased
        return None
    if evidence is None:
        return lowercase

    # A cased model must not be lower-cased, an uncased one must be.
    is_cased, because = evidence
    if is_cased == lowercase:
        if settings.lowercase is not None:
            origin = "model.lowercase is"
        else:
            origin = "its tokenizer's files say lower-casing is"
        if is_cased:
            kind = "cased"
            fitting_value = "false"
        else:
            kind = "uncased"
            fitting_value = "true"
        raise UsageError(
            f"{origin} {str(lowercase).lower()}, but '{settings.name}' is {kind}: {because}",
            remedy=f"Use `model.lowercase={fitting_value}`, or leave it out for a model whose "
            "tokenizer says it.",
        )
    return lowercase


def _case_evidence(name: str, tokens: list[str]) -> tuple[bool, str] | None:
    """Returns whether a model is cased, and the evidence as half a sentence; None without any.

    Args:
        name: Name of the model; it counts if there are no tokens.
        tokens: WordPiece vocabulary without special tokens; empty if the model has none.
    """
    if tokens:
        # `islower` rules most tokens out quickly.
        n_capital = sum(not token.islower() and any(map(str.isupper, token)) for token in tokens)
        n_lower = sum(map(str.islower, tokens))
        capital_share = n_capital / len(tokens)
        is_cased = capital_share > _CASED_SHARE
        has_letter_case = 2 * n_lower >= len(tokens)
        # In a script without capitals, lower-casing would still take accents away.
        if not is_cased and not has_letter_case:
            return None
        return is_cased, f"{100 * capital_share:.0f} % of its tokens have a capital letter"
    words = {*name.lower().replace("_", "-").replace("/", "-").split("-")}
    if words & {"cased", "uncased"}:
        return ("uncased" not in words, "its name tells so")
    return None


def _vocabulary(folder: Path, tokenizer: _Tokenizer) -> list[str]:
    """Returns the tokens of a WordPiece vocabulary, without special ones such as [CLS].

    Empty for other kinds of tokenizer.

    Args:
        folder: The model's files; vocab.txt is read if there is no tokenizer.json.
        tokenizer: Content of tokenizer.json, None without that file.
    """
    tokens: list[str] = []
    if tokenizer is not None:
        model = tokenizer.get("model") or {}
        if model.get("type") == "WordPiece":
            tokens = list(model.get("vocab", {}))
    elif (folder / "vocab.txt").exists():
        tokens = read_text(folder / "vocab.txt").splitlines()
    return [token for token in tokens if not (token.startswith("[") and token.endswith("]"))]


def _declared_lowercase(folder: Path, tokenizer: _Tokenizer) -> Iterator[bool]:
    """Yields what each of the tokenizer's files says about lower-casing.

    Args:
        folder: The model's files.
        tokenizer: Content of tokenizer.json, None without that file.

    Raises:
        TypeError: A value that is neither true nor false.
    """
    config_file = folder / "tokenizer_config.json"
    normalizer = (tokenizer or {}).get("normalizer") or {}
    if normalizer.get("type") == "BertNormalizer":
        by_normalizer = normalizer.get("lowercase")
    else:
        by_normalizer = None
    values = [by_normalizer]
    # With a tokenizer.json, `do_lower_case` has an effect only on the normalizer of BERT.
    has_effect = tokenizer is None or by_normalizer is not None
    if config_file.exists() and has_effect:
        values.append(read_json(config_file).get("do_lower_case"))
    for value in values:
        if not isinstance(value, bool | None):
            raise TypeError(f"{config_file}: do_lower_case is {value!r}, neither true nor false")
        if value is not None:
            yield value


def find_encoder(name: str) -> tuple[ModelSource, int]:
    """Returns a model's checked files, and how many tokens of a text the model reads.

    Args:
        name: A model's name, folder or hub id.

    Raises:
        UsageError: No such model, or one that can't be used.
        UnavailableError: Files that are not there.
    """
    any_length = 4  # not read: the model's own length is returned
    source = inspect_model(ModelSection(name=name, max_length=any_length))
    return source, read_length(source.config)
