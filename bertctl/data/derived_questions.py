"""Unanswerable questions out of answerable ones: a question paired with another paragraph of its article."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.progress import Listener

_NEAREST = 64
"""Paragraphs of an article that are looked at for one question, those behind its own first."""

_STREAM = 3
"""So that draws from one seed have nothing to do with those for hold-outs and samples."""

_WORD = re.compile(r"\w+")


def derive_questions(rows: Rows, recipe: Recipe, listener: Listener) -> Rows:
    """The training rows with as many unanswerable questions as `question_answering.derive_unanswerable` asks for."""
    share = recipe.question_answering.derive_unanswerable
    if not share:
        return rows
    derived, made = with_unanswerable(rows, share, seed=recipe.training.seed)
    listener.say(
        f"train: {made} unanswerable questions are derived from the {len(rows)} rows: a question with another "
        f"paragraph of its article (question_answering.derive_unanswerable {share:g}, seed {recipe.training.seed})"
    )
    return derived


def with_unanswerable(rows: Rows, share: float, *, seed: int) -> tuple[Rows, int]:
    """The rows, and behind them questions that their context does not answer.

    Each comes from a question that has an answer, drawn without repetition. Of the other paragraphs of its article
    (all other contexts, where rows have no `title`) those that hold none of its answers can take their place; of up to
    64 the one that shares the most, and the rarest, words with the question does, so that words in common alone do not
    show whether there is an answer. SQuAD 2.0's own unanswerable questions were written for their paragraph: harder.

    Args:
        rows: labelled questions.
        share: how many to make, as a share of the answerable ones.
        seed: decides which questions.

    Returns:
        The rows, and how many were made: fewer than asked for where an article has no paragraph that fits. Their ids
        are those of the questions they come from with `-elsewhere` behind.
    """
    answerable = [i for i, label in enumerate(rows.columns["label"]) if label["text"]]
    wanted = round(share * len(answerable))
    if not wanted:
        return rows, 0
    texts, titles = rows.columns["context"], rows.columns.get("title", [None] * len(rows))
    articles: dict[object, list[str]] = {}
    for title, text in dict.fromkeys(zip(titles, texts, strict=True)):
        articles.setdefault(title, []).append(text)
    shelves = {title: _Article(paragraphs) for title, paragraphs in articles.items()}
    rng = np.random.default_rng([seed, _STREAM])
    made: dict[int, str] = {}
    for position in rng.permutation(len(answerable)):
        index = answerable[int(position)]
        found = shelves[titles[index]].unanswering(
            rows.columns["question"][index], texts[index], rows.columns["label"][index]["text"]
        )
        if found is not None:
            made[index] = found
        if len(made) == wanted:
            break
    order = sorted(made)
    added = rows.select(order)
    columns = dict(added.columns) | {
        "context": [made[i] for i in order],
        "label": [{"text": [], "answer_start": []} for _ in order],
    }
    both = {name: [*values, *columns[name]] for name, values in rows.columns.items()}
    ids = [*rows.ids, *(f"{rows.ids[i]}-elsewhere" for i in order)]
    return replace(rows, columns=both, ids=ids, lines=[*rows.lines, *added.lines]), len(order)


class _Article:
    """The paragraphs of an article, and how rare their words are in it."""

    def __init__(self, paragraphs: Sequence[str]) -> None:
        self.paragraphs = paragraphs
        self.folded = [text.casefold() for text in paragraphs]
        self.words = [set(_WORD.findall(text)) for text in self.folded]
        self.spread = Counter(word for words in self.words for word in words)
        self.places = {text: place for place, text in enumerate(paragraphs)}

    def unanswering(self, question: str, own: str, answers: Sequence[str]) -> str | None:
        """The paragraph that is likest to the question and has none of its answers; None where there is none."""
        asked = set(_WORD.findall(question.casefold()))
        folded = [answer.casefold() for answer in answers]
        best, best_score = None, -1.0
        for distance in range(1, min(len(self.paragraphs), _NEAREST + 1)):
            place = (self.places[own] + distance) % len(self.paragraphs)
            if any(answer in self.folded[place] for answer in folded):
                continue
            score = sum(1 / self.spread[word] for word in sorted(asked & self.words[place]))
            if score > best_score:
                best, best_score = self.paragraphs[place], score
        return best
