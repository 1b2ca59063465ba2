"""A probe from its recipe to its finished run folder, with its picture and times."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import NO_ROWS
from bertctl.data.sources import MemoryFile
from bertctl.features.probe import announce, prepare, run
from bertctl.features.selection import ProbeJob
from bertctl.progress import SILENT, Listener
from bertctl.reporting.probe_results import draw_probe
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_documents.performance_document import PerformanceDocument
from bertctl.run_folder import SCHEMA, RunFolder, default_folder
from bertctl.training.step_memory import peak_memory_bytes
from bertctl.writing import write_json


@dataclass(frozen=True)
class ProbeResult:
    """Finished probe.

    Attributes:
        folder: The run.
        metrics: Content of metrics.json.
        job: What was made ready, with the seconds of each phase.
        picture: Scores by layer.
        rows_per_second: Rows whose vectors were computed in a second.
    """

    folder: RunFolder
    metrics: MetricsDocument
    job: ProbeJob
    picture: Path
    rows_per_second: float


def run_probe(
    recipe: Recipe,
    *,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    output: Path | None = None,
    overwrite: bool = False,
    on_start: Callable[[RunFolder], None] | None = None,
    listener: Listener = SILENT,
) -> ProbeResult:
    """Trains linear classifiers on a frozen encoder as a recipe says.

    Args:
        recipe: What to run.
        rows_in_memory: Split name -> rows in place of those in the recipe's files.
        output: The run folder; `runs/probe-<recipe>-<hash>` by default.
        overwrite: Whether to replace the run in the folder.
        on_start: Called with the run folder before anything is computed.
        listener: Receives progress messages.

    Raises:
        BertctlError: Any refusal of recipe, files, labels, model or folder.
    """
    if output is not None:
        RunFolder.check_free(output, overwrite=overwrite)
    job = prepare(recipe, rows_in_memory=rows_in_memory, listener=listener)
    announce(job, listener=listener)
    name = job.recipe.name
    if not name.startswith("probe"):
        name = f"probe-{name}"
    folder = RunFolder.create(output or default_folder(name, job.hash), overwrite=overwrite)
    with folder.held():
        if on_start is not None:
            on_start(folder)
        metrics = run(job, folder, listener=listener)
        pictures = [folder.path / "probe.png", folder.path / "probe.svg"]
        title = f"{job.recipe.name}: {job.settings.classifier} on {job.recipe.model.name}, frozen"
        probe = metrics.probe
        if probe is None:
            raise ValueError("metrics without a probe")
        draw_probe(probe, metrics, pictures, title=title)
        n_rows = sum(len(job.data.splits[split]) for split in ("train", job.selection))
        rows_per_second = n_rows / job.seconds["features"]
        performance = PerformanceDocument(
            schema_number=SCHEMA,
            seconds={phase: round(seconds, 3) for phase, seconds in job.seconds.items()},
            examples_per_second=round(rows_per_second, 2),
            peak_memory_bytes=peak_memory_bytes(),
        )
        write_json(folder.performance, performance.as_json())
    return ProbeResult(
        folder=folder,
        metrics=metrics,
        job=job,
        picture=pictures[0],
        rows_per_second=rows_per_second,
    )
