"""Every command of the README and of the pages in `bertctl/docs` runs, or its block says what it
needs.

The commands of a page run in order, in one folder, through a shell, as a person would type them.
Every run folder that they leave is checked against the JSON Schemas that ship with the package.
"""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bertctl.cli.verbs.docs import FOLDER
from bertctl.errors import ExitCode
from tests.documents.schemas import check_run
from tests.nursery import Nursery

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\n)?```sh\n(?P<body>.*?)```", re.DOTALL)
LIMIT = re.compile(r"--(min|max-drop) (?:accuracy|f1|f1_macro|entity_f1)=([\d.]+)")
VERBS_TABLE = re.compile(r"^\| `(?P<verb>[a-z-]+)", re.MULTILINE)
NEEDS = {
    "needs: GLUE's files, or the hub", "needs: the hub", "needs: several GPUs or machines",
    "needs: podman or docker", "needs: an MLflow server", "needs: files of your own",
}  # fmt: skip


def blocks(page: Path) -> list[tuple[str, list[str]]]:
    """(mark, commands) of each fenced `sh` block."""
    text = page.read_text(encoding="utf-8")
    return [(m["mark"] or "", m["body"].strip().splitlines()) for m in BLOCK.finditer(text)]


def runnable(page: Path) -> list[str]:
    return [line for mark, lines in blocks(page) if not mark for line in lines]


PAGES = [page for page in (README, *sorted(FOLDER.glob("*.md"))) if runnable(page)]


def test_commands_are_found_and_marks_are_known() -> None:
    every = [README, *FOLDER.glob("*.md")]
    marks = {mark for page in every for mark, _ in blocks(page)}
    assert marks == {"", "run by: tests/slow/test_install.py", *NEEDS}
    assert {page.stem: len(runnable(page)) for page in PAGES} == {
        "README": 25,
        "attention": 5,
        "features": 3,
        "fetch": 5,
        "inside": 13,
        "long-texts": 3,
        "pipelines": 1,
        "pretraining": 11,
        "sentences": 8,
        "tutorial": 12,
    }


def test_no_gate_of_the_pages_passes_whatever_a_model_answers() -> None:
    """Two labels are guessed right half of the time, and no drop of 0.2 is small."""
    pages = [README, *FOLDER.glob("*.md")]
    lines = [
        line
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if "gate" in line
    ]
    limits = [(kind, float(value)) for line in lines for kind, value in LIMIT.findall(line)]
    assert len(limits) > 3
    assert [limit for limit in limits if limit[0] == "min" and limit[1] <= 0.5] == []
    assert [limit for limit in limits if limit[0] == "max-drop" and limit[1] > 0.2] == []


def _tier(page: Path) -> Any:
    """README's commands run by default, those of the other pages before a release."""
    return pytest.param(page, id=page.stem, marks=[] if page == README else pytest.mark.slow)


@pytest.mark.parametrize("page", [_tier(page) for page in PAGES])
def test_every_command_runs(page: Path, nursery: Nursery, tmp_path: Path) -> None:
    rows = [
        f"it was a {'fine' if i % 2 else 'poor'} dinner number {i},{'good' if i % 2 else 'bad'}"
        for i in range(40)
    ]
    labels = [row.replace(",good", ",positive").replace(",bad", ",negative") for row in rows]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *labels]) + "\n")
    for command in runnable(page):
        fewer = r"\1 \2 --max-train-rows 12 --max-eval-rows 12 --epochs 1 --checkpoint-every off "
        shortened = re.sub(r"(finetune) (demo[a-z-]*|mine.yaml)(?!\S)(?! --dry)", fewer, command)
        shortened = re.sub(
            r"(finetune reviews.csv .*)(?= -o)", r"\1 --checkpoint-every off", shortened
        )
        few = "--max-train-rows 12 --max-eval-rows 12"
        shortened = re.sub(r"((?:finetune|sweep) reviews/train.csv)", rf"\1 {few}", shortened)
        shortened = re.sub(r"(pretrain pretrain-demo)", r"\1 --max-steps 4", shortened)
        shortened = re.sub(r"(evaluate \S+)", r"\1 --max-eval-rows 12", shortened)
        # So few rows may teach nothing: a gate may not be met, but it has a verdict.
        shortened = re.sub(r"(bertctl gate) ", r"\1 --allow-constant ", shortened)
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {shortened}"],  # the very line, on fewer rows
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{nursery.bin}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        verdicts = (
            {0, ExitCode.GATE_NOT_MET, ExitCode.GATE_INCONCLUSIVE}
            if command.startswith("bertctl gate")
            else {0}
        )
        assert done.returncode in verdicts, f"{command}\n{done.stderr}"
    runs = [
        path.parent
        for path in tmp_path.rglob("metrics.json")
        if (path.parent / "status.json").is_file()
    ]
    for run in runs:
        check_run(run)
    trains = re.compile(r"\b(finetune|pretrain|adapt|sweep|probe)\b")
    assert bool(runs) == any(
        trains.search(one) and "--dry-run" not in one for one in runnable(page)
    )


def test_the_table_of_verbs_is_the_table_of_verbs() -> None:
    from bertctl.cli.app import VERBS

    section = README.read_text(encoding="utf-8").split("## The verbs")[1].split("## ")[0]
    assert sorted(m["verb"] for m in VERBS_TABLE.finditer(section)) == sorted(
        verb.name for verb in VERBS
    )


def test_what_is_unusual_of_a_file_is_said_as_the_readme_says(
    bertctl, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [f"{word} Gericht {number};{kinds};{'ab'[number % 2]}" for number in range(12)
            for word, kinds in (("gutes", "süß|gut"), ("übles", "übel"))]  # fmt: skip
    (tmp_path / "orders.csv").write_text(
        "\n".join(["words;kinds;source", *rows]) + "\n", encoding="latin-1"
    )
    said = ["--text-column words", "--label-column kinds", "--delimiter ';'", "--encoding latin-1"]
    said += [
        "--set 'text_classification.label_separator=|'",
        "--set 'evaluation.slice_columns=[source]'",
    ]
    text = README.read_text(encoding="utf-8")
    for words in said:
        assert words.removesuffix(" words").removesuffix(" kinds") in text
    command = [
        "finetune",
        "orders.csv",
        *shlex.split(" ".join(said)),
        "--model",
        tiny_model,
        "--max-length",
        32,
        "--dry-run",
    ]
    done = bertctl(*command, "-v")
    assert done.returncode == 0, done.stderr
    assert re.search(r"train: .*gut: \d+, süß: \d+, übel: \d+", done.stderr)
    assert "--log-to tensorboard" in text
    assert "--log-to tensorboard|mlflow|wandb|trackio|" in bertctl("finetune", "--help-all").stdout
