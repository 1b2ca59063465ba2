"""The options that stand for recipe fields: one name, one help text (the field's docstring), one way back.

A verb takes them by annotation and hands what it was given to `collect`:

    def finetune(out: Output, recipe: RecipeArgument, epochs: EpochsOption = None, sets: SetOption = None) -> None:
        loaded = load_recipe(recipe, sets=sets or (), options=collect(epochs=epochs))
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from bertctl.config.load import field_help
from bertctl.config.problems import field_schema

FIELDS: dict[str, str] = {
    "model": "model.name",
    "max_length": "model.max_length",
    "data_dir": "data.data_dir",
    "train_file": "data.train_file",
    "validation_file": "data.validation_file",
    "test_file": "data.test_file",
    "text_column": "data.text_column",
    "pair_column": "data.pair_column",
    "label_column": "data.label_column",
    "max_train_rows": "data.max_train_rows",
    "max_eval_rows": "data.max_eval_rows",
    "seed": "training.seed",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "learning_rate": "optimizer.learning_rate",
    "keep_text": "evaluation.keep_text",
    "metric": "evaluation.metric_scripts",
    "device": "runtime.device",
    "precision": "runtime.precision",
    "threads": "runtime.threads",
    "log_to": "runtime.log_to",
    "checkpoint_every": "training.checkpoint_every",
    "gradient_checkpointing": "training.gradient_checkpointing",
    "deterministic": "runtime.deterministic",
}
"""Python parameter name -> the recipe field it sets."""


def field_option(dotted: str, *flags: str, **more: Any) -> Any:
    """A `typer.Option` that stands for a recipe field: its help is the field's docstring and dotted name.

    Args:
        dotted: the field, such as `training.epochs`.
        flags: as typed, such as `--epochs`.
        more: what `typer.Option` takes beside them; `metavar` shows the choices of a field that has some.

    Raises:
        KeyError: there is no such field.
    """
    schema = field_schema(dotted)
    choices = schema.get("enum") or schema.get("items", {}).get("enum")
    if choices:
        more.setdefault("metavar", "|".join(choices))
    return typer.Option(*flags, help=f"{escape(field_help(dotted))} ({dotted})", show_default=False, **more)


def collect(**given: Any) -> dict[str, Any]:
    """What was given, by dotted field; parameters left out (None, an empty list) are not in it.

    Raises:
        KeyError: a parameter that stands for no field.
    """
    return {FIELDS[name]: value for name, value in given.items() if value is not None and value not in ([], ())}


RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a built-in recipe (`bertctl recipes ls`), or a YAML file.")
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder, as `bertctl finetune` named it in its last line.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="DIR", help="Run folder; runs/RECIPE-HASH when left out.", show_default=False
    ),
]
NumProcessesOption = Annotated[
    int,
    typer.Option(
        "--num-processes",
        min=1,
        help="Share the work among so many processes of this machine (torchrun on CPUs, accelerate on GPUs).",
    ),
]
AccelerateConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--accelerate-config",
        metavar="FILE",
        help="Start through `accelerate launch` with this configuration (several machines).",
        show_default=False,
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        help="Set any field of the recipe, such as training.epochs=2; may be given again.",
        show_default=False,
    ),
]

ModelOption = Annotated[str | None, field_option("model.name", "--model", metavar="NAME|PATH|HUB-ID|RUN")]
MaxLengthOption = Annotated[int | None, field_option("model.max_length", "--max-length")]
DataDirOption = Annotated[Path | None, field_option("data.data_dir", "--data-dir", metavar="DIR")]
TrainFileOption = Annotated[Path | None, field_option("data.train_file", "--train-file", metavar="FILE")]
ValidationFileOption = Annotated[Path | None, field_option("data.validation_file", "--validation-file", metavar="FILE")]
TestFileOption = Annotated[Path | None, field_option("data.test_file", "--test-file", metavar="FILE")]
TextColumnOption = Annotated[str | None, field_option("data.text_column", "--text-column", metavar="NAME")]
PairColumnOption = Annotated[str | None, field_option("data.pair_column", "--pair-column", metavar="NAME")]
LabelColumnOption = Annotated[str | None, field_option("data.label_column", "--label-column", metavar="NAME")]
MaxTrainRowsOption = Annotated[int | None, field_option("data.max_train_rows", "--max-train-rows")]
MaxEvalRowsOption = Annotated[int | None, field_option("data.max_eval_rows", "--max-eval-rows")]
SeedOption = Annotated[int | None, field_option("training.seed", "--seed")]
EpochsOption = Annotated[int | None, field_option("training.epochs", "--epochs")]
BatchSizeOption = Annotated[int | None, field_option("training.batch_size", "--batch-size")]
LearningRateOption = Annotated[float | None, field_option("optimizer.learning_rate", "--learning-rate")]
KeepTextOption = Annotated[bool | None, field_option("evaluation.keep_text", "--text/--no-text")]
MetricOption = Annotated[list[str] | None, field_option("evaluation.metric_scripts", "--metric", metavar="PATH")]
DeviceOption = Annotated[str | None, field_option("runtime.device", "--device")]
PrecisionOption = Annotated[str | None, field_option("runtime.precision", "--precision")]
ThreadsOption = Annotated[int | None, field_option("runtime.threads", "--threads")]
CheckpointEveryOption = Annotated[
    str | None, field_option("training.checkpoint_every", "--checkpoint-every", metavar="'N steps'|'N minutes'|off")
]
GradientCheckpointingOption = Annotated[
    bool | None, field_option("training.gradient_checkpointing", "--gradient-checkpointing/--no-gradient-checkpointing")
]
DeterministicOption = Annotated[
    bool | None, field_option("runtime.deterministic", "--deterministic/--no-deterministic")
]
LogToOption = Annotated[list[str] | None, field_option("runtime.log_to", "--log-to")]
