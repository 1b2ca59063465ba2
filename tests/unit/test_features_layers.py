"""Layers and poolings, each made again by hand from the hidden states of a small random model."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from bertctl.errors import UsageError
from bertctl.modeling.layers import (
    PAPER,
    WORD_EMBEDDINGS,
    choose_layers,
    join_states,
    layer_count,
    read_states,
    states_needed,
)
from bertctl.modeling.pooling import check_poolings, pool, pool_words

N_LAYERS = 5


@pytest.fixture(scope="module")
def network() -> BertModel:
    """Five layers, so that the last four are not all.

    Sizes that differ, so that a mixed-up axis shows.
    """
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=51,
        hidden_size=24,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=3,
        intermediate_size=37,
        max_position_embeddings=19,
        initializer_range=0.5,
    )
    return BertModel(config).eval()


@pytest.fixture(scope="module")
def inputs() -> dict[str, torch.Tensor]:
    rows = [
        [2, 7, 8, 9, 3],
        [2, 11, 3, 0, 0],
        [2, 20, 21, 3, 0],
    ]
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.fixture(scope="module")
def theirs(network: BertModel, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    with torch.inference_mode():
        return list(network(**inputs, output_hidden_states=True).hidden_states)


def _joined(network: BertModel, inputs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    (choice,) = choose_layers([name], N_LAYERS)
    with torch.inference_mode():
        states, _ = read_states(
            network, network.get_input_embeddings(), inputs, states_needed([choice]), N_LAYERS
        )
    joined = join_states(choice, states)
    assert joined.shape == (
        3,
        5,
        choice.size(24) * (len(choice.states) if choice.is_learned else 1),
    )
    return joined


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("embeddings", lambda h: h[0]),
        ("0", lambda h: h[0]),
        ("3", lambda h: h[3]),
        ("-1", lambda h: h[5]),
        ("-5", lambda h: h[1]),
        ("last", lambda h: h[5]),
        ("second-to-last", lambda h: h[4]),
        ("sum-last-4", lambda h: h[2] + h[3] + h[4] + h[5]),
        ("concat-last-4", lambda h: torch.cat([h[2], h[3], h[4], h[5]], dim=2)),
        ("sum-all", lambda h: h[1] + h[2] + h[3] + h[4] + h[5]),
        ("weighted-last-4", lambda h: torch.cat([h[2], h[3], h[4], h[5]], dim=2)),
        ("weighted-all", lambda h: torch.cat(h[1:], dim=2)),
    ],
)
def test_each_layer_by_hand(network, inputs, theirs, name, by_hand):
    assert len(theirs) == N_LAYERS + 1
    assert (
        min((a - b).abs().max().item() for i, a in enumerate(theirs) for b in theirs[:i]) > 0.1
    ), "all differ"
    torch.testing.assert_close(_joined(network, inputs, name), by_hand(theirs), atol=1e-6, rtol=0)


def test_word_embeddings_are_rows_of_the_piece_table_without_position_or_norm(
    network, inputs, theirs
):
    table = network.embeddings.word_embeddings.weight
    made = _joined(network, inputs, "word-embeddings")
    torch.testing.assert_close(made, table[inputs["input_ids"]])
    assert (made - theirs[0]).abs().max() > 0.1


def test_only_the_piece_table_is_read_where_it_is_all_that_is_asked_for(network, inputs):
    broken = BertModel(network.config)
    broken.embeddings.word_embeddings.weight.data = network.embeddings.word_embeddings.weight.data
    broken.forward = None  # a forward pass would fail
    states, pooled = read_states(
        broken, broken.get_input_embeddings(), inputs, (WORD_EMBEDDINGS,), N_LAYERS
    )
    assert list(states) == [WORD_EMBEDDINGS]
    assert pooled is None


def test_all_is_every_hidden_state_once_and_paper_the_six_choices():
    all_layers = choose_layers(["all"], 3)
    all_and_one_again = choose_layers(["all", "3"], 3)
    of_paper = choose_layers(["paper"], 12)

    assert [choice.states for choice in all_layers] == [(0,), (1,), (2,), (3,)]
    assert [choice.name for choice in all_and_one_again] == ["0", "1", "2", "3"]
    assert [choice.name for choice in of_paper] == list(PAPER)
    assert len(PAPER) == 6


@pytest.mark.parametrize("name", ["6", "-6", "9", "--1", "²", "lats", "sum-last-5"])
def test_a_layer_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(UsageError) as refused:
        choose_layers([name], N_LAYERS)
    assert name in refused.value.message
    assert "0 (embeddings) to 5 (last)" in refused.value.remedy
    assert "concat-last-4" in refused.value.remedy


def test_the_last_four_of_a_model_with_two_layers_are_refused():
    with pytest.raises(UsageError, match=r"four layers, .* 2") as refused:
        choose_layers(["concat-last-4"], 2)
    assert "last-4" not in refused.value.remedy


def test_the_config_says_how_many_layers():
    assert layer_count({"num_hidden_layers": 7}) == 7
    assert layer_count({"n_layers": 6}) == 6
    with pytest.raises(UsageError, match="its number of layers"):
        layer_count({"model_type": "odd"})


@pytest.mark.parametrize("side", ["right", "left"])
def test_each_pooling_by_hand_on_both_padding_sides(side):
    rng = np.random.default_rng(0)
    width = 4
    size = 6
    rows = []
    for length in (4, 1, 3):
        row = rng.normal(size=(length, size)).astype(np.float32)
        rows.append(row - 5)  # negative: a padding zero would win
    vectors = torch.full((3, width, size), 99.0)
    mask = torch.zeros(3, width, dtype=torch.bool)
    for i, row in enumerate(rows):
        first = 0 if side == "right" else width - len(row)
        tokens = slice(first, first + len(row))
        vectors[i, tokens] = torch.from_numpy(row)
        mask[i, tokens] = True

    cls, mean, maximum, both = pool(vectors, mask, ["cls", "mean", "max", "mean-max"])
    (last,) = pool(vectors, mask, ["cls"], cls_last=True)

    for i, row in enumerate(rows):
        expected_mean = row.mean(axis=0)
        expected_maximum = row.max(axis=0)
        expected_both = np.concatenate([expected_mean, expected_maximum])
        np.testing.assert_allclose(cls[i], row[0], rtol=1e-6)
        np.testing.assert_allclose(mean[i], expected_mean, rtol=1e-5)
        np.testing.assert_allclose(maximum[i], expected_maximum, rtol=1e-6)
        np.testing.assert_allclose(both[i], expected_both, rtol=1e-5)
        np.testing.assert_allclose(last[i], row[-1], rtol=1e-6)


def test_without_padding_no_mask_is_needed():
    vectors = torch.arange(24.0).reshape(2, 3, 4)
    everything = torch.ones(2, 3, dtype=torch.bool)
    names = ["max", "cls", "mean-max", "mean"]
    for bare, masked in zip(
        pool(vectors, None, names), pool(vectors, everything, names), strict=True
    ):
        torch.testing.assert_close(bare, masked)
    torch.testing.assert_close(pool(vectors, None, ["cls"], cls_last=True)[0], vectors[:, 2])


def test_tokens_left_out_of_the_mean_still_give_cls_and_a_row_of_them_only_takes_all():
    first_row = [8.0, 1.0, 3.0]
    second_row = [4.0, 6.0, 0.0]
    vectors = torch.tensor([first_row, second_row])[..., None]
    mask = torch.tensor([[True, True, True], [True, True, False]])
    counted = torch.tensor([[False, True, True], [False, False, False]])

    cls, mean, maximum = pool(vectors, mask, ["cls", "mean", "max"], counted=counted)

    assert cls.ravel().tolist() == [8.0, 4.0]
    assert mean.ravel().tolist() == [2.0, 5.0]
    assert maximum.ravel().tolist() == [3.0, 6.0]


def test_a_mean_of_bf16_is_summed_in_fp32():
    vectors = torch.full((1, 4096, 1), 1.0, dtype=torch.bfloat16)
    vectors[0, 0, 0] = 0.5  # a running bf16 sum would stop at 256
    assert pool(vectors, None, ["mean"])[0].item() == pytest.approx(4095.5 / 4096, abs=1e-6)


@pytest.mark.parametrize(
    ("how", "expected"),
    [("first", [1.0, 0.0, 5.0]), ("last", [3.0, 0.0, 5.0]), ("mean", [2.0, 0.0, 5.0])],
)
def test_words_of_several_pieces_one_piece_and_none(how, expected):
    vectors = torch.tensor([[70.0], [1.0], [2.0], [3.0], [5.0], [70.0]])
    words = torch.tensor([-1, 0, 0, 0, 2, -1])

    pooled = pool_words(vectors, words, 3, how)

    assert pooled.ravel().tolist() == expected


def test_an_unknown_pooling_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"pooling 'men': .*mean") as refused:
        check_poolings(["cls", "men"])
    assert "mean-max" in refused.value.remedy
    assert check_poolings(["max", "cls", "max"]) == ("max", "cls")
