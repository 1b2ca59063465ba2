"""A new BERT for a corpus: its vocabulary, trained or given, and random weights, made once and kept in the cache."""

import hashlib
import json
from collections.abc import Iterator, Sequence

from bertctl.config.recipe_sections import ModelSection
from bertctl.config.schema import Recipe
from bertctl.data.corpora import Corpus, open_corpora, survey
from bertctl.inference.sessions import cache_folder
from bertctl.modeling.new_bert import bert_fields, require_tokens, write_new_bert
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import Listener
from bertctl.tasks.pretraining import PAIRS
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import open_tokenizer
from bertctl.tokenization.train import save, train
from bertctl.tokenization.vocab import require_bert
from bertctl.writing import replacing


def new_model(recipe: Recipe, listener: Listener) -> ModelSource:
    """Returns a BERT with random weights; the same corpus, vocabulary, size and seed give the same one.

    Raises:
        BertctlError: a size, a vocabulary or a corpus that can't be used.
    """
    section, pairs = recipe.pretraining, PAIRS[recipe.pretraining.objective] is not None
    size, seed = str(section.from_scratch), recipe.training.seed_of_init
    fields = bert_fields(size)
    corpora = open_corpora(section.corpus, recipe.data) if section.vocab is None else []
    asked, lowercase = recipe.model.lowercase, recipe.model.lowercase is not False
    given = open_tokenizer(section.vocab, lowercase=asked, listener=listener) if section.vocab else None
    if given is not None:
        require_bert(given, "pretrain --from-scratch")
    key = {
        "fields": dict(fields),
        "vocabulary": given.tokenizer.to_str() if given else [section.vocab_size, lowercase],
        "corpora": [corpus.fingerprint() for corpus in corpora],
        "pairs": pairs,
        "seed": seed,
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder() / "models" / name
    if not folder.is_dir():
        with replacing(folder) as aside:
            if given is None:
                fraction = None if recipe.data.validation_file else recipe.data.validation_fraction
                survey(corpora, fraction=fraction, allow_duplicates=section.allow_duplicates)  # or refused here
                listener.say(f"vocabulary: learning up to {section.vocab_size:,} tokens from the corpus")
                learned = train(lambda: _texts(corpora), size=section.vocab_size, lowercase=lowercase)
                tokenizer = save(learned, aside, lowercase=lowercase)
            else:
                tokenizer = save(given.tokenizer, aside, lowercase=given.tokenizer.normalizer.lowercase)
            require_tokens(tokenizer, folder)
            write_new_bert(aside, size, tokenizer, pairs=pairs, seed=seed)
    settings = ModelSection(name=str(folder), max_length=recipe.model.max_length, lowercase=asked)
    source = inspect_model(settings, own=True)
    listener.say(f"model: a new BERT ({size}), {int(source.config['vocab_size']):,} tokens")
    return source


def _texts(corpora: Sequence[Corpus]) -> Iterator[TextChunk]:
    return (TextChunk(document.sentences) for corpus in corpora for document in corpus.documents())
