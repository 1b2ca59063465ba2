"""What `bertctl vocab` says.

The known facts of bert-base-uncased's vocabulary, which the bundled model has.
"""

import json
from pathlib import Path

import pytest

from bertctl.errors import DataError, UsageError
from bertctl.tokenization import vocab
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import SPECIAL_TOKENS, open_tokenizer
from bertctl.tokenization.train import save, train
from tests.minilm import MINILM


def test_known_facts_of_bert_s_vocabulary() -> None:
    stats = vocab.stats(MINILM)
    assert stats["size"] == 30522
    assert stats["special"] == {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
    assert {kind: stats[kind]["count"] for kind in vocab.KINDS if kind != "words"} == {
        "unused": 994,
        "characters": 997,
        "continuations": 5828,
    }
    ends = {kind: (stats[kind]["first"], stats[kind]["last"]) for kind in vocab.KINDS}
    assert ends["characters"] == ({"piece": "!", "id": 999}, {"piece": "～", "id": 1995})
    assert ends["words"] == ({"piece": "the", "id": 1996}, {"piece": "necessitated", "id": 29611})
    assert sum(stats["scripts"].values()) == 997
    assert stats["scripts"]["Katakana"] > 40
    assert stats["longest"][0] == {"piece": "telecommunications", "id": 12108}
    assert 5 + 994 + 997 + 5828 + stats["words"]["count"] == 30522
    json.dumps(stats)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("love", [("love", 2293)]),
        ("transform", [("transform", 10938)]),
        ("##er", [("##er", 2121)]),
        ("2293", [("love", 2293)]),
        ("1996", [("the", 1996), ("1996", 2727)]),
        ("embedding", []),
        ("embed*", [("embedded", 11157)]),
        ("er", [("##er", 2121), ("er", 9413)]),
        (
            "[unused99?]",
            [
                ("[unused990]", 995),
                ("[unused991]", 996),
                ("[unused992]", 997),
                ("[unused993]", 998),
            ],
        ),
        ("999999", []),
    ],
)
def test_a_pattern_finds_its_tokens_with_their_ids(
    pattern: str, expected: list[tuple[str, int]]
) -> None:
    assert vocab.search(MINILM, pattern) == expected


def test_a_glob_finds_continuations_with_and_without_their_mark() -> None:
    marked = vocab.search(MINILM, "##ology")
    assert set(marked) <= set(vocab.search(MINILM, "*ology"))
    assert ("psychology", MINILM.token_to_id("psychology")) in vocab.search(MINILM, "*ology")


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"),
        ("ª", "Latin"),
        ("β", "Greek"),
        ("中", "CJK"),
        ("か", "Hiragana"),
        ("7", "numbers"),
        ("!", "punctuation"),
        ("€", "symbols"),
        ("\u0301", "marks"),
    ],
)
def test_a_character_has_the_script_of_its_unicode_name(character: str, script: str) -> None:
    assert vocab.script(character) == script


def test_coverage_counts_the_split_words_and_what_they_cost() -> None:
    texts = ["coronary coronary angioplasty", "the coronary film ❤"]
    coverage = vocab.coverage(MINILM, [TextChunk(texts[:1]), TextChunk(texts[1:])])
    tokens = {
        word: len(MINILM.encode(word, add_special_tokens=False))
        for word in ("coronary", "angioplasty")
    }
    assert coverage["texts"] == 2
    assert coverage["words"] == 7
    assert coverage["own_piece"] == 2
    assert coverage["lacking_words"] == 3
    assert coverage["tokens"] == 3 * tokens["coronary"] + tokens["angioplasty"] + 3
    assert [(w["word"], w["count"]) for w in coverage["top"]] == [
        ("coronary", 3),
        ("angioplasty", 1),
        ("❤", 1),
    ]
    saved = 3 * (tokens["coronary"] - 1) + tokens["angioplasty"] - 1
    assert coverage["gains"] == [{"new_pieces": 2, "tokens_saved": saved / coverage["tokens"]}]


def test_diff_of_a_vocabulary_with_a_changed_one(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]
    (tmp_path / "a.txt").write_text("\n".join(tokens))
    (tmp_path / "b.txt").write_text("\n".join([*tokens[:4], "b", "a", "d"]))
    a, b = (
        open_tokenizer(str(tmp_path / f"{name}.txt"), lowercase=True).tokenizer for name in "ab"
    )
    actual = vocab.diff(a, b)
    assert actual["common"] == 6
    assert actual["only_first"] == ["c"]
    assert actual["only_second"] == ["d"]
    assert actual["moved"] == [
        {"piece": "a", "first": 4, "second": 5},
        {"piece": "b", "first": 5, "second": 4},
    ]
    assert not actual["identical"]
    assert vocab.diff(a, a)["identical"]


CORPUS = ["the film was good and the film was fine", "Films like this film: the finest films"] * 5


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_trained_vocabulary_can_be_opened_and_used(tmp_path: Path, *, lowercase: bool) -> None:
    trained = train(lambda: [TextChunk(CORPUS)], size=60, lowercase=lowercase)
    complete = save(trained, tmp_path / "new", lowercase=lowercase)
    assert complete.get_vocab_size() <= 60
    for name in (
        tmp_path / "new",
        tmp_path / "new" / "vocab.txt",
        tmp_path / "new" / "tokenizer.json",
    ):
        opened = open_tokenizer(str(name))
        assert opened.tokenizer.get_vocab() == trained.get_vocab()
        tokens = opened.tokenizer.encode("the Film", "was").tokens
        assert tokens[0] == "[CLS]"
        assert tokens[-1] == "[SEP]"
        assert ("film" in tokens) == lowercase
        assert opened.tokenizer.encode("the").ids == complete.encode("the").ids
    assert [trained.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]


def test_transformers_reads_the_trained_folder_the_same_way(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    complete = save(
        train(lambda: [TextChunk(CORPUS)], size=60, lowercase=True), tmp_path, lowercase=True
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the Films were fine!", "❤ unknown"):
        assert tokenizer(text)["input_ids"] == complete.encode(text).ids


def test_training_twice_gives_the_same_vocabulary() -> None:
    first, second = (
        train(lambda: [TextChunk(CORPUS)], size=60, lowercase=True).get_vocab() for _ in range(2)
    )
    assert first == second


def test_training_on_nothing_or_into_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="no word"):
        train(lambda: [TextChunk([""])], size=60, lowercase=True)
    with pytest.raises(UsageError, match="no room"):
        train(lambda: [TextChunk(CORPUS)], size=5, lowercase=True)
