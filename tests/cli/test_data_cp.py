"""`bertctl data cp`: the rows that come with the package, as files that the next commands take."""

import json
from pathlib import Path

import pytest

from bertctl.cli.framework.completion import bundled_names
from bertctl.errors import ExitCode
from tests.conftest import Run

pytestmark = pytest.mark.in_process


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "demo" else ())
        for name in bundled_names("")
    ],
)
def test_what_is_copied_is_what_training_takes(bertctl: Run, name: str) -> None:
    copied = json.loads(bertctl("data", "cp", name, "own rows", "--json").stdout)
    assert all(Path(file).parent == Path("own rows") for file in copied["files"])
    verb, file, *_ = copied["command"].removeprefix("bertctl ").split(" '")
    assert verb in ("finetune", "pretrain")
    assert file.startswith("own rows/")
    if verb == "finetune":
        checked = bertctl("data", "check", *copied["files"], "--model", "minilm")
        assert checked.returncode in (ExitCode.OK, ExitCode.DATA), checked.stderr
        assert "looks like" in checked.stderr, "the task is recognised without an option"


def test_nothing_is_replaced_unasked(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "test.csv").write_text("mine")
    refused = bertctl("data", "cp", "demo", "rows")
    assert refused.returncode == ExitCode.USAGE
    assert "rows/test.csv exists" in refused.stderr
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["test.csv"]
    assert bertctl("data", "cp", "demo", "rows", "--overwrite").returncode == ExitCode.OK
    assert (tmp_path / "rows" / "test.csv").read_text().startswith("text,label\n")


@pytest.mark.parametrize(
    ("name", "hint"), [("sst2", "not in bertctl"), ("demo-nr", "did you mean demo-ner")]
)
def test_other_names_are_refused(bertctl: Run, name: str, hint: str) -> None:
    refused = bertctl("data", "cp", name, "rows")
    assert refused.returncode == ExitCode.USAGE
    assert hint in refused.stderr
