"""What happens to jobs in real life, to the real process: killed, stopped, out of disk, damaged, doubled.

After each fault the run is gone on with and compared with one that nothing happened to, byte for byte. The number of
faults is counted and printed at the end (`pytest -m slow tests/slow/test_faults.py -s -n 0`).
"""

import json
import random
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.stopping import Training, difference, history_losses

pytestmark = pytest.mark.slow

_RANDOM = random.Random(20)  # noqa: S311 - moments, not secrets
KILLS = [(_RANDOM.randrange(48), _RANDOM.random() * 0.5) for _ in range(20)]
"""Steps to wait for, and seconds more: moments in training, in evaluation (every 12 steps) and in saving (every 4)."""
DAMAGES = ("cut", "empty", "flipped", "missing")
FILES = (
    "manifest.json",
    "state.json",
    "model.safetensors",
    "optimizer.safetensors",
    "random.safetensors",
    "best/model.safetensors",
)
COUNTS: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def _told() -> Iterator[None]:
    yield
    print(f"\n{sum(COUNTS.values())} faults, none lost, no difference: {dict(COUNTS)}")  # noqa: T201 - the bar asks for it


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Training:
    return Training(tmp_path_factory.mktemp("training"), tiny_model)


@pytest.fixture(scope="module")
def stopped(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after step 30, with two checkpoints and best weights; tests work on copies."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    training.disturbed(run, signal.SIGTERM, after_steps=30)
    assert len(list((run / "checkpoints").glob("step-*"))) == 2
    return run


def gone_on_with(training: Training, run: Path, fault: str, *extra: object, like: Path | None = None) -> None:
    """Go on (or start, where nothing had been saved yet) and compare."""
    done = training.start(run, "--resume-if-any", *extra)
    assert done.returncode == 0, done.stderr
    assert difference(like or training.undisturbed, run) is None
    COUNTS[fault] += 1


@pytest.mark.parametrize(("steps", "seconds"), KILLS)
def test_killed_at_any_moment(training: Training, tmp_path: Path, steps: int, seconds: float) -> None:
    run = tmp_path / "run"
    training.disturbed(run, signal.SIGKILL, after_steps=steps, after_seconds=seconds)
    gone_on_with(training, run, "SIGKILL")


@pytest.mark.parametrize(("steps", "number"), [(1, signal.SIGTERM), (12, signal.SIGINT), (24, signal.SIGTERM)])
def test_stopped_in_training_and_in_evaluation(
    training: Training, tmp_path: Path, steps: int, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    stopped = training.disturbed(run, number, after_steps=steps)
    assert stopped.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[number], stopped.stderr
    gone_on_with(training, run, number.name)


def test_killed_again_and_again(training: Training, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for steps in (6, 15, 27, 40):
        training.disturbed(run, signal.SIGKILL, "--resume-if-any", after_steps=steps, after_seconds=0.05)
        COUNTS["SIGKILL, again"] += 1
    gone_on_with(training, run, "SIGKILL, again")


@pytest.fixture(scope="module")
def by_two(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("two") / "run"
    done = training.start(run, "--num-processes", "2")
    assert done.returncode == 0, done.stderr
    return run


def family(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The launcher, torchrun and the workers."""
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


def workers_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return [p for p in family(process) if "bertctl" in p.cmdline() and "RANK" in p.environ()]


@pytest.mark.parametrize("whom", ["launcher", "worker 0", "worker 1"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_several_processes(training: Training, by_two: Path, tmp_path: Path, whom: str, number: signal.Signals) -> None:
    run = tmp_path / "run"
    process = training.popen(run, "--num-processes", "2")
    training.wait_for_steps(run, 10, process)
    everybody = family(process)
    if whom == "launcher":
        process.send_signal(number)
    else:
        rank = whom.removeprefix("worker ")
        next(p for p in workers_of(process) if p.environ()["RANK"] == rank).send_signal(number)
    started = time.monotonic()
    _, err = process.communicate(timeout=60)
    psutil.wait_procs(everybody, timeout=30)
    assert time.monotonic() - started < 30
    assert not [p for p in everybody if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], "somebody stayed behind"
    if number == signal.SIGTERM:
        assert process.returncode == 143, err
    elif whom != "launcher":
        assert process.returncode == 5, err
    gone_on_with(training, run, f"{number.name} to a {whom.split()[0]} of two", "--num-processes", "2", like=by_two)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_checkpoints(training: Training, stopped: Path, tmp_path: Path, file: str, how: str) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    newest = max((run / "checkpoints").glob("step-*"))
    path = newest / file
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    if how == "missing":
        path.unlink()
    elif how == "flipped":
        content[middle] ^= 1 << _RANDOM.randrange(7)
        path.write_bytes(content)
    else:
        path.write_bytes(content[: middle if how == "cut" else 0])
    done = training.start(run, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"the checkpoint {newest} is not used" in done.stderr
    assert difference(training.undisturbed, run) is None
    COUNTS[f"checkpoint {how}"] += 1


@pytest.mark.parametrize("most", [20_000, 150_000])
def test_a_full_disk(training: Training, tmp_path: Path, most: int) -> None:
    """A limit on the size of each file stands for the full disk: the system's answer is an error of the same kind.

    The weights (93 kB) do not fit below the first limit, the optimizer's moments (185 kB) not below the second.
    """
    run = tmp_path / "run"
    process = training.popen(run)
    training.wait_for_steps(run, 6, process)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    _, err = process.communicate(timeout=240)
    assert process.returncode == 4, err
    assert "the disk is full" in err
    gone_on_with(training, run, "full disk")


def test_nothing_a_number_stops_the_run_and_names_the_examples(tiny_model: Path, tmp_path: Path) -> None:
    """A label that overflows: 1e38 is a number, its squared error is none in single precision."""
    training = Training.__new__(Training)
    training.data = tmp_path / "scores.csv"
    training.model, training.nursery = tiny_model, None
    rows = [f"it was {'very ' * (i % 5)}fine {i},{1e38 if i == 37 else i % 5}" for i in range(128)]
    training.data.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    run = tmp_path / "run"
    diverged = training.start(run, task="text-regression")
    assert diverged.returncode == 6, diverged.stderr
    assert "training diverged at step" in diverged.stderr
    assert "37" in diverged.stderr.partition("batch with ids")[2].partition(")")[0]
    assert json.loads((run / "status.json").read_text())["state"] == "failed"
    COUNTS["not a number"] += 1


def test_two_commands_on_one_folder(training: Training, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = training.popen(run)
    training.wait_for_steps(run, 2, process)
    process.send_signal(signal.SIGSTOP)  # or the first would have ended before the second begins
    second = training.start(run, "--overwrite")
    process.send_signal(signal.SIGCONT)
    assert second.returncode == 2, second.stderr
    assert f"in use by process {process.pid} on" in second.stderr
    process.communicate(timeout=240)
    assert difference(training.undisturbed, run) is None
    assert len(history_losses(run)) == 48
    COUNTS["two commands"] += 1


def test_there_were_at_least_sixty(training: Training) -> None:
    assert sum(COUNTS.values()) >= 60, dict(COUNTS)
