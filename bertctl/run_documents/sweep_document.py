"""SWEEP/sweep.json."""

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Number,
    OrAbsent,
    SchemaNumber,
    Sometimes,
)
from bertctl.run_documents.metrics_document import Choice

Verdict = Literal["different", "undecided"]
RunState = Literal["done", "collapsed", "diverged", "stopped", "failed", "missing"]


class SweepMetric(Document):
    """The metric that settings are judged by, and the split that selects."""

    split: str

    name: str

    higher_is_better: bool


class RunCounts(Document):
    """How many runs and scores there are, and how many runs in each state."""

    runs: Count

    scores: Count
    """Scores that have a value."""

    done: Count

    collapsed: Count
    """Runs that give one answer to every example."""

    diverged: Count

    stopped: Count
    """Runs that successive halving stopped."""

    failed: Count

    missing: Count
    """Runs that are not there, or not finished."""

    def of_state(self, state: str) -> int:
        """Returns the number of runs in a state."""
        return int(getattr(self, state))


class SettingRow(Document):
    """The scores of a setting over its seeds."""

    setting: Count
    """Number of the setting in the plan."""

    values: dict[str, Any]
    """Recipe fields by dotted name."""

    mean: Number | None

    deviation: Number | None
    """Standard deviation over the seeds; null with fewer than two scores."""

    min: Number | None

    max: Number | None

    n: Count
    """Scores that have a value."""

    best_seed: Count | None
    """Number of the seed with the best score."""

    collapsed: Count

    diverged: Count

    stopped: Count

    failed: Count

    missing: Count

    rung_value: Number | None
    """Score at the rung where successive halving stopped the setting."""

    step: Count | None
    """Step of that rung."""


class SweepTimes(Document):
    """Seconds that the runs of a sweep took, which no two equal sweeps share."""

    seconds: Number

    settings: dict[str, Number | None]
    """Mean of a run, by the setting's number; null where it is not known."""

    runs: dict[str, Number]
    """By the run's name; 0 where it is not known."""


class SeedScore(Document):
    """The score of a setting with a seed."""

    setting: Count

    seed: Count

    state: RunState
    """Worst state of its runs."""

    value: Number | None

    how: Literal["run", "pooled folds", "mean of folds"]
    """From one run, from the answers of all folds together, or the mean over the folds."""

    runs: list[str]


class RunRow(Document):
    """One run of the plan."""

    run: str
    """Name of its folder in cells/."""

    setting: Count

    seed: Count

    fold: Count | None

    state: RunState

    value: Number | None

    message: str
    """Why it failed or was stopped."""

    step: OrAbsent[Count] = None
    """Where successive halving stopped it."""

    rung_value: Sometimes[Number | None] = None
    """Score of the evaluation after that step."""

    @property
    def shown_value(self) -> float | None:
        """Returns the run's last score: for a run that successive halving stopped, its rung's."""
        if self.step is not None:
            return self.rung_value
        return self.value


class HalvingSteps(Document):
    """Steps of successive halving."""

    rungs: dict[str, list[Count]]
    """Steps at which each run waits for the others, and its last one, by the run's name."""

    steps: Count
    """Steps that were taken."""

    full_steps: Count
    """Steps of the full grid."""


class ChosenSetting(Document):
    """The chosen setting, and its recommended run."""

    by: Literal["mean", "best-run"]

    of: Count
    """Among how many scores."""

    setting: Count

    values: dict[str, Any]

    mean: Number

    deviation: Number | None

    n: Count

    run: str | None
    """Name of the recommended run; null where none was trained to its end."""

    run_value: Number | None

    seed: Count

    fold: Count | None

    value: Number
    """Score of the recommended run's seed."""

    sentence: str

    expected: Number | None
    """What to expect of a new seed, corrected for the choice."""

    run_expected: Number | None
    """What to expect of the recommended run on new examples."""

    not_corrected: str
    """Why nothing is expected; empty where something is."""


class NoComparison(Document):
    """Why the first two settings are not compared."""

    verdict: Literal["not compared"]

    sentence: str

    first: OrAbsent[Count] = None

    second: OrAbsent[Count] = None


class Comparison(Document):
    """The paired comparison of the first two settings."""

    first: Count
    """Number of the first setting."""

    second: Count

    seeds: list[Count]
    """Numbers of the seeds that are compared."""

    difference: Number
    """Score of the first less that of the second."""

    low: Number
    """Lower end of the 95 % interval."""

    high: Number
    """Upper end."""

    p: Number
    """Two-sided p value of no difference."""

    n: Count
    """Number of examples."""

    method: str

    clusters: Count | None

    of: Count
    """Settings that have a score."""

    verdict: Verdict

    sentence: str


class ExpectedBest(Document):
    """What the best of so many runs can be expected to reach (Dodge et al. 2019)."""

    runs: Count

    value: Number

    deviation: Number


class TestScore(Document):
    """A score of the recommended run on a test split."""

    __test__: ClassVar = False  # no test of pytest

    run: str

    split: str

    metric: str

    value: Number | None

    low: Number | None

    high: Number | None

    n: Count

    higher_is_better: bool

    clusters: OrAbsent[Count] = None


class SweepDocument(Document):
    """The result of a sweep. Only `performance` differs between two equal sweeps."""

    published: ClassVar = "sweep"
    model_config = ConfigDict(title="SWEEP/sweep.json")

    schema_number: SchemaNumber

    name: str

    task: str

    model: str

    primary: SweepMetric

    baseline: Number | None
    """Score of the answer that ignores the input."""

    axes: list[str]
    """Recipe fields that are varied."""

    seeds: list[dict[str, Count]]
    """`init` and `order` of each seed."""

    folds: Count | None

    shard: list[Count] | None
    """Number and count of shards, where one call ran a part of the sweep."""

    counts: RunCounts

    settings: list[SettingRow]
    """By their means, the best first."""

    scores: list[SeedScore]

    runs: list[RunRow]

    halving: HalvingSteps | None

    chosen: ChosenSetting | None
    """Null where no run has a score."""

    selected_on: dict[Literal["setting"], Choice]

    comparison: Comparison | NoComparison

    expected_best: list[ExpectedBest]
    """For 1, 2, ... runs."""

    test: list[TestScore] | None
    """Null where no test split was asked for."""

    notes: list[str]
    """What a reader of the tables has to know."""

    performance: SweepTimes

    @property
    def metric_text(self) -> str:
        """Returns `accuracy on validation`."""
        return f"{self.primary.name} on {self.primary.split}"

    @property
    def values_by_setting(self) -> dict[int, dict[str, Any]]:
        """Returns the values of each setting by its number."""
        return {row.setting: row.values for row in self.settings}
