"""What is written can be read back; windows and one-sided cuts are the library's."""

import io
import json
from functools import partial

import pytest
from tokenizers import Tokenizer

from bertctl.errors import DataError, UsageError
from bertctl.tokenization import formats
from bertctl.tokenization.decode import Decoder
from bertctl.tokenization.encode import EncodedTexts, FlatEncoder, TextEncoder
from bertctl.tokenization.stream import TextChunk, Totals, run
from bertctl.tokenization.windows import Truncation, WindowEncoder
from tests.minilm import MINILM

TEXTS = ["a film", "", "rumination on love ❤", "x", "a b c d e f g h"]
CHUNKS = [TextChunk(TEXTS[:2]), TextChunk(TEXTS[2:])]


def written(
    layout: str,
    *,
    tokenizer: Tokenizer = MINILM,
    special_tokens: bool = True,
    chunks: list[TextChunk] = CHUNKS,
) -> io.BytesIO:
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="utf-8")
    with formats.id_writer(layout, out, tokenizer) as write:
        totals = run(
            chunks, FlatEncoder(TextEncoder(tokenizer, special_tokens=special_tokens)), write
        )
    assert totals.texts == sum(len(chunk.texts) for chunk in chunks)
    return io.BytesIO(written.getvalue())


@pytest.mark.parametrize("special_tokens", [True, False])
def test_ids_and_tokens_are_one_line_per_text(*, special_tokens: bool) -> None:
    expected = MINILM.encode_batch(TEXTS, add_special_tokens=special_tokens)
    ids = written("ids", special_tokens=special_tokens)
    assert ids.read().decode() == "".join(" ".join(map(str, e.ids)) + "\n" for e in expected)
    tokens = written("tokens", special_tokens=special_tokens)
    assert tokens.read().decode() == "".join(" ".join(e.tokens) + "\n" for e in expected)


def test_added_tokens_are_written_as_they_stand() -> None:
    tokenizer = Tokenizer.from_str(MINILM.to_str())
    long = "<" + "é" * 40 + ">"
    tokenizer.add_special_tokens([long])
    out = written("tokens", tokenizer=tokenizer, chunks=[TextChunk([f"a {long}"])])
    assert out.read().decode() == f"[CLS] a {long} [SEP]\n"


@pytest.mark.parametrize("layout", ["ids", "tokens"])
def test_nothing_is_an_empty_file(layout: str) -> None:
    assert written(layout, chunks=[]).read() == b""


def test_parquet_holds_a_row_per_text() -> None:
    import pyarrow.parquet as pq

    pairs = [TextChunk(["a b", "c"], ["d", "e f g"])]
    table = pq.read_table(written("parquet", chunks=pairs))
    expected = MINILM.encode_batch([("a b", "d"), ("c", "e f g")])
    assert table["ids"].to_pylist() == [e.ids for e in expected]
    assert table["type_ids"].to_pylist() == [e.type_ids for e in expected]
    assert table["full_length"].to_pylist() == [6, 7]
    assert [str(field.type) for field in table.schema] == [
        "list<element: int32>",
        "list<element: uint8>",
        "int64",
    ]


def test_parquet_of_nothing_has_columns_and_no_rows() -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(written("parquet", chunks=[]))
    assert table.column_names == ["ids", "type_ids", "full_length"]
    assert table.num_rows == 0


def test_windows_as_ids_know_the_length_before_truncation() -> None:
    def flat(truncation: Truncation) -> EncodedTexts:
        texts = WindowEncoder(MINILM, truncation).encode(TextChunk(["a b c d", "a"], ["x", "y"]))
        return EncodedTexts.of_windows(texts)

    cut = flat(Truncation(6, "only_first"))
    assert cut.lengths.tolist() == [6, 5]
    assert cut.full_lengths.tolist() == [8, 5]
    windows = flat(Truncation(6, "only_first", stride=1))
    assert windows.lengths.tolist() == [6, 6, 6, 5]
    assert windows.full_lengths.tolist() == [6, 6, 6, 5]


def records(
    truncation: Truncation, texts: list[str], pairs: list[str] | None = None
) -> tuple[list[dict[str, object]], Totals]:
    out = io.StringIO()
    totals = run(
        [TextChunk(texts, pairs)],
        WindowEncoder(MINILM, truncation),
        partial(formats.write_records, out, truncation),
    )
    return [json.loads(line) for line in out.getvalue().splitlines()], totals


def test_records_have_character_offsets_and_word_ids() -> None:
    (record,), _ = records(Truncation(), ["café rumination"])
    assert record["pieces"] == ["[CLS]", "cafe", "rum", "##ination", "[SEP]"]
    assert record["offsets"] == [[0, 0], [0, 4], [5, 8], [8, 15], [0, 0]]
    assert record["word_ids"] == [None, 0, 1, 1, None]
    assert "truncated" not in record


def test_a_cut_is_marked_and_counted() -> None:
    actual, totals = records(Truncation(max_length=5), ["a b c d e f", "a"])
    assert [record["truncated"] for record in actual] == [True, False]
    assert totals.truncated == 1
    assert totals.lost == 3
    assert totals.texts == 2
    assert totals.tokens == 8


def test_windows_overlap_by_the_stride_and_cover_everything() -> None:
    actual, totals = records(Truncation(max_length=6, stride=2), ["a b c d e f g", "x"])
    assert [(record["index"], record["window"]) for record in actual] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
    ]
    inner = [record["pieces"][1:-1] for record in actual]
    assert inner == [list("abcd"), list("cdef"), list("efg"), ["x"]]
    assert totals.texts == 2
    assert totals.rows == 4
    assert totals.truncated == 0


def test_windows_of_a_pair_slide_over_the_named_side() -> None:
    actual, _ = records(
        Truncation(max_length=7, strategy="only_second", stride=1), ["a b"], ["c d e f"]
    )
    assert [record["pieces"] for record in actual] == [
        ["[CLS]", "a", "b", "[SEP]", "c", "d", "[SEP]"],
        ["[CLS]", "a", "b", "[SEP]", "d", "e", "[SEP]"],
        ["[CLS]", "a", "b", "[SEP]", "e", "f", "[SEP]"],
    ]


@pytest.mark.parametrize(("strategy", "side"), [("only_first", 1), ("only_second", 0)])
def test_a_side_that_must_stay_whole_and_does_not_fit_is_refused(strategy: str, side: int) -> None:
    pair = ["x y z", "x y z"]
    pair[side] = "a b c d e f"

    with pytest.raises(DataError, match=rf"text 2: .*{strategy}, .* 6 tokens"):
        records(Truncation(max_length=9, strategy=strategy), ["a", pair[0]], ["b", pair[1]])


@pytest.mark.parametrize(
    ("cut", "pair", "words"),
    [
        (Truncation(max_length=2), False, "2 special tokens"),
        (Truncation(max_length=3), True, "3 special tokens"),
        (Truncation(max_length=8, stride=6), False, "must move forward"),
        (Truncation(max_length=8, stride=1), True, "does not know which"),
        (Truncation(stride=1), False, "there is none"),
        (Truncation(max_length=8, strategy="only_second"), False, "is for pairs"),
    ],
)
def test_cuts_that_can_t_be_are_refused(cut: Truncation, words: str, *, pair: bool) -> None:
    with pytest.raises(UsageError, match=words):
        cut.check(MINILM, pair=pair)


def test_half_a_surrogate_pair_is_refused_with_its_number() -> None:
    with pytest.raises(DataError, match=r"text 2 .*surrogate pair"):
        records(Truncation(), ["a", "b\ud800"])


@pytest.mark.parametrize(
    "line", ["101 2293 103 100 102 0", "[101, 2293, 103, 100, 102, 0]", '{"ids": [2293, 103, 100]}']
)
def test_ids_go_back_to_text_without_the_frame(line: str) -> None:
    assert Decoder(MINILM).decode([line]) == ["love [MASK] [UNK]"]


@pytest.mark.parametrize(
    ("line", "words"),
    [("a film", "not a row of ids"), ("2293 99999", "99999 is not an id"), ("[1", "not")],
)
def test_what_is_no_id_is_refused_with_its_line(line: str, words: str) -> None:
    decoder = Decoder(MINILM)
    decoder.decode(["2293"])
    with pytest.raises(DataError, match=f"line 2.*{words}"):
        decoder.decode([line])


def test_a_text_goes_there_and_back() -> None:
    text = "in terms of architecture, this has been identical to the transformer"
    assert Decoder(MINILM).decode([" ".join(map(str, MINILM.encode(text).ids))]) == [text]
