"""What each head attends to over a corpus.

The patterns are those of "Deconstructing BERT" (Vig 2019), measured.

A share is the mean attention that a token pays to what the pattern names, over the tokens that have
such a thing: the last word has no next one, most words stand once in a text. Only tokens of the
texts count as those that attend, not special ones (as in Clark et al. 2019, "What Does BERT Look
At?", section 3).

Letters: L layers, H heads, B texts, T tokens, N tokens that attend, R patterns and the distance.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr

from bertctl.arrays import Bools, Floats, Floats32
from bertctl.errors import UsageError
from bertctl.interpretability.attention import AttentionReader, sides_of
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.stream import TextChunk

if TYPE_CHECKING:
    from tokenizers import Encoding


PATTERNS = {
    "next": "the next token",
    "previous": "the previous token",
    "itself": "the token itself",
    "same": "the same token elsewhere in the text",
    "cls": "[CLS]",
    "delimiters": "[SEP] and other special tokens",
    "other": "the other sentence",
}
"""What a head may attend to, and how a person is told."""

MAJORITY = 0.5
"""Share of its attention by which a head has a pattern."""

MIXED = "mixed"
"""Name of the pattern of a head that has none."""


def measure_patterns(
    reader: AttentionReader, chunks: Iterable[TextChunk], *, listener: Listener = SILENT
) -> dict[str, Any]:
    """Returns what each head attends to over a corpus; texts with nothing in them are left out.

    Returns:
        Three numbers: `texts` that were read, `tokens` that attend, and texts that were `cut`. In
        `counts`, for each pattern the number of tokens whose text has a token that the pattern
        names; a pattern without such tokens is left out everywhere. In `columns`, (L, H) arrays:
        the share of each pattern, the mean distance in tokens, the entropy of a token's attention
        in nats, and the name of the pattern that gets most of the head's attention, else `mixed`.

    Raises:
        UsageError: No text; a family without attention.
    """
    names = [*PATTERNS, "distance", "entropy"]
    # (L, H, names) once texts are added: the number of heads is not known before.
    sums = np.zeros((reader.layers, 1, len(names)))
    token_counts = np.zeros(len(names), dtype=int)  # over how many tokens each sum goes
    texts = cut = 0
    for chunk in chunks:
        chunk_with_texts = _without_blank_texts(chunk)
        if not chunk_with_texts.texts:
            continue
        encodings, lost = reader.encode(chunk_with_texts)
        cut += sum(map(bool, lost))
        for indices, layers in reader.read(encodings):
            attending, relations = _relations([encodings[i] for i in indices], reader.model.cls_id)
            # A pattern counts tokens that have such a thing; distance and entropy count all.
            token_counts[:-2] += relations[:-1].any(axis=2).sum(axis=1)
            token_counts[-2:] += attending.sum()
            sums = sums + [_sums(layer.cpu().numpy(), attending, relations) for layer in layers]
            texts += len(indices)
            listener.advance("texts", texts, 0)
    listener.finish("texts")

    if not token_counts[-1]:
        raise UsageError(
            "no texts to read",
            remedy="Give a file with a text on each line, or in a column.",
        )
    counts = {name: int(count) for name, count in zip(names, token_counts, strict=True) if count}
    means = {name: sums[:, :, names.index(name)] / count for name, count in counts.items()}

    pattern_names = [name for name in counts if name in PATTERNS]
    shares = np.stack([means[name] for name in pattern_names])  # (patterns, L, H)
    likeliest = np.array(pattern_names)[shares.argmax(axis=0)]
    patterns = np.where(shares.max(axis=0) > MAJORITY, likeliest, MIXED)
    return {
        "texts": texts,
        "tokens": int(token_counts[-1]),
        "cut": cut,
        "counts": counts,
        "columns": {"pattern": patterns, **means},
    }


def _without_blank_texts(chunk: TextChunk) -> TextChunk:
    """Returns the texts of a chunk that have something in them, with their second texts."""
    indices = [i for i, text in enumerate(chunk.texts) if text.strip()]
    texts = [chunk.texts[i] for i in indices]
    if not chunk.pairs:
        return TextChunk(texts, chunk.pairs)
    return TextChunk(texts, [chunk.pairs[i] for i in indices])


def _relations(encodings: "Sequence[Encoding]", cls_id: int | None) -> tuple[Bools, Floats32]:
    """Returns which (B, T) tokens attend, and their (R, N, T) relations to the tokens of the text.

    N is the number of all tokens that attend: those that are not special. For each pattern the
    relation is 1 where a token is what the pattern names, else 0. The last relation is the distance
    in tokens.

    Args:
        encodings: B texts or pairs.
        cls_id: Id of [CLS]; None if the model has none.
    """
    shape = (len(encodings), max(map(len, encodings)))
    sides = np.full(shape, -2, dtype=np.int64)  # -2 at padding
    ids = np.full(shape, -1, dtype=np.int64)
    for i, encoding in enumerate(encodings):
        sides[i, : len(encoding)] = sides_of(encoding)
        ids[i, : len(encoding)] = encoding.ids

    attending = sides >= 0
    text, position = np.nonzero(attending)
    step = np.arange(shape[1]) - position[:, None]  # from the token that attends
    is_text = attending[text]
    is_special = sides[text] == -1
    is_cls = ids[text] == cls_id
    has_same_id = ids[text] == ids[text, position][:, None]
    is_other_side = sides[text] != sides[text, position][:, None]
    of_token = {
        "next": is_text & (step == 1),
        "previous": is_text & (step == -1),
        "itself": step == 0,
        "same": is_text & (step != 0) & has_same_id,
        "cls": is_special & is_cls,
        "delimiters": is_special & ~is_cls,
        "other": is_text & is_other_side,
    }
    relations = [of_token[name] for name in PATTERNS]
    relations.append(np.abs(step))
    return attending, np.stack(relations).astype(np.float32)


def _sums(weights: Floats32, attending: Bools, relations: Floats32) -> Floats:
    """Returns (H, R + 1) sums over the N tokens that attend: of R relations, and of the entropy.

    The sum of a relation is weighted by each token's attention.

    Args:
        weights: (B, H, T, T) attention of each token to each.
        attending: (B, T) which tokens attend, N of them.
        relations: (R, N, T) relations of these tokens to the tokens of their texts.
    """
    rows = weights.transpose(0, 2, 1, 3)[attending]  # (N, H, T)
    related = np.einsum("nht,rnt->hr", rows, relations, optimize=True)
    return np.column_stack([related, entr(rows).sum(axis=(0, 2))]).astype(np.float64)
