"""An exported folder takes the place of its run, without torch; one that was changed is refused."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bertctl as api
from bertctl.documents import read_json, sha256_of
from bertctl.errors import ExitCode, UnavailableError
from bertctl.run_documents.export_document import digest_of
from tests.conftest import Run, TinyRun

TEXTS = ["the film was very good", "bad", "a dull film, not fine at all, not bright"]


def answers_of(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def assert_same_answers(export: list[dict[str, Any]], run: list[dict[str, Any]]) -> None:
    """Answers are equal, but for the last digits of their probabilities."""
    assert len(export) == len(run)
    for ours, theirs in zip(export, run, strict=True):
        probabilities = ours.pop("probabilities")
        assert probabilities == pytest.approx(theirs.pop("probabilities"), abs=1e-5)
        assert ours.pop("probability") == pytest.approx(theirs.pop("probability"), abs=1e-5)
        assert ours == theirs


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): sha256_of(path) for path in files}


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes export.json, with the digest that then belongs to it."""
    path = folder / "export.json"
    document = read_json(path)
    change(document)
    document["digest"] = digest_of(document)
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture
def copy(tiny_export: Path, tmp_path: Path) -> Path:
    """The export, to be changed."""
    return Path(shutil.copytree(tiny_export, tmp_path / "copy"))


def test_predict_answers_a_file_as_the_run_does(
    bertctl: Run, tiny_run: TinyRun, tiny_export: Path
) -> None:
    options = [str(tiny_run.data), "--format", "jsonl"]

    by_run = bertctl("predict", tiny_run.path, *options, "--precision", "fp32", "--device", "cpu")
    by_export = bertctl("predict", tiny_export, *options)

    assert by_export.returncode == 0, by_export.stderr
    assert_same_answers(answers_of(by_export.stdout), answers_of(by_run.stdout))


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "{export}", "a fine film"],
        ["evaluate", "{export}", "{data}", "-o", "scores"],
        ["extract-features", "{data}", "--model", "{export}", "-o", "vectors.npy"],
        ["similarity", "a film", "a book", "--model", "{export}"],
        ["index", "{data}", "--model", "{export}", "-o", "index"],
        ["gate", "{export}", "--min", "accuracy=0.5", "--policy", "point"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_neither_torch_nor_transformers_is_imported(
    arguments: list[str], tiny_run: TinyRun, tiny_export: Path, tmp_path: Path
) -> None:
    positions = {"export": tiny_export, "data": tiny_run.data}
    words = [word.format(**positions) for word in arguments]
    heavy = {"torch", "transformers", "sklearn", "datasets", "accelerate", "pandas"}
    code = (
        "import sys; from bertctl.cli.main import main\n"
        f"sys.argv = ['bertctl', *{words!r}]\n"
        "assert main() == 0\n"
        f"assert not {heavy} & {{*sys.modules}}, {heavy} & {{*sys.modules}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_python_uses_an_export_as_a_run(tiny_run: TinyRun, tiny_export: Path) -> None:
    run = api.load_run(tiny_run.path, {"runtime.device": "cpu", "runtime.precision": "fp32"})
    export = api.load_run(tiny_export)

    assert_same_answers(export.predict(TEXTS), run.predict(TEXTS))
    assert export.metrics == run.metrics
    with pytest.raises(UnavailableError, match="needs the network that it was made from"):
        _ = export.model_path


def test_evaluate_scores_as_the_run_and_leaves_the_export_alone(
    bertctl: Run, tiny_run: TinyRun, tiny_export: Path, tmp_path: Path
) -> None:
    before = hashes(tiny_export)

    scored = bertctl("evaluate", tiny_export, "-o", tmp_path / "scores")

    assert scored.returncode == 0, scored.stderr
    assert hashes(tiny_export) == before
    ours = read_json(tmp_path / "scores" / "metrics.json")["metrics"]["validation"]
    theirs = read_json(tiny_run.path / "metrics.json")["metrics"]["validation"]
    assert ours["accuracy"] == theirs["accuracy"]
    assert ours["loss"]["value"] == pytest.approx(theirs["loss"]["value"], abs=1e-5)
    done = bertctl("gate", tmp_path / "scores", "--min", "accuracy=0.1", "--policy", "point")
    assert done.returncode == 0, done.stderr


def test_python_scores_an_export_without_writing(tiny_run: TinyRun, tiny_export: Path) -> None:
    before = hashes(tiny_export)

    scored = api.evaluate(tiny_export)

    expected = api.load_run(tiny_run.path).metrics["validation"]
    assert scored["validation"] == pytest.approx(expected, abs=1e-5)
    assert hashes(tiny_export) == before


def test_gate_and_compare_read_an_export(
    bertctl: Run, tiny_run: TinyRun, tiny_export: Path
) -> None:
    limits = ["--max-drop", "accuracy=0.01", "--policy", "point"]

    done = bertctl("gate", tiny_export, "--baseline", tiny_run.path, *limits, "--json")
    compared = bertctl("compare", tiny_run.path, tiny_export, "--json")

    assert done.returncode == 0, done.stderr
    [check] = json.loads(done.stdout)["checks"]
    assert check["change"]["value"] == 0.0
    assert compared.returncode == 0, compared.stderr


def test_vectors_are_those_of_the_model(
    bertctl: Run, tiny_run: TinyRun, tiny_export: Path, tmp_path: Path
) -> None:
    model = tiny_run.path / "model"
    for pooling in ("mean", "cls", "max", "mean-max"):
        vectors = []
        for number, encoder in enumerate((model, tiny_export)):
            output = tmp_path / f"{pooling}-{number}.npy"
            options = ["--pooling", pooling, "--max-length", "16", "--no-special-tokens"]
            made = bertctl(
                "extract-features",
                tiny_run.data,
                *("--model", encoder, "-o", output, "--precision", "fp32"),
                *(options if pooling != "cls" else options[:-1]),
            )
            assert made.returncode == 0, made.stderr
            vectors.append(np.load(output))

        np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)


def test_an_index_of_an_export_is_searched_with_it(
    bertctl: Run, tiny_run: TinyRun, tiny_export: Path
) -> None:
    made = bertctl("index", tiny_run.data, "--model", tiny_export, "-o", "index")
    done = bertctl("search", "index", "it was bad food dull 0", "--json")

    assert made.returncode == 0, made.stderr
    [first, *_] = json.loads(done.stdout)["answers"]
    assert first["text"] == "it was bad food dull 0"
    assert first["score"] == pytest.approx(1.0, abs=1e-5)


def test_an_index_of_an_export_is_searched_by_its_graph_in_a_process_of_its_own(
    bertctl: Run, tiny_run: TinyRun, tiny_export: Path, tmp_path: Path
) -> None:
    """Loaded in the wrong order, usearch and ONNX Runtime end a process without a word."""
    pytest.importorskip("usearch")
    index = tmp_path / "index"
    made = bertctl("index", tiny_run.data, "--model", tiny_export, "-o", index)
    assert made.returncode == 0, made.stderr

    search = ["search", index, "it was bad food dull 0", "--approximate", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "bertctl", *map(str, search)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [first, *_] = json.loads(done.stdout)["answers"]
    assert first["text"] == "it was bad food dull 0"


def flip_a_weight(folder: Path) -> None:
    path = folder / "model.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_the_graph(folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(path.read_bytes()[:-1000])


def swap_the_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace("film", "fihm"), encoding="utf-8")


def rename_a_label(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace("neg", "nag"), encoding="utf-8")


def rename_a_label_in_the_document(folder: Path) -> None:
    path = folder / "export.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"neg"', '"nag"'), encoding="utf-8")


def raise_a_score(folder: Path) -> None:
    path = folder / "metrics.json"
    path.write_text(path.read_text(encoding="utf-8").replace("0.", "1."), encoding="utf-8")


def delete_the_proof(folder: Path) -> None:
    (folder / "proof.safetensors").unlink()


def damage_the_document(folder: Path) -> None:
    (folder / "export.json").write_text("{", encoding="utf-8")


def make_it_newer(folder: Path) -> None:
    rewrite(folder, lambda document: document.update(schema=2))


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (flip_a_weight, ExitCode.DATA, "model.onnx was changed after the export"),
        (cut_the_graph, ExitCode.DATA, "model.onnx was changed after the export: it has"),
        (swap_the_tokenizer, ExitCode.DATA, "tokenizer.json was changed after the export"),
        (rename_a_label, ExitCode.DATA, "config.json was changed after the export"),
        (rename_a_label_in_the_document, ExitCode.DATA, "export.json was changed after the export"),
        (raise_a_score, ExitCode.DATA, "metrics.json was changed after the export"),
        (delete_the_proof, ExitCode.UNAVAILABLE, "proof.safetensors can't be read"),
        (damage_the_document, ExitCode.UNAVAILABLE, "export.json: no JSON"),
        (make_it_newer, ExitCode.DATA, "schema"),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "gate", "extract-features"])
def test_a_folder_that_was_changed_is_refused_with_what_differs(
    verb: str,
    change: Callable[[Path], None],
    code: ExitCode,
    message: str,
    bertctl: Run,
    copy: Path,
    tiny_run: TinyRun,
) -> None:
    arguments = {
        "predict": [copy, "fine"],
        "gate": [copy, "--min", "accuracy=0.1"],
        "extract-features": [tiny_run.data, "--model", copy, "-o", "vectors.npy"],
    }[verb]
    change(copy)

    refused = bertctl(verb, *arguments)

    assert refused.returncode == code, refused.stderr
    assert message in refused.stderr
    assert refused.stdout == ""


def test_a_machine_that_answers_differently_is_found_and_can_be_accepted(
    bertctl: Run, copy: Path
) -> None:
    path = copy / "proof.safetensors"
    arrays = load_file(path)
    arrays["expected.logits"] = arrays["expected.logits"] + np.float32(0.25)
    save_file(arrays, path)
    proof = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    rewrite(copy, lambda document: document["files"].update({"proof.safetensors": proof}))

    refused = bertctl("predict", copy, "fine")
    accepted = bertctl("predict", copy, "fine", "--accept-drift", "0.3")

    assert refused.returncode == ExitCode.DEVICE
    assert "gives other numbers here" in refused.stderr
    [suggested] = re.findall(r"--accept-drift (\S+)\.", refused.stderr)
    assert bertctl("predict", copy, "fine", "--accept-drift", suggested).returncode == 0
    assert accepted.returncode == 0, accepted.stderr


REFUSED: list[tuple[list[str], ExitCode, str]] = [
    (["predict", "{export}", "fine", "--device", "cuda"], ExitCode.USAGE, "computes on the CPU"),
    (["predict", "{export}", "fine", "--precision", "bf16"], ExitCode.USAGE, "exported in fp32"),
    (["predict", "{export}", "fine", "--max-length", "64"], ExitCode.USAGE, "up to 32 tokens"),
    (["predict", "{export}", "fine", "--accept-drift", "-1"], ExitCode.USAGE, "accept_drift"),
    (["predict", "{export}"], ExitCode.USAGE, "nothing to predict"),
    (["predict", "{export}", "missing.csv"], ExitCode.UNAVAILABLE, "missing.csv"),
    (["evaluate", "{export}", "--calibrate"], ExitCode.USAGE, "keeps the decision"),
    (["evaluate", "{export}", "--threshold", "f1"], ExitCode.USAGE, "keeps the decision"),
    (["evaluate", "{export}", "--split", "dev"], ExitCode.USAGE, "dev"),
    (["gate", "{export}", "--min", "bleu=0.5"], ExitCode.USAGE, "bleu"),
    (["{features}", "--layers", "1"], ExitCode.USAGE, "has the last layer only"),
    (["{features}", "--pooling", "pooler"], ExitCode.USAGE, "has no pooling 'pooler'"),
    (["{features}", "--pooling", "model"], ExitCode.USAGE, "modules.json"),
    (["{features}", "--pooling", "none"], ExitCode.USAGE, "token vectors"),
    (["{features}", "--max-length", "64"], ExitCode.USAGE, "up to 32 tokens"),
    (["{features}", "--precision", "fp16"], ExitCode.USAGE, "exported in fp32"),
    (["explain", "{export}", "fine"], ExitCode.UNAVAILABLE, "needs the network"),
    (["inspect", "{export}"], ExitCode.UNAVAILABLE, "needs the network"),
    (
        ["distill", "{export}", "--layers", "1", "-o", "x"],
        ExitCode.UNAVAILABLE,
        "needs the network",
    ),
    (["export", "{export}", "-o", "x"], ExitCode.UNAVAILABLE, "needs the network"),
    (["finetune", "{data}", "--model", "{export}"], ExitCode.UNAVAILABLE, "needs the network"),
    (["probe", "{data}", "--model", "{export}"], ExitCode.UNAVAILABLE, "needs the network"),
    (["push", "{export}", "me/model"], ExitCode.UNAVAILABLE, "needs the network"),
    (
        ["finetune", "{data}", "-o", "{export}", "--overwrite"],
        ExitCode.USAGE,
        "does not hold a run",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), REFUSED, ids=[" ".join(words) for words, _, _ in REFUSED]
)
def test_what_an_export_cannot_do_is_refused_with_a_sentence(
    arguments: list[str],
    code: ExitCode,
    message: str,
    bertctl: Run,
    tiny_run: TinyRun,
    tiny_export: Path,
) -> None:
    before = hashes(tiny_export)
    positions = {"export": tiny_export, "data": tiny_run.data}
    features = ["extract-features", "{data}", "--model", "{export}", "-o", "x.npy"]
    words = [*features, *arguments[1:]] if arguments[0] == "{features}" else arguments

    refused = bertctl(*(word.format(**positions) for word in words))

    assert refused.returncode == code, refused.stderr
    assert message in refused.stderr
    assert hashes(tiny_export) == before


def test_a_missing_runtime_is_named_with_its_install_line(copy: Path) -> None:
    code = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'onnxruntime' "
        "else found(name, *more)\n"
        "from bertctl.cli.main import main\n"
        f"sys.argv = ['bertctl', 'predict', {str(copy)!r}, 'fine']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == ExitCode.UNAVAILABLE
    assert "pip install 'bertctl[onnx]'" in done.stderr
