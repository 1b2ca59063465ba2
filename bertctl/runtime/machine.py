"""What this machine has: packages, processor, memory, devices, disk; and the limits of a container.

Only `devices` imports torch.
"""

import contextlib
import importlib.metadata
import os
import resource
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertctl.config.recipe_files import expanded_path
from bertctl.errors import DeviceError
from bertctl.runtime.cpu import CPU_FEATURES, available_cores, cpu_name, cpu_words, system_file
from bertctl.runtime.device import fastest_on_cpu
from bertctl.words import human_bytes

_CONTROL_GROUP = Path("/proc/self/cgroup")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_LIBRARIES, _THREAD = 1_300_000_000, 150_000_000
"""Bytes of address space that torch and transformers take, and each thread of theirs (measured, torch 2.13)."""


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


def packages() -> list[dict[str, Any]]:
    """Returns what is installed of the packages in bertctl's own metadata; those of extras only where installed.

    Each has its `name` on PyPI, the `wanted` versions (such as `>=2.6,<2.14`), the installed `version` (None where
    nothing is), the `extra` that requires it (empty where bertctl itself does), and whether it `fits`.
    """
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
        wanted = str(requirement.specifier)
        found.append(
            {"name": requirement.name, "wanted": wanted, "version": version, "extra": extra or "", "fits": fits}
        )
    return found


def processor() -> dict[str, Any]:
    """Returns the CPU: its name, the `cores` of the machine and those `usable` by this process, the cores' worth of
    time that its control group (a container) gets as `quota` (None without a limit), and its `features` that speed up
    matrix products.
    """
    return {
        "name": cpu_name(),
        "cores": os.cpu_count() or 1,
        "usable": available_cores(),
        "quota": group_limits().cores,
        "features": sorted(CPU_FEATURES & cpu_words()),
    }


def memory() -> dict[str, Any]:
    """Returns bytes of main memory: the `total` of the machine, those `available` to a new job without swapping, and
    the `limit` of the control group (None where there is none).
    """
    import psutil

    whole = psutil.virtual_memory()
    limits = group_limits()
    if limits.memory is None or limits.memory >= whole.total:
        return {"total": int(whole.total), "available": int(whole.available), "limit": None}
    available = max(0, min(int(whole.available), limits.memory - (limits.used or 0)))
    return {"total": int(whole.total), "available": available, "limit": limits.memory}


_MORE_MEMORY = "Choose a smaller model, or a machine (a container, a limit) with more memory."


def require_memory(need: int, what: str, *, remedy: str = _MORE_MEMORY) -> None:
    """Refuses what can't be in memory, before it is tried: the system would end the process without a word.

    Args:
        need: bytes.
        what: needs them, for the message.
        remedy: What to do about it.

    Raises:
        DeviceError: fewer are free, of the machine, its control group or the process's address space (`ulimit -v`).
    """
    import psutil

    room, where = memory()["available"], "are free"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        libraries = 0 if "torch" in sys.modules else _LIBRARIES + _THREAD * available_cores()
        left = limit - psutil.Process().memory_info().vms - libraries
        if left < min(need, room):
            room, where = left, f"are left of the {human_bytes(limit)} that `ulimit -v` allows, with the libraries"
    if need > room:
        why = f"{what} needs {human_bytes(need)} of memory, and {human_bytes(max(room, 0))} {where}"
        raise DeviceError(why, remedy=remedy)


def devices() -> list[dict[str, Any]]:
    """Returns everything that computes here, the fastest kind first. Imports torch.

    Each has a `kind` (`cpu`, `cuda` or `mps`), a `name`, its bytes of `memory` and the `free` ones of them (None where
    they are the machine's own), and whether `bf16` is fast on it.
    """
    import torch

    found = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        found.append(_device("cuda", str(properties.name), bf16=properties.major >= 8, memory=total, free=free))
    if torch.backends.mps.is_available():
        found.append(_device("mps", "Apple GPU", bf16=False))
    return [*found, _device("cpu", cpu_name(), bf16=fastest_on_cpu(available_cores())[0] == "bf16")]


def _device(kind: str, name: str, *, bf16: bool, memory: int | None = None, free: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "memory": memory, "free": free, "bf16": bf16}


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
    path = next((line.removeprefix("0::") for line in system_file(group).splitlines() if line.startswith("0::")), None)
    if path is None:
        return Limits()
    # In a container the path may be the host's, which is not mounted: then the root is the container's own.
    place = root / path.lstrip("/")
    folder = place if place.is_dir() else root
    memory: list[tuple[int, int | None]] = []
    cores: list[float] = []
    for level in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
        limit, used = (system_file(level / name).strip() for name in ("memory.max", "memory.current"))
        if limit.isdecimal():
            memory.append((int(limit), int(used) if used.isdecimal() else None))
        quota, _, period = system_file(level / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            cores.append(int(quota) / int(period))
    least, used_of_it = min(memory, default=(None, None), key=lambda pair: pair[0] or 0)
    return Limits(memory=least, used=used_of_it, cores=min(cores, default=None))


def existing_folder(folder: Path) -> Path:
    """Returns the folder, or the nearest one above it that is there."""
    place = expanded_path(folder).absolute()
    return next(one for one in (place, *place.parents) if one.exists())
