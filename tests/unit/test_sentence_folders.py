"""Folders of sentence-transformers, read as it reads them itself."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import bertctl
from bertctl.config.recipe_sections import SentenceEmbeddingsSection
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.sentence_folder import chosen_modules, files_of, read_modules
from tests.sentence_folders import MADE, make_folder, sentence_transformers

TEXTS = [
    "good film",
    "the food was not good at all , it was very poor",
    "",
    "a bright film, was it not?",
    "Dull",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_vectors_equal_those_of_sentence_transformers(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder(name, tiny_model, tmp_path / "made")
    theirs = sentence_transformers().SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    fields = {"model.max_length": 40, "runtime.precision": "fp32"}
    ours = bertctl.extract_features(TEXTS, model=str(folder), pooling="model", fields=fields)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    plain = bertctl.extract_features(TEXTS, model=str(folder), pooling="mean", fields=fields)
    assert plain.shape != ours.shape or np.abs(plain - ours).max() > 1e-2, (
        "the premise: the folder says something else"
    )


def test_minilm_is_read_as_its_own_folder_says() -> None:
    folder = read_modules(Path(bertctl_model()))
    assert folder is not None
    assert folder.poolings == ("mean",)
    assert folder.steps == (None,)
    assert folder.max_length == 256


@pytest.mark.slow
def test_vectors_of_minilm_equal_those_of_sentence_transformers() -> None:
    theirs = (
        sentence_transformers().SentenceTransformer(bertctl_model(), device="cpu").encode(TEXTS)
    )
    ours = bertctl.extract_features(
        TEXTS, model="minilm", pooling="model", fields={"runtime.precision": "fp32"}
    )
    assert (ours * theirs).sum(axis=1).min() > 0.99999


@pytest.mark.parametrize("name", MADE)
def test_vectors_by_hand(name: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = make_folder(name, tiny_model, tmp_path / "made")
    network = transformers.AutoModel.from_pretrained(tiny_model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    before = "a very good film : " if name == "prompts" else ""
    expected = []
    for text in TEXTS:
        with torch.inference_mode():
            states = network(**tokenizer(before + text, return_tensors="pt")).last_hidden_state[0]
        made = {
            "cls": states[0],
            "max": states.amax(dim=0),
            "mean and max": torch.cat([states.mean(0), states.amax(0)]),
        }
        vector = made.get(name, states.mean(dim=0))
        if name == "dense":
            layer = load_file(folder / "2_Dense" / "model.safetensors")
            vector = torch.tanh(layer["linear.weight"] @ vector + layer["linear.bias"])
        expected.append(
            (vector / vector.norm() if name in ("dense", "prompts") else vector).numpy()
        )
    fields = {"model.max_length": 40, "runtime.precision": "fp32"}
    ours = bertctl.extract_features(TEXTS, model=str(folder), pooling="model", fields=fields)
    np.testing.assert_allclose(ours, np.stack(expected), atol=2e-6)


@pytest.mark.slow
def test_a_run_loads_in_sentence_transformers_with_equal_vectors(
    tiny_model: Path, tmp_path: Path
) -> None:
    rows = [
        {"text": text, "pair": TEXTS[(i + 1) % 5] or "poor", "score": i / 4}
        for i, text in enumerate(TEXTS)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {
        "data.train_file": str(tmp_path / "rows.jsonl"),
        "data.validation_file": str(tmp_path / "rows.jsonl"),
        "model.name": str(make_folder("prompts", tiny_model, tmp_path / "made")),
        "model.max_length": 40,
        "sentence_embeddings.projection": 20,
        "training.epochs": 2,
        "runtime.precision": "fp32",
    }
    run = bertctl.finetune("sentence-embeddings", fields=fields, output=tmp_path / "run")
    theirs = (
        sentence_transformers().SentenceTransformer(str(run.model_path), device="cpu").encode(TEXTS)
    )
    fields = {"model.max_length": 40, "runtime.precision": "fp32"}
    ours = bertctl.extract_features(
        TEXTS,
        model=str(run.path),
        pooling="model",
        fields=fields,
    )
    assert ours.shape == (5, 20)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    answers = run.predict(
        [{"text": entry, "pair": other} for entry, other in itertools.pairwise(TEXTS)]
    )
    cosines = (ours[:-1] * ours[1:]).sum(axis=1)
    np.testing.assert_allclose([answer["prediction"] for answer in answers], cosines, atol=2e-6)


def test_a_run_says_what_stands_before_queries_and_before_documents(
    tiny_model: Path, tmp_path: Path
) -> None:
    """The library takes neither the default prompt nor that of passages for some sides.

    They are those that its folder does not name.
    """
    folder = make_folder("prompts", tiny_model, tmp_path / "made")
    prompts = {"all": "so ", "passage": "p "}
    _changed(folder, "config_sentence_transformers.json", lambda said: said | {"prompts": prompts})
    rows = "".join(
        json.dumps({"text": text, "pair": f"fine {text}"}) + "\n" for text in ("good", "film")
    )
    (tmp_path / "rows.jsonl").write_text(rows)
    fields = {
        "data.train_file": str(tmp_path / "rows.jsonl"),
        "data.validation_file": str(tmp_path / "rows.jsonl"),
        "model.name": str(folder),
        "model.max_length": 40,
        "training.epochs": 1,
    }
    run = bertctl.finetune("sentence-embeddings", fields=fields, output=tmp_path / "run")
    said = json.loads((run.model_path / "config_sentence_transformers.json").read_text())
    assert said["prompts"] == {**prompts, "query": "so ", "document": "p "}


@pytest.mark.parametrize("default", ["all", None])
def test_an_empty_prompt_takes_the_place_of_the_folder_s(
    default: str | None, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder("prompts", tiny_model, tmp_path / "made")
    messages = {
        "prompts": {"query": "q ", "passage": "p ", "all": "so "},
        "default_prompt_name": default,
    }
    file = "config_sentence_transformers.json"
    _changed(folder, file, lambda _: messages)
    chosen = chosen_modules(
        folder, SentenceEmbeddingsSection(query_prompt="", document_prompt=""), max_length=40
    )
    _changed(folder, file, lambda _: files_of(chosen, size=36)[file])
    for modules in (chosen, read_modules(folder)):
        assert modules is not None
        assert [modules.prompt(side) for side in ("query", "document")] == ["", ""]


def bertctl_model() -> str:
    from bertctl.catalog.models import locate_model

    return str(locate_model("minilm"))


def _changed(folder: Path, file: str, change: Callable[[Any], Any]) -> None:
    path = folder / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(change(content)))


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (
            "modules.json",
            lambda parts: [*parts, {"idx": 9, "path": "9_LSTM", "type": "x.models.LSTM"}],
            "'LSTM'",
        ),
        ("1_Pooling/config.json", lambda _: {"pooling_mode": "lasttoken"}, "pools by 'lasttoken'"),
        (
            "1_Pooling/config.json",
            lambda _: {"pooling_mode_weightedmean_tokens": True},
            "weightedmean",
        ),
        (
            "2_Dense/config.json",
            lambda said: said | {"activation_function": "os.system"},
            "activation",
        ),
        (
            "2_Dense/config.json",
            lambda said: said | {"module_output_name": "other"},
            "module_output_name = 'other'",
        ),
        ("2_Dense/config.json", lambda said: said | {"out_features": "many"}, "can't be used"),
        ("1_Pooling/config.json", lambda said: said | {"include_prompt": False}, "prompts"),
    ],
)
def test_what_can_not_be_computed_is_refused(file, change, said, tiny_model, tmp_path) -> None:
    folder = make_folder("dense", tiny_model, tmp_path / "made")
    _changed(folder, file, change)
    with pytest.raises(UnavailableError, match=said):
        read_modules(folder)


def test_a_folder_without_weights_of_a_layer_is_refused(tiny_model, tmp_path) -> None:
    folder = make_folder("dense", tiny_model, tmp_path / "made")
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(UnavailableError, match="can't be used"):
        bertctl.extract_features(
            TEXTS, model=str(folder), pooling="model", fields={"model.max_length": 40}
        )


def test_a_folder_without_the_file_of_its_pooling_is_refused(tiny_model, tmp_path) -> None:
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(UnavailableError, match=r"1_Pooling/config\.json"):
        read_modules(folder)


def test_parts_are_computed_in_the_order_in_which_they_are_listed(
    tiny_model: Path, tmp_path: Path
) -> None:
    """As the library does; it reads no `idx`."""
    folder = make_folder("dense", tiny_model, tmp_path / "made")
    before = read_modules(folder)
    _changed(
        folder, "modules.json", lambda parts: [part | {"idx": 9 - part["idx"]} for part in parts]
    )
    assert read_modules(folder) == before


def test_a_plain_folder_says_nothing(tiny_model) -> None:
    with pytest.raises(UsageError, match=r"no modules\.json"):
        bertctl.extract_features(
            TEXTS, model=str(tiny_model), pooling="model", fields={"model.max_length": 40}
        )


@pytest.mark.parametrize(("message", "length"), [(9, 9), (10**30, None)])
def test_a_folder_of_release_6_says_its_length_where_the_tokenizer_does(
    message: int, length: int | None, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"transformer_task": "feature-extraction"})
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config | {"model_max_length": message})
    )
    modules = read_modules(folder)
    assert modules is not None
    assert modules.max_length == length


def test_old_folders_name_their_length_by_the_family(tiny_model: Path, tmp_path: Path) -> None:
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    before = read_modules(folder)
    (folder / "sentence_bert_config.json").rename(folder / "sentence_distilbert_config.json")
    assert read_modules(folder) == before


@pytest.mark.parametrize("file", ["tokenizer_config.json", "sentence_bert_config.json"])
def test_a_folder_that_says_more_than_the_model_can_read_is_read_to_its_last_position(
    file: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    most = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    _changed(folder, "sentence_bert_config.json", lambda _: {})
    key = "model_max_length" if file == "tokenizer_config.json" else "max_seq_length"
    _changed(folder, file, lambda said: said | {key: most + 1})
    assert bertctl.extract_features(
        ["good " * 2 * most], model=str(folder), pooling="model"
    ).shape == (1, 36)


def test_vectors_that_a_folder_cuts_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = make_folder("prompts", tiny_model, tmp_path / "made")
    document = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps(document | {"truncate_dim": 8})
    )
    with pytest.raises(UnavailableError, match=r"truncate_dim = 8 \(vectors are cut"):
        read_modules(folder)


@pytest.mark.parametrize(
    "measure",
    [
        "dot",
        *(pytest.param(measure, marks=pytest.mark.slow) for measure in ("euclidean", "manhattan")),
    ],
)
def test_a_run_is_scored_by_its_folders_measure_and_names_it_again(
    measure: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder("mean and max", tiny_model, tmp_path / "made")
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"similarity_fn_name": measure})
    )
    texts = [text or "poor" for text in TEXTS]
    rows = [
        {"text": text, "pair": texts[(i + 1) % 5], "score": i / 4} for i, text in enumerate(texts)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {
        "data.train_file": str(tmp_path / "rows.jsonl"),
        "data.validation_file": str(tmp_path / "rows.jsonl"),
        "model.name": str(folder),
        "model.max_length": 40,
        "training.epochs": 1,
        "runtime.precision": "fp32",
        "training.checkpoint_every": "off",
    }
    run = bertctl.finetune("sentence-embeddings", fields=fields, output=tmp_path / "run")
    saved = json.loads((run.model_path / "config_sentence_transformers.json").read_text())
    assert saved["similarity_fn_name"] == measure
    vectors = bertctl.extract_features(
        texts,
        model=str(run.path),
        pooling="model",
        fields={"model.max_length": 40, "runtime.precision": "fp32"},
    ).astype(np.float64)
    first = vectors
    second = np.roll(vectors, -1, axis=0)
    expected = {
        "dot": (first * second).sum(axis=1),
        "euclidean": -np.linalg.norm(first - second, axis=1),
        "manhattan": -np.abs(first - second).sum(axis=1),
    }[measure]
    answers = run.predict(rows)
    np.testing.assert_allclose(
        [answer["prediction"] for answer in answers], expected, rtol=1e-4, atol=1e-4
    )
