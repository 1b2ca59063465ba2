"""Numbers of `explain`: sums, words, what is left out, against torch by hand and captum."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr

from bertctl.errors import UsageError
from bertctl.inference.rows_to_answer import split_rows, text_rows
from bertctl.inference.trained import TrainedRun, open_run
from bertctl.interpretability.attribution import BINS, METHODS, TOLERANCE, integrated_gradients
from bertctl.interpretability.embeddings import EmbeddedNetwork
from bertctl.interpretability.explain import Asked, Explainer
from bertctl.interpretability.lines import Line
from bertctl.modeling.fast.fast_linear import use_fast_linears
from bertctl.reporting.explanations import doubts, passages
from bertctl.run_folder import RunFolder
from bertctl.runtime.device import Compute
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from tests.tiny_recipes import tiny_recipe

TEXTS = [
    "the film was not very good",
    "bad food, it was dull",
    "fine",
    "a very, very poor zigzag film",
]
IG = "integrated-gradients"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> TrainedRun:
    """A random classifier of three labels whose answers depend on the text."""
    folder = tmp_path_factory.mktemp("classifier")
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    network = transformers.BertForSequenceClassification.from_pretrained(tiny_model, num_labels=3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3)
    network.config.id2label = {0: "red", 1: "green", 2: "blue"}
    network.save_pretrained(folder)
    return open_run(
        folder, options={"runtime.device": "cpu", "runtime.threads": 1, "runtime.precision": "bf16"}
    )


def explained(
    trained: TrainedRun, texts: list[str] = TEXTS, **options: Any
) -> list[dict[str, Any]]:
    explainer = Explainer(trained, Asked(**options))
    rows = text_rows(trained, texts, [])
    return list(explainer.explain([rows]))


def explained_target(trained: TrainedRun, text: str = TEXTS[0], **options: Any) -> dict[str, Any]:
    """The only target of one text."""
    [row] = explained(trained, [text], **options)
    [target] = row["targets"]
    return target


def network_of(trained: TrainedRun) -> tuple[EmbeddedNetwork, list[Line]]:
    """The network, and the lines of the texts."""
    explainer = Explainer(trained, Asked())
    objective: Any = trained.task.objective(explainer.engine.padding)
    tokenizer = explainer.engine.tokenizer
    lines = []
    for text in TEXTS:
        ids = np.array(tokenizer.encode(text).ids, dtype=np.int64)
        word = np.array([-1, *range(len(ids) - 2), -1])
        words = [{"word": str(i)} for i in range(len(ids) - 2)]
        lines.append(Line(ids, np.zeros_like(ids), word, ((1,),), words))
    return EmbeddedNetwork(explainer.engine, objective, explainer.baseline[0]), lines


def test_attributions_add_up_to_the_change_of_the_logit(trained: TrainedRun) -> None:
    for text, row in zip(TEXTS, explained(trained), strict=True):
        [target] = row["targets"]
        facts = target["methods"][IG]
        assert target["label"] == row["prediction"]
        assert facts["converged"]
        assert facts["apart"] == 0.0, "special tokens are the same in the baseline"
        total = sum(word[IG] for word in target["words"])
        assert abs(total - facts["change"]) == pytest.approx(facts["error"], abs=1e-9)
        assert facts["error"] <= TOLERANCE * abs(facts["change"])
        for word in target["words"]:
            assert text[word["start"] : word["end"]] == word["word"]
    words = [word["word"] for word in explained(trained)[1]["targets"][0]["words"]]
    assert words == ["bad", "food", ",", "it", "was", "dull"]


def test_change_and_value_are_logits_of_transformers(trained: TrainedRun) -> None:
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        trained.folder.path
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained.folder.path)
    for text, row in zip(TEXTS, explained(trained), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        empty = inputs["input_ids"].clone()
        empty[:, 1:-1] = tokenizer.pad_token_id
        with torch.inference_mode():
            here = network(**inputs).logits[0]
            there = network(**{**inputs, "input_ids": empty}).logits[0]
        label = int(here.argmax())
        [target] = row["targets"]
        assert target["value"] == pytest.approx(float(here[label]), abs=1e-5), (
            "fp32, though the run says bf16"
        )
        assert target["methods"][IG]["change"] == pytest.approx(
            float(here[label] - there[label]), abs=1e-5
        )


def test_gradient_x_input_is_that_of_autograd(trained: TrainedRun) -> None:
    path = trained.folder.path
    network = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    inputs = tokenizer(TEXTS[0], return_tensors="pt")
    embeddings = network.get_input_embeddings()
    vectors = embeddings(inputs.pop("input_ids")).detach().requires_grad_()
    logits = network(inputs_embeds=vectors, **inputs).logits[0]
    logits.max().backward()
    products = (vectors.grad * vectors).sum(dim=2)[0]
    cls, *expected, sep = products.tolist()

    target = explained_target(trained, methods=("gradient-x-input",))

    attributions = [word["gradient-x-input"] for word in target["words"]]
    assert attributions == pytest.approx(expected, abs=1e-5)
    of_special_tokens = target["methods"]["gradient-x-input"]["apart"]
    assert of_special_tokens == pytest.approx(cls + sep, abs=1e-5)


def test_a_word_is_left_out_and_the_words_behind_it_move_up(trained: TrainedRun) -> None:
    [row] = explained(trained, [TEXTS[0]], methods=("leave-one-out",))
    [target] = row["targets"]

    words = TEXTS[0].split()
    shorter_texts = [" ".join(words[:i] + words[i + 1 :]) for i in range(len(words))]
    expected = []
    for shorter in explained(trained, shorter_texts, label=row["prediction"]):
        [shorter_target] = shorter["targets"]
        expected.append(target["value"] - shorter_target["value"])
    attributions = [word["leave-one-out"] for word in target["words"]]
    assert attributions == pytest.approx(expected, abs=1e-5)


def test_faithfulness_is_what_is_lost_without_and_with_the_first_words_alone(
    trained: TrainedRun,
) -> None:
    [row] = explained(trained, [TEXTS[0]], methods=("leave-one-out",))
    [target] = row["targets"]

    attributions = np.array([word["leave-one-out"] for word in target["words"]])
    order = np.argsort(-attributions, kind="stable")
    words = np.array(TEXTS[0].split())

    def loss_of_value(words: np.ndarray) -> float:
        shorter = explained_target(trained, " ".join(words), label=row["prediction"])
        return target["value"] - shorter["value"]

    losses_without = []
    losses_alone = []
    for share in BINS:
        n_first = math.ceil(6 * share)
        is_first = np.isin(np.arange(6), order[:n_first])
        losses_without.append(loss_of_value(words[~is_first]))
        losses_alone.append(loss_of_value(words[is_first]))
    faithfulness = target["faithfulness"]["leave-one-out"]
    assert faithfulness["comprehensiveness"] == pytest.approx(np.mean(losses_without), abs=1e-5)
    assert faithfulness["sufficiency"] == pytest.approx(np.mean(losses_alone), abs=1e-5)


def test_rollout_is_the_product_of_the_layers_with_their_residual_path(trained: TrainedRun) -> None:
    path = trained.folder.path
    network = transformers.AutoModel.from_pretrained(path, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    inputs = tokenizer(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        attentions = network(**inputs, output_attentions=True).attentions
    n_tokens = inputs["input_ids"].shape[1]
    rollout = torch.eye(n_tokens)
    for attention in attentions:
        mean_of_heads = attention[0].mean(dim=0)
        with_residual = (mean_of_heads + torch.eye(n_tokens)) / 2
        rollout = with_residual @ rollout
    cls, *expected, sep = rollout[0].tolist()

    target = explained_target(trained, methods=("rollout",))

    attributions = [word["rollout"] for word in target["words"]]
    assert attributions == pytest.approx(expected, abs=1e-5)
    assert target["methods"]["rollout"]["apart"] == pytest.approx(cls + sep, abs=1e-5)


@pytest.mark.parametrize("reads", ["all", "last"])
def test_rollout_ends_at_the_states_that_the_head_reads(
    tiny_model: Path, tmp_path: Path, reads: str
) -> None:
    """ModernBERT's head may read the mean of all tokens.

    A decoder's reads the last one, though [CLS] is first.
    """
    shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    sizes = {
        "vocab_size": 1 + max(tokenizer.get_vocab().values()),
        "hidden_size": 32,
        "intermediate_size": 48,
    }
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    sizes |= {"pad_token_id": tokenizer.pad_token_id}
    own: Any = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    config = (
        transformers.ModernBertConfig(
            **sizes, **own, classifier_pooling="mean", cls_token_id=2, sep_token_id=3
        )
        if reads == "all"
        else transformers.LlamaConfig(**sizes, **own, num_key_value_heads=4)
    )
    torch.manual_seed(0)
    network = transformers.AutoModelForSequenceClassification.from_config(
        config, attn_implementation="eager"
    ).eval()
    network.save_pretrained(tmp_path / "model")
    inputs = tokenizer(TEXTS[0], return_tensors="pt")
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        layers = [
            layer[0].mean(dim=0) for layer in network(**inputs, output_attentions=True).attentions
        ]
    flow = one = torch.eye(len(layers[0]))
    for layer in layers:
        flow = (layer + one) / 2 @ flow
    expected = flow.mean(dim=0) if reads == "all" else flow[-1]
    options = {"runtime.device": "cpu", "runtime.threads": 1, "runtime.precision": "fp32"}
    [target] = explained(
        open_run(tmp_path / "model", options=options), [TEXTS[0]], methods=("rollout",)
    )[0]["targets"]
    assert [word["rollout"] for word in target["words"]] == pytest.approx(
        expected[1:-1].tolist(), abs=1e-5
    )
    assert sum(word["rollout"] for word in target["words"]) > 0.1


def test_batches_change_nothing_and_a_repeat_is_equal_to_the_byte(trained: TrainedRun) -> None:
    together = explained(trained, methods=tuple(METHODS))
    assert explained(trained, methods=tuple(METHODS)) == together
    alone = [explained(trained, [text], methods=tuple(METHODS))[0] for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        ours = one["targets"][0]
        theirs = other["targets"][0]
        for name in METHODS:
            assert [w[name] for w in ours["words"]] == pytest.approx(
                [w[name] for w in theirs["words"]], abs=2e-4
            )


def test_steps_that_are_too_few_are_told(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertctl.interpretability.attribution.TOLERANCE", 1e-12)
    monkeypatch.setattr("bertctl.interpretability.attribution.MOST_STEPS", 16)
    explainer = Explainer(trained, Asked())
    rows = list(explainer.explain([text_rows(trained, TEXTS, [])]))
    assert all(row["targets"][0]["methods"][IG]["steps"] >= 16 for row in rows)
    assert not any(row["targets"][0]["methods"][IG]["converged"] for row in rows)
    assert explainer.summary()["not_converged"] == len(TEXTS)
    assert explained(trained, steps=3)[0]["targets"][0]["methods"][IG]["steps"] == 3


def test_a_text_that_is_the_baseline_needs_no_steps_whatever_rounding_says(
    trained: TrainedRun,
) -> None:
    network, [line, *_] = network_of(trained)
    empty = line.without(np.ones(len(line.words), dtype=np.bool_))
    noise = iter(np.linspace(0, 1e-7, 1000))
    values = network.gradients

    def gradients(*given: Any, **more: Any) -> Any:
        found, products = values(*given, **more)
        return found * [1 + next(noise) for _ in found], products

    network.gradients = gradients
    [explained_empty] = integrated_gradients(network, [empty], None)
    assert explained_empty.facts["change"] != 0.0, "the premise"
    assert explained_empty.facts["converged"] is True
    assert explained_empty.facts["steps"] == 5


def test_doubled_steps_and_gauss_legendre_agree(trained: TrainedRun) -> None:
    network, lines = network_of(trained)
    for doubled, fixed in zip(
        *(integrated_gradients(network, lines, steps) for steps in (None, 200)), strict=True
    ):
        most = np.abs(fixed.words).max()
        assert fixed.facts["error"] < 1e-4
        assert doubled.words == pytest.approx(fixed.words, abs=0.05 * most)


@pytest.mark.slow
def test_equal_to_captum_at_the_same_steps(trained: TrainedRun) -> None:
    attr = pytest.importorskip(
        "captum.attr", reason="the oracle of integrated gradients; no dependency"
    )
    network, lines = network_of(trained)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        trained.folder.path
    ).eval()
    explainer = attr.LayerIntegratedGradients(
        lambda ids: theirs(ids).logits[:, 1], theirs.get_input_embeddings(), multiply_by_inputs=True
    )
    for steps in (8, 50):
        for line, found in zip(lines, integrated_gradients(network, lines, steps), strict=True):
            ids = torch.from_numpy(line.ids)[None]
            empty = ids.clone()
            empty[:, 1:-1] = network.baseline
            expected = (
                explainer.attribute(ids, baselines=empty, n_steps=steps)
                .sum(dim=2)[0]
                .detach()
                .numpy()
            )
            assert found.words == pytest.approx(expected[1:-1], abs=1e-4)


def test_the_faster_product_has_the_gradient_of_torch() -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Linear(7, 5), torch.nn.GELU(), torch.nn.Linear(5, 3, bias=False)
    )
    x = torch.randn(2, 4, 7, requires_grad=True)

    def gradient() -> torch.Tensor:
        loss = plain(x).square().sum()
        (of_inputs,) = torch.autograd.grad(loss, x)
        return of_inputs

    expected = gradient()
    use_fast_linears(plain, Compute("cpu", "fp32", 1, ""))

    torch.testing.assert_close(gradient(), expected, atol=1e-4, rtol=1e-4)


def test_the_second_text_of_a_pair_is_read(trained: TrainedRun) -> None:
    rows = text_rows(trained, ["good film", "bad"], ["dull food", ""])
    assert rows.columns == {"text": ["good film", "bad"], "pair": ["dull food", ""]}
    one, _ = Explainer(trained, Asked()).explain([rows])
    assert [word["column"] for word in one["targets"][0]["words"]] == [
        "text",
        "text",
        "pair",
        "pair",
    ]


def test_labels_and_methods_that_there_are_not_are_refused(trained: TrainedRun) -> None:
    with pytest.raises(UsageError, match="did you mean green"):
        explained(trained, label="gren")
    with pytest.raises(UsageError, match="did you mean rollout"):
        explained(trained, methods=("rolout",))
    assert [row["targets"][0]["label"] for row in explained(trained, label="blue")] == [
        "blue"
    ] * len(TEXTS)


def test_a_network_that_reads_its_token_table_elsewhere_is_refused(trained: TrainedRun) -> None:
    network, lines = network_of(trained)
    twice: Any = network.engine.backend
    table: Any = twice.network.get_input_embeddings()

    def ask_again(_: Any, __: Any, found: torch.Tensor) -> torch.Tensor:
        return found + table(torch.zeros(1, dtype=torch.long))

    pooled = twice.network.bert.pooler.register_forward_hook(ask_again)
    with pytest.raises(UsageError, match="no single table of token vectors"):
        network.require_path(lines, "bert")
    pooled.remove()
    network.require_path(lines, "bert")


def test_the_last_layer_gives_the_first_token_alone_where_no_other_is_read(
    trained: TrainedRun,
) -> None:
    network, lines = network_of(trained)
    shares = np.full(len(lines), 0.3)
    whole = network.gradients(lines, shares)
    network.require_path(lines, "bert")
    assert network.first_alone
    for one, other in zip(network.gradients(lines, shares), whole, strict=True):
        assert np.concatenate(one, axis=None) == pytest.approx(
            np.concatenate(other, axis=None), abs=1e-5
        )
    pooler: Any = network.engine.network.bert.pooler
    hook = pooler.register_forward_pre_hook(lambda _, given: (given[0].mean(dim=1, keepdim=True),))
    network.require_path(lines, "bert")
    assert not network.first_alone
    hook.remove()


@pytest.fixture(scope="module")
def cued(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> TrainedRun:
    """A run in which one word alone decides the label."""
    folder = tmp_path_factory.mktemp("cued")
    rng = np.random.default_rng(0)
    words = np.array(
        ["good", "bad", "film", "food", "not", "very", "the", "a", "was", "it", "fine", "poor"]
    )
    rows = []
    for i in range(400):
        text = list(rng.choice(words, size=rng.integers(4, 9)))
        if i % 2:
            text.insert(int(rng.integers(len(text) + 1)), "zqx")
        rows.append(f"{' '.join(text)},{'yes' if i % 2 else 'no'}")
    for name, part in (("train", rows[:200]), ("held", rows[200:])):
        (folder / f"{name}.csv").write_text(
            "text,label\n" + "\n".join(part) + "\n", encoding="utf-8"
        )
    options: dict[str, Any] = {
        "training.epochs": 4,
        "optimizer.learning_rate": 3e-3,
        "training.log_every": 100,
    }
    recipe = tiny_recipe(
        tiny_model,
        folder / "train.csv",
        **{"data.validation_file": str(folder / "held.csv"), **options},
    )
    finished = run(prepare(recipe), RunFolder.create(folder / "run"))
    assert finished.metrics.as_json()["metrics"]["validation"]["accuracy"]["value"] == 1.0, (
        "the premise"
    )
    return open_run(folder / "run")


def test_a_planted_cue_is_the_top_word(cued: TrainedRun) -> None:
    rows = split_rows(cued, "validation")
    planted = rows.select([i for i, text in enumerate(rows.columns["text"]) if "zqx" in text])
    explainer = Explainer(cued, Asked())
    tops = []
    for row in explainer.explain([planted]):
        words = row["targets"][0]["words"]
        tops.append(max(words, key=lambda word: word[IG])["word"])
    assert len(tops) == 100
    assert tops.count("zqx") >= 99
    errors = explainer.summary()["faithfulness"][IG]["standard_errors"]
    assert min(errors.values()) >= 5, "a random order is beaten"


@pytest.mark.slow
def test_other_weights_give_other_words(cued: TrainedRun, tmp_path: Path) -> None:
    shutil.copytree(cued.folder.path, tmp_path / "run")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(cued.folder.model)
    torch.manual_seed(1)
    for module in network.modules():  # Adebayo et al. 2018: what explains weights must mind them
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            torch.nn.init.normal_(module.weight, std=0.3)
    network.save_pretrained(tmp_path / "run" / "model")
    rows = split_rows(cued, "validation").select(range(50))
    requests = Asked(faithful_rows=0)

    explained_rows = Explainer(cued, requests).explain([rows])
    explained_others = Explainer(open_run(tmp_path / "run"), requests).explain([rows])

    correlations = []
    for row, other_row in zip(explained_rows, explained_others, strict=True):
        attributions = [word[IG] for word in row["targets"][0]["words"]]
        other_attributions = [word[IG] for word in other_row["targets"][0]["words"]]
        correlations.append(spearmanr(attributions, other_attributions).statistic)
    assert abs(np.mean(correlations)) < 0.2


def test_words_and_places_move_with_what_is_taken_out() -> None:
    line = Line(
        np.arange(10, 17),
        np.zeros(7, dtype=np.int64),
        np.array([-1, 0, 0, 1, 2, 2, -1]),
        ((4, 1), (5, 0)),
        [{}] * 3,
    )
    is_first_word = np.array([True, False, False])
    is_second_word = np.array([False, True, False])

    without_first = line.without(is_first_word)
    without_second = replace(line, places=((2,),)).without(is_second_word)

    assert line.removable.tolist() == [True, True, False]
    assert line.of_words(np.arange(7.0)).tolist() == [3, 3, 9, 6]
    assert without_first.ids.tolist() == [10, 13, 14, 15, 16]
    assert without_first.places == ((2, 1), (3, 0))
    assert without_second.places == ((2,),), "a place before it stays"


def test_a_label_of_texts_that_looks_like_a_tag_has_no_other_name(trained: TrainedRun) -> None:
    task: Any = trained.task
    like_a_tag = replace(trained, task=replace(task, labels=("B-side", "green", "blue")))
    with pytest.raises(UsageError, match="side"):
        Asked(label="side").check(like_a_tag)


def test_a_note_gives_no_number_of_a_word_that_has_none() -> None:
    words = [{"word": "Anna", "column": "words", "leave-one-out": None}]
    words += [{"word": "sings", "column": "words", "leave-one-out": 0.5}]
    words = [word | {"start": i, "end": i + 1} for i, word in enumerate(words)]
    target = {"type": "PER", "value": 1.0, "words": words, "methods": {"leave-one-out": {}}}
    (passage,) = passages({"id": "0", "prediction": ["B-PER", "O"], "targets": [target]})
    assert passage.note == "sings +0.50"


@pytest.mark.parametrize(
    ("own", "chance", "told"), [(3.97, 4.12, True), (0.0, 0.0, True), (4.12, 3.97, False)]
)
def test_words_that_matter_no_more_than_random_ones_are_doubted(own, chance, told):
    figures = {
        "rollout": {"comprehensiveness": own, "targets": 1},
        "random": {"comprehensiveness": chance},
    }
    sentences = doubts({"faithfulness": figures})
    assert bool(sentences) == told
    assert all("rollout" in sentence for sentence in sentences)
