"""The gate: whether a run is good enough, and not worse than another.

It is decided by intervals, not by two floats: `gate_judge.py` judges each limit by itself, and the
worst verdict is the gate's (`gate_result.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bertctl.documents import loading
from bertctl.errors import UsageError
from bertctl.metrics.clusters import FEW
from bertctl.reporting.gate_judge import Judge
from bertctl.reporting.gate_result import GateResult, Judgement
from bertctl.reporting.limits import Limit, Policy
from bertctl.reporting.runs import FinishedRun, read_run
from bertctl.reporting.summary import choice_text, decision_sentences
from bertctl.run_folder import CONFIRM, DAMAGED


def gate(
    run: Path,
    limits: Sequence[Limit],
    *,
    baseline: Path | None = None,
    split: str | None = None,
    policy: Policy,
    allow_constant: bool = False,
) -> GateResult:
    """Checks the metrics of a finished run against limits, and returns the verdict on each.

    Args:
        run: Folder of the run, or its metrics.json.
        limits: Limits to check; at least one.
        baseline: The run that drops are measured from: its folder, for a paired comparison, or its
            metrics.json, for an unpaired one. None if no drop is checked.
        split: Split whose metrics are checked; None to choose one as `FinishedRun.split` does.
        policy: How inconclusive checks count: `strict`, `point` or `lenient`.
        allow_constant: Whether a run may pass that is not better than the best constant answer.

    Raises:
        UsageError: no limit, drops without a baseline or a baseline without drops, a metric that is
            not there, or is better the other way, different data.
        UnavailableError: no finished run, or predictions that are not there.
        DataError: predictions that contradict the metrics.
    """
    if not limits:
        raise UsageError(
            "the gate was given nothing to check",
            remedy="Give a condition: `min=accuracy=0.91`, `max=loss=0.4`, "
            "`min_slice='label=neg:recall=0.85'`, "
            "`baseline=RUN2` `max_drop=accuracy=0.005`, or `beats=frozen`.",
        )
    has_drops = any(limit.kind == "max-drop" for limit in limits)
    if has_drops and baseline is None:
        raise UsageError(
            "`max_drop=` needs something to drop from",
            remedy="Add `baseline=RUN2` (or its metrics.json).",
        )
    if baseline is not None and not has_drops:
        raise UsageError(
            "`baseline=` alone decides nothing",
            remedy="Give the drop that is allowed: `max_drop=accuracy=0.005`.",
        )
    ours = read_run(run)
    if baseline is not None:
        theirs = read_run(baseline)
    else:
        theirs = None
    chosen = ours.split(split)
    # `beats` names a baseline and no metric: the primary one is compared.
    limits = [
        replace(limit, metric=ours.primary) if limit.kind == "beats" else limit for limit in limits
    ]
    # A file that is damaged may belong to either run: the message names both.
    runs_text = f"the run {run}"
    if baseline is not None:
        runs_text += f" or {baseline}"
    with loading(runs_text, remedy=DAMAGED):
        judge = Judge(ours, theirs, chosen, allow_constant=allow_constant)
        judgements = tuple(judge.verdict_on(limit, policy) for limit in limits)
    notes = [*judge.notes, *_cautions(ours, chosen, judgements, policy)]
    # Nobody named a split, and it isn't one of those that are expected.
    if split is None and chosen not in ("validation", CONFIRM):
        notes.append(f"looked at the split '{chosen}', as the run has no 'validation'")
    return GateResult(
        ours,
        baseline=theirs,
        split=chosen,
        policy=policy,
        judgements=judgements,
        notes=tuple(notes),
    )


def _cautions(
    ours: FinishedRun, split: str, judgements: Sequence[Judgement], policy: Policy
) -> list[str]:
    """Returns what else limits the verdict.

    That may be choices made on this split, few clusters, or several checks.
    """
    choices = ours.chosen_on(split)
    n_checks = len(judgements)
    notes = []
    if choices:
        names = ", ".join(choice_text(name, number) for name, number in choices.items())
        if ours.chosen_on("test"):
            other_split = ""
        else:
            other_split = "; `split=test` needs no such allowance"
        notes.append(f"{split} also chose: {names}. The intervals allow for this{other_split}")
    notes += decision_sentences(ours.metrics)
    clusters = [judgement.metric.clusters for judgement in judgements if judgement.metric.clusters]
    if clusters and min(clusters) < FEW:
        notes.append(f"{min(clusters)} clusters are few: intervals from fewer than {FEW} are rough")
    if n_checks > 1 and policy != "point":
        chance = f"up to {min(100, 2.5 * n_checks):g} % (2.5 % each)"
        notes.append(
            f"a model that is exactly at all {n_checks} limits fails at least one check with a "
            f"chance of {chance}"
        )
    return notes
