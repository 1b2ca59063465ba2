"""A command that made something ends with what you would type next, and --quiet takes it away."""

import shutil
from pathlib import Path

import pytest

from bertctl.cli.framework.next_command import training_command, use_of_run, use_of_sweep
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.config.task_names import PRETRAINING
from bertctl.tasks.registry import TASKS

TYPED: dict[str, tuple[list[str], str]] = {
    "data cp": (
        ["demo", "reviews"],
        "bertctl finetune reviews/train.csv --validation-file reviews/validation.csv",
    ),
    "data check": (
        ["opinions.csv", "--max-length", "16", "--task", "text-classification"],
        "bertctl finetune text-classification --max-length 16 --train-file opinions.csv",
    ),
    "doctor": (
        ["demo", "--offline", "--device", "cpu"],
        "bertctl finetune demo --device cpu",
    ),
    "evaluate": (["RUN", "opinions.csv", "-o", "scores"], "bertctl report scores"),
    "index": (
        ["opinions.csv", "--model", "MODEL", "-o", "an index"],
        "bertctl search 'an index' TEXT",
    ),
    "vocab train": (
        ["opinions.csv", "--size", "100", "-o", "words"],
        "bertctl pretrain CORPUS --from-scratch base --vocab words",
    ),
    "vocab grow": (
        ["MODEL", "domain.txt", "-o", "grown"],
        "bertctl pretrain CORPUS --model grown",
    ),
    "vocab shrink": (["MODEL", "opinions.csv", "-o", "less"], "bertctl finetune FILE --model less"),
}


@pytest.mark.in_process
@pytest.mark.usefixtures("opinions")
@pytest.mark.parametrize("verb", TYPED)
def test_the_last_line_is_the_next_command(bertctl, tiny_run, tiny_model, tmp_path, verb):
    words, following = TYPED[verb]
    by_word = {"RUN": str(tiny_run.path), "MODEL": str(tiny_model)}
    typed = [*verb.split(), *(by_word.get(word, word) for word in words)]
    (tmp_path / "domain.txt").write_text("zebra crossing\n" * 5)

    done = bertctl(*typed)
    for made in ("reviews", "scores", "an index", "words", "grown", "less"):
        shutil.rmtree(tmp_path / made, ignore_errors=True)
    quiet = bertctl(*typed, "--quiet")

    assert done.returncode == 0, done.stderr + quiet.stderr
    assert quiet.returncode == 0
    assert done.stderr.splitlines()[-1] == f"Next: {following}"
    assert "Next:" not in quiet.stderr
    assert "Next:" not in done.stdout


def test_every_task_has_a_command_that_uses_its_runs():
    run = Path("my runs/one")
    usual = "bertctl predict 'my runs/one' FILE"
    others = {
        PRETRAINING: "bertctl finetune FILE --model 'my runs/one'",
        "question-answering": "bertctl predict 'my runs/one' --question TEXT --context FILE",
        "sentence-embeddings": "bertctl index FILE --model 'my runs/one' -o INDEX",
    }
    assert {task: use_of_run(run, task) for task in (*TASKS, PRETRAINING)} == {
        task: others.get(task, usual) for task in (*TASKS, PRETRAINING)
    }


def test_a_sweep_names_its_run_if_it_kept_the_model(tmp_path):
    (tmp_path / "cells" / "first" / "model").mkdir(parents=True)

    retained = use_of_sweep(tmp_path, "first", "text-classification")
    deleted = use_of_sweep(tmp_path, "second", "text-classification")
    untrained = use_of_sweep(tmp_path, None, "text-classification")

    assert retained == f"bertctl predict {tmp_path / 'cells' / 'first'} FILE"
    assert deleted == untrained == f"bertctl finetune {tmp_path / 'best.yaml'}"


def test_options_of_a_command_that_looked_are_typed_again():
    options = {"model.name": "my model", "runtime.deterministic": False, "data.train_file": "a.csv"}
    request = RecipeRequest("demo", ["training.epochs=2"], options)

    assert training_command(request, "demo", "text-classification", learning_rate="2e-05") == (
        "bertctl finetune demo --model 'my model' --no-deterministic --train-file a.csv "
        "--set training.epochs=2 --learning-rate 2e-05"
    )
