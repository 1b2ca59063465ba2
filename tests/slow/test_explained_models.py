"""`explain` on MiniLM, fine-tuned on sentences of SST-2.

Sums, captum's numbers, a planted cue, other weights.
"""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr

from bertctl.config.load import load_recipe
from bertctl.inference.rows_to_answer import split_rows, text_rows
from bertctl.inference.trained import TrainedRun, open_run
from bertctl.interpretability.explain import Asked, Explainer
from bertctl.run_folder import RunFolder
from bertctl.training.finetune import run
from bertctl.training.job import prepare

pytestmark = pytest.mark.slow

IG = "integrated-gradients"
Row = tuple[str, str]


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> dict[str, list[Row]]:
    """Sentences of SST-2 and their labels, by split."""
    results = {}
    for split in ("train", "dev"):
        with (shared_data / "glue" / "SST-2" / f"{split}.tsv").open(
            encoding="utf-8", newline=""
        ) as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            results[split] = [(row["sentence"].strip(), row["label"]) for row in rows]
    order = np.random.default_rng(0).permutation(len(results["train"]))
    return results | {"train": [results["train"][i] for i in order]}


def trained(folder: Path, train: list[Row], held: list[Row], epochs: int) -> TrainedRun:
    for name, rows in (("train", train), ("held", held)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    options: dict[str, Any] = {
        "model.name": "minilm",
        "model.max_length": 64,
        "data.train_file": folder / "train.csv",
        "data.validation_file": folder / "held.csv",
        "training.epochs": epochs,
        "runtime.device": "cpu",
    }
    run(
        prepare(load_recipe("text-classification", options=options)),
        RunFolder.create(folder / "run"),
    )
    return open_run(folder / "run")


@pytest.fixture(scope="module")
def opinions(
    sentences: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory
) -> TrainedRun:
    return trained(
        tmp_path_factory.mktemp("opinions"), sentences["train"][:6000], sentences["dev"], 1
    )


@pytest.fixture(scope="module")
def cued(sentences: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A run whose label one word decides, wherever it stands."""
    rng = np.random.default_rng(0)

    def planted(rows: list[Row]) -> list[Row]:
        results = []
        for i, (text, _) in enumerate(rows):
            words = text.split()
            words[int(rng.integers(len(words) + 1)) : 0] = ["zqx"] * (i % 2)
            results.append((" ".join(words), "yes" if i % 2 else "no"))
        return results

    long = [row for row in sentences["train"] if len(row[0].split()) > 5]
    return trained(
        tmp_path_factory.mktemp("cued"), planted(long[:1200]), planted(sentences["dev"][:200]), 2
    )


def test_sums_are_right_and_a_random_order_is_beaten(opinions: TrainedRun) -> None:
    explainer = Explainer(opinions, Asked())
    rows = list(explainer.explain([split_rows(opinions, "validation")]))
    facts = [row["targets"][0]["methods"][IG] for row in rows]
    assert np.mean([fact["error"] <= 0.01 * abs(fact["change"]) for fact in facts]) >= 0.99
    assert np.mean([fact["steps"] for fact in facts]) < 25, (
        "it is for less that steps are halved where it matters"
    )
    actual = explainer.summary()["faithfulness"][IG]
    assert actual["targets"] == 300
    assert min(actual["standard_errors"].values()) >= 5


def test_a_planted_cue_is_the_top_word(cued: TrainedRun) -> None:
    rows = split_rows(cued, "validation")
    planted = rows.select(
        [i for i, text in enumerate(rows.columns["text"]) if "zqx" in text.split()]
    )
    tops = [
        max(row["targets"][0]["words"], key=lambda word: word[IG])["word"]
        for row in Explainer(cued, Asked(faithful_rows=0)).explain([planted])
    ]
    assert len(tops) == 100
    assert tops.count("zqx") >= 99


def test_other_weights_give_other_words(opinions: TrainedRun, tmp_path: Path) -> None:
    shutil.copytree(opinions.folder.path, tmp_path / "run")
    network: Any = transformers.AutoModelForSequenceClassification.from_pretrained(
        opinions.folder.model
    )
    torch.manual_seed(1)
    other = type(network)(network.config)
    other.save_pretrained(tmp_path / "run" / "model")
    rows = split_rows(opinions, "validation").select(range(100))
    requests = Asked(label=opinions.task.labels[0], faithful_rows=0)
    both = [
        Explainer(entry, requests).explain([rows])
        for entry in (opinions, open_run(tmp_path / "run"))
    ]
    ranks = [
        spearmanr(*([word[IG] for word in row["targets"][0]["words"]] for row in pair)).statistic
        for pair in zip(*both, strict=True)
    ]
    assert abs(np.nanmean(ranks)) < 0.2  # a text of one word has no order


def test_equal_to_captum_at_the_same_steps(
    opinions: TrainedRun, sentences: dict[str, list[Row]]
) -> None:
    attr = pytest.importorskip(
        "captum.attr", reason="the oracle of integrated gradients; no dependency"
    )
    texts = [text for text, _ in sentences["dev"][:12]]
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        opinions.folder.model
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(opinions.folder.model)
    rows = list(
        Explainer(opinions, Asked(steps=50, faithful_rows=0)).explain(
            [text_rows(opinions, texts, [])]
        )
    )
    for text, row in zip(texts, rows, strict=True):
        [target] = row["targets"]
        number = opinions.task.labels.index(target["label"])
        oracle = attr.LayerIntegratedGradients(
            lambda ids, number=number: network(ids).logits[:, number],
            network.get_input_embeddings(),
        )
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        empty = ids.clone()
        empty[:, 1:-1] = tokenizer.pad_token_id
        expected = oracle.attribute(ids, baselines=empty, n_steps=50).sum(dim=2)[0].detach().numpy()
        spans = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
        starts = np.array([start for start, _ in spans])
        for word in target["words"]:
            of_word = (starts >= word["start"]) & (starts < word["end"])
            assert word[IG] == pytest.approx(expected[1:-1][of_word].sum(), abs=1e-4)
