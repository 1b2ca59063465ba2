"""A tokenizer by any name, and what is refused."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.tokenization.reference import tokens_by_id
from bertctl.tokenization.tokenizer_files import open_tokenizer, read_vocab_txt, whole_tokenizer
from tests.heard import Heard

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "##s", "Film", "e", "é"]


@pytest.fixture
def vocab_txt(tmp_path: Path) -> Path:
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return file


def test_the_bundled_model_has_bert_s_vocabulary_and_no_cut() -> None:
    opened = open_tokenizer("minilm")
    assert opened.kind == "WordPiece, 30,522 tokens, lower-cased"
    assert opened.is_bert
    assert len(opened.tokenizer.encode("word " * 300)) == 302


def test_without_a_name_the_bundled_model_stands_in_for_bert_base() -> None:
    listener = Heard()
    assert open_tokenizer(listener=listener).name == "minilm"
    (line,) = listener.said
    assert line.startswith("bert-base ")
    assert "minilm" in line


def test_a_bare_vocabulary_equals_the_tokenizer_json_it_belongs_to(tmp_path: Path) -> None:
    """The bundled model's tokens, written out and read back, give its ids."""
    minilm = open_tokenizer("minilm").tokenizer
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{token}\n" for token in tokens_by_id(minilm)), encoding="utf-8")
    rebuilt = open_tokenizer(str(file), lowercase=True).tokenizer
    for text in ("Héllo WORLD, it's 中文 [MASK] embeddings\x00\x7f", "", "x" * 101, "[CLS] a"):
        assert rebuilt.encode(text, "a pair").ids == minilm.encode(text, "a pair").ids
        assert rebuilt.encode(text).offsets == minilm.encode(text).offsets
    assert rebuilt.decode([101, 2293, 102], skip_special_tokens=True) == "love"


@pytest.mark.parametrize(("lowercase", "expected"), [(True, ["film"]), (False, ["Film"])])
def test_lower_casing_is_said(vocab_txt: Path, *, lowercase: bool, expected: list[str]) -> None:
    tokenizer = open_tokenizer(str(vocab_txt), lowercase=lowercase).tokenizer
    assert tokenizer.encode("Film", add_special_tokens=False).tokens == expected


@pytest.mark.parametrize("lowercase", [True, False])
def test_or_read_from_the_config_beside_it(vocab_txt: Path, *, lowercase: bool) -> None:
    (vocab_txt.parent / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": lowercase})
    )
    opened = open_tokenizer(str(vocab_txt.parent))
    assert opened.kind.endswith("lower-cased" if lowercase else "cased")
    with pytest.raises(UsageError, match="the opposite"):
        open_tokenizer(str(vocab_txt), lowercase=not lowercase)


def test_else_it_is_asked_for(vocab_txt: Path) -> None:
    with pytest.raises(UsageError, match="does not tell if") as caught:
        open_tokenizer(str(vocab_txt))
    assert "`lowercase=True`" in caught.value.remedy


def test_accents_stay_where_the_config_says_so(vocab_txt: Path) -> None:
    (vocab_txt.parent / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "strip_accents": false}'
    )
    assert open_tokenizer(str(vocab_txt)).tokenizer.encode(
        "É", add_special_tokens=False
    ).tokens == ["é"]


def test_a_token_twice_is_refused_with_both_lines(vocab_txt: Path) -> None:
    vocab_txt.write_text("\n".join([*PIECES, "film"]), encoding="utf-8")
    with pytest.raises(DataError, match=r"vocab\.txt:12: .*'film' .*line 7"):
        read_vocab_txt(vocab_txt, lowercase=True)


def test_a_vocabulary_without_unk_is_refused(vocab_txt: Path, tmp_path: Path) -> None:
    vocab_txt.write_text("[CLS]\n[SEP]\nthe\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no token \[UNK\]"):
        read_vocab_txt(vocab_txt, lowercase=True)
    file = tmp_path / "tokenizer.json"
    Tokenizer(models.WordPiece({"the": 0}, unk_token="[UNK]")).save(str(file))
    with pytest.raises(DataError, match=r"no token \[UNK\]"):
        open_tokenizer(str(file))


def test_a_tokenizer_that_is_no_bert_works_and_says_what_it_is(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "Ġ": 3}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    listener = Heard()
    opened = open_tokenizer(str(tmp_path / "tokenizer.json"), listener=listener)
    assert opened.tokenizer.encode("ab b").ids == [2, 3, 1]
    (line,) = listener.said
    assert line.startswith(str(tmp_path / "tokenizer.json"))
    assert line.endswith("byte-level BPE, 4 tokens")


def test_lower_casing_that_contradicts_a_tokenizer_json_is_refused() -> None:
    with pytest.raises(UsageError, match="lower-casing on"):
        open_tokenizer("minilm", lowercase=False)


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("tokenizer.json", "{}", DataError, "as a tokenizer can.t be used"),
        ("tokenizer.json", "not json", DataError, "as a tokenizer can.t be used"),
        ("tokenizer.json", b"\xff\xfe", DataError, "not UTF-8"),
        ("vocab.txt", b"[UNK]\ncaf\xe9\n", DataError, "not UTF-8"),
    ],
)
def test_files_that_are_no_good(
    tmp_path: Path, name: str, content: str | bytes, error: type[Exception], words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=words):
        open_tokenizer(str(file), lowercase=True)


def test_names_that_fit_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean minilm"):
        open_tokenizer("minilmm")
    with pytest.raises(UnavailableError, match="does not exist"):
        open_tokenizer(str(tmp_path / "vocab.txt"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnavailableError, match=r"tokenizer\.json nor vocab\.txt"):
        open_tokenizer(str(tmp_path))


def test_a_tokenizer_is_whole_where_no_file_beside_it_names_another_token(vocab_txt: Path) -> None:
    folder = vocab_txt.parent
    roles = {"pad_token": "[PAD]", "cls_token": "[CLS]", "unk_token": None}
    assert whole_tokenizer(folder) is None, "there is no tokenizer.json"
    read_vocab_txt(vocab_txt, lowercase=True).save(str(folder / "tokenizer.json"))

    def found(**config: object) -> dict[str, int] | None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = whole_tokenizer(folder)
        return None if tokenizer is None else tokenizer[1]

    expected = {"pad_token": 0, "cls_token": 2}
    assert found(**roles, do_lower_case=True) == expected
    decoder = whole_tokenizer(folder)[0].get_added_tokens_decoder()
    written = {
        str(number): json.loads(json.dumps(token.__getstate__()))
        for number, token in decoder.items()
    }
    assert found(**roles, added_tokens_decoder=written) == expected
    assert found(**roles, extra_special_tokens={"mine": "[MASK]"}) == expected
    for more in (
        {"mask_token": "[OTHER]"},
        {"mask_token": {"content": "film"}},  # a word, and no special token, of the file
        {"additional_special_tokens": ["<user>"]},
        {"extra_special_tokens": {"mine": "<user>"}},
        {"added_tokens_decoder": {"11": {"content": "<user>"}}},
        {"added_tokens_decoder": {"3": {"content": "[PAD]"}}},
        {"added_tokens_decoder": {"0": written["0"]}},  # transformers forgets the others
        {"added_tokens_decoder": written | {"4": written["4"] | {"single_word": True}}},
    ):
        assert found(**(roles | more)) is None, more
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"pad_token": {"content": "[MASK]"}})
    )
    assert found(**roles) is None, "two files say two things"
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": {"content": "[PAD]"}}))
    assert found(**roles) == expected
    for older, tokenizer in (
        ({"[MASK]": 4}, expected),
        ({"[MASK]": 3}, None),
        ({"<user>": 11}, None),
    ):
        (folder / "added_tokens.json").write_text(json.dumps(older))
        assert found(**roles) == tokenizer, older
