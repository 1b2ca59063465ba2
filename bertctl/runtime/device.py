"""Which device computes, in which precision, with how many threads, and why."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bertctl.errors import DeviceError
from bertctl.runtime.cpu import available_cores, has_bf16
from bertctl.runtime.launch import is_worker, workers
from bertctl.runtime.measured import WORTH
from bertctl.runtime.products import measured_products
from bertctl.runtime.threads import set_threads
from bertctl.session import current
from bertctl.words import count

if TYPE_CHECKING:
    from bertctl.config.recipe_sections import RuntimeSection


@dataclass(frozen=True)
class Compute:
    """Where and how a job computes, all of it resolved.

    Attributes:
        device: `cpu`, `cuda` or `mps`.
        precision: `fp32`, `bf16` or `fp16`; weights are kept in fp32 whatever it is.
        threads: CPU threads.
        why: one line for a person.
    """

    device: str
    precision: str
    threads: int
    why: str


def choose_compute(
    settings: "RuntimeSection", *, only_fp32: str = "", reasons: Mapping[str, str] | None = None
) -> Compute:
    """Resolves `auto`, checks device and precision, and sets the number of torch's threads.

    On a GPU it also turns cuDNN's attention off until the command ends. Processes that share a job,
    and have met, all take the first one's precision.

    Args:
        settings: What was asked for.
        only_fp32: Why the model can't compute in half precision; empty where it can.
        reasons: Why the device and the precision are given, by field, where nobody typed them.

    Raises:
        DeviceError: The device is absent, or can't do the precision.
    """
    reasons = reasons or {}
    # All processes take part in this exchange, whatever device each was asked for.
    n_sharing = workers_here()
    device, device_why = _choose_device(settings.device)
    if settings.device != "auto":
        device_why = reasons.get("device", device_why)
    if device == "cuda":
        _turn_off_cudnn_attention()
    threads = settings.threads or max(1, available_cores() // n_sharing)
    set_threads(threads)
    precision, precision_why = _choose_precision(settings.precision, device, threads)
    if settings.precision != "auto":
        precision_why = reasons.get("precision", precision_why)
    if only_fp32 and precision != "fp32":
        precision_why = f"not {precision}: {only_fp32}"
        precision = "fp32"
    if _has_met_others():  # other machines, or another measurement, might differ
        precision = workers().share(precision)
    if n_sharing == 1:
        share_text = "all cores of this process"
    else:
        share_text = "its share of the cores"
    if settings.threads:
        threads_why = ""
    else:
        threads_why = f", {share_text}"
    reason = (
        f"{device} ({device_why}), {precision} ({precision_why}), "
        f"{count(threads, 'thread')}{threads_why}"
    )
    return Compute(device, precision, threads, reason)


def _turn_off_cudnn_attention() -> None:
    """Makes torch compute attention without cuDNN until the command ends.

    cuDNN's attention makes a plan for each shape, a tenth of a second (H100), and batches have many
    shapes.
    """
    import torch

    is_enabled = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    restore = partial(torch.backends.cuda.enable_cudnn_sdp, is_enabled)
    current().restore_later("attention of cuDNN", restore)
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)


def exact_on_cpu(settings: "RuntimeSection") -> "RuntimeSection":
    """Returns the settings with fp32 where the precision is left open and a CPU computes.

    Similarities are compared with each other, and near ones change places by the rounding of bf16.
    On a CPU fp32 costs little.
    """
    if settings.precision == "auto" and _choose_device(settings.device)[0] == "cpu":
        return settings.model_copy(update={"precision": "fp32"})
    return settings


def workers_here() -> int:
    """Returns how many processes of this job share the cores of this one.

    torchrun says it. Processes that something else has started tell each other their machine and
    their cores.
    """
    local_size = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local_size and "RANK" in os.environ:
        return max(1, int(local_size))
    if not _has_met_others():
        return 1
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = []
    return workers().count_alike(platform.node(), cores)


def _has_met_others() -> bool:
    """Returns whether this process is one of several that are connected."""
    import torch.distributed as dist

    return is_worker() and dist.is_initialized()


def _choose_device(requested: str) -> tuple[str, str]:
    """Returns the device and why it was chosen, such as `("cuda", "found")`.

    Args:
        requested: `auto`, or a device.

    Raises:
        DeviceError: The requested device is not there.
    """
    import torch

    is_present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if requested != "auto":
        if not is_present[requested]:
            available = ", ".join(name for name, is_available in is_present.items() if is_available)
            raise DeviceError(
                f"the device '{requested}' was asked for and is not there (found: {available})",
                remedy="Use `runtime.device=auto` or "
                f"`runtime.device={available.split(', ')[0]}`, or run where there is one "
                "(a CUDA device needs a CUDA build of torch).",
            )
        return requested, "as set"
    for name in ("cuda", "mps"):
        if is_present[name]:
            return name, "found"
    return "cpu", "no CUDA or MPS device here"


def _choose_precision(requested: str, device: str, threads: int) -> tuple[str, str]:
    """Returns the precision and why it was chosen, such as `("bf16", "fast here")`.

    Args:
        requested: `auto`, `fp32`, `bf16` or `fp16`.
        device: Device that computes, such as `cuda`.
        threads: CPU threads, on whose number the fastest precision depends.

    Raises:
        DeviceError: fp16 was requested on a CPU.
    """
    if requested == "auto":
        return _fastest_precision(device, threads)
    if requested == "fp16" and device == "cpu":
        message = "fp16 was asked for, and a CPU does not train in it"
        raise DeviceError(
            message, remedy="Use `runtime.precision=bf16` or `runtime.precision=fp32`."
        )
    return requested, "as set"


def _fastest_precision(device: str, threads: int) -> tuple[str, str]:
    """Returns the fastest precision of a device that trains well in it, and why."""
    import torch

    if device == "cuda":
        # Ampere is the first generation with bf16 in its tensor cores.
        if torch.cuda.get_device_capability()[0] >= 8:
            return "bf16", "fast here"
        return "fp32", "this GPU has no fast bf16"
    if device == "mps":
        return "fp32", "the safe choice on MPS"
    return fastest_on_cpu(threads)


def fastest_on_cpu(threads: int) -> tuple[str, str]:
    """Returns the precision that this CPU computes faster in, and why."""
    if not has_bf16():
        return "fp32", "this CPU has no bf16"
    speeds = measured_products(threads)
    fp32 = speeds["fp32"]
    bf16 = speeds["bf16"]
    if bf16 >= WORTH * fp32:  # so much faster that it is worth its rounding
        return "bf16", f"multiplied here at {bf16:.0f} GFLOP/s, fp32 at {fp32:.0f}"
    return "fp32", f"multiplied here at {fp32:.0f} GFLOP/s, bf16 at {bf16:.0f}"
