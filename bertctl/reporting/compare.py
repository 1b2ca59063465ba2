"""Runs side by side.

Metrics with intervals, differences with p values, what was set, what was read, and what changed.

Every run is compared with the first. Where their predictions are about the same examples,
differences are paired by id; else they are unpaired, and that is said. The p values of all runs and
all metrics are adjusted by Holm's method.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from bertctl.errors import BertctlError, UsageError
from bertctl.metrics.contributions import LOSS
from bertctl.metrics.paired import Difference, holm
from bertctl.reporting.comparison_tables import SPEED
from bertctl.reporting.escape import one_line
from bertctl.reporting.pairing import Pair, UnlikeRunsError, refuse_other_task, unpaired
from bertctl.reporting.runs import FinishedRun, flat, read_run
from bertctl.run_folder import SCHEMA
from bertctl.tasks.answers import Answers, Line
from bertctl.tasks.registry import headline

_ALPHA = 0.05
_NOT_COMPARED = ("name", "description")
"""Fields of a recipe that change nothing of a run."""


def compare(
    paths: Sequence[Path], *, split: str | None = None, examples: int = 10
) -> dict[str, Any]:
    """Compares runs with the first of them, and returns the document of `--json`.

    It holds `metrics` by name, one for each run (None where a run lacks it); `differences` from the
    first run, each with Holm's `p_adjusted` and its `verdict` (better, worse or undecided: whether
    that p is below 0.05, and which way); `changed_sides`, the examples that one of two paired runs
    answers rightly; and what differs in `recipe`, `data`, `environment` and `speed`: dotted name ->
    value in each run.

    Args:
        paths: at least two run folders, or metrics.json files (which are compared unpaired).
        split: see `FinishedRun.split`; the same in all.
        examples: how many of the examples that changed sides are shown, for each run.

    Raises:
        UsageError: fewer than two, a split that one of them lacks, different tasks or labels, no
            metric in common.
        UnavailableError: no finished run.
    """
    if len(paths) < 2:
        raise UsageError(
            "one run can't be compared", remedy="Name two or more: bertctl compare RUN RUN."
        )
    runs = tuple(read_run(path) for path in paths)
    chosen = runs[0].split(split)
    for run in runs[1:]:
        refuse_other_task(run, runs[0])
        run.split(chosen)
    by_name = [run.metrics.metrics[chosen] for run in runs]
    names = headline(dict.fromkeys(chain.from_iterable(by_name)), runs[0].primary)
    in_all = set(by_name[0]).intersection(*by_name)
    common = [name for name in names if name in in_all]
    # The loss doesn't count: every run has one, but losses of different kinds can't be compared.
    common_scores = [name for name in common if name != LOSS.name]
    if not common_scores:
        raise UsageError(
            f"the runs have no metric of '{chosen}' in common",
            remedy="Compare runs of the same task.",
        )
    metrics = {name: _metric_by_run(runs, chosen, name) for name in names}
    if split is not None or chosen == "validation":
        notes = []
    else:
        notes = [f"the split is '{chosen}'"]
    pairs = _pairs(runs, chosen, notes)
    notes += _further_splits(runs)
    changed_sides = [_changed_sides(pair, examples) for pair in pairs.values()]
    return {
        "schema": SCHEMA,
        "runs": [str(run.path) for run in runs],
        "split": chosen,
        "primary": runs[0].primary,
        "metrics": metrics,
        "differences": _differences(
            runs,
            split=chosen,
            names=common,
            pairs=pairs,
            notes=notes,
        ),
        "changed_sides": [sides for sides in changed_sides if sides is not None],
        "recipe": _unequal([_recipe_facts(run) for run in runs]),
        "data": _unequal(_common_splits([_data_facts(run) for run in runs])),
        "environment": _unequal([_environment_facts(run) for run in runs]),
        "speed": _speed(runs),
        "notes": notes,
    }


def _metric_by_run(
    runs: Sequence[FinishedRun], split: str, name: str
) -> list[dict[str, Any] | None]:
    """Returns a metric of each run; None where a run lacks it."""
    values: list[dict[str, Any] | None] = []
    for run in runs:
        if name in run.metrics.metrics[split]:
            values.append(run.metric(split, name).as_json())
        else:
            values.append(None)
    return values


def _recipe_facts(run: FinishedRun) -> dict[str, Any]:
    """Returns the fields of a run's recipe by their dotted names."""
    fields = flat(run.recipe)
    return {name: value for name, value in fields.items() if name not in _NOT_COMPARED}


def _pairs(runs: Sequence[FinishedRun], split: str, notes: list[str]) -> dict[int, Pair]:
    """Returns the predictions of each run beside those of the first one, by the run's number.

    Args:
        runs: The first one is what the others are compared with.
        split: Split that was scored.
        notes: The reason is added to it for each run that can't be paired.

    Raises:
        UnlikeRunsError: Two runs can't be compared at all.
    """
    pairs: dict[int, Pair] = {}
    lines: list[Line] | None = None
    for number, run in enumerate(runs[1:], start=1):
        try:
            if lines is None:
                lines = runs[0].lines(split)
            pairs[number] = Pair(
                run,
                runs[0],
                split,
                lines=run.lines(split),
                their_lines=lines,
            )
        except UnlikeRunsError:
            raise
        except BertctlError as error:
            notes.append(f"{run.path} can't be paired: {error.message}")
    return pairs


def _differences(
    runs: Sequence[FinishedRun],
    split: str,
    names: Sequence[str],
    pairs: dict[int, Pair],
    notes: list[str],
) -> list[dict[str, Any]]:
    """Returns by how much each further run differs from the first one, in each metric.

    P values are corrected for the number of comparisons (Holm). A pair that has no difference is
    left out, and the reason is added to `notes`, once for all metrics.

    Args:
        runs: The first one is what the others are compared with.
        split: Split that was scored.
        names: Metrics that all runs have.
        pairs: Predictions of a run beside the first one's, by the run's number.
        notes: Sentences for the reader.
    """
    differences: list[dict[str, Any]] = []
    for name in names:
        higher_is_better = runs[0].metric(split, name).higher_is_better
        for number, run in enumerate(runs[1:], start=1):
            try:
                difference = _difference(
                    runs,
                    number,
                    split,
                    name,
                    pairs,
                )
            except BertctlError as error:
                difference = None
                reason = (
                    f"{run.path} has no difference from {runs[0].path} ({name}): {error.message}"
                )
                # One note for all metrics of the run: it names the first metric that failed.
                reason_for_any_metric = reason.partition(" (")[0]
                if not any(note.startswith(reason_for_any_metric) for note in notes):
                    notes.append(reason)
            if difference is not None:
                if (difference.value > 0) == higher_is_better:
                    verdict = "better"
                else:
                    verdict = "worse"
                entry = {
                    "run": str(run.path),
                    "against": str(runs[0].path),
                    "metric": name,
                    **difference.as_json(),
                }
                differences.append(entry | {"verdict": verdict})

    adjusted = holm([entry["p"] for entry in differences])
    for entry, p in zip(differences, adjusted, strict=True):
        entry["p_adjusted"] = p
        if p >= _ALPHA:
            entry["verdict"] = "undecided"
    return differences


def _difference(
    runs: Sequence[FinishedRun], number: int, split: str, name: str, pairs: dict[int, Pair]
) -> Difference | None:
    """Returns how a run differs from the first in a metric: paired if possible, else unpaired."""
    if number in pairs:
        # A metric script's value can't be computed from predictions: it is compared unpaired.
        with suppress(UsageError):
            return pairs[number].difference(name)
    return unpaired(runs[number], runs[0], split, name)


def _changed_sides(pair: Pair, limit: int) -> dict[str, Any] | None:
    """Returns how many examples a run wins and loses against the first one, and some of them.

    A run wins an example that only it answers rightly. The result is None for tasks without right
    and wrong, such as regression.

    Args:
        pair: Predictions of the run (`ours`) and of the first one (`theirs`).
        limit: Examples to show: lost ones before won ones, about as many of each, those with the
            largest change of loss first.
    """
    if pair.answers.is_right(pair.lines[0]) is None:
        return None
    # Change of loss, whether it is won, and the lines of both runs.
    sides: list[tuple[float, bool, Line, Line]] = []
    for position in pair.answers.unit_positions(pair.lines):
        line = pair.lines[position]
        first_line = pair.their_lines[position]
        is_right = pair.answers.is_right(line)
        was_right = pair.answers.is_right(first_line)
        if is_right != was_right:
            loss_change = abs(float(line.get("loss") or 0.0) - float(first_line.get("loss") or 0.0))
            sides.append((loss_change, bool(is_right), line, first_line))
    sides.sort(key=lambda side: -side[0])  # the largest change of loss first
    lost_sides = [side for side in sides if not side[1]]
    won_sides = [side for side in sides if side[1]]
    n_lost = len(lost_sides)
    n_won = len(won_sides)
    # Half of the shown examples are lost ones, or more if fewer than half were won.
    n_lost_shown = min(n_lost, max(limit - n_won, (limit + 1) // 2))
    n_won_shown = limit - n_lost_shown
    selected = [*lost_sides[:n_lost_shown], *won_sides[:n_won_shown]]
    examples = [
        {
            "id": line["id"],
            "won": is_won,
            "gold": line["gold"],
            "predictions": [first_line["prediction"], line["prediction"]],
            "text": _text(line, pair.answers),
        }
        for _, is_won, line, first_line in selected
    ]
    paths = {"run": str(pair.ours.path), "against": str(pair.theirs.path)}
    return {**paths, "won": n_won, "lost": n_lost, "examples": examples}


def _text(line: Line, answers: Answers) -> str:
    """Returns the texts of an example in one line, such as `A question? | The passage.`."""
    texts = []
    for name in answers.texts:
        value = line.get(name)
        if not value:
            continue
        if isinstance(value, list):  # words
            value = " ".join(map(str, value))
        texts.append(str(value))
    return one_line(" | ".join(texts))


def _unequal(facts: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Returns the facts in which the runs differ, in the order in which they come up.

    A fact is None where a run has none.
    """
    unequal = {}
    for name in dict.fromkeys(chain.from_iterable(facts)):
        values = [run_facts.get(name) for run_facts in facts]
        if any(value != values[0] for value in values[1:]):
            unequal[name] = values
    return unequal


def _data_facts(run: FinishedRun) -> dict[str, Any]:
    """Returns hashes and counts of a run's splits: {"test.content": "1f3a...", ...}."""
    hashes = run.environment().data_hashes
    contents = {f"{split}.content": digest[:8] for split, digest in hashes.items()}
    counts = {split: counts.as_json() for split, counts in run.metrics.data.items()}
    return contents | flat(counts)


def _common_splits(facts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the facts of each run about those splits that all runs have.

    That a run was scored on one more split is not a difference of the data.
    """
    common = set.intersection(*({_split_of(name) for name in of_run} for of_run in facts))
    return [_only_splits(of_run, common) for of_run in facts]


def _split_of(name: str) -> str:
    """Returns the split that a fact, such as `test.content`, is about."""
    return name.partition(".")[0]


def _only_splits(facts: Mapping[str, Any], splits: Collection[str]) -> dict[str, Any]:
    """Returns the facts that are about some splits."""
    return {name: value for name, value in facts.items() if _split_of(name) in splits}


def _further_splits(runs: Sequence[FinishedRun]) -> list[str]:
    """Returns a note for each run that was scored on splits that another one was not."""
    scored = [set(run.metrics.metrics) for run in runs]
    common = set.intersection(*scored)
    return [
        f"{run.path} has also been scored on {', '.join(sorted(splits - common))}"
        for run, splits in zip(runs, scored, strict=True)
        if splits - common
    ]


_ENVIRONMENT_FACTS = (
    "bertctl",
    "python",
    "platform",
    "packages",
    "device",
    "precision",
    "threads",
    "model_hash",
)
"""Fields of environment.json in which runs are compared."""


def _environment_facts(run: FinishedRun) -> dict[str, Any]:
    """Returns the facts of environment.json that runs are compared by."""
    environment = run.environment().as_json()
    return flat({name: environment[name] for name in _ENVIRONMENT_FACTS if name in environment})


def _speed(runs: Sequence[FinishedRun]) -> dict[str, list[Any]]:
    """Returns each figure of speed that some run has, with its value for every run or None."""
    facts = [flat(run.performance().as_json()) for run in runs]
    measured = set(chain.from_iterable(facts))
    speed = {}
    for name in SPEED:
        if name in measured:
            speed[name] = [run_facts.get(name) for run_facts in facts]
    return speed
