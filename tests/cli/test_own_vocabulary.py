"""`bertctl vocab grow` and `vocab shrink`, as a person types them."""

import json
import shlex
from pathlib import Path

import pytest

from bertctl.errors import ExitCode
from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process

CORPUS = "Goodness, the filmgoer was good\nthe FILMGOER and the goodness 22\na filmgoer 22 dull\n"


def test_words_of_a_corpus_enter_a_run(bertctl: Run, tiny_run: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(CORPUS)
    done = bertctl(
        "vocab", "grow", tiny_run.path, "corpus.txt", "--words", "2", "-o", "grown", "--json"
    )
    document = json.loads(done.stdout)
    assert [(word["word"], word["count"]) for word in document["words"]] == [
        ("filmgoer", 3),
        ("goodness", 2),
    ]
    assert document["words"][1]["pieces"] == ["good", "##n", "##e", "##s", "##s"]
    assert document["corpus_pieces"]["before"] - document["corpus_pieces"]["after"] == 3 * 4 + 2 * 4
    assert "2 new words written to grown" in done.stderr
    config = json.loads((tmp_path / "grown" / "config.json").read_text())
    was = json.loads((tiny_run.path / "model" / "config.json").read_text())
    assert config == was | {"vocab_size": was["vocab_size"] + 2}
    search = bertctl("vocab", "search", "filmgoer", "grown", "--json").stdout
    assert json.loads(search)["found"] == [{"piece": "filmgoer", "id": was["vocab_size"]}]
    again = [
        "finetune",
        "text-classification",
        "--train-file",
        tiny_run.data,
        "--model",
        "grown",
        "--max-length",
        "16",
    ]
    assert bertctl(*again, "--set", "training.max_steps=1", "-o", "again").returncode == 0
    table = bertctl("vocab", "grow", tiny_run.path, "-", "-o", "other", input=CORPUS).stdout
    assert "filmgoer      3  film ##g ##o ##e ##r" in table
    before, after = document["corpus_pieces"].values()
    assert f"{before} tokens, and has {after} ({after / before - 1:+.1%})" in table


def test_a_model_is_reduced_to_a_corpus(bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the film was good\nit was bad\n")
    done = bertctl("vocab", "shrink", tiny_model, "corpus.txt", "-o", "small", "--json")
    sizes = json.loads(done.stdout)["vocabulary"]
    assert sizes["before"] - sizes["after"] == len(
        ["food", "not", "very", "fine", "poor", "dull", "bright"]
    )
    read = []
    vectors = []
    for i, model in enumerate((tiny_model, "small")):
        lines = bertctl("tokenize", "-q", "-f", "corpus.txt", "-m", model).stdout.splitlines()
        read.append([json.loads(line)["pieces"] for line in lines])
        vectors.append(("extract-features", "corpus.txt", "--model", model, "-o", f"{i}.npy"))
    assert read[0] == read[1]
    assert [bertctl(*words, "--max-length", "16").returncode for words in vectors] == [0, 0]
    assert (tmp_path / "0.npy").read_bytes() == (tmp_path / "1.npy").read_bytes()


@pytest.mark.parametrize("verb", ["grow", "shrink"])
def test_a_model_is_replaced_where_that_is_said(
    verb: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "corpus.txt").write_text(CORPUS)
    words = ("vocab", verb, tiny_model, "corpus.txt", "-o", "new")
    assert [bertctl(*words).returncode, bertctl(*words).returncode] == [0, 2]
    (tmp_path / "new" / "model.safetensors").write_bytes(b"")
    assert bertctl(*words, "--overwrite").returncode == 0
    assert (tmp_path / "new" / "model.safetensors").stat().st_size > 0
    (tmp_path / "new" / "notes.md").write_text("mine")
    refused = bertctl(*words, "--overwrite")
    assert refused.returncode == 2, refused.stderr
    assert "has more in it than a model" in refused.stderr
    refused = bertctl("vocab", verb, tiny_model, "corpus.txt", "-o", tiny_model, "--overwrite")
    assert refused.returncode == 2, refused.stderr
    assert "is the model that is read" in refused.stderr


REFUSED = {
    "grow MODEL x.txt": "--output",
    "grow MODEL -o new": "no texts were given",
    "grow MODEL x.txt -o full": "full exists already",
    "shrink MODEL x.txt -o full": "full exists already",
    "grow nowhere x.txt -o new": "unknown model 'nowhere'",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(
    line: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text("goodness goodness\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    words = [str(tiny_model) if word == "MODEL" else word for word in shlex.split(line)]
    done = bertctl("vocab", *words)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert REFUSED[line] in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_corpus_without_words_to_gain_is_refused(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    for content in ("the film was good 22 22\ngoodness\n", ""):
        (tmp_path / "x.txt").write_text(content)
        done = bertctl("vocab", "grow", tiny_model, "x.txt", "-o", "new")
        assert done.returncode == ExitCode.DATA
        assert "seen twice" in done.stderr
    done = bertctl("vocab", "shrink", tiny_model, "x.txt", "-o", "new")
    assert done.returncode == ExitCode.DATA
    assert "no texts" in done.stderr
    assert not (tmp_path / "new").exists()
