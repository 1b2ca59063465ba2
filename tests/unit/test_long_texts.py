"""Texts longer than the model, by hand.

What is read of them, one loss, exact gradients, bounded memory.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

from bertctl.config.load import load_recipe
from bertctl.config.problems import RecipeError
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.inference.engine import Engine
from bertctl.modeling import window_pooling
from bertctl.modeling.build import load_trained
from bertctl.modeling.source import inspect_model
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.runtime.device import choose_compute
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.registry import TASKS
from bertctl.tasks.sequences import DocumentFeatures, SequenceFeatures
from bertctl.tokenization.long_texts import LongText
from bertctl.training.finetune import RunOptions, run
from bertctl.training.job import Job, prepare
from bertctl.training.loop.step import training_step
from bertctl.training.loop.training_engine import build_engine
from tests.tiny_recipes import tiny_recipe

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 10  # eight tokens beside [CLS] and [SEP]


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model / "tokenizer.json"))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 rows of 1 to 4 windows of 10 tokens, shuffled."""
    file = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    fill = itertools.cycle(["the", "film", "it", "was", "food", "a", "very"])
    rows = ["text,label"]
    for i, length in enumerate([3, 20, 5, 9, 26, 1, 14, 6] * 3):
        words = list(itertools.islice(fill, length))
        words.insert((5 * i) % (length + 1), "good" if i % 3 else "bad")
        rows.append(f"{' '.join(words)},{'pos' if i % 3 else 'neg'}")
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def window_recipe(tiny_model: Path, data: Path, **more: Any) -> Recipe:
    fields = {"model.long_text": "window", "model.window_stride": 3, "model.max_length": LENGTH}
    return tiny_recipe(tiny_model, data, **{**fields, **more})


def read(
    tokenizer: Tokenizer,
    texts: list[str],
    mode: str,
    pairs: list[str] | None = None,
    stride: int = 3,
) -> Any:
    recipe = load_recipe(
        "text-classification", options={"model.long_text": mode, "model.max_length": LENGTH}
    )
    if mode == "window":
        recipe = load_recipe(
            "text-classification",
            options={
                "model.long_text": mode,
                "model.max_length": LENGTH,
                "model.window_stride": stride,
            },
        )
    columns = {"text": texts, **({"pair": pairs} if pairs else {})}
    task = TASKS["text-classification"].from_model(recipe, {"id2label": {0: "a", 1: "b"}})
    return task.encode(
        Rows("x", columns, [str(i) for i in range(len(texts))], "x"), tokenizer, max_length=LENGTH
    )


def pieces(tokenizer: Tokenizer, encoded: Any) -> list[str]:
    texts = []
    for start, end in itertools.pairwise(encoded.starts):
        tokens = [tokenizer.id_to_token(int(token_id)) for token_id in encoded.ids[start:end]]
        cls, *inner, sep = tokens
        assert cls == "[CLS]"
        assert sep == "[SEP]"
        texts.append("".join(inner).replace("[SEP]", "|"))
    return texts


TEXTS_OF_20_2_8_9 = [
    " ".join(LETTERS[:20]),
    "a b",
    " ".join(LETTERS[:8]),
    " ".join(LETTERS[:9]),
]


def test_what_each_mode_reads(tokenizer: Tokenizer) -> None:
    for mode, first, last in (
        ("head", "abcdefgh", "abcdefgh"),
        ("tail", "mnopqrst", "bcdefghi"),
        ("head-tail", "abopqrst", "abdefghi"),
    ):
        features = read(tokenizer, TEXTS_OF_20_2_8_9, mode)

        assert type(features) is SequenceFeatures
        assert pieces(tokenizer, features.encoded) == [first, "ab", "abcdefgh", last]
        assert features.truncated_tokens.tolist() == [12, 0, 0, 1]
        assert features.tokens.tolist() == [10, 4, 10, 10]


def test_windows_read_all_of_a_text(tokenizer: Tokenizer) -> None:
    """A step of 8 - 3; the last window of a text is filled up with what stands before it."""
    features = read(tokenizer, TEXTS_OF_20_2_8_9, "window")

    first_windows = ["abcdefgh", "ab", "abcdefgh", "abcdefgh"]
    other_windows = ["fghijklm", "klmnopqr", "mnopqrst", "bcdefghi"]
    assert pieces(tokenizer, features.all_windows) == first_windows + other_windows
    assert features.owners.tolist() == [0, 1, 2, 3, 0, 0, 0, 3]
    assert features.windows.tolist() == [4, 1, 1, 2]
    assert features.tokens.tolist() == [22, 4, 10, 11]
    assert features.lengths.tolist() == [10, 4, 10, 10]
    assert features.truncated_tokens.tolist() == [0, 0, 0, 0]


def test_pairs_lose_the_same_tokens_at_the_other_end(tokenizer: Tokenizer) -> None:
    first = [" ".join(LETTERS[:12]), "a"]
    second = ["x y z", "b"]
    room = {
        mode: pieces(tokenizer, read(tokenizer, first, mode, second).encoded)
        for mode in ("head", "tail", "head-tail")
    }
    assert room == {
        "head": ["abcd|xyz", "a|b"],
        "tail": ["ijkl|xyz", "a|b"],
        "head-tail": ["ajkl|xyz", "a|b"],
    }
    types = [read(tokenizer, first, mode, second).encoded.type_ids.tolist() for mode in room]
    assert types[0] == types[1] == types[2]


@pytest.mark.parametrize("mode", ["tail", "head-tail", "window"])
def test_texts_that_fit_are_the_same_numbers_in_all_modes(tokenizer: Tokenizer, mode: str) -> None:
    texts = ["a b c", "good film", " ".join(LETTERS[:8])]
    head = read(tokenizer, texts, "head")
    other = read(tokenizer, texts, mode)
    assert type(other) is SequenceFeatures
    for name in ("ids", "type_ids", "starts"):
        np.testing.assert_array_equal(getattr(other.encoded, name), getattr(head.encoded, name))


def test_a_batch_has_the_first_windows_of_all_before_the_others(tokenizer: Tokenizer) -> None:
    features = read(
        tokenizer,
        ["a b", " ".join(LETTERS[:20]), " ".join(LETTERS[:9]), " ".join(LETTERS[:13])],
        "window",
    )
    assert isinstance(features, DocumentFeatures)
    inputs = features.collate(np.array([3, 0, 1]), Padding(0)).inputs
    assert inputs["owners"].tolist() == [0, 1, 2, 0, 2, 2, 2]
    last = inputs["input_ids"][range(7), inputs["attention_mask"].sum(1) - 2].tolist()
    assert [tokenizer.id_to_token(i) for i in last] == ["h", "b", "h", "m", "m", "r", "t"]


def trained_like(job: Job) -> Any:
    """The network's logits of documents, computed plainly.

    All windows at once, all their activations kept.
    """
    network = job.loaded.network
    features = job.features["train"]

    def logits(indices: np.ndarray) -> torch.Tensor:
        inputs = features.collate(indices, job.loaded.padding).inputs
        owners = inputs.pop("owners")
        states = network.bert(**inputs).pooler_output
        vectors = torch.stack([states[owners == i].mean(0) for i in range(len(indices))])
        return network.classifier(vectors)

    return logits


def gradients(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    actual = {
        name: parameter.grad.clone()
        for name, parameter in network.named_parameters()
        if parameter.grad is not None
    }
    network.zero_grad()
    return actual


def test_the_gradient_is_that_of_the_whole_document(
    tiny_model: Path, reviews: Path, tmp_path: Path
) -> None:
    job = prepare(window_recipe(tiny_model, reviews, **{"model.window_pooling": "mean"}))
    engine = build_engine(job, RunFolder(tmp_path), RunOptions().workers)
    engine.network.train()
    indices = np.arange(8)
    results = {}
    for count in (1, 4, 8):
        result = training_step(
            engine, job.features["train"], indices, WindowRandom(0), micro_batches=count
        )
        results[count] = (result.loss, gradients(job.loaded.network))
    loss = torch.nn.functional.cross_entropy(
        trained_like(job)(indices),
        job.objective.batch(job.features["train"], indices, WindowRandom(0)).gold,
    )
    loss.backward()
    torch.nn.utils.clip_grad_norm_(job.loaded.network.parameters(), engine.max_grad_norm)
    complete = gradients(job.loaded.network)
    for of_step, by_step in results.values():
        assert of_step == pytest.approx(float(loss.detach()), abs=1e-6)
        assert by_step.keys() == complete.keys()
        for name, gradient in complete.items():
            torch.testing.assert_close(by_step[name], gradient, atol=2e-6, rtol=1e-4)


def plainly(run: Any, *, use_reentrant: bool, **inputs: torch.Tensor) -> Any:
    """In the place of torch's `checkpoint`: all activations are kept."""
    assert not use_reentrant
    return run(**inputs)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_dropout_is_drawn_again_as_it_was(
    precision: str, tiny_model: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that are computed twice give the gradients of chunks that are kept.

    They do to the last bit.
    """
    more = {
        "model.dropout": 0.3,
        "model.window_pooling": "attention",
        "runtime.precision": precision,
    }
    job = prepare(window_recipe(tiny_model, reviews, **more))
    engine = build_engine(job, RunFolder(tmp_path), RunOptions().workers)
    engine.network.train()
    retained = {}
    for how in ("again", "kept"):
        if how == "kept":
            monkeypatch.setattr(window_pooling, "checkpoint", plainly)
        torch.manual_seed(5)
        training_step(engine, job.features["train"], np.arange(8), WindowRandom(0), micro_batches=1)
        retained[how] = gradients(job.loaded.network)
    assert "window_pooling.query" in retained["again"]
    assert float(retained["again"]["window_pooling.query"].abs().max()) > 0
    for name, gradient in retained["kept"].items():
        assert torch.equal(retained["again"][name], gradient), name


def test_no_more_windows_are_computed_at_once_than_the_batch_has_texts(
    tiny_model: Path, reviews: Path
) -> None:
    job = prepare(window_recipe(tiny_model, reviews))
    sizes: list[int] = []
    job.loaded.network.bert.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    engine = Engine.of(job.loaded, job.compute)
    features = job.features["train"]
    engine.forward(job.task, features, batch_size=1)
    assert set(sizes) == {1}
    assert len(sizes) == features.windows.sum()
    sizes.clear()
    engine.forward(job.task, features, batch_size=5)
    assert max(sizes) == 5


def test_a_text_that_fits_has_the_same_bits_beside_long_ones(
    tiny_model: Path, reviews: Path
) -> None:
    results = {}
    for mode in ("head", "tail", "window"):
        more = {} if mode == "window" else {"model.window_stride": None}
        job = prepare(window_recipe(tiny_model, reviews, **{"model.long_text": mode, **more}))
        passed = Engine.of(job.loaded, job.compute).forward(
            job.task, job.features["train"], batch_size=7
        )
        results[mode] = passed.outputs["logits"]
        fits = job.features["train"].tokens + job.features["train"].truncated_tokens <= LENGTH
    assert 10 < fits.sum() < len(fits)
    for mode in ("tail", "window"):
        np.testing.assert_array_equal(results[mode][fits], results["head"][fits])
        assert np.abs(results[mode][~fits] - results["head"][~fits]).max() > 1e-6


def attention_scores(vectors: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """As the documents have it.

    A query over D values, and one number each for the first and the last window.
    """
    size = vectors.shape[1]
    scores = vectors @ query[:size] * size**0.5
    scores[0] += size * query[size]
    scores[-1] += size * query[size + 1]
    return scores


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "attention", "logits"])
def test_poolings_by_hand(pooling: str) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(6, 5)
    owners = torch.tensor([0, 1, 2, 0, 2, 2])
    last = torch.nn.Linear(5, 3)
    module = window_pooling.WindowPooling(pooling, 5)
    if pooling == "attention":
        with torch.no_grad():
            module.query.copy_(torch.randn(7))
    parts = [vectors[[0, 3]], vectors[[1]], vectors[[2, 4, 5]]]
    by_hand = {
        "mean": [part.mean(0) for part in parts],
        "max": [part.max(0).values for part in parts],
        "first": [part[0] for part in parts],
        "logits": [part.mean(0) for part in parts],
    }
    if pooling == "attention":
        weights = [torch.exp(attention_scores(part, module.query)) for part in parts]
        by_hand["attention"] = [
            (w[:, None] * part).sum(0) / w.sum() for w, part in zip(weights, parts, strict=True)
        ]
    torch.testing.assert_close(module(vectors, owners, last), last(torch.stack(by_hand[pooling])))


@pytest.fixture(scope="module")
def attentive(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, reviews: Path
) -> Iterator[RunFolder]:
    """A run with attention over windows, 2 epochs."""
    more = {
        "model.window_pooling": "attention",
        "training.epochs": 2,
        "optimizer.learning_rate": 0.05,
    }
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "attentive")
    run(prepare(window_recipe(tiny_model, reviews, **more)), folder)
    return folder


def test_the_attention_is_saved_and_loaded(attentive: RunFolder) -> None:
    query = load_file(attentive.model / "model.safetensors")["window_pooling.query"]
    assert float(query.abs().max()) > 0.01
    config = json.loads((attentive.model / "config.json").read_text())
    assert config["long_text"] == {
        "long_text": "window",
        "max_length": LENGTH,
        "window_stride": 3,
        "window_pooling": "attention",
    }
    recipe = load_recipe(str(attentive.recipe))
    source = inspect_model(recipe.model.model_copy(update={"name": str(attentive.model)}))
    loaded = load_trained(
        attentive.path, source, "AutoModelForSequenceClassification", choose_compute(recipe.runtime)
    )
    assert torch.equal(loaded.network.window_pooling.query, query)


def test_plain_transformers_reads_the_saved_model(attentive: RunFolder) -> None:
    """Windows given one by one, weighed by the saved vector, are the run's answers."""
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        attentive.model
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(attentive.model)
    query = load_file(attentive.model / "model.safetensors")["window_pooling.query"]
    lines = [
        json.loads(line) for line in attentive.predictions("validation").read_text().splitlines()
    ]
    assert {line["windows"] for line in lines} == {1, 2, 3, 4, 5}
    for line in lines:
        content = tokenizer(line["text"], add_special_tokens=False)["input_ids"]
        starts = [0] if len(content) <= 8 else [*range(0, len(content) - 8, 5), len(content) - 8]
        windows = [
            [tokenizer.cls_token_id, *content[at : at + 8], tokenizer.sep_token_id] for at in starts
        ]
        assert len(windows) == line["windows"]
        with torch.inference_mode():
            vectors = torch.cat(
                [network.bert(torch.tensor([window])).pooler_output for window in windows]
            )
            weights = torch.softmax(attention_scores(vectors, query), dim=0)
            probabilities = torch.softmax(network.classifier(weights @ vectors), dim=-1)
        assert probabilities.tolist() == pytest.approx(
            [line["probabilities"][name] for name in ("neg", "pos")], abs=1e-5
        )


def test_another_task_starts_without_the_windows_of_the_one_before(
    attentive: RunFolder, reviews: Path
) -> None:
    job = prepare(tiny_recipe(attentive.model, reviews, **{"model.max_length": LENGTH}))
    assert not hasattr(job.loaded.network, "window_pooling")
    assert not hasattr(job.loaded.network.config, "long_text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model.window_stride": 4},
            "model.window_stride: of use only with model.long_text: window",
        ),
        (
            {"model.window_pooling": "max", "model.long_text": "tail"},
            "model.window_pooling: of use only with",
        ),
        (
            {"model.long_text": "window", "model.max_length": 16, "model.window_stride": 14},
            "at most 13|13 at most",
        ),
        ({"model.long_text": "windows"}, "window"),
    ],
)
def test_fields_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe("text-classification", options=options)


@pytest.mark.parametrize("task", ["token-classification", "question-answering", "multiple-choice"])
def test_other_tasks_refuse_a_mode(task: str) -> None:
    with pytest.raises(
        RecipeError, match=f"model.long_text: for one answer about a text, not for '{task}'"
    ):
        load_recipe(task, options={"model.long_text": "window"})


def test_windows_over_pairs_are_refused_before_torch(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("text,pair,label\na b,c,x\nb a,d,y\nb,d,y\na,d,x\n", encoding="utf-8")
    more = {"data.text_column": "text", "data.pair_column": "pair"}
    with pytest.raises(UsageError, match="window slides over one text, and these are pairs"):
        prepare(window_recipe(tiny_model, file, **more))


def test_what_each_mode_keeps_is_counted_as_it_is_read(tokenizer: Tokenizer) -> None:
    rng = np.random.default_rng(0)
    texts = [
        " ".join(LETTERS[int(i) % 26] for i in rng.integers(0, 26, n))
        for n in rng.integers(1, 60, 50)
    ]
    features = read(tokenizer, texts, "window", stride=2)
    retained = LongText("window", LENGTH, 2).kept(features.encoded.full_lengths)
    assert retained["windows"] == features.windows.sum()
    assert retained["most_windows"] == features.windows.max()
    assert retained["too_long"] == (features.windows > 1).sum()
    assert retained["kept"] == pytest.approx(
        features.encoded.lengths.sum() / features.encoded.full_lengths.sum()
    )
    assert retained["advised"] == "window"
    assert LongText("head", 100).kept(features.encoded.full_lengths)["advised"] == "head"
    assert (
        LongText("head", LENGTH).kept(features.encoded.full_lengths, pair=True)["advised"]
        == "head-tail"
    )
    assert LongText("head", LENGTH).kept(np.array([10_000, 5]))["advised"] == "head-tail"
