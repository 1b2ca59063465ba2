"""What answers rest on, for people.

The words of a text are shaded by what they contribute, with how far to believe it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from rich.text import Text

from bertctl.reporting.document import Block, Note, Passage, Report, Section, ShadedWord
from bertctl.reporting.mistakes import shorten
from bertctl.words import count, count_of, harmless

MOST_ROWS = 500
"""Rows of a page."""
_NAMED = 5  # words that a note names
_DECIMALS = 2  # of numbers, more where the largest of them is below 0.1
_MOST_DECIMALS = 6
_SHADED = 0.05  # of the strongest word's number: less is not shaded

READING = (
    "A word's number is its share of the value: the network's output for the answer (a logit, a "
    "score, an answer's start and end) above its output for the same text of empty tokens. Blue "
    "words speak for the answer; red, underlined ones against it. Rollout shows where attention "
    "leads, which is not evidence for any label."
)


def passages(line: Mapping[str, Any]) -> Iterator[Passage]:
    """Yields shaded texts that explain the answers of a row: one per answer and method.

    Args:
        line: An explained row, as `explain` gives it. Each of its `targets` is a number of the
            model that was explained, such as the logit of a label.
    """
    prediction = line["prediction"]
    if isinstance(prediction, float):
        answer = f"{prediction:.4g}"
    else:
        answer = shorten(str(prediction), 80)
    if not line["targets"]:
        yield Passage(f"{line['id']}: nothing to explain in {answer}", (), "")
    for target in line["targets"]:
        target_names = [
            str(target[name]) or "no answer"
            for name in ("label", "type", "tag", "answer")
            if name in target
        ]
        if "choice" in target:
            target_names.append(f"choice {target['choice']}")
        if "text" in target:
            target_names.append(f"'{target['text']}'")
        if "gold" in line:
            gold = f", gold {shorten(str(line['gold']), 80)}"
        else:
            gold = ""
        for method, facts in target["methods"].items():
            probability = _probability(line, target)
            value = f"value {format_number(target['value'], target['value'])}"
            subject = " ".join(target_names) or answer
            title = f"{line['id']}: {subject}{probability}{gold}, {value}, {method}"
            yield Passage(title, _shaded(target["words"], method), _note(target, method, facts))


def _probability(line: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Returns the probability of the label that is explained, if the model gives probabilities."""
    by_label = line.get("probabilities")
    label = target.get("label", line["prediction"])
    if isinstance(by_label, Mapping) and isinstance(label, str):
        probability = by_label.get(label)
    else:
        probability = None
    if probability is None:
        return ""
    return f" (probability {probability:.3f})"


def coloured(line: Mapping[str, Any]) -> Iterator[Text]:
    """Yields an explained row as lines for a terminal.

    The words are in colours, and what counts most is in numbers.
    """
    for passage in passages(line):
        yield from coloured_passage(passage)
    yield Text("")


def coloured_passage(passage: Passage) -> Iterator[Text]:
    """Yields a shaded text as lines for a terminal: its title, the words in colours, its note."""
    if passage.title:
        yield Text(harmless(passage.title), style="bold")
    words = Text()
    for word in passage.words:
        if abs(word.share) < 0.1:
            colour = ""
        elif word.share > 0:
            colour = "green"
        else:
            colour = "red"
        weight = "bold " if abs(word.share) > 0.5 else ""
        words.append(harmless(word.text), f"{weight}{colour}".strip())
    yield words
    yield Text(harmless(passage.note), style="dim")


def _shaded(words: Sequence[Mapping[str, Any]], method: str) -> list[ShadedWord]:
    """Returns the words of a text with their scores, shaded by their share of the strongest one.

    Between them is what parted them in the text: a space, or ` | ` between two columns.

    Args:
        words: Word, column of the data, start, end and the number of each method.
        method: Whose numbers are shown.
    """
    strongest = max((abs(word[method] or 0.0) for word in words), default=0.0) or 1.0
    shaded_words: list[ShadedWord] = []
    column = ""
    end = 0
    for word in words:
        is_new_column = word["column"] != column
        # Rows with a column `words` have each word by itself, so a space parts any two of them.
        has_gap = word["column"] == "words" or word["start"] > end
        if shaded_words and (is_new_column or has_gap):
            shaded_words.append(ShadedWord(" | " if is_new_column else " "))
        if word[method] is None:
            number = ""
        else:
            number = format_number(word[method], strongest)
        share = (word[method] or 0.0) / strongest
        shaded_words.append(
            ShadedWord(word["word"], share if abs(share) >= _SHADED else 0.0, number)
        )
        column = word["column"]
        end = word["end"]
    return shaded_words


def _note(target: Mapping[str, Any], method: str, facts: Mapping[str, Any]) -> str:
    """Returns the sentence under an explanation: its strongest words, and whether to trust them.

    Args:
        target: The number of the model that is explained, with the words of the text.
        method: Method whose scores of the words are shown.
        facts: What is known of the method here, such as its steps and whether it converged.
    """
    numbered_words = [word for word in target["words"] if word[method] is not None]
    ranked = sorted(numbered_words, key=lambda word: -abs(word[method]))[:_NAMED]
    strongest = ranked[0][method] if ranked else 0.0
    words = [
        f"{shorten(word['word'], 40)} {format_number(word[method], strongest)}" for word in ranked
    ]
    clauses = [", ".join(words)]
    if "steps" in facts:
        if facts["converged"]:
            warning = ""
        else:
            warning = "NOT CONVERGED: "
        change = format_number(facts["change"], facts["change"])
        sums = f"all numbers together miss the value by {facts['error']:.1g} of {change}"
        clauses.append(f"{warning}{sums} ({facts['steps']} steps)")
    if method in target.get("faithfulness", ()):
        clauses.append(_without_top_words(target["faithfulness"], method))
    return "; ".join(filter(None, clauses))


def _without_top_words(figures: Mapping[str, Any], method: str) -> str:
    """Returns by how much the value falls without the strongest words, and without random ones.

    If random words matter as much, it warns of the strongest ones.
    """
    drop = figures[method]["comprehensiveness"]
    random_drop = figures["random"]["comprehensiveness"]
    larger_drop = max(abs(drop), abs(random_drop))  # so that both have as many digits
    drop_text = format_number(drop, larger_drop, sign="-")
    random_text = format_number(random_drop, larger_drop, sign="-")
    comparison = (
        f"without the strongest words the value falls by {drop_text}, without as many random ones "
        f"by {random_text}"
    )
    if drop > random_drop:
        return comparison
    return f"{comparison}: do not trust these words"


def _against(figures: Mapping[str, Any], method: str, figure: str) -> str:
    """Returns a figure of a method beside that of words in a random order.

    It says how far they are apart, if that is known: "0.412 (random order 0.108, 5.2 standard
    errors)".
    """
    errors = figures[method].get("standard_errors", {})
    if figure in errors:
        distance = f", {errors[figure]:.1f} standard errors"
    else:
        distance = ""
    value, random_value = (
        format_number(figures[name][figure], figures[name][figure], sign="-")
        for name in (method, "random")
    )
    return f"{value} (random order {random_value}{distance})"


def format_number(value: float, largest: float, *, sign: Literal["+", "-"] = "+") -> str:
    """Returns a number with the decimals that show two digits of the largest one beside it.

    Args:
        value: The number.
        largest: The one of the largest magnitude that is shown with it.
        sign: `+` writes a sign before every number, `-` before negative numbers only.
    """
    magnitude = abs(largest)
    decimals = _DECIMALS
    if 0 < magnitude < 0.1 and math.isfinite(magnitude):
        decimals = 1 - math.floor(math.log10(magnitude))
    if decimals > _MOST_DECIMALS:
        return f"{value:{sign}.1e}"
    text = f"{value:{sign}.{decimals}f}"
    if float(text) == 0:
        return text.removeprefix("-").removeprefix("+")
    return text


def summary_sentences(summary: Mapping[str, Any]) -> list[str]:
    """Returns sentences on all explanations together: how many there are, and how good they are.

    Args:
        summary: Counts of rows, of explained answers (`targets`) and of those whose words don't add
            up to the answer's value (`not_converged`), and the `faithfulness` of each method.
    """
    rows = count(summary["examples"], "row")
    answers = count(summary["targets"], "answer")
    sentences = [f"{answers} of {rows} explained in fp32, against {summary['baseline']}"]
    if summary["not_converged"]:
        missed = count_of(summary["not_converged"], summary["targets"], "answer")
        sentences.append(f"the sum is off by more than 1 % in {missed}: `converged` is false there")
    figures = summary.get("faithfulness", {})
    for method in figures:
        # Words in a random order are what `_against` compares each method with.
        if method == "random":
            continue
        figures_text = ", ".join(
            f"{name} {_against(figures, method, name)}"
            for name in ("comprehensiveness", "sufficiency")
        )
        explained = count(figures[method]["targets"], "answer")
        sentences.append(f"faithfulness of {method}, {explained}: {figures_text}")
    return sentences


def doubts(summary: Mapping[str, Any], *, has_notes: bool = False) -> list[str]:
    """Returns a sentence for each method whose top words matter no more than random words.

    Args:
        summary: Figures of all explanations.
        has_notes: Whether each explanation is shown with its note.
    """
    # The note of a single explanation says the same.
    if has_notes and summary["targets"] == 1:
        return []
    figures = summary.get("faithfulness", {})
    sentences = []
    for method in figures:
        # Words in a random order are what each method is compared with.
        if method == "random":
            continue
        change = figures[method]["comprehensiveness"]
        random_change = figures["random"]["comprehensiveness"]
        if change <= random_change:
            larger_change = max(abs(change), abs(random_change))  # so that both have as many digits
            of_top_words = format_number(change, larger_change, sign="-")
            of_random_words = format_number(random_change, larger_change, sign="-")
            sentences.append(
                f"without the words that {method} ranks highest the answer changes by "
                f"{of_top_words}, without random ones by {of_random_words}: "
                "its words explain nothing here"
            )
    return sentences


def explained_section(
    lines: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], *, title: str
) -> Section:
    """Returns explained rows as a section, with how to read it and the figures of all of them."""
    blocks: list[Block] = [
        Note(READING),
        *map(Note, [*summary_sentences(summary), *doubts(summary, has_notes=True)]),
    ]
    for line in lines:
        blocks += passages(line)
    return Section("explained", title, blocks)


def explained_page(
    run: str, lines: Iterable[dict[str, Any]], summary: Callable[[], Mapping[str, Any]]
) -> Report:
    """Returns a page of the first `MOST_ROWS` rows; all are counted.

    Args:
        run: its name.
        lines: explained rows, as `explain` gives them.
        summary: Returns the figures of all explanations; called when all lines have been read.
    """
    rows = iter(lines)
    first_rows = list(islice(rows, MOST_ROWS))
    n_left_out = sum(1 for _ in rows)
    if n_left_out:
        rows_text = f"the first {MOST_ROWS} of {MOST_ROWS + n_left_out:,} rows"
    else:
        rows_text = f"{len(first_rows):,} rows"
    section = explained_section(first_rows, summary(), title="Explained answers")
    return Report("What the answers rest on", f"{run} · {rows_text}", [], [section])
