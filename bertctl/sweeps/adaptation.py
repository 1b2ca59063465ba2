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
        job: Run of pretraining, made ready.
        task: Recipe of the fine-tuning; its model is the one that the pretraining starts from.
        seeds: Seeds of the fine-tuning: `init` and `order`, for each.
        jobs: Number of parallel runs of fine-tuning; None for the default of a sweep.
        output: Folder of all results; None for `runs/adapt-<task>-<hash>`, the same for the same
            call.
    """

    job: Job
    task: Recipe
    seeds: Sequence[Mapping[str, int]]
    jobs: int | None = None
    output: Path | None = None

    @property
    def folder(self) -> Path:
        """Returns the folder of the pretraining, the sweep and adapt.json."""
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
        """Returns the sweep that fine-tunes these models, made ready: a setting for each model.

        Args:
            models: Names or folders of the models.
            listener: Receives messages on what is read.

        Raises:
            BertctlError: Any refusal of the task: settings, files, labels, a model that it can't
                take.
        """
        settings = [{"model.name": model} for model in models]
        # Workers must not be forked from a process in which torch has started threads. With one
        # thread the pretraining starts none.
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
    """Refuses what the fine-tuning would refuse, before time is spent on the pretraining.

    Args:
        adaptation: The pretraining and the task.
        listener: Receives messages on what is read.

    Returns:
        The sweep of the model without pretraining, made ready.

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
    """Returns the steps and memory of the pretraining, and runs, time and disk of the fine-tuning.

    The model with pretraining does not exist yet, so only the fine-tuning of the model without
    pretraining is timed. Both take the same time.

    Args:
        adaptation: The pretraining and the task.
        without: The sweep without pretraining, from `check_adaptation`.
        listener: Receives progress.
    """
    one_arm = dry_run(without, listener=listener)
    job = adaptation.job
    seconds = {name: round(len(ARMS) * value, 3) for name, value in one_arm["seconds"].items()}
    pretraining = {"steps": job.steps, "epochs": job.epochs, "memory_bytes": job.memory}
    finetuning = {
        "runs": len(ARMS) * one_arm["runs"],
        "seconds": seconds,
        "disk_bytes": one_arm["disk_bytes"],
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
    """Pretrains a model, fine-tunes it without and with pretraining, and compares the two.

    Finished runs in the folder are not run again.

    Args:
        adaptation: The pretraining and the task, as `check_adaptation` has checked them.
        options: How the run of pretraining is carried out.
        listener: Receives messages.

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
    pretrained_model = str(pretrained.folder.path.absolute())
    sweep = adaptation.sweep([adaptation.task.model.name, pretrained_model], listener)
    sweep.folder.mkdir(parents=True, exist_ok=True)
    code = run_sweep(sweep, listener=listener)
    sweep_document = conclude(sweep.folder, listener=listener)
    document = {
        "schema": SCHEMA,
        "folder": str(adaptation.folder),
        "pretraining": {
            "run": str(pretrained.folder.path),
            "metrics": pretrained.metrics.as_json()["metrics"],
        },
        "sweep": str(sweep.folder),
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
        _, _, reason = compared.sentence.partition(": ")  # `... are not compared: REASON`
        return answer | {"sentence": f"not compared: {reason}"}
    value = compared.difference
    low = compared.low
    high = compared.high
    # The better setting is the sweep's first. If that is the one without pretraining, the
    # difference is turned round. 0.0 - x, as -x could be -0.0.
    if compared.first == 0:
        value = 0.0 - compared.difference
        low = 0.0 - compared.high
        high = 0.0 - compared.low
    # Runs that diverged have no predictions: they count in the means, but not in the difference.
    n_scores = sum(arm["n"] for arm in arms.values())
    n_diverged = n_scores - len(ARMS) * len(compared.seeds)
    difference_of_means = arms["with"]["mean"] - arms["without"]["mean"]
    # Diverged runs may turn the difference of the means round: then neither arm is better.
    is_significant = compared.verdict == "different" and value * difference_of_means > 0
    if not is_significant:
        verdict = "no gain"
    elif (value > 0) == primary.higher_is_better:
        verdict = "gain"
    else:
        verdict = "worse"
    means = {arm: figure(arms[arm]["mean"]) for arm in ARMS}
    message = (
        f"{primary.name} on {primary.split} {means['with']} with pretraining, "
        f"{means['without']} without"
    )
    digits = f"{value:+.4f}, 95 % {low:+.4f} to {high:+.4f}, p {compared.p:.2g}"
    n = f"{count(len(compared.seeds), 'seed')}, {count(compared.n, 'example')}"
    difference = {"value": value, "low": low, "high": high, "p": compared.p, "n": compared.n}
    sentence = f"{verdict}: {message} ({digits}; {compared.method}, {n})"
    if n_diverged:
        sentence += f"; {count(n_diverged, 'run')} that diverged in the means alone"
    return answer | {
        "difference": difference | {"seeds": len(compared.seeds), "method": compared.method},
        "verdict": verdict,
        "sentence": sentence,
    }
