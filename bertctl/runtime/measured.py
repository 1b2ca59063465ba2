"""Numbers that are measured once per machine and kept in the cache folder.

No choice then flips on noise.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from bertctl.documents import read_json
from bertctl.errors import BertctlError, UnavailableError
from bertctl.runtime.cpu import CPU_FEATURES, cpu_name, cpu_words
from bertctl.writing import cache_folder, write_json

WORTH = 1.2
"""How many times as fast as the plain way another one has to be: a choice must not hang on
noise."""

Speeds = Mapping[str, float]


def measured_once(
    kind: str,
    names: Sequence[str],
    about: Sequence[str],
    threads: int,
    measure: Callable[[], Speeds],
    *,
    library: str = "torch",
) -> Speeds:
    """Returns numbers that are measured once on this machine, for this version of a library.

    If several processes measure at once, all use what the first one has written.

    Args:
        kind: What is measured, a folder's name.
        names: Names of the speeds.
        about: What the speeds depend on besides machine, threads and library, such as a model.
        threads: Threads that compute.
        measure: Returns the speeds.
        library: The package that computes.
    """
    instruction_sets = [
        os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
    ]
    # The file's name changes with all that the numbers depend on.
    machine = [
        cpu_name(),
        *sorted(cpu_words() & CPU_FEATURES),
        str(threads),
        version(library),
        *instruction_sets,
    ]
    name = hashlib.sha256(json.dumps([*machine, *about]).encode()).hexdigest()[:16]
    try:
        path = cache_folder() / kind / f"{name}.json"
    except UnavailableError:  # no place to keep it: each process measures
        return measure()
    return _read(path, names) or _kept(measure(), path)


def _read(path: Path, names: Sequence[str]) -> Speeds | None:
    """Returns the speeds in a file; None if it cannot be read, or has a number that is no speed."""
    with contextlib.suppress(
        BertctlError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
    ):
        document = read_json(path)
        speeds = {name: float(document[name]) for name in names}
        if all(0 <= speed < float("inf") for speed in speeds.values()):
            return speeds
        return None
    return None


def _kept(measured: Speeds, path: Path) -> Speeds:
    """Writes what was measured, unless another process has, and returns what the file says then.

    A file that can't be read is replaced. If nothing can be written, what was measured is returned.
    """
    own_file = path.with_name(f"{path.stem}-{os.getpid()}.json")
    # If the cache can't be written, each process measures.
    with contextlib.suppress(BertctlError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(own_file, dict(measured))
        try:
            os.link(own_file, path)  # unlike a rename, it fails if the file is there
        except OSError:  # it is there, or the disk has no links
            if _read(path, [*measured]) is None:
                own_file.replace(path)
        own_file.unlink(missing_ok=True)
    return _read(path, [*measured]) or measured
