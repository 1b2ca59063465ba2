"""The diagrams of the page about intervals, drawn by the charts of reports.

python -m tests.documents.diagrams        # writes bertctl/docs/images/{intervals,gate,sweep}.svg
"""

from typing import TYPE_CHECKING

import numpy as np

from bertctl.cli.framework.doc_pages import FOLDER
from bertctl.metrics.statistics import wilson_interval
from bertctl.reporting.charts import ACCENT, INK, SECOND, write_charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 7.0


def main() -> None:
    """Draws all diagrams."""
    for name, draw, height in (
        ("intervals", draw_intervals, 2.4),
        ("gate", draw_gate, 2.0),
        ("sweep", draw_sweep, 2.2),
    ):
        write_charts(draw, [FOLDER / "images" / f"{name}.svg"], width=_WIDTH, height=height)


def draw_intervals(figure: "Figure") -> None:
    """Draws the 95 % interval of an accuracy of 0.85 by the number of examples."""
    axes = figure.subplots()
    counts = (20, 100, 400, 1600)
    for position, n_examples in enumerate(counts):
        low, high = wilson_interval(0.85 * n_examples, n_examples)
        _bar(axes, position, low, 0.85, high)
    axes.set_yticks(range(len(counts)), [f"{count:,} examples" for count in counts], color=INK)
    axes.set(xlim=(0.6, 1.0), ylim=(len(counts) - 0.4, -0.6), xlabel="accuracy")
    axes.grid(visible=False, axis="y")


def draw_gate(figure: "Figure") -> None:
    """Draws an interval above a limit, one below it and one across it."""
    axes = figure.subplots()
    rows = (
        ("passes", 0.86, 0.89, 0.92),
        ("inconclusive", 0.81, 0.86, 0.90),
        ("fails", 0.74, 0.79, 0.83),
    )
    for position, (_, low, value, high) in enumerate(rows):
        _bar(axes, position, low, value, high)
    axes.axvline(0.85, color=SECOND, linewidth=1.5)
    axes.annotate("limit", (0.851, -0.5), color=SECOND)
    axes.set_yticks(range(len(rows)), [verdict for verdict, *_ in rows], color=INK)
    axes.set(xlim=(0.7, 1.0), ylim=(len(rows) - 0.4, -0.7), xlabel="accuracy")
    axes.grid(visible=False, axis="y")


def draw_sweep(figure: "Figure") -> None:
    """Draws the scores of three settings with five seeds each, and their means."""
    axes = figure.subplots()
    deviations = np.array([-1.4, -0.5, 0.1, 0.7, 1.1]) * 0.012
    settings = (
        ("learning rate 1e-5", 0.78),
        ("learning rate 3e-5", 0.81),
        ("learning rate 5e-5", 0.812),
    )
    for position, (_, mean) in enumerate(settings):
        scores = mean + deviations * (1 if position % 2 else -1)
        axes.plot(
            scores,
            [position] * len(scores),
            "o",
            color=ACCENT,
            alpha=0.5,
            markersize=6,
        )
        axes.plot(
            [scores.mean()],
            [position],
            "|",
            color=SECOND,
            markersize=18,
            markeredgewidth=2,
        )
    axes.set_yticks(range(len(settings)), [name for name, _ in settings], color=INK)
    axes.set(xlim=(0.74, 0.86), ylim=(len(settings) - 0.4, -0.6), xlabel="validation accuracy")
    axes.grid(visible=False, axis="y")


def _bar(axes: "Axes", position: int, low: float, value: float, high: float) -> None:
    axes.plot(
        [low, high],
        [position, position],
        color=ACCENT,
        linewidth=5,
        alpha=0.35,
    )
    axes.plot(
        [value],
        [position],
        marker="o",
        markersize=6,
        color=ACCENT,
        linestyle="",
    )


if __name__ == "__main__":
    main()
