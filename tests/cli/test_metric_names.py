"""Which F1: names say it, through the command line.

See also tests/unit/test_answers.py, against scikit-learn.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.made_runs import classified, made_run

pytestmark = pytest.mark.in_process

TWO = ("OFFENSE", "OTHER")
THREE = ("bad", "fine", "good")


def _finetune(
    bertctl: Run, model: Path, labels: tuple[str, ...], *more: object, run: str = "run"
) -> object:
    rows = [
        f"the film was {['good', 'bad', 'fine'][i % len(labels)]} {i},{labels[i % len(labels)]}"
        for i in range(36)
    ]
    Path("rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = [
        "--train-file",
        "rows.csv",
        "--model",
        model,
        "--max-length",
        16,
        "--epochs",
        1,
        "-o",
        run,
    ]
    words += ["--test-file", "rows.csv"]
    return bertctl(
        "finetune",
        "text-classification",
        *words,
        "--set",
        "evaluation.bootstrap_resamples=100",
        *more,
    )


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_f1_of_two_labels_says_of_which(bertctl: Run, tiny_model: Path) -> None:
    done = _finetune(bertctl, tiny_model, TWO)
    assert done.returncode == 0, done.stderr
    assert "f1 is computed for 'OFFENSE' (guessed from the label names)" in done.stderr, (
        "not the last one of the alphabet"
    )
    assert "f1 of OFFENSE" in done.stdout
    metrics = json.loads(Path("run/metrics.json").read_text())
    scores = metrics["metrics"]["validation"]
    assert metrics["positive_label"] == "OFFENSE"
    assert scores["f1"]["value"] == scores["f1:OFFENSE"]["value"]
    assert "f1 of OFFENSE" in Path("run/model/README.md").read_text()
    assert bertctl("report", "run", "-o", "page.html").returncode == 0
    assert "f1 of OFFENSE" in Path("page.html").read_text()
    again = bertctl("evaluate", "run", "--file", "rows.csv", "-o", "again", "--json")
    assert json.loads(again.stdout)["positive_label"] == "OFFENSE"
    for other in ("f1:OTHER", "recall:OFFENSE", "roc_auc", "average_precision", "f1_weighted"):
        gated = bertctl(
            "gate", "run", "--min", f"{other}=0", "--policy", "point", "--allow-constant", "--json"
        )
        assert gated.returncode == 0, gated.stderr
    assert "f1 of OFFENSE is" in bertctl("gate", "run", "--min", "f1=0.5").stdout
    chosen = bertctl("evaluate", "run", "--threshold", "f1", "--json")
    decision = json.loads(chosen.stdout)["decision"]
    assert decision["positive"] == "OFFENSE"

    table = bertctl("evaluate", "run", "--split", "test").stdout
    decisions = json.loads(Path("run/metrics.json").read_text())["decisions"]
    assert decisions == {"validation": {}, "test": {"threshold": decision["threshold"]}}
    gated = bertctl("gate", "run", "--min", "f1=0.5", "--split", "test", "--json")
    message = (
        "validation is scored with no threshold. test is scored with threshold "
        f"{decision['threshold']:.4g}."
    )
    assert message in " ".join(table.split())
    assert message in " ".join(json.loads(gated.stdout)["notes"])


def test_the_positive_label_is_chosen_and_any_metric_decides(
    bertctl: Run, tiny_model: Path
) -> None:
    wrong = _finetune(bertctl, tiny_model, TWO, "--set", "evaluation.positive_label=OTHE")
    assert wrong.returncode == 2
    assert "did you mean OTHER?" in wrong.stderr
    more = [
        "--set",
        "evaluation.positive_label=OTHER",
        "--set",
        "evaluation.primary_metric=roc_auc",
    ]
    done = _finetune(bertctl, tiny_model, TWO, *more, "--json", run="other")
    assert "by the labels' names" not in done.stderr
    document = json.loads(done.stdout)
    assert document["positive_label"] == "OTHER"
    assert document["primary"]["name"] == "roc_auc"
    assert document["baseline"]["validation"]["roc_auc"] == 0.5


def test_f1_of_three_labels_is_asked_about(bertctl: Run, tiny_model: Path) -> None:
    refused = _finetune(bertctl, tiny_model, THREE, "--set", "evaluation.primary_metric=f1")
    assert refused.returncode == 2
    assert (
        "Choose from f1_macro, f1_micro, f1_weighted, f1:bad, f1:fine, f1:good." in refused.stderr
    )
    refused = _finetune(bertctl, tiny_model, THREE, "--set", "evaluation.positive_label=bad")
    assert refused.returncode == 2
    assert "only one of two labels is positive" in refused.stderr


def _metrics(**values: float) -> dict[str, object]:
    entry = {"low": 0.8, "high": 0.99, "n": 60, "higher_is_better": True}
    return {
        "metrics": {
            "validation": {name: {"value": value, **entry} for name, value in values.items()}
        }
    }


def test_what_older_runs_call_f1(bertctl: Run, tmp_path: Path) -> None:
    """Macro with three labels and micro with several per row.

    They have their names; of two it was the later one.
    """
    made_run(tmp_path / "three", classified(60, THREE), metrics=_metrics(f1=0.9), primary="f1")
    rows = [
        line | {side: [line[side]] for side in ("gold", "prediction")}
        for line in classified(60, THREE)
    ]
    made_run(tmp_path / "several", rows, metrics=_metrics(f1=0.9, f1_macro=0.85), primary="f1")
    made_run(tmp_path / "two", classified(60, TWO), metrics=_metrics(f1=0.9), primary="f1")
    for run, name in (("three", "f1_macro"), ("several", "f1_micro")):
        refused = bertctl("gate", run, "--min", "f1=0.5")
        assert refused.returncode == 2, refused.stderr
        assert name in refused.stderr
        assert f"{name} is 0.9000" in bertctl("gate", run, "--min", f"{name}=0.5").stdout
    assert "f1 of OTHER is 0.9000" in bertctl("gate", "two", "--min", "f1=0.5").stdout
