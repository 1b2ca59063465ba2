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
    from bertctl.config.load import TracedRecipe
    from bertctl.config.schema import Recipe
    from bertctl.inference.trained import NetworkRun
    from bertctl.inference.trained_run import TrainedRun


@dataclass(frozen=True)
class FieldOption:
    """Option that sets a recipe field. Its help is the field's docstring.

    Attributes:
        field: the recipe field by its dotted name.
        flags: what is typed; a pair with a slash for yes and no.
        kind: type of the value.
        metavar: what stands for the value in the help; the choices of the field where it has some.
        panel: heading in the help; the verb's own options' where it is None.
        complete: what a shell completes the value with.
        parse: turns what was typed into the field's value.
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
        """Returns what the field is set to."""
        if self.parse and typed:
            return self.parse(typed)
        return typed


def separator(typed: str) -> str:
    """Returns the character that separates fields; a tab may be typed as a word.

    Raises:
        UsageError: not one character.
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
    """Recipe as it was typed. Nothing is read before `load`.

    Attributes:
        name: of a built-in recipe, or a YAML file; empty where the verb finds out itself which one
            is meant.
        sets: the values of `--set`.
        options: value by dotted field, for the options that were given.
        verb: that was typed; empty where the recipe is only looked at.
    """

    name: str = ""
    sets: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    verb: str = field(default="", compare=False)

    @property
    def typed(self) -> list[str]:
        """Fields that stand on the command line, by their dotted names."""
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
        """Returns the recipe and where each field's value comes from.

        For a file of rows the generic one of its task.

        Args:
            name: of the recipe or the file, where it was not typed as such.
            options: values that the verb adds, or puts in place of those that were typed.
            listener: hears which task a file is for, where that is guessed.
            task: of a file, where it is known.

        Raises:
            UsageError: there is no such recipe, something in it is wrong, or what a file is for
                can't be told.
            UnavailableError: its file can't be read.
        """
        from bertctl.config.load import CODE, REACHING, refuse_unnamed, trace_recipe
        from bertctl.config.task_names import verb_of

        recipe_name = name or self.name
        values = {**self.options, **(options or {})}
        if is_data_file(recipe_name):
            if "data.train_file" in self.options:
                raise UsageError(
                    f"the train file is given twice, as {recipe_name} too",
                    remedy="Leave --train-file out.",
                )
            fields = {"data.train_file": Path(recipe_name)}
            recipe_name, guessed = (task, {}) if task else self._guess(Path(recipe_name), listener)
            values = {**fields, **guessed, **values}
        recipe, origins = trace_recipe(recipe_name, sets=self.sets, options=values)
        for dotted in REACHING:
            file = origins[dotted].file or expanded_path(recipe_name)
            if dotted in CODE or is_of_run(file):
                refuse_unnamed(recipe, file, self.typed, [dotted])
        looks = not self.verb or self.verb.startswith(("recipes", "fetch"))
        verb = verb_of(recipe.task)
        if not looks and (verb == PRETRAIN) != (self.verb in (PRETRAIN, "adapt")):
            message = f"'{recipe_name}' is a recipe of {verb}, whose task is '{recipe.task}'"
            raise UsageError(message, remedy=f"bertctl {verb} {recipe_name}")
        return recipe, origins

    def _guess(self, file: Path, listener: Listener) -> tuple[str, Mapping[str, Any]]:
        """Returns the task of a file with rows, and the fields that were guessed with it."""
        from bertctl.config.load import load_recipe
        from bertctl.data.file_names import UnknownSuffixError
        from bertctl.data.guessing import guess_task
        from bertctl.data.readers import READERS
        from bertctl.runtime.launch import is_worker

        sets = [assignment for assignment in self.sets if assignment.startswith("data.")]
        options = {
            field: value for field, value in self.options.items() if field.startswith("data.")
        }
        generic = f"bertctl {self.verb or 'finetune'} TASK --train-file {shlex.quote(str(file))}"
        try:
            task, fields, guess_text = guess_task(
                file, load_recipe(next(iter(READERS)), sets=sets, options=options).data
            )
        except UnknownSuffixError:
            raise
        except UsageError as error:
            is_said = "name the task" in error.remedy.lower()
            if is_said:
                introduction = "The task is named so"
            else:
                introduction = "Add it to the command, or name the task"
            error.remedy += f" {introduction}: {generic} (TASK: {', '.join(READERS)})."
            raise
        if not is_worker():
            listener.say(
                guess_text if self.verb == "fetch" else f"{guess_text}; another task: {generic}"
            )
        return task, fields


@dataclass(frozen=True)
class RunRequest:
    """Run as it was typed, with the options that replace values of its recipe.

    Attributes:
        path: its folder.
        options: value by dotted field, for the options that were given.
    """

    path: Path
    options: Mapping[str, Any]

    def open(
        self, options: Mapping[str, Any] | None = None, listener: Listener = SILENT
    ) -> "TrainedRun":
        """Returns the trained model of the run, or of an export.

        Raises:
            UnavailableError: there is no finished run.
        """
        from bertctl.inference.opening import open_trained

        fields = {**self.options, **(options or {})}
        return open_trained(self.path, options=fields, listener=listener)

    def open_network(
        self, options: Mapping[str, Any] | None = None, listener: Listener = SILENT
    ) -> "NetworkRun":
        """Returns the trained model of the run as a network of torch, which an export is not.

        Raises:
            UnavailableError: There is no finished run, or it is an export.
        """
        from bertctl.inference.trained import open_run

        fields = {**self.options, **(options or {})}
        return open_run(self.path, options=fields, listener=listener)


def picked(*names: str | FieldOption) -> list[FieldOption]:
    """Returns field options.

    A name is that of a group of options, or the flags of a single one.
    """
    picked_options: list[FieldOption] = []
    for name in names:
        picked_options += (
            [name] if isinstance(name, FieldOption) else GROUPS.get(name) or [_BY_FLAG[name]]
        )
    return picked_options


def without(group: str, *flags: str) -> list[FieldOption]:
    """Returns the options of a group but those with these flags."""
    return [row for row in GROUPS[group] if row.flags not in flags]


def takes_recipe(
    *names: str | FieldOption, has_recipe_argument: bool = True, sets: bool = True
) -> Decorator:
    """Gives a verb `verb(out, recipe, ...)` options of recipe fields.

    The verb gets them as a `RecipeRequest`.

    Args:
        names: see `picked`.
        has_recipe_argument: whether the verb takes the argument RECIPE; else it has an argument of
            its own and calls `load(name)`.
        sets: whether it takes `--set`.
    """
    rows = picked(*names)
    if has_recipe_argument:
        before = [parameter("recipe", RecipeArgument)]
    else:
        before = []
    after = (
        [row.parameter() for row in rows]
        + ([parameter("sets", SetOption, None)] if sets else [])
        + [LOCKED_OPTION]
    )

    def decorate(verb: VerbFunction) -> VerbFunction:
        def fold(arguments: dict[str, Any]) -> RecipeRequest:
            """Takes the recipe and its options out of a verb's arguments."""
            lock(arguments)
            name = arguments.pop("recipe") if has_recipe_argument else ""
            group = verb.__module__.rpartition(".")[2]  # `data check` is `check` in data.py
            typed = " ".join(dict.fromkeys((group, verb.__name__))).replace("_", "-")
            return RecipeRequest(
                name, arguments.pop("sets", None) or (), by_field(rows, arguments), typed
            )

        return folds(before, after, fold)(verb)

    return decorate


def takes_run(*names: str | FieldOption) -> Decorator:
    """Gives a verb `verb(out, run, ...)` the argument RUN and options.

    They are the options that `picked` gives, as a `RunRequest`.
    """
    rows = picked(*names)

    def fold(arguments: dict[str, Any]) -> RunRequest:
        lock(arguments)
        return RunRequest(arguments.pop("run"), by_field(rows, arguments))

    return folds(
        [parameter("run", ModelArgument)], [*(row.parameter() for row in rows), LOCKED_OPTION], fold
    )


def lock(arguments: dict[str, Any]) -> None:
    """Takes `--locked` out of what was typed, and enforces the lock.

    Without `--locked` the lock is enforced if BERTCTL_LOCKED is set.
    """
    from bertctl.catalog.lock import LOCKED, enforce

    if arguments.pop("locked", False) or os.environ.get(LOCKED):
        enforce()


def by_field(rows: Sequence[FieldOption], arguments: dict[str, Any]) -> dict[str, Any]:
    """Takes the values of options out of what was typed, and returns them by field."""
    values = {row.field: row.value(arguments.pop(row.name)) for row in rows}
    return {name: value for name, value in values.items() if value not in (None, [], ())}
