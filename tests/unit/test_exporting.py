"""Exports: the folder, its proof, and what is left where an export does not answer as the model does."""

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
from bertctl.exporting import export_model as exporting
from bertctl.exporting.export_model import ExportRequest, export_model
from bertctl.exporting.proof import resized
from bertctl.exporting.subject import Window
from bertctl.inference.graph_session import open_graph
from bertctl.run_documents.export_document import ExportDocument, digest_of
from tests.conftest import TinyRun
from tests.documents.schemas import SCHEMAS

pytest.importorskip("onnxscript", reason="pip install 'bertctl[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'bertctl[onnx]'")


@pytest.fixture(scope="module")
def request_of(tiny_run: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> ExportRequest:
    output = tmp_path_factory.mktemp("exported") / "export"
    return ExportRequest(
        path=tiny_run.path,
        file_format="onnx",
        output=output,
        rows=tiny_run.data,
        options={"runtime.threads": 1},
    )


@pytest.fixture(scope="module")
def exported(request_of: ExportRequest) -> Path:
    """The tiny run as a folder, compared on all its rows."""
    result = export_model(request_of)
    assert result.failures == ()
    return request_of.output


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
        import onnx_ir

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
    request_of: ExportRequest, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert_again(network: object, sample: object, folder: Path, *more: Any, **_: Any) -> Path:
        return Path(shutil.copy(exported / "model.onnx", folder))

    monkeypatch.setattr(exporting, "convert", convert_again)
    output = tmp_path / "export"
    shutil.copytree(exported, output)
    (output / "left.txt").write_text("of the export before", encoding="utf-8")
    with pytest.raises(UsageError, match="holds an export"):
        export_model(replace(request_of, output=output))
    result = export_model(replace(request_of, output=output, overwrite=True))
    assert result.document is not None
    assert not (output / "left.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"file_format": "tflite"}, UsageError, "tflite"),
        ({"tolerance": -1.0}, UsageError, "no difference that could be allowed"),
        ({"tolerance": float("nan")}, UsageError, "no difference that could be allowed"),
        ({"path": Path("missing/run")}, BertctlError, "missing/run"),
        ({"rows": Path("missing.csv")}, UnavailableError, "missing.csv"),
    ],
)
def test_bad_requests_are_refused(
    request_of: ExportRequest,
    tmp_path: Path,
    changes: dict[str, Any],
    kind: type[BertctlError],
    message: str,
) -> None:
    output = tmp_path / "export"
    with pytest.raises(kind) as raised:
        export_model(replace(request_of, **{"output": output, **changes}))
    assert message in raised.value.message
    assert raised.value.remedy or raised.value.exit_code == ExitCode.UNAVAILABLE
    assert not output.exists()


@pytest.mark.parametrize("length", [3, 4, 5, 6, 9])
def test_a_window_of_another_length_keeps_its_special_tokens(length: int) -> None:
    window = Window(np.array([2, 7, 8, 9, 3]), np.zeros(5, dtype=np.int64))
    changed = resized(window, length, {2, 3})
    assert len(changed) == length
    assert changed.ids[0] == 2
    assert changed.ids[-1] == 3
    assert {*changed.ids.tolist()} <= {2, 7, 8, 9, 3}
