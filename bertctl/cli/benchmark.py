"""`bertctl benchmark`."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from bertctl.cli.options import (
    DataDirOption,
    DeviceOption,
    LabelColumnOption,
    MaxTrainRowsOption,
    ModelOption,
    PairColumnOption,
    RecipeArgument,
    SeedOption,
    SetOption,
    TextColumnOption,
    ThreadsOption,
    TrainFileOption,
    collect,
)
from bertctl.cli.output import Output, plain_table
from bertctl.errors import UsageError

Value = TypeVar("Value")

PICTURES = ("benchmark.png", "benchmark.svg")
DOCUMENT = "benchmark.json"

PrecisionsOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="LIST",
        help="Of fp32, bf16, fp16, with commas; fp32 and what is fast on the device when left out.",
        show_default=False,
    ),
]
PaddingsOption = Annotated[
    str,
    typer.Option(
        "--padding",
        metavar="LIST",
        help="fixed: all to max_length; dynamic: random batches to their longest; length: batches of like lengths.",
    ),
]
BatchSizesOption = Annotated[
    str | None,
    typer.Option("--batch-size", metavar="LIST", help="Such as 16,32; the recipe's when left out.", show_default=False),
]
MaxLengthsOption = Annotated[
    str | None,
    typer.Option(
        "--max-length", metavar="LIST", help="Such as 64,128; the recipe's when left out.", show_default=False
    ),
]
BatchesOption = Annotated[int, typer.Option("--batches", metavar="N", help="Timed batches for each arm.")]
WarmupOption = Annotated[int, typer.Option("--warmup", metavar="N", help="Batches before those, not timed.")]
MinWordsOption = Annotated[
    int, typer.Option("--min-words", metavar="N", help="Only training rows with more than N words; 0 takes all.")
]
RandomInitOption = Annotated[
    bool,
    typer.Option("--random-init", help="Random weights from the model's config; bert-base needs no hub for that."),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Folder for benchmark.json and the picture, benchmark.png and benchmark.svg.",
        show_default=False,
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the benchmark that is in the folder.")]


def training(
    out: Output,
    recipe: RecipeArgument,
    output: FolderOption = None,
    model: ModelOption = None,
    data_dir: DataDirOption = None,
    train_file: TrainFileOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    label_column: LabelColumnOption = None,
    precision: PrecisionsOption = None,
    padding: PaddingsOption = "fixed,dynamic,length",
    batch_size: BatchSizesOption = None,
    max_length: MaxLengthsOption = None,
    batches: BatchesOption = 20,
    warmup: WarmupOption = 3,
    min_words: MinWordsOption = 0,
    random_init: RandomInitOption = False,
    seed: SeedOption = None,
    max_train_rows: MaxTrainRowsOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    sets: SetOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Measure what precision, padding, batch size and length cost here: real training steps, all arms in turns.

    Every combination of the lists is an arm. All read the same training rows and take turns batch by batch, so a busy
    machine slows all alike. The weights that come out are thrown away.

    bertctl benchmark training sst2 --model minilm --max-length 64,128 -o bench
    """
    # Read when torch is imported: without it the profiler of torch writes lines of its own to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from bertctl.config.load import load_recipe
    from bertctl.training.benchmark import benchmark_training
    from bertctl.training.benchmark_grid import Grid

    grid = Grid(
        precisions=comma_list("--precision", precision, str),
        paddings=comma_list("--padding", padding, str),
        batch_sizes=comma_list("--batch-size", batch_size, int),
        max_lengths=comma_list("--max-length", max_length, int),
        batches=batches,
        warmup=warmup,
        min_words=min_words,
        random_init=random_init,
    )
    grid.check()
    if output is not None:
        check_folder(output, overwrite=overwrite)
    resolved = load_recipe(
        recipe,
        sets=sets or (),
        options=collect(
            model=model,
            data_dir=data_dir,
            train_file=train_file,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            seed=seed,
            max_train_rows=max_train_rows,
            device=device,
            threads=threads,
        ),
    )
    with out.third_party_kept():
        document = benchmark_training(resolved, grid, listener=out)
        if output is not None:
            _write(document, output, out)
    answers = Text("\n".join(document["answers"]))
    out.answer(document, Group(arms_table(document), Text(), profile_table(document), Text(), answers))


COMMANDS = {"training": training}


def comma_list(option: str, given: str | None, kind: Callable[[str], Value]) -> tuple[Value, ...]:
    """The values of a list typed with commas, each once; empty when nothing was typed.

    Raises:
        UsageError: a word that is no value of this kind, or no word at all.
    """
    if given is None:
        return ()
    words = [word.strip() for word in given.split(",")]
    try:
        values = [kind(word) for word in words if word]
    except ValueError as error:
        raise UsageError(
            f"{option} {given}: whole numbers are meant", remedy=f"Type them with commas: {option} 64,128"
        ) from error
    if not values:
        raise UsageError(f"{option} '{given}': there is nothing in the list")
    return tuple(dict.fromkeys(values))


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse a place that holds a benchmark, before one is measured.

    Raises:
        UsageError: it is a file, or holds one of the files and `overwrite` is off.
    """
    if folder.is_file():
        raise UsageError(f"{folder} is a file", remedy="Name a folder with -o.")
    there = [name for name in (DOCUMENT, *PICTURES) if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{folder} holds a benchmark ({', '.join(there)})",
            remedy="Choose another folder with -o, or add --overwrite to replace it.",
        )


def arms_table(document: Mapping[str, Any]) -> Table:
    """A line for each arm; the default one is marked with a star."""
    numbers = ("batch", "max_length", "examples/s", "tokens/s", "padding", "of matrix rate", "peak memory")
    table = plain_table(
        "precision",
        "padded",
        *numbers,
        "x fp32 fixed",
        "x fp32 dynamic",
        right=(*numbers, "x fp32 fixed", "x fp32 dynamic"),
    )
    for arm in document["arms"]:
        memory = arm["peak_memory_bytes"]
        table.add_row(
            arm["precision"],
            arm["padding"] + (" *" if arm["default"] else ""),
            str(arm["batch_size"]),
            str(arm["max_length"]),
            f"{arm['examples_per_second']:.1f}",
            f"{arm['tokens_per_second']:.0f}",
            f"{100 * arm['padding_share']:.1f} %",
            f"{100 * arm['matrix_rate_share']:.0f} %",
            "" if memory is None else f"{memory / 1e9:.2f} GB",
            _ratio(arm["ratio_to_fp32_fixed"]),
            _ratio(arm["ratio_to_fp32_dynamic"]),
            style="bold" if arm["default"] else None,
        )
    rates = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in document["matrix_flops"].items())
    table.caption = f"* the default; matrix rate measured between the batches: {rates}"
    table.caption_justify = "left"
    return table


def profile_table(document: Mapping[str, Any]) -> Table:
    """Where the default arm's time goes."""
    arm = document["profile"]["arm"]
    table = plain_table(f"where the time goes ({arm['precision']}, {arm['padding']})", "share", right=("share",))
    for kind, share in document["profile"]["shares"].items():
        table.add_row(kind, f"{100 * share:.1f} %")
    return table


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _write(document: Mapping[str, Any], folder: Path, out: Output) -> None:
    from bertctl.reporting.plots import draw_benchmark
    from bertctl.run_folder import write_json

    write_json(folder / DOCUMENT, document)
    draw_benchmark(document, [folder / name for name in PICTURES])
    out.say(f"written to {folder}: {DOCUMENT}, {', '.join(PICTURES)}")
