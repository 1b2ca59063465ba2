"""A process that takes one damaged input after another.

They go through the command line's `main`, and it says what went wrong.

    python -c 'from tests.fuzz.worker import begin; begin()' FOLDER SEED FIRST BEFORE STEP KIND

(FOLDER/../trained has what was trained.)

For each input it writes a line `NUMBER` before, and a line of JSON after it.
"""

import errno
import gc
import importlib
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TextIO

from bertctl.session import opened
from tests.fuzz.mutations import layout_of, mutated
from tests.fuzz.places import Link, Pipe, write_tree
from tests.fuzz.targets import Target

RIGHT_CODES = (0, 2, 3, 4, 5, 6, 7, 8)
MOST_SAID = 100_000
"""Characters that a command may say about an input that is wrong."""
ADDRESS_SPACE = 10 << 30
"""Bytes; keeps the machine alive when an input eats memory. The peak is measured apart."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_COMMAND_LINE = re.compile(r"^\s*(::|##\[|##vso\[)", re.MULTILINE)


@dataclass
class Told:
    """What became of one input.

    Attributes:
        number: of the input; with the seed it says everything.
        target: its name.
        what: what was damaged, and how.
        command: the last one run.
        code: its exit code.
        wrong: what should not have happened; empty where all is well.
        said: the beginning of what the command said on stderr, where something was wrong.
        seconds: of the processor, for its slowest command.
        peak: resident bytes at most.
    """

    number: int
    target: str
    what: str = ""
    command: str = ""
    code: int = 0
    wrong: list[str] = field(default_factory=list)
    said: str = ""
    seconds: float = 0.0
    peak: int = 0


def damaged(target: Target, random: Random, here: Path) -> tuple[str, Path]:
    """Writes a target's folder with one thing damaged; says what, and where it is."""
    tree = dict(target.tree)
    if not target.damaged:
        write_tree(here, tree)
        return target.name, here
    name = random.choice(list(target.damaged))
    content = tree.pop(name)
    positions = {
        "missing": {},
        "a folder": {f"{name}/x": b""},
        "a pipe": {name: Pipe()},
        "a link outside": {name: Link(str(here.parent / "outside" / "precious"))},
        "without an end": {name: Link("/dev/zero")},
        "a loop": {name: Link(str(here / name))},
        "another file": {name: random.choice(list(target.tree.values()))},
    }
    if target.as_folder and random.random() < 0.08:
        kind = random.choice(list(positions))
        write_tree(here, tree | positions[kind])
        return f"{name} is {kind}", here / name
    assert isinstance(content, bytes)
    write_tree(here, tree | {name: mutated(content, layout_of(name), random)})
    return name, here / name


class Boundary:
    """The command line inside this process.

    Each command with streams of its own, its code, and what was seen of it.
    """

    def __init__(self) -> None:
        from bertctl.cli import main
        from bertctl.cli.framework import streams
        from tests.fuzz.watch import Watch

        re._MAXCACHE = 1 << 14  # as in the nursery
        self._command = main.run_command
        self._open_streams = streams.open_streams
        self.watch = Watch()
        self._streams = [os.memfd_create(name) for name in ("stdout", "stderr")]
        self._own = os.fdopen(os.dup(2), "w", encoding="utf-8")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def __call__(self, words: list[str], here: Path) -> tuple[int, str, str]:
        """Returns exit code, stdout and stderr."""
        for number, stream in enumerate(self._streams, start=1):
            os.ftruncate(stream, 0)
            os.lseek(stream, 0, os.SEEK_SET)
            os.dup2(stream, number)
        os.chdir(here)
        self.watch.inside = str(here)
        try:
            with opened():
                self._open_streams()
                code = self._command(words)
        # Whatever leaves `main` is a traceback for a person.
        except BaseException as escaped:  # noqa: BLE001
            code = left if isinstance(left := getattr(escaped, "code", 1), int) else 1
            traceback.print_exception(escaped)
        finally:
            self.watch.inside = None
            os.chdir("/")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout = sys.stderr = self._own
        out, err = (
            os.pread(stream, 1 << 22, 0).decode("utf-8", "replace") for stream in self._streams
        )
        return code, out, err


def judged(reported: Told, code: int, out: str, err: str, answer_is_data: bool) -> None:
    """Notes what should not have happened."""
    reported.code = code
    if code not in RIGHT_CODES:
        reported.wrong.append(f"exit {code}")
    if "Traceback (most recent call last)" in err:
        reported.wrong.append("traceback")
    if len(err) > MOST_SAID:
        reported.wrong.append(f"{len(err)} characters said")
    for name, text in (("stderr", err), *(() if answer_is_data else (("stdout", out),))):
        if _CONTROL.search(text):
            reported.wrong.append(f"control character on {name}")
        if _COMMAND_LINE.search(text):
            reported.wrong.append(f"workflow command on {name}")
    if reported.wrong:
        reported.said = err[:600]


def one_input(
    seed: int, number: int, targets: tuple[Target, ...], folder: Path, boundary: Boundary
) -> Told:
    """Makes an input, runs what reads it, looks at what happened, and takes it away again."""
    random = Random(f"{seed}/{number}")  # noqa: S311 - inputs, not secrets
    by_number = not targets[0].damaged
    target = (
        targets[number % len(targets)]
        if by_number
        else random.choices(targets, [entry.share for entry in targets])[0]
    )
    options = Told(number, target.name)
    here = folder / f"input-{number}"
    here.mkdir()
    precious = folder / "outside" / "precious"
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("precious\n", encoding="utf-8")
    options.what, path = damaged(target, random, here)
    commands = target.commands if target.all_commands else [random.choice(list(target.commands))]
    before = [*folder.iterdir(), *precious.parent.iterdir()]
    _forget_peak()
    for command in commands:
        words = [
            word.format(here=here, file=path, trained=folder.parent / "trained") for word in command
        ]
        options.command = " ".join(command)
        boundary.watch.seen.clear()
        started = time.process_time()
        code, out, err = boundary(words, here)
        options.seconds = max(options.seconds, time.process_time() - started)
        judged(
            options,
            code,
            out,
            err,
            "--json" in words or command[0] in ("predict", "tokenize", "vocab", "report"),
        )
        options.wrong += list(dict.fromkeys(boundary.watch.seen))
        if options.wrong:
            options.said = options.said or err[:600]
            if code == 1:
                options.said = _cause(boundary([*words, "--debug"], here)[2])
            break
    options.peak = _peak()
    if precious.read_text(encoding="utf-8") != "precious\n":
        options.wrong.append("a file outside was changed")
    if set(before) != {*folder.iterdir(), *precious.parent.iterdir()}:
        options.wrong.append("a file outside was made or deleted")
    if list(here.rglob("pwned")) or Path("/pwned").exists():
        options.wrong.append("code was run")
    shutil.rmtree(here)
    return options


def _cause(message: str) -> str:
    """Where in bertctl an exception came from, and its own words."""
    frames = re.findall(r'File "[^"]*/bertctl/([^"]*)", line \d+, in (\w+)', message)
    error = next((line for line in message.splitlines() if line.startswith("error: ")), "")
    return (
        " < ".join(f"{file}:{function}" for file, function in frames[:-4:-1]) + f" | {error[:200]}"
    )


def _forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.ENOENT):
            raise


def _peak() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def work(folder: Path, seed: int, numbers: range, targets: tuple[Target, ...], to: TextIO) -> None:
    """Takes the inputs of these numbers, telling of each before and after."""
    boundary = Boundary()
    for number in numbers:
        to.write(f"{number}\n")
        to.flush()
        options = one_input(seed, number, targets, folder, boundary)
        to.write(json.dumps(asdict(options)) + "\n")
        to.flush()
        if number % 200 == 0:
            gc.collect()


def begin() -> None:
    """Does what the process is for; see above."""
    folder = Path(sys.argv[1])
    (seed, first, before, step) = map(int, sys.argv[2:6])
    kind = sys.argv[6]
    to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tempfile.tempdir = str(folder / "tmp")
    os.environ |= {
        "TMPDIR": tempfile.tempdir,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
    }
    os.environ |= {
        "MPLCONFIGDIR": str(folder / "tmp"),
        "OMP_NUM_THREADS": "1",
        "RUST_BACKTRACE": "0",
    }
    Path(tempfile.tempdir).mkdir(parents=True, exist_ok=True)
    from tests.fuzz.targets import KINDS

    if kind in ("models", "runs"):  # what takes seconds to import is no input's fault
        for name in (
            "bertctl.training.finetune",
            "bertctl.features.extract",
            "transformers.models.bert.modeling_bert",
        ):
            importlib.import_module(name)
    work(folder, seed, range(first, before, step), KINDS[kind](folder.parent / "trained"), to)
