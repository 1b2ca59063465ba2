"""Numbers of `inspect` and `vocab neighbours`, against numpy and torch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from bertctl.errors import UnavailableError, UsageError
from bertctl.interpretability.anatomy import inspect_model
from bertctl.interpretability.hidden_states import cka_matrix, layer_similarity, walk_input
from bertctl.interpretability.neighbours import near_places, near_tokens
from bertctl.modeling.stored_weights import stored_weights

TEXTS = [
    "the film was good",
    "a dull film",
    "it was not very bright",
    "poor food",
    "fine food was the good",
    "bad",
]


def test_cka_is_that_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bertctl.interpretability.hidden_states._CHUNK", 7
    )  # the last part is shorter
    rng = np.random.default_rng(0)
    a = rng.normal(size=(40, 3, 6)).astype(np.float32) + 5
    turned = a[:, 0] @ np.linalg.qr(rng.normal(size=(6, 6)))[0].astype(np.float32)
    b = np.stack(
        [3 * turned, rng.normal(size=(40, 6)).astype(np.float32), np.ones((40, 6), np.float32)],
        axis=1,
    )
    matrix = cka_matrix(a, b)
    centred_a, centred_b = (
        entry - entry.mean(axis=0) for entry in (a.astype(np.float64), b.astype(np.float64))
    )
    for i in range(3):
        for j in range(2):
            grams = [
                entry @ entry.T for entry in (centred_a[:, i], centred_b[:, j])
            ]  # the paper's equation 2, HSIC
            expected = (grams[0] * grams[1]).sum() / np.sqrt(
                (grams[0] ** 2).sum() * (grams[1] ** 2).sum()
            )
            assert matrix[i, j] == pytest.approx(expected, abs=1e-6)
    assert matrix[0, 0] == pytest.approx(1.0, abs=1e-6), "a turn and another scale change nothing"
    assert matrix[:, 2].tolist() == [0.0] * 3, "all vectors are one"


def test_layers_of_two_models_are_compared_on_texts(tiny_model: Path) -> None:
    similarity = layer_similarity(str(tiny_model), str(tiny_model), [TEXTS[:4], TEXTS[4:]])
    assert similarity["texts"] == 6
    network = transformers.AutoModel.from_pretrained(tiny_model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    with torch.inference_mode():
        states = [
            network(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
            for text in TEXTS
        ]
    vectors = np.stack(
        [
            [hidden_state[0].mean(dim=0).numpy() for hidden_state in state.hidden_states]
            for state in states
        ]
    )
    assert np.array(similarity["cka"]) == pytest.approx(cka_matrix(vectors, vectors), abs=1e-4)
    assert np.diag(similarity["cka"]) == pytest.approx(1.0, abs=1e-6)


def test_the_walk_adds_up(tiny_model: Path) -> None:
    walked = walk_input(str(tiny_model), "good film", "the food")
    network = transformers.AutoModel.from_pretrained(tiny_model).eval()
    tables = network.embeddings
    ids, segments = ([token[name] for token in walked["tokens"]] for name in ("id", "segment"))
    assert segments == [0, 0, 0, 0, 1, 1, 1]
    with torch.inference_mode():
        parts = {
            "token": tables.word_embeddings(torch.tensor(ids)),
            "segment": tables.token_type_embeddings(torch.tensor(segments)),
            "position": tables.position_embeddings(torch.arange(len(ids))),
        }
        parts["embeddings"] = tables.LayerNorm(
            parts["token"] + parts["segment"] + parts["position"]
        )
        inputs = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([segments])}
        last = network(**inputs).last_hidden_state[0]
    for kind, vectors in parts.items():
        lengths = [token["norms"][kind] for token in walked["tokens"]]
        assert lengths == pytest.approx(vectors.norm(dim=-1).tolist(), abs=1e-3)
    assert [state["shape"] for state in walked["states"]] == [[1, 7, 36]] * 3
    assert walked["states"][-1]["mean_norm"] == pytest.approx(
        float(last.norm(dim=-1).mean()), abs=1e-3
    )


def test_neighbours_are_those_of_brute_force() -> None:
    from bertctl.catalog.models import locate_model

    folder = locate_model("minilm")
    table = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"].astype(
        np.float64
    )
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    king, man, woman = (tokens.index(word) for word in ("king", "man", "woman"))
    for expression, query, ids in (
        ("king", units[king], [king]),
        ("king - man + woman", units[king] - units[man] + units[woman], [king, man, woman]),
    ):
        scores = units @ query / np.linalg.norm(query)
        scores[ids] = -2
        best = np.argsort(-scores)[:20]
        neighbours = near_tokens("minilm", expression, top=20)["neighbours"]
        assert [entry["text"] for entry in neighbours] == [tokens[i] for i in best]
        assert [entry["score"] for entry in neighbours] == pytest.approx(
            scores[best].tolist(), abs=1e-5
        )
    assert neighbours[0]["text"] == "queen"
    complete = near_tokens("minilm", "##ing", top=30, whole_words=True)["neighbours"]
    assert not [entry for entry in complete if entry["text"].startswith(("##", "["))]
    assert [
        neighbour
        for neighbour in near_tokens("minilm", "##ing", top=30)["neighbours"]
        if neighbour["text"].startswith("##")
    ]


def test_a_word_is_compared_where_it_stands() -> None:
    texts = [
        "the film, the film",
        "x" * 900 + " film " + "y" * 900,
        "films",
        "no such word",
        "A FILM",
    ]
    actual = near_places("minilm", "film", "a film", [texts[:2], texts[2:]], top=2)
    assert actual["places"] == 4
    assert len(actual["neighbours"]) == 4
    assert actual["neighbours"][0]["text"] == "A FILM"
    assert actual["neighbours"][0]["score"] == pytest.approx(1.0, abs=1e-5)
    assert all(len(neighbour["text"]) <= 604 for neighbour in actual["neighbours"])


def test_a_word_behind_what_is_read_of_the_context_is_refused(tiny_model: Path) -> None:
    """The corpus's first place is no stand-in for it."""
    with pytest.raises(
        UsageError, match="'film' stands behind what the model reads of the context"
    ):
        near_places(str(tiny_model), "film", "z-" * 120 + " film", [["the film was good"]], top=2)


def test_senses_are_told_apart() -> None:
    money = [
        "He opened an account at the bank.",
        "The bank raised its interest rates.",
        "The bank gave us a loan.",
    ]
    river = [
        "We sat on the bank of the river.",
        "The bank of the stream was muddy.",
        "Reeds grow on the river bank.",
    ]
    actual = near_places(
        "minilm", "bank", "they walked along the bank of the river", [money + river], top=3
    )
    assert {neighbour["text"] for neighbour in actual["neighbours"][:3]} == set(river)


def test_half_precision_and_shards_are_read(tiny_model: Path, tmp_path: Path) -> None:
    network = transformers.AutoModel.from_pretrained(tiny_model).to(torch.bfloat16)
    network.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    transformers.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    results = inspect_model(str(tmp_path))
    complete = inspect_model(str(tiny_model))
    assert results["parameters"] == complete["parameters"]
    assert results["parts"] == complete["parts"]
    assert results["bytes"]["BF16"] == 2 * complete["parameters"]
    both = [near_tokens(str(folder), "film")["neighbours"] for folder in (tmp_path, tiny_model)]
    scores = [[entry["score"] for entry in actual] for actual in both]
    assert scores[0] == pytest.approx(scores[1], abs=0.02)


def test_weights_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": np.ones((4, 4), np.float32)}, file)
    assert stored_weights(tmp_path)["a"].shape == (4, 4)
    contents = file.read_bytes()
    header = json.dumps({"a": {"dtype": "F32", "shape": [4, 4]}}).encode()
    for broken in (
        contents[:-1],
        contents[:20],
        b"",
        b"\xff" * 64,
        len(header).to_bytes(8, "little") + header,
    ):
        file.write_bytes(broken)
        with pytest.raises(UnavailableError, match="can't be used"):
            stored_weights(tmp_path)
