"""The linear classifier of a probe on a pooled vector of a frozen encoder, saved and loaded.

RUN/probe.safetensors holds `weight` (C, D) and `bias` (C,), with the standardising of the vectors
multiplied in, and for a learned mix of layers `mix` (K,), for people to look at. RUN/probe.json
says which vector is read, of which encoder, and what the outputs are called. Letters: D size of the
vector, C outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.arrays import Floats32
from bertctl.documents import loading, read_json_document
from bertctl.errors import UnavailableError
from bertctl.modeling.source import ModelSource
from bertctl.run_documents.probe_document import ProbeDocument
from bertctl.run_folder import SCHEMA
from bertctl.writing import atomic_write, write_json

DOCUMENT = "probe.json"
WEIGHTS = "probe.safetensors"

_DOCUMENTED = (
    "layer",
    "pooling",
    "special_tokens",
    "normalize",
    "classifier",
    "strength",
    "windows",
)
"""Fields of a head that stand in probe.json, in their order."""

FIRST_OF_WORD = "first"
"""The pooling of a probe on words: each is read by its first token, as in fine-tuning."""


@dataclass(frozen=True)
class LinearHead:
    """Trained linear classifier of a probe, without the encoder.

    Attributes:
        layer: Name of the encoder's layer, or mix of layers, that it reads.
        pooling: How the vectors of a text's tokens are pooled; `FIRST_OF_WORD` for a vector of each
            word.
        special_tokens: Whether special tokens count in the pooling.
        normalize: Whether the pooled vector is brought to length 1.
        classifier: Kind of the classifier: logistic-regression or ridge.
        strength: Scikit-learn's C (of ridge: 1 / alpha).
        weight: (C, D).
        bias: (C,).
        mix: (K,) weights of a learned mix of layers, already in `weight`; None without a mix.
        windows: How the vectors of a long text's windows are pooled.
    """

    layer: str
    pooling: str
    special_tokens: bool
    normalize: bool
    classifier: str
    strength: float
    weight: Floats32
    bias: Floats32
    mix: Floats32 | None = None
    windows: str = "mean"

    def save(self, folder: Path, *, source: ModelSource, head: Mapping[str, Any]) -> None:
        """Writes probe.safetensors and probe.json.

        Args:
            folder: Folder of the run.
            source: The encoder; its name and hash are saved.
            head: The task's outputs, as a fine-tuned model's config.json has them (num_labels,
                id2label, ...).
        """
        from safetensors.numpy import save_file

        arrays = {"weight": np.ascontiguousarray(self.weight), "bias": self.bias}
        if self.mix is not None:
            arrays["mix"] = self.mix
        atomic_write(folder / WEIGHTS, lambda aside: save_file(arrays, aside))
        fields = {
            "schema": SCHEMA,
            "encoder": source.name,
            "encoder_hash": source.content_hash(),
            **{name: getattr(self, name) for name in _DOCUMENTED},
            "head": dict(head),
        }
        write_json(folder / DOCUMENT, ProbeDocument.model_validate(fields).as_json())


def is_probe(folder: Path) -> bool:
    """Returns whether a run folder holds a probe instead of a model."""
    return (folder / DOCUMENT).exists()


def read_probe(folder: Path) -> tuple[LinearHead, ProbeDocument]:
    """Returns the head of a probe's run folder, and the content of its probe.json.

    Raises:
        UnavailableError: A file is missing or damaged.
    """
    from safetensors.numpy import load_file

    remedy = "Run `bertctl probe` again with `overwrite=True`."
    document = read_json_document(folder / DOCUMENT, ProbeDocument, remedy=remedy)
    with loading(folder / WEIGHTS, kind=UnavailableError, remedy=remedy):
        arrays = load_file(folder / WEIGHTS)
        fields: dict[str, Any] = {name: getattr(document, name) for name in _DOCUMENTED}
        return LinearHead(
            **fields,
            weight=arrays["weight"],
            bias=arrays["bias"],
            mix=arrays.get("mix"),
        ), document
