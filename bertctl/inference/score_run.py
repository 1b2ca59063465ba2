"""`evaluate`: score a trained run on one of its splits, or on a person's file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertctl.config.dump import dump_recipe
from bertctl.config.load import CODE, refuse_unnamed
from bertctl.config.recipe_files import expanded_path
from bertctl.data.file_lists import FileList
from bertctl.data.read_options import ReaderOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.recipe_sources import label_rules
from bertctl.data.recipe_splits import groups_of, limited
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.documents import loading
from bertctl.errors import DataError
from bertctl.inference.decision import Decision, read_decision
from bertctl.inference.evaluate import (
    SplitResult,
    data_document,
    evaluate_split,
    metrics_document,
    report_truncation,
    require_room_for_lines,
    write_predictions,
)
from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_folder import DAMAGED, RunFolder
from bertctl.runtime.launch import ALONE, Workers
from bertctl.words import command
from bertctl.writing import write_json, write_text


def evaluate_run(
    run: TrainedRun,
    *,
    split: str | None = None,
    workers: Workers = ALONE,
    listener: Listener = SILENT,
    skipped: SkippedRows | None = None,
) -> MetricsDocument:
    """Scores splits of the run's own data; each is added to the run's metrics.json and predictions.

    Args:
        run: An opened run.
        split: Name of the split; None for the data's validation splits.
        workers: The processes that share the work; the first one writes.
        listener: Receives progress messages.
        skipped: Collects the rows that can't be read.

    Returns:
        The new content of metrics.json.

    Raises:
        DataError: A split without labels, or with labels the model doesn't know.
    """
    data = run.load_data([split] if split else None, listener=listener, skipped=skipped)
    names = (split,) if split else data.validation_splits
    results = score_splits(run, {name: data.splits[name] for name in names}, workers, listener)
    if not workers.is_first:  # the first process locks the folder and writes
        return _updated_metrics(run, results, names, data.hashes)
    # metrics.json is read and written under one lock, as another evaluate may add its splits.
    with run.folder.held():
        metrics = _updated_metrics(run, results, names, data.hashes)
        _write(run, run.folder, results, metrics)
    return metrics


def _updated_metrics(
    run: TrainedRun,
    results: Mapping[str, SplitResult],
    names: Sequence[str],
    hashes: Mapping[str, str],
) -> MetricsDocument:
    """Returns the run's metrics.json with splits that were scored now; nothing is written.

    Splits that were scored before stay, unless they were scored again.

    Args:
        run: The run that was scored.
        results: Scores of the new splits.
        names: Names of the new splits.
        hashes: Split name -> hash of its rows.
    """
    before = run.task.answers.named_today(run.folder.read_metrics())
    metrics = before.as_json()
    new_document = metrics_document(
        results, primary=before.primary.name, selection=before.primary.split
    )
    # This looks at the earlier scores, so it comes before they are replaced.
    _drop_stale_differences(metrics, new_document["metrics"])
    metrics["metrics"] |= new_document["metrics"]
    new_baseline = constant_answer_scores(run, before.constant_answer, _rows_by_split(results))
    metrics["baseline"] = metrics.get("baseline", {}) | new_baseline

    decision = read_decision(run.folder)
    _note_decision(metrics, decision, names)
    if decision is not None and decision.selected():
        metrics["selected_on"] = metrics.get("selected_on", {}) | decision.selected()

    features_by_split = {name: result.features for name, result in results.items()}
    new_data = data_document(features_by_split, hashes)
    max_eval_rows = run.recipe.data.max_eval_rows
    if max_eval_rows is not None:  # says that the hash is of a sample, not of the whole file
        for split_document in new_data.values():
            split_document["max_eval_rows"] = max_eval_rows
    metrics["data"] = metrics.get("data", {}) | new_data
    return MetricsDocument.model_validate(metrics)


def evaluate_file(
    run: TrainedRun,
    path: Path | MemoryFile | FileList,
    output: Path | None,
    *,
    overwrite: bool = False,
    workers: Workers = ALONE,
    listener: Listener = SILENT,
    skipped: SkippedRows | None = None,
) -> MetricsDocument:
    """Scores a labelled file, or labelled rows in memory.

    Args:
        run: An opened run.
        path: The rows.
        output: Folder for the result, which `gate` and `compare` read like a run. None writes
            nothing.
        overwrite: Whether to replace a result that is there.
        workers: The processes that share the work; the first one writes.
        listener: Receives progress messages.
        skipped: Collects the rows that can't be read.

    Returns:
        The content of the result's metrics.json.

    Raises:
        DataError: Rows without labels, or with labels the model doesn't know.
    """
    reader = READERS[run.recipe.task]
    reader_options = ReaderOptions(
        listener=listener,
        hints=run.column_hints,
        skipped=skipped,
        labels=label_rules(run.recipe, can_name=False),
    )
    own_files = [expanded_path(file) for file in run.recipe.data.own_files.values() if file]
    if isinstance(path, FileList):
        paths: Sequence[Path | MemoryFile] = path.paths
    else:
        paths = (path,)
    # Some settings show only in all files together, such as whether the labels of choices count
    # from 0 or 1: this file may have no label 0, but the files of the run have it.
    settings = reader.settled(run.file_settings, [*paths, *own_files])
    reading = reader.read(
        path,
        settings,
        split="file",
        label_needed=True,
        **reader_options,
    )
    rows = limited({"file": reading.rows}, run.recipe, listener)["file"]
    groups = groups_of(rows, run.recipe, reading.columns, required=False)
    results = score_splits(run, {"file": replace(rows, groups=groups)}, workers, listener)
    trained = _metrics_of_training(run)
    primary = run.task.primary_metric
    constant = None
    if trained is not None:
        primary = trained.primary.name
        constant = trained.constant_answer
    # The metric may need labels that these rows don't have. Then their first metric is primary.
    if results and primary not in results["file"].metrics:
        primary = next(iter(results["file"].metrics))
    scores = metrics_document(results, primary=primary, selection="file")
    scores["baseline"] = constant_answer_scores(run, constant, _rows_by_split(results))
    scores["data"] = data_document({name: result.features for name, result in results.items()}, {})
    _note_decision(scores, read_decision(run.folder), results)
    metrics = MetricsDocument.model_validate(scores)
    if output is None or not workers.is_first:
        return metrics
    if isinstance(path, MemoryFile):
        scored_by = f"in Python: evaluate({str(run.folder.path)!r}, rows={path})"
    else:
        scored_by = command("evaluate", run.folder.path, file=paths)
    _write_apart(run, output, results, metrics, scored_by=scored_by, overwrite=overwrite)
    return metrics


def evaluate_apart(
    run: TrainedRun,
    output: Path | None,
    *,
    split: str | None = None,
    overwrite: bool = False,
    workers: Workers = ALONE,
    listener: Listener = SILENT,
    skipped: SkippedRows | None = None,
) -> MetricsDocument:
    """Scores splits of the data of an export, whose own folder stays as it was proved.

    Args:
        run: An opened run.
        output: Folder for the result, which `gate` and `compare` read like a run. None writes
            nothing.
        split: Which; the data's validation splits when left out.
        overwrite: Whether to replace a result that is there.
        workers: The processes that share the work; the first one writes.
        listener: Receives progress messages.
        skipped: Collects the rows that can't be read.

    Returns:
        The content of the result's metrics.json.

    Raises:
        DataError: A split without labels, or with labels the model doesn't know.
    """
    data = run.load_data([split] if split else None, listener=listener, skipped=skipped)
    names = (split,) if split else data.validation_splits
    results = score_splits(run, {name: data.splits[name] for name in names}, workers, listener)
    trained = _metrics_of_training(run)
    primary = run.task.primary_metric
    if trained is not None:
        primary = trained.primary.name
    scores = metrics_document(results, primary=primary, selection=next(iter(names)))
    if trained is not None and trained.selected_on:
        scores["selected_on"] = trained.as_json()["selected_on"]
    if trained is not None:
        scores["baseline"] = constant_answer_scores(
            run, trained.constant_answer, _rows_by_split(results)
        )
    scores["data"] = data_document(
        {name: result.features for name, result in results.items()}, data.hashes
    )
    _note_decision(scores, read_decision(run.folder), results)
    metrics = MetricsDocument.model_validate(scores)
    if output is not None and workers.is_first:
        scored_by = command("evaluate", run.folder.path, split=split)
        _write_apart(run, output, results, metrics, scored_by=scored_by, overwrite=overwrite)
    return metrics


def _metrics_of_training(run: TrainedRun) -> MetricsDocument | None:
    """Returns the run's metrics.json under the names of today; None for a model without one."""
    if not run.folder.metrics.exists():
        return None
    return run.task.answers.named_today(run.folder.read_metrics())


def _write_apart(
    run: TrainedRun,
    output: Path,
    results: dict[str, SplitResult],
    metrics: MetricsDocument,
    *,
    scored_by: str,
    overwrite: bool,
) -> None:
    """Writes scores into a folder of their own.

    Args:
        run: The run that was scored.
        output: The folder.
        results: The splits.
        metrics: Content of its metrics.json.
        scored_by: What the recipe names as the command.
        overwrite: Whether to replace a result that is there.
    """
    folder = RunFolder.create(output, overwrite=overwrite)
    with folder.held():
        write_text(folder.recipe, dump_recipe(run.recipe, command=scored_by))
        _write(run, folder, results, metrics)
        folder.set_status("done", step=0)


def _drop_stale_differences(metrics: dict[str, Any], fresh: dict[str, Any]) -> None:
    """Removes differences from baselines of splits whose primary metric has changed.

    A new threshold or temperature changes answers, and so the difference. `gate --beats` computes
    it anew from the predictions.

    Args:
        metrics: Content of metrics.json, which is changed.
        fresh: The new scores by split.
    """
    primary = metrics["primary"]["name"]
    for split, by_name in fresh.items():
        earlier_score = metrics["metrics"].get(split, {}).get(primary, {}).get("value")
        if by_name.get(primary, {}).get("value") != earlier_score:
            for baseline in metrics.get("baselines", {}).values():
                baseline["differences"].pop(split, None)


def _note_decision(
    metrics: dict[str, Any], decision: Decision | None, splits: Iterable[str]
) -> None:
    """Records under `decisions` with which threshold and temperature each split was scored.

    A split that was scored without a decision, by its likeliest labels, has an empty one: {}. If no
    split has a decision, `decisions` is left out.

    Args:
        metrics: Content of metrics.json, which is changed.
        decision: The run's decision; None without one.
        splits: The splits that were scored with it.
    """
    decisions = metrics.pop("decisions", None)
    if decisions is None:
        # No split was scored with a decision so far, or the file is of an older version, which did
        # not record decisions. If such a run had a decision, it is not known which of its splits
        # were scored with it, so they get no entry.
        decisions = {}
        may_have_used_decision = {"threshold", "temperature"} & set(metrics.get("selected_on", {}))
        if not may_have_used_decision:
            decisions = {split: {} for split in metrics["metrics"]}

    for split in splits:
        decisions[split] = decision.used() if decision else {}
    if any(decisions.values()):
        metrics["decisions"] = decisions


def score_splits(
    run: TrainedRun, splits: dict[str, Rows], workers: Workers, listener: Listener
) -> dict[str, SplitResult]:
    """Returns the scores of labelled rows by the run's model; nothing is written.

    A worker that only computes its share of a sharded evaluation returns no scores.

    Raises:
        UsageError: Metric scripts that the run names and the caller does not.
        DataError: Rows without labels, or with labels the model doesn't know.
    """
    refuse_unnamed(run.recipe, run.folder.recipe, run.named, CODE)
    for name, rows in splits.items():
        if not rows.has("label"):
            remedy = (
                f"Use `bertctl predict {run.folder.path}` for answers, or name the column with "
                "`label_column=`."
            )
            raise DataError(
                f"'{name}' ({rows.source}) has no labels, so it can't be scored", remedy=remedy
            )
        run.check_pairs(rows)
        run.task.check(rows)
    require_room_for_lines(run.task, sum(map(len, splits.values())))
    engine = run.load(workers)
    listener.say(f"compute: {engine.compute.why}")
    # All processes agree on the rows of all splits (`seen`) before the first split is scored.
    agreed_splits = list(zip(workers.seen(splits.values()), splits, strict=True))
    results = {}
    for rows, name in agreed_splits:
        features = run.task.encode(rows, engine.tokenizer, max_length=run.recipe.model.max_length)
        # A shard that never meets the others writes its outputs to its file. The merge scores them.
        if workers.is_apart:
            engine.forward(
                run.task,
                features,
                batch_size=run.recipe.evaluation.batch_size,
                listener=listener,
            )
            continue
        report_truncation(
            name,
            features,
            run.task,
            run.recipe,
            listener,
        )
        result = evaluate_split(
            engine,
            run.task,
            rows,
            features,
            recipe=run.recipe,
            listener=listener,
        )
        results[name] = result.thorough(run.recipe)  # with an interval for each metric
    return results


def constant_answer_scores(
    run: TrainedRun, constant: Any, rows_by_split: Mapping[str, Rows]
) -> dict[str, dict[str, float]]:
    """Returns the metrics of the answer that ignores the text, by split.

    Args:
        run: The run whose labels and metrics count.
        constant: `constant_answer` of the run's metrics.json; None gives no metrics.
        rows_by_split: Split name -> its labelled rows.

    Raises:
        DataError: The task has no such answer, so metrics.json is damaged.
    """
    if constant is None:
        return {}
    with loading(f"constant_answer in {run.folder.metrics}", remedy=DAMAGED):
        return {name: run.task.baseline(constant, rows) for name, rows in rows_by_split.items()}


def _rows_by_split(results: Mapping[str, SplitResult]) -> dict[str, Rows]:
    """Returns the rows that were scored, by split."""
    return {name: result.rows for name, result in results.items()}


def _write(
    run: TrainedRun, folder: RunFolder, results: dict[str, SplitResult], metrics: MetricsDocument
) -> None:
    """Writes the predictions and metrics.json of a folder."""
    write_predictions(folder, results, run.recipe.evaluation)
    write_json(folder.metrics, metrics.as_json())
