"""The frozen encoder made ready: on torch, or on ONNX Runtime or OpenVINO and then compared with torch first."""

from dataclasses import replace

import numpy as np

from bertctl.arrays import Floats, Floats32
from bertctl.data.rows import Rows
from bertctl.errors import DeviceError
from bertctl.features.encoded_windows import EncodedWindows, RowEncoder
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.features.extract_job import ExtractJob
from bertctl.inference.sessions import converted, open_session
from bertctl.modeling.build import load_frozen
from bertctl.modeling.layers import WORD_EMBEDDINGS, layer_count, states_needed
from bertctl.modeling.source import ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.runtime.device import Compute

LOWEST_COSINE = 0.9999
"""Between a vector and torch's in fp32; below it a backend is refused."""

_SAMPLE = 64


def open_encoder(
    source: ModelSource, spec: VectorSpec, compute: Compute, job: ExtractJob, sample: Rows, listener: Listener = SILENT
) -> Encoder:
    """Returns the encoder on the job's backend.

    Args:
        source: the model's files.
        spec: which vectors.
        compute: on the CPU for all backends but torch.
        job: names the backend.
        sample: rows of the input; some of them, short to long, are compared with torch.
        listener: told of the conversion and of the comparison.

    Raises:
        UnavailableError: a model that can't be converted, or a cache folder that can't be written.
        DeviceError: vectors that are not torch's.
    """
    if job.backend == "torch":
        return Encoder.open(source, spec, compute)
    loaded = load_frozen(source, replace(compute, precision="fp32"), plain=True)
    n_layers = layer_count(source.config)
    names = [*(f"hidden_states.{i}" for i in range(n_layers)), "last_hidden_state"]
    needed = [names[state] for state in states_needed(spec.layers) if state != WORD_EMBEDDINGS]
    if getattr(loaded.network, "pooler", None) is not None:
        names.append("pooler_output")
    if "pooler" in spec.poolings:
        needed.append("pooler_output")
    ours = frozen_engine(loaded, compute)
    path = converted(source, loaded, names, listener=listener)
    engine = replace(ours, backend=open_session(job.backend, path, needed, compute)) if needed else ours
    encoder = Encoder(source, loaded, spec, engine)
    row_encoder = RowEncoder(loaded.tokenizer, job.long, by_token=spec.by_token, said=spec.said)
    by_length = sorted(range(len(sample)), key=lambda i: len(sample.columns["text"][i]))
    windows = row_encoder.encode(sample.select(by_length[:: max(1, len(by_length) // _SAMPLE)]))
    lowest = lowest_cosine(encoder, Encoder(source, loaded, spec, ours), windows)
    if not lowest >= LOWEST_COSINE:
        raise DeviceError(
            f"--backend {job.backend} gives other vectors than torch for '{source.name}' ({compute.precision}): the "
            f"lowest cosine of {windows.rows} rows of the input is {lowest:.6f}, and {LOWEST_COSINE} is asked for",
            remedy="Leave --backend out" + ("." if compute.precision == "fp32" else ", or use --precision fp32."),
        )
    listener.say(f"{job.backend} agrees with torch on {windows.rows} rows: lowest cosine {lowest:.7f}")
    return encoder


def lowest_cosine(one: Encoder, other: Encoder, windows: EncodedWindows) -> float:
    """Returns the lowest cosine between the vectors of two encoders, over all layers, poolings and rows (or tokens)."""
    vectors = (of.tokens(windows).vectors if of.spec.by_token else of.texts(windows) for of in (one, other))
    return min((_cosines(a, b).min() for a, b in zip(*vectors, strict=True) if len(a)), default=1.0)


def _cosines(a: Floats32, b: Floats32) -> Floats:
    x, y = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    both_zero = (np.abs(x).max(axis=1) == 0) & (np.abs(y).max(axis=1) == 0)  # a word without a token
    return np.where(both_zero, 1.0, (x * y).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))
