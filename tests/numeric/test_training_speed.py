"""What makes a training step faster changes no number that it should not.

Packed layers, used rows of a word table.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from accelerate import Accelerator
from torch import nn

from bertctl.modeling.fast.dropout_masks import draw_mask, keep
from bertctl.modeling.fast.packed_attention import pack
from bertctl.modeling.fast.packed_encoder import use_packed_encoder
from bertctl.modeling.fast.used_tokens import SavedRows, train_used_rows, used_tokens
from bertctl.runtime.device import Compute

_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
_SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
}
_FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": _SIZES,
    "Roberta": _SIZES,
    "XLMRoberta": _SIZES,
    "Camembert": _SIZES,
    "Electra": {**_SIZES, "embedding_size": 24},
    "DistilBert": {"dim": 48, "n_heads": 4, "n_layers": 3, "hidden_dim": 96},
}


def _network(
    family: str,
    head: str = "SequenceClassification",
    *,
    dropout: float = 0.0,
    more: dict[str, Any] | None = None,
) -> Any:
    torch.manual_seed(0)
    given = {**_FAMILIES.get(family, _SIZES), **dict.fromkeys(_DROPOUTS, dropout), **(more or {})}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=100,
        pad_token_id=0,
        num_labels=3,
        max_position_embeddings=64,
        seq_classif_dropout=0.0,
        classifier_dropout=0.0,
        **{"summary_last_dropout": 0.0, **given},
    )
    return getattr(transformers, f"{family}For{head}")(config).train()


def _batch(longest: int = 20, head: str = "SequenceClassification") -> dict[str, torch.Tensor]:
    lengths = torch.tensor([longest, 3, longest, 7, 1, longest, 11, 12])
    mask = (torch.arange(longest) < lengths[:, None]).long()
    ids = torch.randint(5, 100, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    if head == "MultipleChoice":
        return {
            "input_ids": ids.view(4, 2, -1),
            "attention_mask": mask.view(4, 2, -1),
            "labels": torch.arange(4) % 2,
        }
    labels = {
        "SequenceClassification": torch.arange(8) % 3,
        "TokenClassification": (ids % 3).masked_fill(mask == 0, -100),
    }[head]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _gradients(
    network: nn.Module, precision: str = "fp32", batch: dict[str, torch.Tensor] | None = None
) -> tuple[float, dict[str, torch.Tensor]]:
    network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = network(**(batch or _batch())).loss
    loss.backward()
    return loss.item(), {
        name: one.grad.clone() for name, one in network.named_parameters() if one.grad is not None
    }


def _compute(precision: str = "fp32") -> Compute:
    return Compute("cpu", precision, 1, "")


@pytest.fixture
def _two_threads() -> Iterator[None]:
    """With which some products are computed another way."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("family", _FAMILIES)
@pytest.mark.parametrize("frozen", [0, 1], ids=["all trained", "a layer frozen"])
def test_gradients_are_those_of_the_library(family: str, frozen: int) -> None:
    network = _network(family)
    for encoder in [
        part
        for part in network.modules()
        if isinstance(getattr(part, "layer", None), nn.ModuleList)
    ]:
        for layer in encoder.layer[1 : 1 + frozen]:
            layer.requires_grad_(requires_grad=False)
    loss, expected = _gradients(network, "fp32")
    _, rounded = _gradients(network, "bf16")
    assert use_packed_encoder(network, _compute())
    found, gradients = _gradients(network)
    assert found == pytest.approx(loss, rel=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        if not name.endswith(("key.bias", "k_lin.bias")):  # which have none but rounding
            assert (gradient - expected[name]).norm() <= 1e-5 * expected[name].norm(), name
    assert use_packed_encoder(network, _compute("bf16"))
    _, gradients = _gradients(network, "bf16")
    ours = sum(float((gradients[name] - expected[name]).square().sum()) for name in gradients)
    theirs = sum(float((rounded[name] - expected[name]).square().sum()) for name in rounded)
    assert ours**0.5 < 1.5 * theirs**0.5, "as far from fp32 as the library's bf16"


@pytest.mark.parametrize("family", _FAMILIES)
@pytest.mark.parametrize("head", ["TokenClassification", "MultipleChoice"])
def test_gradients_are_those_of_the_library_under_each_head(family: str, head: str) -> None:
    """Of the last layer only what the head reads is computed.

    All tokens, or the first of each window.
    """
    network = _network(family, head)
    batch = _batch(head=head)
    loss, expected = _gradients(network, batch=batch)
    assert use_packed_encoder(network, _compute())
    found, gradients = _gradients(network, batch=batch)
    assert found == pytest.approx(loss, rel=1e-5)
    largest = max(one.norm() for one in expected.values())
    for name, gradient in gradients.items():
        # What is added to all scores that a softmax compares has no gradient but rounding.
        of_rounding = name.endswith(("key.bias", "k_lin.bias")) or (name, head) == (
            "classifier.bias",
            "MultipleChoice",
        )
        size = largest if of_rounding else expected[name].norm()
        assert (gradient - expected[name]).norm() <= 1e-5 * size, name


def test_a_head_that_reads_more_than_first_tokens_gets_them() -> None:
    """Windows may be padded on the left."""
    network = _network("Bert")
    batch = {name: each.flip(-1) for name, each in _batch().items()}
    batch["attention_mask"][..., -1] = 1
    assert use_packed_encoder(network, _compute())
    states: list[torch.Tensor] = []
    encoder = next(part for part in network.modules() if hasattr(part, "layer"))
    encoder.register_forward_hook(lambda *given: states.append(given[2].last_hidden_state))
    network(**batch)
    assert torch.equal(states[0].abs().sum(-1) > 0, batch["attention_mask"].bool())


def test_other_shapes_stay_the_librarys() -> None:
    for network in (
        _network("Bert", more={"hidden_act": "relu"}),
        _network("RoFormer"),
        _network("Albert", more={"embedding_size": 24}),
        _network("Bert", more={"attn_implementation": "eager"}),
        _network("Roberta", more={"is_decoder": True}),
        _network("Bert", more={"is_causal": True}),
        _network("Electra", "MultipleChoice", more={"summary_type": "mean"}),
    ):
        assert not use_packed_encoder(network, _compute())
    checkpointed = _network("Bert")
    for layer in checkpointed.bert.encoder.layer:
        layer.gradient_checkpointing = True
    assert not use_packed_encoder(checkpointed, _compute())
    assert not use_packed_encoder(_network("Bert"), Compute("cuda", "bf16", 1, ""))


def test_evaluation_is_the_librarys_to_the_bit() -> None:
    network = _network("Bert", dropout=0.1).eval()
    before = network(**_batch()).logits
    use_packed_encoder(network, _compute())
    assert torch.equal(network(**_batch()).logits, before)


@pytest.mark.parametrize("share", [0.1, 0.37])
def test_dropout_leaves_out_its_share(share: float) -> None:
    torch.manual_seed(0)
    mask = draw_mask(4_000_003, share)
    assert mask is not None
    assert set(mask.unique().tolist()) == {-1, 0}
    left_out = float((mask == 0).double().mean())
    assert left_out == pytest.approx(
        share, abs=4 * (share * (1 - share) / len(mask)) ** 0.5
    )  # 4 standard errors
    assert draw_mask(10, 0.0) is None
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(1000).to(dtype)
        assert torch.equal(keep(x, mask[:1000]), x * (mask[:1000] != 0))
    torch.manual_seed(0)
    assert torch.equal(draw_mask(4_000_003, share), mask)
    # Elements that share a random number are as independent as others.
    together = mask[: len(mask) // 4 * 4].view(-1, 4).double().abs()
    assert np.abs(np.corrcoef(together.numpy().T) - np.eye(4)).max() < 0.005


@pytest.mark.parametrize("share", [0.99999999, 1.0])
def test_a_dropout_that_leaves_out_nearly_all_is_drawn(share: float) -> None:
    network = _network("Bert", dropout=share)
    assert use_packed_encoder(network, _compute())
    loss, _ = _gradients(network)
    assert np.isfinite(loss)


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
def test_dropout_is_the_same_in_both_passes(head: str) -> None:
    """A gradient's product with a direction is how much the loss changes along it.

    The masks are those of a seed.
    """
    network = _network("Bert", head, dropout=0.2)
    batch = _batch(head=head)
    use_packed_encoder(network, _compute())
    weights = [one for name, one in network.named_parameters() if "encoder" in name]
    generator = torch.Generator().manual_seed(2)
    direction = [torch.rand(one.shape, generator=generator) for one in weights]

    def loss(step: float) -> torch.Tensor:
        with torch.no_grad():
            for weight, way in zip(weights, direction, strict=True):
                weight += step * way
        torch.manual_seed(3)
        return network(**batch).loss

    loss(0.0).backward()
    for weight, way in zip(weights, direction, strict=True):
        way *= weight.grad.sign()  # all of it counts, or the change would be one of rounding
    expected = sum(
        float((one.grad * way).sum()) for one, way in zip(weights, direction, strict=True)
    )
    step = 2e-4
    change = (loss(step).item() - loss(-2 * step).item()) / (2 * step)
    assert change == pytest.approx(expected, rel=0.02)
    assert loss(0.0).item() != network(**batch).loss.item(), "other masks, another loss"


def _trained(*, used: bool, steps: int = 5) -> tuple[list[float], dict[str, torch.Tensor], Any]:
    network = _network("Bert")
    table = (
        train_used_rows(network, used_tokens(network, [_batch()["input_ids"]])) if used else None
    )
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=1e-2,
        weight_decay=0.1,
        fused=True,
    )
    if table is not None:
        table.follow(optimizer)
    wrapped = Accelerator(cpu=True).prepare(
        optimizer
    )  # which puts other groups in place of those that were there
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    losses = []
    for _ in range(steps):
        loss = network(**_batch()).loss
        loss.backward()
        wrapped.step()
        schedule.step()
        wrapped.zero_grad()
        losses.append(loss.item())
    return losses, _put_together(network), network


def _put_together(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    weights: dict[str, Any] = network.state_dict()
    return {
        name: torch.cat([*one.blocks()]) if isinstance(one, SavedRows) else one
        for name, one in weights.items()
    }


def test_rows_that_are_not_used_change_nothing() -> None:
    """Losses and used rows are the same to the bit.

    The others are decayed by the product of the steps' decays.
    """
    losses, weights, plain = _trained(used=False)
    fewer_losses, fewer_weights, fewer = _trained(used=True)
    name = "bert.embeddings.word_embeddings.weight"
    used = _batch()["input_ids"].unique()
    assert len(used) < 90
    assert fewer_losses == losses
    assert fewer_weights.keys() == weights.keys()
    for key in weights:
        if key != name:
            assert torch.equal(weights[key], fewer_weights[key]), key
    assert torch.equal(weights[name][used], fewer_weights[name][used])
    torch.testing.assert_close(fewer_weights[name], weights[name], rtol=1e-6, atol=0)
    assert dict(fewer.named_parameters())[name].shape == (len(used), 48)
    # Other tokens are read in evaluation, and have no place in training.
    other = torch.tensor([[int((~torch.isin(torch.arange(100), used)).nonzero()[0]), 5]])
    torch.testing.assert_close(fewer.eval()(other).logits, plain.eval()(other).logits)
    with pytest.raises(IndexError):
        fewer.train()(other)


def test_saved_weights_are_whole_and_come_back() -> None:
    _, weights, network = _trained(used=True)
    name = "bert.embeddings.word_embeddings.weight"
    assert weights[name].shape == (100, 48)
    _, _, again = _trained(used=True, steps=0)
    assert again.load_state_dict(weights, strict=True)
    torch.testing.assert_close(_put_together(again), weights, rtol=0, atol=0)
    again.bert.embeddings.word_embeddings.go_on(network.bert.embeddings.word_embeddings.decay)
    torch.testing.assert_close(_put_together(again), weights, rtol=0, atol=0)


def test_a_table_that_is_not_trained_or_guesses_words_stays() -> None:
    frozen = _network("Bert")
    frozen.get_input_embeddings().requires_grad_(requires_grad=False)
    assert used_tokens(frozen, [_batch()["input_ids"]]) is None
    config = transformers.BertConfig(vocab_size=100, **_SIZES)
    assert used_tokens(transformers.BertForMaskedLM(config), [_batch()["input_ids"]]) is None
    assert used_tokens(_network("Bert"), [torch.arange(100)]) is None


def test_blocks_of_attention_hold_each_token_once_and_have_few_shapes() -> None:
    """For each shape of a product oneDNN makes code: 0.3 MB of it, in a fifth of a millisecond."""
    rng = np.random.default_rng(0)
    shapes = set[tuple[int, int]]()
    for _ in range(300):
        lengths = np.minimum(3 + rng.geometric(0.05, size=32), 130)
        lengths.sort()
        mask = torch.arange(int(lengths.max())) < torch.from_numpy(lengths)[:, None]
        places, blocks = pack(torch.zeros(*mask.shape, 2), mask[:, None, None])
        assert sorted(places.tolist()) == mask.flatten().nonzero().flatten().tolist()
        assert sum(block.windows for block in blocks) == 32
        assert [block.tokens.start for block in blocks] == [
            0,
            *(block.tokens.stop for block in blocks[:-1]),
        ]
        for block in blocks:
            inside = (
                block.width if block.padding is None else int((block.padding == 0).sum(-1).max())
            )
            assert inside <= block.width
            shapes.add((block.windows, block.width))
    assert len(shapes) < 60
