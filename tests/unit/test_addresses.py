"""Addresses where a local path is needed.

Refused by every option, argument, field and variable, with what to type.
"""

import functools
import re
from pathlib import Path
from typing import Any

import pytest

import bertctl
from bertctl.addresses import address_remedy, is_address, refuse_address
from bertctl.cli.app import VERBS, verb_command
from bertctl.cli.framework.folding import _OUTPUTS, refuse_typed_addresses
from bertctl.config.load import load_recipe, read_field
from bertctl.config.recipe_files import find_recipe
from bertctl.config.recipe_sections import Mark
from bertctl.config.schema import marked
from bertctl.errors import UsageError
from bertctl.writing import cache_folder
from tests.conftest import Run


@pytest.mark.parametrize(
    "address",
    [
        "s3://b/k",
        "gs://b",
        "hf://org/name",
        "https://h/x.csv",
        "S3://b",
        "abfss://c@a/x",
        "file:///x",
        "s3:/b/k",
    ],
)
def test_what_begins_with_a_scheme_is_an_address(address: str) -> None:
    assert is_address(address)
    assert is_address(Path(address)), "pathlib leaves one slash"


@pytest.mark.parametrize(
    "path", ["reviews.csv", "a/b", "C:/data", "/s3://b", "./s3:/b", "a:b", "", "-", "x y: //z"]
)
def test_other_paths_are_none(path: str) -> None:
    assert not is_address(path)


def test_a_folder_that_is_called_like_a_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier version wrote below `s3:` can be read.

    The address is refused all the same.
    """
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    assert not is_address("s3:/b/k")
    assert is_address("s3://b/k")


@pytest.mark.parametrize(
    ("address", "settings", "words"),
    [
        ("s3://b/x.csv", {}, "aws s3 cp s3://b/x.csv x.csv"),
        ("s3://b/run", {}, "aws s3 cp --recursive s3://b/run run"),
        ("gs://b/x.csv", {"is_output": True}, "gcloud storage cp x.csv gs://b/x.csv"),
        ("https://h/x.csv", {}, "curl -L -o x.csv 'https://h/x.csv'"),
        (
            "https://huggingface.co/org/name/tree/main",
            {"is_model": True},
            "Give the hub id: org/name",
        ),
        ("hf://org/name@v1", {"is_model": True}, "Give the hub id: org/name"),
        (
            "hf://datasets/org/name/a/x.csv",
            {},
            "hf download --repo-type dataset org/name a/x.csv --local-dir .",
        ),
        ("hf://org/name", {"is_output": True}, "bertctl push RUN HUB-ID"),
        ("file:///tmp/x", {}, "Give the path itself: /tmp/x"),
        ("nfs://h/x", {}, "Copy it to this machine first"),
    ],
)
def test_the_remedy_can_be_typed(address: str, settings: dict[str, bool], words: str) -> None:
    assert words in address_remedy(address, **settings)


def test_no_secret_is_shown() -> None:
    with pytest.raises(UsageError) as refused:
        refuse_address("https://me:pw@h/x.csv?X-Amz-Signature=abc", "--file")
    output = refused.value.message + refused.value.remedy
    assert "https://h/x.csv" in output
    assert "pw" not in output
    assert "abc" not in output


@functools.cache
def _parameters() -> list[tuple[str, Any]]:
    """Every option and argument that takes a value, with its verb."""
    parameters = []
    for verb in VERBS:
        command = verb_command(verb)
        commands = getattr(command, "commands", None) or {verb.name: command}
        for name, entry in commands.items():
            parameters += [
                (f"{verb.name} {name}", param)
                for param in entry.params
                if not getattr(param, "is_flag", False)
            ]
    return parameters


def test_every_option_for_a_file_or_folder_refuses_an_address() -> None:
    """Whatever is read as a path, and every output: no verb makes a folder `s3:`."""
    missed = []
    checked = 0
    for verb, parameter in _parameters():
        is_path = "Path" in str(parameter.type_descriptor.annotation) or parameter.name in _OUTPUTS
        if not is_path:
            continue
        checked += 1
        try:
            refuse_typed_addresses([parameter], {parameter.name: "s3://b/x"})
        except UsageError:
            continue
        missed.append((verb, parameter.name))
    assert not missed
    assert checked > 60


def test_free_text_may_be_an_address() -> None:
    """Texts, labels and columns are no paths."""
    for verb, parameter in _parameters():
        if parameter.name in (
            "text",
            "texts",
            "pair",
            "label",
            "label_column",
            "message",
            "pattern",
            "word",
            "sets",
        ):
            refuse_typed_addresses([parameter], {parameter.name: "https://example.org/x"})
        if "TEXT" in (parameter.metavar or ""):
            assert verb
            refuse_typed_addresses(
                [parameter], {parameter.name: "https://example.org is an address"}
            )


@pytest.mark.parametrize("dotted", sorted(marked(Mark.IS_PATH)))
def test_every_field_of_a_path_refuses_an_address(dotted: str, tmp_path: Path) -> None:
    """From --set, from the Python API, from a recipe's file and from the grid of a sweep."""
    is_list = dotted in ("evaluation.metric_scripts", "pretraining.corpus")
    value = "[gs://b/x.csv]" if is_list else "gs://b/x.csv"
    recipe = "pretrain" if dotted.startswith("pretraining.") else "text-classification"
    expected = f"{dotted}: gs://b/x.csv is an address"
    with pytest.raises(UsageError, match=expected):
        load_recipe(recipe, sets=[f"{dotted}={value}"])
    with pytest.raises(UsageError, match=expected):
        load_recipe(recipe, options={dotted: ["gs://b/x.csv"] if is_list else "gs://b/x.csv"})

    section, _, name = dotted.partition(".")
    task = "pretraining" if recipe == "pretrain" else recipe
    file = tmp_path / "r.yaml"
    file.write_text(f"task: {task}\n{section}:\n  {name}: {value}\n")
    with pytest.raises(UsageError, match=expected) as refused:
        load_recipe(str(file))
    assert "r.yaml:3" in refused.value.message
    assert expected in read_field(dotted, ["gs://b/x.csv"] if is_list else "gs://b/x.csv")[1][0]


def test_recipes_bases_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=re.escape("s3://b/r.yaml is an address")):
        find_recipe("s3://b/r.yaml")
    file = tmp_path / "r.yaml"
    file.write_text("base: https://h/r.yaml\n")
    with pytest.raises(UsageError, match=re.escape("https://h/r.yaml is an address")):
        load_recipe(str(file))
    monkeypatch.setenv("BERTCTL_DATA", "s3://b/d")
    with pytest.raises(
        UsageError, match=re.escape("BERTCTL_DATA: data.data_dir: s3://b/d is an address")
    ):
        load_recipe("sst2")
    monkeypatch.setenv("BERTCTL_CACHE", "gs://b/c")
    with pytest.raises(UsageError, match="BERTCTL_CACHE: gs://b/c is an address"):
        cache_folder()


def test_data_sets_of_a_persons_own(tmp_path: Path) -> None:
    (tmp_path / "datasets.yaml").write_text(
        "mine: {task: text-classification, columns: {text: text, label: label}, splits: {train: "
        "s3://b/train.csv}}\n"
    )
    file = tmp_path / "r.yaml"
    file.write_text("task: text-classification\ndata: {name: mine}\n")
    with pytest.raises(UsageError, match=re.escape("train: s3://b/train.csv is an address")):
        bertctl.finetune(str(file), output=tmp_path / "run")


@pytest.mark.parametrize("output", ["s3://b/run", Path("s3://b/run")])
def test_the_python_api(output: str | Path) -> None:
    with pytest.raises(UsageError, match="output: s3://b/run is an address"):
        bertctl.finetune("demo", output=output)
    with pytest.raises(UsageError, match="path: s3://b/run is an address"):
        bertctl.load_run(output)


@pytest.mark.in_process
def test_the_command_ends_with_2_and_writes_nothing(bertctl: Run, tmp_path: Path) -> None:
    for words in (
        ["predict", "runs/demo", "reviews.csv", "-o", "s3://bkt/p.jsonl"],
        ["finetune", "mine.yaml", "-os3://bkt/run"],
        ["data", "check", "gs://b/x.csv"],
        ["gate", "runs/demo", "--min", "accuracy=0.9", "--junit=hf://b/j.xml"],
    ):
        result = bertctl(*words, cwd=tmp_path)
        assert result.returncode == 2, result.stderr
        assert "is an address, and bertctl reads and writes local files" in result.stderr
    assert list(tmp_path.iterdir()) == []
