"""Vectors of texts from an export, in arrays: of its last layer, or as its folder makes them.

Letters: N rows, U windows, B windows in a batch, T tokens of the longest of them, H hidden size,
D size of a vector.
"""

from collections.abc import Callable
from typing import NoReturn, Self

import numpy as np

from bertctl.arrays import Array, Bools, Floats32, Ints
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.documents import read_json
from bertctl.errors import UnavailableError, UsageError
from bertctl.features.encoded_windows import EncodedWindows
from bertctl.features.encoder import CPU_BUDGET, TokenVectors, VectorSpec
from bertctl.inference.engine import Engine
from bertctl.inference.export_folder import ExportFolder
from bertctl.inference.exported import check_runtime, export_engine
from bertctl.inference.graph_backend import GraphBackend
from bertctl.modeling.layers import layer_count
from bertctl.modeling.pooling import join_windows, pool_arrays, unit_length
from bertctl.run_documents.export_document import LAST_STATE, VECTOR
from bertctl.runtime.batching import token_budget_plan
from bertctl.tasks.sequences import padded_text_arrays
from bertctl.tokenization.layout import Layout, special_ids

_POOLINGS = ("cls", "mean", "max", "mean-max", "model")
"""How a text's vector can be made of what an export gives."""


class ExportedEncoder:
    """Computes vectors of texts with an export; used as `features.encoder.Encoder` is.

    Args:
        source: The export.
        spec: Which vectors: of the last layer.
        engine: The export, ready to compute.

    Raises:
        UsageError: Vectors that an export does not have.
    """

    def __init__(self, source: ExportFolder, spec: VectorSpec, engine: Engine) -> None:
        _check_spec(source, spec)
        self.source = source
        self.spec = spec
        self.engine = engine
        self._special = sorted(special_ids(engine.tokenizer))
        self._how = spec.poolings[0]
        self._cls_last = self._how == "cls" and _cls_last(source, engine)

    @classmethod
    def open(cls, source: ExportFolder, spec: VectorSpec, runtime: RuntimeSection) -> Self:
        """Opens the graph of an export, and returns its encoder."""
        check_runtime(source, device=runtime.device, precision=runtime.precision)
        return cls(source, spec, export_engine(source, runtime))

    @property
    def sizes(self) -> list[int]:
        """Returns D of the one vector that a text has."""
        document = self.source.document
        if self._how == "model" and document.vectors is not None:
            return [document.vectors.size]
        hidden = int(self.source.config["hidden_size"])
        return [2 * hidden if self._how == "mean-max" else hidden]

    def texts(
        self, windows: EncodedWindows, *, done: Callable[[int], None] | None = None
    ) -> list[Floats32]:
        """Returns a list of one array: the (N, D) vectors of the rows.

        Args:
            windows: Windows of N rows; the vectors of a row's windows become one vector.
            done: Called with the number of windows of each batch.
        """
        encoded = windows.encoded
        vectors = np.empty((len(windows.owner), self.sizes[0]), dtype=np.float32)
        padding = self.engine.padding
        plan = token_budget_plan(encoded.lengths, CPU_BUDGET, one_length=padding.unwanted)
        for indices in plan:
            inputs = padded_text_arrays(encoded, indices, padding)
            vectors[indices] = self._vectors(inputs)
            if done is not None:
                done(len(indices))

        has_several_windows = len(windows.owner) != windows.rows
        if has_several_windows:
            vectors = join_windows(
                vectors,
                owners=windows.owner,
                counts=self._counted(windows),
                how=self._how,
                windows=self.spec.windows,
            )
        modules = self.spec.sentence_modules
        if self.spec.normalize or (modules is not None and modules.normalised):
            vectors = unit_length(vectors)
        return [vectors]

    def tokens(self, windows: EncodedWindows) -> TokenVectors:
        """Refuses: an export was asked for vectors of texts when it was opened."""
        raise NotImplementedError(f"{len(windows.owner)} windows")

    def _vectors(self, inputs: dict[str, Array]) -> Floats32:
        """Returns (B, D) vectors of windows."""
        backend = self.engine.backend
        assert isinstance(backend, GraphBackend)  # noqa: S101 - of an export
        if self._how == "model":
            return backend.session.run(inputs, (VECTOR,))[VECTOR]
        states = backend.session.run(inputs, (LAST_STATE,))[LAST_STATE]
        is_text: Bools = inputs["attention_mask"].astype(bool)
        counted = None
        if not self.spec.special_tokens:
            counted = is_text & ~np.isin(inputs["input_ids"], self._special)
        return pool_arrays(states, is_text, self._how, counted=counted, cls_last=self._cls_last)

    def _counted(self, windows: EncodedWindows) -> Ints:
        """Returns the (U,) tokens of each window that count in its mean."""
        encoded = windows.encoded
        if self.spec.special_tokens:
            return encoded.lengths
        special = np.isin(encoded.ids, self._special)
        counts = encoded.lengths - np.add.reduceat(special, encoded.starts[:-1])
        # A window that has only special tokens counts as one token.
        return np.asarray(np.maximum(counts, 1))


def _check_spec(source: ExportFolder, spec: VectorSpec) -> None:
    """Refuses vectors that an export does not have.

    Raises:
        UsageError: Other layers than the last, vectors of tokens, or another pooling.
    """
    last_state = (layer_count(source.config),)
    lower_layers = [layer.name for layer in spec.layers if layer.states != last_state]
    if lower_layers:
        _refuse(source, f"has the last layer only, and `layers={lower_layers[0]}` was given")
    if spec.by_token:
        _refuse(source, "gives vectors of texts, and those of tokens were asked for")
    for pooling in spec.poolings:
        if pooling not in _POOLINGS:
            _refuse(source, f"has no pooling '{pooling}'; it has {', '.join(_POOLINGS)}")
    if len(spec.poolings) != 1:
        raise UsageError(
            "one file holds one pooling", remedy="Give one, and run the command once for each."
        )


def _refuse(source: ExportFolder, reason: str) -> NoReturn:
    """Refuses what an export can't do, such as "has the last layer only".

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"{source.path} is an export, which {reason}",
        remedy="Give the model that it was made from: `source` in export.json names it.",
    )


def _cls_last(source: ExportFolder, engine: Engine) -> bool:
    """Returns whether [CLS] ends an encoded text (True) or begins it (False).

    Raises:
        UsageError: The tokenizer names no [CLS], or puts it neither first nor last.
    """
    token = _cls_token(source)
    if token:
        number = engine.tokenizer.token_to_id(token)
    else:
        number = None
    slots = Layout.of(engine.tokenizer, pair=False).slots  # special tokens, text, special tokens
    ids_before_text = slots[0].ids
    ids_behind_text = slots[-1].ids
    if number is not None and number in ids_before_text:
        return False
    if number is not None and number in ids_behind_text:
        return True
    raise UsageError("the model puts no [CLS] into a text", remedy="Use `pooling=mean`.")


def _cls_token(source: ExportFolder) -> str:
    """Returns the token that stands for a text, by the tokenizer's settings; empty for none."""
    try:
        settings = read_json(source.path / "tokenizer_config.json")
    except UnavailableError:
        return ""
    token = settings.get("cls_token")
    if isinstance(token, dict):
        token = token.get("content")
    return str(token or "")
