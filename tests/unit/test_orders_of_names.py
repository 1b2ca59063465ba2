"""Ids and numbered names in the order of their numbers.

Labels by their ids, runs and files by the number in a name.
"""

import json
from pathlib import Path

import pytest
from made_runs import classified, made_run, tagged

from bertctl.errors import UnavailableError
from bertctl.interpretability.anatomy import inspect_model
from bertctl.modeling.output_names import output_names
from bertctl.reporting.card import card_text
from bertctl.reporting.run_list import list_runs
from bertctl.run_folder import RunFolder
from bertctl.tasks.classification.class_answers import ClassAnswers
from bertctl.tasks.tagging.tag_answers import TagAnswers
from bertctl.words import label_order, natural_order

INTENTS = [f"intent_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def _as_saved(labels: list[str]) -> dict:
    """Content of a config.json: its keys are sorted as text, "10" before "2"."""
    id2label = {str(number): name for number, name in enumerate(labels)}
    return json.loads(json.dumps({"id2label": id2label}, sort_keys=True))


def test_outputs_are_named_by_their_ids() -> None:
    config = _as_saved(INTENTS)
    assert output_names(config) == tuple(INTENTS)


@pytest.mark.parametrize(
    "id2label",
    [{"1": "a", "2": "b"}, {"0": "a", "2": "b"}, {"a": "0", "b": "1"}, {"0": "a", "00": "b"}],
)
def test_ids_that_are_no_places_are_refused(id2label: dict) -> None:
    with pytest.raises(UnavailableError, match="id2label"):
        output_names({"id2label": id2label})


def test_outputs_without_names_are_as_many_as_there_are() -> None:
    assert output_names({"num_labels": 12}) == tuple(f"LABEL_{number}" for number in range(12))
    assert output_names({}) == ("LABEL_0", "LABEL_1")


def test_the_card_lists_labels_by_their_ids(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", classified(60, INTENTS))
    (run / "model" / "config.json").write_text(json.dumps(_as_saved(INTENTS)))
    page = card_text(RunFolder(run))
    labels = page.split("## Labels\n\n")[1].split("\n")[0]
    assert labels == ", ".join(f"`{name}`" for name in INTENTS)


def test_inspect_lists_labels_by_their_ids(tiny_model: Path, tmp_path: Path) -> None:
    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["id2label"] = _as_saved(INTENTS)["id2label"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert inspect_model(str(tmp_path))["labels"] == INTENTS


def test_metrics_of_single_labels_stay_out_of_the_cards_metadata(tmp_path: Path) -> None:
    entry = {"value": 0.8, "low": 0.7, "high": 0.9, "n": 60, "higher_is_better": True}
    of_labels = {}
    for name in ("f1", "recall"):
        of_labels |= {f"{name}:{label}": entry for label in INTENTS}
    metrics = {
        "metrics": {split: {"accuracy": entry, **of_labels} for split in ("validation", "test")}
    }
    text = card_text(
        RunFolder(made_run(tmp_path / "run", classified(60, INTENTS), metrics=metrics))
    )
    metadata = text.split("---\n")[1]
    assert metadata.count("type: accuracy") == 2
    assert "intent_" not in metadata


def test_a_primary_metric_of_one_label_stays(tmp_path: Path) -> None:
    entry = {"value": 0.8, "low": 0.7, "high": 0.9, "n": 60, "higher_is_better": True}
    metrics = {
        "metrics": {"validation": {"f1:intent_c": entry, "f1:intent_d": entry}},
        "primary": {"split": "validation", "name": "f1:intent_c"},
    }
    text = card_text(
        RunFolder(made_run(tmp_path / "run", classified(60, INTENTS), metrics=metrics))
    )
    assert "f1:intent_c" in text.split("---\n")[1]
    assert "f1:intent_d" not in text.split("---\n")[1]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["run-10", "run-9", "run-1"], ["run-1", "run-9", "run-10"]),
        (["checkpoint-100", "checkpoint-20"], ["checkpoint-20", "checkpoint-100"]),
        (
            ["part-10.jsonl", "part-02.jsonl", "part-2.jsonl"],
            ["part-02.jsonl", "part-2.jsonl", "part-10.jsonl"],
        ),
        (["v1.10", "v1.9", "v1"], ["v1", "v1.9", "v1.10"]),
        (["10", "b", "9", "a"], ["9", "10", "a", "b"]),
        (["x", "x1", "", "²"], ["", "x", "x1", "²"]),
    ],
)
def test_numbers_in_names_count_by_their_value(names: list[str], expected: list[str]) -> None:
    assert sorted(names, key=natural_order) == expected


def test_runs_are_listed_by_number(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        made_run(tmp_path / f"cell-{number}", classified(10))
    assert [Path(run.run).name for run in list_runs(tmp_path)] == ["cell-1", "cell-9", "cell-10"]


def test_labels_of_lines_without_probabilities_are_in_the_order_of_training() -> None:
    """Of two labels the later one is positive, unless the lines name it."""
    lines = [
        {"id": str(i), "gold": gold, "prediction": gold} for i, gold in enumerate(["10", "9", "9"])
    ]
    answers = ClassAnswers.from_lines(lines)
    assert answers.labels == ("9", "10")
    assert answers.positive == "10"
    assert sorted(["b", "10", "-3", "9"], key=label_order) == ["-3", "9", "10", "b"]


def test_numbered_tags_are_listed_by_number() -> None:
    lines = tagged(3)
    for line in lines:
        line["gold"] = ["B-F10", "B-F9", *line["gold"][2:]]
    assert [tag for tag in TagAnswers.from_lines(lines).labels if "F" in tag] == ["B-F9", "B-F10"]
