"""Families looked into.

Parameters by the headers of their files, masked words as the pipeline fills them.
"""

import json
import math
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import FAMILIES, TRIED, encoder_config, make_encoder, make_encoder_of_its_kind

from bertctl.checking.check import check_data
from bertctl.config.recipe_sections import DataSection, ModelSection
from bertctl.config.schema import Recipe
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.likelihood import Scorer, Variant
from bertctl.inference.masked_words import MaskedModel
from bertctl.interpretability.anatomy import flops, parameters_by_part
from bertctl.interpretability.hidden_states import layer_similarity, walk_input
from bertctl.interpretability.neighbours import near_tokens
from bertctl.modeling.families import REFUSED, families_with, model_sizes
from bertctl.modeling.stored_weights import places, stored_weights, word_table
from bertctl.tokenization.stream import TextChunk

FILLING = ("bert", "distilbert", "roberta", "albert", "modernbert")
TEXTS = ("the {0} was very good", "a {0} and a {0} film", "{0} food")

Filled = Callable[[str], tuple[Path, Any]]


def saved(network: Any, folder: Path) -> Any:
    network.save_pretrained(folder)
    return stored_weights(folder)


def _tier(name: str, default: Container[str] = FAMILIES) -> Any:
    """The families that are tried by default, the others before a release."""
    if name in default:
        return pytest.param(name)
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [_tier(name) for name in TRIED])
def test_the_headers_say_what_torch_counts(name: str, tmp_path: Path) -> None:
    network = transformers.AutoModel.from_config(encoder_config(name, 120))
    weights = saved(network, tmp_path)
    parts = parameters_by_part(weights)
    layers = sum(sum(layer.values()) for layer in parts.pop("layers"))
    assert layers + sum(parts.values()) == sum(
        parameter.numel() for parameter in network.parameters()
    )
    assert parts["head"] == 0
    assert layers > 0
    table = network.get_input_embeddings().weight
    assert word_table(weights).shape == tuple(table.shape)


UNNUMBERED = ("funnel", "mt5", "t5", "umt5")
"""Families whose layers have no single number."""


@pytest.mark.parametrize(
    "name", [_tier(name, ("bert", "modernbert", "xlnet", "t5")) for name in TRIED]
)
def test_a_text_is_walked_through(name: str, tmp_path: Path) -> None:
    folder = str(make_encoder(name, tmp_path))
    if name in UNNUMBERED:
        with pytest.raises(UsageError, match="layer"):
            walk_input(folder, "the food was good")
        return
    walked = walk_input(folder, "the food was good", "a film")
    assert len(walked["states"]) == 3
    assert all(state["shape"] == [1, len(walked["tokens"]), 24] for state in walked["states"])
    kinds = set()
    for token in walked["tokens"]:
        kinds.update(token["norms"])
    assert kinds - {"token", "position", "segment"} == {"embeddings"}
    assert "token" in kinds or name in (
        "ibert",
        "longformer",
    )  # no plain table; more rows than tokens
    cka = layer_similarity(folder, folder, [["the food was good", "a film", "bad"]])["cka"]
    assert [row[i] for i, row in enumerate(cka)] == pytest.approx([1.0] * 3, abs=1e-5)


@pytest.mark.parametrize(
    "name", ["bert", "distilbert", "roberta", "albert", "xlnet", "deberta-v2", "modernbert"]
)
def test_a_head_is_told_from_its_encoder(name: str, tmp_path: Path) -> None:
    network = transformers.AutoModelForSequenceClassification.from_config(encoder_config(name, 120))
    names = {
        name for name, place in places(saved(network, tmp_path)).items() if place.part == "head"
    }
    text = f"{network.base_model_prefix}."
    assert names == {name for name, _ in network.named_parameters() if not name.startswith(text)}
    assert names


NESTED = ("qwen3_5", "t5gemma")
"""Families that state their sizes in a config of their own within config.json."""


@pytest.mark.parametrize(
    "family",
    sorted(
        families_with("AutoModelForSequenceClassification").difference(
            REFUSED, NESTED, ("fnet", "funnel")
        )
    ),
)
def test_sizes_are_those_that_transformers_reads(family: str) -> None:
    """FNet has no attention heads, and Funnel's layers are the sum of its blocks."""
    config = transformers.CONFIG_MAPPING[family]()

    sizes = model_sizes(config.to_dict())

    assert sizes["layers"] == config.num_hidden_layers
    assert sizes["hidden"] == config.hidden_size
    assert sizes["heads"] == config.num_attention_heads


def test_layers_are_attention_and_feed_forward(tmp_path: Path) -> None:
    network = transformers.AutoModel.from_config(encoder_config("bert", 120))
    layer = network.encoder.layer[0]
    [first, second] = parameters_by_part(saved(network, tmp_path))["layers"]
    attention = sum(parameter.numel() for parameter in layer.attention.parameters())
    total = sum(parameter.numel() for parameter in layer.parameters())
    assert (
        first == second == {"attention": attention, "feed_forward": total - attention, "other": 0}
    )


@pytest.mark.parametrize("name", ["bert", "distilbert", "albert", "roberta"])
def test_flops_are_those_that_torch_counts(name: str, tmp_path: Path) -> None:
    """They are, but for the pooler and ALBERT's narrow embeddings.

    The pooler reads one token, and the embeddings are a product of their own.
    """
    from torch.utils.flop_counter import FlopCounterMode

    config = encoder_config(name, 120)
    config._attn_implementation = "eager"
    network = transformers.AutoModel.from_config(config).eval()
    counted = flops(saved(network, tmp_path), model_sizes(config.to_dict()), 20)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        network(input_ids=torch.full((1, 20), 7))
    uncounted = 0
    if name == "albert":
        uncounted += 2 * network.pooler.weight.numel()
        uncounted += 20 * 2 * network.encoder.embedding_hidden_mapping_in.weight.numel()
    elif hasattr(network, "pooler"):
        uncounted += 2 * network.pooler.dense.weight.numel()
    assert counter.get_total_flops() == counted["per_example"] + uncounted


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Makes a folder of a family with its masked-word head, and the pipeline on it."""
    made: dict[str, tuple[Path, Any]] = {}

    def make(name: str) -> tuple[Path, Any]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            known = name in FAMILIES
            tokenizer = FAMILIES[name if known else "bert"].tokenizer()
            tokenizer.save_pretrained(folder)
            config = (
                FAMILIES[name].config(tokenizer) if known else encoder_config(name, len(tokenizer))
            )
            torch.manual_seed(1)
            network = transformers.AutoModelForMaskedLM.from_config(config)
            for parameter in network.parameters():  # so that words differ by more than noise
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.3)
            network.save_pretrained(folder)
            made[name] = (
                folder,
                transformers.pipeline("fill-mask", model=str(folder), tokenizer=str(folder)),
            )
        return made[name]

    return make


@pytest.mark.parametrize("name", FILLING)
def test_masks_are_filled_as_the_pipeline_fills_them(name: str, filled: Filled) -> None:
    folder, pipeline = filled(name)
    filler = MaskedModel(str(folder))
    texts = [text.format(filler.mask) for text in TEXTS]
    for text, answer in zip(texts, filler.fill([texts], top_k=4), strict=True):
        expected = pipeline(text, top_k=4)
        expected = [expected] if isinstance(expected[0], dict) else expected
        assert len(answer["masks"]) == len(expected) == text.count(filler.mask)
        for mask, theirs in zip(answer["masks"], expected, strict=True):
            assert [entry["ids"] for entry in mask] == [[entry["token"]] for entry in theirs]
            assert [entry["score"] for entry in mask] == pytest.approx(
                [entry["score"] for entry in theirs], abs=1e-6
            )
            assert [entry["word"] for entry in mask] == [
                entry["token_str"].strip() for entry in theirs
            ]


@pytest.mark.parametrize("name", FILLING)
def test_targets_are_scored_as_the_pipeline_scores_them(name: str, filled: Filled) -> None:
    folder, pipeline = filled(name)
    filler = MaskedModel(str(folder))
    text = f"it was a {filler.mask} film"
    [answer] = filler.fill([[text]], targets=["good", "film"])
    mine = {
        mask["pieces"][0]: mask["score"] for mask in answer["masks"][0] if len(mask["pieces"]) == 1
    }
    assert mine
    theirs = {entry["token"]: entry["score"] for entry in pipeline(text, targets=list(mine))}
    for element in answer["masks"][0]:
        if len(element["ids"]) == 1:
            assert element["score"] == pytest.approx(theirs[element["ids"][0]], abs=1e-6)


def test_a_target_of_several_tokens_is_as_many_masks(filled: Filled) -> None:
    folder, _ = filled("bert")
    filler = MaskedModel(str(folder))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    [answer] = filler.fill([["the [MASK] was [MASK]"]], targets=["goodness", "good"])
    ids = tokenizer("goodness", add_special_tokens=False)["input_ids"]
    assert len(ids) > 1
    for number, text in enumerate(("the {0} was [MASK]", "the [MASK] was {0}")):
        inputs = tokenizer(text.format(" ".join(["[MASK]"] * len(ids))), return_tensors="pt")
        with torch.inference_mode():
            logits = network(**inputs).logits[0]
        at = [
            i
            for i, entry in enumerate(inputs["input_ids"][0].tolist())
            if entry == tokenizer.mask_token_id
        ]
        personal = at[number : number + len(ids)]
        expected = float(logits[personal].log_softmax(-1)[range(len(ids)), ids].sum().exp())
        [actual] = [mask for mask in answer["masks"][number] if mask["word"] == "goodness"]
        assert actual["ids"] == ids
        assert actual["score"] == pytest.approx(expected, abs=1e-9, rel=1e-5)


def test_a_head_whose_weights_are_missing_is_refused(filled: Filled, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder, _ = filled("bert")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    retained = {name: weight for name, weight in weights.items() if "transform" not in name}
    assert 0 < len(retained) < len(weights)
    save_file(retained, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnavailableError, match=r"(?s)transform.*would be random") as refused:
        MaskedModel(str(tmp_path))
    assert "bert-base" in refused.value.remedy
    bare = make_encoder("bert", tmp_path / "bare")
    with pytest.raises(UsageError, match="are those of BertModel"):
        MaskedModel(str(bare))


WITH_HEAD = (
    *FILLING,
    "camembert",
    "convbert",
    "deberta",
    "deberta-v2",
    "electra",
    "fnet",
    "ibert",
    "luke",
    "mobilebert",
    "mpnet",
    "rembert",
    "roformer",
    "squeezebert",
    "xlm-roberta",
    "yoso",
)
SCORED = (
    "the film was unwatchable, goodness",
    "a",
    "it was a very good film and the food was not bad",
)
VARIANTS: tuple[Variant, ...] = ("within-word", "token")


def masked_alone(folder: Path, text: str, variant: Variant) -> list[float]:
    """The logarithm of each token's probability, a pass of plain transformers for each."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    encoded = tokenizer(text, return_tensors="pt")
    words = encoded.word_ids()
    ids = encoded["input_ids"][0]
    results = []
    for i in (
        i for i, sequence_id in enumerate(encoded.sequence_ids(0)) if sequence_id is not None
    ):
        later = (
            [j for j in range(i + 1, len(ids)) if words[j] == words[i]]
            if variant == "within-word"
            else []
        )
        masked = ids.clone()
        masked[[i, *later]] = tokenizer.mask_token_id
        with torch.inference_mode():
            logits = network(**{**encoded, "input_ids": masked[None]}).logits[0, i]
        results.append(float(logits.log_softmax(-1)[ids[i]]))
    return results


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", [_tier(name, ("bert", "roberta", "albert")) for name in WITH_HEAD])
def test_texts_are_scored_as_plain_transformers_scores_them(
    name: str, variant: Variant, filled: Filled
) -> None:
    folder, _ = filled(name)
    scorer = Scorer(MaskedModel(str(folder)), variant)
    alone = name == "mobilebert"  # whose tokens read the padding beside them
    answers = list(
        scorer.score([TextChunk([text]) for text in SCORED] if alone else [TextChunk(SCORED)])
    )
    for text, answer in zip(SCORED, answers, strict=True):
        expected = masked_alone(folder, text, variant)
        assert [piece["log_likelihood"] for piece in answer["pieces"]] == pytest.approx(
            expected, abs=1e-4
        )
        assert answer["log_likelihood"] == pytest.approx(sum(expected), abs=1e-4)
    total = sum(answer["log_likelihood"] for answer in answers)
    tokens = sum(answer["tokens"] for answer in answers)
    assert scorer.summary()["pseudo_perplexity"] == pytest.approx(math.exp(-total / tokens))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "theirs"), [("within-word", "within_word_l2r"), ("token", "original")]
)
def test_texts_are_scored_as_minicons_scores_them(
    variant: Variant, theirs: str, filled: Filled
) -> None:
    minicons = pytest.importorskip("minicons.scorer", reason="the oracle (pip install minicons)")
    for name in ("bert", "roberta", "distilbert"):
        folder, _ = filled(name)
        oracle = minicons.MaskedLMScorer(str(folder), "cpu")
        oracle.tokenizer.batch_encode_plus = oracle.tokenizer  # gone from transformers 5
        answers = Scorer(MaskedModel(str(folder)), variant).score([TextChunk(SCORED)])
        for answer, expected in zip(
            answers, oracle.token_score(list(SCORED), PLL_metric=theirs), strict=True
        ):
            scores = [score for _, score in expected]
            mine = [piece["log_likelihood"] for piece in answer["pieces"]]
            assert mine == pytest.approx(
                scores[1:-1] if len(scores) > len(mine) else scores, abs=1e-4
            )


def test_whole_words_are_those_that_begin_with_a_space_where_that_is_marked(tmp_path: Path) -> None:
    folder = make_encoder_of_its_kind("xlm-roberta", tmp_path / "xlm")
    neighbours = near_tokens(str(folder), "film", top=30, whole_words=True)["neighbours"]
    assert neighbours
    assert all(
        entry["text"].startswith("\u2581") and len(entry["text"]) > 1 for entry in neighbours
    )


def test_a_letter_of_bert_is_no_mark_of_a_space(tmp_path: Path) -> None:
    """It is the letter G with a dot above, of Maltese.

    Byte-level vocabularies write it for a space.
    """
    folder = make_encoder_of_its_kind("bert", tmp_path / "bert")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["\u0120"] = document["model"]["vocab"].pop("dull")
    (folder / "tokenizer.json").write_text(json.dumps(document))
    neighbours = near_tokens(str(folder), "film", top=30, whole_words=True)["neighbours"]
    assert len(neighbours) == 30


def test_what_unigram_does_not_know_is_named_by_the_check_of_the_data(tmp_path: Path) -> None:
    folder = make_encoder_of_its_kind("xlm-roberta", tmp_path / "xlm")
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "text,label\n" + "".join(f"the film {i} was ☃,{i % 2}\n" for i in range(40)),
        encoding="utf-8",
    )
    recipe = Recipe(
        data=DataSection(train_file=str(rows)), model=ModelSection(name=str(folder), max_length=32)
    )
    (actual,) = [
        finding
        for finding in check_data(recipe).findings
        if (finding.code, finding.split) == ("unknown-token", "train")
    ]
    assert "'☃'" in actual.message
