"""Runs that are killed, stopped and gone on with, by the real process.

The long list of faults is in tests/slow.
"""

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertctl.errors import UnavailableError
from bertctl.jobs.few_shot import prepare as prepare_few_shot
from bertctl.run_folder import RunFolder
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from bertctl.training.run_writer import RunWriter
from bertctl.training.start import start
from tests.nursery import Nursery
from tests.stopping import Training, difference, history_losses
from tests.tiny_recipes import tiny_recipe


@pytest.fixture(scope="module")
def training(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery
) -> Training:
    """A run of 24 steps, done once without a disturbance."""
    return Training(tmp_path_factory.mktemp("training"), tiny_model, nursery, epochs=2)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_stopped_run_saves_and_goes_on_to_the_same_end(
    training: Training, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "the run"
    stopped = training.disturbed(run, number, after_steps=7)
    assert stopped.returncode == code, stopped.stderr
    assert "checkpoint" in stopped.stderr
    hint = stopped.stderr.rpartition("Continue with `")[2].partition("`")[0]
    assert hint == f"bertctl finetune '{run / 'recipe.yaml'}' -o '{run}' --resume"
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted"
    step = json.loads((run / "status.json").read_text())["step"]
    assert 7 <= step < 24, "it stopped after the step it was in"
    for verb in ("gate --min accuracy=0", "evaluate", "report"):
        unfinished = training.typed(f"bertctl {verb} '{run}'")
        assert unfinished.returncode == 4, unfinished.stderr
        assert "--resume" in unfinished.stderr
    goes_on = training.typed(hint)
    assert goes_on.returncode == 0, goes_on.stderr
    assert f"continuing after step {step} of 24" in goes_on.stderr
    assert difference(training.undisturbed, run) is None
    assert not (run / "checkpoints").exists()


def test_a_killed_run_goes_on_from_its_last_checkpoint(training: Training, tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed = training.disturbed(run, signal.SIGKILL, after_steps=10)
    assert killed.returncode == -signal.SIGKILL
    assert json.loads((run / "status.json").read_text())["state"] == "running"
    training.resume(run)
    assert difference(training.undisturbed, run) is None
    assert history_losses(run) == history_losses(training.undisturbed)


@pytest.mark.slow
def test_max_steps_end_a_run_within_an_epoch_and_a_resumed_one_too(
    training: Training, tmp_path: Path
) -> None:
    """An epoch has 12 steps.

    3 are less than one, 30 are two and a half, and `--epochs 2` says nothing.
    """
    few = ("--set", "training.max_steps=3")
    most = ("--set", "training.max_steps=30")
    planned = training.start(tmp_path / "planned", *most, "--dry-run")
    assert "training: 3 epochs of 96 examples in batches of 8: 30 steps" in planned.stderr
    assert training.start(tmp_path / "three", *few).returncode == 0
    assert history_losses(tmp_path / "three")[0] == history_losses(training.undisturbed)[0]
    assert [line["step"] for line in _history(tmp_path / "three") if "loss" in line] == [1, 2, 3]
    complete = tmp_path / "whole"
    cut = tmp_path / "cut"
    assert training.start(complete, *most).returncode == 0
    steps = [line for line in _history(complete) if "loss" in line]
    assert steps[-1]["step"] == 30
    assert steps[-1]["epoch"] == 2.5
    assert steps[-1]["learning_rate"] < 0.05 * 5e-3, "the schedule ends where the run does"
    metrics = json.loads((complete / "metrics.json").read_text())
    assert metrics["steps"] == 30
    assert [line["step"] for line in _history(complete) if "validation_accuracy" in line] == [
        12,
        24,
        30,
    ]
    training.disturbed(cut, signal.SIGKILL, *most, after_steps=14)
    assert json.loads((cut / "status.json").read_text())["state"] == "running"
    training.resume(cut, *most)
    assert difference(complete, cut) is None


def _history(run: Path) -> list[dict[str, float]]:
    lines = (run / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def stopped(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped, with two checkpoints; tests work on copies."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    training.disturbed(run, signal.SIGTERM, after_steps=14)
    assert len(list((run / "checkpoints").glob("step-*"))) == 2
    return run


def test_a_damaged_checkpoint_is_told_of_and_the_one_before_is_used(
    training: Training, stopped: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    newest = max((run / "checkpoints").glob("step-*"))
    file = newest / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    goes_on = training.resume(run)
    assert f"the checkpoint {newest} is not used: optimizer.safetensors" in goes_on.stderr
    assert difference(training.undisturbed, run) is None


@pytest.mark.parametrize(
    "damage",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("deleted", "flipped")),
        "a link",
        "cut",
    ],
)
def test_history_and_recipe_are_put_back_and_leftovers_cleared(
    training: Training, stopped: Path, tmp_path: Path, damage: str
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    history = run / "history.jsonl"
    outside = tmp_path / "outside"
    content = history.read_bytes()
    if damage in ("deleted", "a link"):
        history.unlink()
    if damage == "a link":
        outside.write_bytes(b"mine")
        history.symlink_to(outside)
        (run / "recipe.yaml").write_text("task: [")
    elif damage == "flipped":
        history.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    elif damage == "cut":
        history.write_bytes(content[: len(content) // 2])
    goes_on = training.resume(run)
    assert f"{history} has been changed" in goes_on.stderr
    assert difference(training.undisturbed, run) is None
    assert not history.is_symlink()
    assert (run / "model" / "README.md").exists()
    if damage == "a link":
        assert outside.read_bytes() == b"mine"
        assert yaml.safe_load((run / "recipe.yaml").read_text())["task"] == "text-classification"
        # As a kill leaves it behind that falls between the state and the clearing away.
        shutil.copytree(stopped / "checkpoints", run / "checkpoints")
        (run / "model" / ".bertctl-0123456789abcdef.part").mkdir()
        assert "finished already" in training.resume(run).stderr
        assert not [
            path for path in run.rglob("*") if path.name == "checkpoints" or path.suffix == ".part"
        ]


@pytest.mark.slow
def test_a_damaged_status_is_noticed_before_anything_is_trained(
    training: Training, stopped: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    before = (run / "history.jsonl").read_bytes()
    for content, code in (("{}", 3), ('{"state": 1}', 3), ("[", 4)):
        (run / "status.json").write_text(content)
        for extra, refusal in (("--resume", code), ("--resume-if-any", code), ("--overwrite", 2)):
            refused = training.start(run, extra)
            assert refused.returncode == refusal, refused.stderr
            assert "status.json" in refused.stderr
    assert (run / "history.jsonl").read_bytes() == before


def test_a_run_with_other_data_or_settings_is_refused(
    training: Training, stopped: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    other = tmp_path / "other.csv"
    other.write_text(training.data.read_text().replace("dull 0", "dull and grey"))
    changed = training.start(run, "--resume", data=other)
    assert changed.returncode == 3, changed.stderr
    assert "rows of train" in changed.stderr
    slower = training.start(run, "--resume", "--learning-rate", "1e-4")
    assert slower.returncode == 2, slower.stderr
    assert "optimizer.learning_rate: 0.005 then, 0.0001 now" in slower.stderr
    assert sorted(p.name for p in run.iterdir()) == sorted(p.name for p in stopped.iterdir())


def test_a_finished_run_that_cannot_say_what_it_was_of_is_no_answer(
    training: Training, tmp_path: Path
) -> None:
    run = shutil.copytree(training.undisturbed, tmp_path / "run")
    (run / "environment.json").unlink()
    other = training.start(run, "--resume-if-any", "--learning-rate", "1e-4")
    assert other.returncode == 4, other.stdout
    assert "environment.json is missing" in other.stderr


def test_resume_needs_a_checkpoint_and_resume_if_any_does_not(
    training: Training, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    missing = training.start(run, "--resume")
    assert missing.returncode == 4, missing.stderr
    assert not run.exists()
    done = training.start(run, "--resume-if-any")
    assert done.returncode == 0, done.stderr
    assert difference(training.undisturbed, run) is None


@pytest.mark.slow
def test_two_commands_on_one_folder(training: Training, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = training.popen(run, "--epochs", "200")
    try:
        training.wait_for_steps(run, 3)
        for extra in (["--overwrite"], ["--resume-if-any", "--epochs", "200"]):
            second = training.start(run, *extra)
            assert second.returncode == 2, second.stderr
            assert f"{run} is in use by process {process.pid} on " in second.stderr
    finally:
        process.kill()
        process.communicate()
    assert training.start(run, "--overwrite").returncode == 0, (
        "a lock whose holder is dead holds nobody back"
    )


def test_resume_of_a_run_that_trains_without_checkpoints_says_who_trains_it(
    training: Training, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    personal = ("--epochs", "200", "--checkpoint-every", "off")
    process = training.popen(run, *personal)
    try:
        training.wait_for_steps(run, 1, process)
        second = training.start(run, "--resume", *personal)
    finally:
        process.kill()
        process.communicate()
    assert second.returncode == 2, second.stderr
    assert f"{run} is in use by process {process.pid} on " in second.stderr


@pytest.mark.slow
def test_two_processes_stop_at_one_step_and_go_on(training: Training, tmp_path: Path) -> None:
    complete = tmp_path / "whole"
    run = tmp_path / "run"
    assert training.start(complete, "--num-processes", "2").returncode == 0
    stopped = training.disturbed(run, signal.SIGTERM, "--num-processes", "2", after_steps=10)
    assert stopped.returncode == 143, stopped.stderr
    assert stopped.stderr.count("terminated at step") == 1, stopped.stderr
    training.resume(run, "--num-processes", "2")
    assert difference(complete, run) is None


def test_a_run_that_fails_ends_the_checkpoint_that_is_being_written(
    opinions: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, or a divergence, a step later.

    The checkpoint is whole, and no part of it is left over.
    """
    write = Checkpoints._write
    add_history = RunWriter.add_history

    def slowly(self: Checkpoints, *given: Any) -> None:
        time.sleep(0.5)
        write(self, *given)

    def fails(self: RunWriter, figures: dict[str, Any]) -> None:
        if figures["step"] == 2:
            raise UnavailableError("history.jsonl: the disk is full")
        add_history(self, figures)

    monkeypatch.setattr(Checkpoints, "_write", slowly)
    monkeypatch.setattr(RunWriter, "add_history", fails)
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(UnavailableError, match="disk is full"):
        run(
            prepare(tiny_recipe(tiny_model, opinions, **{"training.checkpoint_every": "1 steps"})),
            folder,
        )
    assert (folder.checkpoints / "step-00000001" / "manifest.json").exists()
    assert not list(folder.path.rglob("*.part"))


@pytest.mark.parametrize("few_shot", [False, True])
def test_a_run_that_is_stopped_while_its_checkpoints_go_is_done(
    tiny_model: Path,
    opinions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_shot: bool,
) -> None:
    real = shutil.rmtree
    run = tmp_path / "run"

    def rmtree(path: Path, **options: Any) -> None:
        if path == run / "checkpoints":
            for file in path.iterdir():
                real(file)
            raise KeyboardInterrupt
        real(path, **options)

    more = {"few_shot.loss": "cosine"} if few_shot else {"training.checkpoint_every": None}
    recipe = tiny_recipe(tiny_model, opinions, **{"training.epochs": 1}, **more)
    job = prepare_few_shot(recipe) if few_shot else prepare(recipe)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", rmtree)
        with pytest.raises(KeyboardInterrupt):
            start(job, run)
    assert not start(job, run, resume=True).trained
    assert not (run / "checkpoints").exists()
