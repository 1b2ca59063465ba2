"""`bertctl explain`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.output import Output, console_of
from bertctl.cli.framework.recipe_options import OnErrorOption
from bertctl.cli.inputs.rows_given import RowsGiven, takes_rows
from bertctl.errors import UsageError

_SUFFIXES = {".html": "html", ".htm": "html"}


@takes_rows("--device", "--threads", "--max-length", "--long-text")
def explain(
    out: Output,
    arguments: RowsGiven,
    method: Annotated[list[str] | None, typer.Option("--method", metavar="NAME")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="NAME")] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=1,
            max=1024,
            metavar="N",
        ),
    ] = None,
    faithfulness: Annotated[int, typer.Option("--faithfulness", min=0, metavar="N")] = 300,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    layout: Annotated[Literal["text", "jsonl", "html"] | None, typer.Option("--format")] = None,
    on_error: OnErrorOption = None,
) -> None:
    """Show which words a run's predictions rest on.

    Each word gets its share of the difference between two logits: that of the text, and that of the
    same text of [PAD] tokens. For regression, the score is explained; for questions, the start and
    end of the answer. Gradients are always computed in fp32.

    Faithfulness is measured, too: how far the logit falls without the most important words, and
    with only them, compared with words in random order.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        method: integrated-gradients, gradient-x-input, leave-one-out (removes the word) or rollout
            (follows attention, whatever the label); repeatable. Default: integrated-gradients.
        label: Explain this label instead of the predicted one; for tags, only entities of this
            type.
        steps: Exactly N Gauss-Legendre steps, as captum's n_steps. Default: as many as needed for
            an error of 1 %.
        faithfulness: Measure faithfulness on the first N predictions; 0 for none.
        output: File for the explanations. An existing file is replaced. Default: stdout.
        layout: text for people, jsonl, or one HTML page with the first 500 rows. Default: text on
            stdout; in a file html by its suffix, else jsonl.
        on_error: What to do about a record that can't be read.

    Examples:
        bertctl explain runs/sst2-1a2b3c4d "a fine film without a dull moment"
        bertctl explain RUN reviews.csv -o explained.jsonl
        bertctl explain RUN --split validation --max-eval-rows 100 -o explained.html
    """
    from bertctl.features.kept_memory import bound_caches

    bound_caches()
    arguments.check("explain")
    answer_layout: str
    if layout is not None:
        answer_layout = layout
    elif output is not None:
        answer_layout = _SUFFIXES.get(output.suffix.lower(), "jsonl")
    elif out.as_json:
        answer_layout = "json"
    else:
        answer_layout = "text"
    if out.as_json and output is None and answer_layout != "json":
        raise UsageError(
            f"--json and --format {layout} exclude each other",
            remedy="Leave one out, or add -o FILE.",
        )
    if arguments.run.options.get("model.long_text", "head") != "head":
        raise UsageError(
            "texts are explained as far as they are read from the beginning",
            remedy="--long-text head",
        )
    trained = arguments.open_network(out)
    from bertctl.data.read_options import SkippedRows
    from bertctl.inference.predict import Destination
    from bertctl.interpretability.explain import Asked, Explainer
    from bertctl.reporting.explanations import coloured, doubts, explained_page, summary_sentences
    from bertctl.reporting.html import render_html
    from bertctl.tasks.base import AnswerFormat

    explainer = Explainer(
        trained, Asked(tuple(dict.fromkeys(method or Asked.methods)), label, steps, faithfulness)
    )

    def as_text(lines: Iterable[Mapping[str, Any]], file: Any) -> None:
        """Writes explanations as coloured texts."""
        if output:
            console = console_of(file)
        else:
            console = out.answers
        for line in lines:
            console.print(*coloured(line), sep="\n")

    def as_page(lines: Iterable[dict[str, Any]], file: Any) -> None:
        """Writes explanations as one HTML page."""
        run = str(arguments.run.path)
        page = explained_page(run, lines, explainer.summary)
        file.write(render_html(page))

    # `Destination` writes the other layouts by itself.
    formats = {"text": AnswerFormat(as_text), "html": AnswerFormat(as_page)}
    if on_error == "skip":
        skipped = SkippedRows()
    else:
        skipped = None
    with (
        streams.for_layout(answer_layout) as answers,
        out.third_party_kept(),
    ):
        chunks, total = arguments.chunks(trained, out, skipped)
        destination = Destination(output, answer_layout, answers)
        lines = explainer.explain(chunks, total=total, listener=out)
        files = destination.write(lines, formats.get(answer_layout))
    summary = {"run": str(arguments.run.path), **explainer.summary(), "files": files}
    if skipped is not None:
        summary |= skipped.finish(output, out)
    if output:
        out.answer(summary)
    for sentence in summary_sentences(summary):
        out.say(sentence)
    for doubt in doubts(summary, has_notes=answer_layout in formats):
        out.warn(doubt)
