"""What can be known, and refused, about a model before torch is imported: its config, its tokenizer, its case."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertctl.catalog.models import TOKENIZER_FILES, file_sha256, locate_model
from bertctl.config.recipe_sections import ModelSection
from bertctl.errors import UnavailableError, UsageError

_CASED_SHARE = 0.02
"""Share of tokens with a capital letter above which a vocabulary is cased (bert-base-cased 0.35, uncased 0.0)."""


@dataclass(frozen=True)
class ModelSource:
    """A model on this disk, looked at but not loaded.

    Attributes:
        name: as it was asked for.
        folder: its files.
        config: its config.json.
        max_length: longest input, checked against the model's positions.
        lowercase: whether text is lower-cased; None leaves it to the tokenizer's files.
    """

    name: str
    folder: Path
    config: dict[str, Any]
    max_length: int
    lowercase: bool | None

    def content_hash(self) -> str:
        """Returns the SHA-256 of weights, config and tokenizer: what the model is, wherever it lies."""
        import hashlib

        digest = hashlib.sha256()
        for path in sorted(self.folder.glob("*")):
            if path.suffix in (".safetensors", ".model") or path.name in (*TOKENIZER_FILES, "config.json"):
                digest.update(f"{path.name} {file_sha256(path)}\n".encode())
        return digest.hexdigest()


def inspect_model(settings: ModelSection) -> ModelSource:
    """Finds the model and checks what was asked of it.

    Raises:
        UsageError: an unknown name, a max_length over its positions, a lower-casing it contradicts.
        UnavailableError: files that are not there.
    """
    located = locate_model(settings.name, revision=settings.revision)
    folder = located.folder
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnavailableError(f"{folder / 'config.json'} is no JSON: {error}") from error
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise UnavailableError(
            f"the model folder {folder} has no tokenizer (none of {', '.join(TOKENIZER_FILES)})",
            remedy="Save the tokenizer beside the model: tokenizer.save_pretrained(folder).",
        )
    if not any(folder.glob("model*.safetensors")):
        raise UnavailableError(
            f"the model folder {folder} has no model.safetensors",
            remedy="Write it with save_pretrained of transformers; pickled weights are never loaded.",
        )
    _check_length(settings, config)
    _check_case(settings, folder)
    return ModelSource(settings.name, folder, config, settings.max_length, settings.lowercase)


def _check_length(settings: ModelSection, config: dict[str, Any]) -> None:
    positions = model_positions(config)
    if positions is not None and settings.max_length > positions:
        raise UsageError(
            f"max_length {settings.max_length} is over the {positions} positions of '{settings.name}'",
            remedy=f"Use --max-length {positions} or less, or a model with more positions (modernbert-base has 8,192).",
        )


def model_positions(config: dict[str, Any]) -> int | None:
    """Returns the longest input in tokens by the model's config.json, or None where it has no limit (XLNet)."""
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(positions, int) or positions <= 0:
        return None
    # RoBERTa's family counts positions from pad_token_id + 1 (fairseq's way): its table is longer than its input.
    if config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "longformer"):
        positions -= int(config.get("pad_token_id", 1)) + 1
    return positions


def _check_case(settings: ModelSection, folder: Path) -> None:
    """Refuses lower-casing that contradicts the name or the vocabulary.

    The idea of google-research/bert `tokenization.py::validate_case_matches_checkpoint`, which goes by the name alone.
    """
    lowercase = settings.lowercase if settings.lowercase is not None else _tokenizer_lowercase(folder)
    if lowercase is None:
        return
    evidence = _case_evidence(settings.name, folder)
    if evidence is None:
        return
    cased, because = evidence
    if cased == lowercase:
        said = "true" if lowercase else "false"
        origin = "model.lowercase is" if settings.lowercase is not None else "its tokenizer's files say lower-casing is"
        raise UsageError(
            f"{origin} {said}, but '{settings.name}' is {'cased' if cased else 'uncased'}: {because}",
            remedy=f"Use --set model.lowercase={'false' if cased else 'true'}, or leave it out for a model whose "
            "tokenizer says it.",
        )


def _case_evidence(name: str, folder: Path) -> tuple[bool, str] | None:
    """Returns whether the model is cased, and how one knows; None where nothing tells."""
    tokens = _vocabulary(folder)
    if tokens:
        capital = sum(not token.islower() and any(map(str.isupper, token)) for token in tokens) / len(tokens)
        return capital > _CASED_SHARE, f"{100 * capital:.0f} % of its tokens have a capital letter"
    words = name.lower().replace("_", "-").replace("/", "-").split("-")
    if "uncased" in words:
        return False, "its name says so"
    if "cased" in words:
        return True, "its name says so"
    return None


def _vocabulary(folder: Path) -> list[str]:
    """Returns the tokens of a WordPiece vocabulary without the special ones; empty for other kinds of tokenizer."""
    tokenizer = _tokenizer_json(folder)
    if tokenizer is not None:
        model = tokenizer.get("model") or {}
        tokens = list(model.get("vocab", {})) if model.get("type") == "WordPiece" else []
    elif (folder / "vocab.txt").exists():
        tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    else:
        tokens = []
    return [token for token in tokens if not (token.startswith("[") and token.endswith("]"))]


def _tokenizer_lowercase(folder: Path) -> bool | None:
    tokenizer = _tokenizer_json(folder)
    if tokenizer is not None:
        normalizer = tokenizer.get("normalizer") or {}
        return normalizer.get("lowercase") if normalizer.get("type") == "BertNormalizer" else None
    settings = folder / "tokenizer_config.json"
    if settings.exists():
        said = json.loads(settings.read_text(encoding="utf-8")).get("do_lower_case")
        return said if isinstance(said, bool) else None
    return None


def _tokenizer_json(folder: Path) -> dict[str, Any] | None:
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnavailableError(f"{path} is no JSON: {error}") from error
    return document
