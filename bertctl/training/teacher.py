"""The teacher of a student.

It is a finished run, with its answers to the rows that the student learns from.

    CACHE/teachers/KEY.npy    (N, C) logits, a row for each row that is learned from, or word

The key is a hash of the teacher and of the texts: answers are computed once, whatever the student
is.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bertctl.arrays import Floats32
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.data.splits import content_hash
from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.trained import NetworkRun, open_run
from bertctl.modeling.source import ModelSource
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import hold
from bertctl.runtime.seeding import generators_kept
from bertctl.tasks.base import Task
from bertctl.tasks.teacher_answers import TeacherAnswers
from bertctl.training.relations import check_relations
from bertctl.training.same_tokens import check_tokens, check_windows, window_settings
from bertctl.words import count, listing
from bertctl.writing import cache_folder, replacing_file

_QUESTIONS = "question-answering"
_ROWS_AT_ONCE = 8192
"""Rows whose answers are in memory at a time."""


@dataclass(frozen=True)
class Teacher:
    """A finished run that a student learns from.

    Attributes:
        run: The run, opened; its network is loaded only where answers are missing.
        order: (C,) the teacher's output for each output of the student.
    """

    run: NetworkRun
    order: tuple[int, ...]

    @property
    def name(self) -> str:
        """The run's folder, for people."""
        return str(self.run.folder.path)

    def answers(
        self, splits: Sequence[Rows], counts: Sequence[int], listener: Listener = SILENT
    ) -> TeacherAnswers:
        """Returns the teacher's logits for all rows of some splits, one split behind the other.

        There are logits for each row, or for each word if the teacher tags words. They lie in files
        of the cache; those that are missing are computed now.

        Args:
            splits: The rows.
            counts: How many answers each split has: its rows, or their words.
            listener: Receives progress.
        """
        pairs = zip(splits, counts, strict=True)
        parts = [self._answers(rows, n_answers, listener) for rows, n_answers in pairs]
        return TeacherAnswers(parts, self.order)

    def _answers(self, rows: Rows, n_answers: int, listener: Listener) -> Floats32:
        """Returns the teacher's (N, C) logits for rows, from the cache if it has them.

        If not, they are computed now and stored there. The key of the cache is a hash of the
        teacher, its precision and the rows without their labels.

        Args:
            rows: The rows that the student learns from.
            n_answers: N: the number of rows, or of words if the teacher tags words.
            listener: Receives progress.
        """
        inputs = {name: values for name, values in rows.columns.items() if name != "label"}
        rows = replace(rows, columns=inputs)
        precision = self.run.recipe.runtime.precision
        key = f"{teacher_hash(self)} {precision} {content_hash(rows, sorted(inputs))}"
        digest = hashlib.sha256(key.encode()).hexdigest()
        folder = cache_folder() / "teachers"
        file = folder / f"{digest[:32]}.npy"
        shape = (n_answers, len(self.order))
        with hold(folder / f"{digest[:32]}.lock", patient=True):
            if not file.exists():
                with generators_kept():
                    _write(file, self._compute(rows, listener), shape)
            return _read(file, shape)

    def _compute(self, rows: Rows, listener: Listener) -> Iterator[Floats32]:
        """Yields the logits for rows, some thousand rows at a time.

        The columns are the teacher's outputs in their own order, not in the student's.
        """
        run = self.run
        # Of questions, a student learns the scores of all positions, not the answers.
        task = run.task.as_teacher()
        listener.say(f"teacher: {self.name} answers {count(len(rows), 'row')}, once")
        engine = run.load()
        n_done = 0
        for chunk in rows.parts(_ROWS_AT_ONCE):
            features = task.encode(chunk, engine.tokenizer, max_length=run.recipe.model.max_length)
            result = engine.forward(
                task,
                features,
                batch_size=run.recipe.evaluation.batch_size,
            )
            yield np.asarray(result.outputs["logits"], dtype=np.float32)
            n_done += len(chunk)
            listener.advance("asking the teacher", n_done, len(rows))
        listener.finish("asking the teacher")


def open_teacher(
    recipe: Recipe,
    task: Task,
    source: ModelSource,
    rows: Rows,
    listener: Listener = SILENT,
) -> Teacher:
    """Opens the run that a recipe's student learns from; nothing is loaded.

    Args:
        recipe: Recipe of the student.
        task: Task of the student, fitted to its rows.
        source: Files of the model that the student starts from.
        rows: Its training rows.
        listener: Receives messages.

    Raises:
        UsageError: A run of another task, with other labels, one that reads other windows of
            questions, or one whose relations can't be compared.
        UnavailableError: No run, or one without a model.
    """
    path = Path(str(recipe.distillation.teacher))
    if not path.exists():
        raise UnavailableError(
            f"distillation.teacher: {path} does not exist",
            remedy="Name the folder of a finished run: `bertctl runs` lists them.",
        )
    runtime = {"runtime.device": recipe.runtime.device, "runtime.threads": recipe.runtime.threads}
    run = open_run(path, options=runtime, listener=listener)
    if run.recipe.task != recipe.task:
        raise UsageError(
            f"distillation.teacher: {path} is a run of {run.recipe.task}, and the student learns "
            f"{recipe.task}",
            remedy="Name a run of the same task.",
        )
    run.check_pairs(rows)
    order = _order_of_labels(run, task)
    if recipe.task == _QUESTIONS:
        check_windows(recipe, run)
        check_tokens(
            run,
            source,
            task,
            reason="a student of questions learns the scores of each token",
        )
    if recipe.distillation.relations:
        check_relations(recipe, run, source, task)
    return Teacher(run, order)


def teacher_hash(teacher: Teacher) -> str:
    """Returns the hash of a teacher's weights and of how it reads texts, but not of its folder."""
    recipe = teacher.run.recipe
    reading_settings: list[object] = [
        recipe.model.max_length,
        recipe.model.long_text,
        recipe.model.window_stride,
    ]
    if recipe.task == _QUESTIONS:
        reading_settings.append(window_settings(recipe))
    text = f"{teacher.run.source.content_hash()} {reading_settings}"
    return hashlib.sha256(text.encode()).hexdigest()


def _order_of_labels(run: NetworkRun, task: Task) -> tuple[int, ...]:
    """Returns for each output of the student the index of the teacher's output with that label.

    Raises:
        UsageError: Teacher and student have other labels, or only one has several labels per row.
    """
    known = run.task.head()
    learned = task.head()
    if known["problem_type"] != learned["problem_type"]:
        raise UsageError(
            f"distillation.teacher: {run.folder.path} answers with "
            f"{_kind(known)}, and the student's rows have {_kind(learned)}",
            remedy="Name a run that was trained on such rows.",
        )
    names = [str(known["id2label"][number]) for number in range(known["num_labels"])]
    learned_names = [str(learned["id2label"][number]) for number in range(learned["num_labels"])]
    if set(names) != set(learned_names):
        raise UsageError(
            f"distillation.teacher: {run.folder.path} knows the labels {listing(names)}, and the "
            f"student learns {listing(learned_names)}",
            remedy="Teacher and student need the same labels: train the teacher on such rows, or "
            "leave distillation.teacher out.",
        )
    return tuple(names.index(name) for name in learned_names)


def _kind(head: Mapping[str, object]) -> str:
    """Returns in words how many labels a head gives each row."""
    if head["problem_type"] == "multi_label_classification":
        return "several labels per row"
    return "one label per row"


def _write(file: Path, parts: Iterable[Floats32], shape: tuple[int, int]) -> None:
    """Writes an array of numpy's format part by part, so that one part is in memory at a time."""
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with replacing_file(file) as out:
        np.lib.format.write_array_header_2_0(out, header)
        for part in parts:
            out.write(np.ascontiguousarray(part, dtype="<f4").data)


def _read(file: Path, shape: tuple[int, int]) -> Floats32:
    """Returns the answers in a file, mapped into memory.

    Raises:
        UnavailableError: A file that is damaged.
    """
    remedy = f"Delete {file}: it is made anew."
    with loading(f"the teacher's answers in {file}", kind=UnavailableError, remedy=remedy):
        logits: Floats32 = np.load(file, mmap_mode="r", allow_pickle=False)
        if logits.shape != shape:
            raise ValueError(f"{logits.shape} numbers, and not {shape}")
    return logits
