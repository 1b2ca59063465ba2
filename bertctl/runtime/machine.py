"""What this machine has: packages, processor, memory, devices, disk; and the limits of a container.

Only `devices` imports torch.
"""

import contextlib
import importlib.metadata
import os
import shutil
from pathlib import Path
from typing import Any

from bertctl.config.recipe_files import expanded_path
from bertctl.memory import group_limits
from bertctl.runtime.cpu import CPU_FEATURES, available_cores, cpu_name, cpu_words
from bertctl.runtime.device import fastest_on_cpu


def packages() -> list[dict[str, Any]]:
    """Returns the installed packages among those that bertctl needs or its extras name.

    Each has its `name` on PyPI, the `wanted` versions (such as `>=2.6,<2.14`), the installed
    `version` (None where nothing is), the `extra` that requires it (empty where bertctl itself
    does), and whether it `fits`.
    """
    from packaging.requirements import Requirement

    # A checkout that was never installed says nothing of itself.
    try:
        extras = ["", *(importlib.metadata.metadata("bertctl").get_all("Provides-Extra") or ())]
    except importlib.metadata.PackageNotFoundError:
        return []
    installed = []
    for line in importlib.metadata.requires("bertctl") or ():
        requirement = Requirement(line)
        marker = requirement.marker
        # The first extra, or none (""), with which the marker asks for the package on this system.
        fitting_extras = [
            name for name in extras if marker is None or marker.evaluate({"extra": name})
        ]
        extra = fitting_extras[0] if fitting_extras else None
        if requirement.name == "bertctl" or extra in (None, "test"):
            continue  # bertctl's own extras, another system, or what only developers need
        version = None
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(requirement.name)
        if version is None and extra:
            continue
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
        specifier = str(requirement.specifier)
        installed.append(
            {
                "name": requirement.name,
                "wanted": specifier,
                "version": version,
                "extra": extra or "",
                "fits": fits,
            }
        )
    return installed


def processor() -> dict[str, Any]:
    """Returns the CPU: its name, cores, quota and features.

    They are the `cores` of the machine and those `usable` by this process, the cores' worth of time
    that its control group (a container) gets as `quota` (None without a limit), and its `features`
    that speed up matrix products.
    """
    return {
        "name": cpu_name(),
        "cores": os.cpu_count() or 1,
        "usable": available_cores(),
        "quota": group_limits().cores,
        "features": sorted(CPU_FEATURES & cpu_words()),
    }


def devices() -> list[dict[str, Any]]:
    """Returns everything that computes here, the fastest kind first. Imports torch.

    Each has a `kind` (`cpu`, `cuda` or `mps`), a `name`, the bytes of its `memory` and how many are
    `free`, and whether `bf16` is fast on it. The bytes are None for a device that uses the
    machine's memory.
    """
    import torch

    accelerators = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        accelerators.append(
            _device(
                "cuda",
                str(properties.name),
                bf16=properties.major >= 8,
                memory=total,
                free=free,
            )
        )
    if torch.backends.mps.is_available():
        accelerators.append(_device("mps", "Apple GPU", bf16=False))
    return [
        *accelerators,
        _device("cpu", cpu_name(), bf16=fastest_on_cpu(available_cores())[0] == "bf16"),
    ]


def _device(
    kind: str, name: str, *, bf16: bool, memory: int | None = None, free: int | None = None
) -> dict[str, Any]:
    """Returns a device as `devices` lists it."""
    return {"kind": kind, "name": name, "memory": memory, "free": free, "bf16": bf16}


def free_bytes(folder: Path) -> int:
    """Returns the free bytes of the disk that a folder is on, or will be on once it is made."""
    return shutil.disk_usage(existing_folder(folder)).free


def is_writable(folder: Path) -> bool:
    """Returns whether this process may write into a folder, or make it."""
    place = existing_folder(folder)
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def existing_folder(folder: Path) -> Path:
    """Returns the folder, or the nearest one above it that is there."""
    place = expanded_path(folder).absolute()
    return next(candidate for candidate in (place, *place.parents) if candidate.exists())
