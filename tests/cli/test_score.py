"""`bertctl score`, as a person types it."""

import csv
import json
import math
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertctl.errors import ExitCode
from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process

TEXT = "the film was goodness, it was fine"
PIECES = ["the", "film", "was", "good", "##n", "##e", "##s", "##s", ",", "it", "was", "fine"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The tiny model with a head for masked words.

    Its weights are large enough to prefer some.
    """
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("masked")
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    network = transformers.BertForMaskedLM.from_pretrained(tiny_model)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    network.save_pretrained(folder)
    return folder


def test_a_text_as_a_table_and_as_a_document(bertctl: Run, masked: Path) -> None:
    document = json.loads(bertctl("score", masked, TEXT, "--json").stdout)
    assert [entry["piece"] for entry in document["pieces"]] == PIECES
    assert [TEXT[entry["start"] : entry["end"]] for entry in document["pieces"]][3:6] == [
        "good",
        "n",
        "e",
    ]
    scores = [entry["log_likelihood"] for entry in document["pieces"]]
    assert document["tokens"] == len(PIECES)
    assert document["log_likelihood"] == pytest.approx(sum(scores))
    assert document["per_token"] == pytest.approx(sum(scores) / len(scores))
    assert document["pseudo_perplexity"] == pytest.approx(math.exp(-sum(scores) / len(scores)))
    assert document["pll"] == "within-word"
    alone = json.loads(bertctl("score", masked, TEXT, "--pll", "token", "--json").stdout)
    differ = [
        a["log_likelihood"] != b["log_likelihood"]
        for a, b in zip(document["pieces"], alone["pieces"], strict=True)
    ]
    assert differ == [
        piece in ("good", "##n", "##e", "##s") and i != 7 for i, piece in enumerate(PIECES)
    ]
    stdout = bertctl("score", masked, TEXT).stdout
    assert stdout.splitlines()[0] == TEXT
    assert f"{document['log_likelihood']:.4f} of 12 tokens" in stdout
    assert "##n" in stdout


def test_both_sides_of_a_pair_have_their_columns_in_a_table(
    bertctl: Run, masked: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs.csv").write_text("text,pair\nthe good film,film bad\n", encoding="utf-8")
    assert bertctl("score", masked, "pairs.csv", "-o", "scored.csv").returncode == 0
    assert bertctl("score", masked, "pairs.csv", "-o", "scored.jsonl").returncode == 0
    line = json.loads((tmp_path / "scored.jsonl").read_text(encoding="utf-8"))
    with (tmp_path / "scored.csv").open(encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    for side in ("good", "bad"):
        assert row[f"{side}_text"] == line[side]["text"]
        assert float(row[f"{side}_log_likelihood"]) == line[side]["log_likelihood"]
        assert json.loads(row[f"{side}_pieces"]) == line[side]["pieces"]


def test_the_odd_word_stands_out_in_colour(bertctl: Run, masked: Path) -> None:
    pieces = json.loads(bertctl("score", masked, TEXT, "--json").stdout)["pieces"]
    line = bertctl(
        "score", masked, TEXT, env={"NO_COLOR": "", "FORCE_COLOR": "1"}
    ).stdout.splitlines()[0]
    odd = [piece for piece in pieces if piece["log_likelihood"] < -5]
    assert odd
    assert line.count("\x1b[1;31m") <= len(odd)
    assert f"\x1b[1;31m{TEXT[odd[0]['start'] : odd[0]['end']]}" in line


def test_files_are_answered_line_by_line(bertctl: Run, masked: Path, tmp_path: Path) -> None:
    lines = [TEXT, "a bad film", "it was <script> food"]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
    done = bertctl("score", masked, "texts.txt")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(answer["id"], answer["text"]) for answer in answers] == list(enumerate(lines))
    assert bertctl("score", masked, "-", input="\n".join(lines) + "\n").stdout == done.stdout
    perplexity = math.exp(
        -sum(entry["log_likelihood"] for entry in answers)
        / sum(entry["tokens"] for entry in answers)
    )
    assert f"pseudo-perplexity {perplexity:.4g}" in done.stderr
    document = json.loads(bertctl("score", masked, "texts.txt", "--json").stdout)
    assert document["answers"] == answers
    assert document["texts"] == 3
    assert document["pseudo_perplexity"] == pytest.approx(perplexity)
    written = json.loads(
        bertctl("score", masked, "texts.txt", "-o", "scored.jsonl", "--json").stdout
    )
    assert (tmp_path / "scored.jsonl").read_text() == done.stdout
    assert written.pop("files") == ["scored.jsonl"]
    assert written == {name: value for name, value in document.items() if name != "answers"}


def test_which_of_two_is_likelier(bertctl: Run, masked: Path, tmp_path: Path) -> None:
    texts = [
        ("the film was good", "the film was dull"),
        ("a fine film", "fine a film"),
        ("it was bad", "it bad was"),
    ]
    good_texts = [good for good, _ in texts]
    bad_texts = [bad for _, bad in texts]
    (tmp_path / "each.txt").write_text("\n".join(good_texts + bad_texts) + "\n")
    rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in texts]
    (tmp_path / "blimp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = bertctl("score", masked, "each.txt").stdout.splitlines()
    log_likelihoods = [json.loads(line)["log_likelihood"] for line in lines]
    differences = np.subtract(log_likelihoods[:3], log_likelihoods[3:])
    n_right = int((differences > 0).sum())

    words = ("score", masked, good_texts[0], "--pair", bad_texts[0])
    typed = bertctl(*words)
    typed_document = json.loads(bertctl(*words, "--json").stdout)
    of_file = bertctl("score", masked, "blimp.jsonl")
    file_document = json.loads(bertctl("score", masked, "blimp.jsonl", "--json").stdout)

    assert typed_document["right"] == (differences[0] > 0)
    assert typed_document["difference"] == pytest.approx(differences[0], abs=1e-4)
    likelier = "first" if differences[0] > 0 else "second"
    assert f"the {likelier} is likelier" in typed.stdout
    answers = [json.loads(line) for line in of_file.stdout.splitlines()]
    assert [answer["right"] for answer in answers] == (differences > 0).tolist()
    assert f"likelier in {n_right} of 3 pairs: {n_right / 3:.1%}" in of_file.stderr
    accuracy = file_document["accuracy"]
    assert accuracy["n"] == 3
    assert accuracy["value"] == n_right / 3
    assert accuracy["low"] < accuracy["value"] <= accuracy["high"] <= 1


REFUSED = {
    "score minilm film": "no trained masked-word head",
    "score RUN 'a film'": "BertForSequenceClassification",
    "score MASKED ''": "nothing to score",
    "score MASKED": "nothing to score",
    "score MASKED 'a film' --pair ''": "--pair is empty",
    "score MASKED x.txt --pair film": "not with a file",
    "score MASKED film --pll word": "'within-word', 'token'",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(
    line: str, bertctl: Run, masked: Path, tiny_run: TinyRun, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text("a film\n")
    words = [
        {"MASKED": str(masked), "RUN": str(tiny_run.path)}.get(word, word)
        for word in shlex.split(line)
    ]
    done = bertctl(*words)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert REFUSED[line] in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a film\n" + "x " * 60 + "\n",
            "text 2 has 62 tokens, special ones included, and the model reads 41",
        ),
        ("a film\n\u200b\n", "text 2 is empty"),
        ("", "no texts to score"),
    ],
)
def test_a_file_with_one_bad_row_is_refused_whole(
    content: str, message: str, bertctl: Run, masked: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text(content)
    done = bertctl("score", masked, "x.txt", "-o", "out.jsonl")
    assert done.returncode == ExitCode.DATA
    assert message in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
