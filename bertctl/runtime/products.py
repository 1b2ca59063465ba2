"""How fast this machine multiplies matrices in fp32 and in bf16: measured once, since a CPU's flags don't say it.

A CPU may have `avx512_bf16` and multiply bf16 at half the speed of fp32; a library may be told to leave a flag unused.
"""

import contextlib
import functools
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bertctl.documents import read_json
from bertctl.errors import BertctlError
from bertctl.runtime.cpu import CPU_FEATURES, cpu_name, cpu_words
from bertctl.writing import cache_folder, write_json

WORTH = 1.2
"""How many times as fast as fp32 bf16 has to be: it rounds more, and a choice must not hang on noise."""
_TOKENS, _HIDDEN, _WIDER = 1024, 384, 1536
_ROUNDS = 8


@dataclass(frozen=True)
class Products:
    """What was measured.

    Attributes:
        fp32: 10^9 operations per second of products in fp32.
        bf16: of products in bf16.
    """

    fp32: float
    bf16: float

    @property
    def is_bf16_worth(self) -> bool:
        """Is whether bf16 is so much faster that it is worth its rounding."""
        return self.bf16 >= WORTH * self.fp32


def measured_products(threads: int) -> Products:
    """Returns what was measured on this machine with so many threads and this version of torch; measures it if need be.

    The first of several processes that measure at once is right: all read what it has written.

    Args:
        threads: that multiply.
    """
    import torch

    told = [os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")]
    about = [cpu_name(), *sorted(cpu_words() & CPU_FEATURES), str(threads), torch.__version__, *told]
    name = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    known = cache_folder() / "products" / f"{name}.json"
    return _read(known) or _kept(_measure(threads), known)


def _read(path: Path) -> Products | None:
    """Returns what a file says; None where it says nothing that can be read."""
    with contextlib.suppress(BertctlError, KeyError, TypeError, ValueError):
        document = read_json(path)
        return Products(float(document["fp32"]), float(document["bf16"]))
    return None


def _kept(measured: Products, path: Path) -> Products:
    """Writes what was measured, if no other process has; returns what the file says then, or what was measured.

    A file that can't be read is replaced.
    """
    mine = path.with_name(f"{path.stem}-{os.getpid()}.json")
    with contextlib.suppress(BertctlError, OSError):  # a cache that can't be written: each process measures
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(mine, asdict(measured))
        try:
            os.link(mine, path)
        except FileExistsError:
            if _read(path) is None:
                mine.replace(path)
        mine.unlink(missing_ok=True)
    return _read(path) or measured


@functools.cache  # where the file can't be kept, a process chooses once all the same
def _measure(threads: int) -> Products:
    """Multiplies matrices of an encoder's shapes, forward and for the weight's gradient, the precisions by turns."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with torch.no_grad():
        sides = {}
        for dtype in (torch.float32, torch.bfloat16):
            shapes = (_TOKENS, _HIDDEN), (_WIDER, _HIDDEN), (_TOKENS, _WIDER)
            sides[dtype] = [torch.full(shape, 0.5, dtype=dtype) for shape in shapes]
        seconds: dict[torch.dtype, list[float]] = {dtype: [] for dtype in sides}
        for _ in range(_ROUNDS):
            for dtype, (x, weight, gradient) in sides.items():
                started = time.perf_counter()
                torch.nn.functional.linear(x, weight)
                gradient.T @ x
                seconds[dtype].append(time.perf_counter() - started)
    torch.set_num_threads(before)
    fp32, bf16 = (4 * _TOKENS * _HIDDEN * _WIDER / min(of_rounds) / 1e9 for of_rounds in seconds.values())
    return Products(fp32, bf16)
