"""What all tests share.

The real process, the real data beside the checkout, and no way out to the hub.
"""

import compileall
import contextlib
import fcntl
import functools
import gc
import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

from tests.nursery import Nursery

os.environ.setdefault(
    "GOMP_SPINCOUNT", "4000"
)  # as the command does; before anything imports torch
os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # the other test process has the other core, and threads burn theirs
if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "sched_setaffinity"):
    # A core for each test process and the commands it starts: threads of two that wait for each
    # other on two cores take up to three times as long.
    _CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(
        0, {_CORES[int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) % len(_CORES)]}
    )
sys.dont_write_bytecode = (
    False  # where it is on, each process compiles the tests and the package anew: 4 seconds
)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
importlib.metadata.version = functools.cache(
    importlib.metadata.version
)  # of nine packages for each run
os.fsync = lambda _: None  # waits for a disk, for the day the power fails; no test cuts it
gc.disable()  # until all tests are collected, which takes a fifth less time
# transformers compiles one expression for each weight of each model that it loads
re._MAXCACHE = 1 << 14

# Processes below `nohup` ignore a terminal that closes, and some tests close one.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent

_PERSONAL = (
    "BERTCTL_DATA",
    "BERTCTL_LOCKED",
    "HF_TOKEN",
    "HF_ENDPOINT",
    "TRANSFORMERS_OFFLINE",
    "PYTHONWARNINGS",
    "CI",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "GITLAB_CI",
    "FORCE_COLOR",
    "COLUMNS",
)

Run = Callable[..., subprocess.CompletedProcess[str]]
_OPENED = pytest.StashKey[Nursery]()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public research data sets in their official layouts.

    Tests that need it are skipped without it.
    """
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside the checkout")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _no_person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the person who runs the tests reaches them.

    Nothing they cache reaches the person.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in _PERSONAL:
            patch.delenv(name, raising=False)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(_common(tmp_path_factory) / "hf_home"))
        patch.setenv("BERTCTL_CACHE", str(_common(tmp_path_factory) / "bertctl_cache"))
        patch.setenv("NO_COLOR", "1")
        yield


def _common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of this test session have in common."""
    personal = tmp_path_factory.getbasetemp()
    return personal.parent if "PYTEST_XDIST_WORKER" in os.environ else personal


def pytest_xdist_auto_num_workers() -> int:
    """Returns two test processes more than cores.

    For a fifth of their time they wait, for disks, clocks and hubs.
    """
    return (
        len(
            os.sched_getaffinity(0)
            if hasattr(os, "sched_getaffinity")
            else range(os.cpu_count() or 1)
        )
        + 2
    )


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end.

    No garbage collection needs to look at it again.
    """
    gc.freeze()
    gc.set_threshold(100_000)  # rarer than every 700 objects: a twentieth of the whole time
    gc.enable()


def _nursery(common: Path) -> Nursery:
    env = {name: value for name, value in os.environ.items() if name not in _PERSONAL}
    env |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(common / "hf_home"), "NO_COLOR": "1"}
    env["BERTCTL_CACHE"] = str(common / "bertctl_cache")
    return Nursery(common / "nursery", env)


def _compile_ahead(config: pytest.Config) -> None:
    """Compiles the package and the tests while the nursery imports, which keeps one core busy.

    In a new checkout each test process would compile all tests: together that is 9 seconds of the
    processor.
    """
    for path in sorted(
        ROOT.glob("bertctl/**/*.py"), reverse=True
    ):  # towards the nursery, which begins with `api`
        compileall.compile_file(path, quiet=2)
    for path in ROOT.glob("tests/**/*.py"):
        if not path.name.startswith("test_"):
            compileall.compile_file(path, quiet=2)
            continue
        # The names are pytest's own: another release may have others. What can't be read the test
        # process tells of.
        with contextlib.suppress(AttributeError, OSError, SyntaxError, ValueError):
            folder = rewrite.get_cache_dir(path)
            retained = folder / (path.stem + rewrite.PYC_TAIL)
            if rewrite.try_makedirs(folder) and rewrite._read_pyc(path, retained) is None:
                source_hash, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(
                    config.stash[rewrite.assertstate_key], code, source_hash, retained
                )


def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Makes pytest's own test processes come out of the nursery.

    What they import takes each of them six seconds.
    """
    factory: pytest.TempPathFactory = config._tmp_path_factory  # as xdist has it
    ahead = threading.Thread(target=_compile_ahead, args=(config,))
    ahead.start()
    config.stash[_OPENED] = opened = _nursery(_common(factory))
    ahead.join()
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.quote(str(opened.python))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the nursery of the test processes."""
    if _OPENED in config.stash:
        config.stash[_OPENED].close()


@pytest.fixture
def own_session() -> Iterator[None]:
    """A session of the test's own: it knows nothing of what other tests have asked or read."""
    from bertctl.session import opened

    with opened():
        yield


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Where `bertctl` processes come from whose imports are done; see tests/nursery.py."""
    opened = _nursery(_common(tmp_path_factory))
    yield opened
    opened.close()


@pytest.fixture
def bertctl(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    nursery: Nursery,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Run the command as a process; `cwd` is the test's own folder unless said otherwise.

    It comes out of the nursery, or is started anew where the environment is one that libraries read
    when imported. With the mark `in_process` the test's own process takes the command.
    """
    is_here = request.node.get_closest_marker("in_process") is not None

    def run(
        *arguments: object,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        words = list(map(str, arguments))
        complete = {**os.environ, **(env or {})}
        if nursery.suits(complete):
            stdin = None
            if input is not None:
                stdin = tmp_path_factory.mktemp("streams") / "stdin"
                stdin.write_text(input, encoding="utf-8")
            if is_here and "NURSERY_IMPORTS" not in complete:
                from tests.in_process import run_here

                return run_here(words, cwd=cwd or tmp_path, env=complete, stdin=stdin)
            return nursery.run(words, cwd=cwd or tmp_path, env=complete, stdin=stdin)
        return subprocess.run(
            [sys.executable, "-m", "bertctl", *words],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=3600,
            cwd=cwd or tmp_path,
            env=complete,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a randomly initialised BERT and its tokenizer.

    Its sizes are unequal, so that a mixed-up axis shows.

    Its vocabulary is the letters, their continuations and a few words, so any lower-case ASCII text
    has pieces. The first test process that wants it makes it.
    """
    folder = _common(tmp_path_factory) / "tiny-bert"
    with _alone(folder) as is_made:
        if not is_made:
            _make_tiny_model(folder)
    return folder


def _make_tiny_model(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
    words = [
        "good",
        "bad",
        "film",
        "food",
        "not",
        "very",
        "the",
        "a",
        "was",
        "it",
        "fine",
        "poor",
        "dull",
        "bright",
    ]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *letters, *(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(
        vocab={piece: i for i, piece in enumerate(vocabulary)}, do_lower_case=True
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=36,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=37,
        max_position_embeddings=41,
    )
    BertModel(config).save_pretrained(folder)


@pytest.fixture
def opinions(tmp_path: Path) -> Path:
    """A CSV of 16 short opinions with two labels, easy enough to be learned by heart."""
    path = tmp_path / "opinions.csv"
    _write_opinions(path)
    return path


def _write_opinions(path: Path) -> None:
    rows = ["text,label"]
    for i in range(8):
        rows.append(f"the film was good {'very ' * (i % 3)}fine {i},pos")
        rows.append(f"it was bad food {'not ' * (i % 4)}dull {i},neg")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class TinyRun:
    """A run that the real process made, and what that process said.

    Tests read it; what changes it works on a copy.
    """

    path: Path
    data: Path
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def tiny_run(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery
) -> TinyRun:
    """The opinions, learned by heart by the tiny model.

    4 held out for validation, all of them in the test file too.

    The first test process that wants it makes it.
    """
    folder = _common(tmp_path_factory) / "tiny-run"
    data = folder / "opinions.csv"
    run = folder / "run"
    message = folder / "said.json"
    arguments = ["--train-file", data, "--test-file", data, "--model", tiny_model, "-o", run]
    settings = [
        "--max-length",
        "32",
        "--epochs",
        "20",
        "--learning-rate",
        "5e-3",
        "--precision",
        "fp32",
    ]
    sets = [
        "data.validation_fraction=0.25",
        "evaluation.bootstrap_resamples=100",
        "model.dropout=0.0",
    ]
    sets += ["training.preset=null", "training.batch_size=16"]
    sets.append("model.head_start=random")  # else there is nothing to be learned
    command = [
        "finetune",
        "text-classification",
        *map(str, arguments),
        *settings,
        "--checkpoint-every",
        "off",
    ]
    words = [*command, *(word for entry in sets for word in ("--set", entry))]
    with _alone(folder) as is_made:
        if not is_made:
            _write_opinions(data)
            made = nursery.run(words, cwd=folder)
            assert made.returncode == 0, made.stderr
            message.write_text(json.dumps([made.stdout, made.stderr]), encoding="utf-8")
    done = subprocess.CompletedProcess(words, 0, *json.loads(message.read_text(encoding="utf-8")))
    return TinyRun(run, data, done)


@pytest.fixture(scope="session")
def tiny_export(
    tmp_path_factory: pytest.TempPathFactory, tiny_run: TinyRun, nursery: Nursery
) -> Path:
    """The tiny run as an export for ONNX Runtime, compared on all its rows.

    Tests read it; what changes it works on a copy.
    """
    pytest.importorskip("onnxscript", reason="pip install 'bertctl[onnx]'")
    folder = _common(tmp_path_factory) / "tiny-export"
    export = folder / "export"
    words = ["export", str(tiny_run.path), "-o", str(export), "--rows", str(tiny_run.data)]
    with _alone(folder) as is_made:
        if not is_made:
            made = nursery.run([*words, "--threads", "1"], cwd=folder)
            assert made.returncode == 0, made.stderr
    return export


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Keeps the other test processes out; yields whether one of them has made the folder whole."""
    with folder.with_name(f"{folder.name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        is_made = bool(lock.read())
        folder.mkdir(exist_ok=True)
        yield is_made
        lock.write("made")
