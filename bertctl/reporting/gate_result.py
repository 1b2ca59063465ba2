"""The result of the gate: the judgement of each limit, and the verdict on the run."""

from dataclasses import dataclass
from typing import Any

from bertctl.errors import ExitCode
from bertctl.metrics.paired import Difference
from bertctl.metrics.value import MetricValue
from bertctl.reporting.findings import BAD_FIRST, Check, Verdict
from bertctl.reporting.limits import GateVerdict, Limit, Policy
from bertctl.reporting.runs import FinishedRun


@dataclass(frozen=True)
class Judgement:
    """Outcome of one limit.

    Attributes:
        limit: The limit that was checked.
        verdict: Pass, fail or inconclusive, by the policy.
        metric: Metric of the run (or its slice), with its interval.
        change: Run minus baseline, for drops and gains.
        baseline: The baseline's value, for drops and gains.
        corrected: Ends of the interval of `change` or `metric`, corrected for what was chosen on
            the split; without a choice the plain ones.
        detectable: smallest distance from the limit that these examples show in 4 of 5 cases; None
            without interval.
        message: a sentence.
        ways_out: what would decide an inconclusive check, a sentence each.
        examples_needed: about how many examples would pass an inconclusive check if the value
            stays; None where no number would, or where nothing is inconclusive.
    """

    limit: Limit
    verdict: GateVerdict
    metric: MetricValue
    change: Difference | None
    baseline: float | None
    corrected: tuple[float | None, float | None]
    detectable: float | None
    message: str
    ways_out: tuple[str, ...] = ()
    examples_needed: int | None = None

    @property
    def estimate(self) -> tuple[float, float | None, float | None]:
        """Returns value, low and high of what is compared.

        For drops that is the change, else the metric.
        """
        return (self.change or self.metric).value, *self.corrected

    def as_json(self) -> dict[str, Any]:
        """Returns one entry of the answer's `checks`."""
        limit = self.limit
        change = self.change
        entry: dict[str, Any] = {
            "check": limit.name,
            "kind": limit.kind,
            "metric": limit.metric,
            **({"beats": limit.baseline} if limit.baseline else {}),
            "slice": {"column": limit.slice[0], "value": limit.slice[1]} if limit.slice else None,
            "limit": limit.limit,
            "verdict": self.verdict,
            **self.metric.as_json(),
            "corrected": dict(zip(("low", "high"), self.corrected, strict=True)),
            "detectable": self.detectable,
            "message": self.message,
            "ways_out": list(self.ways_out),
            "examples_needed": self.examples_needed,
        }
        if change is not None:
            entry["baseline_value"] = self.baseline
            entry["change"] = change.as_json()
        return entry


@dataclass(frozen=True)
class GateResult:
    """Verdict on a run.

    Attributes:
        run: The run.
        baseline: The run that drops are measured from; None without.
        split: Split whose metrics were checked.
        policy: How inconclusive checks count.
        judgements: Outcome of each limit, in the order in which they were given.
        notes: Sentences on what else limits the verdict.
    """

    run: FinishedRun
    baseline: FinishedRun | None
    split: str
    policy: Policy
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> GateVerdict:
        """Returns the worst verdict of all.

        It is fail if any check fails, else inconclusive if any is, else pass.
        """
        return min((judgement.verdict for judgement in self.judgements), key=BAD_FIRST.index)

    @property
    def exit_code(self) -> ExitCode:
        """Returns 0, 7 or 8; lenient turns 8 into 0."""
        if self.verdict == "fail":
            return ExitCode.GATE_NOT_MET
        if self.verdict == "inconclusive" and self.policy != "lenient":
            return ExitCode.GATE_INCONCLUSIVE
        return ExitCode.OK

    @property
    def headline(self) -> str:
        """Returns the verdict in a line."""
        if self.verdict == "inconclusive" and not self.exit_code:
            lenient = ", let through by `policy=lenient`"
        else:
            lenient = ""
        return f"gate of {self.run.path}: {self.verdict}{lenient} (exit {int(self.exit_code)})"

    def as_json(self) -> dict[str, Any]:
        """Returns the document of `--json`."""
        return {
            "schema": 1,
            "run": str(self.run.path),
            "baseline": str(self.baseline.path) if self.baseline else None,
            "split": self.split,
            "policy": self.policy,
            "verdict": self.verdict,
            "exit_code": int(self.exit_code),
            "checks": [judgement.as_json() for judgement in self.judgements],
            "notes": list(self.notes),
        }

    def checks(self) -> list[Check]:
        """Returns the checks for reports of pipelines, under the same names in every build.

        With `lenient`, inconclusive checks are warnings.
        """
        group = f"bertctl gate, {self.split}"
        checks = []
        for judgement in self.judgements:
            verdict: Verdict = judgement.verdict
            if verdict == "inconclusive" and self.policy == "lenient":
                verdict = "warning"
            checks.append(
                Check(
                    judgement.limit.name,
                    group,
                    verdict,
                    judgement.message,
                    detail="\n".join(judgement.ways_out),
                )
            )
        return checks

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Returns the numbers of a metrics report: name, labels and value of each.

        They are every metric of the split with the ends of its interval, and the checks by verdict.
        """
        samples: list[tuple[str, dict[str, str], float]] = []
        for name in self.run.metrics.metrics[self.split]:
            metric = self.run.metric(self.split, name)
            ends = {
                "": metric.value if metric.is_defined else None,
                "_low": metric.low,
                "_high": metric.high,
            }
            # A metric's name in such a report is ASCII only, so a label gets a field of its own.
            labels = {"split": self.split} | (
                {"label": name.partition(":")[2]} if ":" in name else {}
            )
            samples += [
                (name + end, labels, value) for end, value in ends.items() if value is not None
            ]
        for verdict in ("pass", "fail", "inconclusive"):
            number = sum(judgement.verdict == verdict for judgement in self.judgements)
            samples.append(("gate_checks", {"verdict": verdict}, float(number)))
        return samples
