"""Sections about the answers of one split: by label, calibration, by length, by slice.

Reads prediction lines only.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bertctl.arrays import Bools, Floats
from bertctl.metrics import calibration
from bertctl.metrics.statistics import wilson_interval
from bertctl.reporting import charts
from bertctl.reporting.document import Block, Cell, Chart, Column, Note, Section, TableBlock
from bertctl.reporting.few_shot_results import few_shot_table
from bertctl.reporting.mistakes import shorten
from bertctl.reporting.runs import read_run
from bertctl.reporting.summary import figure, interval, results_table
from bertctl.reporting.terminal import rich_table
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.tasks.answers import Answers, Line, Lines, Outcome
from bertctl.tasks.registry import answer_type
from bertctl.words import as_number, command

MOST_LABELS = 20
"""Labels up to which the whole confusion matrix is shown."""

_MOST_OF_HEADINGS = 60
"""Characters of all headings up to which they stand beside each other as they are read."""

LENGTH_BINS = 5
_MISSING = "(missing)"

WORTH_IT = 0.8
"""Share of the calibration error that a temperature may leave for it to be recommended."""

MOST_SLICES = 20


RESAMPLES = 500
"""Resamples behind the intervals of groups, of which there are many."""


def outcome_section(lines: Lines, answers: Answers) -> Section:
    """Returns the section on right and wrong answers, in the form that fits the task.

    That is a scatter chart of scores, a table of labels, or a confusion matrix.
    """
    outcome = answers.outcome(lines)
    blocks: list[Block] = []
    if outcome.points:  # pairs of a gold and a predicted score
        gold, predicted = map(list, zip(*outcome.points, strict=True))
        chart = partial(charts.scatter_chart, gold, predicted, same_unit=outcome.same_unit)
        if outcome.same_unit:
            caption = "On the dotted line a score is right"
        else:
            caption = "Gold scores and cosines"
        if len(lines) > charts.MAX_POINTS:
            sample_note = f"; {charts.MAX_POINTS} of {len(lines)} examples"
        else:
            sample_note = ""
        blocks.append(Chart(chart, f"{caption}{sample_note}."))
    if outcome.header:
        has_many_labels = len(outcome.rows) > MOST_LABELS
        if has_many_labels and "F1" in outcome.header:
            blocks.append(_worst_first(outcome))
        else:
            blocks.append(outcome_table(outcome))
    if outcome.labels:
        blocks.append(_confusion(lines, outcome.labels))
    return Section("outcome", outcome.title, blocks)


def outcome_table(outcome: Outcome, *, without: str | None = None) -> TableBlock:
    """Returns the figures of an outcome as a table, such as precision and recall by label.

    Args:
        outcome: Figures of each label, with their header.
        without: Columns with this word in their names are left out; None to leave out none.
    """
    column_numbers = [
        number
        for number, name in enumerate(outcome.header)
        if without is None or without not in name
    ]
    columns = [Column(outcome.header[number], number=number > 0) for number in column_numbers]
    rows = []
    for row in outcome.rows:
        cells = [_cell(row[number]) for number in column_numbers]
        rows.append(cells)
    return TableBlock(columns, rows)


def _worst_first(outcome: Outcome) -> TableBlock:
    """Returns the table of many labels, the lowest F1 on top.

    Labels that no answer named are marked.
    """
    f1_column = outcome.header.index("F1")
    rows = sorted(
        outcome.rows,
        key=lambda row: as_number(row[f1_column]) if row[f1_column] is not None else -1.0,
    )
    # A row begins with the label, how often it is gold, and how often it was predicted.
    never_predicted = [row[0] for row in rows if row[1] and not row[2]]
    table = outcome_table(replace(outcome, rows=rows))
    cells = []
    for row, outcome_row in zip(table.cells(), rows, strict=True):
        if outcome_row[0] in never_predicted:
            cells.append([replace(cell, shade=0.4, wrong=True) for cell in row])
        else:
            cells.append(row)
    if never_predicted:
        marked = f" Marked: never predicted ({len(never_predicted)} of {len(rows)})."
    else:
        marked = ""
    return replace(table, rows=cells, caption=f"The lowest F1 first.{marked}")


def closing_tables(
    path: Path, metrics: MetricsDocument, *, dataset: str | None, by_label: bool
) -> tuple[list[Table | str], dict[str, Any]]:
    """Returns the tables that a verb ends with, and the scores by number of windows.

    The tables are the metrics and, if requested, what was right of each label.

    Args:
        path: Folder of the run.
        metrics: Content of its metrics.json.
        dataset: catalog name, for the published score.
        by_label: whether predictions are read, for a table of right answers by label.
    """
    tables: list[Table | str] = [rich_table(results_table(metrics, dataset=dataset))]
    if by_label:
        run = read_run(path)
        for split in metrics.metrics:
            lines = run.lines(split)
            outcome = answer_type(str(run.task)).from_lines(lines).outcome(lines)
            if outcome.header:
                block = outcome_table(outcome, without="interval")
                tables += ["", rich_table(block, title=f"{split}, {outcome.title.lower()}")]
    few_shot = metrics.few_shot
    if few_shot is not None:
        table = few_shot_table(few_shot, metrics.primary)
        tables += ["", rich_table(table), few_shot.sentence]
    by_windows = _window_scores(path, metrics)
    for split, scores in by_windows.items():
        block = _score_table("windows", [*scores["windows"].items()], scores["metric"], data=False)
        tables += ["", rich_table(block, title=f"{split}, by the windows that a text is read in")]
    return tables, by_windows


def _window_scores(path: Path, metrics: MetricsDocument) -> dict[str, dict[str, Any]]:
    """Returns the scores of short and long texts, grouped by the number of windows of a text.

    For each split: `metric`, the name of the score, and `windows`, which maps a number of windows
    to the score of the texts that were read in so many. Splits without long texts are left out.

    Args:
        path: Folder of the run.
        metrics: Content of its metrics.json.
    """
    run = read_run(path)
    window_scores = {}
    for split in metrics.metrics:
        counts = metrics.data.get(split)
        if counts is not None and counts.windowed:
            lines = run.lines(split)
            answers = answer_type(str(run.task)).from_lines(lines)
            scores = _slice_scores([str(line.get("windows", 1)) for line in lines], lines, answers)
            window_scores[split] = {
                "metric": answers.group_score(lines)[0],
                "windows": dict(scores),
            }
    return window_scores


def _cell(value: Any) -> str | Cell:
    """Returns a figure of an outcome as a cell: a label, an interval, a count or a score."""
    if isinstance(value, str):
        return Cell(value, data=True)
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return f"{figure(value[0])} to {figure(value[1])}"
    if isinstance(value, int):
        return f"{value:,}"
    return figure(value)


def _confusion(lines: Lines, labels: Sequence[str]) -> Block:
    """Returns the confusion matrix, or the most frequent confusions of many labels.

    Args:
        lines: Lines of a prediction file.
        labels: In the order of the matrix.
    """
    counts = Counter((line["gold"], line["prediction"]) for line in lines)
    n_gold = Counter(line["gold"] for line in lines)
    if len(labels) > MOST_LABELS:
        confusions = [
            (gold_label, predicted_label, count)
            for (gold_label, predicted_label), count in counts.most_common()
            if gold_label != predicted_label
        ]
        columns = [
            Column("gold"),
            Column("predicted"),
            Column("times", number=True),
            Column("of gold", number=True),
        ]
        rows: list[list[str | Cell]] = [
            [
                Cell(gold_label, data=True),
                Cell(predicted_label, data=True),
                f"{count:,}",
                f"{100 * count / n_gold[gold_label]:.1f} %",
            ]
            for gold_label, predicted_label, count in confusions[:MOST_LABELS]
        ]
        return TableBlock(columns, rows, "The most frequent confusions.")
    are_turned = sum(map(len, labels)) > _MOST_OF_HEADINGS
    columns = [
        Column("gold \\ predicted"),
        *(
            Column(
                name,
                number=True,
                data=True,
                turned=are_turned,
            )
            for name in labels
        ),
    ]
    matrix: list[list[str | Cell]] = []
    for gold_label in labels:
        row: list[str | Cell] = [Cell(gold_label, data=True, strong=True)]
        for predicted_label in labels:
            count = counts[gold_label, predicted_label]
            if n_gold[gold_label]:
                share = count / n_gold[gold_label]
            else:
                share = 0.0
            row.append(Cell(f"{count:,}", shade=share, wrong=gold_label != predicted_label))
        matrix.append(row)
    return TableBlock(
        columns,
        matrix,
        "Confusion matrix: gold labels down, answers across; shaded by share of the gold label.",
    )


def calibration_error(lines: Lines, answers: Answers) -> float | None:
    """Returns the ECE of the answers' probabilities; None where the lines have none."""
    stated = answers.stated(lines)
    if stated is None:
        return None
    return calibration.expected_calibration_error(*stated)


def calibration_section(lines: Lines, answers: Answers, *, calibrated: bool) -> Section:
    """Returns the section on calibration; empty if the answers have no probabilities.

    It has the expected calibration error (ECE), the reliability diagram, and how much a temperature
    would improve the error.

    Args:
        lines: Lines of a prediction file.
        answers: Interpretation of the lines.
        calibrated: Whether the run has a temperature already.
    """
    stated = answers.stated(lines)
    if stated is None:
        return Section("calibration", "Calibration", [])
    probabilities, is_true = stated
    bins = calibration.reliability(probabilities, is_true)
    error = calibration.expected_calibration_error(probabilities, is_true)
    _, limit = calibration.honest_calibration_error(probabilities)
    caption = (
        "Share right by the probability given, with 95 % intervals; honest probabilities lie on "
        "the dotted line."
    )
    blocks: list[Block] = [
        Note(_calibration_words(stated, error, limit, answers) + _of_all_labels(lines, answers)),
        Chart(partial(charts.reliability_chart, bins), caption),
        _reliability_table(bins),
    ]
    if calibrated or error <= limit:
        hint = None
    else:
        hint = _temperature_hint(lines, answers, error)
    if hint:
        blocks.insert(1, Note(hint))
    return Section("calibration", "Calibration", blocks)


def _calibration_words(
    stated: tuple[Floats, Bools], error: float, limit: float, answers: Answers
) -> str:
    """Returns whether the model's probabilities are honest, too high or too low, in sentences.

    Honest means: of the answers with a probability of 0.8, about 80 % are right.

    Args:
        stated: Probabilities, and whether what they are about is true.
        error: Their expected calibration error.
        limit: The error that honest probabilities stay below in 95 % of such sets.
        answers: What the answers mean.
    """
    probabilities, is_true = stated
    if answers.multi_label:
        share_name = "of labels that are there"
    else:
        share_name = "right"
    mean = float(probabilities.mean())
    share = float(is_true.mean())
    low, high = wilson_interval(int(is_true.sum()), is_true.size)
    if error <= limit:
        verdict = "That is not more than chance"
    elif mean > high:
        verdict = "The probabilities are too high"
    elif mean < low:
        verdict = "The probabilities are too low"
    else:
        verdict = "The probabilities are too high in some places and too low in others"
    return (
        f"Expected calibration error (ECE, {calibration.BINS} bins of equal width): "
        f"{figure(error)}. "
        f"Mean probability {figure(mean)}, share {share_name} {figure(share)}. "
        f"{verdict}: honest probabilities have an ECE below {figure(limit)} in 19 of 20 such sets."
    )


def _of_all_labels(lines: Lines, answers: Answers) -> str:
    """Returns calibration over all labels as a sentence; empty without distributions."""
    distributions = answers.distributions(lines)
    if distributions is None:
        return ""
    error = calibration.classwise_calibration_error(*distributions)
    brier = calibration.brier_score(*distributions, multi_label=answers.multi_label)
    return (
        f" Over all labels: ECE {figure(error)} on average, Brier score {figure(brier)} "
        "(0 is perfect)."
    )


def _reliability_table(bins: Sequence[calibration.ReliabilityBin]) -> TableBlock:
    """Returns a row for each bin of probabilities that has answers."""
    names = ("probability", "answers", "mean probability", "share right", "95 % interval")
    columns = [Column(name, number=True) for name in names]
    rows: list[list[str | Cell]] = []
    for bin_ in bins:
        if not bin_.n:
            continue
        low = figure(bin_.low or 0.0)
        high = figure(bin_.high or 0.0)
        rows.append(
            [
                f"{bin_.above:.2f} to {bin_.to:.2f}",
                f"{bin_.n:,}",
                figure(bin_.confidence or 0.0),
                figure(bin_.accuracy or 0.0),
                f"{low} to {high}",
            ]
        )
    # A short format (`brief`) shows no row of it: there the sentence above says enough.
    return TableBlock(columns, rows, brief=0)


def _temperature_hint(lines: Lines, answers: Answers, ece: float) -> str | None:
    """Returns what temperature scaling would do; None if it can't be fitted or is not worth it.

    Args:
        lines: Lines of a prediction file.
        answers: Interpretation of the lines.
        ece: Expected calibration error (ECE) of the probabilities in the lines.
    """
    calibrated = answers.calibrated(lines)
    if calibrated is None:
        return None
    temperature, scaled_probabilities, is_right = calibrated
    scaled_ece = calibration.expected_calibration_error(scaled_probabilities, is_right)
    if scaled_ece > WORTH_IT * ece:
        return None
    return (
        f"Dividing the logits by a temperature of {temperature:.3f}, fitted on these very "
        f"examples, would bring the ECE to {figure(scaled_ece)}. "
        f"`{command('evaluate RUN', calibrate=True)}` stores it in the run."
    )


def length_section(lines: Lines, answers: Answers) -> Section:
    """Returns the section on scores by number of tokens, in bins of about equal size.

    It is empty if there are too few examples, or if nearly all have the same length.
    """
    tokens = np.array([int(line.get("tokens", 0)) for line in lines])
    edges = np.unique(
        np.quantile(tokens, np.linspace(0, 1, LENGTH_BINS + 1), method="inverted_cdf")
    )
    if len(lines) < 4 * LENGTH_BINS or len(edges) < 3:
        return Section("length", "By length", [])
    names = []
    scores = []
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        shortest = low if number == 0 else low + 1  # the edge itself is in the bin before
        names.append(f"{shortest}–{high}" if shortest < high else f"{high}")
        group = list(itertools.compress(lines, (shortest <= tokens) & (tokens <= high)))
        scores.append(_group_score(group, answers))
    score = answers.group_score(lines)[0]
    chart = partial(
        charts.group_chart,
        names,
        scores,
        score=score,
        group="tokens",
    )
    blocks: list[Block] = [
        Chart(chart, f"{score[0].upper()}{score[1:]} by length in tokens, with 95 % intervals."),
        _score_table("tokens", list(zip(names, scores, strict=True)), score, data=False),
    ]
    return Section("length", "By length", blocks, brief=False)


def _group_score(lines: Lines, answers: Answers) -> dict[str, Any]:
    """Returns `value`, `low`, `high` and `n` of a group of lines.

    The ends are those of the 95 % interval, None where there is none.
    """
    return answers.group_score(lines)[1].metric(resamples=RESAMPLES).as_json()


def _score_table(
    heading: str, groups: Sequence[tuple[str, Mapping[str, Any]]], score: str, *, data: bool
) -> TableBlock:
    """Returns a row for each group: how many examples it has, its score and interval.

    Args:
        heading: What the groups are.
        groups: Name of a group, and its `value`, `low`, `high` and `n`.
        score: What is scored.
        data: Whether the names are text of the data set.
    """
    columns = [
        Column(heading, data=data),
        *(Column(name, number=True) for name in ("n", score, "95 % interval")),
    ]
    rows: list[list[str | Cell]] = [
        [
            Cell(shorten(name, 60), data=data),
            f"{group_score['n']:,}",
            figure(group_score["value"]),
            interval(group_score["low"], group_score["high"]),
        ]
        for name, group_score in groups
    ]
    return TableBlock(columns, rows)


def slice_section(lines: Lines, answers: Answers, columns: Sequence[str]) -> Section:
    """Returns the score of each value of each slice column, and of cut and whole texts.

    Args:
        lines: Lines of a prediction file.
        answers: Interpretation of the lines.
        columns: The slice columns; those that the lines don't have are left out.
    """
    blocks: list[Block] = []
    for column in columns:
        if column not in lines[0]:
            continue
        values = [
            _MISSING if line.get(column) in (None, "") else str(line[column]) for line in lines
        ]
        blocks.append(_slices(column, values, lines, answers))
    cut = ["cut" if line.get("truncated") else "whole" for line in lines]
    if "cut" in cut:
        blocks.append(_slices("text", cut, lines, answers))
    return Section("slices", "By slice", blocks)


def _slices(column: str, values: Sequence[str], lines: Lines, answers: Answers) -> TableBlock:
    """Returns the table of scores by the values of a column."""
    scores = _slice_scores(values, lines, answers)
    score_name, _ = answers.group_score(lines)
    return _score_table(column, scores, score_name, data=True)


def _slice_scores(
    values: Sequence[str], lines: Lines, answers: Answers
) -> list[tuple[str, dict[str, Any]]]:
    """Returns the score of each value of a column, in the order of a table.

    Rare values are scored together, as "12 other values".

    Args:
        values: The value of each line.
        lines: Lines of a prediction file.
        answers: Interpretation of the lines.
    """
    # A group is one value, or a range if there are many numbers.
    group_names, shown_groups = _in_order(values)
    groups: dict[str, list[Line]] = {name: [] for name in shown_groups}
    other_lines: list[Line] = []
    for name, line in zip(group_names, lines, strict=True):
        groups.get(name, other_lines).append(line)
    scores = [(name, _group_score(group, answers)) for name, group in groups.items()]
    if other_lines:
        n_other_values = len(set(group_names)) - len(groups)
        scores.append((f"{n_other_values} other values", _group_score(other_lines, answers)))
    return scores


def _in_order(values: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Returns the group of each line by its value of a column, and the groups in a table's order.

    Up to 20 different numbers are a group each, sorted by size. More of them are grouped as ranges
    of about as many lines each. Values that aren't numbers are sorted by frequency: the 20 most
    frequent ones are groups, and the groups of other lines aren't in the order.

    Args:
        values: The value of each line.
    """
    value_counts = Counter(values)
    numbers = _as_numbers([value for value in value_counts if value != _MISSING])
    if numbers is None:
        return values, [value for value, _ in value_counts.most_common(MOST_SLICES)]

    missing = [_MISSING] if _MISSING in value_counts else []
    if len(numbers) <= MOST_SLICES:
        return values, [*sorted(numbers, key=numbers.__getitem__), *missing]
    all_numbers = [numbers[value] for value in values if value != _MISSING]
    edges = np.unique(
        np.quantile(all_numbers, np.linspace(0, 1, LENGTH_BINS + 1), method="inverted_cdf")
    )
    names = [f"{low:.12g} to {high:.12g}" for low, high in itertools.pairwise(edges)]
    range_of_value = {}
    for value, number in numbers.items():
        # An edge belongs to the range that it ends, the lowest one to the first range.
        range_number = max(0, int(np.searchsorted(edges, number)) - 1)
        range_of_value[value] = names[range_number]
    return [range_of_value.get(value, value) for value in values], [*names, *missing]


def _as_numbers(values: Sequence[str]) -> dict[str, float] | None:
    """Returns each value as a number; None if one of them is not a finite number."""
    try:
        numbers = {value: float(value) for value in values}
    except ValueError:
        return None
    if not all(map(isfinite, numbers.values())):
        return None
    return numbers
