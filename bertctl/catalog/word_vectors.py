"""Text files of word vectors as models: a word has one vector.

They are GloVe's, or word2vec's with its first line of sizes.

A file becomes a folder that transformers loads, once: a tokenizer of whole words, and a network
that is nothing but its table of vectors (an XLNet without layers). A word that the file lacks is
[UNK], which has zeros, as [CLS] before each text has: neither counts in a mean or a maximum.
"""

import math
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from bertctl.arrays import Floats32
from bertctl.catalog.config_keys import WORD_VECTORS
from bertctl.catalog.lock import file_sha256
from bertctl.errors import DataError
from bertctl.memory import MemoryGuard, rows_of_size
from bertctl.unpacking import unpacked
from bertctl.words import as_number, count, human_bytes
from bertctl.writing import cache_folder, replacing, write_json

_LONGEST_LINE = 1_000_000
"""Bytes of a word with its numbers: 100,000 of them."""
_LINES_BETWEEN_CHECKS = 5_000
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]")


def word_vectors_folder(path: Path) -> Path:
    """Returns the folder of a file of word vectors, in the cache by the file's content.

    Raises:
        DataError: no such file, with the line.
        UnavailableError: the cache folder can't be written.
    """
    # The 2 at the end is the version of this folder's format.
    folder = cache_folder() / "word-vectors" / f"{file_sha256(path)[:32]}-2"
    if folder.is_dir():
        return folder
    words, vectors = _read(path)
    n_dimensions = vectors.shape[1]
    special_vectors = np.zeros((len(_SPECIAL_TOKENS), n_dimensions), np.float32)
    # Without layers, XLNet's output is its word embeddings: nothing is added or normalised.
    config = {
        "model_type": "xlnet",
        "architectures": ["XLNetModel"],
        WORD_VECTORS: True,
        "vocab_size": len(words),
        "d_model": n_dimensions,
        "d_head": n_dimensions,
        "n_head": 1,
        "n_layer": 0,
        "d_inner": 1,
        "pad_token_id": 0,
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": _SPECIAL_TOKENS[0],
        "unk_token": _SPECIAL_TOKENS[1],
    }
    tensors = {
        "word_embedding.weight": np.concatenate([special_vectors, vectors]),
        "mask_emb": special_vectors[:1, None],  # not used; transformers expects it
    }
    with replacing(folder) as aside:
        aside.mkdir()
        write_json(aside / "config.json", config)
        write_json(aside / "tokenizer_config.json", tokenizer_config)
        _tokenizer(words).save(str(aside / "tokenizer.json"))
        save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})
    return folder


def _read(path: Path) -> tuple[dict[str, int], Floats32]:
    """Returns word -> id, and the (W, D) vectors of a file's W words.

    The first ids are those of the special tokens, which have no vectors in the file.
    `the 0.418 0.249 ...` is a line; word2vec's first line is the number of words and of dimensions.
    Of equal words the first one counts.

    Raises:
        DataError: It is no such file, with the line.
    """
    words = {token: i for i, token in enumerate(_SPECIAL_TOKENS)}
    data = bytearray()
    width = 0  # numbers of a vector; 0 until the first line has been read
    number = 1
    remedy = (
        "Give a model, or lines of a word and its numbers, with spaces between (word2vec's first "
        "one: two sizes)."
    )
    n_promised = None
    n_vectors = 0
    try:
        with path.open("rb") as raw:
            for number, line in enumerate(_lines(raw, path), start=1):
                fields = line.removeprefix(BOM_UTF8).rstrip().split(b" ")
                has_sizes = number == 1 and len(fields) == 2 and all(map(bytes.isdigit, fields))
                if has_sizes:
                    n_promised, width = map(int, fields)
                    continue
                width = width or len(fields) - 1
                n_vectors += 1
                vector = _vector(fields, width)
                # A word may have spaces in it: it is all before the vector.
                word = b" ".join(fields[:-width]).decode(errors="replace")
                if word not in words:
                    words[word] = len(words)
                    data += vector.tobytes()
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}:{number}: this is not a text file of word vectors: {error}", remedy=remedy
        ) from error
    if not n_vectors or n_promised not in (None, n_vectors):
        if n_promised is None:
            promise = ""
        else:
            promise = f", and its first line promises {n_promised:,}"
        raise DataError(f"{path} has {count(n_vectors, 'word vector')}{promise}", remedy=remedy)
    return words, np.frombuffer(data, np.float32).reshape(-1, width)


def _lines(raw: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yields the lines of an open file, unpacked.

    Raises:
        ValueError: a line is too long.
        DataError: it is packed, and unpacks to too much.
        DeviceError: there is too little memory for all of them.
    """
    file = unpacked(raw, str(path)) if path.suffix == ".gz" else raw
    # After reading, the vectors are copied, saved and loaded: 2.5 times their memory must be free.
    memory_guard = MemoryGuard(str(path), "word vectors", spare=2.5)
    n_lines = 0
    while line := file.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"a line of more than {human_bytes(_LONGEST_LINE)}")
        if n_lines % _LINES_BETWEEN_CHECKS == 0:
            n_lines_expected = rows_of_size(raw, n_lines)
            memory_guard.check(n_lines, n_lines_expected)
        n_lines += 1
        yield line


def _vector(fields: list[bytes], width: int) -> Floats32:
    """Returns (D,) the vector of a line: its last `width` fields, as numbers.

    Args:
        fields: The line, split at spaces: first the word, which may have spaces in it, then D
            numbers.
        width: D, as the file's first line has it.

    Raises:
        ValueError: Too few numbers, too many, or a field that is no number.
    """
    # Between the word's first part and the vector, a number means that the line has too many.
    surplus = [field for field in fields[1:-width] if math.isfinite(as_number(field))]
    has_word_and_vector = 1 < width < len(fields)
    if surplus or not has_word_and_vector:
        if not surplus:
            n_numbers = len(fields) - 1
        else:
            n_numbers = width + len(surplus)
        expected = str(width) if width > 1 else "two or more"
        raise ValueError(f"{n_numbers:,} numbers, where there should be {expected}")
    vector = np.array(fields[-width:]).astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("a number that is not finite")
    return vector


def _tokenizer(words: dict[str, int]) -> Tokenizer:
    """Returns a tokenizer that splits as BERT does and looks up whole words.

    It lower-cases text if no word of the file has a capital.

    Args:
        words: Word -> its id, with the special tokens.
    """
    _, unknown, start = _SPECIAL_TOKENS
    tokenizer = Tokenizer(WordLevel(words, unk_token=unknown))
    lowercase = all(word == word.lower() for word in words if word not in _SPECIAL_TOKENS)
    tokenizer.normalizer = BertNormalizer(strip_accents=False, lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    # A text begins with [CLS]. There is no [SEP], so [UNK] separates the texts of a pair. Special
    # tokens do not count among the words of a text, and the vectors of both are 0.
    special_tokens = [(token, words[token]) for token in (unknown, start)]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A",
        pair=f"{start} $A {unknown} $B",
        special_tokens=special_tokens,
    )
    tokenizer.add_special_tokens([*_SPECIAL_TOKENS])
    return tokenizer
