"""What the model's tokenizer loses.

It is what is cut off at `model.max_length`, and what it does not know.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Bools, Ints
from bertctl.catalog.models import MODELS
from bertctl.checking.findings import (
    SHOWN_EXAMPLES,
    Example,
    Finding,
    FindingRules,
    MatchedRows,
    around,
    examples_at,
    shorten,
)
from bertctl.checking.subject import Subject
from bertctl.data.rows import Rows
from bertctl.tasks.registry import answer_type
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.long_texts import LongText, kept_words
from bertctl.tokenization.reference import unknown_id
from bertctl.tokenization.word_counts import WordCounter
from bertctl.words import percent

_RULES = FindingRules("tokens")

WEIGHTY = 0.01
"""Share of cut texts, or of unknown tokens, from which it is a warning; training warns from there
too."""

_OF_SIGNS = (
    "They are emoji and signs, which vocabularies of words seldom have. If they matter, write them "
    "as words (Python library emoji: demojize), or take a model that reads bytes (roberta-base, "
    "modernbert-base)."
)

_ENCODED_AT_ONCE = 50_000  # texts
_KEPT = 0.99  # share of the texts that the suggested length keeps whole
_POSITIONS = 512  # of BERT and most of its kin
_ONLY_SPECIAL = 3  # special tokens: [CLS], [SEP] and the [SEP] of a pair
_IN_PIECES = (
    0.4  # share of words: of English texts 0.02 to 0.18 with BERT's vocabulary, of German ones 0.65
)
# texts that are looked at; words from which their share says something
_SAMPLED = 1000
_ENOUGH_WORDS = 100


def check_tokens(subject: Subject) -> Iterator[Finding]:
    """Yields special tokens in texts, truncated texts, words in pieces and unknown tokens.

    It yields nothing without a tokenizer. Texts of question answering are only searched for special
    tokens: they are read in windows, so nothing is cut off.
    """
    if subject.tokenizer is None:
        return
    for split, rows in subject.splits.items():
        yield from _special(subject.tokenizer, rows, split, subject.texts[split])
    if "answers" in subject.checks:
        return
    in_windows = answer_type(subject.recipe.task).in_windows
    for split, rows in subject.splits.items():
        texts = subject.texts[split]
        if not len(rows) or not texts:
            continue
        left, right = _sides(rows, texts)
        encoded = _token_counts(
            subject.tokenizer, left, right, max_length=subject.recipe.model.max_length
        )
        if not in_windows:
            yield from _cut(subject, split, encoded, left)
        yield from _in_pieces(subject.tokenizer, subject, split)
        yield from _unknown(
            subject,
            split,
            encoded,
            left,
            right,
        )


@dataclass(frozen=True)
class _TokenCounts:
    """What the tokenizer makes of N texts or pairs, in numbers; see `EncodedTexts`.

    Attributes:
        lengths: (N,) tokens that the model reads.
        full_lengths: (N,) tokens without truncation.
        unknown: (N,) unknown tokens, before truncation.
    """

    lengths: Ints
    full_lengths: Ints
    unknown: Ints

    @property
    def truncated(self) -> Bools:
        """(N,) whether something is cut off."""
        return self.full_lengths > self.lengths


def _token_counts(
    tokenizer: Tokenizer, left: Sequence[str], right: Sequence[str] | None, *, max_length: int
) -> _TokenCounts:
    """Returns token counts of texts or pairs; some thousand are encoded at once.

    Args:
        tokenizer: The model's tokenizer.
        left: The N texts.
        right: The N second texts of pairs; None for single texts.
        max_length: Tokens at which an input is cut.
    """
    encoder = TextEncoder(tokenizer, max_length=max_length)
    parts: list[_TokenCounts] = []
    for start in range(0, len(left), _ENCODED_AT_ONCE):
        texts = list(left[start : start + _ENCODED_AT_ONCE])
        if right is None:
            pairs = None
        else:
            pairs = list(right[start : start + _ENCODED_AT_ONCE])
        encoded = encoder.encode(texts, pairs)
        parts.append(_TokenCounts(encoded.lengths, encoded.full_lengths, encoded.unknown))
    return _TokenCounts(
        lengths=np.concatenate([part.lengths for part in parts]),
        full_lengths=np.concatenate([part.full_lengths for part in parts]),
        unknown=np.concatenate([part.unknown for part in parts]),
    )


def _sides(
    rows: Rows, texts: dict[str, Sequence[str]]
) -> tuple[Sequence[str], Sequence[str] | None]:
    """Returns the first texts and the second texts of all rows, as the model reads them.

    The second texts are None if the model reads single texts. Of a row's choices, the longest one
    is taken, as it is the one that may be too long.

    Args:
        rows: Rows of a split.
        texts: Their columns of texts, in the order in which the model reads them.
    """
    if "choices" in texts:
        longest_choices = [
            max(map(str, choices), key=len, default="") for choices in rows.columns["choices"]
        ]
        if "context" in texts:
            return texts["context"], longest_choices
        return longest_choices, None
    first_texts, *other_texts = texts.values()
    if other_texts:
        return first_texts, other_texts[0]
    return first_texts, None


def _special(
    tokenizer: Tokenizer, rows: Rows, split: str, texts: dict[str, Sequence[str]]
) -> Iterator[Finding]:
    """Yields a finding on texts that contain a special token, such as `[SEP]`.

    The tokenizer would read it as the special token, and not as text.
    """
    names = [
        token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
    ]
    if not names or not len(rows):
        return
    pattern = re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)))
    matches = MatchedRows(_RULES)
    for column in texts.values():
        for index, cell in enumerate(column):
            if isinstance(cell, list | tuple):
                parts = cell
            else:
                parts = [cell]
            for part in parts:
                match = pattern.search(str(part))
                if match is not None:
                    excerpt = around(match.string, *match.span(), margin=30)
                    matches.add(index, f"{match[0]} in: {shorten(excerpt)}")
                    break
    yield from matches.findings("special-token", rows, split)


def _cut(
    subject: Subject, split: str, encoded: _TokenCounts, texts: Sequence[str]
) -> Iterator[Finding]:
    """Yields a finding on texts longer than `model.max_length`, with a length that would do.

    It is a warning if many texts are cut and much of all tokens is lost, and a note otherwise.

    Args:
        subject: The splits that are checked.
        split: Name of the split.
        encoded: Token counts of its N texts.
        texts: Its N texts, or the first ones of its pairs.
    """
    cut = np.flatnonzero(encoded.truncated)
    if not len(cut):
        return
    rows = subject.splits[split]
    limit = subject.recipe.model.max_length
    full_lengths = encoded.full_lengths
    n_lost = int((full_lengths - encoded.lengths).sum())
    longest_rows = cut[np.argsort(-full_lengths[cut], kind="stable")[:SHOWN_EXAMPLES]].tolist()
    examples = examples_at(
        rows, longest_rows, lambda i: f"{full_lengths[i]:,} tokens: {shorten(texts[i], limit=70)}"
    )
    long_text = LongText.of(subject.recipe.model)
    has_windows = long_text.mode == "window"  # long texts are read whole, in several parts
    cuts_many = len(cut) > WEIGHTY * len(rows)
    loses_much = n_lost > WEIGHTY * int(full_lengths.sum())
    is_weighty = not has_windows and cuts_many and loses_much
    lengths = (
        f"the median has {int(np.median(full_lengths))}, the longest {int(full_lengths.max()):,}"
    )
    if has_windows:
        loses = "are read in windows"
    else:
        loses = f"lose {percent(n_lost, int(full_lengths.sum()))} of all tokens"
    says = f"are longer than {limit} tokens and {loses}; {lengths}"
    remedy = _longer(full_lengths, limit, subject.recipe.model.name)
    suggests_change = not remedy.startswith("Fine")
    if suggests_change and not loses_much and not has_windows:
        remedy = f"Little is lost. {remedy}"
    # Other ways to read long texts, with how much of the texts each would keep.
    if subject.recipe.answers_texts and not rows.has("pair"):
        remedy += f" Or `model.long_text=`: {kept_words(long_text.kept(full_lengths))}."
    counts = (len(cut), len(rows))
    severity = "warning" if is_weighty else "note"
    yield _RULES.finding(
        "truncated",
        split,
        counts,
        examples,
        says=says,
        severity=severity,
        remedy=remedy,
    )


def _longer(full_lengths: Ints, limit: int, model: str) -> str:
    """Returns the advice for texts that are cut off: a greater length if the model takes it.

    Args:
        full_lengths: (N,) tokens of the texts without truncation.
        limit: `model.max_length`.
        model: Name of the model.
    """
    enough = int(np.ceil(np.quantile(full_lengths, _KEPT)))
    if model in MODELS:
        longest = MODELS[model].positions
    else:
        longest = _POSITIONS
    if enough <= limit:
        return "Fine, unless the end of a text matters most."
    if limit >= longest:
        alternative = "use a model for long inputs (modernbert-base)"
        return f"The model takes no more: shorten the texts, split them, or {alternative}."
    suggested = min(enough, longest)
    n_fitting = int((full_lengths <= suggested).sum())
    share = percent(n_fitting, len(full_lengths))
    return f"`model.max_length={suggested}` keeps {share} whole, for more time a step."


def _in_pieces(tokenizer: Tokenizer, subject: Subject, split: str) -> Iterator[Finding]:
    """Yields a finding if many words are split into several tokens, or unknown.

    The vocabulary then is one of another language or field. A sample of the texts is looked at.
    """
    counter = WordCounter(tokenizer)
    encoder = TextEncoder(tokenizer, special_tokens=False)
    for column in subject.texts[split].values():
        step = -(-len(column) // _SAMPLED)  # rounded up
        sample = column[::step]
        counter.add(sample, encoder.encode(sample))
    split_words = counter.split_words + counter.unknown
    are_many = split_words > _IN_PIECES * counter.words
    if counter.words >= _ENOUGH_WORDS and are_many:
        words = ", ".join(
            f"'{word.word}' ({' '.join(word.tokens)})" for word in counter.most_split(3)
        )
        says = f"are not a single token to {subject.recipe.model.name}, such as {words}"
        yield _RULES.finding("words-in-pieces", split, (split_words, counter.words), says=says)


def _unknown(
    subject: Subject,
    split: str,
    encoded: _TokenCounts,
    left: Sequence[str],
    right: Sequence[str] | None,
) -> Iterator[Finding]:
    """Yields findings on unknown tokens, and on texts of which the model knows no word.

    Args:
        subject: What is checked.
        split: The split's name.
        encoded: Token counts of its N texts.
        left: N texts.
        right: N second texts, for pairs.
    """
    with_unknown = np.flatnonzero(encoded.unknown)
    if not len(with_unknown):
        return
    rows = subject.splits[split]
    count = int(encoded.unknown.sum())
    total = int(encoded.full_lengths.sum())
    if count > WEIGHTY * total:
        severity = "warning"
    else:
        severity = "note"
    unknown_words = _unknown_words(
        subject, [_whole(left, right, int(i)) for i in with_unknown[:200]]
    )
    # The rows with the most unknown tokens are shown.
    order = np.argsort(-encoded.unknown[with_unknown], kind="stable")
    examples = []
    for row in with_unknown[order[:SHOWN_EXAMPLES]].tolist():
        text = _whole(left, right, row)
        excerpt = f"{_unknown_words(subject, [text])} in: {shorten(text, limit=60)}"
        examples.append(Example(rows.where(row), excerpt))
    says = f"are unknown to {subject.recipe.model.name}" + (
        f", such as {unknown_words}" if unknown_words else ""
    )
    are_only_signs = bool(unknown_words) and not any(map(str.isalnum, unknown_words))
    if are_only_signs:  # such as emoji
        remedy = _OF_SIGNS
    else:
        remedy = None
    yield _RULES.finding(
        "unknown-token",
        split,
        (count, total),
        tuple(examples),
        says=says,
        severity=severity,
        remedy=remedy,
    )
    yield from _nothing_known(rows, split, encoded, left)


def _nothing_known(
    rows: Rows, split: str, encoded: _TokenCounts, texts: Sequence[str]
) -> Iterator[Finding]:
    """Yields a finding on texts with nothing but unknown and special tokens, if they are many."""
    n_known = encoded.full_lengths - encoded.unknown  # special tokens are known
    has_nothing_known = (encoded.unknown > 0) & (n_known <= _ONLY_SPECIAL)
    row_numbers = np.flatnonzero(has_nothing_known).tolist()
    are_many = len(row_numbers) > WEIGHTY * len(rows)
    if are_many:
        yield from _RULES.of_rows(
            "nothing-known",
            rows,
            split,
            row_numbers,
            texts.__getitem__,
        )


def _whole(left: Sequence[str], right: Sequence[str] | None, index: int) -> str:
    """Returns the text or the pair of a row as one string."""
    if right is not None:
        return f"{left[index]} {right[index]}"
    return left[index]


def _unknown_words(subject: Subject, texts: Sequence[str]) -> str:
    """Returns the most frequent words of these texts that become [UNK]."""
    tokenizer = subject.tokenizer
    if tokenizer is None:
        return ""
    unknown = unknown_id(tokenizer)
    if unknown is None:
        return ""
    words: Counter[str] = Counter()
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token == unknown:
                words[shorten(text[start:end], limit=20)] += 1
    return ", ".join(f"'{word}'" for word, _ in words.most_common(5))
