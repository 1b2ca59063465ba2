"""The catalog's table, where its files are looked for, and what is refused in them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bertctl.catalog.dataset_row import Columns, DatasetRow, Hub, SplitRow
from bertctl.catalog.datasets import builtin_datasets, dataset_names, find_dataset
from bertctl.config.recipe_sections import DataSection, EvaluationSection
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import load_data
from bertctl.errors import DataError, UnavailableError, UsageError
from tests.heard import Heard


def files(**by_split: str) -> tuple[SplitRow, ...]:
    return tuple(SplitRow(name, (file,)) for name, file in by_split.items())


def recipe_for(name: str, **data: object) -> Recipe:
    dataset = builtin_datasets()[name]
    return Recipe(task=dataset.task, data=DataSection(name=name, **data))


@pytest.mark.parametrize("place", ["SST-2/train.tsv", "sst2/train.tsv", "train.tsv"])
def test_places_below_the_data_dir(tmp_path, place, monkeypatch):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("sentence\tlabel\nfine \t1\nbad \t0\n", encoding="utf-8")
    data = load_data(recipe_for("sst2", data_dir=str(tmp_path)), splits=["train"])
    monkeypatch.setenv("BERTCTL_DATA", str(tmp_path))
    from_environment = load_data(recipe_for("sst2"), splits=["train"])
    assert len(data.splits["train"]) == 2
    assert data.hashes == from_environment.hashes


def test_missing_files_are_listed_and_the_hub_is_not_asked(tmp_path):
    with pytest.raises(UnavailableError) as caught:
        load_data(recipe_for("rte", data_dir=str(tmp_path)))
    for tried in (
        "RTE/train.tsv",
        "rte/train.tsv",
        "train.tsv",
        "rte/train-00000-of-00001.parquet",
    ):
        assert str(tmp_path / tried) in caught.value.message
    assert "RTE/dev.tsv" in caught.value.remedy
    with pytest.raises(UnavailableError, match="does not exist"):
        load_data(recipe_for("rte", data_dir=str(tmp_path / "nowhere")))


def test_offline_without_files_names_the_ways():
    with pytest.raises(UnavailableError, match="offline") as caught:
        load_data(recipe_for("sst2"))
    assert "`data.data_dir=DIR` (or BERTCTL_DATA=DIR)" in caught.value.remedy
    assert "SST-2/train.tsv" in caught.value.remedy
    assert "cache" in caught.value.remedy


def _official_file(tmp_path: Path, name: str, content: str) -> Recipe:
    path = tmp_path / builtin_datasets()[name].folder / "train.tsv"
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8", newline="")
    return recipe_for(name, data_dir=str(tmp_path))


def test_rows_without_label_or_field_are_left_out_counted_and_numbered_anew(tmp_path):
    header = "index\tquestion\tsentence\tlabel\n"
    lines = [
        "0\tq0\ts0\tentailment",
        "1\tq1\ts1\t-",
        "2\tq2",
        "3\tq3\ts3\t",
        "4\tq4\ts4\tnot_entailment\textra",
    ]
    listener = Heard()
    recipe = _official_file(tmp_path, "qnli", header + "\r\n".join(lines))
    data = load_data(recipe, splits=["train"], listener=listener)
    rows = data.splits["train"]
    assert list(rows.columns["text"]) == ["q0", "q4"]
    assert list(rows.ids) == ["0", "1"]
    assert list(rows.lines) == [2, 6]
    field, label = (text.split(": ")[1] for text in listener.warned)
    assert field.startswith("1 row without all fields left out")
    assert label.startswith("2 rows without a label")


def test_a_strange_label_is_refused_with_its_line(tmp_path):
    recipe = _official_file(tmp_path, "sst2", "sentence\tlabel\nfine\t1\nodd\t2\n")
    with pytest.raises(DataError, match=r"train.tsv:3: '2' .*label of 'sst2'") as caught:
        load_data(recipe, splits=["train"])
    assert "negative, positive" in caught.value.remedy


def test_a_strange_score_is_refused_with_its_line(tmp_path):
    recipe = _official_file(tmp_path, "stsb", "index\tsentence1\tsentence2\tscore\n0\ta\tb\tmuch\n")
    with pytest.raises(DataError, match=r"train.tsv:2: 'much' .*label"):
        load_data(recipe, splits=["train"])


def test_a_file_of_another_task_is_refused(tmp_path):
    recipe = _official_file(tmp_path, "sst2", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n")
    with pytest.raises(DataError, match=r"column 'sentence': .*sentence1"):
        load_data(recipe, splits=["train"])


def test_a_cola_file_with_too_few_fields_is_refused(tmp_path):
    recipe = _official_file(tmp_path, "cola", "gj04\t1\t\tGood one.\ngj04\t1\n")
    with pytest.raises(DataError, match=r"train.tsv:2: 2 .*fields where 4"):
        load_data(recipe, splits=["train"])


def _mnli_files(folder: Path, *files: str) -> str:
    for file in files:
        content = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n"
        (folder / file).write_text(content, encoding="utf-8")
    return str(folder)


def test_mnli_works_without_its_mismatched_split_unless_it_is_asked_for(tmp_path):
    _mnli_files(tmp_path, "train.tsv", "dev_matched.tsv")
    listener = Heard()
    data = load_data(recipe_for("mnli", data_dir=str(tmp_path)), listener=listener)
    assert data.validation_splits == ("validation_matched",)
    assert list(data.splits) == ["train", "validation_matched"]
    assert "validation_mismatched" in listener.warned[0]
    recipe = Recipe(
        data=DataSection(name="mnli", data_dir=str(tmp_path)),
        evaluation=EvaluationSection(splits=["validation_mismatched"]),
    )
    with pytest.raises(UnavailableError, match="validation_mismatched"):
        load_data(recipe)


def test_mnli_reads_both_validation_splits(tmp_path):
    folder = _mnli_files(tmp_path, "train.tsv", "dev_matched.tsv", "dev_mismatched.tsv")
    data = load_data(recipe_for("mnli", data_dir=folder))
    assert data.validation_splits == ("validation_matched", "validation_mismatched")
    assert list(data.splits) == ["train", "validation_matched", "validation_mismatched"]


def test_the_diagnostic_set_has_nothing_to_train_on():
    with pytest.raises(UsageError, match="no training rows"):
        load_data(recipe_for("ax"))


def test_a_data_set_of_another_task_is_refused():
    with pytest.raises(UsageError, match="for text-regression"):
        load_data(Recipe(data=DataSection(name="stsb")))


def test_unknown_names_show_the_nearest():
    with pytest.raises(UsageError, match="did you mean sst2"):
        find_dataset("sst3")
    with pytest.raises(UsageError, match="did you mean validation"):
        load_data(recipe_for("demo"), splits=["validaton"])
    assert find_dataset("SST-2").name == find_dataset("sst_2").name == "sst2"


def test_the_table_is_whole():
    rows = builtin_datasets()
    glue = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]
    glue += ["stsb-embeddings", "nli-embeddings", "quora-embeddings"]
    assert [name for name, row in rows.items() if row.layout == "glue"] == glue
    glue_files = sorted(
        split.glue_file for row in rows.values() for split in row.splits if split.glue_file
    )
    names = [
        "AX",
        "CoLA",
        "MNLI-m",
        "MNLI-mm",
        "MRPC",
        "QNLI",
        "QQP",
        "RTE",
        "SST-2",
        "STS-B",
        "WNLI",
    ]
    assert glue_files == [f"{name}.tsv" for name in names]
    second_labels = {}
    for row in builtin_datasets().values():
        assert list(row.problems()) == []
        assert row.bundled == (row.hub is None)
        assert all(split.files for split in row.splits)
        assert all(
            row.split(published.split).name == published.split for published in row.published
        )
        assert all(published.metric in row.metrics for published in row.published)
        assert all(0 < published.value < 1 for published in row.published)
        if row.labels and "f1" in row.metrics:
            assert len(row.labels) == 2
            second_labels[row.name] = row.labels[1]
    assert second_labels == {"mrpc": "equivalent", "qqp": "duplicate"}


@pytest.mark.parametrize(
    ("change", "attribute", "subject"),
    [
        ({"task": "text-clasification"}, "task", "did you mean text-classification"),
        ({"splits": ()}, "splits", "no split"),
        ({"splits": files(train="a.csv") * 2}, "splits", "given twice: 'train'"),
        ({"splits": (SplitRow("train"),)}, "splits", "neither a file nor"),
        ({"labels": ("yes",)}, "labels", "one label"),
        ({"labels": ("yes", "no", "yes")}, "labels", "given twice: 'yes'"),
        ({"hub": Hub("me/trec", "main", "train.parquet")}, "hub", "{split}"),
    ],
)
def test_a_row_knows_what_can_not_be_right_in_it(change, attribute, subject):
    row = DatasetRow(
        "trec", "text-classification", Columns("text"), files(train="a.csv", test="b.csv")
    )
    assert list(row.problems()) == []
    ((where, sentence),) = replace(row, **change).problems()
    assert where == attribute
    assert subject in sentence


def test_names_are_read_without_reading_the_rows():
    assert dataset_names() == list(builtin_datasets())


def test_a_row_of_six_lines_is_read_without_hub_official_files_or_validation_rows(
    tmp_path, monkeypatch
):
    row = DatasetRow(
        name="trec",
        task="text-classification",
        description="What does a question ask for?",
        columns=Columns("question", label="kind"),
        splits=files(train="train.csv", test="test.csv"),
    )
    monkeypatch.setitem(builtin_datasets(), "trec", row)
    lines = [f"who is {i}?,HUM" if i % 2 else f"where is {i}?,LOC" for i in range(20)]
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("\n".join(["question,kind", *lines]))
    listener = Heard()
    data = load_data(recipe_for("trec", data_dir=str(tmp_path)), listener=listener)
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 18, "validation": 2}
    assert set(data.splits["train"].columns) == {"text", "label"}
    (message,) = listener.said
    assert "'trec'" in message
    assert "2 of the 20 training rows are held out" in message
    assert "seed 42" in message
    assert (
        len(load_data(recipe_for("trec", data_dir=str(tmp_path)), splits=["test"]).splits["test"])
        == 20
    )
    with pytest.raises(UnavailableError, match=r"'trec' .*hub") as caught:
        load_data(recipe_for("trec"))
    assert "`data.data_dir=DIR`" in caught.value.remedy
    assert "trec/train.csv, trec/test.csv" in caught.value.remedy
    (tmp_path / "train.csv").write_text("questions,kind\nwho,HUM\n")
    with pytest.raises(DataError, match=r"column 'question': .*questions"):
        load_data(recipe_for("trec", data_dir=str(tmp_path)))


@pytest.mark.parametrize(
    "row", [row for row in builtin_datasets().values() if row.hub], ids=lambda row: row.name
)
def test_hub_sources_are_parquet_of_one_commit(row):
    """No loading script, no branch that moves.

    Two whose commit nobody has written down say which branch.
    """
    if row.name in ("wnut17", "bc5cdr"):
        assert row.hub.revision == "refs/convert/parquet"
    else:
        assert re.fullmatch(r"[0-9a-f]{40}", row.hub.revision)
    assert len({row.hub.file_of(name) for name in row.split_names}) == len(row.splits)
    assert row.hub.file.endswith(".parquet")


def test_published_scores_stand_beside_their_split():
    mnli = builtin_datasets()["mnli"]
    assert mnli.published_for("validation_mismatched", "accuracy").value == 0.834
    assert mnli.published_for("validation_matched", "accuracy").value == 0.846
    assert builtin_datasets()["swag"].published_for("validation", "accuracy").value == 0.816
    assert builtin_datasets()["swag"].published_for("test", "accuracy") is None
    assert builtin_datasets()["qqp"].published_for("validation", "f1").value == 0.875
    assert builtin_datasets()["qqp"].published_for("test", "f1").value == 0.712
    assert builtin_datasets()["wnli"].published_for("validation", "accuracy") is None
    assert builtin_datasets()["mrpc"].published_for("validation", "accuracy") is None
