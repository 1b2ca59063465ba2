"""`bertctl evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from bertctl.cli.options import (
    DataDirOption,
    DeviceOption,
    KeepTextOption,
    LabelColumnOption,
    MaxEvalRowsOption,
    MetricOption,
    OutputOption,
    OverwriteOption,
    PairColumnOption,
    PrecisionOption,
    RunArgument,
    TextColumnOption,
    ThreadsOption,
    collect,
)
from bertctl.cli.output import Output
from bertctl.errors import UsageError

SplitOption = Annotated[
    str | None,
    typer.Option(
        "--split", help="Split of the run's own data; its validation splits when left out.", show_default=False
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="A labelled file of your own: CSV, TSV, JSONL or Parquet.", show_default=False
    ),
]


def evaluate(
    out: Output,
    run: RunArgument,
    split: SplitOption = None,
    file: FileOption = None,
    output: OutputOption = None,
    data_dir: DataDirOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    label_column: LabelColumnOption = None,
    max_eval_rows: MaxEvalRowsOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    keep_text: KeepTextOption = None,
    metric: MetricOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Score a run on a split of its data, or on a file of your own.

    A split is added to RUN's metrics.json and predictions; with --file the result is a folder of its own
    (-o; RUN-on-FILE beside RUN when left out).
    """
    from bertctl.inference.trained import open_run
    from bertctl.run_folder import RunFolder

    if split and file:
        raise UsageError("--split and --file exclude each other", remedy="Give one of the two.")
    if output and not file:
        raise UsageError(
            "-o goes with --file; a split is added to the run itself", remedy="Leave -o out, or add --file FILE."
        )
    target = output or (run.with_name(f"{run.name}-on-{file.stem}") if file else run)
    if file:
        RunFolder.check_free(target, overwrite=overwrite)
    trained = open_run(
        run,
        options=collect(
            data_dir=data_dir,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            max_eval_rows=max_eval_rows,
            device=device,
            precision=precision,
            threads=threads,
            keep_text=keep_text,
            metric=metric,
        ),
    )
    from bertctl.inference.score_run import evaluate_file, evaluate_run

    with out.third_party_kept():
        if file:
            metrics = evaluate_file(trained, file, target, overwrite=overwrite, listener=out)
        else:
            metrics = evaluate_run(trained, split=split, listener=out)

    from bertctl.reporting.summary import metrics_table

    out.answer(
        {"run": str(target), **metrics}, metrics_table(metrics, dataset=None if file else trained.recipe.data.name)
    )
    out.say(f"written to {target}")


COMMAND = evaluate
