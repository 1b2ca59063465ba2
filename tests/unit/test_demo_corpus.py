"""The bundled corpus.

What its README promises, and that it gives away nothing of the data set `demo`.
"""

import re

import pytest

from bertctl.catalog.datasets import BUNDLED_CORPORA, builtin_datasets, bundled_folder
from bertctl.config.recipe_sections import DataSection, EvaluationSection
from bertctl.config.schema import Recipe
from bertctl.data.corpora import Corpus, open_corpora, survey
from bertctl.data.recipe_data import load_data

FOLDER = BUNDLED_CORPORA["demo-corpus"]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return open_corpora(["demo-corpus"], DataSection())[0]


@pytest.fixture(scope="module")
def documents(corpus: Corpus) -> list[list[str]]:
    return [document.sentences for document in corpus.documents()]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def test_it_is_as_its_readme_says(documents: list[list[str]]) -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    lines = [line for document in documents for line in document]
    assert f"{len(documents)} short texts" in readme
    assert f"{len(lines):,} sentences" in readme
    assert 14_000 <= sum(len(line.split()) for line in lines) < 14_500
    assert {len(document) for document in documents} == {4, 5, 6, 7}
    assert "Apache-2.0" in readme
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 120_000


def test_it_is_read_by_its_name(corpus: Corpus) -> None:
    assert corpus.name == "demo-corpus"
    assert len(corpus.files) == 6
    actual = survey([corpus], fraction=0.05)
    assert actual.documents == 166
    assert len(actual.notes) == 1  # what is held out: none is blank, none repeated


def test_no_line_is_blank_or_there_twice(documents: list[list[str]]) -> None:
    lines = []
    for document in documents:
        lines += [" ".join(_words(line)) for line in document]
    assert all(lines)
    assert len(set(lines)) == len(lines)


def test_documents_are_no_copies_of_each_other(documents: list[list[str]]) -> None:
    words = [
        frozenset(word for line in document for word in _words(line)) for document in documents
    ]
    for i, left in enumerate(words):
        for right in words[:i]:
            assert len(left & right) / len(left | right) < 0.4, documents[i]


def test_no_phrase_of_the_data_set_demo_is_in_it(documents: list[list[str]]) -> None:
    """A model that was pretrained on it has not read the texts that it is scored on."""
    rows = load_data(
        Recipe(data=DataSection(name="demo"), evaluation=EvaluationSection(splits=["test"]))
    )
    opinions = []
    for split in rows.splits.values():
        opinions += split.columns["text"]
    assert len(opinions) == 900
    assert bundled_folder(builtin_datasets()["demo"]) != FOLDER
    shared = _phrases(opinions) & _phrases([line for document in documents for line in document])
    assert not shared


def _phrases(texts: list[str], length: int = 8) -> set[tuple[str, ...]]:
    phrases = set()
    for text in texts:
        words = _words(text)
        for start in range(len(words) - length + 1):
            phrases.add(tuple(words[start : start + length]))
    return phrases
