"""A training by two processes that are killed or stopped, one or all.

Nobody stays behind, nothing is lost.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.stopping import Training, difference

pytestmark = pytest.mark.slow

_RANDOM = Random(14)  # noqa: S311 - moments, not secrets
WHOM = ("launcher", "worker 0", "worker 1", "everybody")
KILLS = [(WHOM[i % 4], _RANDOM.randrange(1, 47)) for i in range(20)]
"""Who is killed, after how many of the 48 steps."""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Training:
    return Training(tmp_path_factory.mktemp("training"), tiny_model)


@pytest.fixture(scope="module")
def by_two(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("two") / "run"
    done = training.start(run, "--num-processes", "2")
    assert done.returncode == 0, done.stderr
    return run


def family(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The launcher, torchrun and the workers."""
    launcher = psutil.Process(process.pid)
    return [launcher, *launcher.children(recursive=True)]


def workers_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return [p for p in family(process) if "bertctl" in p.cmdline() and "RANK" in p.environ()]


def struck(
    training: Training, run: Path, whom: str, number: signal.Signals, steps: int
) -> tuple[int, str]:
    """Starts a run, sends the signal after so many steps.

    Returns exit code and talk when nobody is left.
    """
    process = training.popen(run, "--num-processes", "2")
    training.wait_for_steps(run, steps, process)
    everybody = family(process)
    workers = {f"worker {worker.environ()['RANK']}": worker for worker in workers_of(process)}
    for entry in everybody if whom == "everybody" else [workers.get(whom, everybody[0])]:
        entry.send_signal(number)
    started = time.monotonic()
    _, err = process.communicate(timeout=3600)
    psutil.wait_procs(everybody, timeout=3600)
    assert time.monotonic() - started < 600, (
        "gloo itself waits half an hour for a worker that is gone"
    )
    assert not [p for p in everybody if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], (
        "somebody stayed behind"
    )
    return process.returncode or 0, err


def gone_on_with(training: Training, run: Path, by_two: Path) -> None:
    done = training.start(run, "--num-processes", "2", "--resume-if-any")
    assert done.returncode == 0, done.stderr
    assert difference(by_two, run) is None
    assert not (run / "checkpoints").exists()
    assert not [path for path in run.rglob("*") if path.name.endswith(".part")]


@pytest.mark.parametrize(("whom", "steps"), KILLS)
def test_a_run_whose_processes_are_killed_resumes_to_the_same_result(
    training: Training, by_two: Path, tmp_path: Path, whom: str, steps: int
) -> None:
    run = tmp_path / "run"
    code, err = struck(training, run, whom, signal.SIGKILL, steps)
    assert code == (5 if whom.startswith("worker") else -9), err
    gone_on_with(training, run, by_two)


def test_the_first_worker_is_killed_before_it_trains(training: Training, tmp_path: Path) -> None:
    """The launcher then stops the others, which are not what went wrong."""
    process = training.popen(tmp_path / "run", "--num-processes", "2")
    while not (first := [entry for entry in workers_of(process) if entry.environ()["RANK"] == "0"]):
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    first[0].kill()
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 5, err
    assert "ended without a message" in err


def test_the_second_worker_is_killed_before_it_trains(training: Training, tmp_path: Path) -> None:
    """The first one, which speaks, is stopped by the launcher: nobody has terminated the job."""
    process = training.popen(tmp_path / "run", "--num-processes", "2")
    while len(
        two := sorted(workers_of(process), key=lambda entry: entry.environ()["RANK"])
    ) < 2 or not _works(two[0]):
        assert process.poll() is None
        time.sleep(0.01)
    two[1].kill()
    _, err = process.communicate(timeout=3600)
    assert process.returncode == 5, err
    assert err.count("ended without a message") == 1, err
    assert "terminated" not in err


def _works(worker: psutil.Process) -> bool:
    """Whether it imports torch by now: signals raise."""
    return any("libtorch" in mapped.path for mapped in worker.memory_maps())


def test_a_worker_whose_launcher_died_before_its_first_line_ends(tmp_path: Path) -> None:
    """It would wait half an hour for the others."""
    worker = (
        f"RANK=0 WORLD_SIZE=2 BERTCTL_EXIT_CODES={tmp_path} exec {sys.executable} -m bertctl docs"
    )
    done = subprocess.run(
        ["bash", "-c", f"(sleep 0.5; {worker}) & exit"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


@pytest.mark.parametrize("whom", WHOM[:3])
def test_a_run_whose_processes_are_stopped_resumes_to_the_same_result(
    training: Training, by_two: Path, tmp_path: Path, whom: str
) -> None:
    run = tmp_path / "run"
    code, err = struck(training, run, whom, signal.SIGTERM, 10)
    assert code == 143, err
    gone_on_with(training, run, by_two)
