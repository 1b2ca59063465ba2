"""From the scores of tokens to answers.

The best spans of each window are found at once, then the best answers of each question.

Letters: N questions, U windows, B windows of a batch, T tokens, A longest answer in tokens, K
answers kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Array, Bools, Floats32, Ints, as_array
from bertctl.tasks.base import Outputs
from bertctl.tasks.questions.answer_windows import AnswerFeatures

if TYPE_CHECKING:
    from torch import Tensor

_SCORES_AT_ONCE = 1 << 24
"""Spans scored at a time (64 MB), however long windows and answers may be."""

NEVER = 1e6
"""Null odds where a context holds no span at all: more than any logits make."""


@dataclass(frozen=True)
class Candidate:
    """One possible answer.

    Attributes:
        text: The answer as it occurs in the context; empty for "no answer".
        start: Its first character in the context; None for "no answer".
        window: Number of the window in which it was found.
        tokens: Positions of its first and last token there.
        start_logit: Score of its first token.
        end_logit: Score of its last token.
    """

    text: str
    start: int | None
    window: int
    tokens: tuple[int, int]
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """What answers are ranked by."""
        return self.start_logit + self.end_logit

    @property
    def place(self) -> dict[str, int | None]:
        """Its first character in the context and the one after its last."""
        return {
            "start": self.start,
            "end": None if self.start is None else self.start + len(self.text),
        }


def best_spans(
    logits_BT2: "Tensor", starts_BT: "Tensor", ends_BT: "Tensor", *, longest: int, n_best: int
) -> "tuple[Tensor, Tensor]":
    """Returns the spans with the highest sums of start and end score, without a loop over pairs.

    Every start meets the A ends from it on: a band of T x A sums, of which the K highest are taken.

    Args:
        logits_BT2: Start and end score of each token.
        starts_BT: Booleans, where an answer may begin.
        ends_BT: Booleans, where it may end.
        longest: Most tokens of an answer, A.
        n_best: Number of spans to return for each window, K.

    Returns:
        (B, K) first and (B, K) last positions, best first; -1 where a window has fewer spans.
    """
    import torch

    B, T, _ = logits_BT2.shape
    A = min(longest, T)
    lowest = float("-inf")
    starts = torch.full(
        (B, n_best),
        -1,
        dtype=torch.int64,
        device=logits_BT2.device,
    )
    ends = starts.clone()
    n_spans = min(n_best, T * A)
    chunk = max(1, _SCORES_AT_ONCE // (T * A))
    for first_window in range(0, B, chunk):
        part = slice(first_window, first_window + chunk)
        # band[b, t, a] is the end score of token t + a, and -inf behind the last token. A span
        # (t, t + a) has the number t A + a in the flattened band, from which both are read back.
        begin = logits_BT2[part, :, 0].masked_fill(~starts_BT[part], lowest)
        end = logits_BT2[part, :, 1].masked_fill(~ends_BT[part], lowest)
        band_BTA = torch.nn.functional.pad(end, (0, A - 1), value=lowest).unfold(1, A, 1)
        scores, positions = (begin[:, :, None] + band_BTA).flatten(1).topk(n_spans, dim=1)
        start = positions // A
        is_possible = torch.isfinite(scores)
        starts[part, :n_spans] = torch.where(is_possible, start, -1)
        ends[part, :n_spans] = torch.where(is_possible, start + positions % A, -1)
    return starts, ends


def best_spans_of_arrays(
    logits_BT2: Floats32, starts_BT: Bools, ends_BT: Bools, *, longest: int, n_best: int
) -> tuple[Ints, Ints]:
    """Returns what `best_spans` does, without torch.

    Spans of equal scores may come in another order.
    """
    B, T, _ = logits_BT2.shape
    A = min(longest, T)
    starts = np.full((B, n_best), -1, dtype=np.int64)
    ends = starts.copy()
    n_spans = min(n_best, T * A)
    chunk = max(1, _SCORES_AT_ONCE // (T * A))
    for first_window in range(0, B, chunk):
        part = slice(first_window, first_window + chunk)
        # As in `best_spans`: span (t, t + a) has the number t A + a in the flattened band.
        begin = np.where(starts_BT[part], logits_BT2[part, :, 0], -np.inf)
        end = np.where(ends_BT[part], logits_BT2[part, :, 1], -np.inf)
        padded = np.pad(end, ((0, 0), (0, A - 1)), constant_values=-np.inf)
        band_BTA = np.lib.stride_tricks.sliding_window_view(padded, A, axis=1)
        scores = (begin[:, :, None] + band_BTA).reshape(len(begin), -1)
        # The K highest in any order, in linear time; only these are sorted.
        candidates = np.argpartition(scores, -n_spans, axis=1)[:, -n_spans:]
        candidate_scores = np.take_along_axis(scores, candidates, axis=1)
        order = np.argsort(-candidate_scores, axis=1, kind="stable")
        positions = np.take_along_axis(candidates, order, axis=1)
        is_possible = np.isfinite(np.take_along_axis(candidate_scores, order, axis=1))
        start = positions // A
        starts[part, :n_spans] = np.where(is_possible, start, -1)
        ends[part, :n_spans] = np.where(is_possible, start + positions % A, -1)
    return starts, ends


def _spans_on_device(
    logits_BT2: "Tensor", starts_BT: Bools, ends_BT: Bools, *, longest: int, n_best: int
) -> tuple[Ints, Ints]:
    """Returns `best_spans`, computed where the logits are."""
    import torch

    device = logits_BT2.device
    starts, ends = best_spans(
        logits_BT2,
        torch.from_numpy(starts_BT).to(device),
        torch.from_numpy(ends_BT).to(device),
        longest=longest,
        n_best=n_best,
    )
    return starts.cpu().numpy(), ends.cpu().numpy()


def keep_spans(
    logits_BT2: "Tensor | Array",
    mask_BT: Bools,
    features: AnswerFeatures,
    indices: Ints,
    *,
    longest: int,
    n_best: int,
) -> Outputs:
    """Returns the best spans of a batch of windows, and their scores of "no answer".

    An answer lies within the context. It begins at a token that has more context around it here
    than in any other window (`with_most_context`), so that no span counts in two windows.

    Args:
        logits_BT2: Start and end score of each token, of torch or not.
        mask_BT: Booleans, which positions are tokens and not padding.
        features: Features of the split.
        indices: (B,) numbers of the windows.
        longest: Most tokens of an answer, A.
        n_best: Number of spans to return for each window, K.

    Returns:
        `spans` (B, K, 2): first and last token in the context, -1 where there is none; `scores` (B,
        K, 2): their logits; `null` (B, 2): the logits of "no answer".
    """
    B, T = mask_BT.shape
    padding_before = mask_BT.argmax(axis=1)  # 0 unless the tokenizer pads on the left
    # An answer ends at any token of the context: columns begin to begin + counts - 1.
    begin = padding_before + features.context_at[indices]
    counts = features.counts[indices]
    columns = np.arange(T)
    ends_BT = (columns >= begin[:, None]) & (columns < (begin + counts)[:, None])
    # It begins at those tokens of the context that this window answers for. `may_begin` has a
    # column for each token of the context in the window, `starts_BT` one for each token of the
    # window. Row by row, both masks below pick the tokens of the context, in the same order.
    may_begin = features.with_most_context(indices)
    is_token = np.arange(may_begin.shape[1]) < counts[:, None]
    starts_BT = ends_BT.copy()
    starts_BT[ends_BT] = may_begin[is_token]

    search: Any = _spans_on_device
    if isinstance(logits_BT2, np.ndarray):
        search = best_spans_of_arrays
    first_columns, last_columns = search(
        logits_BT2,
        starts_BT,
        ends_BT,
        longest=longest,
        n_best=n_best,
    )
    spans = np.stack([first_columns, last_columns], axis=2)
    logits = as_array(logits_BT2)
    scores = np.take_along_axis(logits, np.maximum(spans, 0), axis=1)
    null = logits[np.arange(B), padding_before + features.null_at[indices]]
    # Columns of the batch become tokens of the context.
    into_context = (features.first[indices] - begin)[:, None, None]
    return {
        "spans": np.where(spans >= 0, spans + into_context, -1).astype(np.int32),
        "scores": scores.astype(np.float32),
        "null": null.astype(np.float32),
    }


def ranked_answers(
    outputs: Outputs, features: AnswerFeatures, contexts: Sequence[str], *, n_best: int
) -> Iterator[tuple[list[Candidate], Candidate]]:
    """Yields for each question its best answers, best first, and "no answer".

    Windows are merged as in `run_squad.py`: of answers with the same text the best stays, and "no
    answer" has the lowest score that any window gives it. Texts are cut out of the context.

    Args:
        outputs: What `keep_spans` kept of the windows.
        features: Features of the split.
        contexts: (N,) the context of each question.
        n_best: How many answers at most.
    """
    # All windows' spans in one list: window w has those from w * n_spans on, so a span's number
    # divided by n_spans is its window.
    n_spans = outputs["spans"].shape[1]
    all_spans = outputs["spans"].reshape(-1, 2)
    all_scores = outputs["scores"].reshape(-1, 2)
    is_span = all_spans[:, 0] >= 0  # -1 fills up windows with fewer spans
    span_numbers = np.flatnonzero(is_span)

    # Sorted by question and, within a question, by score. So the spans of question i are those from
    # bounds[i] to bounds[i + 1], and the best of the spans with equal texts is the first of them.
    questions = features.rows[span_numbers // n_spans]
    order = np.lexsort((-all_scores[span_numbers].sum(axis=1), questions))
    span_numbers = span_numbers[order]
    questions = questions[order]
    bounds = np.searchsorted(questions, np.arange(len(contexts) + 1)).tolist()
    spans = all_spans[span_numbers]
    logits = all_scores[span_numbers].tolist()
    windows = span_numbers // n_spans

    # A span is the first and the last token in its context. The characters of all contexts' tokens
    # are in one array, where a context begins at its entry of `starts`.
    encoded = features.contexts
    context_starts = encoded.tokens.starts[features.context_of[questions]]
    begins = encoded.char_starts[context_starts + spans[:, 0]].tolist()
    stops = encoded.char_ends[context_starts + spans[:, 1]].tolist()
    # Tokens of the context become positions in the window: the context's token `first` stands at
    # the position `context_at`.
    shifts = features.context_at[windows] - features.first[windows]
    positions = spans + shifts[:, None]

    null_sums = outputs["null"].sum(axis=1)
    for i, context in enumerate(contexts):
        by_text: dict[str, Candidate] = {}
        for j in range(bounds[i], bounds[i + 1]):
            text = context[begins[j] : stops[j]].strip()
            if text and text not in by_text:
                start = context.index(text, begins[j])
                tokens = (int(positions[j, 0]), int(positions[j, 1]))
                start_logit, end_logit = logits[j]
                by_text[text] = Candidate(
                    text=text,
                    start=start,
                    window=int(windows[j]),
                    tokens=tokens,
                    start_logit=start_logit,
                    end_logit=end_logit,
                )
                if len(by_text) == n_best:
                    break
        first_window = features.first_window[i]
        windows_end = features.first_window[i + 1]
        lowest = first_window + int(null_sums[first_window:windows_end].argmin())
        yield list(by_text.values()), _no_answer(outputs, features, lowest)


def _no_answer(outputs: Outputs, features: AnswerFeatures, window: int) -> Candidate:
    """Returns "no answer" with the logits that a window gives it.

    Args:
        outputs: What `keep_spans` kept of the windows.
        features: Features of the split.
        window: Number of the window.
    """
    position = int(features.null_at[window])
    start_logit, end_logit = outputs["null"][window].tolist()
    return Candidate(
        text="",
        start=None,
        window=window,
        tokens=(position, position),
        start_logit=start_logit,
        end_logit=end_logit,
    )


def answer(
    candidates: Sequence[Candidate],
    null: Candidate,
    *,
    unanswerable: bool,
    threshold: float,
    n_best: int,
) -> dict[str, Any]:
    """Returns the answer to one question, as prediction files show it.

    Args:
        candidates: Possible answers, the best first; may be empty.
        null: "No answer" as a candidate, with the model's logits for it.
        unanswerable: Whether "no answer" is an answer that the model has learned.
        threshold: "No answer" is predicted if `null_odds` is above this number.
        n_best: How many candidates the result lists. "No answer" is one of them if the model has
            learned it, or if there is no other.

    Returns:
        prediction; probability, its share in the softmax over the listed candidates; start and end,
        its first character in the context and the one after its last; null_odds, the score of "no
        answer" minus the score of the best candidate; n_best, the listed candidates.
    """
    if candidates:
        odds = null.score - candidates[0].score
    else:
        odds = NEVER  # a number above all that logits can give
    visible = list(candidates)
    if unanswerable or not visible:
        # As in run_squad.py "no answer" is always among those shown, whatever its rank.
        visible = sorted(
            [*visible[: max(1, n_best - 1)], null], key=lambda candidate: -candidate.score
        )
    scores = np.array([candidate.score for candidate in visible], dtype=np.float64)
    weights = np.exp(scores - scores.max())
    probabilities = (weights / weights.sum()).tolist()
    is_no_answer = not candidates or (unanswerable and odds > threshold)
    chosen = visible.index(null if is_no_answer else candidates[0])
    n_best_answers = [
        {
            "text": candidate.text,
            **candidate.place,
            "probability": p,
            "start_logit": candidate.start_logit,
            "end_logit": candidate.end_logit,
        }
        for candidate, p in zip(visible, probabilities, strict=True)
    ]
    return {
        "prediction": visible[chosen].text,
        "probability": probabilities[chosen],
        **visible[chosen].place,
        "null_odds": odds,
        "n_best": n_best_answers,
    }
