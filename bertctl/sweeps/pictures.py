"""Charts of a sweep, drawn from its document: a dot for each seed, the expected best score.

They are drawn once, into files; the sweep's page takes them from there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.documents import read_text
from bertctl.reporting.charts import ACCENT, INK, MUTED, RED, SECOND, WIDTH, element, write_charts
from bertctl.reporting.escape import one_line
from bertctl.reporting.summary import figure as number
from bertctl.run_documents.sweep_document import SweepDocument
from bertctl.sweeps.setting_text import short_names, values_text
from bertctl.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROWS = 40
"""Settings that the chart of seeds shows."""

_MARKS: Mapping[str, Mapping[str, Any]] = {
    "done": {"marker": "o", "color": ACCENT, "alpha": 0.75},
    "collapsed": {"marker": "s", "color": SECOND, "fillstyle": "none"},
    "diverged": {"marker": "x", "color": RED},
}


def picture(file: Path, label: str) -> str:
    """Returns the content of an SVG file as an `<svg>` element for an HTML page.

    Args:
        file: The SVG file, as `write_pictures` has written it.
        label: Text for a person who can't see the picture.
    """
    return element(read_text(file), label)


def write_pictures(document: SweepDocument, folder: Path) -> None:
    """Writes scores.png and expected.png, and both as .svg.

    Without a chosen setting nothing is drawn, and the pictures of an earlier call are deleted.

    Raises:
        UnavailableError: a file can't be written.
    """
    scores = [folder / "scores.png", folder / "scores.svg"]
    expected = [folder / "expected.png", folder / "expected.svg"]
    if document.chosen is None:
        for path in (*scores, *expected):
            path.unlink(missing_ok=True)
        return
    # Inches that the rows of dots need.
    height = 1.4 + 0.26 * min(_MOST_ROWS, len(document.settings))
    write_charts(
        partial(_draw_seeds, document=document),
        scores,
        width=9.5,
        height=height,
    )
    write_charts(
        partial(_draw_expected, document=document),
        expected,
        width=WIDTH,
        height=3.4,
    )


def _draw_seeds(figure: "Figure", *, document: SweepDocument) -> None:
    """Draws a row for each setting, the best on top.

    A dot is a seed, a bar the mean, the dashed line the majority's score.
    """
    rows = document.settings[:_MOST_ROWS]
    positions = {row.setting: place for place, row in enumerate(rows)}
    seeds = sorted({score.seed for score in document.scores})
    axes = figure.subplots()
    scores = [score for score in document.scores if score.setting in positions]
    for state, mark in _MARKS.items():
        marked = [score for score in scores if score.state == state and score.value is not None]
        # Seeds are spread over half of the row's height, so that equal scores stay countable.
        y = []
        for score in marked:
            share = (seeds.index(score.seed) + 0.5) / len(seeds)
            y.append(positions[score.setting] + 0.5 * (share - 0.5))
        if marked:
            axes.plot(
                [score.value for score in marked if score.value is not None],
                y,
                linestyle="",
                markersize=5,
                zorder=3,
                label=state,
                **mark,
            )
    means = [(row.mean, place) for place, row in enumerate(rows) if row.mean is not None]
    axes.plot(
        *zip(*means, strict=True),
        marker="|",
        markersize=13,
        markeredgewidth=1.8,
        color=INK,
        linestyle="",
        label="mean",
    )
    values = [score.value for score in scores if score.value is not None]
    _draw_majority(document, values, axes, axes.axvline)
    labels = [one_line(values_text(row.values, document.axes), limit=50) for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if document.chosen is not None and row.setting == document.chosen.setting:
            label.set(fontweight="bold", color=INK)
    if len(rows) == len(document.settings):
        few = ""
    else:
        few = f"; the best {len(rows)} of {len(document.settings)}"
    if document.axes:
        by = f", by {one_line(', '.join(short_names(document.axes)), limit=70)}"
    else:
        by = ""
    title = f"a dot for each seed{by}{few}"
    axes.set(title=title, xlabel=document.metric_text, ylim=(len(rows) - 0.4, -0.6))
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside lower left", ncols=6)


def _draw_expected(figure: "Figure", *, document: SweepDocument) -> None:
    """Draws the expected best score by the number of runs, with a standard deviation either way."""
    axes = figure.subplots()
    entries = document.expected_best
    values = [score.value for score in document.scores if score.value is not None]
    n = [entry.runs for entry in entries]
    mean = [entry.value for entry in entries]
    # The band of the deviation ends at the lowest and the highest score of the sweep.
    low = [max(min(values), entry.value - entry.deviation) for entry in entries]
    high = [min(max(values), entry.value + entry.deviation) for entry in entries]
    many = len(n) > 20
    axes.fill_between(
        n,
        low,
        high,
        color=ACCENT,
        alpha=0.18,
        linewidth=0,
        label="± standard deviation",
    )
    axes.plot(
        n,
        mean,
        color=ACCENT,
        linewidth=1.8,
        marker=None if many else "o",
        markersize=4,
        label="expected best",
    )
    _draw_majority(document, [*low, *high], axes, axes.axhline)
    if many:
        axes.set_xscale("log")  # most happens among the first few
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= len(n)]
    else:
        ticks = n[:: 1 + len(n) // 12]  # from 12 runs on, a tick for every other number
    axes.set_xticks(ticks, minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:.0f}")
    title = f"expected best score of n runs, estimated from {count(len(values), 'run')}"
    axes.set(title=title, xlabel="runs", ylabel=document.metric_text)
    figure.legend(loc="outside lower left", ncols=3)


def shows_majority(document: SweepDocument) -> bool:
    """Returns whether the chart of all seeds has a line for the best constant prediction.

    It has none if that score is not known, or too far from the other scores.
    """
    drawn_settings = {row.setting for row in document.settings[:_MOST_ROWS]}
    scores = [score for score in document.scores if score.setting in drawn_settings]
    values = [score.value for score in scores if score.value is not None]
    baseline = document.baseline
    return baseline is not None and _is_near(baseline, values)


def _is_near(baseline: float, values: Sequence[float]) -> bool:
    """Returns whether a line at the baseline leaves room for the values."""
    span = max(max(values) - min(values), 0.01)
    return min(values) - 2 * span <= baseline <= max(values) + 2 * span


def _draw_majority(
    document: SweepDocument, values: Sequence[float], axes: "Axes", line: Callable[..., Any]
) -> None:
    """Draws the majority's score as a dashed line, or writes it into the legend.

    A line far from the other values would squeeze them into a corner of the chart.

    Args:
        document: Content of sweep.json; without a baseline nothing is drawn.
        values: The other values of the chart.
        axes: Axes of the chart.
        line: Draws a line across them: `axes.axvline` or `axes.axhline`.
    """
    baseline = document.baseline
    if baseline is None:
        return
    if _is_near(baseline, values):
        line(
            baseline,
            color=MUTED,
            linestyle="--",
            linewidth=1,
            label="majority",
            zorder=1,
        )
    else:
        axes.plot(
            [],
            [],
            linestyle="",
            label=f"majority {number(baseline)}, off the scale",
        )
