"""Graphs with smaller numbers: int8 by ONNX Runtime or NNCF, half precision by OpenVINO.

ONNX Runtime quantizes weights once, by output channel, and activations as they come: nothing is
calibrated. NNCF fixes the ranges of activations on the user's own rows.
"""

import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from bertctl.arrays import Array
from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.exporting.convert import save_openvino
from bertctl.session import current

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("fp32", "int8"),
    "openvino": ("fp32", "fp16", "bf16", "int8"),
}
"""What each format computes in on a CPU, or keeps its weights in."""

_QUANTIZED = ("MatMul", "Gather")
_NO_TELEMETRY = "NNCF_CI"
_REMEDY = "Export it without `int8=True`."


def check_precision(file_format: str, precision: str) -> None:
    """Refuses a precision that the runtime does not have.

    Raises:
        UsageError: The runtime does not compute in it.
    """
    if precision not in PRECISIONS[file_format]:
        formats = [name for name, precisions in PRECISIONS.items() if precision in precisions]
        raise UsageError(
            f"`to={file_format}` has no {precision} on a CPU",
            remedy=f"Choose from {', '.join(PRECISIONS[file_format])}, or `to={formats[0]}`.",
        )


def layers_of(path: Path, file_format: str) -> list[str]:
    """Returns the names of the operations of an ONNX model that become int8, in their order.

    Args:
        path: The model in fp32.
        file_format: `onnx`: products with weights, and embedding tables. `openvino`: products of
            two activations as well, and the names are those that OpenVINO gives.
    """
    if file_format == "openvino":
        return _openvino_layers_of(path)
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    weights = {initializer.name for initializer in model.graph.initializer}
    names = []
    for node in model.graph.node:
        # Both factors of a product; the table and the indices of a look-up.
        operands = {*node.input[:2]}
        if node.op_type in _QUANTIZED and weights & operands:
            names.append(node.name)
    return names


def _openvino_layers_of(path: Path) -> list[str]:
    """Returns the names that OpenVINO gives to the operations of an ONNX model that become int8."""
    import openvino

    model = openvino.Core().read_model(str(path))
    return [
        operation.get_friendly_name()
        for operation in model.get_ordered_ops()
        if operation.get_type_name() in _QUANTIZED
    ]


def quantize_onnx(
    source: Path, target: Path, *, excluded: Sequence[str] = (), only: Sequence[str] = ()
) -> None:
    """Writes an ONNX model with weights in int8.

    Args:
        source: The model in fp32.
        target: The file that is written.
        excluded: Layers that stay in fp32.
        only: Layers that are quantized; all where none is named.

    Raises:
        UnavailableError: The quantizer can't read the graph.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with loading(source, kind=UnavailableError, remedy=_REMEDY), _quiet():
        quantize_dynamic(
            str(source),
            str(target),
            op_types_to_quantize=[*_QUANTIZED],
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(excluded),
            nodes_to_quantize=list(only),
        )


def quantize_openvino(
    source: Path,
    target: Path,
    samples: Sequence[Mapping[str, Array]],
    *,
    excluded: Sequence[str] = (),
) -> None:
    """Writes a model as OpenVINO's, weights and activations in int8, calibrated on samples.

    Args:
        source: The ONNX model in fp32.
        target: The `.xml` file that is written.
        samples: Batches by input name.
        excluded: Layers that stay in fp32.

    Raises:
        UnavailableError: The quantizer can't read the graph.
    """
    import openvino

    current().set_variable(_NO_TELEMETRY, "1")  # NNCF sends how it is used otherwise
    with loading(source, kind=UnavailableError, remedy=_REMEDY), _quiet():
        import nncf

        model = openvino.Core().read_model(str(source))
        scope = nncf.IgnoredScope(names=list(excluded), validate=False)
        quantized = nncf.quantize(
            model,
            nncf.Dataset(samples),
            subset_size=len(samples),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=scope if excluded else None,
        )
        openvino.save_model(quantized, str(target), compress_to_fp16=False)


def halve_openvino(source: Path, target: Path) -> None:
    """Writes an ONNX model as OpenVINO's with weights in fp16."""
    save_openvino(source, target, is_half=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what the quantizers log, and NNCF's progress bars, off the screen."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
