"""`bertctl extract-features`."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from bertctl.cli.completion import dataset_names
from bertctl.cli.output import Output
from bertctl.cli.processes import NumProcessesOption, in_processes
from bertctl.cli.recipe_options import COLUMNS, COMPUTE, DATA, MODEL, RecipeRequest, names_in, only, takes_recipe

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
        autocompletion=dataset_names,
    ),
]
OutputFileOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="File to write: .npy, .npz, .safetensors, .parquet, .jsonl or .h5. OUT.json beside it describes it.",
    ),
]
LayersOption = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="NAME,...",
        help="Layers by number or name, or `all`.\n\n"
        "0 is the embeddings, -1 the last layer. Names: word-embeddings, embeddings, second-to-last, last, sum-last-4, "
        "concat-last-4, sum-all.",
    ),
]
PoolingOption = Annotated[
    str,
    typer.Option(
        "--pooling",
        metavar="cls|mean|max|mean-max|pooler|none",
        help="How the vectors of the tokens become one per text; `none` keeps one per token.",
    ),
]
WordsOption = Annotated[
    Literal["first", "last", "mean"] | None,
    typer.Option(
        "--words",
        help="Write one vector per word: of its first token, its last, or the mean of all.",
    ),
]
SpecialTokensFlag = Annotated[
    bool,
    typer.Option(
        "--special-tokens/--no-special-tokens",
        help="Whether [CLS], [SEP] and other special tokens count in mean and max.",
    ),
]
NormalizeFlag = Annotated[bool, typer.Option("--normalize", help="Scale each vector to length 1.")]
StrideOption = Annotated[
    int | None,
    typer.Option(
        "--stride",
        min=0,
        metavar="TOKENS",
        help="Read long texts in windows that overlap by this many tokens, pooled together. Default: truncate.",
    ),
]
DtypeOption = Annotated[
    Literal["float32", "float16"],
    typer.Option(
        "--dtype",
        help="Type of the numbers in the file.",
    ),
]
SplitOption = Annotated[str | None, typer.Option("--split", help="Split of a data set. Default: train.")]
InputFormatOption = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        metavar="lines|csv|tsv|jsonl|parquet|conll|conllu",
        help="Layout of the input. Default: by its suffix; lines on stdin.",
    ),
]
TextFlag = Annotated[bool, typer.Option("--text/--no-text", help="Whether .parquet holds the texts.")]
BackendOption = Annotated[
    Literal["torch", "onnx", "openvino"],
    typer.Option(
        "--backend",
        help="What computes on a CPU. The model is converted once, and checked against torch each time.",
    ),
]
ResumeFlag = Annotated[bool, typer.Option("--resume", help="Continue where an earlier attempt stopped.")]
OverwriteFlag = Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")]


@takes_recipe(MODEL, only(DATA, "--data-dir", *COLUMNS), COMPUTE, named=False, sets=False)
def extract_features(
    out: Output,
    settings: RecipeRequest,
    input: InputArgument,
    output: OutputFileOption,
    layers: LayersOption = "last",
    pooling: PoolingOption = "mean",
    words: WordsOption = None,
    special_tokens: SpecialTokensFlag = True,
    normalize: NormalizeFlag = False,
    stride: StrideOption = None,
    dtype: DtypeOption = "float32",
    split: SplitOption = None,
    input_format: InputFormatOption = None,
    keep_text: TextFlag = True,
    backend: BackendOption = "torch",
    resume: ResumeFlag = False,
    overwrite: OverwriteFlag = False,
    num_processes: NumProcessesOption = 1,
) -> None:
    """Read vectors out of an encoder: of texts, tokens or words, any layer, any amount of text.

    Examples:
        bertctl extract-features reviews.csv -o reviews.npy --model minilm
        bertctl extract-features lines.txt -o x.jsonl --layers -1,-2 --pooling none
    """
    from bertctl.features.feature_files import check_output
    from bertctl.features.memory import bound_caches

    check_output(output, by_token=words is not None or pooling == "none")
    bound_caches()
    recipe = _for_backend(settings.load("text-classification"), backend)
    in_processes(num_processes, out)
    from bertctl.features.extract import ExtractJob
    from bertctl.features.source import Input

    job = ExtractJob(output, recipe.model.max_length, input, stride, dtype, keep_text, backend)
    source = Input(input, recipe.data, kind=input_format, split=split)
    spec = _Asked(names_in(layers), names_in(pooling), words, special_tokens, normalize)
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
    from bertctl.modeling.pooling import check_poolings
    from bertctl.modeling.source import inspect_model
    from bertctl.runtime.launch import workers

    shared = workers()
    if shared.rank:
        out.quiet = True
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
    from bertctl.modeling.build import load_frozen
    from bertctl.runtime.device import choose_compute

    compute = choose_compute(recipe.runtime)
    out.say(f"compute: {compute.why}" + ("" if job.backend == "torch" else f", by {job.backend}"))
    if job.backend == "torch":
        return Encoder(source, load_frozen(source, compute), spec, compute)
    return backend_encoder(
        job.backend, source, spec, compute, sample, max_length=job.max_length, stride=job.stride, listener=out
    )


COMMAND = extract_features
