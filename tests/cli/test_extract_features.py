"""`bertctl extract-features` as a person types it."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertctl import extract_features
from tests.conftest import Run
from tests.sentence_folders import make_folder

pytestmark = pytest.mark.in_process


def _lines(count: int) -> str:
    return "".join(f"the film was {'very ' * (i % 5)}good {i}\n" for i in range(count))


def test_from_stdin_to_npy_with_a_sidecar_and_a_summary(bertctl, tiny_model, tmp_path):
    result = bertctl(
        "extract-features",
        "-",
        "-o",
        "a.npy",
        "--model",
        tiny_model,
        "--max-length",
        40,
        "--json",
        input=_lines(7),
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["shape"] == [7, 36]
    assert np.load(tmp_path / "a.npy").shape == (7, 36)
    sidecar = json.loads((tmp_path / "a.npy.json").read_text())
    assert sidecar["rows"] == 7
    assert sidecar["complete"] is True
    assert sidecar["layers"] == ["last"]
    assert sidecar["truncated"] == 0
    assert len(sidecar["model_hash"]) == 64
    again = bertctl(
        "extract-features",
        "-",
        "-o",
        "a.npy",
        "--model",
        tiny_model,
        "--max-length",
        40,
        input="a\n",
    )
    assert again.returncode == 0
    assert np.load(tmp_path / "a.npy").shape == (1, 36), "a file is replaced"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("a.txt", "-o", "a.pkl"), 2, "'.pkl'"),
        (("a.txt", "-o", "a.npy", "--layers", "-1,9"), 2, "no layer 9"),
        (("a.txt", "-o", "a.npy", "--pooling", "men"), 2, "did you mean mean"),
        (("a.txt", "-o", "a.npy", "--dtype", "int8"), 2, "'float32', 'float16'"),
        (("a.txt", "-o", "a.npy", "--max-length", "400"), 2, "over the 41 positions"),
        (("a.txt", "-o", "a.npy", "--backend", "onyx"), 2, "'auto', 'torch', 'onnx', 'openvino'"),
        (
            ("a.txt", "-o", "a.npy", "--backend", "auto", "--shard", "1/2"),
            2,
            "--backend torch|onnx|openvino",
        ),
        (("none.txt", "-o", "a.npy"), 4, "none.txt does not exist"),
        (("empty.txt", "-o", "a.npy"), 3, "no rows"),
    ],
)
def test_bad_input_is_refused_with_what_fits(
    bertctl, tiny_model, tmp_path, arguments, code, message
):
    (tmp_path / "a.txt").write_text("good film\n")
    (tmp_path / "empty.txt").write_text("")
    length = () if "--max-length" in arguments else ("--max-length", 40)
    result = bertctl("extract-features", *arguments, "--model", tiny_model, *length)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert not (tmp_path / "a.npy").exists()


def test_another_backend_gives_the_same_vectors_and_says_that_it_was_checked(
    bertctl, tiny_model, tmp_path
):
    pytest.importorskip("openvino", reason="pip install 'bertctl[openvino]'")
    (tmp_path / "a.txt").write_text(_lines(20))
    common = ["extract-features", "a.txt", "--model", tiny_model, "--max-length", 40]
    env = {"BERTCTL_CACHE": str(tmp_path / "cache")}
    other = bertctl(*common, "-o", "other.npy", "--backend", "openvino", env=env)
    assert other.returncode == 0, other.stderr
    assert "converted to ONNX" in other.stderr
    assert "torch on 20 rows" in other.stderr
    sidecar = json.loads((tmp_path / "other.npy.json").read_text())
    assert sidecar["backend"] == "openvino"
    assert sidecar["precision"] == "fp32"
    assert bertctl(*common, "-o", "plain.npy", "--precision", "fp32").returncode == 0
    assert bertctl(*common, "-o", "auto.npy", "--backend", "auto").returncode == 0
    assert json.loads((tmp_path / "auto.npy.json").read_text())["backend"] == "torch", (
        "20 rows convert nothing"
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "other.npy"), np.load(tmp_path / "plain.npy"), atol=1e-5
    )


def test_as_much_of_a_text_is_read_as_the_folder_says_unless_it_is_said(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder("max", tiny_model, tmp_path / "made")
    config = folder / "sentence_bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_seq_length": 7}))
    text = "the film was good and the food was not"
    (tmp_path / "texts.txt").write_text(f"{text}\n")
    results = {}
    for length in ((), ("--max-length", 7), ("--max-length", 9)):
        words = (
            "extract-features",
            "texts.txt",
            "-o",
            "v.npy",
            "--model",
            folder,
            "--overwrite",
            *length,
        )
        done = bertctl(*words, "--pooling", "model", "--precision", "fp32")
        assert done.returncode == 0, done.stderr
        results[length] = np.load(tmp_path / "v.npy")
    of_folder, same, more = results.values()
    np.testing.assert_array_equal(of_folder, same)
    assert np.abs(of_folder - more).max() > 1e-3
    fields = {"runtime.precision": "fp32"}
    ours = extract_features([text], model=str(folder), pooling="model", fields=fields)
    np.testing.assert_allclose(ours, of_folder, atol=1e-6)


def test_words_after_a_prompt_stand_where_they_do_in_the_text(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_folder("max", tiny_model, tmp_path / "made")
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "a bad film "}})
    )
    (tmp_path / "texts.txt").write_text("the food was good\n")
    done = bertctl(
        "extract-features",
        "texts.txt",
        "-o",
        "v.jsonl",
        "--model",
        folder,
        "--max-length",
        40,
        "--words",
        "first",
        "--prompt",
        "query",
    )
    assert done.returncode == 0, done.stderr
    tokens = [
        feature["token"] for feature in json.loads((tmp_path / "v.jsonl").read_text())["features"]
    ]
    assert tokens == ["", "", "", "the", "food", "was", "good"]


def test_a_split_of_a_data_set_by_its_name(bertctl, tiny_model, tmp_path):
    common = ["--model", tiny_model, "--max-length", 41]
    result = bertctl(
        "extract-features", "demo", "-o", "a.parquet", "--split", "test", *common, "--json"
    )
    assert result.returncode == 0, result.stderr
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == json.loads(result.stdout)["rows"] == 150
    assert set(table.column("label").to_pylist()) == {"negative", "positive"}
    wrong = bertctl("extract-features", "demo", "-o", "b.npy", "--split", "tests", *common)
    assert wrong.returncode == 2
    assert "did you mean test" in wrong.stderr
    words = bertctl(
        "extract-features",
        "demo-ner",
        "-o",
        "w.npz",
        "--words",
        "first",
        "--split",
        "test",
        *common,
    )
    assert words.returncode == 0, words.stderr
    with np.load(tmp_path / "w.npz") as arrays:
        assert arrays["offsets"][-1] == len(arrays["vectors"]) > 100


# tests/unit/test_features_extract.py cuts off attempts of every format by default
@pytest.mark.slow
def test_killed_in_the_middle_and_resumed_it_ends_equal(bertctl, nursery, tiny_model, tmp_path):
    (tmp_path / "a.txt").write_text(_lines(60_000))
    common = [
        "a.txt",
        "--model",
        str(tiny_model),
        "--max-length",
        "40",
        "--precision",
        "fp32",
        "--threads",
        "1",
    ]
    process = nursery.start(
        ["extract-features", *common, "-o", "cut.npy"], cwd=tmp_path, env=nursery.env
    )
    deadline = time.monotonic() + 3600
    sidecar = tmp_path / "cut.npy.json"
    while process.poll() is None and time.monotonic() < deadline:
        if sidecar.exists():
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.01)
    process.communicate()
    rows = json.loads(sidecar.read_text())["rows"]
    if process.returncode == 0 or rows == 60_000:
        pytest.skip("this machine was done before it could be killed")
    assert 0 < rows < 60_000
    arrays = np.load(tmp_path / "cut.npy.parts" / "0" / "vectors.npy", mmap_mode="r")
    assert len(arrays) >= rows, "the rows can be read although it was killed"
    assert not (tmp_path / "cut.npy").exists()
    resumed = bertctl("extract-features", *common, "-o", "cut.npy", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert bertctl("extract-features", *common, "-o", "whole.npy").returncode == 0
    assert (tmp_path / "cut.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.slow
def test_two_processes_equal_one_and_exit_codes_hold(bertctl, tiny_model, tmp_path):
    (tmp_path / "a.txt").write_text(_lines(20_000))
    common = [
        "a.txt",
        "--model",
        tiny_model,
        "--max-length",
        40,
        "--precision",
        "fp32",
        "--threads",
        1,
    ]
    two = bertctl("extract-features", *common, "-o", "two.npy", "--num-processes", 2, "--json")
    assert two.returncode == 0, two.stderr
    assert json.loads(two.stdout)["rows"] == 20_000
    assert bertctl("extract-features", *common, "-o", "one.npy").returncode == 0
    np.testing.assert_allclose(
        np.load(tmp_path / "two.npy"), np.load(tmp_path / "one.npy"), atol=1e-6
    )
    wrong = bertctl(
        "extract-features", *common, "-o", "no.npy", "--num-processes", 2, "--layers", 7
    )
    assert wrong.returncode == 2
    assert wrong.stderr.count("no layer 7") == 1
    assert "torch/distributed" not in wrong.stderr


@pytest.mark.parametrize("more", [(), ("--pooling", "none")])
def test_unknown_tokens_are_counted_among_those_that_were_there(
    bertctl, tiny_model, tmp_path, more
):
    (tmp_path / "a.txt").write_text("good \u65e5" + " \u65e5" * 30 + "\n")
    result = bertctl(
        "extract-features", "a.txt", "-o", "a.npz", "--model", tiny_model, "--max-length", 8, *more
    )
    assert "31 of 34 tokens are unknown" in result.stderr


def test_the_stride_that_reads_long_texts_whole_fits_their_windows(bertctl, tiny_model, tmp_path):
    (tmp_path / "a.txt").write_text("good film number 0123456789 and dull food 0123456789\n")
    words = ("extract-features", "a.txt", "--model", tiny_model, "--max-length", 32)
    cut = bertctl(*words, "-o", "a.npy")
    remedy = cut.stderr.split("lose ")[1].split("; ")[1].split(" reads")[0]
    done = bertctl(*words, "-o", "b.npy", *remedy.split())
    assert done.returncode == 0, done.stderr
    assert " lose " not in done.stderr
