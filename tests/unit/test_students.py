"""Runs that learn from a teacher.

What they learn, that they go on to the same bytes, that the teacher answers once, and what is
refused.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import BertctlError, InterruptedRunError, UnavailableError, UsageError
from bertctl.jobs.distill import compare_with_teacher, evenly_spaced, student_options
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.distillation import Distillation
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from bertctl.training.start import refuse_other_run
from tests.conftest import TinyRun
from tests.heard import Heard, Interrupting
from tests.stopping import digests_of
from tests.tiny_recipes import tiny_recipe


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def teacher(tiny_model: Path, opinions: Path, tmp_path: Path) -> Path:
    """A finished run on the opinions."""
    recipe = tiny_recipe(tiny_model, opinions, **{"training.epochs": 8})
    return run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path


def student(tiny_model: Path, data: Path, teacher: Path, **fields: Any) -> Recipe:
    settings = {"distillation.teacher": str(teacher), "model.keep_layers": [1], **fields}
    return tiny_recipe(tiny_model, data, **settings)


def test_an_interrupted_student_goes_on_to_the_same_bytes(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    recipe = student(
        tiny_model,
        opinions,
        teacher,
        **{"training.checkpoint_every": "3 steps", "model.dropout": 0.1},
    )
    undisturbed = run(prepare(recipe), RunFolder.create(tmp_path / "undisturbed")).folder
    folder = RunFolder.create(tmp_path / "interrupted")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(5))
    # The answers are computed anew where the cache has gone meanwhile.
    for file in (tmp_path / "cache" / "teachers").glob("*.npy"):
        file.unlink()
    job = prepare(recipe)
    checkpoint = Checkpoints(folder, job.hash).latest()
    assert checkpoint is not None
    run(job, folder, checkpoint=checkpoint)
    assert digests_of(folder) == digests_of(undisturbed)
    assert len(digests_of(folder)) >= 3
    config = json.loads((folder.model / "config.json").read_text(encoding="utf-8"))
    assert config["num_hidden_layers"] == 1


def test_the_answers_of_the_teacher_are_its_logits_row_by_row_and_computed_once(
    tiny_model: Path, opinions: Path, teacher: Path
) -> None:
    job = prepare(student(tiny_model, opinions, teacher))
    first = Heard()
    objective = job.objective_with_teacher(first)
    assert isinstance(objective, Distillation)
    assert any("answers 16 rows" in sentence for sentence in first.said)
    again = Heard()
    job.objective_with_teacher(again)
    assert not again.said
    run_of_teacher = job.teacher.run if job.teacher else None
    assert run_of_teacher is not None
    engine = run_of_teacher.load()
    rows = np.arange(16)
    batch = job.features["train"].collate(rows, engine.padding)
    with torch.no_grad():
        expected = engine.backend(**batch.inputs).logits
    assert np.abs(objective.answers.take(rows) - expected.numpy()).max() < 1e-5


def test_answers_follow_the_labels_of_the_student(
    tiny_model: Path, opinions: Path, teacher: Path
) -> None:
    plain = prepare(student(tiny_model, opinions, teacher)).objective_with_teacher()
    other_order = {"text_classification.labels": ["pos", "neg"]}
    turned = prepare(student(tiny_model, opinions, teacher, **other_order)).objective_with_teacher()
    assert isinstance(plain, Distillation)
    assert isinstance(turned, Distillation)
    rows = np.arange(16)
    assert np.array_equal(plain.answers.take(rows), turned.answers.take(rows)[:, ::-1])


def test_a_student_of_the_answers_alone_comes_near_its_teacher(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    fields = {"training.epochs": 12, "distillation.alpha": 0.0}
    recipe = student(tiny_model, opinions, teacher, **fields)
    folder = run(prepare(recipe), RunFolder.create(tmp_path / "student")).folder
    history = [json.loads(line) for line in folder.history.read_text("utf-8").splitlines()]
    losses = [line["teacher_loss"] for line in history if "teacher_loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    comparison = compare_with_teacher(
        folder.path, teacher, options={"runtime.device": "cpu"}, listener=Listener()
    )
    assert comparison.student.score >= 0.9 * comparison.teacher.score
    assert comparison.student.parameters < comparison.teacher.parameters
    assert comparison.difference is not None
    assert "of its teacher's accuracy" in comparison.sentence


def test_with_all_weight_on_the_labels_the_teacher_changes_nothing(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    alone = tiny_recipe(tiny_model, opinions, **{"model.keep_layers": [1]})
    plain = run(prepare(alone), RunFolder.create(tmp_path / "plain")).folder
    recipe = student(tiny_model, opinions, teacher, **{"distillation.alpha": 1.0})
    taught = run(prepare(recipe), RunFolder.create(tmp_path / "taught")).folder
    weights = "model/model.safetensors"
    assert digests_of(plain)[weights] == digests_of(taught)[weights]


def test_another_teacher_is_another_run_whatever_its_folder_is_called(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    before = prepare(student(tiny_model, opinions, teacher)).hash
    moved = teacher.rename(tmp_path / "moved")
    assert prepare(student(tiny_model, opinions, moved)).hash == before
    other = tiny_recipe(tiny_model, opinions, **{"training.seed": 7})
    another = run(prepare(other), RunFolder.create(tmp_path / "another")).folder.path
    assert prepare(student(tiny_model, opinions, another)).hash != before


def test_a_run_does_not_go_on_with_another_teacher(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "student")
    with pytest.raises(InterruptedRunError):
        run(prepare(student(tiny_model, opinions, teacher)), folder, listener=Interrupting(3))
    other = tiny_recipe(tiny_model, opinions, **{"training.seed": 7})
    another = run(prepare(other), RunFolder.create(tmp_path / "another")).folder.path
    with pytest.raises(UsageError, match="is not the one that the run") as refusal:
        refuse_other_run(prepare(student(tiny_model, opinions, another)), folder)
    assert "Name the same teacher again" in str(refusal.value.remedy)


def scores(folder: Path) -> Path:
    """A CSV of 16 texts with a score."""
    path = folder / "scores.csv"
    texts = "".join(f"a {'very ' * (i % 4)}good film {i},{i % 4}.5\n" for i in range(16))
    path.write_text("text,label\n" + texts, encoding="utf-8")
    return path


def test_scores_are_learned_from_the_scores_of_a_teacher(tiny_model: Path, tmp_path: Path) -> None:
    data = scores(tmp_path)
    options = {}
    recipe = tiny_recipe(tiny_model, data).model_dump(exclude_defaults=True)
    for section, fields in recipe.items():
        if isinstance(fields, dict):
            options |= {f"{section}.{field}": value for field, value in fields.items()}
    recipe = load_recipe("text-regression", options=options)
    taught = run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path
    taught_options = options | {"distillation.teacher": str(taught), "model.keep_layers": [2]}
    job = prepare(load_recipe("text-regression", options=taught_options))
    objective = job.objective_with_teacher()
    assert isinstance(objective, Distillation)
    assert objective.answers.take(np.arange(16)).shape == (16, 1)
    folder = run(job, RunFolder.create(tmp_path / "student")).folder
    assert folder.read_metrics().metrics["validation"]


def test_tags_are_learned_word_by_word(tiny_model: Path, tmp_path: Path) -> None:
    data = tmp_path / "tags.conll"
    sentences = [f"the O\nvery O\n{'goodness' if i % 2 else 'film'} B-X\n{i} O\n" for i in range(8)]
    data.write_text("\n".join(sentences), encoding="utf-8")
    options = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "training.epochs": 2,
        "training.checkpoint_every": "off",
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        "runtime.threads": 1,
    }
    recipe = load_recipe("token-classification", options=options)
    taught = run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path
    options |= {"distillation.teacher": str(taught), "model.keep_layers": [1]}
    job = prepare(load_recipe("token-classification", options=options))
    objective = job.objective_with_teacher()
    assert isinstance(objective, Distillation)
    assert objective.answers.take(np.arange(32)).shape == (32, 3)
    windows = np.array([5, 2])
    batch: Any = objective.batch(job.features["train"], windows, WindowRandom(0))
    words = np.array([*range(20, 24), *range(8, 12)])
    assert np.array_equal(batch.answers.numpy(), objective.answers.take(words))
    folder = run(job, RunFolder.create(tmp_path / "student")).folder
    assert folder.read_metrics().metrics["validation"]


OTHER_LABELS = "text,label\n" + "".join(f"film {i},{'abc'[i % 3]}\n" for i in range(12))
SEVERAL = "text,label\n" + "".join(f'film {i},"{["pos", "pos|neg"][i % 2]}"\n' for i in range(12))


@pytest.mark.parametrize(
    ("rows", "fields", "kind", "words"),
    [
        (OTHER_LABELS, {}, UsageError, "the student learns 'a', 'b', 'c'"),
        (
            SEVERAL,
            {"text_classification.label_separator": "|"},
            UsageError,
            "the student's rows have several labels per row",
        ),
        (None, {"distillation.teacher": "nowhere/run"}, UnavailableError, "does not exist"),
        (None, {"distillation.alpha": 1.5}, UsageError, "distillation.alpha: 1.5"),
        (None, {"distillation.temperature": 0.0}, UsageError, "distillation.temperature"),
        (None, {"few_shot.loss": "cosine"}, UsageError, "distillation.teacher"),
    ],
)
def test_what_no_teacher_can_answer_is_refused(
    rows: str | None,
    fields: dict[str, Any],
    kind: type[BertctlError],
    words: str,
    tiny_model: Path,
    opinions: Path,
    teacher: Path,
    tmp_path: Path,
) -> None:
    data = opinions
    if rows is not None:
        data = tmp_path / "other.csv"
        data.write_text(rows, encoding="utf-8")
    with pytest.raises(kind) as refusal:
        prepare(student(tiny_model, data, teacher, **fields))
    assert words in f"{refusal.value.message} {refusal.value.remedy}"


def test_a_teacher_of_another_task_is_refused(
    tiny_model: Path, teacher: Path, tmp_path: Path
) -> None:
    options = {
        "data.train_file": str(scores(tmp_path)),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "distillation.teacher": str(teacher),
    }
    with pytest.raises(UsageError, match="is a run of text-classification"):
        prepare(load_recipe("text-regression", options=options))


@pytest.mark.parametrize(
    ("task", "fields", "words"),
    [
        ("multiple-choice", {"distillation.teacher": "run"}, "nothing of 'multiple-choice'"),
        ("text-classification", {"distillation.alpha": 0.1}, "only with distillation.teacher"),
    ],
)
def test_settings_that_have_no_teacher_are_refused_with_the_recipe(
    task: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        load_recipe(task, options=fields)


def test_a_damaged_file_of_answers_says_to_delete_it(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    job = prepare(student(tiny_model, opinions, teacher))
    job.objective_with_teacher()
    (file,) = (tmp_path / "cache" / "teachers").glob("*.npy")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UnavailableError, match="answers in") as refusal:
        job.objective_with_teacher()
    assert f"Delete {file}" in str(refusal.value.remedy)


@pytest.mark.parametrize(
    ("n_layers", "n_kept", "layers"),
    [(6, 3, [1, 3, 5]), (12, 4, [1, 4, 7, 10]), (6, 6, [1, 2, 3, 4, 5, 6]), (6, 4, [1, 2, 4, 5])],
)
def test_layers_are_evenly_spaced_from_the_first_on(
    n_layers: int, n_kept: int, layers: list[int]
) -> None:
    assert evenly_spaced(n_layers, n_kept) == layers


@pytest.mark.parametrize(
    ("layers", "model", "words"),
    [(None, None, "layers"), (1, "minilm", "layers"), (3, None, "has 2"), (0, None, "has 2")],
)
def test_a_student_begins_with_layers_or_with_a_model(
    layers: int | None, model: str | None, words: str, tiny_run: TinyRun
) -> None:
    with pytest.raises(UsageError) as refusal:
        student_options(tiny_run.path, layers=layers, model=model)
    assert words in f"{refusal.value.message} {refusal.value.remedy}"


def test_the_recipe_of_a_student_is_its_teachers_with_another_start(tiny_run: TinyRun) -> None:
    options = student_options(tiny_run.path, layers=1, model=None)
    assert options["model.keep_layers"] == [1]
    assert options["model.name"] == str(tiny_run.path / "model")
    assert options["distillation.teacher"] == str(tiny_run.path)
    assert student_options(tiny_run.path, layers=None, model="minilm")["model.keep_layers"] is None
