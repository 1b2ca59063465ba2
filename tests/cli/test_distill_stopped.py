"""Students that are killed at several moments and continue.

Students of shrunk models are tested too, all by the real process.
"""

import json
import signal
from pathlib import Path

import pytest

from tests.nursery import Nursery
from tests.stopping import Training, difference


@pytest.fixture(scope="module")
def training(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery
) -> Training:
    """A run of 12 steps, which is the teacher."""
    return Training(tmp_path_factory.mktemp("training"), tiny_model, nursery, epochs=1)


@pytest.mark.slow
@pytest.mark.parametrize("relations", ["0", "0.5"])
def test_a_student_that_is_killed_at_several_moments_goes_on_to_the_same_bytes(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relations: str
) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))
    texts = tmp_path / "more.txt"
    texts.write_text("".join(f"a good film {i}\n" for i in range(32)), encoding="utf-8")
    fields = {
        "distillation.teacher": training.undisturbed,
        "distillation.unlabelled": texts,
        "distillation.relations": relations,
        "model.keep_layers": "[1]",
    }
    sets = []
    for name, value in fields.items():
        sets += ("--set", f"{name}={value}")
    undisturbed = tmp_path / "undisturbed"
    whole = training.start(undisturbed, *sets)
    assert whole.returncode == 0, whole.stderr
    run = tmp_path / "run"

    for steps in (1, 6, 13):
        killed = training.disturbed(
            run, signal.SIGKILL, *sets, "--resume-if-any", after_steps=steps
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        for file in (tmp_path / "cache" / "teachers").glob("*.npy"):
            file.unlink()
    training.resume(run, *sets)

    assert difference(undisturbed, run) is None


def test_a_student_may_have_fewer_layers_and_fewer_words_and_both_are_seen_beside_its_teacher(
    training: Training, nursery: Nursery, tmp_path: Path
) -> None:
    environment = {**nursery.env, "BERTCTL_CACHE": str(tmp_path / "cache")}
    words = ["vocab", "shrink", str(training.undisturbed), str(training.data), "-o", "shrunk"]
    shrunk = nursery.run(words, cwd=tmp_path, env=environment)
    assert shrunk.returncode == 0, shrunk.stderr
    distill = ["distill", training.undisturbed, "--model", "shrunk", "--epochs", "1"]
    layers = ["--set", "model.keep_layers=[1]", "-o", "student"]

    trained = nursery.run([*distill, *layers], cwd=tmp_path, env=environment)
    beside = nursery.run(
        ["inspect", training.undisturbed, "student", "--json"], cwd=tmp_path, env=environment
    )

    assert trained.returncode == 0, trained.stderr
    assert beside.returncode == 0, beside.stderr
    teacher, student = json.loads(beside.stdout)["models"]
    assert student["sizes"]["layers"] == 1 < teacher["sizes"]["layers"]
    assert student["tokenizer"]["tokens"] < teacher["tokenizer"]["tokens"]
    assert student["parameters"] < teacher["parameters"]
