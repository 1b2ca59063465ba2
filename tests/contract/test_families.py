"""The contract over model families.

Each with its own tokenizer and inputs, for every task whose head it has.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from families import FAMILIES, make_family
from task_examples import EXAMPLES, ask, assert_alike, assert_same

from bertctl.config.load import load_recipe
from bertctl.inference.trained import open_run
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.tasks.registry import TASKS
from bertctl.training.finetune import Result, run
from bertctl.training.job import prepare

MAX_LENGTH = 40
LEARNED = "text-classification"
"""The task that every family is trained on; for the others a step shows that gradients come, and
the answers count."""
STEPS = 6


def has_head(family: str, task: str) -> bool:
    """Returns whether transformers has a network of this family for the task.

    The contract has to ask for it, too.
    """
    config = transformers.AutoConfig.for_model(family)
    tasks = FAMILIES[family].tasks
    return type(config) in getattr(transformers, TASKS[task].auto_class)._model_mapping and (
        tasks is None or task in tasks
    )


CASES = [(family, task) for family in FAMILIES for task in sorted(TASKS) if has_head(family, task)]


def test_every_family_is_under_contract_for_every_task() -> None:
    of_encoders = [family for family, made in FAMILIES.items() if made.tasks is None]
    assert of_encoders == [
        "bert",
        "distilbert",
        "roberta",
        "albert",
        "xlnet",
        "electra",
        "deberta-v2",
        "modernbert",
    ]
    assert len(CASES) == len(of_encoders) * len(TASKS) + 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None], Path]:
    """Folders made so far, by family and padding side."""
    return {}


def folder_of(
    made: dict[tuple[str, str | None], Path],
    family: str,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    padding_side: str | None = None,
) -> Path:
    """The family's folder, made once."""
    key = (family, padding_side)
    if key not in made:
        made[key] = make_family(family, tmp_path_factory.mktemp(family), padding_side=padding_side)
    return made[key]


@dataclass(frozen=True)
class Case:
    """A finished run of one task with one family."""

    family: str
    task: str
    result: Result

    def lines(self) -> list[dict[str, Any]]:
        text = self.result.folder.predictions("validation").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


def train(model: Path, task: str, folder: Path, **options: object) -> Result:
    """A few steps on all 8 rows at once, dropout off.

    Each is to lower the loss of the same rows.
    """
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in EXAMPLES[task].rows))
    recipe = load_recipe(
        task,
        options={
            "data.train_file": str(data),
            "data.validation_file": str(data),
            "model.name": str(model),
            "model.max_length": MAX_LENGTH,
            "model.dropout": 0.0,
            "training.epochs": STEPS if task == LEARNED else 1,
            "training.evaluate_every": 100,
            "training.checkpoint_every": "off",
            "training.batch_size": 8,
            "training.log_every": 1,
            "optimizer.learning_rate": 2e-3,
            "optimizer.warmup_fraction": 0.0,
            "runtime.precision": "fp32",
            "runtime.device": "cpu",
            "evaluation.bootstrap_resamples": 100,
            **EXAMPLES[task].settings,
            **options,
        },
    )
    return run(prepare(recipe), RunFolder.create(folder / "run"))


def _tier(case: tuple[str, str]) -> Any:
    """Two unlike families are tried for every task by default.

    The others are tried for the one that they learn.

    BERT does every task in test_tasks.py.
    """
    family, task = case
    is_slow = family not in ("roberta", "xlnet") and task != LEARNED
    marks = [pytest.mark.slow] if is_slow else []
    return pytest.param(case, id=f"{family}-{task}", marks=marks)


@pytest.fixture(scope="module", params=map(_tier, CASES))
def case(
    request: pytest.FixtureRequest,
    made: dict[tuple[str, str | None], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Case:
    family, task = request.param
    model = folder_of(made, family, tmp_path_factory)
    return Case(family, task, train(model, task, tmp_path_factory.mktemp(f"{family}-{task}")))


def test_it_learns(case: Case) -> None:
    history = [json.loads(line) for line in case.result.folder.history.read_text().splitlines()]
    losses = [line["loss"] for line in history if "loss" in line]
    norms = [line["grad_norm"] for line in history if "grad_norm" in line]
    assert min(norms) > 0
    if case.task == LEARNED:
        assert len(losses) == STEPS
        assert losses[-1] < losses[0]


def test_plain_transformers_loads_it_and_agrees(case: Case) -> None:
    folder = case.result.folder.model
    network = getattr(transformers, TASKS[case.task].auto_class).from_pretrained(folder).eval()
    classes = FAMILIES[case.family].classes
    bare = TASKS[case.task].auto_class == "AutoModel"
    assert type(network).__name__.startswith(
        classes.removesuffix("For") + "Model" if bare else classes
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for line in case.lines():
        EXAMPLES[case.task].agrees(network, tokenizer, line)


def test_a_batch_of_one_equals_a_batch_of_many_whatever_the_padding(case: Case) -> None:
    trained = open_run(case.result.folder.path)
    engine = trained.load()
    task = trained.task
    rows = prepare(trained.recipe).data.splits["validation"]
    features = task.encode(rows, engine.tokenizer, max_length=MAX_LENGTH)
    entry = ask(engine, task, features, rows, batch_size=1)
    assert_same(ask(engine, task, features, rows, batch_size=len(features)), entry)
    assert_same(
        ask(
            engine,
            task,
            features,
            rows,
            batch_size=3,
            padding=replace(engine.padding, width=MAX_LENGTH + 9),
        ),
        entry,
    )
    for line, answer in zip(case.lines(), entry.answers, strict=True):
        assert_alike(answer["prediction"], line["prediction"])


def test_its_head_computes_in_fp32_whatever_the_encoder_does(case: Case) -> None:
    trained = open_run(case.result.folder.path, options={"runtime.precision": "bf16"})
    engine = trained.load()
    rows = prepare(trained.recipe).data.splits["validation"]
    features = trained.task.encode(rows, engine.tokenizer, max_length=MAX_LENGTH)
    outputs = map(
        torch.from_numpy, ask(engine, trained.task, features, rows, batch_size=3).outputs.values()
    )
    for actual in filter(torch.is_floating_point, outputs):  # tokens of a span are whole numbers
        assert not torch.equal(actual, actual.bfloat16().float()), "numbers of 8 bits"


def test_token_type_ids_only_where_the_family_has_them(case: Case) -> None:
    engine = open_run(case.result.folder.path).load()
    assert engine.backend.has_segments == FAMILIES[case.family].segments
    tokenizer = transformers.AutoTokenizer.from_pretrained(case.result.folder.model)
    ids = tokenizer("good film", "the food").get("token_type_ids")
    assert (ids is None) if not engine.backend.has_segments else (0 in ids and 1 in ids)


# Their positions are relative, and the head reads each token, or the first that is no padding.
EITHER_SIDE = [
    ("modernbert", "multiple-choice"),
    ("modernbert", "question-answering"),
    ("modernbert", "token-classification"),
    ("deberta-v2", "question-answering"),
    ("deberta-v2", "token-classification"),
    ("xlnet", "question-answering"),
    ("xlnet", "token-classification"),
]


@pytest.mark.parametrize(
    ("family", "task"),
    [
        pytest.param(*case, marks=() if case in EITHER_SIDE[-3:] else pytest.mark.slow)
        for case in EITHER_SIDE
        if case in CASES
    ],
)
def test_padding_on_either_side_where_the_family_allows_it(
    family: str,
    task: str,
    made: dict[tuple[str, str | None], Path],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    result = train(folder_of(made, family, tmp_path_factory), task, tmp_path)
    trained = open_run(result.folder.path)
    engine = trained.load()
    assert engine.padding.left == (family == "xlnet"), "only XLNet's heads read the last position"
    rows = prepare(trained.recipe).data.splits["validation"]
    features = trained.task.encode(rows, engine.tokenizer, max_length=MAX_LENGTH)
    entry = ask(engine, trained.task, features, rows, batch_size=1)
    for left in (True, False):
        requests = ask(
            engine,
            trained.task,
            features,
            rows,
            batch_size=8,
            padding=Padding(engine.padding.id, left=left, width=MAX_LENGTH),
        )
        assert_same(requests, entry)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["openai-gpt", "gpt2"])
def test_gpt_has_a_pad_token_and_finds_the_last_token_whatever_the_padding_side(
    family: str,
    side: str,
    made: dict[tuple[str, str | None], Path],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    model = folder_of(made, family, tmp_path_factory, padding_side=side)
    result = train(model, "text-classification", tmp_path)
    trained = open_run(result.folder.path)
    engine = trained.load()
    tokenizer = transformers.AutoTokenizer.from_pretrained(result.folder.model)
    assert engine.backend.network.config.pad_token_id == engine.padding.id == tokenizer.pad_token_id
    rows = prepare(trained.recipe).data.splits["validation"]
    features = trained.task.encode(rows, engine.tokenizer, max_length=MAX_LENGTH)
    many = ask(
        engine,
        trained.task,
        features,
        rows,
        batch_size=8,
        padding=replace(engine.padding, width=MAX_LENGTH),
    ).outputs["logits"]
    # By hand: the head applied to the last token's state of each text alone.
    network: Any = engine.backend.network
    for index, text in enumerate(rows.columns["text"]):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        by_hand = network.score(network.transformer(ids).last_hidden_state[0, -1])
        np.testing.assert_allclose(many[index], by_hand.detach().numpy(), atol=1e-5)
    # And a person's batch, padded by the saved tokenizer in plain transformers.
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(
        result.folder.model
    ).eval()
    logits = plain(
        **tokenizer(list(rows.columns["text"]), padding=True, return_tensors="pt")
    ).logits
    np.testing.assert_allclose(many, logits.detach().numpy(), atol=1e-5)
