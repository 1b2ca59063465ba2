"""The options that stand for recipe fields, in a Typer app as the verbs build one."""

import inspect
from typing import Annotated, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

from bertctl.cli import options
from bertctl.cli.options import FIELDS, EpochsOption, KeepTextOption, LogToOption, SetOption, collect, field_option
from bertctl.config.load import field_help
from bertctl.config.schema import fields

FIELD_OPTIONS = {
    name: alias
    for name, alias in vars(options).items()
    if name.endswith("Option")
    and get_origin(alias) is Annotated
    and name not in ("OutputOption", "OverwriteOption", "SetOption", "NumProcessesOption", "AccelerateConfigOption")
}


def parameter_name(alias_name: str) -> str:
    """`MaxLengthOption` -> `max_length`."""
    words = alias_name.removesuffix("Option")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).lstrip("_")


def test_each_option_has_a_field_and_each_field_an_option():
    assert {parameter_name(name) for name in FIELD_OPTIONS} == set(FIELDS)
    assert set(FIELDS.values()) <= set(fields())


@pytest.mark.parametrize("name", FIELD_OPTIONS)
def test_an_options_help_is_the_fields_docstring_and_its_dotted_name(name):
    dotted = FIELDS[parameter_name(name)]
    info = get_args(FIELD_OPTIONS[name])[1]
    assert info.help.replace("\\[", "[") == f"{field_help(dotted)} ({dotted})"


def test_every_option_of_the_design_is_there_by_its_name():
    app = typer.Typer()

    def verb(**given: object) -> None:
        """All of them at once."""

    aliases = {**FIELD_OPTIONS, "OutputOption": options.OutputOption, "SetOption": options.SetOption}
    parameters = [
        inspect.Parameter(parameter_name(name), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=alias)
        for name, alias in aliases.items()
    ]
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(verb)
    flags = {flag for parameter in typer.main.get_command(app).params for flag in parameter.opts}
    words = "output set model data-dir seed epochs batch-size learning-rate max-length precision threads max-train-rows"
    words += " max-eval-rows train-file validation-file test-file text-column pair-column label-column device log-to"
    assert flags >= {f"--{word}" for word in words.split()} | {"-o"}


def test_collect_maps_what_was_given_and_drops_what_was_not():
    assert collect(epochs=2, seed=0, model=None, log_to=[], keep_text=False) == {
        "training.epochs": 2,
        "training.seed": 0,
        "evaluation.keep_text": False,
    }
    with pytest.raises(KeyError):
        collect(epoch=2)


def test_typer_parses_them():
    app = typer.Typer(rich_markup_mode="rich")
    given: dict[str, object] = {}

    @app.command()
    def verb(
        epochs: EpochsOption = None, sets: SetOption = None, log_to: LogToOption = None, text: KeepTextOption = None
    ) -> None:
        given.update(epochs=epochs, sets=sets, log_to=log_to, text=text)

    runner = CliRunner()
    line = ["--epochs", "2", "--set", "a=1", "--set", "b=2", "--log-to", "wandb", "--no-text"]
    assert runner.invoke(app, line).exit_code == 0
    assert given == {"epochs": 2, "sets": ["a=1", "b=2"], "log_to": ["wandb"], "text": False}
    shown = runner.invoke(app, ["--help"], env={"COLUMNS": "250", "TERMINAL_WIDTH": "250"}).output
    assert "appendix A.3" in shown
    assert "(training.epochs)" in shown


def test_choices_of_a_field_are_its_metavar():
    assert field_option("runtime.precision", "--precision").metavar == "auto|fp32|bf16|fp16"
    assert field_option("training.epochs", "--epochs").metavar is None
    assert field_option("runtime.log_to", "--log-to").metavar == "tensorboard|mlflow|wandb"
