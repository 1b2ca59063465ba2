"""What this machine has: packages, processor, memory, devices, disk; and the limits of a container.

Only `devices` imports torch.
"""

import contextlib
import importlib.metadata
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bertctl.runtime.cpu import cpu_name, cpu_words, has_fast_bf16
from bertctl.runtime.device import available_cores

_CONTROL_GROUP = Path("/proc/self/cgroup")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_SHOWN_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
"""What the matrix libraries look for, by the names of /proc/cpuinfo (x86 and Arm)."""


@dataclass(frozen=True)
class Package:
    """A package that bertctl requires.

    Attributes:
        name: on PyPI.
        wanted: allowed versions, such as `>=2.6,<2.14`.
        version: what is installed; None where nothing is.
        extra: the extra that requires it; empty where bertctl itself does.
        fits: whether the installed version is allowed.
    """

    name: str
    wanted: str
    version: str | None
    extra: str
    fits: bool


@dataclass(frozen=True)
class Processor:
    """The CPU.

    Attributes:
        name: as it calls itself.
        cores: of the machine.
        usable: cores this process may run on.
        quota: cores' worth of time that its control group (a container) gets; None without a limit.
        features: of those that speed up matrix products.
        fast_bf16: whether it multiplies bf16 matrices in hardware.
    """

    name: str
    cores: int
    usable: int
    quota: float | None
    features: tuple[str, ...]
    fast_bf16: bool


@dataclass(frozen=True)
class Memory:
    """Bytes of main memory.

    Attributes:
        total: of the machine.
        available: that a new job can have without swapping, within the limit.
        limit: of the control group; None where there is none.
    """

    total: int
    available: int
    limit: int | None


@dataclass(frozen=True)
class Device:
    """A device that computes.

    Attributes:
        kind: `cpu`, `cuda` or `mps`.
        name: as it calls itself.
        memory: bytes it has; None where that is the machine's own.
        free: bytes of them that are free.
        bf16: whether bf16 is fast on it.
    """

    kind: str
    name: str
    memory: int | None
    free: int | None
    bf16: bool


@dataclass(frozen=True)
class Limits:
    """What the control groups of this process allow; None where there is no limit.

    Attributes:
        memory: bytes.
        used: bytes that are used of it.
        cores: cores' worth of processor time.
    """

    memory: int | None = None
    used: int | None = None
    cores: float | None = None


def packages() -> list[Package]:
    """Returns what is installed of the packages in bertctl's own metadata; those of extras only where installed."""
    from packaging.requirements import Requirement

    try:
        extras = ["", *(importlib.metadata.metadata("bertctl").get_all("Provides-Extra") or ())]
    except importlib.metadata.PackageNotFoundError:  # a checkout that was never installed says nothing of itself
        return []
    found = []
    for line in importlib.metadata.requires("bertctl") or ():
        requirement = Requirement(line)
        marker = requirement.marker
        extra = next((name for name in extras if marker is None or marker.evaluate({"extra": name})), None)
        if requirement.name == "bertctl" or extra in (None, "test"):
            continue  # for another system, or for developers
        version = None
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(requirement.name)
        if version is None and extra:
            continue
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
        found.append(Package(requirement.name, str(requirement.specifier), version, extra or "", fits))
    return found


def processor() -> Processor:
    """Returns the CPU, and how much of it this process may use."""
    return Processor(
        name=cpu_name(),
        cores=os.cpu_count() or 1,
        usable=available_cores(),
        quota=group_limits().cores,
        features=tuple(feature for feature in _SHOWN_FEATURES if feature in cpu_words()),
        fast_bf16=has_fast_bf16(),
    )


def memory() -> Memory:
    """Returns how much main memory there is."""
    import psutil

    whole = psutil.virtual_memory()
    limits = group_limits()
    if limits.memory is None or limits.memory >= whole.total:
        return Memory(int(whole.total), int(whole.available), None)
    left = limits.memory - (limits.used or 0)
    return Memory(int(whole.total), max(0, min(int(whole.available), left)), limits.memory)


def devices() -> list[Device]:
    """Returns everything that computes here, the fastest kind first. Imports torch."""
    import torch

    found = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        found.append(Device("cuda", str(properties.name), int(total), int(free), bool(properties.major >= 8)))
    if torch.backends.mps.is_available():
        found.append(Device("mps", "Apple GPU", None, None, bf16=False))
    cpu = processor()
    return [*found, Device("cpu", cpu.name, None, None, cpu.fast_bf16)]


def free_bytes(folder: Path) -> int:
    """Returns the free bytes of the disk that a folder is on, or will be on once it is made."""
    return shutil.disk_usage(existing_folder(folder)).free


def is_writable(folder: Path) -> bool:
    """Returns whether this process may write into a folder, or make it."""
    place = existing_folder(folder)
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def group_limits(group: Path = _CONTROL_GROUP, root: Path = _CONTROL_GROUPS) -> Limits:
    """Returns what the control groups (version 2) of this process allow: its own and every one above it.

    Args:
        group: file that names the group of the process.
        root: where the groups are mounted.
    """
    path = next((line.removeprefix("0::") for line in _read(group).splitlines() if line.startswith("0::")), None)
    if path is None:
        return Limits()
    # In a container the path may be the host's, which is not mounted: then the root is the container's own.
    place = root / path.lstrip("/")
    folder = place if place.is_dir() else root
    memory: list[tuple[int, int | None]] = []
    cores: list[float] = []
    for level in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
        limit, used = (_read(level / name).strip() for name in ("memory.max", "memory.current"))
        if limit.isdecimal():
            memory.append((int(limit), int(used) if used.isdecimal() else None))
        quota, _, period = _read(level / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            cores.append(int(quota) / int(period))
    least, used_of_it = min(memory, default=(None, None), key=lambda pair: pair[0] or 0)
    return Limits(memory=least, used=used_of_it, cores=min(cores, default=None))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def existing_folder(folder: Path) -> Path:
    """Returns the folder, or the nearest one above it that is there."""
    place = folder.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return place
