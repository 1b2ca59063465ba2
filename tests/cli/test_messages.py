"""One whole message per class of errors.

`error: ` and what was given, then what fits and what to type, and the code.

Everywhere else the tests look for places, names and values only, so that wording can be mended here
and in the source.
"""

import re

import pytest

import bertctl.config.load
from bertctl.cli.main import main
from bertctl.errors import ExitCode


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """Gives a function that runs a command line in the test's own folder.

    Its exit code and its standard error.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main(list(arguments))
        captured = capsys.readouterr()
        assert captured.out == ""
        return code, captured.err

    return run


def test_a_usage_error_says_which_options_exclude_each_other(refusal):
    assert refusal("predict", "nowhere", "x.csv", "--split", "test") == (
        ExitCode.USAGE,
        "error: a file, --text or --question, and --split or --data exclude each other\nGive one "
        "of them.\n",
    )


def test_recipe_error_lists_every_problem(refusal, tmp_path):
    (tmp_path / "mine.yaml").write_text("training:\n  epoch: 2\n  batch_size: many\n")
    assert refusal("finetune", "mine.yaml", "--set", "model.name=bert-bse") == (
        ExitCode.USAGE,
        "error: mine.yaml: 2 problems\n"
        "  mine.yaml:2: training.epoch: unknown key, did you mean training.epochs?\n"
        '  mine.yaml:3: training.batch_size: "many" given, a whole number of at least 1 fits\n'
        "`bertctl recipes show text-classification` prints every field with its meaning.\n",
    )


@pytest.mark.parametrize(
    ("verb", "recipe", "section"),
    [
        ("finetune", "stsb-embeddings", "sentence_embeddings"),
        ("finetune", "squad", "question_answering"),
        ("pretrain", "pretrain-demo", "pretraining"),
    ],
)
def test_an_unknown_field_points_to_a_recipe_that_has_the_fields_of_its_task(
    bertctl, refusal, verb, recipe, section
):
    code, message = refusal(verb, recipe, "--set", f"{section}.nonsense=1")
    assert code == ExitCode.USAGE
    (output,) = re.findall(r"`(bertctl recipes show [\w-]+)` prints every field", message)
    assert f"\n{section}:" in bertctl(*output.split()[1:]).stdout


def test_a_data_error_names_file_line_and_what_to_type(refusal, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\na,pos\nb\n")
    assert refusal(
        "finetune", "text-classification", "--train-file", "rows.csv", "--model", "minilm"
    ) == (
        ExitCode.DATA,
        f"error: {tmp_path}/rows.csv:3: 1 field where the header has 2 (text, label): 'b'\n"
        "A comma inside a field needs quotes around the field. Separator and header can be said: "
        "--delimiter tab, --no-header.\n",
    )


def test_unavailable_error(refusal):
    assert refusal("evaluate", "nowhere") == (
        ExitCode.UNAVAILABLE,
        "error: nowhere does not exist\n"
        "Give the folder that `bertctl finetune` named in its last lines, such as "
        "runs/sst2-1a2b3c4d.\n",
    )


def test_device_error(refusal, monkeypatch):
    def starve(*_, **__):
        raise MemoryError

    monkeypatch.setattr(bertctl.config.load, "trace_recipe", starve)
    assert refusal("finetune", "demo") == (
        ExitCode.DEVICE,
        "error: out of memory\n"
        "Try a smaller --max-length, a smaller --batch-size, or --set "
        "training.accumulation_steps=2.\n",
    )


def test_diverged_error(refusal, tmp_path, tiny_model):
    rows = "".join(f"good film {i},{i}\n" for i in range(8))
    (tmp_path / "scores.csv").write_text(f"text,label\n{rows}")
    (tmp_path / "other.csv").write_text("text,label\n" + rows.replace("good", "bad"))
    files = ("--train-file", "scores.csv", "--validation-file", "other.csv", "--batch-size", "4")
    model = ("--model", str(tiny_model), "--max-length", "32", "--learning-rate", "1e30")
    model += ("--set", "training.preset=null")
    code, message = refusal("finetune", "text-regression", *files, *model, "-q", "-o", "run")
    assert code == ExitCode.DIVERGED
    assert re.fullmatch(
        r"error: training diverged at step 2: the loss is (inf|nan) "
        r"\(learning rate \d\.\d\de\+\d\d; batch with ids [\d, ]+\)\n"
        r"Try a lower --learning-rate, a longer warm-up \(--set optimizer\.warmup_fraction=0\.2\) "
        r"or --precision fp32; "
        r"look at those examples\.\n",
        message,
    )


def test_interrupted_run_error(refusal, monkeypatch):
    """It said that nothing could be saved, after the end of a training.

    It did so after the end of all runs of a sweep too.
    """

    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bertctl.config.load, "trace_recipe", press)
    assert refusal("finetune", "demo") == (
        ExitCode.INTERRUPTED,
        "error: interrupted; only files that were complete by then are kept\n",
    )


def test_a_working_folder_that_was_deleted_is_named(refusal, tmp_path, monkeypatch):
    """It was "No such file or directory", or the end of the process with 2.

    The latter came from a library of torch's.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    message = "error: the working folder has been deleted\nChange into another (cd).\n"
    assert refusal("runs", "ls") == refusal("recipes", "ls") == (ExitCode.UNAVAILABLE, message)
