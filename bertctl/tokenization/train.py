"""Learns a new WordPiece vocabulary from texts."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, trainers

from bertctl.errors import DataError, UsageError
from bertctl.tokenization.reference import tokens_by_id
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import SPECIAL_TOKENS, bert_pipeline, read_vocab_txt
from bertctl.writing import replacing, write_json, write_text

FILES = CONFIG, VOCAB, TOKENIZER = ("tokenizer_config.json", "vocab.txt", "tokenizer.json")
"""What a vocabulary's folder holds."""


def train(
    read: Callable[[], Iterable[TextChunk]],
    *,
    size: int,
    lowercase: bool,
    min_frequency: int = 2,
    alphabet: int = 1000,
) -> Tokenizer:
    """Returns a tokenizer with a WordPiece vocabulary learned from texts, in BERT's pipeline.

    The library `tokenizers` learns it. By itself it numbers `##` characters as its hash map happens
    to order them, and breaks ties by number. So that the same texts give the same vocabulary, the
    texts are read twice: the first time for their characters, which the library then gets in a
    fixed order.

    Args:
        read: returns the texts each time it is called; pairs count too.
        size: upper limit of tokens, special tokens included.
        lowercase: whether texts are lower-cased (and accents stripped) first.
        min_frequency: how often a token must be seen.
        alphabet: upper limit of different characters; rarer ones become unknown.

    Raises:
        UsageError: a size without room for special tokens and characters.
        DataError: no text at all.
    """
    tokenizer = bert_pipeline({}, {"do_lower_case": lowercase})
    characters = _characters(tokenizer, read(), alphabet)
    if not characters:
        raise DataError("no word to learn a vocabulary from", remedy="Give files with text.")
    # Punctuation stands alone and needs no token within a word.
    within_words = [
        f"##{c}" for c in characters if len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{c}a")) == 1
    ]
    fixed_tokens = [*SPECIAL_TOKENS, *characters, *within_words]
    if size <= len(fixed_tokens):
        raise UsageError(
            f"`size={size}` leaves no room beside {len(SPECIAL_TOKENS)} special tokens and "
            f"{len(characters)} characters",
            remedy=f"Take more than {len(fixed_tokens)}; BERT has 30,522.",
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        # The library gives these their ids first, in this order.
        special_tokens=[AddedToken(token) for token in fixed_tokens],
        show_progress=False,
    )
    sides = chain.from_iterable(chunk.sides for chunk in read())
    tokenizer.train_from_iterator(sides, trainer)
    return tokenizer


def _characters(tokenizer: Tokenizer, chunks: Iterable[TextChunk], most: int) -> list[str]:
    """Returns the most frequent characters of normalised texts, in the order of their code points.

    Args:
        tokenizer: Its normalizer is applied.
        chunks: The texts.
        most: How many characters at most.
    """
    # Each different character is normalised once, not each text.
    sides = chain.from_iterable(chunk.sides for chunk in chunks)
    texts = chain.from_iterable(sides)
    counts_in_texts = Counter(chain.from_iterable(texts))
    counts: Counter[str] = Counter()
    for character, count in counts_in_texts.items():
        for normalized in tokenizer.normalizer.normalize_str(character):
            if not normalized.isspace():
                counts[normalized] += count
    by_frequency = sorted(counts, key=lambda c: (-counts[c], c))
    return sorted(by_frequency[:most])


def save(tokenizer: Tokenizer, folder: Path, *, lowercase: bool) -> Tokenizer:
    """Writes a trained vocabulary as a folder that `--model` and transformers take.

    It has vocab.txt, tokenizer.json, and config.

    Returns:
        The tokenizer as it is read back, with special tokens around texts.

    Raises:
        UnavailableError: it can't be written.
    """
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lowercase,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": 512,
        # Names such as `cls_token` for [CLS].
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
    }
    with replacing(folder) as aside:
        write_json(aside / CONFIG, config)
        write_text(aside / VOCAB, "".join(f"{token}\n" for token in tokens_by_id(tokenizer)))
        complete = read_vocab_txt(aside / VOCAB, lowercase=lowercase)
        write_text(aside / TOKENIZER, complete.to_str(pretty=True))
    return complete
