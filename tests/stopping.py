"""A small training run through the real process, which tests stop, damage and go on with."""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from bertctl.run_folder import RunFolder
from tests.nursery import Child, Nursery

SECONDS = 240.0


class Training:
    """Tiny model on 96 opinions, 12 steps of 8 an epoch; 32 held out.

    Each step is logged, a checkpoint is written every 4, and dropout is on.

    Attributes:
        model: folder of the tiny model.
        epochs: of 12 steps.
        data: the CSV file.
        undisturbed: the run as it is when nothing happens.
        nursery: where its processes come from; each is started anew, imports and all, where it is
            None.
    """

    def __init__(
        self, folder: Path, model: Path, nursery: Nursery | None = None, *, epochs: int = 4
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.nursery = nursery
        self.data = folder / "opinions.csv"
        rows = ["text,label"]
        for i in range(64):
            rows.append(f"the film was good {'very ' * (i % 3)}fine {i},pos")
            rows.append(f"it was bad food {'not ' * (i % 4)}dull {i},neg")
        self.data.write_text("\n".join(rows) + "\n", encoding="utf-8")
        self.undisturbed = folder / "undisturbed"
        done = self.start(self.undisturbed)
        assert done.returncode == 0, done.stderr

    def _command(
        self, run: Path, extra: tuple[object, ...], data: Path | None, task: str
    ) -> list[str]:
        fields = {
            "--train-file": data or self.data,
            "--model": self.model,
            "-o": run,
            "--max-length": 32,
            "--epochs": self.epochs,
            "--batch-size": 8,
            "--learning-rate": 5e-3,
            "--precision": "fp32",
            "--threads": 1,
            "--checkpoint-every": "4 steps",
        }
        options = []
        for pair in fields.items():
            options += [str(word) for word in pair if pair[0] not in extra]
        sets = [
            "training.log_every=1",
            "evaluation.bootstrap_resamples=100",
            "data.validation_fraction=0.25",
        ]
        if task in ("text-classification", "token-classification", "text-regression"):
            sets += [
                "training.preset=null",
                "model.head_start=random",
                "evaluation.baselines=false",
            ]
        return [
            "finetune",
            task,
            *options,
            *map(str, extra),
            *(w for entry in sets for w in ("--set", entry)),
        ]

    def popen(
        self, run: Path, *extra: object, data: Path | None = None, task: str = "text-classification"
    ) -> "subprocess.Popen[str] | Child":
        """Start it and come back."""
        return self._start(self._command(run, extra, data, task))

    def _start(self, words: list[str]) -> "subprocess.Popen[str] | Child":
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
        if self.nursery is not None:
            return self.nursery.start(words, cwd=Path.cwd(), env=env)
        return subprocess.Popen(
            [sys.executable, "-m", "bertctl", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def start(
        self, run: Path, *extra: object, data: Path | None = None, task: str = "text-classification"
    ) -> "subprocess.CompletedProcess[str]":
        """Start it and wait for its end."""
        return self._end(self.popen(run, *extra, data=data, task=task))

    @staticmethod
    def _end(process: "subprocess.Popen[str] | Child") -> "subprocess.CompletedProcess[str]":
        out, err = process.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode or 0, out, err)

    def disturbed(
        self,
        run: Path,
        number: signal.Signals,
        *extra: object,
        after_steps: int = 0,
        after_seconds: float = 0.0,
    ) -> "subprocess.CompletedProcess[str]":
        """Start it, send a signal after some steps and some seconds more, and wait for its end."""
        process = self.popen(run, *extra)
        self.wait_for_steps(run, after_steps, process)
        time.sleep(after_seconds)
        process.send_signal(number)
        return self._end(process)

    def resume(self, run: Path, *extra: object) -> "subprocess.CompletedProcess[str]":
        """Go on to the end."""
        done = self.start(run, "--resume", *extra)
        assert done.returncode == 0, done.stderr
        return done

    def typed(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run a command line as a person would copy it from a message."""
        return self._end(self._start(shlex.split(line)[1:]))

    @staticmethod
    def wait_for_steps(
        run: Path, steps: int, process: "subprocess.Popen[str] | Child | None" = None
    ) -> None:
        """Return when the run has logged so many steps."""
        end = time.monotonic() + SECONDS
        while len(history_losses(run)) < steps:
            assert time.monotonic() < end, "the steps did not come"
            if process is not None and process.poll() is not None:
                return
            time.sleep(0.01)


def history_losses(run: Path) -> list[float]:
    """The training loss of each step, in order."""
    file = run / "history.jsonl"
    if not file.exists():
        return []
    lines = [
        json.loads(line)
        for line in file.read_text(encoding="utf-8").splitlines(True)
        if line.endswith("\n")
    ]
    return [line["loss"] for line in lines if "loss" in line]


def difference(entry: Path, other: Path) -> str | None:
    """What is not the same, to the byte, in two finished runs; None where all is."""
    if history_losses(entry) != history_losses(other):
        return "the losses"
    names = [
        "metrics.json",
        "predictions/validation.jsonl",
        "model/model.safetensors",
        "model/config.json",
    ]
    for name in names:
        digests = {hashlib.sha256((run / name).read_bytes()).hexdigest() for run in (entry, other)}
        if len(digests) > 1:
            return name
    return None


def digests_of(folder: RunFolder) -> dict[str, str]:
    """SHA-256 of what decides a run's answers, by file."""
    paths = [
        *folder.model.rglob("*.safetensors"),
        *folder.adapter.rglob("*"),
        *(folder.path / "predictions").glob("*"),
        folder.metrics,
    ]
    return {
        str(path.relative_to(folder.path)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }
