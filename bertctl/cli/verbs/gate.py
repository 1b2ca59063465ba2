"""`bertctl gate`."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertctl.cli.framework.completion import one_of, run_folders
from bertctl.cli.framework.option_names import as_options
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.pipelines import ReportFiles, publish_checks, takes_report_files

if TYPE_CHECKING:
    from bertctl.reporting.gate_result import GateResult

_BASELINES = ("frozen", "tfidf", "word-tags", "majority")


@takes_report_files()
def gate(
    out: Output,
    files: ReportFiles,
    run: Annotated[Path, typer.Argument(metavar="RUN", autocompletion=run_folders)],
    minimum: Annotated[list[str] | None, typer.Option("--min", metavar="METRIC=X")] = None,
    maximum: Annotated[list[str] | None, typer.Option("--max", metavar="METRIC=X")] = None,
    min_slice: Annotated[
        list[str] | None, typer.Option("--min-slice", metavar="COLUMN=VALUE:METRIC=X")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="RUN2", autocompletion=run_folders)
    ] = None,
    max_drop: Annotated[list[str] | None, typer.Option("--max-drop", metavar="METRIC=X")] = None,
    beats: Annotated[
        list[str] | None,
        typer.Option("--beats", metavar="BASELINE", autocompletion=one_of(*_BASELINES)),
    ] = None,
    policy: Annotated[Literal["strict", "point", "lenient"], typer.Option("--policy")] = "strict",
    split: Annotated[str | None, typer.Option("--split")] = None,
    allow_constant: Annotated[bool, typer.Option("--allow-constant")] = False,
) -> None:
    """Decide whether a run is good enough, as an exit code.

    A check passes if the whole 95 % interval meets its limit, fails if the whole interval misses
    it, and is inconclusive in between. Exit code 0: all pass. 7: one fails. 8: none fails, one is
    inconclusive.

    The interval is wider on a split that chose the best epoch; --split test needs no such
    allowance. A run that is not better than the best constant prediction does not pass.

    Args:
        out: Prints the answer and messages.
        files: Files for pipelines to write, as they were typed.
        run: Folder of a finished run, or a metrics.json.
        minimum: The metric must be at least X; repeatable.
        maximum: The metric must be at most X; repeatable.
        min_slice: The metric on a slice of the split must be at least X; repeatable.

            label=neg:recall=0.85 names a gold label (precision, recall, f1); other slices name a
            column of the prediction file and a value.
        baseline: Run to compare with: a run folder (paired by example), a metrics.json (unpaired),
            or mlflow:NAME@alias for a run that was registered in MLflow.
        max_drop: The metric may be at most X worse than the baseline's; repeatable.
        beats: The run's primary metric must be better than this baseline's on the same rows: frozen
            (linear classifier on the frozen encoder), tfidf, word-tags (the most frequent tag of
            each word) or majority; repeatable.

            All but majority are there where the run was trained with --baselines.
        policy: strict: decide by the 95 % interval. point: by the value alone. lenient: as strict,
            but inconclusive checks pass with a warning.
        split: Split to look at. Default: validation, or the one that chose the weights.
        allow_constant: Let a run pass even if it is not better than the best constant prediction.

    Examples:
        bertctl gate runs/new --min accuracy=0.9
        bertctl gate runs/new --baseline runs/old --max-drop accuracy=0.01
        bertctl gate runs/new --beats frozen --beats tfidf
    """
    from bertctl.catalog.mlflow_models import SCHEME, registered_run
    from bertctl.reporting.gate import gate as judge
    from bertctl.reporting.limits import Kind, Limit, baseline_limit, parse_limit

    typed_limits: dict[Kind, list[str] | None]
    typed_limits = {"min": minimum, "max": maximum, "min-slice": min_slice, "max-drop": max_drop}
    limits: list[Limit] = []
    for kind, texts in typed_limits.items():
        limits += [parse_limit(kind, text) for text in texts or ()]
    limits += [baseline_limit(name) for name in beats or ()]
    # The files of a run that was registered in MLflow are in a temporary folder meanwhile.
    is_registered = str(baseline).startswith(SCHEME)
    baseline_context: contextlib.AbstractContextManager[Path | None]
    if is_registered:
        baseline_context = registered_run(str(baseline))
    else:
        baseline_context = contextlib.nullcontext(baseline)
    with baseline_context as baseline_folder:
        result = judge(
            run,
            limits,
            baseline=baseline_folder,
            split=split,
            policy=policy,
            allow_constant=allow_constant,
        )
    result = _named_as_options(result)
    out.answer(result.as_json() | {"baseline": baseline and str(baseline)}, *_answer(result))
    for note in result.notes:
        out.say(f"note: {note}")
    if result.verdict == "inconclusive" and result.policy == "lenient":
        out.warn("the gate is inconclusive; --policy lenient lets it through")
    drops = [
        f"{judgement.limit.name}: smallest detectable drop {judgement.detectable:.4f}"
        for judgement in result.judgements
        if judgement.detectable
    ]
    publish_checks(
        out,
        result.checks(),
        files,
        title=f"bertctl gate ({result.split})",
        headline=as_options(result.headline),
        notes=[*result.notes, *drops],
        default_file=str(result.run.metrics_file),
    )
    if files.gitlab_metrics is not None:
        from bertctl.reporting.gitlab import metrics_report
        from bertctl.writing import write_text

        write_text(files.gitlab_metrics, metrics_report(result.samples()))
        out.say(f"written: {files.gitlab_metrics}")
    if result.exit_code:
        raise typer.Exit(int(result.exit_code))


def _named_as_options(result: "GateResult") -> "GateResult":
    """Returns the result with settings in its messages named as options: `--max-length N`."""
    judgements = tuple(
        replace(
            judgement,
            message=as_options(judgement.message),
            ways_out=tuple(map(as_options, judgement.ways_out)),
        )
        for judgement in result.judgements
    )
    return replace(result, judgements=judgements, notes=tuple(map(as_options, result.notes)))


def _answer(result: "GateResult") -> list[Shown]:
    """Returns a table with a row per check, a sentence about each, and the verdict."""
    from rich.text import Text

    columns = ("check", "value", "95 % interval", "n", "detectable", "verdict")
    table = plain_table(*columns, right=("value", "95 % interval", "n", "detectable"))
    colours = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
    for judgement in result.judgements:
        value, low, high = judgement.estimate
        # The estimate of a change, such as a drop, always has a sign.
        if judgement.change is not None:
            sign = "+"
        else:
            sign = ""
        table.add_row(
            judgement.limit.name,
            format(value, f"{sign}.4f"),
            "" if low is None or high is None else f"{low:{sign}.4f} to {high:{sign}.4f}",
            str(judgement.metric.n),
            "" if judgement.detectable is None else f"{judgement.detectable:.4f}",
            Text(judgement.verdict, style=colours[judgement.verdict]),
        )
    sentences: list[Shown] = []
    for judgement in result.judgements:
        sentences.append(judgement.message)
        sentences += [f"  {sentence}" for sentence in judgement.ways_out]
    meaning = Text(
        "detectable: the smallest distance from the limit that this many examples can confirm "
        "(80 % power)",
        "dim",
    )
    headline = Text(as_options(result.headline), style=f"bold {colours[result.verdict]}")
    return [table, "", *sentences, meaning, "", headline]
