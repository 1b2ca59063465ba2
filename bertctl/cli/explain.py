"""`bertctl explain`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertctl.cli import streams
from bertctl.cli.output import Output
from bertctl.cli.recipe_options import (
    COMPUTE,
    DATA,
    LAYOUT,
    LONG_TEXTS,
    MODEL,
    OnErrorOption,
    RunRequest,
    only,
    takes_run,
)
from bertctl.cli.rows_given import RowsGiven
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

_Layout = Literal["text", "jsonl", "html"]


@takes_run(
    only(DATA, "--data-dir", "--text-column", "--pair-column", *LAYOUT, "--max-eval-rows"),
    only(COMPUTE, "--device", "--threads"),
    only((*MODEL, *LONG_TEXTS), "--max-length", "--long-text"),
)
def explain(
    out: Output,
    run: RunRequest,
    file: Annotated[str, typer.Argument(metavar="[FILE|-|TEXT]")] = "",
    text: Annotated[list[str] | None, typer.Option("--text", metavar="TEXT")] = None,
    text_pair: Annotated[list[str] | None, typer.Option("--text-pair", metavar="TEXT")] = None,
    split: Annotated[str | None, typer.Option("--split")] = None,
    question: Annotated[list[str] | None, typer.Option("--question", metavar="TEXT")] = None,
    context: Annotated[str | None, typer.Option("--context", metavar="FILE|TEXT")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", metavar="NAME")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="NAME")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, max=1024, metavar="N")] = None,
    faithfulness: Annotated[int, typer.Option("--faithfulness", min=0, metavar="N")] = 300,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    layout: Annotated[_Layout | None, typer.Option("--format")] = None,
    input_format: Annotated[str | None, typer.Option("--input-format", metavar="NAME")] = None,
    on_error: OnErrorOption = None,
) -> None:
    """Show which words the answers of a run rest on.

    A word's number is its share of a logit (of a score, of an answer's start and end), against the same text of [PAD]
    tokens. Gradients are computed in fp32, whatever precision the run answers in. Faithfulness stands beside it: by how
    much the logit falls without the words that are said to matter most, and with them alone, against a random order.

    Args:
        file: Lines, CSV, TSV, JSON, JSONL or Parquet (.gz too); - is stdin; or a text.
        text: Explain this text, whatever it looks like; repeatable.
        text_pair: Second text of a pair, one for each --text.
        split: Explain a split of the run's own data instead of a file.
        question: Ask a question (question answering); repeatable.
        context: File with the text that --question is about, or the text itself.
        method: integrated-gradients, gradient-x-input, leave-one-out (the word is taken out), or rollout (where
            attention leads, whatever the label); repeatable. Default: integrated-gradients.
        label: Explain this label, not the answered one; of tags, those of this type alone.
        steps: Exactly N Gauss-Legendre steps, as captum's n_steps. Default: doubled until the sum is right to 1 %.
        faithfulness: Measure faithfulness on the first N answers; 0 for none.
        output: File for the explanations, a line of JSON each, or a page (.html). Default: stdout.
        layout: text for people, jsonl, or one HTML page with the first 500 rows. Default: by the suffix of -o, else
            text.
        input_format: Layout of the input, as `bertctl predict` reads it. Default: by its suffix; lines on stdin.

    Examples:
        bertctl explain runs/sst2-1a2b3c4d "a fine film without a dull moment"
        bertctl explain RUN reviews.csv -o explained.jsonl
        bertctl explain RUN --split validation --max-eval-rows 100 -o explained.html
    """
    from bertctl.data.text_files import is_text
    from bertctl.features.memory import bound_caches

    bound_caches()
    if file and is_text(file):
        text, file = [file, *(text or ())], ""
    given = RowsGiven(file, text or (), text_pair or (), split, None, question or (), context, input_format)
    given.check("explain")
    chosen = "json" if out.as_json and output is None else layout or _layout_of(output)
    if (layout or chosen) != chosen or (chosen == "text" and output) or (chosen == "html" and not output):
        what = "--json" if out.as_json else "a file" if output else "stdout"
        raise UsageError(
            f"--format {layout} is not for {what}", remedy="text is for stdout, html for -o FILE.html, jsonl for both."
        )
    if run.options.get("model.long_text", "head") != "head":
        raise UsageError("texts are explained as far as they are read from the beginning", remedy="--long-text head")
    trained = run.open(listener=out)
    if split:
        trained.require_own_data()
    from bertctl.interpretability.explain import Asked, Explainer

    asked = Asked(tuple(dict.fromkeys(method or Asked.methods)), label, steps, faithfulness)
    explainer = Explainer(trained, asked)
    from bertctl.data.reading import SkippedRows
    from bertctl.inference.predict import Destination
    from bertctl.tasks.base import AnswerFormat

    skipped = SkippedRows() if on_error == "skip" else None
    with streams.whole() if chosen == "json" else streams.data() as answers, out.third_party_kept():
        chunks, total = given.chunks(trained, out, skipped)
        destination = Destination(output, chosen, answers)
        lines = explainer.explain(chunks, total=total, listener=out)

        def as_text(lines: Iterable[Mapping[str, Any]], _: Any) -> None:
            for line in lines:
                out.answers.print(*(shown(line)), sep="\n")

        def as_page(lines: Iterable[dict[str, Any]], page: Any) -> None:
            from bertctl.reporting.explanations import explained_page
            from bertctl.reporting.html import render_html

            page.write(render_html(explained_page(str(run.path), lines, explainer.summary)))

        own = {"text": AnswerFormat("text", as_text), "html": AnswerFormat("a page", as_page)}.get(chosen)
        files = destination.write(lines, own)
    summary = {"run": str(run.path), **explainer.summary(), "files": files}
    if skipped is not None:
        summary |= skipped.finish(output, out)
    if output:
        out.answer(summary)
    from bertctl.reporting.explanations import summary_sentences

    for sentence in summary_sentences(summary):
        out.say(sentence)


def _layout_of(output: Path | None) -> str:
    if output is None:
        return "text"
    return "html" if output.suffix.lower() in (".html", ".htm") else "jsonl"


def shown(line: Mapping[str, Any]) -> "list[Text]":
    """Returns an explained row as lines for a terminal: the words in colours, and what counts most in numbers."""
    from rich.text import Text

    from bertctl.reporting.explanations import passages
    from bertctl.words import harmless

    parts: list[Text] = []
    for passage in passages(line):
        parts.append(Text(harmless(passage.title), style="bold"))
        words = Text()
        for word in passage.words:
            colour = "" if abs(word.share) < 0.1 else "green" if word.share > 0 else "red"
            words.append(harmless(word.text), f"{'bold ' if abs(word.share) > 0.5 else ''}{colour}".strip())
        parts += [words, Text(harmless(passage.note), style="dim")]
    return [*parts, Text("")]
