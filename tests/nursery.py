"""A process that has imported what takes seconds to import, and forks a `bertctl` process of its own for each command.

What is tested is the same: a real process with its own arguments, streams, folder, environment and exit code, that
runs `bertctl.cli.main.entry`. Only the imports, which take longer than most commands, are done once. Tests that are
about the start itself (what is imported, how fast, environment variables that libraries read when they are imported)
start `python -m bertctl` instead.

    test  -> {"arguments": [...], "cwd": "...", "env": {...}, "files": [stdin, stdout, stderr]} as one line
    here  -> {"pid": 4711} when it has started, {"code": 0} when it has ended
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

HEAVY = (
    "torch",
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


class Nursery:
    """The door to such a process, one for each test session."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self._address = str(folder / "nursery.sock")
        self._log = (folder / "nursery.log").open("wb")
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
        """End it."""
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        input: str | None,
        folder: Path,
        timeout: float,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end.

        Raises:
            subprocess.TimeoutExpired: it took longer; it was killed.
        """
        files = [folder / name for name in ("stdin", "stdout", "stderr")]
        files[0].write_text(input or "", encoding="utf-8")
        request = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "files": list(map(str, files))}
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(self._address)
            lines = door.makefile("rw", encoding="utf-8")
            lines.write(json.dumps(request) + "\n")
            lines.flush()
            pid = json.loads(lines.readline())["pid"]
            door.settimeout(timeout)
            try:
                code = json.loads(lines.readline())["code"]
            except TimeoutError as error:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from error
            finally:
                lines.close()
        out, err = (file.read_text(encoding="utf-8") for file in files[1:])
        return subprocess.CompletedProcess(["bertctl", *arguments], code, out, err)


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
        lines = visitor.makefile("rw", encoding="utf-8")
        request = json.loads(lines.readline())
        pid = os.fork()  # nothing has computed here yet, so no thread is lost
        if pid == 0:
            _be_bertctl(request, [door, visitor])
        threading.Thread(target=_wait, args=(pid, visitor, lines), daemon=True).start()


def _wait(pid: int, visitor: socket.socket, lines: "object") -> None:
    with contextlib.suppress(OSError):
        lines.write(json.dumps({"pid": pid}) + "\n")  # type: ignore[attr-defined]
        lines.flush()  # type: ignore[attr-defined]
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        lines.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")  # type: ignore[attr-defined]
        lines.flush()  # type: ignore[attr-defined]
    visitor.close()


def _be_bertctl(request: dict[str, object], doors: Sequence[socket.socket]) -> None:
    code = 70
    try:
        for door in doors:
            door.close()
        os.environ.clear()
        os.environ.update(request["env"])  # type: ignore[arg-type]
        os.chdir(str(request["cwd"]))
        modes = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, (file, mode) in enumerate(zip(request["files"], modes, strict=True)):  # type: ignore[call-overload]
            opened = os.open(file, mode, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        sys.argv = ["bertctl", *request["arguments"]]  # type: ignore[misc]
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
