"""Models and runs of somebody else.

Nothing that they name is run or fetched, and what is wrong with them is said.
"""

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from bertctl.data.decoding import decoded_lines
from bertctl.data.text_files import open_bytes
from bertctl.errors import DataError
from bertctl.progress import SILENT

EVIL = """import pathlib

pathlib.Path({trace!r}).touch()
import datasets
import evaluate

class Evil(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        of = datasets.Features({{"predictions": text, "references": text}})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=of)

    def _compute(self, predictions, references):
        return {{"evil": 1.0}}
"""


def _change(file: Path, **fields: object) -> None:
    document = json.loads(file.read_text())
    document.update(fields)
    file.write_text(json.dumps(document))


def _config(**fields):
    return lambda model: _change(model / "config.json", **fields)


def _is(name, content):
    return lambda model: (model / name).write_bytes(content)


def _bare_vocabulary(model):
    (model / "tokenizer.json").unlink()
    (model / "vocab.txt").write_bytes(b"[PAD]\n[UNK]\ng\xffod\n")


def _large(name, size):
    return lambda model: os.truncate(model / name, size)


def _pipe(model):
    (model / "model.safetensors").unlink()
    os.mkfifo(model / "model.safetensors")


KERNEL = "kernels-community/flash-attn"
MODELS = (
    # what is other about it, what is done to a small model, exit code, what is said
    ("kernel", _config(_attn_implementation=KERNEL), 4, f"_attn_implementation is '{KERNEL}'"),
    (
        "kernel by its other name",
        _config(attn_implementation=f"{KERNEL}@main:evil"),
        4,
        "code or weights from elsewhere",
    ),
    (
        "kernel behind a name",
        _config(attn_implementation="flash_attention_2"),
        4,
        "eager and sdpa would fit",
    ),
    (
        "kernels in a list",
        _config(attn_implementation=[KERNEL]),
        4,
        "code or weights from elsewhere",
    ),
    (
        "kernel of a part",
        _config(text_config={"attn_implementation": KERNEL}),
        4,
        "code or weights from elsewhere",
    ),
    (
        "experts",
        _config(experts_implementation="someone/moe"),
        4,
        "experts_implementation is 'someone/moe'",
    ),
    (
        "quantized",
        _config(quantization_config={"quant_method": "evil"}),
        4,
        "quantization_config is",
    ),
    (
        "other weights",
        _config(transformers_weights="evil.bin"),
        4,
        "transformers_weights is 'evil.bin'",
    ),
    (
        "backbone",
        _config(model_type="detr", backbone="someone/resnet"),
        4,
        "backbone is 'someone/resnet'",
    ),
    (
        "adapter",
        _is("adapter_config.json", b'{"base_model_name_or_path": "a/b"}'),
        4,
        "an adapter names its model",
    ),
    (
        "own code",
        _config(model_type="evil", auto_map={"AutoModel": "evil.Evil", "AutoConfig": "evil.C"}),
        2,
        "never run",
    ),
    (
        "config is a list",
        _is("config.json", b"[]"),
        4,
        "config.json: list where an object is needed",
    ),
    (
        "config is null",
        _is("config.json", b"null"),
        4,
        "config.json: NoneType where an object is needed",
    ),
    (
        "config is deep",
        _is("config.json", b"[" * 100_000),
        4,
        "config.json: no JSON: nested too deeply",
    ),
    ("config of wrong types", _config(num_hidden_layers="two"), 4, "can't be used"),
    ("layers by half", _config(num_hidden_layers=1.5), 2, "does not give its number of layers"),
    ("200,000 keys", _config(**{f"k{i}": i for i in range(200_000)}), 4, "keys and 0 labels"),
    ("a million labels", _config(num_labels=1_000_000), 4, "1,000,000 labels"),
    ("10^8 layers", _config(num_hidden_layers=10**8), 4, "describes 100,000,000 layers"),
    ("10^12 tokens", _config(vocab_size=10**12), 5, "needs 144000.0 GB of memory"),
    (
        "tokenizer is a list",
        _is("tokenizer.json", b"[]"),
        4,
        "tokenizer.json: list where an object is needed",
    ),
    (
        "tokenizer is null",
        _is("tokenizer.json", b"null"),
        4,
        "tokenizer.json: NoneType where an object is needed",
    ),
    (
        "tokenizer of 190 MB",
        _large("tokenizer.json", 190_000_000),
        4,
        "tokenizer.json is larger than 67 MB",
    ),
    ("vocabulary of broken bytes", _bare_vocabulary, 4, "vocab.txt:3: byte 0xff is not UTF-8"),
    (
        "odd settings",
        _is("tokenizer_config.json", b'{"do_lower_case": [], "model_max_length": {}}'),
        4,
        "can't be used",
    ),
    ("weights that are a pipe", _pipe, 4, "has no model.safetensors"),
    ("weights that are none", _is("model.safetensors", b"\xff" * 100), 4, "can't be used"),
)


@pytest.mark.in_process
def test_a_hostile_model_is_refused_in_a_sentence(bertctl, tiny_model, tmp_path):
    (tmp_path / "few.txt").write_text("the film was good\n")
    evil = "import pathlib\npathlib.Path('pwned').touch()\n"
    wrong = []
    for name, damage, code, words in MODELS:
        model = tmp_path / "models" / name
        shutil.copytree(tiny_model, model)
        (model / "evil.py").write_text(evil)
        damage(model)
        done = bertctl(
            "extract-features", "few.txt", "--model", model, "--max-length", "16", "-o", "x.npy"
        )
        text = " ".join(done.stderr.split())
        if (done.returncode, words in text, "Traceback" in text) != (code, True, False):
            wrong.append((name, done.returncode, text))
        assert not (tmp_path / "x.npy").exists(), name
    assert wrong == []
    assert not list(tmp_path.rglob("pwned"))
    assert len(MODELS) == 27


@pytest.mark.in_process
def test_the_code_that_a_run_names_is_not_run_unless_it_is_typed(bertctl, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    trace = tmp_path / "trace"
    script = tmp_path / "evil.py"
    script.write_text(EVIL.format(trace=str(trace)))
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["evaluation"]["metric_scripts"] = [str(script)]
    recipe["runtime"]["log_to"] = ["wandb"]
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    commands = (
        ("evaluate", run, "--split", "test"),
        ("evaluate", run, "--file", tiny_run.data, "-o", "scores"),
        ("evaluate", run, "--calibrate"),
        ("finetune", run / "recipe.yaml", "-o", "again"),
        ("finetune", tmp_path / "theirs.yaml", "-o", "again"),
        ("sweep", tmp_path / "theirs.yaml", "--seeds", 2, "-o", "again"),
    )
    shutil.copy(run / "recipe.yaml", tmp_path / "theirs.yaml")
    for command in commands:
        done = bertctl(*command)
        assert done.returncode == 2, (command, done.stderr)
        named_by = next(
            (word for word in command if str(word).endswith(".yaml")), run / "recipe.yaml"
        )
        assert f"evaluation.metric_scripts: {script}: named by {named_by}" in done.stderr
        assert f"--metric {script}" in done.stderr
    tracked = bertctl("finetune", run / "recipe.yaml", "--metric", script, "-o", "again")
    assert tracked.returncode == 2
    assert "runtime.log_to: wandb: named by" in tracked.stderr
    assert bertctl("predict", run, tiny_run.data).returncode == 0
    assert bertctl("report", run, "-o", "report.html").returncode == 0
    assert not trace.exists()
    done = bertctl("evaluate", run, "--split", "test", "--metric", script)
    assert done.returncode == 0, done.stderr
    assert trace.exists()


def _recipes() -> Iterator[tuple[str, str]]:
    """Yields what is typed into a file, and what is said."""
    yield "".join(f"k{i}: {i}\n" for i in range(100_000)), "larger than 524 kB"
    yield "description: " + "x" * 20_000_000, "larger than 524 kB"
    yield "training:\n" + "".join(f"  epocs{i}: 1\n" for i in range(5000)), "... and 4,980 more"
    yield (
        "name: [" + "a," * 100_000 + "]",
        "yaml:1: larger than is read: more than 524,288 characters or 20,000 keys",
    )
    yield (
        "".join(f"a{i}: &x{i} [*x{i - 1}, *x{i - 1}]\n" for i in range(5000)),
        "the alias *x-1: write the value out",
    )
    yield (
        "data: &" + "a" * 200_000 + " 1\nmodel: *" + "a" * 200_000,
        "column 8: not YAML: the alias *aaa",
    )
    yield "a: " + "[" * 100_000, "nested too deeply"
    yield 'name: "\\ud800"', "1: name: half of a surrogate pair"
    yield 'data:\n  .: 1\n  "http://127.0": 2\n', "2: data..: unknown key"
    yield (
        "runtime: {threads: 99999999999999999999999999}",
        "runtime.threads: a number of more than 18 digits",
    )


@pytest.mark.in_process
def test_a_recipe_that_is_a_bomb_is_refused_in_a_few_lines(bertctl, tmp_path):
    wrong = []
    recipes = list(_recipes())
    for text, words in recipes:
        (tmp_path / "recipe.yaml").write_text(text)
        done = bertctl("recipes", "validate", "recipe.yaml", env={"COLUMNS": "200"})
        if done.returncode != 2 or words not in done.stderr or len(done.stderr) > 3000:
            wrong.append((text[:40], done.returncode, done.stderr[:600]))
    assert wrong == []
    assert len(recipes) == 10


def test_a_line_that_fills_the_memory_is_refused_unless_it_is_asked_for(bertctl, tmp_path):
    with gzip.open(tmp_path / "rows.csv.gz", "wb", compresslevel=1) as out:
        out.write(b"text,label\ngood,x\nbad,y\n" + b"good " * 3_500_000 + b",x\nbad,y\n")
    typed = (
        "finetune",
        "text-classification",
        "--train-file",
        "rows.csv.gz",
        "--model",
        "nowhere/tiny",
    )
    done = bertctl("data", "check", "rows.csv.gz")
    assert done.returncode == 3, done.stderr
    assert "rows.csv.gz:4: this line has more than 16 MB" in done.stdout.replace("\n", " ")
    for megabytes, code, words in (
        (16, 3, "train with --set data.longest_line=MEGABYTES"),
        (18, 4, "'nowhere/tiny'"),
    ):
        done = bertctl(*typed, "--set", f"data.longest_line={megabytes}")
        assert done.returncode == code, done.stderr
        assert words in done.stderr


def test_a_line_is_refused_before_it_is_in_memory(tmp_path):
    """Packed letters are no bomb by their size; the line is too long all the same."""
    letters = np.random.default_rng(0).bytes(5_000_000).hex().encode()
    with gzip.open(tmp_path / "rows.csv.gz", "wb", compresslevel=1) as out:
        out.write(b"text,label\n")
        for _ in range(8):
            out.write(letters)
    tracemalloc.start()
    with (
        open_bytes(tmp_path / "rows.csv.gz") as file,
        pytest.raises(DataError, match=r":2: this line has more"),
    ):
        list(decoded_lines(file, "rows", None, SILENT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


@pytest.mark.slow
def test_python_without_docstrings_and_too_little_room_are_said_as_such(tiny_model, tmp_path):
    (tmp_path / "few.txt").write_text("the film was good\n")
    words = [
        "-m",
        "bertctl",
        "extract-features",
        "few.txt",
        "--model",
        tiny_model,
        "--max-length",
        "16",
        "-o",
        "x.npy",
    ]
    expected = (
        ("ulimit -v 1000000", 5, "`ulimit -v` allows"),
        ("export PYTHONOPTIMIZE=2", 2, "-OO"),
    )
    for before, code, message in expected:
        line = f"{before}; {shlex.join(map(str, [sys.executable, *words]))}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=3600
        )
        assert done.returncode == code, done.stderr
        assert message in done.stderr
