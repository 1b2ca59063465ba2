"""`bertctl predict`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.help import RARE
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.processes import (
    NumProcessesOption,
    in_processes,
    say_shard,
    this_worker,
)
from bertctl.cli.framework.recipe_options import MergeOption, NamedShardOption, OnErrorOption
from bertctl.cli.inputs.rows_given import RowsGiven, takes_rows
from bertctl.errors import UsageError
from bertctl.words import count

if TYPE_CHECKING:
    from bertctl.inference.shards import Sharing


@takes_rows("compute", "exports", "keep_text", "--max-length", "answers")
def predict(
    out: Output,
    arguments: RowsGiven,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH")] = None,
    layout: Annotated[str | None, typer.Option("--format", metavar="NAME")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", rich_help_panel=RARE)] = False,
    safe_csv: Annotated[bool, typer.Option("--safe-csv", rich_help_panel=RARE)] = False,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, metavar="N")] = None,
    keep_columns: Annotated[
        str | None, typer.Option("--keep-columns", metavar="all|none|NAME,...")
    ] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1)] = None,
    shard: NamedShardOption = None,
    merge: MergeOption = False,
    on_error: OnErrorOption = None,
    num_processes: NumProcessesOption = 1,
) -> None:
    """Predict with a run: label names and probabilities, in the input's order.

    The output is JSON Lines; --format csv gives a table, --json an array. RUN,RUN predicts with
    several runs at once.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        output: File for the answers (glue: folder). Default: stdout.

            An existing file is replaced. In a folder of --format glue it needs --overwrite.
        layout: Layout of the answers: jsonl, json, csv or tsv; glue for the GLUE server; squad; for
            tags conll, conlleval, conllu, spacy, label-studio, brat, pubtator, bioc, docbin.
            Default: by the suffix of -o, else jsonl.
        overwrite: Replace the files of --format glue in the folder.
        safe_csv: In CSV, put ' before texts that a spreadsheet would take for a formula.
        top_k: Write only the N likeliest labels, as `top`, instead of all.
        keep_columns: Columns of the file to write as well. Default: all.
        batch_size: Examples per forward pass.
        shard: The share of the work to do, as K/N.
        merge: Merge the answers of all shards.
        on_error: What to do about a record that can't be read.
        num_processes: Number of processes that share the work.

    Examples:
        bertctl predict runs/sst2-1a2b3c4d "a fine film" --top-k 3
        bertctl predict RUN_A,RUN_B reviews.csv --format csv -o answers.csv
        bertctl predict RUN --split test --format glue -o submission
        bertctl predict RUN --question "When was it built?" --context tower.txt
    """
    from bertctl.inference.layouts import check_known, layout_of
    from bertctl.inference.several_runs import split_paths
    from bertctl.inference.shards import Sharing

    if out.as_json and output is None:
        if layout not in (None, "jsonl"):
            message = f"--json and --format {layout} exclude each other"
            raise UsageError(message, remedy="Leave one out, or add -o FILE.")
        layout = "json"
    layout = layout or layout_of(output)
    check_known(layout)
    arguments.check("predict")
    paths = split_paths(arguments.run.path)
    if len(paths) > 1:
        _refuse_for_several(arguments, layout, is_shared=bool(shard or merge or num_processes > 1))
    names_split = bool(arguments.split or arguments.data)
    _check_layout(layout, output, names_split=names_split, safe_csv=safe_csv)
    sharing = Sharing.read(
        shard,
        merge,
        output,
        num_processes,
        suffix=".json",
    )
    # `{shard}` in the name of OUT stands for the number of this shard.
    if output is None:
        answers_file = None
    else:
        answers_file = sharing.resolve(output)
    in_processes(num_processes, out, source="-" if "-" in arguments.files else "")
    if batch_size:
        options = {"evaluation.batch_size": batch_size}
    else:
        options = {}
    if len(paths) > 1:
        _predict_with_several(
            out,
            arguments,
            paths,
            options,
            output=answers_file,
            layout=layout,
            safe_csv=safe_csv,
            top_k=top_k,
            keep_columns=keep_columns,
            skips=on_error == "skip",
        )
        return
    _predict_with_one(
        out,
        arguments,
        options,
        sharing,
        output=output,
        answers_file=answers_file,
        layout=layout,
        overwrite=overwrite,
        safe_csv=safe_csv,
        top_k=top_k,
        keep_columns=keep_columns,
        skips=on_error == "skip",
    )


def _predict_with_one(
    out: Output,
    arguments: RowsGiven,
    options: Mapping[str, Any],
    sharing: "Sharing",
    *,
    output: Path | None,
    answers_file: Path | None,
    layout: str,
    overwrite: bool,
    safe_csv: bool,
    top_k: int | None,
    keep_columns: str | None,
    skips: bool,
) -> None:
    """Predicts rows with one run, and reports the files that were written, if any.

    Args:
        out: Prints the answer and messages.
        arguments: The run, the rows and the options of the run.
        options: Fields of the recipe that the command line changes.
        sharing: The share of the work that this command does.
        output: OUT, as it was typed; None writes to stdout.
        answers_file: The file of this command's answers; it differs from OUT for a shard.
        layout: Layout of the answers.
        overwrite: Whether files of the GLUE layout are replaced.
        safe_csv: Whether cells that a spreadsheet would run are made harmless.
        top_k: How many of the likeliest labels are written per row; None for all.
        keep_columns: Columns of the input to carry over, as typed.
        skips: Whether rows that can't be read are skipped, and counted.
    """
    from bertctl.inference.layouts import check_format

    trained = arguments.open(options, out)
    from bertctl.data.read_options import SkippedRows
    from bertctl.inference.carried_columns import KeptColumns
    from bertctl.inference.predict import Destination, predict_glue, predict_rows

    check_format(trained, layout, to_file=output is not None)

    workers, listener = this_worker(out)
    # Collects the rows that can't be read. Without it, the first such row is an error.
    skipped = SkippedRows() if skips else None
    with streams.for_layout(layout) as answers, out.third_party_kept():
        if layout == "glue" and output is not None:
            split = arguments.split or "test"
            written = predict_glue(
                trained,
                split,
                data=arguments.data,
                output=output,
                overwrite=overwrite,
                workers=workers,
                sharing=sharing,
                listener=listener,
            )
        else:
            chunks, total = arguments.chunks(trained, listener, skipped, layout)
            destination = Destination(answers_file, layout, answers, safe_csv=safe_csv)
            kept_columns = KeptColumns.parse(
                keep_columns, by_default=trained.recipe.evaluation.keep_text
            )
            written = predict_rows(
                trained,
                chunks,
                destination,
                total=total,
                top_k=top_k,
                kept_columns=kept_columns,
                workers=workers,
                sharing=sharing,
                listener=listener,
            )
    if skipped is not None and workers.is_first and sharing.reports_skipped:
        written |= skipped.finish(answers_file, out)
    if say_shard(sharing, out, written.get("files", ())):
        return
    if output and workers.is_first:
        out.answer({"run": str(arguments.run.path), **written})
        predictions = count(written["examples"], "prediction")
        out.say(f"{predictions} written to {', '.join(written['files'])}")


def _check_layout(layout: str, output: Path | None, *, names_split: bool, safe_csv: bool) -> None:
    """Refuses options that a layout of answers needs or does not have.

    Args:
        layout: The layout, such as `jsonl` or `glue`.
        output: Where the answers go; None for stdout.
        names_split: Whether a split is answered, and not files or texts.
        safe_csv: Whether `--safe-csv` was typed.

    Raises:
        UsageError: With what to add or to leave out.
    """
    if layout == "glue" and not names_split:
        raise UsageError(
            "--format glue answers a GLUE split", remedy="Add --split test, or --data ax."
        )
    if layout == "glue" and output is None:
        raise UsageError("--format glue writes files", remedy="Say where: -o DIR.")
    if safe_csv and layout not in ("csv", "tsv"):
        raise UsageError("--safe-csv is about CSV", remedy="Add --format csv, or leave it out.")


def _refuse_for_several(arguments: RowsGiven, layout: str, *, is_shared: bool) -> None:
    """Refuses options that work with one run only, when several runs predict together.

    Args:
        arguments: The runs and the rows, as they were typed.
        layout: Layout of the answers.
        is_shared: Whether the work is shared by shards or processes.

    Raises:
        UsageError: With what to leave out.
    """
    from bertctl.inference.several_runs import check_layout

    if arguments.split or arguments.data:
        raise UsageError(
            "--split and --data are about the data of one run, and several runs are given",
            remedy="Give a file of rows, or predict with each run alone.",
        )
    if arguments.questions:
        raise UsageError(
            "--question is for one run of question-answering, and several runs are given",
            remedy="Predict with that run alone.",
        )
    if is_shared:
        raise UsageError(
            "--shard, --merge and --num-processes share the work of one run, and several are given",
            remedy="Leave them out, or predict with each run alone.",
        )
    check_layout(layout)


def _predict_with_several(
    out: Output,
    arguments: RowsGiven,
    paths: Sequence[Path],
    options: Mapping[str, Any],
    *,
    output: Path | None,
    layout: str,
    safe_csv: bool,
    top_k: int | None,
    keep_columns: str | None,
    skips: bool,
) -> None:
    """Predicts rows with several runs, and reports the files that were written, if any.

    Args:
        out: Prints the answer and messages.
        arguments: The texts or files, and the options of the runs.
        paths: The run folders.
        options: Fields of the recipes that the command line changes.
        output: A file; None writes to stdout.
        layout: Format of the answers.
        safe_csv: Whether cells that a spreadsheet would run are made harmless.
        top_k: How many of the likeliest labels are written per row; None for all.
        keep_columns: Columns of the input to carry over, as typed.
        skips: Whether rows that can't be read are skipped, and counted.
    """
    from bertctl.data.read_options import SkippedRows
    from bertctl.inference.carried_columns import KeptColumns
    from bertctl.inference.predict import Destination
    from bertctl.inference.several_runs import (
        LoadedRuns,
        SeveralRows,
        open_runs,
        predict_several,
    )

    runs = open_runs(paths, options={**arguments.run.options, **options}, listener=out)
    # Collects the rows that can't be read. Without it, the first such row is an error.
    skipped = SkippedRows() if skips else None
    with streams.for_layout(layout) as answers, out.third_party_kept():
        rows = SeveralRows([*runs.values()])
        if arguments.texts:
            chunks = rows.of_texts(arguments.texts, arguments.pairs)
        else:
            chunks = rows.of_source(
                arguments.files,
                kind=arguments.kind,
                listener=out,
                skipped=skipped,
            )
        [reference_run, *_] = runs.values()  # the first one named decides for all
        keeps_text = reference_run.recipe.evaluation.keep_text
        columns = KeptColumns.parse(keep_columns, by_default=keeps_text)
        written = predict_several(
            LoadedRuns.load(runs, out),
            chunks,
            Destination(output, layout, answers, safe_csv=safe_csv),
            total=len(arguments.texts),
            top_k=top_k,
            kept_columns=columns,
            listener=out,
        )
    if skipped is not None:
        written |= skipped.finish(output, out)
    if output is not None:
        out.answer(written)
        rows_answered = count(written["examples"], "row")
        out.say(f"predictions for {rows_answered} written to {', '.join(written['files'])}")
