"""A converted model with all that surrounds its graph, in numpy: choices, sentences, windows.

The graph takes windows, (U, T). Letters: B rows, K texts of a row, U windows, T tokens, C outputs,
D size of a vector.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from bertctl.arrays import Array
from bertctl.inference.graph_session import GraphSession
from bertctl.inference.scorers import ArrayScorer, Scorer
from bertctl.inference.window_answers import WindowAnswers
from bertctl.run_documents.export_document import LAST_STATE, VECTOR, WINDOW_VECTORS
from bertctl.runtime.batching import Padding
from bertctl.tasks.base import Task

_OF_WINDOWS = ("logits", "start_logits", "end_logits", VECTOR)


def answer_outputs(outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those outputs of a graph that answers are made of.

    They are logits and the like; of an encoder without a head its last hidden states.
    """
    return tuple(name for name in outputs if name in _OF_WINDOWS) or (LAST_STATE,)


@dataclass(frozen=True)
class GraphBackend:
    """Computes the outputs of batches of any task.

    Attributes:
        session: The graph.
        windows: How the windows of long texts become one answer; None where texts have one each.
    """

    session: GraphSession
    windows: WindowAnswers | None = None

    def __call__(self, **inputs: Array) -> Any:
        """Returns the outputs of `compute` as attributes."""
        return SimpleNamespace(**self.compute(inputs))

    def inference(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that changes nothing: a graph is never random."""
        return contextlib.nullcontext()

    def scorer(self, task: Task, padding: Padding, device: str) -> Scorer:  # noqa: ARG002
        """Returns what scores a task's batches in arrays; the device is always the CPU."""
        return ArrayScorer(task, self, padding)

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Returns outputs by name.

        They are `logits` (B, C) or (B, T, C), of choices (B, K), `start_logits` and `end_logits`
        (B, T), and of sentences `vectors` (B, K, D).

        Args:
            inputs: `input_ids`, `attention_mask` and perhaps `token_type_ids`, (B, T) or (B, K, T);
                `owners` (U,) where the rows are windows of texts.
        """
        if "owners" in inputs:
            return self._of_texts(inputs)
        # The graph takes (N, T) tokens. Choices and sentences of a row are K rows of it: (B, K, T).
        *rows, tokens = inputs["input_ids"].shape
        flat = {name: values.reshape(-1, tokens) for name, values in inputs.items()}
        results = self.session.run(flat, answer_outputs(self.session.outputs))
        if VECTOR in results:
            vectors = results[VECTOR]
            return {"vectors": vectors.reshape(*rows, vectors.shape[-1])}
        has_choices = len(rows) > 1
        if has_choices:
            return {"logits": results["logits"].reshape(rows)}
        return results

    def _of_texts(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Returns (B, C) answers of texts that are read in several windows, pooled over these.

        As many windows are computed at once as there are texts, so that a batch of long texts takes
        no more memory than one of short texts.

        Args:
            inputs: (U, T) arrays of U windows, and `owners` (U,), the number of each window's text.
        """
        assert self.windows is not None  # noqa: S101 - rows have windows where the model pools them
        feeds = {name: values for name, values in inputs.items() if name != "owners"}
        owners = inputs["owners"]
        n_texts = int(owners.max()) + 1
        vectors = []
        for begin in range(0, len(owners), n_texts):
            batch = {name: values[begin : begin + n_texts] for name, values in feeds.items()}
            vectors.append(self.session.run(batch, (WINDOW_VECTORS,))[WINDOW_VECTORS])
        counts = self.windows.counted(feeds["input_ids"], feeds["attention_mask"])
        return {"logits": self.windows.answers(np.concatenate(vectors), owners, counts)}
