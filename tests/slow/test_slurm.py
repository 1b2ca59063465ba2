"""A real Slurm, without and with accounting.

A controller and two nodes on this machine (tests/slurm_cluster.py).

Needs `apt install slurm-wlm munge` (for accounting `slurmdbd mariadb-server` as well), root, and
for sweeps the extra `slurm`. Whatever becomes of a job, the results are the bytes of one process,
and each run is computed to its end once.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT, TinyRun
from tests.nursery import Nursery
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm, until
from tests.slurm_sweeps import (
    Sweep,
    assert_each_run_ended_once,
    cells,
    done_cells,
    hold_a_run,
    is_done,
    is_pending,
    kill,
    last_step,
    results,
    times_of,
    training_words,
    wait,
    worker_of,
    write_opinions,
)

pytestmark = pytest.mark.slow

_EXCLUSIVE = {"SBATCH_EXCLUSIVE": "exclusive"}
"""One job per node."""


@pytest.fixture(scope="module", params=["without accounting", "with accounting"])
def slurm(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """A Slurm of two nodes."""
    accounting = request.param == "with accounting"
    missing = missing_programs(accounting=accounting)
    if missing:
        packages = "slurm-wlm munge"
        if accounting:
            packages += " slurmdbd mariadb-server"
        pytest.skip(f"no Slurm here (apt install {packages}): {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")

    with running_slurm(accounting=accounting) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def opinions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "opinions.csv"
    write_opinions(path)
    return path


@pytest.fixture
def one_run(opinions: Path, tiny_model: Path) -> Iterator[Sweep]:
    """A sweep of one run."""
    pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    sweep = Sweep(opinions, tiny_model, rates="3e-3", epochs=20)
    yield sweep
    sweep.kill_all()


@pytest.fixture
def three_runs(opinions: Path, tiny_model: Path) -> Iterator[Sweep]:
    """A sweep of three runs."""
    pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    sweep = Sweep(opinions, tiny_model, rates="5e-3,3e-3,1e-3", epochs=10)
    yield sweep
    sweep.kill_all()


@pytest.fixture(scope="module")
def results_here(
    tmp_path_factory: pytest.TempPathFactory, nursery: Nursery
) -> Callable[[Sweep], dict[str, str]]:
    """Function that gives the results of a sweep by one process on this machine."""
    known: dict[str, dict[str, str]] = {}

    def compute(sweep: Sweep) -> dict[str, str]:
        key = " ".join(sweep.words)
        if key not in known:
            folder = tmp_path_factory.mktemp("here") / "sweep"
            process = nursery.run([*sweep.words, "-o", folder], cwd=folder.parent)
            assert process.returncode == 0, process.stderr
            assert done_cells(folder) == cells(folder)
            known[key] = results(folder)
        return known[key]

    return compute


@pytest.fixture
def shell(slurm: SlurmCluster, nursery: Nursery) -> dict[str, str]:
    """Environment of the cluster whose `bertctl` has its imports done.

    A process that it starts is no child of Slurm's: such a job is not killed.
    """
    path = f"{nursery.bin}:{slurm.environment['PATH']}"
    return {**slurm.environment, "PATH": path}


def _messages_of_the_rest(
    sweep: "subprocess.Popen[str]",
    folder: Path,
    slurm: SlurmCluster,
    expected: dict[str, str],
) -> str:
    """Waits for a sweep, checks what it has computed, and returns its messages."""
    messages = wait(sweep)
    assert results(folder) == expected
    assert_each_run_ended_once(folder, slurm)
    return messages


def _assert_goes_on_from_a_checkpoint(messages: str, job: str) -> None:
    match = re.search(
        rf"job {job} ended before the run did .*; it continues from step (\d+) in another job",
        messages,
    )
    assert match is not None, messages
    assert int(match[1]) > 20, "the checkpoint was saved when the job was told to stop"


def test_scancel_saves_a_checkpoint_and_another_job_goes_on(
    slurm: SlurmCluster, one_run: Sweep, results_here: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    expected = results_here(one_run)
    folder = tmp_path / "sweep"
    sweep = one_run.start(folder, slurm)

    job = hold_a_run(folder, slurm, sweep)
    slurm.ask("scancel", job)

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    _assert_goes_on_from_a_checkpoint(messages, job)
    environment = json.loads((cells(folder)[0] / "environment.json").read_text())
    assert environment["command"].startswith("bertctl sweep text-classification")


def test_the_signal_of_a_time_limit_may_come_several_times(
    slurm: SlurmCluster, one_run: Sweep, results_here: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    expected = results_here(one_run)
    folder = tmp_path / "sweep"
    sweep = one_run.start(folder, slurm)

    job = hold_a_run(folder, slurm, sweep)
    worker = worker_of(slurm, job)
    for _ in range(3):  # as batch systems do
        slurm.ask("scancel", "--signal=USR2", job)
    until(lambda: is_pending(signal.SIGTERM, worker), process=sweep)
    worker.resume()

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    _assert_goes_on_from_a_checkpoint(messages, job)


def test_a_time_limit_saves_a_checkpoint_and_another_job_goes_on(
    slurm: SlurmCluster, one_run: Sweep, results_here: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Slurm's signal comes before the limit, and not while the job starts."""
    expected = results_here(one_run)
    folder = tmp_path / "sweep"
    sweep = one_run.start(folder, slurm, SBATCH_TIMELIMIT="1:00:00")

    job = hold_a_run(folder, slurm, sweep)
    worker = worker_of(slurm, job)
    # However long it took to start, the job has more than a minute left.
    minutes = int(slurm.ask("squeue", "-h", "-j", job, "-o", "%M").split(":")[-2])
    slurm.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes + 2}")
    until(lambda: is_pending(signal.SIGTERM, worker), process=sweep)
    if worker.is_running():
        worker.resume()

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    _assert_goes_on_from_a_checkpoint(messages, job)


def test_kill_9_of_a_job_starts_its_run_again_in_another_job(
    slurm: SlurmCluster, one_run: Sweep, results_here: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Without accounting, submitit waited for such a job for ever."""
    expected = results_here(one_run)
    folder = tmp_path / "sweep"
    sweep = one_run.start(folder, slurm)

    job = hold_a_run(folder, slurm, sweep)
    slurm.job_process(job).kill()

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    assert f"job {job} ended before the run did (Slurm says FAILED" in messages
    assert "sacct" not in messages


def test_a_requeue_by_slurm_starts_no_second_job_of_a_run(
    slurm: SlurmCluster, one_run: Sweep, results_here: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Even where the person's own SBATCH_REQUEUE allows it."""
    expected = results_here(one_run)
    folder = tmp_path / "sweep"
    sweep = one_run.start(folder, slurm, SBATCH_REQUEUE="1")

    job = hold_a_run(folder, slurm, sweep)
    slurm.ask("scontrol", "requeue", job)
    # Where the requeue was refused, nothing else wakes the run.
    worker_of(slurm, job).resume()

    _messages_of_the_rest(sweep, folder, slurm, expected)


def test_a_lost_node_takes_no_finished_run_with_it(
    slurm: SlurmCluster,
    three_runs: Sweep,
    results_here: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    """Slurm requeues the jobs of a lost node by default (JobRequeue=1).

    Finished runs were trained again.
    """
    expected = results_here(three_runs)
    folder = tmp_path / "sweep"
    sweep = three_runs.start(folder, slurm, **_EXCLUSIVE)

    job = hold_a_run(folder, slurm, sweep)
    until(lambda: done_cells(folder), process=sweep)
    node = slurm.ask("squeue", "-h", "-j", job, "-o", "%N")
    slurm.lose_node(node)
    done = done_cells(folder)
    times = times_of(done)

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    assert f"job {job} ended before the run did (Slurm says NODE_FAIL" in messages
    slurm.start_node(node)
    until(lambda: not slurm.jobs("R", "PD", "CG"))
    assert times_of(done) == times


def test_a_killed_sweep_that_is_started_again_trains_no_run_twice(
    slurm: SlurmCluster,
    three_runs: Sweep,
    results_here: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    """A run is done, another one is under way when the sweep's own command is killed."""
    expected = results_here(three_runs)
    folder = tmp_path / "sweep"
    sweep = three_runs.start(folder, slurm, **_EXCLUSIVE)

    job = hold_a_run(folder, slurm, sweep)
    until(lambda: done_cells(folder), process=sweep)
    kill(sweep)
    done = done_cells(folder)
    times = times_of(done)
    sweep = three_runs.start(folder, slurm, **_EXCLUSIVE)

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    assert re.search(rf"of an earlier command cancelled: .*\b{job}\b", messages)
    assert times_of(done) == times


def test_an_array_job_of_shards_merges_to_the_same_sweep(
    shell: dict[str, str],
    three_runs: Sweep,
    results_here: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    expected = results_here(three_runs)
    words = " ".join(three_runs.words)
    script = tmp_path / "shards.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --array=1-2\n"
        f'bertctl {words} --shard "$SLURM_ARRAY_TASK_ID/2" -o "part$SLURM_ARRAY_TASK_ID"\n'
    )

    _run_batch_file(shell, script)
    _run(shell, tmp_path, "bertctl sweep-merge part1 part2 -o whole")

    assert results(tmp_path / "whole") == expected


def test_sbatch_that_refuses_its_options_is_an_error_at_once(
    slurm: SlurmCluster, one_run: Sweep, tmp_path: Path
) -> None:
    """Such a job was submitted five times, and then called lost."""
    if slurm.has_accounting:
        refusals = {("SBATCH_QOS", "nowhere"): "Invalid qos specification"}
    else:
        refusals = {
            ("SBATCH_PARTITION", "nowhere"): "invalid partition specified: nowhere",
            ("SBATCH_MEM_PER_NODE", "900G"): "Memory specification can not be satisfied",
            ("SBATCH_TIMELIMIT", "soon"): "Invalid --time specification",
        }
    for (variable, value), sentence in refusals.items():
        folder = tmp_path / variable
        sweep = one_run.start(folder, slurm, **{variable: value})
        _, messages = sweep.communicate()

        assert sweep.returncode == 2, messages
        (line,) = [line for line in messages.splitlines() if "sbatch refuses the jobs: " in line]
        assert sentence in line
        assert f"{variable}={value}" in messages
        assert messages.count(sentence) == 1, "submitit does not repeat it"
        assert "ended before the run did" not in messages
        assert not cells(folder)
    assert slurm.jobs("R", "PD") == []


def test_runs_beyond_a_limit_of_jobs_wait_for_the_others(
    slurm: SlurmCluster,
    three_runs: Sweep,
    results_here: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    if not slurm.has_accounting:
        pytest.skip("limits need accounting")
    expected = results_here(three_runs)
    folder = tmp_path / "sweep"

    sweep = three_runs.start(folder, slurm, SBATCH_QOS="onejob")

    messages = _messages_of_the_rest(sweep, folder, slurm, expected)
    assert "other runs wait until one of the jobs has ended" in messages


def test_a_job_that_can_never_start_is_named(
    slurm: SlurmCluster, one_run: Sweep, tmp_path: Path
) -> None:
    """Slurm takes a job whose time is longer than its partition allows, and never starts it."""
    sweep = one_run.start(tmp_path / "sweep", slurm, SBATCH_TIMELIMIT="900-0")
    assert sweep.stderr is not None

    warning = next(line for line in sweep.stderr if "will not start before" in line)
    sweep.send_signal(signal.SIGTERM)
    sweep.communicate()

    assert "Slurm's reason is Partition" in warning
    assert sweep.returncode == 143
    until(lambda: not slurm.jobs("R", "PD", "CG"))


def _page(name: str) -> str:
    return (ROOT / "bertctl" / "docs" / name).read_text(encoding="utf-8")


def _replaced(text: str, replacements: Mapping[str, str]) -> str:
    """Returns a text of the documentation, changed for this machine."""
    for words, replacement in replacements.items():
        assert words in text
        text = text.replace(words, replacement)
    return text


def _run(environment: Mapping[str, str], folder: Path, line: str) -> None:
    """Runs a line in a shell."""
    subprocess.run(
        ["bash", "-ec", line],
        cwd=folder,
        env=environment,
        check=True,
    )


def _run_batch_file(environment: Mapping[str, str], script: Path, *options: str) -> None:
    """Submits a batch file in its folder, and waits for its end."""
    command = ["sbatch", "--wait", *options, script.name]
    subprocess.run(command, cwd=script.parent, env=environment, check=True)


def test_the_line_of_the_documentation_that_sweeps(
    slurm: SlurmCluster, shell: dict[str, str], opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    (line,) = re.findall(r"^SBATCH_.*--executor slurm.*$", _page("sweeps.md"), flags=re.MULTILINE)
    words = " ".join(training_words(opinions, tiny_model, 2))
    line = _replaced(line, {"mrpc --grid paper --seeds 5": f"{words} --seeds 2"})
    here = _replaced(line, {"--executor slurm -o sweep": "-o here"})

    _run(slurm.environment, tmp_path, line)
    _run(shell, tmp_path, here)

    assert len(done_cells(tmp_path / "sweep")) == 2
    assert results(tmp_path / "sweep") == results(tmp_path / "here")
    assert_each_run_ended_once(tmp_path / "sweep", slurm)


def _batch_file(name: str, replacements: Mapping[str, str]) -> str:
    """Returns the batch file of the documentation whose job has a name.

    It is changed for this machine.
    """
    page = _page("many-devices.md")
    scripts = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", page, flags=re.DOTALL)
    (script,) = [script for script in scripts if f"--job-name={name}\n" in script]
    return _replaced(script, replacements)


def _training_file(command: Sequence[str]) -> str:
    """Returns the batch file that trains, with another command."""
    replacements = {
        "--ntasks-per-node=8": "--ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8\n": "",
        "--cpus-per-task=6": "--cpus-per-task=1",
        "bertctl finetune mnli -o RUN --resume-if-any": f"{' '.join(command)} --resume-if-any",
    }
    return _batch_file("mnli", replacements)


def test_the_batch_file_that_trains_goes_on_after_a_requeue_to_the_same_bytes(
    slurm: SlurmCluster, shell: dict[str, str], opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Two tasks on two nodes meet. Told that their time is up they save, and are requeued."""
    words = ["finetune", *training_words(opinions, tiny_model, 12), "--set", "model.dropout=0.0"]
    for name in ("unbroken", "broken"):
        run = tmp_path / name
        script = tmp_path / f"{name}.sh"
        script.write_text(_training_file(["bertctl", *words, "--threads", "1", "-o", str(run)]))
        submission = subprocess.run(
            ["sbatch", "--parsable", script.name],
            cwd=tmp_path,
            env=shell,
            capture_output=True,
            text=True,
            check=True,
        )
        job = submission.stdout.strip()
        if name == "broken":
            until(lambda: last_step(tmp_path / "broken") > 20)
            slurm.ask("scancel", "--signal=TERM", job)
            # Slurm lets a requeued job wait for two minutes. Here it waits for two seconds, as a
            # job that starts again in the second in which its credential was revoked is killed.
            until(lambda job=job: slurm.ask("squeue", "-h", "-j", job, "-o", "%r") == "BeginTime")
            slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now+2")
        until(lambda job=job: job not in slurm.jobs("R", "PD", "CG"))
        assert is_done(run), (tmp_path / f"slurm-{job}.out").read_text()

    assert "a checkpoint was saved" in (tmp_path / f"slurm-{job}.out").read_text()
    assert json.loads((tmp_path / "broken" / "performance.json").read_text())["processes"] == 2
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("unbroken", "broken")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_batch_file_that_predicts_in_an_array_answers_with_the_same_bytes(
    shell: dict[str, str], opinions: Path, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """The shards are left apart, one of them is computed again, and they are merged."""
    lines = opinions.read_text(encoding="utf-8").splitlines()
    texts = [line.rpartition(",")[0] for line in lines[1:]]
    # 5,120 rows are three chunks.
    rows = tmp_path / "reviews.csv"
    rows.write_text("\n".join(["text", *texts * 40]) + "\n", encoding="utf-8")
    predict = f"bertctl predict {tiny_run.path} reviews.csv --threads 1 --precision fp32"
    script = tmp_path / "predict.sh"
    script.write_text(
        _batch_file(
            "predict",
            {
                "--array=1-100": "--array=1-3",
                "--cpus-per-task=4": "--cpus-per-task=1",
                "bertctl predict RUN reviews.parquet": predict.replace(" --threads 1", ""),
                "--threads 4": "--threads 1",
                "$SLURM_ARRAY_TASK_ID/100": "$SLURM_ARRAY_TASK_ID/3",
            },
        )
        + f'{predict} -o merged.jsonl --shard "$SLURM_ARRAY_TASK_ID/3"\n'
    )
    _run(shell, tmp_path, f"{predict} -o whole.jsonl")
    contents = (tmp_path / "whole.jsonl").read_bytes()
    parts = [tmp_path / "answers" / f"part-0000{number}-of-00003.jsonl" for number in (1, 2, 3)]

    _run_batch_file(shell, script)
    assert b"".join(part.read_bytes() for part in parts) == contents

    parts[1].unlink()
    (again,) = re.findall(r"`sbatch (--array=\S+) predict.sh`", _page("many-devices.md"))
    _run_batch_file(shell, script, _replaced(again, {"17,42": "2"}))
    assert b"".join(part.read_bytes() for part in parts) == contents

    _run(shell, tmp_path, f"{predict} -o merged.jsonl --merge")
    assert (tmp_path / "merged.jsonl").read_bytes() == contents
