"""What a person sees on a terminal of 80 columns, recorded as text in `screens/`.

    BERTCTL_SCREENS=write pytest -n 0 tests/cli/test_screens.py     # writes them anew

Look at each screen that changed. Figures that differ between machines and runs are 0 there, hashes
are x.
"""

import contextlib
import csv
import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

SCREENS = Path(__file__).with_name("screens")
COLUMNS = 80
LINES = 42
_VERBS = ("activate", "cancel", "change", "report", "verify", "exchange", "request")
_NOUNS = (
    "card",
    "transfer",
    "contactless_payment",
    "direct_debit",
    "cash_withdrawal",
    "exchange_rate",
    "identity_document",
    "beneficiary_not_allowed",
    "standing_order",
    "virtual_card",
    "top_up_by_bank_card",
)
LABELS = [f"{verb}_{noun}" for verb in _VERBS for noun in _NOUNS]

_MASKS = (
    (r"(?s)\b\d+\.\d s: training .* GB\b", "0 s: training 0 s, ..."),
    (r"(?<=runs/)([\w.-]+)-[0-9a-f]{8}", r"\1-xxxxxxxx"),
    (r"\d+(\.\d+)? (GB|MB)\b", "0 GB"),
    (r"\d+\.\d{4}", "0.0000"),
    (r"\d\.\d\de-\d\d", "0.00e-00"),
    (r"\b\d+(/\d+) \d+ s left", r"0\1 0 s left"),
    (r"\b\d+\.\d s\b", "0.0 s"),
    (r"[━─]{20}", "━" * 20),
)


@pytest.fixture
def terminal(nursery, tmp_path):
    """Runs a command on a terminal, and returns all that it has sent to it."""

    def run(*arguments: object, columns: int = COLUMNS) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
        env = {**nursery.env, "TERM": "xterm-256color"}
        env.pop("COLUMNS", None)  # the terminal says it
        words = list(map(str, arguments))
        child = nursery.start(
            words, cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        sent = b""
        with contextlib.suppress(OSError):  # nobody holds the other end any more
            while part := os.read(ours, 1 << 16):
                sent += part
        os.close(ours)
        assert child.wait(3600) == 0, sent.decode()
        return sent.decode()

    return run


def shown(sent: str) -> list[str]:
    """The lines that stand on an endless screen at the end."""
    lines = [""]
    row = 0
    for part in re.findall(r"\x1b\[[?0-9;]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", sent):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[J":
            lines[row] = ""
        elif part[0] not in "\r\x1b":
            lines[row] += part
    return [line.rstrip() for line in lines]


def masked(text: str) -> str:
    for pattern, zero in _MASKS:
        text = re.sub(pattern, zero, text)
    return text


def recorded(name: str, lines: list[str]) -> None:
    """Compares the screen with the file, and every line against the width."""
    assert [line for line in lines if cell_len(line) > COLUMNS] == []
    text = masked("\n".join(lines).strip("\n") + "\n")
    file = SCREENS / f"{name}.txt"
    if os.environ.get("BERTCTL_SCREENS") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.fixture
def intents(tmp_path):
    """Questions of 77 intents with long names.

    One question stands there with two intents, one twice.
    """
    with (tmp_path / "intents.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "intent", "channel"])
        for number in range(5 * len(LABELS)):
            label = LABELS[number % len(LABELS)]
            writer.writerow(
                [
                    f"{'very ' * (number % 3)}{label.replace('_', ' ')} was {number}",
                    label,
                    number % 3,
                ]
            )
        writer.writerow(["very activate card was 0", LABELS[5], 0])
        writer.writerow(["the card was fine", LABELS[0], 0])
        writer.writerow(["the card was fine", LABELS[0], 0])
    return tmp_path / "intents.csv"


def test_recipes_are_listed_on_one_screen_with_their_whole_names(terminal):
    from bertctl.config.recipe_files import builtin_recipes

    lines = shown(terminal("recipes", "ls"))
    assert {line.split()[0] for line in lines if line} >= set(builtin_recipes())
    assert len(lines) <= LINES
    recorded("recipes-ls", lines)


def test_models_are_listed_on_one_screen_with_their_whole_names(terminal):
    from bertctl.catalog.models import MODELS

    lines = shown(terminal("recipes", "ls", "--models"))
    assert {word for line in lines for word in line.replace(": ", " ").split()} >= {
        name for row in MODELS.values() for name in (row.name, row.hub_id)
    }
    assert len(lines) <= LINES
    recorded("recipes-ls-models", lines)


HOW = ["--device", "cpu", "--precision", "fp32", "--threads", 1, "--max-length", 40]


@pytest.mark.in_process
def test_a_dry_run_ends_with_rows_steps_and_memory(
    terminal, bertctl, intents, tiny_model, tmp_path
):
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        intents.name,
        "--model",
        tiny_model,
        *HOW,
    ]
    words += ["--text-column", "text", "--label-column", "intent", "--dry-run"]
    lines = shown(terminal(*words))
    assert len(lines) <= LINES
    assert [line.split()[0] for line in lines[-6:-1]] == [
        "rows",
        "steps",
        "baselines",
        "memory",
        "recipe",
    ]
    recorded("finetune-dry-run", lines)
    piped = bertctl(*words)
    (tmp_path / "kept.yaml").write_text(piped.stdout, encoding="utf-8")
    assert bertctl("recipes", "validate", "kept.yaml").returncode == 0
    assert "\n  label_column: intent\n" in piped.stdout


def test_a_training_shows_a_bar_with_the_time_left(terminal, tiny_model, tmp_path):
    rows = [
        f"the film was {('good', 'bad')[number % 2]} {number},{('pos', 'neg')[number % 2]}"
        for number in range(400)
    ]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        "films.csv",
        "--model",
        tiny_model,
        *HOW,
        "-o",
        "run",
    ]
    words += ["--text-column", "text", "--label-column", "label", "--learning-rate", "3e-3"]
    words += ["--epochs", "3", "--set", "evaluation.bootstrap_resamples=100"]
    sent = terminal(*words)
    bars = re.findall(r"training [━─]{20} \d+/\d+ \d+ s left loss \d+\.\d{4} .*?(?=\x1b|\r)", sent)
    assert bars, "at least one bar is whole"
    assert all(cell_len(bar.rstrip()) <= COLUMNS for bar in bars)
    recorded("finetune", ["While it trains:", bars[0].rstrip(), "", "In the end:", *shown(sent)])


@pytest.mark.slow
def test_a_wide_terminal_has_room_for_all_figures(terminal, opinions, tiny_model):
    words = [
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        *HOW,
        "-o",
        "run",
    ]
    more = [
        "--epochs",
        30,
        "--batch-size",
        4,
        "--set",
        "training.evaluate_every=60",
        "--checkpoint-every",
        "off",
    ]
    sent = terminal(*words, *more, columns=120)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    bars = re.findall(r"training [━─]+ \d+/120 (.*?)(?:\r|\n|$)", plain)
    assert bars, plain
    for figure in ("loss 0.", "rate ", "examples/s ", "tokens/s "):
        assert any(figure in bar for bar in bars), bars[:3]
    assert any(re.search(r"\d+ s left", bar) for bar in bars), "the time left"
    assert "\x1b[?25h" in sent, "the cursor is back"


def test_faults_of_77_labels_are_told_on_one_screen(terminal, intents):
    columns = ("--label-column", "intent", "--text-column", "text")
    lines = shown(terminal("data", "check", intents.name, *columns, "--model", "minilm"))
    assert len(lines) <= LINES
    recorded("data-check-77-labels", lines)
