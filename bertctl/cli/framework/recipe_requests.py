"""Recipes and runs as they were typed, with the options of recipe fields.

A verb gets such a request from `recipe_options.py`, and loads the recipe or opens the run by it.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.config.recipe_files import expanded_path, is_data_file, is_of_run
from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener

if TYPE_CHECKING:
    from bertctl.config.load import Origin, TracedRecipe
    from bertctl.config.schema import Recipe
    from bertctl.inference.trained import NetworkRun
    from bertctl.inference.trained_run import TrainedRun

PRETRAIN = "pretrain"
"""The verb of pretraining, and its recipe that reads any corpus."""


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
