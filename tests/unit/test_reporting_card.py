"""The model card.

Metadata that the hub's library reads back, and nothing that differs between equal runs.
"""

import json

import pytest
import yaml
from huggingface_hub import ModelCard
from made_runs import TASKS, classified, made_run, scored

from bertctl.reporting.card import base_model, card_text, write_card
from bertctl.run_folder import RunFolder

SST2 = {"name": "sst2", "data": {"name": "sst2"}}
MATTHEWS = {"value": 0.6, "low": 0.5, "high": 0.7, "n": 100, "higher_is_better": True}


def _card(folder):
    return ModelCard(card_text(RunFolder(folder)), ignore_metadata_errors=False)


def test_the_hubs_library_reads_the_results_back(tmp_path):
    entry = {"value": 0.91, "low": 0.88, "high": 0.93, "n": 100, "higher_is_better": True}
    metrics = {
        "metrics": {
            "validation": {"matthews": MATTHEWS, "accuracy": entry},
            "test": {"accuracy": entry},
        }
    }
    data = _card(made_run(tmp_path / "run", classified(100), recipe=SST2, metrics=metrics)).data
    assert data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert data.datasets == ["nyu-mll/glue"]
    assert data.pipeline_tag == "text-classification"
    assert data.library_name == "transformers"
    assert data.metrics == ["accuracy", "matthews_correlation"]
    assert data.model_name == "sst2"
    actual = [
        (r.dataset_split, r.metric_type, r.metric_name, r.metric_value) for r in data.eval_results
    ]
    assert actual == [
        ("validation", "accuracy", "accuracy", 0.91),  # the primary one first
        ("validation", "matthews_correlation", "matthews", 0.6),
        ("test", "accuracy", "accuracy", 0.91),
    ]
    first = data.eval_results[0]
    assert first.dataset_type == "nyu-mll/glue"
    assert first.dataset_config == "sst2"
    assert first.dataset_name == "sst2"
    assert len(first.dataset_revision) == 40


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_card_that_says_how_to_use_it(tmp_path, task):
    lines, primary = TASKS[task]
    card = _card(made_run(tmp_path / "run", lines(), task=task, primary=primary))
    assert task in card.data.tags
    assert card.data.eval_results[0].metric_name == primary
    assert f"**{primary}**" in card.text
    code = card.text.split("```python\n")[1].split("```")[0]
    compile(code, "card", "exec")
    assert "from transformers import" in code


def test_regression_is_tagged_and_its_example_is_a_pair(tmp_path):
    card = _card(made_run(tmp_path / "run", scored(30), task="text-regression", primary="spearman"))
    assert card.data.pipeline_tag == "text-classification"
    assert "regression" in card.data.tags
    assert card.data.eval_results[0].metric_type == "spearmanr"
    assert "text_pair" in card.text


def test_equal_runs_in_other_places_have_equal_cards(tmp_path):
    runs = [made_run(tmp_path / name, classified(80)) for name in ("one", "elsewhere/two")]
    environment = json.loads((runs[1] / "environment.json").read_text())
    environment |= {"platform": "another machine", "command": "bertctl finetune y"}
    (runs[1] / "environment.json").write_text(json.dumps(environment))
    recipe = yaml.safe_load((runs[1] / "recipe.yaml").read_text())
    recipe["data"]["train_file"] = "/mnt/other/rows.csv"
    (runs[1] / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (runs[1] / "performance.json").write_text(json.dumps({"seconds": {"train": 1.0}}))
    texts = [card_text(RunFolder(run)) for run in runs]
    assert texts[0] == texts[1]
    for word in (str(tmp_path), "secret-machine", "/home/someone", "rows.csv"):
        assert word not in texts[0]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("bert-base", "google-bert/bert-base-uncased"),
        ("someone/their-bert", "someone/their-bert"),
        ("/home/me/models/bert", None),
        ("./bert", None),
        ("~/bert", None),
        ("runs/sst2-1a2b3c4d/model", None),
    ],
)
def test_a_base_model_is_named_by_its_id_and_never_by_a_path(name, base):
    assert base_model(name) == base


def test_a_folder_that_looks_like_an_id_is_not_one(tmp_path, monkeypatch):
    (tmp_path / "someone" / "their-bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert base_model("someone/their-bert") is None


def test_own_files_have_no_data_set_of_the_hub(tmp_path):
    card = _card(made_run(tmp_path / "run", classified(50)))
    assert card.data.datasets is None
    assert card.data.eval_results[0].dataset_type == "unknown"
    assert card.data.language is None


def test_labels_and_descriptions_are_no_markup(tmp_path):
    run = made_run(
        tmp_path / "run", classified(40), recipe={"description": "<script>x</script> | **b**"}
    )
    names = {0: "<img src=x>", 1: "a`b|c"}
    (run / "model" / "config.json").write_text(json.dumps({"id2label": names}))
    text = _card(run).text
    assert "<script" not in text
    assert "`<img src=x>`" in text
    assert "``a`b\\|c``" in text


def test_scores_chosen_on_their_own_examples_are_not_published(tmp_path):
    metrics = {
        "metrics": {
            "validation": {"f1": MATTHEWS, "best_f1": MATTHEWS, "best_f1_thresh": MATTHEWS}
        },
        "primary": {"split": "validation", "name": "f1"},
    }
    lines, _ = TASKS["question-answering"]
    card = _card(made_run(tmp_path / "run", lines(), task="question-answering", metrics=metrics))
    assert [result.metric_name for result in card.data.eval_results] == ["f1"]


def test_what_was_fitted_is_told(tmp_path):
    run = made_run(tmp_path / "run", classified(50))
    assert "temperature" not in _card(run).text
    decision = {
        "schema": 1,
        "temperature": 1.6,
        "threshold": None,
        "positive": None,
        "fitted_on": "validation",
        "n": 50,
    }
    (run / "decision.json").write_text(json.dumps(decision))
    assert "temperature of 1.6" in _card(run).text


def test_it_is_written_beside_the_model_and_not_where_there_is_none(tmp_path):
    run = made_run(tmp_path / "run", classified(40))
    write_card(RunFolder(run))
    assert ModelCard.load(run / "model" / "README.md").data.model_name == "made"
    (run / "model" / "README.md").unlink()
    (run / "model" / "config.json").unlink()
    (run / "model").rmdir()
    write_card(RunFolder(run))
    assert not (run / "model").exists()
