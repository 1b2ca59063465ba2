"""The backends that compute vectors, by name, and what each needs: nothing is loaded here."""

from importlib.util import find_spec

from bertctl.errors import DeviceError, UsageError
from bertctl.exporting.convert import PACKAGES as CONVERTED
from bertctl.exporting.convert import require_packages
from bertctl.words import unknown

PACKAGES: dict[str, tuple[str, ...]] = {"torch": (), **CONVERTED}
"""The backends, and what each needs besides."""

_PRECISIONS = {"torch": ("fp32", "bf16", "fp16"), "openvino": ("fp32", "bf16"), "onnx": ("fp32",)}


def is_installed(name: str) -> bool:
    """Returns whether all that a backend needs is installed."""
    return all(find_spec(package) is not None for package in PACKAGES[name])


def precisions(name: str) -> tuple[str, ...]:
    """Returns the precisions that a backend computes in."""
    return _PRECISIONS[name]


def check_backend(name: str, *, device: str, precision: str) -> None:
    """Refuses a backend that can't be used, before anything is loaded.

    Args:
        name: The backend that was asked for, which may be `auto`.
        device: The device that was asked for, which may be `auto`.
        precision: The precision that was asked for, which may be `auto`.

    Raises:
        UsageError: No such backend; a precision it does not compute in.
        UnavailableError: Its packages are not installed.
        DeviceError: A device other than the CPU.
    """
    known = ("auto", *PACKAGES)
    if name not in known:
        raise UsageError(unknown("backend", name, known), remedy=f"Choose from {', '.join(known)}.")
    if name in ("auto", "torch"):
        return
    require_packages(name, f"`backend={name}`")
    if device not in ("auto", "cpu"):
        raise DeviceError(
            f"`backend={name}` computes on the CPU, not on {device}",
            remedy="Leave one of them out.",
        )
    if precision not in ("auto", *precisions(name)):
        message = f"`backend={name}` does not compute in {precision}"
        raise UsageError(message, remedy=f"Choose `precision=` from {', '.join(precisions(name))}.")
