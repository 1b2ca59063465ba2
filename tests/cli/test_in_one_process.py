"""Commands after each other in one process.

The same to the byte as in processes of their own, and the process as it was before.
"""

import contextlib
import csv
import gc
import io
import logging
import os
import random
import re
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from transformers.utils import logging as transformers_logging

from bertctl.cli.main import main
from bertctl.session import current, opened
from tests.conftest import TinyRun
from tests.in_process import warnings_as_in_a_new_process
from tests.nursery import Nursery

TRAINING = (
    "finetune text-classification --train-file opinions.csv --model MODEL -o run --epochs 2 "
    "--max-length 16"
    " --precision fp32 --set evaluation.bootstrap_resamples=100 --quiet"
)
COMMANDS = (
    "recipes ls",
    "recipes show demo",
    "--offline recipes ls",
    "predict RUN lines.txt --offline",
    "recipes validate bad.yaml",
    "tokenize --file lines.txt -o lines.txt --model MODEL",
    "tokenize --file lines.txt --model MODEL",
    f"{TRAINING} --set training.seed=3",
    "predict RUN lines.txt",
    "gate RUN --min accuracy=0.9 --policy point --json",
    "finetune nowhere.yaml",
    "extract-features lines.txt --model MODEL --max-length 16 -o features.npy --quiet",
    "similarity the-film a-dull-film --model MODEL",
    "recipes diff sst2 demo",
    "recipes schema",
    "data check opinions.csv --quiet",
    "data cp demo copied",
    "vocab show MODEL",
    "vocab search good MODEL",
    "vocab coverage lines.txt --model MODEL",
    "inspect MODEL",
    "explain RUN a-good-film",
    "compare RUN RUN",
    "report RUN -o report.html",
    "evaluate RUN --file opinions.csv -o scored --quiet",
    "index lines.txt -o index --model MODEL --quiet",
    "mine lines.txt --model MODEL --quiet",
    "cluster lines.txt --model MODEL --clusters 2 --quiet",
    "attention MODEL a-good-film",
    f"{TRAINING} --set training.seed=4 --dry-run",
    "docs tutorial",
    "predict RUN nowhere.csv --json",
    "finetune --help",
    "surprise",
)
QUICK = 13
"""So many of the first commands are run by default, all of them with the slow tests."""

TIMES = (".lock", "performance.json", "log.txt", "environment.json", "status.json")
"""Files in which seconds, moments and numbers of processes stand."""

_SPEEDS = re.compile(rb', "(examples|tokens)_per_second": [\d.e+-]+')
"""What depends on a clock in history.jsonl."""

AT_IMPORT = {"environment", "generators", "descriptors", "filters"}
"""What libraries change when they are imported: looked at when all commands have run once."""


@dataclass(frozen=True)
class Outcome:
    """What a command leaves: exit code, what it said, and its files."""

    code: int
    stdout: str
    stderr: str
    files: dict[str, bytes]

    def unlike(self, other: "Outcome") -> list[object]:
        """What is not the same, with the names of files."""
        pairs: list[tuple[object, object]] = [
            (self.code, other.code),
            (self.stdout, other.stdout),
            (self.stderr, other.stderr),
        ]
        names = sorted(self.files.keys() | other.files.keys())
        differing = [name for name in names if self.files.get(name) != other.files.get(name)]
        return [*(pair for pair in pairs if pair[0] != pair[1]), *differing]


@pytest.fixture
def make_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A function that makes the working folder anew, at the same path and with the same files."""

    def make() -> Path:
        folder = tmp_path / "work"
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "lines.txt").write_text("the film was fine\na dull film\nbad food, not bright\n")
        rows = [f"the film was good {i},pos\nit was bad food {i},neg\n" for i in range(6)]
        (folder / "opinions.csv").write_text("text,label\n" + "".join(rows))
        (folder / "bad.yaml").write_text("name: bad\ntraining: {epoch: 1}\n")
        monkeypatch.chdir(folder)
        return folder

    return make


def _typed(command: str, run: Path, model: Path) -> list[str]:
    words = {"RUN": str(run), "MODEL": str(model)}
    typed = []
    for word in command.split():
        filled_in = words.get(word, word)
        typed.append(filled_in.replace("-film", " film"))
    return typed


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): _SPEEDS.sub(b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in TIMES
    }


def _state() -> dict[str, Any]:
    """What commands change in their process, or could."""
    gc.collect()  # files that are held in circles are closed
    return {
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "arguments": list(sys.argv),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "hooks": (sys.unraisablehook, sys.excepthook, threading.excepthook),
        "session": current(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "generators": (
            random.getstate(),
            str(np.random.get_state()),
            torch.get_rng_state().numpy().tobytes(),
        ),
        "cells": csv.field_size_limit(),
        "handlers": list(logging.getLogger().handlers),
        "verbosity": transformers_logging.get_verbosity(),
        "bars": transformers_logging.is_progress_bar_enabled(),
        "filters": list(warnings.filters),
        "hub": {name: value for name, value in vars(constants).items() if name.isupper()},
        "descriptors": _open_files(),
    }


def _open_files() -> list[str]:
    """Returns what the open descriptors stand for, sorted.

    Without the fonts that matplotlib keeps open for each thread.
    """
    gc.collect()
    names = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            names.append(str(path.readlink()))
    selected_names = [name for name in names if "/mpl-data/fonts/" not in name]
    return sorted(re.sub(r"\[\d+\]", "[]", name) for name in selected_names)


def _here(words: Sequence[str]) -> tuple[int, str, str]:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        warnings_as_in_a_new_process(),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        code = main(words)
    messages = []
    for stream in (stdout, stderr):
        stream.flush()
        messages.append(stream.buffer.getvalue().decode())
    return code, *messages


def _in_a_thread(words: Sequence[str]) -> tuple[int, str, str]:
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(_here(words)))
    thread.start()
    thread.join()
    return outcomes[0]


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(COMMANDS[:QUICK], id=f"{QUICK} commands"),
        pytest.param(COMMANDS, id=f"{len(COMMANDS)} commands", marks=pytest.mark.slow),
    ],
)
def test_commands_in_one_process_are_as_in_many(
    commands: Sequence[str],
    nursery: Nursery,
    make_folder: Callable[[], Path],
    tiny_run: TinyRun,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the order above in the main thread, and in another one backwards in other threads."""
    expected = {}
    for command in commands:
        folder = make_folder()
        done = nursery.run(_typed(command, tiny_run.path, tiny_model), cwd=folder)
        expected[command] = Outcome(done.returncode, done.stdout, done.stderr, _files(folder))

    orders = (
        (commands, _here, AT_IMPORT),
        ([*reversed(commands)], _in_a_thread, set[str]()),
    )
    for order, take, left_out in orders:
        for command in order:
            folder = make_folder()
            before = _state()
            code, stdout, stderr = take(_typed(command, tiny_run.path, tiny_model))
            after = _state()
            outcome = Outcome(code, stdout, stderr, _files(folder))
            assert outcome.unlike(expected[command]) == [], command
            for part in before.keys() - left_out:
                assert after[part] == before[part], f"{part} after {command}"


def test_at_least_30_commands_are_compared() -> None:
    assert len(set(COMMANDS)) >= 30
    verbs = {next(word for word in command.split() if word[0] != "-") for command in COMMANDS}
    assert len(verbs) >= 18


def test_an_input_of_one_command_is_an_output_of_the_next(
    make_folder: Callable[[], Path], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder()
    model = ["--model", str(tiny_model)]
    assert _here(["tokenize", "--file", "lines.txt", "-o", "tokens.jsonl", *model])[0] == 0
    assert (
        _here(
            [
                "tokenize",
                "--file",
                "tokens.jsonl",
                "--input-format",
                "lines",
                "-o",
                "lines.txt",
                *model,
            ]
        )[0]
        == 0
    )


def test_offline_ends_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert _here(["tokenize", "a", "--model", "someone/something", "--offline"])[0] == 4
    assert "HF_HUB_OFFLINE" not in os.environ
    assert constants.HF_HUB_OFFLINE is False


def test_a_command_in_a_thread_waits_for_the_one_before() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(_here(["recipes", "ls"])[0]))
    with opened():
        thread.start()
        thread.join(0.05)
        assert not codes
    thread.join()
    assert codes == [0]
