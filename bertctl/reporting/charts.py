"""Charts, drawn by matplotlib.

Each is one `<svg>` element that takes its colours from a page, or PNG and SVG files.

Texts stay texts (a page's own font, selectable, no outlines), and the colours below become CSS
variables, so that one picture serves a light page, a dark one and paper. Names that come from data
never go into a chart of a report.
"""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats
from bertctl.metrics.calibration import ReliabilityBin
from bertctl.run_documents.metric_entry import MetricEntry
from bertctl.writing import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#000000"
MUTED = "#57606a"
LINE = "#d0d7de"
ACCENT = "#1f6feb"
SECOND = "#d29922"
RED = "#cf222e"
SERIES = (ACCENT, SECOND, "#2da44e", "#8250df", RED)
"""Colours of several lines in one chart."""

VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
    "#ffffff": "var(--page)",
}
"""Colour as drawn -> colour of the page. Other colours stay as they are."""

# Inches of 72 units: texts are 9 units high, readable on a phone and on a desk.
WIDTH = 5.4
HEIGHT = 3.0
LEFT = 0.62
"""Inches at the left for names and numbers."""

MAX_POINTS = 1_500
"""Points of a scatter chart; more would make the page large and not clearer."""

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "axes.formatter.use_mathtext": False,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
}

_MADE_BY = ("Date", "Creator", "Format", "Type")
"""What matplotlib would say of itself and of the time."""

Draw = Callable[["Figure"], None]
"""Puts axes on a figure."""


def svg(
    name: str,
    label: str,
    draw: Draw,
    *,
    width: float = WIDTH,
    height: float = HEIGHT,
    left: float | None = LEFT,
) -> str:
    """Draws a chart as an `<svg>` element without a size of its own.

    Args:
        name: Name of the chart, unique on a page: the ids in it depend on it.
        label: Text for a person who can't see it.
        draw: Puts axes on the figure.
        width: Width in inches.
        height: Height in inches.
        left: inches for the names and numbers at the left; None has a layout engine find all
            margins, which draws the chart twice.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": f"bertctl-{name}"}):
        figure = Figure(figsize=(width, height), layout="constrained" if left is None else None)
        if left is not None:
            figure.subplots_adjust(
                left / width,
                0.48 / height,
                1 - 0.12 / width,
                1 - 0.1 / height,
                hspace=0.12,
            )
        draw(figure)
        written = io.StringIO()
        figure.savefig(
            written,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(_MADE_BY),  # None leaves the time and the like out
        )
        return element(written.getvalue(), label)


def write_charts(draw: Draw, paths: Sequence[Path], *, width: float, height: float) -> None:
    """Draws a chart into files; the same chart gives the same bytes.

    Args:
        draw: puts axes on the figure.
        paths: the suffix says the format (.png, .svg).
        width: in inches.
        height: in inches.

    Raises:
        UnavailableError: a file can't be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": f"bertctl-{paths[0].stem}"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        for path in paths:
            kind = path.suffix.removeprefix(".")
            if kind == "svg":
                # None leaves an entry out, such as the time, which would change the bytes.
                metadata = dict.fromkeys(_MADE_BY)
            else:
                metadata = {}
            atomic_write(
                path,
                partial(
                    figure.savefig,
                    format=kind,
                    dpi=150,
                    metadata=metadata,
                ),
            )
            # Later files keep the layout of the first one. If the layout engine ran again, it would
            # begin at this layout and move things a little further.
            figure.set_layout_engine("none")


def element(text: str, label: str) -> str:
    """Turns the text of an SVG file of this module into an `<svg>` element for an HTML page.

    It takes its colours and fonts from the page, and has no ids and styles of its own that could
    clash with other charts.

    Args:
        text: Text of the file.
        label: Text for a person who can't see it.
    """
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 :]
    # A style element inside an inline SVG would hold for the whole page.
    body = re.sub(
        r"<defs>\s*<style.*?</style>\s*</defs>",
        "",
        body,
        count=1,
        flags=re.DOTALL,
    )
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    # Ids such as `text_3` occur in every chart, and an id may be only once in a page.
    body = re.sub(r'<g id="[a-zA-Z][\w.]*_\d+"', "<g", body)
    body = re.sub(r"font: ((?:\w+ )*[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", body)
    for drawn, variable in VARIABLES.items():
        body = body.replace(drawn, variable)
    body = re.sub(r"\n\s*", "\n", body)
    view_box = box.group(1) if box else ""
    return f'<svg class="chart" viewBox="{view_box}" role="img" aria-label="{escape(label)}">{body}'


def _or_gap(value: float | None) -> float:
    """Returns a value to be drawn; NaN, which leaves a gap, for a metric that is undefined."""
    return math.nan if value is None else value


def metric_chart(rows: Sequence[tuple[str, MetricEntry, float | None]]) -> str:
    """Draws metrics with their intervals, one below the other, beside the score of a baseline.

    Args:
        rows: name, an entry of metrics.json, the baseline's value; the first one on top.
    """

    def draw(figure: "Figure") -> None:
        """Draws a dot, a thick interval and a bar for the baseline in each row."""
        axes = figure.subplots()
        for place, (_, metric, baseline) in enumerate(rows):
            if metric.low is not None and metric.high is not None:
                axes.plot(
                    [metric.low, metric.high],
                    [place, place],
                    color=ACCENT,
                    linewidth=5,
                    alpha=0.35,
                )
            axes.plot(
                [math.nan if metric.value is None else metric.value],
                [place],
                marker="o",
                markersize=6,
                color=ACCENT,
                linestyle="",
            )
            if baseline is not None:
                axes.plot(
                    [baseline],
                    [place],
                    marker="|",
                    markersize=14,
                    color=SECOND,
                    linestyle="",
                )
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], color=INK)
        low = 0.0  # correlations and the like may be negative
        for _, metric, baseline in rows:
            low = min(low, metric.low or 0.0, baseline or 0.0)
        axes.set(xlim=(low - 0.02, 1.02), ylim=(len(rows) - 0.4, -0.6))
        axes.grid(visible=False, axis="y")

    label = "; ".join(f"{name} {metric.value or 0.0:.4f}" for name, metric, _ in rows)
    # Inches, so that the longest name has room.
    left_margin = 0.2 + 0.085 * max(len(name) for name, _, _ in rows)
    return svg(
        "metrics",
        label,
        draw,
        height=0.5 + 0.3 * len(rows),
        left=left_margin,
    )


def loss_chart(
    training: Sequence[tuple[int, float]], validation: Sequence[tuple[int, float]]
) -> str:
    """Draws the loss by optimizer step.

    Args:
        training: Steps with the mean loss since the step before; many of them are thinned to means
            of neighbours.
        validation: Steps with the loss of the validation split.
    """

    def draw(figure: "Figure") -> None:
        """Draws the training loss by step, as a thin and a thick line, and the validation loss.

        The thin line has up to 200 points, the thick one up to 40, each a mean of several steps.
        """
        axes = figure.subplots()
        axes.plot(
            *thinned(training, 200),
            color=ACCENT,
            linewidth=0.8,
            alpha=0.35,
        )
        axes.plot(
            *thinned(training, 40),
            color=ACCENT,
            linewidth=1.8,
            label="training",
        )
        if validation:
            axes.plot(
                *zip(*validation, strict=True),
                color=SECOND,
                linewidth=1.4,
                marker="o",
                markersize=4,
                label="validation",
            )
        axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
        axes.legend()

    return svg("loss", f"loss of {len(training)} logged steps", draw)


def score_chart(scores: Sequence[tuple[int, float]], *, name: str, best: int | None) -> str:
    """Draws a metric by optimizer step, with the step whose weights were kept.

    Args:
        scores: Steps with their values.
        name: Name of the metric.
        best: Step whose weights were kept; None if it is not known.
    """

    def draw(figure: "Figure") -> None:
        """Draws the score by step, with a ring around the step that was kept."""
        axes = figure.subplots()
        axes.plot(
            *zip(*scores, strict=True),
            color=SECOND,
            linewidth=1.4,
            marker="o",
            markersize=4,
        )
        if best is not None:
            best_value = dict(scores).get(best)
        else:
            best_value = None
        if best is not None and best_value is not None:
            axes.plot(
                [best],
                [best_value],
                marker="o",
                markersize=9,
                fillstyle="none",
                color=ACCENT,
                linestyle="",
            )
            axes.annotate(
                "kept",
                (best, best_value),
                textcoords="offset points",
                xytext=(-8, 5),
                ha="right",
                color=ACCENT,
            )
        axes.set(xlabel="step", ylabel=name)
        axes.margins(0.08, 0.2)

    return svg(
        "score", f"{name} by step: " + ", ".join(f"{value:.4f}" for _, value in scores[:20]), draw
    )


def scale_by_powers(axes: "Axes") -> None:
    """Gives the x axis a logarithmic scale with ticks such as `1e-05`.

    matplotlib's own labels of powers are TeX, which is not read here: see `text.parse_math`.
    """
    axes.set_xscale("log")
    # With a minus sign that can be typed.
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    axes.xaxis.set_minor_formatter("")


def thinned(points: Sequence[tuple[int, float]], max_points: int) -> tuple[Floats, Floats]:
    """Returns the (P,) x and (P,) y of at most so many points, each a mean of neighbours."""
    table = np.array(points, dtype=np.float64)
    groups = np.array_split(table, min(max_points, len(points)))
    means = np.array([group.mean(axis=0) for group in groups])
    return means[:, 0], means[:, 1]


def reliability_chart(bins: Sequence[ReliabilityBin]) -> str:
    """Draws the share of right answers by the probability given, with intervals.

    The number of answers is below it.
    """
    full = [bin_ for bin_ in bins if bin_.n]  # an empty bin has no accuracy

    def draw(figure: "Figure") -> None:
        """Draws accuracy by confidence above, and the number of answers below."""
        upper, lower = figure.subplots(
            2,
            1,
            sharex=True,
            height_ratios=[3, 1],
        )
        upper.plot(
            [0, 1],
            [0, 1],
            color=MUTED,
            linewidth=1,
            linestyle=":",
        )
        for bin_ in full:
            upper.plot(
                [bin_.confidence] * 2,
                [bin_.low, bin_.high],
                color=ACCENT,
                linewidth=2,
                alpha=0.35,
            )
        upper.plot(
            [bin_.confidence for bin_ in full],
            [bin_.accuracy for bin_ in full],
            color=ACCENT,
            marker="o",
            markersize=4,
            linewidth=1,
        )
        upper.set(ylabel="share right", ylim=(-0.02, 1.02))
        width = 1 / len(bins)
        lower.bar(
            [bin_.above + width / 2 for bin_ in bins],
            [bin_.n for bin_ in bins],
            width=0.9 * width,
            color=ACCENT,
        )
        lower.set(xlabel="probability given", ylabel="answers", xlim=(-0.01, 1.01))
        lower.grid(visible=False, axis="x")

    label = "; ".join(f"at {b.confidence:.2f}: {b.accuracy:.2f} right of {b.n}" for b in full)
    return svg("reliability", label, draw, height=3.9)


def group_chart(
    names: Sequence[str], scores: Sequence[Mapping[str, Any]], *, score: str, group: str
) -> str:
    """Draws a score with its interval for each of several groups that have an order.

    It also shows how many examples each group has.

    Args:
        names: Names of the groups.
        scores: `value`, `low`, `high` and `n` of each group.
        score: Name of the score.
        group: What the groups are, such as numbers of tokens.
    """

    def draw(figure: "Figure") -> None:
        """Draws the scores of the groups above, and their numbers of examples below."""
        upper, lower = figure.subplots(
            2,
            1,
            sharex=True,
            height_ratios=[3, 1],
        )
        positions = range(len(names))
        for place, group_score in zip(positions, scores, strict=True):
            if group_score["low"] is not None:
                upper.plot(
                    [place, place],
                    [group_score["low"], group_score["high"]],
                    color=ACCENT,
                    linewidth=4,
                    alpha=0.35,
                )
        upper.plot(
            positions,
            [_or_gap(group_score["value"]) for group_score in scores],
            color=ACCENT,
            marker="o",
            markersize=5,
            linewidth=1,
        )
        upper.set_ylabel(score)
        upper.margins(0.08, 0.1)
        lower.bar(
            positions,
            [group_score["n"] for group_score in scores],
            width=0.6,
            color=ACCENT,
        )
        lower.set(xlabel=group, ylabel="examples")
        lower.set_xticks(positions, names)
        lower.grid(visible=False, axis="x")

    label = "; ".join(
        f"{name}: {group_score['value']:.4f} of {group_score['n']}"
        for name, group_score in zip(names, scores, strict=True)
    )
    return svg("length", label, draw, height=3.9)


def scatter_chart(
    gold: Sequence[float], predicted: Sequence[float], *, same_unit: bool = True
) -> str:
    """Draws predicted scores against the true ones; of very many, evenly spaced ones.

    Args:
        gold: true scores.
        predicted: answers, in the same order.
        same_unit: whether a line is drawn on which both are equal.
    """
    selected = np.unique(np.linspace(0, len(gold) - 1, min(len(gold), MAX_POINTS)).astype(np.int64))

    def draw(figure: "Figure") -> None:
        """Draws the points, on top of the line on which both are equal."""
        axes = figure.subplots()
        x = np.asarray(gold, dtype=np.float64)[selected]
        y = np.asarray(predicted, dtype=np.float64)[selected]
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        if same_unit:
            axes.plot(
                ends,
                ends,
                color=MUTED,
                linewidth=1,
                linestyle=":",
            )
        axes.plot(
            x,
            y,
            marker="o",
            markersize=3,
            markeredgewidth=0,
            linestyle="",
            color=ACCENT,
            alpha=0.45,
        )
        axes.set(xlabel="gold", ylabel="predicted")

    return svg("scatter", f"{len(gold)} predicted scores against the true ones", draw, height=3.9)


def places_chart(query: Mapping[str, float], neighbours: Sequence[Mapping[str, float]]) -> str:
    """Draws points in a plane, numbered from 1, and the one they are compared with as a star.

    Args:
        query: x and y.
        neighbours: x and y of each, in the order of their numbers.
    """

    def draw(figure: "Figure") -> None:
        """Draws the star and the numbered points."""
        axes = figure.subplots()
        axes.plot(
            query["x"],
            query["y"],
            marker="*",
            markersize=13,
            linestyle="",
            color=SECOND,
        )
        for number, point in enumerate(neighbours, start=1):
            axes.plot(
                point["x"],
                point["y"],
                marker="o",
                markersize=5,
                linestyle="",
                color=ACCENT,
            )
            axes.annotate(
                str(number),
                (point["x"], point["y"]),
                xytext=(4, 3),
                textcoords="offset points",
                color=INK,
            )
        axes.set(xlabel="first component", ylabel="second component")

    return svg(
        "places",
        f"{len(neighbours)} numbered points around the one they are compared with",
        draw,
        height=3.9,
    )


def draw_learning_rates(document: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draws the loss by learning rate, as `bertctl lr-find` measured it.

    The learning rates that it recommends are marked.

    Args:
        document: Result of `lr-find`.
        paths: files to write; the suffix says the format (.png, .svg).

    Raises:
        UnavailableError: a file can't be written.
    """

    def draw(figure: "Figure") -> None:
        """Draws the losses, their smoothed curve and the learning rates that are marked."""
        axes = figure.subplots()
        rates = document["rates"]
        smooth = document["smoothed"]
        axes.plot(
            rates,
            document["losses"],
            ".",
            markersize=3,
            color=MUTED,
            alpha=0.6,
            label="loss of a batch",
        )
        axes.plot(
            rates,
            smooth,
            color=ACCENT,
            label="smoothed",
        )
        for name, label, style, colour in (
            ("steepest", "falls fastest", "--", MUTED),
            ("minimum", "lowest", ":", MUTED),
            ("suggestion", "suggested", "-", RED),
        ):
            if document[name] is not None:
                axes.axvline(
                    document[name],
                    color=colour,
                    linestyle=style,
                    label=f"{label}: {document[name]:.2e}",
                )
        bottom = min(smooth)
        top = smooth[0]
        span = top - bottom
        # Where the loss explodes, the curve may leave the chart. Otherwise the rest would be flat.
        ends = (
            bottom - 0.35 * span - 0.05,
            top + 0.75 * span + 0.15,
        )
        title = (
            f"{document['recipe']}, {document['model']}: {document['steps']} steps of "
            f"{document['batch_size']}"
        )
        axes.set(
            title=title,
            xlabel="learning rate",
            ylabel="training loss",
            ylim=ends,
        )
        scale_by_powers(axes)
        axes.legend()

    write_charts(
        draw,
        paths,
        width=8.0,
        height=4.5,
    )
