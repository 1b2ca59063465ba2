"""236 kills, at any change of a file and at any moment.

The next command ends as if nothing had happened.
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz import trained
from tests.nursery import Nursery
from tests.stopping import history_losses

pytestmark = pytest.mark.slow

_SETS = tuple(
    word for one in ("runtime.threads=1", "runtime.precision=fp32") for word in ("--set", one)
)


@dataclass(frozen=True)
class Job:
    """A command that writes something, and how it is gone on with.

    Attributes:
        words: of the command, in a folder of its own; `{data}` is where model, rows and a finished
            run are.
        again: further words the second time.
        made: what it makes in the folder.
        rounds: how often it is killed.
        over: what stands in that place before, in every second round.
        is_whole: whether its folder is there as a whole or not at all.
    """

    words: tuple[str, ...]
    again: tuple[str, ...]
    made: str
    rounds: int
    over: bytes | None = None
    is_whole: bool = False


def _training(task: str, rounds: int, *more: str) -> Job:
    again = ("--overwrite",) if task == "probe" else ("--resume-if-any",)
    words = (*trained.words(task, Path("{data}"), Path("made")), *more)
    return Job(words, again, "made", rounds)


_MODEL = ("--model", "{data}/tiny")
_VECTORS = ("--max-length", "32", "--threads", "1", "--precision", "fp32", *_MODEL)
JOBS: dict[str, Job] = {
    **{task: _training(task, 20) for task in trained.TASKS},
    "lora": _training("text-classification", 10, "--set", "lora.rank=2"),
    "pretrain": Job(
        (
            "pretrain",
            "{data}/corpus.txt",
            "--from-scratch",
            "{data}/small.json",
            "--vocab-size",
            "120",
            "-o",
            "made",
            "--batch-size",
            "4",
            "--max-length",
            "24",
            "--checkpoint-every",
            "2 steps",
            "--epochs",
            "2",
            *_SETS,
        ),
        ("--resume-if-any",),
        "made",
        10,
    ),
    "sweep": Job(
        (
            "sweep",
            "{data}/mine.yaml",
            "--grid",
            "training.epochs=1,2",
            "--seeds",
            "2",
            "-o",
            "made",
            *_SETS,
        ),
        (),
        "made",
        20,
    ),
    **{
        f"features as {suffix}": Job(
            ("extract-features", "{data}/rows.csv", "-o", f"made.{suffix}", *_VECTORS),
            ("--resume",),
            f"made.{suffix}",
            4,
        )
        for suffix in ("npy", "npz", "jsonl", "parquet", "safetensors")
    },
    "index": Job(("index", "{data}/rows.csv", "-o", "made", *_VECTORS), ("--resume",), "made", 6),
    "predict": Job(
        ("predict", "{data}/run", "{data}/rows.csv", "-o", "made.jsonl"),
        (),
        "made.jsonl",
        10,
        b"before\n",
    ),
    "predict as csv": Job(
        ("predict", "{data}/run", "{data}/rows.csv", "--format", "csv", "-o", "made.csv"),
        (),
        "made.csv",
        6,
        b"before\n",
    ),
    **{
        f"tokenize as {form}": Job(
            (
                "tokenize",
                "--file",
                "{data}/rows.csv",
                "--format",
                form,
                "-o",
                f"made.{form}",
                *_MODEL,
            ),
            (),
            f"made.{form}",
            6,
            b"before\n",
        )
        for form in ("ids", "jsonl", "parquet")
    },
    "export": Job(
        (
            "export",
            "{data}/run",
            "--rows",
            "{data}/rows.csv",
            "--threads",
            "1",
            "-o",
            "made",
        ),
        ("--overwrite",),
        "made",
        10,
        is_whole=True,
    ),
    "report": Job(("report", "{data}/run", "-o", "made.html"), (), "made.html", 6, b"before\n"),
}
"""By name; the table of what is killed."""
ROUNDS = [(name, number) for name, job in JOBS.items() for number in range(job.rounds)]
"""Every kill: 236."""

_NOT_THE_SAME = ("status.json", "environment.json", "performance.json", "log.txt", "sweep.html")
"""What says when, how fast and on which machine."""


class Yard:
    """What is killed, where, and what it makes when it is let be."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.data = folder / "data"
        self._folder = folder
        self._nursery = nursery
        self._whole: dict[str, tuple[Path, int, float]] = {}
        trained.write_inputs(self.data)
        recipe = (
            "task: text-classification\ndata: {train_file: rows.csv, validation_file: "
            "rows.csv}\nmodel: {name: tiny/, "
        )
        recipe += "max_length: 32}\ntraining: {batch_size: 4, checkpoint_every: 2 steps}\n"
        (self.data / "mine.yaml").write_text(
            recipe + "optimizer: {learning_rate: 5.0e-3}\nevaluation: {bootstrap_resamples: 100}\n",
            encoding="utf-8",
        )
        documents = (
            f"One {i} film of {i * 7}.\nIt was {i} times as good as {i + 1}.\n" for i in range(40)
        )
        (self.data / "corpus.txt").write_text("\n".join(documents), encoding="utf-8")
        size = {
            "num_hidden_layers": 1,
            "hidden_size": 16,
            "num_attention_heads": 1,
            "intermediate_size": 32,
        }
        (self.data / "small.json").write_text(json.dumps(size), encoding="utf-8")
        done = self.run(trained.words("text-classification", self.data, self.data / "run"), folder)
        assert done.returncode == 0, done.stderr

    def run(
        self,
        words: Sequence[str],
        cwd: Path,
        *,
        dies_at: int = 0,
        after: float | None = None,
        disk: int | None = None,
    ) -> Any:
        """Runs a command that is disturbed.

        It dies before a change of a file, or after some seconds, or has a disk of few bytes.
        """
        env = {**self._nursery.env, "NURSERY_IMPORTS": "dies_at", "DIES_AT": str(dies_at)}
        if disk is not None:
            env |= {"NURSERY_IMPORTS": "small_disk", "SMALL_DISK": str(disk)}
        env |= {"DIES_COUNT": str(self._folder / "count")}
        words = [word.format(data=self.data) for word in words]
        if after is None:
            return self._nursery.run(words, cwd=cwd, env=env)
        child = self._nursery.start(words, cwd=cwd, env=env)
        time.sleep(after)
        child.kill()
        child.communicate()
        return child

    def whole(self, name: str) -> tuple[Path, int, float]:
        """Returns the folder in which nothing happened.

        With it come how many changes there were, and how many seconds it took.
        """
        if name not in self._whole:
            folder = self._folder / name.replace(" ", "-")
            folder.mkdir()
            (self._folder / "count").unlink(missing_ok=True)
            started = time.monotonic()
            done = self.run(JOBS[name].words, folder)
            took = time.monotonic() - started
            assert done.returncode == 0, done.stderr
            self._whole[name] = folder, int((self._folder / "count").read_text()), took
        return self._whole[name]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Yard:
    return Yard(tmp_path_factory.mktemp("yard"), nursery)


def files(folder: Path) -> dict[str, Path]:
    """Everything that is no folder and no lock, by relative name."""
    found = (
        path
        for path in sorted(folder.rglob("*"))
        if not path.name.startswith(".lock") and not path.is_dir()
    )
    return {str(path.relative_to(folder)): path for path in found}


def halves(folder: Path, whole: Path, before: bytes | None) -> Iterator[str]:
    """Yields the files under their final names that are neither whole nor as they were before."""
    finished = files(whole)
    for name, path in files(folder).items():
        if any(part.startswith(".") for part in Path(name).parts):
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            if not _is_json(content):
                yield name
        elif path.suffix == ".jsonl" and name.startswith("made/"):
            if not all(_is_json(line) for line in content.splitlines()):
                yield name
        elif "/" not in name and content not in (before, finished[name].read_bytes()):
            yield name


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def unequal(folder: Path, whole: Path) -> list[str]:
    """Returns what is not as it is where nothing happened.

    Left over, missing, other bytes, other losses.
    """
    ours = files(folder)
    theirs = files(whole)
    found = [f"left over: {name}" for name in ours.keys() - theirs] + [
        f"missing: {name}" for name in theirs.keys() - ours
    ]
    for name in ours.keys() & theirs.keys():
        if name.endswith("history.jsonl"):
            same = history_losses(ours[name].parent) == history_losses(theirs[name].parent)
        else:
            same = name.endswith(_NOT_THE_SAME) or _content(ours[name], folder) == _content(
                theirs[name], whole
            )
        if not same:
            found.append(f"other bytes: {name}")
    return found


def _content(path: Path, folder: Path) -> bytes:
    """What is in a file, without where it is and how long things took."""
    content = path.read_bytes().replace(str(folder).encode(), b"FOLDER")
    if path.name == "sweep.json":
        document = json.loads(content)
        document.pop("performance")
        content = json.dumps(document).encode()
    return content


def test_there_are_more_than_two_hundred() -> None:
    assert len(ROUNDS) == 236


@pytest.mark.parametrize(("name", "number"), ROUNDS)
def test_killed(yard: Yard, tmp_path: Path, name: str, number: int) -> None:
    job = JOBS[name]
    whole, changes, seconds = yard.whole(name)
    random = Random(f"{name} {number}")  # noqa: S311 - moments, not secrets
    before = job.over if number % 2 else None
    if before is not None:
        (tmp_path / job.made).write_bytes(before)
    if number % 4 == 3:
        killed = yard.run(job.words, tmp_path, after=random.random() * seconds)
    else:
        share = (number + random.random()) / job.rounds
        killed = yard.run(job.words, tmp_path, dies_at=1 + int(share * changes))
    # 0: the moment came too late; 5: a worker of the sweep was killed, and the sweep went on
    # without it
    assert killed.returncode in ((-9, 0, 5) if name == "sweep" else (-9, 0)), killed.stderr
    assert list(halves(tmp_path, whole, before)) == []
    if job.is_whole and (tmp_path / job.made).exists():
        assert unequal(tmp_path / job.made, whole / job.made) == []
    done = yard.run([*job.words, *job.again], tmp_path)
    assert done.returncode == 0, done.stderr
    assert unequal(tmp_path, whole) == []


def test_killed_again_and_again(yard: Yard, tmp_path: Path) -> None:
    """Each time a little further; the last one ends it."""
    job = JOBS["text-classification"]
    whole, changes, _ = yard.whole("text-classification")
    for share in (0.3, 0.5, 0.5, 0.7):
        yard.run([*job.words, *job.again], tmp_path, dies_at=int(share * changes))
        assert list(halves(tmp_path, whole, None)) == []
    done = yard.run([*job.words, *job.again], tmp_path)
    assert done.returncode == 0, done.stderr
    assert unequal(tmp_path, whole) == []
    shutil.rmtree(tmp_path / "made")
