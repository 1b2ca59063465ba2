"""The pictures of the documentation, made anew from real runs: two terminals and the report page.

    pip install pyte pillow; apt install chromium
    python -m tests.documents.pictures                  # writes bertctl/docs/images

A terminal is a pseudo-terminal that pyte keeps the screen of and rich draws; the report is what
Chromium shows.
"""

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyte
from PIL import Image
from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parents[2] / "bertctl" / "docs" / "images"
SENTENCE = "a visually stunning rumination on love ❤"
_LINES = 40
_COLOURS = {
    "brown": "yellow",
    "brightblack": "bright_black",
    "brightred": "bright_red",
    "brightgreen": "bright_green",
}


def screen(
    command: list[str], folder: Path, *, columns: int, until: str | None = None
) -> list[list[tuple[str, str]]]:
    """Runs a command on a pseudo-terminal and returns the lines of its screen.

    They are (text, style) pairs.

    Args:
        command: arguments of `bertctl`.
        folder: where it runs.
        columns: width of the terminal.
        until: take the screen when this is on it; None takes it at the end.
    """
    display = pyte.Screen(columns, _LINES)
    stream = pyte.ByteStream(display)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLUMNS": str(columns),
            "LINES": str(_LINES),
        }
        arguments = [sys.executable, "-m", "bertctl", *command]
        os.execve(sys.executable, arguments, environment)  # noqa: S606
    used: list[list[tuple[str, str]]] | None = None
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # the other end has closed
            break
        if not data:
            break
        stream.feed(data)
        if used is None and until is not None and re.search(until, "\n".join(display.display)):
            used = _styled(display)
    os.close(terminal)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"bertctl {' '.join(command)} failed:\n" + "\n".join(display.display))
    return used or _styled(display)


def _styled(display: pyte.Screen) -> list[list[tuple[str, str]]]:
    rows = []
    for number in range(_LINES):
        cells = [display.buffer[number][column] for column in range(display.columns)]
        rows.append([(cell.data, _style(cell)) for cell in cells])
    while rows and not "".join(text for text, _ in rows[-1]).strip():
        rows.pop()
    return rows


def _style(cell: pyte.screens.Char) -> str:
    colour = _COLOURS.get(cell.fg, cell.fg)
    colour = f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else colour
    return " ".join(
        filter(None, ["bold" if cell.bold else "", "" if colour == "default" else colour])
    )


def draw(command: str, rows: list[list[tuple[str, str]]], file: Path, *, columns: int) -> None:
    """Writes a screen as an SVG picture of a terminal, under the command that was typed."""
    nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115
    console = Console(record=True, width=columns, file=nowhere, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), "")
    for row in rows:
        console.print(Text.assemble(*row), no_wrap=True, crop=True)
    svg = console.export_svg(title="bertctl", font_aspect_ratio=0.61)
    svg = re.sub(
        r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL
    )  # no fonts from a host: the reader's own
    file.write_text(
        svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace"),
        encoding="utf-8",
    )


def report(run: Path, folder: Path, file: Path) -> None:
    """Writes what Chromium shows of a run's report, in 64 colours."""
    subprocess.run(
        [sys.executable, "-m", "bertctl", "report", run, "-o", folder / "report.html"], check=True
    )
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    shot = folder / "report.png"
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1000,1650",
    ]
    flags += [f"--user-data-dir={folder / 'profile'}", f"--screenshot={shot}"]
    subprocess.run(
        [browser, *flags, (folder / "report.html").as_uri()],
        capture_output=True,
        check=True,
        timeout=120,
    )
    with Image.open(shot) as picture:
        picture.convert("RGB").quantize(64).save(file, optimize=True)


def main() -> None:
    """Makes all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = screen(["tokenize", SENTENCE, "--model", "minilm"], folder, columns=88)
        draw(
            f'bertctl tokenize "{SENTENCE}" --model minilm',
            rows,
            IMAGES / "tokenize.svg",
            columns=88,
        )
        training = ["finetune", "demo", "-o", "runs/first"]
        rows = screen(training, folder, columns=104, until=r"train.*(6|7)\d/1[0-4]\d")
        draw("bertctl finetune demo -o runs/first", rows, IMAGES / "finetune.svg", columns=104)
        report(folder / "runs" / "first", folder, IMAGES / "report.png")
    for path in sorted(IMAGES.iterdir()):
        print(f"{path.stat().st_size:>8,} {path.name}")  # noqa: T201


if __name__ == "__main__":
    main()
