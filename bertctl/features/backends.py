"""Other engines for the encoder's forward pass: ONNX Runtime and OpenVINO, both from one conversion to ONNX.

The converted model lies in the cache folder, by the hash of the model and the versions of what converted it. Tracing
writes down what the network did with one example, and a family whose code decides by its input comes out wrong without
a word: so before it is used, the vectors it gives for a sample of the input are compared with torch's.
"""

import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.data.rows import Rows
from bertctl.errors import DeviceError, UnavailableError, UsageError
from bertctl.features.encoded_windows import EncodedWindows, RowEncoder
from bertctl.features.encoder import Encoder, StatesOf, VectorSpec
from bertctl.modeling.build import load_frozen
from bertctl.modeling.layers import WORD_EMBEDDINGS, layer_count, states_needed
from bertctl.modeling.source import ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import write_failure
from bertctl.runtime.device import Compute
from bertctl.words import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertctl.modeling.model import Model

BACKENDS = ("torch", "onnx", "openvino")
LOWEST_COSINE = 0.9999
"""Between a vector and torch's in fp32; below it a backend is refused."""

_PACKAGES = {"onnx": ("onnxruntime", "onnx"), "openvino": ("openvino", "onnx")}
_SAMPLE = 64
_OPSET = 18
_POOLER = "pooler"


def check_backend(name: str, *, device: str, precision: str) -> None:
    """Refuse a backend that can't be used, before anything is loaded.

    Args:
        name: as it was asked for.
        device: as it was asked for, `auto` included.
        precision: as it was asked for, `auto` included.

    Raises:
        UsageError: no such backend; a precision it does not compute in.
        UnavailableError: its packages are not installed.
        DeviceError: a device other than the CPU.
    """
    if name not in BACKENDS:
        hint = did_you_mean(name, BACKENDS)
        raise UsageError(
            f"there is no backend '{name}'" + (f": {hint}" if hint else ""),
            remedy=f"Choose from {', '.join(BACKENDS)}.",
        )
    if name == "torch":
        return
    missing = [package for package in _PACKAGES[name] if find_spec(package) is None]
    if missing:
        raise UnavailableError(
            f"--backend {name} needs {' and '.join(missing)}", remedy=f"Install it: pip install 'bertctl[{name}]'."
        )
    if device not in ("auto", "cpu"):
        raise DeviceError(f"--backend {name} computes on the CPU, not on {device}", remedy="Leave one of them out.")
    fits = ("auto", "fp32", "bf16") if name == "openvino" else ("auto", "fp32")
    if precision not in fits:
        raise UsageError(
            f"--backend {name} does not compute in {precision}",
            remedy=f"Choose --precision from {', '.join(fits[1:])}.",
        )


def backend_encoder(
    name: str,
    source: ModelSource,
    spec: VectorSpec,
    compute: Compute,
    sample: Rows,
    *,
    max_length: int,
    stride: int | None,
    listener: Listener = SILENT,
) -> Encoder:
    """The encoder on one of the engines, checked against torch.

    Args:
        name: `onnx` or `openvino`.
        source: the model's files.
        spec: which vectors.
        compute: on the CPU.
        sample: rows of the input; some of them, short to long, are compared.
        max_length: longest unit in tokens.
        stride: of windows over long texts.
        listener: told of the conversion and of the comparison.

    Raises:
        UnavailableError: a model that can't be converted, or a cache folder that can't be written.
        DeviceError: vectors that are not torch's.
    """
    loaded = load_frozen(source, replace(compute, precision="fp32"), plain=True)
    n_layers = layer_count(source.config)
    path = converted(source, loaded, n_layers, listener=listener)
    names = [f"state_{state}" for state in states_needed(spec.layers) if state != WORD_EMBEDDINGS]
    if "pooler" in spec.poolings:
        names.append(_POOLER)
    engine = _no_engine if not names else (_onnx_engine if name == "onnx" else _openvino_engine)(path, names, compute)
    encoder = Encoder(source, loaded, spec, compute, states_of=_states_of(engine, loaded))
    row_encoder = RowEncoder(loaded.tokenizer, max_length=max_length, stride=stride, by_token=spec.by_token)
    by_length = sorted(range(len(sample)), key=lambda i: len(sample.columns["text"][i]))
    windows = row_encoder.encode(sample.select(by_length[:: max(1, len(by_length) // _SAMPLE)]))
    lowest = lowest_cosine(encoder, Encoder(source, loaded, spec, compute), windows)
    if not lowest >= LOWEST_COSINE:
        raise DeviceError(
            f"--backend {name} gives other vectors than torch for '{source.name}' ({compute.precision}): the lowest "
            f"cosine of {windows.rows} rows of the input is {lowest:.6f}, and {LOWEST_COSINE} is asked for",
            remedy="Leave --backend out" + ("." if compute.precision == "fp32" else ", or use --precision fp32."),
        )
    listener.say(f"{name} agrees with torch on {windows.rows} rows: lowest cosine {lowest:.7f}")
    return encoder


def lowest_cosine(one: Encoder, other: Encoder, windows: EncodedWindows) -> float:
    """The lowest cosine between the vectors of two encoders, over all layers, poolings and rows (or tokens)."""
    if one.spec.by_token:
        pairs = zip(one.tokens(windows).vectors, other.tokens(windows).vectors, strict=True)
    else:
        pairs = zip(one.texts(windows), other.texts(windows), strict=True)
    return min((_cosines(a, b).min() for a, b in pairs if len(a)), default=1.0)


def _cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    x, y = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    both_zero = (np.abs(x).max(axis=1) == 0) & (np.abs(y).max(axis=1) == 0)  # a word without a piece
    return np.where(both_zero, 1.0, (x * y).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))


def cache_folder() -> Path:
    """BERTCTL_CACHE, else XDG_CACHE_HOME/bertctl, else ~/.cache/bertctl."""
    named = os.environ.get("BERTCTL_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertctl"


def converted(source: ModelSource, loaded: "Model", n_layers: int, *, listener: Listener = SILENT) -> Path:
    """The model as ONNX: every hidden state as `state_0` to `state_L`, and `pooler` where there is one.

    Raises:
        UnavailableError: it can't be converted, or the cache folder can't be written.
    """
    versions = [f"{package} {version(package)}" for package in ("torch", "transformers", "onnx")]
    key = hashlib.sha256("\n".join([source.content_hash(), *versions, str(_OPSET)]).encode()).hexdigest()[:32]
    folder = cache_folder() / "onnx" / key
    path = folder / "model.onnx"
    if path.exists():
        return path
    listener.say(f"'{source.name}' is converted to ONNX, once, into {path}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=folder.parent))
    except OSError as error:
        raise write_failure(folder, error) from error
    try:
        _export(source, loaded, n_layers, aside / path.name)
        if not path.exists():  # another process may have been quicker
            aside.rename(folder)
    except OSError as error:
        if not path.exists():
            raise write_failure(folder, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return path


def _export(source: ModelSource, loaded: "Model", n_layers: int, path: Path) -> None:
    import torch

    names = ["input_ids", "attention_mask", *(["token_type_ids"] if loaded.has_segments else [])]
    ids = torch.full((2, 9), _content_id(loaded), dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 6:], ids[1, 6:] = 0, loaded.padding.id
    inputs = (ids, mask, torch.zeros_like(ids))[: len(names)]
    network = _all_states(loaded.network, names, n_layers)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of tracing: what it got wrong, the comparison with torch finds
        outputs = [f"state_{state}" for state in range(n_layers + 1)]
        if len(network(*inputs)) > len(outputs):
            outputs.append(_POOLER)
        axes = {name: {0: "batch", 1: "tokens"} for name in (*names, *outputs) if name != _POOLER}
        try:
            torch.onnx.export(
                network,
                inputs,
                str(path),
                input_names=names,
                output_names=outputs,
                dynamic_axes=axes | {_POOLER: {0: "batch"}} if _POOLER in outputs else axes,
                opset_version=_OPSET,
                dynamo=False,  # the newer exporter takes 5 times as long, and its graph runs 0.85 times as fast
            )
        except OSError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UnavailableError(
                f"'{source.name}' can't be converted to ONNX: {reason}", remedy="Leave --backend out: torch reads it."
            ) from error


def _content_id(loaded: "Model") -> int:
    """A piece that is no special token."""
    return int(loaded.tokenizer.encode("a", add_special_tokens=False).ids[0])


def _all_states(network: "nn.Module", names: Sequence[str], n_layers: int) -> "nn.Module":
    from torch import nn

    class AllStates(nn.Module):
        """Tensors in, tensors out, as tracing needs it."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: "Tensor") -> "tuple[Tensor, ...]":
            """The hidden states, the last as the network ends with it, and the pooler's output."""
            output = self.network(**dict(zip(names, tensors, strict=True)), output_hidden_states=True)
            states = (*output.hidden_states[:n_layers], output.last_hidden_state)
            pooled = getattr(output, "pooler_output", None)
            return states if pooled is None else (*states, pooled)

    return AllStates().eval()


Engine = Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]
"""Inputs by name -> outputs by name."""


def _no_engine(feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """For the piece table alone."""
    return {}


def _onnx_engine(path: Path, names: Sequence[str], compute: Compute) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = compute.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(zip(names, session.run(list(names), dict(feeds)), strict=True))

    return run


def _openvino_engine(path: Path, names: Sequence[str], compute: Compute) -> Engine:
    import openvino

    core = openvino.Core()
    whole = core.read_model(str(path))
    ends = [whole.output(name).get_node().input_value(0) for name in names]
    # Only what is asked for is computed: layers above the highest one fall away.
    compiled = core.compile_model(
        openvino.Model(ends, whole.get_parameters(), "encoder"),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "bf16" if compute.precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": compute.threads,
            "PERFORMANCE_HINT": "LATENCY",
        },
    )

    def run(feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        found = compiled(dict(feeds), share_inputs=True)
        return {name: found[i] for i, name in enumerate(names)}

    return run


def _states_of(engine: Engine, loaded: "Model") -> StatesOf:
    import torch

    table: nn.Module = loaded.network.get_input_embeddings()  # type: ignore[operator]

    def states_of(inputs: Mapping[str, "Tensor"]) -> "tuple[dict[int, Tensor], Tensor | None]":
        feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
        feeds.setdefault("attention_mask", np.ones_like(feeds["input_ids"]))
        found = engine(feeds)
        pooled = found.pop(_POOLER, None)
        states = {int(name.removeprefix("state_")): torch.from_numpy(values) for name, values in found.items()}
        states[WORD_EMBEDDINGS] = table(inputs["input_ids"])
        return states, None if pooled is None else torch.from_numpy(pooled)

    return states_of
