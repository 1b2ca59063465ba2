"""Small questions to the library `tokenizers`, and its texts in portions. Nothing here needs numpy: `bertctl tokenize`
of one text is to answer at once.

Letters: V pieces in the vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tokenizers import Tokenizer

_CHUNK = 4096  # texts handed to the library at once; bounds the memory of its Encoding objects
CHUNK_CHARACTERS = 1_000_000
"""Characters handed to the library at once, for the same reason."""

Input = TypeVar("Input", str, str | tuple[str, str])


def load_tokenizer(tokenizer_json: str) -> Tokenizer:
    """A `tokenizers.Tokenizer` from its serialised form, with any stored truncation and padding switched off.

    (The file of all-MiniLM-L6-v2 carries both, set to 128.)
    """
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """Id of the unknown token, or None where there is none (byte-level vocabularies)."""
    name = getattr(tokenizer.model, "unk_token", None)
    return tokenizer.token_to_id(name) if name else None


def pieces_by_id(tokenizer: Tokenizer) -> list[str]:
    """(V,) the piece of each id; an empty string where an id is not in use."""
    pieces = [""] * id_count(tokenizer)
    for piece, index in tokenizer.get_vocab().items():
        pieces[index] = piece
    return pieces


def id_count(tokenizer: Tokenizer) -> int:
    """V, one more than the largest id in use."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def chunks(inputs: Sequence[Input]) -> Iterator[Sequence[Input]]:
    """Portions that the reference can take at once without much memory; a longer text is a portion of its own."""
    first, characters = 0, 0
    for i, item in enumerate(inputs):
        length = len(item) if isinstance(item, str) else len(item[0]) + len(item[1])
        if i > first and (i - first == _CHUNK or characters + length > CHUNK_CHARACTERS):
            yield inputs[first:i]
            first, characters = i, 0
        characters += length
    if first < len(inputs):
        yield inputs[first:]


def cut_at_spaces(text: str, size: int) -> list[str]:
    """The text in parts of about `size` characters, each cut before a space.

    BERT's pipeline splits there anyway, so the parts have the same pieces as the whole (tokens were not added with a
    space in them where there is a `Route`).
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
