"""What `training.preset: auto` chooses, and what wins over it.

It stands resolved in what a run leaves.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers

from bertctl.config.dump import dump_recipe
from bertctl.config.load import NULL, load_recipe
from bertctl.config.presets import AUTO_FIELDS, fields_left_to_auto
from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.jobs.run_recipe import run_recipe as finetune
from bertctl.sweeps.grid import read_grid
from bertctl.sweeps.plan import read_plan, settle_plan
from bertctl.sweeps.prepare import SweepRequest, make_sweep
from bertctl.training.auto_settings import (
    TrainingTraits,
    epochs,
    layer_decay,
    learning_rate,
    lora_learning_rate,
    resolve_auto,
)
from bertctl.training.job import prepare

GENERIC = (
    "text-classification",
    "text-regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
)
BY_SEED = [{"init": 1, "order": 1}, {"init": 2, "order": 2}]


def traits(**changed: Any) -> TrainingTraits:
    usual: dict[str, Any] = {
        "n_rows": 5000,
        "n_labels": 2,
        "width": 768,
        "n_layers": 12,
        "has_shared_layers": False,
    }
    return TrainingTraits(**usual | changed)


def auto_recipe(tiny_model: Path, data: Path, **options: Any) -> Recipe:
    """The generic recipe on a few opinions: all but the length is left to `auto`.

    An option that is None is left to it, too.
    """
    fields = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "model.head_start": "random",
        "training.checkpoint_every": "off",
        "runtime.precision": "fp32",
        "runtime.device": "cpu",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
    }
    fields.update(options)
    closed_fields = {name: value for name, value in fields.items() if value is not None}
    return load_recipe("text-classification", options=closed_fields)


def test_bert_base_keeps_the_middle_of_the_papers_grid() -> None:
    assert learning_rate(traits(width=768, n_layers=12)) == 3e-5
    assert epochs(traits(n_rows=20_000)) == 3


def test_the_rate_falls_with_width_and_depth_and_stays_in_bounds() -> None:
    shapes = [(128, 2), (256, 4), (384, 6), (512, 8), (768, 12), (1024, 24), (4096, 48)]

    rates = [learning_rate(traits(width=width, n_layers=n_layers)) for width, n_layers in shapes]

    assert rates == sorted(rates, reverse=True)
    assert rates[0] <= 5e-4
    assert rates[-1] == 1e-5
    assert learning_rate(traits(width=0, n_layers=0)) == 3e-5, "a config.json that does not say"


def test_fewer_rows_have_more_epochs_but_never_fewer_steps() -> None:
    sizes = [10, 60, 200, 500, 1000, 3000, 5000, 10_000, 100_000, 1_000_000]

    passes = [epochs(traits(n_rows=size)) for size in sizes]

    assert passes == sorted(passes, reverse=True)
    assert passes[0] <= 20
    assert passes[-1] == 3
    steps = [size * n_epochs for size, n_epochs in zip(sizes, passes, strict=True)]
    assert steps == sorted(steps)


def test_more_labels_have_at_least_as_high_a_learning_rate() -> None:
    rates = [learning_rate(traits(width=384, n_layers=6, n_labels=n)) for n in (1, 2, 5, 50, 200)]

    assert rates == [1e-4, 1e-4, 1e-4, 2e-4, 3e-4]


def test_the_learning_rate_of_lora_does_not_follow_from_the_labels() -> None:
    few = lora_learning_rate(traits(width=384, n_layers=6, n_labels=2))
    many = lora_learning_rate(traits(width=384, n_layers=6, n_labels=200))

    assert few == many


def test_more_labels_have_at_least_as_many_epochs() -> None:
    passes = [epochs(traits(n_rows=1000, n_labels=n_labels)) for n_labels in (1, 2, 5, 50, 200)]

    assert passes == sorted(passes)
    assert passes[-1] <= 2 * passes[0]


def test_many_tags_have_no_more_epochs_as_a_sentence_teaches_many_of_them(
    tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    words = ["good"] * 12
    tags = [f"TAG{number}" for number in range(12)]
    row = json.dumps({"words": words, "tags": tags})
    path.write_text(f"{row}\n" * 20)
    fields = {
        "data.train_file": str(path),
        "data.validation_file": str(path),
        "model.name": str(tiny_model),
        "model.max_length": 40,
        "evaluation.baselines": False,
        "runtime.device": "cpu",
    }

    job = prepare(load_recipe("token-classification", options=fields))

    assert job.recipe.training.epochs == epochs(traits(n_rows=20))
    assert epochs(traits(n_rows=20, n_labels=12)) > epochs(traits(n_rows=20))


def test_layers_that_share_their_weights_have_one_rate() -> None:
    assert layer_decay(traits(has_shared_layers=True)) == 1.0


def test_macro_f1_chooses_the_weights_where_nearly_all_rows_have_one_label_and_says_so() -> None:
    recipe = load_recipe("text-classification")

    resolved, sentence = resolve_auto(recipe, traits(majority_share=0.98))
    usual, usual_sentence = resolve_auto(recipe, traits(majority_share=0.7))

    assert resolved.evaluation.primary_metric == "f1_macro"
    assert "98 % of the rows have one label" in sentence
    assert usual.evaluation.primary_metric is None
    assert "one label" not in usual_sentence


def test_a_metric_that_is_given_stays_where_nearly_all_rows_have_one_label() -> None:
    recipe = load_recipe("text-classification", sets=["evaluation.primary_metric=accuracy"])

    resolved, _ = resolve_auto(recipe, traits(majority_share=0.98))

    assert resolved.evaluation.primary_metric == "accuracy"


def test_the_share_of_the_most_frequent_label_is_that_of_the_training_rows(
    tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    lines = [
        f"the film was good {number},{'neg' if number % 20 else 'pos'}" for number in range(60)
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n")

    job = prepare(auto_recipe(tiny_model, path))

    assert job.primary == "f1_macro"
    assert "95 % of the rows have one label" in job.chosen


@pytest.mark.parametrize("tie_breaker", ["first", "loss"])
def test_of_equal_evaluations_the_first_one_or_the_one_with_the_lowest_loss_is_the_best(
    tie_breaker: str, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    options = {
        "training.epochs": 4,
        "training.tie_breaker": tie_breaker,
        "optimizer.learning_rate": 1e-6,
    }
    recipe = auto_recipe(tiny_model, opinions, **options, **{"training.average_best": NULL})

    result = finetune(recipe, output=tmp_path / "run")

    lines = [json.loads(line) for line in result.folder.history.read_text().splitlines()]
    evaluations = [line for line in lines if "validation_loss" in line]
    best = max(line["validation_accuracy"] for line in evaluations)
    equal = [line for line in evaluations if line["validation_accuracy"] == best]
    expected = equal[0]
    if tie_breaker == "loss":
        expected = min(equal, key=lambda line: line["validation_loss"])
    assert len(equal) > 1, "with so small a rate no answer changes"
    assert result.metrics.as_json()["best_step"] == expected["step"]


@pytest.mark.parametrize("name", GENERIC)
def test_the_generic_recipes_leave_their_values_to_auto(name: str) -> None:
    open_fields = fields_left_to_auto(load_recipe(name))

    own_fields = {"model.max_length"} if name == "question-answering" else set()
    assert set(AUTO_FIELDS) - set(open_fields) == own_fields


@pytest.mark.parametrize("name", ["sst2", "mrpc-small", "demo", "few-shot", "sentence-embeddings"])
def test_recipes_with_values_of_their_own_leave_none(name: str) -> None:
    assert not fields_left_to_auto(load_recipe(name))


def test_whatever_is_given_is_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: text-classification\ntraining: {epochs: 7}\n")

    recipe = load_recipe(
        str(path),
        sets=["training.average_best=null"],
        options={"optimizer.learning_rate": 1e-3, "training.batch_size": 4},
    )
    resolved, sentence = resolve_auto(recipe, traits(n_rows=100))

    assert resolved.training.epochs == 7
    assert resolved.training.average_best is None
    assert resolved.training.batch_size == 4
    assert resolved.optimizer.learning_rate == 1e-3
    assert sentence == "auto: layer decay 0.9"


def test_the_preset_on_the_command_line_replaces_the_values_of_a_recipe() -> None:
    recipe = load_recipe("sst2", sets=["training.preset=auto", "training.epochs=2"])

    assert set(AUTO_FIELDS) - set(fields_left_to_auto(recipe)) == {"training.epochs"}


def test_an_open_recipe_is_written_and_read_back_open(tmp_path: Path) -> None:
    recipe = load_recipe("text-classification", sets=["training.average_best=9"])
    path = tmp_path / "shown.yaml"

    path.write_text(dump_recipe(recipe, command="bertctl finetune x"))

    again = load_recipe(str(path))
    assert "# learning_rate: auto" in path.read_text()
    assert again == recipe
    assert fields_left_to_auto(again) == fields_left_to_auto(recipe)
    assert resolve_auto(again, traits())[0].training.epochs == 9, (
        "as many evaluations as are averaged"
    )


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("few-shot", "none for few-shot training"),
        ("sentence-embeddings", "none for the task 'sentence-embeddings'"),
    ],
)
def test_auto_is_refused_where_it_knows_nothing(recipe: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_recipe(recipe, sets=["training.preset=auto"])


def test_steps_and_accumulation_that_are_given_fit_what_is_chosen() -> None:
    recipe = load_recipe(
        "text-classification", sets=["training.max_steps=50", "training.accumulation_steps=3"]
    )

    resolved, sentence = resolve_auto(recipe, traits())

    assert resolved.training.batch_size % 3 == 0
    assert resolved.training.average_best is None, "there is one evaluation"
    assert "epoch" not in sentence


def test_one_epoch_averages_nothing() -> None:
    recipe = load_recipe("text-classification", options={"training.epochs": 1})

    resolved, _ = resolve_auto(recipe, traits())

    assert resolved.training.average_best is None


def test_a_run_says_what_was_chosen_and_replays_and_resumes_without_the_preset(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    recipe = auto_recipe(tiny_model, opinions, **{"training.epochs": 1})
    job = prepare(recipe)

    folder = finetune(recipe, output=tmp_path / "run").folder

    written = load_recipe(str(folder.recipe))
    assert written.training.preset is None
    assert written.optimizer == job.recipe.optimizer
    assert job.chosen.startswith(f"auto: learning rate {job.recipe.optimizer.learning_rate:g} (")
    assert prepare(written).hash == job.hash
    assert not finetune(recipe, output=folder.path, resume=True).trained, (
        "the same run, found again"
    )


def test_a_sweep_leaves_the_fields_beside_its_grid_to_auto(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    recipe = auto_recipe(tiny_model, opinions)
    request = SweepRequest(recipe, read_grid("training.epochs=1,2"), BY_SEED)

    sweep = make_sweep(request, tmp_path / "sweep")

    single = prepare(auto_recipe(tiny_model, opinions, **{"training.epochs": 2})).recipe
    chosen = {cell.recipe.optimizer.model_dump_json() for cell in sweep.cells}
    assert chosen == {single.optimizer.model_dump_json()}
    assert [cell.recipe.training.epochs for cell in sweep.cells] == [1, 1, 2, 2]
    assert {cell.recipe.training.preset for cell in sweep.cells} == {None}
    plan = settle_plan(sweep.plan, tmp_path / "sweep")
    base = read_plan(tmp_path / "sweep").base_recipe()
    assert set(AUTO_FIELDS) - set(fields_left_to_auto(base)) == {"model.max_length"}
    assert plan.identity() == read_plan(tmp_path / "sweep").identity()


def test_folds_of_unequal_size_are_trained_alike(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = [f"the film was good {number},{'pos' if number % 2 else 'neg'}" for number in range(29)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    recipe = auto_recipe(tiny_model, path, **{"data.validation_file": NULL})

    sweep = make_sweep(SweepRequest(recipe, [{}], BY_SEED[:1], folds=3), tmp_path / "sweep")

    assert len({cell.recipe.training.model_dump_json() for cell in sweep.cells}) == 1


def test_a_folder_of_an_auto_run_is_named_by_the_values_that_were_chosen(
    tiny_model: Path, opinions: Path
) -> None:
    job = prepare(auto_recipe(tiny_model, opinions))
    dump = job.recipe.model_dump()
    sections = [dotted.partition(".") for dotted in AUTO_FIELDS]
    supplied = {f"{section}.{name}": dump[section][name] for section, _, name in sections}
    options = {dotted: NULL if value is None else value for dotted, value in supplied.items()}

    written_out = auto_recipe(tiny_model, opinions, **options, **{"training.preset": NULL})

    assert prepare(written_out).hash == job.hash


@pytest.fixture(scope="module")
def long_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with BERT's 512 positions."""
    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(tiny_model, folder)
    config = transformers.BertConfig.from_pretrained(tiny_model, max_position_embeddings=512)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def rows_of_words(folder: Path, *lengths: int) -> Path:
    """Labelled texts of so many words, each a token of the tiny model."""
    path = folder / "long.jsonl"
    rows = [
        {"text": " ".join(["good"] * length), "label": "ab"[number % 2]}
        for number, length in enumerate(lengths)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("lengths", "max_length"),
    [
        ([100] * 40, 128),
        ([100] * 39 + [400], 128),
        ([150] * 40, 192),
        ([100] * 30 + [250] * 10, 256),
        ([250] * 38 + [600] * 2, 256),
        ([600] * 40, 256),
    ],
)
def test_texts_are_read_as_far_as_nearly_all_of_them_go(
    long_model: Path, tmp_path: Path, lengths: list[int], max_length: int
) -> None:
    data = rows_of_words(tmp_path, *lengths)
    recipe = auto_recipe(long_model, data, **{"model.max_length": None})

    job = prepare(recipe)

    assert job.recipe.model.max_length == max_length
    assert max(job.features["train"].lengths) == min(max_length, max(lengths) + 2)
    is_said = f"{max_length} tokens of a text" in job.chosen
    assert is_said == (max_length > 128)


@pytest.mark.parametrize(
    "options", [{"model.max_length": 100}, {"model.long_text": "window", "model.max_length": None}]
)
def test_a_length_that_is_given_and_windows_are_left_alone(
    long_model: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    data = rows_of_words(tmp_path, *[200] * 40)

    job = prepare(auto_recipe(long_model, data, **options))

    assert job.recipe.model.max_length == (options["model.max_length"] or 128)
    assert "tokens of a text" not in job.chosen


def test_all_runs_of_a_sweep_read_as_far_and_are_encoded_once(
    long_model: Path, tmp_path: Path
) -> None:
    data = rows_of_words(tmp_path, *[180] * 40)
    recipe = auto_recipe(long_model, data, **{"model.max_length": None})
    request = SweepRequest(recipe, read_grid("training.epochs=1,2"), BY_SEED)

    sweep = make_sweep(request, tmp_path / "sweep")

    assert {cell.recipe.model.max_length for cell in sweep.cells} == {192}
    assert {cell.key for cell in sweep.cells} == set(sweep.encoded)
    assert len(sweep.encoded) == 1
