"""Relations of tokens that students learn.

The divergence by hand, the vectors that are compared, that runs continue to the same bytes, and
what is refused.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import InterruptedRunError, UsageError
from bertctl.modeling.attention_parts import AttentionParts, attention_parts
from bertctl.run_folder import RunFolder
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.relations import RelationDistillation, relation_divergences
from bertctl.training.announce import announce
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from bertctl.training.relations import relations_memory
from tests.heard import Heard, Interrupting
from tests.stopping import digests_of
from tests.tiny_recipes import tiny_recipe


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def teacher(tiny_model: Path, opinions: Path, tmp_path: Path) -> Path:
    """A finished run on the opinions."""
    recipe = tiny_recipe(tiny_model, opinions, **{"training.epochs": 2})
    return run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path


def student(tiny_model: Path, data: Path, teacher: Path, **fields: Any) -> Recipe:
    settings = {
        "distillation.teacher": str(teacher),
        "distillation.relations": 0.5,
        "model.keep_layers": [1],
        **fields,
    }
    return tiny_recipe(tiny_model, data, **settings)


def relation(vectors: list[list[float]], row: int) -> list[float]:
    size = len(vectors[0])
    powers = []
    for other in vectors:
        dot = sum(a * b for a, b in zip(vectors[row], other, strict=True))
        powers.append(math.exp(dot / math.sqrt(size)))
    total = sum(powers)
    return [power / total for power in powers]


def test_the_divergence_is_that_of_the_paper_computed_by_hand_for_two_heads() -> None:
    rng = np.random.default_rng(0)
    of_student = rng.normal(size=(1, 3, 4)).astype(np.float32)
    of_teacher = rng.normal(size=(1, 3, 6)).astype(np.float32)
    mask = torch.tensor([[True, True, False]])

    divergences = relation_divergences(
        torch.from_numpy(of_student), torch.from_numpy(of_teacher), mask, heads=2
    )

    expected = 0.0
    for head in range(2):
        of_head = of_student[0, :2, 2 * head : 2 * head + 2].tolist()
        of_teacher_head = of_teacher[0, :2, 3 * head : 3 * head + 3].tolist()
        for token in range(2):
            p = relation(of_teacher_head, token)
            q = relation(of_head, token)
            terms = [a * math.log(a / b) for a, b in zip(p, q, strict=True)]
            expected += sum(terms) / (2 * 2)
    assert divergences.tolist() == pytest.approx([expected], rel=1e-5)


def relations_loss(recipe: Recipe) -> float:
    """Returns the loss of three windows, without dropout."""
    job = prepare(recipe)
    objective = job.objective_with_teacher()
    assert isinstance(objective, RelationDistillation)
    network = job.loaded.network.eval()
    batch: Any = objective.batch(job.training_features, np.array([3, 0, 7]), WindowRandom(0))

    outputs = objective.forward(lambda **inputs: network(**inputs), batch)

    assert objective.counts(batch)["relations"] == 3
    return objective.losses(outputs, batch)["relations"].item()


def test_the_loss_is_0_for_the_teacher_itself_and_more_for_another_layer_or_model(
    tiny_model: Path, opinions: Path, teacher: Path
) -> None:
    start = {"model.name": str(teacher / "model"), "model.keep_layers": None}

    same = relations_loss(student(tiny_model, opinions, teacher, **start))
    lower_layer = {**start, "distillation.relation_layer": 1}
    other_layer = relations_loss(student(tiny_model, opinions, teacher, **lower_layer))
    untaught = relations_loss(student(tiny_model, opinions, teacher))

    assert same == pytest.approx(0.0, abs=1e-6)
    assert other_layer > 1e-5
    assert untaught > 1e-5


def test_relations_reach_the_student_and_an_interrupted_run_goes_on_to_the_same_bytes(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    fields = {"training.checkpoint_every": "3 steps", "model.dropout": 0.1}
    recipe = student(tiny_model, opinions, teacher, **fields)
    undisturbed = run(prepare(recipe), RunFolder.create(tmp_path / "undisturbed")).folder
    folder = RunFolder.create(tmp_path / "interrupted")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(5))
    job = prepare(recipe)

    run(job, folder, checkpoint=Checkpoints(folder, job.hash).latest())
    without = student(tiny_model, opinions, teacher, **fields, **{"distillation.relations": 0.0})
    other = run(prepare(without), RunFolder.create(tmp_path / "other")).folder

    assert digests_of(folder) == digests_of(undisturbed)
    assert digests_of(other) != digests_of(undisturbed)
    lines = [json.loads(line) for line in folder.history.read_text("utf-8").splitlines()]
    assert all(line["relations_loss"] > 0 for line in lines if "label_loss" in line)


@pytest.mark.parametrize(
    ("names", "last"),
    [
        (
            ["e.layer.0.attention.self.query", "e.layer.0.attention.self.value"],
            ("e.layer.0.attention.self.query", "e.layer.0.attention.self.value"),
        ),
        (
            [f"t.layer.{n}.attention.{part}_lin" for n in range(11) for part in "qkv"],
            ("t.layer.10.attention.q_lin", "t.layer.10.attention.v_lin"),
        ),
        (
            [f"e.layer.{n}.attention.attn.{part}" for n in (0, 1) for part in "qkv"],
            ("e.layer.1.attention.attn.q", "e.layer.1.attention.attn.v"),
        ),
        (
            ["d.layer.0.attention.self.query_proj", "d.layer.0.attention.self.value_proj"],
            ("d.layer.0.attention.self.query_proj", "d.layer.0.attention.self.value_proj"),
        ),
    ],
)
def test_layers_of_queries_and_values_are_found_by_the_names_that_families_give(
    names: list[str], last: tuple[str, str]
) -> None:
    assert attention_parts(names)[-1] == AttentionParts(*last)


@pytest.mark.parametrize(
    "names", [["layers.0.attn.Wqkv"], ["decoder.block.0.q", "decoder.block.0.v"], ["h.0.c_attn"]]
)
def test_joined_layers_and_those_of_decoders_are_no_queries(names: list[str]) -> None:
    assert attention_parts(names) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"distillation.relation_heads": 7}, "7 relation heads don't divide"),
        ({"distillation.relation_layer": 3}, "has 2 layers"),
        ({"model.long_text": "window"}, "long texts are read in several"),
        ({"training.gradient_checkpointing": True}, "forgets the vectors"),
        (
            {"distillation.relations": 0.0, "distillation.relation_heads": 2},
            "of use only with distillation.relations",
        ),
        ({"distillation.relations": -1.0}, "distillation.relations"),
    ],
)
def test_relations_that_cannot_be_learned_are_refused(
    fields: dict[str, Any], words: str, tiny_model: Path, opinions: Path, teacher: Path
) -> None:
    with pytest.raises(UsageError) as refusal:
        prepare(student(tiny_model, opinions, teacher, **fields))

    assert words in f"{refusal.value.message} {refusal.value.remedy}"


def test_the_memory_that_is_told_counts_the_teacher_which_stays_in_it(
    tiny_model: Path, opinions: Path, teacher: Path
) -> None:
    job = prepare(student(tiny_model, opinions, teacher))
    assert job.teacher is not None
    listener = Heard()
    announce(job, listener=listener)
    weights = load_file(teacher / "model" / "model.safetensors").values()

    added = [
        relations_memory(job.recipe, job.teacher.run, longest=20, examples=n, device="cpu")
        for n in (0, 1, 8)
    ]

    assert added[0] == 4 * sum(weight.numel() for weight in weights)
    assert added[2] - added[0] == pytest.approx(8 * (added[1] - added[0]), rel=1e-3)
    assert any("activations and the teacher" in line for line in listener.said)


def test_relations_with_another_tokenizer_are_refused(
    tiny_model: Path, opinions: Path, teacher: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny_model, tmp_path / "other")
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["good"], vocabulary["film"] = vocabulary["film"], vocabulary["good"]
    file.write_text(json.dumps(tokenizer), encoding="utf-8")

    with pytest.raises(UsageError, match="relations compare the same tokens"):
        prepare(student(other, opinions, teacher))


def test_relations_without_a_teacher_are_refused_with_the_recipe() -> None:
    with pytest.raises(UsageError, match=r"only with distillation\.teacher"):
        load_recipe("text-classification", options={"distillation.relations": 1.0})
