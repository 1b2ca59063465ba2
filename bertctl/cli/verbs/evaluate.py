"""`bertctl evaluate`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.next_command import say_next
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.processes import (
    NumProcessesOption,
    in_processes,
    say_shard,
    this_worker,
)
from bertctl.cli.framework.recipe_options import (
    MergeOption,
    OnErrorOption,
    OverwriteOption,
    ShardOption,
    takes_run,
)
from bertctl.cli.framework.recipe_requests import RunRequest
from bertctl.errors import UsageError
from bertctl.progress import Listener
from bertctl.runtime.launch import Workers
from bertctl.words import command

if TYPE_CHECKING:
    from bertctl.data.file_lists import FileList
    from bertctl.inference.trained_run import TrainedRun


@takes_run(
    "--data-dir",
    "columns",
    "--annotator",
    "layout",
    "--max-eval-rows",
    "compute",
    "exports",
    "evaluation",
    "--scheme",
    "renaming",
)
def evaluate(
    out: Output,
    run: RunRequest,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE ...]")] = None,
    split: Annotated[str | None, typer.Option("--split")] = None,
    file: Annotated[list[str] | None, typer.Option("--file", metavar="FILE")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR")] = None,
    overwrite: OverwriteOption = False,
    calibrate: Annotated[bool, typer.Option("--calibrate")] = False,
    threshold: Annotated[str | None, typer.Option("--threshold", metavar="f1|precision=P")] = None,
    shard: ShardOption = None,
    merge: MergeOption = False,
    on_error: OnErrorOption = None,
    num_processes: NumProcessesOption = 1,
) -> None:
    """Score a run on a split of its data, or on a file of your own.

    Scores of a split are added to RUN's metrics.json and predictions. Scores of a file, or of an
    export, go to a separate folder: that of -o, or RUN-on-FILE beside RUN.

    Args:
        out: Prints the answer and messages.
        run: The run, as it was typed.
        files: A labelled file of your own: CSV, TSV, JSONL or Parquet. Several files, or a pattern
            such as 'part-*.jsonl', are scored as one.
        split: Split of the run's own data. Default: its validation splits.
        file: The same as FILE; repeatable.
        output: Folder for the scores of FILE, or of an export. Must be empty, or add --overwrite.
            Default: beside RUN, such as RUN-on-new for new.csv.
        overwrite: Replace what an earlier command left in the folder.
        calibrate: Fit a temperature on the split. It calibrates the probabilities of later
            predictions.
        threshold: Choose a threshold for the positive label on the split; later predictions use it.
            f1: the best F1. precision=P: the best recall with a precision of at least P on new
            examples (95 % confidence).
        shard: The share of the work to do, as K/N.
        merge: Merge the answers of all shards.
        on_error: What to do about a record that can't be read.
        num_processes: Number of processes that share the work.

    Examples:
        bertctl evaluate runs/sst2-1a2b3c4d --split test
        bertctl evaluate runs/sst2-1a2b3c4d new.csv -o runs/new
    """
    from bertctl.inference.shards import Sharing
    from bertctl.run_folder import RunFolder, is_export

    typed_files = [*(files or ()), *(file or ())]
    makes_decision = calibrate or threshold is not None
    of_export = is_export(run.path)
    _refuse_combinations(
        run.path,
        typed_files,
        split=split,
        output=output,
        is_sharded=bool(shard or merge),
        makes_decision=makes_decision,
        of_export=of_export,
    )
    source = _source(typed_files)
    # Scores of a file or an export have a folder of their own, and are not added to the run.
    has_own_folder = source is not None or of_export
    target = output or _folder_of(run.path, source, split, of_export=of_export)
    if has_own_folder:
        RunFolder.check_free(target, overwrite=overwrite)
    sharing = Sharing.read(
        shard,
        merge,
        target,
        num_processes,
        suffix=".zip",
        by_name=False,  # scores are a folder, so `{shard}` in its name has no meaning
    )
    in_processes(num_processes, out)
    trained = run.open(listener=out)
    if not typed_files:
        trained.require_own_data()
    from bertctl.data.read_options import SkippedRows
    from bertctl.inference.score_run import evaluate_apart, evaluate_file, evaluate_run

    shared, listener = this_worker(out)
    if on_error == "skip":
        skipped = SkippedRows()
    else:
        skipped = None
    if makes_decision:
        _decide(
            out,
            run=trained,
            split=split,
            calibrate=calibrate,
            threshold=threshold,
            workers=shared,
            listener=listener,
        )
        return
    with out.third_party_kept(), sharing.workers(trained, shared) as workers:
        if source is not None:
            metrics = evaluate_file(
                trained,
                source,
                target,
                overwrite=overwrite,
                workers=workers,
                listener=listener,
                skipped=skipped,
            )
        elif of_export:
            metrics = evaluate_apart(
                trained,
                target,
                split=split,
                overwrite=overwrite,
                workers=workers,
                listener=listener,
                skipped=skipped,
            )
        else:
            metrics = evaluate_run(
                trained,
                split=split,
                workers=workers,
                listener=listener,
                skipped=skipped,
            )
    if say_shard(sharing, out, [str(path) for path in sharing.paths]) or not workers.is_first:
        return
    if skipped:
        left_out = skipped.finish(target / "predictions", out)
    else:
        left_out = {}

    from bertctl.reporting.card import write_card
    from bertctl.reporting.outcomes import closing_tables

    if not has_own_folder:
        write_card(trained.folder)
    if typed_files:
        dataset = None
    else:
        dataset = trained.recipe.data.name
    tables, window_scores = closing_tables(
        target,
        metrics,
        dataset=dataset,
        by_label=out.verbose,
    )
    if window_scores:
        by_windows = {"by_windows": window_scores}
    else:
        by_windows = {}
    out.answer({"run": str(target), **metrics.as_json(), **by_windows, **left_out}, *tables)
    out.say(f"written to {target}")
    say_next(out, command("report", target))


def _refuse_combinations(
    run: Path,
    typed_files: Sequence[str],
    *,
    split: str | None,
    output: Path | None,
    is_sharded: bool,
    makes_decision: bool,
    of_export: bool,
) -> None:
    """Refuses options that exclude each other.

    Args:
        run: Folder of the run or export.
        typed_files: Files to score; none for a split of the run's own data.
        split: The split, as it was typed.
        output: Folder for the scores, as it was typed.
        is_sharded: Whether only a shard is scored, or shards are merged.
        makes_decision: Whether a temperature or a threshold is chosen, and stored in the run.
        of_export: Whether `run` is an export, which is never changed.

    Raises:
        UsageError: With what to leave out or to type.
    """
    if split and typed_files:
        raise UsageError("--split and a file exclude each other", remedy="Give one of the two.")
    if makes_decision and (typed_files or is_sharded):
        remedy = (
            "Leave the file, --shard and --merge out. --split names the split, else it is the "
            "validation split."
        )
        raise UsageError(
            "--calibrate and --threshold choose on a whole split of the run's own data",
            remedy=remedy,
        )
    if makes_decision and of_export:
        raise UsageError(
            f"{run} is an export, which keeps the decision that it was proved with",
            remedy="Calibrate the run that it was made from, and export it again.",
        )
    if output and not typed_files and not of_export:
        message = "-o goes with a file; a split is added to the run itself"
        raise UsageError(
            message, remedy="Leave -o out, or name the file: bertctl evaluate RUN FILE -o DIR."
        )


def _source(typed: list[str]) -> "Path | FileList | None":
    """Returns the file or files to score: one path, a list of files, or None if none was typed."""
    from bertctl.data.file_lists import files_of

    if not typed:
        return None
    source = files_of(typed)
    if source == "-":
        return Path(source)
    return source


def _folder_of(
    run: Path, source: "Path | FileList | None", split: str | None, *, of_export: bool
) -> Path:
    """Returns the folder of the scores if -o was not typed: the run's own, or one beside it.

    Args:
        run: Folder of the run or export.
        source: The file to score; None for a split of the run's own data.
        split: The split, as it was typed.
        of_export: Whether `run` is an export, which is never changed.

    Raises:
        UsageError: Several files are scored as one, so they have no common name.
    """
    if source is None and of_export:
        return run.with_name(f"{run.name}-on-{split or 'validation'}")
    if source is None:
        return run
    if not isinstance(source, Path):
        message = f"{source} are scored as one file, which has no name"
        raise UsageError(message, remedy="Name the folder for the scores: -o DIR.")
    return run.with_name(f"{run.name}-on-{source.stem}")


def _decide(
    out: Output,
    run: "TrainedRun",
    split: str | None,
    calibrate: bool,
    threshold: str | None,
    workers: Workers,
    listener: Listener,
) -> None:
    """Fits a temperature or a threshold on a split, stores it in the run, and prints its effect.

    Args:
        out: Prints the answer and messages.
        run: An opened run.
        split: Split to fit on; None is the first validation split.
        calibrate: Whether to fit a temperature.
        threshold: What the threshold is chosen for: the best F1 (`f1`) or a precision
            (`precision=P`). None chooses no threshold.
        workers: The processes that share the work; only the first one prints.
        listener: Receives progress messages.
    """
    from bertctl.inference.calibrate import calibrate_run
    from bertctl.inference.decision import parse_rule

    if threshold is not None:
        rule = parse_rule(threshold)
    else:
        rule = None
    with out.third_party_kept():
        chosen = calibrate_run(
            run,
            split=split,
            calibrate=calibrate,
            rule=rule,
            workers=workers,
            listener=listener,
        )
    if not workers.is_first:
        return
    out.answer({"run": str(run.folder.path), **chosen}, _decision_table(chosen))
    decision = chosen["decision"]
    if decision["temperature"] is not None:
        out.say(
            f"temperature {decision['temperature']:.4g}: logits are divided by it before they "
            "become probabilities"
        )
    if decision["threshold"] is not None:
        if decision["positive"]:
            label = f"'{decision['positive']}'"
        else:
            label = "a label"
        out.say(
            f"threshold {decision['threshold']:.4g}: {label} is predicted from this probability on"
        )
    out.say(
        f"written to {run.folder.decision}; predict and evaluate apply it from now on. The scores "
        "above are of the rows on which it was chosen: score another split for an unbiased estimate"
    )


def _decision_table(chosen: Mapping[str, Any]) -> Shown:
    """Returns a table of the scores before and after a temperature or threshold is applied.

    Args:
        chosen: What `calibrate_run` returns: the decision, and the scores without and with it.
    """
    from bertctl.tasks.registry import headline

    stages = ("before", "after")
    headers = ("before", "with the decision")
    table = plain_table(f"on {chosen['decision']['fitted_on']}", *headers, right=headers)
    metrics = chosen["metrics"]
    for name in headline(metrics["after"], None):
        table.add_row(name, *(f"{metrics[stage][name]['value']:.4f}" for stage in stages))
    for name in ("calibration_error", "classwise_calibration_error", "brier"):
        if chosen[name]["before"] is not None:  # None with several labels per text
            figures = (f"{chosen[name][stage]:.4f}" for stage in stages)
            table.add_row(name.replace("_", " "), *figures)
    return table
