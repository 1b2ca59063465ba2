"""Whether pretraining on a corpus pays.

A task is fine-tuned without it and with it, over the same seeds and rows.

DIR/pretrain   the run of pretraining
DIR/sweep      the runs of fine-tuning: a sweep of two settings, the model as it was and as it is
               after pretraining
DIR/adapt.json what came of it
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertctl.config.dump import recipe_hash
from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.reporting.summary import figure
from bertctl.run_documents.sweep_document import SweepDocument
from bertctl.run_folder import SCHEMA
from bertctl.sweeps.conclude import conclude
from bertctl.sweeps.dry_run import dry_run
from bertctl.sweeps.prepare import Sweep, SweepRequest, make_sweep, without_test
from bertctl.sweeps.run import run_sweep
from bertctl.training.finetune import DEFAULT_OPTIONS, RunOptions
from bertctl.training.job import Job
from bertctl.training.start import start
from bertctl.words import command, count
from bertctl.writing import write_json

ARMS = ("without", "with")
"""The settings of the sweep, in its order."""


@dataclass(frozen=True)
class Adaptation:
    """Run of pretraining and the task that it is for.

    Attributes:
        job: the pretraining, made ready.
        task: recipe of the fine-tuning; its model is the one that the pretraining starts from.
        seeds: of the fine-tuning: `init` and `order`, for each.
        jobs: number of parallel runs of it; None as in a sweep.
        output: the folder; None for `runs/adapt-<task>-<hash>`, the same for the same call.
    """

    job: Job
    task: Recipe
    seeds: Sequence[Mapping[str, int]]
    jobs: int | None = None
    output: Path | None = None

    @property
    def folder(self) -> Path:
        """Returns the folder of all."""
        if self.output is not None:
            return self.output
        hashed_parts = [
            self.job.hash,
            recipe_hash(self.task, data_hashes={}, model_hash=""),
            str(self.seeds),
        ]
        digest = hashlib.sha256(repr(hashed_parts).encode()).hexdigest()
        return Path("runs") / f"adapt-{self.task.name}-{digest[:8]}"

    def sweep(self, models: Sequence[str], listener: Listener = SILENT) -> Sweep:
        """Returns the fine-tuning of these models, made ready.

        Raises:
            BertctlError: any refusal of the task: settings, files, labels, a model that it can't
                take.
        """
        settings = [{"model.name": model} for model in models]
        # The pretraining starts no thread then that a worker would lack.
        forks = self.job.compute.threads == 1
        task = self.task.with_fields("evaluation", splits=without_test(self.task))
        request = SweepRequest(
            task,
            settings,
            self.seeds,
            jobs=self.jobs,
            forks=forks,
        )
        return make_sweep(request, self.folder / "sweep", listener=listener)


def check_adaptation(adaptation: Adaptation, listener: Listener = SILENT) -> Sweep:
    """Refuses what the fine-tuning would refuse, before the pretraining is paid for.

    Returns the half without pretraining.

    Raises:
        UsageError: fewer than two seeds.
        BertctlError: see `Adaptation.sweep`.
    """
    if len(adaptation.seeds) < 2:
        raise UsageError(
            "one seed can't tell a gain from luck", remedy="Take two or more: `seeds=5`."
        )
    if without_test(adaptation.task) != adaptation.task.evaluation.splits:
        message = "evaluation.splits names test: the runs of adapt are not scored on it"
        listener.say(f"{message}; `{command('evaluate RUN', split='test')}` scores one")
    return adaptation.sweep([adaptation.task.model.name], listener)


def estimate_adaptation(
    adaptation: Adaptation, without: Sweep, *, listener: Listener = SILENT
) -> dict[str, Any]:
    """Returns the steps and the memory of the pretraining, and the time of the fine-tuning.

    That time is twice that of one arm.

    Args:
        adaptation: what is to be done.
        without: what `check_adaptation` returned.
        listener: hears of progress.
    """
    half = dry_run(without, listener=listener)
    job = adaptation.job
    seconds = {name: round(len(ARMS) * value, 3) for name, value in half["seconds"].items()}
    pretraining = {"steps": job.steps, "epochs": job.epochs, "memory_bytes": job.memory}
    finetuning = {
        "runs": len(ARMS) * half["runs"],
        "seconds": seconds,
        "disk_bytes": half["disk_bytes"],
    }
    return {
        "schema": SCHEMA,
        "folder": str(adaptation.folder),
        "pretraining": pretraining,
        "finetuning": finetuning,
    }


def adapt(
    adaptation: Adaptation, *, options: RunOptions = DEFAULT_OPTIONS, listener: Listener = SILENT
) -> tuple[dict[str, Any], int]:
    """Pretrains, fine-tunes without and with it, and compares.

    What is in the folder already is not done again.

    Args:
        adaptation: what is to be done; checked.
        options: of the run of pretraining.
        listener: hears of what happens.

    Returns:
        The content of adapt.json, and the sweep's exit code.

    Raises:
        BertctlError: see `Adaptation.sweep`, `start` and `run_sweep`.
    """
    pretrained = start(
        adaptation.job,
        adaptation.folder / "pretrain",
        resume="if any",
        options=options,
        listener=listener,
    )
    made = adaptation.sweep(
        [adaptation.task.model.name, str(pretrained.folder.path.absolute())], listener
    )
    made.folder.mkdir(parents=True, exist_ok=True)
    code = run_sweep(made, listener=listener)
    sweep_document = conclude(made.folder, listener=listener)
    document = {
        "schema": SCHEMA,
        "folder": str(adaptation.folder),
        "pretraining": {
            "run": str(pretrained.folder.path),
            "metrics": pretrained.metrics.as_json()["metrics"],
        },
        "sweep": str(made.folder),
        **compare_arms(sweep_document),
    }
    write_json(adaptation.folder / "adapt.json", document)
    return document, code


def compare_arms(document: SweepDocument) -> dict[str, Any]:
    """Returns whether the second setting of a sweep is better than the first.

    The sweep's paired comparison says so.

    Args:
        document: content of sweep.json; its first two settings are without and with pretraining.

    Returns:
        `primary`, the scores of both `arms`, `difference` (with less without; None where the runs
        can't be compared), `verdict` (`gain`, `worse`, `no gain`, `not compared`) and a `sentence`.
    """
    rows = {row.setting: row for row in document.settings}
    arms = {}
    for i, arm in enumerate(ARMS):
        arms[arm] = {key: getattr(rows[i], key) for key in ("mean", "deviation", "min", "max", "n")}
    compared = document.comparison
    primary = document.primary
    answer: dict[str, Any] = {
        "primary": primary.as_json(),
        "arms": arms,
        "difference": None,
        "verdict": "not compared",
    }
    if compared.verdict == "not compared":
        return answer | {"sentence": f"not compared: {compared.sentence.partition(': ')[2]}"}
    value = compared.difference
    low = compared.low
    high = compared.high
    if compared.first == 0:  # without less with; 0.0 - x is never -0.0
        value = 0.0 - compared.difference
        low = 0.0 - compared.high
        high = 0.0 - compared.low
    words = {True: "gain", False: "worse"}
    away = sum(arm["n"] for arm in arms.values()) - len(ARMS) * len(compared.seeds)
    is_significant = (
        compared.verdict == "different"
        and value * (arms["with"]["mean"] - arms["without"]["mean"]) > 0
    )
    if is_significant:
        verdict = words[(value > 0) == primary.higher_is_better]
    else:
        verdict = "no gain"
    means = {arm: figure(arms[arm]["mean"]) for arm in ARMS}
    message = (
        f"{primary.name} on {primary.split} {means['with']} with pretraining, "
        f"{means['without']} without"
    )
    digits = f"{value:+.4f}, 95 % {low:+.4f} to {high:+.4f}, p {compared.p:.2g}"
    n = f"{count(len(compared.seeds), 'seed')}, {count(compared.n, 'example')}"
    difference = {"value": value, "low": low, "high": high, "p": compared.p, "n": compared.n}
    sentence = f"{verdict}: {message} ({digits}; {compared.method}, {n})"
    sentence += f"; {count(away, 'run')} that diverged in the means alone" if away else ""
    return answer | {
        "difference": difference | {"seeds": len(compared.seeds), "method": compared.method},
        "verdict": verdict,
        "sentence": sentence,
    }
