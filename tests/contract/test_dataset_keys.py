"""Every key that the library `datasets` writes beside its rows, and what becomes of it here.

A release that writes another key fails these tests: someone decides then whether it says something
about labels.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.class_features import class_features, names_of_classes, with_class_names
from bertctl.data.readers import READERS
from tests.conftest import Run

datasets = pytest.importorskip("datasets")

READ = "read"
ROWS = "says how the cells are stored, which Parquet's own schema says"
NOT_LABELS = "says nothing about labels"
REFUSED = "of a folder of Arrow files, which is refused with what to type"

FEATURE_KEYS = {
    "_type": READ,
    "names": READ,
    "feature": READ,
    "dtype": ROWS,
    "length": ROWS,
    "shape": ROWS,
    "decode": NOT_LABELS,
    "id": NOT_LABELS,
    "num_classes": "the number of names",
    "names_file": "the names stand beside it",
    "languages": NOT_LABELS,
    "num_languages": NOT_LABELS,
    "mode": NOT_LABELS,
    "sampling_rate": NOT_LABELS,
    "mono": NOT_LABELS,
    "num_channels": NOT_LABELS,
    "stream_index": NOT_LABELS,
}
"""Keys of a feature, in Parquet's metadata and in dataset_info.json."""

FEATURE_TYPES = {
    "ClassLabel": READ,
    "List": READ,
    "LargeList": READ,
    "Sequence": READ,
    **dict.fromkeys(("Value", "Json", "Array2D", "Array3D", "Array4D", "Array5D"), ROWS),
    **dict.fromkeys(("Translation", "TranslationVariableLanguages"), NOT_LABELS),
    **dict.fromkeys(
        ("Audio", "Image", "Video", "Pdf", "Nifti", "Mesh"),
        "no text: refused where a text is needed",
    ),
    **dict.fromkeys(("BioSequence", "BioStructure"), "no text: refused where a text is needed"),
    "Features": "the columns themselves",
}
"""Kinds of features, as `_type` says them."""

INFO_KEYS = {
    "features": READ,
    **dict.fromkeys(
        ("description", "citation", "homepage", "license", "supervised_keys"), NOT_LABELS
    ),
    **dict.fromkeys(
        ("builder_name", "dataset_name", "config_name", "version", "splits"), NOT_LABELS
    ),
    **dict.fromkeys(
        ("download_checksums", "download_size", "dataset_size", "size_in_bytes"), NOT_LABELS
    ),
    **dict.fromkeys(("post_processed", "post_processing_size"), NOT_LABELS),
}
"""Fields of `DatasetInfo`: `info` in Parquet's metadata, dataset_info.json, `dataset_info` of a
README."""

METADATA_KEYS = {"info": READ, "fingerprint": NOT_LABELS}
"""Keys of `huggingface` in Parquet's metadata."""

STATE_KEYS = dict.fromkeys(
    (
        "_data_files",
        "_fingerprint",
        "_format_columns",
        "_format_kwargs",
        "_format_type",
        "_output_all_columns",
        "_split",
    ),
    REFUSED,
)
"""Keys of state.json."""

DICT_KEYS = {"splits": REFUSED}
"""Keys of dataset_dict.json."""

COLUMNS: dict[str, tuple[Any, Any, Any]] = {
    "text": (datasets.Value("string"), "a text", "a text"),
    "label": (datasets.ClassLabel(names=["zneg", "apos", "unused"]), 1, "apos"),
    "none": (datasets.ClassLabel(names=["a", "b"]), -1, None),
    "several": (datasets.List(datasets.ClassLabel(names=["z", "b", "a"])), [2, 0], ["a", "z"]),
    "fixed": (datasets.List(datasets.ClassLabel(names=["O", "B"]), length=2), [0, 1], ["O", "B"]),
    "large": (datasets.LargeList(datasets.ClassLabel(names=["O", "B"])), [1], ["B"]),
    "object": ({"kind": datasets.ClassLabel(names=["x", "y"])}, {"kind": 1}, {"kind": "y"}),
    "spans": (
        datasets.List(
            {"start": datasets.Value("int64"), "label": datasets.ClassLabel(names=["PER", "LOC"])}
        ),
        [{"start": 3, "label": 1}],
        [{"start": 3, "label": "LOC"}],
    ),
    "feature": ({"names": datasets.Value("int64")}, {"names": 1}, {"names": 1}),
    "numbers": (datasets.List(datasets.Value("int64")), [1, 0], [1, 0]),
    "matrix": (datasets.Array2D((1, 2), "int64"), [[1, 2]], [[1, 2]]),
    "translation": (
        datasets.Translation(["en", "de"]),
        {"en": "a", "de": "b"},
        {"en": "a", "de": "b"},
    ),
}
"""A column of each kind: its feature, a cell as it is stored, and as it is read."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the library writes of these columns."""
    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("datasets")
    features = datasets.Features({name: feature for name, (feature, _, _) in COLUMNS.items()})
    data = datasets.Dataset.from_dict(
        {name: [cell] for name, (_, cell, _) in COLUMNS.items()}, features=features
    )
    data.to_parquet(str(folder / "rows.parquet"))
    data.save_to_disk(str(folder / "saved"))
    datasets.DatasetDict({"train": data}).save_to_disk(str(folder / "splits"))
    return folder


def _metadata(folder: Path) -> dict[bytes, bytes]:
    return pq.read_schema(folder / "rows.parquet").metadata


def _keys_of(feature: Any, columns: bool = False) -> set[str]:
    """Returns the keys of a feature and of those in it.

    The names of columns and of fields are left out.
    """
    if isinstance(feature, list):
        return set().union(*map(_keys_of, feature))
    if not isinstance(feature, dict):
        return set()
    if "_type" not in feature or columns or isinstance(feature["_type"], dict):
        return set().union(*map(_keys_of, feature.values()))
    return set(feature).union(*map(_keys_of, feature.values()))


def test_every_key_that_is_written_is_in_the_table(written: Path) -> None:
    huggingface = json.loads(_metadata(written)[b"huggingface"])
    assert huggingface.keys() <= METADATA_KEYS.keys()
    assert huggingface["info"].keys() <= INFO_KEYS.keys()
    assert _keys_of(huggingface["info"]["features"], columns=True) <= FEATURE_KEYS.keys()
    info = json.loads((written / "saved" / "dataset_info.json").read_text())
    assert info.keys() <= INFO_KEYS.keys()
    assert _keys_of(info["features"], columns=True) <= FEATURE_KEYS.keys()
    assert json.loads((written / "saved" / "state.json").read_text()).keys() <= STATE_KEYS.keys()
    assert (
        json.loads((written / "splits" / "dataset_dict.json").read_text()).keys()
        <= DICT_KEYS.keys()
    )


def test_every_field_of_the_library_is_in_the_table() -> None:
    assert {field.name for field in dataclasses.fields(datasets.DatasetInfo)} <= INFO_KEYS.keys()
    kinds = {
        name
        for name, kind in vars(datasets.features).items()
        if isinstance(kind, type) and kind.__module__.startswith("datasets.features")
    }
    assert kinds <= FEATURE_TYPES.keys()
    of_python = {"pa_type", "_str2int", "_int2str"}
    for kind in (datasets.ClassLabel, datasets.List, datasets.LargeList, datasets.Value):
        assert {field.name for field in dataclasses.fields(kind)} - of_python <= FEATURE_KEYS.keys()


@pytest.mark.parametrize("column", COLUMNS)
def test_a_cell_is_read_with_the_names_of_its_classes(column: str, written: Path) -> None:
    rows = (
        READERS["text-classification"]
        .read(
            written / "rows.parquet",
            DataSection(text_column="text"),
            split="train",
            label_needed=False,
        )
        .rows
    )
    name = {"label": "label", "text": "text"}.get(column, column)
    assert list(rows.columns[name]) == [COLUMNS[column][2]]


@pytest.mark.parametrize(
    ("feature", "cell", "expected"),
    [
        ([{"names": ["O", "B"], "_type": "ClassLabel", "id": None}], [0, 1], ["O", "B"]),
        (
            {
                "feature": {"names": ["O", "B"], "_type": "ClassLabel"},
                "length": -1,
                "_type": "Sequence",
            },
            [1],
            ["B"],
        ),
        (
            {
                "feature": {"label": {"names": ["x", "y"], "_type": "ClassLabel"}},
                "_type": "Sequence",
            },
            {"label": [1, 0], "start": [3, 4]},
            {"label": ["y", "x"], "start": [3, 4]},
        ),
        (
            {"names": ["a", "b"], "names_file": None, "num_classes": 2, "_type": "ClassLabel"},
            1,
            "b",
        ),
        ({"names": ["a", "b"], "_type": "ClassLabel"}, 7, 7),
    ],
)
def test_what_earlier_releases_wrote_is_read(feature: Any, cell: Any, expected: Any) -> None:
    document = {"info": {"features": {"label": feature}}}
    metadata = {b"huggingface": json.dumps(document).encode()}

    label_feature = class_features(metadata)["label"]

    assert with_class_names(cell, label_feature) == expected


def test_the_order_of_the_names_and_those_without_rows_are_kept(written: Path) -> None:
    reading = READERS["text-classification"].read(
        written / "rows.parquet", DataSection(), split="train", label_needed=True
    )
    assert reading.class_names == ("zneg", "apos", "unused")
    features = class_features(_metadata(written))
    assert names_of_classes(features["several"]) == ("z", "b", "a")
    assert names_of_classes(features["spans"]) == ()


@pytest.mark.in_process
@pytest.mark.parametrize(
    "words",
    [
        ["finetune", "saved"],
        ["finetune", "splits"],
        ["finetune", "text-classification", "--train-file", "saved/data-00000-of-00001.arrow"],
    ],
)
def test_a_folder_of_arrow_files_is_refused_with_what_to_type(
    words: list[str], written: Path, bertctl: Run
) -> None:
    refused = bertctl(*(written / word if (written / word).exists() else word for word in words))
    assert refused.returncode == 2, refused.stderr
    assert "to_parquet(" in refused.stderr
