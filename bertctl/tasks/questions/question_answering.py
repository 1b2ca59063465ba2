"""Extractive question answering (paper, sections 4.2, 4.3).

The answer is a span of the context, or there is none.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Array, Floats32, Ints, as_array
from bertctl.config.recipe_sections import QuestionAnsweringSection, TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.metrics.squad import chosen_threshold, counts_characters, raw_scores
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.array_losses import span_cross_entropies
from bertctl.tasks.base import (
    AnswerFormat,
    Outputs,
    ReadingNote,
    Task,
    TaskObjective,
    TruncationMessage,
    label_fields,
)
from bertctl.tasks.batches import ArrayBatch, Batch, present
from bertctl.tasks.questions.answer_decoding import answer, keep_spans, ranked_answers
from bertctl.tasks.questions.answer_offsets import answer_span, offset_units
from bertctl.tasks.questions.answer_windows import (
    AnswerFeatures,
    PositionFeatures,
    encode_questions,
)
from bertctl.tasks.questions.span_answers import SpanAnswers
from bertctl.tasks.targets import Answered, Part, Target
from bertctl.words import count

if TYPE_CHECKING:
    from torch import Tensor

_HEADS = {False: ("start", "end"), True: ("start or none", "end or none")}
"""Names of the head's two outputs, by whether the model has learned to find no answer: config.json
keeps them."""


def _write_by_id(field: str, answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    """Writes a JSON object that maps each question's id to a field of its answer.

    It is the format of run_squad.py and of the official scorers: {"id1": "in 1066", "id2": ""}.
    """
    json.dump(
        {line["id"]: line[field] for line in answers},
        out,
        indent=4,
        ensure_ascii=False,
        allow_nan=False,
    )
    out.write("\n")


@dataclass(frozen=True)
class QuestionAnswering(Task):
    """Spans of contexts, for models that give each token a start and an end score.

    Attributes:
        settings: Stride, limits, and what becomes of misplaced answers.
        unanswerable: Whether training had questions without an answer; if not, the model always
            answers.
        null_threshold: Null odds above it mean "no answer".
    """

    settings: QuestionAnsweringSection
    unanswerable: bool
    null_threshold: float = 0.0

    name: ClassVar[str] = "question-answering"
    auto_class: ClassVar[str] = "AutoModelForQuestionAnswering"
    columns: ClassVar[tuple[str, ...]] = ("question", "context", "label")
    answer_type: ClassVar[type[Answers]] = SpanAnswers
    formats: ClassVar[Mapping[str, AnswerFormat]] = {
        "squad": AnswerFormat(
            partial(_write_by_id, "prediction"),
            {
                ".nbest.json": partial(_write_by_id, "n_best"),
                ".null_odds.json": partial(_write_by_id, "null_odds"),
            },
            by_id=True,
        )
    }
    truncation: ClassVar[TruncationMessage] = TruncationMessage(
        "have a question that is longer than is read of one",
        "a larger question_answering.max_question_length keeps it",
    )

    primary_metric: ClassVar[str] = "f1"

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "QuestionAnswering":
        """Learns whether there are unanswerable questions."""
        return cls._of(recipe, any(not label["text"] for label in train.columns["label"]))

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "QuestionAnswering":
        """Returns the task as it was trained; the threshold comes with `with_decision`."""
        outputs = {str(name) for name in (model_config.get("id2label") or {}).values()}
        return cls._of(recipe, outputs == set(_HEADS[True]))

    @classmethod
    def _of(cls, recipe: Recipe, unanswerable: bool) -> "QuestionAnswering":
        """Returns the task with the recipe's settings, and whether it may answer "no answer"."""
        settings = recipe.question_answering
        return cls(settings, unanswerable, settings.null_threshold or 0.0)

    def head(self) -> dict[str, Any]:
        """Returns the fields of the model's config: two outputs per token, for start and end.

        Their names say whether the model has learned to find no answer. The problem type is that of
        classes, as the start is one of all tokens, and so is the end.
        """
        return label_fields(_HEADS[self.unanswerable], "single_label_classification")

    def check(self, rows: Rows) -> None:
        """Refuses answers whose text is not at their offset in the context.

        If they are to be left out, it refuses none.

        Raises:
            DataError: There is one; the message has file, id, offset, and the text at the offset.
        """
        if self.settings.misplaced_answers != "refuse":
            return
        lost = [i for i in range(len(rows)) if _lost(rows, i)]
        if lost:
            raise _misplaced(rows, lost)

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> AnswerFeatures:
        """Returns questions and contexts as windows."""
        return encode_questions(
            rows,
            tokenizer,
            self.settings,
            max_length=max_length,
        )

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns the mean of the cross-entropies of an answer's start and end."""
        from bertctl.tasks.objectives import SpanCrossEntropy

        return SpanCrossEntropy(padding)

    def array_outputs(self, outputs: Any) -> Array:
        """Returns the start and end score of each token, (B, T, 2)."""
        return np.stack([outputs.start_logits, outputs.end_logits], axis=2)

    def array_losses(self, outputs: Array, batch: ArrayBatch) -> Floats32:
        """Returns the means of the cross-entropies of start and end."""
        return span_cross_entropies(outputs, present(batch.labels), batch.inputs["attention_mask"])

    def collect_outputs(
        self,
        logits: "Tensor | Array",
        batch: Batch | ArrayBatch,
        features: AnswerFeatures,
        indices: Ints,
    ) -> Outputs:
        """Returns the best spans of each window, and its score of "no answer"."""
        mask = as_array(batch.inputs["attention_mask"]).astype(np.bool_)
        longest = self.settings.max_answer_length
        n_best = self.settings.n_best
        return keep_spans(
            logits,
            mask,
            features,
            indices,
            longest=longest,
            n_best=n_best,
        )

    def reading_notes(self, features: AnswerFeatures, recipe: Recipe) -> Iterator[ReadingNote]:
        """Yields what a user should know about the questions as they are read.

        These are a note if F1 counts characters instead of words, and a warning of places in
        contexts where no window holds an answer as a whole ("seams").
        """
        if features.gold and counts_characters(features.gold):
            yield ReadingNote(
                "f1 counts characters, as most answers are in a script without spaces between words"
            )
        if features.seams:
            stride = recipe.question_answering.doc_stride
            yield ReadingNote(
                f"{count(features.seams, 'window')} of {recipe.model.max_length} tokens begin "
                f"where the one before ends, as doc_stride is {stride}: no answer across the two "
                "can be found; take a smaller question_answering.doc_stride, or a larger "
                "`model.max_length=`",
                is_warning=True,
            )

    def as_teacher(self) -> "PositionScores":
        """Returns the task that answers with the scores of all positions."""
        attributes = {item.name: getattr(self, item.name) for item in fields(self)}
        return PositionScores(**attributes)

    def tune(self, outputs: Outputs, features: AnswerFeatures, rows: Rows) -> dict[str, Any]:
        """Returns the `null_threshold` with the best F1, or nothing if there is none to tune.

        Tuning needs a model that may answer "no answer", and rows of both kinds: questions with an
        answer and questions without one. A threshold that the settings name is never tuned.
        """
        gold = features.gold or ()
        answerable = np.array([len(texts) > 0 for texts in gold], dtype=np.bool_)
        has_both_kinds = answerable.any() and not answerable.all()
        if not self.unanswerable or self._is_threshold_set or not has_both_kinds:
            return {}

        # With an infinite threshold every question gets a span: what it scores if it is answered.
        always_answering = replace(self, null_threshold=float("inf"))
        lines = always_answering.decode(outputs, features, rows)
        _, f1 = raw_scores([line["prediction"] for line in lines], gold, version=2)
        odds = np.array([line["null_odds"] for line in lines])
        return {"null_threshold": chosen_threshold(f1, odds, answerable=answerable)}

    def with_decision(self, decision: Mapping[str, Any]) -> "QuestionAnswering":
        """Returns the task with the threshold that was chosen on validation rows."""
        threshold = decision.get("null_threshold")
        if threshold is None or self._is_threshold_set:
            return self
        return replace(self, null_threshold=float(threshold))

    @property
    def _is_threshold_set(self) -> bool:
        """Whether the settings name the threshold."""
        return self.settings.null_threshold is not None

    def decode(
        self, outputs: Outputs, features: AnswerFeatures, rows: Rows
    ) -> list[dict[str, Any]]:
        """Returns the answer to each question (see `answer_decoding.answer`)."""
        n_best = self.settings.n_best
        may_be_none = self.unanswerable or self._is_threshold_set
        return [
            answer(
                candidates,
                null,
                unanswerable=may_be_none,
                threshold=self.null_threshold,
                n_best=n_best,
            )
            for candidates, null in ranked_answers(
                outputs, features, rows.columns["context"], n_best=n_best
            )
        ]

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Returns the sum of each answer's start and end logit, for explanations.

        The logits are those of the window where the answer was found.
        """
        features = answered.features
        columns = answered.rows.columns
        first_tokens = answered.features.first.tolist()
        targets: list[Target] = []
        for i, (best, null) in enumerate(
            ranked_answers(answered.outputs, features, columns["context"], n_best=1)
        ):
            if answered.answers[i]["start"] is None:
                candidate = null
            else:
                candidate = best[0]
            parts = (
                Part("question", columns["question"][i]),
                Part("context", columns["context"][i], first_tokens[candidate.window]),
            )
            logit_positions = ((candidate.tokens[0], 0), (candidate.tokens[1], 1))
            targets.append(
                Target(
                    i,
                    window=candidate.window,
                    places=logit_positions,
                    named={"answer": candidate.text, **candidate.place},
                    parts=parts,
                )
            )
        return targets

    def describe(self, rows: Rows) -> str:
        """Returns how many contexts and questions without an answer there are.

        It also counts answers that can't be found.
        """
        contexts = len(set(rows.columns["context"]))
        without = sum(not label["text"] for label in rows.columns["label"])
        lost = sum(bool(_lost(rows, i)) for i in range(len(rows)))
        text = f"about {contexts} texts, {without} unanswerable"
        if lost:
            text += f", {lost} with an answer that is not at its offset: left out of the loss"
        return text

    def gold(self, rows: Rows, index: int) -> Any:
        """Returns the texts of the gold answers; empty for an unanswerable question."""
        return list(rows.columns["label"][index]["text"])


class PositionScores(QuestionAnswering):
    """Question answering whose outputs are the scores of all positions.

    A student learns them.
    """

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> PositionFeatures:
        """Returns questions and contexts as windows, each position a prediction."""
        windows = super().encode(rows, tokenizer, max_length=max_length)
        attributes = {item.name: getattr(windows, item.name) for item in fields(windows)}
        return PositionFeatures(**attributes)

    def collect_outputs(
        self,
        logits: "Tensor | Array",
        batch: Batch | ArrayBatch,
        features: AnswerFeatures,
        indices: Ints,
    ) -> Outputs:
        """Returns (P, 2) the start and end score of each position, without padding."""
        is_token = as_array(batch.inputs["attention_mask"]).astype(np.bool_)
        return {"logits": as_array(logits)[is_token]}


def _lost(rows: Rows, index: int) -> list[int]:
    """Returns which of a question's gold answers are not at their offsets, by their numbers."""
    context = rows.columns["context"][index]
    label = rows.columns["label"][index]
    pairs = zip(label["text"], label["answer_start"], strict=True)
    return [
        number
        for number, (text, start) in enumerate(pairs)
        if answer_span(context, text, start) is None
    ]


def _units(rows: Rows, lost: Sequence[int]) -> set[str]:
    """Returns the units in which the offsets of all misplaced answers are right.

    Args:
        rows: Rows of questions.
        lost: Rows that have misplaced answers.
    """
    units: set[str] | None = None
    for index in lost:
        context = rows.columns["context"][index]
        label = rows.columns["label"][index]
        for number in _lost(rows, index):
            possible = offset_units(context, label["text"][number], label["answer_start"][number])
            if units is None:
                units = possible
            else:
                units = units & possible
            if not units:
                return set()
    return units or set()


def _described_offset(context: str, text: str, start: int) -> str:
    """Returns what is wrong with the offset of an answer, and the nearest right one.

    Args:
        context: The text that should have the answer.
        text: The answer.
        start: Its offset, as the file has it; negative for an answer that was never found.
    """
    if start < 0:
        return f"the answer {text!r:.80} does not occur in the context"
    if start < len(context):
        characters = f"{context[start : start + len(text)]!r:.80}"
    else:
        characters = "no more characters"
    message = f"the answer {text!r:.80} is not at its offset {start}, where the context has "
    message += characters
    # A lookahead finds occurrences that overlap, too.
    offsets = (match.start() for match in re.finditer(f"(?={re.escape(text)})", context))
    nearest = min(offsets, key=lambda offset: abs(offset - start), default=None)
    if nearest is not None:
        message += f"; it is at {nearest}"
    return message


def _misplaced(rows: Rows, lost: Sequence[int]) -> DataError:
    """Returns the refusal of gold answers that are not at their offsets, with the first of them.

    Args:
        rows: Rows of questions.
        lost: Rows that have such answers, at least one.
    """
    index = lost[0]
    label = rows.columns["label"][index]
    number = _lost(rows, index)[0]
    message = _described_offset(
        rows.columns["context"][index], label["text"][number], label["answer_start"][number]
    )
    if len(lost) > 1:
        message += f" ({len(lost)} questions of {len(rows)} have such answers)"
    units = sorted(_units(rows, lost))
    if units:
        units_hint = f"All of these offsets count {units[0]}. "
    else:
        units_hint = ""
    return DataError(
        f"{rows.where(index)} (id '{rows.ids[index]}'): {message}",
        remedy=f"{units_hint}Correct answer_start (characters of the context, counted from 0), or "
        "train and score without the loss of these questions: "
        "`question_answering.misplaced_answers=leave-out`.",
    )
