"""Refusals through the real process.

Exit code, one clear message with its remedy, nothing on stdout, no traceback.

All but the last few refuse before torch is imported, so each takes half a second.
"""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bertctl.cli.main import main
from bertctl.config.recipe_files import builtin_recipes
from tests.nursery import Child, Nursery


def refused(result: subprocess.CompletedProcess[str], code: int, *expected_message: str) -> None:
    """What every refusal must be."""
    assert result.returncode == code, result.stderr
    assert result.stdout == "" or "--json" in map(
        str, result.args
    )  # there it is said as a document
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.stderr
    message, _, remedy = result.stderr.partition("error: ")[2].partition("\n")
    assert message
    assert remedy.strip(), "every refusal says what to do"
    for words in expected_message:
        assert words in result.stderr


def rows(*lines: str, encoding: str = "utf-8") -> Callable[[Path], Path]:
    """A maker of a CSV file of these lines."""

    def make(folder: Path) -> Path:
        path = folder / "rows.csv"
        path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
        return path

    return make


def json_rows(*objects: object) -> Callable[[Path], Path]:
    """A maker of a JSONL file of these objects."""

    def make(folder: Path) -> Path:
        path = folder / "rows.jsonl"
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in objects), encoding="utf-8")
        return path

    return make


HEAD = "text,label"
GOOD = (HEAD, "a,pos", "b,neg", "c,pos", "d,neg")

BAD_FILES = {
    "empty": (rows(), "rows.csv is empty"),
    "header only": (rows(HEAD), "header but no rows"),
    "too many fields": (rows(HEAD, "a,pos", "b,neg,more"), "rows.csv:3: 3 fields ", "b,neg,more"),
    "too few fields": (rows(HEAD, "a,pos", "b"), "rows.csv:3: 1 field "),
    "not utf-8": (rows(*GOOD, "café,pos", encoding="latin-1"), "rows.csv:6: byte 0xe9 ", "latin-1"),
    "one label": (
        rows(HEAD, "a,pos", "b,pos", "c,pos"),
        "one label (only 'pos', 2 rows)",
        "--label-column",
    ),
    "decimal labels": (rows(HEAD, "a,0.5", "b,1.5", "c,2.5"), "rows.csv:", "text-regression"),
    "float labels": (
        json_rows({"text": "a", "label": 0.5}, {"text": "b", "label": 1}),
        "rows.jsonl:1",
        "0.5",
    ),
    "NaN": (
        json_rows({"text": "a", "label": float("nan")}, {"text": "b", "label": 1}),
        "jsonl:1: the label is NaN",
    ),
    "nan as a word": (rows(*GOOD, "e,nan"), "rows.csv:6: the label is nan"),
    "empty label": (rows(*GOOD, "e,"), "rows.csv:6: the label is empty"),
    "list for one label": (
        json_rows(
            {"text": "a", "label": "x"},
            {"text": "b", "label": ["x", "y"]},
            {"text": "c", "label": "y"},
        ),
        "the label is a list",
        "text_classification.multi_label=true",
    ),
}


@pytest.mark.in_process
@pytest.mark.parametrize("case", sorted(BAD_FILES))
def test_a_bad_training_file_is_refused_with_file_and_line(case, bertctl, tmp_path, tiny_model):
    make, *message = BAD_FILES[case]
    sets = (
        ["--set", "text_classification.multi_label=false"] if case == "list for one label" else []
    )
    # The same file for validation: nothing is held out, so every row is looked at as a training row
    # or a checked one.
    path = make(tmp_path)
    arguments = ["--train-file", path, "--model", tiny_model, "--max-length", "32"]
    validation = (
        [] if case in ("one label", "empty", "header only") else ["--validation-file", path]
    )
    refused(
        bertctl("finetune", "text-classification", *arguments, *validation, *sets, "-o", "run"),
        3,
        *message,
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.in_process
@pytest.mark.parametrize("label", ["high", "nan", "inf", ""])
def test_labels_that_are_no_numbers_are_refused_by_regression(label, bertctl, tmp_path, tiny_model):
    path = rows("text,score", "a,1.5", "b,2", f"c,{label}")(tmp_path)
    arguments = [
        "--train-file",
        path,
        "--validation-file",
        path,
        "--model",
        tiny_model,
        "--max-length",
        "32",
    ]
    refused(bertctl("finetune", "text-regression", *arguments), 3, "rows.csv:4: the label ")


def test_an_absent_column_shows_those_that_are_there(bertctl, opinions, tiny_model):
    arguments = ["--train-file", opinions, "--model", tiny_model, "--text-column", "txt"]
    message = ("column 'txt': did you mean text?", "text, label")
    refused(bertctl("finetune", "text-classification", *arguments), 3, *message)


def test_a_validation_label_never_seen_in_training_is_refused_with_the_known_ones(
    bertctl, opinions, tiny_model
):
    path = rows(HEAD, "a,pos", "b,meh")(opinions.parent)
    arguments = [
        "--train-file",
        opinions,
        "--validation-file",
        path,
        "--model",
        tiny_model,
        "--max-length",
        "32",
    ]
    message = ("rows.csv:3: the label 'meh' ", "('neg', 'pos')", "text_classification.labels")
    refused(bertctl("finetune", "text-classification", *arguments), 3, *message)


def test_an_unknown_recipe_shows_the_nearest_names(bertctl):
    refused(bertctl("finetune", "sst"), 2, "recipe 'sst': did you mean sst2?", *builtin_recipes())


def test_all_that_is_wrong_with_a_recipe_is_said_at_once(bertctl, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "task: text-classification\ntraining:\n  epoch: 2\n  batch_size: many\n"
    )
    result = bertctl("finetune", "mine.yaml", "--epochs", "0", "--set", "optimiser.learning_rate=1")
    refused(
        result,
        2,
        "mine.yaml: 4 problems",
        "mine.yaml:3: training.epoch: ",
        "mine.yaml:4: training.batch_size: ",
        "--set: optimiser.learning_rate: ",
        "command line: training.epochs: 0 ",
    )


def test_a_missing_file_shows_what_is_there(bertctl, opinions, tiny_model):
    arguments = ["--train-file", "opinion.csv", "--model", tiny_model, "--max-length", "32"]
    result = bertctl("finetune", "text-classification", *arguments)
    refused(result, 4, "opinion.csv does not exist: did you mean opinions.csv?")


def test_a_missing_file_and_a_model_that_does_not_fit_are_said_together(bertctl, tiny_model):
    result = bertctl(
        "finetune", "text-classification", "--train-file", "no.csv", "--model", tiny_model
    )
    refused(result, 4, "no.csv does not exist", "max_length 128 ")


def test_a_max_length_over_the_models_positions_is_refused(bertctl, opinions, tiny_model):
    arguments = ["--train-file", opinions, "--model", tiny_model, "--max-length", "42"]
    result = bertctl("finetune", "text-classification", *arguments)
    refused(result, 2, "max_length 42 ", "--max-length 41")


def test_lower_casing_that_contradicts_the_vocabulary_is_refused(bertctl, opinions, tiny_model):
    arguments = ["--train-file", opinions, "--model", tiny_model, "--max-length", "32"]
    result = bertctl(
        "finetune", "text-classification", *arguments, "--set", "model.lowercase=false"
    )
    refused(result, 2, "model.lowercase is false", "--set model.lowercase=true")


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (("tokenizer.json", "vocab.txt"), "tokenizer.json, vocab.txt"),
        (("model.safetensors",), "no model.safetensors"),
        (("config.json",), "no config.json"),
    ],
)
def test_a_model_folder_that_lacks_something_is_refused(
    left_out, message, bertctl, opinions, tiny_model, tmp_path
):
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    for name in left_out:
        (broken / name).unlink()
    arguments = ["--train-file", opinions, "--model", broken, "--max-length", "32"]
    refused(bertctl("finetune", "text-classification", *arguments), 4, message, "save_pretrained")


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("model", "code", "message"),
    [("bert-bse", 2, "did you mean bert-base"), ("./nowhere", 4, "nowhere does not exist")],
)
def test_a_model_that_is_nowhere_is_refused(model, code, message, bertctl, opinions):
    refused(
        bertctl("finetune", "text-classification", "--train-file", opinions, "--model", model),
        code,
        message,
    )


@pytest.mark.in_process
def test_a_folder_that_is_not_empty_is_left_alone(bertctl, opinions, tiny_model, tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1.txt").write_text("years of work")
    arguments = [
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        "--max-length",
        "32",
        "-o",
        folder,
    ]
    refused(
        bertctl("finetune", "text-classification", *arguments), 2, "is not empty", "--overwrite"
    )
    result = bertctl("finetune", "text-classification", *arguments, "--overwrite")
    refused(result, 2, "does not hold a run")
    assert (folder / "chapter1.txt").read_text() == "years of work"


def test_a_tracker_that_is_not_installed_answers_with_its_install_line(nursery, opinions, tmp_path):
    """In the process every look-up of the package fails, as in an environment without it."""
    hide = "import sys, importlib.util as u; find = u.find_spec\n"
    hide += (
        "u.find_spec = lambda name, *more: None if name == 'tensorboard' else find(name, *more)\n"
    )
    hide += "from bertctl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = [
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--log-to",
        "tensorboard",
    ]
    result = nursery.run_code(hide, *arguments, cwd=tmp_path)
    refused(result, 2, "--log-to tensorboard", "pip install 'bertctl[tensorboard]'")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("evaluate", "nowhere"), 4, "nowhere does not exist"),
        (("predict", "nowhere", "-"), 4, "nowhere does not exist"),
        (("predict", "nowhere"), 2, "nothing to predict"),
        (("predict", "nowhere", "x.csv", "--split", "test"), 2, "exclude each other"),
        (("predict", "nowhere", "x.csv", "--format", "xml"), 2, "format 'xml'"),
        (("predict", "nowhere", "x.csv", "--format", "csv", "--json"), 2, "exclude each other"),
        (("predict", "nowhere", "--split", "test", "--format", "glue"), 2, "-o DIR"),
        (("evaluate", "nowhere", "--split", "test", "--file", "x.csv"), 2, "exclude each other"),
        (("evaluate", "nowhere", "-o", "here"), 2, "-o goes with a file"),
        (("finetune",), 2, "bertctl finetune --help"),
        (("finetune", "demo", "--epoch", "2"), 2, "--epochs"),
        (("finetune", "demo", "--epochs", "two"), 2, "'--epochs': "),
        (("finetune", "demo", "--lr", "1e-5"), 2, "unknown option --lr: use --learning-rate"),
        (("finetune", "demo", "-lr=1e-5"), 2, "unknown option -lr: use --learning-rate"),
        (("finetune", "demo", "--gpu"), 2, "unknown option --gpu: use --device cuda"),
        (("finetune", "demo", "--batch_size", "8"), 2, "use --batch-size"),
        (("sweep", "demo", "--per_device_train_batch_size=8"), 2, "use --batch-size"),
        (("finetune", "demo", "--max-seq-length", "64"), 2, "use --max-length"),
        (("finetune", "demo", "--weight_decay", "0"), 2, "use --set optimizer.weight_decay=0"),
        (("evaluate", "nowhere", "--output_dir", "x"), 2, "use --output"),
        (("finetune", "demo", "--do_train"), 2, "use bertctl finetune RECIPE"),
        (
            ("data", "check", "x.csv", "--sep", ";"),
            2,
            "use --delimiter\nType `bertctl data check --help`",
        ),
        (("predict", "nowhere", "--warmup", "1"), 2, "unknown option --warmup\n"),
        (
            ("tokenize", "--file", __file__, "--encoding", "hex", "--model", "minilm"),
            2,
            "unknown encoding 'hex'",
        ),
        (("fintune", "demo"), 2, "verb 'fintune': did you mean finetune?"),
    ],
)
def test_a_slip_of_the_fingers_is_refused(arguments, code, message, capsys):
    """Through the same boundary, inside this process."""
    returned = main(list(arguments))
    captured = capsys.readouterr()
    refused(
        subprocess.CompletedProcess(arguments, returned, captured.out, captured.err), code, message
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'raise ImportError("x.so: undefined symbol: nk_configure")',
            "rensa is installed and can't be imported",
        ),
        ("from part_of_rensa import fix", "part_of_rensa is not installed"),
        ("from numpy import no_such_function", "numpy is installed and can't be imported"),
    ],
)
def test_a_package_that_is_broken_is_named_and_no_bug_of_ours(
    content, message, tmp_path, monkeypatch, capsys
):
    """Through the same boundary, inside this process."""
    package = tmp_path / "site-packages" / "rensa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(content)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "rensa", raising=False)
    rows = "".join(f"a film about the number {number},{'ab'[number % 2]}\n" for number in range(20))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    returned = main(["data", "check", str(tmp_path / "rows.csv")])
    captured = capsys.readouterr()
    refused(subprocess.CompletedProcess([], returned, captured.out, captured.err), 4, message)
    assert "pip install --force-reinstall" in captured.err
    sys.modules.pop("rensa", None)


def test_debug_shows_no_password_of_a_hub(bertctl, tmp_path):
    """Neither in the message, nor in what caused it."""
    address = "http://user:pa55word@127.0.0.1:9"
    env = {
        "HF_ENDPOINT": address,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path),
        "HTTPS_PROXY": address,
    }
    result = bertctl("fetch", "someone/something", "--debug", env=env)
    assert result.returncode == 4
    assert "Traceback (most recent call last)" in result.stderr
    assert "pa55word" not in result.stderr + result.stdout


def test_debug_shows_the_traceback(bertctl):
    result = bertctl("finetune", "sst", "--debug")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback (most recent call last)" in result.stderr
    assert "bertctl.errors.UsageError" in result.stderr
    assert "recipe 'sst'" in result.stderr


class SilentHub:
    """A socket that accepts and says nothing; it counts who came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.accepted = 0
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            self._kept.append(connection)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)
        for connection in self._kept:
            connection.close()


@pytest.fixture
def silent_hub() -> Iterator[SilentHub]:
    hub = SilentHub()
    yield hub
    hub.close()


def test_a_hub_that_never_answers_is_told_of_after_one_wait(bertctl, silent_hub):
    """Data set and model are both wanted, and the wait is for one answer.

    5 s, of the 10 that are promised.
    """
    result = bertctl(
        "finetune", "sst2", env={"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": silent_hub.address}
    )
    refused(
        result,
        4,
        "the data set 'sst2'",
        "the model 'bert-base'",
        silent_hub.address,
        "no answer within 5 s",
        "--data-dir DIR",
        "--model PATH",
        "--model minilm",
        "a warmed cache",
    )
    assert silent_hub.accepted == 1


@pytest.mark.parametrize("offline", ["option", pytest.param("environment", marks=pytest.mark.slow)])
def test_offline_tries_no_connection(offline, bertctl, opinions, silent_hub):
    env = {
        "HF_ENDPOINT": silent_hub.address,
        "HF_HUB_OFFLINE": "1" if offline == "environment" else "0",
    }
    flags = ["--offline"] if offline == "option" else []
    for arguments in (["sst2"], ["text-classification", "--train-file", opinions]):
        result = bertctl("finetune", *arguments, *flags, env=env)
        refused(result, 4, "the model 'bert-base'", "offline mode", "--model PATH")
    assert silent_hub.accepted == 0


def test_a_hub_that_refuses_connections_is_named(bertctl):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    result = bertctl("finetune", "sst2", env={"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": address})
    refused(result, 4, "the data set 'sst2'", address, "refused", "--data-dir DIR")


def test_cuda_asked_for_and_absent_is_never_a_silent_cpu(bertctl, opinions, tiny_model, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    arguments = ["--train-file", opinions, "--model", tiny_model, "--max-length", "32", "-o", "run"]
    result = bertctl("finetune", "text-classification", *arguments, "--device", "cuda")
    refused(result, 5, "the device 'cuda' ", "(found: cpu)", "--device cpu")
    assert not (tmp_path / "run").exists()


def _training(nursery: Nursery, folder: Path, data: Path, model: Path) -> Child:
    """A process that trains until it is stopped."""
    settings = ["--max-length", "32", "--precision", "fp32", "--threads", "1", "--epochs", "100000"]
    arguments = [
        "--train-file",
        data,
        "--model",
        model,
        "-o",
        folder,
        "--set",
        "training.evaluate_every=20",
    ]
    arguments += ["--set", "training.preset=null", "--set", "model.head_start=random"]
    words = ["finetune", "text-classification", *map(str, arguments), *settings]
    return nursery.start(words, cwd=folder.parent, env=nursery.env)


def test_ctrl_c_and_sigterm_say_what_was_saved(nursery, opinions, tiny_model, tmp_path):
    """Both at once, so that the two processes import at the same time."""
    how = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}
    running = {
        number: _training(nursery, tmp_path / word, opinions, tiny_model)
        for number, (word, _) in how.items()
    }
    for number, process in running.items():
        word, code = how[number]
        folder = tmp_path / word
        deadline = time.monotonic() + 3600
        while not (folder / "model" / "config.json").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=3600)
        refused(
            subprocess.CompletedProcess([], process.returncode, stdout, stderr),
            code,
            f"{word} at step ",
        )
        assert str(folder / "checkpoints") in stderr
        assert f"bertctl finetune {folder / 'recipe.yaml'} -o {folder} --resume" in stderr
        status = json.loads((folder / "status.json").read_text())
        assert status["state"] == "interrupted"
        assert status["step"] >= 20
        assert "checkpoint" in status["message"]
        assert not list(folder.rglob("*.part"))
        assert {path.name for path in (folder / "model").iterdir()} >= {
            "config.json",
            "model.safetensors",
        }


def test_a_full_disk_ends_the_run_with_its_state_written(nursery, opinions, tiny_model, tmp_path):
    """The limit on a file's size stands in for the disk.

    Both stop the weights in the middle of a file.
    """
    folder = tmp_path / "run"
    limit = (tiny_model / "model.safetensors").stat().st_size // 2
    arguments = [
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        "--max-length",
        "32",
        "-o",
        folder,
    ]
    words = ["finetune", "text-classification", *map(str, arguments)]
    process = nursery.start(words, cwd=tmp_path, env=os.environ)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    stdout, stderr = process.communicate(120)
    result = subprocess.CompletedProcess(words, process.returncode, stdout, stderr)
    refused(result, 4, "model.safetensors: the disk is full", "-o")
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "failed"
    assert "the disk is full" in status["message"]
    assert (folder / "history.jsonl").exists()
    assert not list(folder.rglob("*.part"))
    assert not list(folder.rglob("*.safetensors"))


def test_a_full_disk_behind_stdout_is_no_bug_of_ours(nursery, tmp_path):
    """`bertctl recipes ls > /full/disk`; /dev/full is one."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("w") as full:
        process = nursery.start(
            ["recipes", "ls"], cwd=tmp_path, env=os.environ, stdout=full.fileno()
        )
    _, stderr = process.communicate(60)
    assert process.returncode == 4
    assert "error: stdout can't be written: No space left on device\n" in stderr


@pytest.mark.parametrize(
    "words", [("tokenize", "x", "--model"), ("inspect",), ("fetch",), ("score",)]
)
def test_the_home_of_a_user_that_is_not_there_is_no_bug_of_ours(bertctl, words):
    """The shell leaves such a name as it is; Path.expanduser raises RuntimeError."""
    place = "~nobody-of-that-name/model"
    last = ("a text",) if words == ("score",) else ()
    refused(
        bertctl(*words, place, *last),
        4,
        f"the model folder {place} does not exist",
        "Give a folder",
    )


def test_a_cache_without_a_home_says_what_to_name(bertctl, tmp_path):
    """As in a container with a user that /etc/passwd lacks; there it is HOME that is not known."""
    (tmp_path / "corpus.txt").write_text("a film\n\na good film\n\nnot a film\n")
    env = {"BERTCTL_CACHE": "~nobody-of-that-name/cache"}
    result = bertctl("pretrain", "corpus.txt", "--from-scratch", "tiny", "-o", "run", env=env)
    refused(
        result,
        4,
        "BERTCTL_CACHE is ~nobody-of-that-name/cache",
        "Name a folder where you may write",
    )


def test_a_label_that_only_held_out_rows_have_is_not_taken_for_a_slip_alone(
    bertctl, tiny_model, tmp_path
):
    (tmp_path / "rows.csv").write_text(
        "text,label\n" + "".join(f"text {i},class {i}\n" for i in range(20))
    )
    done = bertctl(
        "finetune",
        "text-classification",
        "--train-file",
        "rows.csv",
        "--model",
        tiny_model,
        "--max-length",
        "40",
    )
    refused(
        done,
        3,
        "is not one the model knows",
        "did you mean class 1",
        "--set text_classification.labels=",
    )


def test_what_only_training_takes_is_not_said_of_other_verbs(bertctl, tiny_run, tmp_path):
    (tmp_path / "long.txt").write_text("a" * 16_000_001)
    refused(
        bertctl("predict", tiny_run.path, "long.txt"),
        3,
        "more than 16 MB",
        "train with --set data.longest_line=",
    )
    (tmp_path / "choices.csv").write_text("q,one,two\nthe film is,good,bad\n")
    done = bertctl(
        "finetune", "multiple-choice", "--train-file", "choices.csv", "--model", "minilm"
    )
    refused(done, 2, "Call them choice1, choice2", "in training")
