"""spaCy's DocBin as it is read: a text that nobody looked at is not one without entities."""

from pathlib import Path

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.read_options import ReadOptions


def test_a_text_whose_entities_nobody_set_is_not_annotated(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import DocBin, Span

    from bertctl.data.annotations import docbin

    some, none, other = map(spacy.blank("xx").make_doc, ("Anna sleeps", "Rain falls", "Bob sleeps"))
    some.ents = [Span(some, 0, 1, "PER")]
    none.ents = []
    other.spans["sc"] = [Span(other, 0, 1, "PER")]
    DocBin(docs=[some, none, other]).to_disk(tmp_path / "a.spacy")
    results = [*docbin.read(tmp_path / "a.spacy", ReadOptions(DataSection(), split="train"))]
    assert [(entry.spans, entry.annotated) for entry in results] == [
        ([(0, 4, "PER")], True),
        ([], True),
        ([], False),
    ]
