"""What pretraining reads.

Corpora are packed once, into the cache folder, and texts are held out of them.

    CACHE/corpora/KEY/packed/    ids and places (tokenization/packing.py)
        corpus.json              notes on the corpora, and the texts held out of them

The key is a hash of the texts, their files' names, how they are read, and the tokenizer: no path,
no date.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from bertctl.config.schema import Recipe
from bertctl.data.corpora import Corpus, Survey, corpora_of, survey
from bertctl.data.rows import Rows
from bertctl.data.splits import content_hash
from bertctl.documents import read_json
from bertctl.errors import DataError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import hold
from bertctl.tokenization.packing import PackedText, open_packed, pack
from bertctl.writing import cache_folder, replacing, write_json


@dataclass(frozen=True)
class CorpusData:
    """Data that pretraining reads.

    Attributes:
        train: the training documents of all corpora, packed.
        validation: the documents that are scored; column `text` holds a document's sentences, one a
            line.
        names: of the corpora, in their order in `train`.
        hashes: split -> SHA-256 of its text; no path, no date.
        notes: what was left out and held out; each was also told to the listener.
    """

    train: PackedText
    validation: Rows
    names: tuple[str, ...]
    hashes: Mapping[str, str]
    notes: tuple[str, ...]


def read_corpus(recipe: Recipe, tokenizer: Tokenizer, *, listener: Listener = SILENT) -> CorpusData:
    """Returns the corpora that a recipe names, packed now or by an earlier run.

    Args:
        recipe: Its sections `pretraining` (corpus, allow_duplicates) and `data` are read.
        tokenizer: With truncation and padding off.
        listener: Receives what is guessed, left out and held out, and progress.

    Raises:
        UsageError: a text column that can't be guessed.
        DataError: files that are not what they should be, too many repeated lines, too few
            documents.
        UnavailableError: files that are not there, or a cache folder that can't be written.
    """
    section = recipe.pretraining
    validation_file = recipe.data.validation_file
    corpora, validation_corpora = corpora_of(recipe)
    if validation_file:
        fraction = None
    else:
        fraction = recipe.data.validation_fraction
    key = _key(corpora, fraction, section.allow_duplicates)
    folder = cache_folder() / "corpora" / _hash([key, tokenizer.to_str()])[:32] / "packed"
    with hold(folder.parent / ".lock", patient=True):
        if not folder.exists():
            corpus_survey = survey(
                corpora,
                fraction=fraction,
                allow_duplicates=section.allow_duplicates,
                listener=listener,
            )
            listener.say(f"the corpus is packed, once, into {folder}")
            with replacing(folder) as aside:
                _pack(
                    corpora,
                    tokenizer,
                    aside,
                    corpus_survey,
                    listener,
                )
                if key != _key(corpora, fraction, section.allow_duplicates):
                    raise DataError(
                        "a file of the corpus was changed while it was read", remedy="Start again."
                    )
    stored = read_json(
        folder / "corpus.json", limit=2**32, remedy=f"Delete {folder}: it is made anew."
    )
    for note in stored["notes"]:
        listener.say(note)
    # Documents that were held out of the corpus, or the documents of `data.validation_file`.
    documents = stored["held_out"] or [
        (document.id, "\n".join(document.sentences))
        for document in validation_corpora[0].documents(listener)
        if document.lines
    ]
    if not documents:
        raise DataError(f"{validation_file} holds no text", remedy="Give a file with text.")
    ids, texts = zip(*documents, strict=True)
    validation = Rows(
        "validation", {"text": texts}, ids, validation_file or "the documents held out"
    )
    hashes = {"train": key, "validation": content_hash(validation)}
    return CorpusData(
        train=open_packed(folder),
        validation=validation,
        names=tuple(corpus.name for corpus in corpora),
        hashes=hashes,
        notes=tuple(stored["notes"]),
    )


def _key(corpora: Sequence[Corpus], *inputs: object) -> str:
    """Returns the hash of what decides the packed texts.

    Args:
        corpora: Their files and how they are read.
        inputs: Share that is held out, and whether duplicates are allowed.
    """
    format_version = 1  # of the folder; a new format takes another number
    settings = corpora[0].settings.model_dump(
        include={"text_column", "delimiter", "header", "encoding"}
    )
    fingerprints = [corpus.fingerprint() for corpus in corpora]
    return _hash([format_version, fingerprints, settings, inputs])


def _hash(value: object) -> str:
    """Returns the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _pack(
    corpora: Sequence[Corpus],
    tokenizer: Tokenizer,
    folder: Path,
    corpus_survey: Survey,
    listener: Listener,
) -> None:
    """Packs the training documents into a new folder.

    The held-out documents and the survey's notes go into corpus.json beside them.
    """
    numbers = itertools.count()  # documents are counted over all corpora
    held_out_numbers = frozenset(corpus_survey.held_out)
    held_out = list[tuple[str, str]]()

    def training(corpus: Corpus) -> Iterator[list[str]]:
        """Yields the sentences of a corpus's training documents; collects the held-out ones."""
        for document in corpus.documents():
            if next(numbers) in held_out_numbers:
                held_out.append((document.id, "\n".join(document.sentences)))
            else:
                yield document.sentences

    pack(
        map(training, corpora),
        tokenizer,
        folder,
        documents=corpus_survey.documents,
        listener=listener,
    )
    write_json(folder / "corpus.json", {"notes": corpus_survey.notes, "held_out": held_out})
