"""spaCy's DocBin as it is written: every entity, at its own characters."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bertctl.data.annotations.document import Document


def test_spans_that_cut_a_token_of_spacy_are_written_as_they_are() -> None:
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import DocBin

    from bertctl.data.annotations import docbin

    supplied = [
        Document(
            "0",
            " the U.S./UK  and\n\nbob@ibm.com",
            [(5, 9, "LOC"), (10, 12, "LOC"), (23, 26, "ORG")],
            [],
        ),
        Document("1", "", [], []),
    ]
    out = SimpleNamespace(buffer=io.BytesIO())
    docbin.write(supplied, cast(Any, out))
    docs = list(DocBin().from_bytes(out.buffer.getvalue()).get_docs(spacy.blank("xx").vocab))
    assert [doc.text for doc in docs] == [entry.text for entry in supplied]
    assert [[(e.start_char, e.end_char, e.label_) for e in doc.ents] for doc in docs] == [
        entry.spans for entry in supplied
    ]
