"""What is said of official sets is true of them: counted again here in another way."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from bertctl.checking.check import check_data
from bertctl.checking.findings import DataReport, Finding
from bertctl.config.load import load_recipe
from tests.conftest import Run


@cache
def _checked(name: str, folder: Path) -> DataReport:
    return check_data(
        load_recipe(name, options={"data.data_dir": str(folder), "model.name": str(folder)})
    )


def _named(report: DataReport) -> dict[tuple[str, str], list[Finding]]:
    actual: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        actual[finding.code, finding.split].append(finding)
    return actual


def _column(path: Path, column: int, *, header: bool) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")
    if header:
        lines = lines[1:]
    return [line.split("\t")[column] for line in lines if line]


def _folded(texts: list[str]) -> list[str]:
    return [" ".join(text.lower().split()) for text in texts]


@pytest.mark.parametrize(
    ("name", "folder", "column", "test_column", "header"),
    [
        pytest.param("sst2", "SST-2", 0, 1, True, marks=pytest.mark.slow),
        ("cola", "CoLA", 3, 1, False),
    ],
)
def test_own_duplicates_across_splits(
    name: str, folder: str, column: int, test_column: int, header: bool, shared_data: Path
) -> None:
    glue = shared_data / "glue"
    actual = _named(_checked(name, glue))
    splits = {
        split: _folded(
            _column(glue / folder / file, column if split != "test" else test_column, header=head)
        )
        for split, file, head in (
            ("train", "train.tsv", header),
            ("validation", "dev.tsv", header),
            ("test", "test.tsv", True),
        )
    }
    expected = {
        split: [
            sum(text in earlier for text in splits[split])
            for other in order
            if (earlier := set(splits[other])) & set(splits[split])
        ]
        for split, order in (("validation", ["train"]), ("test", ["train", "validation"]))
    }
    assert any(expected.values())
    for split, counts in expected.items():
        assert [f.count for f in actual.get(("duplicate-across-splits", split), [])] == counts
    repeats = len(splits["train"]) - len(set(splits["train"]))
    assert actual["duplicate", "train"][0].count == repeats


@pytest.mark.slow
def test_nothing_untrue_is_said_of_sst2(shared_data: Path) -> None:
    report = _checked("sst2", shared_data / "glue")
    assert not report.of("error")
    assert report.codes() == {
        "duplicate",
        "duplicate-across-splits",
        "conflicting-labels",
        "near-duplicate",
        "no-words",
    }
    lone = next(f for f in report.findings if f.code == "no-words")
    assert {example.text for example in lone.examples} == {"'( '", "') '"}


def test_no_error_is_found_in_cola(shared_data: Path) -> None:
    report = _checked("cola", shared_data / "glue")
    assert not report.of("error")
    assert {"duplicate", "near-duplicate", "conflicting-labels"} <= report.codes()


@pytest.mark.slow
def test_conflicting_labels_of_medical_abstracts(shared_data: Path) -> None:
    options = {
        "data.train_file": str(shared_data / "medical-abstracts" / "medical_tc_test.csv"),
        "data.text_column": "medical_abstract",
        "data.label_column": "condition_label",
        "model.name": str(shared_data),
    }
    report = check_data(load_recipe("text-classification", options=options))
    assert [(f.code, f.count) for f in report.findings] == [
        ("duplicate", 118),
        ("conflicting-labels", 113),
    ]
    assert report.splits["train"]["rows"] == 2888


def test_the_bundled_set_is_clean(tmp_path: Path) -> None:
    report = check_data(load_recipe("demo", options={"model.name": str(tmp_path)}))
    assert report.findings == ()
    assert [(split, value["rows"]) for split, value in report.splits.items()] == [
        ("train", 600),
        ("validation", 150),
        ("test", 150),
    ]
    assert len(report.skipped) == 1


@pytest.mark.slow
def test_phrases_of_sst2_stand_inside_other_phrases(
    bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    """Counted again in another way.

    GLUE's training file has each sentence with its parts; 500 rows are held out.
    """
    phrases = [
        line.split("\t")[0]
        for line in (shared_data / "glue/SST-2/train.tsv").read_text().splitlines()[1:]
    ]
    held = phrases[::130][:500]
    retained = [text for i, text in enumerate(phrases) if i % 130 or i >= 65_000]
    for name, texts in {"train": retained, "validation": held}.items():
        rows = "\n".join(f"{text.strip()}\t{i % 2}" for i, text in enumerate(texts))
        (tmp_path / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}\n")
    done = bertctl("data", "check", tmp_path / "train.tsv", tmp_path / "validation.tsv", "--json")
    first = next(
        f for f in json.loads(done.stdout)["findings"] if f["code"] == "contained-across-splits"
    )
    padded = [f" {' '.join(text.lower().split())} " for text in retained]
    by_word: dict[str, list[str]] = defaultdict(list)
    for text in padded:
        for word in set(text.split()):
            by_word[word].append(text)
    inner = 0
    for text in {i: f" {' '.join(text.lower().split())} " for i, text in enumerate(held)}.values():
        words = text.split()
        rarest = min(words, key=lambda word: len(by_word[word]))
        inner += len(words) >= 3 and any(
            text in other and text != other for other in by_word[rarest]
        )
    assert first["count"] == inner > 350
    assert first["total"] == 500
