"""`bertctl extract-features`."""

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bertctl.cli.options import (
    DataDirOption,
    DeviceOption,
    LabelColumnOption,
    MaxLengthOption,
    ModelOption,
    PairColumnOption,
    PrecisionOption,
    TextColumnOption,
    ThreadsOption,
)
from bertctl.cli.output import Output
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.config.schema import Recipe
    from bertctl.data.rows import Rows
    from bertctl.features.encoder import Encoder, VectorSpec
    from bertctl.features.extract import ExtractJob
    from bertctl.features.source import Input
    from bertctl.modeling.source import ModelSource

InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="Lines, CSV, TSV, JSONL, Parquet or CoNLL columns (.gz too), - for stdin, or a data set's name.",
        show_default=False,
    ),
]
OutputFileOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help=".npy, .npz, .safetensors, .parquet, .jsonl or .h5; OUT.json beside it says what is in it.",
        show_default=False,
    ),
]
LayersOption = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="NAME,...",
        help="0 (embeddings) up to the last layer, -1 and so on from the end; word-embeddings, embeddings, "
        "second-to-last, last, sum-last-4, concat-last-4, sum-all; all.",
    ),
]
PoolingOption = Annotated[
    str, typer.Option("--pooling", metavar="cls|mean|max|mean-max|pooler|none", help="none: a vector for each token.")
]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--words",
        metavar="first|last|mean",
        help="A vector for each word: of its first piece, its last, or the mean of all.",
        show_default=False,
    ),
]
SpecialTokensFlag = Annotated[
    bool,
    typer.Option(
        "--special-tokens/--no-special-tokens", help="Whether [CLS], [SEP] and their like count in mean and max."
    ),
]
NormalizeFlag = Annotated[bool, typer.Option("--normalize", help="Bring each vector to length 1.")]
StrideOption = Annotated[
    int | None,
    typer.Option(
        "--stride",
        min=0,
        metavar="TOKENS",
        help="Read long texts in windows that share so many tokens, pooled together; cut when left out.",
        show_default=False,
    ),
]
InputFormatOption = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        metavar="lines|csv|tsv|jsonl|parquet|conll|conllu",
        help="Layout of the input; by suffix when left out, lines on stdin.",
        show_default=False,
    ),
]
BackendOption = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar="torch|onnx|openvino",
        help="What computes on a CPU; the model is converted once, and checked against torch each time.",
    ),
]


def extract_features(
    out: Output,
    input: InputArgument,
    output: OutputFileOption,
    model: ModelOption = None,
    layers: LayersOption = "last",
    pooling: PoolingOption = "mean",
    words: WordsOption = None,
    special_tokens: SpecialTokensFlag = True,
    normalize: NormalizeFlag = False,
    max_length: MaxLengthOption = None,
    stride: StrideOption = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="float32|float16", help="Numbers in the file.")] = "float32",
    split: Annotated[
        str | None, typer.Option("--split", help="Split of a data set; train when left out.", show_default=False)
    ] = None,
    input_format: InputFormatOption = None,
    data_dir: DataDirOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    label_column: LabelColumnOption = None,
    keep_text: Annotated[bool, typer.Option("--text/--no-text", help="Whether .parquet holds the texts.")] = True,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    backend: BackendOption = "torch",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier attempt was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    num_processes: Annotated[
        int, typer.Option("--num-processes", min=1, help="Share the rows among so many processes (torchrun).")
    ] = 1,
) -> None:
    """Read vectors out of an encoder: of texts, tokens or words, any layer, any amount of text.

    bertctl extract-features reviews.csv -o reviews.npy --model minilm

    bertctl extract-features texts.txt -o tokens.jsonl --layers -1,-2,-3,-4 --pooling none
    """
    from bertctl.config.load import load_recipe
    from bertctl.features.feature_files import check_output
    from bertctl.features.memory import bound_caches
    from bertctl.runtime.launch import is_worker, launch

    if dtype not in ("float32", "float16"):
        raise UsageError(f"there is no --dtype '{dtype}'", remedy="Choose from float32, float16.")
    check_output(output, by_token=words is not None or pooling == "none")
    bound_caches()
    options: dict[str, Any] = {
        "model.name": model,
        "model.max_length": max_length,
        "data.data_dir": data_dir,
        "data.text_column": text_column,
        "data.pair_column": pair_column,
        "data.label_column": label_column,
        "runtime.device": device,
        "runtime.precision": precision,
        "runtime.threads": threads,
    }
    recipe = _for_backend(load_recipe("text-classification", options=options), backend)
    if num_processes > 1 and not is_worker():
        raise typer.Exit(launch(sys.argv[1:], num_processes, listener=out))
    from bertctl.features.extract import ExtractJob
    from bertctl.features.source import Input

    job = ExtractJob(output, recipe.model.max_length, input, stride, dtype, keep_text, backend)
    source = Input(input, recipe.data, kind=input_format, split=split)
    spec = _Asked(split_names(layers), split_names(pooling), words, special_tokens, normalize)
    document = _extract(out, recipe, source, spec, job, resume=resume, overwrite=overwrite)
    if document is None:
        return
    out.answer({"output": str(output), **document})
    shape = " x ".join(map(str, document["shape"]))
    out.say(f"{document['rows']} rows, {shape} {dtype}, written to {output}")


class _Asked(NamedTuple):
    """Which vectors, as they were named."""

    layers: list[str]
    poolings: list[str]
    words: str | None
    special_tokens: bool
    normalize: bool


def _for_backend(recipe: "Recipe", backend: str) -> "Recipe":
    """The recipe on the CPU in fp32, unless something else that the backend can do was asked for."""
    from bertctl.features.backends import check_backend

    runtime = recipe.runtime
    check_backend(backend, device=runtime.device, precision=runtime.precision)
    if backend == "torch":
        return recipe
    precision = "fp32" if runtime.precision == "auto" else runtime.precision
    return recipe.model_copy(update={"runtime": runtime.model_copy(update={"device": "cpu", "precision": precision})})


def _extract(
    out: Output, recipe: "Recipe", source: "Input", asked: _Asked, job: "ExtractJob", *, resume: bool, overwrite: bool
) -> dict[str, Any] | None:
    """What OUT.json says; None in all processes but the first."""
    from bertctl.features.chunks import require_rows
    from bertctl.features.encoder import VectorSpec
    from bertctl.features.extract import extract, warn_of_truncation
    from bertctl.modeling.layers import choose_layers, layer_count
    from bertctl.modeling.pooling import WORD_POOLINGS, check_poolings
    from bertctl.modeling.source import inspect_model
    from bertctl.runtime.launch import workers

    shared = workers()
    if shared.rank:
        out.quiet = True
    if asked.words is not None:
        check_poolings([asked.words], WORD_POOLINGS)
    model_source = inspect_model(recipe.model)
    spec = VectorSpec(
        layers=choose_layers(asked.layers, layer_count(model_source.config)),
        poolings=check_poolings(asked.poolings),
        words=asked.words,
        special_tokens=asked.special_tokens,
        normalize=asked.normalize,
    )
    stream = require_rows(source.stream(listener=out), source.name)
    with out.third_party_kept():
        first = next(stream)
        encoder = _encoder(recipe, model_source, spec, job, first, out)
        document = extract(
            itertools.chain([first], stream),
            encoder,
            job,
            resume=resume,
            overwrite=overwrite,
            workers=shared,
            listener=out,
        )
    if shared.rank:
        return None
    warn_of_truncation(document, listener=out)
    return document


def _encoder(
    recipe: "Recipe", source: "ModelSource", spec: "VectorSpec", job: "ExtractJob", sample: "Rows", out: Output
) -> "Encoder":
    from bertctl.features.backends import backend_encoder
    from bertctl.features.encoder import Encoder
    from bertctl.modeling.linear_head import load_frozen
    from bertctl.runtime.device import choose_compute

    compute = choose_compute(recipe.runtime)
    out.say(f"compute: {compute.why}" + ("" if job.backend == "torch" else f", by {job.backend}"))
    if job.backend == "torch":
        return Encoder(source, load_frozen(source, compute), spec, compute)
    return backend_encoder(
        job.backend, source, spec, compute, sample, max_length=job.max_length, stride=job.stride, listener=out
    )


def split_names(given: str) -> list[str]:
    """`a, b` as its parts."""
    return [part.strip() for part in given.split(",") if part.strip()]


COMMAND = extract_features
