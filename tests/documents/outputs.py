"""The commands of the pages with the output that the pages show below them.

    python -m tests.documents.outputs bertctl/docs/tutorial.md    # runs a page, writes what differs

Scores that a page shows are not compared, so they grow old; this writes new ones, too:

    python -m tests.documents.outputs --scores bertctl/docs/tutorial.md

A block of kind `console` holds commands after `$ ` and below each what a terminal of 100 columns
shows. A line `...` stands for any number of lines, and `...` at the end of a line for its rest.
Decimals, times, sizes, speeds and hashes differ between machines, so they are masked when outputs
are compared; in a block under `<!-- numbers vary -->` all numbers but exit codes are, and the stars
of what is best. A block of kind `sh` holds commands alone. A block under `<!-- file: NAME -->` is
written to that file. In a block of kind `python`, `expression  # -> value` shows the value of an
expression.
"""

import ast
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = 100
_LINES = 60
DATA = Path(__file__).with_name("data")
"""Files that commands of a page read: those in `data/PAGE` are in the folder in which it runs."""

HOME = "/home/you"
"""What stands in the pages for the folder in which their commands run."""

VARYING = "numbers vary"
_FILE = "file: "

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*?) -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_TYPED = re.compile(r"^\$ (?P<text>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_NUMBER = r"[-+]?\d[\d,]*"
_MASKS = (
    (r"^compute: .*", "compute: #"),
    (r"^\d[^:]* s: training .*", "#: training #"),
    (r"(?<=-)[0-9a-f]{8}\b", "xxxxxxxx"),
    (r"(?<![.\w])[0-9a-f]{12,}\b", "xxxxxxxx"),
    (rf"{_NUMBER}(\.\d+)? (GB|MB|kB|bytes|B)\b", "# MB"),
    (rf"(\d+ (h|min) )*{_NUMBER}(\.\d+)? (ms|s|min|h)\b", "# s"),
    (rf"(about )?{_NUMBER}(\.\d+)? (examples|tokens|rows|texts|lines)/s", "#/s"),
    (r"[-+]?\d+\.\d+(e[-+]?\d+)?|\d+e-\d+", "#"),
    (r"[━─█▏▎▍▌▋▊▉]+", "━"),
)
_SCORE = re.compile(r"[-+]?\d+\.\d{3,}(?!\d)")
_PROGRESS = re.compile(r"^(\w+ )+\d[\d,]*(/\d[\d,]*)? .*(left|/s)\b")


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes:
        text: What is typed.
        expected: Output that the page shows; None where it shows none.
        mark: Comment above the block.
        file: File that the block is written to instead.
        start: Offset in the page of the output's first character.
        end: Offset behind the output.
    """

    text: str
    expected: str | None
    mark: str
    file: str = ""
    start: int = 0
    end: int = 0


def commands(page: Path) -> list[Command]:
    """Returns the commands of a page in their order, and the files that are written for them."""
    result = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        mark = block["mark"] or ""
        if mark.startswith(_FILE):
            result.append(Command(block["body"], None, mark, file=mark.removeprefix(_FILE)))
        elif block["kind"] == "sh":
            lines = block["body"].replace("\\\n", " ").strip().splitlines()
            result.extend(Command(line, None, mark) for line in lines)
        elif block["kind"] == "console":
            result.extend(_with_outputs(block["body"], mark, block.start("body")))
    return result


def _with_outputs(body: str, mark: str, offset: int) -> list[Command]:
    """Returns the commands of a `console` block."""
    return [
        Command(
            text=typed["text"].replace("\\\n", " "),
            expected=typed["output"],
            mark=mark,
            start=offset + typed.start("output"),
            end=offset + typed.end("output"),
        )
        for typed in _TYPED.finditer(body)
    ]


def run_command(
    command: str, folder: Path, environment: Mapping[str, str], *, timeout: float = 3600
) -> tuple[int, str]:
    """Runs a shell line on a terminal and returns its exit code and what the terminal shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, COLUMNS, 0, 0))
    hidden = ("COLUMNS", "CI", "GITHUB_ACTIONS", "NO_COLOR", "FORCE_COLOR")
    retained = {name: value for name, value in environment.items() if name not in hidden}
    process = subprocess.Popen(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env={**retained, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 1 << 16):
            sent += part
    except OSError:  # nobody holds the other end any more
        pass
    os.close(ours)
    code = process.wait(timeout)
    return code, screen_text(sent.decode()).replace(str(folder), HOME)


def screen_text(sent: str) -> str:
    """Returns the lines that stand on an endless screen at the end."""
    lines = [""]
    row = 0
    pattern = r"\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)|\x1b\[[?0-9;]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+"
    for part in re.findall(pattern, sent):
        if part == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif part in ("\x1b[J", "\x1b[2K"):
            lines[row] = ""
        elif part[0] not in "\r\x1b":
            lines[row] += part
    return "".join(f"{line.rstrip()}\n" for line in lines).rstrip("\n") + "\n" * (lines != [""])


def matches(expected: str, output: str, *, numbers_vary: bool = False) -> bool:
    """Returns whether an output is the one that a page shows, up to what differs between machines.

    Where lines are wrapped depends on the lengths of paths, so a line break counts as a blank.
    """
    pattern = ""
    for line in _without_machine(expected).splitlines():
        if line.strip() == "...":
            pattern += r"(?:\S+ )*?"
        elif line.endswith("..."):
            pattern += re.escape(_masked(line.removesuffix("..."), numbers_vary))
            pattern += r"\S* (?:\S+ )*?"
        elif line.strip():
            pattern += re.escape(_masked(line, numbers_vary) + " ")
    displayed = _without_machine(output).splitlines()
    lines = [line for line in displayed if line.strip() and not _PROGRESS.match(line)]
    masked = "".join(f"{_masked(line, numbers_vary)} " for line in lines)
    return re.fullmatch(pattern, masked) is not None


def with_new_scores(expected: str, output: str) -> str:
    """Returns the output that a page shows, with the scores of a new output.

    Scores are numbers with three decimals or more. A line of the page with scores is replaced by
    the next line of the new output that is equal but for numbers, and so is a heading that only has
    other blanks. If there is none, as where a line is wrapped elsewhere, the line of the page
    stays.
    """
    new_lines = output.splitlines()
    position = 0
    refreshed = []
    for line in expected.splitlines():
        is_cut = line.endswith("...")
        page_line = line.removesuffix("...")
        partner = None
        if page_line.strip():
            partner = _next_alike(page_line, new_lines, position, is_beginning=is_cut)
        if partner is None:
            refreshed.append(line)
            continue
        # Headings are looked up, too: two tables of an output may have equal rows.
        position = partner + 1
        new_line = new_lines[partner]
        differs_in_blanks_alone = page_line.split() == new_line.split()
        if not _SCORE.search(page_line) and not differs_in_blanks_alone:
            refreshed.append(line)
        elif is_cut:
            refreshed.append(_with_scores_of(page_line, new_line) + "...")
        else:
            refreshed.append(new_line)
    return "".join(f"{line}\n" for line in refreshed)


def _next_alike(
    page_line: str, lines: Sequence[str], position: int, *, is_beginning: bool
) -> int | None:
    """Returns the index, from a position on, of the line equal to a displayed one but for numbers.

    Args:
        page_line: Line of the page, or its beginning.
        lines: New output.
        position: Index of the first line that is compared.
        is_beginning: Whether the line of the page ends with dots, which stand for any rest.
    """
    masked = _masked(page_line, numbers_vary=True)
    for index in range(position, len(lines)):
        candidate = _masked(lines[index], numbers_vary=True)
        if candidate == masked or (is_beginning and masked and candidate.startswith(masked)):
            return index
    return None


def _with_scores_of(page_line: str, line: str) -> str:
    """Returns the beginning of a line on a page with the scores of a new line in its own's place.

    Args:
        page_line: Beginning of a line, which may end within a number.
        line: Line of the new output with at least as many scores.
    """
    scores = iter(_SCORE.findall(line))

    def new_score(old: re.Match[str]) -> str:
        score: str = next(scores)
        return score[: len(old[0])]

    return _SCORE.sub(new_score, page_line)


def _without_machine(text: str) -> str:
    """Returns an output with the lines about the machine, which may be wrapped, as one."""
    return re.sub(
        r"^compute: [^:]*?(process|training\))[^:\n]*$", "compute: #", text, flags=re.MULTILINE
    )


def _masked(line: str, numbers_vary: bool) -> str:
    for pattern, replacement in _MASKS:
        line = re.sub(pattern, replacement, line)
    if numbers_vary:
        line = re.sub(r"(?<!exit )(?<!exit code )[-+]?\d[\d,]*", "#", line).replace(" *", "")
    return re.sub(r"\s+", " ", line).strip()


def run_python(code: str, names: dict[str, Any]) -> int:
    """Runs Python code and checks the values that its comments show; returns how many they are."""
    lines = code.splitlines()
    checked = 0
    for statement in ast.parse(code).body:
        _, arrow, output = lines[(statement.end_lineno or 1) - 1].partition("  # -> ")
        if arrow and isinstance(statement, ast.Expr):
            expression = compile(ast.Expression(statement.value), "page", "eval")
            value = eval(expression, names)  # noqa: S307
            assert _masked(repr(value), numbers_vary=False) == _masked(output, numbers_vary=False)
            checked += 1
        else:
            exec(compile(ast.Module([statement], []), "page", "exec"), names)  # noqa: S102
    return checked


def prepare(page: Path, folder: Path) -> None:
    """Puts the files that a page's commands read into the folder in which they run."""
    rows = ["text,label"]
    for number in range(20):
        rows.append(f"it was a poor dinner number {2 * number},negative")
        rows.append(f"it was a fine dinner number {2 * number + 1},positive")
    (folder / "reviews.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = DATA / page.stem
    if data.is_dir():
        shutil.copytree(data, folder, dirs_exist_ok=True)


def write_outputs(page: Path, *, scores: bool = False) -> int:
    """Runs a page and writes the outputs that differ into it; returns how many those were.

    Args:
        page: Page that is run.
        scores: Whether outputs that differ in scores alone are written, too.
    """
    outputs = _run_page(page)
    text = page.read_text(encoding="utf-8")  # it may have been edited since
    changed = 0
    for command in reversed(commands(page)):
        output = outputs.get(command.text)
        if command.expected is None or output is None:
            continue
        new_output = command.expected
        if not matches(command.expected, output, numbers_vary=command.mark == VARYING):
            new_output = output
        elif scores:
            new_output = with_new_scores(command.expected, output)
        if new_output != command.expected:
            text = text[: command.start] + new_output + text[command.end :]
            changed += 1
            print(f"{page.name}: {command.text}")  # noqa: T201
    page.write_text(text, encoding="utf-8")
    return changed


def _run_page(page: Path) -> dict[str, str]:
    """Runs the commands of a page in a new folder; returns the outputs of those that show one."""
    outputs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(page, folder)
        for command in commands(page):
            if command.file:
                (folder / command.file).write_text(command.text, encoding="utf-8")
            elif command.mark in ("", VARYING):
                code, output = run_command(command.text, folder, os.environ)
                if code != 0:
                    message = f"exit code {code}: {command.text}\n{output}"
                    print(message, file=sys.stderr)  # noqa: T201
                outputs[command.text] = output
    return outputs


def main(arguments: Sequence[str]) -> None:
    """Writes the outputs of the pages that are named, after `--scores` their scores, too."""
    for argument in arguments:
        if argument != "--scores":
            write_outputs(Path(argument), scores="--scores" in arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
