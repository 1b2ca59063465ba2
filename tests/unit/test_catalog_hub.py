"""The door to the hub: what is asked, how often, how long, and what a refusal says."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bertctl.catalog import hub
from bertctl.catalog.models import MODELS, locate_model
from bertctl.errors import UnavailableError, UsageError
from bertctl.session import opened

WAYS = ["the first way", "the second way"]


class Hub:
    """A hub on this machine that answers as `reply` says.

    That is a status, or seconds of silence. It keeps what was asked.
    """

    def __init__(self, reply: Callable[[str], float]) -> None:
        asked = self.asked = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                asked.append(f"{self.command} {self.path}")
                answer = reply(self.path)
                if answer < 100:
                    time.sleep(answer)
                    return
                self.send_response(int(answer))
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD  # noqa: N815

            def log_message(self, *_: object) -> None:
                """No talk."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def start_hub(own_session: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Hub]]:
    """Start a hub and point HF_ENDPOINT at it; nothing is remembered of other hubs."""
    started: list[Hub] = []

    def start(reply: Callable[[str], float]) -> Hub:
        started.append(Hub(reply))
        monkeypatch.setenv("HF_ENDPOINT", started[-1].address)
        return started[-1]

    monkeypatch.setattr(hub, "REACH_SECONDS", 0.3)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    yield start
    for one in started:
        one.server.shutdown()
        one.server.server_close()


def fetch_model(name: str = "org/thing") -> object:
    return hub.fetch_folder(
        name,
        revision=None,
        patterns=["*.json"],
        needed=[["model.safetensors"]],
        noun=f"the model '{name}'",
        ways=WAYS,
    )


def fetch_data() -> object:
    return hub.fetch_file(
        "org/data", "a/train.parquet", revision="0123abc", noun="the data 'd'", ways=WAYS
    )


def test_what_is_asked_is_a_file_that_is_wanted_and_only_once(start_hub):
    """A front page may answer where files do not; and two waits would be twice as long."""
    there = start_hub(lambda path: 200 if path == "/" else 2)
    for fetch in (fetch_data, fetch_model):
        with pytest.raises(UnavailableError, match="no answer within"):
            fetch()
    assert there.asked == ["HEAD /datasets/org/data/resolve/0123abc/a/train.parquet"]


def test_a_model_is_asked_for_by_its_config(start_hub):
    there = start_hub(lambda _: 2)
    with pytest.raises(UnavailableError):
        fetch_model()
    assert there.asked == ["HEAD /org/thing/resolve/main/config.json"]


def test_a_model_of_the_catalog_is_asked_for_at_its_commit_where_it_has_one(start_hub):
    there = start_hub(lambda _: 2)
    row = MODELS["bge-small"]
    for name, revision in (("bge-small", None), ("bge-small", "v9"), ("bert-base", None)):
        with opened(), pytest.raises(UnavailableError):
            locate_model(name, revision=revision)
    asked = [line.split("resolve/")[1].split("/")[0] for line in there.asked]
    assert asked == [row.revision, "v9", "main"]


def test_a_revision_is_never_ignored(start_hub, tmp_path):
    there = start_hub(lambda _: 2)
    with pytest.raises(UnavailableError):
        locate_model("minilm", revision="0123abc")
    assert there.asked == [
        "HEAD /sentence-transformers/all-MiniLM-L6-v2/resolve/0123abc/config.json"
    ]
    (tmp_path / "vectors.txt").write_text("a 1 2\n")
    for path in (tmp_path, tmp_path / "vectors.txt"):
        with pytest.raises(UsageError, match="only a model of the hub has"):
            locate_model(str(path), revision="0123abc")


def test_a_refusal_names_what_was_wanted_and_the_ways(start_hub):
    there = start_hub(lambda _: 2)
    with pytest.raises(UnavailableError) as caught:
        fetch_data()
    assert caught.value.message.startswith("the data 'd' (org/data/a/train.parquet ")
    assert there.address in caught.value.message
    assert caught.value.remedy.endswith("the data 'd':\n  - the first way\n  - the second way")


def test_an_answer_that_drips_ends_all_the_same(own_session, monkeypatch):
    """Each byte comes in time, the whole never does."""
    monkeypatch.setattr(hub, "REACH_SECONDS", 0.3)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            while not stop.wait(0.1):
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        with pytest.raises(UnavailableError, match="no answer within"):
            fetch_data()
        assert not stop.is_set(), "it gave up by itself, while bytes still came"
        stop.set()
        thread.join()


def test_offline_asks_nothing(start_hub, monkeypatch):
    there = start_hub(lambda _: 200)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            with pytest.raises(UnavailableError, match="offline"):
                fetch_data()
    assert there.asked == []


@pytest.mark.parametrize("value", ["0", "", "false"])
def test_offline_is_off_where_it_is_said_to_be_off(value, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert not hub.is_offline()


def test_a_folder_a_run_and_a_package_need_no_hub(tiny_model, tmp_path, start_hub):
    there = start_hub(lambda _: 200)
    assert locate_model(str(tiny_model)) == tiny_model
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    (run / "status.json").write_text("{}")
    (run / "model" / "config.json").write_text("{}")
    assert locate_model(str(run)) == run / "model"
    assert locate_model("minilm").joinpath("model.safetensors").is_file()
    assert locate_model("all-MiniLM-L6-v2") == locate_model("minilm")
    assert there.asked == []


def test_a_package_whose_weights_were_changed_is_refused(monkeypatch):
    import bertctl.catalog.models as models

    monkeypatch.setattr(models, "file_sha256", lambda _: "0" * 64)
    with pytest.raises(UnavailableError, match="'minilm'") as caught:
        locate_model("minilm")
    assert "--force-reinstall" in caught.value.remedy
    assert locate_model("minilm", weights=False).is_dir(), (
        "the tokenizer alone is not what was hashed"
    )


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("bert-bas", UsageError, "did you mean bert-base"),
        ("nonsense", UsageError, "model 'nonsense'"),
        ("./here", UnavailableError, "./here does not exist"),
        ("a/b/c", UnavailableError, "a/b/c does not exist"),
    ],
)
def test_names_that_fit_nothing_are_refused_without_the_hub(
    name, error, said, start_hub, tmp_path, monkeypatch
):
    there = start_hub(lambda _: 200)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=said):
        locate_model(name)
    assert there.asked == []
