"""Settings of a sweep as text, the same in tables, pictures and sentences."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.reporting.escape import one_line

_SMALL = 1e-3
"""Numbers below are written with a power of ten."""

_UNCHANGED = "the recipe as it is"


def short_names(axes: Sequence[str]) -> list[str]:
    """Returns short names, `learning_rate` for `optimizer.learning_rate`.

    Fields whose short names are equal keep the full ones.
    """
    ends = [axis.rpartition(".")[2] for axis in axes]
    return [end if ends.count(end) == 1 else axis for end, axis in zip(ends, axes, strict=True)]


def value_text(value: Any) -> str:
    """Returns a field's value as text, such as `3e-04`, `0.01`, `true`, `[a, b]` or `cosine`."""
    if isinstance(value, float):
        if value == 0 or abs(value) >= _SMALL:
            return f"{value:.4g}"
        return _with_power(value)
    return one_line(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), limit=40
    )


def _with_power(value: float) -> str:
    """Returns `3e-04`: small numbers of one column are all written alike."""
    digits, _, power = f"{value:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{power}"


def setting_text(values: Mapping[str, Any], axes: Sequence[str]) -> str:
    """Returns `learning_rate 5e-05, batch_size 16`."""
    names = short_names(axes)
    texts = [
        f"{name} {value_text(values[axis])}"
        for name, axis in zip(names, axes, strict=True)
        if axis in values
    ]
    return ", ".join(texts) or _UNCHANGED


def values_text(values: Mapping[str, Any], axes: Sequence[str]) -> str:
    """Returns `5e-05, 16`."""
    return ", ".join(value_text(values[axis]) for axis in axes if axis in values) or _UNCHANGED


def seed_text(seed: Mapping[str, int]) -> str:
    """Returns `seed 2` where all of them are the same, else `init 2, order 1`."""
    numbers = set(seed.values())
    if len(numbers) == 1:
        return f"seed {numbers.pop()}"
    return ", ".join(f"{name} {number}" for name, number in seed.items())
