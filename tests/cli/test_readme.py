"""Every command of the README runs, or its block says what it needs."""

import os
import re
import subprocess
from pathlib import Path

from tests.nursery import Nursery

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\n)?```sh\n(?P<body>.*?)```", re.DOTALL)
VERBS_TABLE = re.compile(r"^\| `(?P<verb>[a-z-]+)", re.MULTILINE)


def blocks() -> list[tuple[str, list[str]]]:
    """(mark, commands) of each fenced `sh` block."""
    text = README.read_text(encoding="utf-8")
    return [(m["mark"] or "", m["body"].strip().splitlines()) for m in BLOCK.finditer(text)]


def runnable() -> list[str]:
    return [line for mark, lines in blocks() if not mark for line in lines]


def test_blocks_are_found_and_marks_are_known() -> None:
    marks = {mark for mark, _ in blocks()}
    needs = {"needs: GLUE's files, or the hub", "needs: several GPUs or machines"}
    assert marks == {"", "run by: tests/slow/test_install.py", *needs}
    assert len(blocks()) == 16
    assert len(runnable()) == 31


def test_every_command_runs(nursery: Nursery, tmp_path: Path) -> None:
    """In order, in one folder, through a shell, as a person would."""
    rows = [f"it was a {'fine' if i % 2 else 'poor'} dinner number {i},{'good' if i % 2 else 'bad'}" for i in range(40)]
    labels = [row.replace(",good", ",positive").replace(",bad", ",negative") for row in rows]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *labels]) + "\n")
    for command in runnable():
        fewer = r"finetune \1 --max-train-rows 32 --max-eval-rows 32 "
        shortened = re.sub(r"finetune (demo[a-z-]*|mine.yaml) (?!--dry)", fewer, command)
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {shortened}"],  # the very line, on fewer rows
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{nursery.bin}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert (tmp_path / "runs/first/metrics.json").read_text() != ""
    assert (tmp_path / "answers.csv").read_text().count("\n") == 41


def test_the_table_of_verbs_is_the_table_of_verbs() -> None:
    from bertctl.cli.app import VERBS

    section = README.read_text(encoding="utf-8").split("## The verbs")[1].split("## ")[0]
    assert sorted(m["verb"] for m in VERBS_TABLE.finditer(section)) == sorted(verb.name for verb in VERBS)


def test_the_exit_codes_are_all_there() -> None:
    from bertctl.errors import ExitCode

    section = README.read_text(encoding="utf-8").split("## Exit codes")[1].split("## ")[0]
    documented = {
        int(number) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE) for number in row.split(",")
    }
    assert documented == {int(code) for code in ExitCode}
