"""`bertctl vocab`, as a person types it."""

import json
from pathlib import Path

import pytest

from bertctl.cli.main import main
from bertctl.errors import ExitCode
from tests.conftest import Run
from tests.nursery import Nursery

pytestmark = pytest.mark.in_process


def test_show_dumps_a_piece_a_line(bertctl: Run) -> None:
    done = bertctl("vocab", "show", "minilm")
    lines = done.stdout.splitlines()
    assert len(lines) == 30522
    assert lines[2293] == "2293\tlove"
    assert done.stderr == ""
    assert json.loads(bertctl("vocab", "show", "minilm", "--json").stdout)["pieces"][101] == "[CLS]"


def test_search_by_glob_piece_and_id(bertctl: Run) -> None:
    assert bertctl("vocab", "search", "embed*", "-q").stdout == "11157\tembedded\n"
    assert bertctl("vocab", "search", "2121", "minilm").stdout == "2121\t##er\n"
    assert json.loads(bertctl("vocab", "search", "[MASK]", "-q", "--json").stdout)["found"] == [
        {"piece": "[MASK]", "id": 103}
    ]


def test_what_is_not_there_is_shown_in_pieces(bertctl: Run) -> None:
    done = bertctl("vocab", "search", "embedding", "minilm")
    assert done.returncode == ExitCode.DATA
    assert "'embedding'" in done.stderr
    assert "em ##bed ##ding" in done.stderr


def test_stats_of_minilm_are_the_known_ones_of_bert_base(bertctl: Run) -> None:
    done = bertctl("vocab", "stats", "minilm")
    for words in (
        "30,522 tokens",
        "994",
        "5,828",
        "the 1996",
        "necessitated 29611",
        "[PAD] 0, [UNK] 100, [CLS] 101",
    ):
        assert words in done.stdout
    assert (
        json.loads(bertctl("vocab", "stats", "minilm", "--json").stdout)["continuations"]["count"]
        == 5828
    )


def test_coverage_of_a_file_and_of_stdin(bertctl: Run, tmp_path: Path) -> None:
    texts = "coronary angioplasty\nthe coronary film ❤\n"
    (tmp_path / "t.txt").write_text(texts, encoding="utf-8")
    table = bertctl("vocab", "coverage", "t.txt", "--top", "1", "-q")
    assert "6 words in 2 texts; 33.3% " in table.stdout
    assert "coronary" in table.stdout
    document = json.loads(bertctl("vocab", "coverage", "-", "--json", "-q", input=texts).stdout)
    assert [(word["word"], word["count"]) for word in document["top"]] == [
        ("coronary", 2),
        ("angioplasty", 1),
        ("❤", 1),
    ]


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_train_then_use_then_diff(bertctl: Run, tmp_path: Path, source: str) -> None:
    texts = "the film was good and the film was fine\nfilms like this film\n" * 5
    (tmp_path / "t.txt").write_text(texts)
    place, supplied = ("t.txt", None) if source == "file" else ("-", texts)
    done = bertctl("vocab", "train", place, "--size", "60", "-o", "new", "--json", input=supplied)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == "new"
    used = bertctl("tokenize", "the film", "--model", "new", "--format", "tokens")
    assert used.stdout == "[CLS] the film [SEP]\n"
    assert used.stderr == ""
    assert "identical" in bertctl("vocab", "diff", "new", "new/vocab.txt").stdout
    assert "only in minilm: 30," in bertctl("vocab", "diff", "minilm", "new").stdout
    again = bertctl("vocab", "train", "t.txt", "--size", "60", "-o", "new")
    assert again.returncode == ExitCode.USAGE
    assert "--overwrite" in again.stderr
    replace = ("vocab", "train", tmp_path / "t.txt", "--size", "60", "-o", "new", "--overwrite")
    (tmp_path / "t.txt").write_text(texts)
    assert bertctl(*replace).returncode == 0
    (tmp_path / "new" / "model.safetensors").write_text("trained with the old vocabulary")
    before = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert bertctl(*replace).returncode == ExitCode.USAGE, "more than a vocabulary"
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["coverage"], ExitCode.USAGE, "no texts"),
        (["coverage", "t.txt", "--data", "sst2"], ExitCode.USAGE, "exclude each other"),
        (["coverage", "empty.txt"], ExitCode.DATA, "no texts to count"),
        (["train", "t.txt"], ExitCode.USAGE, "-o DIR"),
        (["train", "t.txt", "--size", "6", "-o", "x"], ExitCode.USAGE, "no room"),
        (["train", "empty.txt", "-o", "x"], ExitCode.DATA, "no word"),
        (["stats", "nothing"], ExitCode.USAGE, "model 'nothing'"),
        (["diff", "minilm", "gone/vocab.txt"], ExitCode.UNAVAILABLE, "does not exist"),
    ],
)
def test_missing_texts_sizes_and_models_are_refused_and_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: ExitCode,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("a film\n")
    (tmp_path / "empty.txt").write_text("")
    assert main(["vocab", *arguments]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_torch_is_never_loaded(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("the film was good\n" * 9)
    calls = [
        ["stats"],
        ["search", "love"],
        ["coverage", "t.txt"],
        ["train", "t.txt", "--size", "50", "-o", "v"],
    ]
    code = (
        "import sys; from bertctl.cli.main import main;"
        f"codes = [main(['vocab', *call, '-q']) for call in {calls!r}];"
        "print(codes, sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    done = nursery.run_code(code, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0] []", done.stderr


def test_a_line_of_stdin_that_never_ends_fills_no_disk(nursery: Nursery, tmp_path: Path) -> None:
    """What is read twice is copied; the limit on files ends that copy where nothing else does."""
    env = {**nursery.env, "NURSERY_IMPORTS": "small_disk", "SMALL_DISK": str(10**9)}
    words = ["vocab", "train", "-", "-o", "made"]
    done = nursery.run(words, cwd=tmp_path, env=env, stdin=Path("/dev/zero"))
    assert done.returncode == 3, done.stderr
    assert "error: stdin: a line has more than 268 MB" in done.stderr
