"""From a network to a file: transformers' exporter to ONNX, and OpenVINO's reader of ONNX.

The exporter traces the network with one batch. What it got wrong for other batches, the comparison
with the network finds (`proof.py`).
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.errors import UnavailableError

if TYPE_CHECKING:
    from torch import Tensor

    from bertctl.modeling.graph_network import GraphNetwork

FORMATS = ("onnx", "openvino")
"""What a model can be exported to."""

PACKAGES = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "openvino": ("onnx", "onnxscript", "openvino"),
}
"""What makes and runs each."""

GRAPH_FILES = {"onnx": "model.onnx", "openvino": "model.xml"}
"""The file that the runtime opens."""

_LARGEST_ONNX = 2_000_000_000
"""Bytes of weights up to which an ONNX model is one file: protobuf takes 2 GiB."""


def lacking(name: str) -> list[str]:
    """Returns the packages that a format needs and that are not installed."""
    return [package for package in PACKAGES[name] if find_spec(package) is None]


def require_packages(name: str, option: str) -> None:
    """Refuses a format whose packages are not installed.

    Args:
        name: Name of the format.
        option: What asked for it, as it is typed.

    Raises:
        UnavailableError: A package is missing; the message says how to install it.
    """
    missing = lacking(name)
    if missing:
        raise UnavailableError(
            f"{option} needs {' and '.join(missing)}, not installed here",
            remedy=f"Install it: pip install 'bertctl[{name}]'.",
        )


def convert(
    network: "GraphNetwork",
    sample: "Mapping[str, Tensor]",
    folder: Path,
    *,
    name: str,
    remedy: str,
) -> Path:
    """Writes a network as an ONNX graph of any batch and any length, and returns its file.

    Args:
        network: The network, on the CPU in fp32.
        sample: A batch of at least two windows of several tokens.
        folder: Existing folder that the file is written into.
        name: Name of the model, for messages.
        remedy: What to do if it can't be converted, for the message.

    Raises:
        UnavailableError: The network can't be converted; the message says why.
    """
    path = folder / GRAPH_FILES["onnx"]
    with _readable_failure(name, remedy):
        program = _traced(network, sample)
        _save_onnx(program, path)
    return path


def save_openvino(onnx: Path, target: Path, *, is_half: bool = False) -> None:
    """Writes an ONNX model as OpenVINO's own format, `.xml` and `.bin`.

    Args:
        onnx: The model.
        target: The `.xml`.
        is_half: Whether weights are kept in fp16.
    """
    import openvino

    # Core.read_model and save_model are compiled code that sends nothing, unlike convert_model.
    model = openvino.Core().read_model(str(onnx))
    openvino.save_model(model, str(target), compress_to_fp16=is_half)


@contextlib.contextmanager
def _readable_failure(name: str, remedy: str) -> Iterator[None]:
    """Turns exceptions of the exporter, which can be of any kind, into an error with one sentence.

    Raises:
        UnavailableError: The network can't be converted.
    """
    try:
        yield
    except (OSError, MemoryError, UnavailableError):
        raise
    except Exception as error:
        raise UnavailableError(
            f"'{name}' can't be converted: {_reason(error)}", remedy=remedy
        ) from error


def _reason(error: Exception) -> str:
    """Returns the line of an exporter's message that says what was wrong."""
    if "data-dependent" in str(error):
        return "its code decides by the content of a batch, and a graph can't"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error" in line or "not supported" in line]
    line = next(iter(causes or lines), type(error).__name__)
    return line.removeprefix("<class '").rstrip(".")[:300]


def _traced(network: "GraphNetwork", sample: "Mapping[str, Tensor]") -> Any:
    """Returns the graph of a network as torch traces it, for any batch size and any length.

    Args:
        network: The network.
        sample: Inputs that it is run with, by name.
    """
    import torch
    from transformers.exporters.configs import OnnxConfig
    from transformers.exporters.exporter_onnx import OnnxExporter

    # The exporter is typed for models of transformers, and any module of torch will do.
    traced: Any = network
    inputs = {name: sample[name] for name in network.names}
    free = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    config = OnnxConfig(dynamic=True, dynamic_shapes=dict.fromkeys(inputs, free))
    with _quiet(), torch.no_grad():
        program, _ = OnnxExporter().export_program(traced, inputs, config)
    return program


def _save_onnx(program: Any, path: Path) -> None:
    """Writes a graph; weights too large for one ONNX file go into a second one beside it."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(program)  # where each operation was called, with paths
    initializers = program.graph.initializers.values()
    size = sum(value.const_value.nbytes for value in initializers if value.const_value is not None)
    if size <= _LARGEST_ONNX:
        onnx_ir.save(program, str(path))
    else:
        onnx_ir.save(program, str(path), external_data=f"{path.name}.data")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what torch and transformers print and log while they trace off the screen."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
