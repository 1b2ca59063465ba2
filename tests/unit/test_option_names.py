"""Settings are named as Python knows them, and the command line says its own options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertctl.cli.framework.option_names import all_as_options, as_options
from bertctl.words import command

PACKAGE = Path(__file__).resolve().parents[2] / "bertctl"
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_OTHER_PROGRAMS = {
    "addresses.py": "arguments of aws, gcloud, azcopy and hf",
    "catalog/models.py": "arguments of pip",
    "data/tagged_files.py": "arguments of spacy convert",
    "reporting/charts.py": "variables of CSS",
    "runtime/accelerate_config.py": "arguments of accelerate config",
    "runtime/launch.py": "arguments of accelerate, torchrun and bertctl, which it starts",
    "runtime/stopping.py": "looks for --json in the arguments of a process that has no parser yet",
    "sweeps/slurm_queue.py": "arguments of squeue",
    "config/load.py": "the origin of values, by the option that gave them",
    "errors.py": "the origin of values, as config/load.py writes it",
}
"""File -> why strings in it may have an option's dashes."""


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ("Name it: `data.text_column=NAME`.", "Name it: --text-column NAME."),
        ("Is `data.label_column=` right?", "Is --label-column right?"),
        ("add `data.header=False`", "add --no-header"),
        ("add `overwrite=True`", "add --overwrite"),
        ("add `lowercase=False`", "add --cased"),
        ("another place with `output=`", "another place with -o"),
        ("`output=DIR overwrite=True`", "-o DIR --overwrite"),
        (
            "`data.choice_columns='[one, two]'`; then",
            "--set data.choice_columns='[one, two]'; then",
        ),
        ("`text_classification.multi_label=true`", "--set text_classification.multi_label=true"),
        ("`grid='a.b=1,2 c.d=3'`", "--grid 'a.b=1,2 c.d=3'"),
        (
            "the data set `demo`, MASTER_PORT=1, `x == y`",
            "the data set `demo`, MASTER_PORT=1, `x == y`",
        ),
    ],
)
def test_the_command_line_names_settings_by_their_options(message: str, output: str) -> None:
    assert as_options(message) == output


def test_all_texts_of_a_document_are_named_so() -> None:
    document = {"found": "use `runtime.threads=2`", "needs": [{"bytes": 3, "remedy": "`output=`"}]}
    displayed = {"found": "use --threads 2", "needs": [{"bytes": 3, "remedy": "-o"}]}
    assert all_as_options(document) == displayed


def test_a_command_is_quoted_for_a_shell() -> None:
    output = command("evaluate", Path("my runs/a"), file="FILE", output="NEW", text=True)
    assert output == "bertctl evaluate 'my runs/a' --file FILE -o NEW --text"


def test_the_library_names_no_options() -> None:
    by_name = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "cli"
        if any(_OPTION.search(text) for text in _strings(path))
    }
    assert by_name == set(_OTHER_PROGRAMS)


def _strings(path: Path) -> Iterator[str]:
    """Yields the strings of a file that are no docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)
