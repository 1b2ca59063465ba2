"""Attention as transformers gives it, patterns and importance.

Plain loops count the patterns, and scissors measure the importance.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Encoding

from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.errors import UsageError
from bertctl.inference.trained import open_run
from bertctl.interpretability.attention import AttentionReader, numbers_in, read_attention, sides_of
from bertctl.interpretability.head_importance import measure_importance
from bertctl.interpretability.head_patterns import PATTERNS, measure_patterns
from bertctl.modeling.source import inspect_model
from bertctl.run_folder import RunFolder
from bertctl.tokenization.stream import TextChunk
from bertctl.training.finetune import run as finetune_run
from bertctl.training.job import prepare
from tests.tiny_recipes import tiny_recipe

TEXT = "the film was good and the film was warm"
PAIR = "it was a surprise"


def reader(folder: Path, **options: int) -> AttentionReader:
    source = inspect_model(ModelSection(name=str(folder), max_length=4))
    return AttentionReader(source, RuntimeSection(device="cpu", threads=1), **options)


def test_layers_and_heads_can_be_chosen(tiny_model: Path) -> None:
    opened = reader(tiny_model)
    every = read_attention(opened, TEXT)
    some = read_attention(opened, TEXT, layers="-1", heads="3,1")
    assert some["layers"].tolist() == [2]
    assert some["heads"].tolist() == [1, 3]
    np.testing.assert_array_equal(some["attentions"], every["attentions"][1:, [0, 2]])
    np.testing.assert_array_equal(some["queries"], every["queries"][1:, [0, 2]])
    arrays = {name for name, value in some.items() if isinstance(value, np.ndarray)}
    assert arrays == {
        "tokens",
        "sides",
        "layers",
        "heads",
        "attentions",
        "queries",
        "keys",
        "scaling",
    }


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (None, (1, 2, 3, 4)),
        ("2", (2,)),
        ("3-4,1", (1, 3, 4)),
        ("-1", (4,)),
        ("-4, 2 - 3", (1, 2, 3)),
    ],
)
def test_typed_numbers_and_ranges_become_sorted_positions(
    typed: str | None, expected: tuple[int, ...]
) -> None:
    assert numbers_in(typed, 4, "layer") == expected


@pytest.mark.parametrize(
    "typed", ["0", "5", "-5", "-6", "-9", "3-2", "1-9", "two", "", "1,,2", "1--2", "99999999999"]
)
def test_numbers_that_no_layer_has_are_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="has no layer"):
        numbers_in(typed, 4, "layer")


def test_a_text_is_cut_at_the_models_longest(tiny_model: Path) -> None:
    attention = read_attention(reader(tiny_model), "bad " * 100)
    assert len(attention["tokens"]) == 41
    assert attention["cut"] == 61
    short = read_attention(reader(tiny_model, max_length=10), "bad " * 100)
    assert len(short["tokens"]) == 10
    assert short["cut"] == 92


def _patterns_of(encoding: Encoding, weights: np.ndarray) -> dict[str, list[float]]:
    """What each token of a text pays to whatever the patterns name, by plain loops; one head."""
    sides = sides_of(encoding)
    actual = {name: [] for name in (*PATTERNS, "distance", "entropy")}
    for i, side in enumerate(sides):
        if side < 0:
            continue
        row = weights[i]
        others = {
            "next": [i + 1] if i + 1 < len(sides) and sides[i + 1] >= 0 else [],
            "previous": [i - 1] if i and sides[i - 1] >= 0 else [],
            "itself": [i],
            "same": [
                j for j, other in enumerate(encoding.ids) if other == encoding.ids[i] and j != i
            ],
            "cls": [0],
            "delimiters": [j for j, token in enumerate(encoding.tokens) if token == "[SEP]"],
            "other": [j for j, other in enumerate(sides) if other >= 0 and other != side],
        }
        for name, positions in others.items():
            if positions:
                actual[name].append(sum(row[j] for j in positions))
        actual["distance"].append(sum(share * abs(i - j) for j, share in enumerate(row)))
        actual["entropy"].append(-sum(share * math.log(share) for share in row if share))
    return actual


@pytest.mark.parametrize("pairs", [None, [PAIR, "good", "bad film ."]])
def test_patterns_are_what_loops_count(tiny_model: Path, pairs: list[str] | None) -> None:
    texts = [TEXT, "good", "it was very very very bad !"]
    opened = reader(tiny_model)
    chunks = [TextChunk(["", " ", *texts], pairs and ["x", "y", *pairs])]  # empty ones are left out
    patterns = measure_patterns(opened, chunks)

    encodings, _ = opened.encode(TextChunk(texts, pairs))
    attentions = [
        read_attention(opened, text, pairs and pairs[i])["attentions"]
        for i, text in enumerate(texts)
    ]
    for layer in range(2):
        for head in range(3):
            expected: dict[str, list[float]] = {}
            for encoding, weights in zip(encodings, attentions, strict=True):
                for name, values in _patterns_of(encoding, weights[layer, head]).items():
                    expected[name] = expected.get(name, []) + values
            for name, values in expected.items():
                assert (name in patterns["columns"]) is bool(values)
                if values:
                    assert patterns["columns"][name][layer, head] == pytest.approx(
                        np.mean(values), abs=1e-5
                    ), name
                    assert patterns["counts"][name] == len(values)
    assert patterns["texts"] == 3
    assert patterns["cut"] == 0
    assert ("other" in patterns["columns"]) is (pairs is not None)


def test_no_text_is_no_pattern(tiny_model: Path) -> None:
    with pytest.raises(UsageError, match="no texts to read"):
        measure_patterns(reader(tiny_model), [TextChunk([]), TextChunk([" ", ""])])
    assert measure_patterns(reader(tiny_model), [TextChunk(["good"] * 9)] * 2)["texts"] == 18


@pytest.fixture(scope="module")
def importance(tiny_run):
    run = open_run(tiny_run.path, options={"runtime.device": "cpu", "runtime.threads": 1})
    return run, measure_importance(run, ablate=True)


def test_a_head_is_missed_as_if_it_had_been_cut_off(importance) -> None:
    run, actual = importance
    engine = run.load(plain=True)
    rows = run.task.encode(_validation(run), engine.tokenizer, max_length=32)

    def losses() -> np.ndarray:
        passed = engine.forward(run.task, rows, batch_size=32).losses
        assert passed is not None
        return passed

    complete = losses()
    assert actual["loss"] == pytest.approx(complete.mean(), abs=1e-6)
    for layer, head in [(0, 0), (0, 2), (1, 1)]:
        output = engine.backend.network.bert.encoder.layer[layer].attention.output.dense.weight
        retained = output.detach().clone()
        with torch.no_grad():
            output[:, 12 * head : 12 * (head + 1)] = 0.0  # what it says reaches nothing
        gaps = losses() - complete
        with torch.no_grad():
            output.copy_(retained)
        assert actual["columns"]["loss_rise"][layer, head] == pytest.approx(gaps.mean(), abs=1e-5)
        assert actual["columns"]["loss_error"][layer, head] == pytest.approx(
            gaps.std(ddof=1) / math.sqrt(len(gaps)), abs=1e-5
        )
    assert np.abs(actual["columns"]["loss_rise"]).max() > 1e-3
    assert actual["metric"] == "accuracy"
    assert actual["rows"] == len(complete)


@pytest.fixture(scope="module")
def importance_of_tags(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path):
    folder = tmp_path_factory.mktemp("tags")
    data = folder / "tags.conll"
    data.write_text(
        "good B-X\nfilm O\n\nit O\nwas O\nnot B-X\nvery I-X\nfine I-X\n\nbad B-X\n",
        encoding="utf-8",
    )
    recipe = tiny_recipe(tiny_model, data, **{"task": "token-classification", "training.epochs": 1})
    finetune_run(prepare(recipe), RunFolder.create(folder / "run"))
    run = open_run(folder / "run", options={"runtime.device": "cpu", "runtime.threads": 1})
    return run, measure_importance(run, ablate=False)


@pytest.mark.parametrize("made", ["importance", "importance_of_tags"])
def test_a_gradient_is_the_slope_of_the_loss(made: str, request: pytest.FixtureRequest) -> None:
    run, actual = request.getfixturevalue(made)
    engine = run.load(plain=True)
    rows = run.task.encode(_validation(run), engine.tokenizer, max_length=32)
    for layer, head in [(0, 1), (1, 2)]:
        output = engine.backend.network.bert.encoder.layer[layer].attention.output.dense.weight
        retained = output.detach().clone()
        ends = []
        for gate in (0.99, 1.01):
            with torch.no_grad():
                output.copy_(retained)
                output[:, 12 * head : 12 * (head + 1)] *= gate
            ends.append(engine.forward(run.task, rows, batch_size=32).losses / rows.weights)
        with torch.no_grad():
            output.copy_(retained)
        slopes = np.abs((ends[1] - ends[0]) / 0.02)
        assert actual["columns"]["gradient"][layer, head] == pytest.approx(
            slopes.mean(), rel=0.02, abs=1e-5
        )


def _validation(run):
    from bertctl.data.recipe_data import load_data

    data = load_data(run.recipe)
    return data.splits[data.validation_splits[0]]
