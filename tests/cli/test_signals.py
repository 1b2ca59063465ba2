"""Ctrl-C, SIGTERM and SIGHUP from the first line to the last.

The right code, no traceback, nothing lost.

When a signal is sent is said by what the process does, not by a clock: by the module that it
imports (Python tells of each), or by the step that a training has logged.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertctl.features.chunks import CHUNK_ROWS
from tests.cli.test_json_errors import one_document
from tests.conftest import TinyRun
from tests.nursery import Nursery
from tests.stopping import Training, difference

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}


def _stopped_at_import(
    words: list[str], at: int, number: int, folder: Path
) -> tuple[int, str, str]:
    """A real process that gets a signal while it imports.

    It gets it when it has imported so many modules after `bertctl.cli.main`.
    """
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "bertctl", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        # A shell that starts the tests in the background has them ignore Ctrl-C, and so would the
        # process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    observed = -1
    message = []
    for line in process.stderr:
        if not line.startswith("import time:"):
            message.append(line)
        elif observed >= 0 or line.endswith(" bertctl.cli.main\n"):
            observed += 1
            if observed > at:
                process.send_signal(number)
                break
    out, err = process.communicate(timeout=3600)
    message += [
        line for line in err.splitlines(keepends=True) if not line.startswith("import time:")
    ]
    return process.returncode, out, "".join(message)


def _check_stop(words: list[str], at: int, number: signal.Signals, folder: Path) -> None:
    code, out, message = _stopped_at_import([*words, "--json"], at, number, folder)
    assert code == CODES[number], (at, message)
    assert one_document(out, code)["kind"] == "interrupted"
    assert "Traceback" not in message
    assert "Exception ignored" not in message
    assert "error: " in message


@pytest.mark.parametrize(
    ("at", "number"), [(0, signal.SIGINT), (25, signal.SIGTERM), (120, signal.SIGHUP)]
)
def test_a_signal_while_it_starts(tmp_path: Path, at: int, number: signal.Signals) -> None:
    _check_stop(["docs"], at, number, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
def test_a_signal_at_any_import_of_a_training(
    tiny_run: TinyRun, tiny_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """2,500 modules, torch among them; 24 of the moments for each signal."""
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        str(tiny_run.data),
        "--model",
        str(tiny_model),
    ]
    for at in range(0, 2400, 100):
        _check_stop([*words, "--max-length", "16", "-o", f"run-{at}"], at, number, tmp_path)


@pytest.fixture(scope="module")
def training(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery
) -> Training:
    return Training(tmp_path_factory.mktemp("training"), tiny_model, nursery, epochs=2)


def test_a_terminal_that_closes_leaves_a_checkpoint(training: Training, tmp_path: Path) -> None:
    """SIGHUP, with --json: the error is the document, and the run goes on to the same end."""
    run = tmp_path / "run"
    stopped = training.disturbed(run, signal.SIGHUP, "--json", after_steps=7)
    assert stopped.returncode == 143, stopped.stderr
    document = one_document(stopped.stdout, 143)
    assert "checkpoint" in str(document["message"])
    assert "--resume" in str(document["remedy"])
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted"
    training.resume(run)
    assert difference(training.undisturbed, run) is None


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_second_signal_ends_it_at_once(
    training: Training, tmp_path: Path, number: signal.Signals
) -> None:
    """No death by signal, no traceback; what a checkpoint holds is not lost."""
    run = tmp_path / "run"
    process = training.popen(run)
    training.wait_for_steps(run, 9, process)
    process.send_signal(number)
    process.send_signal(number)
    _, message = process.communicate(timeout=3600)
    assert process.returncode == CODES[number], message
    assert "Traceback" not in message
    training.resume(run)
    assert difference(training.undisturbed, run) is None


@pytest.mark.slow
def test_texts_of_an_index_outlive_it_and_that_is_said(tiny_model: Path, tmp_path: Path) -> None:
    """The first chunk of texts is whole, and the process waits for the others."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bertctl",
            "index",
            "-",
            "-o",
            "x",
            "--model",
            str(tiny_model),
            "--max-length",
            "16",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None
    process.stdin.write(b"a film\n" * (CHUNK_ROWS + 1000))
    process.stdin.flush()
    document = tmp_path / "x" / "index.json"
    while not document.exists() or json.loads(document.read_text())["rows"] < CHUNK_ROWS:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=3600)[1].decode()
    assert process.returncode == CODES[signal.SIGINT], text
    assert (
        f"error: interrupted; {CHUNK_ROWS:,} rows are whole\nType the same command with --resume"
        in text
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("times", [1, 2])
def test_several_processes_end_together(
    training: Training, tmp_path: Path, number: signal.Signals, times: int
) -> None:
    run = tmp_path / "run"
    process = training.popen(run, "--num-processes", "2", "--json")
    training.wait_for_steps(run, 6, process)
    for _ in range(times):
        process.send_signal(number)
    out, message = process.communicate(timeout=3600)
    assert process.returncode == CODES[number], message
    assert "Traceback" not in message
    one_document(out, CODES[number])
    assert training.start(run, "--num-processes", "2", "--resume-if-any").returncode == 0


@pytest.mark.slow
def test_nohup_goes_on(training: Training, tmp_path: Path) -> None:
    """What was ignored from the start stays ignored, in workers too."""
    for count in (1, 2):
        run = tmp_path / f"run-{count}"
        words = training._command(run, ("--num-processes", str(count)), None, "text-classification")
        process = subprocess.Popen(
            [sys.executable, "-m", "bertctl", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        Training.wait_for_steps(run, 2)
        process.send_signal(signal.SIGHUP)
        assert process.wait(3600) == 0
        assert json.loads((run / "status.json").read_text())["state"] == "done"
