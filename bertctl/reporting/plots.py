"""Pictures, drawn from the JSON documents that runs and benchmarks leave; PNG and SVG, no display needed."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.run_folder import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"fp32": "#9aa5b1", "bf16": "#1f6feb", "fp16": "#8250df"}
_PADDINGS = {"fixed": "padded to max_length", "dynamic": "padded to the longest", "length": "batches of like lengths"}
_PROFILE_COLOUR = "#57606a"
_DPI = 150


def draw_benchmark(document: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw what `bertctl benchmark training` measured: the rate of every arm, and where the default arm's time goes.

    Args:
        document: content of benchmark.json.
        paths: files to write; the suffix says the format (.png, .svg).

    Raises:
        UnavailableError: a file can't be written.
    """
    write_pictures(functools.partial(_benchmark_figure, document), paths)


def draw_rates(document: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw what `bertctl lr-find` measured: the loss over the rate, and the rates that it names.

    Args:
        document: its answer.
        paths: files to write; the suffix says the format (.png, .svg).

    Raises:
        UnavailableError: a file can't be written.
    """
    write_pictures(functools.partial(_rates_figure, document), paths)


def write_pictures(
    make: "Callable[[], Figure]", paths: Sequence[Path], *, style: Mapping[str, Any] | None = None
) -> None:
    """Write a figure to several files; the same figures give the same bytes.

    Args:
        make: makes the figure, a new one for each file: the layout depends on what was drawn before.
        paths: the suffix says the format (.png, .svg).
        style: settings of matplotlib, in force while it is made and written.

    Raises:
        UnavailableError: a file can't be written.
    """
    import matplotlib

    settings: Any = {**(style or {}), "svg.hashsalt": "bertctl"}
    with matplotlib.rc_context(settings):
        for path in paths:
            atomic_write(path, functools.partial(_save, make(), path.suffix.removeprefix(".")))


def _benchmark_figure(document: Mapping[str, Any]) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    arms, shares = document["arms"], document["profile"]["shares"]
    heights = [max(2.0, 0.36 * len(arms)), max(1.6, 0.26 * len(shares))]
    figure = Figure(figsize=(9.5, sum(heights) + 2.0), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    weights = ", random weights" if document["random_init"] else ""
    threads = f"{document['threads']} thread" + ("" if document["threads"] == 1 else "s")
    figure.suptitle(
        f"{document['recipe']}, {document['model']}{weights}{_size(arms, arms[0], shared=True)}: "
        f"training on {document['device_name']}, {threads}"
    )
    _draw_arms(upper, arms)
    _draw_shares(lower, document["profile"])
    return figure


def _save(figure: "Figure", kind: str, path: Path) -> None:
    figure.savefig(path, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else {})


def _rates_figure(document: Mapping[str, Any]) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rates, smooth = document["rates"], document["smoothed"]
    axes.plot(rates, document["losses"], ".", markersize=3, color="#9aa5b1", label="loss of a batch")
    axes.plot(rates, smooth, color=_COLOURS["bf16"], label="smoothed")
    for name, label, style in (("steepest", "falls fastest", "--"), ("minimum", "lowest", ":")):
        if document[name] is not None:
            axes.axvline(document[name], color=_PROFILE_COLOUR, linestyle=style, label=f"{label}: {document[name]:.2e}")
    if document["suggestion"] is not None:
        colour = "#cf222e"
        axes.axvline(document["suggestion"], color=colour, alpha=0.6, label=f"suggested: {document['suggestion']:.2e}")
    axes.set_xscale("log")
    bottom, top = min(smooth), max(smooth[0], min(smooth))
    axes.set_ylim(bottom - 0.35 * (top - bottom) - 0.05, top + 0.75 * (top - bottom) + 0.15)  # an explosion leaves it
    axes.set_xlabel("learning rate")
    axes.set_ylabel("training loss")
    axes.set_title(
        f"{document['recipe']}, {document['model']}: {document['steps']} steps of {document['batch_size']}",
        loc="left",
        fontsize=10,
    )
    axes.legend(frameon=False, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def _draw_arms(axes: "Axes", arms: Sequence[Mapping[str, Any]]) -> None:
    names = []
    for position, arm in enumerate(arms):
        rate, ratio = arm["examples_per_second"], arm["ratio_to_fp32_fixed"]
        bar = axes.barh(position, rate, height=0.7, color=_COLOURS[arm["precision"]])
        text = f"{rate:.3g}" + (f"  ({ratio:.1f}x)" if ratio is not None else "")
        axes.bar_label(bar, [text], padding=4, fontweight="bold" if arm["default"] else "normal")
        name = f"{arm['precision']}, {_PADDINGS[arm['padding']]}{_size(arms, arm, shared=False)}"
        names.append(name + (" *" if arm["default"] else ""))
    axes.set_yticks(range(len(arms)), names)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_title("examples a second, and times fp32 padded to max_length", loc="left", fontsize=10)
    _bare(axes)


def _size(arms: Sequence[Mapping[str, Any]], arm: Mapping[str, Any], *, shared: bool) -> str:
    """An arm's batch size and length: those that all arms have, or those that differ among them."""
    words = {"batch_size": "batch", "max_length": "max_length"}
    same = {name: len({other[name] for other in arms}) == 1 for name in words}
    return "".join(f", {word} {arm[name]}" for name, word in words.items() if same[name] == shared)


def _draw_shares(axes: "Axes", profile: Mapping[str, Any]) -> None:
    shares = profile["shares"]
    bars = axes.barh(range(len(shares)), [100 * share for share in shares.values()], height=0.7, color=_PROFILE_COLOUR)
    axes.bar_label(bars, [f"{100 * share:.1f} %" for share in shares.values()], padding=4)
    axes.set_yticks(range(len(shares)), list(shares))
    axes.invert_yaxis()
    axes.margins(x=0.14)
    arm = profile["arm"]
    axes.set_title(
        f"where the time of * goes ({arm['precision']}, {_PADDINGS[arm['padding']]})", loc="left", fontsize=10
    )
    _bare(axes)


def _bare(axes: "Axes") -> None:
    """No frame: the bars carry their numbers."""
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
