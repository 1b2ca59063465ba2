"""The processor as the kernel describes it."""

import functools
import os
import platform
from pathlib import Path

from bertctl.memory import system_file

_CPUINFO = Path("/proc/cpuinfo")


@functools.cache
def cpu_words() -> frozenset[str]:
    """Returns the words of /proc/cpuinfo, the CPU's flags among them.

    There are none where there is no such file.
    """
    return frozenset(system_file(_CPUINFO).split())


def cpu_name() -> str:
    """Returns the CPU's name as it calls itself, such as `Intel(R) Xeon(R) Platinum 8481C`."""
    lines = system_file(_CPUINFO).splitlines()
    name = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
    return name or platform.processor() or platform.machine()


def available_cores() -> int:
    """Returns how many cores this process may use.

    taskset may allow fewer than the machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CPU_FEATURES = frozenset(
    {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16"}
)
"""What the matrix libraries look for, by the names of /proc/cpuinfo (x86 and Arm)."""


def has_bf16() -> bool:
    """Returns whether the CPU multiplies bf16 in hardware, fast or not.

    The extensions are AVX-512 BF16, AMX, and Arm's.
    """
    is_arm = platform.machine() == "aarch64"
    return bool(cpu_words() & {"avx512_bf16", "amx_bf16"}) or ("bf16" in cpu_words() and is_arm)


def leaves_mkl_behind() -> bool:
    """Returns whether MKL leaves this CPU's AVX-512 unused, as it does if Intel has not made it."""
    is_x86 = platform.machine() == "x86_64"
    return is_x86 and "avx512f" in cpu_words() and "GenuineIntel" not in cpu_words()
