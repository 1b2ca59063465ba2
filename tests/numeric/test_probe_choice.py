"""The probe that `probe` recommends is one that is good by the task's own metric."""

import json
from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.mark.slow
def test_probe_cola_recommends_one_that_finds_unacceptable_sentences(
    bertctl: Run, shared_data: Path, tmp_path: Path
) -> None:
    """1,043 sentences, chosen by cross-validation on the 8,551 of training.

    Matthews 0.136, where it was 0.04.
    """
    words = ["probe", "cola", "--data-dir", shared_data / "glue", "--model", "minilm"]
    done = bertctl(*words, "--layers", "all", "--pooling", "cls,mean", "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert len(metrics["probe"]["table"]) == 14
    assert metrics["metrics"]["validation"]["matthews"]["value"] >= 0.08
    best = max(metrics["probe"]["table"], key=lambda row: row["cross_validation"])
    assert metrics["probe"]["best"] == {"layer": best["layer"], "pooling": best["pooling"]}
