"""Memory that the C library keeps for itself."""

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)


def trim_heap() -> None:
    """Returns freed memory to the system, inside the heap too, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # macOS, Windows, musl
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Has the C library (glibc) reuse freed memory instead of returning it to the system after each training step.

    The system would hand it out again page by page: a tenth of BERT-base's step on two cores.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        if library.mallopt(_MMAP_THRESHOLD, 1 << 30):
            library.mallopt(_TRIM_THRESHOLD, -1)
