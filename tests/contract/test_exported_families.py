"""Every family of transformers with each of its heads.

A graph that answers alike in any batch, or a refusal with its reason.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from families import TRIED, make_encoder, make_encoder_of_its_kind

from bertctl.config.load import load_recipe
from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.exporting.convert import convert, lacking
from bertctl.inference.graph_backend import answer_outputs
from bertctl.inference.graph_session import GraphSession, open_graph
from bertctl.modeling.families import require_head
from bertctl.modeling.graph_network import GraphNetwork
from bertctl.modeling.load import load_model
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource, inspect_model

pytestmark = pytest.mark.slow

HEADS = {
    "SequenceClassification": 3,
    "TokenClassification": 3,
    "QuestionAnswering": 2,
    "MultipleChoice": 1,
}
NO_GRAPH = {"funnel", "longformer", "mt5", "t5", "umt5"}
"""Families whose code decides by what stands in a batch, for some head."""

SHAPES = ((1, 8), (3, 20), (7, 40), (1, 40))


def inputs_of(model: Model, kind: str, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Random words between special tokens, the second text padded."""
    is_longformer = model.network.config.model_type == "longformer"
    first, last = (0, 2) if is_longformer else (2, 3)
    ids = torch.randint(8, 90, (batch, length), generator=torch.Generator().manual_seed(length))
    ids[:, 0] = first
    ids[:, -1] = last
    if kind in ("QuestionAnswering", "MultipleChoice"):
        ids[:, 3:5] = last  # where the first text of a pair ends
    mask = torch.ones_like(ids)
    if batch > 1 and not model.padding.unwanted:
        end = max(6, length // 2)
        mask[1, end:] = 0
        ids[1, end - 1] = last
        if model.padding.left:
            mask = mask.flip(1)
        ids[mask == 0] = model.padding.id
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def loaded(source: ModelSource, kind: str) -> Model:
    names = dict(enumerate("abc"[: HEADS[kind]]))
    head = {
        "num_labels": len(names),
        "id2label": names,
        "problem_type": "single_label_classification",
    }
    torch.manual_seed(0)
    return load_model(source, f"AutoModelFor{kind}", head=head)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("family", TRIED)
def test_a_family_is_exported_or_refused(family: str, kind: str, tmp_path: Path) -> None:
    if missing := lacking("onnx"):
        pytest.skip(f"{', '.join(missing)}: pip install 'bertctl[onnx]'")
    make = make_encoder_of_its_kind if family == "longformer" else make_encoder
    folder = make(family, tmp_path / "model")
    options = {"model.name": str(folder), "model.max_length": 40}
    source = inspect_model(load_recipe("text-classification", options=options).model)
    try:
        require_head(source.config, f"AutoModelFor{kind}", source.name)
    except UsageError:
        pytest.skip(f"{family} has no head for {kind}")
    model = loaded(source, kind)
    network = GraphNetwork(model)
    sample = inputs_of(model, kind, 2, 13)
    target = tmp_path / "graph"
    target.mkdir()
    message = ""
    try:
        path = convert(network, sample, target, name=family, remedy="Use torch.")
        session = open_graph(path, "onnx", threads=1)
        with loading("the graph", kind=UnavailableError):
            compare(network, session, [inputs_of(model, kind, *shape) for shape in SHAPES], kind)
    except UnavailableError as error:
        message = error.message
    assert not message or family in NO_GRAPH, message


def compare(
    network: GraphNetwork,
    session: GraphSession,
    batches: Sequence[Mapping[str, torch.Tensor]],
    kind: str,
) -> None:
    for batch in batches:
        with torch.inference_mode():
            expected = network(**{name: batch[name] for name in network.names})
        feeds = {name: tensor.numpy() for name, tensor in batch.items()}
        results = session.run(feeds, answer_outputs(session.outputs))
        is_padding = feeds["attention_mask"] == 0
        for name, values in results.items():
            reference = expected[name].numpy()
            if name != "logits" or kind == "TokenClassification":
                values[is_padding] = reference[is_padding]
            np.testing.assert_allclose(values, reference, atol=1e-5)
