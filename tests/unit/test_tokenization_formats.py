"""What is written can be read back; windows and one-sided cuts are the library's."""

import io
import json
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer

from bertctl.errors import DataError, UsageError
from bertctl.tokenization import formats
from bertctl.tokenization.decode import Decoder
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.load import open_tokenizer
from bertctl.tokenization.stream import FlatJob, Portion, run
from bertctl.tokenization.windows import Cut, WindowJob

MINILM = open_tokenizer("minilm").tokenizer
TEXTS = ["a film", "", "rumination on love ❤", "x", "a b c d e f g h"]
PORTIONS = [Portion(TEXTS[:2]), Portion(TEXTS[2:])]


def written(make: object, *, special_tokens: bool = True, portions: list[Portion] = PORTIONS) -> io.BytesIO:
    out = io.BytesIO()
    writer = make(out)  # type: ignore[operator]
    totals = run(portions, FlatJob(TextEncoder(MINILM, special_tokens=special_tokens), writer))
    writer.close()
    assert totals.texts == sum(len(portion.texts) for portion in portions)
    return io.BytesIO(out.getvalue())


@pytest.mark.parametrize("special_tokens", [True, False])
def test_ids_and_pieces_are_one_line_a_text(*, special_tokens: bool) -> None:
    expected = MINILM.encode_batch(TEXTS, add_special_tokens=special_tokens)
    ids = written(lambda out: formats.ids_writer(out, MINILM), special_tokens=special_tokens)
    assert ids.read().decode() == "".join(" ".join(map(str, e.ids)) + "\n" for e in expected)
    pieces = written(lambda out: formats.pieces_writer(out, MINILM), special_tokens=special_tokens)
    assert pieces.read().decode() == "".join(" ".join(e.tokens) + "\n" for e in expected)


def test_pieces_wider_than_the_table_are_written_too() -> None:
    tokenizer = Tokenizer.from_str(MINILM.to_str())
    long = "<" + "é" * 40 + ">"
    tokenizer.add_special_tokens([long])
    out = io.BytesIO()
    run([Portion([f"a {long}"])], FlatJob(TextEncoder(tokenizer), formats.pieces_writer(out, tokenizer)))
    assert out.getvalue().decode() == f"[CLS] a {long} [SEP]\n"


def test_npz_holds_flat_ids_and_offsets() -> None:
    with np.load(written(formats.NpzWriter), allow_pickle=False) as arrays:
        ids, offsets, types = arrays["ids"], arrays["offsets"], arrays["type_ids"]
    assert (ids.dtype, offsets.dtype, types.dtype) == (np.int32, np.int64, np.uint8)
    found = [ids[a:b].tolist() for a, b in pairwise(offsets.tolist())]
    assert found == [e.ids for e in MINILM.encode_batch(TEXTS)]
    assert len(types) == len(ids)


def test_nothing_is_a_file_too() -> None:
    with np.load(written(formats.NpzWriter, portions=[]), allow_pickle=False) as arrays:
        assert arrays["ids"].tolist() == []
        assert arrays["offsets"].tolist() == [0]


def test_parquet_holds_a_row_a_text() -> None:
    import pyarrow.parquet as pq

    pairs = [Portion(["a b", "c"], ["d", "e f g"])]
    table = pq.read_table(written(formats.ParquetWriter, portions=pairs))
    expected = MINILM.encode_batch([("a b", "d"), ("c", "e f g")])
    assert table["ids"].to_pylist() == [e.ids for e in expected]
    assert table["type_ids"].to_pylist() == [e.type_ids for e in expected]
    assert table["full_length"].to_pylist() == [6, 7]
    assert str(table.schema.field("ids").type) == "list<item: int32>" or "int32" in str(table.schema.field("ids").type)


def records(cut: Cut, texts: list[str], pairs: list[str] | None = None) -> tuple[list[dict[str, object]], WindowJob]:
    out = io.BytesIO()
    job = WindowJob(MINILM, cut, records=out)
    run([Portion(texts, pairs)], job)
    return [json.loads(line) for line in out.getvalue().splitlines()], job


def test_records_have_character_offsets_and_word_ids() -> None:
    (record,), _ = records(Cut(), ["café rumination"])
    assert record["pieces"] == ["[CLS]", "cafe", "rum", "##ination", "[SEP]"]
    assert record["offsets"] == [[0, 0], [0, 4], [5, 8], [8, 15], [0, 0]]
    assert record["word_ids"] == [None, 0, 1, 1, None]
    assert "truncated" not in record


def test_a_cut_is_marked_and_counted() -> None:
    found, job = records(Cut(max_length=5), ["a b c d e f", "a"])
    assert [record["truncated"] for record in found] == [True, False]
    assert (job.totals.truncated, job.totals.lost, job.totals.texts, job.totals.tokens) == (1, 3, 2, 8)


def test_windows_overlap_by_the_stride_and_cover_everything() -> None:
    found, job = records(Cut(max_length=6, stride=2), ["a b c d e f g", "x"])
    assert [(record["index"], record["window"]) for record in found] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    inner = [record["pieces"][1:-1] for record in found]  # type: ignore[index]
    assert inner == [list("abcd"), list("cdef"), list("efg"), ["x"]]
    assert (job.totals.texts, job.totals.rows, job.totals.truncated) == (2, 4, 0)


def test_windows_of_a_pair_slide_over_the_named_side() -> None:
    found, _ = records(Cut(max_length=7, strategy="only_second", stride=1), ["a b"], ["c d e f"])
    assert [record["pieces"] for record in found] == [
        ["[CLS]", "a", "b", "[SEP]", "c", "d", "[SEP]"],
        ["[CLS]", "a", "b", "[SEP]", "d", "e", "[SEP]"],
        ["[CLS]", "a", "b", "[SEP]", "e", "f", "[SEP]"],
    ]


@pytest.mark.parametrize(("strategy", "side"), [("only_first", 1), ("only_second", 0)])
def test_a_side_that_must_stay_whole_and_does_not_fit_is_refused(strategy: str, side: int) -> None:
    pair = ["a b c d e f", "x y z"] if side == 0 else ["x y z", "a b c d e f"]
    with pytest.raises(DataError, match=rf"text 2: with {strategy}, the sentence that stays whole has 6 tokens"):
        records(Cut(max_length=9, strategy=strategy), ["a", pair[0]], ["b", pair[1]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cut", "pair", "words"),
    [
        (Cut(max_length=2), False, "leaves no room beside 2 special tokens"),
        (Cut(max_length=3), True, "leaves no room beside 3 special tokens"),
        (Cut(max_length=8, stride=6), False, "must move forward"),
        (Cut(max_length=8, stride=1), True, "it is open which"),
        (Cut(stride=1), False, "there is none"),
        (Cut(max_length=8, strategy="only_second"), False, "is for pairs"),
    ],
)
def test_cuts_that_can_t_be_are_refused(cut: Cut, words: str, *, pair: bool) -> None:
    with pytest.raises(UsageError, match=words):
        cut.check(MINILM, pair=pair, special_tokens=True)


def test_half_a_surrogate_pair_is_refused_with_its_number() -> None:
    with pytest.raises(DataError, match="text 2 holds half of a surrogate pair"):
        records(Cut(), ["a", "b\ud800"])


@pytest.mark.parametrize(
    "line", ["101 2293 103 100 102 0", "[101, 2293, 103, 100, 102, 0]", '{"ids": [2293, 103, 100]}']
)
def test_ids_go_back_to_text_without_the_frame(line: str) -> None:
    assert Decoder(MINILM).decode([line]) == ["love [MASK] [UNK]"]


@pytest.mark.parametrize(
    ("line", "words"), [("a film", "not a row of ids"), ("2293 99999", "99999 is no id"), ("[1", "not")]
)
def test_what_is_no_id_is_refused_with_its_line(line: str, words: str) -> None:
    decoder = Decoder(MINILM)
    decoder.decode(["2293"])
    with pytest.raises(DataError, match=f"line 2.*{words}"):
        decoder.decode([line])


def test_a_text_goes_there_and_back() -> None:
    text = "in terms of architecture, this has been identical to the transformer"
    assert Decoder(MINILM).decode([" ".join(map(str, MINILM.encode(text).ids))]) == [text]
