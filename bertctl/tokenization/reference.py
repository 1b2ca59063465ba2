"""Asks the library `tokenizers` small questions, and cuts texts into chunks that fit into memory.

Nothing here needs numpy, so that `bertctl tokenize` of one text answers at once.

Letters: V tokens in the vocabulary.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tokenizers import Tokenizer

_CHUNK = 4096
"""Texts handed to the library at once, to bound the memory of its Encoding objects."""
CHUNK_CHARACTERS = 1_000_000
"""Characters handed to the library at once, for the same reason."""

OTHER_TOKENIZER = (
    "Give a text in UTF-8; where it is, give a model whose tokenizer works (bertctl tokenize)."
)
"""What to do about a tokenizer that the library reads, and that fails at a text."""

Input = TypeVar("Input", str, str | tuple[str, str])


def load_tokenizer(tokenizer_json: str) -> Tokenizer:
    """Returns the tokenizer that a tokenizer.json describes, with truncation and padding off.

    The file of all-MiniLM-L6-v2, for example, has both, set to 128. Offsets that would cut letters
    off are repaired.
    """
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    repair_offsets(tokenizer)
    return tokenizer


_OFFSETS_PROBE = "Ab cd, ef (gh) 12ab. I"
"""Words, marks and numbers, with and without a blank before them."""


def repair_offsets(tokenizer: Tokenizer) -> None:
    """Stops byte-level post-processors from trimming offsets where that cuts letters off.

    Trimming leaves the blank at the beginning of a token out of the token's offsets. That is right
    if the blank is in the text. But a pre-tokenizer may add the blank itself (RobBERT's does), and
    then trimming takes away the first letter of the word instead. There it is switched off.
    """
    processors = [
        part for part in _post_processors(tokenizer) if getattr(part, "trim_offsets", False)
    ]
    if not processors:
        return
    # Trimming is right if it takes away blanks and nothing else. A text encoded with and without
    # trimming shows whether it does.
    trimmed = tokenizer.encode(_OFFSETS_PROBE, add_special_tokens=False).offsets
    for processor in processors:
        processor.trim_offsets = False
    complete = tokenizer.encode(_OFFSETS_PROBE, add_special_tokens=False).offsets
    if trimmed == [without_blanks(_OFFSETS_PROBE, start, end) for start, end in complete]:
        processors[0].trim_offsets = True  # only one: a second processor would trim once more


def _post_processors(tokenizer: Tokenizer) -> list[Any]:
    """Returns the post-processor of a tokenizer, or those that a sequence of them is made of."""
    processor: Any = tokenizer.post_processor
    if type(processor).__name__ != "Sequence":
        return [processor]
    # The library's sequence has no length, so its parts are read until one is missing.
    parts: list[Any] = []
    while True:
        try:
            parts.append(processor[len(parts)])
        except IndexError:
            return parts


def without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the bounds of a part of a text without the blanks around it.

    A part of blanks alone becomes empty, at its end.
    """
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


@contextmanager
def truncating(
    tokenizer: Tokenizer, max_length: int, *, strategy: str = "longest_first", stride: int = 0
) -> Iterator[Tokenizer]:
    """Switches the library's own truncation on inside the context.

    Args:
        tokenizer: With truncation off.
        max_length: Tokens of a row at most.
        strategy: Which text of a pair is truncated, as the library calls it.
        stride: Tokens that an overflowing window repeats of the one before.
    """
    tokenizer.enable_truncation(max_length, stride=stride, strategy=strategy)
    try:
        yield tokenizer
    finally:
        tokenizer.no_truncation()


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """Returns the id of the unknown token; None for vocabularies that have none (byte-level)."""
    if type(tokenizer.model).__name__ == "Unigram":
        # The library shows the id only in the model's JSON, so the usual names are looked up.
        ids = [tokenizer.token_to_id(token) for token in ("<unk>", "[UNK]")]
        return next((token_id for token_id in ids if token_id is not None), None)
    unknown_token = getattr(tokenizer.model, "unk_token", None)
    if unknown_token:
        return tokenizer.token_to_id(unknown_token)
    return None


def tokens_by_id(tokenizer: Tokenizer) -> list[str]:
    """Returns the (V,) token of each id; an empty string where an id is not in use."""
    vocabulary = tokenizer.get_vocab()
    tokens = [""] * (max(vocabulary.values(), default=-1) + 1)
    for token, index in vocabulary.items():
        tokens[index] = token
    return tokens


def continuation_prefix(tokenizer: Tokenizer) -> str:
    """Returns `##` for BERT, an empty string where tokens that continue a word carry no mark."""
    return getattr(tokenizer.model, "continuing_subword_prefix", None) or ""


BYTE_SPACE = "Ġ"
"""What stands for the space before a word in tokens of byte-level vocabularies."""

PIECE_SPACE = "▁"
"""What stands for the space before a word in SentencePiece's tokens."""


def needs_space(tokenizer: Tokenizer) -> bool:
    """Returns whether a word alone has other tokens than behind a space, as in RoBERTa and GPT-2.

    It is what transformers calls `add_prefix_space`, seen at the tokenizer itself: `a` alone is
    `a`, and the second `a` of `a a` is `Ġa`.
    """
    tokens_of_two = tokenizer.encode("a a", add_special_tokens=False).tokens
    tokens_of_one = tokenizer.encode("a", add_special_tokens=False).tokens
    return tokens_of_two[len(tokens_of_one) :] != tokens_of_one


def chunks(inputs: Sequence[Input]) -> Iterator[Sequence[Input]]:
    """Yields texts or pairs in chunks that the library can take at once without much memory.

    A chunk has at most `_CHUNK` texts and `CHUNK_CHARACTERS`; a longer text is one by itself.
    """
    first = 0
    n_characters = 0
    for i, item in enumerate(inputs):
        if isinstance(item, str):
            length = len(item)
        else:
            length = len(item[0]) + len(item[1])
        is_full = i - first == _CHUNK or n_characters + length > CHUNK_CHARACTERS
        if i > first and is_full:
            yield inputs[first:i]
            first = i
            n_characters = 0
        n_characters += length
    if first < len(inputs):
        yield inputs[first:]


def cut_at_spaces(text: str, size: int) -> list[str]:
    """Returns the text in parts of about `size` characters, each cut before a space.

    BERT's pipeline splits texts at spaces, so the parts have the same tokens as the whole. An added
    token with a space in it could be cut, so `TextEncoder` does not cut the texts of a tokenizer
    that has such tokens.
    """
    parts: list[str] = []
    start = 0
    while len(text) - start > size:
        end = text.find(" ", start + size)
        if end < 0:
            break
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]
