"""Vectors of a small random model through the whole pipeline.

They are compared with one text at a time in plain transformers.
"""

import functools
import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from bertctl.appended import AppendedArray, open_array
from bertctl.config.recipe_sections import DataSection, ModelSection, RuntimeSection
from bertctl.data.rows import Rows
from bertctl.data.text_rows import TEXT_READER
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.features import chunks as chunks_module
from bertctl.features import extract_rows as extract_module
from bertctl.features import feature_files
from bertctl.features.chunks import chunks
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.features.extract_job import ExtractJob
from bertctl.features.extract_rows import extract
from bertctl.features.source import Input
from bertctl.inference.engine import Engine
from bertctl.modeling.build import load_frozen
from bertctl.modeling.layers import choose_layers
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.run_folder import hold
from bertctl.runtime.device import choose_compute
from bertctl.runtime.launch import Workers
from bertctl.tokenization.long_texts import LongText

FORTY = LongText(max_length=40)
TEXTS = [
    "the film was good",
    "it was a very very dull film , not fine",
    "bad",
    "the food was not good and it was poor too",
    "bright",
    "",
    "was it a film ?",
    "not good",
    "the the the the the the",
    "poor dull bad food",
]


def sidecar_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def vectors_in(path: Path) -> np.ndarray:
    """The vectors of a file, as other programs read them; (N, K, D) for several layers."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        layers = [
            np.stack(table[name].to_numpy())
            for name in table.column_names
            if name.startswith("vector")
        ]
        return layers[0] if len(layers) == 1 else np.stack(layers, axis=1)
    if path.suffix == ".safetensors":
        return load_file(path)["vectors"]
    if path.suffix == ".h5":
        with pytest.importorskip("h5py").File(path) as file:
            return file["vectors"][()]
    return np.load(path) if path.suffix == ".npy" else np.load(path)["vectors"]


def rows_of(texts: list[str], **columns: list) -> Rows:
    return Rows(
        "predict", {"text": texts, **columns}, [str(i) for i in range(len(texts))], "memory"
    )


@pytest.fixture(scope="module", params=["right", pytest.param("left", marks=pytest.mark.slow)])
def model(
    request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The small model, once with a tokenizer that pads on the left."""
    if request.param == "right":
        return tiny_model
    folder = tmp_path_factory.mktemp("left")
    for file in tiny_model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.save_pretrained(folder)
    return folder


def encoder_of(
    model: Path,
    layers: str = "last",
    poolings: str = "mean",
    *,
    budget: int | None = None,
    **more: object,
) -> Encoder:
    source, loaded, engine = _engine_of(model)
    spec = VectorSpec(choose_layers(layers.split(","), 2), tuple(poolings.split(",")), **more)
    return Encoder(source, loaded, spec, engine, budget=budget)


@functools.cache
def _engine_of(model: Path) -> tuple[ModelSource, Model, Engine]:
    """Returns the frozen model of a folder, loaded once for all tests of a process."""
    source = inspect_model(ModelSection(name=str(model), max_length=40))
    compute = choose_compute(RuntimeSection(device="cpu", precision="fp32"))
    loaded = load_frozen(source, compute)
    return source, loaded, frozen_engine(loaded, compute)


@pytest.fixture(scope="module")
def one_by_one(model: Path) -> Callable[[str], tuple[list[torch.Tensor], torch.Tensor]]:
    """Hidden states (T, H) and pooler output of one text in plain transformers."""
    network = transformers.AutoModel.from_pretrained(model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    def states(text: str) -> tuple[list[torch.Tensor], torch.Tensor]:
        with torch.inference_mode():
            output = network(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        return [state[0] for state in output.hidden_states], output.pooler_output[0]

    return states


def run(
    model: Path, out: Path, texts: list[str] = TEXTS, *, max_length: int = 40, **more: object
) -> dict:
    job_fields = {}
    for name in ("dtype", "resume", "overwrite", "keep_text"):
        if name in more:
            job_fields[name] = more.pop(name)
    workers = {}
    if "workers" in more:
        workers["workers"] = more.pop("workers")
    long_text = LongText.of(ModelSection(max_length=max_length), more.pop("stride", None))
    job = ExtractJob(out, long_text, **job_fields)
    rows = more.pop("rows", None) or rows_of(texts)
    encoder = encoder_of(model, **more)
    return extract(rows.parts(chunks_module.READ_ROWS), encoder, job, **workers)


def assert_near(actual: object, expected: object) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("model", ["right", "left"], indirect=True)
def test_texts_by_hand_in_every_layer_and_pooling(model, one_by_one, tmp_path):
    poolings = ["cls", "mean", "max", "mean-max", "pooler"]
    for pooling in poolings:
        layers = "last" if pooling == "pooler" else "embeddings,1,last"
        run(model, tmp_path / f"{pooling}.npy", layers=layers, poolings=pooling)

    actual = {pooling: np.load(tmp_path / f"{pooling}.npy") for pooling in poolings}
    for i, text in enumerate(TEXTS):
        states, pooled = one_by_one(text)
        assert_near(actual["pooler"][i], pooled)
        for layer, state in enumerate(states):
            mean = state.mean(0)
            maximum = state.amax(0)
            assert_near(actual["cls"][i, layer], state[0])
            assert_near(actual["mean"][i, layer], mean)
            assert_near(actual["max"][i, layer], maximum)
            assert_near(actual["mean-max"][i, layer], torch.cat([mean, maximum]))


def test_special_tokens_can_be_left_out_of_the_mean(model, one_by_one, tmp_path):
    run(model, tmp_path / "a.npy", special_tokens=False)
    arrays = np.load(tmp_path / "a.npy")
    for i, text in enumerate(TEXTS):
        states, _ = one_by_one(text)
        inner = states[-1][1:-1] if text else states[-1]  # of an empty text there is nothing else
        np.testing.assert_allclose(arrays[i], inner.mean(0), atol=1e-5)


def test_normalized_vectors_have_length_one_and_the_same_direction(model, tmp_path):
    run(model, tmp_path / "a.npy")
    run(model, tmp_path / "b.npy", normalize=True)
    plain = np.load(tmp_path / "a.npy")
    normalized = np.load(tmp_path / "b.npy")
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.abs(lengths - 1).max() > 0.1
    np.testing.assert_allclose(normalized, plain / lengths, atol=1e-6)


def test_batch_composition_order_and_padding_never_change_a_vector(model, tmp_path):
    run(model, tmp_path / "many.npy")
    many = np.load(tmp_path / "many.npy")
    for name, budget in (("one", 1), ("few", 40)):
        run(model, tmp_path / f"{name}.npy", budget=budget)
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), many, atol=1e-5)
    backwards = TEXTS[::-1]
    run(model, tmp_path / "back.npy", backwards)
    np.testing.assert_allclose(np.load(tmp_path / "back.npy")[::-1], many, atol=1e-5)


def test_pairs_have_segments(model, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModel.from_pretrained(model).eval()
    run(model, tmp_path / "a.npy", rows=rows_of(TEXTS[:3], pair=TEXTS[3:6]))
    with torch.inference_mode():
        inputs = tokenizer(TEXTS[0], TEXTS[3], return_tensors="pt")
        assert inputs["token_type_ids"].sum() > 3
        expected = network(**inputs).last_hidden_state[0].mean(0)
    np.testing.assert_allclose(np.load(tmp_path / "a.npy")[0], expected, atol=1e-5)


def test_token_vectors_are_flat_with_offsets(model, one_by_one, tmp_path):
    document = run(model, tmp_path / "a.npz", layers="1,last", poolings="none")

    with np.load(tmp_path / "a.npz") as arrays:
        vectors = arrays["vectors"]
        offsets = arrays["offsets"]
        spans = arrays["spans"]
        ids = arrays["ids"]
    assert document["shape"] == [offsets[-1], 2, 36]
    for i, text in enumerate(TEXTS):
        states, _ = one_by_one(text)
        vectors_of_text = vectors[offsets[i] : offsets[i + 1]]
        assert_near(vectors_of_text[:, 0], states[1])
        assert_near(vectors_of_text[:, 1], states[2])
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    first_tokens = tokenizer.convert_ids_to_tokens(ids[: offsets[1]])
    assert first_tokens == tokenizer.tokenize(TEXTS[0], add_special_tokens=True)
    start, end = spans[2]
    assert TEXTS[0][start:end] == "film"


@pytest.mark.parametrize("how", ["first", "last", "mean"])
def test_word_vectors_by_hand_with_a_word_of_several_pieces(model, one_by_one, tmp_path, how):
    text = "the xyz film ok"  # x ##y ##z, o ##k
    run(model, tmp_path / "a.npz", [text, "bad"], words=how)

    states, _ = one_by_one(text)
    pieces = states[-1]
    assert len(pieces) == 1 + 1 + 3 + 1 + 2 + 1
    pieces_of_words = [pieces[1:2], pieces[2:5], pieces[5:6], pieces[6:8]]
    choose = {
        "first": lambda word: word[0],
        "last": lambda word: word[-1],
        "mean": lambda word: word.mean(0),
    }[how]
    expected = torch.stack([choose(word) for word in pieces_of_words])
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["offsets"].tolist() == [0, 4, 5]
        assert_near(arrays["vectors"][:4], expected)
        words = [text[start:end] for start, end in arrays["spans"][:4]]
        assert words == ["the", "xyz", "film", "ok"]


def test_words_given_as_such_keep_their_number_even_without_a_piece(model, tmp_path):
    words = [["don't", "\x07", "it"], ["bad"]]
    rows = rows_of(["don't \x07 it", "bad"], words=words)
    unknown_words = [["don't", "[UNK]", "it"], ["bad"]]
    unknown_rows = rows_of(["don't [UNK] it", "bad"], words=unknown_words)

    run(model, tmp_path / "a.jsonl", rows=rows, words="mean")
    run(model, tmp_path / "b.jsonl", rows=unknown_rows, words="mean")

    first, second = lines_of(tmp_path / "a.jsonl")
    assert [feature["token"] for feature in first["features"]] == words[0]
    assert [feature["token"] for feature in second["features"]] == words[1]
    of_unknown, _ = lines_of(tmp_path / "b.jsonl")
    layers = [feature["layers"] for feature in first["features"]]
    layers_of_unknown = [feature["layers"] for feature in of_unknown["features"]]
    assert layers == layers_of_unknown, "as in training, it is a word that is not known"


def test_words_of_pairs_are_named_by_their_own_text(model, tmp_path):
    texts = ["the film", "bad"]
    pairs = ["it was a dull food", " not good"]
    run(model, tmp_path / "a.jsonl", rows=rows_of(texts, pair=pairs), words="first")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    by_name = [[f["token"] for f in line["features"]] for line in lines]
    assert by_name == [f"{text} {pair}".split() for text, pair in zip(texts, pairs, strict=True)]


def test_h5_holds_tokens_as_npz_does(model, tmp_path):
    h5py = pytest.importorskip("h5py", reason="pip install 'bertctl[h5]'")
    run(model, tmp_path / "a.h5", poolings="none")
    run(model, tmp_path / "a.npz", poolings="none")
    with h5py.File(tmp_path / "a.h5") as file, np.load(tmp_path / "a.npz") as arrays:
        assert set(file) == {"vectors", "offsets", "spans", "ids"} == set(arrays)
        for name in file:
            np.testing.assert_array_equal(file[name][()], arrays[name])


def test_conll_columns_are_words_that_stay_as_they_are(model, one_by_one, tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART- O\n\nthe O\ndon't B-X\nfilm O\n\nbad O\n")
    rows = next(iter(Input(str(path), DataSection()).stream()))

    run(model, tmp_path / "a.jsonl", rows=rows, words="first")
    run(model, tmp_path / "b.npy", rows=rows)

    first, second = lines_of(tmp_path / "a.jsonl")
    assert [feature["token"] for feature in first["features"]] == ["the", "don't", "film"]
    (bad,) = second["features"]
    assert bad["token"] == "bad"
    states, _ = one_by_one("bad")
    assert_near(bad["layers"][0]["values"], states[-1][1])
    assert np.load(tmp_path / "b.npy").shape == (2, 36)


def test_conll_columns_are_read_from_a_packed_file(tmp_path):
    text = "-DOCSTART- O\n\nthe O\ndon't B-X\nfilm O\n\nbad O\n"
    with gzip.open(tmp_path / "a.conll.gz", "wt") as file:
        file.write(text)

    (rows,) = Input(str(tmp_path / "a.conll.gz"), DataSection()).stream()

    assert rows.columns["words"] == [["the", "don't", "film"], ["bad"]]


def test_jsonl_is_laid_out_as_by_google_research_bert(model, one_by_one, tmp_path):
    run(model, tmp_path / "a.jsonl", layers="-1,-2", poolings="none")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["linex_index"] for line in lines] == list(range(len(TEXTS)))
    states, _ = one_by_one(TEXTS[0])
    assert list(lines[0]) == ["linex_index", "features"]
    assert [f["token"] for f in lines[0]["features"]] == [
        "[CLS]",
        "the",
        "film",
        "was",
        "good",
        "[SEP]",
    ]
    for position, feature in enumerate(lines[0]["features"]):
        assert list(feature) == ["token", "layers"]
        assert [layer["index"] for layer in feature["layers"]] == [-1, -2]
        for layer in feature["layers"]:
            assert layer["values"] == [round(x, 6) for x in layer["values"]]
            np.testing.assert_allclose(
                layer["values"], states[3 + layer["index"]][position], atol=2e-6
            )


def test_a_suffix_in_capitals_is_the_same_format(tiny_model, tmp_path):
    for name in ("a.jsonl", "b.JSONL"):
        run(tiny_model, tmp_path / name, poolings="none", keep_text=False)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.JSONL").read_bytes()


def test_windows_of_a_long_text_are_pooled_together(model, one_by_one, tmp_path):
    words = list(
        itertools.islice(
            itertools.cycle(["the", "film", "was", "good", "bad", "food", "not", "very"]), 21
        )
    )
    text = " ".join(words)
    with pytest.raises(UsageError, match=r"window .* 8 tokens"):
        run(model, tmp_path / "no.npy", [text], max_length=10, stride=8)
    for pooling in ("mean", "max", "cls"):
        run(
            model,
            tmp_path / f"{pooling}.npy",
            ["bad", text],
            max_length=10,
            stride=3,
            poolings=pooling,
        )
    parts = [
        " ".join(words[first : first + 8]) for first in (0, 5, 10, 13)
    ]  # the last one is filled up
    assert parts[-1].split()[-1] == words[-1]
    states = [one_by_one(part)[0][-1] for part in parts]
    np.testing.assert_allclose(
        np.load(tmp_path / "mean.npy")[1], torch.cat(states).mean(0), atol=1e-5
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "max.npy")[1], torch.cat(states).amax(0), atol=1e-5
    )
    cls = torch.stack([state[0] for state in states]).mean(0)
    np.testing.assert_allclose(np.load(tmp_path / "cls.npy")[1], cls, atol=1e-5)
    np.testing.assert_allclose(
        np.load(tmp_path / "mean.npy")[0], one_by_one("bad")[0][-1].mean(0), atol=1e-5
    )


def test_each_token_of_a_long_text_comes_from_the_window_with_more_around_it(
    model, one_by_one, tmp_path
):
    words = [
        "the",
        "film",
        "was",
        "good",
        "bad",
        "food",
        "not",
        "very",
        "fine",
        "poor",
        "dull",
        "bright",
    ]
    text = " ".join(words)
    run(
        model,
        tmp_path / "a.npz",
        [text, "bad"],
        max_length=10,
        stride=4,
        poolings="none",
    )
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["offsets"].tolist() == [0, 14, 17]
        vectors = arrays["vectors"][:, :]
        assert [text[a:b] for a, b in arrays["spans"][1:13]] == words
    first = one_by_one(" ".join(words[0:8]))[0][-1]
    second = one_by_one(" ".join(words[4:12]))[0][-1]
    by_hand = torch.cat(
        [first[0:7], second[3:9], second[9:10]]
    )  # words 4 and 5 have more context in the first window
    np.testing.assert_allclose(vectors[:14], by_hand, atol=1e-5)


def test_what_is_cut_is_counted(model, tmp_path):
    document = run(model, tmp_path / "a.npy", ["the film " * 10, "bad"], max_length=12)
    assert document["truncated"] == 1
    assert document["lost_tokens"] == 10
    document = run(
        model, tmp_path / "b.npz", ["the film " * 10, "bad"], max_length=12, poolings="none"
    )
    assert document["truncated"] == 1
    assert document["lost_tokens"] == 10


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".parquet", ".h5"])
def test_every_format_reads_back_equal_with_its_sidecar(model, tmp_path, suffix):
    if suffix == ".h5":
        pytest.importorskip("h5py", reason="pip install 'bertctl[h5]'")
    run(model, tmp_path / "plain.npy", layers="1,last")
    out = tmp_path / f"a{suffix}"
    rows = rows_of(TEXTS, label=["x", "y"] * 5)
    document = run(model, out, rows=rows, layers="1,last")
    np.testing.assert_array_equal(vectors_in(out), np.load(tmp_path / "plain.npy"))
    assert document == json.loads(sidecar_of(out).read_text())
    assert document["shape"] == [10, 2, 36]
    assert document["layers"] == ["1", "last"]
    assert document["pooling"] == "mean"
    assert document["rows"] == 10
    assert not (tmp_path / f"a{suffix}.parts").exists()
    if suffix == ".parquet":
        assert pq.read_table(out).column("label").to_pylist() == ["x", "y"] * 5


def test_parquet_reads_in_pandas_with_id_text_label_and_a_list_of_fixed_size(model, tmp_path):
    rows = rows_of(TEXTS, label=[0, 1] * 5)
    run(model, tmp_path / "a.parquet", rows=rows)
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.names == ["id", "text", "label", "vector"]
    assert schema.field("vector").type.list_size == 36
    pandas = pytest.importorskip("pandas")
    table = pandas.read_parquet(tmp_path / "a.parquet")
    assert table["text"].tolist() == TEXTS
    np.testing.assert_array_equal(np.stack(table["vector"]), vectors_in(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("labels", "written"),
    [
        ([1, "b", None, 0.5, True], ["1", "b", None, "0.5", "True"]),
        ([None, None, "a", "b", None], [None, None, "a", "b", None]),
        ([1, 2, 0.5, None, 3], [1.0, 2.0, 0.5, None, 3.0]),
        ([None] * 5, [None] * 5),
        ([["a"], [], ["b", "c"], None, []], [["a"], [], ["b", "c"], None, []]),
    ],
)
def test_labels_of_several_kinds_have_one_type_in_parquet(
    tiny_model, tmp_path, monkeypatch, labels, written
):
    monkeypatch.setattr(feature_files, "_GROUP_ROWS", 2)
    run(tiny_model, tmp_path / "a.parquet", rows=rows_of(TEXTS[:5], label=labels))
    assert pq.read_table(tmp_path / "a.parquet")["label"].to_pylist() == written


@pytest.mark.parametrize("labels", [[["a"], [1]], [10**30, 1]])
def test_labels_that_fit_no_column_are_refused(tiny_model, tmp_path, labels):
    with pytest.raises(DataError, match="the labels are of kinds"):
        run(tiny_model, tmp_path / "a.parquet", rows=rows_of(TEXTS[:2], label=labels))


def test_half_precision_numbers_take_half_the_room(model, tmp_path):
    run(model, tmp_path / "a.npy")
    run(model, tmp_path / "b.npy", dtype="float16")
    half = np.load(tmp_path / "b.npy")
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, np.load(tmp_path / "a.npy").astype(np.float16))


class _KilledError(Exception):
    """Stands for a kill in the middle: the input breaks off, nothing is tidied up."""


def _breaking(rows: Rows, after: int) -> Iterator[Rows]:
    for number, portion in enumerate(rows.parts(chunks_module.READ_ROWS)):
        if number == after:
            raise _KilledError
        yield portion


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "READ_ROWS", 2)
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 4)
    monkeypatch.setattr(extract_module, "_SECONDS_BETWEEN_COMMITS", 0.0)


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".npz", ".parquet", ".safetensors"])
@pytest.mark.parametrize("poolings", ["mean", "none"])
@pytest.mark.usefixtures("small_chunks")
def test_an_attempt_that_was_cut_off_is_taken_up_again_and_ends_equal(
    tiny_model, tmp_path, suffix, poolings
):
    if suffix == ".npy" and poolings == "none":
        pytest.skip("one array has no place for offsets")
    rows = rows_of(TEXTS, label=["x", "y"] * 5)
    complete = tmp_path / f"whole{suffix}"
    cut = tmp_path / f"cut{suffix}"
    run(tiny_model, complete, rows=rows, poolings=poolings)
    with pytest.raises(_KilledError):
        extract(
            _breaking(rows, 4), encoder_of(tiny_model, poolings=poolings), ExtractJob(cut, FORTY)
        )
    state = json.loads(sidecar_of(cut).read_text())
    assert state["rows"] == 8
    assert state["complete"] is False
    assert not cut.exists(), "half a file never has the final name"
    with (tmp_path / f"cut{suffix}.parts" / "0" / "vectors.npy").open("ab") as file:
        file.write(b"half a row")
    with pytest.raises(UsageError, match="unfinished, 8 rows"):
        run(tiny_model, cut, rows=rows, poolings=poolings)
    with (
        hold(tmp_path / f"cut{suffix}.parts" / "0" / ".lock"),
        pytest.raises(UsageError, match="0 is in use by"),
    ):
        run(tiny_model, cut, rows=rows, poolings=poolings, resume=True)
    run(tiny_model, cut, rows=rows, poolings=poolings, resume=True)
    assert cut.read_bytes() == complete.read_bytes()
    again = run(tiny_model, cut, rows=rows, poolings=poolings, resume=True)
    assert again["complete"]


@pytest.mark.usefixtures("small_chunks")
def test_a_stop_while_the_file_is_made_says_that_all_rows_are_whole(
    tiny_model, tmp_path, monkeypatch
):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(extract_module, "write_features", stopped)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(tiny_model, tmp_path / "a.npy")
    assert caught.value.__notes__ == ["10 rows are whole"]


@pytest.mark.usefixtures("small_chunks")
def test_a_resume_with_other_settings_or_another_input_is_refused(tiny_model, tmp_path):
    out = tmp_path / "a.npy"
    with pytest.raises(_KilledError):
        extract(_breaking(rows_of(TEXTS), 4), encoder_of(tiny_model), ExtractJob(out, FORTY))
    with pytest.raises(UsageError, match=r"pooling 'mean', .*'max'"):
        run(tiny_model, out, poolings="max", resume=True)
    with pytest.raises(UsageError, match="keep_text True, and now it is False"):
        run(tiny_model, out, keep_text=False, resume=True)
    with pytest.raises(DataError, match="changed"):
        run(tiny_model, out, ["other", *TEXTS[1:]], resume=True)
    with pytest.raises(DataError, match="changed"):
        run(tiny_model, out, rows=rows_of(TEXTS, label=["x"] * len(TEXTS)), resume=True)
    with pytest.raises(DataError, match="8 had been"):
        run(tiny_model, out, TEXTS[:4], resume=True)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("small_chunks")
def test_a_finished_file_is_finished_for_its_own_input_alone(tiny_model, tmp_path, count):
    out = tmp_path / "a.npy"
    for rank in reversed(range(count)):
        run(tiny_model, out, workers=Workers(rank, count))
    made = out.read_bytes()
    for rank in range(count):
        assert run(tiny_model, out, resume=True, workers=Workers(rank, count))["complete"]
        for texts in (["other", *TEXTS[1:]], [*TEXTS, "more"], TEXTS[:4]):
            with pytest.raises(DataError, match="changed"):
                run(tiny_model, out, texts, resume=True, workers=Workers(rank, count))
    assert out.read_bytes() == made


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 3)])
@pytest.mark.usefixtures("small_chunks")
def test_what_another_number_of_processes_has_begun_is_neither_lost_nor_mixed(
    tiny_model, tmp_path, first, then
):
    def cut_off(count: int, **more: bool) -> None:
        job = ExtractJob(out, FORTY, **more)
        with pytest.raises(_KilledError):
            extract(
                _breaking(rows_of(TEXTS), 4), encoder_of(tiny_model), job, workers=Workers(0, count)
            )

    out = tmp_path / "a.npy"
    cut_off(first)
    begun = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(UsageError, match="unfinished, 8 rows"):
        run(tiny_model, out, workers=Workers(0, then))
    with pytest.raises(UsageError, match=f"begun with processes {first}, and now it is {then}"):
        run(tiny_model, out, resume=True, workers=Workers(0, then))
    assert {path: path.read_bytes() for path in begun} == begun
    cut_off(then, overwrite=True)
    with pytest.raises(UsageError, match=f"begun with processes {then}, and now it is {first}"):
        run(tiny_model, out, resume=True, workers=Workers(0, first))


@pytest.mark.usefixtures("small_chunks")
def test_several_processes_killed_while_they_tidy_up_were_finished(
    tiny_model, tmp_path, monkeypatch
):
    out = tmp_path / "a.npy"
    with monkeypatch.context() as patch:
        patch.setattr(extract_module.shutil, "rmtree", lambda *_, **__: None)
        for rank in (1, 0):
            run(tiny_model, out, workers=Workers(rank, 2))
    (tmp_path / "a.npy.parts" / "1.json").unlink()
    (tmp_path / "a.npy.parts" / "0" / "vectors.npy").unlink()
    for rank in (0, 1):
        assert run(tiny_model, out, resume=True, workers=Workers(rank, 2))["complete"]
    assert not (tmp_path / "a.npy.parts").exists()


@pytest.mark.usefixtures("small_chunks")
def test_vectors_are_readable_while_they_are_computed(tiny_model, tmp_path):
    out = tmp_path / "a.npy"
    grown = tmp_path / "a.npy.parts" / "0" / "vectors.npy"
    observed: list[tuple[int, ...]] = []

    def watched() -> Iterator[Rows]:
        for portion in rows_of(TEXTS).parts(chunks_module.READ_ROWS):
            if grown.exists():
                observed.append(open_array(grown).shape)
            yield portion

    extract(watched(), encoder_of(tiny_model), ExtractJob(out, FORTY))
    assert observed[-1] == (8, 36)
    assert np.load(out).shape == (10, 36)


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".parquet"])
@pytest.mark.usefixtures("small_chunks")
def test_three_processes_equal_one(tiny_model, tmp_path, suffix):
    poolings = "none" if suffix == ".jsonl" else "mean"
    run(tiny_model, tmp_path / f"one{suffix}", poolings=poolings)
    out = tmp_path / f"three{suffix}"
    for rank in (2, 1, 0):  # the first joins, when the others have written
        run(tiny_model, out, poolings=poolings, workers=Workers(rank, 3))
    assert out.read_bytes() == (tmp_path / f"one{suffix}").read_bytes()
    assert json.loads(sidecar_of(out).read_text())["rows"] == 10


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_file_that_was_deleted_is_made_again(tiny_model, tmp_path, resume):
    out = tmp_path / "a.npy"
    run(tiny_model, out)
    made = out.read_bytes()
    out.unlink()
    run(tiny_model, out, resume=resume)
    assert out.read_bytes() == made


@pytest.mark.parametrize("resume", [False, True])
def test_a_json_file_of_somebody_else_beside_it_is_refused(tiny_model, tmp_path, resume):
    sidecar_of(tmp_path / "a.npy").write_text('{"mine": 1}')
    with pytest.raises(UsageError, match=r"a\.npy\.json does not describe vectors"):
        run(tiny_model, tmp_path / "a.npy", resume=resume)
    assert sidecar_of(tmp_path / "a.npy").read_text() == '{"mine": 1}'


def test_zero_rows_are_refused(tiny_model, tmp_path):
    with pytest.raises(DataError, match="no rows"):
        extract(iter([]), encoder_of(tiny_model), ExtractJob(tmp_path / "a.npy", FORTY))


@pytest.mark.parametrize(
    ("name", "poolings", "message"),
    [("a.pt", "mean", "'.pt'"), ("a", "mean", "no suffix"), ("a.npy", "none", "one array")],
)
def test_an_output_that_fits_nothing_is_refused(tiny_model, tmp_path, name, poolings, message):
    with pytest.raises(UsageError, match=message):
        run(tiny_model, tmp_path / name, poolings=poolings)


def test_a_learned_mix_has_no_vectors_of_its_own(tiny_model, tmp_path):
    with pytest.raises(UsageError, match="weighted-all"):
        run(tiny_model, tmp_path / "a.npy", layers="weighted-all")


def test_a_pooler_without_trained_weights_is_refused(tiny_model, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "no-pooler"
    folder.mkdir()
    for file in tiny_model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    assert any("pooler" in name for name in weights)
    save_file(
        {n: w for n, w in weights.items() if "pooler" not in n},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(UsageError, match="no pooler"):
        run(folder, tmp_path / "a.npy", poolings="pooler")
    with pytest.raises(UsageError, match="'pooler' reads the last layer"):
        run(tiny_model, tmp_path / "a.npy", layers="1", poolings="pooler")


def test_a_full_disk_keeps_whole_rows(tmp_path):
    array = AppendedArray(tmp_path / "a.npy", (3,), "float32", None)
    array.append(np.ones((2, 3)))
    real = array._file._file

    class Full:
        def __getattr__(self, name: str):
            return getattr(real, name)

        def write(self, data: memoryview) -> int:
            if len(data) > 20:
                return real.write(data[:20])
            raise OSError(28, "No space left on device")

    array._file._file = Full()
    with pytest.raises(UnavailableError, match=r"disk .*full"):
        array.append(np.full((2, 3), 2.0))
    assert (tmp_path / "a.npy").stat().st_size == 128 + 2 * 12
    array._file._file = real
    array.append(np.full((1, 3), 3.0))
    array.sync()
    array.close()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy")[:, 0], [1, 1, 3])


def test_a_file_shorter_than_its_whole_rows_is_refused(tmp_path):
    array = AppendedArray(tmp_path / "a.npy", (3,), "float32", None)
    array.append(np.ones((2, 3)))
    array.close()
    with pytest.raises(DataError, match="cut short"):
        AppendedArray(tmp_path / "a.npy", (3,), "float32", 3)


def test_windows_are_the_same_however_far_one_is(monkeypatch):
    monkeypatch.setattr(chunks_module, "CHUNK_CHARACTERS", 600)
    rows = rows_of([f"{'a' * (i % 7)} {i}" for i in range(2000)])
    actual = [len(chunk) for chunk in chunks(rows.parts(chunks_module.READ_ROWS))]
    assert sum(actual) == 2000
    assert len(actual) > 3
    assert all(count % chunks_module.READ_ROWS == 0 for count in actual[:-1])


def test_a_stream_is_read_in_portions_that_do_not_depend_on_the_attempt(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(1000)))
    counts = [
        len(r)
        for r in TEXT_READER.stream(
            tmp_path / "a.txt", DataSection(), chunk_rows=chunks_module.READ_ROWS
        )
    ]
    assert counts == [256, 256, 256, 232]
