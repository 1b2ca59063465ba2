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
    # 40 rows in parts of 7: the last part is shorter
    monkeypatch.setattr("bertctl.interpretability.hidden_states._CHUNK", 7)
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 3, 6)).astype(np.float32) + 5
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    rotated = 3 * first[:, 0] @ rotation.astype(np.float32)
    unrelated = rng.normal(size=(40, 6)).astype(np.float32)
    constant = np.ones((40, 6), np.float32)
    second = np.stack([rotated, unrelated, constant], axis=1)

    matrix = cka_matrix(first, second)

    for i in range(3):
        for j in range(2):
            expected = _cka_by_gram_matrices(first[:, i], second[:, j])
            assert matrix[i, j] == pytest.approx(expected, abs=1e-6)
    assert matrix[0, 0] == pytest.approx(1.0, abs=1e-6), "a turn and another scale change nothing"
    assert matrix[:, 2].tolist() == [0.0] * 3, "all vectors are one"


def _cka_by_gram_matrices(first: np.ndarray, second: np.ndarray) -> float:
    """Equations 2 and 3 of Kornblith et al. 2019: HSIC of linear kernels, normalised."""
    gram_matrices = []
    for vectors in (first.astype(np.float64), second.astype(np.float64)):
        centred = vectors - vectors.mean(axis=0)
        gram_matrices.append(centred @ centred.T)
    first_gram, second_gram = gram_matrices
    hsic = (first_gram * second_gram).sum()
    norms = np.linalg.norm(first_gram) * np.linalg.norm(second_gram)
    return float(hsic / norms)


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

    tokens = walked["tokens"]
    ids = torch.tensor([token["id"] for token in tokens])
    segments = torch.tensor([token["segment"] for token in tokens])
    assert segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    network = transformers.AutoModel.from_pretrained(tiny_model).eval()
    tables = network.embeddings
    with torch.inference_mode():
        token_vectors = tables.word_embeddings(ids)
        segment_vectors = tables.token_type_embeddings(segments)
        position_vectors = tables.position_embeddings(torch.arange(len(ids)))
        total = token_vectors + segment_vectors + position_vectors
        embeddings = tables.LayerNorm(total)
        outputs = network(input_ids=ids[None], token_type_ids=segments[None])
    parts = {
        "token": token_vectors,
        "segment": segment_vectors,
        "position": position_vectors,
        "embeddings": embeddings,
    }
    for kind, vectors in parts.items():
        norms = [token["norms"][kind] for token in tokens]
        assert norms == pytest.approx(vectors.norm(dim=-1).tolist(), abs=1e-3)
    assert [state["shape"] for state in walked["states"]] == [[1, 7, 36]] * 3
    last_norms = outputs.last_hidden_state[0].norm(dim=-1)
    mean_norm = walked["states"][-1]["mean_norm"]
    assert mean_norm == pytest.approx(float(last_norms.mean()), abs=1e-3)


def test_neighbours_are_those_of_brute_force() -> None:
    from bertctl.catalog.models import locate_model

    folder = locate_model("minilm")
    weights = load_file(folder / "model.safetensors")
    table = weights["embeddings.word_embeddings.weight"].astype(np.float64)
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    king = tokens.index("king")
    man = tokens.index("man")
    woman = tokens.index("woman")
    for expression, query, ids in (
        ("king", units[king], [king]),
        ("king - man + woman", units[king] - units[man] + units[woman], [king, man, woman]),
    ):
        scores = units @ query / np.linalg.norm(query)
        scores[ids] = -2
        best = np.argsort(-scores)[:20]
        neighbours = near_tokens("minilm", expression, top=20)["neighbours"]

        assert [entry["text"] for entry in neighbours] == [tokens[i] for i in best]
        neighbour_scores = [entry["score"] for entry in neighbours]
        assert neighbour_scores == pytest.approx(scores[best].tolist(), abs=1e-5)
    assert neighbours[0]["text"] == "queen"


def test_neighbours_are_whole_words_on_request() -> None:
    all_tokens = near_tokens("minilm", "##ing", top=30)["neighbours"]
    whole_words = near_tokens("minilm", "##ing", top=30, whole_words=True)["neighbours"]

    assert any(entry["text"].startswith("##") for entry in all_tokens)
    assert not any(entry["text"].startswith(("##", "[")) for entry in whole_words)


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
    half_neighbours = near_tokens(str(tmp_path), "film")["neighbours"]
    neighbours = near_tokens(str(tiny_model), "film")["neighbours"]
    half_scores = [entry["score"] for entry in half_neighbours]
    scores = [entry["score"] for entry in neighbours]
    assert half_scores == pytest.approx(scores, abs=0.02)


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
