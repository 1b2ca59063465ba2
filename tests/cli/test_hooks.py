"""The pre-commit hooks that other repositories use.

Their entry lines run, on the files that their patterns choose.
"""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hooks() -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return {hook["id"]: hook for hook in document}


def run_hook(
    hook: dict[str, Any], arguments: list[str], folder: Path, bertctl: Run
) -> subprocess.CompletedProcess[str]:
    """As pre-commit does it.

    The entry's words, then `args`, then the files that changed unless the hook takes none.
    """
    words = shlex.split(hook["entry"])
    assert words[0] == "bertctl"
    changed = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    chosen = [name for name in changed if re.search(hook["files"], name)]
    assert chosen, f"{hook['files']} chooses none of {changed}"
    files = chosen if hook.get("pass_filenames", True) else []
    return bertctl(*words[1:], *arguments, *files, cwd=folder)


def test_both_hooks_are_there(hooks: dict[str, dict[str, Any]]) -> None:
    assert sorted(hooks) == ["bertctl-data-check", "bertctl-recipes-validate"]


@pytest.mark.in_process
def test_recipes_validate_takes_the_recipes_and_refuses_a_wrong_one(
    hooks: dict[str, dict[str, Any]], bertctl: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "good.yaml").write_text(
        "task: text-classification\ndata: {name: demo}\nmodel: {name: minilm}\n"
    )
    (tmp_path / "compose.yaml").write_text("services: {}\n")  # no recipe, and not chosen
    done = run_hook(hooks["bertctl-recipes-validate"], [], tmp_path, bertctl)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "recipes/good.yaml: ok\n"
    (folder / "bad.yaml").write_text(
        "task: text-classification\ndata: {name: demo}\ntraining: {epoch: 3}\n"
    )
    done = run_hook(hooks["bertctl-recipes-validate"], [], tmp_path, bertctl)
    assert done.returncode == 2
    assert "training.epoch" in done.stderr


@pytest.mark.slow
def test_data_check_takes_the_files_of_its_args_and_refuses_faulty_rows(
    hooks: dict[str, dict[str, Any]], bertctl: Run, tmp_path: Path
) -> None:
    demo = ROOT / "bertctl" / "catalog" / "demo"
    for name in ("train.csv", "validation.csv"):
        (tmp_path / name).write_bytes((demo / name).read_bytes())
    arguments = ["--strict", "--model", "minilm", "train.csv", "validation.csv"]
    done = run_hook(hooks["bertctl-data-check"], arguments, tmp_path, bertctl)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "validation.csv").open("a", encoding="utf-8") as file:
        file.write(
            (demo / "train.csv").read_text(encoding="utf-8").split("\n", 1)[1]
        )  # all training rows leak
    done = run_hook(hooks["bertctl-data-check"], arguments, tmp_path, bertctl)
    assert done.returncode == 3, done.stdout + done.stderr
