"""A process that has imported what takes seconds to import, and forks a `bertctl` process of its own for each command.

What is tested is the same: a real process with its own arguments, streams, folder, environment and exit code, that
runs `bertctl.cli.main.entry`. Only the imports, which take longer than most commands, are done once. Tests that are
about the start itself (what is imported, how fast, environment variables that libraries read when they are imported)
start `python -m bertctl` instead.

    test  -> {"arguments": [...], "cwd": "...", "env": {...}} as one line, and three descriptors: stdin, stdout, stderr
    here  -> {"pid": 4711} when it has started, {"code": 0} when it has ended

A shell line reaches it through a small program called `bertctl` (`Nursery.bin`, to be put on PATH).
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

HEAVY = (
    "torch",
    "torch.distributed",
    "transformers.models.auto.modeling_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
    "accelerate",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "scipy.stats",
    "pyarrow.parquet",
    "matplotlib.figure",
    "bertctl.training.finetune",
    "bertctl.cli.main",
)

_READ_EARLY = (
    "HF_HOME", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "TRANSFORMERS_OFFLINE", "XDG_CACHE_HOME",
    "PYTHONPATH", "PYTHONWARNINGS", "PYTHONPROFILEIMPORTTIME",
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MPLCONFIGDIR",
)  # fmt: skip
"""Variables that are read when something is imported."""

_ON_PATH = """#!{python} -SE
import json, os, signal, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect({address!r})
asked = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
socket.send_fds(door, [(json.dumps(asked) + "\\n").encode()], [0, 1, 2])
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


class Child:
    """A `bertctl` process that the nursery has forked, with the part of Popen's interface that tests use.

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
        self.stdout, self.stderr = opened.get("stdout"), opened.get("stderr")

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

        readers = [threading.Thread(target=read, args=(name,)) for name in said if getattr(self, name) is not None]
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
    """The door to such a process, one for each test process.

    Attributes:
        env: the environment in which everything was imported.
        bin: a folder with a `bertctl` for PATH.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self._address = str(folder / "nursery.sock")
        self._log = (folder / "nursery.log").open("wb")
        self.bin = folder / "bin"
        self.bin.mkdir()
        program = self.bin / "bertctl"
        program.write_text(_ON_PATH.format(python=sys.executable, address=self._address), encoding="utf-8")
        program.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self.env,
        )
        if self._process.stdout is None or self._process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the nursery did not start: {(folder / 'nursery.log').read_text()}")

    def suits(self, env: Mapping[str, str]) -> bool:
        """Whether a process with this environment would have imported the same."""
        return all(env.get(name) == self.env.get(name) for name in _READ_EARLY)

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def start(self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: Path | None = None) -> Child:
        """Starts a command and comes back; its stdout and stderr are pipes, its stdin a file or nothing."""
        door = socket.socket(socket.AF_UNIX)
        door.connect(self._address)
        request = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        its_in = os.open(stdin or os.devnull, os.O_RDONLY)
        socket.send_fds(door, [(json.dumps(request) + "\n").encode()], [its_in, its_out, its_err])
        for number in (its_in, its_out, its_err):
            os.close(number)
        return Child(door, ["bertctl", *arguments], {"stdout": out, "stderr": err})

    def run(
        self,
        arguments: Sequence[object],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdin: Path | None = None,
        timeout: float = 300,
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a command to its end.

        Raises:
            subprocess.TimeoutExpired: it took longer; it was killed.
        """
        child = self.start(list(map(str, arguments)), cwd=cwd, env=env or self.env, stdin=stdin)
        out, err = child.communicate(timeout)
        return subprocess.CompletedProcess(child.args, child.wait(), out, err)


def _serve(address: str) -> None:
    for name in HEAVY:
        __import__(name)
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        visitor, _ = door.accept()
        said, streams, _, _ = socket.recv_fds(visitor, 1 << 16, 3)
        while not said.endswith(b"\n"):
            said += visitor.recv(1 << 16)
        pid = os.fork()  # nothing has computed here yet, so no thread is lost
        if pid == 0:
            _be_bertctl(json.loads(said), streams, [door, visitor])
        for number in streams:
            os.close(number)
        threading.Thread(target=_wait, args=(pid, visitor), daemon=True).start()


def _wait(pid: int, visitor: socket.socket) -> None:
    with contextlib.suppress(OSError):
        visitor.sendall((json.dumps({"pid": pid}) + "\n").encode())
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        visitor.sendall((json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n").encode())
    visitor.close()


def _be_bertctl(request: dict[str, object], streams: Sequence[int], doors: Sequence[socket.socket]) -> None:
    code = 70
    try:
        for door in doors:
            door.close()
        os.setsid()  # as a terminal's processes have; and Ctrl-C, which a runner in the background may ignore
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(request["env"])  # type: ignore[arg-type]
        os.chdir(str(request["cwd"]))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.argv = ["bertctl", *request["arguments"]]  # type: ignore[misc]
        for name in os.environ.pop("NURSERY_IMPORTS", "").split():
            sys.path[:0] = [str(Path(__file__).with_name(folder)) for folder in ("contract", "faults")]
            __import__(name)
        from bertctl.cli.main import entry

        try:
            entry()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
