"""Schemes of tags: which one a file has, and entities written in any of them and read back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertctl.data.tag_schemes import SCHEMES, entity_types, tag_kind, write_tags
from bertctl.errors import DataError, WholeFileError
from bertctl.metrics.tagging import entities

WRITTEN = {
    "IOB1": "I-P O O I-L I-L I-L B-L",
    "IOB2": "B-P O O B-L I-L I-L B-L",
    "BIOES": "S-P O O B-L I-L E-L S-L",
    "BILOU": "U-P O O B-L I-L L-L U-L",
}


def kind_of(*sentences: str):
    return tag_kind([sentence.split() for sentence in sentences], lambda i: f"file:{10 * i + 1}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_entities_in_each_scheme(scheme):
    tags = WRITTEN[scheme].split()
    spans = [("P", 0, 1), ("L", 3, 6), ("L", 6, 7)]
    assert write_tags(spans, 7, scheme) == tags
    assert entities(tags) == spans
    assert kind_of(WRITTEN[scheme], "O O").scheme == scheme


@st.composite
def spans_of_a_sentence(draw) -> tuple[list[tuple[str, int, int]], int]:
    spans = []
    at = 0
    for gap, length, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB")))
    ):
        spans.append((kind, at + gap, at + gap + length))
        at += gap + length
    return spans, at + draw(st.integers(0, 2))


@settings(deadline=None)
@given(spans_of_a_sentence(), st.sampled_from(SCHEMES))
def test_entities_written_in_any_scheme_read_back(found, scheme):
    spans, length = found
    tags = write_tags(spans, length, scheme)
    assert entities(tags) == spans
    kind = tag_kind([tags], str)
    if (
        kind.entities and kind.scheme != scheme
    ):  # two schemes can look alike; what is read is the same
        assert write_tags(entities(tags), length, kind.scheme) == tags


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O I-A I-A O", "IOB1"),  # no B anywhere
        ("O B-A I-A B-A", "IOB2"),
        ("O S-A", "BIOES"),
        ("O U-A", "BILOU"),
        ("O B-A O", "IOB2"),  # IOB2 and not IOB1: the B separates nothing
        ("O O O", "IOB2"),
        ("B I O B", "IOB2"),  # marks without a type
    ],
)
def test_the_scheme_of_short_sentences(tags, scheme):
    assert kind_of(tags).scheme == scheme


@pytest.mark.parametrize(
    "tags", ["O I-A O B-A I-A", "B-A I-B", "B-A E-A I-A", "B-A E-A U-A", "S-A I-A"]
)
def test_no_pure_scheme_is_told_with_what_breaks_it(tags):
    kind = kind_of(tags)
    assert kind.entities
    assert kind.scheme is None
    assert "no pure scheme" in kind.sentence()
    assert "written as IOB2" in kind.sentence()


def test_breaks_are_counted_and_the_first_is_shown():
    kind = kind_of("O I-A O I-A", "B-A I-A")
    assert {name: (b.count, b.before, b.tag) for name, b in kind.breaks.items()} == {
        "IOB2": (2, "O", "I-A"),
        "IOB1": (1, "O", "B-A"),
    }
    assert "2 times not IOB2, first I-A after O" in kind.sentence()


def test_parts_of_speech_are_plain_even_with_hyphens():
    assert not kind_of("NN VBZ -LRB- . HYPH").entities
    assert not kind_of("NOUN X O VERB").entities
    assert "word by word" in kind_of("NOUN VERB").sentence()


@pytest.mark.parametrize(
    ("tags", "tag"), [("O B-A M-A E-A", "M-A"), ("O B-A PER", "PER"), ("O Q-A", "Q-A")]
)
def test_an_unknown_scheme_is_refused_with_place_and_what_fits(tags, tag):
    with pytest.raises(DataError) as caught:
        kind_of("O", tags)
    word = tags.split().index(tag) + 1
    assert caught.value.message.startswith(f"file:11, word {word}: the tag '{tag}'")
    assert "IOB1, IOB2" in caught.value.remedy
    assert "BILOU" in caught.value.remedy


def test_types_in_their_order():
    assert entity_types(["O", "B-ORG", "I-PER", "I-ORG", "B-GPE-X"]) == ["ORG", "PER", "GPE-X"]


@pytest.mark.parametrize(
    ("tags", "tag", "mark"),
    [
        ("B_PER I_PER O", "B_PER", "B-PER"),
        ("O B:PER", "B:PER", "B-PER"),
        ("O B.PER", "B.PER", "B-PER"),
        ("O B/PER I/PER", "B/PER", "B-PER"),
        ("O B\u2013PER", "B\u2013PER", "B-PER"),
        ("O PER-B PER-I", "PER-B", "B-PER"),
        ("O PER_B", "PER_B", "B-PER"),
        ("O b-per", "b-per", "B-per"),
        ("B-PER I-PER o", "o", "O"),
        ("B-PER 0", "0", "O"),
        ("B-PER _ I-LOC", "_", "O"),
        ("U_PER L_PER B_PER O", "U_PER", "U-PER"),
        ("S_PER B_PER M_PER E_PER O", "S_PER", "S-PER"),
        ("B_PER I_PER", "B_PER", "B-PER"),
        ("b i o", "o", "O"),
    ],
)
def test_tags_that_are_written_in_another_way_are_no_parts_of_speech(tags, tag, mark):
    with pytest.raises(WholeFileError) as caught:
        kind_of(tags)
    word = tags.split().index(tag) + 1
    assert caught.value.message.startswith(
        f"file:1, word {word}: the tag '{tag}' looks like one of a scheme"
    )
    assert f"{mark} for {tag}." in caught.value.remedy


@pytest.mark.parametrize(
    "tags", ["NN VB .", "N O V ^", "S M E B", "NN-S VB-P X", "PRP$ IN O", "b c d"]
)
def test_plain_tags_stay_plain(tags):
    assert not kind_of(tags).entities


def test_plain_tags_of_which_most_are_o_come_with_a_hint():
    assert "if they mark entities, write B-TYPE and I-TYPE" in kind_of("O O PER O O LOC").sentence()
    assert "if they mark" not in kind_of("O V N N").sentence()
