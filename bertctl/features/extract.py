"""`extract-features`: opens a model, and reads vectors of texts out of it.

`extract_features` writes them into a file, `compute_features` returns them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bertctl.arrays import Floats32
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.features.backend_names import PACKAGES, check_backend
from bertctl.features.backends import fastest_backend, open_encoder
from bertctl.features.chunks import chunks, require_rows
from bertctl.features.encoded_windows import RowEncoder
from bertctl.features.encoder import TextEncoder, VectorSpec
from bertctl.features.extract_job import ExtractJob, VectorNames
from bertctl.features.extract_rows import extract
from bertctl.features.opening import find_files, longest_read, open_text_encoder
from bertctl.features.source import Input
from bertctl.inference.evaluate import warn_of_truncation
from bertctl.inference.export_folder import ExportFolder
from bertctl.inference.exported import check_length
from bertctl.inference.shards import Sharing
from bertctl.modeling.source import ModelFiles, ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import is_export
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import TruncationMessage
from bertctl.tokenization.long_texts import LongText


def extract_features(
    recipe: Recipe,
    rows: Input,
    vectors: VectorNames,
    job: ExtractJob,
    *,
    workers: Workers = ALONE,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Reads vectors of texts out of an encoder, into a file.

    Args:
        recipe: Names the model and where it computes.
        rows: The texts.
        vectors: Which vectors to compute.
        job: Where to, and how.
        workers: The processes that share the work.
        listener: Receives progress messages, and a warning of cut texts.

    Returns:
        The content of OUT.json; in all processes but the first an empty one.

    Raises:
        BertctlError: Any refusal: input, model, layers, backend, output.
    """
    encoder, job, stream = _opened_encoder(recipe, rows, vectors, job, workers, listener)
    document = extract(
        stream,
        encoder,
        job,
        workers=workers,
        listener=listener,
    )
    if document:
        counts = {**document, "examples": document["rows"]}
        length = job.long.max_length
        cut = TruncationMessage(
            remedy=f"`stride={min(32, length // 8)}` reads them whole, in windows"
        )
        warn_of_truncation(
            rows.name,
            counts,
            message=cut,
            max_length=length,
            listener=listener,
        )
    return document


def _opened_encoder(
    recipe: Recipe,
    rows: Input,
    vectors: VectorNames,
    job: ExtractJob,
    workers: Workers,
    listener: Listener,
) -> tuple[TextEncoder, ExtractJob, Iterator[Rows]]:
    """Returns the encoder, the job with the backend that computes, and the rows.

    Args:
        recipe: Names the model and where it computes.
        rows: The texts.
        vectors: Which vectors to compute.
        job: Its backend may be `auto`; the one that is returned has a name.
        workers: The processes, which all take the backend that the first one chooses.
        listener: Receives notes of the choice.
    """
    path = expanded_path(recipe.model.name)
    if not is_export(path):
        check_backend(job.backend, device=recipe.runtime.device, precision=recipe.runtime.precision)
        return _opened_on_backend(recipe, rows, vectors, job, workers, listener)

    files, spec, long = _opened_model(recipe, vectors, job.long)
    assert isinstance(files, ExportFolder)  # noqa: S101 - as its path says
    export_format = files.document.format
    if job.backend not in ("auto", "torch", export_format):
        raise UsageError(
            f"{path} was exported for {export_format}, and `backend={job.backend}` was given",
            remedy="Leave `backend=` out.",
        )
    job = replace(job, long=long, backend=export_format)
    stream = require_rows(rows.stream(listener=listener), rows.name)
    encoder = open_text_encoder(files, spec, recipe.runtime)
    listener.say(f"compute: {encoder.engine.compute.why}")
    return encoder, job, stream


def _opened_on_backend(
    recipe: Recipe,
    rows: Input,
    vectors: VectorNames,
    job: ExtractJob,
    workers: Workers,
    listener: Listener,
) -> tuple[TextEncoder, ExtractJob, Iterator[Rows]]:
    """Returns the encoder of a model that computes on torch or on a converted graph.

    Returns:
        The encoder, the job with the name of the backend that computes, and all rows in chunks.
    """
    runtime = recipe.runtime
    if job.backend == "auto" and job.sharing != Sharing():
        remedy = f"Name one for all of them: `backend={'|'.join(PACKAGES)}`."
        raise UsageError(
            "`backend=auto` may choose another one on the machine of each shard", remedy=remedy
        )
    if job.backend not in ("auto", "torch"):  # a converted graph computes on the CPU
        if runtime.precision == "auto":
            precision = "fp32"
        else:
            precision = runtime.precision
        runtime = runtime.model_copy(update={"device": "cpu", "precision": precision})
    files, spec, long = _opened_model(recipe, vectors, job.long)
    assert isinstance(files, ModelSource)  # noqa: S101 - it is no export
    source = files
    job = replace(job, long=long)
    stream = require_rows(rows.stream(listener=listener), rows.name)
    first_rows = next(stream)  # first chunk; the backend is measured and checked on them
    compute = source.compute(runtime)
    if job.backend == "auto":
        backend = ""
        if workers.is_first:
            backend = fastest_backend(
                source,
                spec,
                compute,
                job,
                first_rows,
                listener,
            )
        job = replace(job, backend=workers.share(backend))
    listener.say(
        f"compute: {compute.why}" + ("" if job.backend == "torch" else f", by {job.backend}")
    )
    encoder = open_encoder(
        source,
        spec,
        compute,
        job,
        first_rows,
        listener,
    )
    return encoder, job, itertools.chain([first_rows], stream)


def compute_features(
    recipe: Recipe, rows: Input, vectors: VectorNames, *, listener: Listener = SILENT
) -> Floats32:
    """Computes vectors of texts, as `extract_features` does, and returns them.

    Args:
        recipe: Names the model and where it computes.
        rows: The texts.
        vectors: Which vectors: one for each text.
        listener: Receives progress messages.

    Returns:
        (N, D) vectors. Vectors of several layers and poolings stand side by side.

    Raises:
        BertctlError: Any refusal: input, model, layers.
    """
    source, spec, long = _opened_model(recipe, vectors, LongText.of(recipe.model))
    if spec.by_token:
        raise UsageError(
            "vectors of tokens go into files", remedy="Type `bertctl extract-features`."
        )
    encoder = open_text_encoder(source, spec, recipe.runtime)
    row_encoder = RowEncoder(
        encoder.engine.tokenizer,
        long,
        by_token=False,
        sentence_modules=spec.sentence_modules,
    )
    stream = require_rows(rows.stream(listener=listener), rows.name)
    vectors_of_chunks: list[Floats32] = []
    n_rows = 0
    for chunk in chunks(stream):
        vectors_of_chunks.append(np.hstack(encoder.texts(row_encoder.encode(chunk))))
        n_rows += len(chunk)
        listener.advance("rows", n_rows, 0)
    listener.finish("rows")
    return np.concatenate(vectors_of_chunks)


def _opened_model(
    recipe: Recipe, vectors: VectorNames, long: LongText
) -> tuple[ModelFiles, VectorSpec, LongText]:
    """Returns the model's files, what its vectors are made of, and how long texts are read.

    With the pooling `model`, vectors are made as the modules in a sentence-transformers folder say.
    Then the length is taken from that folder, too, unless the recipe names one. An export reads no
    more tokens than it was made for.

    Args:
        recipe: Names the model and perhaps the length.
        vectors: Which vectors to compute.
        long: How long texts are read, by the recipe.
    """
    is_length_open = "max_length" not in recipe.model.model_fields_set
    by_folder = "model" in vectors.poolings and is_length_open
    if by_folder:
        # The length is in the folder, which isn't read yet. No model refuses so short a length, and
        # only the length in `long` decides how much of a text is read.
        provisional_length = 4
        source = find_files(recipe.with_fields("model", max_length=provisional_length).model)
    else:
        source = find_files(recipe.model)
    spec = VectorSpec.of(vectors, source, long.pooling)
    if by_folder and spec.sentence_modules is not None:
        long = replace(long, max_length=spec.sentence_modules.max_length or longest_read(source))
    if isinstance(source, ExportFolder):
        if is_length_open:
            long = replace(long, max_length=min(long.max_length, source.document.max_length))
        check_length(source, long.max_length)
    return source, spec, long
