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
    """Returns a comparison as tables.

    They show metrics, differences, settings, data, speed, and examples that changed sides.

    Args:
        comparison: Document of the comparison, as `compare` returns it.
        names: Names of the runs, for headers.
    """
    names_by_run = dict(zip(comparison["runs"][1:], names[1:], strict=True))
    text_tables = [
        _metrics_table(comparison, names),
        _differences_table(comparison["differences"], names[0], names_by_run),
    ]
    for title, key in _FACTS.items():
        if comparison[key]:
            absent = "not set" if key == "recipe" else "-"
            rows = _fact_rows(comparison[key], counts=key == "data", absent=absent)
            text_tables.append((title, ["", *names], rows))
    for changed in comparison["changed_sides"]:
        name = names_by_run[changed["run"]]
        text_tables.append(_changed_table(changed, names[0], name))
    return text_tables


def _metrics_table(comparison: Mapping[str, Any], names: Sequence[str]) -> TextTable:
    """Returns a row for each metric, with a column for each run."""
    rows = []
    for name, values in comparison["metrics"].items():
        if name == comparison["primary"]:
            label = f"{name} *"
        else:
            label = name
        rows.append([label, *("" if value is None else _metric(value) for value in values)])
    return f"metrics of {comparison['split']}", ["metric", *names], rows


def _differences_table(
    differences: Sequence[Mapping[str, Any]], first_name: str, names_by_run: Mapping[str, str]
) -> TextTable:
    """Returns a row for each metric and run: by how much the run differs from the first.

    Args:
        differences: As `compare` returned them.
        first_name: Name of the first run.
        names_by_run: Names of the others by their paths.
    """
    is_adjusted = len(differences) > 1
    header = ["metric", "runs", "difference", "95 % interval", "p"]
    if is_adjusted:
        header.append("p, Holm")
    header += ["method", ""]

    rows = []
    for difference in differences:
        row = [
            difference["metric"],
            f"{names_by_run[difference['run']]} - {first_name}",
            f"{difference['value']:+.4f}",
            f"{difference['low']:+.4f} to {difference['high']:+.4f}",
            f"{difference['p']:.2g}",
        ]
        if is_adjusted:
            row.append(f"{difference['p_adjusted']:.2g}")
        method = difference["method"]
        if "clusters" in difference:
            method += f", {clusters_text(difference['clusters'])} clusters"
        rows.append([*row, method, difference["verdict"]])
    return "differences", header, rows


def _changed_table(changed: Mapping[str, Any], first_name: str, other_name: str) -> TextTable:
    """Returns a row for each example that one of two runs answers rightly.

    Args:
        changed: An entry of `changed_sides` of a comparison.
        first_name: Name of the first run.
        other_name: Name of the run that is compared with it.
    """
    rows = []
    for example in changed["examples"]:
        answers = (example["gold"], *example["predictions"])
        rows.append(
            [
                "won" if example["won"] else "lost",
                one_line(str(example["id"]), limit=24),
                *map(_short, answers),
                one_line(example["text"], limit=100),
            ]
        )
    title = (
        f"examples that changed sides: {other_name} wins {changed['won']} and loses "
        f"{changed['lost']} against {first_name}"
    )
    return title, ["", "id", "gold", first_name, other_name, "text"], rows


def _metric(metric: Mapping[str, Any]) -> str:
    """Returns a metric with its interval: `0.9128 (0.9021 to 0.9220)`."""
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
    write_plainly = "{:,}".format if counts else _short
    rows = []
    for name, values in facts.items():
        # Figures of speed have a label and a format of their own.
        label, write_number = SPEED.get(name, (name, write_plainly))
        rows.append([label, *(_fact(value, write_number, absent) for value in values)])
    return rows


def _fact(value: Any, write_number: Callable[[Any], str], absent: str) -> str:
    """Returns a run's value of a fact as text."""
    if value is None:
        return absent
    if isinstance(value, int | float):
        return write_number(value)
    return _short(value)


def _short(value: Any) -> str:
    """Returns a value as text of one short line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return one_line(", ".join(map(str, value)), limit=48)
    return one_line(str(value), limit=48)
