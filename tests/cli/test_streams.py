"""Streams that are closed, full or no longer read: the verdict's code stays, and work goes on.

The table: every verb x the places that its streams may lead to (a pipe whose reader has left, a
closed descriptor, a full disk), once with a refusal for a verdict and once with an answer. All of
it runs before a release; by default each verb has one of the three worst places, in turn.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.cli.test_surface import COMMANDS
from tests.cli.verbs import REFUSED, typed
from tests.conftest import TinyRun
from tests.nursery import Nursery

FULL = "/dev/full"
PLACES: Mapping[str, dict[int, str]] = {
    "stdout | true": {1: "gone"},
    "stderr | true": {2: "gone"},
    "both | true": {1: "gone", 2: "gone"},
    ">&-": {1: "closed"},
    "2>&-": {2: "closed"},
    "<&-": {0: "closed"},
    "<&- >&- 2>&-": {0: "closed", 1: "closed", 2: "closed"},
    "> /dev/full": {1: FULL},
    "2> /dev/full": {2: FULL},
    "> /dev/full 2>&1": {1: FULL, 2: FULL},
}
WORST = ("both | true", "<&- >&- 2>&-", "> /dev/full 2>&1")

ON_FILES = [
    "--train-file",
    "opinions.csv",
    "--model",
    "MODEL",
    "--max-length",
    "16",
    "--precision",
    "fp32",
]
SMALL = [*ON_FILES, "--epochs", "1", "--set", "evaluation.bootstrap_resamples=100"]
TINY_CORPUS = [
    "--vocab-size",
    "150",
    "--max-steps",
    "2",
    "--max-length",
    "16",
    "--allow-duplicates",
]
THEN = [
    "--then",
    "opinions.csv",
    "--then-set",
    "training.max_steps=1",
    "--then-set",
    "model.max_length=16",
]
PRINTED: dict[str, list[str]] = {
    "attention": ["MODEL", "a film", "--json"],
    "cluster": ["opinions.csv", "--model", "MODEL", "--clusters", "2"],
    "compare": ["RUN", "RUN"],
    "docs": ["tutorial"],
    "explain": ["RUN", "opinions.csv"],
    "inspect": ["RUN"],
    "mine": ["opinions.csv", "--model", "MODEL", "--threshold", "-1"],
    "predict": ["RUN", "opinions.csv"],
    "recipes ls": [],
    "recipes show": ["demo"],
    "recipes schema": ["--json"],
    "recipes diff": ["demo", "sst2"],
    "recipes validate": ["demo"],
    "runs ls": ["."],
    "runs gc": [".", "--keep-best", "1"],
    "report": ["RUN", "--format", "md"],
    "similarity": ["a film", "fine", "--model", "MODEL"],
    "tokenize": ["a film", "--format", "ids"],
    "vocab coverage": ["opinions.csv", "--model", "MODEL"],
    "vocab diff": ["MODEL", "minilm"],
    "vocab neighbours": ["film", "MODEL"],
    "vocab search": ["film", "MODEL"],
    "vocab show": ["MODEL"],
    "vocab stats": ["MODEL", "--json"],
}
"""Verbs whose answer is what they print: cut off they end with 141, with 4 where it can't be
written."""
JUDGED: dict[str, tuple[list[str], int]] = {
    "gate": (["RUN", "--min", "accuracy=0.01", "--allow-constant"], 0),
    "gate, undecided": (["RUN", "--min", "accuracy=0.99"], 8),
    "gate, not met": (["RUN", "--max", "loss=1e-9"], 7),
    "data check": (["faulty.csv", "--strict"], 3),
    "recipes cp": (["demo", "copy.yaml", "--overwrite"], 0),
    "data cp": (["demo-qa", "rows", "--overwrite"], 0),
    "doctor": (["text-classification", *ON_FILES, "--offline"], 0),
    "predict, to a file": (["RUN", "opinions.csv", "-o", "answers.jsonl"], 0),
    "tokenize, to a file": (["--file", "opinions.csv", "-o", "tokens.jsonl"], 0),
    "attention, to a file": (["MODEL", "a film", "-o", "attention.html"], 0),
    "report, to a file": (["RUN", "-o", "report.html"], 0),
    "explain, to a file": (["RUN", "opinions.csv", "-o", "explained.jsonl"], 0),
    "vocab train": (["opinions.csv", "--size", "100", "-o", "vocabulary", "--overwrite"], 0),
}
"""Verbs whose answer is their exit code or a file."""
SLOW: dict[str, tuple[list[str], int]] = {
    "finetune": (["text-classification", *SMALL, "-o", "run", "--overwrite"], 0),
    "pretrain": (
        ["opinions.csv", "--from-scratch", "tiny", *TINY_CORPUS, "-o", "pretrained", "--overwrite"],
        0,
    ),
    "distill": (["RUN", "--layers", "1", "--epochs", "1", "-o", "student", "--overwrite"], 0),
    "adapt": (
        [
            "opinions.csv",
            "--from-scratch",
            "tiny",
            *TINY_CORPUS,
            *THEN,
            "--seeds",
            "2",
            "-o",
            "adapted",
        ],
        0,
    ),
    "sweep": (
        [
            "text-classification",
            *SMALL,
            "--grid",
            "optimizer.learning_rate=1e-3,2e-3",
            "-o",
            "sweep",
        ],
        0,
    ),
    "probe": (
        ["opinions.csv", "--model", "MODEL", "--max-length", "16", "-o", "probe", "--overwrite"],
        0,
    ),
    "evaluate": (["OWN", "--split", "test"], 0),
    "extract-features": (
        ["opinions.csv", "--model", "MODEL", "--max-length", "16", "-o", "v.npy", "--overwrite"],
        0,
    ),
    "index": (["opinions.csv", "--model", "MODEL", "-o", "index", "--overwrite"], 0),
    "estimate": (["text-classification", *SMALL], 0),
    "lr-find": (["text-classification", *ON_FILES], 0),
}
"""Verbs that train or compute for seconds; estimate and lr-find print."""


@pytest.fixture
def folder(tmp_path: Path, opinions: Path) -> Path:
    (tmp_path / "faulty.csv").write_text("text,label\na,x\na,y\n,x\n")
    return tmp_path


def words_of(verb: str, words: list[str], run: Path, model: Path, folder: Path) -> list[str]:
    path = folder / "own"
    if "OWN" in words and not path.exists():
        shutil.copytree(run, path)
    results = {"RUN": str(run), "MODEL": str(model), "OWN": str(path)}
    return [*verb.partition(",")[0].split(), *(results.get(word, word) for word in words)]


def expected(code: int, place: Mapping[int, str], *, printed: bool) -> int:
    if code or not printed:
        return code
    return {"gone": 141, FULL: 4}.get(place.get(1, ""), 0)


def test_the_tables_have_every_verb() -> None:
    assert REFUSED.keys() == COMMANDS.keys()
    answered = {verb.partition(",")[0] for verb in (*PRINTED, *JUDGED, *SLOW)}
    alone = {
        "push",
        "export",
        "fetch",
        "sweep-merge",
        "fill-mask",
        "score",
        "runs rm",
        "vocab grow",
        "vocab shrink",
        "search",
    }
    assert COMMANDS.keys() - answered == alone, (
        "a hub; an extra; shards; a head; a run, a folder or an index each"
    )
    assert len(REFUSED) * len(PLACES) == 510
    assert (len(PRINTED) + len(JUDGED) + len(SLOW)) * len(PLACES) == 480


def _in_turn(verbs: Iterable[str]) -> list[tuple[str, str]]:
    """Each verb with one of the worst places."""
    return list(zip(verbs, itertools.cycle(WORST), strict=False))


def _refused(
    nursery: Nursery, verb: str, positions: Mapping[str, Mapping[int, str]], cwd: Path
) -> None:
    code = REFUSED[verb][1]
    got = {name: nursery.verdict(typed(verb), place, cwd=cwd) for name, place in positions.items()}
    assert got == dict.fromkeys(positions, code)


@pytest.mark.parametrize(("verb", "place"), _in_turn(REFUSED))
def test_a_refusal_keeps_its_code(nursery: Nursery, tmp_path: Path, verb: str, place: str) -> None:
    _refused(nursery, verb, {place: PLACES[place]}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("verb", REFUSED)
def test_a_refusal_keeps_its_code_in_every_place(
    nursery: Nursery, tmp_path: Path, verb: str
) -> None:
    _refused(nursery, verb, PLACES, tmp_path)


def _answered(
    nursery: Nursery,
    verb: str,
    positions: Mapping[str, Mapping[int, str]],
    run: Path,
    model: Path,
    folder: Path,
) -> None:
    printed = verb in PRINTED or verb in ("estimate", "lr-find")
    words, code = (PRINTED[verb], 0) if verb in PRINTED else (JUDGED | SLOW)[verb]
    line = words_of(verb, words, run, model, folder)
    got = {name: nursery.verdict(line, place, cwd=folder) for name, place in positions.items()}
    assert got == {
        name: expected(code, place, printed=printed) for name, place in positions.items()
    }


@pytest.mark.parametrize(("verb", "place"), _in_turn([*PRINTED, *JUDGED]))
def test_an_answer_keeps_its_code(
    nursery: Nursery, tiny_run: TinyRun, tiny_model: Path, folder: Path, verb: str, place: str
) -> None:
    _answered(nursery, verb, {place: PLACES[place]}, tiny_run.path, tiny_model, folder)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [*PRINTED, *JUDGED, *SLOW])
def test_an_answer_keeps_its_code_in_every_place(
    nursery: Nursery, tiny_run: TinyRun, tiny_model: Path, folder: Path, verb: str
) -> None:
    _answered(nursery, verb, PLACES, tiny_run.path, tiny_model, folder)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_that_nobody_reads_is_finished(
    nursery: Nursery, tiny_run: TinyRun, tiny_model: Path, folder: Path, count: int
) -> None:
    """`bertctl finetune ... 2>&1 | true`, and a log line each step."""
    more = ["--set", "training.log_every=1", "--num-processes", str(count)]
    line = words_of("finetune", SLOW["finetune"][0], tiny_run.path, tiny_model, folder) + more
    assert nursery.verdict(line, {1: "gone", 2: "gone"}, cwd=folder) == 0
    assert json.loads((folder / "run" / "status.json").read_text())["state"] == "done"
    assert (folder / "run" / "model" / "model.safetensors").exists()


def test_from_the_first_line_of_a_real_process(tmp_path: Path) -> None:
    """A shell closes what it says, and no file that is opened later gets its number."""
    line = f"{sys.executable} -m bertctl vocab train - --size 60 -o vocabulary"
    for place in ("<&- 2> /dev/full", "2>&- >&- <&-"):
        done = subprocess.run(
            ["bash", "-c", f"{line} {place}"], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 3, place
        assert done.stdout == b""
        assert done.stderr == b""
    done = subprocess.run(
        ["bash", "-c", f"echo a film was good good good | {line} >&- 2>&-"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == b""
    assert done.stderr == b""
    lines = (tmp_path / "vocabulary" / "vocab.txt").read_text().splitlines()
    assert lines[0] == "[PAD]"
    assert "good" in lines


def test_an_encoding_that_lacks_the_letters(tmp_path: Path) -> None:
    """Neither a traceback nor an answer that is no JSON."""
    text = "café ☃ 😀"
    for environment in (
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        done = subprocess.run(
            [sys.executable, "-m", "bertctl", "tokenize", "-q", "-", "--model", "minilm"],
            input=f"{text}\n".encode(),
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, **environment},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        assert json.loads(done.stdout)["pieces"] == ["[CLS]", "cafe", "[UNK]", "[UNK]", "[SEP]"]
        refused = subprocess.run(
            [sys.executable, "-m", "bertctl", "docs", text, "--json"],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, **environment},
            check=False,
        )
        assert refused.returncode == 2, refused.stderr
        assert json.loads(refused.stdout)["error"]["kind"] == "usage"
        assert b"Traceback" not in refused.stderr


@pytest.mark.slow
def test_names_that_are_not_utf8(
    nursery: Nursery, tiny_run: TinyRun, tiny_model: Path, tmp_path: Path
) -> None:
    """They work, or are refused in a sentence."""
    odd = os.fsdecode(b"caf\xe9")
    shutil.copy(tiny_run.data, tmp_path / f"{odd}.csv")
    lines = {
        (0,): [
            ["predict", str(tiny_run.path), f"{odd}.csv"],
            ["tokenize", "--file", f"{odd}.csv", "-o", f"{odd}.jsonl"],
            [
                "gate",
                str(tiny_run.path),
                "--min",
                "accuracy=0",
                "--allow-constant",
                "--junit",
                f"{odd}.xml",
            ],
        ],
        (2,): [
            ["data", "check", f"{odd}.csv"],
            [
                "finetune",
                "text-classification",
                "--train-file",
                f"{odd}.csv",
                "--model",
                str(tiny_model),
                "-o",
                "r",
            ],
        ],
        (2, 4): [
            ["evaluate", odd],
            ["predict", odd, "x.csv"],
            ["docs", odd],
            ["recipes", "show", odd],
            [odd],
        ],
        (2, 3, 4): [
            ["tokenize", odd, "--format", "ids"],
            ["vocab", "search", odd],
            ["vocab", "show", f"./{odd}"],
        ],
    }
    for codes, entry in lines.items():
        for words in entry:
            done = nursery.run(words, cwd=tmp_path)
            assert done.returncode in codes, (words, done.stderr)
            assert "Traceback" not in done.stderr
