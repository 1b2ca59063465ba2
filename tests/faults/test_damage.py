"""A training run that is damaged, stopped, out of disk or doubled, and then gone on with.

The same bytes in the end.
"""

import random
import resource
import shutil
import signal
from pathlib import Path

import pytest

from tests.nursery import Nursery
from tests.stopping import Training, difference, history_losses

pytestmark = pytest.mark.slow

_RANDOM = random.Random(20)  # noqa: S311 - bits, not secrets
DAMAGES = ("cut", "empty", "flipped", "missing")
FILES = (
    "manifest.json",
    "state.json",
    "model.safetensors",
    "optimizer.safetensors",
    "random.safetensors",
    "best/model.safetensors",
)
OF_THE_RUN = (
    "history.jsonl",
    "recipe.yaml",
    "status.json",
    "environment.json",
    "model/config.json",
    "model/model.safetensors",
)


@pytest.fixture(scope="module")
def training(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery
) -> Training:
    return Training(tmp_path_factory.mktemp("training"), tiny_model, nursery)


@pytest.fixture(scope="module")
def stopped(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after step 30, with two checkpoints and best weights.

    Tests work on copies.
    """
    run = tmp_path_factory.mktemp("stopped") / "run"
    training.disturbed(run, signal.SIGTERM, after_steps=30)
    assert len(list((run / "checkpoints").glob("step-*"))) == 2
    return run


def gone_on_with(training: Training, run: Path, *extra: object) -> None:
    """Go on (or start, where nothing had been saved yet) and compare."""
    done = training.start(run, "--resume-if-any", *extra)
    assert done.returncode == 0, done.stderr
    assert difference(training.undisturbed, run) is None


@pytest.mark.parametrize(
    ("steps", "number"), [(1, signal.SIGTERM), (12, signal.SIGINT), (24, signal.SIGTERM)]
)
def test_stopped_in_training_and_in_evaluation(
    training: Training, tmp_path: Path, steps: int, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    stopped = training.disturbed(run, number, after_steps=steps)
    assert stopped.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[number], stopped.stderr
    gone_on_with(training, run)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    if how == "missing":
        path.unlink()
    elif how == "flipped":
        content[middle] ^= 1 << _RANDOM.randrange(7)
        path.write_bytes(content)
    else:
        path.write_bytes(content[: middle if how == "cut" else 0])


@pytest.mark.parametrize("file", OF_THE_RUN)
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_runs(
    training: Training, stopped: Path, tmp_path: Path, file: str, how: str
) -> None:
    """What a resume needs is refused before the first step.

    What it does not need does no harm.
    """
    run = shutil.copytree(stopped, tmp_path / "run")
    damage(run / file, how)
    before = {
        path: path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    done = training.start(run, "--resume")
    if done.returncode == 0:
        assert difference(training.undisturbed, run) is None
        return
    assert done.returncode in (2, 3, 4), done.stderr
    assert Path(file).name in done.stderr
    assert {path: path.read_bytes() for path in before if path.exists()} == before


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_checkpoints(
    training: Training, stopped: Path, tmp_path: Path, file: str, how: str
) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    newest = max((run / "checkpoints").glob("step-*"))
    damage(newest / file, how)
    done = training.start(run, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"the checkpoint {newest} is not used" in done.stderr
    assert difference(training.undisturbed, run) is None


@pytest.mark.parametrize("most", [20_000, 150_000])
def test_a_full_disk(training: Training, tmp_path: Path, most: int) -> None:
    """A limit on the size of each file stands for the full disk.

    The system's answer is an error of the same kind.

    The weights (93 kB) do not fit below the first limit, the optimizer's moments (185 kB) not below
    the second.
    """
    run = tmp_path / "run"
    process = training.popen(run)
    training.wait_for_steps(run, 6, process)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 4, err
    assert "the disk is full" in err
    gone_on_with(training, run)


def test_a_score_that_is_no_number_is_refused_and_named(
    tiny_model: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """A label that overflows: 1e39 is a number, but none in single precision."""
    training = Training.__new__(Training)
    training.data = tmp_path / "scores.csv"
    training.model = tiny_model
    training.nursery = nursery
    training.epochs = 1
    rows = [f"it was {'very ' * (i % 5)}fine {i},{1e39 if i == 37 else i % 5}" for i in range(128)]
    training.data.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    run = tmp_path / "run"
    refused = training.start(run, task="text-regression")
    assert refused.returncode == 3, refused.stderr
    assert "scores.csv:39: the label '1e+39' is not a finite number in 32 bits" in refused.stderr
    assert not run.exists()


def test_two_commands_on_one_folder(training: Training, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = training.popen(run)
    training.wait_for_steps(run, 2, process)
    process.send_signal(signal.SIGSTOP)  # or the first would have ended before the second begins
    second = training.start(run, "--overwrite")
    process.send_signal(signal.SIGCONT)
    assert second.returncode == 2, second.stderr
    assert f"in use by process {process.pid} on" in second.stderr
    process.communicate(timeout=3600)
    assert difference(training.undisturbed, run) is None
    assert len(history_losses(run)) == 48
