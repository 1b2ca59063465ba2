"""The one table at the end of a run, read from its metrics.json: value, interval, baseline, published score."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from bertctl.catalog.datasets import DATASETS


def metrics_table(metrics: Mapping[str, Any], *, dataset: str | None = None) -> Table:
    """Rows: split and metric, the primary one first and marked; columns: value, 95 % interval, n, baseline, published.

    Args:
        metrics: content of metrics.json.
        dataset: catalog name, for the published score; shown beside its own metric with the split it stands for.
    """
    table = Table(box=None, header_style="bold", pad_edge=False, caption_justify="left")
    for header in ("split", "metric", "value", "95 % interval", "n", "majority", "published"):
        table.add_column(header, justify="left" if header in ("split", "metric", "published") else "right")
    primary = metrics["primary"]
    row = DATASETS.get(dataset or "")
    for split, by_name in metrics["metrics"].items():
        names = sorted(by_name, key=lambda name: name != primary["name"])
        for name in names:
            metric = by_name[name]
            is_primary = name == primary["name"]
            published = row.published_for(split, name) if row else None
            if published:
                table.caption = f"published: {published.source}"
            baseline = metrics.get("baseline", {}).get(split, {}).get(name)
            table.add_row(
                split,
                f"{name} *" if is_primary else name,
                figure(metric["value"]),
                interval(metric),
                str(metric["n"]),
                "" if baseline is None else figure(baseline),
                f"{figure(published.value)} ({published.split})" if published else "",
                style="bold" if is_primary and split == primary["split"] else None,
            )
    return table


def figure(value: float) -> str:
    """Four decimals: a set of 872 examples has steps of 0.0011."""
    return f"{value:.4f}"


def interval(metric: Mapping[str, Any]) -> str:
    """`0.8712 to 0.9104`, or nothing where there is none."""
    if metric["low"] is None or metric["high"] is None:
        return ""
    return f"{figure(metric['low'])} to {figure(metric['high'])}"


def time_line(performance: Mapping[str, Any], *, total: float) -> str:
    """Where the time went, in a line."""
    seconds = performance["seconds"]
    return (
        f"{total:.1f} s: training {seconds['train']:.1f} s ({performance['examples_per_second']:.0f} examples/s, "
        f"{performance['tokens_per_second']:.0f} tokens/s, padding {100 * performance['padding_share']:.1f} %), "
        f"evaluation {seconds['evaluate']:.1f} s; peak memory {performance['peak_memory_bytes'] / 1e9:.1f} GB"
    )
