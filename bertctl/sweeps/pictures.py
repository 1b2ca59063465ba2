"""Pictures of a sweep, drawn from its document: heat maps of two fields, a dot for each seed, the expected best score.

Colours that are the page's own come from `reporting.charts`, so that the same picture stands in a light page, a dark
one and a file.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.reporting.charts import ACCENT, INK, LINE, MUTED, SECOND, STYLE, figure_svg
from bertctl.reporting.escape import one_line
from bertctl.reporting.plots import write_pictures
from bertctl.reporting.summary import figure
from bertctl.sweeps.words import AS_IT_IS, count_words, short_names, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    Drawing = Figure | SubFigure

_WIDTH = 9.5
_MOST_ROWS = 40
_MOST_PANELS = 6
_LETTER = 0.078  # inches of a letter or digit at 9 points
_RED = "#cf222e"
_ON_DARK, _ON_LIGHT = "#fefefe", "#010101"  # not the page's ink: the cell below is as light on every page
_MARKS: Mapping[str, Mapping[str, Any]] = {
    "done": {"marker": "o", "color": ACCENT, "alpha": 0.75},
    "collapsed": {"marker": "s", "color": SECOND, "fillstyle": "none"},
    "diverged": {"marker": "x", "color": _RED},
}


@dataclass(frozen=True)
class Grid:
    """Settings as panels of rows and columns.

    Attributes:
        rows: field whose values are the rows.
        columns: field whose values are the columns.
        panels: field of which each value has its panel; None for one panel.
        values: field -> its values, sorted.
    """

    rows: str
    columns: str
    panels: str | None
    values: Mapping[str, Sequence[Any]]


def grid_of(document: Mapping[str, Any]) -> Grid | None:
    """How the settings of a sweep can be laid out as heat maps; None where two or three fields don't make a grid.

    The rate becomes the rows, epochs the panels where there are three fields; else the field with the fewest values.
    """
    settings = [row["values"] for row in document["settings"]]
    values = {
        axis: _sorted({repr(found[axis]): found[axis] for found in settings if axis in found}.values())
        for axis in document["axes"]
    }
    varied = [axis for axis in document["axes"] if len(values[axis]) > 1]
    cells = math.prod(len(values[axis]) for axis in varied)
    if len(varied) not in (2, 3) or len(settings) < 0.6 * cells:
        return None
    by_size = sorted(varied, key=lambda axis: (axis != "training.epochs", len(values[axis])))
    panels = by_size[0] if len(varied) == 3 else None
    if panels is not None and len(values[panels]) > _MOST_PANELS:
        return None
    rest = [axis for axis in varied if axis != panels]
    rest.sort(key=lambda axis: (axis != "optimizer.learning_rate", varied.index(axis)))
    return Grid(rest[0], rest[1], panels, values)


def _sorted(values: Any) -> list[Any]:
    found = list(values)
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found, key=None if numbers else str)


def draw_scores(document: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw heat maps, where the settings are a grid, above a row of dots for each setting.

    Args:
        document: content of sweep.json, with a chosen setting.
        paths: files to write; the suffix says the format (.png, .svg).

    Raises:
        UnavailableError: a file can't be written.
    """
    grid = grid_of(document)
    heights = [heat_height(grid), strip_height(document)] if grid else [strip_height(document)]

    def draw(whole: "Drawing") -> None:
        parts = whole.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        if grid:
            draw_heat(parts[0], document, grid)
        draw_strip(parts[-1], document)

    write_pictures(functools.partial(_drawn, draw, (_WIDTH, sum(heights))), paths, style=STYLE)


def draw_expected(document: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw the expected best score by the number of runs.

    Args:
        document: content of sweep.json, with a chosen setting.
        paths: files to write; the suffix says the format (.png, .svg).

    Raises:
        UnavailableError: a file can't be written.
    """
    draw = functools.partial(draw_curve, document=document)
    write_pictures(functools.partial(_drawn, draw, (6.4, 4.0)), paths, style=STYLE)


def element(name: str, label: str, height: float, draw: Callable[["Drawing"], None], width: float = _WIDTH) -> str:
    """A picture as an `<svg>` element for a page.

    Args:
        name: of the picture, unique on a page.
        label: what a person who can't see it is told.
        height: in inches.
        draw: puts it on a figure.
        width: in inches.
    """
    import matplotlib

    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"bertctl-{name}"}):
        return figure_svg(_drawn(draw, (width, height)), label)


def _drawn(draw: Callable[["Drawing"], None], size: tuple[float, float]) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=size)
    FigureCanvasAgg(drawn)
    draw(drawn)
    return drawn


def _margins(drawn: "Drawing", *, left: float, top: float, bottom: float, wspace: float = 0.0) -> None:
    """Known margins, in inches: a layout engine that finds them draws everything twice."""
    width, height = drawn.bbox.width / drawn.dpi, drawn.bbox.height / drawn.dpi
    drawn.subplots_adjust(left / width, bottom / height, 1 - 0.15 / width, 1 - top / height, wspace)


def heat_height(grid: Grid) -> float:
    """Inches that the heat maps need."""
    return (1.2 if grid.panels else 1.0) + 0.5 * len(grid.values[grid.rows])


def draw_heat(drawn: "Drawing", document: Mapping[str, Any], grid: Grid) -> None:
    """Means of the settings as coloured cells with their numbers, a panel for each value of the third field.

    Args:
        drawn: a figure, or a part of one.
        document: content of sweep.json.
        grid: as `grid_of` found it.
    """
    panels = grid.values[grid.panels] if grid.panels else [None]
    names = dict(zip(document["axes"], short_names(document["axes"]), strict=True))
    rows, columns = ([shown(value) for value in grid.values[axis]] for axis in (grid.rows, grid.columns))
    all_axes = drawn.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    _margins(drawn, left=0.5 + _LETTER * max(map(len, rows)), top=0.62 if grid.panels else 0.4,
             bottom=0.5, wspace=0.04)  # fmt: skip
    for axes, panel in zip(all_axes, panels, strict=True):
        for row in document["settings"]:
            if grid.panels is None or row["values"].get(grid.panels) == panel:
                _heat_cell(axes, document, grid, row)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(names[grid.columns])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if grid.panels:
            axes.set_title(f"{names[grid.panels]} {shown(panel)}", loc="left", fontsize=10, color=INK)
    all_axes[0].set_ylabel(names[grid.rows])
    height = drawn.bbox.height / drawn.dpi
    title = f"{_metric(document)}: mean ± deviation over seeds; the chosen setting is framed"
    drawn.text(0.01, 1 - 0.25 / height, title, fontsize=10, color=INK)


def _heat_cell(axes: "Axes", document: Mapping[str, Any], grid: Grid, row: Mapping[str, Any]) -> None:
    import matplotlib
    from matplotlib.patches import Rectangle

    means = [one["mean"] for one in document["settings"] if one["mean"] is not None]
    share = None
    if row["mean"] is not None:
        share = (row["mean"] - min(means)) / (max(means) - min(means)) if max(means) > min(means) else 0.5
        share = share if document["primary"]["higher_is_better"] else 1 - share
    x = grid.values[grid.columns].index(row["values"][grid.columns])
    y = grid.values[grid.rows].index(row["values"][grid.rows])
    colour = LINE if share is None else matplotlib.colormaps["Blues"](0.08 + 0.8 * share)
    text = "no score" if row["mean"] is None else figure(row["mean"])
    if row["deviation"] is not None:
        text += f"\n± {figure(row['deviation'])}"
    frame: dict[str, Any] = (
        {"edgecolor": SECOND, "linewidth": 3} if document["chosen"]["setting"] == row["setting"] else {}
    )
    axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=colour, clip_on=False, **frame))
    ink = _ON_DARK if share is not None and share > 0.6 else _ON_LIGHT
    axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=9)


def strip_height(document: Mapping[str, Any]) -> float:
    """Inches that the rows of dots need."""
    return 1.4 + 0.26 * min(_MOST_ROWS, len(document["settings"]))


def draw_strip(drawn: "Drawing", document: Mapping[str, Any]) -> None:
    """A row for each setting, the best on top: a dot for each seed, the mean as a bar, the majority's score dashed.

    Args:
        drawn: a figure, or a part of one.
        document: content of sweep.json.
    """
    rows = document["settings"][:_MOST_ROWS]
    places = {row["setting"]: place for place, row in enumerate(rows)}
    seeds = sorted({score["seed"] for score in document["scores"]})
    axes = drawn.subplots()
    shown_scores = [s for s in document["scores"] if s["value"] is not None and s["setting"] in places]
    for state, mark in _MARKS.items():
        found = [score for score in shown_scores if score["state"] == state]
        # Seeds stand a little above and below each other: equal scores stay countable.
        y = [places[s["setting"]] + 0.5 * ((seeds.index(s["seed"]) + 0.5) / len(seeds) - 0.5) for s in found]
        if found:
            axes.plot([s["value"] for s in found], y, linestyle="", markersize=5, zorder=3, label=state, **mark)
    means = [(row["mean"], place) for place, row in enumerate(rows) if row["mean"] is not None]
    axes.plot(*zip(*means, strict=True), marker="|", markersize=13, markeredgewidth=1.8, color=INK, linestyle="",
              label="mean")  # fmt: skip
    _majority(document, [score["value"] for score in shown_scores], axes, axes.axvline)
    _strip_axes(drawn, axes, document, rows)


def _strip_axes(drawn: "Drawing", axes: "Axes", document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    names = short_names(document["axes"])
    labels = [
        ", ".join(shown(row["values"][axis]) for axis in document["axes"] if axis in row["values"]) or AS_IT_IS
        for row in rows
    ]
    labels = [one_line(label, limit=50) for label in labels]
    left = 0.2 + _LETTER * max(map(len, labels))
    _margins(drawn, left=left, top=0.4, bottom=0.8)
    axes.set_yticks(range(len(rows)), labels)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row["setting"] == document["chosen"]["setting"]:
            label.set(fontweight="bold", color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(_metric(document))
    few = "" if len(rows) == len(document["settings"]) else f"; the best {len(rows)} of {len(document['settings'])}"
    by = f", by {', '.join(names)}" if names else ""
    axes.set_title(f"a dot for each seed{by}{few}", loc="left", fontsize=10, color=INK)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.tick_params(axis="y", length=0)
    _bare(axes, "top", "right", "left")
    width, height = drawn.bbox.width / drawn.dpi, drawn.bbox.height / drawn.dpi
    drawn.legend(loc="lower left", bbox_to_anchor=(left / width, 0.02 / height), ncols=6, borderaxespad=0)


def draw_curve(drawn: "Drawing", *, document: Mapping[str, Any]) -> None:
    """The expected best score by the number of runs, with a standard deviation either way.

    Args:
        drawn: a figure, or a part of one.
        document: content of sweep.json.
    """
    axes = drawn.subplots()
    _margins(drawn, left=0.75, top=0.4, bottom=0.85)
    entries = document["expected_best"]
    values = [score["value"] for score in document["scores"] if score["value"] is not None]
    n, mean = [entry["runs"] for entry in entries], [entry["value"] for entry in entries]
    low = [max(min(values), entry["value"] - entry["deviation"]) for entry in entries]
    high = [min(max(values), entry["value"] + entry["deviation"]) for entry in entries]
    axes.fill_between(n, low, high, color=ACCENT, alpha=0.18, linewidth=0, label="± standard deviation")
    axes.plot(n, mean, color=ACCENT, linewidth=1.8, marker="o" if len(n) <= 20 else None, markersize=4,
              label="expected best")  # fmt: skip
    _majority(document, [*low, *high], axes, axes.axhline)
    if len(n) > 20:  # most happens among the first few
        axes.set_xscale("log")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= len(n)]
    axes.set_xticks(ticks if len(n) > 20 else n[:: 1 + len(n) // 12], minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("runs")
    axes.set_ylabel(_metric(document))
    axes.set_title(f"expected best score of n runs, estimated from {count_words(len(values), 'run')}", loc="left",
                   fontsize=10, color=INK)  # fmt: skip
    axes.grid(color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    _bare(axes, "top", "right")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=3, borderaxespad=0)


def _majority(document: Mapping[str, Any], values: Sequence[float], axes: "Axes", line: Callable[..., Any]) -> None:
    """The majority's score as a dashed line; in words where it would squeeze all else into a corner."""
    baseline = document["baseline"]
    if baseline is None:
        return
    span = max(max(values) - min(values), 0.01)
    if min(values) - 2 * span <= baseline <= max(values) + 2 * span:
        line(baseline, color=MUTED, linestyle="--", linewidth=1, label="majority", zorder=1)
    else:
        axes.plot([], [], linestyle="", label=f"majority {figure(baseline)}, off the scale")


def _metric(document: Mapping[str, Any]) -> str:
    return f"{document['primary']['name']} on {document['primary']['split']}"


def _bare(axes: "Axes", *sides: str) -> None:
    for side in sides:
        axes.spines[side].set_visible(False)
