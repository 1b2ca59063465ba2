"""Sections about the answers of one split: by label, calibration, by length, by slice. Reads prediction lines only."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import DataError
from bertctl.metrics import calibration
from bertctl.metrics.answers import answer_exact, answer_f1
from bertctl.metrics.statistics import wilson_interval
from bertctl.metrics.tagging import scores_by_type
from bertctl.reporting import charts
from bertctl.reporting.document import Block, Cell, Chart, Column, Note, Section, Table
from bertctl.reporting.judging import Judge, marks_entities, stated_probabilities
from bertctl.reporting.mistakes import shorten
from bertctl.reporting.runs import Line
from bertctl.reporting.summary import figure, interval

MOST_LABELS = 20
"""Labels up to which the whole confusion matrix is shown."""

LENGTH_BINS = 5

WORTH_IT = 0.8
"""Share of the calibration error that a temperature may leave for it to be recommended."""

MOST_SLICES = 20


def label_names(lines: Sequence[Line]) -> list[str]:
    """Label names in the model's order, which the probabilities have; else sorted as found."""
    probabilities = lines[0].get("probabilities")
    if isinstance(probabilities, Mapping):
        return list(probabilities)
    found: set[str] = set()
    for line in lines:
        for side in (line["gold"], line["prediction"]):
            found.update(map(str, side) if isinstance(side, list) else [str(side)])
    return sorted(found)


def outcome_section(lines: Sequence[Line], task: str) -> Section:
    """What was right and what was taken for what, in the form that fits the task."""
    if task == "text-regression":
        gold = [float(line["gold"]) for line in lines]
        chart = partial(charts.scatter_chart, gold, [float(line["prediction"]) for line in lines])
        more = f"; {charts.MAX_POINTS} of {len(lines)} examples" if len(lines) > charts.MAX_POINTS else ""
        return Section(
            "outcome", "Predicted and true scores", [Chart(chart, f"On the dotted line a score is right{more}.")]
        )
    if task == "token-classification":
        return Section("outcome", "By type" if marks_entities(lines) else "By tag", [_tag_table(lines)])
    if task == "question-answering":
        return Section("outcome", "Answerable or not", [_answerable_table(lines)])
    if task == "multiple-choice":
        return Section("outcome", "By place of the right choice", [_choice_table(lines)])
    labels = label_names(lines)
    if isinstance(lines[0]["prediction"], list):
        return Section("outcome", "By label", [_label_table(lines, labels)])
    blocks = [_label_table(lines, labels), _confusion(lines, labels)]
    return Section("outcome", "By label", blocks)


def _sets(side: Any) -> set[Any]:
    return set(side) if isinstance(side, list) else {side}


def _label_table(lines: Sequence[Line], labels: Sequence[str]) -> Table:
    gold, given, right = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        wanted, answered = _sets(line["gold"]), _sets(line["prediction"])
        gold.update(wanted)
        given.update(answered)
        right.update(wanted & answered)
    return _counted_table("label", labels, gold, given, right)


def _tag_table(lines: Sequence[Line]) -> Table:
    gold, given, right = Counter[str](), Counter[str](), Counter[str]()
    if marks_entities(lines):
        for row in scores_by_type([line["gold"] for line in lines], [line["prediction"] for line in lines]):
            gold[row.type], given[row.type], right[row.type] = row.gold, row.predicted, row.correct
        return _counted_table("type", list(gold), gold, given, right)
    for line in lines:
        gold.update(line["gold"])
        given.update(line["prediction"])
        right.update(one for one, other in zip(line["gold"], line["prediction"], strict=True) if one == other)
    return _counted_table("tag", sorted({*gold, *given}), gold, given, right)


def _counted_table(
    what: str, names: Sequence[str], gold: Counter[str], given: Counter[str], right: Counter[str]
) -> Table:
    columns = [
        Column(what),
        Column("in gold", number=True),
        Column("predicted", number=True),
        Column("precision", number=True),
        Column("recall", number=True),
        Column("95 % interval of recall", number=True),
        Column("F1", number=True),
    ]
    rows: list[list[str | Cell]] = []
    for name in names:
        wanted, answered, hits = gold[name], given[name], right[name]
        low, high = wilson_interval(hits, wanted)
        rows.append(
            [
                Cell(name, data=True),
                f"{wanted:,}",
                f"{answered:,}",
                figure(hits / answered) if answered else "–",
                figure(hits / wanted) if wanted else "–",
                f"{figure(low)} to {figure(high)}" if wanted else "",
                figure(2 * hits / (wanted + answered)) if wanted + answered else "–",
            ]
        )
    return Table(columns, rows)


def _confusion(lines: Sequence[Line], labels: Sequence[str]) -> Block:
    pairs = Counter((line["gold"], line["prediction"]) for line in lines)
    gold = Counter(line["gold"] for line in lines)
    if len(labels) > MOST_LABELS:
        mixed = [(pair, count) for pair, count in pairs.most_common() if pair[0] != pair[1]][:MOST_LABELS]
        columns = [Column("gold"), Column("predicted"), Column("times", number=True), Column("of gold", number=True)]
        rows: list[list[str | Cell]] = [
            [Cell(one, data=True), Cell(other, data=True), f"{count:,}", f"{100 * count / gold[one]:.1f} %"]
            for (one, other), count in mixed
        ]
        return Table(columns, rows, "The most frequent confusions.")
    columns = [Column("gold \\ predicted"), *(Column(name, number=True, data=True) for name in labels)]
    matrix: list[list[str | Cell]] = []
    for one in labels:
        row: list[str | Cell] = [Cell(one, data=True, strong=True)]
        for other in labels:
            count = pairs[one, other]
            share = count / gold[one] if gold[one] else 0.0
            row.append(Cell(f"{count:,}", shade=share, wrong=one != other))
        matrix.append(row)
    return Table(
        columns, matrix, "Confusion matrix: gold labels down, answers across; shaded by share of the gold label."
    )


def _choice_table(lines: Sequence[Line]) -> Table:
    places = range(1 + max(max(int(line["gold"]), int(line["prediction"])) for line in lines))
    gold = Counter(str(line["gold"]) for line in lines)
    given = Counter(str(line["prediction"]) for line in lines)
    right = Counter(str(line["gold"]) for line in lines if line["gold"] == line["prediction"])
    return _counted_table("choice", [str(place) for place in places], gold, given, right)


def _answerable_table(lines: Sequence[Line]) -> Table:
    groups = {"all": list(lines)}
    without = [line for line in lines if not line["gold"]]
    if without:
        groups |= {"answerable": [line for line in lines if line["gold"]], "unanswerable": without}
    columns = [
        Column("questions"),
        Column("n", number=True),
        Column("exact match", number=True),
        Column("95 % interval", number=True),
        Column("F1", number=True),
        Column("left unanswered", number=True),
    ]
    rows: list[list[str | Cell]] = []
    for name, group in groups.items():
        if not group:
            continue
        matches = sum(int(answer_exact(line["prediction"], line["gold"])) for line in group)
        low, high = wilson_interval(matches, len(group))
        f1 = sum(answer_f1(line["prediction"], line["gold"]) for line in group) / len(group)
        silent = sum(not line["prediction"] for line in group) / len(group)
        rows.append(
            [
                name,
                f"{len(group):,}",
                figure(matches / len(group)),
                f"{figure(low)} to {figure(high)}",
                figure(f1),
                f"{100 * silent:.1f} %",
            ]
        )
    return Table(columns, rows)


def calibration_error(lines: Sequence[Line], task: str) -> float | None:
    """ECE of the answers' probabilities; None where the lines have none."""
    stated = stated_probabilities(lines, task)
    return None if stated is None else calibration.expected_calibration_error(*stated)


def calibration_section(lines: Sequence[Line], task: str, *, calibrated: bool) -> Section:
    """Reliability diagram, ECE and what a temperature would make of it; empty where the lines have no probabilities.

    Args:
        lines: of a prediction file.
        task: as in `recipe.task`.
        calibrated: whether the run has a temperature already.
    """
    stated = stated_probabilities(lines, task)
    if stated is None:
        return Section("calibration", "Calibration", [])
    probability, held = stated
    bins = calibration.reliability(probability, held)
    error = calibration.expected_calibration_error(probability, held)
    _, limit = calibration.honest_calibration_error(probability)
    caption = "Share right by the probability given, with 95 % intervals; honest probabilities lie on the dotted line."
    blocks: list[Block] = [
        Note(_calibration_words(probability, held, error, limit)),
        Chart(partial(charts.reliability_chart, bins), caption),
        _reliability_table(bins),
    ]
    hint = None if calibrated or error <= limit else _temperature_hint(lines, error)
    if hint:
        blocks.insert(1, Note(hint))
    return Section("calibration", "Calibration", blocks)


def _calibration_words(probability: NDArray[np.float64], held: NDArray[np.bool_], error: float, limit: float) -> str:
    mean, share = float(probability.mean()), float(held.mean())
    low, high = wilson_interval(int(held.sum()), held.size)
    if error <= limit:
        verdict = "That is no more than chance"
    elif mean > high:
        verdict = "The model is too sure of itself"
    elif mean < low:
        verdict = "The model is not sure enough of itself"
    else:
        verdict = "The probabilities are too high in some places and too low in others"
    return (
        f"Expected calibration error (ECE, {calibration.BINS} bins of equal width): {figure(error)}. "
        f"Mean probability {figure(mean)}, share right {figure(share)}. "
        f"{verdict}: honest probabilities have an ECE below {figure(limit)} in 19 of 20 such sets."
    )


def _reliability_table(bins: Sequence[calibration.ReliabilityBin]) -> Table:
    columns = [
        Column("probability", number=True),
        Column("answers", number=True),
        Column("mean probability", number=True),
        Column("share right", number=True),
        Column("95 % interval", number=True),
    ]
    rows: list[list[str | Cell]] = [
        [
            f"{bin_.above:.2f} to {bin_.to:.2f}",
            f"{bin_.n:,}",
            figure(bin_.confidence or 0.0),
            figure(bin_.accuracy or 0.0),
            f"{figure(bin_.low or 0.0)} to {figure(bin_.high or 0.0)}",
        ]
        for bin_ in bins
        if bin_.n
    ]
    return Table(columns, rows, brief=0)


def _temperature_hint(lines: Sequence[Line], before: float) -> str | None:
    """What temperature scaling would do; None where it does not apply, can't be fitted, or is not worth it."""
    if not isinstance(lines[0].get("probabilities"), Mapping):
        return None
    labels = label_names(lines)
    multi_label = isinstance(lines[0]["prediction"], list)
    logits = calibration.log_odds(
        [[line["probabilities"][name] for name in labels] for line in lines], multi_label=multi_label
    )
    if multi_label:
        gold = np.array([[name in line["gold"] for name in labels] for line in lines], dtype=np.int64)
    else:
        gold = np.array([labels.index(line["gold"]) for line in lines])
    try:
        temperature = calibration.fit_temperature(logits, gold, multi_label=multi_label)
    except DataError:
        return None
    scaled = calibration.scaled_probabilities(logits, temperature, multi_label=multi_label)
    if multi_label:
        after = calibration.expected_calibration_error(scaled.ravel(), gold.ravel())
    else:
        after = calibration.expected_calibration_error(scaled.max(axis=1), scaled.argmax(axis=1) == gold)
    if after > WORTH_IT * before:
        return None
    return (
        f"Dividing the logits by a temperature of {temperature:.3f}, fitted on these very examples, would bring the "
        f"ECE to {figure(after)}. `bertctl evaluate RUN --calibrate` stores it in the run."
    )


def length_section(lines: Sequence[Line], judged: Judge) -> Section:
    """The score by number of tokens, in bins of about as many examples each; empty where lengths say nothing."""
    tokens = np.array([int(line.get("tokens", 0)) for line in lines])
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, LENGTH_BINS + 1), method="inverted_cdf"))
    if len(lines) < 4 * LENGTH_BINS or len(edges) < 3:
        return Section("length", "By length", [])
    groups = []
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        first = low if number == 0 else low + 1
        inside = np.flatnonzero((tokens >= first) & (tokens <= high))
        groups.append((f"{first}–{high}" if first < high else f"{high}", judged.score(inside)))
    names, scores = [name for name, _ in groups], [score for _, score in groups]
    chart = partial(charts.group_chart, names, scores, score=judged.name, group="tokens")
    blocks: list[Block] = [
        Chart(chart, f"{judged.name[0].upper()}{judged.name[1:]} by length in tokens, with 95 % intervals."),
        _score_table("tokens", groups, judged.name, data=False),
    ]
    return Section("length", "By length", blocks, brief=False)


def _score_table(what: str, groups: Sequence[tuple[str, Mapping[str, Any]]], score: str, *, data: bool) -> Table:
    columns = [Column(what, data=data), Column("n", number=True), Column(score, number=True)]
    columns.append(Column("95 % interval", number=True))
    rows: list[list[str | Cell]] = [
        [Cell(name, data=data), f"{found['n']:,}", figure(found["value"]), interval(found)] for name, found in groups
    ]
    return Table(columns, rows)


def slice_section(lines: Sequence[Line], judged: Judge, columns: Sequence[str]) -> Section:
    """The score of each value of each slice column, and of cut and whole texts; the most frequent values first.

    Args:
        lines: of a prediction file.
        judged: these lines, judged.
        columns: the slice columns; those that the lines don't have are left out.
    """
    blocks: list[Block] = []
    for column in columns:
        if column not in lines[0]:
            continue
        values = [_slice_value(line.get(column)) for line in lines]
        blocks.append(_slices(column, values, judged))
    cut = ["cut" if line.get("truncated") else "whole" for line in lines]
    if "cut" in cut:
        blocks.append(_slices("text", cut, judged))
    return Section("slices", "By slice", blocks)


def _slices(column: str, values: Sequence[str], judged: Judge) -> Table:
    counted = Counter(values)
    kept = [value for value, _ in counted.most_common(MOST_SLICES)]
    places: dict[str, list[int]] = {value: [] for value in kept}
    rest: list[int] = []
    for place, value in enumerate(values):
        places.get(value, rest).append(place)
    groups = [(value, judged.score(np.array(found))) for value, found in places.items()]
    table = _score_table(column, groups, judged.name, data=True)
    if rest:
        others = judged.score(np.array(rest))
        last: list[str | Cell] = [f"{len(counted) - len(kept)} other values", f"{others['n']:,}"]
        table = Table(table.columns, [*table.rows, [*last, figure(others["value"]), interval(others)]])
    return table


def _slice_value(value: object) -> str:
    return "(missing)" if value is None or value == "" else shorten(str(value), 60)
