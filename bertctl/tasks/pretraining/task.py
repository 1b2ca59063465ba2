"""Pretraining on a corpus without labels (BERT paper, section 3.1).

The model learns masked words and the order of sentences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints
from bertctl.config.recipe_sections import MaskingSection, TrainingSection
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.data.corpora import CorpusReader
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.base import Outputs, Task, TaskObjective
from bertctl.tasks.batches import IGNORED
from bertctl.tasks.pretraining.corpus_windows import CorpusWindows, MaskedBatch, cut_windows
from bertctl.tasks.pretraining.masking import Masking
from bertctl.tasks.pretraining.pretraining_answers import PretrainingAnswers
from bertctl.tokenization.layout import Layout, special_ids
from bertctl.tokenization.packing import PackedText, pack_in_memory
from bertctl.tokenization.reference import unknown_id

_SAMPLES = 3
"""Texts that are shown as training goes on."""

_SAMPLE_TOKENS = 40
"""Tokens of each of these texts."""

_GUESSES = 12
"""Masked places of a window whose likeliest tokens are kept for these texts."""

PAIRS = {"mlm": None, "mlm+nsp": "next", "mlm+sop": "order"}
"""What the two parts of a window are, by `pretraining.objective`."""


@dataclass(frozen=True)
class Pretraining(Task):
    """Masked words, and the order of sentences.

    Attributes:
        masks: How tokens are masked.
        pairs: What windows of two parts are for; see `CorpusWindows`.
        auto_class: Class of the head, which depends on `pairs`.
        unigram: Cross-entropy in nats of a guess that knows the frequencies of tokens in the
            training text and ignores the context; None where no training text was read.
    """

    masks: MaskingSection
    pairs: Any = None
    auto_class: str = "AutoModelForMaskedLM"  # type: ignore[misc]
    unigram: float | None = None

    name: ClassVar[str] = PRETRAINING
    columns: ClassVar[tuple[str, ...]] = ("text",)
    answer_type: ClassVar[type[Answers]] = PretrainingAnswers
    reader: ClassVar[Reader] = CorpusReader()
    primary_metric: ClassVar[str] = "loss"

    @classmethod
    def of(cls, recipe: Recipe, unigram: float | None = None) -> "Pretraining":
        """Returns the task of a recipe.

        Args:
            recipe: A recipe of `bertctl pretrain`.
            unigram: Loss of a guess by the frequencies of tokens; None if it is not known.
        """
        pairs = PAIRS[recipe.pretraining.objective]
        if pairs:
            auto_class = "AutoModelForPreTraining"
        else:
            auto_class = "AutoModelForMaskedLM"
        return cls(recipe.masking, pairs, auto_class, unigram)

    @classmethod
    def from_data(cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None) -> "Pretraining":
        """Refuses rows: a corpus is not read as rows to train on.

        Raises:
            UsageError: Always, with the verb that pretrains.
        """
        raise UsageError(
            f"'{recipe.name}' pretrains on a corpus", remedy=f"bertctl pretrain {recipe.name}"
        )

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "Pretraining":
        """Returns the task of the run's recipe."""
        return cls.of(recipe)

    def head(self) -> dict[str, Any]:
        """Returns no fields: the vocabulary is the head's."""
        return {}

    def check(self, rows: Rows) -> None:
        """Takes any text."""

    def windows(
        self,
        text: PackedText,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        held_out: bool,
        **cutting: Any,
    ) -> CorpusWindows:
        """Returns the windows of a packed corpus.

        Args:
            text: The corpus.
            tokenizer: The tokenizer that packed it.
            max_length: Longest window, special tokens included.
            held_out: Whether masks are drawn by a window's text alone; see `CorpusWindows`.
            cutting: `short` and `seed` of `cut_windows`.

        Raises:
            UsageError: A tokenizer without a mask.
        """
        layout = Layout.of(tokenizer, pair=self.pairs is not None)
        room = max_length - layout.special
        least = 2 if self.pairs else 1  # a pair has a token in each part
        starts, sizes, documents = cut_windows(
            text,
            room,
            least=least,
            **cutting,
        )
        mask_id = _mask_id(tokenizer)
        unknown = unknown_id(tokenizer)
        masking = Masking(self.masks, mask_id, _replacement_ids(tokenizer, mask_id, unknown))
        return CorpusWindows(
            text=text,
            starts=starts,
            sizes=sizes,
            rows=documents,
            layout=layout,
            masking=masking,
            pairs=self.pairs,
            held_out=held_out,
            unknown_id=unknown,
        )

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> CorpusWindows:
        """Returns documents as windows whose masks are the same in every evaluation.

        Raises:
            DataError: So little text that none of it is masked.
        """
        text = pack_in_memory(
            (document.split("\n") for document in rows.columns["text"]), tokenizer
        )
        windows = self.windows(text, tokenizer, max_length, held_out=True)
        if not windows.weights.any():
            message = f"{rows.source}: no token of its text is masked, so there is nothing to score"
            raise DataError(message, remedy="Give more text.")
        return windows

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns the losses of masked words and of the order."""
        from bertctl.tasks.pretraining.pretraining_objective import PretrainingObjective

        return PretrainingObjective(padding)

    def collect_outputs(
        self, outputs: Any, batch: MaskedBatch, features: CorpusWindows, indices: Ints
    ) -> Outputs:
        """Returns (B, ...) counts and losses of the masked tokens of each window.

        `gold` is how many tokens are masked, `prediction` how many of them have the highest logit,
        `masked_loss` the sum of their losses, `guesses` the ids that the model gives for the first
        few, and `pairs_right` whether the order of a pair is predicted right.
        """
        size = len(batch.gold)
        is_right = outputs.words.argmax(dim=-1) == outputs.gold
        # The padding is for batches that the objective makes, and this one is made already.
        objective = self.objective(Padding(0))
        collected = {
            "gold": outputs.windows.bincount(minlength=size),
            "prediction": outputs.windows[is_right].bincount(minlength=size),
            "masked_loss": objective.window_losses(outputs, batch),
            "guesses": _first_guesses(outputs, size),
        }
        if outputs.order is not None and batch.order is not None:
            collected["pairs_right"] = outputs.order.argmax(dim=-1) == batch.order
        return {name: tensor.cpu().numpy().astype(np.float32) for name, tensor in collected.items()}

    def decode(self, outputs: Outputs, features: CorpusWindows, rows: Rows) -> list[dict[str, Any]]:
        """Returns the sums of each document over its windows: masked tokens, right ones, loss.

        The names are those of `collect_outputs`, and `pairs` where windows are pairs.
        """
        by_window = {name: values for name, values in outputs.items() if name != "guesses"}
        if "pairs_right" in outputs:
            by_window["pairs"] = np.ones(len(features))
        sums = {
            name: np.bincount(features.rows, values, minlength=len(rows))
            for name, values in by_window.items()
        }
        answers = []
        for i in range(len(rows)):
            answer: dict[str, Any] = {}
            for name, values in sums.items():
                if name == "masked_loss":
                    answer[name] = float(values[i])
                else:
                    answer[name] = int(values[i])
            answers.append(answer)
        return answers

    def samples(self, outputs: Outputs, features: CorpusWindows, tokenizer: Tokenizer) -> list[str]:
        """Returns the beginnings of a few windows, with the model's words in masked places.

        A masked token becomes "[gold: guess]": "the [cat: dog] sat on the mat".
        """
        samples = []
        first_windows = np.unique(features.rows, return_index=True)[1]  # one of each document
        for i in first_windows[:_SAMPLES].tolist():
            ids, _, labels, _ = features.window(i)
            guesses = iter(outputs["guesses"][i].astype(int).tolist())
            words = list[str]()
            plain = list[int]()  # ids since the last masked token, which are decoded together
            for number, label in zip(ids[:_SAMPLE_TOKENS].tolist(), labels.tolist(), strict=False):
                if label == IGNORED:
                    plain.append(number)
                    continue
                guess = next(guesses, -1)  # -1 behind the last guess that was kept
                gold_token = tokenizer.decode([label])
                guessed_token = tokenizer.decode([guess]) if guess >= 0 else "?"
                words += [tokenizer.decode(plain), f"[{gold_token}: {guessed_token}]"]
                plain = []
            samples.append(" ".join([*words, tokenizer.decode(plain)]).strip())
        return samples

    def lines(self, outputs: Outputs, features: CorpusWindows, rows: Rows) -> list[dict[str, Any]]:
        """Returns the counts of each document."""
        return self.decode(outputs, features, rows)

    def constant_answer(self, train: Rows) -> float | None:
        """Returns the loss of a guess by the frequencies of tokens; see `unigram`."""
        return self.unigram

    def describe(self, rows: Rows) -> str:
        """Returns how much text there is."""
        return f"{sum(map(len, rows.columns['text'])):,} characters"

    def gold(self, rows: Rows, index: int) -> str:
        """Returns the text, which is its own label."""
        return str(rows.columns["text"][index])


def _first_guesses(outputs: Any, windows: int) -> Any:
    """Returns (B, K) ids that the model gives for the first masked tokens of each window.

    It is -1 where a window has fewer than K masked tokens.
    """
    import torch

    guesses = outputs.gold.new_full((windows, _GUESSES), -1)
    # Masked tokens are sorted by window. For each this is the position of its window's first one.
    begins = torch.searchsorted(outputs.windows, outputs.windows)
    place_in_window = torch.arange(len(begins), device=begins.device) - begins
    is_shown = place_in_window < _GUESSES
    shown_words = outputs.words[is_shown].argmax(dim=-1)
    guesses[outputs.windows[is_shown], place_in_window[is_shown]] = shown_words
    return guesses


def _replacement_ids(tokenizer: Tokenizer, mask_id: int, unknown: int | None) -> Ints:
    """Returns the ids that a masked token may be replaced by at random, in ascending order.

    They are those of the vocabulary without special tokens, the mask and the unknown token.
    """
    excluded = {*special_ids(tokenizer), mask_id}
    if unknown is not None:
        excluded.add(unknown)
    for number, token in tokenizer.get_added_tokens_decoder().items():
        if token.special:
            excluded.add(number)
    vocabulary_ids = set(tokenizer.get_vocab().values())
    return np.array(sorted(vocabulary_ids - excluded), dtype=np.int64)


def _mask_id(tokenizer: Tokenizer) -> int:
    """Returns the id of the mask token.

    Raises:
        UsageError: The tokenizer has no mask token.
    """
    for name in ("[MASK]", "<mask>"):
        mask_id = tokenizer.token_to_id(name)
        if mask_id is not None:
            return int(mask_id)
    raise UsageError(
        "the model's tokenizer has no mask token",
        remedy="Take a model that was trained on masked words.",
    )
