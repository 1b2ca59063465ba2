"""A comparison as tables of texts, for a terminal and for Markdown alike."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.metrics.value import MetricValue
from bertctl.reporting.compare import Comparison
from bertctl.reporting.escape import one_line
from bertctl.reporting.github import TextTable


def tables(found: Comparison, names: Sequence[str]) -> list[TextTable]:
    """Returns the comparison as tables: metrics, differences, settings, data, speed, examples that changed sides.

    Args:
        found: the comparison.
        names: of the runs, for headers.
    """
    made: list[TextTable] = []
    rows = [
        [f"{name} *" if name == found.primary else name, *("" if v is None else _metric(v) for v in values)]
        for name, values in found.metrics.items()
    ]
    made.append((f"metrics of {found.split}", ["metric", *names], rows))
    several = len(found.runs) > 2
    rows = [
        [
            one.metric,
            f"{names[one.run]} - {names[0]}",
            f"{one.difference.value:+.4f}",
            f"{one.difference.low:+.4f} to {one.difference.high:+.4f}",
            f"{one.difference.p:.2g}",
            *([f"{one.p_adjusted:.2g}"] if several else []),
            one.difference.method,
            one.verdict,
        ]
        for one in found.differences
    ]
    header = ["metric", "runs", "difference", "95 % interval", "p", *(["p, Holm"] if several else []), "method", ""]
    made.append(("differences", header, rows))
    for title, facts in (("recipes differ in", found.recipe), ("data differ in", found.data),
                         ("environments differ in", found.environment), ("speed", found.speed)):  # fmt: skip
        if facts:
            made.append((title, ["", *names], _fact_rows(facts)))
    for changes in found.changes:
        title = (
            f"examples that changed sides: {names[changes.run]} wins {changes.won} and loses {changes.lost} "
            f"against {names[0]}"
        )
        rows = [
            [
                "won" if example.won else "lost",
                one_line(str(example.id), limit=24),
                _short(example.gold),
                *(_short(prediction) for prediction in example.predictions),
                one_line(example.text, limit=100),
            ]
            for example in changes.examples
        ]
        made.append((title, ["", "id", "gold", names[0], names[changes.run], "text"], rows))
    return made


def _metric(value: MetricValue) -> str:
    interval = "" if value.low is None or value.high is None else f" ({value.low:.4f} to {value.high:.4f})"
    return f"{value.value:.4f}{interval}"


def _fact_rows(facts: Mapping[str, Sequence[Any]]) -> list[list[str]]:
    return [[name, *("" if value is None else _short(value) for value in values)] for name, values in facts.items()]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return one_line(", ".join(map(str, value)), limit=48)
    return one_line(str(value), limit=48)
