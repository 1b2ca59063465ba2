"""Training a BERT, answers and vectors load neither transformers nor scikit-learn.

Once these took most of their time.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TinyRun

CODE = """
import contextlib, io, json, sys
from bertctl.cli.main import main
heavy = {"transformers", "torch._dynamo", "accelerate", "datasets"}
heavy |= {"sklearn", "pandas", "matplotlib"}
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(command)
    print(command[0], code, *sorted(heavy & set(sys.modules)))
"""


def test_answers_and_vectors_are_had_without_transformers(
    tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("good film\nbad film\n")
    texts = "texts.txt"
    of = ["--model", str(tiny_model), "-q"]
    commands = [
        ["predict", str(tiny_run.path), "good film", "-q"],
        [
            "predict",
            str(tiny_run.path),
            str(tiny_run.data),
            "-o",
            "answers.csv",
            "--format",
            "csv",
            "-q",
        ],
        ["extract-features", texts, "-o", "x.npy", "--max-length", "32", *of],
        ["similarity", "good film", "bad film", *of],
        ["index", texts, "-o", "found", *of],
        ["search", "found", "a film", "-q"],
        ["mine", texts, *of],
        ["evaluate", str(tiny_run.path), "--file", str(tiny_run.data), "-o", "scored", "-q"],
    ]
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == [f"{verb} 0" for verb, *_ in commands], (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    ("verb", "more", "loaded"),
    [
        ("finetune", ["--set", "training.checkpoint_every=10 steps"], "accelerate torch._dynamo"),
        pytest.param(
            "sweep",
            ["--grid", "optimizer.learning_rate=1e-5", "--seeds", "1"],
            "accelerate matplotlib torch._dynamo",  # a sweep is drawn
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_bert_is_trained_without_transformers(
    verb: str, more: list[str], loaded: str, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """Nor are its checkpoints and its evaluation after the training.

    Torch's optimizers load its compiler.
    """
    commands = [[verb, str(tiny_run.path / "recipe.yaml"), "-o", "x", "-q", *more]]
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == [f"{verb} 0 {loaded}"], done.stderr
    if verb == "finetune":
        network = json.loads((tmp_path / "x" / "model" / "config.json").read_text())
        assert network["architectures"] == ["BertForSequenceClassification"]
