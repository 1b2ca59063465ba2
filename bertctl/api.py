"""The Python API: what the verbs do, as functions that print nothing and raise `BertctlError`.

Import the names from `bertctl` itself. Recipe fields are given by their dotted names, as in
`--set`: {"model.name": "minilm", "training.epochs": 2}.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.addresses import refuse_address
from bertctl.arrays import Floats32
from bertctl.baselines.run_baselines import make_baselines
from bertctl.config.load import NULL
from bertctl.config.load import load_recipe as load_recipe_with
from bertctl.config.schema import Recipe
from bertctl.config.schema import fields as known_fields
from bertctl.data.rows import Rows
from bertctl.documents import is_whole
from bertctl.errors import UsageError
from bertctl.inference.predict import Predictor, unlabelled_rows
from bertctl.inference.score_run import evaluate_file, evaluate_run
from bertctl.inference.trained import open_run
from bertctl.jobs.run_recipe import run_recipe
from bertctl.progress import SILENT, Figures, Listener
from bertctl.reporting.card import write_card
from bertctl.runtime.seeding import generators_kept
from bertctl.session import opened
from bertctl.training.finetune import RunOptions
from bertctl.training.start import Resume
from bertctl.words import harmless, names_in, unknown
from bertctl.writing import protect

__all__ = [
    "Recipe",
    "Run",
    "evaluate",
    "extract_features",
    "finetune",
    "load_recipe",
    "load_run",
    "predict",
]

Fields = Mapping[str, Any]
"""Recipe fields by their dotted names; None sets a field to null."""

Scores = dict[str, dict[str, float]]
"""Split -> metric -> value."""


class NotebookListener(Listener):
    """Listener that shows progress and evaluations under the cell of a notebook."""

    def __init__(self) -> None:
        self._shown_at = 0.0

    def say(self, text: str) -> None:
        """Shows what was evaluated; the rest of the talk is for a terminal."""
        if text.startswith("step "):
            sys.stderr.write(f"\r{harmless(text)}\n")

    def warn(self, text: str) -> None:
        """Shows a warning."""
        sys.stderr.write(f"\rwarning: {harmless(text)}\n")

    def advance(
        self,
        phase: str,
        done: int,
        total: int,
        figures: Figures | None = None,
        *,
        share: float | None = None,
    ) -> None:
        """Shows how far a phase is, once a second."""
        now = time.monotonic()
        if now - self._shown_at >= 1 and total:
            self._shown_at = now
            if share is not None:
                percent = f" ({100 * share:.0f} %)"
            else:
                percent = ""
            if figures and "loss" in figures:
                loss = f", loss {figures['loss']}"
            else:
                loss = ""
            sys.stderr.write(f"\r{phase} {done}/{total}{percent}{loss}   ")
            sys.stderr.flush()


def in_notebook() -> bool:
    """Returns whether this code runs in a notebook or another shell of IPython."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


class Run:
    """Is a finished run with its model, which is loaded when it is first needed and then stays in
    memory.

    Args:
        path: the run folder.
        fields: recipe fields to change, such as `runtime.device` or `data.data_dir`.

    Attributes:
        path: the run folder.

    Raises:
        UnavailableError: no run, or one without a model.
        UsageError: fields that don't fit.
    """

    def __init__(self, path: Path | str, fields: Fields | None = None) -> None:
        refuse_address(path, "path")
        self.path = Path(path)
        self._trained = open_run(self.path, options=_options(fields))

    def __repr__(self) -> str:
        """Returns its folder, its task and its primary score."""
        document = self._trained.folder.read(self._trained.folder.metrics)
        primary = document["primary"]
        score = document["metrics"].get(primary["split"], {}).get(primary["name"])
        if score:
            scored = f", {primary['name']} on {primary['split']} {score['value']:.4f}"
        else:
            scored = ""
        return f"<Run {self.path}: {self.recipe.task}{scored}>"

    @property
    def recipe(self) -> Recipe:
        """Returns the recipe as it ran."""
        return self._trained.recipe

    @property
    def model_path(self) -> Path:
        """Returns the folder with the model, for `from_pretrained` of transformers."""
        return self._trained.folder.model

    @property
    def metrics(self) -> Scores:
        """Returns the value of each metric by split, from metrics.json (which has intervals and
        counts as well).
        """
        return _values(self._trained.folder.read(self._trained.folder.metrics))

    def predict(
        self, examples: Iterable[str] | Iterable[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Returns one answer per example, in order; see `bertctl.predict`."""
        listed = _listed(examples)
        if not listed:
            return []
        with tempfile.TemporaryDirectory() as folder:
            file, kind = _written(listed, Path(folder))
            return list(
                self._predictor.predict(unlabelled_rows(self._trained, str(file), kind=kind))
            )

    def evaluate(self, split: str | None = None) -> Scores:
        """Scores a split of the run's own data, adds it to the run's metrics, and returns its
        values.

        Args:
            split: its name; the validation splits by default.

        Raises:
            DataError: a split without labels, or with labels that the model does not know.
        """
        before = self.metrics
        after = _values(evaluate_run(self._trained, split=split))
        write_card(self._trained.folder)
        return {
            name: values
            for name, values in after.items()
            if name == split or (split is None and name in before)
        }

    def evaluate_file(
        self, file: Path | str, output: Path | str, *, overwrite: bool = False
    ) -> Scores:
        """Scores a labelled file and returns its values, as the split `file`.

        Args:
            file: in any format that `bertctl evaluate --file` reads.
            output: a folder for the result, which `gate` and `compare` read like a run.
            overwrite: whether to replace the result that is there.

        Raises:
            DataError: rows without labels, or with labels that the model does not know.
        """
        refuse_address(file, "file")
        refuse_address(output, "output", is_output=True)
        protect(Path(file), self.path, anew=True)
        return _values(evaluate_file(self._trained, Path(file), Path(output), overwrite=overwrite))

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self._trained, self._trained.load())


def load_recipe(name: str | Path, fields: Fields | None = None) -> Recipe:
    """Returns a recipe, complete and checked.

    Args:
        name: a built-in recipe (`bertctl recipes ls`) or a YAML file.
        fields: fields to set.

    Raises:
        UsageError: unknown fields, impossible values: all of them at once.
    """
    return load_recipe_with(str(name), options=_options(fields))


def load_run(path: Path | str, fields: Fields | None = None) -> Run:
    """Opens a finished run; see `Run`."""
    return Run(path, fields)


def finetune(
    recipe: Recipe | str | Path,
    fields: Fields | None = None,
    *,
    output: Path | str | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    strict: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Trains a model as a recipe says (fine-tuning, few-shot training or pretraining), and returns
    the finished run.

    Args:
        recipe: a recipe, or the name or file of one.
        fields: fields to set, where `recipe` is a name or a file.
        output: the run folder; `runs/<recipe>-<hash>` by default.
        resume: whether to go on with the run in the folder: True where there must be one, "if any"
            where there may be.
        overwrite: whether to replace the run in the folder.
        strict: whether a model that gives every example the same answer is an error.
        listener: hears of progress. None is silent in a script; a notebook shows how far the
            training is.

    Raises:
        BertctlError: see `bertctl.errors`; each has a message, a remedy and an exit code.
    """
    if isinstance(recipe, Recipe) and fields:
        raise UsageError(
            "fields go with the name of a recipe", remedy="Give them to load_recipe(name, fields)."
        )
    refuse_address(output, "output", is_output=True)
    if isinstance(recipe, Recipe):
        resolved = recipe
    else:
        resolved = load_recipe(recipe, fields)
    if listener is None:
        if in_notebook():
            listener = NotebookListener()
        else:
            listener = SILENT
    if output is None:
        place = None
    else:
        place = Path(output)
    options = RunOptions(strict=strict, make_baselines=make_baselines, on_finish=write_card)
    # Trainings in several threads take turns: torch has one generator for all threads, and two would
    # draw from it alternately.
    with opened(), generators_kept():
        result = run_recipe(
            resolved,
            output=place,
            resume=resume,
            overwrite=overwrite,
            options=options,
            listener=listener,
        )
    return Run(result.folder.path)


def predict(
    run: Run | Path | str, examples: Iterable[str] | Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Returns one answer per example, in order: the prediction, and what the task adds
    (probabilities, spans, ...).

    Args:
        run: a run, or its folder; a `Run` keeps the model in memory from one call to the next.
        examples: texts (their line breaks count as spaces); or for pairs, questions and choices one
            mapping per example, with the columns that a JSON Lines file for `bertctl predict` has.

    Raises:
        BertctlError: no run, or columns that the task does not know.
    """
    return (run if isinstance(run, Run) else Run(run)).predict(examples)


def evaluate(run: Run | Path | str, split: str | None = None) -> Scores:
    """Scores a split of the run's own data, adds it to the run, and returns its values; see
    `Run.evaluate`.
    """
    return (run if isinstance(run, Run) else Run(run)).evaluate(split)


def extract_features(
    texts: Iterable[str],
    model: str | Path = "bert-base",
    *,
    layers: str = "last",
    pooling: str = "mean",
    fields: Fields | None = None,
) -> Floats32:
    """Returns vectors of a frozen encoder, shape (texts, layers and poolings side by side).

    Args:
        texts: any number of them.
        model: a name, a folder, a hub id or a run folder.
        layers: as `bertctl extract-features --layers`, such as "last" or "-1,-2".
        pooling: as `--pooling`: "mean", "cls", "max", "pooler", or "model" as the folder says.
        fields: recipe fields, such as `model.max_length` or `runtime.precision`.

    Raises:
        BertctlError: an unknown model, layer or pooling.
    """
    from bertctl.features.extract_job import VectorNames
    from bertctl.search.vectors import TextVectors

    texts = _listed(texts)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError("texts are a list of texts", remedy='Such as ["a text"].')
    recipe = load_recipe("text-classification", {"model.name": str(model), **(fields or {})})
    names = VectorNames(tuple(names_in(layers)), tuple(names_in(pooling)))
    rows = Rows("texts", {"text": texts}, [str(i) for i in range(len(texts))], "texts")
    of_folder = pooling == "model" and "model.max_length" not in (fields or {})
    return TextVectors(recipe, names, length=None if of_folder else recipe.model.max_length).of(
        rows
    )


def _options(fields: Fields | None) -> dict[str, Any]:
    """Returns the fields as options of a recipe: null is said, and NumPy's numbers are Python's."""
    known = known_fields()
    for name in fields or ():
        if name not in known:
            raise UsageError(
                unknown("recipe field", name, known),
                remedy="`bertctl recipes show NAME` lists them.",
            )
    given = {name: NULL if value is None else value for name, value in (fields or {}).items()}
    return {
        name: value.tolist() if isinstance(value, np.generic) else value
        for name, value in given.items()
    }


def _values(document: Mapping[str, Any]) -> Scores:
    return {
        split: {name: metric["value"] for name, metric in metrics.items()}
        for split, metrics in document["metrics"].items()
    }


def _listed(given: Any) -> list[Any]:
    """Returns rows one by one: of a list, a column of a table, a generator. What is no rows is one,
    which won't fit.

    Raises:
        UsageError: a text that can't be written as UTF-8.
    """
    # The parts of a text are letters, those of a mapping or a table the names of its columns.
    is_one = (
        isinstance(given, str | Mapping)
        or hasattr(given, "columns")
        or not isinstance(given, Iterable)
    )
    listed = [None] if is_one else list(given)
    if not all(is_whole(each) for each in listed if isinstance(each, str)):
        raise UsageError(
            "a text holds half a surrogate pair, which is no character",
            remedy="Give whole characters.",
        )
    return listed


def _plain(value: Any) -> Any:
    """Returns what NumPy has in an example as JSON has it."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    message = (
        f"an example holds {value!r}, of type {type(value).__name__}: texts, numbers and lists of "
        "them fit"
    )
    raise UsageError(message, remedy="Make a text of it, or leave its column out.")


def _written(listed: Sequence[str] | Sequence[Mapping[str, Any]], folder: Path) -> tuple[Path, str]:
    """Writes examples into a file that the task's own reader knows; returns the file and its
    format.
    """
    are_texts = all(isinstance(each, str) for each in listed)
    if not (are_texts or all(isinstance(each, Mapping) for each in listed)):
        message = "examples are a list of texts, or a list of mappings"
        raise UsageError(
            message,
            remedy='Such as ["a text"], or of a table its column, or table.to_dict("records").',
        )
    if are_texts:
        file = folder / "texts.txt"
        kind = "lines"
        lines = [" ".join(str(text).splitlines()) for text in listed]
    else:
        file = folder / "examples.jsonl"
        kind = "jsonl"
        lines = [json.dumps(example, default=_plain) for example in listed]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file, kind
