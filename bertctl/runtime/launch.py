"""Several processes that share one job.

It says how they are started, how they exchange numbers, and how they end.
"""

import contextlib
import ctypes
import errno
import hashlib
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from bertctl.errors import DeviceError, ExitCode, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.runtime.accelerate_config import read_accelerate_config
from bertctl.runtime.cpu import available_cores
from bertctl.runtime.stopping import StopRequest, handled_by, raise_for
from bertctl.runtime.torch_internals import count_in_store
from bertctl.session import current
from bertctl.words import count as number_of

if TYPE_CHECKING:
    from bertctl.arrays import Array

_CODES = "BERTCTL_EXIT_CODES"
_LONGEST_WAIT = timedelta(days=7)  # the slowest process may take long
_SECONDS_TO_LEAVE = 20  # after the first failure or a signal; then the rest is killed
_SIGNS_OF_A_LOST_CONNECTION = (
    "got 0 bytes",
    os.strerror(errno.ECONNRESET),
    os.strerror(errno.EPIPE),
)


@dataclass(frozen=True)
class Workers:
    """This process among those that share the job.

    Attributes:
        rank: its number, from 0. The first process writes files and prints.
        count: how many there are.
        group: of torch.distributed, over host memory; None where the process is alone.
        is_apart: whether it never meets the others. A sum over all processes is then that of this
            one alone, and must not be used.
    """

    rank: int = 0
    count: int = 1
    group: Any = None
    is_apart: bool = False

    @property
    def is_first(self) -> bool:
        """Returns whether this process writes files and prints."""
        return self.rank % self.count == 0 and not self.is_apart

    def seen(self, parts: Iterable[Any]) -> Iterable[Any]:
        """Yields the rows of a job, some at a time; refuses processes that have other rows."""
        for rows in parts:
            self.agree(rows.ids, rows.columns)
            yield rows
        self.agree()

    def agree(self, *facts: object) -> None:
        """Refuses processes that don't say the same.

        They would wait for each other without end, or mix what they have.

        Raises:
            UsageError: in all of them.
        """
        if self.group is not None and self.count_alike(*facts) < self.count:
            message = "the processes of this job have different settings, rows or models"
            raise UsageError(
                message, remedy="Start all of them with the same command, on the same files."
            )

    def count_alike(self, *facts: object) -> int:
        """Returns how many processes pass the same facts as this one, itself among them.

        All processes have to call it.
        """
        if self.group is None:
            return 1
        import numpy as np

        digest = np.frombuffer(
            bytearray(hashlib.sha256(json.dumps(facts, default=str).encode()).digest()),
            dtype=np.uint8,
        )
        return sum(bool((other_digest == digest).all()) for other_digest in self.gather(digest))

    def wait(self) -> None:
        """Waits until all processes have called it."""
        if self.group is not None:
            import torch.distributed as dist

            dist.barrier(group=self.group)

    def sum(self, values: "Array") -> "Array":
        """Returns the element-wise sum over all processes.

        All call it with arrays of the same shape.
        """
        if self.group is None:
            return values
        import numpy as np
        import torch
        import torch.distributed as dist

        tensor = torch.from_numpy(np.ascontiguousarray(values))
        dist.all_reduce(tensor, group=self.group)
        return tensor.numpy()

    def share(self, text: str) -> str:
        """Returns the first process's text (at most 4,096 bytes of UTF-8) in all of them."""
        if self.group is None:
            return text
        import numpy as np

        padded = bytearray(text.encode().ljust(4096, b"\0"))
        return bytes(self.gather(np.frombuffer(padded, dtype=np.uint8))[0]).rstrip(b"\0").decode()

    def gather(self, values: "Array") -> "list[Array]":
        """Returns the arrays of all processes, by rank; all have the same shape."""
        if self.group is None:
            return [values]
        import numpy as np
        import torch
        import torch.distributed as dist

        own_values = torch.from_numpy(np.ascontiguousarray(values))
        gathered = [torch.empty_like(own_values) for _ in range(self.count)]
        dist.all_gather(gathered, own_values, group=self.group)
        return [tensor.numpy() for tensor in gathered]


ALONE = Workers()
"""The only process of its job."""


def workers() -> Workers:
    """Returns this process among those of torchrun or `accelerate launch`.

    A process that is the only one is `ALONE`.

    Raises:
        UsageError: the environment does not say where the processes meet, or they can't meet there.
        DeviceError: the first process has gone while they met.
    """
    if not is_worker():
        return ALONE
    import torch.distributed as dist

    if not dist.is_initialized():
        _meet()
    return Workers(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), dist.group.WORLD)


def _meet() -> None:
    """Connects this process with the others of its job, and waits until all are connected.

    Raises:
        UsageError: The environment does not say where the processes meet, or they can't meet there.
        DeviceError: The first process has gone while they met.
    """
    import torch
    import torch.distributed as dist

    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise UsageError(
            "RANK and WORLD_SIZE say that this is one of several processes, and "
            f"{' and '.join(missing)} {verb} not set",
            remedy="Set MASTER_ADDR to the first machine's name and MASTER_PORT to a free port "
            "of it, the same in all processes; or start them with torchrun, or with "
            "`num_processes=`.",
        )
    # accelerate takes a process without a LOCAL_RANK for one that is alone.
    number_here = os.environ.get("SLURM_LOCALID", os.environ["RANK"])
    local_rank = int(current().default_variable("LOCAL_RANK", number_here))
    if torch.cuda.is_available():
        # From here on "cuda" is this process's own GPU, in verbs without an Accelerator too.
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    # Gradients on GPUs go through NCCL, what `Workers` exchanges lies in host memory and goes
    # through gloo.
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
    else:
        backend = "gloo"
    # Python hears no signal while torch waits for the others, so another thread does that.
    meeting = ThreadPoolExecutor(1)
    try:
        meeting.submit(dist.init_process_group, backend, timeout=_LONGEST_WAIT).result()
    except (ValueError, dist.DistNetworkError) as error:
        if _lost_connection(error):
            raise another_ended() from error
        message = f"the processes can't meet at MASTER_PORT={os.environ['MASTER_PORT']}: {error}"
        raise UsageError(
            message, remedy="Set it to a free port of the first machine, in all of them."
        ) from error
    # No process goes on before all are connected: if it ended, the others would wait for it.
    meeting.submit(dist.barrier).result()


def _lost_connection(error: Exception) -> bool:
    """Returns whether the first process was reached and then went away.

    Which message torch gives depends on the moment: whether this process was reading, writing or
    about to.
    """
    message = str(error)
    return any(sign in message for sign in _SIGNS_OF_A_LOST_CONNECTION)


def is_worker() -> bool:
    """Returns whether this process was started as one of several."""
    rank = os.environ.get("RANK", "")
    size = os.environ.get("WORLD_SIZE", "1")
    # A process with a rank beyond the last one counts as alone, so that it prints the refusal of
    # `check_ranks`.
    return rank.isdecimal() and size.isdecimal() and int(size) > max(1, int(rank))


def take_ranks_of_slurm() -> None:
    """Sets RANK, WORLD_SIZE and LOCAL_RANK from Slurm's variables for tasks of `srun` that meet.

    Tasks meet if MASTER_ADDR says where. Others, such as shards, each stay alone. A RANK that is
    set already stays.
    """
    is_task = "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ  # no batch script
    has_meeting_place = bool(os.environ.get("MASTER_ADDR"))
    if not is_task or not has_meeting_place or "RANK" in os.environ:
        return

    size = os.environ.get("SLURM_STEP_NUM_TASKS") or os.environ.get("SLURM_NTASKS", "1")
    if size != "1":
        session = current()
        session.set_variable("RANK", os.environ["SLURM_PROCID"])
        session.default_variable("WORLD_SIZE", size)
        session.default_variable("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))


def check_ranks() -> None:
    """Refuses RANK and WORLD_SIZE that are no numbers, or do not fit each other.

    Raises:
        UsageError: with the variable.
    """
    if "RANK" not in os.environ:
        return
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_LOCALID")
    numbers = {name: os.environ.get(name, "0") for name in names}
    for name, value in numbers.items():
        if not (value.isascii() and value.isdecimal()):
            remedy = (
                f"Unset RANK for a process that is alone; torchrun and `num_processes=` set {name} "
                "themselves."
            )
            raise UsageError(
                f"{name}={value!r} in the environment: a whole number of at least 0 fits",
                remedy=remedy,
            )
    rank = int(numbers["RANK"])
    size = int(numbers["WORLD_SIZE"])
    # With a size of 1 or none, the process is alone, and its rank is not looked at.
    if 1 < size <= rank:
        message = f"RANK={rank} in the environment: less than WORLD_SIZE={size} fits"
        raise UsageError(
            message,
            remedy="Unset both for a process that is alone; torchrun and `num_processes=` "
            "set them.",
        )


def is_first_worker() -> bool:
    """Returns whether this process writes files and prints: it is the only one, or the first."""
    return not is_worker() or os.environ["RANK"] == "0"


def note_exit(code: int) -> bool:
    """Writes the exit code down for the launcher.

    torchrun returns 1 whatever a worker returned.

    Returns:
        Whether this is the first worker that fails: only that one prints why.
    """
    folder = os.environ.get(_CODES)
    if not folder:  # the workers were not started by `launch`
        return _is_first_to_fail()
    try:
        with (Path(folder) / "first").open("x", encoding="ascii") as file:
            file.write(str(int(code)))
    except FileExistsError:
        return False
    except OSError:  # the launcher has gone, and its folder with it
        return is_first_worker()
    return True


def another_ended() -> DeviceError:
    """Returns the error of a worker that can't continue, as another worker has died."""
    message = "another process of this job ended without a message (killed, or out of memory)"
    remedy = (
        "Look at the machine's log. `resume=True` continues a training run from its "
        "last checkpoint."
    )
    return DeviceError(message, remedy=remedy)


def was_left() -> bool:
    """Returns whether a SIGTERM to this worker came from torchrun, after another worker has died.

    If it was a person's, the launcher got it and noted that.
    """
    return _CODES in os.environ and not (Path(os.environ[_CODES]) / "asked").exists()


def _is_first_to_fail() -> bool:
    """Returns whether this worker is the first to fail, if another launcher started the workers.

    The workers count their failures in torch's common store.
    """
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized():
        return is_first_worker()
    try:
        return count_in_store("bertctl_failed") == 1
    except RuntimeError:  # whoever kept it has gone, after speaking
        return is_first_worker()


def leave(code: int) -> NoReturn:
    """Ends this worker with the code, without the interpreter's shutdown.

    gloo's threads outlive the last exchange by a moment. When one of them lets go of a tensor while
    Python shuts down, the process dies with "terminate called without an active exception", and a
    finished job counts as failed. After an error the others may never answer, so the group is left
    as it is.
    """
    if code == ExitCode.OK and "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


def launch(
    arguments: Sequence[str],
    count: int,
    *,
    stdin: bool,
    config: Path | None = None,
    listener: Listener = SILENT,
) -> int:
    """Runs a `bertctl` command line in several worker processes, and waits for their ends.

    torchrun or `accelerate launch` starts the workers. Ctrl-C, SIGTERM and SIGHUP are passed on to
    them once; a second signal kills them. They also end if this process dies.

    Args:
        arguments: Words that were typed after `bertctl`. The workers get them without
            `--num-processes` and `--accelerate-config`.
        count: Number of processes on this machine. On CPUs each gets its share of the cores unless
            `--threads` is given.
        stdin: Whether the input is stdin, typed as `-`. It is then copied into a file, as every
            worker has to read all of it.
        config: Configuration file of accelerate: how the processes share the work, and their number
            if `count` is 1. None without.
        listener: Receives a warning if there are more processes than cores.

    Returns:
        The exit code: 0, or that of the worker that failed first.

    Raises:
        KeyboardInterrupt: A signal ended the workers before one of them had noted an exit code.
        UsageError: The configuration asks for something else than DDP.
        UnavailableError: The configuration can't be read.
        DeviceError: There are fewer GPUs than processes, or the workers ended without a code.
    """
    on_cpu = "--device=cpu" in arguments or ("--device", "cpu") in itertools.pairwise(arguments)
    starter = _launcher(count, config, listener, on_cpu=on_cpu)
    worker_arguments = _worker_arguments(arguments, count, has_config=config is not None)
    # Workers note their exit codes in a folder: torchrun returns 1 whatever they returned.
    with tempfile.TemporaryDirectory() as folder:
        codes = Path(folder) / "codes"
        codes.mkdir()
        if stdin:
            worker_arguments = _with_spooled_stdin(worker_arguments, Path(folder))
        environment = {
            # DDP would warn in each process that it looked for unused parameters and found none.
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            **os.environ,
            _CODES: str(codes),
            "OMP_NUM_THREADS": "1",
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(_SECONDS_TO_LEAVE),
        }
        process = subprocess.Popen(
            [*starter, "-m", "bertctl", *worker_arguments],
            env=environment,
            stderr=subprocess.PIPE,
            # A terminal's Ctrl-C reaches this process only, which passes it on once.
            start_new_session=True,
            preexec_fn=die_when_parent_does if sys.platform == "linux" else None,
        )
        stop_signals: list[int] = []  # that were sent to the workers: none, one, or two
        request = StopRequest()

        def pass_on(number: int, frame: Any) -> None:  # noqa: ARG001
            """Sends the first signal to the launcher's process, and kills it at the second one.

            The signals that it has sent are added to `stop_signals`. An echo of the first one does
            not count: see `StopRequest.hear`.
            """
            is_second = request.hear(number)
            if stop_signals and not is_second:
                return
            # `was_left` looks for this file: SIGTERM then came from a person, not from torchrun.
            with contextlib.suppress(OSError):  # a full disk
                (codes / "asked").touch()
            process.send_signal(signal.SIGKILL if stop_signals else number)
            stop_signals.append(number)

        with handled_by(pass_on):
            if process.stderr is not None:
                _pass_on(process.stderr, stop_signals)
            returned = process.wait()
        if returned == 0:
            return ExitCode.OK
        # The code of the worker that failed first: the others fail because it did. Workers that a
        # second signal killed have not ended by a code of their own.
        first_code = codes / "first"
        if len(stop_signals) < 2 and first_code.exists():
            return int(first_code.read_text(encoding="ascii"))
        if stop_signals:
            raise_for(stop_signals[0])
        message = "the processes ended without a message (killed, or out of memory)"
        raise DeviceError(message, remedy="Look at the machine's log.")


def _worker_arguments(arguments: Sequence[str], count: int, *, has_config: bool) -> list[str]:
    """Returns what a worker gets as its command line, after `bertctl`.

    These are the arguments without the options of the launcher. Unless they name `--threads`, each
    worker gets an equal share of the cores.

    Args:
        arguments: Words that were typed after `bertctl`.
        count: Number of workers on this machine.
        has_config: Whether there is a configuration of accelerate. The number of workers is then
            not known here, so the threads are left to the workers.
    """
    words = without_option(without_option(arguments, "--num-processes"), "--accelerate-config")
    has_threads = any(word.partition("=")[0] == "--threads" for word in words)
    if has_config or has_threads:
        return words
    return [*words, "--threads", str(max(1, available_cores() // count))]


def _with_spooled_stdin(arguments: Sequence[str], folder: Path) -> list[str]:
    """Copies stdin into a file of a folder, and returns the arguments with it in place of `-`.

    Each process has to read the input, and a stream can be read only once.
    """
    # gzip's first bytes: `open_bytes` unpacks such a stdin too.
    is_packed = cast(io.BufferedReader, sys.stdin.buffer).peek(2)[:2] == b"\x1f\x8b"
    spooled = folder / ("stdin.txt.gz" if is_packed else "stdin.txt")
    with spooled.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)

    replaced = list(arguments)
    position = next(
        i
        for i, word in enumerate(replaced)
        if word == "-" and replaced[i - 1] not in ("-o", "--output")
    )
    replaced[position] = str(spooled)
    return replaced


def _launcher(count: int, config: Path | None, listener: Listener, *, on_cpu: bool) -> list[str]:
    """Returns the words of the launcher's command line: torchrun on CPUs, accelerate on GPUs.

    accelerate starts only one process on CPUs, so that torchrun is needed there.

    Args:
        count: Number of processes that was typed; 1 without.
        config: File with a configuration of accelerate; None without. Its kind decides between CPUs
            and GPUs.
        listener: Receives the warning of more processes than cores.
        on_cpu: Whether the processes compute on CPUs, if there is no configuration.

    Raises:
        DeviceError: More processes than GPUs.
    """
    accelerate = [sys.executable, "-m", "accelerate.commands.launch"]
    count_here = count
    meeting = ["--standalone"]
    if config is not None:
        accelerate_config = read_accelerate_config(config)
        if count > 1:
            total = count
        else:
            total = accelerate_config.processes
        if accelerate_config.kind != "MULTI_CPU":
            return [*accelerate, "--config_file", str(config), f"--num_processes={total}"]
        # The total is of all machines, and torchrun gets the number on each.
        count_here = max(1, total // accelerate_config.machines)
        if accelerate_config.machines > 1:
            machines = [
                f"--nnodes={accelerate_config.machines}",
                f"--node_rank={accelerate_config.machine}",
            ]
            meeting = [
                *machines,
                f"--master_addr={accelerate_config.address}",
                f"--master_port={accelerate_config.port}",
            ]
    elif not on_cpu and (gpus := _gpu_count()):
        if count > gpus:
            verb = "are" if gpus > 1 else "is"
            raise DeviceError(
                f"`num_processes={count}`: there {verb} {number_of(gpus, 'GPU')}, and each process "
                "needs one of its own",
                remedy=f"Use `num_processes={gpus}`; `training.accumulation_steps=2` for "
                "batches that do not fit.",
            )
        if count > 1:
            accelerate.append("--multi_gpu")
        return [*accelerate, f"--num_processes={count}"]
    cores = available_cores()
    if count_here > cores:
        listener.warn(
            f"{count_here} processes on {number_of(cores, 'core')} wait for each other and take "
            f"more memory: `num_processes={cores}` is faster"
        )
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return [*torchrun, *meeting, f"--nproc_per_node={count_here}"]


def _gpu_count() -> int:
    """Returns how many GPUs torch can use."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return 0


def die_with_parent() -> None:
    """Makes a worker that `launch` started end when torchrun or accelerate is killed (Linux).

    Workers of other launchers, such as srun, stay as they are: their parent may be any process.
    """
    was_started_by_launch = _CODES in os.environ  # `launch` sets it for its workers
    if is_worker() and was_started_by_launch and sys.platform == "linux":
        die_when_parent_does(signal.SIGKILL)
        # No signal comes if the parent has died before this line. Process 1 has then become the
        # parent of this worker; torchrun or accelerate, as a child of `launch`, never has number 1.
        if os.getppid() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def die_when_parent_does(number: int = signal.SIGTERM) -> None:
    """Makes the kernel send this process a signal when the one that started it dies (Linux)."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    ctypes.CDLL(None).prctl(set_parent_death_signal, number)


def _pass_on(lines: Iterable[bytes], stop_signals: Sequence[int]) -> None:
    """Prints the output of the workers, without the launcher's own lines.

    The launcher's traceback at the end is left out, too.
    """
    launcher_marks = (b"torch/distributed/", b"torch.distributed.elastic", b"accelerate/commands/")
    launcher_has_spoken = False
    is_traceback = False
    for line in lines:
        if any(mark in line for mark in launcher_marks):
            launcher_has_spoken = True
            continue
        # A traceback after the launcher's own lines, or after a signal, is the launcher's.
        is_ending = launcher_has_spoken or bool(stop_signals)
        if is_ending and line.startswith(b"Traceback"):
            is_traceback = True
        if not is_traceback:
            sys.stderr.write(line.decode("utf-8", "replace"))
            sys.stderr.flush()


def without_option(arguments: Sequence[str], option: str) -> list[str]:
    """Returns the arguments without an option and its value."""
    remaining: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == option:
            next(words, None)
        elif not word.startswith(f"{option}="):
            remaining.append(word)
    return remaining
