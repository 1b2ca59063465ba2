"""A real Slurm, without and with accounting: a controller and two nodes on this machine
(tests/slurm_cluster.py).

Needs `apt install slurm-wlm munge` (for accounting `slurmdbd mariadb-server` as well), root, and
for sweeps the extra `slurm`. A job is killed, told that its time is up, cancelled, requeued, lost
with its node, and left behind by a sweep that was killed; the table is that of one process, and
each run is computed to its end once. The batch files of the documentation train over a requeue to
the bytes of an unbroken run, and predict in an array to the bytes of one process.
"""

import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, TinyRun
from tests.slurm_cluster import SlurmCluster, job_process, missing_programs, running_slurm, until

pytestmark = pytest.mark.slow

_FOUR_RATES = "5e-3,3e-3,1e-3,5e-4"


@pytest.fixture(scope="module", params=["without accounting", "with accounting"])
def slurm(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """A Slurm of two nodes."""
    accounting = request.param == "with accounting"
    missing = missing_programs(accounting=accounting)
    if missing:
        packages = "slurm-wlm munge slurmdbd mariadb-server" if accounting else "slurm-wlm munge"
        pytest.skip(f"no Slurm here (apt install {packages}): {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")

    with running_slurm(accounting=accounting) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def opinions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "opinions.csv"
    lines = [
        f"the film was {'good fine' if i % 2 else 'bad dull'} {i},{'pos' if i % 2 else 'neg'}"
        for i in range(128)
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


class _Sweep:
    """A sweep whose runs take as many epochs as are given, by one process or by Slurm."""

    def __init__(self, opinions: Path, model: Path, rates: str, epochs: int) -> None:
        pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
        self._folder = opinions.parent
        self._grid = ["--grid", f"optimizer.learning_rate={rates}"]
        self._words = ["sweep", *_training_words(opinions, model, epochs)]

    def start(
        self, folder: Path, environment: Mapping[str, str], *options: str
    ) -> "subprocess.Popen[str]":
        """Starts the command; its output lies in a folder."""
        words = [*self._words, "-o", str(folder), *self._grid, *options]
        return subprocess.Popen(
            [sys.executable, "-m", "bertctl", *words],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_in_slurm(
        self, folder: Path, slurm: SlurmCluster, *options: str, **variables: str
    ) -> "subprocess.Popen[str]":
        """Starts the command with its runs as jobs of Slurm, under environment variables of
        `sbatch`.
        """
        return self.start(
            folder, {**slurm.environment, **variables}, "--executor", "slurm", *options
        )

    def results_alone(self, folder: Path) -> str:
        """Returns the results of the same sweep by one process."""
        _wait(self.start(folder, os.environ))
        return _results(folder)


@pytest.fixture(scope="module")
def one_run(opinions: Path, tiny_model: Path) -> _Sweep:
    """A sweep of one long run."""
    return _Sweep(opinions, tiny_model, "5e-3", 80)


@pytest.fixture(scope="module")
def one_run_alone(one_run: _Sweep, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Results of the long run by one process."""
    return one_run.results_alone(tmp_path_factory.mktemp("one") / "sweep")


@pytest.fixture(scope="module")
def four_runs(opinions: Path, tiny_model: Path) -> _Sweep:
    """A sweep of four runs."""
    return _Sweep(opinions, tiny_model, _FOUR_RATES, 20)


@pytest.fixture(scope="module")
def four_runs_alone(four_runs: _Sweep, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Results of the four runs by one process."""
    return four_runs.results_alone(tmp_path_factory.mktemp("four") / "sweep")


def _training_words(opinions: Path, model: Path, epochs: int) -> list[str]:
    words = ["text-classification", "--train-file", str(opinions), "--model", str(model)]
    words += [
        "--batch-size",
        "8",
        "--epochs",
        str(epochs),
        "--max-length",
        "32",
        "--precision",
        "fp32",
    ]
    words += [
        "--threads",
        "1",
        "--set",
        "data.validation_fraction=0.25",
        "--set",
        "training.log_every=1",
    ]
    return [*words, "--set", "evaluation.bootstrap_resamples=100"]


def _wait(process: "subprocess.Popen[str]") -> str:
    """Returns the messages of a command that ends well."""
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    return messages


def _kill(process: "subprocess.Popen[str]") -> str:
    """Kills a command; returns its messages so far."""
    process.kill()
    return process.communicate()[1]


def _running(slurm: SlurmCluster, *others: str) -> str:
    """Returns a running job that is none of the others; empty without."""
    return next((job for job in slurm.jobs("R") if job not in others), "")


def _step(cell: Path) -> int:
    """Returns the step that a run has logged last."""
    history = cell / "history.jsonl"
    if not history.exists():
        return 0
    lines = history.read_text().splitlines()
    return max((json.loads(line).get("step", 0) for line in lines if line.endswith("}")), default=0)


def _cells(folder: Path) -> list[Path]:
    return sorted(folder.glob("cells/*"))


def _training_cells(folder: Path) -> list[Path]:
    """Returns the runs that are under way."""
    return [cell for cell in _cells(folder) if not _is_done(cell) and _step(cell) > 20]


def _saved_steps(folder: Path) -> list[int]:
    return [
        int(path.name.removeprefix("step-")) for path in folder.glob("cells/*/checkpoints/step-*")
    ]


def _is_done(cell: Path) -> bool:
    status = cell / "status.json"
    return status.exists() and json.loads(status.read_text())["state"] == "done"


def _times(cell: Path) -> dict[str, int]:
    """Returns when the results of a run were written; its model may be taken away when another run
    is better.
    """
    names = ("history.jsonl", "metrics.json", "status.json")
    return {name: (cell / name).stat().st_mtime_ns for name in names}


def _results(folder: Path) -> str:
    document = json.loads((folder / "sweep.json").read_text())
    document.pop("performance")
    return json.dumps(document)


def _runs_ended(folder: Path) -> Counter[str]:
    """Returns how many jobs of this sweep have brought each run to its end, by the answers of all
    its commands.
    """
    counts: Counter[str] = Counter()
    for answer in (folder / "jobs").glob("*_result.pkl"):
        outcome, reply = pickle.loads(answer.read_bytes())  # noqa: S301 - our own
        if outcome == "success" and reply["state"] == "done":
            counts[reply["cell"]] += 1
    return counts


def _assert_each_run_ended_once(folder: Path, slurm: SlurmCluster) -> None:
    assert _runs_ended(folder) == dict.fromkeys((cell.name for cell in _cells(folder)), 1)
    assert slurm.jobs("R", "PD") == []


def test_each_run_is_trained_once_whatever_becomes_of_its_jobs(
    slurm: SlurmCluster, one_run: _Sweep, one_run_alone: str, tmp_path: Path
) -> None:
    """Time is up, jobs are killed and cancelled, the sweep is killed: each goes on from a
    checkpoint.
    """
    folder = tmp_path / "sweep"
    sweep = one_run.start_in_slurm(folder, slurm)

    until(lambda: _training_cells(folder), process=sweep)
    first = _running(slurm)
    for _ in range(3):  # as batch systems do
        slurm.ask("scancel", "--signal=USR2", first)
    second = until(lambda: _running(slurm, first), process=sweep)
    assert max(_saved_steps(folder)) > 20, "the time limit saved a checkpoint"

    process = until(lambda: job_process(second), process=sweep)
    process.kill()
    third = until(lambda: _running(slurm, first, second), process=sweep)
    refused = subprocess.run(
        ["scontrol", "requeue", third], env=slurm.environment, capture_output=True, check=False
    )
    assert refused.returncode != 0, "Slurm starts no job of its own beside those of the sweep"

    saved = max(_saved_steps(folder))
    until(lambda: _step(_cells(folder)[0]) > saved + 20, process=sweep)
    slurm.ask("scancel", third)
    fourth = until(lambda: _running(slurm, first, second, third), process=sweep)
    assert max(_saved_steps(folder)) > saved, "a job that is cancelled saves a checkpoint"

    messages = _kill(sweep)
    assert "job " + first + " ended before the run did" in messages
    assert "sacct" not in messages
    assert _running(slurm) == fourth
    messages = _wait(one_run.start_in_slurm(folder, slurm))
    assert f"1 job of an earlier command cancelled: {fourth}" in messages
    assert _results(folder) == one_run_alone
    _assert_each_run_ended_once(folder, slurm)
    environments = [
        json.loads(path.read_text()) for path in folder.glob("cells/*/environment.json")
    ]
    assert all(
        environment["command"].startswith("bertctl sweep text-classification")
        for environment in environments
    )


def test_a_time_limit_that_is_reached_saves_a_checkpoint(
    slurm: SlurmCluster, one_run: _Sweep, one_run_alone: str, tmp_path: Path
) -> None:
    """Slurm's signal comes before the limit, not while the job starts; the run goes on in another
    job.
    """
    folder = tmp_path / "sweep"
    sweep = one_run.start_in_slurm(folder, slurm, SBATCH_TIMELIMIT="0:03:00")

    until(lambda: _training_cells(folder), process=sweep)
    first = _running(slurm)
    worker = _worker_of(job_process(first))
    # However fast this machine is, the run is not over before its time is.
    worker.suspend()
    until(lambda: _is_pending(signal.SIGTERM, worker), process=sweep)
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.resume()

    messages = _wait(sweep)
    step = re.search(
        rf"job {first} ended before the run did .*; it goes on from step (\d+) in another job",
        messages,
    )
    assert step is not None, messages
    assert int(step[1]) > 20
    assert _results(folder) == one_run_alone
    _assert_each_run_ended_once(folder, slurm)


def _worker_of(job: psutil.Process | None) -> psutil.Process:
    """Returns the process of a job that trains."""
    assert job is not None
    return next(
        child for child in job.children() if "resource_tracker" not in " ".join(child.cmdline())
    )


def _hold_a_run(folder: Path, slurm: SlurmCluster, sweep: "subprocess.Popen[str]") -> str:
    """Suspends the first run that trains, so that others are done before it; returns its job."""
    cell = until(lambda: _training_cells(folder), process=sweep)[0]
    job = slurm.ask("squeue", "-h", "-t", "R", "-n", f"bertctl-{cell.name}", "-o", "%i")
    _worker_of(job_process(job)).suspend()
    return job


def _is_pending(number: signal.Signals, process: psutil.Process) -> bool:
    """Returns whether a signal waits for a process that is suspended, or has ended it: Slurm sends
    SIGCONT as well.
    """
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return True
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", status, flags=re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def test_a_node_that_is_lost_takes_no_finished_run_with_it(
    slurm: SlurmCluster, four_runs: _Sweep, four_runs_alone: str, tmp_path: Path
) -> None:
    """Slurm requeues the jobs of a lost node by default (JobRequeue=1), and finished runs were
    trained again.
    """
    folder = tmp_path / "sweep"
    sweep = four_runs.start_in_slurm(folder, slurm, "--jobs", "2", SBATCH_EXCLUSIVE="exclusive")

    job = _hold_a_run(folder, slurm, sweep)
    until(lambda: any(map(_is_done, _cells(folder))), process=sweep)
    node = slurm.ask("squeue", "-h", "-j", job, "-o", "%N")
    slurm.lose_node(node)
    done = [cell for cell in _cells(folder) if _is_done(cell)]
    times = [_times(cell) for cell in done]
    messages = _wait(sweep)

    assert f"job {job} ended before the run did (Slurm says NODE_FAIL" in messages
    assert _results(folder) == four_runs_alone
    slurm.start_node(node)
    until(lambda: not slurm.jobs("R", "PD", "CG"))
    assert [_times(cell) for cell in done] == times
    _assert_each_run_ended_once(folder, slurm)


def test_a_sweep_that_was_killed_goes_on_beside_none_of_its_jobs(
    slurm: SlurmCluster, four_runs: _Sweep, four_runs_alone: str, tmp_path: Path
) -> None:
    """A run is done, others are under way or wait in the queue when the sweep is killed."""
    folder = tmp_path / "sweep"
    sweep = four_runs.start_in_slurm(folder, slurm, SBATCH_EXCLUSIVE="exclusive")

    _hold_a_run(folder, slurm, sweep)
    until(lambda: any(map(_is_done, _cells(folder))), process=sweep)
    _kill(sweep)
    done = [cell for cell in _cells(folder) if _is_done(cell)]
    times = [_times(cell) for cell in done]
    messages = _wait(four_runs.start_in_slurm(folder, slurm, SBATCH_EXCLUSIVE="exclusive"))

    assert "of an earlier command cancelled" in messages
    assert _results(folder) == four_runs_alone
    assert [_times(cell) for cell in done] == times
    _assert_each_run_ended_once(folder, slurm)


def test_several_jobs_at_once(
    slurm: SlurmCluster, four_runs: _Sweep, four_runs_alone: str, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"

    _wait(four_runs.start_in_slurm(folder, slurm))

    assert _results(folder) == four_runs_alone
    _assert_each_run_ended_once(folder, slurm)


def _batch_file(name: str, replacements: Mapping[str, str]) -> str:
    """Returns the batch file of the documentation whose job has a name, changed for this
    machine.
    """
    page = (ROOT / "bertctl" / "docs" / "many-devices.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", page, flags=re.DOTALL)
    (script,) = [script for script in scripts if f"--job-name={name}\n" in script]
    for line, replacement in replacements.items():
        assert line in script
        script = script.replace(line, replacement)
    return str(script)


def _training_file(command: Sequence[str]) -> str:
    """Returns the batch file that trains, with another command."""
    replacements = {
        "--ntasks-per-node=8": "--ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8\n": "",
        "--cpus-per-task=6": "--cpus-per-task=1",
        "bertctl finetune mnli -o RUN --resume-if-any": f"{' '.join(command)} --resume-if-any",
    }
    return _batch_file("mnli", replacements)


def test_the_batch_file_that_trains(
    slurm: SlurmCluster, opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Two tasks on two nodes meet; told that their time is up they save, are requeued, and end as
    if nothing was.
    """
    several = ["--set", "model.dropout=0.0"]
    script = tmp_path / "train.sh"
    for run in ("unbroken", "broken"):
        words = [
            "finetune",
            *_training_words(opinions, tiny_model, 12),
            "-o",
            str(tmp_path / run),
            *several,
        ]
        script.write_text(_training_file(["bertctl", *words]))
        job = slurm.ask("sbatch", "--parsable", f"--chdir={tmp_path}", str(script))
        assert job
        if run == "broken":
            history = tmp_path / run / "history.jsonl"
            until(lambda path=history: path.exists() and len(path.read_text().splitlines()) > 20)
            slurm.ask("scancel", "--signal=TERM", job)
        status = tmp_path / run / "status.json"
        until(lambda path=status: path.exists() and json.loads(path.read_text())["state"] == "done")
        until(lambda number=job: number not in slurm.jobs("R", "PD", "CG"))
    log = (tmp_path / f"slurm-{job}.out").read_text()
    assert "a checkpoint was saved" in log
    assert json.loads((tmp_path / "broken" / "performance.json").read_text())["processes"] == 2
    models = [
        (tmp_path / run / "model" / "model.safetensors").read_bytes()
        for run in ("unbroken", "broken")
    ]
    assert models[0] == models[1]


def test_the_batch_file_that_predicts_in_an_array(
    slurm: SlurmCluster, opinions: Path, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """A task for each shard; the shards that are left apart and those that are merged are the bytes
    of one process.
    """
    lines = opinions.read_text(encoding="utf-8").splitlines()
    texts = [line.rpartition(",")[0] for line in lines[1:]]
    rows = tmp_path / "reviews.csv"
    rows.write_text(
        "\n".join(["text", *texts * 40]) + "\n", encoding="utf-8"
    )  # 5,120: three chunks
    predict = [
        "bertctl",
        "predict",
        str(tiny_run.path),
        str(rows),
        "--threads",
        "1",
        "--precision",
        "fp32",
    ]
    merged = [*predict, "-o", str(tmp_path / "merged.jsonl")]
    left_apart = f"{' '.join(predict)} -o '{tmp_path}/answers/part-{{shard}}.jsonl' --shard"
    script = _batch_file(
        "predict",
        {
            "--array=1-100": "--array=1-3",
            "--cpus-per-task=4": "--cpus-per-task=1",
            "bertctl predict RUN reviews.parquet -o 'answers/part-{shard}.jsonl' --threads 4 "
            "--shard": left_apart,
            "$SLURM_ARRAY_TASK_ID/100": "$SLURM_ARRAY_TASK_ID/3",
        },
    )
    (tmp_path / "predict.sh").write_text(
        f'{script}{" ".join(merged)} --shard "$SLURM_ARRAY_TASK_ID/3"\n'
    )
    subprocess.run(
        [*predict, "-o", str(tmp_path / "whole.jsonl")], env=slurm.environment, check=True
    )
    parts = [tmp_path / "answers" / f"part-0000{number}-of-00003.jsonl" for number in (1, 2, 3)]
    whole = (tmp_path / "whole.jsonl").read_bytes()

    def submit(*options: str) -> None:
        job = slurm.ask(
            "sbatch", "--parsable", f"--chdir={tmp_path}", *options, str(tmp_path / "predict.sh")
        )
        assert job
        until(lambda: not slurm.ask("squeue", "-h", "-t", "R,PD,CG", "-j", job))

    submit()
    assert b"".join(part.read_bytes() for part in parts) == whole

    parts[1].unlink()
    submit("--array=2")
    assert b"".join(part.read_bytes() for part in parts) == whole

    subprocess.run([*merged, "--merge"], env=slurm.environment, check=True)
    assert (tmp_path / "merged.jsonl").read_bytes() == whole
