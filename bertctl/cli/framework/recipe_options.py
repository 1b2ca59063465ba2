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
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from bertctl.config.field_docs import field_docs
from bertctl.config.recipe_files import expanded_path, is_data_file, is_of_run
from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import names_in

if TYPE_CHECKING:
    from bertctl.config.load import Origin, TracedRecipe
    from bertctl.config.schema import Recipe
    from bertctl.inference.trained import NetworkRun
    from bertctl.inference.trained_run import TrainedRun


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
        """Returns the option as a parameter of a verb; None stands for not given."""
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

PRETRAIN = "pretrain"
"""The verb whose recipes are those of a corpus."""

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


@dataclass(frozen=True)
class RecipeRequest:
    """Recipe as it was typed. Nothing is read before `load` or `trace`.

    Attributes:
        name: A built-in recipe, a YAML file or a file of rows; empty if the verb passes the name to
            `load`.
        sets: Values of `--set`, such as `training.epochs=2`.
        options: Dotted field -> value, for the options that were typed.
        verb: The verb that was typed, such as `finetune` or `data check`; empty if the recipe is
            not for a run.
    """

    name: str = ""
    sets: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    verb: str = field(default="", compare=False)

    @property
    def typed(self) -> list[str]:
        """Dotted names of the fields that were typed, as options or after `--set`."""
        return [*self.options, *(assignment.partition("=")[0].strip() for assignment in self.sets)]

    def load(
        self,
        name: str = "",
        options: Mapping[str, Any] | None = None,
        *,
        listener: Listener = SILENT,
        task: str = "",
    ) -> "Recipe":
        """Returns the recipe, complete and checked; see `trace`."""
        return self.trace(
            name,
            options,
            listener=listener,
            task=task,
        )[0]

    def trace(
        self,
        name: str = "",
        options: Mapping[str, Any] | None = None,
        *,
        listener: Listener = SILENT,
        task: str = "",
    ) -> "TracedRecipe":
        """Returns the recipe, and where each field's value comes from.

        For a file of rows, that is the built-in recipe of its task with the file as training rows.

        Args:
            name: Name of the recipe or the file, if it is not this request's.
            options: Dotted field -> value, which replace the options that were typed.
            listener: Receives a message about the task that was guessed for a file.
            task: Task of a file of rows; empty to guess it from the file.

        Raises:
            UsageError: No such recipe exists, the recipe is wrong or is run by another verb, or the
                task of a file can't be guessed.
            UnavailableError: A file can't be read.
        """
        from bertctl.config.load import trace_recipe

        recipe_name = name or self.name
        values = {**self.options, **(options or {})}
        if is_data_file(recipe_name):
            rows_file = Path(recipe_name)
            if "data.train_file" in self.options:
                raise UsageError(
                    f"the train file is given twice, as {recipe_name} too",
                    remedy="Leave --train-file out.",
                )
            # The recipe of a task has the name of the task.
            if task:
                recipe_name = task
                guessed: Mapping[str, Any] = {}
            else:
                recipe_name, guessed = self._guess(rows_file, listener)
            # What was typed, or comes from the verb, wins over what was guessed.
            values = {"data.train_file": rows_file, **guessed, **values}
        recipe, origins = trace_recipe(recipe_name, sets=self.sets, options=values)
        self._refuse_untrusted(recipe, origins, recipe_name)
        self._refuse_other_verb(recipe, recipe_name)
        return recipe, origins

    def _refuse_untrusted(
        self, recipe: "Recipe", origins: Mapping[str, "Origin"], recipe_name: str
    ) -> None:
        """Refuses fields of a recipe file that would run code, or send a run's data to a server.

        No file may name code to run. The recipe in a run folder, which may come from another
        person, may not name a server either. What was typed on the command line is allowed.

        Args:
            recipe: The recipe.
            origins: Dotted field -> where its value comes from.
            recipe_name: Name or file of the recipe.
        """
        from bertctl.config.load import CODE, REACHING, refuse_unnamed

        for dotted in REACHING:
            file = origins[dotted].file or expanded_path(recipe_name)
            if dotted in CODE or is_of_run(file):
                refuse_unnamed(recipe, file, self.typed, [dotted])

    def _refuse_other_verb(self, recipe: "Recipe", recipe_name: str) -> None:
        """Refuses a recipe of `pretrain` for a verb that fine-tunes, and the other way round.

        Args:
            recipe: The recipe.
            recipe_name: Its name or file, for the message.
        """
        from bertctl.config.task_names import verb_of

        only_reads_recipe = not self.verb or self.verb.startswith(("recipes", "fetch"))
        if only_reads_recipe:
            return
        verb_of_recipe = verb_of(recipe.task)
        is_for_pretraining = verb_of_recipe == PRETRAIN
        verb_pretrains = self.verb in (PRETRAIN, "adapt")
        if is_for_pretraining != verb_pretrains:
            message = (
                f"'{recipe_name}' is a recipe of {verb_of_recipe}, whose task is '{recipe.task}'"
            )
            raise UsageError(message, remedy=f"bertctl {verb_of_recipe} {recipe_name}")

    def _guess(self, file: Path, listener: Listener) -> tuple[str, Mapping[str, Any]]:
        """Guesses the task of a file of rows from its columns.

        Args:
            file: The file.
            listener: Receives a message about the guess.

        Returns:
            The task, and values of `data.*` fields that the guess takes for granted.

        Raises:
            UsageError: The rows fit no task.
        """
        from bertctl.config.load import load_recipe
        from bertctl.data.file_names import UnknownSuffixError
        from bertctl.data.guessing import guess_task
        from bertctl.data.readers import READERS
        from bertctl.runtime.launch import is_worker

        sets = [assignment for assignment in self.sets if assignment.startswith("data.")]
        options = {
            field: value for field, value in self.options.items() if field.startswith("data.")
        }
        # Which task's recipe this is does not matter: only its section `data` is used.
        any_task = next(iter(READERS))
        naming_the_task = (
            f"bertctl {self.verb or 'finetune'} TASK --train-file {shlex.quote(str(file))}"
        )
        try:
            data_settings = load_recipe(any_task, sets=sets, options=options).data
            task, fields, guess_text = guess_task(file, data_settings)
        except UnknownSuffixError:
            raise  # Naming the task would not help.
        except UsageError as error:
            # The remedy so far names an option to add, and some remedies advise to name the task.
            advises_to_name_task = "name the task" in error.remedy.lower()
            if advises_to_name_task:
                introduction = "The task is named so"
            else:
                introduction = "Add it to the command, or name the task"
            error.remedy += f" {introduction}: {naming_the_task} (TASK: {', '.join(READERS)})."
            raise
        if not is_worker():
            if self.verb != "fetch":  # fetch has no --train-file
                guess_text += f"; another task: {naming_the_task}"
            listener.say(guess_text)
        return task, fields


@dataclass(frozen=True)
class RunRequest:
    """Run as it was typed, with the options that replace values of its recipe.

    Attributes:
        path: The run's folder.
        options: Dotted field -> value, for the options that were typed.
    """

    path: Path
    options: Mapping[str, Any]

    def open(
        self, options: Mapping[str, Any] | None = None, listener: Listener = SILENT
    ) -> "TrainedRun":
        """Returns the trained model of the run, or of an export.

        Args:
            options: Fields of the run's recipe to set, besides those that were typed.
            listener: Receives progress messages.

        Raises:
            UnavailableError: The folder has no finished run.
        """
        from bertctl.inference.opening import open_trained

        fields = {**self.options, **(options or {})}
        return open_trained(self.path, options=fields, listener=listener)

    def open_network(
        self, options: Mapping[str, Any] | None = None, listener: Listener = SILENT
    ) -> "NetworkRun":
        """Returns the trained model of the run as a network of torch, which an export is not.

        Args:
            options: Fields of the run's recipe to set, besides those that were typed.
            listener: Receives progress messages.

        Raises:
            UnavailableError: The folder has no finished run, or it is an export.
        """
        from bertctl.inference.trained import open_run

        fields = {**self.options, **(options or {})}
        return open_run(self.path, options=fields, listener=listener)


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
    rows = picked(*names)
    if has_recipe_argument:
        before = [parameter("recipe", RecipeArgument)]
    else:
        before = []
    after = [row.parameter() for row in rows]
    if sets:
        after.append(parameter("sets", SetOption, None))
    after.append(LOCKED_OPTION)

    def decorate(verb: VerbFunction) -> VerbFunction:
        """Gives a verb the options, and notes in each request which verb it is."""
        # `data check` is the function `check` in data.py, `finetune` is `finetune` in finetune.py.
        module_name = verb.__module__.rpartition(".")[2]
        if module_name == verb.__name__:
            verb_as_typed = verb.__name__
        else:
            verb_as_typed = f"{module_name} {verb.__name__}"

        def fold(arguments: dict[str, Any]) -> RecipeRequest:
            """Removes RECIPE and options from a verb's arguments, and returns them as a request."""
            lock(arguments)
            name = arguments.pop("recipe") if has_recipe_argument else ""
            return RecipeRequest(
                name,
                sets=arguments.pop("sets", None) or (),
                options=by_field(rows, arguments),
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
    rows = picked(*names)

    def fold(arguments: dict[str, Any]) -> RunRequest:
        """Removes RUN and options from a verb's arguments, and returns them as a request."""
        lock(arguments)
        return RunRequest(arguments.pop("run"), by_field(rows, arguments))

    positional = [parameter("run", ModelArgument)]
    options = [*(row.parameter() for row in rows), LOCKED_OPTION]
    return folds(positional, options, fold)


def lock(arguments: dict[str, Any]) -> None:
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
