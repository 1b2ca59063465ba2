"""The encoder on ONNX Runtime and OpenVINO against torch, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.data.rows import Rows
from bertctl.errors import DeviceError, UnavailableError, UsageError
from bertctl.exporting import convert
from bertctl.features.backend_names import check_backend
from bertctl.features.backends import fastest_backend, open_encoder
from bertctl.features.encoded_windows import RowEncoder
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.features.extract_job import ExtractJob
from bertctl.modeling.build import load_frozen
from bertctl.modeling.layers import choose_layers
from bertctl.modeling.source import inspect_model
from bertctl.progress import Listener
from bertctl.runtime.device import choose_compute
from bertctl.tokenization.long_texts import LongText
from bertctl.writing import cache_folder
from tests.heard import Heard

TEXTS = [
    "the film was good",
    "it was a very very dull film , not fine",
    "bad",
    "the food was not good",
    "",
    "not good",
]
ROWS = Rows("predict", {"text": TEXTS}, [str(i) for i in range(len(TEXTS))], "memory")
MANY = Rows("predict", {"text": TEXTS * 12}, [str(i) for i in range(12 * len(TEXTS))], "memory")
CPU = RuntimeSection(device="cpu", precision="fp32")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path_factory.getbasetemp() / "backends"))


@pytest.fixture(params=["onnx", "openvino"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each engine that is installed."""
    for package in convert.PACKAGES[request.param]:
        pytest.importorskip(package, reason=f"pip install 'bertctl[{request.param}]'")
    return request.param


def spec_of(**more: object) -> VectorSpec:
    layers = choose_layers(["word-embeddings", "embeddings", "1", "last"], 2)
    return VectorSpec(layers, **({"poolings": ("cls", "mean", "max", "pooler")} | more))


def both(model: Path, backend: str, subject: VectorSpec) -> tuple[Encoder, Encoder]:
    source = inspect_model(ModelSection(name=str(model), max_length=40))
    compute = choose_compute(CPU)
    other = open_encoder(
        source,
        subject,
        compute,
        ExtractJob(Path("a.npy"), LongText(max_length=40), backend=backend),
        ROWS,
    )
    loaded = load_frozen(source, compute)
    return Encoder(source, loaded, subject, frozen_engine(loaded, compute)), other


def fastest(model: Path, rows: Rows, listener: Listener) -> str:
    source = inspect_model(ModelSection(name=str(model), max_length=40))
    job = ExtractJob(Path("a.npy"), LongText(max_length=40), backend="auto")
    return fastest_backend(source, spec_of(), choose_compute(CPU), job, rows, listener)


def test_every_layer_and_pooling_is_torchs(tiny_model, backend):
    ours, theirs = both(tiny_model, backend, spec_of())
    row_encoder = RowEncoder(ours.engine.tokenizer, LongText(max_length=40), by_token=False)
    windows = row_encoder.encode(ROWS)
    for expected, actual in zip(ours.texts(windows), theirs.texts(windows), strict=True):
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_every_token_is_torchs(tiny_model, backend):
    ours, theirs = both(tiny_model, backend, spec_of(poolings=("none",)))
    windows = RowEncoder(ours.engine.tokenizer, LongText(max_length=40), by_token=True).encode(ROWS)
    for expected, actual in zip(
        ours.tokens(windows).vectors, theirs.tokens(windows).vectors, strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_model_is_converted_once(tiny_model, backend):
    both(tiny_model, backend, spec_of())
    before = {path: path.stat().st_mtime_ns for path in cache_folder().rglob("model.onnx")}
    assert before
    both(tiny_model, backend, spec_of())
    assert {path: path.stat().st_mtime_ns for path in cache_folder().rglob("model.onnx")} == before


def copied_cache(model: Path, backend: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a test a cache of its own, which holds the model's conversion."""
    both(model, backend, spec_of())
    shutil.copytree(cache_folder(), folder)
    monkeypatch.setenv("BERTCTL_CACHE", str(folder))


@pytest.mark.parametrize(
    ("content", "is_made_again"),
    [(b"no model", False), pytest.param(b"", True, marks=pytest.mark.slow)],
)
def test_a_damaged_conversion_is_refused_with_what_to_do(
    tiny_model, backend, tmp_path, monkeypatch, content, is_made_again
):
    copied_cache(tiny_model, backend, tmp_path / "cache", monkeypatch)
    (made,) = cache_folder().rglob("model.onnx")
    made.write_bytes(content)
    with pytest.raises(UnavailableError, match=r"model\.onnx can't be used") as caught:
        both(tiny_model, backend, spec_of())
    assert caught.value.remedy == f"Delete {made}: it is made again."
    if is_made_again:
        made.unlink()
        both(tiny_model, backend, spec_of())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnx", "openvino"], indirect=True)
def test_vectors_that_are_not_torchs_are_refused(tiny_model, backend, tmp_path, monkeypatch):
    """Another model's conversion lies where this one's should."""
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))
    both(tiny_model, backend, spec_of())
    (mine,) = cache_folder().rglob("model.onnx")
    contents = mine.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    torch.manual_seed(1)
    transformers.BertModel(transformers.AutoConfig.from_pretrained(tiny_model)).save_pretrained(
        other
    )
    both(other, backend, spec_of())
    (theirs,) = (path for path in cache_folder().rglob("model.onnx") if path != mine)
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(DeviceError, match="other vectors") as caught:
        both(tiny_model, backend, spec_of())
    assert "`backend=" in caught.value.remedy
    listener = Heard()
    assert fastest(tiny_model, MANY, listener) in {"torch", "onnx", "openvino"} - {backend}
    assert any(line.startswith(f"{backend} is left out: ") for line in listener.said)
    mine.write_bytes(contents)
    both(tiny_model, backend, spec_of())


@pytest.mark.parametrize(
    "backend", ["onnx", pytest.param("openvino", marks=pytest.mark.slow)], indirect=True
)
def test_the_fastest_is_measured_once_and_another_than_torch_has_to_be_worth_it(
    tiny_model, backend, tmp_path, monkeypatch
):
    copied_cache(tiny_model, backend, tmp_path / "cache", monkeypatch)
    listener = Heard()
    first = fastest(tiny_model, MANY, listener)
    (known,) = (cache_folder() / "backends").iterdir()
    speeds = json.loads(known.read_text())
    assert {"torch", backend} <= speeds.keys()
    assert min(speeds.values()) > 0
    assert fastest(tiny_model, MANY, listener) == first
    for speed, name in ((119.0, "torch"), (120.0, backend)):
        known.write_text(json.dumps({**dict.fromkeys(speeds, 1.0), "torch": 100.0, backend: speed}))
        assert fastest(tiny_model, MANY, listener) == name
        assert f"{backend} {speed:.0f}" in listener.said[-1]
    assert fastest(tiny_model, ROWS, listener) == "torch", "a few rows are not worth a conversion"
    assert "fewer than 64 rows" in listener.said[-1]


def test_what_a_backend_cannot_do_is_refused(backend):
    with pytest.raises(UsageError, match=r"backend 'onyx': .*onnx\?"):
        check_backend("onyx", device="auto", precision="auto")
    with pytest.raises(DeviceError, match="CPU, not on cuda"):
        check_backend(backend, device="cuda", precision="auto")
    with pytest.raises(UsageError, match="fp16"):
        check_backend(backend, device="cpu", precision="fp16")


def test_a_missing_package_answers_with_its_install_line(monkeypatch):
    monkeypatch.setattr(convert, "find_spec", lambda _: None)
    with pytest.raises(UnavailableError, match="onnx and onnxscript and openvino") as caught:
        check_backend("openvino", device="auto", precision="auto")
    assert "pip install 'bertctl[openvino]'" in caught.value.remedy
    check_backend("torch", device="cuda", precision="fp16")
