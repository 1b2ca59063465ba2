"""Attention without a gradient, as products of many small matrices: torch's own is the oracle."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertctl.modeling.fast.bert_files import read_network
from bertctl.modeling.fast.inference_attention import use_batched_attention
from bertctl.modeling.fast.torch_bert import Layer
from bertctl.modeling.source import ModelSource
from bertctl.runtime.device import Compute


@pytest.fixture
def network(tmp_path: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    source = ModelSource(
        "made", tmp_path, json.loads((tmp_path / "config.json").read_text()), 512, None
    )
    actual = read_network(source, "AutoModel")
    assert actual is not None
    return actual


def attention(network: torch.nn.Module) -> Layer:
    return next(module for module in network.modules() if isinstance(module, Layer))


def tensors(
    windows: int, tokens: int, *, padded: bool
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    generator = torch.Generator().manual_seed(tokens)
    # Views as the layers have them; large scores, whose exponential alone would be infinite.
    qkv = [
        torch.randn(windows, tokens, 4, 12, generator=generator).mul(9).transpose(1, 2)
        for _ in range(3)
    ]
    lengths = torch.randint(1, tokens + 1, (windows,), generator=generator)
    mask = (torch.arange(tokens) < lengths[:, None])[:, None, None].expand(-1, -1, tokens, -1)
    return qkv, mask if padded else None


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "of one length"])
@pytest.mark.parametrize(
    ("windows", "tokens"), [(1, 1), (400, 5), (150, 13), (70, 16), (40, 33), (9, 128), (3, 200)]
)
def test_it_is_that_of_torch(
    network: torch.nn.Module, windows: int, tokens: int, padded: bool
) -> None:
    (q, k, v), mask = tensors(windows, tokens, padded=padded)
    values: dict[str, Any] = {"attn_mask": mask, "dropout_p": 0.0, "scale": 12**-0.5}
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, **values)
    use_batched_attention(network, Compute("cpu", "fp32", 1, ""), is_exact=False)
    with torch.inference_mode():
        actual = attention(network).attend(q, k, v, **values)

    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3)
    assert actual.transpose(1, 2).is_contiguous()

    rounded = [tensor.bfloat16() for tensor in (q, k, v)]
    use_batched_attention(network, Compute("cpu", "bf16", 1, ""))
    with torch.inference_mode():
        ours = attention(network).attend(*rounded, **values)
    theirs = torch.nn.functional.scaled_dot_product_attention(*rounded, **values)
    our_error = (ours.float() - expected).norm()
    their_error = (theirs.float() - expected).norm()
    assert ours.dtype is torch.bfloat16
    # Scores are rounded to 8 bits once more: 0.4 % of them, which are some hundreds here.
    assert our_error <= 2 * their_error


def test_where_it_is_another_it_is_left_to_torch(network: torch.nn.Module) -> None:
    plain = attention(network).attend
    use_batched_attention(network, Compute("cpu", "fp32", 1, ""))
    assert attention(network).attend is plain, (
        "answers in fp32 are those of transformers to the last bit"
    )
    for other in (Compute("cuda", "bf16", 1, ""), Compute("cpu", "fp16", 1, "")):
        use_batched_attention(network, other, is_exact=False)
        (q, k, v), mask = tensors(5, 9, padded=True)
        values: dict[str, Any] = {"attn_mask": mask, "dropout_p": 0.0, "scale": 0.3}
        with torch.inference_mode():
            assert torch.equal(
                attention(network).attend(q, k, v, **values), plain(q, k, v, **values)
            )
    use_batched_attention(network, Compute("cpu", "bf16", 1, ""))
    q.requires_grad_()
    attention(network).attend(q, k, v, **values).sum().backward()
    assert q.grad is not None
