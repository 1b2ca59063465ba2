"""Charts of a sweep, drawn from its document: heat maps of two fields, a dot for each seed, the expected best score.

The same charts stand in the sweep's page and in its picture files.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.reporting.charts import ACCENT, INK, LINE, MUTED, RED, SECOND, svg, write_charts
from bertctl.reporting.escape import one_line
from bertctl.reporting.summary import figure as number
from bertctl.sweeps.setting_text import metric_text, short_names, value_text, values_text
from bertctl.words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    Drawing = Figure | SubFigure

Document = Mapping[str, Any]

_WIDTH = 9.5  # inches
_MOST_ROWS = 40
_MOST_PANELS = 6
_ON_DARK, _ON_LIGHT = "#fefefe", "#010101"  # not the page's ink: the cell below is as light on every page
_MARKS: Mapping[str, Mapping[str, Any]] = {
    "done": {"marker": "o", "color": ACCENT, "alpha": 0.75},
    "collapsed": {"marker": "s", "color": SECOND, "fillstyle": "none"},
    "diverged": {"marker": "x", "color": RED},
}


@dataclass(frozen=True)
class HeatMapLayout:
    """Places the settings in panels of rows and columns.

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

    @property
    def height(self) -> float:
        """Returns the inches that the heat maps need."""
        return 1.2 + 0.5 * len(self.values[self.rows])


def heat_map_layout(document: Document) -> HeatMapLayout | None:
    """Returns how the settings can be laid out as heat maps; None where two or three fields don't make a grid.

    The learning rate becomes the rows, epochs the panels where there are three fields; else the field with the fewest
    values.
    """
    settings = [row["values"] for row in document["settings"]]
    values = {
        axis: _sorted({repr(found[axis]): found[axis] for found in settings if axis in found}.values())
        for axis in document["axes"]
    }
    varied = [axis for axis in document["axes"] if len(values[axis]) > 1]
    if len(varied) not in (2, 3) or len(settings) < 0.6 * math.prod(len(values[axis]) for axis in varied):
        return None
    by_size = sorted(varied, key=lambda axis: (axis != "training.epochs", len(values[axis])))
    panels = by_size[0] if len(varied) == 3 else None
    if panels is not None and len(values[panels]) > _MOST_PANELS:
        return None
    rest = [axis for axis in varied if axis != panels]
    rest.sort(key=lambda axis: (axis != "optimizer.learning_rate", varied.index(axis)))
    return HeatMapLayout(rest[0], rest[1], panels, values)


def _sorted(values: Iterable[Any]) -> list[Any]:
    found = list(values)
    numbers = all(isinstance(value, int | float) for value in found)
    return sorted(found, key=None if numbers else str)


def heat_map(document: Document, layout: HeatMapLayout) -> str:
    """Draws the means of the settings as coloured cells, for a page."""
    draw = partial(_draw_heat_map, document=document, layout=layout)
    return svg("sweep-heat", "means by setting, as in the table", draw, width=_WIDTH, height=layout.height, left=None)


def seed_chart(document: Document) -> str:
    """Draws a dot for each seed in a row for each setting, for a page."""
    draw = partial(_draw_seeds, document=document)
    height = _seeds_height(document)
    return svg("sweep-strip", "scores of all seeds by setting", draw, width=_WIDTH, height=height, left=None)


def expected_chart(document: Document) -> str:
    """Draws the expected best score by the number of runs, for a page."""
    return svg("sweep-expected", "expected best score by number of runs", partial(_draw_expected, document=document),
               height=3.4, left=None)  # fmt: skip


def write_pictures(document: Document, folder: Path) -> None:
    """Writes scores and expected.png and .svg; of a sweep without a chosen setting those of an earlier call go.

    Raises:
        UnavailableError: a file can't be written.
    """
    scores, expected = ([folder / f"{name}{kind}" for kind in (".png", ".svg")] for name in ("scores", "expected"))
    if document["chosen"] is None:
        for path in (*scores, *expected):
            path.unlink(missing_ok=True)
        return
    layout = heat_map_layout(document)
    heights = [*([layout.height] if layout else []), _seeds_height(document)]

    def draw_scores(figure: "Figure") -> None:
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        if layout:
            _draw_heat_map(parts[0], document=document, layout=layout)
        _draw_seeds(parts[-1], document=document)

    write_charts(draw_scores, scores, width=_WIDTH, height=sum(heights))
    write_charts(partial(_draw_expected, document=document), expected, width=6.4, height=4.0)


def _draw_heat_map(figure: "Drawing", *, document: Document, layout: HeatMapLayout) -> None:
    """Draws means as coloured cells with their numbers, a panel for each value of the third field."""
    panels = layout.values[layout.panels] if layout.panels else [None]
    names = dict(zip(document["axes"], short_names(document["axes"]), strict=True))
    rows, columns = ([value_text(value) for value in layout.values[axis]] for axis in (layout.rows, layout.columns))
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(all_axes, panels, strict=True):
        for row in document["settings"]:
            if layout.panels is None or row["values"].get(layout.panels) == panel:
                _draw_setting(axes, document, layout, row)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(names[layout.columns])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        if layout.panels:
            axes.set_title(f"{names[layout.panels]} {value_text(panel)}")
    all_axes[0].set_ylabel(names[layout.rows])
    title = f"{metric_text(document)}: mean ± deviation over seeds; the chosen setting is framed"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)


def _draw_setting(axes: "Axes", document: Document, layout: HeatMapLayout, row: Mapping[str, Any]) -> None:
    import matplotlib
    from matplotlib.patches import Rectangle

    means = [one["mean"] for one in document["settings"] if one["mean"] is not None]
    share = None
    if row["mean"] is not None:
        share = (row["mean"] - min(means)) / (max(means) - min(means)) if max(means) > min(means) else 0.5
        share = share if document["primary"]["higher_is_better"] else 1 - share
    x = layout.values[layout.columns].index(row["values"][layout.columns])
    y = layout.values[layout.rows].index(row["values"][layout.rows])
    colour = LINE if share is None else matplotlib.colormaps["Blues"](0.08 + 0.8 * share)
    text = "no score" if row["mean"] is None else number(row["mean"])
    if row["deviation"] is not None:
        text += f"\n± {number(row['deviation'])}"
    is_chosen = document["chosen"]["setting"] == row["setting"]
    frame: dict[str, Any] = {"edgecolor": SECOND, "linewidth": 3} if is_chosen else {}
    axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=colour, clip_on=False, **frame))
    ink = _ON_DARK if share is not None and share > 0.6 else _ON_LIGHT
    axes.text(x, y, text, ha="center", va="center", color=ink)


def _seeds_height(document: Document) -> float:
    """Returns the inches that the rows of dots need."""
    return 1.4 + 0.26 * min(_MOST_ROWS, len(document["settings"]))


def _draw_seeds(figure: "Drawing", *, document: Document) -> None:
    """Draws a row for each setting, the best on top: a dot for each seed, the mean as a bar, the majority dashed."""
    rows = document["settings"][:_MOST_ROWS]
    places = {row["setting"]: place for place, row in enumerate(rows)}
    seeds = sorted({score["seed"] for score in document["scores"]})
    axes = figure.subplots()
    scores = [s for s in document["scores"] if s["value"] is not None and s["setting"] in places]
    for state, mark in _MARKS.items():
        found = [score for score in scores if score["state"] == state]
        # Seeds stand a little above and below each other: equal scores stay countable.
        y = [places[s["setting"]] + 0.5 * ((seeds.index(s["seed"]) + 0.5) / len(seeds) - 0.5) for s in found]
        if found:
            axes.plot([s["value"] for s in found], y, linestyle="", markersize=5, zorder=3, label=state, **mark)
    means = [(row["mean"], place) for place, row in enumerate(rows) if row["mean"] is not None]
    axes.plot(*zip(*means, strict=True), marker="|", markersize=13, markeredgewidth=1.8, color=INK, linestyle="",
              label="mean")  # fmt: skip
    _draw_majority(document, [score["value"] for score in scores], axes, axes.axvline)
    labels = [one_line(values_text(row["values"], document["axes"]), limit=50) for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row["setting"] == document["chosen"]["setting"]:
            label.set(fontweight="bold", color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(metric_text(document))
    few = "" if len(rows) == len(document["settings"]) else f"; the best {len(rows)} of {len(document['settings'])}"
    by = f", by {', '.join(short_names(document['axes']))}" if document["axes"] else ""
    axes.set_title(f"a dot for each seed{by}{few}")
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside lower left", ncols=6)


def _draw_expected(figure: "Drawing", *, document: Document) -> None:
    """Draws the expected best score by the number of runs, with a standard deviation either way."""
    axes = figure.subplots()
    entries = document["expected_best"]
    values = [score["value"] for score in document["scores"] if score["value"] is not None]
    n, mean = [entry["runs"] for entry in entries], [entry["value"] for entry in entries]
    low = [max(min(values), entry["value"] - entry["deviation"]) for entry in entries]
    high = [min(max(values), entry["value"] + entry["deviation"]) for entry in entries]
    many = len(n) > 20
    axes.fill_between(n, low, high, color=ACCENT, alpha=0.18, linewidth=0, label="± standard deviation")
    axes.plot(n, mean, color=ACCENT, linewidth=1.8, marker=None if many else "o", markersize=4, label="expected best")
    _draw_majority(document, [*low, *high], axes, axes.axhline)
    if many:  # most happens among the first few
        axes.set_xscale("log")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= len(n)]
    axes.set_xticks(ticks if many else n[:: 1 + len(n) // 12], minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("runs")
    axes.set_ylabel(metric_text(document))
    axes.set_title(f"expected best score of n runs, estimated from {count(len(values), 'run')}")
    figure.legend(loc="outside lower left", ncols=3)


def _draw_majority(document: Document, values: Sequence[float], axes: "Axes", line: Callable[..., Any]) -> None:
    """Draws the majority's score as a dashed line; says it in words where it would squeeze all else into a corner."""
    baseline = document["baseline"]
    if baseline is None:
        return
    span = max(max(values) - min(values), 0.01)
    if min(values) - 2 * span <= baseline <= max(values) + 2 * span:
        line(baseline, color=MUTED, linestyle="--", linewidth=1, label="majority", zorder=1)
    else:
        axes.plot([], [], linestyle="", label=f"majority {number(baseline)}, off the scale")
