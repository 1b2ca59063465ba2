"""Judges a run by one limit of the gate after the other.

A check passes when the whole 95 % interval is on the good side of its limit, fails when all of it
is on the bad side, and is inconclusive in between.

Where the split that is looked at has chosen the weights, the best of k evaluations, the interval is
widened to one that holds for all k together (Bonferroni): on the bad side only, as the choice makes
scores too good. Nothing passes that gives one answer to everything, or is not above the best
constant answer.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import cached_property

from bertctl.errors import UsageError
from bertctl.metrics.clusters import TOO_FEW
from bertctl.metrics.paired import Difference, detectable, score_interval, simultaneous
from bertctl.metrics.value import MetricValue
from bertctl.reporting.baseline_results import (
    baseline_difference,
    baseline_title,
    stored_difference,
)
from bertctl.reporting.gate_result import Judgement
from bertctl.reporting.limits import (
    ANY_GAIN,
    GateVerdict,
    Limit,
    Policy,
    against_constant,
    decide,
    has_too_few,
    parameter_of,
)
from bertctl.reporting.pairing import Pair, not_computable, unpaired
from bertctl.reporting.runs import FinishedRun
from bertctl.reporting.slices import slice_contributions
from bertctl.reporting.summary import baseline_of, metric_name
from bertctl.reporting.ways_out import examples_needed, ways_out
from bertctl.tasks.answers import Answers, Line
from bertctl.tasks.registry import answer_type
from bertctl.words import count

_RARE = 5
"""Examples of a label below which its F1 is hardly known.

With 20 such labels a 95 % interval of macro F1 covers its true value in only 81 % of cases."""


class Judge:
    """Judges a run by limits.

    Its predictions are read at once, to see whether it gives one answer to everything. If such a
    run may pass, they are read only when the first limit needs them.

    Args:
        ours: The run.
        theirs: The run that drops are measured from, or None.
        split: The split that is looked at.
        allow_constant: Whether a run may pass that is not above the best constant answer.

    Attributes:
        notes: What a person should know of how it was judged.
        constant: The one answer that the run gives to everything, or None.
        answers: The interpretation of its predictions; None if it has none or they are not needed.
        compared: Number of evaluations, settings and so on that the split has chosen among.
    """

    def __init__(
        self, ours: FinishedRun, theirs: FinishedRun | None, split: str, *, allow_constant: bool
    ) -> None:
        self.ours = ours
        self.theirs = theirs
        self.split = split
        self.allow_constant = allow_constant
        # Number of scores on this split among which the run's own was the best.
        self.compared = ours.compared_on(split)
        self.notes: list[str] = []
        # Predictions of both runs, read when the first drop is judged.
        self._pair: Pair | None = None
        # The one answer that the run gives to every example, if it does.
        self.constant: str | None = None
        self.answers: Answers | None = None
        has_predictions = ours.folder is not None and ours.folder.predictions(split).exists()
        if has_predictions and not allow_constant:
            self.answers = answer_type(str(ours.task)).from_lines(self.lines)
            self.constant = self.answers.constant_prediction(self.lines)
            self._note_rare_labels(self.answers)

    def _note_rare_labels(self, answers: Answers) -> None:
        """Adds a note if several labels have too few examples for an interval of macro F1."""
        labels = Counter[str]()
        for line in self.lines:
            labels.update(answers.labels_of(line) or ())
        n_rare = sum(n_examples < _RARE for n_examples in labels.values())
        has_macro_f1 = "f1_macro" in self.ours.metrics.metrics[self.split]
        if n_rare and len(labels) > 2 and has_macro_f1:
            rare_labels = f"{n_rare} of {len(labels)} labels have fewer than {_RARE} examples"
            self.notes.append(
                f"{rare_labels}: intervals of means over labels, such as macro F1, are too short"
            )

    def verdict_on(self, limit: Limit, policy: Policy) -> Judgement:
        """Returns the verdict on one limit."""
        if limit.kind == "max-drop" and self.theirs is not None:
            return self._judge_drop(limit, policy, self.theirs)
        if limit.baseline is not None:
            return self._judge_gain(limit, policy, limit.baseline)
        return self._judge_value(limit, policy)

    def _judge_value(self, limit: Limit, policy: Policy) -> Judgement:
        """Returns whether a metric of the run, or of a slice of it, meets a `min` or `max`."""
        if limit.slice:
            metric = self._slice(limit, *limit.slice)
        else:
            metric = self.ours.metric(self.split, limit.metric)
        at_least = limit.kind != "max"
        if metric.higher_is_better != at_least:
            raise _wrong_direction(limit, higher_is_better=metric.higher_is_better)
        if not metric.is_defined:
            return self._undefined(limit, metric, policy)
        # If the run was chosen as the best of several, the bad end of its interval moves outwards.
        ends = simultaneous(
            metric.value, (metric.low, metric.high), self.compared, at_least=at_least
        )
        direction = "at least" if at_least else "at most"
        return self._judgement(
            limit,
            policy,
            metric,
            value=metric.value,
            ends=ends,
            bound=limit.limit,
            clusters=metric.clusters,
            finding=self._value_text(limit, metric, ends),
            allowed=f"{direction} {limit.limit:g}",
        )

    def _judgement(
        self,
        limit: Limit,
        policy: Policy,
        metric: MetricValue,
        *,
        value: float,
        ends: tuple[float | None, float | None],
        bound: float,
        clusters: int | None,
        finding: str,
        allowed: str,
        change: Difference | None = None,
        baseline: float | None = None,
    ) -> Judgement:
        """Returns the judgement of one limit: its verdict, its sentence, and what would decide it.

        Args:
            limit: What was asked.
            policy: How an inconclusive check counts.
            metric: The run's metric, or that of its slice.
            value: What is compared with the bound: the metric, or its change.
            ends: Ends of its interval, corrected for the choice; both None without an interval.
            bound: The value has to be at least this, or at most if lower is better.
            clusters: Clusters of examples behind the interval; None if the examples are unrelated.
            finding: Name, value and interval, as the beginning of the sentence.
            allowed: What was asked, as the sentence says it, such as `at least 0.9`.
            change: Run minus baseline, for drops and gains.
            baseline: The baseline's metric, for drops and gains.
        """
        at_least = metric.higher_is_better
        low, high = ends
        verdict = decide(
            value,
            low,
            high,
            bound,
            at_least=at_least,
            policy=policy,
            clusters=clusters,
        )
        if at_least:
            is_good = value >= bound
        else:
            is_good = value <= bound
        message = _sentence(
            finding,
            verdict,
            policy,
            ends,
            allowed,
            is_good=is_good,
            bad_end_is_low=at_least,
            clusters=clusters,
        )
        # A run that is no better than a constant answer doesn't pass, whatever the limit says.
        verdict, message = self._above_constant(
            limit,
            metric,
            policy,
            verdict,
            message,
        )
        judgement = Judgement(
            limit=limit,
            verdict=verdict,
            metric=metric,
            change=change,
            baseline=baseline,
            corrected=ends,
            detectable=_detectable(
                value,
                low,
                high,
                n=metric.n,
                at_least=at_least,
            ),
            message=message,
        )
        return _with_ways_out(judgement, bound, at_least=at_least)

    def _value_text(
        self, limit: Limit, metric: MetricValue, ends: tuple[float | None, float | None]
    ) -> str:
        """Returns a metric with its interval and examples, as the beginning of a sentence."""
        if limit.slice:
            slice_text = f" of {limit.slice[0]}={limit.slice[1]}"
        else:
            slice_text = ""
        if self.compared > 1:
            choice = f", best of {self.compared}"
        else:
            choice = ""
        if ends[0] is None:
            interval = ""
        else:
            interval = f" ({ends[0]:.4f} to {ends[1]:.4f}{choice})"
        if metric.clusters:
            clusters = f" in {metric.clusters} clusters"
        else:
            clusters = ""
        name = f"{metric_name(limit.metric, self.ours.metrics)}{slice_text}"
        return f"{name} is {metric.value:.4f}{interval} on {metric.n} examples{clusters}"

    def _undefined(self, limit: Limit, metric: MetricValue, policy: Policy) -> Judgement:
        """Returns the judgement of a metric that is no number.

        It never passes. With `lenient` it fails, as an inconclusive check would pass there.
        """
        examples = count(metric.n, "example")
        message = (
            f"{limit.metric} is undefined on {examples}: all answers, or all gold scores, are equal"
        )
        is_failure = self.constant is not None or policy == "lenient"
        verdict: GateVerdict = "fail" if is_failure else "inconclusive"
        return Judgement(
            limit,
            verdict,
            metric,
            change=None,
            baseline=None,
            corrected=(None, None),
            detectable=None,
            message=message,
        )

    def _above_constant(
        self, limit: Limit, metric: MetricValue, policy: Policy, verdict: GateVerdict, message: str
    ) -> tuple[GateVerdict, str]:
        """Returns the verdict and its sentence, made worse if a constant answer is as good.

        A constant answer is the same for every text, such as the majority label.

        Args:
            limit: What was asked.
            metric: Metric of the run.
            policy: How inconclusive checks count.
            verdict: Verdict by the limit alone.
            message: Sentence of this verdict.
        """
        if self.constant is not None:
            return "fail", f"{message}; but the run answers {self.constant} to everything"
        baseline = baseline_of(self.ours.metrics, self.split, limit.metric)
        if self.allow_constant or baseline is None or limit.slice is not None or verdict == "fail":
            return verdict, message
        # The stored baseline is one constant answer; another one may be better by this metric.
        if self.answers:
            baseline = self.answers.best_constant(limit.metric, self.lines, baseline)
        # The recall of a label is 1 if every text gets this label, and no run can be better than 1.
        # So the comparison by such a metric is left out, unless the constant answer is perfect by
        # the primary metric, too.
        primary_baseline = baseline_of(self.ours.metrics, self.split, self.ours.primary) or 0.0
        constant_is_perfect = metric.higher_is_better and baseline >= 1.0
        if constant_is_perfect and primary_baseline < 1.0:
            return verdict, message
        constant_verdict = against_constant(metric, baseline, policy)
        if constant_verdict == "pass":
            return verdict, message
        return (
            constant_verdict,
            f"{message}; but it is not clearly better than the best constant prediction "
            f"({baseline:.4f})",
        )

    @cached_property
    def lines(self) -> list[Line]:
        """Returns the run's predictions."""
        return self.ours.lines(self.split)

    def _slice(self, limit: Limit, column: str, value: str) -> MetricValue:
        """Returns a metric of the examples that have a value in a column."""
        lines = self.lines
        task = str(self.ours.task)
        contributions = slice_contributions(
            answer_type(task),
            lines,
            limit.metric,
            column=column,
            value=value,
        )
        if contributions is None:
            raise not_computable(limit.metric, task)
        return contributions.metric()

    def _judge_drop(self, limit: Limit, policy: Policy, theirs: FinishedRun) -> Judgement:
        """Returns whether a metric of the run is worse than another run's by at most the limit.

        Args:
            limit: The metric, and the largest drop that is allowed (a rise if lower is better).
            policy: How an inconclusive check counts.
            theirs: The other run.
        """
        name = limit.metric
        metric = self.ours.metric(self.split, name)
        their_split = theirs.split(self.split)
        baseline = theirs.metric(their_split, name)
        if not (metric.is_defined and baseline.is_defined):
            return self._undefined(limit, metric, policy)

        higher_is_better = metric.higher_is_better
        value = metric.value - baseline.value
        change = self._change(name, theirs)
        clusters = None
        ends: tuple[float | None, float | None] = (None, None)
        if change is not None:
            clusters = change.clusters
            ends = (change.low, change.high)
        # The best of many scores is optimistic. Two runs that are each the best of the same number
        # are equally optimistic, so their difference needs no correction. If ours is the best of k
        # times as many scores, the interval is corrected for a choice among k.
        n_compared = math.ceil(self.compared / theirs.compared_on(their_split))
        ends = simultaneous(value, ends, n_compared, at_least=higher_is_better)

        finding = (
            f"{metric_name(name, self.ours.metrics)} is {metric.value:.4f} against "
            f"{baseline.value:.4f}"
        )
        if change is not None:
            finding += _change_text(change, ends)
        change_for_worse = "drop" if higher_is_better else "rise"
        return self._judgement(
            limit,
            policy,
            metric,
            value=value,
            ends=ends,
            bound=-limit.limit if higher_is_better else limit.limit,
            clusters=clusters,
            finding=finding,
            allowed=f"a {change_for_worse} of at most {limit.limit:g}",
            change=change,
            baseline=baseline.value,
        )

    def _judge_gain(self, limit: Limit, policy: Policy, baseline_name: str) -> Judgement:
        """Returns whether the run is better than a baseline on the same rows.

        It passes if every value in the interval of their difference is a gain.

        Args:
            limit: The metric that is compared.
            policy: How an inconclusive check counts.
            baseline_name: Name of the baseline, such as `frozen`.
        """
        metric = self.ours.metric(self.split, limit.metric)
        if not metric.is_defined:
            return self._undefined(limit, metric, policy)
        if self.ours.folder is None:
            change, baseline = stored_difference(self.ours, baseline_name, self.split)
        else:
            change, baseline = baseline_difference(self.ours, baseline_name, self.split, self.lines)

        # The baseline was not chosen on this split, so the whole choice of the run is corrected.
        low, high = simultaneous(
            change.value,
            (change.low, change.high),
            self.compared,
            at_least=metric.higher_is_better,
        )
        title = baseline_title(baseline_name)
        differing = _differing(change)
        interval = f"{low:+.4f} to {high:+.4f}; {change.method}, p {change.p:.2g}{differing}"
        return self._judgement(
            limit,
            policy,
            metric,
            value=change.value,
            ends=(low, high),
            bound=ANY_GAIN if metric.higher_is_better else -ANY_GAIN,
            clusters=change.clusters,
            finding=f"{metric_name(limit.metric, self.ours.metrics)} is {metric.value:.4f} against "
            f"{baseline:.4f} of {title}, a change of {change.value:+.4f} ({interval})",
            allowed=f"better than {title}",
            change=change,
            baseline=baseline,
        )

    def _change(self, name: str, theirs: FinishedRun) -> Difference | None:
        """Returns our metric minus theirs: paired if both have predictions, else with a note.

        It is None if it is unpaired and a metric has no interval.
        """
        if self.ours.folder is not None and theirs.folder is not None:
            if self._pair is None:
                their_lines = theirs.lines(self.split)
                self._pair = Pair(
                    self.ours,
                    theirs,
                    self.split,
                    lines=self.lines,
                    their_lines=their_lines,
                )
            return self._pair.difference(name)
        if theirs.folder is None:
            without_predictions = theirs
        else:
            without_predictions = self.ours
        note = (
            f"unpaired: {without_predictions.path} has no predictions, so whether both saw the "
            "same examples can't be checked, and the interval is wider than a paired one; give the "
            "run's folder for that"
        )
        if note not in self.notes:
            self.notes.append(note)
        return unpaired(self.ours, theirs, self.split, name)


def _wrong_direction(limit: Limit, *, higher_is_better: bool) -> UsageError:
    """Returns the refusal of a `min` for a metric that is better when lower, or the reverse."""
    if higher_is_better:
        better = "higher"
        parameter = "min"
    else:
        better = "lower"
        parameter = "max"
    option = f"`{parameter_of(limit.kind)}={limit.metric}`"
    return UsageError(
        f"{option}: the {limit.metric} is better when {better}",
        remedy=f"Type `{parameter}={limit.metric}={limit.limit:g}`.",
    )


def _change_text(change: Difference, ends: tuple[float | None, float | None]) -> str:
    """Returns a change with its interval, test and examples, as the end of a sentence.

    Args:
        change: Run minus baseline.
        ends: Ends of its interval, corrected for the choice of the run. A change always has both.
    """
    low, high = ends
    if change.clusters:
        clusters = f", {change.clusters} clusters"
    else:
        clusters = ""
    return (
        f", a change of {change.value:+.4f} ({low:+.4f} to {high:+.4f}; {change.method}, "
        f"p {change.p:.2g}{_differing(change)}{clusters})"
    )


def _differing(change: Difference) -> str:
    """Returns how many examples two runs answer differently, as the end of a list.

    The text is empty if that is not known.
    """
    if change.changed is None:
        return ""
    return f", {change.changed} of {change.n} examples differ"


def _with_ways_out(judgement: Judgement, bound: float, *, at_least: bool) -> Judgement:
    """Returns an inconclusive judgement with what would decide it; any other one as it is.

    Args:
        judgement: The judgement without `ways_out`.
        bound: The value has to be at least this, or at most.
        at_least: Which of the two.
    """
    if judgement.verdict != "inconclusive":
        return judgement
    value, low, high = judgement.estimate
    bad_end = low if at_least else high
    if bad_end is None:
        meets_limit = False
    elif at_least:
        meets_limit = bad_end >= bound
    else:
        meets_limit = bad_end <= bound
    # The whole interval meets the limit, so it is inconclusive because of the constant answer.
    if meets_limit:
        constant_ways_out = (
            "More examples would show whether it is better than the best constant prediction.",
            "`allow_constant=True` decides by the limit alone.",
        )
        return replace(judgement, ways_out=constant_ways_out)
    if bad_end is None:
        needed = None
    else:
        needed = examples_needed(
            judgement.limit,
            value,
            bad_end,
            bound,
            judgement.metric.n,
        )
    sentences = ways_out(
        judgement.limit,
        value,
        bad_end,
        bound,
        judgement.metric,
    )
    return replace(judgement, ways_out=sentences, examples_needed=needed)


def _sentence(
    finding: str,
    verdict: GateVerdict,
    policy: Policy,
    ends: tuple[float | None, float | None],
    allowed: str,
    *,
    is_good: bool,
    bad_end_is_low: bool,
    clusters: int | None,
) -> str:
    """Returns what a check found and why that is its verdict.

    Args:
        finding: Name, value and interval.
        verdict: Verdict of the check.
        policy: How inconclusive checks count.
        ends: Ends of the interval.
        allowed: What was asked, such as `at least 0.9`.
        is_good: Whether the value itself meets the limit.
        bad_end_is_low: Whether the low end of the interval is the one on the bad side.
        clusters: Groups of examples behind the interval; None where there are none.
    """
    if policy == "point":
        if verdict == "pass":
            meets = "meets"
        else:
            meets = "misses"
        return f"{finding}: the value {meets} the limit ({allowed})"
    if None in ends:
        return (
            f"{finding}: the limit is {allowed}, and without an interval only `policy=point` "
            "decides"
        )
    if has_too_few(clusters):
        too_few = count(clusters or 0, "cluster")
        return (
            f"{finding}: the limit is {allowed}, and {too_few} can't decide that; "
            f"it takes at least {TOO_FEW}"
        )
    if verdict == "pass":
        return f"{finding}: the whole 95 % interval meets the limit ({allowed})"
    if verdict == "fail":
        return f"{finding}: the whole 95 % interval misses the limit ({allowed})"
    bad, good = ("lower", "upper") if bad_end_is_low else ("upper", "lower")
    if is_good:
        return (
            f"{finding}: the value meets the limit ({allowed}), the {bad} end of its 95 % interval "
            "does not"
        )
    return (
        f"{finding}: the value misses the limit ({allowed}), the {good} end of its 95 % interval "
        "meets it"
    )


def _detectable(
    value: float, low: float | None, high: float | None, *, n: int, at_least: bool
) -> float | None:
    """Returns the smallest true distance from a limit that a check with n examples would detect.

    Detected means: in 4 of 5 samples the whole interval is on one side of the limit. The result is
    None without an interval.

    Args:
        value: The metric, or its change.
        low: Low end of its interval.
        high: High end of its interval.
        n: Number of examples.
        at_least: Whether the low end is the one that has to meet the limit.
    """
    if low is None or high is None:
        return None
    # The half of the interval that must be on the good side of the limit.
    if at_least:
        half_width = value - low
    else:
        half_width = high - value
    if not half_width:  # a metric at the end of its scale has the other half only
        half_width = high - low
    if low < high:
        return detectable(-half_width, half_width)
    # A model compared with itself has an interval without width. Then this is the distance that
    # one different answer would make.
    return detectable(*score_interval(0, 0, n))
