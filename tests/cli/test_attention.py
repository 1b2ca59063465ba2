"""`bertctl attention` as a person types it: pages, tensors, patterns of heads, refusals."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig, BertModel, BertTokenizerFast

from tests.conftest import Run, TinyRun
from tests.nursery import Nursery

pytestmark = pytest.mark.in_process

TEXT = "the film was good"
PAIR = "it was a bad film"


def _data_of(page: Path) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))[1])


def test_a_text_becomes_a_page(bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    done = bertctl("attention", tiny_model, TEXT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "attention.html\n"
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "softmax(query · key / √d), seen in the model" in page
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page)
    assert _data_of(tmp_path / "attention.html")["tokens"] == [
        "[CLS]",
        "the",
        "film",
        "was",
        "good",
        "[SEP]",
    ]
    assert "Direction" not in page, "it is for pairs"
    paired = bertctl(
        "attention",
        tiny_model,
        TEXT,
        PAIR,
        "-o",
        "pair.html",
        "--layers",
        "2",
        "--heads",
        "1,3",
        "-q",
    )
    assert paired.stdout == "pair.html\n"
    data = _data_of(tmp_path / "pair.html")
    assert data["layers"] == [2]
    assert data["heads"] == [1, 3]
    assert data["sides"] == [-1, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, -1]
    assert "Direction" in (tmp_path / "pair.html").read_text(encoding="utf-8")


def test_json_and_npz_have_the_same_tensors(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    done = bertctl("attention", tiny_run.path, TEXT, PAIR, "--json", "--npz", "a.npz")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["page"] is None
    assert answer["npz"] == "a.npz"
    assert answer["cut_tokens"] == 0
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["tokens"].tolist() == answer["tokens"]
        assert arrays["attentions"].shape == (2, 3, 12, 12)
        for name in ("attentions", "queries", "keys", "scaling", "sides", "layers", "heads"):
            np.testing.assert_allclose(arrays[name], answer[name], atol=1e-8)
        scores = (
            np.einsum("lhid,lhjd->lhij", arrays["queries"], arrays["keys"]) * arrays["scaling"][0]
        )
        shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(shares, arrays["attentions"], atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz"}


def test_texts_that_are_no_friends(bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    done = bertctl(
        "attention", tiny_model, "</script><script>hacked=1</script>\x1b[31m <!--", "x" * 10_000
    )
    assert done.returncode == 0, done.stderr
    assert "9,990 tokens cut off" not in done.stderr
    assert "cut off, 41 shown (--max-length N, or the model's)" in done.stderr
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script") == 2
    assert "\x1b" not in page
    assert len(page) < 200_000


def next_token_model(folder: Path) -> Path:
    """A model whose third head of the first layer looks at the next token, by its construction.

    Every token of the text is its position alone, a vector of its own; the head's keys are the
    positions, its queries the positions that follow.
    """
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    BertTokenizerFast(
        vocab={word: i for i, word in enumerate(words)}, do_lower_case=True
    ).save_pretrained(folder)
    sizes = {
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 37,
        "max_position_embeddings": 12,
    }
    model = BertModel(BertConfig(vocab_size=len(words), hidden_size=36, **sizes))
    noise = np.random.default_rng(0).normal(size=(36, 12))
    positions = np.linalg.qr(noise - noise.mean(axis=0))[
        0
    ].T  # 12 x 36: orthogonal, and LayerNorm only scales them
    embeddings = model.embeddings
    attention = model.encoder.layer[0].attention.self
    state = {
        embeddings.word_embeddings.weight: np.zeros((len(words), 36)),
        embeddings.token_type_embeddings.weight: np.zeros((2, 36)),
        embeddings.position_embeddings.weight: positions,
    }
    for parameter, value in state.items():
        parameter.data[:] = parameter.new_tensor(value)
    third = slice(24, 36)
    attention.query.weight.data[third] = 4 * attention.query.weight.new_tensor(positions)
    attention.key.weight.data[third] = attention.key.weight.new_tensor(
        np.roll(positions, -1, axis=0)
    )
    model.save_pretrained(folder)
    return folder


def test_a_head_that_looks_at_the_next_token_is_found(bertctl: Run, tmp_path: Path) -> None:
    model = next_token_model(tmp_path / "made")
    (tmp_path / "texts.txt").write_text("a b c d e\n\nh g f e d c b a\na a\n")
    done = bertctl("attention", model, "--file", "texts.txt", "--json", "-o", "heads.html")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["patterns"]["texts"] == 3
    assert answer["patterns"]["tokens"] == 15
    heads = {(head["layer"], head["head"]): head for head in answer["heads"]}
    assert len(heads) == 6
    assert heads[1, 3]["next"] > 0.99
    assert heads[1, 3]["distance"] == pytest.approx(1, abs=0.01)
    assert {place for place, head in heads.items() if head["pattern"] == "next"} == {(1, 3)}
    assert "other" not in heads[1, 3], "there are no pairs"
    page = (tmp_path / "heads.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "layer 1, head 3" in page
    table = bertctl("attention", model, "--file", "-", input="a b c d e\n").stdout.splitlines()
    assert table[1].split() == [
        "next",
        "the",
        "next",
        "token",
        "1",
        "layer",
        "1,",
        "head",
        "3",
        "1.0000",
        "4",
    ]
    assert table[-1] == "heads.html"


def test_pairs_of_a_table_and_how_many_texts(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [{"one": "the film", "two": "was good"}] * 5
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = ("--text-column", "one", "--pair-column", "two")
    done = bertctl("attention", tiny_model, "--file", "rows.jsonl", *columns, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["patterns"]["texts"] == 5
    assert answer["page"] is None
    assert 0 < answer["heads"][0]["other"] < 1


def test_how_much_heads_matter(bertctl: Run, tiny_run: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the film was good\n")
    done = bertctl(
        "attention",
        tiny_run.path,
        "--importance",
        "ablation",
        "--file",
        "texts.txt",
        "--json",
        "-o",
        "h.html",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {name: answer["importance"][name] for name in ("split", "rows", "metric")} == {
        "split": "validation",
        "rows": 4,
        "metric": "accuracy",
    }
    measured = ("gradient", "loss_rise", "loss_error", "metric_rise", "next", "pattern")
    assert all(name in head for head in answer["heads"] for name in measured)
    assert all(math.isfinite(head[name]) for head in answer["heads"] for name in measured[:4])
    assert "How much heads matter" in (tmp_path / "h.html").read_text(encoding="utf-8")
    table = bertctl("attention", tiny_run.path, "--importance", "gradient").stdout.splitlines()
    assert table[0].split() == ["layer", "head", "gradient"]
    slopes = [float(line.split()[2]) for line in table[1:7]]
    assert slopes == sorted(slopes, reverse=True)


REFUSALS = {
    "nothing": ([], "there is nothing to look at"),
    "an empty text": ([""], "the text is empty"),
    "an empty second text": (["good", "  "], "the text is empty"),
    "a text and a file": (["good", "--file", "texts.txt"], "a text excludes a file"),
    "a layer too many": (["good", "--layers", "1,3"], "the model has no layer '3'"),
    "a layer that is a word": (["good", "--layers", "last"], "It has layers 1 to 2"),
    "a head too many": (["good", "--heads", "0"], "the model has no head '0'"),
    "heads of a file": (["--file", "texts.txt", "--heads", "1"], "are for one text"),
    "tensors of a file": (["--file", "texts.txt", "--npz", "x.npz"], "are for one text"),
    "a page that is a picture": (["good", "-o", "page.png"], "-o page.html"),
    "a file without texts": (["--file", "empty.txt"], "no texts to read"),
    "a longest of 2": (["good", "--max-length", "2"], "max_length"),
    "a longest over the model's": (["good", "--max-length", "99"], "41 positions"),
    "a model that is none": (["--importance", "gradient"], "has no head that answers"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_layer_head_or_file_that_does_not_fit_is_refused_and_nothing_is_written(
    bertctl: Run, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "texts.txt").write_text("good\n")
    (tmp_path / "empty.txt").write_text("\n \n")
    words, message = REFUSALS[name]
    done = bertctl("attention", tiny_model, *words)
    assert done.returncode == (3 if name == "a model that is none" else 2), done.stderr
    assert message in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "texts.txt"]


def test_refusals_that_need_no_torch(tiny_model: Path, tmp_path: Path, nursery: Nursery) -> None:
    program = (
        "import sys; from bertctl.cli.main import main; codes = [main(words) for words in {!r}]"
    )
    program += "; sys.exit(90 if 'torch' in sys.modules or set(codes) != {{2}} else 2)"
    supplied = (
        ["good", "--layers", "7"],
        ["good", "--heads", "4"],
        [" "],
        ["good", "--max-length", "99"],
    )
    lines = [["attention", str(tiny_model), *words] for words in supplied]
    done = nursery.run_code(program.format(lines), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
