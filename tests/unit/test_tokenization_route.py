"""Texts that go to the faster library have the reference's ids, whatever is in them.

The others do not go there.
"""

import csv
import functools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.route import Route, _route, find_route, split_flat
from bertctl.tokenization.tokenizer_files import read_vocab_txt
from tests.minilm import MINILM

pytest.importorskip("tokie", reason="the faster library is not installed")

SPECIAL = (
    "[CLS]",
    "[SEP]",
    "[PAD]",
    "[UNK]",
    "[MASK]",
    "[mask]",
    "[unused5]",
    "##ing",
    "[",
    "]",
    "##",
)
PIECES = sorted(MINILM.get_vocab())

words = st.one_of(
    st.sampled_from(PIECES).map(lambda piece: piece.removeprefix("##")),
    st.sampled_from(SPECIAL),
    st.text(max_size=12),
    st.text(st.characters(max_codepoint=127), max_size=20),
    st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789éßø"), min_size=95, max_size=110),
    st.text(st.sampled_from("abcé"), min_size=195, max_size=210),
    st.text(
        st.characters(categories=["Cc", "Cf", "Mn", "Cn", "Co", "Zs", "Zl", "So", "Lo"]), max_size=8
    ),
)
texts = st.lists(
    st.tuples(words, st.sampled_from(["", " ", "\t", "-", "\u00a0", "  "])), max_size=12
).map(lambda parts: "".join(word + gap for word, gap in parts))
"""Pieces, special tokens, words of over 100 and over 200 characters, anything from all of Unicode,
glued and apart."""


@pytest.fixture(scope="module")
def route() -> Route:
    actual = find_route(MINILM)
    assert actual is not None
    return actual


@functools.cache
def routed(tokenizer: Tokenizer) -> TextEncoder:
    """An encoder that takes the faster library from the first text on."""
    encoder = TextEncoder(tokenizer)
    encoder.route = find_route(tokenizer)
    assert encoder.route is not None
    return encoder


def reference(
    tokenizer: Tokenizer, batch: list[str] | list[tuple[str, str]]
) -> list[tuple[list[int], list[int]]]:
    return [(encoding.ids, encoding.type_ids) for encoding in tokenizer.encode_batch(batch)]


def rows(
    encoder: TextEncoder, batch: list[str], pairs: list[str] | None = None
) -> list[tuple[list[int], list[int]]]:
    encoded = encoder.encode(batch, pairs)
    ids = split_flat(encoded.ids, encoded.lengths)
    types = split_flat(encoded.type_ids, encoded.lengths)
    return list(zip(ids, types, strict=True))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.lists(texts, min_size=1, max_size=6))
def test_ids_of_a_thousand_batches_are_the_reference_s(batch: list[str]) -> None:
    assert rows(routed(MINILM), batch) == reference(MINILM, batch)


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, min_size=1, max_size=6))
def test_ids_are_the_reference_s_over_all_of_unicode(batch: list[str]) -> None:
    assert rows(routed(MINILM), batch) == reference(MINILM, batch)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
def test_pairs_too(batch: list[tuple[str, str]]) -> None:
    first = [a for a, _ in batch]
    second = [b for _, b in batch]
    assert rows(routed(MINILM), first, second) == reference(MINILM, batch)


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A cased vocabulary in which some accented letters have pieces.

    Some have them only at the beginning of one.
    """
    file = tmp_path_factory.mktemp("cased") / "vocab.txt"
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789éñ"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{c}" for c in letters),
        "Über",
        "##über",
    ]
    file.write_text(
        "\n".join([*pieces, *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "the", "The"]), encoding="utf-8"
    )
    return read_vocab_txt(file, lowercase=False)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.lists(st.one_of(texts, st.text("aAéñüÜber €", max_size=12)), min_size=1, max_size=6)
)
def test_a_cased_vocabulary_too(cased: Tokenizer, batch: list[str]) -> None:
    assert rows(routed(cased), batch) == reference(cased, batch)


def test_plain_english_is_routed_and_what_is_not_exact_is_not(route: Route) -> None:
    plain = [
        "a visually stunning rumination on love",
        "“Don’t—stop”",
        "café, 100 °C, £5, ½",
        "tabs\tand\rreturns",
        "",
    ]
    assert route.unsafe(plain) == []
    unsafe = [
        "a\x7fb",
        "nul\x00",
        "soft\u00adhyphen",
        "e\u0301",
        "[MASK] it",
        "a[UNK]b",
        "\u0378",
        "\ue000",
    ]
    assert route.unsafe([*plain, *unsafe]) == list(range(len(plain), len(plain) + len(unsafe)))


@pytest.mark.parametrize("text", ["a\x7fb", "a\u0378b"])
def test_the_faster_library_does_differ_outside_the_class(route: Route, text: str) -> None:
    """Counter-examples: without them the routing would be for nothing."""
    ids, lengths = route.encode([text])
    assert split_flat(ids, lengths) != [MINILM.encode(text, add_special_tokens=False).ids]


def test_a_letter_that_only_begins_a_piece_is_not_routed(cased: Tokenizer) -> None:
    """`##über` is a piece and `##ü` is not.

    The faster library takes `aü` as `a`, the reference as unknown.
    """
    route = find_route(cased)
    assert route is not None
    ids, _ = route.encode(["aü"])
    assert ids.tolist() == [cased.token_to_id("a")]
    assert cased.encode("aü").tokens == ["[CLS]", "[UNK]", "[SEP]"]
    assert route.unsafe(["aü", "aé"]) == [0]


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "hello\tworld\t" * 20_000, "中" * 70_000, "a " * 100_000]
)
@pytest.mark.parametrize(
    "count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 9))]
)
def test_few_long_texts_are_not_split_within_a_word(text: str, count: int) -> None:
    expected = MINILM.encode(text).ids
    assert [ids for ids, _ in rows(routed(MINILM), [text] * count)] == [expected] * count


@pytest.mark.parametrize("length", [99, 100, 101, 199, 200, 201])
@pytest.mark.parametrize("letter", ["a", "é", "中", "ß"])
def test_words_around_the_length_limit(length: int, letter: str) -> None:
    batch = [letter * length, f"x {letter * length} y"]
    assert rows(routed(MINILM), batch) == reference(MINILM, batch)


def test_every_97th_code_point_in_context() -> None:
    characters = [chr(i) for i in range(0, 0x30000, 97) if not 0xD800 <= i < 0xE000]
    batch = []
    for c in characters:
        batch += (c, f"a{c}b", f"in{c}{c} é {c}ing")
    assert rows(routed(MINILM), batch) == reference(MINILM, batch)


def test_tokenizers_that_are_no_plain_bert_have_no_route() -> None:
    lower = Tokenizer.from_str(MINILM.to_str())
    lower.add_tokens([AddedToken("covid19", normalized=True)])
    assert find_route(lower) is None
    stripped = Tokenizer.from_str(
        MINILM.to_str().replace('"strip_accents":null', '"strip_accents":false')
    )
    accents = find_route(stripped)
    assert accents is None or accents.unsafe(["café"]) == [0]


def test_added_tokens_that_stand_as_they_are_go_to_the_reference() -> None:
    tokenizer = Tokenizer.from_str(MINILM.to_str())
    tokenizer.add_special_tokens(["<drug>"])
    batch = ["take <drug> daily", "take drug daily", "<DRUG>"]
    encoder = routed(tokenizer)
    assert encoder.route is not None
    assert encoder.route.unsafe(batch) == [0]
    assert rows(encoder, batch) == reference(tokenizer, batch)


def test_without_the_faster_library_or_with_another_release_of_it_all_goes_to_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for actual in ([SimpleNamespace(version="0.1.5")], []):
        _route.cache_clear()
        monkeypatch.setattr(
            "bertctl.tokenization.route.distributions", lambda actual=actual, **_: actual
        )
        assert find_route(MINILM) is None
        batch = ["a film about love"] * 10_000
        encoder = TextEncoder(MINILM)
        assert rows(encoder, batch) == reference(MINILM, batch)
        assert encoder.route is None
    _route.cache_clear()


def some_real_texts(folder: Path) -> Iterator[str]:
    """TextChunks of several sets: movie reviews, medical abstracts, Wikipedia, tweets."""
    with (folder / "sst2-sentences" / "dev.tsv").open(encoding="utf-8", newline="") as file:
        yield from (row[0] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for file in sorted((folder / "mlm-medical").glob("*")):
        yield from file.read_text(encoding="utf-8").splitlines()[:300]
    for file in sorted((folder / "wnut17").glob("*")):
        yield from file.read_text(encoding="utf-8").split("\n\n")[:1000]


def test_real_data(shared_data: Path) -> None:
    batch = list(some_real_texts(shared_data))
    encoder = routed(MINILM)
    assert encoder.route is not None
    assert len(encoder.route.unsafe(batch)) < len(batch) / 10
    assert rows(encoder, batch) == reference(MINILM, batch)
