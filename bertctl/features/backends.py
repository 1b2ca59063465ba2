"""The frozen encoder made ready.

It is on torch, or on ONNX Runtime or OpenVINO and then compared with torch first.
"""

import contextlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np

from bertctl.arrays import Floats, Floats32
from bertctl.data.rows import Rows
from bertctl.errors import DeviceError, UnavailableError
from bertctl.exporting.cached_graph import cached_graph
from bertctl.features.backend_names import PACKAGES, is_installed, precisions
from bertctl.features.encoded_windows import EncodedWindows, RowEncoder
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.features.extract_job import ExtractJob
from bertctl.inference.graph_session import GraphSession, open_graph
from bertctl.inference.scorers import TensorBackend
from bertctl.modeling.build import load_frozen
from bertctl.modeling.layers import WORD_EMBEDDINGS, layer_count, states_needed
from bertctl.modeling.source import ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.export_document import LAST_STATE
from bertctl.runtime.device import Compute
from bertctl.runtime.measured import WORTH, Speeds, measured_once

LOWEST_COSINE = 0.9999
"""Between a vector and torch's in fp32; below it a backend is refused."""

_SAMPLE = 64
_ROUNDS = 5


@dataclass(frozen=True)
class GraphEncoder(TensorBackend):
    """An encoder as a graph of ONNX Runtime or OpenVINO, called as the network on torch is.

    Attributes:
        session: The graph.
        outputs: Names of what is needed: `last_hidden_state`, `hidden_states.3`, `pooler_output`.
    """

    session: GraphSession
    outputs: tuple[str, ...]

    def __call__(self, **inputs: Any) -> Any:
        """Returns the outputs as attributes; hidden states as a dictionary by number.

        Args:
            inputs: Tensors by name, and perhaps `output_hidden_states`, which a graph does not
                take: its outputs are fixed.
        """
        import torch

        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        feeds = {name: tensor.numpy() for name, tensor in tensors.items()}
        outputs = SimpleNamespace(hidden_states={})
        for name, values in self.session.run(feeds, self.outputs).items():
            attribute, _, number = name.partition(".")  # hidden_states.3: the state of layer 3
            if number:
                outputs.hidden_states[int(number)] = torch.from_numpy(values)
            else:
                setattr(outputs, attribute, torch.from_numpy(values))
        return outputs

    def inference(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which torch records no gradients.

        An exported graph has no modes that would have to be switched besides.
        """
        import torch

        return torch.inference_mode()


def open_encoder(
    source: ModelSource,
    spec: VectorSpec,
    compute: Compute,
    job: ExtractJob,
    sample: Rows,
    listener: Listener = SILENT,
) -> Encoder:
    """Returns the encoder on the job's backend, once its vectors agree with those of torch.

    Args:
        source: The model's files.
        spec: Which vectors to compute.
        compute: Device and precision; the device is the CPU for all backends but torch.
        job: Names the backend.
        sample: Rows of the input; some of them, short to long, are compared with torch.
        listener: Receives notes of the conversion and of the comparison.

    Raises:
        UnavailableError: A model that can't be converted, or a cache folder that can't be written.
        DeviceError: Vectors that are not torch's.
    """
    if job.backend == "torch":
        return Encoder.open(source, spec, compute)
    # The graph is made of fp32 weights, whatever the precision that it is computed in.
    loaded = load_frozen(source, replace(compute, precision="fp32"), plain=True)
    n_layers = layer_count(source.config)
    # Names of the graph's outputs by the number of the hidden state; the last one has its own name.
    names = [*(f"hidden_states.{layer}" for layer in range(n_layers)), LAST_STATE]
    needed = [names[state] for state in states_needed(spec.layers) if state != WORD_EMBEDDINGS]
    if "pooler" in spec.poolings:
        needed.append("pooler_output")
    torch_engine = frozen_engine(loaded, compute)
    engine = torch_engine
    if needed:  # word embeddings alone are read from the table, without a graph
        path = cached_graph(source, loaded, n_layers, listener=listener)
        session = open_graph(
            path,
            job.backend,
            threads=compute.threads,
            outputs=needed,
            precision=compute.precision,
            remedy=f"Delete {path}: it is made again.",
        )
        engine = replace(torch_engine, backend=GraphEncoder(session, tuple(needed)))
    encoder = Encoder(source, loaded, spec, engine)
    windows = _some_windows(encoder, job, sample)
    torch_encoder = Encoder(source, loaded, spec, torch_engine)
    lowest = lowest_cosine(encoder, torch_encoder, windows)
    if not lowest >= LOWEST_COSINE:  # lower, or NaN
        raise DeviceError(
            f"`backend={job.backend}` gives other vectors than torch for '{source.name}' "
            f"({compute.precision}): the lowest cosine of {windows.rows} rows of the input is "
            f"{lowest:.6f}, and {LOWEST_COSINE} is asked for",
            remedy="Leave `backend=` out"
            + ("." if compute.precision == "fp32" else ", or use `precision=fp32`."),
        )
    listener.say(
        f"{job.backend} agrees with torch on {windows.rows} rows: lowest cosine {lowest:.7f}"
    )
    return encoder


def fastest_backend(
    source: ModelSource,
    spec: VectorSpec,
    compute: Compute,
    job: ExtractJob,
    sample: Rows,
    listener: Listener = SILENT,
) -> str:
    """Returns the fastest of the backends that are installed, measured on some rows of the input.

    The model must be converted for other backends than torch, so these must be `WORTH` times as
    fast. Speeds are remembered for this machine and model. For a few rows nothing is converted or
    measured.

    Args:
        source: The model's files.
        spec: Which vectors to compute.
        compute: Where, and in which precision.
        job: Says what is read of long texts.
        sample: Rows of the input; some of them, short to long, are what is measured with.
        listener: Receives notes of the speeds, and of a backend that can't have this model.
    """
    names = [
        name for name in PACKAGES if is_installed(name) and compute.precision in precisions(name)
    ]
    if compute.device != "cpu" or names == ["torch"] or len(sample) < _SAMPLE:
        if len(sample) < _SAMPLE:
            reason = f"fewer than {_SAMPLE} rows"
        else:
            reason = f"the only one here on {compute.device} in {compute.precision}"
        listener.say(f"torch computes: {reason}")
        return "torch"

    def measure() -> Speeds:
        """Returns rows per second by backend; 0 for one that can't have this model."""
        encoders = {}
        for name in names:
            try:
                encoders[name] = open_encoder(
                    source,
                    spec,
                    compute,
                    replace(job, backend=name),
                    sample,
                    listener,
                )
            except (DeviceError, UnavailableError) as error:
                listener.say(f"{name} is left out: {error.message}")
        # By torch every model can be computed, so it is never left out.
        windows = _some_windows(encoders["torch"], job, sample)
        rounds = _in_turns(encoders, windows)
        seconds = {name: min(seconds_of_rounds) for name, seconds_of_rounds in rounds.items()}
        return {name: windows.rows / seconds[name] if name in seconds else 0.0 for name in names}

    # The speeds are measured again when one of these changes.
    packages = itertools.chain.from_iterable(PACKAGES[name] for name in names)
    versions = [version(package) for package in packages]
    measured_for = [source.content_hash(), compute.precision, *names, *versions]
    speeds = measured_once(
        "backends",
        names,
        measured_for,
        compute.threads,
        measure,
    )
    listener.say(
        "texts/s here: " + ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items())
    )
    best = max(names, key=lambda name: speeds[name])
    if speeds[best] >= WORTH * speeds["torch"]:
        return best
    return "torch"


def _in_turns(encoders: Mapping[str, Encoder], windows: EncodedWindows) -> dict[str, list[float]]:
    """Returns the seconds that each encoder takes for the same windows, in each of several rounds.

    In a round all encoders compute, so that a machine that is busy for a while slows all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(_ROUNDS):
        for name, encoder in encoders.items():
            started = time.perf_counter()
            _vectors(encoder, windows)
            seconds[name].append(time.perf_counter() - started)
    return seconds


def _some_windows(encoder: Encoder, job: ExtractJob, rows: Rows) -> EncodedWindows:
    """Returns the windows of about `_SAMPLE` of the rows, from the shortest to the longest."""
    spec = encoder.spec
    row_encoder = RowEncoder(
        encoder.engine.tokenizer,
        job.long,
        by_token=spec.by_token,
        sentence_modules=spec.sentence_modules,
    )
    by_length = sorted(range(len(rows)), key=lambda i: len(rows.columns["text"][i]))
    step = max(1, len(by_length) // _SAMPLE)
    return row_encoder.encode(rows.select(by_length[::step]))


def lowest_cosine(encoder: Encoder, reference: Encoder, windows: EncodedWindows) -> float:
    """Returns the lowest cosine between the vectors of two encoders; 1 if there are no vectors.

    The minimum is over all layers, poolings and rows (or tokens).
    """
    vectors = _vectors(encoder, windows)
    reference_vectors = _vectors(reference, windows)
    pairs = zip(vectors, reference_vectors, strict=True)
    return min((_cosines(a, b).min() for a, b in pairs if len(a)), default=1.0)


def _vectors(encoder: Encoder, windows: EncodedWindows) -> list[Floats32]:
    """Returns the vectors of rows, or of their tokens, for each layer and pooling."""
    if encoder.spec.by_token:
        return encoder.tokens(windows).vectors
    return encoder.texts(windows)


def _cosines(a: Floats32, b: Floats32) -> Floats:
    """Returns the (N,) cosines between two arrays of (N, D) vectors; 1 where both are 0."""
    x = a.astype(np.float64)
    y = b.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    products = (x * y).sum(axis=1)
    cosines = products / np.where(lengths > 0, lengths, 1.0)
    # A word without a token has a vector of zeros in both.
    is_zero_in_x = np.abs(x).max(axis=1) == 0
    is_zero_in_y = np.abs(y).max(axis=1) == 0
    return np.where(is_zero_in_x & is_zero_in_y, 1.0, cosines)
