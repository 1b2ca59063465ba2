"""What a probe found, from metrics.json of its run.

It is a table of layers and poolings, and a picture of it.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bertctl.reporting.charts import MUTED, SERIES, svg, write_charts
from bertctl.reporting.document import Cell, Column, TableBlock
from bertctl.reporting.summary import baseline_of, figure, interval
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.probe_entry import ProbeEntry

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def probe_table(probe: ProbeEntry, metrics: MetricsDocument) -> TableBlock:
    """Returns a row per layer and pooling, the best bold.

    It has the cross-validation score, and the validation score with its interval.

    Args:
        probe: The probe that metrics.json is about.
        metrics: Content of metrics.json.
    """
    primary = metrics.primary.name
    split = metrics.primary.split
    numbers = [
        "C",
        "cross-validation",
        f"{split} {primary}",
        "95 % interval",
        "mean of hold-outs",
        "deviation",
    ]
    columns = [Column("layer"), Column("pooling"), *(Column(name, number=True) for name in numbers)]
    rows: list[list[str | Cell]] = []
    for row in probe.table:
        is_best = (row.layer, row.pooling) == (probe.best.layer, probe.best.pooling)
        metric = row.metric(primary)
        cells = [
            row.layer,
            row.pooling,
            f"{row.strength:g}",
            figure(row.cross_validation),
            figure(metric.value),
            interval(metric.low, metric.high),
        ]
        if row.hold_outs is None:
            cells += ["", ""]
        else:
            cells += [figure(row.hold_outs.mean), figure(row.hold_outs.deviation)]
        rows.append([Cell(cell, strong=is_best) for cell in cells])
    baseline = baseline_of(metrics, split, primary)
    if baseline is not None:
        rows.append(["no text", "majority", "", "", figure(baseline), "", "", ""])
    return TableBlock(columns, rows, f"{probe.classifier}; the choice by cross-validation is bold.")


def draw_probe(
    probe: ProbeEntry, metrics: MetricsDocument, paths: Sequence[Path], *, title: str
) -> None:
    """Draws the score by layer, a line for each pooling, with intervals.

    It also draws the score of the answer that reads nothing.

    Args:
        probe: The probe that metrics.json is about.
        metrics: Content of metrics.json.
        paths: files to write; the suffix says the format (.png, .svg).
        title: what was probed.

    Raises:
        UnavailableError: a file can't be written.
    """
    if len({row.layer for row in probe.table}) > 1:
        draw = _draw_layers
        width = _width(probe)
        height = 4.5
    else:
        draw = _draw_poolings
        width = 6.0
        height = 1.5 + 0.3 * len(probe.table)
    write_charts(
        partial(
            draw,
            probe=probe,
            metrics=metrics,
            title=title,
        ),
        paths,
        width=width,
        height=height,
    )


def layer_chart(probe: ProbeEntry, metrics: MetricsDocument) -> str:
    """Draws the score by layer as an `<svg>` element; see `draw_probe`."""
    draw = partial(
        _draw_layers,
        probe=probe,
        metrics=metrics,
        title="",
    )
    return svg(
        "layers",
        "score by layer",
        draw,
        width=_width(probe),
        height=4.5,
        left=None,
    )


def _width(probe: ProbeEntry) -> float:
    """Returns inches for a chart with so many layers."""
    return max(6.0, 0.8 * len({row.layer for row in probe.table}) + 2.5)


def _draw_poolings(
    figure: "Figure", *, probe: ProbeEntry, metrics: MetricsDocument, title: str
) -> None:
    """Draws the poolings of the only layer below each other, with their intervals."""
    primary = metrics.primary.name
    split = metrics.primary.split
    rows = probe.table
    axes = figure.subplots()
    for place, row in enumerate(rows):
        metric = row.metric(primary)
        if metric.low is not None and metric.high is not None:
            axes.plot(
                [metric.low, metric.high],
                [place, place],
                color=SERIES[0],
                linewidth=5,
                alpha=0.35,
            )
        axes.plot(
            [math.nan if metric.value is None else metric.value],
            [place],
            marker="o",
            markersize=6,
            color=SERIES[0],
            linestyle="",
        )
    baseline = baseline_of(metrics, split, primary)
    if baseline is not None:
        axes.axvline(
            baseline,
            color=MUTED,
            linestyle=":",
            linewidth=1,
            label="majority",
        )
        axes.legend()
    axes.set_yticks(range(len(rows)), [f"layer {row.layer}, {row.pooling}" for row in rows])
    axes.set(title=title, xlabel=f"{primary}, {split}, 95 % interval", ylim=(len(rows) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")


def _draw_layers(
    figure: "Figure", *, probe: ProbeEntry, metrics: MetricsDocument, title: str
) -> None:
    """Draws a line of scores over layers for each pooling, with intervals."""
    primary = metrics.primary.name
    split = metrics.primary.split
    layers = list(dict.fromkeys(row.layer for row in probe.table))
    poolings = list(dict.fromkeys(row.pooling for row in probe.table))
    axes = figure.subplots()
    for number, pooling in enumerate(poolings):
        rows = [row for row in probe.table if row.pooling == pooling]
        # Beside each other, so that the intervals of several poolings don't cover each other.
        positions = [
            layers.index(row.layer) + 0.06 * (number - (len(poolings) - 1) / 2) for row in rows
        ]
        colour = SERIES[number % len(SERIES)]
        scores = [row.metric(primary).value for row in rows]
        values = [math.nan if score is None else score for score in scores]
        axes.plot(
            positions,
            values,
            marker="o",
            markersize=4,
            color=colour,
            label=pooling,
        )
        for place, row in zip(positions, rows, strict=True):
            low = row.metric(primary).low
            high = row.metric(primary).high
            if low is not None and high is not None:
                axes.plot(
                    [place, place],
                    [low, high],
                    color=colour,
                    linewidth=1,
                    alpha=0.5,
                )
    baseline = baseline_of(metrics, split, primary)
    if baseline is not None:
        axes.axhline(
            baseline,
            color=MUTED,
            linestyle=":",
            linewidth=1,
            label="majority",
        )
    axes.set_xticks(
        range(len(layers)), ["0 (embeddings)" if layer == "0" else layer for layer in layers]
    )
    if any(len(layer) > 3 for layer in layers[1:]):
        axes.tick_params(axis="x", rotation=20)
    axes.set(title=title, xlabel="layer", ylabel=f"{primary}, {split}, 95 % interval")
    axes.grid(visible=False, axis="x")
    axes.legend()
