"""What `bertctl` says and refuses of label columns, verb by verb."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.in_process

WORDS = ("good", "fine", "bad", "dull", "bright", "poor")
TEXTS = [f"the film was {WORDS[i % 6]} {WORDS[i % 5]} {i}" for i in range(24)]


def table(path: Path, **columns: list[Any]) -> Path:
    """Writes a CSV of these columns beside the texts."""
    columns = {"text": TEXTS, **columns}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def cycle(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(len(TEXTS))]


VECTORS = [
    json.dumps([int(i % 2 == 0), int(i % 3 == 0), int(i % 5 == 0)]) for i in range(len(TEXTS))
]
LABELS = "text_classification.labels=[good,film,garden]"


@pytest.mark.parametrize("verb", ["finetune", "probe", "data check", "sweep", "estimate"])
def test_vectors_of_0_and_1_are_refused_with_what_to_type_by_every_verb(
    verb: str, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "hot.csv", labels=VECTORS)
    more = ["--seeds", "2"] if verb == "sweep" else []
    refused = bertctl(*verb.split(), "hot.csv", "--model", tiny_model, "--max-length", "16", *more)
    assert refused.returncode == 3, refused.stderr
    output = refused.stdout + refused.stderr
    assert "--set text_classification.labels='[a, b, c]'" in " ".join(output.split())


def test_a_run_on_vectors_scores_vectors_names_and_nothing_else(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "hot.csv", labels=VECTORS)
    names = [
        [n for n, flag in zip(("good", "film", "garden"), json.loads(v), strict=True) if flag]
        for v in VECTORS
    ]
    table(tmp_path / "names.csv", labels=names)
    bad = [*VECTORS[:7], "[1, 0]", *VECTORS[8:]]
    table(tmp_path / "bad.csv", labels=bad)
    common = [
        "--model",
        tiny_model,
        "--max-length",
        "16",
        "--epochs",
        "1",
        "--checkpoint-every",
        "off",
        "-o",
        "run",
    ]
    done = bertctl(
        "finetune",
        "hot.csv",
        *common,
        "--set",
        LABELS,
        "--set",
        "evaluation.bootstrap_resamples=100",
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert list(config["id2label"].values()) == ["good", "film", "garden"]
    scores = {}
    for file in ("hot", "names"):
        scored = bertctl("evaluate", "run", "--file", f"{file}.csv", "-o", file, "--json")
        assert scored.returncode == 0, scored.stderr
        scores[file] = json.loads(scored.stdout)["metrics"]["file"]
    assert scores["hot"] == scores["names"]

    refused = bertctl("evaluate", "run", "--file", "bad.csv")
    assert refused.returncode == 3
    assert (
        "bad.csv:9: the label is [1, 0], where nearly all rows have a vector of 3" in refused.stderr
    )
    skipped = bertctl(
        "evaluate", "run", "--file", "bad.csv", "-o", "skipped", "--on-error", "skip", "--json"
    )
    assert json.loads(skipped.stdout)["skipped"] == 1
    assert json.loads(skipped.stdout)["metrics"]["file"]["accuracy"]["n"] == len(TEXTS) - 1
    answered = bertctl("predict", "run", "bad.csv")
    assert len(answered.stdout.splitlines()) == len(TEXTS)  # who answers looks at no labels


def test_a_score_that_is_none_is_skipped_by_evaluate_and_counted(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    scores = [f"{i / 4}" for i in range(len(TEXTS))]
    table(tmp_path / "train.csv", score=scores)
    table(tmp_path / "bad.csv", score=[*scores[:3], "n/a", *scores[4:]])
    common = [
        "--model",
        tiny_model,
        "--max-length",
        "16",
        "--epochs",
        "1",
        "--checkpoint-every",
        "off",
        "-o",
        "run",
    ]
    guessed = bertctl("finetune", "bad.csv", "--model", tiny_model, "--max-length", "16")
    assert guessed.returncode == 3
    assert "bad.csv:5: the label 'n/a' is not a finite number" in guessed.stderr
    done = bertctl("finetune", "train.csv", *common, "--set", "evaluation.primary_metric=mae")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]["validation"]
    assert {"mse", "rmse", "mae", "r2"} <= metrics.keys()
    refused = bertctl("evaluate", "run", "--file", "bad.csv")
    assert refused.returncode == 3
    assert "bad.csv:5: the label 'n/a'" in refused.stderr
    skipped = bertctl(
        "evaluate", "run", "--file", "bad.csv", "-o", "new", "--on-error", "skip", "--json"
    )
    assert json.loads(skipped.stdout)["skipped"] == 1, skipped.stderr
    rows = table(tmp_path / "one.csv", score=["2.5"] * len(TEXTS))
    scored = json.loads(bertctl("evaluate", "run", "--file", rows, "--json").stdout)["metrics"][
        "file"
    ]
    assert [scored[name]["value"] for name in ("pearson", "spearman", "r2")] == [None] * 3
    gated = bertctl("gate", "run-on-one", "--min", "pearson=-1", "--policy", "lenient")
    assert gated.returncode == 7, gated.stderr
    assert "pearson is undefined" in gated.stdout + gated.stderr
    for page in (("report", "run-on-one"), ("compare", "run-on-one", "run-on-one")):
        assert bertctl(*page).returncode == 0


@pytest.mark.parametrize(
    ("scores", "output"),
    [
        ([f"{i / 2}%" for i in range(24)], "write plain numbers, such as 0.0"),
        ([f"${i}.50" for i in range(24)], "such as 0.50"),
        ([f"EUR 1,{i:03}" for i in range(24)], "such as 1000"),
        ([f"{i % 5 + 1}/5" for i in range(24)], "such as 1"),
    ],
)
def test_scores_with_a_sign_are_no_classes(
    scores: list[str], output: str, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", score=scores)
    refused = bertctl("finetune", "a.csv")
    assert refused.returncode == 2, refused.stderr
    assert output in " ".join(refused.stderr.split())
    words = [
        "text-regression",
        "--train-file",
        "a.csv",
        "--model",
        tiny_model,
        "--max-length",
        "16",
    ]
    done = bertctl("finetune", *words)
    assert done.returncode == 3
    assert f"for {scores[0]}." in done.stderr


def test_labels_that_differ_in_case_are_warned_of_before_training(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", label=cycle("good", "bad", "Good", "bad", "good  film", "good film"))
    common = ("--model", tiny_model, "--max-length", "16")
    for words in (
        ("finetune", "a.csv", "--dry-run"),
        ("probe", "a.csv", "--layers", "last", "--set", "probe.folds=2"),
    ):
        done = bertctl(*words, *common)
        assert done.returncode == 0, done.stderr
        text = " ".join(done.stderr.split())
        assert "'good'" in text
        assert "'Good'" in text
        assert "differ only in case or spacing" in text
        assert "'good film'" in text


def test_columns_that_are_not_read_are_named_and_a_split_is_warned_of(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(
        tmp_path / "a.csv",
        label=cycle("good", "bad"),
        title=cycle("x", "y"),
        split=cycle("train", "train", "test"),
    )
    done = bertctl("finetune", "a.csv", "--model", tiny_model, "--max-length", "16", "--dry-run")
    assert "label from 'label' (not read: title, split)" in done.stderr
    text = " ".join(done.stderr.split())
    assert (
        "the column 'split' has 'train' in 16 rows and 'test' in 8 rows, and all rows are read"
        in text
    )
    table(tmp_path / "b.csv", label=cycle("good", "bad"), is_valid=cycle("False", "True", "False"))
    checked = bertctl("data", "check", "b.csv", "--model", tiny_model, "--max-length", "16")
    assert "the column 'is_valid' has 'False' in 16 rows" in " ".join(checked.stdout.split())
    table(tmp_path / "c.csv", label=cycle("good", "bad"), split=cycle("train"))
    quiet = bertctl("finetune", "c.csv", "--model", tiny_model, "--max-length", "16", "--dry-run")
    assert "all rows are read" not in quiet.stderr


@pytest.mark.parametrize("limit", [["--max-train-rows", "6"], ["--set", "data.first_train_rows=6"]])
def test_a_label_that_a_sample_has_lost_is_told_of(
    limit: list[str], tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", label=[*cycle("good", "bad")[:-1], "rare"])
    table(tmp_path / "b.csv", label=cycle("good", "rare"))
    words = [
        "finetune",
        "a.csv",
        "--validation-file",
        "b.csv",
        "--model",
        tiny_model,
        "--max-length",
        "16",
        *limit,
    ]
    refused = bertctl(*words, "--dry-run")
    assert refused.returncode == 3
    text = " ".join(refused.stderr.split())
    assert (
        "b.csv:3: no training row has the label 'rare': the sample of 6 training rows has lost it"
        in text
    )
    assert "text_classification.labels='[bad, good, rare]'" in text
    done = bertctl(*words, "--dry-run", "--set", "text_classification.labels=[bad,good,rare]")
    assert done.returncode == 0, done.stderr


def test_candidates_for_the_label_are_filled_columns_with_few_recurring_words(
    bertctl: Run, tmp_path: Path
) -> None:
    table(
        tmp_path / "tweets.csv",
        tweet_id=[str(570306133677760513 + i // 2) for i in range(24)],
        airline_sentiment=cycle("negative", "positive", "neutral"),
        confidence=[f"0.{i % 7}" for i in range(24)],
        reason=cycle("late", "", "", "rude"),
        airline=cycle("United", "Delta"),
        retweets=cycle("0", "0", "1"),
        place=[f"place {i // 2}" if i % 3 else "" for i in range(24)],
    )
    refused = bertctl("data", "check", "tweets.csv")
    assert refused.returncode == 2
    text = " ".join(refused.stderr.split())
    assert "several columns could be the label: airline_sentiment, airline Name it:" in text
    assert text.count("tweet_id") == 1


def test_columns_of_0_and_1_with_another_number_column_are_named_all_in_one_option(
    bertctl: Run, tmp_path: Path
) -> None:
    table(
        tmp_path / "a.csv",
        good=cycle(0, 1),
        film=cycle(0, 0, 1),
        label1=cycle("x"),
    )
    refused = bertctl("finetune", "a.csv", "--label-column", "gone")
    assert refused.returncode in (2, 3)
    table(
        tmp_path / "b.csv",
        **{"good": cycle(0, 1), "film": cycle(0, 0, 1), "kind": cycle("x", "y", "z")},
    )
    refused = bertctl("finetune", "b.csv")
    assert refused.returncode == 2
    assert "--set data.label_columns='[good, film]'" in " ".join(refused.stderr.split())


def test_blank_second_texts_are_counted(tiny_model: Path, bertctl: Run, tmp_path: Path) -> None:
    table(tmp_path / "a.csv", pair=cycle("a", " ", "b", ""), label=cycle("good", "bad"))
    done = bertctl("finetune", "a.csv", "--model", tiny_model, "--max-length", "16", "--dry-run")
    assert "12 of 24 second texts are blank" in done.stderr


def test_a_head_with_the_same_labels_in_another_order_is_kept_and_said_to_be_so(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", label=cycle("good", "bad"))
    common = ["--max-length", "16", "--epochs", "1", "--checkpoint-every", "off"]
    order = ["--set", "text_classification.labels=[good,bad]"]
    assert (
        bertctl("finetune", "a.csv", "--model", tiny_model, *common, *order, "-o", "run").returncode
        == 0
    )
    again = bertctl("finetune", "a.csv", "--model", "run", *common, "--dry-run")
    text = " ".join(again.stderr.split())
    assert "its trained head is kept, its labels in this run's order" in text
    done = bertctl("finetune", "a.csv", "--model", "run", *common, *order, "--dry-run")
    assert "its trained head is kept" in done.stderr


def test_class_numbers_as_pandas_writes_them_are_classes(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", label=cycle("0.0", "1.0"))
    words = [
        "text-classification",
        "--train-file",
        "a.csv",
        "--model",
        tiny_model,
        "--max-length",
        "16",
    ]
    done = bertctl("finetune", *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "(0: " in done.stderr
    checked = bertctl("data", "check", *words, "--json")
    assert json.loads(checked.stdout)["splits"]["train"]["labels"] == {"0": 12, "1": 12}


@pytest.mark.parametrize("separator", [";", "|", ", "])
def test_several_labels_in_one_cell_are_warned_of_with_the_option_that_parts_them(
    separator: str, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", label=cycle("good", f"good{separator}film", "film"))
    common = ("finetune", "a.csv", "--dry-run", "--model", tiny_model, "--max-length", "16")
    text = " ".join(bertctl(*common).stderr.split())
    option = f"text_classification.label_separator='{separator.strip()}'"
    assert "3 different labels are 2 with" in text
    assert option in text
    done = bertctl(*common, "--set", option.replace("'", ""))
    assert "3 different labels" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_a_rare_word_for_no_label_is_warned_of(
    tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", label=[*cycle("good", "bad")[:-1], "None"])
    table(tmp_path / "b.csv", label=cycle("good", "bad"))
    files = ("a.csv", "--validation-file", "b.csv")
    done = bertctl("finetune", *files, "--dry-run", "--model", tiny_model, "--max-length", "16")
    assert "'None' (1) is learned as a label" in " ".join(done.stderr.split()), done.stderr


def test_a_column_of_doubtful_kind_is_asked_for_in_one_remedy(bertctl: Run, tmp_path: Path) -> None:
    table(tmp_path / "a.csv", label=cycle("0.0", "1.0"))
    refused = bertctl("finetune", "a.csv")
    text = " ".join(refused.stderr.split())
    assert refused.returncode == 2
    assert (
        "Name the task, or another column: --label-column NAME. The task is named so: bertctl "
        "finetune TASK" in text
    )
    assert "Add it to the command" not in text


@pytest.mark.parametrize(
    "form", ["2026-01-{:02d}", "{:02d}.01.2026", "2026/1/{}", "2026-01-{:02d}T10:00:00"]
)
@pytest.mark.parametrize("name", ["score", "label"])
def test_dates_are_no_classes_unless_the_task_says_so(
    name: str, form: str, bertctl: Run, tmp_path: Path
) -> None:
    table(tmp_path / "a.csv", **{name: [form.format(1 + i % 12) for i in range(len(TEXTS))]})
    refused = bertctl("finetune", "a.csv")
    assert refused.returncode == 2
    assert f"'{name}' holds dates, such as" in refused.stderr
    assert "--label-column NAME" in refused.stderr
