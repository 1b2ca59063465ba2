"""A comparison as tables of texts, for a terminal and for Markdown alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertctl.reporting.escape import one_line
from bertctl.reporting.github import TextTable
from bertctl.reporting.summary import clusters_text, figure, interval
from bertctl.words import human_bytes, human_seconds

_FACTS = {
    "recipes differ in": "recipe",
    "data differ in": "data",
    "environments differ in": "environment",
    "speed": "speed",
}
SPEED: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "seconds.train": ("training", human_seconds),
    "seconds.evaluate": ("evaluation", human_seconds),
    "seconds.predict": ("prediction", human_seconds),
    "examples_per_second": ("examples per second", "{:,.1f}".format),
    "tokens_per_second": ("tokens per second", "{:,.0f}".format),
    "padding_share": ("padding", "{:.1%}".format),
    "peak_memory_bytes": ("peak memory", human_bytes),
}
"""The figures of `speed`: what a person reads for each, and how it is written."""


def tables(comparison: Mapping[str, Any], names: Sequence[str]) -> list[TextTable]:
    """Returns a comparison as tables: metrics, differences, settings, data, speed, examples that
    changed sides.

    Args:
        comparison: what `compare` returned.
        names: of the runs, for headers.
    """
    names_by_run = dict(zip(comparison["runs"][1:], names[1:], strict=True))
    made: list[TextTable] = []
    rows = []
    for name, values in comparison["metrics"].items():
        label = f"{name} *" if name == comparison["primary"] else name
        rows.append([label, *("" if value is None else _metric(value) for value in values)])
    made.append((f"metrics of {comparison['split']}", ["metric", *names], rows))
    several = len(comparison["differences"]) > 1
    rows = []
    for difference in comparison["differences"]:
        change = (
            f"{difference['value']:+.4f}",
            f"{difference['low']:+.4f} to {difference['high']:+.4f}",
        )
        chances = [
            f"{difference[name]:.2g}" for name in (("p", "p_adjusted") if several else ("p",))
        ]
        method = difference["method"]
        if "clusters" in difference:
            method += f", {clusters_text(difference['clusters'])} clusters"
        rows.append(
            [
                difference["metric"],
                f"{names_by_run[difference['run']]} - {names[0]}",
                *change,
                *chances,
                method,
                difference["verdict"],
            ]
        )
    header = [
        "metric",
        "runs",
        "difference",
        "95 % interval",
        "p",
        *(["p, Holm"] if several else []),
        "method",
        "",
    ]
    made.append(("differences", header, rows))
    for title, key in _FACTS.items():
        if comparison[key]:
            rows = _fact_rows(
                comparison[key], counts=key == "data", absent="not set" if key == "recipe" else "-"
            )
            made.append((title, ["", *names], rows))
    for changed in comparison["changed_sides"]:
        name = names_by_run[changed["run"]]
        title = (
            f"examples that changed sides: {name} wins {changed['won']} and loses {changed['lost']}"
        )
        rows = [
            [
                "won" if example["won"] else "lost",
                one_line(str(example["id"]), limit=24),
                *map(_short, (example["gold"], *example["predictions"])),
                one_line(example["text"], limit=100),
            ]
            for example in changed["examples"]
        ]
        made.append(
            (f"{title} against {names[0]}", ["", "id", "gold", names[0], name, "text"], rows)
        )
    return made


def _metric(metric: Mapping[str, Any]) -> str:
    ends = interval(metric["low"], metric["high"])
    if ends:
        return f"{figure(metric['value'])} ({ends})"
    return figure(metric["value"])


def _fact_rows(facts: Mapping[str, Sequence[Any]], *, counts: bool, absent: str) -> list[list[str]]:
    """Returns a row per fact.

    Args:
        facts: Name -> value in each run.
        counts: Whether whole numbers count something, or stand as they do in a recipe.
        absent: What stands for a fact that a run does not have.
    """
    rows = []
    for name, values in facts.items():
        label, written = SPEED.get(name, (name, "{:,}".format if counts else _short))
        rows.append([label, *(_fact(value, written, absent) for value in values)])
    return rows


def _fact(value: Any, write_number: Callable[[Any], str], absent: str) -> str:
    if value is None:
        return absent
    if isinstance(value, int | float):
        return write_number(value)
    return _short(value)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return one_line(", ".join(map(str, value)), limit=48)
    return one_line(str(value), limit=48)
