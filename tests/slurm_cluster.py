"""A real Slurm on this machine for tests.

A controller and two nodes, started by hand, with accounting if asked for.

Needs root and Debian's `slurm-wlm` and `munge`; accounting needs `slurmdbd` and `mariadb-server` as
well.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import ROOT

_SEARCH_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "srun")
_ACCOUNTING_PROGRAMS = (
    "slurmdbd",
    "sacct",
    "sacctmgr",
    "mariadbd",
    "mariadb",
    "mariadb-install-db",
)

_CONFIGURATION = """ClusterName=trial
SlurmctldHost={host}
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=2
MpiDefault=none
KillWait=60
SlurmdTimeout=300
SlurmdParameters=config_overrides
JobRequeue=1
{accounting}
NodeName={nodes[0]} NodeHostname={host} Port={ports[1]} CPUs=4 RealMemory=8000 State=UNKNOWN
NodeName={nodes[1]} NodeHostname={host} Port={ports[2]} CPUs=4 RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=30-0 State=UP
PartitionName=gpu Nodes=ALL MaxTime=30-0 State=UP
"""

_WITHOUT_ACCOUNTING = """JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none"""

_WITH_ACCOUNTING = """JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageEnforce=limits,qos
AccountingStorageHost={host}
AccountingStoragePort={ports[3]}
AccountingStoragePass={folder}/munge.socket"""

_DATABASE_CONFIGURATION = """AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
DbdHost={host}
DbdPort={ports[3]}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[4]}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""

_DATABASE_USER = """CREATE DATABASE slurm;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm.* TO 'slurm'@'127.0.0.1';
"""


def missing_programs(*, accounting: bool) -> list[str]:
    """Returns the programs that a Slurm of one's own needs and that are not installed here."""
    programs = _PROGRAMS
    if accounting:
        programs += _ACCOUNTING_PROGRAMS
    return [name for name in programs if shutil.which(name, path=_SEARCH_PATH) is None]


class SlurmCluster:
    """A Slurm of two nodes.

    Args:
        folder: Of its sockets, logs and states; its path is short, as that of a socket is.
        accounting: Whether slurmdbd and a MariaDB keep what has become of the jobs.

    Attributes:
        environment: In it, commands reach this Slurm, and `bertctl` is that of this checkout
            (tests/slurm_bertctl.py).
        nodes: Names of the two nodes.
        has_accounting: Whether there is accounting, with a quality of service `onejob` of one
            job per user.
    """

    def __init__(self, folder: Path, *, accounting: bool) -> None:
        self._folder = folder
        self._host = socket.gethostname().partition(".")[0]
        self.has_accounting = accounting
        self.nodes = (self._host, "zz-second")
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder}:{_SEARCH_PATH}",
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        }
        self._database: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts all daemons, and returns when both nodes are idle."""
        self._write_files()
        munged = [f"--key-file={self._folder}/munge.key", f"--socket={self._folder}/munge.socket"]
        munged += [f"--{name}-file={self._folder}/munged.{name}" for name in ("pid", "log", "seed")]
        self._run("munged", "--force", *munged)
        if self.has_accounting:
            self._start_accounting()
        self._run("slurmctld", "-f", str(self._folder / "slurm.conf"))
        for node in self.nodes:
            self.start_node(node)

    def stop(self) -> None:
        """Cancels all jobs and ends all daemons."""
        for state in ("RUNNING", "PENDING"):
            self.ask("scancel", f"--state={state}")
        for name in ("slurmd-*", "slurmctld", "slurmdbd", "munged"):
            for pid_file in self._folder.glob(f"{name}.pid"):
                _terminate(pid_file)
        if self._database is not None:
            self._database.terminate()
            self._database.wait()

    def start_node(self, node: str) -> None:
        """Starts the daemon of a node, and returns when the node is idle."""
        self._run("slurmd", "-f", str(self._folder / "slurm.conf"), "-N", node)
        until(lambda: self.node_state(node) == "idle")

    def lose_node(self, node: str) -> None:
        """Kills all of a node, as a power cut does.

        These are its daemon, its step daemons and the processes of its jobs. The controller notices
        it at once.

        The controller would notice it by itself after SlurmdTimeout, which is long: a node that a
        busy machine keeps waiting is not lost.
        """
        jobs = self.ask("squeue", "-h", "-w", node, "-o", "%A").split()
        daemon = psutil.Process(int((self._folder / f"slurmd-{node}.pid").read_text()))
        processes = [daemon]
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self._is_step_daemon(process, jobs) or self._is_of_job(process, jobs):
                    processes.append(process)
        # None of them may live to report the end of another one.
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def node_state(self, node: str) -> str:
        """Returns the state of a node, such as `idle`, `mixed` or `down*`."""
        return self.ask("sinfo", "-h", "-n", node, "-o", "%T")

    def ask(self, *command: str) -> str:
        """Returns what one of Slurm's commands prints; empty where it fails."""
        answer = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return answer.stdout.strip()

    def jobs(self, *states: str) -> list[str]:
        """Returns the numbers of the jobs in one of these states, such as `R` and `PD`."""
        state_names = ",".join(states)
        numbers = self.ask("squeue", "-h", "-t", state_names, "-o", "%i")
        return numbers.split()

    def job_process(self, job: str) -> psutil.Process:
        """Returns the Python process of a job, that of submitit."""
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.Error):
                is_submitit = "submitit.core._submit" in (process.info["cmdline"] or [])
                if is_submitit and process.name() != "srun" and self._is_of_job(process, [job]):
                    return process
        message = f"job {job} has no process"
        raise AssertionError(message)

    # Another cluster on this machine has jobs of the same numbers.

    def _is_of_job(self, process: psutil.Process, jobs: Collection[str]) -> bool:
        variables = process.environ()
        is_ours = variables.get("SLURM_CONF") == self.environment["SLURM_CONF"]
        return is_ours and variables.get("SLURM_JOB_ID") in jobs

    def _is_step_daemon(self, process: psutil.Process, jobs: Collection[str]) -> bool:
        title = " ".join(process.cmdline())
        is_ours = Path(process.cwd()).is_relative_to(self._folder)
        return (
            is_ours and title.startswith("slurmstepd") and any(f"[{job}." in title for job in jobs)
        )

    def _write_files(self) -> None:
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self._folder / name).mkdir()
        values: dict[str, Any] = {
            "host": self._host,
            "nodes": self.nodes,
            "ports": _free_ports(5),
            "folder": self._folder,
        }
        accounting = _WITHOUT_ACCOUNTING
        if self.has_accounting:
            accounting = _WITH_ACCOUNTING.format(**values)
        self._ports = values["ports"]
        (self._folder / "slurm.conf").write_text(
            _CONFIGURATION.format(accounting=accounting, **values)
        )
        (self._folder / "slurmdbd.conf").write_text(_DATABASE_CONFIGURATION.format(**values))
        (self._folder / "slurmdbd.conf").chmod(0o600)
        (self._folder / "munge.key").write_bytes(os.urandom(1024))
        (self._folder / "munge.key").chmod(0o600)
        (self._folder / "bertctl").write_text(
            f'#!/bin/sh\nexec {sys.executable} -m tests.slurm_bertctl "$@"\n'
        )
        (self._folder / "bertctl").chmod(0o755)

    def _start_accounting(self) -> None:
        data = self._folder / "database"
        server = f"--socket={self._folder}/mariadb.socket"
        self._run(
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            "--skip-test-db",
        )
        command = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", server]
        command += [
            "--bind-address=127.0.0.1",
            f"--port={self._ports[4]}",
            f"--pid-file={self._folder}/mariadbd.pid",
        ]
        with (self._folder / "mariadbd.log").open("w") as log:
            self._database = subprocess.Popen(
                command,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        client = ["mariadb", "--no-defaults", "--user=root", server]
        until(lambda: self.ask(*client, "-e", "SELECT 1"))
        self._run(*client, "-e", _DATABASE_USER)
        self._run("slurmdbd")
        # It makes its tables before it listens.
        until(lambda: self.ask("sacctmgr", "-i", "add", "cluster", "trial"))
        self._run("sacctmgr", "-i", "add", "qos", "onejob", "set", "MaxSubmitJobsPerUser=1")
        self._run("sacctmgr", "-i", "modify", "user", "root", "set", "qos=normal,onejob")

    def _run(self, *command: str) -> None:
        process = subprocess.run(
            command,
            env=self.environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.returncode == 0, f"{command[0]}: {process.stdout}"


@contextlib.contextmanager
def running_slurm(*, accounting: bool) -> Iterator[SlurmCluster]:
    """A Slurm of two nodes that is stopped at the end.

    Args:
        accounting: Whether slurmdbd and a MariaDB keep what has become of the jobs.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    cluster = SlurmCluster(folder, accounting=accounting)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def until(condition: Callable[[], Any], *, process: "subprocess.Popen[str] | None" = None) -> Any:
    """Returns what the condition gives, once that is something.

    A process that ends before it is an error.
    """
    for _ in range(36_000):
        value = condition()
        if value:
            return value
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        time.sleep(0.1)
    raise AssertionError("it has not come")


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def _terminate(pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int(pid_file.read_text()))
        process.terminate()
        process.wait(20)
