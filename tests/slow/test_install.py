"""The README's two commands, word for word, in a clone and a new virtual environment each."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def _first_block() -> list[str]:
    match = re.search(
        r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert match is not None
    return match[1].strip().splitlines()


def _run_in_new_environment(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "clone")], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    return subprocess.run(
        ["bash", "-c", f"source {folder}/venv/bin/activate && {command}"],
        cwd=folder / "clone",
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def test_install_and_demo(tmp_path: Path) -> None:
    command = _first_block()[0]
    assert command.endswith("bertctl finetune demo")
    done = _run_in_new_environment(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"test +accuracy \* +0\.\d{4}", done.stdout)


def test_install_and_tests(tmp_path: Path) -> None:
    command = _first_block()[1]
    assert command.endswith("pytest")
    done = _run_in_new_environment(command, tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\d+ passed", done.stdout)
