"""`bertctl pretrain` by the real process.

From nothing and from weights, gone on with, scored, refused, made use of.
"""

import json
import math
import shutil
import signal
from pathlib import Path

import pytest

from bertctl.tasks.pretraining.pretraining_answers import PretrainingAnswers
from tests.conftest import Run
from tests.nursery import Nursery
from tests.stopping import Training, history_losses

SIZE = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
QUICK = ("--max-length", "32", "--precision", "fp32", "--threads", "1", "--batch-size", "8")
SETS = ("--set", "training.log_every=1", "--set", "evaluation.bootstrap_resamples=100")
NEW = ("--from-scratch", "size.json", "--vocab-size", "300")


def write_corpus(path: Path) -> Path:
    """Sixty documents of two to five sentences."""
    positions = ("harbour", "market", "school", "station", "garden")
    things = ("boats", "apples", "books", "trains", "roses")
    documents = []
    for i in range(60):
        kind = i % 5
        first = f"The {positions[kind]} of town {i} has {i + 3} {things[kind]}."
        documents.append(
            "\n".join(
                [
                    first,
                    *(
                        f"In year {i + k} there were {k} more {things[kind]}."
                        for k in range(i % 4 + 1)
                    ),
                ]
            )
        )
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "size.json").write_text(json.dumps(SIZE), encoding="utf-8")
    return write_corpus(tmp_path / "towns.txt")


def _same(entry: Path, other: Path) -> None:
    for name in ("metrics.json", "model/model.safetensors", "predictions/validation.jsonl"):
        assert (entry / name).read_bytes() == (other / name).read_bytes(), name


def test_from_nothing_to_a_model_that_others_use(
    bertctl: Run, corpus: Path, tmp_path: Path, opinions: Path
) -> None:
    done = bertctl("pretrain", corpus, *NEW, *QUICK, *SETS, "--epochs", 2, "-o", "run", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    actual = answer["metrics"]["validation"]
    assert actual.keys() == {"perplexity", "masked_accuracy", "order_accuracy", "loss"}
    assert actual["loss"]["n"] == 3  # documents: a twentieth of 60
    assert actual["masked_accuracy"]["high"] > actual["masked_accuracy"]["low"], (
        "three documents don't make certain"
    )
    assert 3.0 < answer["baseline"]["validation"]["loss"] < 6.0
    assert "head for the order of sentences" not in done.stderr
    history = [
        json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()
    ]
    steps = [line for line in history if "loss" in line]
    assert all(abs(line["words_loss"] + line["order_loss"] - line["loss"]) < 1e-5 for line in steps)
    samples = [line["samples"] for line in history if "samples" in line]
    assert len(samples) == 2
    assert all(len(texts) == 3 and all("[" in text for text in texts) for texts in samples)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["architectures"] == [
        "BertForPreTraining"
    ]
    filled = bertctl("fill-mask", "run", "The harbour has [MASK].", "--top-k", 2, "--json")
    assert filled.returncode == 0, filled.stderr
    tuned = bertctl("finetune", opinions, "--model", "run", "--epochs", 1, *QUICK, "-o", "tuned")
    assert tuned.returncode == 0, tuned.stderr
    assert (
        bertctl(
            "extract-features", opinions, "--model", "run", "-o", "v.npy", *QUICK[:4]
        ).returncode
        == 0
    )


@pytest.mark.slow
def test_words_alone_on_weights_without_the_head(
    bertctl: Run, corpus: Path, tiny_model: Path, tmp_path: Path
) -> None:
    options = ("--model", tiny_model, "--no-nsp", *QUICK, "--max-steps", 2)
    done = bertctl("pretrain", corpus, *options, "-o", "run")
    assert done.returncode == 0, done.stderr
    assert (
        f"{tiny_model} has no masked-word head (its matrix is the table of token embeddings)"
        in done.stderr
    )
    assert "order_accuracy" not in (tmp_path / "run/metrics.json").read_text()
    again = bertctl("pretrain", corpus, "--model", "run", *options[2:], "-o", "again")
    assert again.returncode == 0, again.stderr
    assert "a new one is made" not in again.stderr
    scored = bertctl("evaluate", "run", "--file", corpus, "-o", "scored", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["metrics"]["file"]["loss"]["n"] == 60
    compared = bertctl("compare", "run", "again")
    assert compared.returncode == 0, compared.stderr
    gated = bertctl("gate", "run", "--max", "perplexity=1e9")
    assert gated.returncode == 7, gated.stderr
    assert "not clearly better than the best constant prediction" in gated.stdout
    assert bertctl("report", "run", "-o", "report.html").returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert "[masked token: what the model says]" in page
    assert "tokens is read in windows." in page
    assert "what is longer was read in windows" in (tmp_path / "run/model/README.md").read_text()


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(
    corpus: Path, tmp_path: Path, nursery: Nursery
) -> None:
    words = [
        "pretrain",
        str(corpus),
        "--from-scratch",
        str(tmp_path / "size.json"),
        "--vocab-size",
        "300",
        *QUICK,
        *SETS,
    ]
    words += ["--epochs", "4", "--checkpoint-every", "3 steps"]
    complete = tmp_path / "whole"
    killed = tmp_path / "killed"
    assert nursery.run([*words, "-o", str(complete)], cwd=tmp_path).returncode == 0
    child = nursery.start([*words, "-o", str(killed)], cwd=tmp_path, env=nursery.env)
    Training.wait_for_steps(killed, 10, child)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    done = nursery.run([*words, "-o", str(killed), "--resume"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert history_losses(killed) == history_losses(complete)
    _same(complete, killed)


@pytest.mark.slow
def test_two_processes_see_the_same_masks(bertctl: Run, corpus: Path, tmp_path: Path) -> None:
    words = (
        "pretrain",
        corpus,
        *NEW,
        *QUICK,
        *SETS,
        "--max-steps",
        6,
        "--set",
        "model.dropout=0.0",
    )
    for count in (1, 2):
        done = bertctl(*words, "-o", f"run{count}", "--num-processes", count)
        assert done.returncode == 0, done.stderr
    entry, two = (history_losses(tmp_path / f"run{count}") for count in (1, 2))
    assert two == pytest.approx(entry, abs=1e-4)
    scored = [bertctl("evaluate", "run1", "--num-processes", count, "--json") for count in (1, 2)]
    assert scored[0].stdout == scored[1].stdout


@pytest.mark.in_process
def test_a_misspelt_field_of_a_new_bert_is_named(
    bertctl: Run, corpus: Path, tmp_path: Path
) -> None:
    """The model had 12 layers, and nothing was said."""
    sizes = {"hidden_size": 24, "num_hidden_layer": 2, "num_attention_heads": 2, "num_labels": 3}
    (tmp_path / "typo.json").write_text(json.dumps(sizes))
    words = ("pretrain", corpus, "--from-scratch", "typo.json", "--vocab-size", 300, "--dry-run")
    for _ in range(2):  # it is made once
        done = bertctl(*words)
        assert done.returncode == 0, done.stderr
        assert (
            "typo.json: nothing comes of 'num_hidden_layer', which no BertConfig has" in done.stderr
        )


@pytest.mark.in_process
def test_a_corpus_size_or_model_that_cannot_be_pretrained_is_refused(
    bertctl: Run, corpus: Path, tmp_path: Path, tiny_model: Path
) -> None:
    """Each with its code, and with what to type."""
    shutil.copy(corpus, tmp_path / "one.txt")
    (tmp_path / "bad.json").write_text('{"model_type": "roberta"}')
    (tmp_path / "odd.json").write_text('{"hidden_size": 30, "num_attention_heads": 4}')
    (tmp_path / "same.txt").write_text("The same line again and again.\n" * 50 + corpus.read_text())
    (tmp_path / "a.txt").write_text("a\n")
    other = ("--model", tiny_model, "--max-length", 40, "--validation-file", corpus)
    cases = [
        ((), 2, "bertctl pretrain CORPUS..."),
        (("nowhere.txt",), 4, "nowhere.txt"),
        (("sst2",), 2, "bertctl finetune sst2"),
        ((corpus, "--from-scratch", "huge"), 2, "Sizes: tiny, mini, small, medium, base"),
        ((corpus, "--from-scratch", "bad.json"), 2, "describes no BERT"),
        ((corpus, "--from-scratch", "odd.json", "--vocab-size", 300), 2, "odd.json"),
        ((corpus, "--from-scratch", "nowhere.json"), 4, "nowhere.json"),
        ((corpus, "--model", tiny_model, "--vocab", "x"), 2, "pretraining.vocab"),
        ((corpus, *NEW, "--objective", "clm"), 2, "mlm+nsp"),
        (("same.txt", *NEW), 3, "--allow-duplicates"),
        ((corpus, *NEW, "--mix", "sea=1"), 2, "--mix towns=1"),
        (
            (corpus, "a.txt", *other, "--mix", "towns=0.2", "--mix", "a=0.8"),
            3,
            "'a' has no window to train on",
        ),
        (("a.txt", *other), 3, "'a' has no window to train on"),
        (
            ("a.txt", *other, "--from-scratch", "tiny", "--vocab", tiny_model),
            3,
            "'a' has no window to train on",
        ),
        ((corpus, "a.txt", *other, "--mix-temperature", 2), 3, "'a' has no window to train on"),
        (
            (corpus, *other[:4], "--no-nsp", "--validation-file", "a.txt"),
            3,
            "no token of its text is masked",
        ),
        ((corpus, *NEW, "--set", "masking.replaced=0.95"), 2, "masking.replaced"),
        ((corpus, "--model", tiny_model, "--max-length", 4096), 2, "positions"),
    ]
    for words, code, message in cases:
        done = bertctl("pretrain", *words, "-o", "refused")
        assert done.returncode == code, (words, done.stderr)
        assert message in done.stderr, (words, done.stderr)
        assert not (tmp_path / "refused").exists(), words
    assert "bertctl pretrain pretrain" in bertctl("finetune", "pretrain").stderr


def test_a_dry_run_says_what_would_be(bertctl: Run, corpus: Path) -> None:
    done = bertctl("pretrain", corpus, *NEW, *QUICK, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["examples"]["validation"] >= 3
    assert plan["recipe"]["pretraining"]["corpus"] == [str(corpus)]


def test_a_damaged_cache_is_said(bertctl: Run, corpus: Path, tmp_path: Path) -> None:
    cache = {"BERTCTL_CACHE": str(tmp_path / "cache")}
    assert bertctl("pretrain", corpus, *NEW, *QUICK, "--dry-run", env=cache).returncode == 0
    (ids,) = (tmp_path / "cache").glob("corpora/*/packed/ids.npy")
    content = bytearray(ids.read_bytes())
    content[-1] ^= 0x80
    ids.write_bytes(content)
    refused = bertctl("pretrain", corpus, *NEW, *QUICK, "--dry-run", env=cache)
    assert refused.returncode == 3, refused.stderr
    assert "Delete it: it is made anew." in refused.stderr


@pytest.mark.in_process
def test_a_run_is_scored_again_on_what_it_held_out(
    bertctl: Run, corpus: Path, tmp_path: Path
) -> None:
    done = bertctl("pretrain", corpus, *NEW, *QUICK, *SETS, "--max-steps", 2, "-o", "run")
    assert done.returncode == 0, done.stderr
    before = (
        (tmp_path / "run/metrics.json").read_bytes(),
        (tmp_path / "run/predictions/validation.jsonl").read_bytes(),
    )
    again = bertctl("evaluate", "run")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run/predictions/validation.jsonl").read_bytes() == before[1]
    assert (
        json.loads((tmp_path / "run/metrics.json").read_text())["metrics"]
        == json.loads(before[0])["metrics"]
    )
    (tmp_path / "a.txt").write_text("a\n")
    refused = bertctl("evaluate", "run", "--file", "a.txt", "-o", "little")
    assert refused.returncode == 3
    assert "no token of its text is masked" in refused.stderr
    refused = bertctl("predict", "run", corpus)
    assert refused.returncode == 2
    assert "bertctl fill-mask run TEXT" in refused.stderr
    assert bertctl("evaluate", "run", "--split", "train").returncode == 2


def test_documents_with_one_masked_token_each_have_a_perplexity() -> None:
    lines = [{"gold": 1, "prediction": 0, "masked_loss": loss} for loss in (1.0, 2.0, 3.0)]
    [metric] = [entry for entry in PretrainingAnswers.metrics if entry.name == "perplexity"]
    assert metric.contribute is not None
    actual = metric.contribute(PretrainingAnswers(), lines)
    assert actual is not None
    assert actual.value == pytest.approx(math.exp(2.0))


@pytest.mark.parametrize("masks", [(1, 1, 1), (7, 4, 5), (7,)])
def test_the_interval_of_the_perplexity_is_that_of_the_loss(masks: tuple[int, ...]) -> None:
    lines = [
        {"gold": n, "prediction": 0, "masked_loss": n * (3.0 + 0.1 * i)}
        for i, n in enumerate(masks)
    ]
    [metric] = [entry for entry in PretrainingAnswers.metrics if entry.name == "perplexity"]
    assert metric.contribute is not None
    contributed = metric.contribute(PretrainingAnswers(), lines)
    assert contributed is not None
    actual = contributed.metric()
    loss = PretrainingAnswers().losses(lines).metric()
    assert actual.value == pytest.approx(math.exp(loss.value))
    for end, of_loss in ((actual.low, loss.low), (actual.high, loss.high)):
        assert end == (None if of_loss is None else pytest.approx(math.exp(of_loss)))
