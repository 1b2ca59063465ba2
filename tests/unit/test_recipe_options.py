"""The options that stand for recipe fields.

What a row becomes, and what a verb gets of what was typed.
"""

from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

from bertctl.cli.app import with_output
from bertctl.cli.framework.recipe_options import (
    FLAGS,
    GROUPS,
    FieldOption,
    picked,
    takes_recipe,
    takes_run,
    without,
)
from bertctl.cli.framework.recipe_requests import RecipeRequest, RunRequest
from bertctl.config.field_docs import field_docs
from bertctl.config.problems import field_schema
from bertctl.config.schema import fields

ROWS = list(
    {
        row.flags: row for name, group in GROUPS.items() if name != "keep_text" for row in group
    }.values()
)
KINDS = {
    "string": (str, Path),
    "integer": (int,),
    "number": (float,),
    "boolean": (bool,),
    "array": (list,),
}


def run(verb, *words: str) -> list[object]:
    """The arguments that the verb is called with when this is typed."""
    given: list[object] = []
    decorated = verb(lambda _, request: given.append(request))
    app = typer.Typer()
    app.command()(with_output(decorated))
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return given


def test_every_field_has_one_option_and_two_names_for_its_texts_where_text_is_one_already():
    assert len({row.field for row in ROWS}) == len({row.name for row in ROWS}) == len(ROWS) == 55
    assert [row.flags for row in GROUPS["keep_text"]] == ["--keep-text/--no-text"]
    assert FLAGS["evaluation.keep_text"] == "--text"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.flags)
def test_a_row_is_of_its_fields_type_and_helps_with_its_docstring(row: FieldOption):
    assert row.field in fields()
    kind = get_origin(row.kind) or row.kind
    assert kind in KINDS[field_schema(row.field)["type"]] or (row.parse and kind is str)
    annotation = row.parameter().annotation
    assert get_origin(annotation) is Annotated
    assert get_args(annotation)[0] == row.kind | None
    summary, details = get_args(annotation)[1].help.split("\n\n")
    doc = field_docs()[row.field]
    assert len(summary) > 10
    assert doc.text.startswith(summary.partition(" Default: ")[0])
    assert sorted(f"{summary} {details}".split()) == sorted(
        f"{doc.text} Recipe field: {row.field}.".split()
    )


def test_a_verb_gets_what_was_typed_and_nothing_else():
    verb = takes_recipe("model", "training", "evaluation", "--log-to")
    line = [
        "demo",
        "--epochs",
        "2",
        "--seed",
        "0",
        "--set",
        "a=1",
        "--set",
        "b=2",
        "--log-to",
        "wandb",
        "--no-text",
    ]
    options = {
        "training.epochs": 2,
        "training.seed": 0,
        "evaluation.keep_text": False,
        "runtime.log_to": ["wandb"],
    }
    assert run(verb, *line) == [RecipeRequest("demo", ["a=1", "b=2"], options)]
    assert run(verb, "demo") == [RecipeRequest("demo", (), {})]


def test_a_verb_that_takes_a_run_gets_its_folder_and_options():
    verb = takes_run("data")
    assert run(verb, "runs/a", "--data-dir", "here") == [
        RunRequest(Path("runs/a"), {"data.data_dir": Path("here")})
    ]


def test_groups_are_cut_to_what_a_verb_takes():
    assert [row.flags for row in picked("--seed", "keep_text")] == [
        "--seed",
        "--keep-text/--no-text",
    ]
    assert [row.flags for row in without("training", "--epochs")] == [
        "--time-limit",
        "--batch-size",
        "--learning-rate",
        "--seed",
    ]
    with pytest.raises(KeyError, match="--epoch"):
        picked("--epoch")


def test_a_request_loads_its_recipe_with_the_nearest_source_on_top():
    request = RecipeRequest("text-classification", ["training.epochs=5"], {"training.seed": 7})
    assert request.load().training.epochs == 5
    assert request.load().training.seed == 7
    assert request.load("text-regression", {"training.seed": 8}).training.seed == 8


def test_choices_of_a_field_are_its_metavar():
    metavars = {row.flags: get_args(row.parameter().annotation)[1].metavar for row in ROWS}
    assert metavars["--precision"] == "auto|fp32|bf16|fp16"
    assert metavars["--epochs"] is None
    assert metavars["--log-to"] == (
        "tensorboard|mlflow|wandb|trackio|aim|clearml|comet_ml|dvclive|swanlab"
    )
