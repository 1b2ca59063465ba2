"""The numbers of pretraining.

Transformers' losses and steps, pairs, masks that no split of a batch changes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertctl.catalog.models import locate_model
from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.inference.engine import TorchBackend
from bertctl.modeling.load import load_tokenizer_of
from bertctl.modeling.source import inspect_model
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.runtime.device import Compute
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.batches import IGNORED
from bertctl.tasks.pretraining.corpus_windows import (
    CorpusWindows,
    MaskedBatch,
    cut_windows,
    mixed,
    word_begins,
)
from bertctl.tasks.pretraining.pretraining_objective import PretrainingObjective
from bertctl.tasks.pretraining.task import Pretraining
from bertctl.tokenization.packing import PackedText, pack_in_memory
from bertctl.training.finetune import run
from bertctl.training.first_weights import token_vectors
from bertctl.training.loop.loop import plan_epoch
from bertctl.training.pretrain import prepare

DEMO = Path("bertctl/catalog/demo_corpus").resolve()


def corpus_recipe(corpus: Path, **options: Any) -> Recipe:
    """A tiny new BERT on a corpus, fp32, one thread, no dropout.

    `options` by dotted name say otherwise.
    """
    fields = {
        "pretraining.corpus": [str(corpus)],
        "pretraining.from_scratch": "tiny",
        "pretraining.vocab_size": 1000,
        "model.max_length": 48,
        "model.dropout": 0.0,
        "training.max_steps": 20,
        "training.log_every": 1,
        "training.batch_size": 8,
        "training.checkpoint_every": "off",
        "optimizer.learning_rate": 1e-3,
        "runtime.precision": "fp32",
        "runtime.device": "cpu",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
    }
    return load_recipe("pretrain", options={**fields, **options})


def losses_of(folder: RunFolder) -> list[float]:
    lines = [json.loads(line) for line in folder.history.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def trained(recipe: Recipe, folder: Path) -> RunFolder:
    run_folder = RunFolder.create(folder)
    run(prepare(recipe), run_folder)
    return run_folder


@pytest.fixture(scope="module")
def minilm() -> Any:
    return load_tokenizer_of(
        inspect_model(load_recipe("demo").model), "AutoModelForMaskedLM", head={}
    )


def own_words(tokenizer: Any) -> list[int]:
    """Tokens that are words of letters."""
    return [number for number in range(2200, 2600) if tokenizer.id_to_token(number).isalpha()]


def _windows(
    tokenizer: Any, objective: str = "mlm+nsp", *, length: int = 64, documents: int = 50
) -> CorpusWindows:
    """Windows of documents whose n-th has no word but one of its own."""
    words = [tokenizer.id_to_token(number) for number in own_words(tokenizer)[:documents]]
    texts = [
        [f"{word} {word} {word} {word}." for _ in range(1 + n % 30)] for n, word in enumerate(words)
    ]
    recipe = load_recipe("pretrain", options={"pretraining.objective": objective})
    return Pretraining.of(recipe).windows(
        pack_in_memory(texts, tokenizer), tokenizer, length, held_out=False
    )


@pytest.mark.parametrize(
    ("objective", "kind"),
    [
        pytest.param("mlm", "BertForMaskedLM", marks=pytest.mark.slow),
        ("mlm+nsp", "BertForPreTraining"),
    ],
)
def test_losses_of_20_steps_are_those_of_transformers(
    tmp_path: Path, objective: str, kind: str
) -> None:
    job = prepare(corpus_recipe(DEMO, **{"pretraining.objective": objective}))
    network = getattr(transformers, kind)(job.loaded.network.config)
    network.load_state_dict(job.loaded.network.state_dict())
    folder = RunFolder.create(tmp_path / "run")
    features = job.features["train"]
    padding = job.loaded.padding
    run(job, folder)
    plain = {name: p for name, p in network.named_parameters() if p.ndim > 1}
    others = [p for p in network.parameters() if p.ndim <= 1]
    groups = [
        {"params": list(plain.values()), "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 1, 20)  # 6 % of 20 steps
    expected = []
    for step, indices in enumerate(plan_epoch(job.recipe, features, 0)[:20]):
        batch = features.masked(indices, padding, WindowRandom(42, 0, step))
        network.train()
        by_name = {} if batch.order is None else {"next_sentence_label": batch.order}
        loss = network(**batch.inputs, labels=batch.labels, **by_name).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert losses_of(folder) == pytest.approx(expected, abs=1e-4)
    assert len(expected) == 20


def test_only_masked_places_go_through_the_vocabulary(minilm: Any) -> None:
    source = locate_model("minilm")
    network = transformers.BertForMaskedLM.from_pretrained(source).eval()
    observed: list[int] = []
    network.cls.register_forward_hook(lambda *given: observed.append(given[2].shape[1]))
    features = _windows(minilm, "mlm")
    batch = features.masked(np.arange(8), Padding(0), WindowRandom(1))
    backend = TorchBackend(network, True, Compute("cpu", "fp32", 1, ""))
    with torch.no_grad():
        actual = PretrainingObjective(Padding(0)).forward(backend, batch)
        complete = network(**batch.inputs).logits[batch.gold != IGNORED]
    assert observed[0] == len(actual.gold) == int((batch.gold != IGNORED).sum())
    assert torch.allclose(actual.words, complete, atol=1e-5)


def _sides(batch: MaskedBatch, row: int) -> list[set[int]]:
    """The tokens of both parts of a window, as they were before they were masked."""
    gold = batch.gold[row]
    input_ids = batch.inputs["input_ids"][row]
    ids = torch.where(gold == IGNORED, input_ids, gold)
    segments = batch.inputs["token_type_ids"][row]
    is_token = batch.inputs["attention_mask"][row] == 1
    first_ids = ids[is_token & (segments == 0)]
    second_ids = ids[is_token & (segments == 1)]
    return [set(first_ids.tolist()), set(second_ids.tolist())]


def test_half_of_the_pairs_follow_and_the_others_come_from_another_document(minilm: Any) -> None:
    features = _windows(minilm)
    personal = set(own_words(minilm))
    orders = []
    for epoch in range(20):
        batch = features.masked(np.arange(len(features)), Padding(0), WindowRandom(3, epoch))
        orders += batch.order.tolist()
        for row, order in enumerate(batch.order.tolist()):
            first, second = (side & personal for side in _sides(batch, row))
            if first and second:  # a part may be a full stop alone
                assert (first == second) == (order == 0)
    assert len(orders) > 1500
    assert np.mean(orders) == pytest.approx(0.5, abs=0.04)


def test_the_order_of_sentences_is_turned_within_a_window(minilm: Any) -> None:
    features = _windows(minilm, "mlm+sop")
    batch = features.masked(np.arange(len(features)), Padding(0), WindowRandom(3))
    assert all(
        len(set.union(*_sides(batch, row)) & set(range(3, 30000))) for row in range(len(features))
    )
    assert 0.3 < np.mean(batch.order.tolist()) < 0.7
    again = features.masked(np.arange(len(features)), Padding(0), WindowRandom(3))
    assert torch.equal(batch.inputs["input_ids"], again.inputs["input_ids"])


def test_masks_depend_on_seed_epoch_and_window_alone(minilm: Any) -> None:
    features = _windows(minilm)
    padding = Padding(0, width=64)
    complete = features.masked(np.arange(32), padding, WindowRandom(5, 1, 7))
    halves = [
        features.masked(np.arange(i, i + 16), padding, WindowRandom(5, 1, 900)) for i in (0, 16)
    ]
    for name in complete.inputs:
        assert torch.equal(complete.inputs[name], torch.cat([half.inputs[name] for half in halves]))
    other = features.masked(np.arange(32), padding, WindowRandom(5, 2, 7))
    assert not torch.equal(complete.gold, other.gold)


def test_special_tokens_and_padding_are_never_chosen(minilm: Any) -> None:
    features = _windows(minilm)
    batch = features.masked(np.arange(len(features)), Padding(0), WindowRandom(1))
    gold = batch.gold[batch.gold != IGNORED]
    assert not set(gold.tolist()) & {0, 101, 102, 103}
    assert not (batch.gold != IGNORED)[batch.inputs["attention_mask"] == 0].any()


def test_windows_are_whole_sentences_of_one_document(minilm: Any) -> None:
    text: PackedText = _windows(minilm).text
    starts, sizes, rows = cut_windows(text, 61)
    assert sizes.sum() == len(text.ids)
    assert np.isin(starts, text.sentences).all()
    assert (np.searchsorted(text.sentences[text.documents], starts, side="right") - 1 == rows).all()
    long = pack_in_memory([["word " * 300]], minilm)
    starts, sizes, _ = cut_windows(long, 61)
    assert sizes.sum() == 300
    assert all(word_begins(long, at, at + 1)[0] for at in starts.tolist())


def test_a_mix_leaves_no_window_out_and_has_its_weights() -> None:
    corpora = np.repeat([0, 1], [900, 100])
    chosen = mixed(corpora, [0.5, 0.5])
    assert set(chosen.tolist()) == set(range(1000))
    assert np.bincount(corpora[chosen]).tolist() == [900, 900]


@pytest.mark.slow
def test_accumulation_and_replay_change_nothing(tmp_path: Path) -> None:
    few = {"training.max_steps": 6}
    run = trained(corpus_recipe(DEMO, **few), tmp_path / "whole")
    parts = trained(
        corpus_recipe(DEMO, **few, **{"training.accumulation_steps": 4}), tmp_path / "parts"
    )
    assert losses_of(parts) == pytest.approx(losses_of(run), abs=1e-5)
    again = trained(load_recipe(str(run.recipe)), tmp_path / "again")
    assert again.metrics.read_bytes() == run.metrics.read_bytes()
    assert (again.model / "model.safetensors").read_bytes() == (
        run.model / "model.safetensors"
    ).read_bytes()


def _topics(tokenizer: Any, documents: int = 400) -> CorpusWindows:
    """Windows of documents about one of two things, each with ten words of its own."""
    words = [tokenizer.id_to_token(number) for number in own_words(tokenizer)[:20]]
    drawn = np.random.default_rng(0)
    texts = [
        [" ".join(drawn.choice(words[10 * (n % 2) :][:10], size=30))] for n in range(documents)
    ]
    recipe = load_recipe("pretrain", options={"pretraining.objective": "mlm"})
    return Pretraining.of(recipe).windows(
        pack_in_memory(texts, tokenizer), tokenizer, 64, held_out=False
    )


def test_first_vectors_are_a_factor_of_the_positive_information_of_tokens_that_stand_together(
    minilm: Any,
) -> None:
    windows = _topics(minilm)
    words = own_words(minilm)[:20]
    vectors = token_vectors(windows, minilm.get_vocab_size(), 128)
    counts = np.zeros((20, 20))
    for begin, length in zip(windows.starts, windows.sizes, strict=True):
        ids = np.searchsorted(words, windows.text.ids[begin : begin + length])
        np.add.at(counts, (ids[:, None], ids[None, :]), 1.0)
    np.fill_diagonal(counts, 0.0)
    tokens = counts.sum(axis=1)
    with np.errstate(divide="ignore"):
        information = np.log(
            counts * (tokens**0.75).sum() / (tokens[:, None] * tokens[None, :] ** 0.75)
        )
    left, strengths, _ = np.linalg.svd(np.maximum(information, 0.0))
    expected = left * np.sqrt(strengths)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.flatnonzero(vectors.any(axis=1)).tolist() == words
    likeness = vectors[words] @ vectors[words].T
    np.testing.assert_allclose(likeness, expected @ expected.T, atol=1e-3)
    assert likeness[:10, :10].mean() > likeness[:10, 10:].mean() + 0.5


def test_a_new_bert_begins_from_its_corpus_or_from_random_numbers(tmp_path: Path) -> None:
    of_corpus = prepare(corpus_recipe(DEMO)).loaded.network
    chosen = prepare(corpus_recipe(DEMO, **{"pretraining.first_weights": "corpus"})).loaded.network
    random = prepare(corpus_recipe(DEMO, **{"pretraining.first_weights": "random"})).loaded.network

    table = of_corpus.get_input_embeddings().weight
    random_table = random.get_input_embeddings().weight
    assert torch.equal(table, chosen.get_input_embeddings().weight)
    is_changed = (table != random_table).any(dim=1)
    assert 900 < int(is_changed.sum()) < 1000  # the special tokens occur in no text
    mean_norm = table[is_changed].norm(dim=1).mean().item()
    random_mean_norm = random_table[is_changed].norm(dim=1).mean().item()
    assert mean_norm == pytest.approx(random_mean_norm, rel=0.05)
    assert not random.get_output_embeddings().bias.any()
    probabilities = of_corpus.get_output_embeddings().bias.exp()
    assert probabilities.sum().item() == pytest.approx(1.0, abs=1e-4)
