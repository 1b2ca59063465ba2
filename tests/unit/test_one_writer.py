"""One writer of files in the whole package.

No other file opens a file for writing, but those few that are counted here.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

import bertctl
from bertctl.errors import UnavailableError, UsageError
from bertctl.writing import protect, refuse_input, replacing

ALLOWED = {
    "cli/framework/processes.py": 1,  # in a temporary folder
    "cli/framework/streams.py": 1,  # stdin, to read
    "data/pipes.py": 1,  # a pipe, to read
    "documents.py": 2,  # to read
    "appended.py": 1,  # by `open_in_place`
    "features/feature_files.py": 2,  # all in the place that `replacing` gives
    "modeling/lora.py": 1,  # in the place that `replacing` gives
    "modeling/own_vocabulary.py": 2,  # in the place that `replacing` gives
    "modeling/sentence_head.py": 1,  # in the place that `replacing` gives
    # rows of a table, into what a library has written in the place of `replacing`
    "modeling/fast/used_tokens.py": 1,
    "run_folder.py": 1,  # the lock, by `open_in_place`
    "runtime/launch.py": 3,  # in a temporary folder
    # a link of what the one writer has written: the first of several processes is right
    "runtime/measured.py": 1,
    "sweeps/merge.py": 1,  # in the place that `replacing` gives
    "tokenization/route.py": 1,  # the same
    "training/checkpoints/checkpoint.py": 1,  # in the place that `replacing` gives
    "writing.py": 9,
}
"""Calls that open, link, copy or write a file, by file."""

_OF_PATHS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to"}
_OF_MODULES = {
    "os": {"open", "fdopen", "link", "symlink", "truncate", "replace", "rename", "mkfifo"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move"},
}


def _writes(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    name = call.func.attr
    owner = call.func.value
    if (
        call.args
        and isinstance(call.args[0], ast.Attribute)
        and ast.unparse(call.args[0]) == "os.devnull"
    ):
        return False
    if isinstance(owner, ast.Name) and owner.id in _OF_MODULES:
        return name in _OF_MODULES[owner.id]
    if name == "open":
        modes = [
            arg.value
            for arg in call.args[:1]
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        return any(set(mode) & set("wax+") for mode in modes)
    return name in _OF_PATHS


def test_no_other_file_opens_a_file_for_writing() -> None:
    package = Path(bertctl.__file__).parent
    counts: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counts[path.relative_to(package).as_posix()] += sum(
            isinstance(node, ast.Call) and _writes(node) for node in ast.walk(tree)
        )
    assert {name: count for name, count in counts.items() if count} == ALLOWED, (
        "use bertctl/writing.py, or say here why it can't be"
    )


def test_an_input_that_is_gone_is_in_nobodys_way(tmp_path: Path) -> None:
    """As in a notebook that makes, trains on and deletes one file after the other.

    Numbers of files come back.
    """
    supplied = tmp_path / "rows.csv"
    output = tmp_path / "output.csv"
    supplied.touch()
    output.hardlink_to(supplied)
    protect(supplied, anew=True)
    with pytest.raises(UsageError, match="is an input"):
        refuse_input(output)
    supplied.unlink()
    refuse_input(output)


def test_a_cache_that_cannot_be_written_says_what_to_name(tmp_path, monkeypatch):
    """No -o takes a cache to another place."""
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UnavailableError) as refused,
        replacing(tmp_path / "file" / "models" / "one"),
    ):
        raise AssertionError
    assert "choose another in BERTCTL_CACHE" in refused.value.remedy
