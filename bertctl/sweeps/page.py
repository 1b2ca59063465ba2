"""What a person sees of a sweep, made from its document.

It is the tables of the terminal and of sweep.html.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from bertctl.reporting.document import (
    Block,
    Cell,
    Chart,
    Column,
    Listing,
    Report,
    Section,
    TableBlock,
    Tile,
)
from bertctl.reporting.summary import figure, interval
from bertctl.reporting.terminal import rich_table
from bertctl.run_documents.sweep_document import ChosenSetting, SettingRow, SweepDocument
from bertctl.sweeps.pictures import picture, shows_majority
from bertctl.sweeps.setting_text import (
    seed_text,
    setting_text,
    short_names,
    value_text,
)
from bertctl.words import count, human_seconds, natural_order

_MOST_COLUMNS = 12

STOPPED = ("collapsed", "diverged", "stopped", "failed", "missing")


def sweep_tables(document: SweepDocument) -> RenderableType:
    """Returns the result of a sweep for a terminal: the table of settings, findings, and notes.

    Args:
        document: Content of sweep.json.
    """
    table = rich_table(
        _settings_table(document), title=f"{document.metric_text} over seeds, by setting"
    )
    lines = [f"{heading}: {text}" for heading, text in _findings(document)]
    notes = [f"- {note}" for note in document.notes]
    if notes:
        lines += ["", *notes]
    return Group(table, Text(), *map(Text, lines))


def sweep_report(document: SweepDocument, folder: Path, *, recipe: str = "") -> Report:
    """Returns the page of a sweep.

    Args:
        document: content of sweep.json.
        folder: Folder of its pictures.
        recipe: content of best.yaml; empty where there is none.
    """
    sections = [
        _result(document),
        _settings(document, folder),
        _expected(document, folder),
        _runs(document),
    ]
    if recipe:
        sections.append(
            Section("recipe", "Recipe", [Listing("best.yaml, which runs as it is", recipe)])
        )
    settings = count(len(document.settings), "setting")
    runs = count(document.counts.runs, "run")
    return Report(
        title=document.name,
        subtitle=f"sweep · {document.task} · {document.model} · {settings} · {runs}",
        tiles=list(_tiles(document)),
        sections=[section for section in sections if section.blocks],
    )


def chosen_by(chosen: ChosenSetting) -> str:
    """Returns what the setting was chosen by."""
    if chosen.by == "mean":
        return "the mean over seeds"
    return f"the best of {count(chosen.of, 'run')}"


def _tiles(document: SweepDocument) -> Iterator[Tile]:
    """Yields the tiles at the top of a sweep's page: scores, then baseline, runs and time."""
    chosen = document.chosen
    counts = document.counts
    primary = document.primary
    if chosen is not None:
        words = setting_text(chosen.values, document.axes)
        message = f"{primary.name}, {primary.split}"
        if chosen.by == "best-run":
            label = f"{message}, best of {count(chosen.of, 'run')}"
            yield Tile(label, figure(chosen.value), f"a run of {words}")
        if chosen.deviation is None:
            spread = ""
        else:
            spread = f"± {figure(chosen.deviation)}; "
        yield Tile(
            f"{message}, mean over {count(chosen.n, 'seed')}",
            figure(chosen.mean),
            spread + words,
        )
        if chosen.expected is not None:
            yield Tile("expected of a new seed", figure(chosen.expected), _corrected(document))
        expected = document.expected_best  # entry n - 1 is for the best of n runs
        of_one = f"of one run: {figure(expected[0].value)}"
        label = f"expected best of {count(len(expected), 'run')}"
        yield Tile(label, figure(expected[-1].value), of_one)
    for entry in document.test or ():
        ends = interval(entry.low, entry.high)
        spread = f"95 %: {ends}" if ends else ""
        yield Tile(f"{entry.metric}, {entry.split}", figure(entry.value), spread)
    if document.baseline is not None:
        yield Tile("majority", figure(document.baseline), "the best constant prediction")
    stopped = ", ".join(
        f"{counts.of_state(state)} {state}" for state in STOPPED if counts.of_state(state)
    )
    yield Tile("runs", f"{counts.runs:,}", stopped or "all trained to their end")
    yield Tile("computing", human_seconds(document.performance.seconds), "all runs together")


def _corrected(document: SweepDocument) -> str:
    """Returns how an expected score was corrected, as the end of a sentence."""
    settings = count(len(document.settings), "setting")
    return f"corrected for the choice among {settings} (bootstrap, Tsamardinos et al. 2018)"


def _result(document: SweepDocument) -> Section:
    """Returns the first section of the page: findings and notes."""
    blocks: list[Block] = [TableBlock([Column(""), Column("")], list(_findings(document)))]
    if document.notes:
        blocks.append(TableBlock([Column("What to know")], [[note] for note in document.notes]))
    return Section("result", "Result", blocks)


def _findings(document: SweepDocument) -> Iterator[tuple[str, str]]:
    """Yields the findings of a sweep, each as a heading and a sentence.

    They are the choice, expected scores, the comparison, the majority, test scores, the run of
    best.yaml, and the number of runs.
    """
    chosen = document.chosen
    counts = document.counts
    if chosen is not None:
        yield f"chosen by {chosen_by(chosen)}", chosen.sentence
        if chosen.expected is not None:
            run = f"expected of its best run on new examples: {figure(chosen.run_expected)}"
            expectation = f"{figure(chosen.expected)} (measured {figure(chosen.mean)})"
            yield "expected of a new seed", f"{expectation}, {_corrected(document)}; {run}"
        yield "comparison", document.comparison.sentence
        expected = document.expected_best  # entry n - 1 is for the best of n runs
        texts = []
        for n in dict.fromkeys((1, 5, len(expected))):
            if n <= len(expected):
                best_of_n = expected[n - 1]
                value = f"{figure(best_of_n.value)} ± {figure(best_of_n.deviation)}"
                texts.append(f"{value} of {count(n, 'run')}")
        yield "expected best", f"{', '.join(texts)} (Dodge et al. 2019)"
    if document.baseline is not None:
        yield "majority", f"{figure(document.baseline)}, the score of the best constant prediction"
    settings = document.values_by_setting
    for entry in document.test or ():
        ends = interval(entry.low, entry.high)
        spread = f" ({ends})" if ends else ""
        number = next(row.setting for row in document.runs if row.run == entry.run)
        run = f"run {entry.run} of {setting_text(settings[number], document.axes)}"
        yield (
            entry.split,
            f"{entry.metric} {figure(entry.value)}{spread}, n {entry.n}, {run}",
        )
    test_was_requested = document.test is not None
    if test_was_requested and not document.test:
        yield "test", "not scored: the recommended run has no test split, or was not asked for it"
    if chosen is not None and chosen.run is not None:
        if chosen.run_value is None:
            value = ""
        else:
            value = f", which gave {figure(chosen.run_value)}"
        if chosen.fold is None:
            fold = ""
        else:
            fold = f", fold {chosen.fold}"
        yield (
            "best.yaml",
            f"run {chosen.run}, {seed_text(document.seeds[chosen.seed])}{fold}{value}",
        )
    time = human_seconds(document.performance.seconds)
    n_present = counts.runs - counts.missing
    yield "runs", f"{n_present:,} of {counts.runs:,}, {time} of computing"


def _settings(document: SweepDocument, folder: Path) -> Section:
    """Returns the section on settings: heat map and chart if one was chosen, then the table."""
    blocks: list[Block] = []
    if document.chosen is not None:
        grid = grid_table(document)
        blocks += [grid] if grid is not None else []
        if shows_majority(document):
            dashed = ", the best constant prediction as a dashed line"
        else:
            dashed = ""
        caption = f"A dot for each seed, the mean as a bar{dashed}."
        drawn = partial(picture, folder / "scores.svg", "scores of all seeds by setting")
        blocks.append(Chart(drawn, caption, wide=True))
    return Section("settings", "Settings", [*blocks, _settings_table(document)])


def grid_table(document: SweepDocument) -> TableBlock | None:
    """Returns the mean scores of settings as a heat map; None if the settings don't form a grid.

    It has a row for each learning rate, and a column for each combination of the other fields. Two
    or three fields have to vary, and most of their combinations have to be settings of the sweep.

    Args:
        document: content of sweep.json, with a chosen setting.
    """
    assignments = [setting.values for setting in document.settings]
    values = {axis: _axis_values(axis, assignments) for axis in document.axes}
    varied = [axis for axis in document.axes if len(values[axis]) > 1]
    # The learning rate first, for the rows; the order of the others stays.
    varied.sort(key=lambda axis: axis != "optimizer.learning_rate")
    sizes = [len(values[axis]) for axis in varied]
    n_columns = math.prod(sizes[1:])
    n_cells = math.prod(sizes)
    is_mostly_empty = len(assignments) < 0.6 * n_cells
    if len(varied) not in (2, 3) or n_columns > _MOST_COLUMNS or is_mostly_empty:
        return None
    combinations = list(itertools.product(*(values[axis] for axis in varied[1:])))
    names = dict(zip(document.axes, short_names(document.axes), strict=True))
    settings = {}  # by their values as text: a value may be a list, which can't be a key
    for setting in document.settings:
        settings[repr([setting.values.get(axis) for axis in varied])] = setting
    rows: list[list[str | Cell]] = []
    for row_value in values[varied[0]]:
        cells = []
        for combination in combinations:
            key = repr([row_value, *combination])
            cells.append(_mean_cell(settings.get(key), document))
        rows.append([value_text(row_value), *cells])
    columns = [Column(names[varied[0]])]
    for combination in combinations:
        texts = [
            f"{names[axis]} {value_text(value)}"
            for axis, value in zip(varied[1:], combination, strict=True)
        ]
        columns.append(Column(", ".join(texts), number=True))
    has_deviation = any(setting.deviation is not None for setting in document.settings)
    if has_deviation:
        message = "mean ± deviation over seeds"
    else:
        message = "one seed each"
    caption = (
        f"{document.metric_text}: {message}; the stronger the colour the better, bold the chosen "
        "setting."
    )
    return TableBlock(columns, rows, caption)


def _axis_values(axis: str, assignments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns the different values that settings have for a field: numbers by size, else by text.

    Args:
        axis: The field.
        assignments: Value of each field, for each setting.
    """
    by_text: dict[str, Any] = {}  # a value may be a list, which can't be in a set
    for assignment in assignments:
        if axis in assignment:
            by_text[repr(assignment[axis])] = assignment[axis]
    values = list(by_text.values())
    are_numbers = all(isinstance(value, int | float) for value in values)
    if are_numbers:
        return sorted(values)
    return sorted(values, key=_order_of_text)


def _order_of_text(value: Any) -> tuple[object, str]:
    """Returns the key by which values are sorted as texts: `run-2` comes before `run-10`."""
    return natural_order(str(value))


def _mean_cell(row: SettingRow | None, document: SweepDocument) -> Cell:
    """Returns a setting's mean, shaded by where it is between the worst and the best mean.

    A setting without a mean has failed, or successive halving has stopped it: then the cell has
    its score when it was stopped.

    Args:
        row: The setting; None for a combination that the sweep does not have.
        document: Content of sweep.json.
    """
    if row is None:
        return Cell("")
    if row.mean is None:
        was_stopped_by_halving = row.step is not None
        if was_stopped_by_halving:
            return Cell(f"stopped ({figure(row.rung_value)})")
        return Cell("no score")
    means = [setting.mean for setting in document.settings if setting.mean is not None]
    worst, best = sorted((min(means), max(means)), reverse=not document.primary.higher_is_better)
    if best != worst:
        share = (row.mean - worst) / (best - worst)
    else:
        share = 0.5
    if row.deviation is None:
        deviation = ""
    else:
        deviation = f" ± {figure(row.deviation)}"
    return Cell(
        figure(row.mean) + deviation,
        strong=document.chosen is not None and row.setting == document.chosen.setting,
        shade=share,
    )


def _settings_table(document: SweepDocument) -> TableBlock:
    """Returns a table with a row for each setting; the mean of the chosen setting is strong.

    A setting has its values, its scores, and how many of its runs are in each state. A state that
    no run is in has no column, except for `collapsed`.
    """
    axes = document.axes
    chosen = document.chosen
    counts = document.counts
    # Runs that halving has stopped have columns of their own, with their step and score.
    counted_states = [
        state
        for state in STOPPED
        if state == "collapsed" or (counts.of_state(state) and state != "stopped")
    ]
    times = document.performance.settings
    rows: list[list[str | Cell]] = []
    for row in document.settings:
        is_chosen = chosen is not None and row.setting == chosen.setting
        seconds = times.get(str(row.setting))
        values = [value_text(row.values[axis]) if axis in row.values else "" for axis in axes]
        spread = [figure(row.deviation), figure(row.min), figure(row.max)]
        numbers = [
            str(row.n),
            *(str(getattr(row, state)) for state in counted_states),
            "" if seconds is None else human_seconds(seconds),
        ]
        if counts.stopped:
            numbers = [*_rung_cells(row), *numbers]
        rows.append([*values, Cell(figure(row.mean), strong=is_chosen), *spread, *numbers])
    if counts.stopped:
        rung_names = ["stopped at step", "with"]
    else:
        rung_names = []
    names = [
        *short_names(axes),
        "mean",
        "deviation",
        "min",
        "max",
        *rung_names,
        "n",
        *counted_states,
        "time",
    ]
    if chosen is not None:
        by = chosen_by(chosen).removesuffix(" over seeds")
    else:
        by = "the mean"
    caption = f"By mean; bold: chosen by {by}. Time: mean of a run."
    return TableBlock([Column(name, number=True) for name in names], rows, caption)


def _rung_cells(row: SettingRow) -> list[str]:
    """Returns the step at which a setting was stopped, and its score there, or empty texts."""
    if row.step is None:
        return ["", ""]
    return [f"{row.step:,}", figure(row.rung_value)]


def _expected(document: SweepDocument, folder: Path) -> Section:
    """Returns the section on the score to expect of the best of n runs; empty without a choice."""
    if document.chosen is None:
        return Section("expected", "Expected best", [])
    entries = document.expected_best
    numbers = sorted({n for n in (1, 2, 3, 5, 10, 20, 50, 100, len(entries)) if n <= len(entries)})
    rows = [
        [str(n), figure(entries[n - 1].value), figure(entries[n - 1].deviation)] for n in numbers
    ]
    columns = [Column(name, number=True) for name in ("runs", "expected best", "deviation")]
    caption = (
        "What the best of so many runs of this sweep can be expected to reach (Dodge et al. 2019, "
        "section 3)."
    )
    drawn = partial(picture, folder / "expected.svg", "expected best score by number of runs")
    chart = Chart(drawn, "By number of runs.")
    return Section("expected", "Expected best", [chart, TableBlock(columns, rows, caption)])


def _runs(document: SweepDocument) -> Section:
    """Returns the section with a table of all runs: setting, seed, fold, state, score and time."""
    values = document.values_by_setting
    seconds = document.performance.runs
    columns = [Column("run"), Column("setting"), Column("seed"), Column("fold", number=True)]
    columns += [
        Column("state"),
        Column("score", number=True),
        Column("time", number=True),
        Column(""),
    ]
    rows: list[list[str | Cell]] = []
    for run in document.runs:
        setting = setting_text(values[run.setting], document.axes)
        seed = seed_text(document.seeds[run.seed]).removeprefix("seed ")
        if run.fold is None:
            fold = ""
        else:
            fold = str(run.fold)
        if seconds.get(run.run):
            took = human_seconds(seconds[run.run])
        else:
            took = ""
        score = figure(run.shown_value)
        outcome = (run.state, score, took, Cell(run.message, data=True))
        rows.append([Cell(run.run, code=True), setting, seed, fold, *outcome])
    return Section(
        "runs", "Runs", [TableBlock(columns, rows, "All runs of the plan; folders in cells/.")]
    )
