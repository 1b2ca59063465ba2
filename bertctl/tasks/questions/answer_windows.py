"""Questions with their contexts as the model reads them.

They are pairs, with the context in overlapping windows where it is long.

    # window 1   [CLS] who wrote it ? [SEP] the play was first printed in 16 ##23 , years [SEP]
    # window 2   [CLS] who wrote it ? [SEP] in 16 ##23 , years after its author had died . [SEP]

As google-research/bert `run_squad.py`: each window begins `doc_stride` tokens after the one before,
and a window that does not hold the whole answer points to [CLS]. Special tokens and segments are
those of the family's pairs.

Letters: N questions, D different contexts, U windows, B windows of a batch, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Bools, Ints, numbers_of, positions_of, starts_of
from bertctl.config.recipe_sections import QuestionAnsweringSection
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import (
    IGNORED,
    ArrayBatch,
    Batch,
    labels_of_none,
    padded_arrays,
    present,
)
from bertctl.tasks.features import OneAnswer
from bertctl.tasks.questions.answer_offsets import Contexts, answer_span, encode_contexts
from bertctl.tokenization.encode import TextEncoder
from bertctl.tokenization.layout import Layout, Ragged
from bertctl.tokenization.sliding_windows import SlidingWindows, sliding_windows


@dataclass(frozen=True)
class AnswerFeatures(OneAnswer):
    """A split of questions as windows; each window is a prediction.

    Attributes:
        layout: Where question, context and special tokens stand.
        questions: N questions as ids, cut.
        question_lengths: (N,) their tokens before the cut.
        question_unknown: (N,) unknown tokens of the questions.
        contexts: The D different contexts.
        context_of: (N,) the context of each question.
        rows: (U,) question of each window, ascending.
        first: (U,) the context's token that the window begins with.
        counts: (U,) tokens of the context in it.
        targets: (U, 2) positions of the answer's first and last token in the window, [CLS] where it
            holds none, `IGNORED` where the answer can't be found; or None without labels.
        gold: N lists of gold answers, empty for unanswerable questions; or None.
    """

    layout: Layout
    questions: Ragged
    question_lengths: Ints
    question_unknown: Ints
    contexts: Contexts
    context_of: Ints
    rows: Ints
    first: Ints
    counts: Ints
    targets: Ints | None
    gold: Sequence[Sequence[str]] | None

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def lengths(self) -> Ints:
        """(U,) tokens of each window."""
        return self.layout.special + self.questions.lengths[self.rows] + self.counts

    @cached_property
    def position_starts(self) -> Ints:
        """(U + 1,) where each window's positions begin, counted through all windows."""
        return starts_of(self.lengths)

    def positions_of(self, indices: Ints) -> Ints:
        """Returns the positions of some windows, window by window, counted through all windows."""
        return positions_of(indices, self.position_starts)

    def with_unlabelled(self, unlabelled: "AnswerFeatures") -> "AnswerFeatures":
        """Returns these questions, and then others that have no answer to learn.

        The numbers of the others' contexts and rows are moved up, as they come behind.
        """
        targets = present(self.targets)
        contexts = self.contexts.followed_by(unlabelled.contexts)
        n_contexts = len(self.contexts.unknown)
        n_questions = len(self.context_of)
        return AnswerFeatures(
            layout=self.layout,
            questions=self.questions.followed_by(unlabelled.questions),
            question_lengths=_behind(self.question_lengths, unlabelled.question_lengths),
            question_unknown=_behind(self.question_unknown, unlabelled.question_unknown),
            contexts=contexts,
            context_of=_behind(self.context_of, unlabelled.context_of + n_contexts),
            rows=_behind(self.rows, unlabelled.rows + n_questions),
            first=_behind(self.first, unlabelled.first),
            counts=_behind(self.counts, unlabelled.counts),
            targets=np.concatenate([targets, labels_of_none(targets, len(unlabelled))]),
            gold=None,  # only scoring needs the texts of gold answers
        )

    def windows_of_rows(self) -> Ints:
        """Returns (N,) windows that each row is read in."""
        return np.bincount(self.rows, minlength=len(self.tokens))

    @property
    def seams(self) -> int:
        """Returns how many windows begin where the one before ends.

        An answer across the two is whole in neither.
        """
        is_next = self.rows[1:] == self.rows[:-1]
        ends = self.first[:-1] + self.counts[:-1]
        return int((is_next & (self.first[1:] >= ends)).sum())

    @cached_property
    def weights(self) -> Ints:
        """(U,) 1, or 0 where the answer can't be found."""
        if self.targets is None:
            return np.ones(len(self), dtype=np.int64)
        weights: Ints = (self.targets[:, 0] != IGNORED).astype(np.int64)
        return weights

    @property
    def tokens(self) -> Ints:
        """(N,) tokens of each question and its context; what windows share counts once."""
        return (
            self.layout.special
            + self.questions.lengths
            + self.contexts.tokens.lengths[self.context_of]
        )

    @property
    def truncated_tokens(self) -> Ints:
        """(N,) tokens of the question that were cut off; nothing of a context is."""
        return self.question_lengths - self.questions.lengths

    @property
    def unknown(self) -> Ints:
        """(N,) unknown tokens of the question and its context."""
        return self.question_unknown + self.contexts.unknown[self.context_of]

    @cached_property
    def first_window(self) -> Ints:
        """(N + 1,) where each question's windows begin."""
        return np.searchsorted(self.rows, np.arange(len(self.context_of) + 1)).astype(np.int64)

    @cached_property
    def context_at(self) -> Ints:
        """(U,) position of the context's first token in the window."""
        return self.layout.before(1) + self.questions.lengths[self.rows]

    @cached_property
    def null_at(self) -> Ints:
        """(U,) position that stands for "no answer".

        It is [CLS], the first token, or the last one (XLNet).
        """
        return null_positions(self.layout, self.lengths)

    def collate(self, indices: Ints, padding: Padding) -> Batch:
        """Returns `arrays` as tensors."""
        return self.arrays(indices, padding).as_tensors()

    def arrays(self, indices: Ints, padding: Padding) -> ArrayBatch:
        """Returns some windows as padded arrays.

        Labels are (B, 2) positions of an answer's first and last token.
        """
        rows = self.rows[indices]
        questions = self.questions
        tokens = self.contexts.tokens
        question_tokens = Ragged(questions.flat, questions.starts[rows], questions.lengths[rows])
        # The part of the context that each window reads.
        starts = tokens.starts[self.context_of[rows]] + self.first[indices]
        context_tokens = Ragged(tokens.flat, starts, self.counts[indices])
        ids, type_ids, _ = self.layout.fill([question_tokens, context_tokens])
        lengths = self.lengths[indices]
        inputs = padded_arrays(ids, type_ids, lengths, padding)
        labels = None
        if self.targets is not None:
            targets = self.targets[indices]
            if padding.left:
                padding_before = (inputs["input_ids"].shape[1] - lengths)[:, None]
            else:
                padding_before = 0
            labels = np.where(targets == IGNORED, IGNORED, targets + padding_before)
        return ArrayBatch(inputs, labels)

    @cached_property
    def answered(self) -> tuple[Ints, Ints]:
        """Two (U,) arrays: the first token that each window answers for, and the end.

        Windows overlap. A token of the context belongs to the window that shows most context around
        it, so each window answers for one range of tokens.
        """
        windows = SlidingWindows(
            rows=self.rows,
            first=self.first,
            last=self.first + self.counts,
        )
        # Of two windows, the longer one gets a little more context, as in run_squad.py.
        return windows.answered(counts_length=True)

    def with_most_context(self, indices: Ints) -> Bools:
        """Returns which tokens of the context each window answers for (see `answered`).

        Windows overlap. A token is answered for by the one window that shows most context on both
        of its sides.

        Args:
            indices: (B,) windows.

        Returns:
            (B, longest count) booleans, a column per token of the context in the window; False
            beyond a window's count.
        """
        width = int(self.counts[indices].max(initial=0))
        context_tokens = self.first[indices][:, None] + np.arange(width)
        begin, end = (bound[indices][:, None] for bound in self.answered)
        return (context_tokens >= begin) & (context_tokens < end)


class PositionFeatures(AnswerFeatures):
    """A split of questions of which each position of each window is a prediction."""

    @property
    def num_predictions(self) -> int:
        """Tokens of all windows."""
        return int(self.position_starts[-1])

    def prediction_indices(self, indices: Ints) -> Ints:
        """Returns the positions of these windows."""
        return self.positions_of(indices)


def _behind(values: Ints, unlabelled_values: Ints) -> Ints:
    """Returns the values of labelled questions, and behind them those of unlabelled ones."""
    return np.concatenate([values, unlabelled_values])


def encode_questions(
    rows: Rows, tokenizer: Tokenizer, settings: QuestionAnsweringSection, *, max_length: int
) -> AnswerFeatures:
    """Returns questions and contexts as windows, each different context encoded once.

    Args:
        rows: N questions.
        tokenizer: Tokenizer with truncation and padding off.
        settings: Stride and limits.
        max_length: Longest window in tokens, special tokens included.

    Raises:
        UsageError: `max_length` leaves no room for a context.
    """
    layout = Layout.of(tokenizer, pair=True)
    room = max_length - layout.special
    if room < 1:
        message = (
            f"model.max_length {max_length} leaves no room for a context beside {layout.special} "
            "special tokens"
        )
        raise UsageError(message, remedy="Take more: `model.max_length=384`.")
    context_of, different = numbers_of(rows.columns["context"])
    contexts = encode_contexts(different, tokenizer)
    questions = TextEncoder(tokenizer, special_tokens=False).encode(rows.columns["question"])
    # A question takes at most half of a window, so that short windows have context, too.
    cut_lengths = np.minimum(questions.lengths, min(settings.max_question_length, room // 2))
    lengths = contexts.tokens.lengths[context_of]
    zeros = np.zeros_like(lengths)
    steps = np.full_like(lengths, settings.doc_stride)
    windows = sliding_windows(
        zeros,
        lengths,
        room=room - cut_lengths,
        step=steps,
    )
    window_rows = windows.rows
    first = windows.first
    counts = windows.last - windows.first
    targets = gold = None
    if rows.has("label"):
        gold = [label["text"] for label in rows.columns["label"]]
        spans = _answer_tokens(rows, contexts, context_of)
        nulls = null_positions(layout, layout.special + cut_lengths[window_rows] + counts)
        targets = _targets(
            spans=spans[window_rows],
            first=first,
            counts=counts,
            context_at=layout.before(1) + cut_lengths[window_rows],
            nulls=nulls,
        )
    return AnswerFeatures(
        layout=layout,
        questions=Ragged(questions.ids, questions.starts[:-1], cut_lengths),
        question_lengths=questions.lengths,
        question_unknown=questions.unknown,
        contexts=contexts,
        context_of=context_of,
        rows=window_rows,
        first=first,
        counts=counts,
        targets=targets,
        gold=gold,
    )


def null_positions(layout: Layout, lengths: Ints) -> Ints:
    """Returns the position that stands for "no answer".

    It is the first where windows begin with a special token, else the last (XLNet).
    """
    if layout.before(0):
        return np.zeros_like(lengths)
    return lengths - 1


_NO_SPAN = -1
_LOST = -2


def _answer_tokens(rows: Rows, contexts: Contexts, context_of: Ints) -> Ints:
    """Returns (N, 2) first and last token in the context of each question's first gold answer.

    Both are `_NO_SPAN` for a question without an answer, and `_LOST` if the answer is not found at
    its offset.
    """
    spans = np.full((len(rows), 2), _NO_SPAN, dtype=np.int64)
    for i, (context, label) in enumerate(
        zip(rows.columns["context"], rows.columns["label"], strict=True)
    ):
        if not label["text"]:
            continue
        characters = answer_span(context, label["text"][0], label["answer_start"][0])
        tokens = None
        if characters:
            tokens = contexts.tokens_of(int(context_of[i]), *characters)
        if tokens is None:  # it is not at its offset, or no token has its characters
            spans[i] = _LOST
        else:
            spans[i] = tokens
    return spans


def _targets(spans: Ints, first: Ints, counts: Ints, context_at: Ints, nulls: Ints) -> Ints:
    """Returns (U, 2) positions of each answer's first and last token in its windows.

    In a window without the whole answer both are the position of "no answer" ([CLS]). They are
    `IGNORED` if the answer is lost.

    Args:
        spans: (U, 2) first and last token of the answer in the context.
        first: (U,) first token of the context in the window.
        counts: (U,) tokens of the context in the window.
        context_at: (U,) position of the first of them in the window.
        nulls: (U,) position of "no answer".
    """
    is_inside = (spans[:, 0] >= first) & (spans[:, 1] < first + counts)
    targets = np.where(
        is_inside[:, None], (spans - first[:, None]) + context_at[:, None], nulls[:, None]
    )
    targets[spans[:, 0] == _LOST] = IGNORED
    return targets
