"""`bertctl gate` through the real process, where a verdict needs care.

The cases are splits that chose, constant answers, clusters and several checks.
"""

import json

import pytest

from bertctl.metrics.statistics import wilson_interval
from tests.made_runs import LABELS, classified, made_run, scored
from tests.scoring import contributions_of

pytestmark = pytest.mark.in_process


def _metrics(lines, task, names, **more):
    actual = {
        name: contributions_of(lines, task, name).metric(resamples=200).as_json() for name in names
    }
    return {"metrics": {"validation": actual}, "baseline": {}, **more}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    good = classified(400)
    task = "text-classification"
    chosen = {"epoch": {"split": "validation", "of": 4}, "threshold": {"split": "other"}}
    made_run(folder / "plain", good, metrics=_metrics(good, task, ["accuracy", "f1"]))
    made_run(
        folder / "chosen",
        good,
        metrics=_metrics(good, task, ["accuracy", "f1"], selected_on=chosen),
    )
    rows = [
        line | {"gold": LABELS[i % 10 > 2], "prediction": LABELS[1]}
        for i, line in enumerate(classified(400))
    ]
    made_run(
        folder / "collapsed", rows, metrics=_metrics(rows, task, ["accuracy", "f1"]), primary="f1"
    )
    means = [line | {"prediction": 2.5 + 0.03 * (-1) ** i} for i, line in enumerate(scored())]
    regression = _metrics(means, "text-regression", ["pearson", "spearman", "mse"])
    made_run(folder / "mean", means, task="text-regression", primary="spearman", metrics=regression)
    near = _metrics(good, task, ["accuracy"]) | {"baseline": {"validation": {"accuracy": 0.78}}}
    made_run(folder / "near", good, metrics=near)
    grouped = [line | {"cluster": i // 20} for i, line in enumerate(good)]
    made_run(folder / "grouped", grouped, metrics=_metrics(grouped, task, ["accuracy"]))
    other = [
        line | {"prediction": line["gold"]} if i < 30 else line for i, line in enumerate(grouped)
    ]
    made_run(folder / "other", other, metrics=_metrics(other, task, ["accuracy"]))
    many = classified(60, [f"label {i:02}" for i in range(20)])
    made_run(folder / "rare", many, metrics=_metrics(many, task, ["f1_macro"]), primary="f1_macro")
    return folder


def _gate(bertctl, runs, *arguments, code):
    result = bertctl("gate", *arguments, "--json", cwd=runs)
    assert result.returncode == code, result.stdout + result.stderr
    return json.loads(result.stdout)


def test_what_the_split_chose_widens_the_interval_and_is_said(bertctl, runs):
    value = _gate(bertctl, runs, "plain", "--min", "accuracy=0.5", code=0)["checks"][0]["value"]
    low = wilson_interval(round(400 * value), 400)[0]
    limit = f"accuracy={low - 0.005:.4f}"
    assert not _gate(bertctl, runs, "plain", "--min", limit, code=0)["notes"]
    gate = _gate(bertctl, runs, "chosen", "--min", limit, code=8)
    (check,) = gate["checks"]
    assert check["low"] == pytest.approx(low), "the plain interval stays"
    assert check["corrected"]["low"] == pytest.approx(
        value - (value - low) * 2.4977 / 1.95996, abs=1e-4
    )
    assert check["corrected"]["high"] == check["high"], (
        "a choice makes scores too good, not too bad"
    )
    assert "best of 4" in check["message"]
    assert any("epoch (best of 4)" in note and "--split test" in note for note in gate["notes"])
    assert "threshold" not in " ".join(gate["notes"]), "it was chosen on another split"


def test_a_test_split_that_has_chosen_is_not_said_to_need_no_allowance(bertctl, runs):
    lines = classified(400)
    metrics = _metrics(
        lines, "text-classification", ["accuracy"], selected_on={"threshold": {"split": "test"}}
    )
    metrics |= {"metrics": {"test": metrics["metrics"]["validation"]}}
    made_run(runs / "peeked", lines, split="test", metrics=metrics)
    (note,) = _gate(bertctl, runs, "peeked", "--min", "accuracy=0.5", "--split", "test", code=0)[
        "notes"
    ]
    assert note == "test also chose: threshold. The intervals allow for this"


def test_runs_that_were_chosen_among_equally_many_are_compared_as_they_are(bertctl, runs):
    drop = ["--max-drop", "accuracy=0.001"]
    (same,) = _gate(bertctl, runs, "chosen", "--baseline", "chosen", *drop, code=0)["checks"]
    assert same["corrected"] == {"low": 0.0, "high": 0.0}


@pytest.mark.parametrize("policy", ["strict", "lenient", "point"])
def test_one_answer_to_everything_passes_nothing_unless_asked(bertctl, runs, policy):
    arguments = ["collapsed", "--min", "f1=0.75", "--policy", policy]
    (check,) = _gate(bertctl, runs, *arguments, code=7)["checks"]
    assert "answers 'positive' to everything" in check["message"]
    assert _gate(bertctl, runs, *arguments, "--allow-constant", code=0)["verdict"] == "pass"
    (check,) = _gate(bertctl, runs, "mean", "--min", "spearman=0.5", "--policy", policy, code=7)[
        "checks"
    ]
    assert "answers about 2.5 to everything" in check["message"]


def test_nothing_passes_that_is_not_clearly_above_the_constant_answer(bertctl, runs):
    arguments = ["near", "--min", "accuracy=0.6"]
    (check,) = _gate(bertctl, runs, *arguments, code=8)["checks"]
    assert "not clearly better than the best constant prediction (0.7800)" in check["message"]
    _gate(bertctl, runs, *arguments, "--policy", "lenient", code=7)
    _gate(bertctl, runs, *arguments, "--policy", "point", code=0)
    _gate(bertctl, runs, *arguments, "--allow-constant", code=0)


def test_the_constant_answer_is_the_one_that_is_best_by_the_metric(bertctl, runs):
    good = classified(400)
    lines = [
        line | {"gold": LABELS[i % 5 == 0], "prediction": LABELS[i != 1]}
        for i, line in enumerate(good)
    ]
    metrics = _metrics(lines, "text-classification", ["f1", f"precision:{LABELS[1]}"])
    metrics["baseline"] = {
        "validation": dict.fromkeys(metrics["metrics"]["validation"], 0.0)
    }  # all get LABELS[0]
    made_run(runs / "rare-label", lines, metrics=metrics, primary="f1")
    for name, best in (("f1", "0.3333"), (f"precision:{LABELS[1]}", "0.2000")):
        (check,) = _gate(bertctl, runs, "rare-label", "--min", f"{name}=0.1", code=8)["checks"]
        assert f"not clearly better than the best constant prediction ({best})" in check["message"]
    some = [LABELS[0]]
    both = list(LABELS)
    several = [
        line | {"gold": (some, both)[i % 2], "prediction": both if i else some}
        for i, line in enumerate(good)
    ]
    metrics = _metrics(several, "text-classification", ["f1_micro"]) | {
        "baseline": {"validation": {"f1_micro": 0.4}}
    }
    made_run(runs / "several", several, metrics=metrics, primary="f1_micro")
    (check,) = _gate(bertctl, runs, "several", "--min", "f1_micro=0.3", code=8)["checks"]
    assert "not clearly better than the best constant prediction (0.8571)" in check["message"]


def test_recall_that_a_constant_answer_has_in_full_is_judged_by_its_limit_alone(bertctl, runs):
    lines = classified(400)
    task = "text-classification"
    recall = f"recall:{LABELS[1]}"
    both = ["accuracy", f"recall:{LABELS[1]}"]
    baseline = {"baseline": {"validation": {"accuracy": 0.5, recall: 1.0}}}
    made_run(runs / "recall", lines, metrics=_metrics(lines, task, both) | baseline)
    for policy in ("strict", "lenient", "point"):
        _gate(bertctl, runs, "recall", "--min", f"{recall}=0.5", "--policy", policy, code=0)
    _gate(bertctl, runs, "recall", "--baseline", "recall", "--max-drop", f"{recall}=0.1", code=0)
    of_one_label = _metrics(lines, task, ["accuracy"]) | {
        "baseline": {"validation": {"accuracy": 1.0}}
    }
    made_run(runs / "one-label", lines, metrics=of_one_label)
    _gate(bertctl, runs, "one-label", "--min", "accuracy=0.5", code=7)


def test_clusters_are_counted_and_several_checks_are_warned_of(bertctl, runs):
    limits = ["--min", "accuracy=0.5", "--min-slice", "source=a:accuracy=0.5"]
    gate = _gate(bertctl, runs, "grouped", *limits, code=0)
    assert [check["clusters"] for check in gate["checks"]] == [20, 20]
    assert "on 400 examples in 20 clusters" in gate["checks"][0]["message"]
    assert any("20 clusters are few" in note for note in gate["notes"])
    assert any("exactly at all 2 limits" in note and "up to 5 %" in note for note in gate["notes"])
    drop = _gate(
        bertctl, runs, "other", "--baseline", "grouped", "--max-drop", "accuracy=0.2", code=0
    )
    assert drop["checks"][0]["change"]["clusters"] == 20
    assert drop["checks"][0]["change"]["method"] == "score interval, exchange of clusters"
    compared = bertctl("compare", "grouped", "other", cwd=runs)
    assert "exchange of clusters, 20 (few: rough) clusters" in " ".join(compared.stdout.split())


def test_macro_f1_of_rare_labels_is_warned_of(bertctl, runs):
    (note,) = _gate(bertctl, runs, "rare", "--min", "f1_macro=0.1", code=0)["notes"]
    assert "14 of 18 labels have fewer than 5 examples" in note


def test_rows_that_confirm_choose_nothing_and_are_what_the_gate_looks_at(
    bertctl, opinions, tiny_model, tmp_path
):
    done = bertctl(
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        "--epochs",
        "2",
        "-o",
        "run",
        "--confirm-fraction",
        "0.5",
        "--set",
        "data.validation_fraction=0.5",
        "--max-length",
        "32",
        "--precision",
        "fp32",
    )
    assert done.returncode == 0, done.stderr
    assert "validation: 4 of 8 rows choose nothing and are scored as 'confirm'" in done.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert {split: by_name["loss"]["n"] for split, by_name in metrics["metrics"].items()} == {
        "validation": 4,
        "confirm": 4,
    }
    assert metrics["selected_on"] == {"epoch": {"split": "validation", "of": 2}}
    ids = [
        {
            json.loads(line)["id"]
            for line in (tmp_path / "run/predictions" / f"{split}.jsonl").read_text().splitlines()
        }
        for split in ("validation", "confirm")
    ]
    assert not ids[0] & ids[1]
    limits = ["--max", "loss=9", "--allow-constant"]
    assert _gate(bertctl, tmp_path, "run", *limits, code=0)["split"] == "confirm"
    on_both = [
        _gate(bertctl, tmp_path, "run", *limits, "--split", split, code=0)
        for split in ("confirm", "validation")
    ]
    assert [bool(actual["notes"]) for actual in on_both] == [False, True]
    again = bertctl("evaluate", "run", "--split", "confirm", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["confirm"] == metrics["metrics"]["confirm"]
