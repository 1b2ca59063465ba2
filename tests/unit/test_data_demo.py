"""The bundled data set: what its README and the recipe promise."""

import re

import pytest

from bertctl.catalog.datasets import builtin_datasets, bundled_folder
from bertctl.config.recipe_sections import DataSection, EvaluationSection
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import LoadedData, load_data

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def demo() -> LoadedData:
    return load_data(Recipe(data=DataSection(name="demo")), splits=SPLITS)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


@pytest.mark.parametrize(("split", "size"), [("train", 600), ("validation", 150), ("test", 150)])
def test_size_and_balance(demo, split, size):
    labels = list(demo.splits[split].columns["label"])
    assert len(labels) == size
    assert labels.count("negative") == labels.count("positive") == size // 2
    assert demo.labels == ("negative", "positive")


def test_length_of_texts(demo):
    lengths = []
    for split in SPLITS:
        lengths += [len(text.split()) for text in demo.splits[split].columns["text"]]
    assert min(lengths) >= 3
    assert max(lengths) <= 60
    assert max(lengths) > 50  # long ones are there too
    assert len(lengths) == 900


def test_no_near_copies_anywhere(demo):
    texts = []
    for split in SPLITS:
        texts += demo.splits[split].columns["text"]
    words = [_words(text) for text in texts]
    assert len({" ".join(re.findall(r"[a-z0-9]+", text.lower())) for text in texts}) == 900
    for i, left in enumerate(words):
        for j in range(i):
            right = words[j]
            if min(len(left), len(right)) > 0.6 * max(len(left), len(right)):
                assert len(left & right) / len(left | right) <= 0.6, (texts[i], texts[j])


def test_test_split_is_read_only_where_it_is_named(demo):
    assert list(load_data(Recipe(data=DataSection(name="demo"))).splits) == ["train", "validation"]
    recipe = Recipe(data=DataSection(name="demo"), evaluation=EvaluationSection(splits=["test"]))
    assert list(load_data(recipe).splits) == ["train", "validation", "test"]


def test_bundled_files_need_no_data_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("BERTCTL_DATA", str(tmp_path / "nowhere"))
    assert len(load_data(Recipe(data=DataSection(name="demo"))).splits["train"]) == 600


def test_readme_says_how_it_was_made_and_its_licence():
    readme = (bundled_folder(builtin_datasets()["demo"]) / "README.md").read_text(encoding="utf-8")
    assert "Apache-2.0" in readme
    assert "How it was made" in readme
