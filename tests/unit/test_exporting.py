"""Exports: the folder, its proof, and what is left if an export and its model differ."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from safetensors.numpy import load_file

from bertctl import load_run
from bertctl.documents import read_json, sha256_of
from bertctl.errors import BertctlError, ExitCode, UnavailableError, UsageError
from bertctl.exporting import convert as conversion
from bertctl.exporting import export_model as exporting
from bertctl.exporting import shrink as shrinking
from bertctl.exporting.export_model import export_model
from bertctl.exporting.proof import resized
from bertctl.exporting.quality import parse_drops
from bertctl.exporting.request import ExportRequest
from bertctl.inference.export_proof import Window
from bertctl.inference.graph_session import open_graph
from bertctl.run_documents.export_document import ExportDocument, digest_of
from tests.conftest import TinyRun
from tests.documents.schemas import SCHEMAS

pytest.importorskip("onnxscript", reason="pip install 'bertctl[onnx]'")
onnx_ir = pytest.importorskip("onnx_ir", reason="pip install 'bertctl[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'bertctl[onnx]'")


@pytest.fixture
def request_of(tiny_run: TinyRun, tmp_path: Path) -> ExportRequest:
    return ExportRequest(
        path=tiny_run.path,
        file_format="onnx",
        output=tmp_path / "export",
        rows=tiny_run.data,
        options={"runtime.threads": 1},
    )


@pytest.fixture
def exported(tiny_export: Path) -> Path:
    """The tiny run as a folder, compared on all its rows."""
    return tiny_export


@pytest.fixture
def document(exported: Path) -> dict[str, Any]:
    return read_json(exported / "export.json")


def test_the_folder_holds_what_its_document_says(exported: Path, document: dict[str, Any]) -> None:
    schema = json.loads((SCHEMAS / "export.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(document)
    ExportDocument.model_validate(document)
    names = {
        path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()
    }
    assert names == {"export.json", *document["files"]}
    assert {"model.onnx", "tokenizer.json", "config.json", "recipe.yaml", "metrics.json"} < names
    for name, file in document["files"].items():
        assert file["sha256"] == sha256_of(exported / name)
        assert file["bytes"] == (exported / name).stat().st_size
    assert document["digest"] == digest_of(document)
    assert document["labels"] == ["neg", "pos"]
    assert document["task"] == "text-classification"
    modes = {oct((exported / name).stat().st_mode) for name in names}
    assert len(modes) == 1  # whoever may read one file may read all


def test_the_proof_covers_rows_shapes_and_lengths(document: dict[str, Any]) -> None:
    proof = document["proof"]
    assert proof["rows"] == 16
    assert proof["source"] == "opinions.csv"
    assert [shape["batch"] for shape in proof["shapes"]] == [1, 7, 32]
    assert len(proof["lengths"]) == 6
    assert proof["lengths"][-1] == document["max_length"] == 32
    assert 0 < proof["max_difference"] < 1e-5
    assert proof["flips"] == 0


def test_the_graph_answers_as_the_run_does_in_any_batch(
    exported: Path, tiny_run: TinyRun, document: dict[str, Any]
) -> None:
    texts = ["the film was very good", "bad", "a dull film, not fine at all, not bright"]
    expected = load_run(tiny_run.path, {"runtime.device": "cpu"}).predict(texts)
    session = open_graph(exported / "model.onnx", "onnx", threads=1)
    assert session.inputs == tuple(document["inputs"])
    assert session.outputs == tuple(document["outputs"])
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(exported / "tokenizer.json"))
    ids = [tokenizer.encode(text).ids for text in texts]
    together = np.full((3, 32), document["padding"]["id"], dtype=np.int64)
    mask = np.zeros_like(together)
    for row, tokens in enumerate(ids):
        together[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    alone = [session.run({"input_ids": np.array([tokens])})["logits"][0] for tokens in ids]
    padded = session.run({"input_ids": together, "attention_mask": mask})["logits"]
    for *both, answer in zip(alone, padded, expected, strict=True):
        for logits in both:
            exponents = np.exp(logits - logits.max())
            probabilities = exponents / exponents.sum()
            stated = [answer["probabilities"][label] for label in document["labels"]]
            np.testing.assert_allclose(probabilities, stated, atol=1e-6)


def test_windows_travel_with_the_answers_of_the_model(
    exported: Path, document: dict[str, Any]
) -> None:
    arrays = load_file(exported / "proof.safetensors")
    session = open_graph(exported / "model.onnx", "onnx", threads=1)
    ends = np.cumsum(arrays["lengths"])
    assert len(ends) == document["proof"]["folder_windows"] == len(arrays["expected.logits"])
    largest = 0.0
    for end, length, logits in zip(ends, arrays["lengths"], arrays["expected.logits"], strict=True):
        ids = arrays["input_ids"][None, end - length : end]
        types = arrays["token_type_ids"][None, end - length : end]
        answer = session.run({"input_ids": ids, "token_type_ids": types})["logits"][0]
        largest = max(largest, float(np.abs(answer - logits).max()))
    assert largest <= document["proof"]["folder_tolerance"]
    assert largest == pytest.approx(document["proof"]["folder_difference"], abs=1e-6)


def test_a_graph_is_opened_without_torch(exported: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from bertctl.inference.graph_session import open_graph\n"
        f"open_graph(Path({str(exported / 'model.onnx')!r}), 'onnx', threads=1)\n"
        "assert not {'torch', 'transformers', 'sklearn'} & {*sys.modules}, [*sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_graph_names_no_place_of_the_machine(exported: Path) -> None:
    content = (exported / "model.onnx").read_bytes()
    assert b"site-packages" not in content
    assert str(Path.home()).encode() not in content


def test_an_export_that_differs_leaves_nothing(
    request_of: ExportRequest, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert_wrongly(
        network: object, sample: object, folder: Path, *more: Any, **_: Any
    ) -> Path:
        path = folder / "model.onnx"
        model = onnx_ir.load(exported / "model.onnx")
        for name, value in model.graph.initializers.items():
            if name.endswith("classifier.weight"):
                value.const_value = onnx_ir.tensor(1.5 * value.const_value.numpy(), name=name)
        onnx_ir.save(model, path)
        return path

    monkeypatch.setattr(exporting, "convert", convert_wrongly)
    output = tmp_path / "out" / "export"
    result = export_model(replace(request_of, output=output))
    assert result.document is None
    assert "differs from the model's by" in result.failures[0]
    assert [*output.parent.iterdir()] == []
    # What is allowed is allowed: the same difference passes a larger tolerance.
    result = export_model(replace(request_of, output=output, tolerance=100.0))
    assert result.failures == ()


def test_an_export_replaces_another_one_only_where_it_is_told(
    request_of: ExportRequest, converted: None, exported: Path, tmp_path: Path
) -> None:
    output = tmp_path / "export"
    shutil.copytree(exported, output)
    (output / "left.txt").write_text("of the export before", encoding="utf-8")
    with pytest.raises(UsageError, match="holds an export"):
        export_model(replace(request_of, output=output))
    result = export_model(replace(request_of, output=output, overwrite=True))
    assert result.document is not None
    assert not (output / "left.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


@pytest.fixture
def converted(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the graph of the exported run in place of a conversion, which takes seconds."""

    def convert_again(network: object, sample: object, folder: Path, *more: Any, **_: Any) -> Path:
        return Path(shutil.copy(exported / "model.onnx", folder))

    monkeypatch.setattr(exporting, "convert", convert_again)


def test_int8_is_small_and_its_cost_is_told(
    request_of: ExportRequest, converted: None, exported: Path, tmp_path: Path
) -> None:
    output = tmp_path / "small"
    result = export_model(replace(request_of, output=output, precision="int8"))
    assert result.failures == ()
    document = read_json(output / "export.json")
    ExportDocument.model_validate(document)
    assert document["precision"] == "int8"
    quality = document["quality"]
    assert quality["limits"] == {"accuracy": 0.005}
    change = quality["metrics"]["accuracy"]
    assert change["before"] - change["after"] <= 0.005
    assert change["before_low"] <= change["before"] <= change["before_high"]
    assert change["test"] == "McNemar, exact"
    assert quality["bytes_after"] == (output / "model.onnx").stat().st_size
    assert quality["bytes_after"] < quality["bytes_before"]
    assert {*quality["rows_per_second"]} == {"model", "fp32", "int8"}
    assert [*output.glob("small*")] == []
    # It repeats itself, and its scores are its own.
    assert document["proof"]["folder_difference"] == 0.0
    assert document["proof"]["folder_tolerance"] == 0.02
    scores = read_json(output / "metrics.json")
    assert scores["metrics"]["file"]["accuracy"]["value"] == change["after"]
    assert (output / "predictions" / "file.jsonl").is_file()


def test_layers_that_cost_most_stay_in_fp32(
    request_of: ExportRequest, converted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers: list[str] = []

    def quantize(source: Path, target: Path, *, excluded: Any = (), only: Any = ()) -> None:
        """Writes a graph without its head, unless two layers of it are left alone."""
        layers[:] = [*layers, *only]
        model = onnx_ir.load(source)
        for name, value in model.graph.initializers.items():
            if name.endswith("classifier.weight") and len(excluded) < 2 and len(only) != 1:
                value.const_value = onnx_ir.tensor(-value.const_value.numpy(), name=name)
        onnx_ir.save(model, target)

    monkeypatch.setattr(shrinking, "quantize_onnx", quantize)
    output = tmp_path / "small"
    result = export_model(replace(request_of, output=output, precision="int8"))
    assert result.failures == ()
    assert result.quality is not None
    assert len(result.quality.fp32_layers) == 2
    assert len({*layers}) > 4
    assert (output / "model.onnx").is_file()
    assert [*output.glob("one*")] == []


def test_smaller_numbers_that_cost_too_much_leave_nothing(
    request_of: ExportRequest, converted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quantize(source: Path, target: Path, **_: Any) -> None:
        model = onnx_ir.load(source)
        for name, value in model.graph.initializers.items():
            if name.endswith("classifier.weight"):
                value.const_value = onnx_ir.tensor(-value.const_value.numpy(), name=name)
        onnx_ir.save(model, target)

    monkeypatch.setattr(shrinking, "quantize_onnx", quantize)
    output = tmp_path / "out" / "small"
    limits = {"accuracy": 0.1}
    result = export_model(replace(request_of, output=output, precision="int8", max_drop=limits))
    assert result.document is None
    assert "accuracy goes from 1.0000 to 0.0000" in result.failures[0]
    assert result.as_json(output)["verdict"] == "fail"
    assert [*output.parent.iterdir()] == []


ROWS = {
    "empty.csv": "text,label\n",
    "labels.csv": "text,label\nfine,pos\ndull,purple\n",
    "pairs.csv": "first,second,label\nfine,good,pos\n",
    "unlabelled.csv": "text\nfine\ndull\n",
    "other.csv": "number,size\n1,2\n",
    "noise.csv": "\x00\x01\x02",
}


@pytest.fixture
def places(tmp_path: Path, exported: Path) -> dict[str, Path]:
    """Files and folders that bad requests name."""
    for name, content in ROWS.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    full = tmp_path / "full"
    full.mkdir()
    (full / "file.txt").write_text("mine", encoding="utf-8")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text("{", encoding="utf-8")
    return {path.name: path for path in tmp_path.iterdir()} | {"exported": exported}


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"file_format": "tflite"}, ExitCode.USAGE, "tflite"),
        ({"tolerance": -1.0}, ExitCode.USAGE, "not a difference that could be allowed"),
        ({"tolerance": float("nan")}, ExitCode.USAGE, "not a difference that could be allowed"),
        ({"output": "empty.csv"}, ExitCode.USAGE, "is a file"),
        ({"output": "full"}, ExitCode.USAGE, "holds no export"),
        ({"output": "exported"}, ExitCode.USAGE, "holds an export"),
        ({"path": Path("missing/run")}, ExitCode.UNAVAILABLE, "missing/run"),
        ({"path": "full"}, ExitCode.UNAVAILABLE, "full"),
        ({"path": "unfinished"}, ExitCode.UNAVAILABLE, "config.json"),
        ({"rows": Path("missing.csv")}, ExitCode.UNAVAILABLE, "missing.csv"),
        ({"rows": "empty.csv"}, ExitCode.DATA, "empty.csv"),
        ({"rows": "labels.csv"}, ExitCode.DATA, "purple"),
        ({"rows": "pairs.csv"}, ExitCode.USAGE, "pairs.csv"),
        ({"rows": "other.csv"}, ExitCode.USAGE, "other.csv"),
        ({"rows": "noise.csv"}, ExitCode.DATA, "noise.csv"),
        ({"rows": "unlabelled.csv", "precision": "int8"}, ExitCode.USAGE, "unlabelled.csv"),
        ({"precision": "fp16"}, ExitCode.USAGE, "has no fp16"),
        ({"precision": "bf16"}, ExitCode.USAGE, "has no bf16"),
        ({"max_drop": {"accuracy": 0.1}}, ExitCode.USAGE, "smaller numbers"),
        ({"precision": "int8", "max_drop": {"bleu": 0.1}}, ExitCode.USAGE, "bleu"),
    ],
)
def test_bad_requests_are_refused(
    request_of: ExportRequest,
    places: dict[str, Path],
    converted: None,
    tmp_path: Path,
    changes: dict[str, Any],
    code: ExitCode,
    message: str,
) -> None:
    output = tmp_path / "export"
    by_name = {
        name: places.get(value, value) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises(BertctlError) as raised:
        export_model(replace(request_of, **{"output": output, **by_name}))
    assert raised.value.exit_code == code, raised.value.message
    assert message in raised.value.message
    assert not output.exists()
    assert [path.name for path in tmp_path.glob(".bertctl-*")] == []


@pytest.mark.parametrize("text", ["accuracy", "accuracy=", "=0.1", "accuracy=-1", "accuracy=nan"])
def test_a_drop_is_a_metric_and_a_number(text: str) -> None:
    with pytest.raises(UsageError, match="expected METRIC=NUMBER"):
        parse_drops([text])
    assert parse_drops(["f1=0.5", "accuracy=0"]) == {"f1": 0.5, "accuracy": 0.0}


def test_missing_packages_answer_with_their_install_line(
    request_of: ExportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "find_spec", lambda _: None)
    for file_format in conversion.FORMATS:
        with pytest.raises(UnavailableError, match="not installed here") as raised:
            export_model(replace(request_of, output=tmp_path / "x", file_format=file_format))
        assert raised.value.remedy == f"Install it: pip install 'bertctl[{file_format}]'."


def test_a_network_that_cannot_be_traced_is_refused_before_anything_is_written(
    request_of: ExportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Could not guard on data-dependent expression Eq(u0, 1)")

    monkeypatch.setattr(conversion, "_traced", fail)
    with pytest.raises(UnavailableError, match="decides by the content of a batch"):
        export_model(replace(request_of, output=tmp_path / "x"))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("length", [3, 4, 5, 6, 9])
def test_a_window_of_another_length_keeps_its_special_tokens(length: int) -> None:
    window = Window(np.array([2, 7, 8, 9, 3]), np.zeros(5, dtype=np.int64))
    changed = resized(window, length, {2, 3})
    assert len(changed) == length
    assert changed.ids[0] == 2
    assert changed.ids[-1] == 3
    assert {*changed.ids.tolist()} <= {2, 7, 8, 9, 3}
