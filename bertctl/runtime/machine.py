"""What this machine has: packages, processor, memory, devices, disk, and what a container leaves of them.

Only `devices` imports torch.
"""

import contextlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertctl.runtime.device import available_cores, cpu_has_fast_bf16

_CPUINFO = Path("/proc/cpuinfo")
_CONTROL_GROUP = Path("/proc/self/cgroup")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_SHOWN_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
"""What the matrix libraries look for, by the names of /proc/cpuinfo (x86 and Arm)."""


@dataclass(frozen=True)
class Package:
    """A package that bertctl asks for.

    Attributes:
        name: on PyPI.
        wanted: versions that fit, such as `>=2.6,<2.14`.
        version: what is installed; None where nothing is.
        extra: the extra that asks for it; empty where bertctl itself does.
        fits: whether what is installed is wanted.
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
        quota: cores' worth of time that its control group (a container) is given; None where there is no limit.
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
    """One thing that computes.

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
    """The packages in bertctl's own metadata, with what is installed of them; those of extras only where installed."""
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
    """The CPU, and how much of it this process may use."""
    text = ""
    with contextlib.suppress(OSError):
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
    words = set(text.split())
    return Processor(
        name=name or platform.processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        usable=available_cores(),
        quota=group_limits().cores,
        features=tuple(feature for feature in _SHOWN_FEATURES if feature in words),
        fast_bf16=cpu_has_fast_bf16(),
    )


def memory() -> Memory:
    """Main memory."""
    import psutil

    whole = psutil.virtual_memory()
    limits = group_limits()
    if limits.memory is None or limits.memory >= whole.total:  # cgroup v1 writes a huge number for no limit
        return Memory(int(whole.total), int(whole.available), None)
    left = limits.memory - (limits.used or 0)
    return Memory(int(whole.total), max(0, min(int(whole.available), left)), limits.memory)


def devices() -> list[Device]:
    """Everything that computes here, the fastest kind first. Imports torch."""
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
    """Free bytes on the disk that a folder is on, or will be on once it is made."""
    return shutil.disk_usage(existing_folder(folder)).free


def is_writable(folder: Path) -> bool:
    """Whether this process may write into a folder, or make it."""
    place = existing_folder(folder)
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def group_limits(group: Path = _CONTROL_GROUP, root: Path = _CONTROL_GROUPS) -> Limits:
    """What the control groups of this process allow: its own and every one above it, version 1 and 2.

    Args:
        group: file that names the groups of the process.
        root: where the groups are mounted.
    """
    memories, cores = [], []
    for folder, is_memory in _groups(group, root):
        if is_memory:
            limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
            used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
            if limit:
                memories.append((limit, used))
        else:
            quota = _words(folder / "cpu.max") or [
                *_words(folder / "cpu.cfs_quota_us"),
                *_words(folder / "cpu.cfs_period_us"),
            ]
            if len(quota) == 2 and all(word.isdecimal() for word in quota) and int(quota[1]):  # else `max` or -1
                cores.append(int(quota[0]) / int(quota[1]))
    limit, used = min(memories, default=(None, None), key=lambda pair: pair[0] or 0)
    return Limits(memory=limit, used=used, cores=min(cores, default=None))


def _groups(group: Path, root: Path) -> Iterator[tuple[Path, bool]]:
    """Folders of the groups that limit this process, each with whether it is looked at for memory (else for time)."""
    for line in _lines(group):
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if not separator:
            continue
        for controller, is_memory in (("memory", True), ("cpu", False)):
            if controllers and controller not in controllers.split(","):
                continue
            base = root / controller if controllers else root
            inside = base / path.lstrip("/")
            # In a container the path may be the host's, which isn't mounted: then the root is the container's own.
            place = inside if inside.is_dir() else base
            while place.is_dir():
                yield place, is_memory
                if place == base:
                    break
                place = place.parent


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdecimal() else None


def existing_folder(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    place = folder.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return place
