"""Several runs that answer the same rows, with one pass of each batch through what they share.

Each run answers as it does alone. It reads the rows by its own settings, and it has a tokenizer, a
decision and a device of its own. What is the same is done once: reading, tokenizing, and the passes
of the layers that two runs have alike (`bertctl.modeling.shared_encoder`).
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.data.read_options import SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.errors import DataError, UsageError
from bertctl.inference.carried_columns import KeptColumns, free_name
from bertctl.inference.engine import Engine, forward_together
from bertctl.inference.predict import Destination
from bertctl.inference.predictor import Predictor, tell_truncation, warn_of_clashes
from bertctl.inference.rows_to_answer import text_rows, unlabelled_rows
from bertctl.inference.trained import NetworkRun, open_run
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import is_export
from bertctl.tasks.targets import Answered
from bertctl.words import command, count, listing

if TYPE_CHECKING:
    from bertctl.modeling.shared_encoder import SharedPart

TOGETHER = ("text-classification", "text-regression", "token-classification")
"""Tasks whose runs can answer beside each other."""

LAYOUTS = ("jsonl", "json", "csv", "tsv")
"""Layouts of answers of several runs."""

_OF_TRAINING = (
    "name",
    "datasets_file",
    "data_dir",
    "train_file",
    "validation_file",
    "test_file",
    "validation_fraction",
    "split_seed",
    "confirm_fraction",
    "group_column",
    "folds",
    "fold",
    "first_train_rows",
    "max_train_rows",
    "train_rows_per_label",
    "max_eval_rows",
)
"""Fields of `data` that say nothing about how a new file is read."""


def split_paths(typed: Path) -> list[Path]:
    """Returns the folders of `RUN_A,RUN_B`; the path itself if it has no comma, or if it exists.

    Raises:
        UsageError: Nothing is before or behind a comma.
    """
    text = str(typed)
    if "," not in text or typed.exists():
        return [typed]
    typed_runs = [typed_run.strip() for typed_run in text.split(",")]
    if not all(typed_runs):
        raise UsageError(
            f"'{text}': a run is missing beside a comma",
            remedy="Give the runs with one comma between two: runs/a,runs/b.",
        )
    return [Path(typed_run) for typed_run in typed_runs]


def open_runs(
    paths: Sequence[Path],
    *,
    options: Mapping[str, object] | None = None,
    listener: Listener = SILENT,
) -> dict[str, NetworkRun]:
    """Opens runs that are to answer the same rows, by the names that answers have.

    A name is that of the folder, or the path where two folders have the same name.

    Args:
        paths: Run folders, or fine-tuned models.
        options: Recipe fields to change in all of them, by dotted name.
        listener: Receives what a model that is no run is.

    Raises:
        UsageError: No run, the same one twice, an export, or a task that answers no texts.
        UnavailableError: A run is missing or has no model.
    """
    if not paths:
        raise UsageError("no run is given", remedy="Give the folders of two runs or more.")
    folders = [Path(os.path.realpath(path)) for path in paths]
    repeated = [
        path for path, folder in zip(paths, folders, strict=True) if folders.count(folder) > 1
    ]
    if repeated:
        raise UsageError(
            f"{listing([str(path) for path in repeated])}: the same run is given twice",
            remedy="Give each run once.",
        )
    for path in paths:
        if is_export(path):
            raise UsageError(
                f"{path} is an export, and several runs answer together as networks of torch",
                remedy="Give the run that it was made of, or predict with the export alone: "
                f"{command('predict', path, 'FILE')}",
            )
    folder_names = [path.name for path in paths]
    runs = {}
    for path in paths:
        run = open_run(path, options=options, listener=listener)
        _check_task(run)
        if folder_names.count(path.name) == 1:
            name = path.name
        else:
            name = str(path)
        runs[name] = run
    # If one of the runs may not show texts in its answers, none of them does.
    return _with_common_text(runs)


def _with_common_text(runs: Mapping[str, NetworkRun]) -> dict[str, NetworkRun]:
    """Returns the runs, changed so that none shows texts in its answers if one of them may not."""
    keeps_text = all(run.recipe.evaluation.keep_text for run in runs.values())
    return {
        name: replace(run, recipe=run.recipe.with_fields("evaluation", keep_text=keeps_text))
        for name, run in runs.items()
    }


def _check_task(run: NetworkRun) -> None:
    """Refuses a run whose task is not one of those that several runs can answer together.

    Raises:
        UsageError: It is of another task; the error says how to use it alone.
    """
    if run.recipe.task not in TOGETHER:
        path = run.folder.path
        raise UsageError(
            f"{path} is a run of {run.recipe.task}, and runs that answer together classify, score "
            "or tag texts",
            remedy=f"Predict with it alone: {command('predict', path, 'FILE')}",
        )


class SeveralRows:
    """The same rows as each run reads them; runs with the same settings share what is read.

    Args:
        runs: Opened.
    """

    def __init__(self, runs: Sequence[NetworkRun]) -> None:
        self._runs = runs
        # For each run the number of the first run that reads rows in the same way: it reads for
        # both.
        keys = [_reading_key(run) for run in runs]
        self._first = [keys.index(key) for key in keys]
        # Numbers of the runs that read rows themselves.
        self._readers = sorted(set(self._first))

    def of_source(
        self,
        source: str | Sequence[str] | MemoryFile,
        *,
        kind: str | None = None,
        listener: Listener = SILENT,
        skipped: SkippedRows | None = None,
    ) -> Iterator[list[Rows]]:
        """Returns the rows of files, of stdin or in memory: for each run the same ones, in chunks.

        Args:
            source: Files, stdin or rows, as `unlabelled_rows` takes them.
            kind: Format of the file; by its suffix when None.
            listener: Receives what was guessed.
            skipped: Collects the rows that can't be read.

        Raises:
            UsageError: The source can be read once, and the runs read it differently.
        """
        if isinstance(source, str):
            source = [source]
        if len(self._readers) > 1:
            self._refuse_one_reading(source, skipped)
        # Runs that read rows alike share one reading.
        chunks = {
            number: unlabelled_rows(
                self._runs[number],
                source,
                kind=kind,
                listener=listener,
                skipped=skipped,
            )
            for number in self._readers
        }
        return self._joined(chunks)

    def of_texts(self, texts: Sequence[str], pairs: Sequence[str]) -> Iterator[list[Rows]]:
        """Returns texts as a person typed them: one chunk, with its rows for each run."""
        chunks = {
            number: iter([text_rows(self._runs[number], texts, pairs)]) for number in self._readers
        }
        return self._joined(chunks)

    def _joined(self, chunks: Mapping[int, Iterator[Rows]]) -> Iterator[list[Rows]]:
        """Yields chunk by chunk the rows of all runs, in the order of the runs.

        Args:
            chunks: Number of a run that reads rows itself -> its chunks. Other runs get the rows of
                the run that reads for them.

        Raises:
            DataError: Two runs read other rows.
        """
        for rows_of_readers in itertools.zip_longest(*chunks.values()):
            rows_by_reader = dict(zip(chunks, rows_of_readers, strict=True))
            self._require_same_rows(rows_by_reader)
            yield [rows_by_reader[number] for number in self._first]

    def _require_same_rows(self, rows_by_reader: Mapping[int, Rows | None]) -> None:
        """Refuses a chunk in which two runs read other rows.

        Args:
            rows_by_reader: Number of a run -> what it has read; None if it came to the end.

        Raises:
            DataError: Two runs read other rows; the error names them.
        """
        (reader, rows), *further = rows_by_reader.items()
        for number, compared_rows in further:
            if rows is None or compared_rows is None or not _are_same(rows, compared_rows):
                source = (rows or compared_rows).source  # type: ignore[union-attr]
                paths = [str(self._runs[run].folder.path) for run in (reader, number)]
                raise DataError(
                    f"{source}: {listing(paths)} read other rows in it",
                    remedy="Give a table with a column that both read, or predict with each run "
                    "alone.",
                )

    def _refuse_one_reading(
        self, source: Sequence[str] | MemoryFile, skipped: SkippedRows | None
    ) -> None:
        """Refuses rows that have to be read several times, by different settings, and can't be.

        Raises:
            UsageError: The rows are of stdin or an iterator, which can be read only once; or bad
                rows are to be skipped, which may be others in each reading.
        """
        if isinstance(source, MemoryFile):
            is_read_once = source.is_read_once
        else:
            is_read_once = "-" in source
        paths = listing([str(self._runs[number].folder.path) for number in self._readers])
        if is_read_once:
            raise UsageError(
                f"{paths} read rows by other settings, and these rows can be read only once",
                remedy="Save them in a file or a list first.",
            )
        if skipped is not None:
            raise UsageError(
                f"{paths} read rows by other settings, so they may skip other rows",
                remedy="Leave `on_error=skip` out, or predict with each run alone.",
            )


def _reading_key(run: NetworkRun) -> tuple[object, ...]:
    """Returns what decides how a run reads the rows of a new file."""
    settings = run.file_settings.model_dump(exclude=set(_OF_TRAINING))
    columns = READERS[run.recipe.task].columns
    return (type(READERS[run.recipe.task]), columns, settings, run.column_hints, run.pairs)


def _are_same(rows: Rows, compared_rows: Rows) -> bool:
    """Returns whether two readings of a file have the same rows, by their ids."""
    if len(rows) != len(compared_rows):
        return False
    return all(rows.answer_id(i) == compared_rows.answer_id(i) for i in range(len(rows)))


@dataclass(frozen=True)
class LoadedRuns:
    """Runs in memory, with what they share.

    Attributes:
        runs: By name.
        engines: The model of each.
        shared: What the encoder of each shares with an earlier one; None for nothing.
        encodings: Number of the run whose encoded rows each run reads, which may be its own.
    """

    runs: Mapping[str, NetworkRun]
    engines: Sequence[Engine]
    shared: "Sequence[SharedPart | None]"
    encodings: Sequence[int]

    @classmethod
    def load(cls, runs: Mapping[str, NetworkRun], listener: Listener = SILENT) -> "LoadedRuns":
        """Loads the models, and lets them share layers of their encoders that have equal weights.

        A shared layer is in memory once, and computes each batch once.

        Args:
            runs: Opened, by name.
            listener: Receives what they share.
        """
        from bertctl.modeling.build import FrozenEncoders
        from bertctl.modeling.shared_encoder import share_encoder

        encoders = FrozenEncoders()
        engines: list[Engine] = []
        shared: list[SharedPart | None] = []
        opened = [*runs.values()]
        for run in opened:
            engine = run.load(encoders=encoders)
            # Earlier runs that form the same batches: layers can be shared with one of them.
            candidates = [
                number
                for number, earlier in enumerate(engines)
                if _computes_alike(opened[number], earlier, run, engine)
            ]
            networks = {number: engines[number].network for number in candidates}
            shared.append(share_encoder(networks, engine.network))
            engines.append(engine)
        # Of runs with equal keys, the first one encodes the rows for all.
        keys = [_encoding_key(run, engine) for run, engine in zip(opened, engines, strict=True)]
        encodings = [keys.index(key) for key in keys]
        loaded = cls(runs, engines, shared, encodings)
        loaded._report(listener)
        return loaded

    def groups(self) -> list[list[int]]:
        """Returns the numbers of runs whose batches are computed together, as they share layers.

        If run 2 shares layers with run 0, and run 1 with none, it is [[0, 2], [1]].
        """
        groups: list[list[int]] = []
        for number, shared_part in enumerate(self.shared):
            if shared_part is None:
                groups.append([number])
                continue
            [group] = [group for group in groups if shared_part.partner in group]
            group.append(number)
        return groups

    def sharing(self) -> dict[str, dict[str, Any]]:
        """Returns for each run, by its name, with which run it shares how many layers."""
        names = [*self.runs]
        described = {}
        for name, shared_part in zip(names, self.shared, strict=True):
            path = str(self.runs[name].folder.path)
            described[name] = {"run": path, "shares_with": None, "shared_layers": 0}
            if shared_part is not None:
                described[name]["shares_with"] = names[shared_part.partner]
                described[name]["shared_layers"] = shared_part.layers
        return described

    def _report(self, listener: Listener) -> None:
        """Reports what is computed once for several runs."""
        paths = [str(run.folder.path) for run in self.runs.values()]
        for group in self.groups():
            if len(group) == 1 and len(paths) > 1:
                listener.say(f"{paths[group[0]]}: its encoder is its own, so it has its own pass")
            for number in group[1:]:
                shared_part = self.shared[number]
                if shared_part is None:  # the run with which the others share
                    continue
                if shared_part.layers == shared_part.of:
                    layers = f"all {shared_part.of} layers"
                else:
                    n_layers = count(shared_part.of, "layer")
                    layers = f"the lowest {shared_part.layers} of {n_layers}"
                listener.say(
                    f"{paths[number]}: {layers} of its encoder are those of "
                    f"{paths[shared_part.partner]}, so each batch goes through them once"
                )


def _computes_alike(
    run: NetworkRun, engine: Engine, other_run: NetworkRun, other_engine: Engine
) -> bool:
    """Returns whether two runs form the same batches and compute in the same way."""
    return _batch_settings(run, engine) == _batch_settings(other_run, other_engine)


def _batch_settings(run: NetworkRun, engine: Engine) -> tuple[object, ...]:
    """Returns what decides how a run forms batches and computes them."""
    return (
        engine.compute.device,
        engine.compute.precision,
        engine.compute.threads,
        engine.padding,
        run.recipe.evaluation.batch_size,
    )


def _encoding_key(run: NetworkRun, engine: Engine) -> tuple[object, ...]:
    """Returns a key that two runs have in common if they read rows as the same tokens.

    Its parts are how rows are read, the tokenizer, the longest input, the kind of input, and what
    is read of a text that is too long.
    """
    task = run.task
    # Tasks on whole texts (classification, regression) have `long`: what is read of a text that is
    # too long. They all encode texts in the same way, whatever their type.
    long_text = getattr(task, "long", None)
    if long_text is not None:
        kind = "texts"
    else:
        kind = type(task).__name__
    return (
        _reading_key(run),
        engine.tokenizer.to_str(),
        run.recipe.model.max_length,
        kind,
        long_text,
        getattr(task, "context", None),  # whether a tagger reads the neighbouring sentences, too
    )


class SeveralPredictor:
    """Answers rows with several runs.

    Args:
        loaded: The runs, in memory.
        top_k: Answer with so many labels, where the answers are labels.
        kept_columns: Columns of the file that are carried over.
        one_table: Whether all answers have the columns of the first ones, as in CSV.
    """

    def __init__(
        self,
        loaded: LoadedRuns,
        *,
        top_k: int | None = None,
        kept_columns: KeptColumns = KeptColumns(),  # noqa: B008
        one_table: bool = False,
    ) -> None:
        self._loaded = loaded
        self._groups = loaded.groups()
        # Names of runs that are columns of the file, too: a warning names them at the end.
        self._clashes: dict[str, None] = {}
        # Rows of chunks that were computed in more than one pass.
        self._rows_apart = 0
        self._predictors = [
            Predictor(
                run,
                engine,
                top_k=top_k,
                kept_columns=kept_columns,
                one_table=one_table,
            )
            for run, engine in zip(loaded.runs.values(), loaded.engines, strict=True)
        ]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Counts of each run by its name: examples, truncated examples, tokens."""
        return {
            name: predictor.counts
            for name, predictor in zip(self._loaded.runs, self._predictors, strict=True)
        }

    def predict(
        self, chunks: Iterable[Sequence[Rows]], *, total: int = 0, listener: Listener = SILENT
    ) -> Iterator[dict[str, Any]]:
        """Yields a line per row, in order: id, texts, and the answer of each run by its name.

        Args:
            chunks: The same rows for each run, some at a time.
            total: Number of rows in all chunks, where that is known.
            listener: Receives progress.
        """
        n_rows = 0
        for rows in chunks:
            for predictor, rows_of_run in zip(self._predictors, rows, strict=True):
                predictor.carry(rows_of_run, listener)
            answered = self._answer(rows)
            n_rows += len(rows[0])
            listener.advance("predicting", n_rows, total)
            for index in range(len(rows[0])):
                yield self._line(answered, index)

    def finish(self, listener: Listener) -> None:
        """Ends the progress, and says what was truncated."""
        listener.finish("predicting")
        warn_of_clashes([*self._clashes], "the answers", listener)
        if self._rows_apart:
            listener.say(
                f"{count(self._rows_apart, 'row')}: the runs read these texts at other lengths, so "
                "each run had its own pass"
            )
        for number, (name, run) in enumerate(self._loaded.runs.items()):
            # Runs that read rows as the same tokens truncate them alike: the first one is named.
            encodes_rows_itself = self._loaded.encodings[number] == number
            if encodes_rows_itself:
                counts = self._predictors[number].counts
                tell_truncation(run, counts, listener, name=f"input of {name}")

    def _answer(self, rows: Sequence[Rows]) -> list[Answered]:
        """Returns the rows of a chunk with the answers of each run.

        Runs of one group (`self._groups`) share layers and go through one forward pass, if their
        windows of these rows have the same lengths. Otherwise the group falls apart.

        Args:
            rows: For each run its reading of the chunk.
        """
        encodings = self._loaded.encodings
        features: list[Any] = []
        for number, predictor in enumerate(self._predictors):
            # The first run that reads rows as the same tokens encodes them, also for later runs.
            encoding_run = encodings[number]
            if encoding_run < number:
                features.append(features[encoding_run])
            else:
                features.append(predictor.encode(rows[number]))

        outputs: dict[int, Any] = {}
        for group in self._groups:
            subgroups = _of_equal_lengths(group, features)
            if len(subgroups) > 1:
                self._rows_apart += len(rows[0])
            for run_numbers in subgroups:
                runs = [self._predictors[number].run for number in run_numbers]
                results = forward_together(
                    [self._loaded.engines[number] for number in run_numbers],
                    [run.task for run in runs],
                    [features[number] for number in run_numbers],
                    batch_size=runs[0].recipe.evaluation.batch_size,
                )
                for number, result in zip(run_numbers, results, strict=True):
                    outputs[number] = result.outputs
        return [
            predictor.decode(rows[number], features[number], outputs[number])
            for number, predictor in enumerate(self._predictors)
        ]

    def _line(self, answered: Sequence[Answered], index: int) -> dict[str, Any]:
        """Returns a line: what is shown of the row, and then the answers by the runs' names.

        Args:
            answered: The chunk with the answers of each run.
            index: Number of the row in the chunk.
        """
        line: dict[str, Any] = {}
        # A field that several runs show, such as `text`, is that of the first run.
        for predictor, of_run in zip(self._predictors, answered, strict=True):
            for field, value in predictor.input_fields(of_run, index).items():
                line.setdefault(field, value)
        answers = {}
        for name, predictor, of_run in zip(
            self._loaded.runs, self._predictors, answered, strict=True
        ):
            # A column of the file has the name of the run, so the run's answer gets a suffix.
            if name in line:
                self._clashes[name] = None
            answers[free_name(name, line)] = predictor.answer_fields(of_run, index)
        return {**line, **answers}


def _of_equal_lengths(group: Sequence[int], features: Sequence[Any]) -> list[list[int]]:
    """Returns the runs of a group in subgroups that form the same batches of these rows.

    Batches are formed by the lengths of windows, so runs of a subgroup have equal ones.

    Args:
        group: Numbers of runs.
        features: The rows as each run reads them.
    """
    subgroups: list[list[int]] = []
    for number in group:
        lengths = features[number].lengths
        for subgroup in subgroups:
            compared = features[subgroup[0]].lengths
            if len(compared) == len(lengths) and bool((compared == lengths).all()):
                subgroup.append(number)
                break
        else:
            subgroups.append([number])
    return subgroups


def predict_several(
    loaded: LoadedRuns,
    chunks: Iterable[Sequence[Rows]],
    destination: Destination,
    *,
    total: int = 0,
    top_k: int | None = None,
    kept_columns: KeptColumns = KeptColumns(),  # noqa: B008
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Writes a line per row with the answers of all runs, and returns counts and files.

    Args:
        loaded: The runs, in memory.
        chunks: The same rows for each run, some at a time.
        destination: Where the answers go.
        total: Number of rows in all chunks, where that is known.
        top_k: Answer with so many labels.
        kept_columns: Columns of the file that are carried over.
        listener: Receives progress.
    """
    predictor = SeveralPredictor(
        loaded,
        top_k=top_k,
        kept_columns=kept_columns,
        one_table=destination.layout in ("csv", "tsv"),
    )
    files = destination.write(predictor.predict(chunks, total=total, listener=listener), None)
    predictor.finish(listener)
    counts = predictor.counts
    examples = max((of_run.get("examples", 0) for of_run in counts.values()), default=0)
    runs = {name: {**sharing, **counts[name]} for name, sharing in loaded.sharing().items()}
    return {"runs": runs, "examples": examples, "files": files}


def check_layout(layout: str) -> None:
    """Refuses a layout that has no place for the answers of several runs.

    Raises:
        UsageError: The layout has none; the error names those that have.
    """
    if layout not in LAYOUTS:
        raise UsageError(
            f"`format={layout}` has no place for the answers of several runs",
            remedy=f"Choose from {', '.join(LAYOUTS)}, or predict with each run alone.",
        )
