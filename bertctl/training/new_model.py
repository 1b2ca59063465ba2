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
    """Returns a BERT with random weights, made now or found in the cache.

    The same corpus, vocabulary, size and seed give the same model. Its vocabulary is the one that
    the recipe names, else it is learned from the corpus.

    Args:
        recipe: Has the size of the model, the vocabulary and the corpus.
        listener: Receives messages.

    Raises:
        BertctlError: A size, a vocabulary or a corpus that can't be used.
    """
    section = recipe.pretraining
    has_pairs = PAIRS[section.objective] is not None
    size = str(section.from_scratch)
    seed = recipe.training.seed_of_init
    fields = _fields(size, listener)
    # The corpus decides the model only if the vocabulary is learned from it.
    corpora: Sequence[Corpus] = []
    opened_tokenizer = None
    if section.vocab is None:
        corpora = open_corpora(section.corpus, recipe.data)
    if section.vocab:
        opened_tokenizer = open_tokenizer(
            section.vocab, lowercase=recipe.model.lowercase, listener=listener
        )
        require_bert(opened_tokenizer, "`pretraining.from_scratch=True`")
    lowercase = recipe.model.lowercase is not False
    vocabulary: Any = [section.vocab_size, lowercase]
    if opened_tokenizer is not None:
        vocabulary = opened_tokenizer.tokenizer.to_str()
    key = {
        "fields": fields,
        "vocabulary": vocabulary,
        "corpora": [corpus.fingerprint() for corpus in corpora],
        "pairs": has_pairs,
        "seed": seed,
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder() / "models" / name
    if not folder.is_dir():
        with replacing(folder) as aside:
            if opened_tokenizer is None:
                tokenizer = _learn_vocabulary(recipe, corpora, aside, listener)
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
                pairs=has_pairs,
                seed=seed,
            )
    settings = ModelSection(
        name=str(folder),
        max_length=recipe.model.max_length,
        lowercase=recipe.model.lowercase,
    )
    source = inspect_model(settings, is_from_run=True)
    listener.say(f"model: a new BERT ({size}), {int(source.config['vocab_size']):,} tokens")
    return source


def _learn_vocabulary(
    recipe: Recipe, corpora: Sequence[Corpus], folder: Path, listener: Listener
) -> Tokenizer:
    """Learns a WordPiece vocabulary from the corpora, and writes the tokenizer to a folder.

    Raises:
        BertctlError: The corpus can't be used for the recipe's pretraining.
    """
    section = recipe.pretraining
    lowercase = recipe.model.lowercase is not False
    # Documents are held out for validation unless a file has them.
    fraction = None if recipe.data.validation_file else recipe.data.validation_fraction
    # Refuses a corpus that can't be used.
    survey(corpora, fraction=fraction, allow_duplicates=section.allow_duplicates)
    listener.say(f"vocabulary: learning up to {section.vocab_size:,} tokens from the corpus")
    learned = train(lambda: _texts(corpora), size=section.vocab_size, lowercase=lowercase)
    return save(learned, folder, lowercase=lowercase)


def _texts(corpora: Sequence[Corpus]) -> Iterator[TextChunk]:
    """Yields the documents of corpora one after the other, as chunks of sentences."""
    for corpus in corpora:
        for document in corpus.documents():
            yield TextChunk(document.sentences)


def _fields(size: str, listener: Listener) -> dict[str, Any]:
    """Returns fields of a BertConfig, by the name of a size or from a JSON file.

    Args:
        size: One of `_SIZES`, as the miniatures of google-research/bert have them, or the path of a
            file.
        listener: Receives a warning about fields in the file that no BertConfig has.

    Raises:
        UsageError: No such size, or a file that describes another family.
        UnavailableError: No such file.
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
    """Writes config.json and random weights of a BERT, as `save_pretrained` does.

    Args:
        folder: Folder that has the tokenizer's files already.
        size: As the recipe has it, for a message.
        fields: Fields of the model's BertConfig.
        tokenizer: Its number of tokens decides the size of the word table.
        pairs: Whether the model has a head for pairs of sentences beside the masked-word head.
        seed: Seed of the weights.

    Raises:
        UsageError: The fields make no BERT.
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
        network_class: Any = transformers.BertForMaskedLM
        if pairs:
            network_class = transformers.BertForPreTraining
        network = network_class(config)
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
