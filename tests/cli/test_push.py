"""`bertctl push` as a process, against a hub on this machine that speaks the hub's protocol.

Nothing is mocked.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
TOKEN = "hf_thisIsATestAndNoSecret"


class Handler(BaseHTTPRequestHandler):
    """The requests of create_repo and create_commit, with weights as Git LFS objects."""

    server: "Hub"

    def do_HEAD(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = self._body()
        if self.headers.get("Authorization") != f"Bearer {self.server.accepts}":
            message = f"Invalid username or password: {self.headers.get('Authorization')}"
            return self._answer({"error": message}, status=401)
        if self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            return self._answer({"url": f"{self.server.address}/org/thing", "id": "org/thing"})
        if self.path == "/api/validate-yaml":
            self.server.cards.append(json.loads(body)["content"])
            return self._answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path and self.server.busy:
            return self._answer({}, status=429, headers={"Retry-After": "86400"})
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in files
            ]
            return self._answer({"files": modes})
        if self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    **expected,
                    "actions": {"upload": {"href": f"{self.server.address}/lfs/{expected['oid']}"}},
                }
                for expected in json.loads(body)["objects"]
            ]
            return self._answer({"transfer": "basic", "objects": objects})
        if "/commit/" in self.path:
            for line in body.decode().splitlines():
                self._commit(json.loads(line))
            return self._answer(
                {"commitUrl": f"{self.server.address}/org/thing/commit/abc", "commitOid": "abc"}
            )
        return self._answer({"error": f"unknown {self.path}"}, status=404)

    def do_PUT(self) -> None:
        self.server.objects[self.path.rpartition("/")[2]] = self._body()
        self._answer({})

    def _commit(self, line: dict[str, Any]) -> None:
        value = line["value"]
        if line["key"] == "header":
            self.server.summaries.append(value["summary"])
        elif line["key"] == "file":
            self.server.files[value["path"]] = base64.b64decode(value["content"])
        else:
            self.server.files[value["path"]] = self.server.objects[value["oid"]]

    def _body(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):  # chunked
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(parts)

    def _answer(
        self,
        document: dict[str, Any],
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        content = json.dumps(document).encode()
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """No talk."""


class Hub(ThreadingHTTPServer):
    """What was asked, made and stored."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.accepts = TOKEN
        self.busy = False
        self.asked: list[str] = []
        self.created: dict[str, Any] = {}
        self.objects: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.summaries: list[str] = []
        self.cards: list[str] = []


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run, as far as a push looks at it."""
    folder = tmp_path / "runs" / "mine"
    (folder / "model").mkdir(parents=True)
    (folder / "predictions").mkdir()
    (folder / "checkpoints").mkdir()
    (folder / "status.json").write_text('{"schema": 1, "state": "done", "step": 3}')
    (folder / "model" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model" / "README.md").write_text("# a card\n")
    (folder / "model" / "model.safetensors").write_bytes(bytes(range(256)) * 4000)
    (folder / "model" / ".model.safetensors.77.part").write_text("half")
    (folder / "model" / ".bertctl-x7.part").mkdir()  # as a writer leaves it that was killed
    (folder / "model" / ".bertctl-x7.part" / "model.safetensors").write_text("half")
    (folder / "predictions" / "validation.jsonl").write_text('{"id": "0", "text": "private"}\n')
    (folder / "checkpoints" / "optimizer.safetensors").write_text("large")
    return folder


def online(hub: Hub, **more: str) -> dict[str, str]:
    return {
        "HF_ENDPOINT": hub.address,
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        **more,
    }


def test_the_model_and_its_card_arrive_byte_by_byte_and_nothing_else(
    bertctl: Run, hub: Hub, run: Path
) -> None:
    done = bertctl("push", run, "org/thing", "--json", env=online(hub))
    assert done.returncode == 0, done.stderr
    assert hub.files == {
        name: (run / "model" / name).read_bytes()
        for name in ("README.md", "config.json", "model.safetensors")
    }
    assert hub.summaries == ["bertctl push mine"]
    assert hub.cards == ["# a card\n"]
    assert hub.created["name"] == "thing"
    assert hub.created["organization"] == "org"
    assert "private" not in hub.created
    document = json.loads(done.stdout)
    assert document["url"] == f"{hub.address}/org/thing"
    assert document["files"]["model.safetensors"] == 1024000
    assert TOKEN not in done.stdout + done.stderr


def test_what_is_asked_for_is_done(bertctl: Run, hub: Hub, run: Path) -> None:
    (run / "model" / "README.md").unlink()
    done = bertctl(
        "push",
        run,
        "org/thing",
        "--with-predictions",
        "--private",
        "-m",
        "the second one",
        env=online(hub),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(hub.files) == ["config.json", "model.safetensors", "predictions/validation.jsonl"]
    assert hub.created.get("private") is True or hub.created.get("visibility") == "private"
    assert hub.summaries == ["the second one"]
    assert done.stdout == f"{hub.address}/org/thing\n"
    assert "no README.md" in done.stderr


def test_without_a_token_nothing_is_sent_and_nothing_is_asked(
    bertctl: Run, hub: Hub, run: Path
) -> None:
    done = bertctl("push", run, "org/thing", env=online(hub, HF_TOKEN=""))
    assert done.returncode == 4
    assert "logged in" in done.stderr
    assert "Set HF_TOKEN" in done.stderr
    assert hub.asked == []


def test_offline_nothing_is_sent_and_torch_is_not_imported(
    bertctl: Run, hub: Hub, run: Path
) -> None:
    done = bertctl(
        "push", run, "org/thing", "--offline", env=online(hub, PYTHONPROFILEIMPORTTIME="1")
    )
    assert done.returncode == 4
    assert "offline mode" in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "huggingface_hub" in imported
    assert "torch" not in imported
    assert hub.asked == []


def test_a_token_that_may_not_write_is_refused_with_what_to_do(
    bertctl: Run, hub: Hub, run: Path
) -> None:
    hub.accepts = "another"
    done = bertctl("push", run, "org/thing", env=online(hub))
    assert done.returncode == 4
    assert "401" in done.stderr
    assert "HF_TOKEN" in done.stderr
    assert hub.files == {}
    assert TOKEN not in done.stderr


def test_a_hub_that_asks_to_wait_for_a_day_is_not_waited_for(
    bertctl: Run, hub: Hub, run: Path
) -> None:
    hub.busy = True
    done = bertctl("push", run, "org/thing", env=online(hub))
    assert done.returncode == 4
    assert "429 Too Many Requests, and it asks to wait 24 h" in done.stderr


def test_a_hub_that_is_not_there(bertctl: Run, run: Path) -> None:
    env = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "HF_TOKEN": TOKEN}
    env["HF_ENDPOINT"] = "http://me:secret@127.0.0.1:9"
    done = bertctl("push", run, "org/thing", env=env)
    assert "secret" not in done.stderr
    assert done.returncode == 4
    assert "http://127.0.0.1:9" in done.stderr


def test_the_port_of_a_hub_is_no_line_of_a_file(bertctl: Run, hub: Hub, run: Path) -> None:
    hub.accepts = "another"
    for token in ("", TOKEN):
        done = bertctl("push", run, "org/thing", "--json", env=online(hub, HF_TOKEN=token))
        error = json.loads(done.stdout)["error"]
        assert hub.address in error["message"]
        assert error["file"] is None
        assert error["line"] is None


@pytest.mark.parametrize(
    ("hub_id", "status", "code", "message"),
    [
        ("org/--thing", "done", 2, "is not a hub id"),
        ("org/thing", "interrupted", 4, "'interrupted'"),
    ],
)
def test_refusals_that_need_no_hub(
    bertctl: Run, hub: Hub, run: Path, hub_id: str, status: str, code: int, message: str
) -> None:
    (run / "status.json").write_text(json.dumps({"schema": 1, "state": status, "step": 3}))
    done = bertctl("push", run, hub_id, env=online(hub))
    assert done.returncode == code
    assert done.stdout == ""
    assert message in done.stderr
    assert hub.asked == []


def test_a_probe_has_no_model_of_its_own(bertctl: Run, hub: Hub, run: Path) -> None:
    (run / "model" / "config.json").unlink()
    done = bertctl("push", run, "org/thing", env=online(hub))
    assert done.returncode == 4
    assert "no config.json" in done.stderr
