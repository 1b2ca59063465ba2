"""sweep.html: the document of a sweep as a page of its own, in the manner of a run's report."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bertctl.reporting.document import Block, Cell, Chart, Column, Listing, Report, Section, Table, Tile
from bertctl.reporting.html import render_html
from bertctl.reporting.summary import figure
from bertctl.sweeps.pictures import (
    Grid,
    draw_curve,
    draw_heat,
    draw_strip,
    element,
    grid_of,
    heat_height,
    strip_height,
)
from bertctl.sweeps.tables import findings, setting_rows
from bertctl.sweeps.words import count_words, seed_words, setting_words
from bertctl.words import human_seconds

Document = Mapping[str, Any]


def sweep_page(document: Document, *, recipe: str = "") -> str:
    """The whole page as HTML, without script and without anything from elsewhere.

    Args:
        document: content of sweep.json.
        recipe: content of best.yaml; empty where there is none.
    """
    sections = [_result(document), _settings(document), _expected(document), _runs(document)]
    if recipe:
        sections.append(Section("recipe", "Recipe", [Listing("best.yaml, which runs as it is", recipe)]))
    subtitle = f"sweep · {document['task']} · {document['model']} · {count_words(len(document['settings']), 'setting')}"
    return render_html(
        Report(
            title=document["name"],
            subtitle=f"{subtitle} · {count_words(document['counts']['runs'], 'run')}",
            tiles=_tiles(document),
            sections=[section for section in sections if section.blocks],
        )
    )


def _tiles(document: Document) -> list[Tile]:
    chosen, counts, primary = document["chosen"], document["counts"], document["primary"]
    tiles = []
    if chosen is not None:
        words = setting_words(chosen["values"], document["axes"])
        what = f"{primary['name']}, {primary['split']}"
        if chosen["by"] == "best-run":
            label = f"{what}, best of {count_words(chosen['of'], 'run')}"
            tiles.append(Tile(label, figure(chosen["value"]), f"a run of {words}"))
        spread = "" if chosen["deviation"] is None else f"± {figure(chosen['deviation'])}; "
        label = f"{what}, mean over {count_words(chosen['n'], 'seed')}"
        tiles.append(Tile(label, figure(chosen["mean"]), spread + words))
        best = document["expected_best"]
        tiles.append(
            Tile(f"expected best of {count_words(len(best), 'run')}", figure(best[-1]["value"]),
                 f"of one run: {figure(best[0]['value'])}")
        )  # fmt: skip
    for entry in document["test"] or ():
        spread = "" if entry["low"] is None else f"95 %: {figure(entry['low'])} to {figure(entry['high'])}"
        tiles.append(Tile(f"{entry['metric']}, {entry['split']}", figure(entry["value"]), spread))
    if document["baseline"] is not None:
        tiles.append(Tile("majority", figure(document["baseline"]), "the answer that ignores the input"))
    stopped = {state: counts[state] for state in ("collapsed", "diverged", "failed", "missing")}
    told = ", ".join(f"{count} {state}" for state, count in stopped.items() if count)
    tiles.append(Tile("runs", f"{counts['runs']:,}", told or "all trained to their end"))
    tiles.append(Tile("computing", human_seconds(document["performance"]["seconds"]), "all runs together"))
    return tiles


def _result(document: Document) -> Section:
    rows = [[what, text] for what, text in findings(document)]
    blocks: list[Block] = [Table([Column(""), Column("")], rows)]
    if document["notes"]:
        blocks.append(Table([Column("What to know")], [[note] for note in document["notes"]]))
    return Section("result", "Result", blocks)


def _settings(document: Document) -> Section:
    headers, rows = setting_rows(document)
    chosen = document["chosen"]
    shown = [
        [Cell(text, strong=chosen is not None and row["setting"] == chosen["setting"]) for text in cells]
        for row, cells in zip(document["settings"], rows, strict=True)
    ]
    best_run = chosen is not None and chosen["by"] == "best-run"
    what = f"the best of {count_words(chosen['of'], 'run')}" if best_run else "the mean"
    caption = f"By mean; * and bold: chosen by {what}. Time: mean of a run."
    blocks: list[Block] = []
    if chosen is not None:
        grid = grid_of(document)
        if grid is not None:
            drawn = partial(_heat, document, grid)
            blocks.append(Chart(drawn, "Mean ± deviation over seeds; the chosen setting is framed.", wide=True))
        told = "A dot for each seed, the mean as a bar, dashed the answer that ignores the input."
        blocks.append(Chart(partial(_strip, document), told, wide=True))
    blocks.append(Table([Column(header, number=True) for header in headers], shown, caption))
    return Section("settings", "Settings", blocks)


def _heat(document: Document, grid: Grid) -> str:
    draw = partial(draw_heat, document=document, grid=grid)
    return element("sweep-heat", "means by setting, as in the table", heat_height(grid), draw)


def _strip(document: Document) -> str:
    draw = partial(draw_strip, document=document)
    return element("sweep-strip", "scores of all seeds by setting", strip_height(document), draw)


def _expected(document: Document) -> Section:
    entries = document["expected_best"]
    if document["chosen"] is None:
        return Section("expected", "Expected best", [])
    numbers = [n for n in dict.fromkeys((1, 2, 3, 5, 10, 20, 50, 100, len(entries))) if n <= len(entries)]
    rows = [
        [str(n), figure(entries[n - 1]["value"]), figure(entries[n - 1]["deviation"])] for n in sorted(set(numbers))
    ]
    columns = [Column("runs", number=True), Column("expected best", number=True), Column("deviation", number=True)]
    caption = "What the best of so many runs of this sweep can be expected to reach (Dodge et al. 2019, section 3)."
    blocks: list[Block] = [Chart(partial(_curve, document), "By number of runs."), Table(columns, rows, caption)]
    return Section("expected", "Expected best", blocks)


def _curve(document: Document) -> str:
    label = "expected best score by number of runs"
    return element("sweep-expected", label, 3.4, partial(draw_curve, document=document), width=5.4)


def _runs(document: Document) -> Section:
    values = {row["setting"]: row["values"] for row in document["settings"]}
    seconds = document["performance"]["runs"]
    folds = document["folds"] is not None
    columns = [Column("run"), Column("setting"), Column("seed")]
    columns += [Column("fold", number=True)] if folds else []
    columns += [Column("state"), Column("score", number=True), Column("time", number=True), Column("")]
    rows = []
    for run in document["runs"]:
        time = seconds.get(run["run"], 0.0)
        row: list[str | Cell] = [
            Cell(run["run"], code=True),
            setting_words(values[run["setting"]], document["axes"]),
            seed_words(document["seeds"][run["seed"]]).removeprefix("seed "),
            *([str(run["fold"])] if folds else []),
            run["state"],
            "" if run["value"] is None else figure(run["value"]),
            human_seconds(time) if time else "",
            Cell(run["message"], data=True),
        ]
        rows.append(row)
    return Section("runs", "Runs", [Table(columns, rows, "All runs of the plan; folders in cells/.")])
