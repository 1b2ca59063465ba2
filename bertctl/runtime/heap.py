"""Memory that the C library keeps for itself."""

import contextlib
import ctypes


def trim_heap() -> None:
    """Returns freed memory to the system, inside the heap too, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # macOS, Windows, musl
        ctypes.CDLL(None).malloc_trim(0)
