"""`encode_texts`: rows, cuts and counts equal to the library's own, by either way."""

import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from bertctl.errors import UnavailableError
from bertctl.runtime.batching import Padding
from bertctl.tasks.sequences import SequenceFeatures
from bertctl.tasks.tagging.word_windows import WordFeatures, encode_words
from bertctl.tokenization import encode
from bertctl.tokenization.encode import EncodedTexts, TextEncoder, encode_texts
from bertctl.tokenization.layout import Layout, longest_first
from bertctl.tokenization.reference import chunks, cut_at_spaces, load_tokenizer, unknown_id
from bertctl.tokenization.route import find_route
from tests.minilm import MINILM

CUTTING = Tokenizer.from_str(MINILM.to_str())
UNKNOWN = 100

sentences = st.lists(
    st.sampled_from(["a", "film", "rumination", "❤", "x1y2z3", "."]), max_size=12
).map(" ".join)


def encoders(**options: object) -> list[TextEncoder]:
    """By the reference, and by the faster library where it is installed."""
    plain = TextEncoder(MINILM, routed=False, **options)
    fast = TextEncoder(MINILM, **options)
    fast.route = find_route(MINILM)
    return [plain, fast]


def by_library(
    batch: list[str] | list[tuple[str, str]], max_length: int | None, *, special: bool
) -> EncodedTexts:
    """What the library's own truncation gives, row by row."""
    tokenizer = CUTTING
    tokenizer.no_truncation()
    full = tokenizer.encode_batch(batch, add_special_tokens=special)
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    cut = tokenizer.encode_batch(batch, add_special_tokens=special)
    return EncodedTexts(
        ids=np.array([i for e in cut for i in e.ids], dtype=np.int32),
        type_ids=np.array([i for e in cut for i in e.type_ids], dtype=np.uint8),
        starts=np.cumsum([0, *map(len, cut)]),
        full_lengths=np.array([len(e) for e in full]),
        unknown=np.array([e.ids.count(UNKNOWN) for e in full]),
    )


def assert_equal(actual: EncodedTexts, expected: EncodedTexts) -> None:
    for name in ("ids", "type_ids", "starts", "full_lengths", "unknown"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)
    assert actual.ids.dtype == np.int32
    assert actual.type_ids.dtype == np.uint8
    assert actual.starts.dtype == np.int64


@settings(max_examples=25, deadline=None)
@given(
    batch=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5),
    max_length=st.one_of(st.none(), st.integers(4, 24)),
    special=st.booleans(),
)
def test_rows_and_cuts_are_the_library_s(
    batch: list[tuple[str, str]], max_length: int | None, *, special: bool
) -> None:
    first = [a for a, _ in batch]
    second = [b for _, b in batch]
    for encoder in encoders(max_length=max_length, special_tokens=special):
        assert_equal(encoder.encode(first), by_library(first, max_length, special=special))
        assert_equal(encoder.encode(first, second), by_library(batch, max_length, special=special))


def test_known_ids_of_bert_s_vocabulary() -> None:
    encoded = encode_texts(MINILM, ["a visually stunning rumination on love"], max_length=128)
    assert encoded.ids.tolist() == [101, 1037, 17453, 14726, 19379, 12758, 2006, 2293, 102]
    sentence = "Our friends won't buy this analysis, let alone the next one we propose."
    plain = TextEncoder(MINILM, special_tokens=False).encode([sentence])
    expected = (
        "2256 2814 2180 1005 1056 4965 2023 4106 1010 2292 2894 1996 2279 2028 2057 16599 1012"
    )
    assert plain.ids.tolist() == [int(i) for i in expected.split()]


def test_a_pair_has_two_segments() -> None:
    encoded = encode_texts(MINILM, ["it rained."], ["the ground is wet."], max_length=32)
    pieces = [MINILM.id_to_token(i) for i in encoded.ids.tolist()]
    assert pieces == [
        "[CLS]",
        "it",
        "rained",
        ".",
        "[SEP]",
        "the",
        "ground",
        "is",
        "wet",
        ".",
        "[SEP]",
    ]
    assert encoded.type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_what_is_cut_and_unknown_is_counted() -> None:
    encoded = encode_texts(MINILM, ["a ❤ b ❤ c", "a", ""], max_length=4)
    assert encoded.full_lengths.tolist() == [7, 3, 2]
    assert encoded.lengths.tolist() == [4, 3, 2]
    assert encoded.truncated.tolist() == [True, False, False]
    assert encoded.unknown.tolist() == [2, 0, 0]


@pytest.mark.parametrize("unknown", ["<unk>", "[UNK]"])
def test_what_unigram_does_not_know_is_counted(unknown: str) -> None:
    """Its model has a number for it, and no name as WordPiece has."""
    tokenizer = Tokenizer(
        models.Unigram([("<s>", 0.0), (unknown, 0.0), ("a", -1.0), ("b", -1.0)], 1, False)
    )
    assert unknown_id(tokenizer) == 1
    encoded = encode_texts(tokenizer, ["a b", "☃a☃", "b"], max_length=4)
    assert encoded.unknown.tolist() == [1, 2, 0], "the blank is none of its tokens"


def test_nothing_gives_nothing() -> None:
    for encoder in encoders():
        assert len(encoder.encode([])) == 0
        assert encoder.encode([], []).ids.tolist() == []


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 texts and 1 second"):
        encode_texts(MINILM, ["a", "b"], ["c"], max_length=8)


def test_stored_truncation_and_padding_are_switched_off() -> None:
    tokenizer = Tokenizer.from_str(MINILM.to_str())
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    loaded = load_tokenizer(tokenizer.to_str())
    assert len(loaded.encode("a b c d e f g h i j")) == 12


def test_many_texts_take_the_faster_way_and_few_do_not() -> None:
    pytest.importorskip("tokie")
    encoder = TextEncoder(MINILM)
    encoder.encode(["a few words"])
    assert encoder.route is None
    encoder.encode(["a few words"] * 10_000)
    assert encoder.route is None, (
        "for a vocabulary of 30,522 tokens it takes longer to load than these"
    )
    encoder.encode(["a few words"] * 15_000)
    assert encoder.route is not None


def test_longest_first_is_the_library_s_for_all_small_lengths() -> None:
    tokenizer = Tokenizer.from_str(MINILM.to_str())
    for room in range(1, 8):
        tokenizer.enable_truncation(room + 3)
        for a in range(9):
            batch = [(" ".join("a" * a), " ".join("b" * b)) for b in range(9)]
            expected = [
                (sum(s == 0 for s in e.sequence_ids), sum(s == 1 for s in e.sequence_ids))
                for e in tokenizer.encode_batch(batch)
            ]
            first, second = longest_first(np.full(9, a), np.arange(9), room)
            assert second is not None
            assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected, (room, a)


def test_the_layout_of_a_pair() -> None:
    slots = Layout.of(MINILM, pair=True).slots
    assert [(slot.ids, slot.type_id, slot.sequence) for slot in slots] == [
        ((101,), 0, None),
        ((), 0, 0),
        ((102,), 0, None),
        ((), 1, 1),
        ((102,), 1, None),
    ]
    assert Layout.of(MINILM, pair=True, special_tokens=False).special == 0


def test_long_texts_are_cut_at_spaces_only() -> None:
    text = "unbelievable words " * 50 + "x" * 300 + " end"
    parts = cut_at_spaces(text, 40)
    assert "".join(parts) == text
    assert all(part.startswith(" ") for part in parts[1:])
    ids = MINILM.encode(text, add_special_tokens=False).ids
    assert [i for part in parts for i in MINILM.encode(part, add_special_tokens=False).ids] == ids


def test_portions_for_the_library_are_bounded_and_complete() -> None:
    texts = ["a" * 600_000, "b" * 600_000, *["c"] * 5000, "d" * 3_000_000, ""]
    portions = list(chunks(texts))
    assert [text for portion in portions for text in portion] == texts
    assert all(len(p) == 1 or sum(map(len, p)) <= 1_000_000 for p in portions)
    assert max(map(len, portions)) <= 4096


def test_many_ids_lie_in_a_file_and_batches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a film .", "rumination", "x1y2z3 a"] * 5
    words = [["a", "film"], ["rumination"]] * 5

    def split() -> tuple[SequenceFeatures, WordFeatures]:
        encoded = encode_texts(MINILM, texts, max_length=8)
        return SequenceFeatures(encoded, None), encode_words(words, None, MINILM, max_length=8)

    few = split()
    monkeypatch.setattr(encode, "LARGE", 10)
    many = split()
    for entry, other in zip(few, many, strict=True):
        assert isinstance(other.encoded.ids, np.memmap)
        assert not isinstance(entry.encoded.ids, np.memmap), (
            "the premise: there are fewer than the threshold"
        )
        assert other.lengths.tolist() == entry.lengths.tolist()
        for name, tensor in entry.collate(np.array([7, 2, 9]), Padding(0)).inputs.items():
            assert (
                other.collate(np.array([7, 2, 9]), Padding(0)).inputs[name].tolist()
                == tensor.tolist()
            )


def test_ids_that_the_disk_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "LARGE", 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(UnavailableError, match="no room for") as caught:
            encode_texts(MINILM, ["a film ."] * 9, max_length=8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "TMPDIR" in caught.value.remedy
