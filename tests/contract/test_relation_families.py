"""Relations between tokens for every family of transformers: learned, or refused by name."""

import json
from pathlib import Path

import pytest
from families import TRIED, make_encoder_of_its_kind
from test_every_family import recipe_for

from bertctl.config.load import load_recipe
from bertctl.errors import UsageError
from bertctl.modeling.families import families_with
from bertctl.run_folder import RunFolder
from bertctl.tasks.registry import TASKS
from bertctl.training.finetune import run
from bertctl.training.job import prepare

TASK = "text-classification"
WITHOUT_QUERIES = (
    "deberta",
    "fnet",
    "funnel",
    "gpt2",
    "gte",
    "ibert",
    "jina_embeddings_v3",
    "longformer",
    "modernbert",
    "nomic_bert",
    "openai-gpt",
    "squeezebert",
    "xlnet",
)
"""Families that make queries and values together with others, or not by plain linear layers."""

QUICK = ("bert", "distilbert", "modernbert")


@pytest.fixture(
    scope="module",
    params=[
        family if family in QUICK else pytest.param(family, marks=pytest.mark.slow)
        for family in TRIED
    ],
)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder_of_its_kind(request.param, tmp_path_factory.mktemp(request.param))


def test_relations_are_learned_or_refused_by_name(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))
    family = json.loads((encoder / "config.json").read_text())["model_type"]
    if family not in families_with(TASKS[TASK].auto_class):
        pytest.skip("no such head")
    plain = recipe_for(encoder, TASK, tmp_path)
    teacher = run(prepare(plain), RunFolder.create(tmp_path / "teacher")).folder.path
    fields = plain.model_dump(exclude_defaults=True)
    options = {}
    for section, values in fields.items():
        if isinstance(values, dict):
            options |= {f"{section}.{name}": value for name, value in values.items()}
    options |= {
        "distillation.teacher": str(teacher),
        "distillation.relations": 1.0,
        "training.seed": 99,
    }
    recipe = load_recipe(TASK, options=options)

    if family in WITHOUT_QUERIES:
        with pytest.raises(UsageError, match=rf"\({family}\) does not make queries and values"):
            prepare(recipe)
        return
    job = prepare(recipe)
    folder = run(job, RunFolder.create(tmp_path / "student")).folder

    lines = [json.loads(line) for line in folder.history.read_text("utf-8").splitlines()]
    losses = [line["relations_loss"] for line in lines if "relations_loss" in line]
    assert losses
    assert all(loss >= 0 for loss in losses)
