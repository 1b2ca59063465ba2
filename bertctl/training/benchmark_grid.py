"""Which arms a training benchmark has."""

from dataclasses import dataclass

from bertctl.errors import UsageError
from bertctl.runtime.device import check_precision
from bertctl.words import did_you_mean

PADDINGS = ("fixed", "dynamic", "length")
"""Every batch to max_length (as run_glue.py does); random batches to their longest; batches of like lengths."""


@dataclass(frozen=True)
class Grid:
    """Which arms are measured, and how. An empty tuple stands for what the recipe and the device say.

    Attributes:
        precisions: fp32, bf16, fp16 (without its loss scaling).
        paddings: of `PADDINGS`.
        batch_sizes: examples for each step.
        max_lengths: longest input in tokens.
        batches: timed, for each arm.
        warmup: batches before them, for each arm; memory is read in the first one.
        min_words: only rows with more words than this.
        random_init: random weights, from the model's config alone.
    """

    precisions: tuple[str, ...] = ()
    paddings: tuple[str, ...] = PADDINGS
    batch_sizes: tuple[int, ...] = ()
    max_lengths: tuple[int, ...] = ()
    batches: int = 20
    warmup: int = 3
    min_words: int = 0
    random_init: bool = False

    def check(self) -> None:
        """Refuse what can't be measured, before anything is loaded.

        Raises:
            UsageError: an unknown precision or padding, or a number that is too small.
        """
        for precision in self.precisions:
            check_precision(precision)
        for padding in self.paddings:
            if padding not in PADDINGS:
                hint = did_you_mean(padding, PADDINGS)
                raise UsageError(
                    f"there is no padding '{padding}'" + (f": {hint}" if hint else ""),
                    remedy=f"Choose from {', '.join(PADDINGS)}.",
                )
        for option, low, values in (
            ("--batches", 1, (self.batches,)),
            ("--warmup", 1, (self.warmup,)),
            ("--min-words", 0, (self.min_words,)),
            ("--batch-size", 1, self.batch_sizes),
            ("--max-length", 4, self.max_lengths),
        ):
            if min(values, default=low) < low:
                raise UsageError(f"{option} {min(values)}: it must be at least {low}")


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    precision: str
    padding: str
    batch_size: int
    max_length: int
