"""One rule for outputs that exist, one name for how many, one way to give files: verbs x options.

The rule is in `bertctl docs run-folder`: a file is replaced when the new one is complete, a folder
is refused without `--overwrite`, and an input is never an output.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperOption

from tests.cli.test_surface import COMMANDS
from tests.conftest import TinyRun

FILE_RULE = "An existing file is replaced."
FOLDER_RULE = "Must be empty, or add --overwrite."

FILES: dict[str, tuple[str, ...]] = {
    "predict": ("output",),
    "extract-features": ("output",),
    "similarity": ("output",),
    "search": ("output",),
    "mine": ("output",),
    "cluster": ("output",),
    "fill-mask": ("output",),
    "score": ("output",),
    "report": ("output",),
    "gate": ("junit", "gitlab_metrics", "gitlab_codequality"),
    "data check": ("junit", "gitlab_codequality"),
    "lr-find": ("output",),
    "tokenize": ("output",),
    "vocab neighbours": ("output",),
    "attention": ("output", "npz"),
    "explain": ("output",),
}
"""Verbs x options that name a file."""

FOLDERS: dict[str, list[str]] = {
    "finetune": ["opinions.csv", "--model", "MODEL", "-o", "taken"],
    "pretrain": ["opinions.csv", "--from-scratch", "tiny", "-o", "taken"],
    "distill": ["RUN", "--layers", "1", "-o", "taken"],
    "probe": ["opinions.csv", "--model", "MODEL", "-o", "taken"],
    "evaluate": ["RUN", "opinions.csv", "-o", "taken"],
    "index": ["opinions.csv", "--model", "MODEL", "-o", "taken"],
    "export": ["RUN", "-o", "taken"],
    "vocab train": ["opinions.csv", "-o", "taken"],
    "vocab grow": ["MODEL", "opinions.csv", "-o", "taken"],
    "vocab shrink": ["MODEL", "opinions.csv", "-o", "taken"],
}
"""Verbs that make a folder, with a command line whose folder holds a file of somebody else."""

CONTINUED = {"sweep", "adapt", "sweep-merge"}
"""Verbs that continue in the folder that an earlier command made."""
COPIES = {"recipes cp": "destination", "data cp": "folder"}
"""Verbs that copy something for a person to edit."""
NOT_WRITTEN = {"doctor"}
"""Verbs whose folder is only looked at."""
CACHED = {"fetch"}
"""Verbs whose files are named by their content, so that none is ever replaced."""
ALSO_OVERWRITES = {"predict", "extract-features", "lr-find"}
"""Verbs that write a file and have it: glue's folder, an unfinished file, older scripts."""

HOW_MANY = {"predict", "search", "fill-mask", "vocab coverage", "vocab diff", "vocab neighbours"}
"""Verbs that answer with the best N of a list: the option is --top-k."""

POSITIONAL = {
    "predict",
    "explain",
    "evaluate",
    "extract-features",
    "similarity",
    "index",
    "search",
    "mine",
    "cluster",
    "fill-mask",
    "score",
    "tokenize",
    "attention",
    "vocab coverage",
    "vocab train",
    "vocab grow",
    "vocab shrink",
    "data check",
    "finetune",
    "pretrain",
    "adapt",
    "sweep",
    "probe",
    "estimate",
    "lr-find",
}
"""Verbs whose rows or texts are a file: it is an argument."""
FILE_OPTION = {
    "inspect": "its arguments are models",
    "vocab neighbours": "its arguments are a word and a model",
}
"""Verbs whose file is an option, because its arguments are something else."""
ALSO_BY_OPTION = {"evaluate", "tokenize", "attention"}
"""Verbs that take --file beside the argument, for a file whose name looks like a text."""


def parameters(verb: str) -> dict[str, typer.core.TyperOption | typer.core.TyperArgument]:
    context = COMMANDS[verb]
    return {parameter.name: parameter for parameter in context.command.get_params(context)}


def help_of(verb: str, name: str) -> str:
    return " ".join((parameters(verb)[name].help or "").split())


def typed(words: list[str], run: Path, model: Path) -> list[str]:
    by_word = {"RUN": str(run), "MODEL": str(model)}
    return [by_word.get(word, word) for word in words]


def test_every_output_is_in_the_table():
    outputs = {"output", "junit", "gitlab_metrics", "gitlab_codequality", "npz"}
    by_verb = {verb: outputs & parameters(verb).keys() for verb in COMMANDS}

    writing = {verb for verb, names in by_verb.items() if names}
    assert writing == FILES.keys() | FOLDERS.keys() | CONTINUED | NOT_WRITTEN
    assert {verb: by_verb[verb] for verb in FILES} == {
        verb: set(names) for verb, names in FILES.items()
    }
    assert len(FILES) == 16
    assert len(FOLDERS) == 10
    assert len(COPIES) == 2
    assert len(CACHED) == 1


def test_the_help_of_every_output_says_the_rule():
    for verb, names in FILES.items():
        for name in names:
            assert FILE_RULE in help_of(verb, name), (verb, name)
    for verb in FOLDERS:
        assert FOLDER_RULE in help_of(verb, "output"), verb


def test_overwrite_is_for_folders_and_copies():
    having = {verb for verb in COMMANDS if "overwrite" in parameters(verb)}

    assert having == FOLDERS.keys() | COPIES.keys() | ALSO_OVERWRITES
    assert not having & (CONTINUED | CACHED)


def test_how_many_has_one_name():
    having = {
        verb
        for verb in COMMANDS
        for parameter in parameters(verb).values()
        if isinstance(parameter, TyperOption) and "--top-k" in parameter.opts
    }
    assert having == HOW_MANY
    assert len(having) == 6

    for verb in COMMANDS:
        for parameter in parameters(verb).values():
            if "--top" in parameter.opts:
                assert parameter.opts[0] == "--top-k", verb


def test_files_are_arguments():
    words = ("FILE", "FILES", "INPUT", "CORPUS")
    verbs = {
        verb
        for verb in COMMANDS
        for parameter in parameters(verb).values()
        if parameter.param_type_name == "argument"
        and any(word in str(parameter.metavar) for word in words)
    }
    assert verbs - {"recipes show"} == POSITIONAL
    assert len(POSITIONAL) == 25

    by_option = {verb for verb in COMMANDS if "file" in parameters(verb)}
    by_option = {verb for verb in by_option if parameters(verb)["file"].param_type_name == "option"}
    assert by_option == FILE_OPTION.keys() | ALSO_BY_OPTION


@pytest.fixture
def taken(tmp_path: Path, opinions: Path) -> Path:
    """A file of somebody else in the folder that commands are told to write."""
    path = tmp_path / "taken" / "thesis.txt"
    path.parent.mkdir()
    path.write_text("mine")
    return path


@pytest.mark.in_process
@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_with_something_else_in_it_is_refused(bertctl, tiny_run, tiny_model, taken, verb):
    if verb == "export":
        pytest.importorskip("onnxscript")
    words = [*verb.split(), *typed(FOLDERS[verb], tiny_run.path, tiny_model)]

    plain = bertctl(*words)
    overwriting = bertctl(*words, "--overwrite")

    assert plain.returncode == 2, plain.stderr + overwriting.stderr
    assert overwriting.returncode == 2
    assert "taken" in plain.stderr
    assert taken.read_text() == "mine"
    assert [path.name for path in taken.parent.iterdir()] == ["thesis.txt"]


WRITTEN: dict[str, list[str]] = {
    "predict": ["RUN", "opinions.csv", "-o", "old.jsonl"],
    "explain": ["RUN", "a film", "--faithfulness", "0", "--steps", "1", "-o", "old.jsonl"],
    "tokenize": ["opinions.csv", "--model", "MODEL", "-o", "old.jsonl"],
    "attention": ["MODEL", "a film", "-o", "old.html"],
    "report": ["RUN", "-o", "old.md"],
    "gate": ["RUN", "--min", "accuracy=0.01", "--allow-constant", "--junit", "old.xml"],
    "data check": ["opinions.csv", "--junit", "old.xml"],
    "mine": ["opinions.csv", "--model", "MODEL", "--threshold", "-1", "-o", "old.jsonl"],
    "cluster": ["opinions.csv", "--model", "MODEL", "--clusters", "2", "-o", "old.jsonl"],
    "similarity": ["opinions.csv", "opinions.csv", "--model", "MODEL", "-o", "old.jsonl"],
    "vocab neighbours": ["film", "MODEL", "-o", "old.html"],
    "extract-features": ["opinions.csv", "--model", "MODEL", "--max-length", "16", "-o", "old.npy"],
}


def _output(words: list[str]) -> Iterator[str]:
    return (word for word in words if word.startswith("old."))


@pytest.mark.in_process
@pytest.mark.parametrize("verb", WRITTEN)
def test_a_file_that_is_there_is_replaced(
    bertctl, tiny_run: TinyRun, tiny_model, opinions, tmp_path, verb
):
    words = [*verb.split(), *typed(WRITTEN[verb], tiny_run.path, tiny_model)]
    old = tmp_path / next(_output(words))
    old.write_text("of an earlier command")

    done = bertctl(*words)

    assert done.returncode == 0, done.stderr
    assert b"of an earlier command" not in old.read_bytes()


@pytest.mark.in_process
@pytest.mark.parametrize("verb", ["predict", "tokenize", "mine", "cluster", "extract-features"])
def test_an_input_is_never_replaced(bertctl, tiny_run, tiny_model, opinions, verb):
    words = [*verb.split(), *typed(WRITTEN[verb], tiny_run.path, tiny_model)][:-1]
    before = opinions.read_bytes()

    refused = bertctl(*words, "opinions.csv")

    assert refused.returncode == 2
    assert opinions.read_bytes() == before


@pytest.mark.in_process
@pytest.mark.parametrize(
    "words", [("recipes", "cp", "demo", "mine.yaml"), ("data", "cp", "demo", "mine.yaml")]
)
def test_a_copy_that_you_may_have_edited_is_refused(bertctl, tmp_path, words):
    copied = bertctl(*words)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        path.write_text("edited")

    again = bertctl(*words)
    overwritten = bertctl(*words, "--overwrite")

    assert [copied.returncode, again.returncode, overwritten.returncode] == [0, 2, 0]
    assert "--overwrite" in again.stderr
    assert all(path.read_text() != "edited" for path in files)


@pytest.mark.in_process
def test_a_file_is_an_argument_of_tokenize_and_attention(bertctl, tiny_model, tmp_path):
    (tmp_path / "texts.txt").write_text("a film\nfine\n")

    tokens = bertctl("tokenize", "texts.txt", "--model", tiny_model, "--format", "tokens")
    by_option = bertctl(
        "tokenize", "--file", "texts.txt", "--model", tiny_model, "--format", "tokens"
    )
    heads = bertctl("attention", tiny_model, "texts.txt", "--json")

    assert tokens.returncode == 0, tokens.stderr + heads.stderr
    assert heads.returncode == 0
    assert tokens.stdout == by_option.stdout != ""
    assert "heads" in heads.stdout


@pytest.mark.in_process
def test_a_file_is_an_argument_of_evaluate(bertctl, tiny_run, tmp_path, opinions):
    scored = bertctl("evaluate", tiny_run.path, "opinions.csv", "-o", "scores", "-q")
    by_option = bertctl("evaluate", tiny_run.path, "--file", "opinions.csv", "-o", "again", "-q")

    assert scored.returncode == 0, scored.stderr
    assert by_option.returncode == 0
    scores = [(tmp_path / name / "metrics.json").read_bytes() for name in ("scores", "again")]
    assert scores[0] == scores[1]
