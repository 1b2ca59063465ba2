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
    """Returns numbers of this machine with so many threads; measures them if need be.

    They belong to this version of a library.

    The first of several processes that measure at once is right: all read what it has written.

    Args:
        kind: what is measured, a folder's name.
        names: of the speeds.
        about: what they depend on besides.
        threads: that compute.
        measure: returns the speeds.
        library: The package that computes.
    """
    instruction_sets = [
        os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
    ]
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
    """Returns what a file says; None where it says nothing that can be read, or no speed."""
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
    """Writes what was measured, if no other process has.

    It returns what the file says then, or what was measured.

    A file that can't be read is replaced.
    """
    mine = path.with_name(f"{path.stem}-{os.getpid()}.json")
    # If the cache can't be written, each process measures.
    with contextlib.suppress(BertctlError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(mine, dict(measured))
        try:
            os.link(mine, path)
        except OSError:  # it is there, or the disk has no links
            if _read(path, [*measured]) is None:
                mine.replace(path)
        mine.unlink(missing_ok=True)
    return _read(path, [*measured]) or measured
