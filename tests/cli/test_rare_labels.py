"""Verbs that cross-validate or draw rows of each label, on labels with few rows.

They say what they do, and do it.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.in_process

PROBE = ("probe", "rows.csv")
FEW_SHOT = (
    "finetune",
    "few-shot",
    "--train-file",
    "rows.csv",
    "--set",
    "data.train_rows_per_label=4",
    "--set",
    "training.max_steps=2",
)
FOLD = ("finetune", "rows.csv", "--set", "data.folds=5", "--set", "data.fold=1", "--epochs", "1")
SWEEP = (
    "sweep",
    "rows.csv",
    "--grid",
    "optimizer.learning_rate=1e-4",
    "--folds",
    "30",
    "--epochs",
    "1",
    "--dry-run",
)


def rows(rare: int) -> str:
    """Returns 24 rows of two labels, and a few of a third one."""
    lines = ["text,label"]
    for i in range(12):
        lines += [f"good film {i},pos", f"bad food {i},neg"]
    lines += [f"dull {i},so so" for i in range(rare)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("words", "rare", "message"),
    [
        (PROBE, 4, "4 folds instead of 5, as the label 'so so' has 4 training rows"),
        (PROBE, 2, "2 folds instead of 5, as the label 'so so' has 2 training rows"),
        (
            PROBE,
            1,
            "1 label with a single training row ('so so'), which stays in training in every fold",
        ),
        (
            (*PROBE, "--set", "probe.folds=3"),
            2,
            "2 folds instead of 3, as the label 'so so' has 2 training rows",
        ),
        (
            FEW_SHOT,
            2,
            "labels with fewer than 4 training rows, all of them taken: 'so so' has 2",
        ),
        (
            FEW_SHOT,
            1,
            "labels with fewer than 4 training rows, all of them taken: 'so so' has 1",
        ),
        (FOLD, 1, "1 label with a single row, which stays in training: 'so so'"),
        (SWEEP, 2, "--folds 30: 26 folds, as rows.csv has 26 rows"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_label_with_few_rows(
    bertctl: Run, tiny_model: Path, tmp_path: Path, words: tuple[str, ...], rare: int, message: str
) -> None:
    (tmp_path / "rows.csv").write_text(rows(rare))
    (tmp_path / "held.csv").write_text("text,label\nfine film,pos\npoor food,neg\n")
    validation = () if words in (FOLD, SWEEP) else ("--validation-file", "held.csv")

    result = bertctl(*words, *validation, "--model", tiny_model, "--max-length", 32, "-o", "run")

    assert result.returncode == 0, result.stderr
    assert message in result.stderr.replace(str(tmp_path) + "/", "")


def test_a_probe_writes_its_number_of_folds_down(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(rows(3))
    (tmp_path / "held.csv").write_text("text,label\nfine film,pos\npoor food,neg\n")
    words = (
        *PROBE,
        "--validation-file",
        "held.csv",
        "--model",
        tiny_model,
        "--max-length",
        32,
        "-o",
        "run",
    )

    result = bertctl(*words)

    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["probe"]["folds"] == 3
