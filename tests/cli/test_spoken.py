"""Texts, labels, column names and names of files of others in a log.

They move no cursor and give no command.
"""

import csv
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from bertctl.words import harmless, spoken

NASTY = (
    "x\x1b[31m\x1b]0;owned\x07\x9b2J\u202egnp\u2028\r\n::error file=a::owned\n  "
    "::stop-commands::t\n##[error]owned"
)
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##(\[|\w+\[)", re.MULTILINE)


def clean(text: str) -> None:
    assert not UNSEEN.search(text), UNSEEN.findall(text)
    assert not COMMAND.search(text), text


def test_codes_are_those_of_json() -> None:
    assert json.loads(harmless(json.dumps(NASTY, ensure_ascii=False))) == NASTY
    assert json.loads(spoken(json.dumps(NASTY, ensure_ascii=False))) == NASTY
    clean(spoken(NASTY))
    assert spoken("## A title [x]: a::b ::c\n# a\ttab") == "## A title [x]: a::b ::c\n# a\ttab"
    assert spoken("é – 漢字 👩‍👧 \u200d") == "é – 漢字 👩‍👧 \u200d"


@pytest.fixture
def nasty(tmp_path: Path) -> Path:
    """A table whose every name and text is hostile; its own name too."""
    folder = tmp_path / "::error file=a::"
    folder.mkdir()
    file = folder / "\x1b[2J##[error]\n::error::x.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label", NASTY])
        for i in range(12):
            writer.writerow([f"{NASTY} {i % 5}", (NASTY, f"{NASTY} 2")[i % 2], NASTY])
    return file


def test_what_verbs_say_and_print(bertctl, nasty: Path, tiny_model: Path, tmp_path: Path) -> None:
    """One training and six verbs on it; stdout and stderr are what a runner's log would hold."""
    run = tmp_path / "run\x1b[1m"
    env = {"GITHUB_ACTIONS": "true"}
    files = ["--train-file", nasty, "--validation-file", nasty, "--model", tiny_model, "-o", run]
    more = ["--max-length", "24", "--epochs", "1", "--precision", "fp32"]
    sets = [
        "training.log_every=1",
        "evaluation.bootstrap_resamples=100",
        "evaluation.slice_columns=[label]",
    ]
    lines = [
        (
            [
                "finetune",
                "text-classification",
                *files,
                *more,
                *(w for entry in sets for w in ("--set", entry)),
            ],
            (0,),
        ),
        (["data", "check", nasty], (0, 3)),
        (["gate", run, "--min", "accuracy=0.99"], (7, 8)),
        (["compare", run, run], (0,)),
        (["predict", run, nasty, "--format", "csv"], (0,)),
        (["predict", run, nasty], (0,)),
        (["report", run, "--format", "md"], (0,)),
        (["tokenize", NASTY, "--model", tiny_model], (0,)),
        (["evaluate", tmp_path / NASTY], (4,)),
        (["docs", NASTY], (2,)),
        (["finetune", "demo", f"--set={NASTY}", "--debug"], (2,)),
    ]
    for words, codes in lines:
        done = bertctl(*words, env=env)
        assert done.returncode in codes, (words, done.stderr)
        clean(done.stdout)
        personal = (
            "::error title",
            "::error file",
            "::warning title",
            "::warning file",
            "::group::bertctl ",
            "::endgroup::",
        )
        mine = [line for line in done.stderr.splitlines() if line.startswith(personal)]
        assert not any(
            line.startswith("::error file=a::") or UNSEEN.search(line) for line in mine
        ), mine
        clean("\n".join(line for line in done.stderr.splitlines() if not line.startswith(personal)))
    texts = [
        json.loads(line)["text"]
        for line in bertctl("predict", run, nasty, env=env).stdout.splitlines()
    ]
    assert texts[0] == f"{NASTY} 0", "JSON is what it was"


def test_a_terminal_is_not_moved(nursery, nasty: Path, tiny_run, tmp_path: Path) -> None:
    """Answers that are data go to files and pipes as they are.

    To a terminal they go with their codes.
    """
    line = f"bertctl predict {tiny_run.path} {json.dumps('-')} --input-format lines --format csv"
    ours, theirs = pty.openpty()
    env = {**nursery.env, "PATH": f"{nursery.bin}:{os.environ['PATH']}"}
    text = "good \x1b]0;owned\x07 \u202efilm\n"
    done = subprocess.run(
        ["bash", "-c", line],
        input=text.encode(),
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        check=False,
        env=env,
    )
    os.close(theirs)
    output = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0, done.stderr
    assert "good \\u001b]0;owned\\u0007 \\u202efilm" in output
    piped = subprocess.run(
        ["bash", "-c", line],
        input=text.encode(),
        capture_output=True,
        cwd=tmp_path,
        check=False,
        env=env,
    )
    assert text.strip() in piped.stdout.decode()


def test_safe_csv(bertctl, tiny_run, tmp_path: Path) -> None:
    cells = [
        "=cmd|' /C calc'!A0",
        "+1 good",
        "-5",
        "-2.5e3",
        "@SUM(A1)",
        "\tfilm",
        "fine = good",
        "- dull",
    ]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": cell}) + "\n" for cell in cells))
    plain, safe = (
        list(
            csv.DictReader(
                bertctl(
                    "predict", tiny_run.path, rows, "--format", "csv", *more
                ).stdout.splitlines()
            )
        )
        for more in ([], ["--safe-csv"])
    )
    assert [row["text"] for row in plain] == cells
    guarded = [
        "'=cmd|' /C calc'!A0",
        "'+1 good",
        "-5",
        "-2.5e3",
        "'@SUM(A1)",
        "'\tfilm",
        "fine = good",
        "'- dull",
    ]
    assert [row["text"] for row in safe] == guarded
    assert [{**row, "text": ""} for row in plain] == [{**row, "text": ""} for row in safe], (
        "numbers are left"
    )
    assert bertctl("predict", tiny_run.path, rows, "--safe-csv").returncode == 2
