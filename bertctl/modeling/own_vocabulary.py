"""A model under another vocabulary.

The rows of its tables follow the tokens, everything else stays as it is.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_sections import ModelSection
from bertctl.documents import read_json
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.modeling.stored_weights import places, stored_weights, word_table
from bertctl.tokenization.reference import tokens_by_id
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import OpenTokenizer, open_tokenizer
from bertctl.tokenization.vocab_changes import ChangedVocabulary, grown, shrunk
from bertctl.writing import failures_of, replacing, write_json, write_text

if TYPE_CHECKING:
    from torch import Tensor

_NUMBERED = ("config.json", "generation_config.json", "tokenizer_config.json")
"""Files with ids of tokens."""

_WRITTEN = (
    "model.safetensors.index.json",
    "tokenizer.json",
    "vocab.json",
    "added_tokens.json",
    "entity_vocab.json",
)
"""What is not copied: it is written anew, or the new tokenizer.json says it."""


def grow(
    name: str, chunks: Iterable[TextChunk], folder: Path, *, words: int, overwrite: bool = False
) -> dict[str, Any]:
    """Writes a model whose vocabulary has new words, those of a corpus that save most tokens.

    A new word's row is the mean of the rows of the tokens that it broke into, in the table of token
    vectors and in the masked-word head (its bias, and its matrix where that is one of its own); see
    `_rows`. Hidden states of texts in which no word begins with a new one stay the same, bit by
    bit.

    Args:
        name: Name of a model, its folder, a run or hub id.
        chunks: The corpus.
        folder: Where the new model is written.
        words: How many are added at most.
        overwrite: Whether a model that is in the folder is replaced.

    Returns:
        A document with the model, the folder, the sizes of the vocabulary and of the corpus in
        tokens before and after, and the new words.

    Raises:
        UsageError: No such model, no WordPiece, a folder that is in use.
        DataError: A corpus without such words.
        UnavailableError: Files that are not there, or can't be written.
    """
    source, opened = _opened(name, folder, overwrite=overwrite)
    return _write(source, folder, opened, grown(opened, chunks, words=words))


def shrink(
    name: str, chunks: Iterable[TextChunk], folder: Path, *, overwrite: bool = False
) -> dict[str, Any]:
    """Writes a model with only those tokens that a corpus uses.

    Special tokens and single characters stay; see `grow`.

    Hidden states of the corpus's texts stay the same, bit by bit.
    """
    source, opened = _opened(name, folder, overwrite=overwrite)
    return _write(source, folder, opened, shrunk(opened, chunks))


def _opened(name: str, folder: Path, *, overwrite: bool) -> tuple[ModelSource, OpenTokenizer]:
    """Returns a model's files and its tokenizer, once the output folder is known to be usable.

    Args:
        name: Name of the model, its folder, a run or hub id.
        folder: Where the changed model will be written.
        overwrite: Whether a model in the folder is replaced.

    Raises:
        UsageError: The folder is in use, there is no such model, or it has a decoder.
    """
    is_used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_used and not overwrite:
        remedy = (
            "Choose another folder with `output=`, or add `overwrite=True` for a model "
            "that is to be replaced."
        )
        raise UsageError(f"{folder} exists already", remedy=remedy)
    any_length = 4  # no text is read, and every model has as many positions
    source = inspect_model(ModelSection(name=name, max_length=any_length))
    if is_used:
        _refuse_to_replace(folder, source)
    if source.config.get("is_encoder_decoder"):
        raise UsageError(
            f"'{name}' has a decoder with tables of its own",
            remedy="Give an encoder, such as a BERT.",
        )
    return source, open_tokenizer(name, lowercase=source.lowercase)


def _refuse_to_replace(folder: Path, source: ModelSource) -> None:
    """Refuses an output folder unless all its files are ones that a model of this kind has.

    The folder will be replaced as a whole, so another file in it would be lost.

    Args:
        folder: Folder that exists, or a file.
        source: The model that is read, whose files tell which ones will be written.

    Raises:
        UsageError: The folder has another file, or is the folder of `source`.
    """
    if folder.resolve() == source.folder.resolve():
        raise UsageError(
            f"{folder} is the model that is read", remedy="Choose another folder with `output=`."
        )
    if folder.is_dir():
        names = {path.name for path in folder.iterdir()}
    else:
        names = {folder.name}
    written = {path.name for path in source.folder.glob("*.json")}
    written |= {module.name for module in source.folder.glob("[0-9]_*/")}
    written |= {"tokenizer.json", "vocab.txt", "model.safetensors", "config.json"}
    foreign_files = sorted(names - written)
    if foreign_files:
        message = (
            f"{folder} has more in it than a model of {source.name}, such as {foreign_files[0]}"
        )
        raise UsageError(message, remedy="Choose another folder with `output=`.")


def _write(
    source: ModelSource, folder: Path, opened: OpenTokenizer, changed: ChangedVocabulary
) -> dict[str, Any]:
    """Writes a model with its new vocabulary to a folder, and returns the document about it.

    Args:
        source: The model with the old vocabulary.
        folder: Where it is written, in place of what is there.
        opened: The model's old tokenizer.
        changed: The new vocabulary.
    """
    weights = _changed_weights(source.folder, changed)
    size = len(changed.kept) + len(changed.words)
    new_ids = {int(old_id): i for i, old_id in enumerate(changed.kept)}
    from safetensors.torch import save_file

    with replacing(folder) as aside:
        aside.mkdir()
        for file in source.folder.glob("*.json"):
            if file.name in _NUMBERED:
                write_json(aside / file.name, _renumbered(read_json(file), new_ids, size))
            elif file.name not in _WRITTEN:
                shutil.copyfile(file, aside / file.name)
        for module in source.folder.glob("[0-9]_*/"):  # of sentence-transformers
            shutil.copytree(module, aside / module.name)
        write_text(aside / "tokenizer.json", changed.tokenizer.to_str(pretty=True))
        if (source.folder / "vocab.txt").exists():
            write_text(
                aside / "vocab.txt",
                "".join(f"{token}\n" for token in tokens_by_id(changed.tokenizer)),
            )
        with failures_of(folder / "model.safetensors"):
            save_file(weights, aside / "model.safetensors", metadata={"format": "pt"})
        # safetensors makes files that only the owner may read.
        shutil.copymode(aside / "config.json", aside / "model.safetensors")
    return {
        "model": opened.name,
        "output": str(folder),
        "vocabulary": {"before": opened.tokenizer.get_vocab_size(), "after": size},
        "corpus_pieces": {"before": int(changed.counts.sum()), "after": changed.tokens},
        "words": [word.as_json() for word in changed.words],
    }


def _changed_weights(folder: Path, changed: ChangedVocabulary) -> "dict[str, Tensor]":
    """Returns a model's weights by name, fitted to its new vocabulary.

    The word table, and the weights of the head with an entry for each token, get entries for the
    tokens of the new vocabulary instead.

    Args:
        folder: The model with the old vocabulary.
        changed: The new vocabulary, with the old tokens that stay and the words that are added.

    Raises:
        UnavailableError: The word table has fewer rows than the tokenizer has tokens, or as many
            rows as a vector has numbers.
    """
    stored = stored_weights(folder)
    table = word_table(stored)
    place_of_weight = places(stored)
    rows = table.shape[0]
    if rows < len(changed.counts):
        message = (
            f"the table of token vectors in {folder} has {rows:,} rows, and its tokenizer more "
            "tokens"
        )
        remedy = "Give a folder whose model and tokenizer were saved together (save_pretrained)."
        raise UnavailableError(message, remedy=remedy)
    # A weight of the head is recognised by an axis as long as the word table, so no other axis may
    # have this length.
    if rows in table.shape[1:]:
        message = (
            f"{folder} has as many tokens as numbers in a vector ({rows}), so its head can't be "
            "identified"
        )
        raise UnavailableError(message, remedy="Give a model whose vocabulary has another size.")
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = {}
    for file in {tensor.file for tensor in stored.values()}:
        weights |= load_file(file)
    for name, tensor in stored.items():
        is_in_head = place_of_weight[name].part == "head"
        if name == table.name or (is_in_head and rows in tensor.shape):
            weights[name] = _rows(weights[name], tensor.shape.index(rows), changed)
    return weights


def _rows(tensor: "Tensor", axis: int, changed: ChangedVocabulary) -> "Tensor":
    """Returns a weight with an entry for each token of the new vocabulary, along an axis.

    Tokens that stay keep their entries. The entry of a new word is the mean of the entries of the
    tokens that it was split into. Tokens like `##ing` that continue a word have something in common
    by which a network knows them, and the new word is no such token. So their entries are first
    moved by the difference between two means over the corpus: that of tokens that begin words, and
    that of tokens that continue them.

    A bias also falls by the logarithm of how much rarer the word is than its tokens. Otherwise
    thousands of new words would share in every guess.

    (Masked loss of a MiniLM with 5,000 medical words: 5.53 so, 5.94 with the mean alone, 5.79 as
    transformers resizes.)

    Args:
        tensor: The word table, or another weight with an entry for each old token.
        axis: The axis with these entries.
        changed: The new vocabulary.
    """
    import torch

    selected = tensor.index_select(axis, torch.from_numpy(changed.kept))
    if not changed.words:
        return selected

    table = tensor.float().movedim(axis, 0)[: len(changed.counts)]
    counts = torch.from_numpy(changed.counts).float()
    goes_on = torch.from_numpy(changed.goes_on)
    mean_of_begins = _weighted_mean(table, counts * ~goes_on)
    mean_within = _weighted_mean(table, counts * goes_on)
    difference = mean_of_begins - mean_within

    entries = []
    for ids in changed.pieces:
        share_within = 1 - 1 / len(ids)
        entries.append(table[ids].mean(0) + share_within * difference)
    of_new_words = torch.stack(entries)
    if tensor.dim() == 1:  # a bias
        of_new_words += torch.tensor([word.count for word in changed.words]).log()
        of_new_words -= torch.stack([counts[ids].log().mean() for ids in changed.pieces])
    return torch.cat([selected, of_new_words.movedim(0, axis).to(tensor.dtype)], axis)


def _weighted_mean(table: "Tensor", weights: "Tensor") -> "Tensor":
    """Returns the mean of the (V, ...) entries of a table by (V,) weights."""
    import torch

    mean: Tensor = torch.tensordot(weights / weights.sum(), table, 1)
    return mean


def _renumbered(settings: dict[str, Any], new_ids: Mapping[int, int], size: int) -> dict[str, Any]:
    """Returns settings with the new size of the vocabulary and the new ids of tokens.

    Ids are in the fields `..._token_id`, and in the list of tokens that were added to a tokenizer.

    Args:
        settings: Content of config.json or tokenizer_config.json.
        new_ids: New id by old id.
        size: Size of the new vocabulary.
    """

    def changed(name: str, value: Any) -> Any:
        """Returns the new value of a setting."""
        if name == "vocab_size":
            return size
        if name == "added_tokens_decoder":
            return {str(new_ids[int(old_id)]): token for old_id, token in value.items()}
        if not name.endswith("_token_id"):
            return value
        if isinstance(value, list):
            return [new_ids[token_id] for token_id in value]
        return new_ids.get(value, value)  # what is no id, such as null, stays

    return {name: changed(name, value) for name, value in settings.items()}
