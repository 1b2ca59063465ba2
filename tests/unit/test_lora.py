"""LoRA: what a layer computes, what is trained and saved, and how a run goes with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, inject_adapter_in_model
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import bertctl
from bertctl.cli.verbs.estimate import lora_speed
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import LoraSection
from bertctl.config.schema import Recipe
from bertctl.errors import InterruptedRunError, UnavailableError, UsageError
from bertctl.features.probe import prepare as prepare_probe
from bertctl.modeling.fast.packed_encoder import use_packed_encoder
from bertctl.modeling.lora import LoraLayer, lora_layers, scaling_of
from bertctl.run_folder import RunFolder
from bertctl.training import lora_checks
from bertctl.training.announce import beyond_plain
from bertctl.training.auto_settings import TrainingTraits, learning_rate, lora_learning_rate
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.estimate import Rehearsal, estimate_run
from bertctl.training.finetune import RunOptions, run
from bertctl.training.job import Job, prepare
from tests.heard import Interrupting
from tests.nursery import Nursery
from tests.stopping import digests_of
from tests.tiny_recipes import tiny_recipe

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alpha": {"alpha": 5.0},
    "rslora": {"rslora": True},
    "dora": {"dora": True},
    "dora and rslora": {"dora": True, "rslora": True},
}


def with_lora(tiny_model: Path, data: Path, **fields: Any) -> Recipe:
    return tiny_recipe(tiny_model, data, **{"lora.rank": 2, **fields})


def parts_of(kind: str) -> tuple[nn.Module, nn.Module]:
    """Two equal linear layers, 5 to 7 numbers."""
    torch.manual_seed(3)
    plain: nn.Module
    other: nn.Module
    if kind == "Conv1D":
        plain = Conv1D(7, 5)
        other = Conv1D(7, 5)
    else:
        plain = nn.Linear(5, 7, bias=kind == "Linear")
        other = nn.Linear(5, 7, bias=kind == "Linear")
    other.load_state_dict(plain.state_dict())
    return plain, other


@pytest.mark.parametrize("kind", ["Linear", "without bias", "Conv1D"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_layer_computes_as_that_of_peft_in_outputs_and_gradients(kind: str, variant: str) -> None:
    settings = LoraSection(rank=3, **VARIANTS[variant])
    plain, other = parts_of(kind)
    ours = LoraLayer(plain, settings)
    config = LoraConfig(
        r=3,
        lora_alpha=int(settings.alpha_in_use),
        use_rslora=settings.rslora,
        use_dora=settings.dora,
        fan_in_fan_out=kind == "Conv1D",
        target_modules=["0"],
    )
    theirs: Any = inject_adapter_in_model(config, nn.Sequential(other))[0]
    with torch.no_grad():
        ours.lora_B.normal_()
        theirs.lora_A["default"].weight.copy_(ours.lora_A)
        theirs.lora_B["default"].weight.copy_(ours.lora_B)
        if ours.lora_magnitude_vector is not None:
            ours.lora_magnitude_vector.mul_(1.5)
            theirs.lora_magnitude_vector["default"].weight.copy_(ours.lora_magnitude_vector)
    assert theirs.scaling["default"] == pytest.approx(scaling_of(settings))
    x = torch.randn(4, 5)
    expected = theirs(x)
    outputs = ours(x)
    assert torch.allclose(outputs, expected, atol=1e-5)
    outputs.square().sum().backward()
    expected.square().sum().backward()
    for name, module in (("lora_A", theirs.lora_A), ("lora_B", theirs.lora_B)):
        gradient = getattr(ours, name).grad
        assert torch.allclose(gradient, module["default"].weight.grad, rtol=1e-4, atol=1e-3), name
    ours.eval()
    assert torch.allclose(ours(x), expected, atol=1e-5)


def test_dropout_falls_on_what_the_update_reads_alone() -> None:
    plain, _ = parts_of("Linear")
    layer = LoraLayer(plain, LoraSection(rank=3, dropout=0.5))
    x = torch.randn(4000, 5)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    nn.init.normal_(layer.lora_B)
    torch.manual_seed(0)
    first = layer(x)
    assert not torch.allclose(first, layer(x))
    layer.eval()
    with torch.no_grad():
        assert torch.equal(layer(x), layer(x))
    update = layer(x) - nn.functional.linear(x, layer.weight, layer.bias)
    noisy = first - nn.functional.linear(x, layer.weight, layer.bias)
    share = (noisy * update).sum() / update.square().sum()
    assert share.item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("targets", [[], ["query", "output.dense"]], ids=["all", "some"])
def test_the_packed_encoder_computes_updates_as_the_layers_do(
    targets: list[str], tiny_model: Path, opinions: Path
) -> None:
    outputs: list[Tensor] = []
    gradients: list[dict[str, Tensor]] = []
    for is_packed in (False, True):
        job = prepare(with_lora(tiny_model, opinions, **{"lora.targets": targets}))
        network = job.loaded.network
        torch.manual_seed(1)
        for layer in lora_layers(network).values():
            nn.init.normal_(layer.lora_B, std=0.3)
        if is_packed:
            assert use_packed_encoder(network, job.compute)
        network.train()
        batch = job.features["train"].collate(np.arange(8), job.loaded.padding)
        logits = network(**batch.inputs).logits
        logits.square().sum().backward()
        outputs.append(logits.detach())
        gradients.append(
            {
                name: parameter.grad
                for name, parameter in network.named_parameters()
                if parameter.grad is not None
            }
        )
    assert torch.allclose(outputs[0], outputs[1], atol=1e-5)
    assert gradients[0].keys() == gradients[1].keys()
    assert len(gradients[0]) > 2 * len(targets)
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("field", ["lora.dora", "lora.dropout"])
def test_what_the_packed_encoder_does_not_know_the_layers_compute_and_the_run_says_so(
    field: str, tiny_model: Path, opinions: Path
) -> None:
    value = True if field == "lora.dora" else 0.1
    job = prepare(with_lora(tiny_model, opinions, **{field: value}))
    assert not use_packed_encoder(job.loaded.network, job.compute)
    assert any(sentence.startswith(field) for sentence in beyond_plain(job))
    job.loaded.network.train()


def test_the_updates_and_the_head_are_trained_and_nothing_else(
    tiny_model: Path, opinions: Path
) -> None:
    job = prepare(with_lora(tiny_model, opinions))
    model = job.loaded
    assert model.adapter is not None
    assert model.adapter.parts.modules_to_save == ("classifier",)
    linear = {
        name
        for name, module in prepare(
            tiny_recipe(tiny_model, opinions)
        ).loaded.network.named_modules()
        if isinstance(module, nn.Linear) and name != "classifier"
    }
    assert set(model.adapter.parts.target_modules) == linear
    trained = model.trainable_parameters().keys()
    updates = {f"{name}.{matrix}" for name in linear for matrix in ("lora_A", "lora_B")}
    assert trained == updates | {"classifier.weight", "classifier.bias"}
    assert model.trainable_state().keys() == trained
    assert job.used_tokens is None


def test_a_pooler_that_was_drawn_by_chance_is_trained_whole_and_is_in_the_adapter(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """As a BERT without a pooler, and `training.reinit_layers`, leave it."""
    job = prepare(with_lora(tiny_model, opinions, **{"training.reinit_layers": 1}))
    assert job.loaded.adapter is not None
    names = job.loaded.adapter.parts.modules_to_save
    assert "bert.pooler.dense" in names
    assert any(".layer.1." in name for name in names)
    assert not any(".layer.0." in name for name in names)
    job.loaded.save(tmp_path / "model")
    stored = load_file(tmp_path / "model" / "adapter" / "adapter_model.safetensors")
    assert "base_model.model.bert.pooler.dense.weight" in stored


def test_frozen_layers_get_no_update(tiny_model: Path, opinions: Path) -> None:
    """The premise: the tiny model has two layers."""
    job = prepare(with_lora(tiny_model, opinions, **{"training.freeze_layers": 1}))
    layers = lora_layers(job.loaded.network)
    assert any(".layer.1." in name for name in layers)
    assert not any(".layer.0." in name for name in layers)


def test_of_minilm_at_most_1_5_percent_are_trained_and_the_adapter_has_at_most_2_mb(
    opinions: Path, tmp_path: Path
) -> None:
    fields = {"data.train_file": str(opinions), "model.name": "minilm", "lora.rank": 8}
    job = prepare(load_recipe("text-classification", options=fields))
    counts = [parameter.numel() for parameter in job.loaded.network.parameters()]
    trained = [parameter.numel() for parameter in job.loaded.trainable_parameters().values()]
    assert sum(trained) <= 0.015 * sum(counts)
    job.loaded.save(tmp_path / "model")
    adapter = tmp_path / "model" / "adapter" / "adapter_model.safetensors"
    assert adapter.stat().st_size <= 2_000_000
    assert job.checkpoint_size < 3.1 * adapter.stat().st_size
    (sentence,) = (text for text in beyond_plain(job) if text.startswith("LoRA: "))
    assert f"{sum(trained):,} of {sum(counts):,} parameters are trained (1.5 %)" in sentence


RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "averaged": {"training.average_best": 2, "training.tie_breaker": "loss"},
    "unfreezing": {"training.gradual_unfreezing": True, "optimizer.layer_decay": 0.9},
    "kept layers": {"model.keep_layers": [2]},
    "head start": {"model.head_start": "probe"},
    "dora with dropout": {"lora.dora": True, "lora.dropout": 0.1, "model.dropout": 0.1},
}


@pytest.mark.parametrize("kind", RUNS)
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    kind: str, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    recipe = with_lora(
        tiny_model, opinions, **RUNS[kind], **{"training.checkpoint_every": "3 steps"}
    )
    undisturbed = run(prepare(recipe), RunFolder.create(tmp_path / "undisturbed")).folder
    folder = RunFolder.create(tmp_path / "interrupted")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(5))
    assert not folder.adapter.exists()
    job = prepare(recipe)
    checkpoint = Checkpoints(folder, job.hash).latest()
    assert checkpoint is not None
    saved = load_file(checkpoint.path / "model.safetensors")
    assert saved.keys() == job.loaded.trainable_state().keys()
    run(job, folder, checkpoint=checkpoint)
    assert digests_of(folder) == digests_of(undisturbed)
    assert len(digests_of(folder)) == 5


@pytest.mark.parametrize("when", ["each time", "at the end"])
def test_the_saved_model_is_scored_to_the_same_bytes_without_the_adapter(
    when: Any, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """As a new process reads it: plain files, no LoRA layer in the network."""
    options = RunOptions(model_file=when)
    recipe = with_lora(tiny_model, opinions)
    folder = run(prepare(recipe), RunFolder.create(tmp_path / "run"), options=options).folder
    assert not (folder.model / "adapter").exists()
    assert not any("lora" in name for name in load_file(folder.model / "model.safetensors"))
    config = json.loads((folder.adapter / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["peft_type"] == "LORA"
    assert config["modules_to_save"] == ["classifier"]
    written = folder.predictions("validation").read_bytes()
    folder.predictions("validation").unlink()
    bertctl.evaluate(folder.path, split="validation")
    assert folder.predictions("validation").read_bytes() == written


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft asks by it
def test_a_score_head_and_its_scale_are_in_the_adapter(tiny_model: Path, tmp_path: Path) -> None:
    """It is trained on standardised scores, and answers on the person's scale."""
    data = tmp_path / "scores.csv"
    texts = "".join(f"a {'very ' * (i % 4)}good film,{300 + 50 * (i % 4)}\n" for i in range(16))
    data.write_text("text,label\n" + texts, encoding="utf-8")
    recipe = with_lora(tiny_model, data)
    fields = {"data.train_file": str(data), "data.validation_file": str(data)}
    recipe = load_recipe(
        "text-regression",
        options={
            "model.name": str(tiny_model),
            "model.max_length": 32,
            "lora.rank": 2,
            "runtime.precision": "fp32",
            "optimizer.learning_rate": 1e-2,
            **fields,
        },
    )
    job = prepare(recipe)
    folder = run(job, RunFolder.create(tmp_path / "run")).folder
    batch = job.features["train"].collate(np.arange(4), job.loaded.padding)
    config = transformers.AutoConfig.from_pretrained(folder.model)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(
        tiny_model, config=config
    )
    adapted = PeftModel.from_pretrained(base, folder.adapter).eval()
    job.loaded.network.eval()
    with torch.no_grad():
        scores = adapted(**batch.inputs).logits
        trained = job.loaded.network(**batch.inputs).logits
    assert float(trained.mean()) > 200.0
    assert torch.allclose(scores, trained, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft asks by it
def test_the_encoder_of_sentence_embeddings_is_adapted_and_its_projection_is_in_the_model(
    tiny_model: Path, tmp_path: Path
) -> None:
    data = tmp_path / "pairs.csv"
    rows = "".join(f"good film {i},bad film {i},{i % 5}\n" for i in range(16))
    data.write_text("text,pair,label\n" + rows, encoding="utf-8")
    options = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 32,
        "sentence_embeddings.projection": 6,
        "lora.rank": 2,
        "training.epochs": 2,
        "optimizer.learning_rate": 1e-2,
        "runtime.precision": "fp32",
    }
    job = prepare(load_recipe("sentence-embeddings", options=options))
    folder = run(job, RunFolder.create(tmp_path / "run")).folder
    assert (folder.model / "2_Dense" / "model.safetensors").is_file()
    written = folder.predictions("validation").read_bytes()
    bertctl.evaluate(folder.path, split="validation")
    assert folder.predictions("validation").read_bytes() == written

    assert job.loaded.adapter is not None
    assert job.loaded.adapter.parts.modules_to_save == ()
    ids = torch.arange(5, 15)[None]
    plain = transformers.AutoModel.from_pretrained(folder.model).eval()
    base = transformers.AutoModel.from_pretrained(tiny_model)
    adapted = PeftModel.from_pretrained(base, folder.adapter).eval()
    with torch.no_grad():
        states = adapted(input_ids=ids).last_hidden_state
        expected = plain(input_ids=ids).last_hidden_state
    assert torch.allclose(states, expected, atol=1e-5)


def test_windows_of_long_texts_are_pooled_by_learned_weights_beside_lora(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    fields = {
        "model.long_text": "window",
        "model.window_pooling": "attention",
        "model.max_length": 8,
        "training.checkpoint_every": "3 steps",
    }
    recipe = with_lora(tiny_model, opinions, **fields)
    undisturbed = run(prepare(recipe), RunFolder.create(tmp_path / "undisturbed")).folder
    folder = RunFolder.create(tmp_path / "interrupted")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(5))
    job = prepare(recipe)
    assert "window_pooling.query" in job.loaded.trainable_state()
    run(job, folder, checkpoint=Checkpoints(folder, job.hash).latest())
    assert digests_of(folder) == digests_of(undisturbed)
    written = folder.predictions("validation").read_bytes()
    bertctl.evaluate(folder.path, split="validation")
    assert folder.predictions("validation").read_bytes() == written


def test_an_estimate_says_how_fast_a_step_is_against_all_weights(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    averaged = {"training.average_best": 3, "training.checkpoint_every": "3 steps"}
    lora = estimate_run(with_lora(tiny_model, opinions, **averaged), place=tmp_path, steps=2)
    full = estimate_run(tiny_recipe(tiny_model, opinions, **averaged), place=tmp_path, steps=2)
    assert lora["lora"]["speedup"] > 0.0
    assert "lora" not in full
    assert lora["disk_bytes"]["while_running"] < 0.5 * full["disk_bytes"]["while_running"]


@pytest.mark.parametrize(
    ("speedup", "words"),
    [
        (1.48, ("1.5 times", "as fast as one that trains all weights")),
        (1.02, ("as fast", "as one that trains all weights")),
        (0.5, ("2.0 times", "the time of one that trains all weights: slower")),
    ],
)
def test_a_slower_step_is_called_slower(speedup: float, words: tuple[str, str]) -> None:
    assert lora_speed(speedup) == words


def test_a_rehearsed_checkpoint_has_the_size_that_was_told(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    job = prepare(with_lora(tiny_model, opinions))
    rehearsal = Rehearsal(job, tmp_path)
    rehearsal.step(np.arange(4))
    rehearsal.saving(1)
    (folder,) = (tmp_path / "checkpoints").glob("step-*")
    stored = load_file(folder / "model.safetensors")
    assert stored.keys() == job.loaded.trainable_state().keys()


TRAITS = TrainingTraits(5000, 2, width=384, n_layers=6, has_shared_layers=False)


def test_auto_takes_a_rate_for_lora_and_no_layer_decay(tiny_model: Path, opinions: Path) -> None:
    assert lora_learning_rate(TRAITS) == pytest.approx(10 * learning_rate(TRAITS))
    fields = {
        "data.train_file": str(opinions),
        "model.name": str(tiny_model),
        "model.max_length": 32,
        "training.preset": "auto",
    }
    plain = prepare(load_recipe("text-classification", options=fields)).recipe.optimizer
    lora = prepare(
        load_recipe("text-classification", options=fields | {"lora.rank": 2})
    ).recipe.optimizer
    assert lora.learning_rate == pytest.approx(10 * plain.learning_rate)
    assert plain.layer_decay == 0.9
    assert lora.layer_decay == 1.0


def test_a_rate_for_all_weights_is_pointed_out(tiny_model: Path, opinions: Path) -> None:
    def about_rate(rate: float) -> list[str]:
        job = prepare(with_lora(tiny_model, opinions, **{"optimizer.learning_rate": rate}))
        return [text for text in beyond_plain(job) if text.startswith("learning rate")]

    assert "optimizer.learning_rate=0.005" in about_rate(5e-5)[0]
    assert not about_rate(5e-3)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rank 0": ({"lora.rank": 0}, "lora.rank"),
    "rank of no number": ({"lora.rank": "many"}, "lora.rank"),
    "negative dropout": ({"lora.rank": 2, "lora.dropout": -0.1}, "lora.dropout"),
    "dropout of all": ({"lora.rank": 2, "lora.dropout": 1.0}, "lora.dropout"),
    "alpha 0": ({"lora.rank": 2, "lora.alpha": 0.0}, "lora.alpha"),
    "no rank": ({"lora.dora": True}, "of use only with lora.rank"),
    "unknown target": ({"lora.rank": 2, "lora.targets": ["q_proj"]}, "no layer called 'q_proj'"),
    "half a name": ({"lora.rank": 2, "lora.targets": ["uery"]}, "no layer called 'uery'"),
    "frozen encoder": ({"lora.rank": 2, "training.freeze_layers": 2}, "nothing to adapt"),
    "few-shot": ({"lora.rank": 2, "few_shot.loss": "cosine"}, "few-shot"),
}


def test_bad_input_is_refused_before_torch_is_imported(
    tiny_model: Path, opinions: Path, nursery: Nursery, tmp_path: Path
) -> None:
    code = (
        "import json, sys\n"
        "from bertctl.config.load import load_recipe\n"
        "from bertctl.errors import UsageError\n"
        "from bertctl.training.job import prepare\n"
        "for fields in json.loads(sys.argv[3]):\n"
        "    base = {'data.train_file': sys.argv[1], 'model.name': sys.argv[2]}\n"
        "    base['model.max_length'] = 32\n"
        "    try: prepare(load_recipe('text-classification', options=base | fields))\n"
        "    except UsageError as error: print(json.dumps([error.message, error.remedy]))\n"
        "    else: print('[]')\n"
        "assert 'torch' not in sys.modules\n"
    )
    cases = json.dumps([fields for fields, _ in REFUSED.values()])
    done = nursery.run_code(code, opinions, tiny_model, cases, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(REFUSED)
    for line, (name, (_, words)) in zip(lines, REFUSED.items(), strict=True):
        assert words in "\n".join(line), (name, line)


def test_pretraining_and_targets_among_frozen_layers_are_refused(
    tiny_model: Path, opinions: Path
) -> None:
    with pytest.raises(UsageError, match="LoRA leaves alone"):
        load_recipe("pretrain", options={"lora.rank": 2})
    recipe = with_lora(tiny_model, opinions, **{"lora.targets": ["layer.0.output.dense"]})
    frozen = recipe.with_fields("training", freeze_layers=1)
    with pytest.raises(UsageError, match=r"lora\.targets"):
        prepare(frozen)


def test_a_probe_leaves_the_encoder_frozen_and_refuses(tiny_model: Path, opinions: Path) -> None:
    with pytest.raises(UsageError, match=r"lora\.rank: a probe"):
        prepare_probe(with_lora(tiny_model, opinions))


@pytest.mark.parametrize(("name", "base"), [("minilm", "sentence-transformers/all-MiniLM-L6-v2")])
def test_the_adapter_names_the_model_as_the_hub_does(
    name: str, base: str, opinions: Path, tmp_path: Path
) -> None:
    fields = {"data.train_file": str(opinions), "model.name": name, "lora.rank": 1}
    prepare(load_recipe("text-classification", options=fields)).loaded.save(tmp_path / "model")
    file = tmp_path / "model" / "adapter" / "adapter_config.json"
    assert json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"] == base


def test_without_peft_the_install_line_is_given_and_the_exit_code_is_4(
    tiny_model: Path, opinions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lora_checks, "find_spec", lambda _: None)
    with pytest.raises(UnavailableError, match="peft") as refused:
        prepare(with_lora(tiny_model, opinions))
    assert "pip install 'bertctl[peft]'" in refused.value.remedy
    assert refused.value.exit_code == 4
    assert isinstance(prepare(tiny_recipe(tiny_model, opinions)), Job)


def test_a_recipe_without_lora_keeps_its_hash_and_its_dump(
    tiny_model: Path, opinions: Path
) -> None:
    plain = prepare(tiny_recipe(tiny_model, opinions))
    assert prepare(tiny_recipe(tiny_model, opinions, **{"lora.rank": None})).hash == plain.hash
    assert prepare(with_lora(tiny_model, opinions)).hash != plain.hash
