"""Any two training options together do what each of them says.

Two steps of all pairs, recomputed plainly.

The table below has every field of the recipe's sections about training. A field that shapes the
loss, the gradient or the update is tried with every other such field; the others say where they act
instead.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertctl.config.losses import CLASS_LOSSES
from bertctl.config.recipe_sections import (
    ModelSection,
    OptimizerSection,
    SentenceEmbeddingsSection,
    TextClassificationSection,
    TokenClassificationSection,
    TrainingSection,
)
from bertctl.modeling.layer_groups import freeze, reinitialise
from bertctl.runtime.batching import Padding
from bertctl.runtime.device import Compute
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.batches import IGNORED, Batch
from bertctl.training.loop.layer_freezing import Unfreezing
from bertctl.training.loop.optim import build_optimizer, build_schedule
from bertctl.training.loop.step import training_step
from bertctl.training.loop.training_engine import TrainingEngine

MEETING: Mapping[str, Any] = {
    "training.loss": "focal",
    "training.class_weights": [0.5, 4.0, 2.0],
    "training.label_smoothing": 0.3,
    "training.accumulation_steps": 3,
    "training.freeze_embeddings": True,
    "training.freeze_layers": 1,
    "training.gradual_unfreezing": True,
    "training.reinit_layers": 1,
    "optimizer.learning_rate": 2e-2,
    "optimizer.weight_decay": 0.5,
    "optimizer.warmup_fraction": 0.5,
    "optimizer.beta1": 0.5,
    "optimizer.beta2": 0.8,
    "optimizer.epsilon": 1e-2,
    "optimizer.max_grad_norm": 1e-2,
    "optimizer.layer_decay": 0.4,
}
"""Fields that meet in the loss or the step, each with a value that changes its outcome."""

ELSEWHERE: Mapping[str, str] = {
    "training.epochs": "how many steps there are, which the schedule is given",
    "training.max_steps": "how many steps there are, which the schedule is given",
    "training.batch_size": "how many rows a step has: any number",
    "training.seed": "which numbers are drawn",
    "training.init_seed": "which numbers are drawn",
    "training.order_seed": "which rows a step has",
    "training.group_by_length": "which rows a step has",
    "training.evaluate_every": "when steps are interrupted",
    "training.patience": "when steps end",
    "training.log_every": "what is written",
    "training.checkpoint_every": "what is written",
    "training.gradient_checkpointing": "how the same gradient is computed: "
    "tests/cli/test_training_options.py",
    "training.preset": "other fields' values",
    "training.time_limit": "how many steps there are: tests/unit/test_time_limited_steps.py",
    "model.head_start": "where the head starts: tests/numeric/test_head_start.py",
    "training.focal_gamma": "the focal loss alone: tests/unit/test_training_fields.py",
    "training.average_best": "which weights are kept after the steps: "
    "tests/unit/test_training_fields.py",
    "training.tie_breaker": "which weights are kept after the steps: "
    "tests/unit/test_auto_settings.py",
    "model.name": "the network",
    "model.keep_layers": "the network: tests/contract/test_kept_layers.py",
    "model.revision": "the network",
    "model.max_length": "the inputs",
    "model.long_text": "the inputs, and the network's answer to them: tests/cli/test_windows.py",
    "model.window_stride": "the inputs",
    "model.window_pooling": "the network's answer: tests/cli/test_windows.py",
    "model.lowercase": "the inputs",
    "model.dropout": "which numbers are drawn in the network",
    "text_classification.labels": "the order of the outputs, which class_weights follows",
    "text_classification.multi_label": "KINDS below",
    "text_classification.label_separator": "how labels are read",
    "text_classification.threshold": "the answers, after training",
    "token_classification.labels": "the order of the outputs, which class_weights follows",
    "token_classification.context": "the inputs",
    "token_classification.scheme": "how tags are read",
    "token_classification.rename_tags": "how tags are read",
    "token_classification.entity_threshold": "the answers, after training",
    **{
        f"sentence_embeddings.{name}": "losses of pairs, which take neither weights nor smoothing: "
        "tests/unit/test_sentence_objectives.py"
        for name in SentenceEmbeddingsSection.model_fields
    },
}
"""Fields that act elsewhere, and where."""

SECTIONS = {
    "training": TrainingSection,
    "optimizer": OptimizerSection,
    "model": ModelSection,
    "text_classification": TextClassificationSection,
    "token_classification": TokenClassificationSection,
    "sentence_embeddings": SentenceEmbeddingsSection,
}
EXCLUDED = {"training.loss", "training.label_smoothing"}
"""A pair that a recipe can not have."""
OF_LOSS = ("training.class_weights", "training.label_smoothing", "training.accumulation_steps")
STEPS = 4
CLASSES = 3
ROWS = 7
TOKENS = 5
WIDTH = 6


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Products this small take longer on two threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_field_of_training_is_in_the_table() -> None:
    fields = {
        f"{section}.{name}" for section, fields in SECTIONS.items() for name in fields.model_fields
    }
    assert MEETING.keys() | ELSEWHERE.keys() == fields
    assert not MEETING.keys() & ELSEWHERE.keys()


@dataclass(frozen=True)
class Rows:
    """Rows of token ids with gold, as a training step takes them."""

    ids: Tensor
    gold: Tensor

    def collate(self, indices: Any, _: Padding) -> Batch:
        chosen = torch.from_numpy(np.asarray(indices))
        ids = self.ids[chosen]
        return Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, self.gold[chosen])


def rows_of(kind: str) -> Rows:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(2, 20, (ROWS, TOKENS), generator=generator)
    if kind == "several labels":
        return Rows(ids, torch.randint(0, 2, (ROWS, CLASSES), generator=generator).float())
    if kind == "tags":
        gold = torch.randint(0, CLASSES, (ROWS, TOKENS), generator=generator)
        gold[:, 0] = IGNORED
        gold[2, 1:4] = IGNORED
        return Rows(ids, gold)
    return Rows(ids, torch.randint(0, CLASSES, (ROWS,), generator=generator))


class Part(nn.Module):
    """A part of the network below: a matrix and a norm, called as BERT calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH)

    def forward(self, states: Tensor) -> Tensor:
        changed: Tensor = self.LayerNorm(states + torch.tanh(self.dense(states)))
        return changed


class Network(nn.Module):
    """Embeddings, two layers, a pooler and a head with BERT's names.

    They are in 64 bits, so that rounding decides no sign.
    """

    base_model_prefix = "bert"

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = SimpleNamespace(num_hidden_layers=2, model_type="bert")
        self.is_of_tokens = kind == "tags"
        self.bert = nn.Module()
        self.bert.embeddings = nn.Module()
        self.bert.embeddings.word_embeddings = nn.Embedding(20, WIDTH)
        self.bert.encoder = nn.Module()
        self.bert.encoder.layer = nn.ModuleList([Part(), Part()])
        self.bert.pooler = Part()
        self.classifier = nn.Linear(WIDTH, CLASSES)
        self.double()

    @property
    def base_model(self) -> nn.Module:
        return self.bert

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        states = self.bert.embeddings.word_embeddings(input_ids)
        for layer in self.bert.encoder.layer:
            states = layer(states)
        states = self.bert.pooler(states if self.is_of_tokens else states.mean(dim=1))
        return SimpleNamespace(logits=self.classifier(states))


@dataclass(frozen=True)
class Settings:
    """The two sections with some fields changed."""

    training: TrainingSection
    optimizer: OptimizerSection

    @classmethod
    def of(cls, names: Iterable[str]) -> "Settings":
        values: dict[str, dict[str, Any]] = {"training": {}, "optimizer": {"learning_rate": 1e-2}}
        for name in names:
            section, field = name.split(".")
            values[section][field] = MEETING[name]
        return cls(TrainingSection(**values["training"]), OptimizerSection(**values["optimizer"]))


def trained(network: Any, rows: Rows, kind: str, settings: Settings) -> None:
    """Trains as the package does: two steps, the second one in the second epoch."""
    training = settings.training
    weights = settings.training.class_weights
    loss = CLASS_LOSSES[training.loss]
    shape = None if weights is None else tuple(weights)
    objective = loss.objective_class(kind)(
        Padding(0), shape, training.label_smoothing, **loss.keywords(training)
    )
    freeze(network, training)
    optimizer = build_optimizer(network, settings.optimizer)
    unfreezing = Unfreezing(network) if training.gradual_unfreezing else None
    engine = TrainingEngine(
        loaded=_Plain(has_segments=False),
        network=network,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, settings.optimizer, steps=STEPS),
        accelerator=_Plain(backward=lambda loss: loss.backward(), no_sync=lambda _: _Plain()),
        objective=objective,
        compute=Compute("cpu", "fp32", 1, ""),
        max_grad_norm=settings.optimizer.max_grad_norm,
        begin_epoch=unfreezing,
    )
    for epoch in range(2):
        if engine.begin_epoch is not None:
            engine.begin_epoch(epoch)
        training_step(
            engine,
            rows,
            np.arange(ROWS),
            WindowRandom(0),
            micro_batches=training.accumulation_steps,
        )
        engine.optimizer.step()
        engine.schedule.step()
        engine.optimizer.zero_grad(set_to_none=True)


class _Plain:
    """An object with attributes, that is also a context in which nothing happens."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def plain_loss(logits: Tensor, gold: Tensor, kind: str, training: TrainingSection) -> Tensor:
    """Computes the loss by the fields' own words.

    Each label's share is smoothed, then the true label weighs.
    """
    weights = torch.tensor(training.class_weights or [1.0] * CLASSES, dtype=torch.float64)
    share = training.label_smoothing
    power = training.focal_gamma if training.loss == "focal" else 0.0
    if kind == "several labels":
        target = gold * (1 - share) + share / 2
        yes = torch.log(torch.sigmoid(logits))
        no = torch.log(torch.sigmoid(-logits))
        losses = -(target * yes + (1 - target) * no)
        losses = (1 - torch.exp(-losses)) ** power * losses
        weighted = torch.where(gold == 1, weights * losses, losses)
        return weighted.mean(dim=1).mean()
    logits = logits.reshape(-1, CLASSES)
    gold = gold.flatten()
    logits = logits[gold != IGNORED]
    gold = gold[gold != IGNORED]
    target = torch.full_like(logits, share / CLASSES)
    target[torch.arange(len(gold)), gold] += 1 - share
    losses = -(target * torch.log(torch.softmax(logits, dim=1))).sum(dim=1)
    losses = (1 - torch.exp(-losses)) ** power * losses
    return (weights[gold] * losses).mean()


def depth_of(name: str) -> int:
    """Returns 0 for the embeddings, 1 and 2 for the layers, 3 for pooler and head."""
    if ".layer." in name:
        return int(name.split(".layer.")[1][0]) + 1
    return 0 if ".embeddings." in name else 3


def recomputed(network: Any, rows: Rows, kind: str, settings: Settings) -> None:
    """Trains plainly.

    It has one loss over all rows, its gradient, its norm, and AdamW by its formulas (Loshchilov &
    Hutter).
    """
    training = settings.training
    optimizer = settings.optimizer
    parameters: dict[str, nn.Parameter] = dict(network.named_parameters())
    first = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    second = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    updates = dict.fromkeys(parameters, 0)
    warmup = int(STEPS * optimizer.warmup_fraction)
    beta1 = optimizer.beta1
    beta2 = optimizer.beta2

    def is_frozen(name: str, step: int) -> bool:
        depth = depth_of(name)
        if depth == 0 and training.freeze_embeddings:
            return True
        if 1 <= depth <= training.freeze_layers:
            return True
        return training.gradual_unfreezing and depth < 3 - step

    for step in range(2):
        network.zero_grad(set_to_none=True)
        loss = plain_loss(network(input_ids=rows.ids).logits, rows.gold, kind, training)
        loss.backward()
        gradients = {}
        squared_norm = 0.0
        for name, parameter in parameters.items():
            if parameter.grad is not None and not is_frozen(name, step):
                gradients[name] = parameter.grad
                squared_norm += float((parameter.grad.double() ** 2).sum())
        scale = min(1.0, optimizer.max_grad_norm / squared_norm**0.5)

        schedule_factor = (STEPS - step) / (STEPS - warmup)
        if step < warmup:
            schedule_factor = step / warmup
        for name, gradient in gradients.items():
            depth_factor = optimizer.layer_decay ** (3 - depth_of(name))
            rate = optimizer.learning_rate * schedule_factor * depth_factor
            is_decayed = not (name.endswith("bias") or "LayerNorm" in name)
            clipped = gradient * scale
            updates[name] += 1
            first[name] = beta1 * first[name] + (1 - beta1) * clipped
            second[name] = beta2 * second[name] + (1 - beta2) * clipped**2
            mean = first[name] / (1 - beta1 ** updates[name])
            variance = second[name] / (1 - beta2 ** updates[name])
            with torch.no_grad():
                parameters[name] *= 1 - rate * optimizer.weight_decay * is_decayed
                parameters[name] -= rate * mean / (variance.sqrt() + optimizer.epsilon)


def both(
    names: tuple[str, ...], kind: str
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Returns the weights before, as trained by the package, and as recomputed."""
    settings = Settings.of(names)
    rows = rows_of(kind)
    network = Network(kind)
    if settings.training.reinit_layers is not None:
        torch.manual_seed(9)
        reinitialise(network, settings.training.reinit_layers)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    other = Network(kind)
    other.load_state_dict(before)
    trained(network, rows, kind, settings)
    recomputed(other, rows, kind, settings)
    return before, network.state_dict(), other.state_dict()


def assert_alike(names: tuple[str, ...], kind: str) -> None:
    before, ours, plain = both(names, kind)
    moved = max(float((plain[name] - before[name]).abs().max()) for name in plain)
    assert moved > 1e-4, (names, kind)
    for name in plain:
        torch.testing.assert_close(
            ours[name], plain[name], atol=1e-5, rtol=1e-4, msg=f"{names}, {kind}: {name}"
        )


@pytest.mark.parametrize("first", MEETING)
def test_each_option_with_every_other_one_of_one_label(first: str) -> None:
    following = list(MEETING)[list(MEETING).index(first) :]
    for second in following:
        if {first, second} == EXCLUDED:
            continue
        assert_alike((first, second), "one label")


@pytest.mark.parametrize("kind", ["several labels", pytest.param("tags", marks=pytest.mark.slow)])
def test_each_option_of_the_loss_with_every_other_one_of_other_tasks(kind: str) -> None:
    for first, second in itertools.product(OF_LOSS, MEETING):
        if first != second and {first, second} != EXCLUDED:
            assert_alike((first, second), kind)


@pytest.mark.parametrize("kind", ["one label", "several labels", "tags"])
def test_all_options_of_the_loss_at_once(kind: str) -> None:
    assert_alike((*OF_LOSS, "optimizer.max_grad_norm", "optimizer.layer_decay"), kind)


@pytest.mark.parametrize("name", MEETING)
def test_each_option_changes_what_is_learned_so_that_the_comparison_can_fail(name: str) -> None:
    _, plain, _ = both((), "one label")
    _, changed, _ = both((name,), "one label")
    is_the_same = all(torch.allclose(plain[key], changed[key], atol=1e-5) for key in plain)
    assert is_the_same == (name == "training.accumulation_steps")
