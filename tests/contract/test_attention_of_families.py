"""Attention of ten families: what transformers gives, and what their queries and keys give."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from families import make_encoder, make_family

from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.errors import UsageError
from bertctl.interpretability.attention import AttentionReader, read_attention
from bertctl.modeling.source import inspect_model
from bertctl.tokenization.stream import TextChunk

TEXT = "the film was good and the film was warm"
PAIR = "it was a surprise"


def reader(folder: Path) -> AttentionReader:
    source = inspect_model(ModelSection(name=str(folder), max_length=4))
    return AttentionReader(source, RuntimeSection(device="cpu", threads=1))


@pytest.mark.parametrize(
    ("family", "of_query_and_key"),
    [
        ("bert", True),
        ("distilbert", True),
        ("roberta", True),
        ("albert", True),
        ("electra", True),
        ("modernbert", True),
        ("gpt2", True),
        ("xlnet", False),
        ("deberta-v2", False),
        ("openai-gpt", False),
    ],
)
def test_it_is_what_transformers_gives_and_what_query_and_key_give(
    tmp_path: Path, family: str, of_query_and_key: bool
) -> None:
    make_family(family, tmp_path)
    if family == "modernbert":  # so that its local layers leave tokens out
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(
            json.dumps({**config, "local_attention": 4, "sliding_window": 2})
        )
    opened = reader(tmp_path)
    attention = read_attention(opened, TEXT, PAIR)

    model = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    [encoding], _ = opened.encode(TextChunk([TEXT], [PAIR]))
    inputs = {"input_ids": torch.tensor([encoding.ids])}
    if opened.model.has_segments:
        inputs["token_type_ids"] = torch.tensor([encoding.type_ids])
    with torch.no_grad():
        expected = torch.stack(model(**inputs, output_attentions=True).attentions)[:, 0].numpy()
    assert attention["attentions"].shape == (
        2,
        3,
        len(attention["tokens"]),
        len(attention["tokens"]),
    )
    np.testing.assert_allclose(attention["attentions"], expected, atol=1e-6)
    np.testing.assert_allclose(attention["attentions"].sum(axis=-1), 1.0, atol=1e-5)

    assert ("queries" in attention) is of_query_and_key
    if "queries" not in attention:
        assert "not query · key alone" in attention["scores"]
        return
    scores = (
        attention["queries"].astype(float)
        @ attention["keys"].swapaxes(-1, -2)
        * attention["scaling"][:, None, None, None]
    )
    assert attention["scaling"] == pytest.approx(attention["queries"].shape[-1] ** -0.5)
    observed = attention["attentions"] > 0  # a local layer, or a decoder, leaves tokens out
    assert observed.all() == (family not in ("modernbert", "gpt2"))
    shares = np.exp(scores) * observed
    np.testing.assert_allclose(
        shares / shares.sum(axis=-1, keepdims=True), attention["attentions"], atol=1e-5
    )


@pytest.mark.parametrize("family", ["fnet", "longformer", "squeezebert"])
def test_a_family_without_attention_of_all_to_all_is_refused(tmp_path: Path, family: str) -> None:
    with pytest.raises(UsageError, match=f"its family is '{family}'"):
        read_attention(reader(make_encoder(family, tmp_path)), TEXT)
