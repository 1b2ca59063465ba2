"""`explain`: which words each answer rests on, row by row, in bounded memory."""

import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bertctl.arrays import Ints
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.predictor import Predictor
from bertctl.inference.trained import NetworkRun
from bertctl.interpretability.attribution import (
    FIGURES,
    METHODS,
    Attribution,
    faithfulness,
    order_of,
)
from bertctl.interpretability.embeddings import EmbeddedNetwork
from bertctl.interpretability.lines import Line as InputLine
from bertctl.interpretability.lines import read_lines
from bertctl.modeling.families import family_of
from bertctl.progress import SILENT, Listener
from bertctl.tasks.answers import Line
from bertctl.words import command, listing, unknown

_ROWS = 128  # explained at once: batches of like lengths are formed among them
_WITHOUT_GRADIENTS = ("leave-one-out", "rollout")


@dataclass(frozen=True)
class Asked:
    """How answers are explained.

    Attributes:
        methods: Names of methods, out of `METHODS`.
        label: Label that is explained instead of the answered one.
        steps: Steps of integrated gradients; None halves them where their sum is off.
        faithful_rows: How many rows' faithfulness is measured, the first ones'.
    """

    methods: Sequence[str] = ("integrated-gradients",)
    label: str | None = None
    steps: int | None = None
    faithful_rows: int = 300

    def check(self, run: NetworkRun) -> None:
        """Refuses unknown methods, and labels that the run does not know.

        Raises:
            UsageError: A method or label is unknown; the error names the known ones.
        """
        for name in self.methods:
            if name in METHODS:
                continue
            raise UsageError(
                unknown("method", name, METHODS), remedy=f"Choose from {', '.join(METHODS)}."
            )
        labels = run.task.label_names
        known = run.task.explained_labels
        if self.label is not None and self.label not in known:
            if labels:
                message = unknown(f"label in {run.folder.path}", self.label, known)
                remedy = f"Choose from {listing(list(known))}."
            else:
                message = (
                    f"{run.folder.path} is a run of {run.task.name}, whose answers are not labels"
                )
                remedy = "Leave `label=` out."
            raise UsageError(message, remedy=remedy)


class Explainer:
    """Explains the answers of a run, in fp32 whatever precision it answers in.

    Attributes:
        counts: Examples, targets, and those whose integrated gradients miss the sum, so far.
        faithful: For each target that was measured, comprehensiveness and sufficiency of each
            method, and of a random order of the words.
    """

    def __init__(self, run: NetworkRun, request: Asked) -> None:
        request.check(run)
        self.run = run
        self.asked = request
        self.counts = {"examples": 0, "targets": 0, "not_converged": 0}
        # For each target that was measured: method -> figure -> its value.
        self.faithful: list[dict[str, dict[str, float]]] = []

    @cached_property
    def engine(self) -> Engine:
        """Model, loaded when it is first needed."""
        return self.run.load(to_input=True)

    @cached_property
    def baseline(self) -> tuple[int, str]:
        """Token that stands for no word, as id and name: [PAD], or one with as little meaning.

        Some tokenizers pad with the token that ends a text, which does mean something. The mask, or
        the unknown token, takes its place.
        """
        tokenizer = self.engine.tokenizer
        padding = self.engine.padding.id
        padding_token = str(tokenizer.id_to_token(padding))
        if "pad" in padding_token.lower():
            return padding, padding_token

        for name in ("[MASK]", "<mask>", "[UNK]", "<unk>"):
            token_id = tokenizer.token_to_id(name)
            if token_id is not None:
                return token_id, name
        return padding, padding_token

    def explain(
        self, chunks: Iterable[Rows], *, total: int = 0, listener: Listener = SILENT
    ) -> Iterator[dict[str, Any]]:
        """Yields each row's answer as `predict` has it, with its explained `targets`.

        A target is an output that the answer rests on, such as the logit of its label.

        A target has what it stands for (`label`, `tag`, `answer`, `choice`, ...), its `value`,
        `words` with what each contributes by each method, and `methods` with what else is known of
        each.

        Args:
            chunks: Rows, some at a time.
            total: Rows in all of them, where that is known.
            listener: Receives progress messages.
        """
        predictor = Predictor(self.run, self.engine)
        objective: Any = self.run.task.objective(self.engine.padding)
        network = EmbeddedNetwork(self.engine, objective, self.baseline[0])
        # Gradients by the input need a network that reads its token table in the usual way. The
        # first lines show whether it does.
        needs_gradients = set(self.asked.methods) - set(_WITHOUT_GRADIENTS)
        is_to_check = bool(needs_gradients)
        for rows in itertools.chain.from_iterable(chunk.parts(_ROWS) for chunk in chunks):
            answered = predictor.answer(rows)
            targets = self.run.task.targets(answered, self.asked.label)
            lines = read_lines(targets, answered, objective, self.engine)
            if lines and is_to_check:
                network.require_path(lines[:4], family_of(self.run.source.config))
                is_to_check = False
            explanations: Any = ()
            if lines:
                row_ids = [rows.ids[target.row] for target in targets]
                explanations = self._explained(network, lines, row_ids)
            of_rows = [
                predictor.line(answered, i) | self._gold(rows, i) | {"targets": []}
                for i in range(len(rows))
            ]
            for target, explained in zip(targets, explanations, strict=True):
                of_rows[target.row]["targets"].append({**target.named, **explained})
            self.counts["examples"] += len(rows)
            listener.advance("explaining", self.counts["examples"], total)
            yield from of_rows
        predictor.finish(listener)
        listener.finish("explaining")

    def _gold(self, rows: Rows, i: int) -> dict[str, Any]:
        """Returns the gold answer of a row where its file has one that the task reads."""
        if not rows.has("label"):
            return {}
        try:
            return {"gold": self.run.task.gold(rows, i)}
        except DataError:  # a label that the model does not know: explaining needs none
            return {}

    def _explained(
        self, network: EmbeddedNetwork, lines: Sequence[InputLine], ids: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yields for each line its value, its words with their contributions, and facts by method.

        The first lines, as many as were asked for, also get the faithfulness of each method.

        Args:
            network: Gives outputs and gradients.
            lines: Lines to explain, n of them.
            ids: (n,) ids of their rows.
        """
        methods = {
            name: METHODS[name](network, lines, self.asked.steps) for name in self.asked.methods
        }
        # All methods explain the same numbers, so those of the first one will do.
        values = np.array([attribution.value for attribution in methods[self.asked.methods[0]]])
        # Faithfulness is measured for the first lines of the whole input, over all calls.
        n_measured = max(0, self.asked.faithful_rows - len(self.faithful))
        measured: list[dict[str, dict[str, float]]] = []
        if n_measured:
            measured_lines = lines[:n_measured]
            orders = _orders_of_words(methods, measured_lines, ids)
            measured = faithfulness(network, measured_lines, values[:n_measured], orders)
        self.faithful += measured

        for i, line in enumerate(lines):
            by_method = {name: attributions[i] for name, attributions in methods.items()}
            words = []
            for number, word in enumerate(line.words):
                contributions = {
                    name: _number_or_none(attribution.words[number])
                    for name, attribution in by_method.items()
                }
                words.append(word | contributions)
            # `apart` is what the tokens that belong to no word contribute.
            facts = {
                name: {"apart": attribution.apart, **attribution.facts}
                for name, attribution in by_method.items()
            }
            self.counts["targets"] += 1
            self.counts["not_converged"] += any(
                fact.get("converged") is False for fact in facts.values()
            )
            if i < len(measured):
                faithful = {"faithfulness": measured[i]}
            else:
                faithful = {}
            yield {"value": float(values[i]), "words": words, "methods": facts, **faithful}

    def summary(self) -> dict[str, Any]:
        """Returns the counts, the baseline, and each method's mean faithfulness.

        `standard_errors` says by how many standard errors a method is better than a random order of
        words: its comprehensiveness is higher, its sufficiency lower.
        """
        _, baseline_token = self.baseline
        document: dict[str, Any] = {
            **self.counts,
            "precision": "fp32",
            "baseline": baseline_token,
        }
        if not self.faithful:
            return document

        document["faithfulness"] = {}
        for name in (*self.asked.methods, "random"):
            figures: dict[str, Any] = {"targets": len(self.faithful)}
            document["faithfulness"][name] = figures
            for figure, sign in zip(FIGURES, (1, -1), strict=True):
                values = np.array([scores[name][figure] for scores in self.faithful])
                chance = np.array([scores["random"][figure] for scores in self.faithful])
                figures[figure] = float(values.mean())
                gain = sign * (values - chance)
                if len(gain) > 1:
                    standard_error = gain.std(ddof=1) / math.sqrt(len(gain))
                else:
                    standard_error = 0.0
                if standard_error:  # 0 for the random order itself
                    figures.setdefault("standard_errors", {})[figure] = float(
                        gain.mean() / standard_error
                    )
        return document


def _orders_of_words(
    methods: Mapping[str, Sequence[Attribution]], lines: Sequence[InputLine], ids: Sequence[str]
) -> dict[str, list[Ints]]:
    """Returns for each method, and for `random`, the order of each line's removable words.

    The most important word comes first. The random order of a line is always the same.

    Args:
        methods: Method -> an attribution for each line, and perhaps for more.
        lines: The lines.
        ids: Ids of the lines' rows, and perhaps of more.
    """
    orders = {}
    for name, attributions in methods.items():
        orders[name] = [
            order_of(np.where(line.removable, attribution.words, np.nan))
            for attribution, line in zip(attributions, lines, strict=False)
        ]
    orders["random"] = []
    for row_id, line in zip(ids, lines, strict=False):
        seed = zlib.crc32(row_id.encode("utf-8", "surrogatepass"))
        removable_words = np.flatnonzero(line.removable)
        orders["random"].append(np.random.default_rng(seed).permutation(removable_words))
    return orders


def _number_or_none(value: float) -> float | None:
    """Returns a number as JSON has it; None for NaN."""
    return None if math.isnan(value) else float(value)


def answered_rows(run: NetworkRun, lines: Sequence[Line]) -> Rows:
    """Returns lines of a prediction file as rows, with the columns that all lines have.

    Args:
        run: The run whose predictions they are.
        lines: Predictions, such as the wrong ones.

    Raises:
        UsageError: Lines without texts.
    """
    names = list(run.task.answers.columns)
    for line in lines:
        names = [name for name in names if name in line]
    if not {*run.task.columns} - {"label"} <= {*names}:
        message = (
            f"the predictions of {run.folder.path} were written without texts, so there is nothing "
            "to explain"
        )
        raise UsageError(
            message,
            remedy=f"Write them again: {command('evaluate RUN', split='SPLIT', text=True)}.",
        )
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for line in lines:
        for name in names:
            columns[name].append(line[name])
    return Rows(
        split="errors",
        columns=columns,
        ids=[str(line["id"]) for line in lines],
        source=str(run.folder.path),
    )
