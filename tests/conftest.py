"""What all tests share: the real process, the real data where it lies beside the checkout, and no way out to the hub."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public research data sets in their official layouts; tests that need it are skipped without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside the checkout")
    return folder


@pytest.fixture(autouse=True)
def _no_person(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No setting of the person who runs the tests reaches them, and nothing they cache reaches the person."""
    for name in ("BERTCTL_DATA", "HF_TOKEN", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE", "PYTHONWARNINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.getbasetemp() / "hf_home"))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def bertctl(tmp_path: Path) -> Run:
    """Run the real command as a process; `cwd` is the test's own folder unless said otherwise."""

    def run(
        *arguments: object, input: str | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bertctl", *map(str, arguments)],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
            cwd=cwd or tmp_path,
            env={**os.environ, **(env or {})},
            check=False,
        )

    return run
