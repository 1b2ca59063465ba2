"""Column files and CoNLL-U, sentence by sentence."""

from pathlib import Path

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.conll import conll_sentences
from bertctl.data.read_options import ReadOptions
from bertctl.errors import DataError, UsageError
from bertctl.progress import Listener
from tests.heard import Heard


def read(
    text: str,
    *,
    ud: bool = False,
    needed: bool = True,
    heard: Listener | None = None,
    **settings: object,
):
    lines = text.splitlines(keepends=True)
    options = ReadOptions(
        DataSection(**settings), "train", label_needed=needed, listener=heard or Listener()
    )
    return list(conll_sentences(lines, "f", options, ud=ud))


CONLL2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER

-DOCSTART- -X- O O

He PRP B-NP O
"""


def test_four_columns_with_spaces_and_documents():
    listener = Heard()
    reading = read(CONLL2003, heard=listener)
    assert [(s.line, s.document, s.words, s.tags) for s in reading] == [
        (3, 0, ["EU", "rejects"], ["I-ORG", "O"]),
        (6, 0, ["Peter"], ["I-PER"]),
        (10, 1, ["He"], ["O"]),
    ]
    (message,) = listener.said
    assert message.startswith("f: ")
    assert "0 (word)" in message
    assert "3 (ner)" in message


@pytest.mark.parametrize(
    "start", ["-DOCSTART-", "-DOCSTART- O", "-DOCSTART- (227508)", "-DOCSTART-\tX\tY\tO\tO"]
)
def test_a_document_begins_with_a_line_of_any_width_even_without_blank_lines(start):
    reading = read(f"{start}\na\tO\n{start}\nb\tO\n\nc\tO\n")
    assert [(s.document, s.words) for s in reading] == [(0, ["a"]), (1, ["b"]), (1, ["c"])]


@pytest.mark.parametrize("column", ["1", "-3", "pos", "POS"])
def test_the_tag_column_by_position_or_name(column):
    assert read(CONLL2003, label_column=column)[0].tags == ["NNP", "VBZ"]


def test_the_word_column_and_names_from_a_header():
    reading = read(
        "tok tag lemma\nwent O go\n", header=True, text_column="lemma", label_column="tag"
    )
    assert reading[0].words == ["go"]
    assert reading[0].tags == ["O"]
    assert reading[0].line == 2


def test_a_first_column_that_counts_is_not_the_words():
    reading = read("1\tAnna\tB-PER\n2\tcame\tO\n\n1\tYes\tO\n")
    assert [s.words for s in reading] == [["Anna", "came"], ["Yes"]]


def test_tabs_keep_spaces_in_words_and_other_blanks():
    reading = read("New York\tB-LOC\n\u00a0\tO\n\u200b\tO\r\n \t \nRome\tO\n")
    assert [s.words for s in reading] == [["New York", "\u00a0", "\u200b"], ["Rome"]]


def test_runs_of_spaces_are_one_separator_and_carriage_returns_go():
    assert read("  Anna   B-PER \r\n\r\nb O\r\n")[0][2:4] == (["Anna"], ["B-PER"])


def test_words_alone_where_no_tags_are_needed():
    reading = read("Anna\ncame\n\nYes\n", needed=False)
    assert [(s.words, s.tags) for s in reading] == [(["Anna", "came"], None), (["Yes"], None)]
    reading = read("Anna\tX\n", needed=False, label_column="7")
    assert reading[0].tags is None


def test_a_line_with_fewer_or_more_columns_is_refused():
    with pytest.raises(DataError, match=r"f:2: 1 column .*2: 'came'"):
        read("Anna B-PER\ncame\n")
    with pytest.raises(DataError, match=r"f:4: 3 columns .*2"):
        read("Anna B-PER\n\nb O\nNew York B-LOC\n")


def test_a_sentence_without_tags_is_refused():
    with pytest.raises(DataError, match=r"f:1: .*no tags: 'Anna'") as caught:
        read("Anna\ncame\n")
    assert "its tag" in caught.value.remedy
    with pytest.raises(DataError, match=r"f:2: .*'came' .*column 'tag'"):
        read("Anna\tO\ncame\t\n")


def test_a_column_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"f:3: .*column '4' .*4") as caught:
        read(CONLL2003, label_column="4")
    assert "0 word, 1 pos, 2 chunk, 3 ner" in caught.value.remedy
    with pytest.raises(UsageError, match="did you mean chunk"):
        read(CONLL2003, label_column="chunks")


@pytest.mark.parametrize("text", ["", "\n\n", "-DOCSTART-\n\n"])
def test_no_sentence_is_refused(text):
    with pytest.raises(DataError, match=r"f .*no sentences"):
        read(text)


def ud(*rows: str) -> str:
    """Lines of CoNLL-U out of `id form upos`, with the other columns filled up."""
    lines = [
        f"{i}\t{form}\t_\t{upos}\tX{upos}" + "\t_" * 5
        for i, form, upos in (row.split() for row in rows)
    ]
    return "\n".join(lines) + "\n\n"


UD = (
    "# newdoc id = one\n# sent_id = 1\n"
    + ud("1 I PRON", "2-3 don't _", "2 do AUX", "3 n't PART", "3.1 go VERB")
    + "# text = ab\n"
    + ud("1 ab NOUN")
    + "# newdoc\n"
    + ud("1 cd VERB")
)


@pytest.mark.parametrize("needed", [True, False])
def test_a_tag_column_with_capitals_is_found_whether_tags_are_needed_or_not(needed):
    reading = read("Word NER\nAnna B-PER\n", header=True, label_column="NER", needed=needed)
    assert reading[0].tags == ["B-PER"]


def test_conll_u_leaves_contractions_and_empty_nodes_out():
    reading = read(UD, ud=True)
    assert [(s.line, s.document, s.words, s.tags) for s in reading] == [
        (3, 0, ["I", "do", "n't"], ["PRON", "AUX", "PART"]),
        (10, 0, ["ab"], ["NOUN"]),
        (13, 1, ["cd"], ["VERB"]),
    ]
    assert read(UD, ud=True, label_column="xpos")[0].tags == ["XPRON", "XAUX", "XPART"]
    assert read(UD, ud=True, label_column="4")[0].tags == ["XPRON", "XAUX", "XPART"]


def test_conll_u_without_annotation():
    text = ud("1 I _", "2 see _")
    with pytest.raises(DataError, match=r"f:1: .*'I' .*column 'upos'"):
        read(text, ud=True)
    assert read(text, ud=True, needed=False)[0].tags is None


def test_conll_u_plus_names_its_columns():
    reading = read(
        "# global.columns = ID FORM UPOS NER\n1\tAnna\tPROPN\tB-PER\n", ud=True, label_column="ner"
    )
    assert reading[0].words == ["Anna"]
    assert reading[0].tags == ["B-PER"]
    untagged = "# global.columns = ID FORM\n1\tAnna\n"
    assert read(untagged, ud=True, needed=False)[0].words == ["Anna"]
    with pytest.raises(UsageError, match="column 'upos'"):
        read(untagged, ud=True)


def test_real_files_are_read_whole(shared_data: Path):
    counts = {}
    for name, is_ud in (
        ("wnut17/wnut17train.conll", False),
        ("bc5cdr/dev.txt", False),
        ("ud-english-ewt/en_ewt-ud-dev.conllu", True),
    ):
        with (shared_data / name).open(encoding="utf-8", newline="\n") as file:
            values = list(
                conll_sentences(
                    file, name, ReadOptions(DataSection(), "x", label_needed=True), ud=is_ud
                )
            )
        counts[name] = (len(values), sum(len(s.words) for s in values), values[-1].document + 1)
    assert counts == {
        "wnut17/wnut17train.conll": (3394, 62730, 0),
        "bc5cdr/dev.txt": (3949, 94437, 500),
        "ud-english-ewt/en_ewt-ud-dev.conllu": (2001, 25147, 318),
    }
