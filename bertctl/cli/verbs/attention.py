"""`bertctl attention`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import picked, takes_run
from bertctl.cli.framework.recipe_requests import RunRequest
from bertctl.errors import UsageError
from bertctl.words import count

if TYPE_CHECKING:
    from bertctl.interpretability.attention import AttentionReader

_Answer = tuple[dict[str, Any], Callable[[], str], list[Any]]
"""The JSON document, a function that renders the HTML page, and the tables of the terminal."""

_TABLES = picked("--text-column", "--pair-column", "layout")


@takes_run(
    "--max-length",
    "--data-dir",
    "columns",
    "layout",
    "--max-eval-rows",
    "--device",
    "--threads",
)
def attention(
    out: Output,
    run: RunRequest,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT|FILE|-]")] = None,
    pair: Annotated[str | None, typer.Argument(metavar="[PAIR]")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="PAGE.html")] = None,
    npz: Annotated[Path | None, typer.Option("--npz", metavar="FILE.npz")] = None,
    layers: Annotated[str | None, typer.Option("--layers", metavar="1-3,6")] = None,
    heads: Annotated[str | None, typer.Option("--heads", metavar="1,4-6")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", metavar="FILE|-")] = None,
    importance: Annotated[
        Literal["gradient", "ablation"] | None, typer.Option("--importance")
    ] = None,
) -> None:
    """Show what a model's tokens attend to: one text as a page, or every head over a file.

    The page of a text shows lines between tokens, all heads, and the queries and keys of a head.
    Layers and heads count from 1.

    Args:
        out: Prints the answer and messages.
        run: The run, as it was typed.
        text: Text to look at; a second one makes a pair. Or a file of texts to measure each head
            on.
        pair: Second text.
        output: Page to write. An existing file is replaced. Default: attention.html or, with a file
            or --importance, heads.html; no page if you give only --json or --npz.
        npz: File for the tensors: attentions (L, H, T, T), queries and keys (L, H, T, D), tokens.
            An existing file is replaced.
        layers: Layers to show; -1 is the last. Default: all.
        heads: Heads to show. Default: all.
        file: A file, even if its name does not look like one: lines, CSV, TSV, JSONL or Parquet.
            For each head, the page shows its attention to the next token, the previous one, itself,
            the same token elsewhere, [CLS], delimiters and the other sentence. It also shows
            entropy and distance.
        importance: Measure how much each head of a RUN matters on its validation rows: by gradient,
            or also by ablation (one pass over the rows for each head).

    Examples:
        bertctl attention minilm "a bank account" "the river bank" -o page.html
        bertctl attention minilm reviews.txt -o heads.html
        bertctl attention runs/sst2-1a2b3c4d --importance gradient
    """
    from bertctl.cli.inputs.texts import check_typed_texts
    from bertctl.data.file_names import names_a_file

    if text is not None and pair is None and file is None and (text == "-" or names_a_file(text)):
        file = text
        text = None
    texts = [typed for typed in (text, pair) if typed is not None]
    of_heads = file is not None or importance is not None
    if bool(texts) == of_heads:  # both, or neither
        if texts:
            message = "a text excludes a file and --importance"
        else:
            message = "there is nothing to look at"
        raise UsageError(
            message,
            remedy='Give a text ("..."), or a file, or for a run --importance gradient.',
        )
    if not all(map(str.strip, texts)):
        raise UsageError("the text is empty", remedy='Give one with words in it ("...").')
    if of_heads and (npz or layers or heads):
        raise UsageError(
            "--npz, --layers and --heads are for one text",
            remedy="--json has the numbers of all heads.",
        )
    check_typed_texts(texts)
    page = output
    if page is None and not out.as_json and not npz:
        page = Path("heads.html" if of_heads else "attention.html")
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"{page}: the page is HTML", remedy=f"Name it so: -o {page.with_suffix('.html')}"
        )
    from bertctl.writing import write_text

    with out.third_party_kept():
        if of_heads:
            answer = _heads(out, run, file, importance)
        else:
            answer = _text(
                out,
                run,
                texts,
                layers,
                heads,
                npz,
            )
    document, render_page, tables = answer
    if page is not None:
        write_text(page, render_page())
    written_files = [str(path) for path in (page, npz) if path]
    out.answer(
        {"model": str(run.path), "page": page and str(page), **document}, *tables, *written_files
    )


def _reader(run: RunRequest) -> "AttentionReader":
    """Returns a reader of the attention of a model or run; it loads the weights when it reads."""
    from bertctl.config.load import load_recipe
    from bertctl.interpretability.attention import AttentionReader
    from bertctl.modeling.source import inspect_model

    # The recipe is only for the checks of the model's files and of device and threads. Length 4
    # suits every model; texts are cut at the length that was typed, or else at the model's own.
    options = {"model.max_length": 4, **run.options, "model.name": str(run.path)}
    recipe = load_recipe("text-classification", options=options)
    length = run.options.get("model.max_length")
    return AttentionReader(inspect_model(recipe.model), recipe.runtime, max_length=length)


def _text(
    out: Output,
    run: RunRequest,
    texts: Sequence[str],
    layers: str | None,
    heads: str | None,
    npz: Path | None,
) -> _Answer:
    """Returns the attention within a text or pair, and writes its arrays into a NumPy file.

    Args:
        out: Prints messages. If it prints JSON, the document has the arrays, too.
        run: The model to read.
        texts: One text, or the two of a pair.
        layers: Layers to read, as typed; None for all.
        heads: Heads to read, as typed; None for all.
        npz: File for the arrays; None writes none.
    """
    import numpy as np

    from bertctl.interpretability.attention import read_attention
    from bertctl.reporting.inside_pages import attention_page
    from bertctl.writing import replacing_file

    attention = read_attention(
        _reader(run),
        *texts,
        layers=layers,
        heads=heads,
    )
    arrays = {name: value for name, value in attention.items() if isinstance(value, np.ndarray)}
    if attention["cut"]:
        n_shown = len(arrays["tokens"])
        cut = count(attention["cut"], "token")
        out.warn(f"{cut} cut off, {n_shown} shown (--max-length N, or the model's)")
    if npz is not None:
        with replacing_file(npz) as target:
            np.savez(target, allow_pickle=False, **arrays)
    document = {
        "scores": attention["scores"],
        "cut_tokens": attention["cut"],
        "npz": npz and str(npz),
    }
    if out.as_json:  # the page and the tables take the arrays themselves
        for name, array in arrays.items():
            if array.dtype == np.float32:
                # Rounded in float64, which prints 0.1 where float32 becomes 0.10000000149.
                document[name] = array.astype(np.float64).round(8).tolist()
            else:
                document[name] = array.tolist()
    no_tables: list[Any] = []  # the terminal names only the files that were written
    return document, partial(attention_page, attention, texts), no_tables


def _heads(out: Output, run: RunRequest, file: str | None, method: str | None) -> _Answer:
    """Returns figures of each head: its patterns over a file, its importance for the task, or both.

    A pattern is what a head attends to, such as the next token.

    Args:
        out: Prints progress messages.
        run: The model or run whose heads are measured.
        file: Texts to measure the patterns on; None measures none.
        method: How importance is measured, `gradient` or `ablation`; None measures none.
    """
    from bertctl.cli.inputs.texts import TextSource
    from bertctl.interpretability.head_importance import measure_importance
    from bertctl.interpretability.head_patterns import measure_patterns
    from bertctl.reporting.html import render_html
    from bertctl.reporting.inside_pages import head_records, heads_report

    patterns = None
    importance = None
    sources = []
    document: dict[str, Any] = {}
    if file is not None:
        texts = TextSource([file], settings=_table_settings(run)).chunks(out)
        patterns = measure_patterns(_reader(run), texts, listener=out)
        sources.append(file)
        document["patterns"] = _without_columns(patterns)
    if method is not None:
        opened = run.open_network({"runtime.precision": "fp32"}, out)
        importance = measure_importance(opened, ablate=method == "ablation", listener=out)
        sources.append(f"rows of '{importance['split']}'")
        document["importance"] = _without_columns(importance)

    records = head_records(patterns, importance)
    report = heads_report(
        f"Heads of {run.path}",
        " · ".join(sources),
        records,
        patterns,
        importance,
    )
    # The terminal shows the table of each section but the last one, which lists all heads.
    tables: list[Any] = []
    for section in report.sections[:-1]:
        tables += (section.blocks[0], "")
    return {"heads": records, **document}, partial(render_html, report), tables


def _table_settings(run: RunRequest) -> dict[str, Any]:
    """Returns the options that say how tables are read: `--text-column X` -> `{"text_column": X}`.

    The options of a run are named by fields of a recipe, such as `data.text_column`.
    """
    return {
        row.field.removeprefix("data."): run.options[row.field]
        for row in _TABLES
        if row.field in run.options
    }


def _without_columns(measured: dict[str, Any]) -> dict[str, Any]:
    """Returns what was measured without the arrays of all heads, which the document has as rows."""
    return {name: value for name, value in measured.items() if name != "columns"}
