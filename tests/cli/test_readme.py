"""Every command of the README and of the pages in `bertctl/docs` runs.

If not, its block says what it needs. It prints what the page shows below it.

The commands of a page run in order, in one folder, through a shell, as a person would type them.
The README runs on few rows by default, where only outputs that do not depend on training are
compared; all pages run in full before a release. Every run folder that they leave is checked
against the JSON Schemas that ship with the package.
"""

import itertools
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertctl.cli.verbs.docs import FOLDER
from bertctl.errors import ExitCode
from tests.documents.outputs import VARYING, Command, commands, matches, prepare, run_command
from tests.documents.schemas import check_run
from tests.nursery import Nursery

README = Path(__file__).resolve().parents[2] / "README.md"
LIMIT = re.compile(r"--(min|max-drop) (?:accuracy|f1|f1_macro|entity_f1)=([\d.]+)")
_TRAINS = re.compile(
    r"^bertctl (finetune|pretrain|adapt|distill|sweep|probe)\b(?!.*(--dry-run|; echo))"
)
_VERDICTS = {0, ExitCode.GATE_NOT_MET, ExitCode.GATE_INCONCLUSIVE}
VERBS_TABLE = re.compile(r"^\| `(?P<verb>[a-z-]+)", re.MULTILINE)
RUN_ELSEWHERE = {"run by: tests/slow/test_install.py", "run by: tests/slow/test_serving.py"}
NEEDS = {
    "needs: GLUE's files, or the hub",
    "needs: the hub",
    "needs: several GPUs or machines",
    "needs: podman or docker",
    "needs: an MLflow server",
    "needs: files of your own",
    "needs: a run of sst2",
}


def runnable(page: Path) -> list[Command]:
    return [one for one in commands(page) if one.file or one.mark in ("", VARYING)]


PAGES = [page for page in (README, *sorted(FOLDER.glob("*.md"))) if runnable(page)]


def test_commands_are_found_and_marks_are_known() -> None:
    every = [README, *FOLDER.glob("*.md")]
    marks = {one.mark for page in every for one in commands(page) if not one.file}
    assert marks <= {"", VARYING, *RUN_ELSEWHERE, *NEEDS}
    counts = {page.stem: len(runnable(page)) for page in PAGES}
    assert {"README", "tutorial", "write-a-gate", "pipelines", "fetch", "sweeps"} <= set(counts)
    assert sum(counts.values()) > 150


def test_at_least_half_of_all_blocks_show_what_comes_out() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (README, *FOLDER.glob("*.md")))
    kinds = re.findall(r"^```(\w+)\n", text, re.MULTILINE)
    with_output = sum(kind in ("console", "text") for kind in kinds)
    assert with_output / len(kinds) >= 0.5


def test_no_gate_of_the_pages_passes_whatever_a_model_answers() -> None:
    """Two labels are guessed right half of the time, and no drop of 0.2 is small."""
    pages = [README, *FOLDER.glob("*.md")]
    lines = []
    for page in pages:
        lines += [line for line in page.read_text(encoding="utf-8").splitlines() if "gate" in line]
    limits = [(kind, float(value)) for line in lines for kind, value in LIMIT.findall(line)]
    assert len(limits) > 3
    assert [limit for limit in limits if limit[0] == "min" and limit[1] <= 0.5] == []
    assert [limit for limit in limits if limit[0] == "max-drop" and limit[1] > 0.2] == []


def test_a_command_that_fails_shows_its_exit_code() -> None:
    """Only then do all commands of a page end with 0, as the slow tests want it."""
    every = itertools.chain.from_iterable(map(runnable, PAGES))
    error = re.compile(r'^error: |^ *"error": \{', re.MULTILINE)
    failing = [command.text for command in every if error.search(command.expected or "")]

    assert len(failing) > 10
    assert [text for text in failing if "; echo" not in text] == []


def _runs() -> Iterator[Any]:
    """README's commands run on few rows by default; all pages run as they are before a release."""
    yield pytest.param(README, True, id="README-few-rows")
    for page in PAGES:
        yield pytest.param(page, False, id=page.stem, marks=pytest.mark.slow)


def _on_few_rows(command: str) -> str:
    """Returns a command that trains and scores fewer rows."""
    fewer = r"\1 \2 --max-train-rows 12 --max-eval-rows 12 --epochs 1 --checkpoint-every off "
    command = re.sub(r"(finetune) (demo|mine.yaml)(?!\S)(?! --dry)", fewer, command)
    few = "--max-train-rows 12 --max-eval-rows 12 --epochs 1 --checkpoint-every off"
    command = re.sub(r"(finetune reviews/train.csv)", rf"\1 {few}", command)
    command = re.sub(r"(evaluate \S+)", r"\1 --max-eval-rows 12", command)
    # So few rows may teach nothing: a gate may not be met, but it has a verdict.
    return re.sub(r"(bertctl gate) ", r"\1 --allow-constant ", command)


@pytest.mark.parametrize(("page", "few_rows"), [*_runs()])
def test_every_command_runs(page: Path, few_rows: bool, nursery: Nursery) -> None:
    search_path = [str(nursery.bin), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(search_path)}
    trains = False
    with tempfile.TemporaryDirectory() as name:  # a short path, which wraps as in the page
        folder = Path(name)
        prepare(page, folder)
        for command in runnable(page):
            if command.file:
                (folder / command.file).write_text(command.text, encoding="utf-8")
                continue
            typed = _on_few_rows(command.text) if few_rows else command.text
            code, output = run_command(typed, folder, environment)
            is_gate = typed.startswith("bertctl gate")
            assert code in (_VERDICTS if is_gate else {0}), f"{command.text}\n{output}"
            depends_on_rows = few_rows and (typed != command.text or "runs/" in typed)
            if command.expected is not None and not depends_on_rows:
                numbers_vary = command.mark == VARYING
                assert matches(command.expected, output, numbers_vary=numbers_vary), (
                    f"{command.text}\n\nthe page shows:\n{command.expected}\n"
                    f"now it prints:\n{output}\n"
                    f"python -m tests.documents.outputs {page.name} writes it anew"
                )
            trains |= _TRAINS.search(typed) is not None
        metrics = folder.rglob("metrics.json")
        runs = [file.parent for file in metrics if (file.parent / "status.json").is_file()]
        for run in runs:
            check_run(run)
        assert runs or not trains


def test_the_table_of_verbs_is_the_table_of_verbs() -> None:
    from bertctl.cli.app import VERBS

    section = README.read_text(encoding="utf-8").split("## The verbs")[1].split("## ")[0]
    assert sorted(m["verb"] for m in VERBS_TABLE.finditer(section)) == sorted(
        verb.name for verb in VERBS
    )


def test_what_is_unusual_of_a_file_is_said_as_the_readme_says(
    bertctl, tiny_model: Path, tmp_path: Path
) -> None:
    rows = []
    for number in range(12):
        rows += [
            f"{word} Gericht {number};{kinds};{'ab'[number % 2]}"
            for word, kinds in (("gutes", "süß|gut"), ("übles", "übel"))
        ]
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
