"""Finds the texts that the library `tokie` encodes exactly as `tokenizers` does.

It encodes them by `tokie`.

`tokie` is 10 to 20 times as fast, and differs in places: control characters (it keeps DEL in a text
that is all ASCII and drops it in one that is not), code points that its Unicode tables know
differently, options of the normalizer that it does not read (`strip_accents`,
`handle_chinese_chars`), words whose last characters have no token of their own, and tokens that
were added with `normalized`. So a text goes there only if equality follows from its characters:

1. The tokenizer is BERT's pipeline (BertNormalizer, BertPreTokenizer, WordPiece), and no token was
   added that is looked for in the normalised text.
2. The text holds no added token (`[MASK]`, ...) as it stands.
3. Each of its characters is safe: ASCII from space to `~`, tab, newline and carriage return, and
   those letters, numbers, punctuation, symbols and spaces beyond ASCII that pass the same test.
   Both libraries
   normalise and split character by character (NFD only reorders marks, and no safe character leaves
   a mark), so what a character becomes depends on nothing else. A character is safe if the
   reference turns it into spaces, into characters that stand alone, or into word characters x for
   which `##x` is a token or no token begins with `##x` (`tokie` takes a word whose last characters
   only begin a token as complete: its single fault in greedy matching), and if both libraries agree
   on it alone, before, after and within a word, each also beside a text that is not ASCII.

The tests compare the two over all of Unicode, and over real data sets.
"""

import functools
import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bertctl.arrays import Array, Ints

_DESCRIPTORS = Path("/proc/self/fd")
"""Paths of open files, where the system has them."""

FAST_VERSIONS = ("0.1.4",)
"""Releases of `tokie` whose source was read for the claims above; any other is not used."""

_PLAIN = bytes([9, 10, 13, *range(32, 127)])
_CATEGORIES = frozenset("LNPSZ")
"""Letters, numbers, punctuation, symbols, separators; never marks and controls."""

_MORE_THAN_CORES = (os.cpu_count() or 1) + 1

Flat = tuple[NDArray[np.uint32], Ints]


class Route:
    """Fast encoder of one tokenizer, with a test that finds the texts that it encodes exactly.

    Args:
        tokenizer: the reference, with truncation and padding off.
        encode_flat: `tokie.Tokenizer.encode_batch_flat` of the same tokenizer.
        added: the added tokens, as they stand in texts.
    """

    def __init__(
        self, tokenizer: Tokenizer, encode_flat: Callable[..., Any], added: Sequence[str]
    ) -> None:
        self._tokenizer = tokenizer
        self._encode_flat = encode_flat
        self._added = added
        self._vocabulary = tokenizer.get_vocab()
        # `##x` for each character x that begins a continuation token. If `##x` itself is no token,
        # `tokie` may encode words that end with x wrongly.
        self._first_of_rest = {token[:3] for token in self._vocabulary if token.startswith("##")}
        self._word_limit: int = tokenizer.model.max_input_chars_per_word
        self._safe: dict[str, bool] = {}
        # The first safe one of some characters beyond ASCII; empty if none is. Other characters are
        # tried beside it, too, since tokie reads texts that are not all ASCII in another way.
        self._companion = next((c for c in "éæ—€" if self._is_safe(c, companion="")), "")

    def plain_is_exact(self) -> bool:
        """Returns whether ASCII text is encoded alike.

        It tries each character, and words of about the longest length.
        """
        words = [
            c * n
            for c in "a1"
            for n in (self._word_limit - 1, self._word_limit, self._word_limit + 1)
        ]
        return self._agree(["", " ", *words]) and all(map(self.is_safe, _PLAIN.decode()))

    def unsafe(self, texts: Sequence[str]) -> list[int]:
        """Returns the positions of the texts that `tokie` may encode wrongly, ascending.

        They have a character that `tokie` and `tokenizers` treat differently, or an added token.
        All texts are searched at once, since most have neither.
        """
        joined = "\n".join(texts)
        unusual = joined.encode("utf-8", "surrogatepass").translate(None, _PLAIN)
        characters = set(unusual.decode("utf-8", "surrogatepass"))
        unsafe_characters = sorted(c for c in characters if not self.is_safe(c))
        patterns = [re.escape(token) for token in self._added if token in joined]
        if unsafe_characters:
            patterns.append("[" + "".join(map(re.escape, unsafe_characters)) + "]")
        if not patterns:
            return []
        match_starts = [match.start() for match in re.finditer("|".join(patterns), joined)]
        # (N,) where each text ends in `joined`, with the line feed behind it. A match belongs to
        # the first text that ends behind the start of the match.
        ends = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)
        rows: list[int] = np.unique(np.searchsorted(ends, match_starts, side="right")).tolist()
        return rows

    def is_safe(self, character: str) -> bool:
        """Returns whether this character is encoded alike wherever it stands."""
        verdict = self._safe.get(character)
        if verdict is None:
            verdict = self._safe[character] = self._is_safe(character, companion=self._companion)
        return verdict

    def encode(self, texts: Sequence[str]) -> Flat:
        """Returns the (T,) ids of all texts without special tokens, and (N,) tokens of each text.

        Args:
            texts: N texts that are safe, see `unsafe`.
        """
        # Given no more texts than there are cores, `tokie` splits long texts, perhaps within a
        # word. Empty texts make their number large enough.
        missing = max(0, _MORE_THAN_CORES - len(texts))
        ids, lengths = self._encode_flat([*texts, *[""] * missing], False)
        return ids, lengths[: len(texts)].astype(np.int64)

    def _is_safe(self, c: str, companion: str) -> bool:
        """Returns whether both libraries encode a character alike, see rule 3 of this module.

        The characters that it is normalised to must be of kinds for which `tokie` is right, and
        both libraries must give the same tokens to short texts with the character.

        Args:
            c: The character.
            companion: A safe character beyond ASCII for a second try beside it; empty for none.
        """
        if c not in "\t\n\r" and unicodedata.category(c)[0] not in _CATEGORIES:
            return False
        normalized = self._tokenizer.normalizer.normalize_str(c)
        if not all(
            x == " " or self._stands_alone(x) or self._never_half_matched(x) for x in normalized
        ):
            return False
        probes = [c, f"a{c}", f"{c}a", f"a{c}a", f"{c}{c}", f"a {c} a", f"A{c}1{c}Z"]
        return self._agree(probes + [f"{probe} {companion}" for probe in probes if companion])

    def _stands_alone(self, x: str) -> bool:
        """Returns whether the tokenizer splits a word before and after a character."""
        return len(self._tokenizer.pre_tokenizer.pre_tokenize_str(f"a{x}a")) == 3

    def _never_half_matched(self, x: str) -> bool:
        """Returns whether `##x` is a token, or no token begins with it.

        In all other cases `tokie` may take a word for complete that ends with the character: it
        takes the beginning of a token for the token.
        """
        continuation = f"##{x}"
        is_token = continuation in self._vocabulary
        begins_a_token = continuation in self._first_of_rest
        return unicodedata.category(x)[0] in "LNS" and (is_token or not begins_a_token)

    def _agree(self, texts: Sequence[str]) -> bool:
        """Returns whether both libraries encode these texts alike."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids, lengths = self.encode(texts)
        return split_flat(ids, lengths) == [encoding.ids for encoding in encodings]


def split_flat(ids: Array, lengths: Ints) -> list[list[int]]:
    """Returns flat ids as one list per text."""
    ends = np.cumsum(lengths)
    parts = np.split(ids, ends[:-1])
    return [part.tolist() for part in parts]


def find_route(tokenizer: Tokenizer) -> Route | None:
    """Returns the fast encoder of a tokenizer as it is now, by `tokie`; None if there is none.

    Args:
        tokenizer: with truncation and padding off.
    """
    return _route(tokenizer.to_str())


@functools.lru_cache(maxsize=4)  # loading takes long, and a command has few tokenizers
def _route(serialised: str) -> Route | None:
    """Returns the fast encoder of a tokenizer.json, by the library `tokie`, or None.

    It is None if the tokenizer is not BERT's, if `tokie` can't be used, or if a trial shows that
    `tokie` encodes ASCII text otherwise than the library `tokenizers`.
    """
    document = json.loads(serialised)
    if not _is_bert(document):
        return None
    encode_flat = _load_fast(serialised)
    if encode_flat is None:
        return None
    added = [token["content"] for token in document["added_tokens"]]
    route = Route(Tokenizer.from_str(serialised), encode_flat, added)
    if route.plain_is_exact():
        return route
    return None


def _is_bert(document: dict[str, Any]) -> bool:
    """Returns whether a tokenizer.json is BERT's pipeline, which `tokie` encodes as it should.

    Added tokens are excluded if they are looked for in the normalised text, where `tokie` does not
    look, or if they have a space in them, since long texts are cut at spaces.
    """
    types = {
        "model": "WordPiece",
        "normalizer": "BertNormalizer",
        "pre_tokenizer": "BertPreTokenizer",
    }
    has_berts_parts = all(
        (document.get(part) or {}).get("type") == kind for part, kind in types.items()
    )
    if not has_berts_parts or document["model"].get("continuing_subword_prefix") != "##":
        return False
    if document["truncation"] is not None or document["padding"] is not None:
        return False
    return not any(
        token["normalized"] or " " in token["content"] for token in document["added_tokens"]
    )


def _load_fast(serialised: str) -> Callable[..., Any] | None:
    """Returns `encode_batch_flat` of `tokie` for a tokenizer.json.

    It is None if no release that is known to be exact is installed, or if `tokie` can't read it.
    """
    distribution = next(iter(distributions(name="tokie")), None)
    if distribution is None or distribution.version not in FAST_VERSIONS:
        return None
    import tokie

    with _path_of(serialised.encode("utf-8")) as path:
        try:
            fast: Any = tokie.Tokenizer.from_json(path)  # its stub leaves encode_batch_flat out
        except tokie.TokieError:
            return None
    return fast.encode_batch_flat  # type: ignore[no-any-return]


@contextmanager
def _path_of(content: bytes) -> Iterator[str]:
    """Yields the path of a file with this content, for a library that reads files only.

    It is a file in memory if the system has such, else a temporary file.
    """
    if hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir():
        descriptor = os.memfd_create("tokenizer.json")
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            yield str(_DESCRIPTORS / str(descriptor))
        finally:
            os.close(descriptor)
        return

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_bytes(content)
        yield str(path)
