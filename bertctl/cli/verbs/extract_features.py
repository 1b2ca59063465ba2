"""`bertctl extract-features`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertctl.cli.framework.completion import dataset_names
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.processes import NumProcessesOption, in_processes, say_shard
from bertctl.cli.framework.recipe_options import (
    MergeOption,
    NamedShardOption,
    OnErrorOption,
    takes_recipe,
)
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.words import names_in


@takes_recipe(
    "model",
    "long_texts",
    "--data-dir",
    "columns",
    "layout",
    "compute",
    "exports",
    has_recipe_argument=False,
    sets=False,
)
def extract_features(
    out: Output,
    settings: RecipeRequest,
    input: Annotated[list[str], typer.Argument(metavar="INPUT ...", autocompletion=dataset_names)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT")],
    layers: Annotated[str, typer.Option("--layers", metavar="NAME,...")] = "last",
    pooling: Annotated[
        str, typer.Option("--pooling", metavar="cls|mean|max|mean-max|pooler|model|none")
    ] = "mean",
    words: Annotated[Literal["first", "last", "mean"] | None, typer.Option("--words")] = None,
    special_tokens: Annotated[bool, typer.Option("--special-tokens/--no-special-tokens")] = True,
    normalize: Annotated[bool, typer.Option("--normalize")] = False,
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="NAME")] = None,
    stride: Annotated[int | None, typer.Option("--stride", min=0, metavar="TOKENS")] = None,
    dtype: Annotated[Literal["float32", "float16"], typer.Option("--dtype")] = "float32",
    split: Annotated[str | None, typer.Option("--split")] = None,
    input_format: Annotated[
        str | None,
        typer.Option("--input-format", metavar="lines|csv|tsv|jsonl|parquet|conll|conllu"),
    ] = None,
    keep_text: Annotated[bool, typer.Option("--text/--no-text")] = True,
    backend: Annotated[
        Literal["auto", "torch", "onnx", "openvino"], typer.Option("--backend")
    ] = "torch",
    resume: Annotated[bool, typer.Option("--resume")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
    shard: NamedShardOption = None,
    merge: MergeOption = False,
    on_error: OnErrorOption = None,
    num_processes: NumProcessesOption = 1,
) -> None:
    """Compute vectors of texts, tokens or words with any layer of an encoder.

    Args:
        out: Prints the answer and messages.
        settings: Options of recipe fields, as they were typed.
        input: Lines, CSV, TSV, JSONL, Parquet or CoNLL columns (.gz too), - for stdin, or a data
            set's name.

            Several files, or a pattern such as 'part-*.parquet', are read as one.
        output: File to write: .npy, .npz, .safetensors, .parquet, .jsonl or .h5. An existing file
            is replaced. OUT.json beside it describes it.
        layers: Layers by number or name, or `all`.

            0 is the embeddings, -1 the last layer. Names: word-embeddings, embeddings,
            second-to-last, last, sum-last-4, concat-last-4, sum-all.
        pooling: How the token vectors are combined into one per text; `none` keeps one per token.

            `model` does what a folder of sentence-transformers says: pooling, linear layers,
            length, prompt.
        words: Write one vector per word: that of its first token, its last, or the mean of all.
        special_tokens: Whether [CLS], [SEP] and other special tokens count in mean and max.
        normalize: Scale each vector to length 1.
        prompt: Name of a prompt in the model's folder, which is put before each text. Default: the
            folder's own.
        stride: Read long texts in windows that overlap by this many tokens (`--long-text window`),
            pooled together.
        dtype: Type of the numbers in the file.
        split: Split of a data set. Default: train.
        input_format: Layout of the input. Default: by its suffix; lines on stdin.
        keep_text: Whether .parquet holds the texts.
        backend: Library that computes on a CPU; `auto` is the fastest that is installed, measured
            once per machine and model.

            For another one than torch the model is converted once, and checked against torch each
            time.
        resume: Continue where an earlier attempt stopped.
        overwrite: Start again instead of continuing an unfinished OUT.
        shard: The share of the work to do, as K/N.
        merge: Merge the answers of all shards.
        on_error: What to do about a record that can't be read.
        num_processes: Number of processes that share the work.

    Examples:
        bertctl extract-features reviews.csv -o reviews.npy --model minilm
        bertctl extract-features lines.txt -o x.jsonl --layers -1,-2 --pooling none
    """
    from bertctl.features.backend_names import check_backend
    from bertctl.features.feature_files import check_output
    from bertctl.features.kept_memory import bound_caches
    from bertctl.inference.shards import Sharing
    from bertctl.runtime.launch import workers

    check_output(output, by_token=words is not None or pooling == "none")
    sharing = Sharing.read(
        shard,
        merge,
        output,
        num_processes,
        ".json",
    )
    output = sharing.resolve(output)
    bound_caches()
    recipe = settings.load("text-classification")
    check_backend(backend, device=recipe.runtime.device, precision=recipe.runtime.precision)
    in_processes(num_processes, out, source="-" if "-" in input else "")
    from bertctl.data.read_options import SkippedRows
    from bertctl.features.extract import extract_features as extract_into
    from bertctl.features.extract_job import ExtractJob, VectorNames
    from bertctl.features.source import Input, input_name
    from bertctl.tokenization.long_texts import LongText

    shared = workers()
    # Of several processes, only the first one prints messages.
    out.quiet = out.quiet or shared.rank > 0
    vectors = VectorNames(
        layers=tuple(names_in(layers)),
        poolings=tuple(names_in(pooling)),
        words=words,
        special_tokens=special_tokens,
        normalize=normalize,
        prompt=prompt,
    )
    long = LongText.of(recipe.model, stride)
    job = ExtractJob(
        output,
        long=long,
        source=input_name(input),
        dtype=dtype,
        keep_text=keep_text,
        backend=backend,
        resume=resume,
        overwrite=overwrite,
        sharing=sharing,
    )
    if on_error == "skip":
        skipped = SkippedRows()
    else:
        skipped = None
    rows = Input(
        input,
        recipe.data,
        kind=input_format,
        split=split,
        skipped=skipped,
    )
    with out.third_party_kept():
        document = extract_into(
            recipe,
            rows,
            vectors,
            job,
            workers=shared,
            listener=out,
        )
    # A shard that needs a merge reports only its record: the array is whole after the merge.
    if sharing.needs_merge:
        say_shard(sharing, out, [str(path) for path in sharing.paths])
        return
    if shared.rank:
        return
    if skipped and sharing.reports_skipped:
        left_out = skipped.finish(output, out)
    else:
        left_out = {}
    out.answer({"output": str(output), **document, **left_out})
    shape = " x ".join(map(str, document["shape"]))
    out.say(f"{document['rows']} rows, {shape} {dtype}, written to {output}")
