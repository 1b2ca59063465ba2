"""Inputs that can be read only once.

Named pipes and descriptors give the same answers as a file, in every verb.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bertctl.data.pipes import regular
from tests.conftest import TinyRun

Run = Callable[..., CompletedProcess[str]]

ROWS = [
    (
        f"it was a {'fine' if number % 2 else 'dull'} film {number:03d}",
        "pos" if number % 2 else "neg",
    )
    for number in range(60)
]

CONTENTS = {
    "rows.csv": "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS),
    "rows.tsv": "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS),
    "rows.jsonl": "".join(
        json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS
    ),
    "rows.txt": "".join(f"{text}\n" for text, _ in ROWS),
    "two.txt": "it was fine\nit was dull\n",
}


@contextlib.contextmanager
def piped(path: Path, content: str) -> Iterator[None]:
    """Makes a named pipe give this content to its first reader."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(content.encode())

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield
    with contextlib.suppress(OSError):  # whoever read nothing leaves the writer waiting
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    writer.join()


SHORT = ["--max-length", "16"]

VERBS: dict[str, tuple[str, list[str]]] = {
    "data check": ("rows.csv", ["data", "check", "FILE", "--json"]),
    "predict csv": ("rows.csv", ["predict", "RUN", "FILE"]),
    "predict tsv": ("rows.tsv", ["predict", "RUN", "FILE"]),
    "predict jsonl": ("rows.jsonl", ["predict", "RUN", "FILE"]),
    "predict lines": ("rows.txt", ["predict", "RUN", "FILE"]),
    "evaluate": ("rows.tsv", ["evaluate", "RUN", "--file", "FILE", "-o", "OUT", "--json"]),
    "extract-features": (
        "rows.tsv",
        ["extract-features", "FILE", "--model", "MODEL", *SHORT, "-o", "out.jsonl"],
    ),
    "tokenize": (
        "rows.tsv",
        ["tokenize", "--file", "FILE", "--text-column", "text", "--model", "MODEL"],
    ),
    "index": ("rows.csv", ["index", "FILE", "--model", "MODEL", *SHORT, "-o", "out.index"]),
    "mine": (
        "rows.csv",
        ["mine", "FILE", "--model", "MODEL", *SHORT, "--threshold", "0.99", "-o", "out.jsonl"],
    ),
    "cluster": (
        "rows.csv",
        ["cluster", "FILE", "--model", "MODEL", *SHORT, "--clusters", "2", "-o", "out.jsonl"],
    ),
    "finetune": ("rows.csv", ["finetune", "FILE", "--model", "MODEL", *SHORT, "--dry-run"]),
    "explain": ("two.txt", ["explain", "RUN", "FILE"]),
    "vocab train": ("rows.txt", ["vocab", "train", "FILE", "--size", "60", "-o", "out.vocab"]),
}


def _answer(bertctl: Run, words: list[str], folder: Path) -> tuple[int, str, dict[str, bytes]]:
    """Returns code, stdout and what was written, but for what names the time and the file."""
    done = bertctl(*words, cwd=folder)
    written = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("out.*"))
        if path.is_file() and path.name not in ("index.json",)
    }
    return done.returncode, done.stdout.replace(str(folder), ""), written


USUAL = ("predict tsv", "tokenize", "finetune", "vocab train")


@pytest.mark.parametrize(
    "verb",
    [*USUAL, *(pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS if verb not in USUAL)],
)
def test_a_named_pipe_gives_what_a_file_gives(
    verb: str, bertctl: Run, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    name, pattern = VERBS[verb]
    positions = {"FILE": name, "RUN": str(tiny_run.path), "MODEL": str(tiny_model), "OUT": "scores"}
    words = [positions.get(word, word) for word in pattern]
    folders = tmp_path / "file", tmp_path / "pipe"
    for folder in folders:
        folder.mkdir()
    (folders[0] / name).write_text(CONTENTS[name])
    from_file = _answer(bertctl, words, folders[0])
    with piped(folders[1] / name, CONTENTS[name]):
        from_pipe = _answer(bertctl, words, folders[1])
    assert from_file[0] == 0
    assert from_pipe == from_file


def test_all_rows_of_a_descriptor_are_read(tmp_path: Path) -> None:
    """As of `<(command)`: lines of 32 bytes, so that a buffer ends at the end of a line."""
    content = "".join(
        f"good film {number:06d}\tneg............\n" for number in range(5_000)
    ).encode()
    reading, writing = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(writing, b""), _write_all(writing, content)))
    writer.start()
    first = regular(Path(f"/dev/fd/{reading}")).read_bytes()
    again = regular(Path(f"/dev/fd/{reading}")).read_bytes()
    writer.join()
    os.close(reading)
    assert first == again == content


def _write_all(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(content)


def test_a_file_is_opened_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a")
    for entry in (path, tmp_path, tmp_path / "missing", Path("/dev/null")):
        assert regular(entry) == entry
