"""The options that stand for recipe fields: one row per option.

Nothing else knows how a field is typed.

A verb names groups of them (`GROUPS`) and gets what was typed in one value; its own options stay
parameters:

    @takes_recipe("model", "data", "training")
    def finetune(out: Output, recipe: RecipeRequest, output: OutputOption = None) -> None:
        resolved = recipe.load(listener=out)
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertctl.cli.framework.completion import (
    model_names,
    one_of,
    recipe_fields,
    recipe_names,
    run_folders,
)
from bertctl.cli.framework.folding import Decorator, VerbFunction, folds, option, parameter
from bertctl.cli.framework.help import RARE, SHARED
from bertctl.cli.framework.recipe_requests import RecipeRequest, RunRequest
from bertctl.config.field_docs import field_docs
from bertctl.errors import UsageError
from bertctl.words import names_in


@dataclass(frozen=True)
class FieldOption:
    """Option that sets a recipe field. Its help is the field's docstring.

    Attributes:
        field: Dotted name of the recipe field.
        flags: The option, such as `--epochs`; for a switch both, such as `--header/--no-header`.
        kind: Type of the value.
        metavar: Word for the value in the help. None takes the choices of the field, if it has any.
        panel: Heading in the help. None puts the option among the verb's own ones.
        complete: Completes the value in a shell.
        parse: Turns what was typed into the field's value.
    """

    field: str
    flags: str
    kind: Any = str
    metavar: str | None = None
    panel: str | None = None
    complete: Callable[[str], list[str]] | None = None
    parse: Callable[[Any], Any] | None = None

    @property
    def name(self) -> str:
        """Name of the parameter, by its first flag."""
        return self.flags.partition("/")[0].removeprefix("--").replace("-", "_")

    def parameter(self) -> inspect.Parameter:
        """Returns the option as a parameter of a verb, whose value is None if it is not typed."""
        doc = field_docs()[self.field]
        return option(
            self.name,
            self.flags,
            f"{doc.help_text} Recipe field: {self.field}.",
            self.kind,
            metavar=self.metavar or "|".join(doc.choices) or None,
            rich_help_panel=self.panel,
            autocompletion=self.complete or (one_of(*doc.choices) if doc.choices else None),
        )

    def value(self, typed: Any) -> Any:
        """Returns the value of the field for what was typed as the option's value."""
        if self.parse and typed:
            return self.parse(typed)
        return typed


def separator(typed: str) -> str:
    r"""Returns the character that separates columns; a tab may be typed as `tab` or `\t`.

    Raises:
        UsageError: More than one character was typed.
    """
    character = {"tab": "\t", "\\t": "\t"}.get(typed, typed)
    if len(character) != 1:
        raise UsageError(
            f"--delimiter: '{typed}' is not one character", remedy="Such as --delimiter ';' or tab."
        )
    return character


_VALIDATION_FILE = FieldOption("data.validation_file", "--validation-file", Path, "FILE")
_COLUMNS = (
    FieldOption(
        "data.text_column",
        "--text-column",
        metavar="NAME",
        panel="Data",
    ),
    FieldOption(
        "data.pair_column",
        "--pair-column",
        metavar="NAME",
        panel="Data",
    ),
    FieldOption(
        "data.label_column",
        "--label-column",
        metavar="NAME",
        panel="Data",
    ),
    FieldOption(
        "data.id_column",
        "--id-column",
        metavar="NAME",
        panel=RARE,
    ),
)
_LAYOUT = (
    FieldOption(
        "data.encoding",
        "--encoding",
        metavar="NAME",
        panel="Data",
    ),
    FieldOption(
        "data.delimiter",
        "--delimiter",
        metavar="CHAR|tab",
        panel="Data",
        parse=separator,
    ),
    FieldOption("data.header", "--header/--no-header", bool, panel="Data"),
)
GROUPS: Mapping[str, Sequence[FieldOption]] = {
    "model": (
        FieldOption(
            "model.name",
            "--model",
            metavar="NAME|PATH|HUB-ID|RUN",
            complete=model_names,
        ),
        FieldOption("model.max_length", "--max-length", int),
    ),
    "long_texts": (
        FieldOption("model.long_text", "--long-text"),
        FieldOption("model.window_pooling", "--window-pooling"),
    ),
    "data": (
        FieldOption("data.data_dir", "--data-dir", Path, "DIR"),
        FieldOption("data.train_file", "--train-file", Path, "FILE"),
        _VALIDATION_FILE,
        FieldOption(
            "data.test_file",
            "--test-file",
            Path,
            "FILE",
            "Data",
        ),
        *_COLUMNS,
        FieldOption(
            "data.annotator",
            "--annotator",
            metavar="NAME|predictions",
            panel="Data",
        ),
        *_LAYOUT,
        FieldOption("data.max_train_rows", "--max-train-rows", int, panel="Data"),
        FieldOption("data.max_eval_rows", "--max-eval-rows", int, panel="Data"),
    ),
    "columns": _COLUMNS,
    "layout": _LAYOUT,
    "confirming": (
        FieldOption("data.confirm_fraction", "--confirm-fraction", float, panel="Data"),
    ),
    "training": (
        FieldOption("training.epochs", "--epochs", int),
        FieldOption("training.time_limit", "--time-limit", metavar="30s|20m|2h"),
        FieldOption("training.batch_size", "--batch-size", int),
        FieldOption("optimizer.learning_rate", "--learning-rate", float),
        FieldOption("training.seed", "--seed", int),
    ),
    "compute": (
        FieldOption("runtime.device", "--device", panel="Compute"),
        FieldOption("runtime.precision", "--precision", panel="Compute"),
        FieldOption("runtime.threads", "--threads", int, panel="Compute"),
    ),
    "exports": (FieldOption("runtime.accept_drift", "--accept-drift", float, "X", RARE),),
    "deterministic": (
        FieldOption(
            "runtime.deterministic", "--deterministic/--no-deterministic", bool, panel=RARE
        ),
    ),
    "keep_text": (FieldOption("evaluation.keep_text", "--keep-text/--no-text", bool),),
    "evaluation": (
        FieldOption("evaluation.keep_text", "--text/--no-text", bool),
        FieldOption(
            "evaluation.metric_scripts",
            "--metric",
            list[str],
            "PATH",
            RARE,
        ),
    ),
    "baselines": (
        FieldOption("evaluation.baselines", "--baselines/--no-baselines", bool, panel=RARE),
    ),
    "renaming": (
        FieldOption("token_classification.rename_tags", "--rename-tag", list[str], "OLD=NEW"),
    ),
    "answers": (
        FieldOption("token_classification.scheme", "--scheme", panel="Answers"),
        FieldOption(
            "token_classification.entity_threshold", "--entity-threshold", float, panel="Answers"
        ),
        FieldOption("question_answering.n_best", "--n-best", int, panel="Answers"),
        FieldOption(
            "question_answering.max_answer_length", "--max-answer-length", int, panel="Answers"
        ),
        FieldOption(
            "question_answering.null_threshold", "--null-threshold", float, panel="Answers"
        ),
    ),
    "probe": (
        FieldOption(
            "probe.layers",
            "--layers",
            metavar="all|paper|NAME,...",
            parse=names_in,
        ),
        FieldOption(
            "probe.pooling",
            "--pooling",
            metavar="cls,mean,max,...",
            parse=names_in,
        ),
        FieldOption("probe.classifier", "--classifier"),
        FieldOption("probe.class_weight", "--class-weight"),
        FieldOption("probe.special_tokens", "--special-tokens/--no-special-tokens", bool),
        FieldOption("probe.normalize", "--normalize", bool),
    ),
    "corpus": (
        FieldOption("pretraining.from_scratch", "--from-scratch", metavar="SIZE|FILE.json"),
        FieldOption("pretraining.objective", "--objective"),
        FieldOption(
            "pretraining.vocab",
            "--vocab",
            Path,
            "DIR|FILE",
            "Corpus",
        ),
        FieldOption("pretraining.vocab_size", "--vocab-size", int, panel="Corpus"),
        FieldOption(
            "pretraining.mix",
            "--mix",
            list[str],
            "CORPUS=WEIGHT",
            "Corpus",
        ),
        FieldOption("pretraining.mix_temperature", "--mix-temperature", float, panel="Corpus"),
        FieldOption("pretraining.allow_duplicates", "--allow-duplicates", bool, panel="Corpus"),
        FieldOption("training.max_steps", "--max-steps", int),
        _VALIDATION_FILE,
        *_COLUMNS[:1],  # --text-column
        *_LAYOUT[:1],  # --encoding
    ),
    "long_runs": (
        FieldOption(
            "training.checkpoint_every",
            "--checkpoint-every",
            metavar="'N steps'|'N minutes'|off",
            panel=RARE,
        ),
        FieldOption(
            "training.gradient_checkpointing",
            "--gradient-checkpointing/--no-gradient-checkpointing",
            bool,
            panel=RARE,
        ),
        FieldOption("runtime.log_to", "--log-to", list[str], panel=RARE),
    ),
}
"""The options of recipe fields, by the names that verbs call groups of them."""

_BY_FLAG = {row.flags: row for row in chain.from_iterable(GROUPS.values())}
SWITCHES = {row.field: row.flags for row in _BY_FLAG.values()}
"""The options by their field; a pair with a slash for yes and no."""

FLAGS = {field: flags.partition("/")[0] for field, flags in SWITCHES.items()}
"""The options by their field, of pairs the one for yes."""

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FILE",
        help="A recipe (`bertctl recipes ls`), a YAML file, or a file of rows.",
        autocompletion=recipe_names,
    ),
]
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Run folder, as `bertctl finetune` names it.",
        autocompletion=run_folders,
    ),
]
ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Run folder, or a model (folder or hub id).",
        autocompletion=run_folders,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Run folder. Default: runs/RECIPE-HASH.\n\nMust be empty, or add --overwrite.",
    ),
]
OnErrorOption = Annotated[
    Literal["stop", "skip"] | None,
    typer.Option(
        "--on-error",
        help="What to do with rows that can't be read: stop, or skip them, count them and write "
        "them to OUT.skipped.jsonl. Default: stop.",
    ),
]
ShardOption = Annotated[
    str | None, typer.Option("--shard", metavar="K/N", help="Compute shard K of N, into OUT.parts.")
]
NamedShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        help="Compute shard K of N, into OUT.parts, or into OUT if its name has {shard}.",
    ),
]
MergeOption = Annotated[
    bool, typer.Option("--merge", help="Merge the shards in OUT.parts into OUT.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace the run that is in the folder.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        help="Set any field of the recipe, such as training.epochs=2; repeatable. "
        "`bertctl recipes show text-classification` prints every field.",
        autocompletion=recipe_fields,
    ),
]
_LOCK = typer.Option(
    "--locked", help="Read only models and data in bertctl.lock.", rich_help_panel=SHARED
)
LOCKED_OPTION = parameter("locked", Annotated[bool, _LOCK], False)


def picked(*names: str | FieldOption) -> list[FieldOption]:
    """Returns the options of recipe fields that a verb has.

    Args:
        names: Names of groups of options (`compute`), flags of single options (`--scheme`), or
            options themselves.
    """
    options: list[FieldOption] = []
    for name in names:
        if isinstance(name, FieldOption):
            options.append(name)
        elif name in GROUPS:
            options += GROUPS[name]
        else:
            options.append(_BY_FLAG[name])
    return options


def without(group: str, *flags: str) -> list[FieldOption]:
    """Returns the options of a group, without the options that have these flags."""
    return [row for row in GROUPS[group] if row.flags not in flags]


def takes_recipe(
    *names: str | FieldOption, has_recipe_argument: bool = True, sets: bool = True
) -> Decorator:
    """Returns a decorator that gives a verb options of recipe fields, as one `RecipeRequest`.

    The verb is a function `verb(out, recipe, ...)`.

    Args:
        names: The options, by groups, flags or themselves; see `picked`.
        has_recipe_argument: Whether the verb takes the argument RECIPE. If not, it passes the name
            of a recipe to `load` or `trace`.
        sets: Whether the verb takes `--set`.
    """
    field_options = picked(*names)
    if has_recipe_argument:
        before = [parameter("recipe", RecipeArgument)]
    else:
        before = []
    after = [option.parameter() for option in field_options]
    if sets:
        after.append(parameter("sets", SetOption, None))
    after.append(LOCKED_OPTION)

    def decorate(verb: VerbFunction) -> VerbFunction:
        """Gives a verb the parameters `before` and `after`, which it receives as one request."""
        # `data check` is the function `check` in data.py, `finetune` is `finetune` in finetune.py.
        module_name = verb.__module__.rpartition(".")[2]
        if module_name == verb.__name__:
            verb_as_typed = verb.__name__
        else:
            verb_as_typed = f"{module_name} {verb.__name__}"

        def fold(arguments: dict[str, Any]) -> RecipeRequest:
            """Removes RECIPE and options from a verb's arguments, and returns them as a request."""
            apply_locked_option(arguments)
            name = arguments.pop("recipe") if has_recipe_argument else ""
            return RecipeRequest(
                name,
                sets=arguments.pop("sets", None) or (),
                options=by_field(field_options, arguments),
                verb=verb_as_typed.replace("_", "-"),
            )

        return folds(before, after, fold)(verb)

    return decorate


def takes_run(*names: str | FieldOption) -> Decorator:
    """Returns a decorator that gives a verb the argument RUN and options, as one `RunRequest`.

    The verb is a function `verb(out, run, ...)`.

    Args:
        names: The options, by groups, flags or themselves; see `picked`.
    """
    field_options = picked(*names)

    def fold(arguments: dict[str, Any]) -> RunRequest:
        """Removes RUN and options from a verb's arguments, and returns them as a request."""
        apply_locked_option(arguments)
        return RunRequest(arguments.pop("run"), by_field(field_options, arguments))

    positional = [parameter("run", ModelArgument)]
    options = [*(option.parameter() for option in field_options), LOCKED_OPTION]
    return folds(positional, options, fold)


def apply_locked_option(arguments: dict[str, Any]) -> None:
    """Removes `--locked` from a verb's arguments, and enforces the lock file if it was typed.

    The lock is also enforced if the environment variable BERTCTL_LOCKED is set.
    """
    from bertctl.catalog.lock import LOCKED, enforce

    if arguments.pop("locked", False) or os.environ.get(LOCKED):
        enforce()


def by_field(rows: Sequence[FieldOption], arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes options of recipe fields from a verb's arguments.

    Returns:
        Dotted field -> value, for the options that were typed.
    """
    values = {row.field: row.value(arguments.pop(row.name)) for row in rows}
    return {dotted: value for dotted, value in values.items() if value not in (None, [], ())}
