"""Every task, every way to read long texts, probes and encoders: exported, and the same answers."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_examples import EXAMPLES, TEXTS

import bertctl
from bertctl.errors import BertctlError
from bertctl.exporting.convert import lacking
from bertctl.exporting.export_model import ExportResult, export_model
from bertctl.exporting.request import ExportRequest
from bertctl.exporting.smaller import layers_of, quantize_openvino
from bertctl.inference.graph_session import open_graph
from bertctl.run_documents.export_document import ExportDocument

CPU = {
    "model.max_length": 40,
    "model.dropout": 0.0,
    "training.epochs": 3,
    "training.batch_size": 4,
    "optimizer.learning_rate": 3e-3,
    "evaluation.bootstrap_resamples": 100,
    "runtime.precision": "fp32",
    "runtime.device": "cpu",
    "runtime.threads": 1,
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LONG = [
    {"text": " ".join([text] * (1 + 7 * (number % 3))), "label": "ab"[number % 2]}
    for number, text in enumerate(TEXTS)
]
"""Texts of one window and of several."""


@pytest.fixture(params=["onnx", "openvino"])
def file_format(request: pytest.FixtureRequest) -> str:
    if missing := lacking(request.param):
        pytest.skip(f"{', '.join(missing)}: pip install 'bertctl[{request.param}]'")
    return str(request.param)


def trained(model: Path, folder: Path, task: str, rows: Any, **fields: object) -> Path:
    bertctl.finetune(
        task,
        {**CPU, "model.name": str(model), **fields},
        train=rows,
        validation=rows,
        output=folder / "run",
    )
    return folder / "run"


def assert_answers_alike(run: Path, export: Path, rows: Any) -> None:
    """An export answers rows as its run does, all that is no probability or score equal."""
    device = {"runtime.device": "cpu", "runtime.precision": "fp32"}
    expected = bertctl.predict(bertctl.load_run(run, device), rows)
    answers = bertctl.predict(export, rows)

    assert len(answers) == len(expected)
    for ours, theirs in zip(answers, expected, strict=True):
        assert rounded(ours) == rounded(theirs)


def rounded(value: Any) -> Any:
    """A value in which every number with a fraction has three decimals, and -0 is 0."""
    if isinstance(value, float):
        return round(value, 3) + 0.0
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return value


def exported(run: Path, file_format: str, **more: Any) -> ExportDocument:
    """The document of an export that is proved; nothing else is left."""
    output = run.parent / file_format
    request = ExportRequest(path=run, file_format=file_format, output=output, **more)
    result: ExportResult = export_model(request)
    assert result.failures == ()
    assert result.document is not None
    assert result.proof.flips == 0
    assert result.proof.max_difference < 1e-5
    assert [path.name for path in run.parent.glob(".bertctl-*")] == []
    return result.document


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(EXAMPLES))
def test_every_task_is_exported(
    task: str, file_format: str, tiny_model: Path, tmp_path: Path
) -> None:
    example = EXAMPLES[task]
    settings: Mapping[str, object] = {**example.settings}
    run = trained(tiny_model, tmp_path, task, [*example.rows], **settings)
    document = exported(run, file_format)
    if task != "sentence-embeddings":
        assert_answers_alike(run, tmp_path / file_format, [*example.rows])
    assert document.task == task
    assert document.proof.rows == len(example.rows)
    outputs = {
        "question-answering": {"start_logits", "end_logits"},
        "sentence-embeddings": {"sentence_embedding"},
    }.get(task, {"logits"})
    assert {*document.outputs} == outputs | {"last_hidden_state"}


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "max", "first", "attention", "logits"])
def test_long_texts_are_read_in_windows(
    pooling: str, file_format: str, tiny_model: Path, tmp_path: Path
) -> None:
    fields: dict[str, object] = {
        "model.max_length": 16,
        "model.long_text": "window",
        "model.window_pooling": pooling,
    }
    run = trained(tiny_model, tmp_path, "text-classification", LONG, **fields)
    document = exported(run, file_format)
    assert document.windows is not None
    assert document.windows.pooling == pooling
    assert document.proof.windows > document.proof.rows
    assert_answers_alike(run, tmp_path / file_format, LONG)
    assert (tmp_path / file_format / "windows.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "fields"),
    [
        ("mean", {}),
        ("cls", {"probe.special_tokens": False}),
        ("max", {"probe.special_tokens": False, "probe.normalize": True}),
        ("mean-max", {"model.window_pooling": "max"}),
        ("mean", {"probe.layers": ["1"], "probe.special_tokens": False}),
        ("mean", {"probe.layers": ["word-embeddings"]}),
    ],
)
def test_probes_are_exported(
    pooling: str,
    fields: dict[str, object],
    file_format: str,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    settings = {
        **{name: CPU[name] for name in CPU if not name.startswith(("training", "optimizer"))},
        "model.name": str(tiny_model),
        "model.max_length": 16,
        "model.long_text": "window",
        "probe.pooling": [pooling],
        **fields,
    }
    settings.pop("model.dropout")
    bertctl.probe(
        "text-classification", settings, train=LONG, validation=LONG, output=tmp_path / "run"
    )
    document = exported(tmp_path / "run", file_format)
    assert_answers_alike(tmp_path / "run", tmp_path / file_format, LONG)
    assert document.windows is not None
    assert document.labels == ["a", "b"]


@pytest.mark.slow
def test_an_encoder_is_exported_with_its_vectors(
    file_format: str, tiny_model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "texts.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    output = tmp_path / "out"
    request = ExportRequest(path=tiny_model, file_format=file_format, output=output, rows=rows)
    result = export_model(request)
    assert result.failures == ()
    assert result.document is not None
    assert result.document.task == "sentence-embeddings"
    assert result.document.vectors is not None
    assert result.document.vectors.poolings == ["mean"]
    assert result.document.vectors.size == 36
    assert (output / "modules.json").is_file()
    with pytest.raises(BertctlError, match="without data of its own"):
        export_model(ExportRequest(tiny_model, file_format, tmp_path / "other"))


@pytest.fixture
def nncf() -> None:
    """Skips a test where OpenVINO or its quantizer is not installed."""
    if missing := [*lacking("openvino"), *(["nncf"] if find_spec("nncf") is None else [])]:
        pytest.skip(f"{', '.join(missing)}: pip install 'bertctl[openvino]'")


@pytest.mark.slow
def test_the_layers_that_are_named_stay_in_fp32_in_openvino(
    nncf: None, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tiny_model, tmp_path, "text-classification", LONG)
    assert export_model(ExportRequest(run, "onnx", tmp_path / "out")).failures == ()
    graph = tmp_path / "out" / "model.onnx"
    layers = layers_of(graph, "openvino")
    ids = np.arange(5, 17).reshape(2, 6)
    texts = {name: ids if name == "input_ids" else np.zeros_like(ids) for name in INPUTS}
    texts["attention_mask"] = np.ones_like(ids)
    expected = open_graph(graph, "openvino", threads=1).run(texts)["logits"]
    capsys.readouterr()

    differences = {}
    for n_kept in (0, len(layers) - 1, len(layers)):
        file = tmp_path / f"{n_kept}.xml"
        quantize_openvino(graph, file, [texts], excluded=layers[:n_kept])
        logits = open_graph(file, "openvino", threads=1).run(texts)["logits"]
        differences[n_kept] = float(np.abs(logits - expected).max())

    none_kept, one_quantized, all_kept = differences.values()
    assert all_kept < 1e-5
    assert all_kept < one_quantized < none_kept
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "fp16", "bf16"])
def test_smaller_numbers_of_openvino_connect_to_no_machine(
    precision: str, nncf: None, tiny_model: Path, tmp_path: Path
) -> None:
    run = trained(tiny_model, tmp_path, "text-classification", LONG)
    output = tmp_path / "small"
    code = (
        "import no_sockets; from pathlib import Path\n"
        "from bertctl.exporting.export_model import export_model\n"
        "from bertctl.exporting.request import ExportRequest\n"
        f"request = ExportRequest(Path({str(run)!r}), 'openvino', Path({str(output)!r}),\n"
        f"    precision={precision!r}, max_drop={{'accuracy': 1.0}})\n"
        "assert export_model(request).failures == ()"
    )
    faults = Path(__file__).resolve().parents[1] / "faults"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{faults}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    document = json.loads((output / "export.json").read_text(encoding="utf-8"))
    assert document["precision"] == precision
    assert {path.name for path in output.glob("*model*")} == {"model.xml", "model.bin"}
