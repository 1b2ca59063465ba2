"""`bertctl predict`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.options import (
    DataDirOption,
    DeviceOption,
    KeepTextOption,
    NumProcessesOption,
    PairColumnOption,
    PrecisionOption,
    RunArgument,
    TextColumnOption,
    ThreadsOption,
    collect,
)
from bertctl.cli.output import Output, among_workers
from bertctl.errors import UsageError

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="[FILE|-]", help="Lines, CSV, TSV, JSONL or Parquet (.gz too); - is stdin.", show_default=False
    ),
]
SplitOption = Annotated[
    str | None,
    typer.Option("--split", help="Predict a split of the run's own data instead of a file.", show_default=False),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="NAME", help="Predict another catalog data set's split, such as ax.", show_default=False
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Layout of the answers: jsonl, json, csv; glue for its server; conll or spacy of a tagger; squad of a "
        "question answerer.",
    ),
]
InputFormatOption = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        metavar="lines|csv|tsv|jsonl|parquet|conll|conllu|json",
        help="Layout of the input, as far as the run's task reads it; by suffix when left out, lines on stdin.",
        show_default=False,
    ),
]
QuestionOption = Annotated[
    str | None,
    typer.Option("--question", metavar="TEXT", help="Ask a question answerer one question.", show_default=False),
]
ContextOption = Annotated[
    Path | None,
    typer.Option("--context", metavar="FILE", help="The text that --question is about.", show_default=False),
]
AnswersOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="File for the answers (glue: folder); stdout when left out.",
        show_default=False,
    ),
]


def predict(
    out: Output,
    run: RunArgument,
    file: FileArgument = "",
    split: SplitOption = None,
    data: DataOption = None,
    output: AnswersOption = None,
    layout: FormatOption = "jsonl",
    question: QuestionOption = None,
    context: ContextOption = None,
    input_format: InputFormatOption = None,
    data_dir: DataDirOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Examples for each forward pass.", show_default=False)
    ] = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    keep_text: KeepTextOption = None,
    num_processes: NumProcessesOption = 1,
) -> None:
    """Predict with a run: label names and probabilities, in the order of the input, for files of any size.

    Answers are JSON Lines as they come (--format csv: a table; --json: one array); with -o they go into a file.

    echo "a fine film" | bertctl predict runs/sst2-1a2b3c4d -

    bertctl predict RUN --split test --format glue -o submission

    bertctl predict RUN --question "When was it built?" --context tower.txt
    """
    if (question is None) != (context is None):
        raise UsageError(
            "--question and --context go together", remedy='For example: --question "Who wrote it?" --context text.txt'
        )
    _check(file or question or "", split, data, output, layout)
    if out.as_json and output is None:
        if layout != "jsonl":
            raise UsageError(
                f"--json and --format {layout} exclude each other", remedy="Leave one out, or add -o FILE."
            )
        layout = "json"
    options: dict[str, Any] = collect(
        data_dir=data_dir,
        text_column=text_column,
        pair_column=pair_column,
        device=device,
        precision=precision,
        threads=threads,
        keep_text=keep_text,
    )
    if batch_size:
        options["evaluation.batch_size"] = batch_size
    from bertctl.inference.trained import open_run
    from bertctl.runtime.launch import is_worker, launch

    if num_processes > 1 and not is_worker():
        raise typer.Exit(launch(sys.argv[1:], num_processes, listener=out))
    trained = open_run(run, options=options)
    from bertctl.inference.layouts import check_format
    from bertctl.inference.predict import (
        Destination,
        predict_file,
        predict_glue,
        predict_question,
        predict_split,
    )

    check_format(trained, layout, to_file=output is not None)

    shared, talk = among_workers(out)
    destination = Destination(output, layout, sys.stdout)
    with out.third_party_kept():
        if layout == "glue" and output is not None:
            written = predict_glue(trained, split or "test", data=data, output=output, workers=shared, listener=talk)
        elif question is not None and context is not None:
            written = predict_question(
                trained,
                question,
                context,
                destination,
                workers=shared,
                listener=talk,
            )
        elif split or data:
            written = predict_split(
                trained,
                split or "test",
                destination,
                data=data,
                workers=shared,
                listener=talk,
            )
        else:
            written = predict_file(
                trained,
                file,
                destination,
                kind=input_format,
                workers=shared,
                listener=talk,
            )
    if output and shared.is_first:
        out.answer({"run": str(run), **written}, None)
        out.say(f"{written['examples']} answers written to {', '.join(written['files'])}")


def _check(file: str, split: str | None, data: str | None, output: Path | None, layout: str) -> None:
    from bertctl.inference.layouts import check_known

    check_known(layout)
    if file and (split or data):
        raise UsageError("a file and --split (or --data) exclude each other", remedy="Give one of the two.")
    if not file and not split and not data:
        raise UsageError(
            "nothing to predict",
            remedy="Give a file, - for stdin, or --split NAME for a split of the run's own data.",
        )
    if layout == "glue" and not (split or data):
        raise UsageError("--format glue answers a GLUE split", remedy="Add --split test, or --data ax.")
    if layout == "glue" and output is None:
        raise UsageError("--format glue writes files", remedy="Say where: -o DIR.")


COMMAND = predict
