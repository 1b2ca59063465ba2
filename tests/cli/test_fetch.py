"""`bertctl fetch` and `--locked` as processes, against a hub on this machine.

The hub misbehaves (tests/hub_server.py).
"""

import io
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bertctl.catalog import patience
from bertctl.catalog.datasets import find_dataset
from bertctl.catalog.downloads import CHUNK_BYTES, limit_sessions
from bertctl.catalog.lock import Lock
from bertctl.errors import UnavailableError
from bertctl.fetching.fetch import fetch, files_needed_by, needs_of_name
from bertctl.progress import Listener
from bertctl.words import human_bytes
from tests.conftest import ROOT
from tests.hub_server import Fault, HubServer, Repo, serving
from tests.nursery import Nursery
from tests.sentence_folders import make_folder

Run = Callable[..., CompletedProcess[str]]

TOKEN = "hf_thisIsATestAndNoSecret"
MODEL = "models/google-bert/bert-base-uncased"
DATA = "datasets/nyu-mll/glue"
COMMIT = "86b5e0934494bd15c9632b12f734a8a67f723594"
_COMMITS = ((12, "a"), (30, "b"))
WEIGHTS = 700_000
"""Bytes of weights in tests of loading, where nobody reads them as such: 11 chunks."""


@pytest.fixture(scope="session")
def repos(tiny_model: Path) -> dict[str, Repo]:
    """BERT-base, in truth the tiny model, among files that nobody reads.

    And a few rows of SST-2.
    """
    row = find_dataset("sst2")
    assert row.hub is not None
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir()}
    unread = (
        "pytorch_model.bin",
        "README.md",
        "onnx/model.onnx",
        "onnx/config.json",
        "model.fp16.safetensors",
    )
    rows = {"train": 40, "validation": 12, "test": 6}
    return {
        MODEL: Repo({**files, **dict.fromkeys(unread, b"{}")}, COMMIT),
        DATA: Repo(
            {row.hub.file_of(split): _parquet(n) for split, n in rows.items()},
            row.hub.revision,
            "other",
        ),
    }


@pytest.fixture
def hub(repos: dict[str, Repo]) -> Iterator[HubServer]:
    with serving(repos) as server:
        yield server


@pytest.fixture
def large() -> Iterator[HubServer]:
    """A hub with weights of several chunks, which nobody reads as such."""
    weights = random.Random(1).randbytes(WEIGHTS)  # noqa: S311 - no secret
    files = {"config.json": b"{}", "vocab.txt": b"[PAD]", "model.safetensors": weights}
    with serving({MODEL: Repo(files, COMMIT)}) as server:
        yield server


def _parquet(rows: int) -> bytes:
    from datasets import ClassLabel, Dataset, Features, Value

    labels = ClassLabel(names=["negative", "positive"])
    features = Features({"sentence": Value("string"), "label": labels, "idx": Value("int32")})
    texts = [f"a {'fine' if i % 2 else 'dull'} film {i}" for i in range(rows)]
    data = Dataset.from_dict(
        {"sentence": texts, "label": [i % 2 for i in range(rows)], "idx": list(range(rows))},
        features=features,
    )
    out = io.BytesIO()
    data.to_parquet(out)
    return out.getvalue()


def online(server: HubServer, home: Path, **more: str) -> dict[str, str]:
    return {
        "HF_ENDPOINT": server.address,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(home),
        "HF_TOKEN": TOKEN,
        **more,
    }


def away(folder: Path) -> dict[str, str]:
    """The environment of a process in which no socket connects.

    It has a cache of the hub of its own.
    """
    return {"NURSERY_IMPORTS": "no_sockets", "HF_HOME": str(folder / "elsewhere")}


@pytest.fixture(scope="session")
def made(
    repos: dict[str, Repo], nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What `fetch --to` makes."""
    folder = tmp_path_factory.mktemp("made")
    with serving(repos) as server:
        env = {**os.environ, **online(server, folder / "home")}
        done = nursery.run(["fetch", "demo", "sst2", "--to", "made"], cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
    return folder / "made"


@pytest.fixture
def carried(made: Path, tmp_path: Path) -> Path:
    """The same at another path, the hub gone."""
    return Path(shutil.copytree(made, tmp_path / "carried"))


def files_of(cache: Path) -> dict[str, bytes]:
    """Everything that stands under its final name."""
    paths = [path for path in cache.rglob("snapshots/*/*") if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def test_what_a_run_reads_is_brought_and_nothing_else(bertctl, hub, repos, tmp_path):
    done = bertctl("fetch", "sst2", "--json", env=online(hub, tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    lock = json.loads((tmp_path / "bertctl.lock").read_text())
    data, model = json.loads(done.stdout)["parts"]
    assert [data, model] == lock["parts"]
    assert model["name"] == "google-bert/bert-base-uncased"
    assert model["asked"] == "main"
    assert model["revision"] == COMMIT
    assert model["licence"] == "apache-2.0"
    assert data["licence"] == "other"
    read = {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    assert set(model["files"]) == read & set(repos[MODEL].files)
    assert model["files"]["config.json"]["bytes"] == len(repos[MODEL].files["config.json"])
    assert [Path(name).name.partition("-")[0] for name in data["files"]] == ["train", "validation"]
    assert set(hub.sent) == {*model["files"], *data["files"]}
    message = (
        done.stdout
        + done.stderr
        + "".join(path.read_text("latin-1") for path in tmp_path.rglob("*.lock"))
    )
    assert TOKEN not in message
    assert "s3cret" not in message
    assert (
        f"/google-bert/bert-base-uncased/resolve/{COMMIT}/config.json",
        f"Bearer {TOKEN}",
    ) in hub.tokens

    before = hub.sent.copy()
    assert bertctl("fetch", "sst2", env=online(hub, tmp_path / "home")).returncode == 0
    assert hub.sent == before, "what is here is not loaded again"


def test_a_model_of_sentence_transformers_is_brought_with_its_pooling(
    bertctl, tiny_model, tmp_path
):
    """Without 1_Pooling its vectors would be means, whatever it pools by."""
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    with serving({"models/org/cls": Repo(files, COMMIT)}) as server:
        words = ["similarity", "a good film", "it was bad", "--json", "--model"]
        env = online(server, tmp_path / "home")
        known = bertctl(*words, folder, env=env)
        actual = bertctl(*words, "org/cls", env=env)
        assert actual.returncode == 0, actual.stderr
        assert actual.stdout == known.stdout
        assert bertctl("fetch", "org/cls", env=env).returncode == 0
    [part] = json.loads((tmp_path / "bertctl.lock").read_text())["parts"]
    assert "1_Pooling/config.json" in part["files"]
    assert bertctl("fetch", "--check", env=env).returncode == 0


def test_a_model_that_transformers_has_cached_gets_its_pooling(bertctl, hub, tiny_model, tmp_path):
    """It has no use for modules.json.

    The vectors were means of a model that pools by its first token.
    """
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    words = ["similarity", "a good film", "it was bad", "--json", "--model"]
    env = online(hub, tmp_path / "home")
    hub.repos["models/org/cls"] = Repo(files, COMMIT)
    assert bertctl(*words, "org/cls", env=env).returncode == 0
    for path in (tmp_path / "home").rglob("snapshots/*/*"):
        if path.name in ("modules.json", "1_Pooling", "sentence_bert_config.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    known = bertctl(*words, folder, env=env)
    actual = bertctl(*words, "org/cls", env=env)
    assert actual.returncode == 0, actual.stderr
    assert actual.stdout == known.stdout

    assert bertctl(*words, "bert-base", env=env).returncode == 0
    count = len(hub.asked)
    assert bertctl(*words, "bert-base", env=env).returncode == 0
    assert len(hub.asked) == count, "that it has none is known"


@pytest.mark.parametrize("gone", ["blobs", "snapshots"])
def test_what_a_cached_model_lacks_is_brought(bertctl, hub, repos, gone, tmp_path):
    """The cache is of others too, who have no need of a tokenizer.

    Or a copy of it has lost what a link names.
    """
    env = online(hub, tmp_path / "home")
    words = ("similarity", "a film", "the food", "--model")
    assert bertctl(*words, "bert-base", env=env).returncode == 0
    for name in ("tokenizer_config.json",) if gone == "blobs" else ("tokenizer.json", "vocab.txt"):
        for path in (tmp_path / "home").rglob(f"snapshots/*/{name}"):
            (path.resolve() if gone == "blobs" else path).unlink()
    done = bertctl(*words, "bert-base", "--offline", env=env)
    assert done.returncode == 4
    assert "is not in the cache" in done.stderr
    done = bertctl(*words, "bert-base", env=env)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "home").items() <= repos[MODEL].files.items()
    assert bertctl(*words, "bert-base", "--offline", env=env).returncode == 0


@pytest.mark.parametrize("is_online", [True, False])
def test_a_part_of_the_weights_that_others_have_not_loaded_is_brought(
    bertctl, tiny_model, is_online, tmp_path
):
    """Transformers loads the index first.

    An end there left a model that was refused as damaged, the hub reachable.
    """
    from transformers import BertModel

    folder = tmp_path / "parts"
    repo = "org/parts"
    shutil.copytree(tiny_model, folder)
    (folder / "model.safetensors").unlink()
    BertModel.from_pretrained(tiny_model).save_pretrained(folder, max_shard_size="50KB")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    part = max(name for name in files if name.endswith(".safetensors"))
    with serving({f"models/{repo}": Repo(files, COMMIT)}) as hub:
        env = online(hub, tmp_path / "home")
        done = bertctl("fetch", repo, env=env)
        assert done.returncode == 0, done.stderr
        [others] = (tmp_path / "home").rglob(f"snapshots/*/{part}")
        others.resolve().unlink()
        others.unlink()
        offline = () if is_online else ("--offline",)
        done = bertctl("similarity", "a film", "the food", "--model", repo, *offline, env=env)
    assert done.returncode == (0 if is_online else 4), done.stderr
    assert is_online or "is not in the cache, and offline mode is on" in done.stderr


def test_a_branch_with_a_slash_and_a_file_with_a_space_are_asked_for_as_one_word_each(
    bertctl, repos, tmp_path
):
    """wnut17 and bc5cdr are read at refs/convert/parquet, and the hub knows no `refs`."""
    lines = ["mine:", "  task: text-classification", "  columns: {text: sentence, label: label}"]
    lines += ["  labels: [negative, positive]", "  splits: {train: {}, validation: {}}"]
    lines += [
        "  hub: {repo: org/set, revision: refs/convert/parquet, file: 'its rows/{split} "
        "#1.parquet'}"
    ]
    (tmp_path / "datasets.yaml").write_text("\n".join(lines))
    model = "model: {name: bert-base, revision: refs/pr/1, max_length: 16}"
    (tmp_path / "mine.yaml").write_text(
        f"task: text-classification\ndata: {{name: mine}}\n{model}\n"
    )
    rows = {f"its rows/{split} #1.parquet": _parquet(12) for split in ("train", "validation")}
    with serving({MODEL: repos[MODEL], "datasets/org/set": Repo(rows, COMMIT)}) as server:
        done = bertctl("fetch", "mine.yaml", env=online(server, tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        done = bertctl("fetch", env=online(server, tmp_path / "home2"))
    assert done.returncode == 0, done.stderr
    parts = json.loads((tmp_path / "bertctl.lock").read_text())["parts"]
    assert [part["asked"] for part in parts] == ["refs/convert/parquet", "refs/pr/1"]


def test_a_repository_of_which_nothing_is_read_is_refused_and_not_the_folder_here_taken(
    bertctl, tiny_model, tmp_path
):
    """The model of the current folder answered in its name."""
    here = Path(shutil.copytree(tiny_model, tmp_path / "here"))
    with serving(
        {"models/org/gguf": Repo({"README.md": b"-", "model.gguf": b"-"}, COMMIT)}
    ) as server:
        env = online(server, tmp_path / "home")
        for words in (
            ["similarity", "a film", "the food", "--model", "org/gguf"],
            ["inspect", "org/gguf"],
        ):
            done = bertctl(*words, env=env, cwd=here)
            assert done.returncode == 4, done.stderr
            assert done.stdout == ""
            assert "org/gguf has no file that is read" in done.stderr
        part = {
            "kind": "model",
            "name": "org/gguf",
            "asked": "main",
            "revision": COMMIT,
            "licence": "",
            "files": {},
        }
        (tmp_path / "bertctl.lock").write_text(
            json.dumps({"schema": 1, "folder": "", "parts": [part]})
        )
        assert "bug" not in bertctl("fetch", env=env).stderr


def test_a_mirror_with_a_password_is_asked_and_the_password_never_shown(bertctl, hub, tmp_path):
    """It was a host of no known name, `user:secret@127.0.0.1`.

    Doctor and push showed the password.
    """
    address = hub.address.replace("://", "://user:s3cret-word@")
    env = {**online(hub, tmp_path / "home"), "HF_ENDPOINT": address}
    done = bertctl("fetch", "bert-base", env=env)
    assert done.returncode == 0, done.stderr
    down = {**env, "HF_ENDPOINT": "http://user:s3cret-word@127.0.0.1:9"}
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text("{}")
    status = {
        "schema": 1,
        "state": "done",
        "bertctl": "0",
        "pid": 1,
        "host": "x",
        "started": "2026-01-01T00:00:00Z",
    }
    (tmp_path / "run" / "status.json").write_text(json.dumps(status))
    for words in (["doctor"], ["doctor", "--json"], ["push", "run", "me/x"], ["fetch", "o/x"]):
        for entry in (env, down, {**down, "HF_TOKEN": ""}):
            done = bertctl(*words, env=entry)
            assert "s3cret-word" not in done.stdout + done.stderr
    assert (
        "nobody is logged in at http://127.0.0.1:9"
        in bertctl("push", "run", "me/x", env={**down, "HF_TOKEN": ""}).stderr
    )


def test_a_lock_of_which_all_is_here_is_brought_without_the_hub_and_stays_as_it_is(
    bertctl, hub, repos, tmp_path
):
    """In each job it ended with code 4 while the hub was away.

    The message `is not in the cache` was not so.
    """
    env = online(hub, tmp_path / "home")
    path = tmp_path / "bertctl.lock"
    assert bertctl("fetch", "sst2", env=env).returncode == 0
    before = path.stat()
    done = bertctl("fetch", env={**env, "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    [file] = (tmp_path / "home").rglob("snapshots/*/model.safetensors")
    blob = file.resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    done = bertctl("fetch", env=env)
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == repos[MODEL].files["model.safetensors"]


def test_a_cache_that_can_not_be_written_is_not_called_a_wrong_name(bertctl, hub, tmp_path):
    """The remedy was about names, revisions and tokens."""
    (tmp_path / "home").write_text("a file")
    done = bertctl("fetch", "bert-base", env=online(hub, tmp_path / "home"))
    assert done.returncode == 4
    assert f"Is there room on {tmp_path / 'home' / 'hub'}" in done.stderr
    assert "HF_TOKEN" not in done.stderr


def test_recipes_of_pretraining_are_fetched_with_their_corpora(bertctl, hub, tmp_path):
    """`a corpus has no split 'train'` was the answer, for every one of them."""
    env = online(hub, tmp_path / "home")
    (tmp_path / "own.txt").write_text(
        "\n\n".join(f"the film was good. it was {n} long." for n in range(40))
    )
    text = (
        "task: pretraining\npretraining: {corpus: [own.txt]}\nmodel: {name: bert-base, max_length: "
        "32}\n"
    )
    (tmp_path / "own.yaml").write_text(text)
    done = bertctl("fetch", "pretrain-demo", "own.yaml", env=env)
    assert done.returncode == 0, done.stderr
    parts = json.loads((tmp_path / "bertctl.lock").read_text())["parts"]
    assert {"own.txt", "google-bert/bert-base-uncased"} < {part["name"] for part in parts}
    for words in (["pretrain-demo"], ["own.yaml"]):
        done = bertctl("pretrain", *words, "--dry-run", "--locked", "--offline", env=env)
        assert done.returncode == 0, done.stderr
    (tmp_path / "own.txt").write_text("another text")
    assert (
        bertctl("pretrain", "own.yaml", "--dry-run", "--locked", "--offline", env=env).returncode
        == 4
    )


def test_a_hub_that_was_away_for_a_moment_is_not_waited_for_either():
    """After a refused connection huggingface_hub has a new session.

    That one waited for an hour if it was asked to.
    """
    from httpx2 import Request, Response
    from huggingface_hub import close_session, get_session

    limit_sessions()
    close_session()
    busy = Response(
        429, headers={"Retry-After": "3600"}, request=Request("GET", "http://127.0.0.1:9")
    )
    [hook] = get_session().event_hooks["response"]
    with pytest.raises(UnavailableError, match="asks to wait 1 h"):
        hook(busy)


def test_sizes_before_a_byte_is_loaded_and_a_line_for_a_cache(bertctl, hub, repos, tmp_path):
    env = online(hub, tmp_path / "home")
    done = bertctl("fetch", "sst2", "--list", "--json", env=env)
    listed = json.loads(done.stdout)
    assert listed["bytes"] == sum(file["bytes"] for file in listed["files"])
    assert {file["file"]: file["bytes"] for file in listed["files"]}["vocab.txt"] == len(
        repos[MODEL].files["vocab.txt"]
    )
    assert not hub.sent
    assert not (tmp_path / "bertctl.lock").exists()
    count = len(hub.asked)
    keys = [
        bertctl("fetch", *names, "--cache-key", env=env).stdout
        for names in (["sst2"], ["sst2"], ["sst2", "mrpc"])
    ]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0].startswith("bertctl-")
    assert keys[0].count("\n") == 1
    assert len(hub.asked) == count


@pytest.mark.slow
def test_a_carried_folder_serves_at_another_path_without_a_network(bertctl, carried, tmp_path):
    assert not [path for path in carried.rglob("*") if path.is_symlink()], (
        "some disks and archives have no links"
    )
    words = [
        "finetune",
        "sst2",
        "--locked",
        "--offline",
        "--max-length",
        "32",
        "-o",
        tmp_path / "run",
        "--dry-run",
    ]
    done = bertctl(*words, cwd=carried, env=away(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "train: 40 examples" in done.stderr
    completed = bertctl(*words, env={**away(tmp_path), "BERTCTL_LOCKED": str(carried)})
    assert completed.returncode == 0, completed.stderr
    assert bertctl("fetch", "--check", cwd=carried, env=away(tmp_path)).returncode == 0


@pytest.mark.slow
def test_a_run_of_a_carried_folder_from_its_beginning_to_its_scores(bertctl, carried, tmp_path):
    more = ["--locked", "--offline"]
    words = [
        "finetune",
        "sst2",
        *more,
        "--max-length",
        "32",
        "--epochs",
        "1",
        "--precision",
        "fp32",
        "-o",
        "run",
    ]
    done = bertctl(*words, cwd=carried, env=away(tmp_path))
    assert done.returncode == 0, done.stderr
    for verb in (["evaluate", "run"], ["predict", "run", "a fine film"]):
        done = bertctl(*verb, *more, cwd=carried, env=away(tmp_path))
        assert done.returncode == 0, done.stderr
    texts = "".join(
        path.read_text("latin-1") for path in (carried / "run").rglob("*") if path.is_file()
    )
    assert TOKEN not in texts


FLIPPED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import no_sockets
from bertctl.cli.boundary import run
for file in map(Path, sys.argv[2:]):
    right = file.read_bytes()
    half = len(right) // 2
    file.write_bytes(right[:half] + bytes([right[half] ^ 1]) + right[half + 1:])
    if os.fork() == 0:
        code = run(["finetune", "sst2", "--locked", "--offline", "--max-length", "32"])
        os._exit(99 if "torch" in sys.modules else code)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    file.write_bytes(right)
"""


def test_a_branch_that_moves_while_weights_come_gives_one_commit_whole(
    bertctl, hub, repos, tmp_path
):
    hub.moves = {MODEL: Repo({**repos[MODEL].files, "README.md": b"{ }"}, "b" * 40)}
    env = online(hub, tmp_path / "home")
    for words in (["inspect", "bert-base"], ["fetch", "bert-base"]):
        done = bertctl(*words, env=env)
        assert done.returncode == 0, done.stderr
        commits = {path.parent.name for path in (tmp_path / "home").rglob("config.json")}
        [part] = (
            json.loads((tmp_path / "bertctl.lock").read_text())["parts"]
            if words[0] == "fetch"
            else [None]
        )
        assert commits == ({COMMIT} if part is None else {COMMIT, "b" * 40})
    assert part["revision"] == "b" * 40
    assert bertctl("inspect", "bert-base", "--offline", env=env).returncode == 0


def test_the_splits_of_a_run_are_of_one_commit_wherever_the_branch_moves(
    bertctl, tiny_model, tmp_path
):
    """It trained on rows of one commit and was scored on those of another.

    Such a run could not be repeated offline.
    """
    lines = ["mine:", "  task: text-classification", "  columns: {text: sentence, label: label}"]
    lines += ["  labels: [negative, positive]", "  splits: {train: {}, validation: {}}"]
    lines += ["  hub: {repo: org/set, revision: main, file: '{split}.parquet'}"]
    (tmp_path / "datasets.yaml").write_text("\n".join(lines))
    model = f"model: {{name: {tiny_model}, max_length: 16}}"
    (tmp_path / "mine.yaml").write_text(
        f"task: text-classification\ndata: {{name: mine}}\n{model}\n"
    )
    old, new = (
        Repo({"train.parquet": _parquet(n), "validation.parquet": _parquet(n)}, c * 40)
        for n, c in _COMMITS
    )
    words = ["finetune", "mine.yaml", "--dry-run"]
    with serving({"datasets/org/set": old}) as server:
        env = online(server, tmp_path / "home")
        assert "train: 12 examples" in bertctl(*words, env=env).stderr
        for path in (tmp_path / "home").rglob(
            "validation.parquet"
        ):  # as if it had moved between the two
            path.unlink()
        server.old[old.commit] = old
        server.repos["datasets/org/set"] = new
        done = bertctl(*words, env=env)
        assert "train: 12 examples" in done.stderr
        assert "validation: 12 examples" in done.stderr
        assert bertctl(*words, "--offline", env=env).returncode == 0
        assert bertctl("fetch", "mine.yaml", env=env).returncode == 0
        assert "validation: 30 examples" in bertctl(*words, env=env).stderr


def test_one_flipped_byte_is_refused_by_name_before_torch_is_imported(carried, nursery, tmp_path):
    parts = ("model.safetensors", "train-00000-of-00001.parquet", "tokenizer_config.json")
    files = [next(carried.rglob(part)) for part in parts]
    env = {**os.environ, "HF_HOME": str(tmp_path / "elsewhere")}
    done = nursery.run_code(FLIPPED, ROOT / "tests" / "faults", *files, cwd=carried, env=env)
    assert done.stdout.split() == ["4"] * 3, done.stderr
    for file in files:
        assert (
            done.stderr.count(f"error: {file} is not the file in {carried / 'bertctl.lock'}") == 1
        )
    assert sorted(path.name for path in carried.iterdir()) == ["bertctl.lock", "hub"]


def test_what_is_damaged_is_found_and_brought_anew(bertctl, hub, carried, tmp_path):
    [file] = carried.rglob("model.safetensors")
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    [gone] = (
        carried.rglob("vocab.txt")
        if list(carried.rglob("vocab.txt"))
        else carried.rglob("config.json")
    )
    [table] = carried.rglob("train-*.parquet")
    table.unlink()
    checked = bertctl("fetch", "--check", "--json", cwd=carried, env=away(tmp_path))
    assert checked.returncode == 4
    document = json.loads(checked.stdout)
    assert [
        str(file) in document["problems"][1],
        "sst2/train-00000" in document["problems"][0],
    ] == [
        True,
        True,
    ]
    assert gone.exists()
    done = bertctl("fetch", cwd=carried, env=online(hub, tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == good
    assert bertctl("fetch", "--check", cwd=carried, env=away(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["finetune", "mrpc"], "nyu-mll/glue/mrpc"),
        (["finetune", "sst2", "--model", "minilm", "--train-file", "x.csv"], None),
        (["finetune", "sst2", "--model", "bert-large"], "is not in"),
        (["extract-features", "sst2", "--model", "bert-large", "-o", "x.npy"], "is not in"),
        (["predict", "org/thing", "a fine film"], "the model org/thing"),
        (["evaluate", "org/thing", "--file", "x.csv"], "the model org/thing"),
    ],
)
def test_what_the_lock_has_not_is_refused_by_every_verb(bertctl, carried, words, message, tmp_path):
    (carried / "x.csv").write_text("text,label\na film,pos\n")
    done = bertctl(
        *words,
        "--locked",
        cwd=carried,
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "none")},
    )
    assert done.returncode in ((2, 4) if message is None else (4,)), done.stderr
    assert message is None or message in done.stderr or "no such file" in done.stderr


def test_files_of_a_persons_own_stand_in_the_lock_by_hash(bertctl, opinions, tiny_model, tmp_path):
    recipe = tmp_path / "mine.yaml"
    model = f"model: {{name: {tiny_model}, max_length: 32}}"
    recipe.write_text(f"task: text-classification\ndata:\n  train_file: {opinions.name}\n{model}\n")
    assert bertctl("fetch", "mine.yaml").returncode == 0
    lock = json.loads((tmp_path / "bertctl.lock").read_text())
    assert [(part["kind"], part["name"], part["revision"]) for part in lock["parts"]] == [
        ("dataset", "opinions.csv", ""),
        ("model", tiny_model.name, ""),
    ]
    assert str(tmp_path) not in json.dumps(lock)
    words = ["finetune", "mine.yaml", "--locked", "--dry-run"]
    assert bertctl(*words).returncode == 0
    opinions.write_text(opinions.read_text() + "it was fine,pos\n")
    changed = bertctl(*words)
    assert changed.returncode == 4
    assert str(opinions) in changed.stderr


@pytest.mark.parametrize("file", ["1_Pooling/config.json", "modules.json"])
def test_how_a_folder_of_ones_own_pools_is_locked_too(bertctl, tiny_model, file, tmp_path):
    """Its vectors changed under --locked."""
    folder = make_folder("cls", tiny_model, tmp_path / "made")
    assert bertctl("fetch", folder).returncode == 0
    words = ["similarity", "a good film", "it was bad", "--model", folder, "--locked"]
    assert bertctl(*words).returncode == 0
    (folder / file).write_text((folder / file).read_text() + " ")
    done = bertctl(*words)
    assert done.returncode == 4, done.stdout
    assert str(folder / file) in done.stderr


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema"),
        ({"schema": None}, "schema"),
        ({"folder": "../hub"}, "leads out"),
        ({"folder": "/etc"}, "leads out"),
        ({"parts": [{"name": "../../etc"}]}, "leads out"),
        ({"parts": [{"files": {"../../../x": {"sha256": "0" * 64, "bytes": 1}}}]}, "leads out"),
        ({"parts": [{"revision": "../x"}]}, "leads out"),
        ({"parts": 3}, "parts"),
    ],
)
def test_a_lock_that_is_not_one_is_refused_with_what_to_do(bertctl, change, message, tmp_path):
    part = {
        "kind": "model",
        "name": "org/x",
        "asked": "main",
        "revision": "0" * 40,
        "licence": "",
        "files": {},
    }
    document = {"schema": 1, "folder": "", "parts": [], **change}
    if isinstance(document["parts"], list):
        document["parts"] = [{**part, **entry} for entry in document["parts"]]
    (tmp_path / "bertctl.lock").write_text(json.dumps(document))
    for words in (["finetune", "demo", "--locked"], ["fetch", "--check"]):
        done = bertctl(*words)
        assert done.returncode == 3, done.stderr
        assert message in done.stderr
        assert "bertctl fetch RECIPE" in done.stderr


@pytest.mark.in_process
def test_without_a_lock_it_is_said_how_to_make_one(bertctl, tmp_path):
    for words in (
        ["finetune", "demo", "--locked"],
        ["fetch"],
        ["fetch", "--check"],
        ["predict", "x", "y", "--locked"],
    ):
        done = bertctl(*words)
        assert done.returncode == 4
        assert f"no such lock: {tmp_path / 'bertctl.lock'}" in done.stderr
        assert "bertctl fetch RECIPE" in done.stderr
    for words, message in (
        (["fetch", "sst3"], "sst2"),
        (["fetch", "demo", "--list", "--check"], "exclude"),
    ):
        done = bertctl(*words)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.parametrize("name", ["org/na me", "org/é", f"org/{97 * 'x'}"])
def test_a_name_that_can_be_none_of_the_hub_is_refused_with_what_fits(bertctl, name):
    for words in (
        ["inspect", name],
        ["fetch", name],
        ["finetune", "demo", "--model", name, "--dry-run"],
    ):
        done = bertctl(*words)
        assert done.returncode == 2, done.stderr
        assert name in done.stderr
        assert "Give org/name" in done.stderr


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "http://[::1"])
def test_an_address_that_is_none_is_refused_with_its_variable(bertctl, address, tmp_path):
    done = bertctl(
        "fetch", "org/thing", env={"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
    )
    assert done.returncode == 2, done.stderr
    assert "HF_ENDPOINT" in done.stderr


QUICK: dict[str, tuple[Fault, int, str]] = {
    "401": (Fault(401), 4, "HF_TOKEN"),
    "403, gated": (Fault(403, headers={"X-Error-Code": "GatedRepo"}), 4, "HF_TOKEN"),
    "404": (Fault(404, headers={"X-Error-Code": "EntryNotFound"}), 4, "404"),
    "404 of the repository": (
        Fault(404, "api", headers={"X-Error-Code": "RepoNotFound"}),
        4,
        "revision",
    ),
    "429 once": (
        Fault(429, times=1, headers={"Retry-After": "0"}),
        0,
        "hub: Rate limited. Waiting",
    ),
    "429 for an hour": (Fault(429, headers={"Retry-After": "3600"}), 4, "asks to wait 1 h"),
    "429 until tomorrow": (
        Fault(429, headers={"RateLimit": '"api";r=0;t=86400'}),
        4,
        "asks to wait 24 h",
    ),
    "503 for an hour": (Fault(503, headers={"Retry-After": "3600"}), 4, "asks to wait 1 h"),
    "closes early once": (Fault("closes", at=300_000, times=1), 0, "resume"),
    "another content": (
        Fault("content"),
        4,
        "model.safetensors is damaged or was changed on its way",
    ),
    "shorter": (Fault("shorter"), 4, "should be of size 700000"),
    "longer": (Fault("longer"), 4, "sends more than the 700,000 bytes that it has announced"),
    "a file that unpacks to 90 MB": (
        Fault("bomb", "config.json"),
        4,
        "bytes that it has announced",
    ),
    "a list of files that unpacks to 90 MB": (Fault("bomb", "api"), 4, "is longer than"),
    "redirects in a circle": (Fault("circle"), 4, "redirects"),
    "no ETag": (Fault("no etag"), 4, "not a hub"),
}
DRIPS: dict[str, tuple[Fault, int, str]] = {
    "a list of files that drips": (Fault("drips", "api"), 4, "so slowly that it was given up"),
    "a list of files whose headers drip": (
        Fault("drips headers", "api"),
        4,
        "so slowly that it was given up",
    ),
    "a file that drips": (Fault("drips"), 4, "so slowly that it was given up"),
    "a file whose headers drip": (
        Fault("drips headers", "vocab.txt"),
        4,
        "so slowly that it was given up",
    ),
}
"""A byte comes before each timeout of the HTTP library, and the last one never comes."""

LONG: dict[str, tuple[Fault, int, str]] = {
    "stalls once": (Fault("stalls", at=300_000, times=1), 0, "resume"),
    "stalls for ever": (Fault("stalls", at=0), 4, "timed out"),
    "429 for ever": (Fault(429, headers={"Retry-After": "0"}), 4, "HF_TOKEN"),
    "503 for ever": (Fault(503), 4, "503"),
    "closes early for ever": (Fault("closes", at=0), 4, "HF_ENDPOINT"),
}


class Heard(Listener):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said = ""

    def say(self, text: str) -> None:
        self.said += text + "\n"


@pytest.mark.parametrize(
    "name", [*QUICK, *DRIPS, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_a_hub_that_misbehaves_leaves_nothing_half_and_is_gone_on_with(
    large, name, tmp_path, monkeypatch, own_session
):
    """In this process, whose library has read its variables long ago.

    They are set where it keeps them.
    """
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", large.address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    values = {
        "HF_HUB_OFFLINE": False,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_DOWNLOAD_TIMEOUT": 1,
    }
    for constant, value in values.items():
        monkeypatch.setattr(constants, constant, value)
    large.fault, code, message = {**QUICK, **DRIPS, **LONG}[name]
    if name in DRIPS:
        monkeypatch.setattr(patience, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(patience, "PIECE_SECONDS", 1.0)
    listener = Heard()
    place = Lock(tmp_path / "bertctl.lock")
    needs = list(needs_of_name("google-bert/bert-base-uncased"))
    with nullcontext() if code == 0 else pytest.raises(UnavailableError) as refused:
        fetch(files_needed_by(needs), needs, place, listener)
    if refused is not None:
        assert refused.value.exit_code == code
        listener.say(f"{refused.value.message}\n{refused.value.remedy}")
    assert message in listener.said
    for secret in (TOKEN, "s3cret"):
        assert secret not in listener.said
    files = large.repos[MODEL].files
    here = files_of(tmp_path)
    assert here == {file: files[file] for file in here}
    assert place.path.exists() == ("model.safetensors" in here) == (code == 0)

    large.fault = None
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 3600.0)
    monkeypatch.setattr(patience, "PIECE_SECONDS", 3600.0)
    fetch(files_needed_by(needs), needs, place, listener)
    assert files_of(tmp_path)["model.safetensors"] == files["model.safetensors"]
    assert not list(tmp_path.rglob("*.incomplete"))


def test_who_waits_for_a_download_that_is_thrown_away_loads_it_anew(nursery, large, tmp_path):
    env = {**os.environ, **online(large, tmp_path / "home")}
    large.fault = Fault("stalls", at=0, times=1)
    command = ["fetch", "google-bert/bert-base-uncased"]
    first = nursery.start(command, env=env, cwd=tmp_path)
    assert large.stalled.wait(3600)
    [part] = (tmp_path / "home").rglob("*.incomplete")
    second = nursery.start(command, env=env, cwd=tmp_path)
    _wait_for_waiting(part)
    part.write_bytes(bytes(WEIGHTS))  # as if wrong bytes had come
    large.go_on.set()
    for process in (first, second):
        process.communicate()
    assert sorted((first.returncode, second.returncode)) == [0, 4]
    assert (
        files_of(tmp_path / "home")["model.safetensors"]
        == large.repos[MODEL].files["model.safetensors"]
    )


def test_a_folder_to_carry_is_filled_by_two_at_once(nursery, large, tmp_path):
    """Who waited found neither the part nor the blob, which the first had copied and deleted.

    FileNotFoundError.
    """
    env = {**os.environ, **online(large, tmp_path / "home"), "HF_HUB_DISABLE_SYMLINKS": "1"}
    large.fault = Fault("stalls", at=0, times=1)
    first = nursery.start(["fetch", "google-bert/bert-base-uncased"], env=env, cwd=tmp_path)
    assert large.stalled.wait(3600)
    [part] = (tmp_path / "home").rglob("*.incomplete")
    second = nursery.start(["fetch", "google-bert/bert-base-uncased"], env=env, cwd=tmp_path)
    _wait_for_waiting(part)
    second.send_signal(signal.SIGSTOP)
    large.go_on.set()
    first.communicate()
    second.send_signal(signal.SIGCONT)
    output = second.communicate()[1]
    assert first.returncode == 0, output
    assert second.returncode == 0
    assert (
        files_of(tmp_path / "home")["model.safetensors"]
        == large.repos[MODEL].files["model.safetensors"]
    )
    assert not list((tmp_path / "home").rglob("blobs/*"))


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_part_that_is_no_file_is_neither_followed_nor_waited_for(bertctl, large, kind, tmp_path):
    blobs = tmp_path / "home" / "hub" / "models--google-bert--bert-base-uncased" / "blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{large.repos[MODEL].etag('model.safetensors')}.bertctl.incomplete"
    personal = tmp_path / "own.txt"
    personal.write_text("mine")
    part.symlink_to(personal) if kind == "link" else os.mkfifo(part)
    done = bertctl("fetch", "google-bert/bert-base-uncased", env=online(large, tmp_path / "home"))
    assert done.returncode == 4, done.stderr
    assert personal.read_text() == "mine"


def _wait_for_waiting(path: Path) -> None:
    """Waits until somebody waits for the lock on a file, as the system lists them."""
    for _ in range(180_000):
        if f":{path.stat().st_ino} " in "".join(
            line
            for line in Path("/proc/locks").read_text().splitlines(keepends=True)
            if "->" in line
        ):
            return
        time.sleep(0.02)
    raise AssertionError("nobody waits for it")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_fetch_that_is_killed_goes_on_where_it_was(nursery, large, kills, tmp_path):
    """No byte is loaded twice, but those of the chunk that was not written yet."""
    env = {**os.environ, **online(large, tmp_path / "home")}
    command = ["fetch", "google-bert/bert-base-uncased"]
    positions = sorted(random.Random(7).sample(range(1, WEIGHTS), kills))  # noqa: S311 - no secret
    for at in positions:
        large.fault = Fault("stalls", at=at)
        large.stalled.clear()
        process = nursery.start(command, env=env, cwd=tmp_path)
        assert large.stalled.wait(3600)
        _wait_for_part(tmp_path / "home", at - CHUNK_BYTES)
        process.kill()
        process.communicate()
        large.go_on.set()
        assert "model.safetensors" not in files_of(tmp_path / "home")
    large.fault = None
    done = nursery.run(command, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        files_of(tmp_path / "home")["model.safetensors"]
        == large.repos[MODEL].files["model.safetensors"]
    )
    starts = [start for file, start in large.starts if file == "model.safetensors"]
    assert len(starts) == kills + 1
    for at, start in zip(positions, starts[1:], strict=True):
        assert at - CHUNK_BYTES <= start <= at
    assert not list((tmp_path / "home").rglob("*.incomplete"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_fetch_that_is_interrupted_says_that_what_came_stays(nursery, large, number, tmp_path):
    """It said that nothing had been started that could be saved."""
    at = WEIGHTS // 2
    large.fault = Fault("stalls", at=at)
    env = {**os.environ, **online(large, tmp_path / "home")}
    process = nursery.start(["fetch", "google-bert/bert-base-uncased"], env=env, cwd=tmp_path)
    assert large.stalled.wait(3600)
    _wait_for_part(tmp_path / "home", at - CHUNK_BYTES)
    process.send_signal(number)
    output = process.communicate()[1]
    large.go_on.set()
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    [part] = (tmp_path / "home").rglob("*.incomplete")
    text = (
        f"{human_bytes(part.stat().st_size)} of model.safetensors are kept\nThe same command "
        "continues from there.\n"
    )
    assert text in output


def _wait_for_part(home: Path, size: int) -> None:
    """Waits until what was sent is written, as far as whole chunks go."""
    for _ in range(180_000):
        if any(path.stat().st_size >= size for path in home.rglob("*.incomplete")):
            return
        time.sleep(0.02)
    raise AssertionError("the part does not grow")


@pytest.mark.parametrize("order", [("rows.csv", "tiny"), ("tiny", "rows.csv")])
def test_a_file_of_rows_goes_with_the_model_that_is_named_beside_it(
    bertctl, tiny_model, tmp_path, order
):
    (tmp_path / "rows.csv").write_text("text,label\n" + "a good film,pos\na bad film,neg\n" * 20)
    (tmp_path / "tiny").symlink_to(tiny_model)
    away = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "none")}
    done = bertctl("fetch", *order, "--set", "model.max_length=32", env=away)
    assert done.returncode == 0, done.stderr
    assert "--train-file" not in done.stderr
    lock = json.loads((tmp_path / "bertctl.lock").read_text())
    assert {part["name"] for part in lock["parts"]} == {"rows.csv", tiny_model.name}
    refused = bertctl(
        "finetune", "rows.csv", "--model", "bert-large", "--locked", "--dry-run", env=away
    )
    assert refused.returncode == 4
    assert "bertctl fetch FILE" in refused.stderr
