"""How far a job is.

Lines off a terminal, one bar on it, folded groups and annotations in the logs of pipelines.
"""

import gzip
import io
import itertools
import json
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from bertctl.cli.framework import log_groups, progress_display
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.progress_display import ProgressDisplay, _percent, _Phase
from bertctl.config.recipe_sections import DataSection
from bertctl.data.readers import READERS
from bertctl.progress import Listener
from bertctl.training.loop.loop import _share_of_work
from tests.conftest import Run, TinyRun
from tests.nursery import Nursery

LINE = re.compile(
    r"^(?P<name>[\w, ()%]+?) (?P<done>\d+)(/\d+)?( \(\d+ %\))?(, (?P<left>[^ ].*?) left)?(  .*)?$"
)


class Clock:
    """Stands for the time."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress_display, "time", made)
    return made


def seconds(words: str) -> float:
    units = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    return sum(
        float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (d|h|min|s)\b", words)
    )


@pytest.mark.parametrize("whole", [20.0, 100.0, 400.0, 3600.0, 10 * 3600.0])
@pytest.mark.parametrize("known", [True, False], ids=["a total", "by the bytes"])
def test_200_000_rows_have_few_lines_each_with_the_time_left(
    clock, capsys, whole: float, known: bool
) -> None:
    out = Output()
    rows = 200_000
    begun = clock.now
    lines = []
    for done in range(2048, rows + 2048, 2048):
        done = min(done, rows)
        clock.now = begun + whole * done / rows
        out.expect(0 if known else rows)
        out.advance("predicting", done, rows if known else 0)
        if said := capsys.readouterr().err:
            lines.append((clock.now - begun, done / rows, said.rstrip("\n")))
    out.finish("predicting")
    assert len(lines) <= 20
    assert (len(lines) >= 10) == (whole >= 400)
    assert whole > 30 or not lines
    for (before, share_before, _), (at, share, _) in itertools.pairwise(lines):
        assert at - before >= 30
        assert share - share_before >= 0.05
    for at, share, line in lines:
        found = LINE.match(line)
        assert found, line
        assert found["left"], line
        assert seconds(found["left"]) == pytest.approx(
            whole - at, rel=0.02, abs=30 if whole > 3600 else 1.1
        )
        assert f"{100 * share:.0f} %" in line
        assert re.search(r"  [\d,]+/s$", line)


def test_a_total_that_nobody_knows_has_the_rate_alone_and_ever_fewer_lines(clock, capsys) -> None:
    out = Output()
    for second in range(36_000):
        clock.now = 1000.0 + second
        out.advance("predicting", 100 * (second + 1), 0)
    lines = capsys.readouterr().err.splitlines()
    assert 20 <= len(lines) <= 40
    assert lines[0] == "predicting 3100  100/s"
    assert not any("left" in line for line in lines)


def test_an_evaluation_is_a_part_of_its_training(clock, capsys) -> None:
    """Long evaluations speak now and then, short ones never; 200 of them flood no log."""
    out = Output()
    for step in range(1, 201):
        clock.now += 10
        out.advance("training", step, 200, {"loss": "0.5000", "examples/s": 3.2}, share=step / 200)
        for batch in range(10):
            clock.now += 4.5
            out.advance("evaluating", batch + 1, 10)
        out.finish("evaluating")
    lines = capsys.readouterr().err.splitlines()
    outer = [one for one in lines if one.startswith("training 1") or "loss" in one]
    inner = [one for one in lines if "evaluating" in one]
    assert len(lines) <= 40
    assert len(outer) >= 15
    assert re.fullmatch(
        r"training 1\d/200 \(\d %\), 2 h \d+ min left  loss 0.5000  examples/s 3.2", outer[0]
    )
    part = r"training \(\d+ %\), 2 h \d+ min left, evaluating \d+/10 \(\d+ %\), \d+ s left"
    assert any(re.fullmatch(part, line) for line in inner)
    assert any(line.startswith("training (0 %), evaluating ") for line in inner), (
        "before anything is known"
    )


def test_quiet_says_nothing(clock, capsys) -> None:
    out = Output(quiet=True)
    for done in range(100):
        clock.now += 10
        out.advance("predicting", done, 100)
    assert capsys.readouterr().err == ""


def test_the_share_of_a_training_counts_its_evaluations() -> None:
    """100 steps, an evaluation after each 40 and the last, each as long as 20 steps."""
    shares = {step: _share_of_work(step, 100, 40, 20.0) for step in (1, 40, 41, 80, 81, 100)}
    assert shares == {
        step: (step + 20 * before) / 160
        for step, before in zip(shares, (0, 0, 1, 1, 2, 2), strict=True)
    }


def test_the_share_of_a_scoring_goes_by_tokens(tiny_recipe_job) -> None:
    engine, task, features = tiny_recipe_job
    shares: list[float] = []

    class Heard(Listener):
        def advance(self, phase, done, total, figures=None, *, share=None) -> None:
            shares.append(share)

    engine.forward(task, features, batch_size=2, listener=Heard())
    lengths = np.sort(features.lengths)[::-1]
    assert lengths[0] > lengths[-1]
    tokens = [lengths[i : i + 2].sum() for i in range(0, len(lengths), 2)]
    assert shares == pytest.approx(list(np.cumsum(tokens) / lengths.sum()))


@pytest.fixture
def tiny_recipe_job(tiny_run: TinyRun):
    from bertctl.inference.rows_to_answer import unlabelled_rows
    from bertctl.inference.trained import open_run
    from bertctl.runtime.launch import ALONE

    run = open_run(tiny_run.path)
    rows = next(unlabelled_rows(run, str(tiny_run.data)))
    engine = run.load(ALONE)
    texts = [" ".join(["film"] * (1 + i % 5)) for i in range(len(rows))]
    rows = type(rows)(rows.split, {"text": texts}, rows.ids, rows.source, rows.lines)
    return engine, run.task, run.task.encode(rows, engine.tokenizer, max_length=32)


TEXTS = [f"the film number {number} was {'very ' * (number % 7)}good" for number in range(20_000)]


def _files(folder: Path) -> Iterator[Path]:
    csv = "text\n" + "".join(f"{text}\n" for text in TEXTS)
    contents = {
        "rows.csv": csv,
        "rows.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
        "rows.json": json.dumps([{"text": text} for text in TEXTS]),
        "rows.txt": csv.removeprefix("text\n"),
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
        yield folder / name
    (folder / "rows.csv.gz").write_bytes(gzip.compress(csv.encode()))
    yield folder / "rows.csv.gz"
    pq.write_table(pa.table({"text": TEXTS}), folder / "rows.parquet")
    yield folder / "rows.parquet"


def test_how_many_rows_a_file_has_is_known_from_its_first_chunk(tmp_path: Path) -> None:
    for file in _files(tmp_path):
        guesses: list[int] = []

        class Heard(Listener):
            def expect(self, rows: int, guesses: list[int] = guesses) -> None:
                guesses.append(rows)

        read = 0
        settings = DataSection(text_column=None if file.name.startswith("rows.txt") else "text")
        for rows in READERS["text-classification"].stream(file, settings, listener=Heard()):
            read += len(rows)
            if file.suffix != ".gz" or read == len(
                TEXTS
            ):  # gzip reads ahead, which is much of so small a file
                assert guesses[-1] == pytest.approx(len(TEXTS), rel=0.03), file.name
        assert read == len(TEXTS)


def test_a_pipe_has_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertctl.data.decoding import rows_expected

    reader, writer = os.pipe()
    os.write(writer, b"x\n")
    with open(reader, "rb") as file:  # noqa: PTH123
        file.readline()
        assert rows_expected(file, 1) == 0
    os.close(writer)


# ------------------------------------------------------------------------------------------------
# on a terminal


class Reflowing:
    """A terminal that folds lines again when its width changes.

    It keeps whole lines, and the cursor in one of them.
    """

    def __init__(self) -> None:
        self.lines = [""]
        self.row = 0
        self.column = 0
        self.cursor = True

    def feed(self, sent: str) -> None:
        for part in re.findall(r"\x1b\[[?0-9;]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", sent):
            line = self.lines[self.row]
            if part == "\n":
                self.row = self.row + 1
                self.column = 0
                self.lines += [""] * (self.row == len(self.lines))
            elif part == "\r":
                self.column = 0
            elif part == "\x1b[J":
                self.lines[self.row :] = [line[: self.column]]
            elif part in ("\x1b[?25l", "\x1b[?25h"):
                self.cursor = part.endswith("h")
            elif part[0] != "\x1b":
                self.lines[self.row] = (
                    line[: self.column].ljust(self.column) + part + line[self.column + len(part) :]
                )
                self.column += len(part)
            else:
                assert part.endswith("m"), f"{part!r}: only colours, erasing and the cursor"


class Terminal(io.StringIO):
    """A stream that says it is a terminal, of a width that changes."""

    def isatty(self) -> bool:
        return True


def test_one_bar_survives_a_resize_and_leaves_the_screen_clean(
    clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    stream = Terminal()
    screen = Reflowing()
    monkeypatch.setattr("sys.stderr", stream)
    out = Output()
    out.talk._environ = {}
    for step in range(1, 61):
        clock.now += 0.2
        out.talk.width = (100, 37, 20, 160)[step // 10 % 4]
        out.advance(
            "training",
            step,
            60,
            {"loss": "0.1234", "learning rate": "2.00e-05", "examples/s": 12.0},
        )
        if step % 7 == 0:
            out.advance("evaluating", 5, 10)
            out.finish("evaluating")
        if step % 20 == 0:
            out.say(f"step {step}: f1 0.9")
        screen.feed(stream.getvalue())
        stream.seek(0)
        stream.truncate()
        said = [f"step {one}: f1 0.9" for one in (20, 40, 60) if one <= step]
        assert screen.lines[: len(said)] == said
        assert len(screen.lines) <= len(said) + 1, "one bar"
        assert len(screen.lines[-1]) < out.talk.width
        if step % 7 and step % 20:
            assert screen.lines[-1].startswith("training"), step
            assert ("s left" in screen.lines[-1]) == (step > 1 and out.talk.width > 50)
            assert ("loss 0.1234" in screen.lines[-1]) == (out.talk.width >= 100)
            assert not screen.cursor
    out.finish("training")
    out.close()
    screen.feed(stream.getvalue())
    assert screen.lines == [*said, ""]
    assert screen.cursor


def test_a_phase_whose_last_step_is_done_has_no_share_of_less_than_all():
    """The share counts the scoring that comes after the steps: `8/8 (90 %)` said two things."""
    last = _Phase(
        "training",
        began=0.0,
        units_at_start=0,
        share_at_start=0.0,
        done=8,
        total=8,
        share=0.9,
    )
    inside = _Phase(
        "training",
        began=0.0,
        units_at_start=0,
        share_at_start=0.0,
        done=4,
        total=8,
        share=0.45,
    )
    over = _Phase(
        "training",
        began=0.0,
        units_at_start=0,
        share_at_start=0.0,
        done=8,
        total=8,
        share=1.0,
    )
    assert _percent(last) == ""
    assert _percent(inside) == " (45 %)"
    assert _percent(over) == " (100 %)"


def test_a_bar_on_a_terminal_that_does_not_fold_leaves_it_clean_too(clock) -> None:
    pyte = pytest.importorskip("pyte", reason="pip install pyte: the screen of a terminal")
    screen = pyte.Screen(80, 10)
    stream = pyte.Stream(screen)
    sent = io.StringIO()
    console = Console(
        file=sent,
        force_terminal=True,
        width=80,
        color_system=None,
        _environ={},
    )
    display = ProgressDisplay(console)
    for step in range(1, 41):
        clock.now += 1
        if step == 20:
            screen.resize(10, 40)
            console.width = 40
        display.advance("training", step, 40, {"loss": "0.1234"}, None)
        stream.feed(sent.getvalue())
        sent.seek(0)
        sent.truncate()
        assert screen.display[0].startswith("training")
        assert not any(line.strip() for line in screen.display[1:])
    display.finish("training")
    stream.feed(sent.getvalue())
    assert not any(line.strip() for line in screen.display)


def _on_a_terminal(nursery: Nursery, folder: Path, words: list[object], **variables: str) -> str:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = {
        name: value
        for name, value in nursery.env.items()
        if name not in ("NO_COLOR", "CI", "COLUMNS")
    }
    env |= {"TERM": "xterm-256color", **variables}
    child = nursery.start(
        list(map(str, words)),
        cwd=folder,
        env=env,
        stderr=theirs,
    )
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 1 << 16):
            sent += part
    except OSError:
        pass
    os.close(ours)
    child.communicate(120)
    assert child.returncode == 0, sent.decode()
    return sent.decode()


def test_bars_and_colours_are_where_they_are_wanted(
    nursery: Nursery, tiny_run: TinyRun, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("good film\n" * 300)
    words = ["predict", tiny_run.path, "texts.txt", "--input-format", "lines", "-o", "out.jsonl"]
    sent = _on_a_terminal(nursery, tmp_path, words)
    assert "predicting" in sent
    assert "━" in sent
    assert "\x1b[32m" in sent, "colours"
    sent = _on_a_terminal(nursery, tmp_path, words, NO_COLOR="1", FORCE_COLOR="1")
    assert "━" in sent
    assert not re.search(r"\x1b\[[\d;]*m", sent)
    sent = _on_a_terminal(nursery, tmp_path, words, CI="true")
    assert "━" not in sent
    assert "\x1b[?25l" not in sent
    sent = _on_a_terminal(nursery, tmp_path, words, AI_AGENT="some-agent")
    assert "━" not in sent
    assert "\x1b[" not in sent


def test_colours_in_a_pipe_are_ours_alone(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "text,label\n\x1b[31mred film,a\n\x1b[31mred film,b\ngood film,a\n"
    )
    words = ["data", "check", "rows.csv", "--model", "minilm"]
    plain = bertctl(*words)
    assert "\x1b" not in plain.stdout + plain.stderr
    assert "\\x1b[31mred" in plain.stdout
    forced = bertctl(*words, env={"NO_COLOR": "", "FORCE_COLOR": "1"})
    assert "\x1b[1;31merror" in forced.stdout or "\x1b[1;33mwarning" in forced.stdout
    assert "\\x1b[31mred" in forced.stdout
    assert "\x1b[31mred" not in forced.stdout
    for more in ({"NO_COLOR": "", "FORCE_COLOR": "0"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        assert bertctl(*words, env=more).stdout == plain.stdout


@pytest.mark.in_process
def test_tables_in_a_pipe_are_as_wide_as_columns_says(bertctl: Run) -> None:
    widest = {
        columns: max(
            map(
                len,
                bertctl("recipes", "ls", "--data", env={"COLUMNS": columns}).stdout.splitlines(),
            )
        )
        for columns in ("", "60", "0", "wide")
    }
    assert widest["60"] <= 60 < widest[""] == widest["0"] == widest["wide"] <= 200


# ------------------------------------------------------------------------------------------------
# logs of pipelines


def test_talk_is_folded_on_github_and_warnings_stand_outside(monkeypatch, capfd) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr("sys.argv", ["bertctl", "finetune", "my recipe.yaml"])
    out = Output()
    out.say("before the work")
    with out.third_party_kept():
        out.say("train: 10 rows")
        out.say("::error::of others")
        out.warn("look here")
        out.say("goes on")
    out.say("run folder: x")
    title = "::group::bertctl finetune 'my recipe.yaml'"
    assert capfd.readouterr().err.splitlines() == [
        "before the work",
        title,
        "train: 10 rows",
        "::error::of others",
        "::endgroup::",
        "warning: look here",
        title,
        "goes on",
        "::endgroup::",
        "run folder: x",
    ]


@pytest.mark.parametrize("more", [{"no_groups": True}, {"is_printed": True}, {"quiet": True}])
def test_nothing_is_folded_where_it_is_not_wanted(
    monkeypatch, capfd, more: dict[str, bool]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    out = Output(**more)
    with out.third_party_kept():
        out.say("train: 10 rows")
        out.warn("look here")
    assert "::" not in capfd.readouterr().err


def test_gitlab_has_sections_with_a_name_each(monkeypatch, capfd) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setattr(log_groups.time, "time", lambda: 1_700_000_000.9)
    monkeypatch.setattr("sys.argv", ["bertctl", "sweep", "demo"])
    out = Output()
    with out.third_party_kept():
        out.say("one")
        out.warn("two")
        out.say("three")
    said = capfd.readouterr().err
    name = rf"bertctl_{os.getpid()}_"
    start = r"\x1b\[0Ksection_start:1700000000:{}\[collapsed=true\]\r\x1b\[0Kbertctl sweep demo\n"
    end = r"\x1b\[0Ksection_end:1700000000:{}\r\x1b\[0K\n"
    first, second = (start.format(name + n) + "{}\n" + end.format(name + n) for n in "12")
    assert re.fullmatch(first.format("one") + "warning: two\n" + second.format("three"), said)


def test_a_whole_verb_folds_its_talk_and_no_groups_does_not(
    bertctl: Run, tiny_run: TinyRun
) -> None:
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": ""}
    words = ["evaluate", tiny_run.path, "--file", tiny_run.data, "--overwrite", "-o", "scores"]
    said = bertctl(*words, env=github).stderr.splitlines()
    opened = [i for i, line in enumerate(said) if line.startswith("::group::bertctl evaluate ")]
    closed = [i for i, line in enumerate(said) if line == "::endgroup::"]
    assert len(opened) == len(closed) >= 1
    assert all(first < last for first, last in zip(opened, closed, strict=True))
    assert said[-2:] == ["written to scores", "Next: bertctl report scores"], "they stand outside"
    assert "::" not in bertctl(*words, "--no-groups", env=github).stderr
    assert "::" not in bertctl(*words).stderr


@pytest.mark.in_process
def test_findings_and_errors_are_annotations_at_their_lines(bertctl: Run, tmp_path: Path) -> None:
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": ""}
    rows = [
        "text,label",
        *(f"a fine film number {i},pos" for i in range(5)),
        *(f"poor one {i},neg" for i in range(5)),
    ]
    (tmp_path / "reviews.csv").write_text("\n".join([*rows, "a fine film number 1,neg"]) + "\n")
    said = bertctl("data", "check", "reviews.csv", "--model", "minilm", env=github).stderr
    assert re.search(
        r"^::(warning|error) file=reviews.csv,line=\d+,title=[\w -]+::", said, re.MULTILINE
    ), said
    (tmp_path / "mine.yaml").write_text(
        "task: text-classification\ndata: {name: demo}\ntraining:\n  epoch: 3\n"
    )
    done = bertctl("finetune", "mine.yaml", env=github)
    assert done.returncode == 2
    assert re.search(
        r"^::error file=mine.yaml,line=\d,title=bertctl%3A usage::.*training.epoch",
        done.stderr,
        re.M,
    )
    assert "::" not in bertctl("finetune", "mine.yaml").stderr
