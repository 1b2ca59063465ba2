"""`bertctl explain` and `bertctl report --explain`, as a person types them."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from bertctl.errors import ExitCode
from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process

IG = "integrated-gradients"


def test_a_text_is_explained_for_a_person(bertctl: Run, tiny_run: TinyRun) -> None:
    done = bertctl("explain", tiny_run.path, "the film was good")
    assert done.returncode == 0, done.stderr
    title, words, note, *_ = done.stdout.splitlines()
    assert re.match(r"0: pos \(probability 0\.\d{3}\), value \+", title)
    assert words == "the film was good"
    assert "good +" in note
    assert "all numbers together miss the value by" in note
    assert "1 answer of 1 row explained in fp32, against [PAD]" in done.stderr
    assert f"faithfulness of {IG}, 1 answer: comprehensiveness" in done.stderr


def test_colours_are_for_a_terminal_that_wants_them(
    nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    for colour in (True, False):
        env = {name: value for name, value in nursery.env.items() if name != "NO_COLOR"} | {
            "TERM": "xterm"
        }
        main, side = os.openpty()
        words = ["explain", str(tiny_run.path), "the film was good", "-q"]
        complete = env if colour else env | {"NO_COLOR": "1"}
        assert nursery.start(words, cwd=tmp_path, env=complete, stdout=side).communicate()
        os.close(side)
        text = os.read(main, 1 << 16).decode()
        os.close(main)
        assert ("\x1b[1;32mgood" in text or "\x1b[32mgood" in text) is colour, text


def test_a_file_of_rows_becomes_lines_of_json_and_the_same_ones_again(
    bertctl: Run, tiny_run: TinyRun
) -> None:
    done = bertctl(
        "explain",
        tiny_run.path,
        tiny_run.data,
        "-o",
        "explained.jsonl",
        "--faithfulness",
        3,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["examples"] == 16
    assert summary["targets"] == 16
    assert summary["not_converged"] == 0
    assert summary["precision"] == "fp32"
    assert summary["faithfulness"][IG]["targets"] == 3
    assert summary["files"] == ["explained.jsonl"]


def test_what_is_printed_is_what_is_written(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    more = ["--method", "leave-one-out", "--method", IG]
    assert (
        bertctl("explain", tiny_run.path, tiny_run.data, *more, "-o", "one.jsonl").returncode == 0
    )
    assert (
        bertctl("explain", tiny_run.path, tiny_run.data, *more, "-o", "two.jsonl").returncode == 0
    )
    written = (tmp_path / "one.jsonl").read_text()
    assert written == (tmp_path / "two.jsonl").read_text()
    assert (
        bertctl("explain", tiny_run.path, tiny_run.data, *more, "--format", "jsonl").stdout
        == written
    )
    lines = [json.loads(line) for line in written.splitlines()]
    assert (
        json.loads(bertctl("explain", tiny_run.path, tiny_run.data, *more, "--json").stdout)
        == lines
    )
    for line in lines:
        [target] = line["targets"]
        assert list(target["methods"]) == more[1::2]
        assert target["label"] == line["prediction"]
        assert all(
            line["text"][word["start"] : word["end"]] == word["word"] for word in target["words"]
        )


def test_a_page_needs_no_network_and_escapes_what_it_shows(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    nasty = tmp_path / "nasty.jsonl"
    nasty.write_text(
        json.dumps({"text": "<script>alert(1)</script> a good film \u202e" + "x" * 300}) + "\n"
    )
    done = bertctl("explain", tiny_run.path, nasty, "--text-column", "text", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page
    assert "&lt;" in page
    assert 'class="passage"' in page


def test_the_report_explains_its_most_confident_errors(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    predictions = run / "predictions" / "validation.jsonl"
    lines = [json.loads(line) for line in predictions.read_text().splitlines()]
    for line in lines[:2]:
        line["gold"] = "neg" if line["prediction"] == "pos" else "pos"
    predictions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = bertctl("report", run, "--explain", 5, "-o", "report.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "What the most confident errors rest on" in page
    assert page.count('class="passage"') == 2
    short = bertctl("report", run, "--explain", 1, "--format", "md").stdout
    assert short.count(IG) == 2, "one error, and the faithfulness"
    for line in lines:
        del line["text"]
    predictions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = bertctl("report", run, "--explain", 1)
    assert refused.returncode == ExitCode.USAGE
    assert "written without texts" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to explain"),
        (("a film", "--split", "test"), "exclude each other"),
        (("a film", "--method", "integrated"), "did you mean integrated-gradients"),
        (("a film", "--label", "poss"), "did you mean pos"),
        (("a film", "--text-pair", "b"), "pair"),
        (("a film", "--format", "html", "--json"), "exclude each other"),
        (("a film", "--steps", "0"), "--steps"),
        (("--question", "who?"), "need each other"),
        (("--question", "who?", "--context", "a film"), "answers no questions"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    words: tuple[str, ...], message: str, bertctl: Run, tiny_run: TinyRun
) -> None:
    done = bertctl("explain", tiny_run.path, *words)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert message in done.stderr


def test_a_long_text_is_explained_as_far_as_it_is_read_from_the_beginning(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    long = " ".join(f"good film {number}" for number in range(40))
    [line] = json.loads(bertctl("explain", tiny_run.path, long, "--json").stdout)
    assert line["truncated"]
    assert len(line["targets"][0]["words"]) == line["tokens"] - 2
    shutil.copytree(tiny_run.path, tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("long_text: head", "long_text: tail"))
    done = bertctl("explain", "run", long)
    assert done.returncode == ExitCode.USAGE
    assert "Explain answers to the beginnings of such texts: --long-text head" in done.stderr
    assert bertctl("explain", "run", long, "--long-text", "head").returncode == 0
    assert bertctl("explain", "run", "good film").returncode == 0
    assert bertctl("explain", "run", long, "--long-text", "window").returncode == ExitCode.USAGE


def test_a_text_that_is_cut_at_a_special_token_of_its_own(bertctl: Run, tiny_run: TinyRun) -> None:
    [line] = json.loads(
        bertctl("explain", tiny_run.path, f"{'good ' * 30}[SEP] film", "--json").stdout
    )
    assert [word["word"] for word in line["targets"][0]["words"]] == ["good"] * 30


def test_words_that_share_a_token_are_shown_together(bertctl: Run, tiny_run: TinyRun) -> None:
    done = bertctl(
        "explain", tiny_run.path, "good 😀👍🏽! a film", "--json"
    )  # three symbols, one unknown token
    assert done.returncode == 0, done.stderr
    [target] = json.loads(done.stdout)[0]["targets"]
    assert [word["word"] for word in target["words"]] == ["good", "😀👍🏽", "!", "a", "film"]
    assert [(word["start"], word["end"]) for word in target["words"]] == [
        (0, 4),
        (5, 8),
        (8, 9),
        (10, 11),
        (12, 16),
    ]


def test_a_doubt_is_said_once(bertctl: Run, tiny_run: TinyRun) -> None:
    doubtful = 0
    for text in ("the film was good", "bad", "the food was not bad", "it was", "a a a a"):
        done = bertctl("explain", tiny_run.path, text)
        assert done.returncode == 0, done.stderr
        n_doubts = done.stdout.count("do not trust") + done.stderr.count("explain nothing")
        assert n_doubts <= 1, (done.stdout, done.stderr)
        doubtful += n_doubts
    assert doubtful, "none of these texts has doubtful words: take others"
