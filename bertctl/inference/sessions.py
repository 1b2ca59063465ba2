"""ONNX Runtime and OpenVINO in place of torch: a network is converted to ONNX once, and both read
the file.

The converted model lies in the cache folder, by the hash of the model and the versions of what
converted it. Tracing writes down what the network did with one example, and a family whose code
decides by its input comes out wrong without a word: whoever uses a session compares what it gives
for a sample of the input with torch.
"""

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Array
from bertctl.documents import loading
from bertctl.errors import DeviceError, UnavailableError, UsageError
from bertctl.modeling.source import ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.runtime.device import Compute
from bertctl.words import unknown
from bertctl.writing import cache_folder, replacing

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertctl.modeling.model import Model

PACKAGES = {"torch": (), "onnx": ("onnxruntime", "onnx"), "openvino": ("openvino", "onnx")}
"""The backends, and what each needs besides."""
_OPSET = 18

Run = Callable[[Mapping[str, Array]], Sequence[Array]]
"""Inputs by name -> outputs in the order that was asked for."""


def lacking(name: str) -> list[str]:
    """Returns the packages that a backend needs and that are not installed."""
    return [package for package in PACKAGES[name] if find_spec(package) is None]


def precisions(name: str) -> tuple[str, ...]:
    """Returns the precisions that a backend computes in."""
    return {"torch": ("fp32", "bf16", "fp16"), "openvino": ("fp32", "bf16")}.get(name, ("fp32",))


def check_backend(name: str, *, device: str, precision: str) -> None:
    """Refuses a backend that can't be used, before anything is loaded.

    Args:
        name: as it was asked for, `auto` included.
        device: as it was asked for, `auto` included.
        precision: as it was asked for, `auto` included.

    Raises:
        UsageError: no such backend; a precision it does not compute in.
        UnavailableError: its packages are not installed.
        DeviceError: a device other than the CPU.
    """
    known = ("auto", *PACKAGES)
    if name not in known:
        raise UsageError(unknown("backend", name, known), remedy=f"Choose from {', '.join(known)}.")
    if name in ("auto", "torch"):
        return
    if missing := lacking(name):
        message = f"`backend={name}` needs {' and '.join(missing)}"
        raise UnavailableError(message, remedy=f"Install it: pip install 'bertctl[{name}]'.")
    if device not in ("auto", "cpu"):
        raise DeviceError(
            f"`backend={name}` computes on the CPU, not on {device}",
            remedy="Leave one of them out.",
        )
    if precision not in ("auto", *precisions(name)):
        message = f"`backend={name}` does not compute in {precision}"
        raise UsageError(message, remedy=f"Choose `precision=` from {', '.join(precisions(name))}.")


@dataclass(frozen=True)
class SessionBackend:
    """A converted model in ONNX Runtime or OpenVINO, called as an `inference.engine.Backend`.

    Attributes:
        run: the session.
        outputs: names of what it gives: `logits`, `last_hidden_state`, `hidden_states.3`, ...
    """

    run: Run
    outputs: tuple[str, ...]

    def __call__(self, **inputs: Any) -> Any:
        """Returns the outputs as attributes; of several hidden states a dictionary by number."""
        import torch

        feeds = {
            name: value.numpy() for name, value in inputs.items() if isinstance(value, torch.Tensor)
        }
        feeds.setdefault("attention_mask", np.ones_like(feeds["input_ids"]))
        outputs = SimpleNamespace(hidden_states={})
        for name, values in zip(self.outputs, self.run(feeds), strict=True):
            head, _, number = name.partition(".")
            if number:
                getattr(outputs, head)[int(number)] = torch.from_numpy(values)
            else:
                setattr(outputs, head, torch.from_numpy(values))
        return outputs

    def inference(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context without gradients; a session has nothing else to switch."""
        import torch

        return torch.inference_mode()


def open_session(name: str, path: Path, outputs: Sequence[str], compute: Compute) -> SessionBackend:
    """Returns a backend that computes some of a converted model's outputs.

    Args:
        name: `onnx` or `openvino`.
        path: the converted model.
        outputs: names of those that are needed.
        compute: threads and precision.

    Raises:
        UnavailableError: the converted model is damaged.
    """
    with loading(path, kind=UnavailableError, remedy=f"Delete {path}: it is made again."):
        return SessionBackend(
            (_onnx if name == "onnx" else _openvino)(path, outputs, compute), tuple(outputs)
        )


def _onnx(path: Path, outputs: Sequence[str], compute: Compute) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = compute.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    takes = [tensor.name for tensor in session.get_inputs()]
    return lambda feeds: session.run(list(outputs), {name: feeds[name] for name in takes})


def _openvino(path: Path, outputs: Sequence[str], compute: Compute) -> Run:
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    ends = [model.output(name).get_node().input_value(0) for name in outputs]
    # Only what is asked for is computed: layers above the highest one fall away.
    compiled = core.compile_model(
        openvino.Model(ends, model.get_parameters(), "encoder"),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "bf16" if compute.precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": compute.threads,
            "PERFORMANCE_HINT": "LATENCY",
        },
    )

    takes = [tensor.get_any_name() for tensor in compiled.inputs]

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        results = compiled({name: feeds[name] for name in takes}, share_inputs=True)
        return [results[i] for i in range(len(outputs))]

    return run


def converted(
    source: ModelSource, loaded: "Model", outputs: Sequence[str], *, listener: Listener = SILENT
) -> Path:
    """Returns the model as an ONNX file, converted where the cache has none.

    Args:
        source: the model's files.
        loaded: its network, on the CPU in fp32.
        outputs: names of all that the file gives: attributes of what the network's forward returns,
            or `hidden_states.3` for an item of one.
        listener: told of the conversion.

    Raises:
        UnavailableError: it can't be converted, or the cache folder can't be written.
    """
    versions = [f"{package} {version(package)}" for package in ("torch", "transformers", "onnx")]
    key = hashlib.sha256(
        "\n".join([source.content_hash(), *versions, str(_OPSET), *outputs]).encode()
    ).hexdigest()[:32]
    folder = cache_folder() / "onnx" / key
    path = folder / "model.onnx"
    if path.exists():
        return path
    listener.say(f"'{source.name}' is converted to ONNX, once, into {path}")
    with replacing(folder) as aside:
        aside.mkdir()
        _export(source, loaded, outputs, aside / path.name)
    return path


def _export(source: ModelSource, loaded: "Model", outputs: Sequence[str], path: Path) -> None:
    import torch

    names = ["input_ids", "attention_mask", *(["token_type_ids"] if loaded.has_segments else [])]
    content = int(loaded.tokenizer.encode("a", add_special_tokens=False).ids[0])  # no special token
    ids = torch.full((2, 11), content, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids[1, 6:] = loaded.padding.id
    inputs = (ids, mask, torch.zeros_like(ids))[: len(names)]
    network = _named_outputs(loaded.network, names, outputs)
    with warnings.catch_warnings(), torch.no_grad():
        # Warnings of tracing: comparing with torch finds what tracing got wrong.
        warnings.simplefilter("ignore")
        tensors = dict(zip((*names, *outputs), (*inputs, *network(*inputs)), strict=True))
        axes = {
            name: {0: "batch"} | ({1: "tokens"} if tensor.shape[1] == ids.shape[1] else {})
            for name, tensor in tensors.items()
        }
        try:
            torch.onnx.export(
                network,
                inputs,
                str(path),
                input_names=names,
                output_names=list(outputs),
                dynamic_axes=axes,
                opset_version=_OPSET,
                # the newer exporter takes 5 times as long, and its graph runs 0.85 times as fast
                dynamo=False,
            )
        except OSError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            message = f"'{source.name}' can't be converted to ONNX: {reason}"
            raise UnavailableError(
                message, remedy="Leave `backend=` out: torch reads it."
            ) from error


def _named_outputs(
    network: "nn.Module", names: Sequence[str], outputs: Sequence[str]
) -> "nn.Module":
    from torch import nn

    class NamedOutputs(nn.Module):
        """Tensors in, tensors out, as tracing needs it."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: "Tensor") -> "tuple[Tensor, ...]":
            """Returns the outputs in their order."""
            several = any(name.startswith("hidden_states") for name in outputs)
            computed = self.network(
                **dict(zip(names, tensors, strict=True)), output_hidden_states=several
            )
            parts = [name.partition(".") for name in outputs]
            return tuple(
                getattr(computed, head)[int(i)] if i else getattr(computed, head)
                for head, _, i in parts
            )

    return NamedOutputs().eval()
