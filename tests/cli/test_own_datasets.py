"""A `datasets.yaml` beside the recipe.

Data sets of a person's own, by name, without touching the package.
"""

import json
import shutil
from pathlib import Path

import pytest

from bertctl.errors import ExitCode
from tests.hub_server import serving

pytestmark = pytest.mark.in_process

DATASETS = """\
trec:
  task: text-classification
  columns: {text: question, label: kind}
  labels: [LOC, HUM]
  splits: {train: train.csv, test: test.csv}
"""
RECIPE = """\
data:
  name: trec
evaluation:
  splits: [validation, test]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "mine"
    home.mkdir()
    for name, first in (("train.csv", 0), ("test.csv", 24)):
        numbers = range(first, first + 24)
        lines = [
            f"who is number {i} ?,HUM" if i % 2 else f"where is number {i} ?,LOC" for i in numbers
        ]
        (home / name).write_text("\n".join(["question,kind", *lines]))
    (home / "datasets.yaml").write_text(DATASETS)
    (home / "my.yaml").write_text(RECIPE)
    return home


def test_finetune_trains_on_it_and_the_saved_recipe_runs_from_anywhere(bertctl, folder, tiny_model):
    shutil.copytree(
        tiny_model, folder.parent / "tiny"
    )  # a folder whose name has no slash may be a model of the hub
    options = ("--model", "tiny", "--epochs", 1, "--max-length", 16)
    result = bertctl("finetune", folder / "my.yaml", "-o", "RUN", *options, cwd=folder.parent)
    assert result.returncode == 0, result.stderr
    assert "2 of the 24 training rows are held out" in result.stderr
    run = folder.parent / "RUN"
    assert list(json.loads((run / "metrics.json").read_text())["metrics"]) == ["validation", "test"]
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "LOC", "1": "HUM"}
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    again = bertctl("finetune", run / "recipe.yaml", "--dry-run", "--json", cwd=elsewhere)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["recipe"]["model"]["name"] == str(folder.parent / "tiny")


HUB = """\
trec:
  task: text-classification
  columns: {text: question, label: kind}
  labels: [LOC, HUM]
  splits: {train: {}, validation: {}, test: {}}
  hub:
    repo: someone/set
    revision: "0123456789012345678901234567890123456789"
    file: "{split}.parquet"
"""


def test_no_verb_asks_the_hub_for_what_a_run_describes_itself(bertctl, folder, tiny_model):
    """A run can be a stranger's."""
    options = ("--model", tiny_model, "--epochs", 1, "--max-length", 16)
    trained = bertctl("finetune", folder / "my.yaml", "-o", "RUN", *options)
    assert trained.returncode == 0, trained.stderr
    (folder / "datasets.yaml").write_text(HUB)
    verbs = [
        ("evaluate", "RUN", "--split", "test"),
        ("evaluate", "RUN", "--calibrate", "--split", "test"),
        ("predict", "RUN", "--split", "test"),
        ("attention", "RUN", "--importance", "gradient"),
    ]
    with serving({}) as server:
        env = {"HF_ENDPOINT": server.address, "HF_HUB_OFFLINE": "0"}
        for verb in verbs:
            done = bertctl(*verb, env=env)
            assert done.returncode == ExitCode.UNAVAILABLE, (verb, done.stderr)
            assert ".parquet\n" in done.stderr, verb  # files that a folder of one's own would need
        assert server.asked == []


def test_validate_and_data_check_know_it(bertctl, folder):
    assert bertctl("recipes", "validate", folder / "my.yaml").returncode == 0
    checked = bertctl("data", "check", folder / "my.yaml", "--json")
    assert checked.returncode == 0, checked.stderr
    assert [split["rows"] for split in json.loads(checked.stdout)["splits"].values()] == [24, 24]
    (folder / "other.yaml").write_text(
        f"data:\n  name: treck\n  datasets_file: {folder / 'datasets.yaml'}\n"
    )
    wrong = bertctl("recipes", "validate", folder / "other.yaml")
    assert wrong.returncode == ExitCode.USAGE
    assert "data set 'treck': did you mean trec?" in wrong.stdout + wrong.stderr


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("task: text-classification", "task: text-clasification", "2: trec.task: "),
        ("columns:", "colums:", "3: trec.colums: "),
        ("label: kind", "labl: kind", "3: trec.columns.labl: "),
        ("labels: [LOC, HUM]", "labels: LOC", "4: trec.labels: 'LOC' given"),
        ("labels: [LOC, HUM]", "labels: [LOC, LOC]", "4: trec.labels: given twice"),
        ("splits: {train: train.csv, test: test.csv}", "note: none", "1: trec.splits: "),
        ("trec:", "sst2:", "1: sst2: "),
        ("trec:", "trec: [", "not YAML"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_line(bertctl, folder, was, now, message):
    (folder / "datasets.yaml").write_text(DATASETS.replace(was, now))
    result = bertctl("recipes", "validate", folder / "my.yaml")
    assert result.returncode == ExitCode.USAGE
    assert "datasets.yaml" in result.stdout + result.stderr
    assert message in result.stdout + result.stderr
