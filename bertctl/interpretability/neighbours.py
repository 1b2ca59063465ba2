"""Words that are near in a model: in its table of token vectors, or by where they stand in texts.

Letters: V tokens in the vocabulary, K found ones, H size of a vector.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats32
from bertctl.catalog.models import locate_model
from bertctl.data.word_splitting import cuts_word
from bertctl.errors import DataError, UsageError
from bertctl.modeling.pooling import finite, unit_length
from bertctl.modeling.stored_weights import stored_weights, word_table
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.reference import (
    BYTE_SPACE,
    PIECE_SPACE,
    continuation_prefix,
    tokens_by_id,
)
from bertctl.tokenization.tokenizer_files import open_tokenizer
from bertctl.tokenization.vocab import word_ids

if TYPE_CHECKING:
    from bertctl.features.encoder import TokenVectors

_AROUND = 300  # characters of a text on each side of a word
_MOST = 2000  # places of a word that are looked at
_TOGETHER = 256  # places whose vectors are computed at once


def near_tokens(
    model: str, expression: str, *, top: int = 10, whole_words: bool = False
) -> dict[str, Any]:
    """Returns the tokens whose vectors have the highest cosine with that of an expression.

    The expression is a token, or several such as `a - b + c`. Its terms are added as vectors of
    length 1, and are not among the answers (3CosAdd; Mikolov et al. 2013, section 4).

    Args:
        model: Name, folder, run or hub id.
        expression: A token of the vocabulary, or several with + and - between them.
        top: How many to return.
        whole_words: Leave out tokens that continue a word, unused and special ones.

    Returns:
        The `query` and the `model`; `neighbours`, each with `text`, `id`, `score` (the cosine), and
        `x` and `y` in a plane for a picture; and `at`, the point of the expression in this plane.

    Raises:
        UsageError: No such model; a word that is no single token of it.
        UnavailableError: Files that are not there.
    """
    tokenizer = open_tokenizer(model).tokenizer
    if not re.fullmatch(r"\S+(\s+[+-]\s+\S+)*", expression.strip()):
        message = f"'{expression}' is neither a word nor words with + or - between them"
        raise UsageError(
            message, remedy='Such as: bertctl vocab neighbours "king - man + woman" minilm'
        )
    words = expression.split()[::2]
    operators = ["+", *expression.split()[1::2]]
    query_ids = [_one_token(tokenizer, word) for word in words]
    signs = np.array([[1.0 if operator == "+" else -1.0 for operator in operators]], np.float32)

    table = finite(_read(model), model)
    # In fp32: a third of a second faster, at the price of the sixth decimal.
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    units = np.asarray(table / np.where(lengths > 0, lengths, 1), dtype=np.float32)
    (target,) = unit_length(signs @ units[query_ids])  # (1, terms) @ (terms, H)
    scores = units @ target

    tokens = tokens_by_id(tokenizer)[: len(units)]
    candidates = set(range(len(tokens))).difference(query_ids)
    if whole_words:
        candidates &= _word_ids(tokenizer, tokens)
    order = [
        int(i)
        for i in np.argsort(-scores[: len(tokens)], kind="stable")
        if tokens[i] and i in candidates
    ][:top]
    neighbours = [{"text": tokens[i], "id": i, "score": round(float(scores[i]), 6)} for i in order]
    return _placed({"query": expression.strip(), "model": model}, target, units[order], neighbours)


def _word_ids(tokenizer: Any, tokens: Sequence[str]) -> set[int]:
    """Returns the ids of tokens that begin a word: no continuation, unused or special ones."""
    special = tokenizer.get_added_tokens_decoder()
    prefix = continuation_prefix(tokenizer)
    no_beginnings = ["[unused"]
    if prefix:  # `##` of WordPiece: a token without it begins a word
        space = ""
        no_beginnings.append(prefix)
    else:  # byte-level BPE and SentencePiece: a token with the blank before it begins a word
        space = _space_of(tokens)
    return {
        i
        for i, token in enumerate(tokens)
        if i not in special
        and token.startswith(space)
        and token != space
        and not token.startswith(tuple(no_beginnings))
    }


def _space_of(tokens: Sequence[str]) -> str:
    """Returns the character by which tokens have the blank before a word.

    It is an empty text if none has it.
    """
    for space in (BYTE_SPACE, PIECE_SPACE):
        if any(token.startswith(space) for token in tokens):
            return space
    return ""


def near_places(
    model: str,
    word: str,
    context: str,
    texts: Iterable[Sequence[str]],
    *,
    layer: str = "last",
    top: int = 10,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Returns the places in texts where a word means most, and least, the same as in a context.

    The word's vector in each place is compared with its vector in the context, by the cosine.

    Args:
        model: Name, folder, run or hub id.
        word: One or more words, as they stand in texts, in any case.
        context: A text with the word, in the sense that is meant.
        texts: Some at a time; of each, what is around the word is read.
        layer: Whose vectors are compared, by name or number.
        top: How many places of each kind to return.
        listener: Receives progress messages.

    Returns:
        The arguments; `neighbours`, each with `text`, `score` (the cosine), and `x` and `y` in a
        plane for a picture; `at`, the point of the context in this plane; and `places`, how many
        were compared.

    Raises:
        UsageError: No such model or layer, or a context without the word.
        DataError: Texts without the word.
    """
    pattern = re.compile(re.escape(word.strip()), re.IGNORECASE)
    if not word.strip() or next(_places(pattern, [[context]]), None) is None:
        raise UsageError(
            f"'{word}' is not in the context {context[:60]!r}",
            remedy="Give a text with the word itself.",
        )
    from bertctl.features.extract_job import VectorNames
    from bertctl.interpretability.hidden_states import open_encoder

    encoder, windows = open_encoder(model, VectorNames((layer,), ("none",), special_tokens=False))
    occurrences = islice(_places(pattern, texts), _MOST)
    # The context and its vector come first, then those of the places.
    texts_read: list[str] = []
    vectors: list[Floats32] = []
    batch = [next(_places(pattern, [[context]]))]
    while batch:
        tokens = encoder.tokens(windows([text for text, _, _ in batch]))
        for text, vector in _word_vectors(batch, tokens):
            texts_read.append(text)
            vectors.append(vector)
        if not texts_read:  # of the first batch, which is the context alone
            message = f"'{word}' stands behind what the model reads of the context"
            raise UsageError(message, remedy="Give a shorter context.")
        listener.advance("places", len(texts_read) - 1, 0)
        batch = list(islice(occurrences, _TOGETHER))
    listener.finish("places")
    if len(texts_read) < 2:
        raise DataError(
            f"'{word}' is in none of the texts", remedy="Give texts in which it is used."
        )
    units = unit_length(finite(np.stack(vectors), model))
    scores = units[1:] @ units[0]
    order = np.argsort(-scores, kind="stable")
    chosen = [*order[:top], *order[top:][-top:]]  # the most similar, then the least
    neighbours = [{"text": texts_read[1 + i], "score": round(float(scores[i]), 6)} for i in chosen]
    document = {
        "query": word,
        "model": model,
        "context": context,
        "layer": layer,
        "places": len(scores),
    }
    return _placed(document, units[0], units[[1 + i for i in chosen]], neighbours)


def _word_vectors(
    occurrences: Sequence[tuple[str, int, int]], tokens: "TokenVectors"
) -> Iterator[tuple[str, Floats32]]:
    """Yields each text with the (D,) mean vector of its word's tokens.

    Texts that are cut off before the word are left out.

    Args:
        occurrences: Texts, each with where a word begins and ends in it.
        tokens: Vectors of the texts' tokens.
    """
    ends = np.cumsum(tokens.counts)  # of each text's tokens, which lie one after the other
    for (text, begin, end), tokens_end, count in zip(occurrences, ends, tokens.counts, strict=True):
        of_text = slice(tokens_end - count, tokens_end)
        spans = tokens.spans[of_text]
        is_in_word = (spans[:, 0] < end) & (spans[:, 1] > begin)
        if is_in_word.any():
            yield text, tokens.vectors[0][of_text][is_in_word].mean(axis=0)


def _places(
    pattern: re.Pattern[str], texts: Iterable[Sequence[str]]
) -> Iterator[tuple[str, int, int]]:
    """Yields the text around each occurrence of a word, and the word's begin and end in it."""
    for text in chain.from_iterable(texts):
        for match in pattern.finditer(text):
            if cuts_word(text, *match.span()):
                continue
            start = max(0, match.start() - _AROUND)
            yield text[start : match.end() + _AROUND], match.start() - start, match.end() - start


def _placed(
    document: dict[str, Any], query: Floats32, vectors: Floats32, neighbours: list[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the answer with a point in a plane for the query and for each neighbour.

    The plane is that of the first two principal components of their vectors.

    Args:
        document: The answer.
        query: (D,) vector of the query.
        vectors: (n, D) vectors of the neighbours.
        neighbours: What the answer says of each.
    """
    points = np.vstack([query, vectors]).astype(np.float64)
    points -= points.mean(axis=0)
    _, _, components = np.linalg.svd(points, full_matrices=False)
    plane = points @ components[:2].T
    lacking_columns = 2 - plane.shape[1]  # of few vectors, or of one number each
    plane = np.pad(plane, ((0, 0), (0, lacking_columns))).round(6)

    query_point, *neighbour_points = [{"x": float(x), "y": float(y)} for x, y in plane]
    placed = [
        neighbour | point for neighbour, point in zip(neighbours, neighbour_points, strict=True)
    ]
    return {**document, "at": query_point, "neighbours": placed}


def _one_token(tokenizer: Any, word: str) -> int:
    """Returns the id of a word that is one token.

    Raises:
        UsageError: The word is several tokens.
    """
    ids = word_ids(tokenizer, word)
    if len(ids) > 1:
        pieces = " ".join(tokenizer.id_to_token(i) for i in ids)
        message = f"'{word}' is {len(ids)} tokens, {pieces}, and the table has a vector for each"
        raise UsageError(
            message,
            remedy="Give one of them, or compare the word in texts: `context=TEXT` `file=FILE`.",
        )
    return ids[0]


def _read(model: str) -> Floats32:
    """Returns the (V, H) vectors of the tokens, read from the model's files alone."""
    from safetensors import safe_open

    table = word_table(stored_weights(locate_model(model)))
    is_bf16 = table.dtype == "BF16"  # which numpy does not have
    with safe_open(table.file, framework="pt" if is_bf16 else "numpy") as file:
        stored = file.get_tensor(table.name)
    if is_bf16:
        stored = stored.float()
    return np.asarray(stored, dtype=np.float32)
