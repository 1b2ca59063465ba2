"""What RUN/model finds in `transformers.pipeline`, beside what `predict` finds.

Beyond the training length too.
"""

import json
import random

import pytest

pytestmark = pytest.mark.in_process

TYPES = {"good": "MOOD", "bad": "TASTE"}
PLAIN = ["the", "film", "was", "it", "a", "food"]


@pytest.fixture(scope="module")
def long_model(tmp_path_factory, tiny_model):
    """The tiny model with 400 positions.

    They are as alike as those of a model that was trained on long texts.
    """
    import shutil

    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(tiny_model, folder)
    config = BertConfig.from_pretrained(folder, max_position_embeddings=400)
    torch.manual_seed(0)
    network = BertModel(config)
    with torch.no_grad():
        network.embeddings.position_embeddings.weight.mul_(0.1)
    network.save_pretrained(folder)
    return folder


def train(nursery, folder, task, model, name, *more):
    done = nursery.run(
        [
            "finetune",
            task,
            "--train-file",
            name,
            "--validation-file",
            name,
            "--model",
            str(model),
            "-o",
            "run",
            "--max-length",
            "24",
            "--learning-rate",
            "5e-3",
            "--precision",
            "fp32",
            "--set",
            "training.max_steps=80",
            "--checkpoint-every",
            "off",
            "--set",
            "training.evaluate_every=80",
            "--set",
            "evaluation.bootstrap_resamples=100",
            "--set",
            "model.dropout=0.0",
            *more,
        ],
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.parametrize(
    "task", [pytest.param("token-classification", marks=pytest.mark.slow), "text-classification"]
)
def test_a_pipeline_finds_in_300_tokens_what_predict_finds(
    bertctl, nursery, long_model, tmp_path_factory, tmp_path, task
):
    from transformers import pipeline

    folder = tmp_path_factory.mktemp(task)
    rng = random.Random(0)  # noqa: S311
    sentences = [rng.choices([*PLAIN, *TYPES], k=rng.randint(3, 9)) for _ in range(120)]
    if task == "token-classification":
        (folder / "train.conll").write_text(
            "\n\n".join(
                "\n".join(f"{w} {f'B-{TYPES[w]}' if w in TYPES else 'O'}" for w in s)
                for s in sentences
            )
            + "\n"
        )
        run = train(nursery, folder, task, long_model, "train.conll")
    else:
        rows = [
            f"{' '.join(s)},{'pos' if s.count('good') > s.count('bad') else 'neg'}"
            for s in sentences
        ]
        (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
        run = train(nursery, folder, task, long_model, "train.csv")
    settings = json.loads((run / "model/tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 400
    assert "at most 24 tokens" in (run / "model/README.md").read_text()
    text = " ".join(["the"] * 200 + ["good", "the", "bad"] + ["good"] * 40 + ["the"] * 50)
    ask = pipeline(task, model=str(run / "model"), device="cpu")
    if task == "token-classification":
        done = bertctl("predict", run, "-", "--precision", "fp32", input=text + "\n")
        actual = [(e["start_char"], e["type"]) for e in json.loads(done.stdout)["entities"]]
        assert [(e["start"], e["entity"].partition("-")[2]) for e in ask(text)] == actual
        assert len(actual) > 30
        return
    cut = bertctl("predict", run, "-", "--precision", "fp32", input=text + "\n")
    assert "a larger --max-length keeps them" in cut.stderr
    done = bertctl(
        "predict", run, "-", "--max-length", "400", "--precision", "fp32", input=text + "\n"
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    (answer,) = ask(text)
    assert answer["label"] == line["prediction"]
    assert answer["score"] == pytest.approx(line["probabilities"][line["prediction"]], abs=1e-4)
    assert line["truncated"] is False
