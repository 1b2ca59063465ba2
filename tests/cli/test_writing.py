"""What commands leave alone.

Inputs, foreign files, files behind links, whole old versions; and what is cleared.
"""

import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.conftest import Run, TinyRun
from tests.nursery import Nursery

_SETS = ("--max-length", "32", "--threads", "1", "--precision", "fp32")
_FINETUNE = ("finetune", "text-classification", "--epochs", "1", *_SETS)


@pytest.fixture
def run(tiny_run: TinyRun, tmp_path: Path) -> Path:
    """The tiny run, to be changed."""
    return Path(shutil.copytree(tiny_run.path, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    contents_by_name = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != ".lock":
            name = str(path.relative_to(folder))
            contents_by_name[name] = path.read_bytes()
    return contents_by_name


def test_overwrite_deletes_only_what_belongs_to_a_run(
    bertctl: Run, run: Path, tiny_run: TinyRun, tmp_path: Path
) -> None:
    score = ("evaluate", tiny_run.path, "--file", tiny_run.data, "--overwrite", "-o")
    killed = tmp_path / "killed"  # before its first file had its name
    (killed / ".bertctl-0123456789abcdef.part").mkdir(parents=True)
    assert bertctl(*score, killed).returncode == 0
    assert not list(killed.glob(".bertctl*"))
    thesis = tmp_path / "thesis"
    for name, text in {
        "status.json": '{"state": "done"}',
        "thesis.tex": "years",
        "model/notes.txt": "more",
    }.items():
        (thesis / name).parent.mkdir(parents=True, exist_ok=True)
        (thesis / name).write_text(text)
    before = contents(thesis)
    refused = bertctl(*score, thesis)
    assert refused.returncode == 2, refused.stderr
    assert "does not hold a run" in refused.stderr
    assert contents(thesis) == before
    mine = {
        "notes.md": "mine",
        ".git/HEAD": "ref",
        "model/.git/HEAD": "ref",
        "predictions/mine.csv": "a,b",
    }
    for name, text in mine.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(text)
    done = bertctl(*score, run)
    assert done.returncode == 0, done.stderr
    after = contents(run)
    assert {name: after[name].decode() for name in mine} == mine
    assert after.keys() - mine == {
        "status.json",
        "metrics.json",
        "recipe.yaml",
        "predictions/file.jsonl",
    }


@pytest.mark.in_process
def test_overwrite_refuses_a_folder_that_an_input_lies_in(
    bertctl: Run, run: Path, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    rows = run / "rows.csv"
    script = run / "metric.py"
    shutil.copy(tiny_run.data, rows)
    script.write_text("raise SystemExit(9)\n")
    (tmp_path / "mine.yaml").write_text(
        f"task: text-classification\ndata: {{train_file: {rows}}}\n"
    )
    shutil.copy(tmp_path / "mine.yaml", run / "mine.yaml")
    (tmp_path / "link").symlink_to(run)
    before = contents(run)
    train = (*_FINETUNE, "--train-file", tiny_run.data, "--model", tiny_model)
    for words, by_name in (
        ((*_FINETUNE, "--train-file", rows), rows),
        ((*train[:-1], run), run),
        ((*train[:-1], run / "model"), run / "model"),
        (("finetune", tmp_path / "mine.yaml"), rows),
        (("finetune", run / "mine.yaml"), run / "mine.yaml"),
        ((*train, "--metric", script), script),
        (
            (*_FINETUNE, "--set", f"data.train_file={tmp_path / 'link' / 'rows.csv'}"),
            tmp_path / "link" / "rows.csv",
        ),
        (("probe", rows, "--model", tiny_model), rows),
        (("evaluate", tiny_run.path, "--file", rows), rows),
        (("evaluate", run, "--file", tiny_run.data), run),
    ):
        refused = bertctl(*words, "-o", run, "--overwrite")
        assert refused.returncode == 2, (words, refused.stderr)
        assert str(by_name) in refused.stderr
        assert contents(run) == before, words
    done = bertctl("finetune", run / "recipe.yaml", "-o", run, "--overwrite", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert contents(run)["rows.csv"] == before["rows.csv"], (
        "its own recipe is written again, and a foreign file stays"
    )


@pytest.mark.in_process
def test_an_output_is_no_input(
    bertctl: Run, nursery: Nursery, run: Path, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    shutil.copy(tiny_run.data, rows)
    second = tmp_path / "second.jsonl"
    link = tmp_path / "link.csv"
    lines = tmp_path / "x.npy.json"
    second.hardlink_to(rows)
    link.symlink_to(rows)
    lines.write_text('{"text": "a film"}\n')
    path = tmp_path / "own.yaml"
    path.write_text(
        f"task: text-classification\ndata: {{train_file: {rows}, validation_file: {rows}}}\n"
    )
    before = rows.read_bytes()
    metrics = (run / "metrics.json").read_bytes()
    model = shutil.copytree(tiny_model, tmp_path / "model")
    for words in (
        ("gate", run, "--min", "accuracy=0", "--junit", run / "metrics.json"),
        (
            "gate",
            tiny_run.path,
            "--baseline",
            run,
            "--max-drop",
            "accuracy=1",
            "--gitlab-metrics",
            run / "recipe.yaml",
        ),
        ("predict", run, rows, "-o", run / "predictions" / "validation.jsonl"),
        ("explain", run, "a film", "-o", run / "status.json"),
        ("report", run, "-o", run / "model" / "README.md"),
        ("tokenize", "--file", rows, "--model", model, "-o", model / "vocab.txt"),
        ("predict", run, rows, "-o", rows),
        ("predict", run, rows, "-o", link),
        ("predict", run, link, "-o", rows),
        ("predict", run, rows, "-o", second),
        ("predict", run, "--split", "validation", "-o", tiny_run.data),
        ("predict", run, "--question", "who?", "--context", rows, "-o", rows),
        ("tokenize", "--file", rows, "--model", tiny_model, "-o", rows),
        ("tokenize", "--file", rows, "--model", tiny_model, "--decode", "-o", second),
        ("extract-features", rows, "--model", tiny_model, *_SETS, "-o", second, "--overwrite"),
        (
            "extract-features",
            lines,
            "--model",
            tiny_model,
            *_SETS,
            "-o",
            lines.with_suffix(""),
            "--overwrite",
        ),
        ("data", "check", rows, "--junit", rows),
        ("data", "check", path, "--gitlab-codequality", rows),
        ("gate", run / "metrics.json", "--min", "accuracy=0", "--junit", run / "metrics.json"),
        (
            "gate",
            run / "metrics.json",
            "--min",
            "accuracy=0",
            "--gitlab-metrics",
            run / "metrics.json",
        ),
    ):
        refused = bertctl(*words)
        assert refused.returncode == 2, (words, refused.stdout, refused.stderr)
        assert "is an input of this command" in refused.stderr
    fed = nursery.run(
        ["predict", str(run), "-", "-o", str(rows)], cwd=tmp_path, env=nursery.env, stdin=rows
    )
    assert fed.returncode == 2, fed.stderr
    assert "is an input of this command (/dev/stdin)" in fed.stderr
    assert rows.read_bytes() == before
    assert (run / "metrics.json").read_bytes() == metrics
    assert tiny_run.data.read_bytes() == before


@pytest.mark.in_process
def test_two_outputs_are_two_files(
    bertctl: Run, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    gate = ("gate", tiny_run.path, "--min", "accuracy=0", "--allow-constant", "--policy", "point")
    page = tmp_path / "x.html"
    for words in (
        (*gate, "--junit", "both", "--gitlab-metrics", "./both"),
        (
            "data",
            "check",
            tiny_run.data,
            "--junit",
            tmp_path / "both",
            "--gitlab-codequality",
            tmp_path / "both",
        ),
        ("attention", tiny_model, "a film", "-o", page, "--npz", page),
    ):
        refused = bertctl(*words)
        assert refused.returncode == 2, refused.stderr
        assert "is given as two outputs" in refused.stderr
    assert not page.exists()
    assert bertctl(*gate, "--junit", "/dev/null", "--gitlab-metrics", "/dev/null").returncode == 0


@pytest.mark.in_process
def test_links_are_not_followed(
    bertctl: Run, run: Path, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    """Outside lies a file, and a folder with a file of each name.

    Whatever stands in the run, they stay as they are.
    """
    outside = tmp_path / "outside"
    shutil.copytree(run, outside)
    for name in (
        "file",
        "README.md",
        "validation.jsonl",
        "rows.jsonl",
        "vectors.npy",
        "0/rows.jsonl",
    ):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_text("mine")
    before = contents(outside)
    evaluate = ("evaluate", run)
    extract = (
        "extract-features",
        tiny_run.data,
        "--model",
        tiny_model,
        *_SETS,
        "-o",
        tmp_path / "x.npz",
    )
    for words, planted, target, code in (
        (evaluate, run / ".lock", "file", 4),
        (evaluate, run / "predictions", "", 2),
        (evaluate, run / "model", "model", 2),
        (evaluate, run / "metrics.json", "metrics.json", 0),
        (evaluate, run / "predictions" / "validation.jsonl", "validation.jsonl", 0),
        (extract, tmp_path / "x.npz.parts", "", 2),
        (extract, tmp_path / "x.npz.parts" / "0", "", 2),
        (extract, tmp_path / "x.npz", "file", 0),
        ((*extract, "--overwrite"), tmp_path / "x.npz", "file", 0),
        (
            ("predict", run, tiny_run.data, "-o", tmp_path / "answers.jsonl"),
            tmp_path / "answers.jsonl",
            "file",
            0,
        ),
        (
            ("tokenize", "a", "--model", tiny_model, "-o", tmp_path / "a.txt"),
            tmp_path / "a.txt",
            "file",
            0,
        ),
    ):
        retained = planted.with_name("kept")
        if planted.exists():
            planted.rename(retained)
        planted.parent.mkdir(exist_ok=True)
        planted.symlink_to(outside / target)
        done = bertctl(*words)
        assert done.returncode == code, (words, planted, done.stderr)
        assert contents(outside) == before, (words, planted)
        assert planted.is_symlink() == bool(code), "the link is replaced itself, or refused"
        if planted.is_dir() and not planted.is_symlink():
            shutil.rmtree(planted)
        else:
            planted.unlink()
        if retained.exists():
            retained.rename(planted)


@pytest.mark.in_process
def test_pipes_and_open_files_get_what_comes(
    bertctl: Run, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe.jsonl"
    got = tmp_path / "got"
    os.mkfifo(pipe)
    predict = ("predict", tiny_run.path, tiny_run.data, "-q")
    plain = bertctl(*predict).stdout
    vectors = ("extract-features", tiny_run.data, "--model", tiny_model, *_SETS, "-q", "-o")
    assert bertctl(*vectors, tmp_path / "x.jsonl").returncode == 0
    for words, expected in (
        ((*predict, "-o", pipe), plain),
        ((*vectors, pipe, "--overwrite"), (tmp_path / "x.jsonl").read_text()),
        (("tokenize", "a film", "--model", tiny_model, "--format", "ids", "-q", "-o", pipe), None),
    ):
        reader = threading.Thread(target=lambda: got.write_text(pipe.read_text()), daemon=True)
        reader.start()
        done = bertctl(*words)
        reader.join(60)
        assert done.returncode == 0, done.stderr
        assert expected is None or got.read_text() == expected
        assert got.stat().st_size
        assert pipe.is_fifo()
        pipe.with_name("pipe.jsonl.json").unlink(missing_ok=True)
    done = bertctl(*predict, "-o", "/dev/stdout")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(plain), "and then what a file's answer is"
    full = bertctl(*predict, "-o", "/dev/full")
    assert full.returncode == 4, full.stderr
    assert "/dev/full: the disk is full" in full.stderr


def test_a_full_disk_leaves_no_half_file(
    bertctl: Run, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    """A limit on the size of each file stands for the full disk."""
    many = tmp_path / "many.txt"
    many.write_text("the film was good and very fine\n" * 400)
    for words, name, before in (
        (
            ("tokenize", "--file", many, "--model", tiny_model, "--format", "jsonl"),
            "a.jsonl",
            b"of the day before",
        ),
        (("predict", tiny_run.path, many), "b.jsonl", None),
        (
            ("extract-features", many, "--model", tiny_model, *_SETS, "--overwrite"),
            "c.jsonl",
            b"of the day before",
        ),
        (("report", tiny_run.path), "d.html", None),
    ):
        out = tmp_path / name
        if before is not None:
            out.write_bytes(before)
        done = bertctl(
            *words, "-o", out, env={"NURSERY_IMPORTS": "small_disk", "SMALL_DISK": "60000"}
        )
        assert done.returncode == 4, (words, done.stderr)
        assert f"{out}: the disk is full" in done.stderr
        assert " are free" in done.stderr
        assert ("the version written before is whole" in done.stderr) == (before is not None)
        assert (out.read_bytes() if out.exists() else None) == before
        assert not list(tmp_path.glob(".bertctl-*"))


def test_what_lies_in_a_run_and_is_none_of_its_files_is_replaced(bertctl: Run, run: Path) -> None:
    for _ in range(2):
        for words in (
            ("report", run, "-o", run / "report.html"),
            (
                "gate",
                run,
                "--min",
                "accuracy=0",
                "--allow-constant",
                "--policy",
                "point",
                "--junit",
                run / "gate.xml",
            ),
            ("predict", run, "a film " * 99, "-o", run / "answers.jsonl"),
        ):
            assert bertctl(*words).returncode == 0, words
