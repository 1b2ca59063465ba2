"""The errors to look at first: those that the model was surest of, with their text."""

from collections.abc import Sequence

import numpy as np

from bertctl.metrics.tagging import Entity, entities
from bertctl.reporting.document import Block, Cell, Column, Note, Section, Table
from bertctl.reporting.judging import Judge, confidence, marks_entities
from bertctl.reporting.runs import Line

BRIEF = 10
"""Errors that a short format shows."""

MOST_CHARACTERS = 600
"""Characters of a text that are shown; the rest is counted."""

_TEXTS = {
    "text-classification": ("text", "pair"),
    "text-regression": ("text", "pair"),
    "multiple-choice": ("context",),
    "question-answering": ("question", "context"),
}


def mistakes_section(lines: Sequence[Line], task: str, judged: Judge, *, most: int) -> Section:
    """The section of the most confident errors.

    Args:
        lines: of a prediction file.
        task: as in `recipe.task`.
        judged: these lines, judged.
        most: errors to show.
    """
    wrong = np.flatnonzero(judged.wrong)
    order = wrong[np.argsort(-judged.weights[wrong], kind="stable")][:most]
    title = "Largest errors" if task == "text-regression" else "Most confident errors"
    blocks: list[Block] = []
    if not wrong.size:
        blocks.append(Note(f"Not one of the {len(lines)} answers is wrong."))
    elif most:
        columns, rows = _table(
            [lines[i] for i in order], task, with_entities=task == "token-classification" and marks_entities(lines)
        )
        caption = f"{wrong.size:,} in all, {_order(lines[0], task)}."
        blocks.append(Table(columns, rows, caption, stacked=True, brief=BRIEF))
        if not any(_texts(line, task) for line in lines):
            blocks.append(Note("The run was made without texts (evaluation.keep_text is false): look them up by id."))
    return Section("errors", title, blocks)


def _order(line: Line, task: str) -> str:
    if task == "text-regression":
        return "the farthest off first"
    if task == "token-classification" or isinstance(line["prediction"], list):
        return "the highest loss first"
    return "the surest first"


def _table(lines: Sequence[Line], task: str, *, with_entities: bool) -> tuple[list[Column], list[list[str | Cell]]]:
    columns = [Column("id"), Column("text"), Column("gold"), Column("predicted")]
    number = _number_name(lines[0], task)
    if number:
        columns.append(Column(number, number=True))
    rows: list[list[str | Cell]] = []
    for line in lines:
        gold, predicted = _sides(line, task, with_entities=with_entities)
        cells: list[str | Cell] = [
            Cell(shorten(str(line["id"]), 80), data=True),
            Cell(shorten("\n".join(_texts(line, task))), data=True),
            Cell(gold, data=True),
            Cell(predicted, data=True),
        ]
        rows.append(cells + ([_number(line, number)] if number else []))
    return columns, rows


def _number_name(line: Line, task: str) -> str:
    if task == "text-regression":
        return "off by"
    if task == "token-classification" or isinstance(line["prediction"], list):
        return "loss"
    return "probability" if line.get("probabilities") or line.get("probability") is not None else ""


def _number(line: Line, name: str) -> str:
    if name == "off by":
        return f"{float(line['prediction']) - float(line['gold']):+.3f}"
    if name == "loss":
        return f"{float(line.get('loss', 0.0)):.3f}"
    return f"{confidence(line):.4f}"


def _sides(line: Line, task: str, *, with_entities: bool) -> tuple[str, str]:
    gold, predicted = line["gold"], line["prediction"]
    if task == "token-classification":
        if with_entities:
            wanted, given = set(entities(gold)), set(entities(predicted))
            return _entities(line, wanted - given), _entities(line, given - wanted)
        off = [i for i, (one, other) in enumerate(zip(gold, predicted, strict=True)) if one != other]
        return _tags(line, gold, off), _tags(line, predicted, off)
    if task == "question-answering":
        answers = list(dict.fromkeys(gold))
        return shorten(" | ".join(answers) or "(no answer)", 200), shorten(predicted or "(no answer)", 200)
    if task == "multiple-choice":
        choices = line.get("choices") or []
        return _choice(choices, gold), _choice(choices, predicted)
    if isinstance(gold, list):
        return ", ".join(map(str, gold)) or "(none)", ", ".join(map(str, predicted)) or "(none)"
    if task == "text-regression":
        return f"{float(gold):g}", f"{float(predicted):.3f}"
    return str(gold), str(predicted)


def _choice(choices: Sequence[str], number: int) -> str:
    return shorten(f"{number}: {choices[number]}", 200) if number < len(choices) else str(number)


def _entities(line: Line, found: set[Entity]) -> str:
    words = line.get("words") or []
    named = sorted(found, key=lambda span: span[1])
    shown = [f"{kind}: {' '.join(words[start:end]) or f'words {start} to {end - 1}'}" for kind, start, end in named]
    return shorten("; ".join(shown) or "(nothing)", 300)


def _tags(line: Line, tags: Sequence[str], places: Sequence[int]) -> str:
    words: Sequence[str] = line.get("words") or [str(i) for i in range(len(tags))]
    return shorten("; ".join(f"{words[i]}: {tags[i]}" for i in places), 300)


def _texts(line: Line, task: str) -> list[str]:
    if task == "token-classification":
        return [" ".join(line["words"])] if line.get("words") else []
    return [str(line[name]) for name in _TEXTS.get(task, ("text",)) if line.get(name) is not None]


def shorten(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, or its beginning and how many characters more there are."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} characters more)"
