"""metrics.json and predictions of an export in fewer bits, by what the export itself answers."""

from pathlib import Path
from typing import Any

from bertctl.exporting.proof import Comparison
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import (
    data_document,
    evaluate_split,
    metrics_document,
    write_predictions,
)
from bertctl.inference.score_run import constant_answer_scores
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_folder import RunFolder
from bertctl.writing import write_json

_OF_THE_RUN = ("constant_answer", "decisions", "selected_on")
"""Keys of metrics.json about the weights and the decision, which an export shares with its run."""


def write_scores(folder: Path, comparison: Comparison, engine: Engine) -> None:
    """Scores the compared rows with an export, and writes what `gate` and `compare` read.

    Args:
        folder: Folder of the export.
        comparison: Its labelled rows.
        engine: The export, ready to compute.
    """
    run = comparison.subject.run
    rows = comparison.rows
    split = rows.split  # an export has scores of this split alone
    values_alone = evaluate_split(engine, run.task, rows, comparison.features, recipe=run.recipe)
    result = values_alone.thorough(run.recipe)  # with intervals
    results = {split: result}
    primary = run.task.primary_metric
    fields_of_run: dict[str, Any] = {}  # what the export's metrics.json takes from the run's
    if run.folder.metrics.exists():
        # Older runs call a metric otherwise; see `named_today`.
        run_metrics = run.task.answers.named_today(run.folder.read_metrics())
        primary = run_metrics.primary.name
        written = run_metrics.as_json()
        fields_of_run = {name: written[name] for name in _OF_THE_RUN if name in written}
        if run_metrics.constant_answer is not None:
            fields_of_run["baseline"] = constant_answer_scores(
                run, run_metrics.constant_answer, {split: rows}
            )
    if primary not in result.metrics:  # such as F1 of two labels, on rows with three
        primary = next(iter(result.metrics))
    scores = metrics_document(results, primary=primary, selection=split)
    scores |= fields_of_run
    scores["data"] = data_document({split: comparison.features}, {})
    target = RunFolder(folder)
    write_predictions(target, results, run.recipe.evaluation)
    write_json(target.metrics, MetricsDocument.model_validate(scores).as_json())
