"""A proved graph becomes smaller: the layers that cost most stay in fp32 until metrics hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bertctl.arrays import Array
from bertctl.exporting.convert import GRAPH_FILES
from bertctl.exporting.proof import Comparison
from bertctl.exporting.quality import QualityCheck, Scores, engine_speeds
from bertctl.exporting.request import ExportRequest
from bertctl.exporting.rows import calibration_windows
from bertctl.exporting.smaller import (
    halve_openvino,
    layers_of,
    quantize_onnx,
    quantize_openvino,
)
from bertctl.inference.export_proof import Window, padded
from bertctl.inference.graph_backend import answer_outputs
from bertctl.inference.graph_session import GraphSession, open_graph
from bertctl.progress import Listener
from bertctl.run_documents.export_document import ExportQuality
from bertctl.tasks.base import Outputs

_CALIBRATION = 300
"""Texts of the training rows that activations are calibrated on, one at a time."""

_SENSITIVE = 64
"""Texts that the cost of a layer is measured on."""

_CALIBRATION_OF_LAYER = 32
"""Texts that the activations of one layer are calibrated on, to measure its cost."""


@dataclass(frozen=True)
class SmallGraph:
    """A graph of smaller numbers.

    Attributes:
        session: The graph, opened.
        quality: The graph's metrics beside the model's, and what it saves.
        failures: Which metrics drop too much, a sentence each.
    """

    session: GraphSession
    quality: ExportQuality
    failures: tuple[str, ...]


@dataclass
class _Shrinking:
    """Writes and measures smaller graphs for one request.

    Attributes:
        comparison: Labelled rows, answered by the model.
        check: Limits of the metrics.
        source: The ONNX graph in fp32. Smaller graphs are written beside it.
        request: Format and precision.
        listener: Receives progress messages.
    """

    comparison: Comparison
    check: QualityCheck
    source: Path
    request: ExportRequest
    listener: Listener

    @property
    def folder(self) -> Path:
        """Folder of all graphs."""
        return self.source.parent

    def open(self, path: Path) -> GraphSession:
        """Opens a graph as it will run."""
        return open_graph(
            path,
            self.request.file_format,
            threads=self.comparison.subject.compute.threads,
            precision=self.request.precision,
        )

    def outputs(self, session: GraphSession) -> Outputs:
        """Returns what the graph says of all rows."""
        engine = self.comparison.engine(session)
        return self.comparison.answers(engine, "asking the smaller export").outputs

    def written(self, excluded: Sequence[str]) -> Path:
        """Writes the smaller graph, and returns the file to open.

        Args:
            excluded: Layers that stay in fp32.
        """
        if self.request.file_format == "onnx":
            target = self.folder / "small.onnx"
            quantize_onnx(self.source, target, excluded=excluded)
            return target
        target = self.folder / "small.xml"
        if self.request.precision == "int8":
            quantize_openvino(self.source, target, self._calibration, excluded=excluded)
        elif self.request.precision == "fp16":
            halve_openvino(self.source, target)
        else:  # bf16 is a way of computing: the file stays in fp32
            return self.folder / GRAPH_FILES["openvino"]
        return target

    @cached_property
    def _calibration(self) -> list[dict[str, Array]]:
        """Texts, one at a time, that ranges of activations are measured on."""
        windows = calibration_windows(self.comparison.subject, self.listener)
        if not windows:
            windows = self.comparison.windows
        positions = np.linspace(0, len(windows) - 1, _CALIBRATION).round().astype(int)
        chosen = [windows[position] for position in np.unique(positions)]
        return [_inputs_of(self.comparison, [window]) for window in chosen]

    def costs(self, layers: Sequence[str]) -> list[str]:
        """Returns layers by what each alone costs when it is quantized, the most costly first.

        The cost is the largest mean change of an output, on a few windows, in a graph of which this
        layer alone is in int8.
        """
        comparison = self.comparison
        count = min(len(comparison.windows), _SENSITIVE)
        positions = np.linspace(0, len(comparison.windows) - 1, count).round().astype(int)
        inputs = _inputs_of(comparison, [comparison.windows[position] for position in positions])
        plain = self.open(self.source)
        expected = plain.run(inputs)
        changes = {}
        for layer in layers:
            path = self._written_alone(layer, layers)
            results = self.open(path).run(inputs, answer_outputs(plain.outputs))
            changes[layer] = max(
                float(np.abs(values - expected[name]).mean()) for name, values in results.items()
            )
            for file in _files(self.folder, path.name):
                file.unlink()
        return sorted(layers, key=changes.__getitem__, reverse=True)

    def _written_alone(self, layer: str, layers: Sequence[str]) -> Path:
        """Writes the graph with a single layer in int8, and returns the file to open."""
        if self.request.file_format == "onnx":
            path = self.folder / "one.onnx"
            quantize_onnx(self.source, path, only=[layer])
            return path
        path = self.folder / "one.xml"
        in_fp32 = [name for name in layers if name != layer]
        # Fewer samples: a graph is calibrated for each layer.
        step = max(1, len(self._calibration) // _CALIBRATION_OF_LAYER)
        quantize_openvino(self.source, path, self._calibration[::step], excluded=in_fp32)
        return path


def shrink(
    comparison: Comparison,
    check: QualityCheck,
    source: Path,
    session: GraphSession,
    request: ExportRequest,
    listener: Listener,
) -> SmallGraph:
    """Replaces a proved graph with a smaller one, if metrics hold.

    If they don't hold in int8, one layer after the other stays in fp32, the one that costs most
    first, until they do or no layer is left.

    Args:
        comparison: Labelled rows, answered by the model.
        check: Limits of how far metrics may drop.
        source: The ONNX graph in fp32.
        session: The proved graph of the format, in fp32.
        request: Format and precision.
        listener: Receives which layers stay in fp32.
    """
    work = _Shrinking(comparison, check, source, request, listener)
    bytes_before = _bytes_of(_files(source.parent, GRAPH_FILES[request.file_format]))
    fp32_layers: list[str] = []

    path = work.written(fp32_layers)
    small = work.open(path)
    outputs = work.outputs(small)
    scores = check.score(outputs)
    failures = check.failures(scores)

    costly_layers: list[str] = []
    if failures and request.precision == "int8":
        listener.say(f"{failures[0]}: the cost of each layer is measured")
        costly_layers = work.costs(layers_of(source, request.file_format))

    while failures and costly_layers:
        layer = costly_layers.pop(0)
        fp32_layers.append(layer)
        listener.say(f"{layer} stays in fp32")

        path = work.written(fp32_layers)
        small = work.open(path)
        outputs = work.outputs(small)
        scores = check.score(outputs)
        failures = check.failures(scores)

    quality = _quality(work, outputs, scores, bytes_before, path, fp32_layers)
    if not failures:
        engines = {
            "model": comparison.default_engine(),
            "fp32": comparison.engine(session),
            request.precision: comparison.engine(small),
        }
        speeds = engine_speeds(comparison, engines)
        quality = quality.model_copy(update={"rows_per_second": speeds})
        small = _moved(work, path)
    return SmallGraph(small, quality, failures)


def _moved(work: _Shrinking, path: Path) -> GraphSession:
    """Renames the files of the smaller graph to those of the graph in fp32, and opens it there."""
    name = GRAPH_FILES[work.request.file_format]
    if path.name == name:
        return work.open(path)
    for file in _files(work.folder, path.name):
        file.replace(work.folder / (Path(name).stem + file.name.removeprefix(path.stem)))
    return work.open(work.folder / name)


def _quality(
    work: _Shrinking,
    outputs: Outputs,
    after: Scores,
    before: int,
    path: Path,
    excluded: Sequence[str],
) -> ExportQuality:
    """Returns what the smaller graph costs and saves; speeds are measured later.

    Args:
        work: The graph's files and limits.
        outputs: The smaller graph's outputs for the compared rows.
        after: Scores of these outputs.
        before: Number of bytes of the graph in fp32.
        path: File of the smaller graph.
        excluded: Layers that stay in fp32.
    """
    check = work.check
    return ExportQuality(
        source=work.comparison.source,
        rows=len(work.comparison.rows),
        limits=check.limits,
        metrics=check.changes(outputs),
        flips=check.flips(after),
        bytes_before=before,
        bytes_after=_bytes_of(_files(path.parent, path.name)),
        rows_per_second={},
        fp32_layers=list(excluded),
    )


def _files(folder: Path, name: str) -> list[Path]:
    """Returns the files of a graph: `model.onnx` with its data, `model.xml` with `model.bin`."""
    suffix = Path(name).suffix
    if suffix == ".xml":
        return [folder / name, folder / f"{Path(name).stem}.bin"]
    return sorted(folder.glob(f"{name}*"))


def _bytes_of(files: Sequence[Path]) -> int:
    """Returns how many bytes files have together."""
    return sum(file.stat().st_size for file in files)


def _inputs_of(comparison: Comparison, windows: Sequence[Window]) -> dict[str, Array]:
    """Returns windows as a batch, by the names that the graph has."""
    batch: Mapping[str, Array] = padded(windows, comparison.subject.model.padding)
    return {name: batch[name] for name in comparison.network.names}
