"""A converted model in ONNX Runtime or OpenVINO: arrays in, arrays out, without torch.

Both run with the settings that the proof of an export was made with: all graph optimisations except
a slow one, and arithmetic in fp32 unless the graph itself has another precision.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.arrays import Array
from bertctl.documents import loading
from bertctl.errors import UnavailableError

RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino"}
"""The package that runs each format."""

_SLOW_FUSION = "SkipLayerNormFusion"
"""ONNX Runtime's fusion of a residual connection with the layer norm behind it.

Its CPU kernel is slower than the two operations: without it, `minilm` in int8 answers 1.2 times as
many short texts per second, and 1.1 times as many of 110 words (ONNX Runtime 1.32, AVX-512, VNNI).
"""

_Run = Callable[[Mapping[str, Array], Sequence[str]], Sequence[Array]]


@dataclass(frozen=True)
class GraphSession:
    """A converted model, ready to compute.

    Attributes:
        inputs: Names of what it takes.
        outputs: Names of what it can give.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    _run: _Run

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Returns outputs by name.

        Args:
            feeds: (B, T) int64 arrays by name: `input_ids`, and where they matter `attention_mask`
                (otherwise ones) and `token_type_ids` (otherwise zeros). Inputs that the graph
                doesn't have are ignored.
            outputs: Names of the outputs that are needed; empty for all.
        """
        ids = feeds["input_ids"]
        defaults = {"attention_mask": np.ones_like, "token_type_ids": np.zeros_like}
        values = {
            name: feeds[name] if name in feeds else defaults[name](ids) for name in self.inputs
        }
        names = tuple(outputs) or self.outputs
        return dict(zip(names, self._run(values, names), strict=True))


def open_graph(
    path: Path,
    file_format: str,
    *,
    threads: int,
    outputs: Sequence[str] = (),
    precision: str = "fp32",
    remedy: str = "Export the model again.",
) -> GraphSession:
    """Opens a converted model.

    Args:
        path: The file that the runtime opens.
        file_format: One of `RUNTIMES`.
        threads: Number of threads that compute.
        outputs: Names of the outputs that will be asked for, so that OpenVINO computes no others;
            empty for all.
        precision: Precision of OpenVINO's arithmetic on a graph in fp32: `fp32` or `bf16`.
        remedy: What to do about a file that can't be opened.

    Raises:
        UnavailableError: The runtime is not installed, or the file is damaged.
    """
    package = RUNTIMES[file_format]
    if find_spec(package) is None:
        raise UnavailableError(
            f"{path} is for {package}, which is not installed",
            remedy=f"Install it: pip install 'bertctl[{file_format}]'.",
        )
    with loading(path, kind=UnavailableError, remedy=remedy):
        if file_format == "onnx":
            return _open_onnx(path, threads)
        return _open_openvino(path, threads, outputs, precision)


def _open_onnx(path: Path, threads: int) -> GraphSession:
    """Returns an ONNX file as a session of ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # All threads work on one operation; those of an encoder follow each other.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3  # errors only: its warnings would go past our own messages
    session: Any = onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=[_SLOW_FUSION],
    )
    return GraphSession(
        inputs=tuple(tensor.name for tensor in session.get_inputs()),
        outputs=tuple(tensor.name for tensor in session.get_outputs()),
        _run=lambda feeds, names: session.run(list(names), dict(feeds)),
    )


def _open_openvino(
    path: Path, threads: int, outputs: Sequence[str], precision: str
) -> GraphSession:
    """Returns a model of OpenVINO as a session on the CPU.

    Args:
        path: The .xml file.
        threads: Number of threads that compute.
        outputs: Those that will be asked for; empty for all.
        precision: `bf16`, or anything else for fp32.
    """
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    if outputs:
        # A model that ends at these outputs, so that layers above the highest one are not computed.
        ends = [model.output(name).get_node().input_value(0) for name in outputs]
        model = openvino.Model(ends, model.get_parameters(), "part")
        names = tuple(outputs)
    else:
        names = tuple(output.get_any_name() for output in model.outputs)
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",  # one batch at a time gets all threads
        },
    )

    def run(feeds: Mapping[str, Array], wanted_names: Sequence[str]) -> Sequence[Array]:
        """Returns the outputs with these names."""
        results = compiled(dict(feeds), share_inputs=True)
        return [results[names.index(name)] for name in wanted_names]

    return GraphSession(
        inputs=tuple(tensor.get_any_name() for tensor in compiled.inputs),
        outputs=names,
        _run=run,
    )
