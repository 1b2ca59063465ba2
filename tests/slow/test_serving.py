"""The blocks of docs/serving.md, as a reader would use them: installed, started, asked."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertctl.cli.verbs.docs import FOLDER
from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (FOLDER / "serving.md").read_text(encoding="utf-8")
NOT_NEEDED = {"torch", "transformers", "scikit-learn", "scipy", "datasets", "matplotlib"}


def block(language: str, marker: str) -> str:
    """The block of the page that holds some words."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    [text] = [text for text in blocks if marker in text]
    return str(text)


class Environment:
    """A virtual environment with what the page installs, away from the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"

    def run(self, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), *map(str, words)],
            cwd=cwd or self.folder,
            env={"PATH": f"{self.python.parent}:/usr/bin:/bin", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def install(self, *packages: str) -> None:
        """Installs packages, or skips the test where there is no registry."""
        done = subprocess.run(
            [str(self.python), "-m", "pip", "install", "-q", *packages],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip(f"no registry has {' '.join(packages)}")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The lean installation, by the page's two commands."""
    folder = tmp_path_factory.mktemp("lean")
    environment = Environment(folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
    subprocess.run(wheel, check=True)
    commands = block("sh", "--no-deps").strip()
    done = subprocess.run(
        ["bash", "-c", f"source venv/bin/activate && set -e\n{commands}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "bertctl" in {path.stem.partition("-")[0] for path in folder.glob("*.whl")}
    assert done.returncode == 0, done.stderr
    return environment


def expected_answers(bertctl: Run, export: Path, rows: Path) -> list[str]:
    done = bertctl("predict", export, rows)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["prediction"] for line in done.stdout.splitlines()]


def test_the_lean_installation_predicts_without_the_other_packages(
    lean: Environment, bertctl: Run, tiny_run: TinyRun, tiny_export: Path
) -> None:
    listed = lean.run("-m", "pip", "list", "--format", "json")
    installed = {package["name"].lower() for package in json.loads(listed.stdout)}

    predicted = lean.run("-m", "bertctl", "predict", tiny_export, tiny_run.data)
    judged = lean.run(
        "-m", "bertctl", "gate", tiny_export, "--min", "accuracy=0.1", "--policy", "point"
    )
    made = lean.run("-m", "bertctl", "index", tiny_run.data, "--model", tiny_export, "-o", "index")
    found = lean.run("-m", "bertctl", "search", "index", "a dull film")
    python = lean.run(
        "-c", f"import bertctl; print(bertctl.load_run({str(tiny_export)!r}).predict(['a']))"
    )

    assert not NOT_NEEDED & installed
    answers = [json.loads(line)["prediction"] for line in predicted.stdout.splitlines()]
    assert answers == expected_answers(bertctl, tiny_export, tiny_run.data)
    for done in (judged, made, found, python):
        assert done.returncode == 0, done.stderr


@contextmanager
def started(words: Sequence[object], url: str, cwd: Path) -> Iterator[None]:
    """Starts a server, and stops it afterwards."""
    server = subprocess.Popen(
        [*map(str, words)],
        cwd=cwd,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(300):
            if server.poll() is not None:
                raise AssertionError(server.stderr.read() if server.stderr else "it ended")
            try:
                urllib.request.urlopen(f"{url}/openapi.json", timeout=5).close()  # noqa: S310
                break
            except OSError:
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.communicate(timeout=60)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_the_service_answers_requests_that_come_at_the_same_time(
    lean: Environment, bertctl: Run, tiny_export: Path, tmp_path: Path
) -> None:
    lean.install("fastapi", "uvicorn")
    shutil.copytree(tiny_export, tmp_path / "exported")
    (tmp_path / "service.py").write_text(block("python", "# service.py"), encoding="utf-8")
    texts = [f"the film was {'very ' * (number % 5)}fine" for number in range(16)]
    rows = tmp_path / "rows.txt"
    rows.write_text("\n".join(texts) + "\n", encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def ask(text: str) -> str:
        body = json.dumps({"texts": [text]}).encode()
        request = urllib.request.Request(  # noqa: S310
            f"{url}/predict", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            [line] = json.load(answer)
        return str(line["prediction"])

    words = [lean.python, "-m", "uvicorn", "service:app", "--port", port]
    with started(words, url, tmp_path), ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, texts))

    assert answers == expected_answers(bertctl, tiny_export, rows)


@pytest.mark.parametrize(
    ("marker", "package"),
    [("# ray_job.py", "ray[data]"), ("# spark_job.py", "pyspark")],
)
def test_a_cluster_job_answers_all_rows(
    marker: str,
    package: str,
    lean: Environment,
    bertctl: Run,
    tiny_run: TinyRun,
    tiny_export: Path,
    tmp_path: Path,
) -> None:
    if "spark" in marker and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    lean.install(package, "pandas", "pyarrow", "setuptools")
    places = {
        "/models/exported": str(tiny_export),
        "/data/reviews.csv": str(tiny_run.data),
        "/data/answers": str(tmp_path / "answers"),
    }
    job = block("python", marker)
    for place, path in places.items():
        job = job.replace(place, path)
    (tmp_path / "job.py").write_text(job, encoding="utf-8")

    done = lean.run("job.py", cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-3000:]
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "answers").glob("*.json"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    by_text = {line["text"]: line["prediction"] for line in lines}
    predicted = bertctl("predict", tiny_export, tiny_run.data)
    expected = [json.loads(line) for line in predicted.stdout.splitlines()]
    assert len(lines) == len(expected)
    assert by_text == {line["text"]: line["prediction"] for line in expected}
