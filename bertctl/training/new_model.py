"""A new BERT for a corpus, made once and kept in the cache.

Its vocabulary is trained or given, and its weights are random.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertctl.config.recipe_sections import ModelSection
from bertctl.config.schema import Recipe
from bertctl.data.corpora import Corpus, open_corpora, survey
from bertctl.documents import loading, read_json
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.load import silence_transformers
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import Listener
from bertctl.tasks.pretraining.task import PAIRS
from bertctl.tokenization.reference import tokens_by_id
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import open_tokenizer
from bertctl.tokenization.train import save, train
from bertctl.tokenization.vocab import require_bert
from bertctl.words import listing, unknown
from bertctl.writing import cache_folder, failures_of, replacing

_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
}
"""Layers and hidden size (Turc et al. 2019, "Well-Read Students Learn Better", table 1); heads are
64 wide."""


def new_model(recipe: Recipe, listener: Listener) -> ModelSource:
    """Returns a BERT with random weights.

    The same corpus, vocabulary, size and seed give the same one.

    Raises:
        BertctlError: a size, a vocabulary or a corpus that can't be used.
    """
    section = recipe.pretraining
    pairs = PAIRS[recipe.pretraining.objective] is not None
    size = str(section.from_scratch)
    seed = recipe.training.seed_of_init
    fields = _fields(size, listener)
    if section.vocab is None:
        corpora = open_corpora(section.corpus, recipe.data)
    else:
        corpora = []
    lowercase_setting = recipe.model.lowercase
    lowercase = recipe.model.lowercase is not False
    if section.vocab:
        opened_tokenizer = open_tokenizer(
            section.vocab, lowercase=lowercase_setting, listener=listener
        )
    else:
        opened_tokenizer = None
    if opened_tokenizer is not None:
        require_bert(opened_tokenizer, "`pretraining.from_scratch=True`")
    vocabulary: Any = [section.vocab_size, lowercase]
    if opened_tokenizer:
        vocabulary = opened_tokenizer.tokenizer.to_str()
    key = {
        "fields": fields,
        "vocabulary": vocabulary,
        "corpora": [corpus.fingerprint() for corpus in corpora],
        "pairs": pairs,
        "seed": seed,
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder() / "models" / name
    if not folder.is_dir():
        with replacing(folder) as aside:
            if opened_tokenizer is None:
                if recipe.data.validation_file:
                    fraction = None
                else:
                    fraction = recipe.data.validation_fraction
                # Refuses a corpus that can't be used.
                survey(corpora, fraction=fraction, allow_duplicates=section.allow_duplicates)
                listener.say(
                    f"vocabulary: learning up to {section.vocab_size:,} tokens from the corpus"
                )
                learned = train(
                    lambda: _texts(corpora), size=section.vocab_size, lowercase=lowercase
                )
                tokenizer = save(learned, aside, lowercase=lowercase)
            else:
                tokenizer = save(
                    opened_tokenizer.tokenizer,
                    aside,
                    lowercase=opened_tokenizer.tokenizer.normalizer.lowercase,
                )
            _require_tokens(tokenizer, folder)
            _write(
                aside,
                size,
                fields,
                tokenizer,
                pairs=pairs,
                seed=seed,
            )
    settings = ModelSection(
        name=str(folder), max_length=recipe.model.max_length, lowercase=lowercase_setting
    )
    source = inspect_model(settings, is_from_run=True)
    listener.say(f"model: a new BERT ({size}), {int(source.config['vocab_size']):,} tokens")
    return source


def _texts(corpora: Sequence[Corpus]) -> Iterator[TextChunk]:
    for corpus in corpora:
        for document in corpus.documents():
            yield TextChunk(document.sentences)


def _fields(size: str, listener: Listener) -> dict[str, Any]:
    """Returns fields of a BertConfig.

    They describe a size of google-research/bert's miniatures, or come from a JSON file.

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
        message = unknown("size", size, _SIZES)
        raise UsageError(
            message, remedy=f"Sizes: {', '.join(_SIZES)}; or a JSON file with a BertConfig."
        )
    from transformers import BertConfig

    fields = read_json(Path(size))
    known = BertConfig()
    if not isinstance(fields, dict) or fields.get("model_type", "bert") != "bert":
        if isinstance(fields, dict):
            kind = fields.get("model_type")
        else:
            kind = "no object"
        raise UsageError(
            f"{size} describes no BERT: {kind!r}", remedy="Give the fields of a BertConfig."
        )
    strange = [name for name in fields if not hasattr(known, name)]
    if strange:
        listener.warn(f"{size}: nothing comes of {listing(strange)}, which no BertConfig has")
    return fields


def _write(
    folder: Path, size: str, fields: dict[str, Any], tokenizer: Tokenizer, *, pairs: bool, seed: int
) -> None:
    """Writes a BERT with random weights beside its tokenizer's files.

    They lie as `save_pretrained` lays them out.

    Raises:
        UsageError: fields that make no BERT.
    """
    import transformers

    from bertctl.runtime.seeding import seed_everything

    vocabulary_fields = {
        "vocab_size": len(tokens_by_id(tokenizer)),
        "pad_token_id": tokenizer.token_to_id("[PAD]"),
    }
    silence_transformers()
    seed_everything(seed)
    with loading(
        f"the BERT of '{size}'",
        kind=UsageError,
        remedy="Give the fields of a BertConfig that fit together.",
    ):
        config = transformers.BertConfig(**{**fields, **vocabulary_fields})
        network: Any = (transformers.BertForPreTraining if pairs else transformers.BertForMaskedLM)(
            config
        )
    with failures_of(folder / "model.safetensors"):
        network.save_pretrained(folder)


def _require_tokens(tokenizer: Tokenizer, folder: Path) -> None:
    """Refuses a vocabulary that a BERT can't be trained with.

    Raises:
        UnavailableError: it lacks a special token.
    """
    missing = [
        name
        for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
        if tokenizer.token_to_id(name) is None
    ]
    if missing:
        message = f"the vocabulary in {folder} has no {', '.join(missing)}"
        raise UnavailableError(
            message,
            remedy="Train one with `bertctl vocab train`, or leave `pretraining.vocab=` out.",
        )
