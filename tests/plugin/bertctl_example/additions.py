"""A metric, a loss, a reader and a verb."""

import configparser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.config.losses import Loss
from bertctl.metrics import contributions
from bertctl.metrics.contributions import Contributions, Metric
from bertctl.tasks.answers import Answers, Lines, TaskMetric


def _certainty(answers: Answers, lines: Lines) -> Contributions:
    return contributions.share([max(line["probabilities"].values()) > 0.5 for line in lines])


CERTAINTY = TaskMetric(
    "text-classification",
    Metric("certainty", _certainty, "share of answers with a probability above one half"),
)

POLY = Loss(
    name="poly",
    summary="cross-entropy and the probability that the right label lacks (Leng et al. 2022)",
    classes={"one label": "bertctl_example.poly:PolyLoss"},
)


def read_ini(path: Path) -> Iterator[dict[str, Any]]:
    """Yields a record for each section of an INI file, as bertctl reads rows."""
    parser = configparser.ConfigParser()
    parser.read(path, encoding="utf-8")
    for name in parser.sections():
        yield dict(parser[name])


def greet(out: Any, name: Annotated[str, typer.Argument()] = "you") -> None:
    """Greet somebody.

    Args:
        out: Prints the answer and messages.
        name: Who is greeted.
    """
    out.answer({"greeting": f"hello {name}"}, f"hello {name}")
