"""Memory that this process may still take.

It is that of the machine, of its control groups, and of its own limits (`ulimit`).
"""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bertctl.errors import DeviceError
from bertctl.words import human_bytes

_CONTROL_GROUP = Path("/proc/self/cgroup")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")

_LIBRARIES = {"-v": 1_300_000_000, "-d": 400_000_000}
"""Bytes that torch and transformers take, by the option of `ulimit` that counts them (measured,
torch 2.13)."""
_THREAD = {"-v": 150_000_000, "-d": 20_000_000}
"""Bytes that each thread of theirs takes."""

_SMALLEST_GROWTH = 2**28
"""Bytes that reading has taken before a file is refused for them."""


_LAST_BYTES = 2**27
"""Bytes that stay free in any case."""

_FEWER_ROWS = (
    "Split the file, or take a sample of it; or choose a machine (a container, a limit) with more "
    "memory."
)


@dataclass(frozen=True)
class Limits:
    """Limits that the control groups of this process set; None for what they don't limit.

    Attributes:
        memory: Memory in bytes.
        used: Bytes of this memory that are used.
        cores: Processor time, in cores.
    """

    memory: int | None = None
    used: int | None = None
    cores: float | None = None


def system_file(path: Path) -> str:
    """Returns the content of a file of the kernel.

    It is empty if there is no such file, as outside of Linux.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def group_limits(group: Path = _CONTROL_GROUP, root: Path = _CONTROL_GROUPS) -> Limits:
    """Returns the memory and processor time that this process's control groups allow.

    A limit of a group holds for all groups below it, so the lowest limit among the process's own
    group and those above it counts.

    Args:
        group: File that names the groups of the process.
        root: Folder where the groups are mounted.
    """
    # Version 2 has one group for everything, under an empty name. Version 1 has one for `memory`.
    paths = dict(_group_paths(system_file(group)))
    memory: list[tuple[int, int | None]] = []
    cores: list[float] = []
    if "" in paths:
        for level in _levels(root, paths[""]):
            memory += _memory_of(level, "memory.max", "memory.current", "inactive_file")
            quota, _, period = system_file(level / "cpu.max").strip().partition(" ")
            if quota.isdecimal() and period.isdecimal():
                cores.append(int(quota) / int(period))
    if "memory" in paths:
        for level in _levels(root / "memory", paths["memory"]):
            memory += _memory_of(
                level, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            )
    limit: int | None = None
    used: int | None = None
    if memory:
        limit, used = min(memory, key=lambda limit_and_use: limit_and_use[0])
    return Limits(memory=limit, used=used, cores=min(cores, default=None))


def _group_paths(text: str) -> Iterator[tuple[str, str]]:
    """Yields each controller of control groups, such as `memory`, with the path of its group.

    Version 2 of control groups has no such names; then the name is empty.

    Args:
        text: Content of /proc/self/cgroup.
    """
    for line in text.splitlines():
        # A line is "4:cpu,memory:/group" in version 1, and "0::/group" in version 2.
        number, *controllers_and_path = line.split(":", 2)
        if not number.isdecimal() or len(controllers_and_path) < 2:
            continue
        controllers, path = controllers_and_path
        for controller in controllers.split(","):
            yield controller, path


def _levels(root: Path, path: str) -> Iterator[Path]:
    """Yields the folder of a control group, then the folders of the groups above it.

    Args:
        root: Folder where the groups are mounted.
        path: Path of the group, as /proc/self/cgroup names it.
    """
    # In a container, this may be the path on the host, which is not mounted. Then the root is the
    # group of the container.
    folder = root / path.lstrip("/")
    if not folder.is_dir():
        folder = root
    yield folder
    for parent in folder.parents:
        if parent.is_relative_to(root):
            yield parent


def _memory_of(
    folder: Path, limit_name: str, used_name: str, cache_name: str
) -> list[tuple[int, int | None]]:
    """Returns a control group's memory limit and the bytes in use; an empty list if unlimited.

    The cache of files does not count as used, because the system frees it when memory is needed.

    Args:
        folder: Folder of the group.
        limit_name: Name of the file with the limit.
        used_name: Name of the file with the bytes in use.
        cache_name: Name of the cache's entry in memory.stat.

    Returns:
        A list with one pair: limit and bytes in use, which are None if their file is missing.
    """
    limit = system_file(folder / limit_name).strip()
    if not limit.isdecimal():
        return []
    used = system_file(folder / used_name).strip()
    if not used.isdecimal():
        return [(int(limit), None)]
    statistics = dict(
        line.split(" ", 1)
        for line in system_file(folder / "memory.stat").splitlines()
        if " " in line
    )
    cached = statistics.get(cache_name, "0").strip()
    if cached.isdecimal():
        n_cached = int(cached)
    else:
        n_cached = 0
    return [(int(limit), max(0, int(used) - n_cached))]


def memory() -> dict[str, Any]:
    """Returns the main memory in bytes: `total`, `available` and `limit`.

    `total` is that of the machine. `available` can be taken by a new job without swapping. `limit`
    is the control group's; it is None if the group has none below the total.
    """
    import psutil

    machine = psutil.virtual_memory()
    limits = group_limits()
    if limits.memory is None or limits.memory >= machine.total:
        return {"total": int(machine.total), "available": int(machine.available), "limit": None}
    available = max(0, min(int(machine.available), limits.memory - (limits.used or 0)))
    return {"total": int(machine.total), "available": available, "limit": limits.memory}


def _free(*, libraries: bool, threads: int = 1) -> tuple[int, str]:
    """Returns how many bytes this process may still take, and words for messages that say why.

    The words follow the number, such as `are free` or `are left of the 4 GB that ...`.

    Args:
        libraries: Whether to subtract what torch and transformers take when they are imported
            later.
        threads: Number of threads that these libraries will start.
    """
    import psutil

    free = memory()["available"]
    reason = "are free"
    process = psutil.Process().memory_info()
    kinds = (
        ("-v", resource.RLIMIT_AS, process.vms),
        ("-d", resource.RLIMIT_DATA, getattr(process, "data", 0)),
    )
    for option, kind, used in kinds:
        limit = resource.getrlimit(kind)[0]
        if limit == resource.RLIM_INFINITY:
            continue
        left = limit - used
        words = f"are left of the {human_bytes(limit)} that `ulimit {option}` allows"
        if libraries and "torch" not in sys.modules:
            left -= _LIBRARIES[option] + _THREAD[option] * threads
            words += ", with the libraries"
        if left < free:
            free = left
            reason = words
    return max(free, 0), reason


def require_memory(
    need: int, noun: str, *, remedy: str = "", libraries: bool = True, threads: int = 1
) -> None:
    """Refuses something that needs more memory than is free, before it is tried.

    The system would end the process without a word.

    Args:
        need: Bytes that it needs.
        noun: Name of what needs them, for the message.
        remedy: What to do about it.
        libraries: Whether torch and transformers will be imported as well, which take memory, too.
        threads: Number of threads that these libraries will start.

    Raises:
        DeviceError: Fewer bytes are free on the machine, in its control group or within the limits
            of the process (`ulimit -v`, `-d`).
    """
    free, reason = _free(libraries=libraries, threads=threads)
    if need > free:
        message = f"{noun} needs {human_bytes(need)} of memory, and {human_bytes(free)} {reason}"
        remedy = (
            remedy
            or "Choose a smaller model, or a machine (a container, a limit) with more memory."
        )
        raise DeviceError(message, remedy=remedy)


class MemoryGuard:
    """Refuses a file whose rows don't fit into the memory, while it is read.

    The work that follows reading needs memory, too. So some has to be free after all rows are read.

    Args:
        source: Name of the file, for messages.
        noun: What is counted, in the plural.
        spare: Memory that has to be free after reading, as a multiple of what the rows take.
    """

    def __init__(self, source: str, noun: str = "rows", *, spare: float = 0.5) -> None:
        self._source = source
        self._noun = noun
        self._spare = spare
        # Bytes that the process used, and that were free, when `check` was called first.
        self._used_at_start: int | None = None
        self._free_at_start = 0

    def check(self, n_read: int, n_expected: int = 0) -> None:
        """Refuses to read on if the rows of a file will not fit into memory.

        The first call only notes how much memory is used and free. Later calls assume that the rows
        take what the process has taken since then.

        Args:
            n_read: Rows that were read so far.
            n_expected: About how many rows the file has; 0 if that is unknown, or if rows do not
                stay in memory.

        Raises:
            DeviceError: There is too little memory.
        """
        import psutil

        used = psutil.Process().memory_info().rss
        if self._used_at_start is None:
            self._used_at_start = used
            self._free_at_start = _free(libraries=False)[0]
            return
        bytes_of_read = used - self._used_at_start
        if bytes_of_read < _SMALLEST_GROWTH:
            return
        bytes_of_all = bytes_of_read * max(n_expected, n_read) // max(n_read, 1)
        free, reason = _free(libraries=False)
        if n_expected:
            # The work that follows reading needs memory in proportion to the rows.
            bytes_to_leave = self._spare * bytes_of_read
        else:
            bytes_to_leave = _LAST_BYTES
        has_little_left = free <= bytes_to_leave
        is_file_too_large = n_expected > 0 and bytes_of_all >= self._free_at_start
        if has_little_left or is_file_too_large:
            amount = f"{n_read:,} {self._noun} take {human_bytes(bytes_of_read)} of memory"
            if n_expected > n_read:
                amount += f", about {n_expected:,} would take {human_bytes(bytes_of_all)}"
            raise DeviceError(
                f"{self._source}: {amount}, and {human_bytes(free)} {reason}", remedy=_FEWER_ROWS
            )


def rows_of_size(file: BinaryIO, rows: int) -> int:
    """Returns about how many rows a file has, by the part of its bytes that was read so far.

    It is 0 for a pipe, whose size is unknown.

    Args:
        file: The file, open at the end of the rows that were read.
        rows: Number of these rows.
    """
    with contextlib.suppress(OSError):  # a file in memory has no descriptor
        n_bytes = os.fstat(file.fileno()).st_size
        if not n_bytes:
            return 0
        n_bytes_read = file.tell()
        if n_bytes_read:
            return rows * n_bytes // n_bytes_read
    return 0
