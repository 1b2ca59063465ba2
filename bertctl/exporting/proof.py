"""The proof that an export answers as the model does: the same rows through both, compared.

Three comparisons. Windows of the rows in batches of 1, 7 and 32, and windows that are cut or filled
up to six lengths: the numbers that come out of the graph. All rows as `predict` reads them: the
answers, and the numbers that they are made of. Letters: U windows, B of them in a batch, T tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Array, Floats, Ints
from bertctl.data.rows import Rows
from bertctl.exporting.subject import Subject
from bertctl.inference.engine import Engine
from bertctl.inference.export_proof import (
    FolderProof,
    Window,
    is_of_tokens,
    largest_difference,
    padded,
)
from bertctl.inference.graph_backend import GraphBackend, answer_outputs
from bertctl.inference.graph_session import GraphSession
from bertctl.inference.trained import open_run
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.export_document import ExportProof, NearTie, ProofShape
from bertctl.runtime.batching import evaluation_plan
from bertctl.tasks.base import Features, Outputs
from bertctl.tokenization.layout import special_ids

if TYPE_CHECKING:
    from torch import Tensor

    from bertctl.modeling.graph_network import GraphNetwork

ENOUGH_ROWS = 200
"""Rows that a comparison should have."""

NEAR = 1e-4
"""Largest difference of a row's outputs with which another answer is a near tie."""

BATCHES = (1, 7, 32)

_LENGTHS = 6
_PER_LENGTH = 7
_WINDOWS = 256
"""Windows that are compared in batches of each size."""

_IN_FOLDER = 32
_LISTED = 100


@dataclass(frozen=True)
class Answers:
    """Rows as the model, or its export, answered them.

    Attributes:
        outputs: What answers are made of.
        answers: One for each row.
    """

    outputs: Outputs
    answers: Sequence[Mapping[str, Any]]


class Comparison:
    """The rows of one comparison, with what the model says of them.

    Args:
        subject: The model.
        rows: At least one; labels are not looked at.
        listener: Receives progress messages.
    """

    def __init__(self, subject: Subject, rows: Rows, listener: Listener = SILENT) -> None:
        self.subject = subject
        if rows.split == "file":
            self.source = Path(rows.source).name
        else:
            self.source = rows.split
        self.rows = rows
        self._listener = listener
        self.features: Features = subject.task.encode(
            rows, subject.engine.tokenizer, max_length=subject.run.recipe.model.max_length
        )
        self._scored = subject.task.scored(self.features)
        self.network: GraphNetwork = subject.network()
        self.windows = subject.windows_of(self._scored, self._spread())
        self.model = self.answers(subject.engine, "asking the model")

    def _spread(self) -> Ints:
        """Returns the numbers of some windows, from the shortest to the longest."""
        count = len(self._scored)
        by_length = np.argsort(self._scored.lengths, kind="stable")
        picked = np.linspace(0, count - 1, min(count, _WINDOWS)).round().astype(np.int64)
        return np.asarray(by_length[np.unique(picked)])

    def sample(self) -> "dict[str, Tensor]":
        """Returns a batch of two windows to trace the network with, by input name.

        The second one is half as long, so that the trace has padding, unless the network was not
        made for padding.
        """
        import torch

        longest = max(self.windows, key=len)
        if self.subject.model.padding.unwanted:
            second_window = longest
        else:
            second_window = resized(longest, max(2, len(longest) // 2), self._special)
        batch = padded([longest, second_window], self.subject.model.padding)
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    @property
    def _special(self) -> set[int]:
        """Ids of the model's special tokens."""
        return special_ids(self.subject.model.tokenizer)

    def answers(self, engine: Engine, phase: str) -> Answers:
        """Returns how all rows are answered."""
        task = self.subject.task
        outputs = engine.forward(
            task,
            self.features,
            batch_size=max(BATCHES),
            phase=phase,
            listener=self._listener,
        ).outputs
        if task.compares_vectors and not self.rows.has("pair"):  # single texts have no answer
            return Answers(outputs, [{"prediction": None}] * len(self.rows))
        return Answers(outputs, task.decode(outputs, self.features, self.rows))

    def engine(self, session: GraphSession) -> Engine:
        """Returns the engine that computes with a graph."""
        model = self.subject.model
        backend = GraphBackend(session, self.subject.windows)
        return Engine(backend, model.tokenizer, model.padding, self.subject.compute)

    def default_engine(self) -> Engine:
        """Returns the model as `predict` computes it on this CPU, in bertctl's own precision."""
        path = self.subject.run.folder.path
        options = {"runtime.device": "cpu", "runtime.threads": self.subject.compute.threads}
        if self.subject.is_run:
            return open_run(path, options=options).load()
        return self.subject.engine

    def prove(self, session: GraphSession, tolerance: float) -> ExportProof:
        """Returns how far a graph is from the model.

        Args:
            session: The graph, as it will run.
            tolerance: Largest difference that is allowed.
        """
        shapes = [self._in_batches(session, size) for size in BATCHES]
        lengths = self._six_lengths()
        differences = [float(shape.max_difference) for shape in shapes]
        differences += [self._at_length(session, length) for length in lengths]

        graph = self.answers(self.engine(session), "asking the export")
        changes = self._changes(graph)
        differences += [float(change.max(initial=0.0)) for change in changes]
        flips, near_ties = self._flips(graph, self._by_row(changes), max(differences))
        return ExportProof(
            source=self.source,
            rows=len(self.rows),
            windows=len(self.windows),
            lengths=lengths,
            tolerance=tolerance,
            max_difference=max(differences),
            flips=flips,
            near_ties=near_ties,
            shapes=shapes,
            # The export's folder is checked later, and its numbers are filled in then.
            folder_windows=0,
            folder_difference=0.0,
            folder_tolerance=tolerance,
        )

    def _changes(self, graph: Answers) -> list[Floats]:
        """Returns how far the graph's logits or vectors are from the model's, number by number."""
        return [
            np.abs(self.model.outputs[name] - graph.outputs[name]) / self.scale
            for name in ("logits", "vectors")
            if name in self.model.outputs
        ]

    def _by_row(self, changes: Sequence[Floats]) -> Floats:
        """Returns (N,) largest difference of each row's outputs; 0 if rows have none of their own.

        Args:
            changes: Differences of all outputs, an array per kind of output.
        """
        n_rows = len(self.rows)
        largest = np.zeros(n_rows)
        has_output_per_row = self._scored.num_predictions == n_rows
        for change in changes:
            if has_output_per_row and len(change) == n_rows:
                largest = np.maximum(largest, change.reshape(n_rows, -1).max(axis=1))
        return largest

    @property
    def scale(self) -> float:
        """What a difference is divided by, so that one tolerance fits all models.

        It is 1 for logits. Scores have a unit of their own, and are divided by their deviation.
        """
        if not self._answers_scores:
            return 1.0
        return max(1.0, float(np.std(self.model.outputs["logits"])))

    @property
    def _answers_scores(self) -> bool:
        """Whether answers are scores with a unit of their own, not logits."""
        return self.subject.task.name == "text-regression"

    def _flips(self, graph: Answers, by_row: Floats, largest: float) -> tuple[int, list[NearTie]]:
        """Returns how many rows get another answer, and which ones only by a near tie.

        A near tie is an answer that changed although its outputs differ by rounding alone, as those
        of two labels with equal logits. It counts as no flip.

        Args:
            graph: How the graph answers.
            by_row: (N,) largest difference of each row's outputs.
            largest: Largest difference of all, for rows without outputs of their own.
        """
        flips = 0
        near_ties: list[NearTie] = []
        pairs = zip(self.model.answers, graph.answers, strict=True)
        for index, (before, after) in enumerate(pairs):
            if answer_of(before) == answer_of(after):
                continue
            difference = float(by_row[index])
            if not difference:  # the row has no outputs of its own
                difference = largest
            if difference > NEAR:
                flips += 1
            elif len(near_ties) < _LISTED:
                near_ties.append(
                    NearTie(
                        id=self.rows.answer_id(index),
                        model=answer_of(before),
                        export=answer_of(after),
                        difference=difference,
                    )
                )
        return flips, near_ties

    def _in_batches(self, session: GraphSession, size: int) -> ProofShape:
        """Returns how far the graph is from the model in batches of one size.

        Windows of similar lengths share a batch, as in evaluation.
        """
        lengths = np.array([len(window) for window in self.windows])
        plan = evaluation_plan(lengths, size, one_length=self.subject.model.padding.unwanted)
        differences = []
        for indices in plan:
            windows = [self.windows[index] for index in indices]
            differences.append(self._difference(session, windows))
        return ProofShape(
            batch=size,
            windows=len(self.windows),
            shortest=int(lengths.min()),
            longest=int(lengths.max()),
            max_difference=max(differences),
        )

    def _six_lengths(self) -> list[int]:
        """Returns lengths from the shortest window to the longest that the model reads."""
        shortest = min(len(window) for window in self.windows)
        longest = max(shortest, self.subject.run.recipe.model.max_length)
        lengths = np.geomspace(shortest, longest, _LENGTHS).round().astype(int)
        return [int(length) for length in np.unique(lengths)]

    def _at_length(self, session: GraphSession, length: int) -> float:
        """Returns how far the graph is from the model on a few windows of so many tokens.

        They are windows of the longest rows, cut or filled up. One can miss the length: special
        tokens and the first token of text are never cut, and special tokens alone are not filled
        up. The difference is 0 if all of them miss it.
        """
        longest_windows = self.windows[-_PER_LENGTH:]
        resized_windows = [resized(window, length, self._special) for window in longest_windows]
        windows = [window for window in resized_windows if len(window) == length]
        if windows:
            return self._difference(session, windows)
        return 0.0

    def _difference(self, session: GraphSession, windows: Sequence[Window]) -> float:
        """Returns the largest difference of what answers are made of, in one batch."""
        _, difference = self._compared(session, windows)
        return difference

    def _compared(
        self, session: GraphSession, windows: Sequence[Window]
    ) -> tuple[dict[str, Array], float]:
        """Returns the model's outputs for a batch, and the largest difference of the graph's.

        Only outputs that answers are made of are compared. The difference is in units of `scale`,
        as the tolerance is.
        """
        inputs = padded(windows, self.subject.model.padding)
        names = answer_outputs(session.outputs)
        model_outputs = self._of_model(inputs)
        expected = {name: model_outputs[name] for name in names}
        graph_outputs = session.run(inputs, names)
        is_token = inputs["attention_mask"].astype(bool)
        largest = max(
            largest_difference(name, expected[name], graph_outputs[name], is_token)
            for name in names
        )
        return expected, largest / self.scale

    def _of_model(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the outputs of the model by name, for a batch of inputs by name."""
        import torch

        tensors = {name: torch.from_numpy(inputs[name]) for name in self.network.names}
        with torch.inference_mode():
            outputs = self.network(**tensors)
        return {name: tensor.float().numpy() for name, tensor in outputs.items()}

    def for_folder(self, session: GraphSession, *, is_smaller: bool) -> tuple[FolderProof, float]:
        """Returns the windows that an export's folder stores, with the outputs that are expected.

        When the folder is opened, the graph is compared with them again. The second value is the
        largest difference on this machine.

        Args:
            session: The graph that is exported.
            is_smaller: Whether the graph has fewer bits per number than the model. The graph's own
                outputs are then expected, as the model's differ from them anyway.
        """
        count = min(len(self.windows), _IN_FOLDER)
        picked = np.linspace(0, len(self.windows) - 1, count).round().astype(int)
        proof = FolderProof([self.windows[i] for i in np.unique(picked)])
        padding = self.subject.model.padding
        for window in proof.windows:
            if is_smaller:
                names = answer_outputs(session.outputs)
                expected = session.run(padded([window], padding), names)
            else:
                expected, _ = self._compared(session, [window])
            for name, values in expected.items():
                # The file has the outputs of all windows one after the other. Outputs of tokens,
                # (1, T, ...), are joined by their tokens; others, (1, C), are a row per window.
                of_window = values[0] if is_of_tokens(name, values) else values
                proof.expected.setdefault(name, []).append(of_window)
        return proof, proof.difference(session, padding) / self.scale


def answer_of(answer: Mapping[str, Any]) -> Any:
    """Returns the part of an answer that can flip (labels, tags, choice, words); None of scores."""
    prediction = answer["prediction"]
    return None if isinstance(prediction, float) else prediction


def resized(window: Window, length: int, special: set[int]) -> Window:
    """Returns a window of another length: without some of its words, or with one of them repeated.

    [CLS] a b c [SEP] of length 4 is [CLS] a c [SEP], and of length 6 [CLS] a b c c [SEP]. A window
    of special tokens alone stays as it is.

    Args:
        window: The window.
        length: Tokens that it is to have.
        special: Ids of special tokens.
    """
    words = [i for i, token in enumerate(window.ids.tolist()) if token not in special]
    if not words:
        return window
    surplus = len(window) - length
    if surplus > 0:
        dropped = {*words[1 : surplus + 1]}
        positions = [i for i in range(len(window)) if i not in dropped]
    else:
        last_word = words[-1]
        repeated = [last_word] * (1 - surplus)
        positions = [*range(last_word), *repeated, *range(last_word + 1, len(window))]
    order = np.array(positions)
    return Window(window.ids[order], window.type_ids[order])
