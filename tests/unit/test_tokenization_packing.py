"""Packed texts have the tokenizer's own ids and openings of words.

They have the same places on a disk and in memory.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from bertctl.errors import DataError, UnavailableError
from bertctl.tokenization import packing
from bertctl.tokenization.packing import PackedText, open_packed, pack, pack_in_memory
from bertctl.tokenization.tokenizer_files import open_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _texts(words: int) -> list[str]:
    """Makes so many words, of few letters and of many.

    They have marks, accents, other scripts and what tokens look like.
    """
    draw = random.Random(7)  # noqa: S311 - the same words each time
    odd = [
        "##ing",
        "don't",
        "naïve",
        "(a)",
        "3,5",
        "汉字",
        "ＦＵＬＬ",
        "[MASK]",
        "▁x",
        "été",
        "x" * 120,
        "…",
        "a\u0301b",
    ]
    made = ["".join(draw.choices("aeinorst", k=draw.randint(1, 12))) for _ in range(5000)]
    drawn = [draw.choice(odd if draw.random() < 0.1 else made) for _ in range(words)]
    ends = sorted(draw.sample(range(words), words // 20))
    return [" ".join(drawn[a:b]) + "." for a, b in zip([0, *ends], [*ends, words], strict=True)]


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _trained(
        tokenizer,
        trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False),
    )


def _word_piece_between_spaces() -> Tokenizer:
    """A word may begin with `##` here."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _trained(
        tokenizer,
        trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False),
    )


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(
        tokenizer,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )


def _sentence_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
    )
    return _trained(tokenizer, trainer)


def _sentence_piece_uncut() -> Tokenizer:
    """A tokenizer as Gemma's.

    The normalizer writes the marks, and the pre-tokenizer finds no space to cut at.
    """
    trained = _sentence_piece()
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return trained


def _trained(tokenizer: Tokenizer, trainer: object) -> Tokenizer:
    tokenizer.train_from_iterator(_texts(3000), trainer)
    return tokenizer


def _bits(packed: PackedText) -> list[int]:
    n_tokens = len(packed.ids)
    bits = np.unpackbits(packed.begins, count=n_tokens, bitorder="little")
    return bits.tolist()


def _expected(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """Returns ids, and whether a token begins another word.

    The library gives it another word than the one before it in its text.
    """
    ids: list[int] = []
    begins: list[int] = []
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        ids += encoding.ids
        previous_word = None
        for position, word in enumerate(encoding.word_ids):
            begins.append(int(position == 0 or word != previous_word))
            previous_word = word
    return ids, begins


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda: open_tokenizer("minilm").tokenizer, marks=pytest.mark.slow, id="minilm"
        ),
        pytest.param(_word_piece_between_spaces, marks=pytest.mark.slow),
        _word_piece,
        _byte_level,
        _sentence_piece,
    ],
)
def test_words_begin_where_the_tokenizer_says(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    texts = _texts(30_000)
    packed = pack_in_memory([texts[:1000], texts[1000:]], tokenizer)
    ids, begins = _expected(tokenizer, texts)
    assert packed.ids.tolist() == ids
    assert _bits(packed) == begins
    assert 30_000 < sum(begins) < len(ids)


def test_words_of_a_text_that_is_not_cut_begin_at_their_marks() -> None:
    tokenizer = _sentence_piece_uncut()
    text = "one two  three [MASK] four"
    packed = pack_in_memory([[text]], tokenizer)
    tokens = [tokenizer.id_to_token(i) for i in packed.ids]
    begun = [i for i, bit in enumerate(_bits(packed)) if bit]
    assert set(tokenizer.encode(text, add_special_tokens=False).word_ids[:3]) == {0}
    assert [i for i, token in enumerate(tokens) if i == 0 or token[0] in "▁["] == begun
    assert len(begun) >= 5


def _sentences(packed: PackedText) -> list[list[list[int]]]:
    """The documents as lists of sentences as lists of ids."""
    sentences = []
    for start, end in itertools.pairwise(packed.sentences):
        sentences.append(packed.ids[start:end].tolist())
    return [sentences[start:end] for start, end in itertools.pairwise(packed.documents)]


CORPORA = [
    [["ab c", "\x00", "d"], [], ["\x00"], ["e f g"]],
    [["\x00"]],
    [[""], ["h" * 40, "i"], ["j"]],
]


@pytest.mark.parametrize("size", [0, 4_000_000])
def test_places_are_the_same_on_a_disk_and_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(packing, "_CHARACTERS", size)
    tokenizer = _word_piece()
    documents = list(itertools.chain.from_iterable(CORPORA))

    stored = pack(iter(map(iter, CORPORA)), tokenizer, tmp_path / "packed")
    in_memory = pack_in_memory(documents, tokenizer)

    expected = [_ids_of_sentences(tokenizer, document) for document in documents]
    assert _sentences(in_memory) == expected, "each document stays"
    assert _sentences(stored) == [document for document in expected if document]
    assert stored.corpora.tolist() == [0, 2, 2, 4]
    assert isinstance(stored.ids, np.memmap)
    assert stored.ids.dtype == np.uint16
    assert stored.sentences.dtype == np.int64
    assert stored.documents.dtype == np.int64
    assert stored.corpora.dtype == np.int64
    for name in ("ids", "begins", "sentences"):
        in_memory_array = getattr(in_memory, name)
        stored_array = getattr(stored, name)
        assert in_memory_array.tolist() == stored_array.tolist()
        assert in_memory_array.dtype == stored_array.dtype


def _ids_of_sentences(tokenizer: Tokenizer, document: list[str]) -> list[list[int]]:
    """Ids of the texts of a document that have any."""
    encodings = [tokenizer.encode(text, add_special_tokens=False) for text in document]
    return [encoding.ids for encoding in encodings if encoding.ids]


def test_how_texts_are_read_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = _word_piece()
    texts = _texts(5000)
    corpora = [[texts[i : i + 3] for i in range(0, len(texts), 3)]] * 2
    pack(corpora, tokenizer, tmp_path / "at-once")
    monkeypatch.setattr(packing, "_CHARACTERS", 700)
    pack(corpora, tokenizer, tmp_path / "in-parts")
    files = sorted((tmp_path / "at-once").iterdir())
    assert len(files) == 5
    for file in files:
        assert file.read_bytes() == (tmp_path / "in-parts" / file.name).read_bytes()


def test_a_large_vocabulary_takes_more_bytes(tmp_path: Path) -> None:
    vocabulary = {"[UNK]": 0, **{f"w{i}": i for i in range(1, 70_000)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    packed = pack([[["w69999 w1 other"]]], tokenizer, tmp_path / "packed")
    assert packed.ids.dtype == np.uint32
    assert packed.ids.tolist() == [69999, 1, 0]


@pytest.mark.parametrize("words", [1, 20])
def test_places_cost_little_however_short_texts_are(tmp_path: Path, words: int) -> None:
    texts = [" ".join(["ab"] * words)] * (30_000 // words)
    packed = pack([[[text] for text in texts]], _word_piece(), tmp_path / "packed")
    stored = sum(file.stat().st_size for file in (tmp_path / "packed").iterdir())
    assert len(packed.documents) == len(texts) + 1
    assert stored <= 1.2 * packed.ids.nbytes


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    pack([[["ab"], ["c d"]]], _word_piece(), tmp_path / "packed")
    ids = tmp_path / "packed" / "ids.npy"
    ids.write_bytes(ids.read_bytes()[:-1])
    with pytest.raises(DataError, match="packed can't be used"):
        open_packed(tmp_path / "packed")
    ids.unlink()
    with pytest.raises(DataError, match=r"ids\.npy"):
        open_packed(tmp_path / "packed")


def test_nothing_is_left_where_a_tokenizer_fails(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(UnavailableError, match="the tokenizer"):
        pack([[["a"], ["b"]]], tokenizer, tmp_path / "packed")
    assert not list(tmp_path.iterdir())


def test_a_sentence_without_an_end_is_cut_at_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHUNK_CHARACTERS", 50)
    tokenizer = _byte_level()
    text = " ".join(_texts(200))
    packed = pack_in_memory([["short"], [text]], tokenizer)
    ids, begins = _expected(tokenizer, ["short", text])
    assert packed.ids.tolist() == ids
    assert _bits(packed) == begins
    assert len(packed.sentences) > 10
    assert packed.documents.tolist() == [0, 1, len(packed.sentences) - 1]
