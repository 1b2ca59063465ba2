"""No verb answers with a weight that was not in the model's files.

Every head of every family is refused.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import FAMILIES, make_family
from safetensors.torch import load_file, save_file

from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import ModelSection
from bertctl.errors import UnavailableError
from bertctl.modeling.build import build_model
from bertctl.modeling.load import read_model
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.tasks.base import label_fields
from bertctl.tasks.registry import TASKS
from tests.conftest import Run
from tests.heard import Heard

_CLASSIFIER = "AutoModelForSequenceClassification"
HEADS = sorted(
    {task.auto_class for task in TASKS.values() if "For" in task.auto_class}
    | {"AutoModelForMaskedLM"}
)

Weights = dict[str, torch.Tensor]


def has_class(family: str, auto_class: str) -> bool:
    config = transformers.AutoConfig.for_model(family)
    return type(config) in getattr(transformers, auto_class)._model_mapping


CASES = [(family, head) for family in FAMILIES for head in HEADS if has_class(family, head)]


def _tier(case: tuple[str, str]) -> Any:
    """Every head is tried with one family by default, three others with the head that all have."""
    family, head = case
    is_usual = (
        family in ("roberta", "xlnet", "distilbert")
        and head == "AutoModelForSequenceClassification"
    )
    is_slow = family != "bert" and not is_usual
    return pytest.param(case, id=f"{family}-{head}", marks=pytest.mark.slow if is_slow else ())


def with_head(family: str, auto_class: str, folder: Path) -> Any:
    """Makes a folder of a network with a trained head, and returns the network."""
    make_family(family, folder)
    torch.manual_seed(1)
    network = getattr(transformers, auto_class).from_pretrained(folder)
    network.save_pretrained(folder)
    return network


def edit_weights(folder: Path, edit: Callable[[Weights], Weights]) -> None:
    path = folder / "model.safetensors"
    weights = edit(load_file(path))
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        path,
        metadata={"format": "pt"},
    )


def without(folder: Path, dropped: set[str], copy: Path) -> Path:
    """Copies a folder, less some of its weights."""
    shutil.copytree(folder, copy)
    edit_weights(
        copy,
        lambda weights: {name: weight for name, weight in weights.items() if name not in dropped},
    )
    return copy


def read(folder: Path, auto_class: str) -> Any:
    return read_model(inspect_model(ModelSection(name=str(folder), max_length=16)), auto_class)


@pytest.mark.parametrize("case", [_tier(case) for case in CASES])
def test_no_head_answers_with_a_weight_that_was_not_in_the_file(
    case: tuple[str, str], tmp_path: Path
) -> None:
    family, auto_class = case
    complete = tmp_path / "whole"
    network = with_head(family, auto_class, complete)
    read(complete, auto_class)
    stored = load_file(complete / "model.safetensors")
    text = f"{network.base_model_prefix}."
    of_head = [name for name in stored if not name.startswith(text)]
    assert of_head

    for number, dropped in enumerate([set(of_head), {of_head[0]}, {of_head[-1]}]):
        with pytest.raises(UnavailableError, match="answers would be random") as refusal:
            read(without(complete, dropped, tmp_path / f"copy{number}"), auto_class)
        assert any(name in refusal.value.message for name in dropped)


@pytest.mark.parametrize(
    ("family", "auto_class", "is_read"),
    [
        ("bert", "AutoModelForSequenceClassification", True),
        ("bert", "AutoModelForMultipleChoice", True),
        ("deberta-v2", "AutoModelForSequenceClassification", True),
        ("albert", "AutoModelForSequenceClassification", True),
        ("bert", "AutoModelForTokenClassification", False),
        ("bert", "AutoModelForQuestionAnswering", False),
    ],
)
def test_a_pooler_is_needed_where_the_head_reads_it(
    family: str, auto_class: str, is_read: bool, tmp_path: Path
) -> None:
    complete = tmp_path / "whole"
    with_head(family, auto_class, complete)
    poolers = {name for name in load_file(complete / "model.safetensors") if "pooler" in name}
    assert bool(poolers) == is_read
    copy = without(complete, poolers, tmp_path / "copy")
    if not is_read:
        read(copy, auto_class)
        return
    with pytest.raises(
        UnavailableError, match=r"pooler.* not in the file: its answers would be random"
    ):
        read(copy, auto_class)


def test_a_pooler_that_no_answer_reads_may_be_missing(tmp_path: Path) -> None:
    """BigBird has one under a head that reads the states themselves."""
    from families import make_encoder

    make_encoder("big_bird", tmp_path / "whole")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole")
    network.save_pretrained(tmp_path / "whole")
    poolers = {
        name for name in load_file(tmp_path / "whole" / "model.safetensors") if "pooler" in name
    }
    assert poolers
    copy = without(tmp_path / "whole", poolers, tmp_path / "copy")
    read(copy, "AutoModelForSequenceClassification")


def _renamed(prefix: str) -> Callable[[Weights], Weights]:
    return lambda weights: {prefix + name: weight for name, weight in weights.items()}


def _cut(part: str, rows: int) -> Callable[[Weights], Weights]:
    return lambda weights: {
        name: weight[:rows] if part in name else weight for name, weight in weights.items()
    }


def _less(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: weight for name, weight in weights.items() if part not in name}


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        pytest.param(
            _renamed("module."), ["begin with 'module.'", "DistributedDataParallel"], id="of DDP"
        ),
        pytest.param(
            _renamed("_orig_mod."), ["begin with '_orig_mod.'", "torch.compile"], id="compiled"
        ),
        pytest.param(
            _cut("word_embeddings", 20),
            ["word_embeddings.weight has 20 x 24"],
            id="rows of a table",
        ),
        pytest.param(_less("layer.1."), ["encoder.layer.1."], id="a layer"),
        pytest.param(
            _less("layer.1.output.LayerNorm"), ["layer.1.output.LayerNorm.weight"], id="a norm"
        ),
        pytest.param(
            _cut("classifier.", 1),
            ["classifier.weight has 1 x 24", "2 x 24"],
            id="outputs of the head",
        ),
        pytest.param(
            _less("classifier.bias"), ["classifier.bias is not in the file"], id="half of the head"
        ),
    ],
)
def test_weights_that_are_not_those_of_the_config_are_named(
    edit: Callable[[Weights], Weights], parts: list[str], tmp_path: Path
) -> None:
    with_head("bert", "AutoModelForSequenceClassification", tmp_path)
    edit_weights(tmp_path, edit)
    with pytest.raises(UnavailableError) as refusal:
        read(tmp_path, "AutoModelForSequenceClassification")
    text = f"{refusal.value.message}\n{refusal.value.remedy}"
    assert all(part in text for part in [*parts, "would be random"]), text
    assert "report above" not in text


def test_a_part_that_lacks_what_the_index_names_is_refused(tmp_path: Path) -> None:
    network = with_head("bert", "AutoModelForSequenceClassification", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    network.save_pretrained(tmp_path, max_shard_size="10KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    part = tmp_path / index["weight_map"]["classifier.weight"]
    weights = load_file(part)
    weights.pop("classifier.weight")
    save_file(weights, part, metadata={"format": "pt"})
    with pytest.raises(UnavailableError, match=r"classifier\.weight is not in the file"):
        read(tmp_path, "AutoModelForSequenceClassification")
    part.unlink()
    with pytest.raises(UnavailableError, match=part.name):
        read(tmp_path, "AutoModelForSequenceClassification")


VERBS: Mapping[str, list[object]] = {
    "predict": ["predict", "MODEL", "a good film"],
    "evaluate": ["evaluate", "MODEL", "--file", "FILE", "-o", "scored"],
    "explain": ["explain", "MODEL", "a good film"],
    "predict of a file": ["predict", "MODEL", "FILE", "-o", "answers.csv"],
}


@pytest.mark.in_process
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_answers_refuses_a_folder_without_its_head(
    verb: str, bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    folder = _headless(tiny_model, tmp_path / "headless")
    words = [{"MODEL": folder, "FILE": opinions}.get(str(word), word) for word in VERBS[verb]]
    refused = bertctl(*words)
    assert refused.returncode == 4, refused.stderr
    assert "classifier.weight" in refused.stderr
    assert "its answers would be random" in refused.stderr
    assert f"bertctl finetune FILE --model {folder}" in refused.stderr
    assert not (tmp_path / "scored").exists()


def _headless(encoder: Path, folder: Path) -> Path:
    shutil.copytree(encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "neg", "1": "pos"},
    }
    (folder / "config.json").write_text(
        json.dumps(config | {"problem_type": "single_label_classification"})
    )
    return folder


@pytest.mark.in_process
def test_training_from_a_folder_without_its_head_makes_a_new_one_and_says_so(
    bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    folder = _headless(tiny_model, tmp_path / "headless")
    done = bertctl(
        "finetune",
        opinions,
        "--model",
        folder,
        "--epochs",
        1,
        "--max-length",
        16,
        "-o",
        "run",
        "--checkpoint-every",
        "off",
    )
    assert done.returncode == 0, done.stderr
    assert "classifier.weight is not in its files, so it gets a new head" in done.stderr
    assert bertctl("predict", "run", "a good film").returncode == 0


def _trained_source(encoder: Path, folder: Path, labels: list[str]) -> ModelSource:
    """Makes a classifier whose outputs have these labels, and looks at it."""
    shutil.copytree(encoder, folder)
    torch.manual_seed(2)
    names = dict(enumerate(labels))
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, id2label=names, label2id={name: i for i, name in names.items()}
    )
    network.config.problem_type = "single_label_classification"
    network.save_pretrained(folder)
    return inspect_model(ModelSection(name=str(folder), max_length=16))


@pytest.mark.parametrize("labels", [["b", "a"], ["c", "a", "b"], ["a", "b", "c", "d"][::-1]])
def test_a_head_with_the_same_labels_in_another_order_is_kept_in_the_new_order(
    labels: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    source = _trained_source(tiny_model, tmp_path / "trained", labels)
    head = label_fields(sorted(labels), "single_label_classification")
    listener = Heard()
    model = build_model(
        source, _CLASSIFIER, head, load_recipe("text-classification"), listener=listener
    )
    stored = load_file(source.folder / "model.safetensors")
    weights = model.network.state_dict()
    for number, label in enumerate(sorted(labels)):
        before = labels.index(label)
        torch.testing.assert_close(
            weights["classifier.weight"][number], stored["classifier.weight"][before]
        )
        torch.testing.assert_close(
            weights["classifier.bias"][number], stored["classifier.bias"][before]
        )
    assert any(
        "its trained head is kept, its labels in this run's order" in line for line in listener.said
    )


def test_a_head_of_other_labels_is_new(tiny_model: Path, tmp_path: Path) -> None:
    source = _trained_source(tiny_model, tmp_path / "trained", ["b", "a"])
    listener = Heard()
    head = label_fields(["a", "c"], "single_label_classification")
    model = build_model(
        source, _CLASSIFIER, head, load_recipe("text-classification"), listener=listener
    )
    stored = load_file(source.folder / "model.safetensors")["classifier.weight"]
    assert not torch.isclose(model.network.state_dict()["classifier.weight"], stored).any()
    assert any("other labels, so it gets a new head" in line for line in listener.said)
