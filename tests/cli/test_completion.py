"""What a shell is told when it completes a line.

Through the real process, asked as the shells ask.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from bertctl.catalog.models import MODELS
from bertctl.cli.app import VERBS
from bertctl.config.recipe_files import builtin_recipes
from tests.conftest import ROOT

SLOW = ("torch", "transformers", "numpy", "pydantic", "bertctl.config.schema")
"""What no completion has the time to import."""

CODE = f"""
import sys
from bertctl.cli.main import main
code = main([])
print([name for name in {(*SLOW, "rich")!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def ask(folder: Path, env: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def bash(line: str, folder: Path) -> list[str]:
    """What bash offers for the last word of the line, for which nothing slow was imported."""
    words = line.split(" ")
    env = {
        "_BERTCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code, message, imported = ask(folder, env)
    assert code == 0, imported
    assert imported == "[]\n"
    return message.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("bertctl ", [verb.name for verb in VERBS]),
        ("bertctl fine", ["finetune"]),
        ("bertctl --vers", ["--version"]),
        ("bertctl --json finetune --see", []),
        ("bertctl finetune --seed 1 --res", ["--resume", "--resume-if-any"]),
        ("bertctl finetune conll", ["conll2003"]),
        ("bertctl finetune ", list(builtin_recipes())),
        ("bertctl finetune sst2 --model ", list(MODELS)),
        ("bertctl finetune sst2 --precision ", ["auto", "fp32", "bf16", "fp16"]),
        ("bertctl finetune sst2 --checkpoint", ["--checkpoint-every"]),
        ("bertctl finetune sst2 --set training.ep", ["training.epochs="]),
        ("bertctl finetune sst2 --set runtime.precision=b", ["runtime.precision=bf16"]),
        ("bertctl recipes ", ["ls", "show", "diff", "cp", "validate", "schema"]),
        ("bertctl recipes show conll", ["conll2003"]),
        ("bertctl data check --str", ["--strict"]),
    ],
)
def test_bash_is_offered(line, offered, tmp_path):
    assert bash(line, tmp_path) == offered


def test_run_folders_are_offered_and_other_folders_are_not(tmp_path):
    for name in ("here", "runs/a", "runs/b", "runs/else", "data"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("here", "runs/a", "runs/b"):
        (tmp_path / name / "status.json").write_text("{}")
    assert bash("bertctl evaluate ", tmp_path) == ["here", "runs/a", "runs/b"]
    assert bash("bertctl evaluate ru", tmp_path) == ["runs/a", "runs/b"]
    assert bash("bertctl predict runs/b", tmp_path) == ["runs/b"]
    assert bash(f"bertctl report {tmp_path}/runs/", tmp_path) == [
        f"{tmp_path}/runs/a",
        f"{tmp_path}/runs/b",
    ]
    assert bash("bertctl report nowhere/", tmp_path) == []
    assert bash("bertctl finetune demo --model runs/", tmp_path) == ["runs/a", "runs/b"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_line_about_each_option(shell, tmp_path):
    env = {
        "_BERTCTL_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "bertctl finetune sst2 --res",
    }
    code, message, imported = ask(tmp_path, {**env, "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
    assert code == 0
    assert imported == "['rich']\n"
    assert "--resume-if-any" in message
    assert "Continue from the last checkpoint" in message


def test_fish_is_told_whether_files_would_do(tmp_path):
    env = {"_BERTCTL_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "is-args"}
    assert ask(tmp_path, {**env, "_TYPER_COMPLETE_ARGS": "bertctl finetune conll"})[0] == 0
    assert ask(tmp_path, {**env, "_TYPER_COMPLETE_ARGS": "bertctl finetune ./"})[0] == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_shown(shell, tmp_path):
    code, message, _ = ask(tmp_path, {"_BERTCTL_COMPLETE": f"source_{shell}"})
    assert code == 0
    assert "_BERTCTL_COMPLETE" in message


def test_bash_itself_completes_a_line(tmp_path):
    """The script that is installed, in the shell that runs it."""
    here = Path(sys.executable).parent
    line = (
        'eval "$(_BERTCTL_COMPLETE=source_bash bertctl)"; COMP_WORDS=(bertctl finetune conll); '
        "COMP_CWORD=2; "
    )
    line += '_bertctl_completion bertctl; echo "${COMPREPLY[@]}"'
    if not (here / "bertctl").is_file():
        pytest.skip("bertctl is not installed beside this Python")
    done = subprocess.run(
        ["bash", "--norc", "-c", line],
        env={"PATH": f"{here}:/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.stdout == "conll2003\n"
    assert done.stderr == ""


def test_completion_is_among_the_options_of_the_command(bertctl):
    stdout = bertctl("--help").stdout
    assert "--install-completion" in stdout
    assert "--show-completion" in stdout


def test_a_shell_that_is_not_known_is_a_refusal(tmp_path):
    """As where no shell has started the command: code 1 would be a bug of ours."""
    code = "import shellingham, sys\ndef fails(*_): raise shellingham.ShellDetectionFailure\n"
    code += (
        "shellingham.detect_shell = fails\nfrom bertctl.cli.main import main; "
        "sys.exit(main(['--show-completion']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 2
    assert (
        "error: completion is not made for this shell\nType it in bash, zsh, fish or PowerShell."
        in done.stderr
    )
