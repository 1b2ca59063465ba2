"""With --json an error is one document on stdout, whatever the verb and the code.

Stderr says the same to people.
"""

import functools
import importlib
import json
from pathlib import Path

import pytest

from bertctl import errors
from bertctl.cli import app
from bertctl.cli.main import main
from bertctl.config.problems import RecipeError
from bertctl.runtime.stopping import Terminated
from tests.cli.test_surface import COMMANDS
from tests.cli.verbs import REFUSED, typed
from tests.documents.schemas import check

RAISED = {
    "bug": (KeyError("surprise"), 1),
    "usage": (RecipeError("my.yaml", ["my.yaml:3: training.epochs: -1 given", "my.yaml:4: no"]), 2),
    "data": (
        errors.DataError(
            "rows.csv:7: the label 'x' is not one the model knows", remedy="Labels: y."
        ),
        3,
    ),
    "unavailable": (FileNotFoundError(2, "No such file or directory", "gone.csv"), 4),
    "device": (MemoryError(), 5),
    "diverged": (errors.DivergedError("training diverged at step 1"), 6),
    "collapsed": (errors.CollapsedError("one answer to everything"), 6),
    "interrupted": (KeyboardInterrupt(), 130),
    "terminated": (Terminated(), 143),
}
PLACES = {
    "usage": {"file": "my.yaml", "line": 3, "field": "training.epochs"},
    "data": {"file": "rows.csv", "line": 7, "field": None, "remedy": "Labels: y."},
    "unavailable": {"file": "gone.csv", "line": None, "field": None},
}


def one_document(out: str, code: int) -> dict[str, object]:
    document = json.loads(out)
    check("error", document, "stdout")
    assert document["error"]["code"] == code
    return document["error"]


def test_the_table_has_every_verb() -> None:
    assert REFUSED.keys() == COMMANDS.keys()
    assert len(REFUSED) * len(RAISED) == 459


@pytest.mark.parametrize(
    "verb", [verb for verb in REFUSED if REFUSED[verb][0] not in (["--surprise"], ["surplus"])]
)
def test_every_verb_answers_every_error_with_one_document(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb itself is what fails.

    What it is typed with is read, and its error leaves, as always.
    """
    _refused_with_each(verb, typed(verb), tmp_path, monkeypatch, capsys)


def test_what_was_found_stands_beside_the_error(bertctl, tmp_path: Path) -> None:
    """A verdict of `data check` is an error of its exit code.

    Its findings are what the person wants.
    """
    rows = "text,label\n" + "good film,yes\ngood film,no\n" * 4
    (tmp_path / "rows.csv").write_text(rows, encoding="utf-8")
    (tmp_path / "held.csv").write_text("text,label\ngood film,maybe\n", encoding="utf-8")
    done = bertctl(
        "data", "check", "rows.csv", "held.csv", "--model", "none/such", "--offline", "--json"
    )
    assert done.returncode == 3
    assert one_document(done.stdout, 3)["kind"] == "data"
    assert any(finding["severity"] == "error" for finding in json.loads(done.stdout)["findings"])


@pytest.mark.parametrize("verb", ["recipes ls", "recipes schema"])
def test_verbs_that_take_nothing_too(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _refused_with_each(verb, verb.split(), tmp_path, monkeypatch, capsys)


def _refused_with_each(
    verb: str,
    words: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    group, _, name = verb.partition(" ")
    module = importlib.import_module(f"bertctl.cli.verbs.{group.replace('-', '_')}")
    function = module.COMMANDS[name] if name else getattr(module, group.replace("-", "_"))
    raised: BaseException

    def fails(*_: object, **__: object) -> None:
        raise raised

    broken = functools.update_wrapper(fails, function)
    if name:
        monkeypatch.setitem(module.COMMANDS, name, broken)
    else:
        monkeypatch.setattr(module, group.replace("-", "_"), broken)
    made_anew = functools.cache(app.verb_command.__wrapped__)
    monkeypatch.setattr(app, "verb_command", made_anew)
    for kind, (raised, code) in RAISED.items():  # noqa: B007 - what the verb raises
        assert main([*words, "--json"]) == code, kind
        captured = capsys.readouterr()
        document = one_document(captured.out, code)
        assert document["kind"] == ("interrupted" if kind == "terminated" else kind)
        assert {key: document[key] for key in PLACES.get(kind, {})} == PLACES.get(kind, {})
        assert f"error: {document['message']}\n" in captured.err


@pytest.mark.in_process
@pytest.mark.parametrize("verb", REFUSED)
def test_what_is_refused_in_earnest(verb: str, bertctl) -> None:
    """A file that is not there, and an option that no verb has.

    In place of the first there may be another refusal of the verb's own.
    """
    code = REFUSED[verb][1]
    done = bertctl(*typed(verb), "--json")
    assert done.returncode == code, done.stderr
    document = one_document(done.stdout, code)
    assert f"error: {document['message']}\n" in done.stderr
    if code == 4:
        assert "nowhere" in str(document["file"])
    surplus = bertctl(*verb.split(), "--json", "--surprise")
    assert surplus.returncode == 2
    assert "--surprise" in str(one_document(surplus.stdout, 2)["message"])


@pytest.mark.in_process
def test_two_problems_in_one_error_have_a_place(bertctl, tmp_path: Path) -> None:
    """The file that is known is named, though the model is wrong too."""
    (tmp_path / "empty").mkdir()
    rows = ("--train-file", "nowhere.csv", "--model", "empty")
    done = bertctl("finetune", "text-classification", *rows, "--json", cwd=tmp_path)
    assert str(one_document(done.stdout, 4)["file"]).endswith("nowhere.csv")
    (tmp_path / "bad.yaml").write_text("name: bad\ntraining: {epoch: 1}\n")
    done = bertctl("recipes", "validate", "bad.yaml", "sst3.yaml", "--json", cwd=tmp_path)
    place = json.loads(done.stdout)["error"]
    assert place["file"] == "bad.yaml"
    assert place["line"] == 2
    assert place["field"] == "training.epoch"


@pytest.mark.in_process
def test_no_verb_at_all_and_ranks_that_are_no_numbers(bertctl) -> None:
    for words in (["--json"], ["nix", "--json"], ["vocab", "--json"]):
        done = bertctl(*words)
        assert done.returncode == 2
        one_document(done.stdout, 2)
    for environment in (
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "-2"},
        {"RANK": ""},
    ):
        done = bertctl("docs", "--json", env=environment)
        name = next(name for name, value in environment.items() if value != "0" and value != "2")
        assert done.returncode == 2
        assert f"{name}={environment[name]!r}" in str(one_document(done.stdout, 2)["message"])
        assert "Traceback" not in done.stderr


@pytest.mark.in_process
def test_a_rank_that_there_is_not_is_refused_at_once(bertctl) -> None:
    done = bertctl("docs", env={"RANK": "5", "WORLD_SIZE": "2"})
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[0]
        == "error: RANK=5 in the environment: less than WORLD_SIZE=2 fits"
    )


def test_an_answer_and_then_an_error_are_one_document(bertctl, tiny_run, tmp_path: Path) -> None:
    """The gate has judged, then a report can't be written.

    Predict has answered 2,048 rows, then one is damaged.
    """
    done = bertctl("gate", tiny_run.path, "--min", "accuracy=0.1", "--junit", tmp_path, "--json")
    assert done.returncode == 4, done.stderr
    assert one_document(done.stdout, 4)["file"] == str(tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "good film"}\n' * 2100 + '{"text": 3\n')
    done = bertctl("predict", tiny_run.path, rows, "--json")
    assert done.returncode == 3, done.stderr
    error = one_document(done.stdout, 3)
    assert Path(str(error["file"])).name == "rows.jsonl"
    assert error["line"] == 2101
    done = bertctl("predict", tiny_run.path, rows)
    assert done.returncode == 3
    assert len(done.stdout.splitlines()) == 2048, (
        "whole lines that were ready are there without --json"
    )
