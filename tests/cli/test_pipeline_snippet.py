"""The GitHub Action of the page on pipelines: its shell lines run as a runner runs them, without the network."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = Path(__file__).resolve().parents[2] / "bertctl" / "docs" / "pipelines.md"
MARK = "<!-- run by: tests/cli/test_pipeline_snippet.py -->"
INSTALL = "install"
"""Name of the step that is left out: the test's own environment has bertctl."""


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    """The one job of the marked block."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(MARK) == 1, f"the page has no block under {MARK}"
    block = re.match(r"\s*```yaml\n(.*?)```", text.split(MARK)[1], re.DOTALL)
    assert block, "the mark stands right above a yaml block"
    (found,) = yaml.safe_load(block[1])["jobs"].values()
    return dict(found)


def scripts(job: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def test_the_steps_are_the_ones_a_pipeline_needs(job: dict[str, Any]) -> None:
    verbs = re.findall(r"^bertctl ([a-z-]+)", "\n".join(scripts(job).values()), re.MULTILINE)
    assert verbs == ["doctor", "data", "finetune", "gate", "report"]
    assert scripts(job)[INSTALL].startswith("pip install")


@pytest.mark.slow
def test_every_shell_line_runs_offline_in_order(job: dict[str, Any], tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    assert job["env"]["HF_HUB_OFFLINE"] == "1"
    environment = {
        **os.environ,
        **job["env"],
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    for name, script in scripts(job).items():
        if name == INSTALL:
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", script],  # what a runner does with `run`
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {"data.xml", "gate.xml", "report.html"}
    assert "gate" in summary.read_text(encoding="utf-8")
