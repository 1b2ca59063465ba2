"""Memory that the C library keeps for itself."""

import contextlib
import ctypes

# mallopt(3)
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3


def trim_heap() -> None:
    """Returns freed memory to the system, inside the heap too, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # macOS, Windows, musl
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Makes the C library (glibc) reuse freed memory, not return it to the system after each batch.

    The system would hand it out again page by page: a tenth of BERT-base's training step on two
    cores. Where a process may have only so much memory, what is kept would be missing elsewhere.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        import resource  # not on Windows

        kinds = resource.RLIMIT_AS, resource.RLIMIT_DATA
        if any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds):
            return
        library = ctypes.CDLL(None)
        # Blocks up to this size come from the heap, which keeps them. glibc before 2.35 takes no
        # more than 32 MiB.
        is_set = library.mallopt(_MMAP_THRESHOLD, 1 << 30)
        if not is_set:
            is_set = library.mallopt(_MMAP_THRESHOLD, 1 << 25)
        if is_set:
            library.mallopt(_TRIM_THRESHOLD, -1)
