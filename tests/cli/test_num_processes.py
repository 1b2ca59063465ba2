"""One job in two processes.

The same losses, the same bytes, one voice, the worker's own exit code.
"""

import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import ROOT, Run, TinyRun
from tests.nursery import Nursery
from tests.stopping import history_losses

FIELDS = [
    "--max-length",
    "32",
    "--epochs",
    "2",
    "--batch-size",
    "6",
    "--precision",
    "fp32",
    "--threads",
    "1",
]
SETS = [
    "--set",
    "model.dropout=0.0",
    "--set",
    "training.log_every=1",
    "--set",
    "evaluation.bootstrap_resamples=100",
]


def by_two(
    nursery: Nursery,
    folder: Path,
    *words: object,
    first: tuple[object, ...] = (),
    second: tuple[object, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """One command as two processes that meet as a job system's do.

    What both said together, and the worse code.

    Each process may have some more words of its own.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free.getsockname()[1]),
        }
    envs = [{**nursery.env, **meeting, "RANK": str(rank)} for rank in range(2)]
    typed = [[*map(str, (*words, *personal))] for personal in (first, second)]
    running = [
        nursery.start(entry, cwd=folder, env=env) for entry, env in zip(typed, envs, strict=True)
    ]
    outputs = [process.communicate(timeout=3600) for process in running]
    out, err = ("".join(streams) for streams in zip(*outputs, strict=True))
    return subprocess.CompletedProcess([], max(process.wait() for process in running), out, err)


@pytest.mark.parametrize(
    "extra",
    [None, pytest.param(["--set", "training.accumulation_steps=2"], marks=pytest.mark.slow)],
)
def test_losses_do_not_depend_on_who_computes_them(
    bertctl: Run,
    nursery: Nursery,
    tiny_model: Path,
    opinions: Path,
    tmp_path: Path,
    extra: list[str] | None,
) -> None:
    """16 examples in batches of 6: the last batch is 4, which two processes share too."""
    command = [
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--validation-file",
        opinions,
    ]
    command += ["--model", tiny_model, *FIELDS, *SETS]
    alone = bertctl(*command, "-o", "alone")
    assert alone.returncode == 0, alone.stderr
    words = [*command, *(extra or ()), "-o", "shared", "--json"]
    shared = by_two(nursery, tmp_path, *words) if extra is None else bertctl(*words)
    assert shared.returncode == 0, shared.stderr
    assert len(history_losses(tmp_path / "alone")) == 6
    assert history_losses(tmp_path / "shared") == pytest.approx(
        history_losses(tmp_path / "alone"), abs=1e-4
    )
    assert json.loads(shared.stdout)["run"] == "shared"
    assert shared.stderr.count("run folder") <= 2, "one process speaks"
    if extra is None:
        assert json.loads((tmp_path / "shared" / "performance.json").read_text())["processes"] == 2


@pytest.mark.slow
def test_two_processes_score_to_the_same_bytes(
    bertctl: Run, nursery: Nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    done = bertctl(
        "evaluate", tiny_run.path, "--file", tiny_run.data, "-o", "one", "--threads", "1"
    )
    two = by_two(
        nursery,
        tmp_path,
        "evaluate",
        tiny_run.path,
        "--file",
        tiny_run.data,
        "-o",
        "two",
        "--threads",
        "1",
    )
    assert done.returncode == 0, two.stderr
    assert two.returncode == 0
    for name in ("metrics.json", "predictions/file.jsonl"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("other", ["rows", "seed"])
def test_processes_with_different_jobs_are_refused(
    nursery: Nursery, opinions: Path, tiny_model: Path, tmp_path: Path, other: str
) -> None:
    """Where one had fewer rows, the others waited for it without end.

    Another seed trained on other rows, unsaid.
    """
    words = (
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        *FIELDS,
        "-o",
        "run",
    )
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("".join(opinions.read_text().splitlines(keepends=True)[:-4]))
    second = ("--seed", 7) if other == "seed" else ("--train-file", fewer)
    refused = by_two(nursery, tmp_path, *words, "--validation-file", opinions, second=second)
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.count("have different settings, rows or models") == 1, refused.stderr
    assert not (tmp_path / "run").exists()


def test_processes_that_go_on_from_other_places_are_refused(
    bertctl: Run, nursery: Nursery, opinions: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """As where the run is on a disk of the first one.

    With a checkpoint they waited for each other without end.
    """
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--validation-file",
        opinions,
    ]
    words += ["--model", tiny_model, *FIELDS]
    done = bertctl(*words, "-o", "run")
    assert done.returncode == 0, done.stderr
    others = by_two(nursery, tmp_path, *words, "--resume-if-any", "-o", "run")
    assert others.returncode == 0, others.stderr
    refused = by_two(
        nursery,
        tmp_path,
        *words,
        "--resume-if-any",
        first=("-o", "run"),
        second=("-o", "elsewhere"),
    )
    assert refused.returncode == 2, refused.stderr
    assert "have different settings, rows or models" in refused.stderr


def test_processes_that_read_other_rows_predict_nothing(
    nursery: Nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """Answers to the rows of one were written as answers to those of the other."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {i}\n" for i in range(100)))
    words = ("predict", tiny_run.path, "--threads", "1", "-o", "answers.jsonl")
    refused = by_two(nursery, tmp_path, *words, second=("two.txt",), first=("one.txt",))
    assert refused.returncode == 2, refused.stderr
    assert "have different settings, rows or models" in refused.stderr
    assert not (tmp_path / "answers.jsonl").exists()


@pytest.mark.parametrize("other", ["rows", "pooling"])
def test_processes_that_read_other_vectors_write_none(
    nursery: Nursery, tiny_model: Path, tmp_path: Path, other: str
) -> None:
    """Each computes every second chunk: the file held vectors of both."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {i}\n" for i in range(9000)))
    words = (
        "extract-features",
        "--model",
        tiny_model,
        "--max-length",
        4,
        "--threads",
        1,
        "-o",
        "v.npy",
    )
    second = ("one.txt", "--pooling", "cls") if other == "pooling" else ("two.txt",)
    refused = by_two(nursery, tmp_path, *words, first=("one.txt",), second=second)
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.count("have different settings, rows or models") == 1, refused.stderr
    assert not (tmp_path / "v.npy").exists()


@pytest.mark.parametrize("other", ["model", "batch-size"])
def test_processes_with_other_models_predict_nothing(
    nursery: Nursery, tiny_run: TinyRun, tmp_path: Path, other: str
) -> None:
    """Every second batch was answered by another model.

    With batches of other sizes some rows by none, or by both.
    """
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    weights = run / "model" / "model.safetensors"
    if other == "model":
        save_file(
            {name: 2 * values for name, values in load_file(weights).items()},
            weights,
            {"format": "pt"},
        )
    first = (tiny_run.path, "--batch-size", 4)
    second = (run, "--batch-size", 4 if other == "model" else 5)
    words = ("--threads", "1", "-o", "answers.jsonl", tiny_run.data)
    refused = by_two(nursery, tmp_path, "predict", first=(*first, *words), second=(*second, *words))
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.count("have different settings, rows or models") == 1, refused.stderr
    assert not (tmp_path / "answers.jsonl").exists()


def test_nobody_leaves_the_meeting_before_all_are_there(tmp_path: Path) -> None:
    """A refusal right after it ended some of three or four processes.

    The others waited for these for seven days.
    """
    code = """if True:
        import os, time, torch.distributed as dist
        from pathlib import Path
        from bertctl.runtime.launch import leave, workers
        meet = dist.init_process_group
        def late(*args, **more):
            meet(*args, **more)
            if os.environ["RANK"] == "1":
                time.sleep(1)
                Path("met").touch()
        dist.init_process_group = late
        workers()
        leave(0 if Path("met").exists() else 1)
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    envs = [{**meeting, "RANK": str(rank), "PYTHONPATH": str(ROOT)} for rank in range(2)]
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env) for env in envs]
    assert [process.wait() for process in both] == [0, 0]


@pytest.mark.parametrize("port", ["abc", "99999", ""])
def test_a_port_that_is_none_or_taken_is_no_bug(bertctl: Run, tiny_run: TinyRun, port: str) -> None:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        connection.listen()
        port = port or str(connection.getsockname()[1])
        env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        refused = bertctl("predict", tiny_run.path, "--text", "good", env=env)
    assert refused.returncode == 2, refused.stderr
    assert f"can't meet at MASTER_PORT={port}" in refused.stderr


def test_who_waits_for_the_others_ends_with_the_first_one(
    nursery: Nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """It ended with code 1, as a bug does."""
    code = """if True:
        import sys, time, torch.distributed as dist
        store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), 3, True, wait_for_workers=False)
        before = store.num_keys()
        while store.num_keys() == before:
            time.sleep(0.01)
        print("one is here and waits for the third", flush=True)
        time.sleep(3600)
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {
        **nursery.env,
        "RANK": "1",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    with subprocess.Popen(
        [sys.executable, "-c", code, port], stdout=subprocess.PIPE, text=True
    ) as first:
        second = nursery.start(
            ["predict", str(tiny_run.path), "--text", "good"], cwd=tmp_path, env=env
        )
        assert first.stdout is not None
        assert "waits" in first.stdout.readline()
        first.kill()
        second.communicate()
    assert first.returncode == -9
    assert second.returncode == 5


@pytest.mark.parametrize(("size", "code"), [("x", 2), ("0", 0)])
def test_how_many_processes_a_machine_has_is_a_number(
    bertctl: Run, tiny_model: Path, opinions: Path, size: str, code: int
) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": size}
    done = bertctl(
        "extract-features",
        opinions,
        "--model",
        tiny_model,
        "--max-length",
        8,
        "-o",
        "v.npy",
        env=env,
    )
    assert done.returncode == code, done.stderr
    assert code == 0 or "LOCAL_WORLD_SIZE='x' in the environment: a whole number" in done.stderr


@pytest.mark.slow
def test_two_processes_of_our_own_predict_the_same_bytes(bertctl: Run, tiny_run: TinyRun) -> None:
    lines = "".join(f"it was fine {i}\n" for i in range(150))  # three batches for two processes
    alone = bertctl("predict", tiny_run.path, "-", "--threads", "1", input=lines)
    shared = bertctl("predict", tiny_run.path, "-", "--num-processes", "2", input=lines)
    assert alone.returncode == 0, shared.stderr
    assert shared.returncode == 0
    assert alone.stdout == shared.stdout
    assert alone.stdout.count("\n") == 150


@pytest.mark.slow
def test_packed_stdin_is_unpacked_for_several_processes(tiny_run: TinyRun, tmp_path: Path) -> None:
    """A file takes the place of stdin, which is told to be gzip by its first bytes."""
    packed = gzip.compress(b"it was fine\nvery dull\n")
    words = ("predict", tiny_run.path, "-", "--num-processes", "2", "--device", "cpu")
    command = [sys.executable, "-m", "bertctl", *map(str, words)]
    done = subprocess.run(
        command,
        input=packed,
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == [
        "it was fine",
        "very dull",
    ]


@pytest.mark.slow
def test_a_dash_that_is_not_the_input_stays_one_for_several_processes(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """A text, and the name of a file of answers.

    The file lay in the folder of stdin's copy and was gone with it.
    """
    two = ("--num-processes", "2", "--device", "cpu")
    completed = bertctl("predict", tiny_run.path, "--text", "-", *two)
    assert json.loads(completed.stdout)["text"] == "-", completed.stderr
    done = bertctl("predict", tiny_run.path, "-o", "-", "-", *two, input="it was fine\n")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "-").read_text())["text"] == "it was fine"


@pytest.mark.slow
def test_a_refusal_is_said_once_with_its_own_code(
    bertctl: Run, tiny_model: Path, opinions: Path
) -> None:
    opinions.write_text(opinions.read_text() + "a text without a label,\n")
    refused = bertctl(
        *(
            "finetune",
            "text-classification",
            "--train-file",
            opinions,
            "--model",
            tiny_model,
            *FIELDS,
        ),
        *("--num-processes", "2"),
    )
    assert refused.returncode == 3, refused.stderr
    assert refused.stderr.count("the label is empty") == 1, refused.stderr
    assert "Traceback" not in refused.stderr
    assert "torch" not in refused.stderr


def test_processes_that_are_started_together_read_the_same_pipe(
    nursery: Nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    environment = {**nursery.env, "PATH": f"{nursery.bin}:{os.environ['PATH']}"}
    shell = (
        f"cat {tiny_run.data} > rows.csv &"
        f" bertctl predict {tiny_run.path} rows.csv --text-column text --num-processes 2 -q -o "
        "piped.jsonl &&"
        f" bertctl predict {tiny_run.path} {tiny_run.data} --text-column text -q -o plain.jsonl"
    )

    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    assert done.returncode == 0, done.stderr
    predictions = [
        [json.loads(line)["prediction"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("piped.jsonl", "plain.jsonl")
    ]
    assert predictions[0] == predictions[1]


def test_processes_that_are_started_one_by_one_share_no_pipe(
    nursery: Nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "rows.csv")

    refused = by_two(
        nursery,
        tmp_path,
        "predict",
        tiny_run.path,
        "rows.csv",
        "--text-column",
        "text",
        "-o",
        "p.jsonl",
    )

    assert refused.returncode == 4, refused.stderr
    assert "each would read a part of it" in refused.stderr
