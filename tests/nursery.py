"""A process that has imported what takes seconds to import.

It forks a `bertctl` process of its own for each command.

There is one for a test session: the first test process that needs it starts it, and it ends with
the last of them. A process forked from it early, before torch is imported, runs the code of tests
of what is done without it. What is tested is the same: a real process with its own arguments,
streams, folder, environment and exit code, that runs `bertctl.cli.main.entry`. Only the imports,
which take longer than most commands, are done once, and what every process would make alike:
Typer's commands, the recipe's schema, templates, regular expressions. Tests that are about the
start itself (what is imported, how fast, environment variables that libraries read when they are
imported) start `python -m bertctl` instead.

    test  -> {"arguments": [...], "cwd": "...", "env": {...}, "cores": [...]} as one line,
             and three descriptors: stdin, stdout, stderr
    here  -> {"pid": 4711} when it has started, {"code": 0} when it has ended

A test process that holds on to it sends {} instead, and keeps the connection.

A shell line reaches it through a small program called `bertctl` (`Nursery.bin`, to be put on PATH).
Another one, `Nursery.python`, stands for `python -c CODE`: pytest-xdist starts its test processes
with it (`conftest.py`), which import what the commands import, and each for six seconds where
nothing is done for them.

A fork costs the processor 20 ms, and as much again for what the command then writes to of what both
share. Refusals and other small things are not typed here: the test's own process takes them
(`tests/in_process.py`).
"""

import contextlib
import fcntl
import functools
import gc
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

LIGHT = (
    "pyarrow.parquet",
    "pydantic.dataclasses",
    "rich.markdown",
    "scipy.stats",
    "pyarrow.pandas_compat",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "packaging.requirements",
    "PIL.features",
    "PIL.JpegImagePlugin",
    "py3langid.langid",
    "rensa",
    "rich._emoji_codes",
    "typer._adapters",
    "typer._click.decorators",
)
"""What the commands import besides `bertctl`, as far as it brings nothing of `WITHOUT`."""

WITHOUT = ("torch", "transformers", "datasets", "sklearn", "accelerate", "evaluate")

HEAVY = (
    "accelerate.utils",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "torch",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.tensor",
    "torch.nn.attention.flex_attention",
    "transformers.models.align",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
    "transformers.optimization",
    "transformers.trainer_pt_utils",
    "accelerate",
)
"""What else they import."""

OF_ONE_RELEASE = (
    "torch.profiler._cupti_monitor",  # 2.13
    "torch.profiler._cupti",  # 2.14
    "torch.profiler._cuspy",  # 2.15
)
"""Private modules that torch imports by itself; each release calls them otherwise."""

_OF_ALL = (
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "PYTHONPROFILEIMPORTTIME",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OPENBLAS_NUM_THREADS",
    "GOMP_SPINCOUNT",
    "MPLCONFIGDIR",
)
"""Variables that are read when something is imported. Those of the hub are read by each command
anew (`huggingface_internals.follow_environment`)."""

_ON_PATH = """#!{python} -SE
import json, os, signal, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect({address!r})
cores = [*os.sched_getaffinity(0)] if hasattr(os, "sched_getaffinity") else []
request = {{
    "is": {name!r},
    "arguments": sys.argv[1:],
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "cores": cores,
}}
socket.send_fds(door, [(json.dumps(request) + "\\n").encode()], [0, 1, 2])
lines = door.makefile("r", encoding="utf-8")
pid = json.loads(lines.readline())["pid"]
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code = json.loads(lines.readline())["code"]
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


_CACHED = type(functools.cache(len))
PATIENCE = 3600.0
"""Seconds until a command counts as one that hangs, also on a machine with much else to do; no test
waits for it."""
_LIGHT = ".light"
"""Ends the address of the process that has imported nothing heavy."""
_ENDS = ("", _LIGHT)


class Child:
    """A `bertctl` process that the nursery has forked.

    It has the part of Popen's interface that tests use.

    Attributes:
        args: what was typed.
        pid: of the process itself.
        returncode: None while it runs; minus the signal's number where one ended it.
        stdout: a pipe, or None where it goes elsewhere.
        stderr: the same.
    """

    def __init__(self, door: socket.socket, args: Sequence[str], pipes: Mapping[str, int]) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._door = door
        self._lines = door.makefile("r", encoding="utf-8")
        self.pid = int(json.loads(self._lines.readline())["pid"])
        opened = {name: os.fdopen(number, "r", encoding="utf-8") for name, number in pipes.items()}
        self.stdout = opened.get("stdout")
        self.stderr = opened.get("stderr")

    def poll(self) -> int | None:
        """Returns the exit code where it has ended."""
        if self.returncode is None and select.select([self._door], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; kills it and raises `TimeoutExpired` after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._door], [], [], timeout)[0]:
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(json.loads(self._lines.readline())["code"])
            self._lines.close()
            self._door.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Returns what it says until its end."""
        said = {"stdout": "", "stderr": ""}

        def read(name: str) -> None:
            with getattr(self, name) as stream:
                said[name] = stream.read()

        readers = [
            threading.Thread(target=read, args=(name,))
            for name in said
            if getattr(self, name) is not None
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return said["stdout"], said["stderr"]

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The doors of a test process to the nursery of its test session.

    Attributes:
        env: the environment in which everything was imported.
        bin: a folder with a `bertctl` for PATH.
        python: a program that runs the Python code of its last argument, as `python -c` does.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self.bin = folder / "bin"
        self.python = folder / "python"  # not on PATH
        self._address = str(folder / "nursery.sock")
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # several test processes may want their first command at the same time
            self._held = self._hold()
            if not self._held:
                self._process = self._started(folder)
                self._held = self._hold()
        if not self._held:
            self.close()
            raise RuntimeError(f"the nursery did not start: {(folder / 'nursery.log').read_text()}")

    def _hold(self) -> list[socket.socket]:
        """Returns connections that keep the processes alive; empty where there are none."""
        held = []
        for end in _ENDS:
            door = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                door.connect(self._address + end)
                door.sendall(b"{}\n")
                if door.recv(1):
                    held.append(door)
                    continue
            door.close()
            for other in held:
                other.close()
            return []
        return held

    def _started(self, folder: Path) -> "subprocess.Popen[bytes]":
        for end in _ENDS:  # of one that has ended
            Path(self._address + end).unlink(missing_ok=True)
        self.bin.mkdir(exist_ok=True)
        for program in (self.bin / "bertctl", self.python):
            text = _ON_PATH.format(python=sys.executable, address=self._address, name=program.name)
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)
        with (folder / "nursery.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, self._address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.env,
                start_new_session=True,  # Ctrl-C is for pytest, with whose processes it ends
            )
        if process.stdout is not None:
            with process.stdout as said:
                said.readline()
        return process

    def suits(self, env: Mapping[str, str]) -> bool:
        """Whether what is imported is what a process with this environment would import."""
        return all(env.get(name) == self.env.get(name) for name in _OF_ALL)

    def close(self) -> None:
        """Lets go of it; who has started it waits for its end."""
        for door in self._held:
            door.close()
        if self._process is not None:
            self._process.wait()

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: Path | int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        kind: str = "bertctl",
    ) -> Child:
        """Starts a command and comes back.

        Args:
            arguments: what is typed after `bertctl`.
            cwd: its folder.
            env: its environment.
            stdin: a file, or a descriptor; nothing where it is None.
            stdout: a descriptor; a pipe where it is None.
            stderr: the same.
            kind: what it is: `bertctl`, or `light`, Python code without torch.
        """
        address = self._address + (_LIGHT if kind == "light" else "")
        cores = [*os.sched_getaffinity(0)] if hasattr(os, "sched_getaffinity") else []
        request = {
            "is": kind,
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(env),
            "cores": cores,
        }
        line = (json.dumps(request) + "\n").encode()
        with contextlib.ExitStack() as sent:
            streams = [
                stdin if isinstance(stdin, int) else os.open(stdin or os.devnull, os.O_RDONLY)
            ]
            if streams[0] != stdin:
                sent.callback(os.close, streams[0])
            pipes = {}
            for name, given in (("stdout", stdout), ("stderr", stderr)):
                if given is None:
                    pipes[name], given = os.pipe()
                    sent.callback(os.close, given)
                streams.append(given)
            door = socket.socket(
                socket.AF_UNIX
            )  # last: whoever comes and says nothing keeps all others waiting
            door.connect(address)
            socket.send_fds(door, [line], streams)
        return Child(door, ["bertctl", *arguments], pipes)

    def verdict(
        self,
        arguments: Sequence[str],
        places: Mapping[int, str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Runs a command whose streams lead elsewhere, and returns its exit code.

        Args:
            arguments: what is typed.
            places: by number `gone` (a pipe that nobody reads), `closed`, or the path of a file;
                else /dev/null.
            cwd: its folder.
            env: its environment.
        """
        closed = "".join(str(number) for number, place in places.items() if place == "closed")
        with contextlib.ExitStack() as sent:
            streams = []
            for number in range(3):
                place = places.get(number, "closed")
                if place == "gone":
                    ours, its = os.pipe()
                    os.close(ours)
                else:
                    its = os.open(os.devnull if place == "closed" else place, os.O_RDWR)
                sent.callback(os.close, its)
                streams.append(its)
            child = self.start(
                arguments,
                cwd=cwd,
                env={**(env or self.env), "NURSERY_CLOSES": closed},
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
            )
        return child.wait(PATIENCE)

    def run(
        self,
        arguments: Sequence[object],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdin: Path | None = None,
        timeout: float = PATIENCE,
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a command to its end.

        Raises:
            subprocess.TimeoutExpired: it took longer; it was killed.
        """
        child = self.start(
            list(map(str, arguments)),
            cwd=cwd,
            env=env or self.env,
            stdin=stdin,
        )
        out, err = child.communicate(timeout)
        return subprocess.CompletedProcess(child.args, child.wait(), out, err)

    def run_code(
        self, code: str, *arguments: object, cwd: Path, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs code, as `python -c` does, in a process that has imported nothing of `WITHOUT`."""
        child = self.start(
            ["-c", code, *map(str, arguments)], cwd=cwd, env=env or self.env, kind="light"
        )
        out, err = child.communicate(PATIENCE)
        return subprocess.CompletedProcess(child.args, child.wait(), out, err)


def _serve(address: str) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(
            0, range(os.cpu_count() or 1)
        )  # its children have the cores of those who ask
    doors = {end: socket.socket(socket.AF_UNIX) for end in _ENDS}
    for end, door in doors.items():
        door.bind(address + end)
        door.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    gc.disable()  # until everything is imported
    os.fsync = lambda _: None  # see conftest.py
    re._MAXCACHE = 1 << 14  # 512 are fewer than transformers compiles when imported
    forked = []
    for end, imports in ((_LIGHT, _import_light), ("", _import_heavy)):
        with warnings.catch_warnings(action="error"):  # as in pytest's own processes
            imports()
        child = os.fork() if end else 0
        if child == 0:
            break
        forked.append(child)
    for other in set(doors) - {end}:
        doors[other].close()
    # the children's collections leave alone what is here, and with it the pages that they share
    gc.freeze()
    gc.set_threshold(100_000)  # see conftest.py
    gc.enable()
    _answer(doors[end])
    if not end:
        for child in forked:
            os.waitpid(child, 0)
    os._exit(0)


def _answer(door: socket.socket) -> None:
    """Forks a process for each command, until nobody holds on any more."""
    held: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([door, *held], [], [])
        for left in set(ready) & set(held):
            left.close()
            held.remove(left)
            if not held:
                return
        if door not in ready:
            continue
        visitor, _ = door.accept()
        said, streams, _, _ = socket.recv_fds(visitor, 1 << 16, 3)
        while not said.endswith(b"\n"):
            said += visitor.recv(1 << 16)
        asked = json.loads(said)
        if not asked:
            held.append(visitor)
            visitor.sendall(b"+")
            continue
        pid = os.fork()  # nothing has computed here yet, so no thread is lost
        if pid == 0:
            _be_asked(asked, streams, [door, visitor, *held])
        for number in streams:
            os.close(number)
        threading.Thread(target=_wait, args=(pid, visitor), daemon=True).start()


def _import_light() -> None:
    """Imports what brings nothing of `WITHOUT`."""
    import bertctl

    for name in LIGHT:
        __import__(name)
    for module in pkgutil.walk_packages(bertctl.__path__, "bertctl."):
        if not module.name.startswith(("bertctl.modeling.", "bertctl.tasks.", "bertctl.__main__")):
            __import__(module.name)
    if heavy := [name for name in sys.modules if name.startswith(WITHOUT)]:
        raise RuntimeError(f"imported too early: {heavy}")


def _import_heavy() -> None:
    """Imports the rest, and has what every process would make alike made."""
    import bertctl

    of_this_release = [name for name in OF_ONE_RELEASE if importlib.util.find_spec(name)]
    for name in (*HEAVY, *of_this_release):
        __import__(name)
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(bertctl.__path__, "bertctl.")
        if not module.name.endswith("__main__")
    ]
    _make_tables(modules)
    _make_commands()
    _expressions_of_weights()


def _make_tables(modules: Sequence[ModuleType]) -> None:
    """Makes all that is kept for the life of a process.

    The package's tables, schema and templates, pydantic's validators.
    """
    from bertctl.config import problems
    from bertctl.config.dump import dump_recipe
    from bertctl.config.load import load_recipe
    from bertctl.inference import environment
    from bertctl.reporting import html, page
    from bertctl.reporting.document import Report

    importlib.metadata.version = functools.cache(importlib.metadata.version)
    for package in environment._PACKAGES:
        importlib.metadata.version(package)
    kept = set()
    for module in modules:
        kept |= {function for function in vars(module).values() if isinstance(function, _CACHED)}
    for function in kept:
        if (
            function.__module__.startswith("bertctl.")
            and not inspect.signature(function).parameters
        ):
            function()
    problems.field_schema("name")
    dump_recipe(load_recipe("demo"), command="")
    html.render_html(Report("", "", (), ()))
    page.page_templates().get_template("attention.html.j2")


def _expressions_of_weights() -> None:
    """Compiles transformers' 1,000 regular expressions.

    It also compiles the one it makes of each weight of a BERT of two layers.
    """
    import torch
    import transformers
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    from transformers.core_model_loading import WeightRenaming

    get_checkpoint_conversion_mapping("bert")
    with torch.device("meta"):
        config = transformers.BertConfig(num_hidden_layers=2)
        for kind in (
            "Model",
            "ForSequenceClassification",
            "ForTokenClassification",
            "ForQuestionAnswering",
        ):
            for name in getattr(transformers, f"Bert{kind}")(config).state_dict():
                WeightRenaming(name, name)


def _make_commands() -> None:
    from bertctl.cli import app

    for verb in app.VERBS:
        command = app.verb_command(verb)
        for one in (command, *getattr(command, "commands", {}).values()):
            for parameter in one.params:
                parameter.get_runtime_param()


def _wait(pid: int, visitor: socket.socket) -> None:
    with contextlib.suppress(OSError):
        visitor.sendall((json.dumps({"pid": pid}) + "\n").encode())
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        visitor.sendall((json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n").encode())
    visitor.close()


def _be_asked(
    request: dict[str, object], streams: Sequence[int], doors: Sequence[socket.socket]
) -> None:
    """Runs the requested process to its end: `bertctl`, or Python code."""
    code = 70
    try:
        for door in doors:
            door.close()
        # as a terminal's processes have; and Ctrl-C, which a runner in the background may ignore
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(str(request["cwd"]))
        if request["cores"]:
            os.sched_setaffinity(0, request["cores"])
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for number in map(int, os.environ.pop("NURSERY_CLOSES", "")):
            os.close(number)
            setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as Python has it then
        arguments: list[str] = request["arguments"]
        if request["is"] in ("python", "light"):
            code = _be_python(arguments[arguments.index("-c") + 1 :])
            return
        sys.argv = ["bertctl", *arguments]
        for name in os.environ.pop("NURSERY_IMPORTS", "").split():
            sys.path[:0] = [
                str(Path(__file__).with_name(folder)) for folder in ("contract", "faults")
            ]
            __import__(name)
        from bertctl.cli.main import entry

        try:
            entry()
        except SystemExit as stop:
            code = _exit_code(stop)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(stop: SystemExit) -> int:
    """Returns the code with which Python would end: 0 for nothing, 1 for a text."""
    if isinstance(stop.code, int):
        return stop.code
    return 0 if stop.code is None else 1


def _be_python(arguments: Sequence[str]) -> int:
    """Runs code as `python -c` does; returns its exit code.

    Args:
        arguments: the code and what comes after it.
    """
    sys.argv = ["-c", *arguments[1:]]
    try:
        # What pytest-xdist or a test says.
        exec(arguments[0], {"__name__": "__main__"})  # noqa: S102
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)  # noqa: T201 - as Python does
        return 1
    except Exception:  # noqa: BLE001 - told, as Python does
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
