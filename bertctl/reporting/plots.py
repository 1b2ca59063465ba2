"""Pictures, drawn from the JSON documents that runs leave; PNG and SVG, no display needed."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.run_folder import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS, _CURVE, _MARK = "#9aa5b1", "#1f6feb", "#57606a"
_DPI = 150


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


def _save(figure: "Figure", kind: str, path: Path) -> None:
    figure.savefig(path, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else {})


def _rates_figure(document: Mapping[str, Any]) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rates, smooth = document["rates"], document["smoothed"]
    axes.plot(rates, document["losses"], ".", markersize=3, color=_DOTS, label="loss of a batch")
    axes.plot(rates, smooth, color=_CURVE, label="smoothed")
    for name, label, style in (("steepest", "falls fastest", "--"), ("minimum", "lowest", ":")):
        if document[name] is not None:
            axes.axvline(document[name], color=_MARK, linestyle=style, label=f"{label}: {document[name]:.2e}")
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
