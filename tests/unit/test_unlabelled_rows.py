"""Rows without labels beside the training rows.

What students learn from them, that answers are computed once, and what is refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import (
    BertctlError,
    DataError,
    InterruptedRunError,
    UnavailableError,
    UsageError,
)
from bertctl.run_folder import RunFolder
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.distillation import Distillation
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from bertctl.training.start import refuse_other_run
from tests.heard import Heard, Interrupting
from tests.stopping import digests_of
from tests.tiny_recipes import tiny_recipe

N_UNLABELLED = 24


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def teacher(tiny_model: Path, opinions: Path, tmp_path: Path) -> Path:
    """A finished run on the opinions."""
    recipe = tiny_recipe(tiny_model, opinions, **{"training.epochs": 4})
    return run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A text in each line."""
    path = tmp_path / "more.txt"
    lines = [f"a {'good' if i % 3 else 'poor'} film {i}\n" for i in range(N_UNLABELLED)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def student(tiny_model: Path, data: Path, teacher: Path, texts: Path, **fields: Any) -> Recipe:
    settings = {
        "distillation.teacher": str(teacher),
        "distillation.unlabelled": str(texts),
        "model.keep_layers": [1],
        **fields,
    }
    return tiny_recipe(tiny_model, data, **settings)


def test_rows_without_labels_are_trained_on_beside_the_others(
    tiny_model: Path, opinions: Path, teacher: Path, texts: Path, tmp_path: Path
) -> None:
    job = prepare(student(tiny_model, opinions, teacher, texts))
    objective = job.objective_with_teacher()
    assert isinstance(objective, Distillation)
    windows = np.array([3, 16, 39])

    batch: Any = objective.batch(job.training_features, windows, WindowRandom(0))
    result = run(job, RunFolder.create(tmp_path / "student"))

    assert job.steps_per_epoch == 5
    assert batch.labels.tolist()[1:] == [-100, -100]
    assert batch.labels[0] >= 0
    assert np.array_equal(batch.answers.numpy(), objective.answers.take(windows))
    assert objective.labelled is not None
    assert objective.labelled.windows == pytest.approx(16 / 40)
    assert result.metrics.data["unlabelled"].examples == N_UNLABELLED


def test_answers_are_computed_once_and_rows_of_both_kinds_are_kept_apart(
    tiny_model: Path, opinions: Path, teacher: Path, texts: Path
) -> None:
    first = Heard()
    prepare(student(tiny_model, opinions, teacher, texts)).objective_with_teacher(first)
    again = Heard()

    prepare(student(tiny_model, opinions, teacher, texts)).objective_with_teacher(again)
    texts.write_text("another text\n", encoding="utf-8")
    changed = Heard()
    prepare(student(tiny_model, opinions, teacher, texts)).objective_with_teacher(changed)

    assert [s for s in first.said if "answers 16 rows" in s]
    assert [s for s in first.said if "answers 24 rows" in s]
    assert not [s for s in again.said if "answers" in s]
    assert [s for s in changed.said if "answers" in s] == [
        f"teacher: {teacher} answers 1 row, once"
    ]


def test_an_interrupted_student_of_both_kinds_of_rows_goes_on_to_the_same_bytes(
    tiny_model: Path, opinions: Path, teacher: Path, texts: Path, tmp_path: Path
) -> None:
    fields = {"training.checkpoint_every": "3 steps", "model.dropout": 0.1}
    recipe = student(tiny_model, opinions, teacher, texts, **fields)
    undisturbed = run(prepare(recipe), RunFolder.create(tmp_path / "undisturbed")).folder
    folder = RunFolder.create(tmp_path / "interrupted")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(7))
    job = prepare(recipe)
    checkpoint = Checkpoints(folder, job.hash).latest()

    run(job, folder, checkpoint=checkpoint)

    assert checkpoint is not None
    assert checkpoint.step == 7
    assert digests_of(folder) == digests_of(undisturbed)


def test_a_run_does_not_go_on_with_other_rows_without_labels(
    tiny_model: Path, opinions: Path, teacher: Path, texts: Path, tmp_path: Path
) -> None:
    recipe = student(tiny_model, opinions, teacher, texts)
    folder = RunFolder.create(tmp_path / "student")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(3))
    texts.write_text("another text\n", encoding="utf-8")

    with pytest.raises(DataError, match="the rows of unlabelled are not those"):
        refuse_other_run(prepare(recipe), folder)


def test_labels_in_the_file_are_not_read(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    rows = "".join(f"film {i},{'?' if i % 2 else 'unheard of'}\n" for i in range(6))
    path = tmp_path / "more.csv"
    path.write_text("text,label\n" + rows, encoding="utf-8")

    job = prepare(student(tiny_model, opinions, teacher, path))

    assert list(job.data.splits["unlabelled"].columns) == ["text"]
    assert len(job.training_features) == 16 + 6


def test_words_without_tags_have_answers_and_no_label(tiny_model: Path, tmp_path: Path) -> None:
    data = tmp_path / "tags.conll"
    sentences = [f"the O\nvery O\n{'goodness' if i % 2 else 'film'} B-X\n" for i in range(8)]
    data.write_text("\n".join(sentences), encoding="utf-8")
    more = tmp_path / "more.jsonl"
    more.write_text('{"words": ["a", "film"]}\n' * 5, encoding="utf-8")
    options = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "training.epochs": 1,
        "training.checkpoint_every": "off",
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        "runtime.threads": 1,
    }
    recipe = load_recipe("token-classification", options=options)
    taught = run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path
    options |= {
        "distillation.teacher": str(taught),
        "distillation.unlabelled": str(more),
        "model.keep_layers": [1],
    }
    job = prepare(load_recipe("token-classification", options=options))
    objective = job.objective_with_teacher()
    assert isinstance(objective, Distillation)

    batch: Any = objective.batch(job.training_features, np.array([1, 12]), WindowRandom(0))
    counts = objective.counts(batch)
    run(job, RunFolder.create(tmp_path / "student"))

    assert (batch.labels[1] == -100).all()
    words = np.array([3, 4, 5, 32, 33])
    assert np.array_equal(batch.answers.numpy(), objective.answers.take(words))
    assert counts["label"] == pytest.approx(2 * 3 * 8 / 13)
    assert counts["teacher"] == pytest.approx(2 * (24 + 10) / 13)


def test_long_texts_keep_their_windows_when_rows_are_joined(
    tiny_model: Path, opinions: Path, texts: Path, tmp_path: Path
) -> None:
    fields = {
        "model.long_text": "window",
        "model.max_length": 16,
        "model.window_pooling": "mean",
        "training.epochs": 1,
    }
    recipe = tiny_recipe(tiny_model, opinions, **fields)
    taught = run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path
    texts.write_text("good\n" + "a very long opinion of a film " * 4 + "\n", encoding="utf-8")
    job = prepare(student(tiny_model, opinions, taught, texts, **fields))
    joined: Any = job.training_features
    alone = job.features["unlabelled"]

    batch = joined.collate(np.array([0, 17]), job.loaded.padding)
    expected = alone.collate(np.array([1]), job.loaded.padding)

    owners = batch.inputs["owners"].tolist()
    assert owners.count(1) == len(expected.inputs["input_ids"]) > 1
    of_long = batch.inputs["input_ids"][[owner == 1 for owner in owners]]
    assert of_long.tolist() == expected.inputs["input_ids"].tolist()
    run(job, RunFolder.create(tmp_path / "student"))


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (None, UnavailableError, "does not exist"),
        ("", DataError, "more.csv"),
        ("sentence1,sentence2\na,b\nc,d\n", UsageError, "was read as pairs of texts"),
        ("a,b\n1,2\n", BertctlError, "more.csv"),
    ],
)
def test_rows_that_the_teacher_cannot_answer_are_refused(
    content: str | None,
    kind: type[BertctlError],
    words: str,
    tiny_model: Path,
    opinions: Path,
    teacher: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / "more.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")

    with pytest.raises(kind) as refusal:
        prepare(student(tiny_model, opinions, teacher, path))

    assert words in f"{refusal.value.message} {refusal.value.remedy}"


def test_rows_without_labels_and_without_a_teacher_are_refused_with_the_recipe() -> None:
    options = {"distillation.unlabelled": "more.txt"}

    with pytest.raises(UsageError, match=r"only with distillation\.teacher"):
        load_recipe("text-classification", options=options)
