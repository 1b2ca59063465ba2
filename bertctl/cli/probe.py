"""`bertctl probe`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.extract_features import split_names
from bertctl.cli.options import (
    DataDirOption,
    DeviceOption,
    KeepTextOption,
    LabelColumnOption,
    MaxEvalRowsOption,
    MaxLengthOption,
    MaxTrainRowsOption,
    ModelOption,
    OutputOption,
    OverwriteOption,
    PairColumnOption,
    PrecisionOption,
    SeedOption,
    SetOption,
    TestFileOption,
    TextColumnOption,
    ThreadsOption,
    TrainFileOption,
    ValidationFileOption,
    collect,
)
from bertctl.cli.output import Output
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.config.schema import Recipe
    from bertctl.features.probe import ProbeResult
    from bertctl.features.selection import ProbeJob

_WORD_SUFFIXES = (".conll", ".conllu")

InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT|RECIPE",
        help="A file with texts and labels, or a recipe (`bertctl recipes ls`).",
        show_default=False,
    ),
]
LayersOption = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="all|paper|NAME,...",
        help="Layers to compare, as for `extract-features`; weighted-last-4 and weighted-all too; the last by itself.",
        show_default=False,
    ),
]
PoolingOption = Annotated[
    str | None,
    typer.Option("--pooling", metavar="cls,mean,max,...", help="Each is tried with each layer.", show_default=False),
]
ClassifierOption = Annotated[
    str | None,
    typer.Option(
        "--classifier",
        metavar="logistic-regression|ridge",
        help="What is trained on the vectors; ridge for scores.",
        show_default=False,
    ),
]
ClassWeightOption = Annotated[
    str | None,
    typer.Option(
        "--class-weight", metavar="none|balanced", help="balanced: rare labels count as much.", show_default=False
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="text-classification|text-regression|token-classification",
        help="What a file's labels are; labels of texts when left out, tags of words for .conll and .conllu.",
        show_default=False,
    ),
]


def probe(
    out: Output,
    input: InputArgument,
    output: OutputOption = None,
    model: ModelOption = None,
    layers: LayersOption = None,
    pooling: PoolingOption = None,
    classifier: ClassifierOption = None,
    class_weight: ClassWeightOption = None,
    special_tokens: Annotated[
        bool | None,
        typer.Option(
            "--special-tokens/--no-special-tokens",
            help="Whether [CLS], [SEP] and their like count in mean and max.",
            show_default=False,
        ),
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize", help="Bring each vector to length 1.", show_default=False)
    ] = None,
    task: TaskOption = None,
    data_dir: DataDirOption = None,
    train_file: TrainFileOption = None,
    validation_file: ValidationFileOption = None,
    test_file: TestFileOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    label_column: LabelColumnOption = None,
    max_length: MaxLengthOption = None,
    seed: SeedOption = None,
    max_train_rows: MaxTrainRowsOption = None,
    max_eval_rows: MaxEvalRowsOption = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    keep_text: KeepTextOption = None,
    sets: SetOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Put a linear classifier on a frozen encoder, and see which layer and pooling suits the task best.

    bertctl probe reviews.csv --model minilm --layers all --pooling cls,mean,max

    bertctl probe conll2003 --data-dir conll --layers paper
    """
    from bertctl.features.memory import bound_caches

    started = time.perf_counter()
    bound_caches()
    options = collect(
        model=model, data_dir=data_dir, train_file=train_file, validation_file=validation_file, test_file=test_file,
        text_column=text_column, pair_column=pair_column, label_column=label_column, max_length=max_length, seed=seed,
        max_train_rows=max_train_rows, max_eval_rows=max_eval_rows, device=device, precision=precision,
        threads=threads, keep_text=keep_text,
    )  # fmt: skip
    options |= {
        "probe.layers": split_names(layers) if layers else None,
        "probe.pooling": split_names(pooling) if pooling else None,
        "probe.classifier": classifier,
        "probe.class_weight": class_weight,
        "probe.special_tokens": special_tokens,
        "probe.normalize": normalize,
    }
    if _is_data_file(input):
        options["data.train_file"] = Path(input)
    recipe = _recipe(input, task, options, sets or ())
    result, job = _run(out, recipe, output, overwrite=overwrite)
    _answer(out, result, job, total=time.perf_counter() - started)


def _recipe(input: str, task: str | None, options: dict[str, Any], sets: Sequence[str]) -> "Recipe":
    """The recipe that is named, or the generic one of the task for a file with rows."""
    from bertctl.config.load import load_recipe

    if not _is_data_file(input):
        if task is not None:
            raise UsageError(f"--task is for a file with rows, and {input} is a recipe", remedy="Leave it out.")
        return load_recipe(input, sets=sets, options=options)
    of_suffix = "token-classification" if Path(input).suffix in _WORD_SUFFIXES else "text-classification"
    recipe = load_recipe(task or of_suffix, sets=sets, options=options)
    return recipe.model_copy(update={"name": f"probe-{Path(input).name.partition('.')[0]}"[:100]})


def _run(out: Output, recipe: "Recipe", output: Path | None, *, overwrite: bool) -> "tuple[ProbeResult, ProbeJob]":
    from bertctl.run_folder import RunFolder, default_folder

    if output is not None:
        RunFolder.check_free(output, overwrite=overwrite)

    from bertctl.features.probe import announce, prepare, run
    from bertctl.training.environment import describe_environment

    def environment(job: "ProbeJob") -> dict[str, Any]:
        return describe_environment(
            job.recipe,
            job.compute,
            data_hashes=job.data.hashes,
            columns=job.data.columns,
            model_hash=job.model_hash,
            recipe_hash=job.hash,
        )

    with out.third_party_kept() as log:
        job = prepare(recipe, listener=out)
        announce(job, listener=out)
        named = job.recipe.name if job.recipe.name.startswith("probe") else f"probe-{job.recipe.name}"
        path = output or default_folder(named, job.hash)
        folder = RunFolder.create(path, overwrite=overwrite)
        log.write_to(folder.log)
        return run(job, folder, environment=environment, listener=out), job


def _answer(out: Output, result: "ProbeResult", job: "ProbeJob", *, total: float) -> None:
    from rich.console import Group

    from bertctl.reporting.probe import draw_probe, probe_table
    from bertctl.reporting.summary import metrics_table
    from bertctl.run_folder import SCHEMA, write_json
    from bertctl.training.memory import peak_memory_bytes

    folder = result.folder
    pictures = [folder.path / "probe.png", folder.path / "probe.svg"]
    title = f"{job.recipe.name}: {job.settings.classifier} on {job.recipe.model.name}, frozen"
    draw_probe(result.metrics, pictures, title=title)
    rate = result.rows / result.seconds["features"]
    write_json(
        folder.performance,
        {
            "schema": SCHEMA,
            "seconds": {phase: round(seconds, 3) for phase, seconds in result.seconds.items()},
            "examples_per_second": round(rate, 2),
            "peak_memory_bytes": peak_memory_bytes(),
        },
    )
    best = result.metrics["probe"]["best"]
    out.answer(
        {"run": str(folder.path), **result.metrics},
        Group(probe_table(result.metrics), "", metrics_table(result.metrics, dataset=job.recipe.data.name)),
    )
    out.say(f"best by cross-validation: layer {best['layer']}, {best['pooling']} pooling; picture: {pictures[0]}")
    out.say(
        f"{total:.1f} s: features {result.seconds['features']:.1f} s ({rate:.0f} rows/s), "
        f"classifiers {result.seconds['train']:.1f} s, scoring {result.seconds['evaluate']:.1f} s"
    )
    out.say(f"run folder: {folder.path}")


def _is_data_file(name: str) -> bool:
    path = Path(name)
    known = (".csv", ".tsv", ".jsonl", *_WORD_SUFFIXES)  # so that a missing file is called one, not a missing recipe
    return path.suffix not in (".yaml", ".yml") and (path.is_file() or path.suffix in known)


COMMAND = probe
