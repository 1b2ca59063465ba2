"""stdout is the answer, stderr is the talk.

Help, versions, pipes, terminals, modes; through the real process.
"""

import io
import json
import os
import re
import subprocess
import sys

import pytest

from bertctl import __version__
from bertctl.cli.app import VERBS
from bertctl.cli.framework.output import console_of
from bertctl.cli.main import main

BERTCTL = [sys.executable, "-m", "bertctl"]


def test_version(bertctl):
    result = bertctl("--version")
    assert result.returncode == 0
    assert result.stdout == f"bertctl {__version__}\n"
    assert result.stderr == ""


def test_the_console_script_and_the_module_are_the_same(bertctl):
    script = os.path.join(os.path.dirname(sys.executable), "bertctl")  # noqa: PTH118, PTH120
    if not os.path.exists(script):  # noqa: PTH110
        pytest.skip("bertctl is not installed beside this Python")
    result = subprocess.run(
        [script, "--help"], capture_output=True, text=True, timeout=3600, check=False
    )
    assert result.returncode == 0
    assert result.stdout == bertctl("--help").stdout


def test_windows_is_refused_in_one_sentence():
    code = (
        "import runpy, sys; sys.platform = 'win32'; runpy.run_module('bertctl', "
        "run_name='__main__')"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )

    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(r"bertctl needs Linux, macOS or WSL 2 .*\n", result.stderr)


def test_help_names_every_verb(bertctl):
    result = bertctl("--help")
    assert result.returncode == 0
    assert result.stderr == ""
    for verb in VERBS:
        assert re.search(rf"^  {verb.name} ", result.stdout, re.MULTILINE), verb.name


@pytest.mark.in_process
def test_no_arguments_show_the_help_and_are_a_usage_error(bertctl):
    result = bertctl()
    assert result.returncode == 2
    assert result.stdout.strip() == bertctl("--help").stdout.strip()
    assert result.stderr == ""


HEAVY = ("torch", "transformers", "datasets", "sklearn", "scipy", "pyarrow", "accelerate", "numpy")
SLOW = (*HEAVY, "pydantic", "yaml")

IMPORTED = """
import json, sys
from bertctl.cli.main import main
names, *lines = json.loads(sys.argv[1])
for line in lines:
    code = main(line)
    found = [name for name in names if name in sys.modules]
    print(line, code, found, file=sys.stderr)
"""


def imported(names: tuple[str, ...], *lines: list[str]) -> list[str]:
    """One process runs the command lines in turn.

    Each with its exit code and the modules that are there after it.
    """
    asked = json.dumps([names, *lines])
    result = subprocess.run(
        [sys.executable, "-c", IMPORTED, asked],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    return result.stderr.splitlines()


def test_help_waits_for_nothing():
    """Typer itself takes half of the time that the first help may take."""
    assert imported((*SLOW, "rich"), ["--help"]) == ["['--help'] 0 []"]


def test_the_help_of_no_verb_imports_what_is_slow():
    lines = [[verb.name, "--help"] for verb in VERBS]
    assert imported(SLOW, *lines) == [f"{line} 0 []" for line in lines]


def test_verbs_that_need_no_model_import_nothing_heavy():
    lines = [
        ["recipes", "ls", "-q"],
        ["recipes", "ls", "--models", "--data"],
        ["recipes", "show", "demo"],
    ]
    assert imported(HEAVY, *lines) == [f"{line} 0 []" for line in lines]


def test_the_boundary_returns_the_code_and_raises_nothing(capsys):
    assert main(["finetune", "sst"]) == 2
    assert main(["--help"]) == 0
    assert main(["evaluate", "/nowhere"]) == 4
    captured = capsys.readouterr()
    assert captured.err.count("error: ") == 2


def test_a_bug_of_ours_is_code_1_with_a_way_to_report_it(monkeypatch, capsys):
    import bertctl.config.load

    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(bertctl.config.load, "trace_recipe", broken)
    assert main(["finetune", "demo"]) == 1
    said = capsys.readouterr().err
    assert "error: KeyError: 'surprise'" in said
    assert "bug in bertctl" in said
    assert "--debug" in said
    assert "Traceback" not in said


def test_a_reader_who_leaves_ends_it_quietly(tiny_run, tmp_path, nursery):
    """`bertctl predict RUN FILE | head -1`.

    The answer is cut off, and the code says so as for any Unix filter.
    """
    texts = tmp_path / "texts.txt"
    texts.write_text("good film\n" * 20_000)
    words = ["predict", str(tiny_run.path), str(texts), "--input-format", "lines"]
    process = nursery.start(words, cwd=tmp_path, env=os.environ)
    assert process.stdout is not None
    assert process.stderr is not None
    first = json.loads(process.stdout.readline())
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert first["text"] == "good film"
    assert process.wait(3600) == 141
    assert said == ""


@pytest.mark.parametrize(("words", "code"), [([], 2), (["--help"], 0), (["sweep", "--help"], 0)])
def test_help_that_nobody_reads_is_no_error(words, code):
    """`bertctl --help | head -1` under `set -o pipefail`."""
    process = subprocess.Popen(
        [*BERTCTL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(3600) == code
    assert said == ""


def test_no_terminal_means_no_control_codes(tiny_run):
    assert "\x1b" not in tiny_run.process.stderr
    assert "\r" not in tiny_run.process.stderr
    assert "━" not in tiny_run.process.stderr


def test_third_party_talk_stays_off_the_screen(tiny_run):
    """Every line is one of ours."""
    ours = (
        "text from",
        "no validation file",
        "compute:",
        "train:",
        "validation:",
        "training:",
        "memory:",
        "checkpoints:",
        "run folder",
        "f1 is computed for",
    )
    more = (
        "first example",
        "  tokens",
        "  ids",
        "  segment",
        "epoch ",
        "baselines: ",
        "using the weights",
        "the test file was not scored",
        "warning:",
        "training ",
        "scoring ",
        "Next: ",
    )
    for line in tiny_run.process.stderr.splitlines():
        assert (
            any(words in line for words in ours) or line.startswith(more) or "peak memory" in line
        ), line


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("size", ["²", "0"])
def test_a_size_of_the_terminal_that_is_none_is_left_out(monkeypatch, name, size):
    """With the first rich raised a ValueError, in the error's own message too.

    In 0 columns it writes nothing.
    """

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv(name, size)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    console_of(stream).print("an answer")
    assert stream.getvalue() == "an answer\n"
