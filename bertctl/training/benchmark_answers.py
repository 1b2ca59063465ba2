"""What the benchmark's figures answer, in sentences: is bf16 worth it here, what does a shorter max_length save."""

from collections.abc import Iterator, Mapping
from typing import Any

_WORTH = 1.15
"""Times as fast from which a setting is called worth it; below it is within what runs differ by."""

_NAMES = {"fixed": "fixed padding", "dynamic": "dynamic padding", "length": "batches of like lengths"}

Figures = Mapping[str, Any]


def answer_questions(document: Figures) -> list[str]:
    """One sentence for each question that the measured arms can answer.

    Args:
        document: content of benchmark.json, without `answers`.
    """
    arms: list[Figures] = document["arms"]
    default = next(arm for arm in arms if arm["default"])
    return [
        *_headline(default),
        *_precision(default, arms),
        *_length(default, arms),
        *_batch_size(default, arms),
    ]


def _headline(default: Figures) -> Iterator[str]:
    compared = []
    if default["ratio_to_fp32_fixed"] is not None:
        compared.append(f"{_times(default['ratio_to_fp32_fixed'])} fp32 padded to {default['max_length']}")
    if default["ratio_to_fp32_dynamic"] is not None:
        compared.append(f"{_times(default['ratio_to_fp32_dynamic'])} fp32 with dynamic padding")
    rate = f"{_shown(default['examples_per_second'])} examples/s"
    yield (
        f"The default here ({default['precision']}, {_NAMES[default['padding']]}, batch {default['batch_size']}, "
        f"max_length {default['max_length']}) trains {rate}" + (f": {' and '.join(compared)}." if compared else ".")
    )


def _precision(default: Figures, arms: list[Figures]) -> Iterator[str]:
    rates = _varying(default, arms, "precision")
    for name in rates:
        if name == "fp32" or "fp32" not in rates:
            continue
        ratio = rates[name]["examples_per_second"] / rates["fp32"]["examples_per_second"]
        verdict = "worth it" if ratio >= _WORTH else "not worth it" if ratio <= 1 else "hardly worth it"
        yield f"{name} is {verdict} here: {_times(ratio)} fp32 ({_NAMES[default['padding']]})."


def _length(default: Figures, arms: list[Figures]) -> Iterator[str]:
    lengths = sorted({arm["max_length"] for arm in arms})
    for length in lengths[:-1]:
        saved = []
        for padding in _NAMES:
            rates = _varying({**default, "padding": padding}, arms, "max_length")
            if length in rates and lengths[-1] in rates:
                share = 1 - rates[lengths[-1]]["examples_per_second"] / rates[length]["examples_per_second"]
                saved.append(f"{_saved(share)} with {_NAMES[padding]}")
        cut = next(arm for arm in arms if arm["max_length"] == length)["truncated_share"]
        yield (
            f"max_length {length} instead of {lengths[-1]} saves {', '.join(saved)} ({default['precision']}, batch "
            f"{default['batch_size']}), and cuts {100 * cut:.1f} % of the examples."
        )


def _batch_size(default: Figures, arms: list[Figures]) -> Iterator[str]:
    rates = _varying(default, arms, "batch_size")
    sizes = sorted(rates)
    for size in sizes[1:]:
        ratio = rates[size]["examples_per_second"] / rates[sizes[0]]["examples_per_second"]
        yield f"Batch {size} trains {_times(ratio)} batch {sizes[0]} in examples/s."


def _varying(default: Figures, arms: list[Figures], name: str) -> dict[Any, Figures]:
    """The arms that differ from the default in one thing only, by its value."""
    others = {"precision", "padding", "batch_size", "max_length"} - {name}
    return {arm[name]: arm for arm in arms if all(arm[other] == default[other] for other in others)}


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 10 else f"{ratio:.0f} times"


def _saved(share: float) -> str:
    return f"{100 * share:.0f} % of the time" if share >= 0.005 else "nothing"


def _shown(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
