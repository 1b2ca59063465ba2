"""`bertctl inspect`, `fill-mask` and `vocab neighbours`, as a person types them."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertctl.errors import ExitCode
from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The tiny model with a head for masked words."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("masked")
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    transformers.BertForMaskedLM.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


def test_inspect_reads_headers_alone():
    """In a process of its own: what is imported is part of the answer."""
    script = (
        "import sys; sys.argv = ['bertctl', 'inspect', 'minilm', '--json']\n"
        "from bertctl.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "loaded = [name for name in ('torch', 'transformers', 'numpy') if name in sys.modules]\n"
        "print(loaded, code, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip().splitlines()[-1] == "[] 0"
    document = json.loads(done.stdout)
    assert document["parameters"] == document["trainable"] == 22_713_216
    assert len(document["parts"]["layers"]) == 6
    assert document["trained_as"] == "BertModel"
    assert document["tokenizer"]["special"]["[MASK]"] == 103
    assert document["sizes"] == {
        "layers": 6,
        "hidden": 384,
        "heads": 12,
        "inner": 1536,
        "vocabulary": 30522,
        "positions": 512,
    }


def test_inspect_of_a_run_says_what_was_trained(bertctl: Run, tiny_run: TinyRun, tmp_path: Path):
    document = json.loads(bertctl("inspect", tiny_run.path, "--json", "--length", "20").stdout)
    assert document["labels"] == ["neg", "pos"]
    assert document["trained_as"] == "BertForSequenceClassification"
    assert document["parts"]["head"] == 2 * 36 + 2
    assert document["trainable"] == document["parameters"]
    assert document["flops"]["length"] == 20
    assert document["run"]["task"] == "text-classification"
    frozen = ["--set", "training.freeze_embeddings=true", "--set", "training.freeze_layers=1"]
    trained = [
        "--train-file",
        tiny_run.data,
        "--model",
        tiny_run.path / "model",
        "--max-length",
        "32",
        "--epochs",
        "1",
    ]
    done = bertctl("finetune", "text-classification", *trained, *frozen, "-o", "frozen")
    assert done.returncode == 0, done.stderr
    document = json.loads(bertctl("inspect", "frozen", "--json").stdout)
    parts = document["parts"]
    retained = parts["embeddings"] + sum(parts["layers"][0].values())
    assert document["trainable"] == document["parameters"] - retained
    assert f"{document['trainable']:,}" in bertctl("inspect", "frozen").stdout


def test_inspect_of_a_probe_counts_its_head(bertctl: Run, tiny_model: Path, opinions: Path):
    done = bertctl("probe", opinions, "--model", tiny_model, "-o", "probed", "--max-length", "32")
    assert done.returncode == 0, done.stderr
    document = json.loads(bertctl("inspect", "probed", "--json").stdout)
    assert document["run"]["probe"]
    assert document["trainable"] == document["parts"]["head"] > 0
    assert "probe on" in bertctl("inspect", "probed").stdout


def test_two_models_stand_side_by_side(
    bertctl: Run, tiny_model: Path, tiny_run: TinyRun, opinions: Path
):
    done = bertctl("inspect", tiny_model, tiny_run.path, "--file", opinions, "--json", "-q")
    document = json.loads(done.stdout)
    assert [model["trained_as"] for model in document["models"]] == [
        "BertModel",
        "BertForSequenceClassification",
    ]
    assert document["layers"]["texts"] == 16
    assert [len(row) for row in document["layers"]["cka"]] == [3, 3, 3]
    assert document["layers"]["cka"][0][0] > 0.9, "the embeddings hardly move"
    table = bertctl("inspect", tiny_model, tiny_run.path, "--file", opinions)
    assert "linear CKA on 16 texts" in table.stdout
    assert "CKA is too high" in table.stderr


def test_a_text_is_walked_through_the_embeddings(bertctl: Run, tiny_model: Path):
    done = bertctl("inspect", tiny_model, "--embeddings", "good film", "--pair", "bad")
    for words in ("|token|  |segment|  |position|", "film", "1 x 6 x 36", "0: the embeddings"):
        assert words in done.stdout
    cut = bertctl("inspect", tiny_model, "--embeddings", "x " * 100, "--json")
    assert len(json.loads(cut.stdout)["tokens"]) == 41
    assert "first 41 are read" in cut.stderr


def test_masks_are_filled_in_a_text_and_in_files(bertctl: Run, masked: Path, tmp_path: Path):
    text = "the [MASK] was [MASK]"
    [element] = json.loads(bertctl("fill-mask", masked, text, "--top-k", "2", "--json").stdout)[
        "masks"
    ][:1]
    assert len(element) == 2
    assert element[0]["score"] >= element[1]["score"]
    table = bertctl("fill-mask", masked, text, "--top-k", "2").stdout
    assert "mask 2" in table
    assert element[0]["text"] in table
    lines = [text, "a [MASK]", "it was <script> [MASK]"]
    (tmp_path / "cloze.txt").write_text("\n".join(lines) + "\n")
    streamed = bertctl("fill-mask", masked, "cloze.txt", "--top-k", "2").stdout
    answers = [json.loads(line) for line in streamed.splitlines()]
    assert [answer["text"] for answer in answers] == lines
    assert [answer["id"] for answer in answers] == [0, 1, 2]
    assert [entry["ids"] for entry in answers[0]["masks"][0]] == [entry["ids"] for entry in element]
    assert (
        bertctl("fill-mask", masked, "-", "--top-k", "2", input="\n".join(lines)).stdout == streamed
    )
    assert (
        json.loads(bertctl("fill-mask", masked, "cloze.txt", "--top-k", "2", "--json").stdout)
        == answers
    )
    done = bertctl(
        "fill-mask",
        masked,
        "cloze.txt",
        "--targets",
        "good,goodness",
        "-o",
        "answers.csv",
        "--json",
    )
    assert json.loads(done.stdout)["files"] == ["answers.csv"]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "answers.csv").read_text())))
    masks = [json.loads(row["masks"]) for row in rows]
    assert [
        (row["id"], row["text"], len(entry)) for row, entry in zip(rows, masks, strict=True)
    ] == [
        ("0", lines[0], 2),
        ("1", lines[1], 1),
        ("2", lines[2], 1),
    ]
    assert all(
        {entry["word"] for entry in mask} == {"good", "goodness"}
        for entry in masks
        for mask in entry
    )


def test_neighbours_as_a_table_a_document_and_a_page(bertctl: Run, tmp_path: Path):
    done = bertctl("vocab", "neighbours", "king - man + woman", "minilm", "--top-k", "3")
    assert "queen" in done.stdout.splitlines()[1]
    (tmp_path / "corpus.txt").write_text(
        "He sat on the <b>bank</b> of the river.\nThe Bank lends money.\n"
    )
    supplied = [
        "bank",
        "minilm",
        "--context",
        "the bank of the river",
        "--file",
        "corpus.txt",
        "-o",
        "bank.html",
    ]
    document = json.loads(bertctl("vocab", "neighbours", *supplied, "--json").stdout)
    assert document["neighbours"][0]["text"].startswith("He sat")
    assert document["places"] == 2
    page = (tmp_path / "bank.html").read_text()
    assert "<svg" in page
    assert "&lt;b&gt;bank&lt;/b&gt;" in page
    assert "<b>bank" not in page


REFUSED = {
    "fill-mask minilm [MASK]": "no trained masked-word head",
    "fill-mask RUN [MASK]": "BertForSequenceClassification",
    "fill-mask MASKED 'no mask'": "Write [MASK] where",
    "fill-mask MASKED ''": "nothing to fill",
    "fill-mask MASKED": "nothing to fill",
    "fill-mask MASKED '[MASK] x' --targets ,": "--targets names no word",
    "fill-mask MASKED '[MASK] x' --targets 日": "does not know '日'",
    "fill-mask bertbase 'a [MASK]'": "did you mean bert-base",
    "inspect nowhere": "unknown model 'nowhere'",
    "inspect MASKED --file x.txt": "Name a second model",
    "inspect MASKED --pair x": "Add --embeddings",
    "inspect MASKED RUN --embeddings x": "one model",
    "inspect MASKED --embeddings ''": "the text is empty",
    "vocab neighbours angioplasty minilm": "5 tokens, ang ##io ##pl ##ast ##y",
    "vocab neighbours '' minilm": "'' is neither a word",
    "vocab neighbours 'new york' minilm": "with + or - between them",
    "vocab neighbours 日 MASKED": "does not know '日'",
    "vocab neighbours bank minilm --context 'a bank'": "belong together",
    "vocab neighbours bank minilm --context 'a river' --file x.txt": "is not in the context",
    "vocab neighbours bank minilm --context 'a bank' --file x.txt --layer "
    "7": "the model has no layer 7",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(
    line: str, bertctl: Run, masked: Path, tiny_run: TinyRun, tmp_path: Path
):
    import shlex

    (tmp_path / "x.txt").write_text("no such word\n")
    words = [
        {"MASKED": str(masked), "RUN": str(tiny_run.path)}.get(word, word)
        for word in shlex.split(line)
    ]
    done = bertctl(*words)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert REFUSED[line] in done.stderr
    assert done.stdout == ""


def test_weights_that_are_no_numbers_are_refused(bertctl: Run, masked: Path, tmp_path: Path):
    from safetensors.numpy import load_file, save_file

    shutil.copytree(masked, tmp_path / "nan")
    weights = load_file(masked / "model.safetensors")
    for weight in weights.values():
        weight[:] = float("nan")
    save_file(weights, tmp_path / "nan" / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "x.txt").write_text("a film\nthe film\n")
    for line in (
        ("fill-mask", "nan", "a [MASK]"),
        ("inspect", "nan", "--embeddings", "a film"),
        ("inspect", "nan", "nan", "--file", "x.txt"),
        ("vocab", "neighbours", "film", "nan"),
        ("vocab", "neighbours", "film", "nan", "--context", "a film", "--file", "x.txt"),
    ):
        done = bertctl(*line, "--json")
        assert done.returncode == ExitCode.DATA, done.stderr
        assert "computes NaN or infinity" in json.loads(done.stdout)["error"]["message"]


def test_files_that_do_not_fit_are_refused(bertctl: Run, masked: Path, tmp_path: Path):
    (tmp_path / "x.txt").write_text("a [MASK]\nno mask\n")
    done = bertctl("fill-mask", masked, "x.txt", "-o", "out.jsonl")
    assert done.returncode == ExitCode.DATA
    assert "text 2 has no mask" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    (tmp_path / "long.txt").write_text("a [MASK] " + "x " * 60 + "\n")
    assert "the model reads 41" in bertctl("fill-mask", masked, "long.txt").stderr
    assert (
        bertctl("inspect", masked, masked, "--file", "nowhere.txt").returncode
        == ExitCode.UNAVAILABLE
    )
    none = bertctl(
        "vocab", "neighbours", "bank", "minilm", "--context", "a bank", "--file", "x.txt"
    )
    assert none.returncode == ExitCode.DATA
    assert "none of the texts" in none.stderr
    (tmp_path / "folder").mkdir()
    assert "holds no model" in bertctl("inspect", "folder").stderr


@pytest.mark.parametrize("words", [("evaluate", "run"), ("predict", "run", "good")])
def test_a_run_of_a_sweep_whose_model_was_not_kept_says_how_to_keep_it(
    bertctl, tiny_run, tmp_path, words
):
    """It was called the scores of a file, or a folder that is no run."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    shutil.rmtree(run / "model")
    done = bertctl(*words)
    assert done.returncode == 4, done.stderr
    assert "A sweep keeps all by --keep all." in done.stderr
