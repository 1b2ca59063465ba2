"""`bertctl doctor` as a process.

What it says of the machine and of a recipe's needs, and the exit code of each end.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


class Hub(ThreadingHTTPServer):
    """A hub that has everything of the repositories named in `has`, 4 MB each file.

    It keeps what was asked.
    """

    daemon_threads = True

    def __init__(self) -> None:
        asked: list[str] = []
        has: set[str] = set()

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                asked.append(f"{self.command} {self.path}")
                there = any(repository in self.path for repository in has)
                self.send_response(200 if there else 404)
                self.send_header("Content-Length", "4000000" if there else "0")
                self.send_header("X-Repo-Commit", "abc")
                self.send_header("ETag", '"abc"')
                self.end_headers()

            do_GET = do_HEAD  # noqa: N815

            def log_message(self, *_: object) -> None:
                """No talk."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = asked
        self.has = has
        self.environment = {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.server_address[1]}",
            "HF_HUB_OFFLINE": "0",
        }


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_offline_the_machine_is_described_and_no_connection_is_tried(
    bertctl: Run, hub: Hub, tmp_path: Path
) -> None:
    done = bertctl("doctor", "--offline", "--json", env=hub.environment)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ready"] is True
    assert document["problems"] == []
    assert {"torch", "transformers"} <= {package["name"] for package in document["packages"]}
    assert document["devices"][-1]["kind"] == "cpu"
    assert 0 < document["memory"]["available"] <= document["memory"]["total"]
    assert [(folder["what"], folder["writable"]) for folder in document["folders"]] == [
        ("runs", True),
        ("hub cache", True),
    ]
    assert document["hub"]["offline"] is True
    assert hub.asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_whose_needs_are_here_is_ready(bertctl: Run, hub: Hub, tiny_model: Path) -> None:
    done = bertctl(
        "doctor",
        "demo",
        "--model",
        tiny_model,
        "--max-length",
        32,
        "--offline",
        env=hub.environment,
    )
    assert done.returncode == 0, done.stderr
    assert "600 from" in done.stdout
    assert str(tiny_model) in done.stdout
    assert f"Next: bertctl finetune demo --model {tiny_model} --max-length 32" in done.stderr
    assert hub.asked == []


def test_offline_and_missing_is_exit_4_and_says_the_ways(bertctl: Run, hub: Hub) -> None:
    done = bertctl("doctor", "sst2", "--offline", "--json", env=hub.environment)
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["ready"] is False
    states = {need["what"]: need["state"] for need in document["needs"]}
    assert states == {
        "device": "here",
        "train rows": "refused",
        "validation rows": "refused",
        "model bert-base": "refused",
        "disk for the run": "here",
    }
    assert done.stderr.count("--data-dir DIR") == 1, "a remedy that several share stands once"
    assert "--model minilm" in done.stderr
    assert hub.asked == []


def test_what_the_hub_has_is_ready_though_not_here_and_nothing_is_downloaded(
    bertctl: Run, hub: Hub, tmp_path: Path
) -> None:
    hub.has |= {"nyu-mll/glue", "google-bert/bert-base-uncased"}
    done = bertctl(
        "doctor", "sst2", "--json", env={**hub.environment, "HF_HOME": str(tmp_path / "hf")}
    )
    assert done.returncode == 0, done.stderr
    needs = {need["what"]: need for need in json.loads(done.stdout)["needs"]}
    assert [
        (needs[what]["state"], needs[what]["bytes"]) for what in ("train rows", "model bert-base")
    ] == [
        ("hub", 4000000),
        ("hub", 4000000),
    ]
    assert needs["disk for the downloads"]["bytes"] == 12000000
    assert (
        needs["disk for the run"]["bytes"] == 14 * 4000000
    )  # two models, three checkpoints of four times as much
    assert [
        request for request in hub.asked if "/resolve/" in request and request.startswith("GET ")
    ] == []
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 10000
    ]


def test_what_the_hub_does_not_have_is_exit_4(bertctl: Run, hub: Hub) -> None:
    hub.has.add("nyu-mll/glue")
    done = bertctl("doctor", "sst2", "--model", "org/secret", env=hub.environment)
    assert done.returncode == 4
    assert "'org/secret'" in done.stderr
    assert "give org/secret" in done.stderr
    assert "404" in done.stderr


def test_a_hub_out_of_reach_is_a_warning_until_something_of_it_is_needed(bertctl: Run) -> None:
    away = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    done = bertctl("doctor", env=away)
    assert done.returncode == 0, done.stderr
    assert "warning: the hub at http://127.0.0.1:9 " in done.stderr
    assert re.search(r"^hub +http://127\.0\.0\.1:9", done.stdout, re.MULTILINE)


def test_wrong_rows_are_exit_3(bertctl: Run, tmp_path: Path, tiny_model: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "one", "label": "a"}\n{"text": \n', encoding="utf-8")
    done = bertctl(
        "doctor",
        "text-classification",
        "--train-file",
        file,
        "--model",
        tiny_model,
        "--max-length",
        32,
        "--offline",
    )
    assert done.returncode == 3
    assert f"{file}:2" in done.stderr


def test_an_absent_device_is_exit_5_with_a_recipe_and_without(bertctl: Run) -> None:
    import torch

    absent = "mps" if torch.cuda.is_available() else "cuda"
    for recipe in ((), ("demo",)):
        done = bertctl("doctor", *recipe, "--device", absent, "--offline", "--json")
        assert done.returncode == 5, done.stderr
        assert f"the device '{absent}'" in done.stderr
        assert json.loads(done.stdout)["ready"] is False


def test_an_option_of_a_recipe_without_a_recipe_is_refused(bertctl: Run) -> None:
    done = bertctl("doctor", "--model", "minilm")
    assert done.returncode == 2
    assert "bertctl doctor sst2 --model minilm" in done.stderr
