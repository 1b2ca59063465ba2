"""Training fields by hand.

Weighted and smoothed losses, averaged weights, the preset, the learning-rate range test.
"""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn

from bertctl.config.dump import dump_recipe, recipe_hash
from bertctl.config.load import load_recipe
from bertctl.config.problems import RecipeError
from bertctl.config.recipe_sections import TrainingSection
from bertctl.errors import DivergedError, UsageError
from bertctl.modeling.model import Model
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.tasks.batches import Batch
from bertctl.tasks.classification.class_weights import class_weights
from bertctl.tasks.objectives import BinaryCrossEntropy, BinaryFocalLoss, CrossEntropy, FocalLoss
from bertctl.tasks.tagging.word_windows import IGNORED, WordBatch
from bertctl.training.checkpoints.checkpoint import average_file
from bertctl.training.finetune import run
from bertctl.training.job import Job, prepare
from bertctl.training.loop.averaging import BestWeights, mean_of
from bertctl.training.loop.loop import Evaluation, TrainingState
from bertctl.training.lr_find import find_rate, smoothed, suggest
from tests.nursery import Nursery
from tests.tiny_recipes import tiny_recipe

PADDING = Padding(0)
LABELS = ("a", "b", "c")
LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
GOLD = torch.tensor([0, 2, 2, 1])


def test_weighted_losses_are_those_of_torch_before_it_divides() -> None:
    class_weights = (0.5, 2.0, 3.0)
    weights_of_rows = torch.tensor(class_weights)[GOLD]
    torch_loss = nn.CrossEntropyLoss(weight=torch.tensor(class_weights))

    losses = CrossEntropy(PADDING, class_weights).window_losses(LOGITS, Batch({}, GOLD))

    plain_losses = CrossEntropy(PADDING).window_losses(LOGITS, Batch({}, GOLD))
    assert losses.tolist() == pytest.approx((weights_of_rows * plain_losses).tolist())
    mean = losses.sum() / weights_of_rows.sum()
    assert float(mean) == pytest.approx(float(torch_loss(LOGITS, GOLD)))


def test_smoothed_labels_by_hand() -> None:
    losses = CrossEntropy(PADDING, None, 0.3).window_losses(LOGITS, Batch({}, GOLD))

    for loss, logits, gold in zip(losses, LOGITS, GOLD, strict=True):
        targets = torch.full((3,), 0.1)
        targets[gold] += 0.7
        log_probabilities = logits - logits.exp().sum().log()
        expected = -(targets * log_probabilities).sum()
        assert float(loss) == pytest.approx(float(expected), rel=1e-5)


LABEL_SETS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])


def test_weights_of_several_labels_weigh_their_presence() -> None:
    weights = (2.0, 0.5, 1.0)
    torch_loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights))

    losses = BinaryCrossEntropy(PADDING, weights).window_losses(LOGITS, Batch({}, LABEL_SETS))

    assert float(losses.mean()) == pytest.approx(float(torch_loss(LOGITS, LABEL_SETS)))


def test_several_labels_are_smoothed_towards_one_half() -> None:
    objective = BinaryCrossEntropy(PADDING, None, 0.2)

    losses = objective.window_losses(LOGITS, Batch({}, LABEL_SETS))

    probabilities = 1 / (1 + (-LOGITS[0]).exp())
    targets = torch.tensor([0.9, 0.1, 0.9])  # of 1, 0, 1
    present = targets * probabilities.log()
    absent = (1 - targets) * (1 - probabilities).log()
    expected = -(present + absent).mean()
    assert float(losses[0]) == pytest.approx(float(expected), rel=1e-5)


def test_tags_are_weighted_word_by_word_and_unlabelled_pieces_count_nothing() -> None:
    logits = LOGITS.view(2, 2, 3)
    gold = torch.tensor([[0, IGNORED], [2, 1]])
    empty = np.zeros(0, dtype=np.int64)
    batch = WordBatch({}, gold, empty, empty)
    objective = CrossEntropy(PADDING, (0.5, 2.0, 3.0), 0.1)
    # Not by torch's own `weight`, which weighs each label's share of the smoothing by that label.
    torch_loss = nn.CrossEntropyLoss(
        ignore_index=IGNORED,
        label_smoothing=0.1,
        reduction="none",
    )
    weights_of_pieces = torch.tensor([0.5, 0.0, 3.0, 2.0])
    losses_of_pieces = weights_of_pieces * torch_loss(LOGITS, gold.flatten())
    expected = losses_of_pieces.view(2, 2).sum(dim=1)

    losses = objective.window_losses(logits, batch)

    assert losses.tolist() == pytest.approx(expected.tolist())
    assert objective.counts(batch) == {"loss": 3}


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 5.0])
def test_focal_loss_is_that_of_the_paper(gamma: float) -> None:
    """Lin et al. 2017, equation 4: -(1 - p)^gamma log p, p being the probability of the label."""
    gold = torch.tensor([0, 2, 1, IGNORED])

    losses = FocalLoss(PADDING, gamma=gamma).window_losses(LOGITS, Batch({}, gold))

    probabilities = LOGITS.softmax(dim=1)
    expected = []
    for row, label in enumerate([0, 2, 1]):
        p = float(probabilities[row, label])
        expected.append(-((1 - p) ** gamma) * math.log(p))
    assert losses.tolist() == pytest.approx([*expected, 0.0], rel=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_of_several_labels_is_that_of_the_paper(gamma: float) -> None:
    labels = [
        [1.0, 0.0, 1.0],
        [0.0, 0.0, 0.0],
        [1.0, 1.0, 1.0],
        [0.0, 1.0, 0.0],
    ]
    gold = torch.tensor(labels)
    objective = BinaryFocalLoss(PADDING, gamma=gamma)

    losses = objective.window_losses(LOGITS, Batch({}, gold))

    presence = torch.sigmoid(LOGITS).double()
    p = torch.where(gold == 1, presence, 1 - presence)
    focal_losses = -((1 - p) ** gamma) * torch.log(p)
    assert losses.tolist() == pytest.approx(focal_losses.mean(dim=1).tolist(), rel=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_has_a_gradient_where_the_answer_is_certain(gamma: float) -> None:
    logits = torch.tensor([[200.0, 0.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True)
    gold = torch.tensor([0, IGNORED])

    loss = FocalLoss(PADDING, gamma=gamma).window_losses(logits, Batch({}, gold)).sum()
    (gradient,) = torch.autograd.grad(loss, logits)

    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("gold", "weights"),
    [
        ([0, 0, 0, 1, 1, 2], (6 / (3 * 3), 6 / (3 * 2), 6 / (3 * 1))),
        ([0, 0, 0, 2], (4 / (2 * 3), 1.0, 4 / (2 * 1))),  # no example of b
        ([[1, 0, 1], [1, 0, 0], [1, 0, 0], [0, 0, 0]], (1 / 3, 1.0, 3.0)),
    ],
)
def test_balanced_weights_by_hand(gold: list[Any], weights: tuple[float, ...]) -> None:
    balanced = class_weights(TrainingSection(class_weights="balanced"), np.array(gold), LABELS)
    assert balanced == pytest.approx(weights)


def test_a_list_is_taken_as_it_is_and_must_be_as_long_as_the_labels() -> None:
    gold = np.array([0, 1, 2])
    assert class_weights(TrainingSection(class_weights=[1.0, 2.0, 5.0]), gold, LABELS) == (
        1.0,
        2.0,
        5.0,
    )
    assert class_weights(TrainingSection(), gold, LABELS) is None
    with pytest.raises(UsageError, match=r"class_weights: 4 .*3 labels"):
        class_weights(TrainingSection(class_weights=[1.0] * 4), gold, LABELS)


def recipe_of(tiny_model: Path, data: Path, **fields: Any) -> Any:
    return tiny_recipe(
        tiny_model, data, **{"training.epochs": 2, "training.checkpoint_every": "off", **fields}
    )


def test_training_minimises_the_weighted_loss_and_evaluation_tells_the_plain_one(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """A rate of nearly 0 leaves the weights as they are.

    Both losses are then those of the same network.
    """
    fields = {
        "optimizer.learning_rate": 1e-30,
        "training.epochs": 1,
        "training.batch_size": 16,
    }
    plain = recipe_of(tiny_model, opinions, **fields)
    fields["training.class_weights"] = [2.0, 2.0]
    weighted = recipe_of(tiny_model, opinions, **fields)

    plain_loss, plain_validation_loss = _losses_of_a_run(plain, tmp_path / "plain")
    weighted_loss, weighted_validation_loss = _losses_of_a_run(weighted, tmp_path / "weighted")

    assert weighted_loss == pytest.approx(2.0 * plain_loss, rel=1e-6)
    assert weighted_validation_loss == plain_validation_loss


def _losses_of_a_run(recipe: Any, path: Path) -> tuple[float, float]:
    """Trains, and returns the first training loss and the last one of the validation split."""
    folder = RunFolder.create(path)
    run(prepare(recipe), folder)
    lines = [json.loads(line) for line in folder.history.read_text().splitlines()]
    return lines[0]["loss"], lines[-1]["validation_loss"]


def test_the_objective_of_training_is_shaped_as_asked_and_that_of_evaluation_is_plain(
    tiny_model: Path, opinions: Path
) -> None:
    shaped = prepare(recipe_of(tiny_model, opinions, **{"training.label_smoothing": 0.1}))
    assert shaped.objective == CrossEntropy(shaped.loaded.padding, None, 0.1)
    focal = prepare(
        recipe_of(tiny_model, opinions, **{"training.loss": "focal", "training.focal_gamma": 3.0})
    )
    assert focal.objective == FocalLoss(focal.loaded.padding, gamma=3.0)
    assert focal.task.objective(focal.loaded.padding) == CrossEntropy(focal.loaded.padding)
    assert shaped.task.objective(shaped.loaded.padding) == CrossEntropy(shaped.loaded.padding)


def test_the_mean_of_files_is_the_mean_of_each_number(tmp_path: Path) -> None:
    paths = []
    for number in (1.0, 2.0, 6.0):
        path = tmp_path / f"{number}.safetensors"
        save_file({"w": torch.tensor([number, -number]), "ids": torch.tensor([7])}, path)
        paths.append(path)
    mean = mean_of(paths)
    assert mean["w"].tolist() == [3.0, -3.0]
    assert mean["w"].dtype == torch.float32
    assert mean["ids"].tolist() == [7]


@pytest.mark.parametrize(
    ("higher", "steps", "average"),
    [(True, [2, 3], (2.0 + 3.0) / 2), (False, [1, 4], (1.0 + 4.0) / 2)],
)
def test_the_weights_of_the_best_evaluations_are_kept(
    tmp_path: Path, higher: bool, steps: list[int], average: float
) -> None:
    network = nn.Linear(1, 1, bias=False)
    folder = RunFolder(tmp_path)
    model = Model(network, Tokenizer(WordLevel()), None, Padding(0), has_segments=False)
    best = BestWeights(folder, 2, higher_is_better=higher, writes=True)
    outcome = TrainingState()
    for step, value in enumerate(
        [0.1, 0.7, 0.8, 0.2, 0.7, math.nan], start=1
    ):  # 0.7 again: the earlier one stays
        with torch.no_grad():
            network.weight.fill_(float(step))
        outcome.step = step
        best.offer(outcome, Evaluation(value, loss=0.5), model)
    assert sorted(step for _, step in outcome.ranked) == steps
    assert sorted(average_file(folder, 1).parent.iterdir()) == [
        average_file(folder, step) for step in steps
    ]
    best.average_into(model, outcome)
    assert network.weight.item() == average


def test_of_equal_evaluations_those_with_the_lowest_loss_are_averaged(tmp_path: Path) -> None:
    network = nn.Linear(1, 1, bias=False)
    model = Model(network, Tokenizer(WordLevel()), None, Padding(0), has_segments=False)
    best = BestWeights(RunFolder(tmp_path), 2, higher_is_better=True, writes=True, breaks_ties=True)
    state = TrainingState()

    for step, loss in enumerate([0.9, 0.4, 0.6, 0.5, 0.7], start=1):
        state.step = step
        best.offer(state, Evaluation(0.8, loss), model)

    assert [step for _, step in state.ranked] == [2, 4]
    assert state.ranked_losses == [0.4, 0.5]


class Copier(Listener):
    """Copies what is averaged, at the moment when the run says that it is."""

    def __init__(self, folder: RunFolder, to: Path) -> None:
        self.folder = folder
        self.to = to
        self.said = ""

    def say(self, text: str) -> None:
        if text.startswith("the mean of the weights"):
            self.said = text
            shutil.copytree(self.folder.checkpoints / "average", self.to)

    def warn(self, text: str) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("fields", "retained"), [({}, True), ({"optimizer.learning_rate": 1e-4}, False)]
)
def test_the_average_is_kept_where_it_is_better_and_that_is_said(
    tiny_model: Path, opinions: Path, tmp_path: Path, fields: dict[str, Any], retained: bool
) -> None:
    """Rates that are too high swing around the minimum, which the mean is nearer to.

    Low ones are on the way there.
    """
    more = {
        "training.average_best": 3,
        "training.evaluate_every": 1,
        "evaluation.primary_metric": "loss",
    }
    high = {"optimizer.learning_rate": 0.1}
    job = prepare(recipe_of(tiny_model, opinions, **{**more, **high, **fields}))
    folder = RunFolder.create(tmp_path / "run")
    listener = Copier(folder, tmp_path / "copy")
    metrics = run(job, folder, listener=listener).metrics.as_json()
    average = metrics["average"]
    assert average["kept"] is retained is (average["value"] < average["best_value"])
    assert listener.said.endswith("the mean is kept" if retained else "the mean is not kept")
    files = sorted((tmp_path / "copy").iterdir())
    assert [file.name for file in files] == [
        f"step-{step:08d}.safetensors" for step in average["steps"]
    ]
    mean = mean_of(files)
    model = load_file(folder.model / "model.safetensors")
    is_mean = all(torch.allclose(mean[name], model[name], atol=1e-6) for name in model)
    assert is_mean is retained
    if not retained:
        best = load_file(tmp_path / "copy" / f"step-{metrics['best_step']:08d}.safetensors")
        assert all(torch.equal(best[name], model[name]) for name in model)
    loss = metrics["metrics"]["validation"]["loss"]["value"]
    assert loss == pytest.approx(min(average["value"], average["best_value"]))
    assert not folder.checkpoints.exists()


PRESET = {"epochs": 20, "patience": 10, "learning_rate": 2e-5, "warmup_fraction": 0.1}


def values(recipe: Any) -> dict[str, Any]:
    every = {**recipe.training.model_dump(), **recipe.optimizer.model_dump()}
    return {name: every[name] for name in PRESET}


@pytest.mark.parametrize(
    ("text", "sets", "options", "differs"),
    [
        ("training: {preset: small-data}", [], {}, {}),
        ("training: {preset: small-data, epochs: 3}", [], {}, {"epochs": 3}),
        ("training: {epochs: 3, patience: 1}", ["training.preset=small-data"], {}, {}),
        (
            "training: {epochs: 3}",
            ["training.preset=small-data", "training.epochs=9"],
            {},
            {"epochs": 9},
        ),
        (
            "training: {epochs: 3}",
            ["training.epochs=9", "training.preset=small-data"],
            {},
            {"epochs": 9},
        ),
        (
            "name: x",
            ["training.preset=small-data"],
            {"optimizer.learning_rate": 1e-4},
            {"learning_rate": 1e-4},
        ),
        ("training: {preset: small-data}", ["training.patience=null"], {}, {"patience": None}),
    ],
)
def test_a_preset_is_as_near_as_the_source_that_names_it(
    tmp_path: Path, text: str, sets: list[str], options: dict[str, Any], differs: dict[str, Any]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text + "\n")
    recipe = load_recipe(str(path), sets=sets, options=options)
    assert values(recipe) == {**PRESET, **differs}
    path.write_text(dump_recipe(recipe, command="x"))
    assert load_recipe(str(path)) == recipe, "the resolved recipe is the same recipe"


def test_the_preset_is_its_values_and_fields_that_are_off_change_no_hash() -> None:
    def hashed(*sets: str) -> str:
        return recipe_hash(load_recipe("mrpc", sets=sets), data_hashes={}, model_hash="m")

    written_out = ("training.epochs=20", "training.patience=10", "optimizer.learning_rate=2e-5")
    assert hashed("training.preset=small-data") == hashed(*written_out)
    off = ("training.freeze_layers=0", "optimizer.layer_decay=1.0", "training.class_weights=null")
    assert hashed(*off) == hashed()
    assert hashed("training.freeze_layers=1") != hashed()


@pytest.mark.parametrize(
    ("recipe", "arguments", "message"),
    [
        ("mrpc", "training.preset=smal-data", '"smal-data" .*did you mean small-data'),
        ("mrpc", "training.class_weights=balance", '"balance" .*above 0 each.* balanced, or null'),
        ("mrpc", "training.class_weights=[1, -2]", r"class_weights\[1\]: -2 .*above 0"),
        ("mrpc", "training.class_weights=3", r"class_weights: 3 .*a list"),
        ("stsb", "training.class_weights=balanced", "class_weights: .*the same in every example"),
        ("squad", "training.label_smoothing=0.1", "label_smoothing: .*'question-answering'"),
        ("codah", "training.class_weights=[1, 2]", "class_weights: .*'multiple-choice'"),
        ("mrpc", "training.label_smoothing=1", "label_smoothing: 1 .*at least 0 and below 1"),
        ("stsb", "training.loss=focal", "training.loss: .*the same in every example"),
        (
            "mrpc",
            "training.loss=focl",
            'training.loss: "focl" given, cross-entropy or focal fits; did you mean focal',
        ),
        ("mrpc", "training.focal_gamma=1", "focal_gamma: of use only with training.loss: focal"),
        ("mrpc", "training.average_best=5", "average_best: .*4 evaluations"),
        ("mrpc", "training.average_best=1", "average_best: 1 .*at least 2, or null"),
        (
            "mrpc",
            "training.checkpoint_every=2",
            'checkpoint_every: "2" .*such as 50 steps, 10 minutes, off, or null',
        ),
        ("mrpc", "optimizer.layer_decay=1.1", "layer_decay: 1.1 .*above 0 and at most 1"),
        ("mrpc", "training.freeze_layers=-1", "freeze_layers: -1 .*at least 0"),
    ],
)
def test_what_a_recipe_can_not_mean_is_refused(recipe: str, arguments: str, message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe(recipe, sets=[arguments])
    assert len(refused.value.problems) == 1
    assert re.search(message, refused.value.problems[0])


def test_layers_and_weights_are_refused_before_torch_is_imported(
    tiny_model: Path, opinions: Path, nursery: Nursery, tmp_path: Path
) -> None:
    code = (
        "import sys; from bertctl.config.load import load_recipe; from bertctl.training.job import "
        "prepare\n"
        "from bertctl.errors import UsageError\n"
        "for field, value in (('training.freeze_layers', 9), ('training.class_weights', [1.0])):\n"
        "    own = {'data.train_file': sys.argv[1], 'model.name': sys.argv[2], 'model.max_length': "
        "32, field: value}\n"
        "    try: prepare(load_recipe('text-classification', options=own))\n"
        "    except UsageError as error: print(error.message)\n"
        "    assert 'torch' not in sys.modules\n"
    )
    done = nursery.run_code(code, opinions, tiny_model, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("training.freeze_layers: 9 ")
    assert second.startswith("training.class_weights: 1 ")
    assert "2 labels" in second


def test_shared_layers_are_refused_by_the_config_alone(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "albert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "albert", "num_hidden_groups": 1})
    )
    for field, value in {"optimizer.layer_decay": 0.9, "training.freeze_layers": 1}.items():
        with pytest.raises(UsageError, match=f"{field}: .*share"):
            prepare(recipe_of(folder, opinions, **{field: value}))


def test_the_smoothed_loss_by_hand() -> None:
    assert smoothed([4.0, 2.0]) == pytest.approx([4.0, (0.9 * 0.4 + 0.2) / (1 - 0.81)])


RATES = np.geomspace(1e-7, 1.0, 701)


def test_the_rates_of_a_known_curve() -> None:
    """The loss stays, falls from 1e-5 to 1e-2 along half a cosine, and rises.

    It falls fastest between the two.
    """
    position = np.clip((np.log10(RATES) + 5) / 3, 0, 1)
    fall = 0.5 * np.cos(np.pi * position)
    rise = 10 * np.clip(np.log10(RATES) + 2, 0, None)
    losses = 1.0 + fall + rise

    suggested = suggest(RATES.tolist(), losses.tolist())

    assert math.log10(suggested["steepest"]) == pytest.approx(-3.5, abs=0.15)
    assert math.log10(suggested["minimum"]) == pytest.approx(-2.0, abs=0.1)
    assert suggested["minimum_tenth"] == suggested["minimum"] / 10
    assert suggested["suggestion"] == min(suggested["steepest"], suggested["minimum_tenth"])
    assert suggested["fall"] == pytest.approx(1.0, abs=0.05)
    assert suggested["noise"] < 0.2


def test_noise_alone_is_no_fall_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    rates = RATES[:100].tolist()
    n_falls = 0
    for _ in range(1000):
        losses = rng.normal(0.6, 0.1, 100).tolist()

        suggested = suggest(rates, losses)

        if suggested["fall"] is not None and suggested["fall"] > suggested["noise"]:
            n_falls += 1
    assert n_falls / 1000 < 0.025


def test_a_rising_loss_suggests_no_rate() -> None:
    losses = 1.0 + np.clip((np.log10(RATES) + 5) / 3, 0, 1)

    suggested = suggest(RATES.tolist(), losses.tolist())

    assert suggested["steepest"] is None
    assert suggested["minimum"] is None
    assert suggested["minimum_tenth"] is None
    assert suggested["suggestion"] is None


def test_the_range_test_ends_where_the_loss_explodes(tiny_model: Path, opinions: Path) -> None:
    document = find_rate(
        recipe_of(tiny_model, opinions, **{"optimizer.layer_decay": 0.5}), high=1e3, steps=60
    )
    assert document["exploded"]
    assert document["steps"] == len(document["rates"]) == len(document["losses"]) < 60
    assert document["rates"][1] / document["rates"][0] == pytest.approx(10 ** (10 / 59))
    smooth = document["smoothed"]
    assert smooth[-1] > 4 * min(smooth[:-1])
    assert all(entry <= 4 * min(smooth[: i + 1]) for i, entry in enumerate(smooth[:-1]))
    assert 1e-5 < document["suggestion"] < 1.0


def test_a_range_test_whose_first_loss_is_no_number_is_refused(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(tiny_model, tmp_path / "broken")) / "model.safetensors"
    weights = load_file(broken)
    save_file(
        {name: torch.full_like(weight, math.nan) for name, weight in weights.items()},
        broken,
        {"format": "pt"},
    )
    with pytest.raises(DivergedError, match="the loss is nan before anything was learned"):
        find_rate(recipe_of(broken.parent, opinions))


def losses_of(job: Job, folder: RunFolder) -> list[float]:
    run(job, folder)
    lines = [json.loads(line) for line in folder.history.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_layer_decay_trains_slower(tiny_model: Path, opinions: Path, tmp_path: Path) -> None:
    fields = {"training.epochs": 4, "optimizer.learning_rate": 5e-3}
    complete = losses_of(
        prepare(recipe_of(tiny_model, opinions, **fields)), RunFolder.create(tmp_path / "whole")
    )
    fields |= {"optimizer.layer_decay": 0.385}
    decayed = losses_of(
        prepare(recipe_of(tiny_model, opinions, **fields)), RunFolder.create(tmp_path / "decayed")
    )
    assert decayed[0] == complete[0]
    assert complete[-1] < decayed[-1] < decayed[0]
