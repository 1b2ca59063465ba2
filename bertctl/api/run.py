"""Finished runs in Python: opened, asked for answers, scored."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from bertctl.addresses import refuse_address
from bertctl.api.fields import Fields, as_options
from bertctl.config.schema import Recipe
from bertctl.data.memory_rows import RowsInMemory, kept_file, memory_file
from bertctl.data.sources import MemoryFile
from bertctl.errors import UsageError
from bertctl.inference.carried_columns import KeptColumns
from bertctl.inference.engine import Engine
from bertctl.inference.opening import open_trained
from bertctl.inference.predictor import Predictor
from bertctl.inference.rows_to_answer import unlabelled_rows
from bertctl.inference.score_run import evaluate_apart, evaluate_file, evaluate_run
from bertctl.inference.several_runs import (
    LoadedRuns,
    SeveralPredictor,
    SeveralRows,
    open_runs,
)
from bertctl.reporting.card import write_card
from bertctl.reporting.notebook import data_text, model_text, run_html, score_text
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_folder import is_export, refuse_export
from bertctl.writing import protect

Scores = dict[str, dict[str, float | None]]
"""Split -> metric -> value."""


class Answering(ABC):
    """Answers examples that are in memory, as a list or as a stream."""

    def predict(
        self,
        examples: RowsInMemory,
        *,
        top_k: int | None = None,
        keep_columns: str | None = None,
    ) -> list[dict[str, Any]]:
        """Returns one answer per example, in order; see `bertctl.predict`."""
        return list(self.stream(examples, top_k=top_k, keep_columns=keep_columns))

    def stream(
        self,
        examples: RowsInMemory,
        *,
        top_k: int | None = None,
        keep_columns: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yields one answer per example, in order, and reads on as they are taken.

        Some thousands of examples are in memory at once, however many there are.

        Args:
            examples: Texts, mappings or a data frame; see `bertctl.predict`.
            top_k: Number of labels to answer with, the likeliest first, as `top`.
            keep_columns: Columns of the examples that stand beside the answers: "all", "none", or
                names between commas. Default: all, but none where the recipe keeps no texts.

        Raises:
            BertctlError: Examples that the task does not know, or that several runs read
                differently.
        """
        _check_top_k(top_k)
        file = memory_file(examples, "examples")
        if file is None:
            return iter(())
        columns = KeptColumns.parse(keep_columns, by_default=self._keeps_text)
        return self._answers(file, columns, top_k)

    @property
    @abstractmethod
    def _keeps_text(self) -> bool:
        """Whether texts may stand beside the answers."""

    @abstractmethod
    def _answers(
        self, file: MemoryFile, columns: KeptColumns, top_k: int | None
    ) -> Iterator[dict[str, Any]]:
        """Returns the answers to the examples of a file in memory, which is not empty."""


class Run(Answering):
    """Finished run with its model.

    The model is loaded when it is first needed and then stays in memory.

    A notebook shows it as a table of its scores.

    Args:
        path: The run folder.
        fields: Recipe fields to change, such as `runtime.device` or `data.data_dir`.

    Attributes:
        path: The run folder.

    Raises:
        UnavailableError: There is no run, or one without a model.
        UsageError: Fields that don't fit.
    """

    def __init__(self, path: Path | str, fields: Fields | None = None) -> None:
        refuse_address(path, "path")
        self.path = Path(path)
        self._trained = open_trained(self.path, options=as_options(fields))

    def __repr__(self) -> str:
        """Returns the run's folder, task, data, model and primary score with its interval."""
        facts = "; ".join(f"{name}: {value}" for name, value in self._facts().items())
        return f"<Run {self.path}: {facts}>"

    def _repr_html_(self) -> str:
        """Returns HTML for a notebook: the run's task, data, model and a table of its scores."""
        return run_html(f"Run {self.path}", self._facts(), self._document)

    @property
    def recipe(self) -> Recipe:
        """The recipe as it ran."""
        return self._trained.recipe

    @property
    def model_path(self) -> Path:
        """Folder with the model, for `from_pretrained` of transformers.

        Raises:
            UnavailableError: The run is an export, which has no such folder.
        """
        refuse_export(self.path)
        return self._trained.folder.model

    @property
    def metrics(self) -> Scores:
        """Value of each metric by split, from metrics.json (with intervals and counts)."""
        return _values(self._trained.folder.read_metrics())

    @property
    def _keeps_text(self) -> bool:
        """Whether answers may hold the texts, as the recipe says."""
        return self._trained.recipe.evaluation.keep_text

    def _answers(
        self, file: MemoryFile, columns: KeptColumns, top_k: int | None
    ) -> Iterator[dict[str, Any]]:
        """Yields the run's answers to examples; see `stream`."""
        chunks = unlabelled_rows(self._trained, file)
        predictor = Predictor(self._trained, self._engine, top_k=top_k, kept_columns=columns)
        return predictor.predict(chunks)

    def evaluate(
        self,
        split: str | None = None,
        *,
        rows: RowsInMemory | None = None,
        output: Path | str | None = None,
        overwrite: bool = False,
    ) -> Scores:
        """Scores a split of the run's own data, or labelled rows, and returns the values.

        The scores of a split are added to the run's metrics, but nothing is added to an export.
        Scores of rows are returned under the name `file`.

        Args:
            split: Name of the split; the validation splits by default.
            rows: Mappings or a data frame with labels, which are scored in place of a split.
            output: Folder for the scores of rows, or of an export. `gate` and `compare` read it
                like a run. None writes nothing.
            overwrite: Whether to replace the result in that folder.

        Raises:
            DataError: A split or rows without labels, or with labels that the model does not know.
        """
        if rows is not None and split is not None:
            raise UsageError(
                "a split and rows are given, and one of them is scored",
                remedy="Leave one of them out.",
            )
        of_export = is_export(self.path)
        if rows is None and output is not None and not of_export:
            raise UsageError(
                "output is for the scores of rows; those of a split are added to the run",
                remedy="Leave output out.",
            )
        if rows is None and not of_export:
            return self._evaluate_split(split)

        refuse_address(output, "output", is_output=True)
        folder = None if output is None else Path(output)
        if rows is None:
            return _values(evaluate_apart(self._trained, folder, split=split, overwrite=overwrite))
        document = evaluate_file(
            self._trained,
            kept_file(rows, "rows"),
            folder,
            overwrite=overwrite,
        )
        return _values(document)

    def _evaluate_split(self, split: str | None) -> Scores:
        """Scores a split of the run, adds the scores to its metrics, and returns them by split.

        Args:
            split: Name of the split. None scores the validation splits, and returns the scores of
                all splits that `metrics` had before, with the new ones of those scored again.
        """
        scored_before = self.metrics
        scores = _values(evaluate_run(self._trained, split=split))
        write_card(self._trained.folder)
        if split is None:
            returned_splits = set(scored_before)
        else:
            returned_splits = {split}
        return {name: values for name, values in scores.items() if name in returned_splits}

    def evaluate_file(
        self, file: Path | str, output: Path | str, *, overwrite: bool = False
    ) -> Scores:
        """Scores a labelled file and returns its values, as the split `file`.

        Args:
            file: In any format that `bertctl evaluate RUN FILE` reads.
            output: Folder for the result, which `gate` and `compare` read like a run.
            overwrite: Whether to replace the result that is there.

        Raises:
            DataError: Rows without labels, or with labels that the model does not know.
        """
        refuse_address(file, "file")
        refuse_address(output, "output", is_output=True)
        protect(Path(file), self.path, anew=True)
        return _values(evaluate_file(self._trained, Path(file), Path(output), overwrite=overwrite))

    @cached_property
    def _engine(self) -> Engine:
        """The model, loaded when it is first needed."""
        return self._trained.load()

    @property
    def _document(self) -> MetricsDocument | None:
        """Content of metrics.json; None where there is none."""
        folder = self._trained.folder
        if folder.metrics.exists():
            return folder.read_metrics()
        return None

    def _facts(self) -> dict[str, str]:
        """Returns what a notebook shows of the run: task, data, model and, if there is one, score.

        The values are texts for people.
        """
        facts = {
            "task": self.recipe.task,
            "data": data_text(self.recipe),
            "model": model_text(self.recipe),
        }
        document = self._document
        if document is not None:
            score = score_text(document)
            if score:
                facts["score"] = score
        return facts


class Runs(Answering):
    """Several finished runs that answer the same rows.

    An answer to an example is one line, with each run's answer under the run's name. Each batch
    goes once through layers that two runs have alike. The models are loaded when they are first
    needed.

    Args:
        paths: The run folders.
        fields: Recipe fields to change in all of them, such as `runtime.device`.

    Attributes:
        names: Names of the runs in the answers: of the folders, or the paths where two folders have
            the same name.

    Raises:
        UnavailableError: A run is missing or has no model.
        UsageError: The same run twice, an export, a task that answers no texts, or fields that
            don't fit.
    """

    def __init__(self, paths: Iterable[Path | str], fields: Fields | None = None) -> None:
        if isinstance(paths, str | Path):
            raise UsageError(f"paths is one path, {str(paths)!r}", remedy="Give a list of paths.")
        folders = []
        for path in paths:
            refuse_address(path, "paths")
            folders.append(Path(path))
        self._runs = open_runs(folders, options=as_options(fields))
        self.names = tuple(self._runs)

    def __repr__(self) -> str:
        """Returns the names of the runs."""
        return f"<Runs {', '.join(self.names)}>"

    @property
    def sharing(self) -> dict[str, dict[str, Any]]:
        """What each run shares with an earlier one: `shares_with` and `shared_layers`, by name."""
        return self._loaded.sharing()

    @property
    def _keeps_text(self) -> bool:
        """Whether answers may hold the texts, as the first run's recipe says."""
        [first_run, *_] = self._runs.values()
        return first_run.recipe.evaluation.keep_text

    def _answers(
        self, file: MemoryFile, columns: KeptColumns, top_k: int | None
    ) -> Iterator[dict[str, Any]]:
        """Yields answers to examples, each with the answer of every run; see `stream`."""
        chunks = SeveralRows([*self._runs.values()]).of_source(file)
        predictor = SeveralPredictor(self._loaded, top_k=top_k, kept_columns=columns)
        return predictor.predict(chunks)

    @cached_property
    def _loaded(self) -> LoadedRuns:
        """The models of all runs, loaded when they are first needed."""
        return LoadedRuns.load(self._runs)


def load_run(path: Path | str, fields: Fields | None = None) -> Run:
    """Opens a finished run; see `Run`."""
    return Run(path, fields)


def load_runs(paths: Iterable[Path | str], fields: Fields | None = None) -> Runs:
    """Opens several runs that answer the same rows; see `Runs`."""
    return Runs(paths, fields)


def predict(
    run: Run | Runs | Path | str,
    examples: RowsInMemory,
    *,
    top_k: int | None = None,
    keep_columns: str | None = None,
) -> list[dict[str, Any]]:
    """Returns one answer per example, in order.

    It is the prediction, and what the task adds (probabilities, spans, ...). No file is written.

    Args:
        run: A run, or its folder, or several runs of `load_runs`; a `Run` keeps the model in memory
            from one call to the next.
        examples: Texts (their line breaks count as spaces); mappings with the columns that a JSON
            Lines file for `bertctl predict` has; or a data frame of pandas, Polars, pyarrow or
            `datasets`. A generator is read as it goes.
        top_k: Number of labels to answer with, the likeliest first, as `top`.
        keep_columns: Columns of the examples that stand beside the answers; see `Run.stream`.

    Raises:
        BertctlError: There is no run, or the task does not know the columns.
    """
    if isinstance(run, Runs):
        return run.predict(examples, top_k=top_k, keep_columns=keep_columns)
    return _opened(run).predict(examples, top_k=top_k, keep_columns=keep_columns)


def evaluate(
    run: Run | Path | str,
    split: str | None = None,
    *,
    rows: RowsInMemory | None = None,
    output: Path | str | None = None,
    overwrite: bool = False,
) -> Scores:
    """Scores a split of the run's own data, or labelled rows.

    It returns the values; see `Run.evaluate`.
    """
    return _opened(run).evaluate(
        split,
        rows=rows,
        output=output,
        overwrite=overwrite,
    )


def _check_top_k(top_k: int | None) -> None:
    """Refuses a number of labels below 1."""
    if top_k is not None and top_k < 1:
        raise UsageError(f"top_k is {top_k}", remedy="Give a positive number.")


def _opened(run: Run | Path | str) -> Run:
    """Returns a run, which is opened if only its folder is given."""
    if isinstance(run, Run):
        return run
    return Run(run)


def _values(document: MetricsDocument) -> Scores:
    """Returns the value of each metric by split, without intervals and counts."""
    scores = {}
    for split, metrics in document.metrics.items():
        scores[split] = {name: metric.value for name, metric in metrics.items()}
    return scores
