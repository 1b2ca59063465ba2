"""A run folder of somebody else, damaged in one place.

Every verb that reads it names the file and ends with 2 to 4.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
from made_runs import classified, made_run

from bertctl.errors import DataError
from bertctl.modeling.linear_head import DOCUMENT, read_probe
from bertctl.run_folder import RunFolder
from bertctl.training.checkpoints.checkpoint import Checkpoints

VERBS = (
    ("gate", "{run}", "--min-slice", "label=negative:recall=0.1"),
    ("compare", "{run}", "{sound}"),
    ("report", "{run}", "-o", "report.html"),
)
DEEP = "[" * 100_000

DAMAGES = (
    # file, what it is replaced by (a function of its JSON, or bytes), exit code, what is said
    ("status.json", lambda _: {}, 3, "state: field required"),
    ("status.json", lambda _: [], 4, "list where an object is needed"),
    ("status.json", b"\xff\xfe{", 4, "status.json:1: byte 0xff is not UTF-8"),
    ("metrics.json", b"null", 4, "NoneType where an object is needed"),
    ("metrics.json", DEEP.encode(), 4, "nested too deeply"),
    ("metrics.json", b"1" * 5000, 4, "no JSON"),
    (
        "metrics.json",
        lambda d: {k: v for k, v in d.items() if k != "primary"},
        3,
        "primary: field required",
    ),
    (
        "metrics.json",
        lambda d: {**d, "metrics": []},
        3,
        "metrics: input should be a valid dictionary",
    ),
    (
        "metrics.json",
        lambda d: {**d, "metrics": {"validation": {"accuracy": {}}}},
        3,
        "accuracy.value: field required",
    ),
    ("metrics.json", b'{"metrics": {"\\ud800": {}}}', 4, "half of a surrogate pair"),
    ("predictions/validation.jsonl", b"\n", 2, "holds no predictions"),
    (
        "predictions/validation.jsonl",
        b'{"id": "0"}\n',
        3,
        "validation.jsonl:1: gold: field required",
    ),
    (
        "predictions/validation.jsonl",
        b"[]\n",
        3,
        "validation.jsonl:1: list where an object is needed",
    ),
    ("predictions/validation.jsonl", b'\n{"id": 1, "gold"', 3, "validation.jsonl:2: no JSON"),
    (
        "predictions/validation.jsonl",
        b'{"id": "0", "gold": "a", "prediction": "b", "tokens": ' + b"9" * 26 + b"}\n",
        3,
        "tokens: input should be less than or equal to 9223372036854775807",
    ),
    ("recipe.yaml", b"name: \xff\n", 2, "recipe.yaml:1: byte 0xff is not UTF-8"),
    ("recipe.yaml", b"- a\n", 2, "a list found"),
    ("recipe.yaml", b"task: 5\n", 2, "task: 5 given"),
    ("recipe.yaml", b"model: 3\n", 2, "model: 3 given"),
)
ONLY_REPORT = (
    ("history.jsonl", b"3\n", 3, "history.jsonl:1: int where an object is needed"),
    (
        "history.jsonl",
        b'{"step": 1, "loss": "low"}\n',
        3,
        "history.jsonl:1: loss: input should be a valid number",
    ),
    (
        "performance.json",
        b'{"seconds": {"train": null}}',
        3,
        "seconds.train: input should be a valid number",
    ),
    ("environment.json", b'{"packages": []}', 3, "packages: input should be a valid dictionary"),
    (
        "predictions/validation.jsonl",
        b'{"id": "0", "gold": {"a": 1}, "prediction": "b"}\n',
        3,
        "can't be used",
    ),
    ("decision.json", b'{"temperature": -1}', 4, "is not a decision"),
)


@pytest.mark.in_process
def test_a_damaged_file_is_named_and_is_never_a_bug(bertctl, tmp_path):
    sound = made_run(tmp_path / "sound", classified(40))
    messages = []
    for number, (name, damage, code, words) in enumerate((*DAMAGES, *ONLY_REPORT)):
        run = made_run(tmp_path / str(number), classified(40))
        content = damage
        if callable(damage):
            content = json.dumps(damage(json.loads((run / name).read_bytes()))).encode()
        (run / name).write_bytes(content)
        for verb, *words_typed in VERBS[-1:] if number >= len(DAMAGES) else VERBS:
            done = bertctl(verb, *(word.format(run=run, sound=sound) for word in words_typed))
            messages.append((verb, name, done.returncode, done.stderr))
            # what `compare` can't pair it compares unpaired, and says so
            recorded = verb == "compare" and name.startswith("predictions") and done.returncode == 0
            assert recorded or done.returncode == code, (verb, name, content[:80], done.stderr)
            assert words in " ".join(done.stderr.split()), (verb, name, done.stderr)
            assert "Traceback" not in done.stderr
    assert len(messages) == 3 * 19 + 6


def _token(run: Path) -> None:
    tokenizer = json.loads((run / "model/tokenizer.json").read_bytes())
    tokenizer["added_tokens"][0]["\n::error::not from here\n"] = True
    (run / "model/tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def _pipe(run: Path) -> None:
    (run / "model/README.md").unlink()
    os.mkfifo(run / "model/README.md")


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("damage", "words", "code", "message"),
    [
        (
            lambda run: (run / "performance.json").write_text('{"seconds": {}}'),
            "--resume",
            0,
            "is finished already",
        ),
        (
            lambda run: (run / "environment.json").write_text("{}"),
            "--resume",
            3,
            "environment.json: recipe_hash: field required",
        ),
        (_pipe, "evaluate", 2, "README.md is a pipe or a device where a file belongs"),
        (_token, "evaluate", 4, "tokenizer.json: the token '[PAD]' has the key '\\n::error::"),
    ],
    ids=["figures", "environment", "a pipe", "a key that a library prints"],
)
def test_what_mutated_runs_have_shown(bertctl, tiny_run, tmp_path, damage, words, code, message):
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    damage(run)
    verb = (
        ["finetune", str(run / "recipe.yaml"), "-o", run, "--resume"]
        if words == "--resume"
        else [words, run]
    )
    done = bertctl(*verb)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert not done.stdout or code == 0


def test_a_manifest_without_an_end_is_not_read(tmp_path):
    messages = []
    (tmp_path / "checkpoints/step-00000004").mkdir(parents=True)
    (tmp_path / "checkpoints/step-00000004/manifest.json").symlink_to("/dev/zero")

    class Heard:
        warn = messages.append

    assert Checkpoints(RunFolder(tmp_path), "", listener=Heard()).latest() is None
    assert "manifest.json is not a regular file" in messages[0]


def test_a_pooling_that_is_none_is_refused(tmp_path):
    fields = {
        "encoder": "x",
        "encoder_hash": "x",
        "layer": "last",
        "pooling": "a\0b",
        "special_tokens": True,
    }
    more = {"schema": 1, "normalize": False, "classifier": "ridge", "strength": 1.0, "head": {}}
    (tmp_path / DOCUMENT).write_text(json.dumps(fields | more), encoding="utf-8")
    with pytest.raises(DataError, match="pooling: input should be 'cls'"):
        read_probe(tmp_path)
