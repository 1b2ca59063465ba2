"""`bertctl report`. Reads a run folder; nothing here needs torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import RunArgument
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.reporting.document import Section
    from bertctl.reporting.report import RunContents

_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}


def report(
    out: Output,
    run: RunArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    format: Annotated[Literal["html", "md"] | None, typer.Option("--format")] = None,
    split: Annotated[str | None, typer.Option("--split")] = None,
    errors: Annotated[int, typer.Option("--errors", metavar="N", min=0)] = 30,
    explain: Annotated[int, typer.Option("--explain", metavar="N", min=0)] = 0,
) -> None:
    """Show a run in one file: result, curves, confusions, calibration, slices, errors.

    The errors are the most confident ones.

    Args:
        out: Prints the answer and messages.
        run: The run, as it was typed.
        output: File to write. An existing file is replaced. Default: RUN/report.html for HTML,
            stdout for Markdown.
        format: HTML page that opens anywhere, or Markdown for a pull request. Default: by the
            suffix of the file.
        split: Split whose predictions are shown. Default: the one that chose the weights.
        errors: Number of errors to show.
        explain: Show which words the N most confident errors rest on (this loads the model).

    Examples:
        bertctl report runs/sst2-1a2b3c4d -o report.html
        bertctl report runs/sst2-1a2b3c4d --format md >> "$GITHUB_STEP_SUMMARY"
    """
    kind = format or (_SUFFIXES.get(output.suffix.lower()) if output else "html")
    if kind is None:
        message = f"{output}: the suffix of this name says no format"
        raise UsageError(message, remedy="End it with .html or .md, or add --format html|md.")
    if output is not None and output.is_dir():
        raise UsageError(
            f"{output} is a folder",
            remedy=f"Name a file with -o, such as {output / f'report.{kind}'}.",
        )

    from bertctl.documents import loading
    from bertctl.reporting.html import render_html
    from bertctl.reporting.markdown import render_markdown
    from bertctl.reporting.report import build_report, gather
    from bertctl.run_folder import DAMAGED
    from bertctl.writing import write_text

    path = output or (run / "report.html" if kind == "html" else None)
    material = gather(run, split=split)
    if explain:
        more = [_explained(out, material, explain)]
    else:
        more = []
    # Warnings of libraries that draw and score are kept out of the terminal.
    with out.third_party_kept(), loading(f"the run {run}", remedy=DAMAGED):
        document = build_report(
            material,
            errors=errors,
            path=path,
            more=more,
        )
        if kind == "html":
            text = render_html(document)
        else:
            text = render_markdown(document)
    answer = {"run": str(run), "split": material.shown, "format": kind, "bytes": len(text.encode())}
    if path is None:
        out.answer({**answer, "report": None, "text": text}, text.rstrip("\n"))
        return
    write_text(path, text)
    out.answer({**answer, "report": str(path)}, str(path))


def _explained(out: Output, material: "RunContents", n_errors: int) -> "Section":
    """Returns the section of the report that shades the words that its surest errors rest on.

    Without errors, the section has only its notes.

    Args:
        out: Prints progress messages.
        material: What was read of the run folder. `answered` has its rows with predictions; if none
            are stored, no error is explained.
        n_errors: How many errors are explained, the most confident ones.
    """
    from bertctl.inference.trained import open_run
    from bertctl.interpretability.explain import Asked, Explainer, answered_rows
    from bertctl.reporting.explanations import explained_section
    from bertctl.reporting.mistakes import surest_errors

    answered = material.answered
    if answered:
        wrong = surest_errors(answered, material.answers.from_lines(answered))[:n_errors]
    else:
        wrong = []
    with out.third_party_kept():
        # Faithfulness is measured on all of these rows, as they are few.
        settings = Asked(faithful_rows=n_errors)
        explainer = Explainer(open_run(material.folder.path, listener=out), settings)
        chunks = []
        if wrong:
            chunks.append(answered_rows(explainer.run, wrong))
        lines = explainer.explain(chunks, total=len(wrong), listener=out)
        explained = [
            {"gold": line["gold"], **explanation}
            for line, explanation in zip(wrong, lines, strict=True)
        ]
        return explained_section(
            explained, explainer.summary(), title="What the most confident errors rest on"
        )
