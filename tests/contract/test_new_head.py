"""Starting from another run.

The same labels keep its head, other labels get a new one even where the sizes agree.
"""

from pathlib import Path

import pytest
import torch

from bertctl.config.recipe_sections import ModelSection
from bertctl.modeling.load import load_model
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.modeling.trained_heads import has_trained_head, keeps_head

AUTO = "AutoModelForSequenceClassification"


def head(*names: str, problem: str = "single_label_classification") -> dict[str, object]:
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": problem,
    }


@pytest.fixture
def trained(tiny_model: Path, tmp_path: Path) -> tuple[ModelSource, dict[str, torch.Tensor]]:
    """A saved model whose every weight was moved away from its initial value."""
    source = inspect_model(ModelSection(name=str(tiny_model), max_length=32))
    loaded = load_model(source, AUTO, head=head("no", "yes"))
    with torch.no_grad():
        for parameter in loaded.network.parameters():
            parameter.add_(1.0)
    loaded.save(tmp_path / "model")
    weights = {name: value.clone() for name, value in loaded.network.state_dict().items()}
    return inspect_model(ModelSection(name=str(tmp_path / "model"), max_length=32)), weights


def test_a_bare_encoder_has_no_trained_head(tiny_model: Path) -> None:
    assert not has_trained_head(inspect_model(ModelSection(name=str(tiny_model), max_length=32)))


def test_the_same_labels_keep_the_head(
    trained: tuple[ModelSource, dict[str, torch.Tensor]],
) -> None:
    source, weights = trained
    assert has_trained_head(source)
    assert keeps_head(source, head("no", "yes"), AUTO)
    again = load_model(source, AUTO, head=head("no", "yes")).network.state_dict()
    assert all(torch.equal(again[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    "other",
    [
        head("dog", "cat"),
        head("a", "b", "c"),
        head("no", "yes", problem="multi_label_classification"),
    ],
)
def test_other_labels_get_a_new_head_and_keep_the_encoder(
    trained: tuple[ModelSource, dict[str, torch.Tensor]], other: dict[str, object]
) -> None:
    source, weights = trained
    assert not keeps_head(source, other, AUTO)
    again = load_model(source, AUTO, head=other).network.state_dict()
    encoder = [name for name in weights if name.startswith("bert.")]
    assert len(encoder) > 30
    assert all(torch.equal(again[name], weights[name]) for name in encoder)
    assert again["classifier.weight"].abs().max() < 0.2, (
        "drawn from N(0, 0.02), not the trained values around 1"
    )
    assert again["classifier.bias"].abs().max() == 0.0
