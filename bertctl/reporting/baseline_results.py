"""A run beside its baselines.

The paired differences come from the predictions that the run folder has, and make a table.
"""

from collections.abc import Sequence

from bertctl.baselines.kinds import KINDS, MAJORITY
from bertctl.documents import loading, read_json_lines
from bertctl.errors import UsageError
from bertctl.metrics.paired import Difference
from bertctl.reporting.document import Cell, Column, TableBlock
from bertctl.reporting.pairing import not_computable
from bertctl.reporting.runs import FinishedRun, aligned
from bertctl.reporting.summary import figure
from bertctl.run_documents.metrics_document import BaselineEntry, MetricsDocument
from bertctl.run_folder import DAMAGED
from bertctl.tasks.answers import Line
from bertctl.tasks.registry import answer_type
from bertctl.words import listing


def baseline_title(name: str) -> str:
    """Returns the name of a baseline in sentences."""
    if name == MAJORITY:
        return "the constant answer"
    return KINDS[name].title


def baseline_difference(
    run: FinishedRun, name: str, split: str, lines: Sequence[Line]
) -> tuple[Difference, float]:
    """Returns the run's primary metric minus a baseline's on the same rows, and the baseline's.

    The difference is paired: it is computed from the predictions of both.

    Args:
        run: The run.
        name: Name of the baseline, or `majority`.
        split: Split that was scored.
        lines: The run's predictions of the split.

    Raises:
        UsageError: The run has no such baseline on the split, or was scored on other rows since.
        UnavailableError: The baseline's predictions are gone.
        DataError: They are damaged.
    """
    answers = answer_type(str(run.task)).from_lines(lines)
    metric = run.primary
    if name == MAJORITY:
        constant = run.metrics.constant_answer
        if constant is None:
            raise _missing(run, name, split)
        baseline_lines = [answers.answered(line, constant) for line in lines]
    else:
        baseline_lines = aligned(
            list(lines),
            _baseline_lines(run, name, split),
            names=(str(run.path), baseline_title(name)),
        )
    with loading(f"the baselines of {run.path}", remedy=DAMAGED):
        run_contributions = answers.contributions(lines, metric)
        baseline_contributions = answers.contributions(baseline_lines, metric)
    if run_contributions is None or baseline_contributions is None:
        raise not_computable(metric, str(run.task))
    return run_contributions.difference(baseline_contributions), baseline_contributions.value


def stored_difference(run: FinishedRun, name: str, split: str) -> tuple[Difference, float]:
    """Returns the difference from a baseline that metrics.json has, and the baseline's metric.

    It is for runs without a folder of predictions, from which `baseline_difference` computes it.

    Raises:
        UsageError: metrics.json has no difference from this baseline on the split.
    """
    entry = _entry(run, name)
    if entry is None or split not in entry.differences:
        raise _missing(run, name, split)
    stored = entry.differences[split]
    difference = Difference(
        value=stored.value,
        low=stored.low,
        high=stored.high,
        p=stored.p,
        n=stored.n,
        method=stored.method,
        changed=stored.examples_changed,
        clusters=stored.clusters,
    )
    return difference, stored.baseline


def baselines_table(metrics: MetricsDocument) -> TableBlock | None:
    """Returns a table of by how much the run is better than its baselines; None without any.

    There is a row per baseline and split.

    Args:
        metrics: Content of metrics.json.
    """
    primary = metrics.primary.name
    number_columns = (primary, "run minus baseline", "95 % interval")
    columns = [
        Column("baseline"),
        Column("split"),
        *(Column(name, number=True) for name in number_columns),
        Column("run is"),
    ]
    rows: list[list[str | Cell]] = []
    for name, entry in metrics.baselines.items():
        for split, difference in entry.differences.items():
            corrected_interval = difference.corrected
            interval = f"{corrected_interval.low:+.4f} to {corrected_interval.high:+.4f}"
            verdict = Cell(difference.verdict, wrong=difference.verdict == "not better")
            cells = (figure(difference.baseline), f"{difference.value:+.4f}", interval)
            rows.append([KINDS[name].tables, split, *cells, verdict])
    if not rows:
        return None
    caption = (
        "Simple models on the same rows, computed beside the run; the interval is of the paired "
        "difference."
    )
    return TableBlock(columns, rows, caption)


def _entry(run: FinishedRun, name: str) -> BaselineEntry | None:
    """Returns what metrics.json has of a baseline, or None."""
    entries: dict[str, BaselineEntry] = dict(run.metrics.baselines.items())
    return entries.get(name)


def _baseline_lines(run: FinishedRun, name: str, split: str) -> list[Line]:
    """Returns a baseline's predictions of a split."""
    entry = _entry(run, name)
    if run.folder is None or entry is None or split not in entry.metrics:
        raise _missing(run, name, split)
    path = run.folder.baseline_predictions(name, split)
    lines: list[Line] = [*read_json_lines(path, remedy=DAMAGED)]
    return lines


def _missing(run: FinishedRun, name: str, split: str) -> UsageError:
    """Returns the refusal of a baseline that the run does not have on a split."""
    if name == MAJORITY:
        remedy = "Give the run's folder: its predictions and metrics.json are needed."
        return UsageError(
            f"{run.path} has no constant answer to compare with on '{split}'", remedy=remedy
        )
    entry = _entry(run, name)
    if entry is not None and entry.metrics:
        scored = list(entry.metrics)
        splits = ", ".join([*scored, split])
        return UsageError(
            f"{run.path} has {baseline_title(name)} on {listing(scored)}, not on '{split}'",
            remedy=f"Type `split={scored[0]}`, or train with `evaluation.splits='[{splits}]'`.",
        )
    computed = list(run.metrics.baselines)
    if computed:
        remedy = f"It has: {listing([*computed, MAJORITY])}."
    else:
        remedy = (
            "Train with `evaluation.baselines=True`. Or make the frozen encoder's classifier "
            "with `bertctl probe` and compare: `baseline=PROBE` `max_drop=METRIC`=0."
        )
    return UsageError(f"{run.path} has no baseline '{name}'", remedy=remedy)
