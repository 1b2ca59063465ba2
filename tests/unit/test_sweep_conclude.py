"""What a sweep writes: document, page, recipe, pictures; from folders written by hand."""

import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from bertctl.config.load import load_recipe
from bertctl.run_documents.sweep_document import SweepDocument
from bertctl.sweeps.conclude import conclude
from bertctl.sweeps.describe import describe
from bertctl.sweeps.page import grid_table
from bertctl.sweeps.setting_text import seed_text, setting_text, short_names
from tests.made_sweeps import PAPER, RATES, document_of, made_sweep, shown

COUNTS = [
    *(
        f"training.{name}"
        for name in ("epochs", "max_steps", "batch_size", "accumulation_steps", "log_every")
    ),
    *(f"training.{name}" for name in ("init_seed", "order_seed", "freeze_layers")),
    *(
        "optimizer.weight_decay",
        "optimizer.max_grad_norm",
        "data.split_seed",
        "evaluation.batch_size",
    ),
]
"""Fields of a recipe that take any small whole number."""


def test_everything_is_written_and_read_back(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, PAPER, [0.7 + 0.01 * i for i in range(18)], seeds=2, n=40)
    document = conclude(folder).as_json()
    assert json.loads((folder / "sweep.json").read_text()) == document
    for name in ("scores.png", "expected.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    for name in ("scores.svg", "expected.svg"):
        assert "<svg" in (folder / name).read_text()
    text = shown(document)
    assert [line.split()[:3] for line in text.splitlines()[2:20]] == [
        [f"{row['values'][axis]:g}" for axis in document["axes"]] for row in document["settings"]
    ]
    assert "expected best: " in text
    assert "of 36 runs (Dodge et al. 2019)" in text


def test_the_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    attribute = '"onload=alert(2) x="'
    folder = made_sweep(
        tmp_path,
        [{"text_classification.labels": [evil, attribute]}, {}],
        [0.9, 0.8],
        states={(1, 0): "failed"},
    )
    status = folder / "cells/0001000000000000/status.json"
    status.write_text(
        json.dumps({"state": "failed", "reason": "error", "message": evil + attribute})
    )
    conclude(folder)
    page = (folder / "sweep.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"<[^>]*onload", page)
    assert "&#34;onload=alert(2)" in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert page.count("<svg") == 2


@pytest.mark.slow
def test_equal_sweeps_give_the_same_document_but_for_the_times(tmp_path: Path) -> None:
    options: dict[str, Any] = {"states": {(0, 1): "diverged", (1, 1): "failed"}}
    first = made_sweep(tmp_path / "one", RATES[:2], [0.9, 0.8], **options)
    second = made_sweep(tmp_path / "other", RATES[:2], [0.9, 0.8], **options)
    for path in second.glob("cells/*/performance.json"):
        path.write_text(json.dumps({"seconds": {"train": 3.5}}))
    a = conclude(first).as_json()
    b = conclude(second).as_json()
    assert a["performance"] != b["performance"]
    assert {**a, "performance": None} == {**b, "performance": None}
    assert str(tmp_path) not in json.dumps(a)
    assert (first / "scores.svg").read_bytes() == (second / "scores.svg").read_bytes()
    assert "the disk is full" in json.dumps(a)


def test_the_best_recipe_is_that_of_the_row_it_names(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES, [0.8, 0.9, 0.7])
    document = conclude(folder).as_json()
    chosen = document["chosen"]
    text = (folder / "best.yaml").read_text()
    row = next(run for run in document["runs"] if run["run"] == chosen["run"])
    assert text.startswith(f"# Run {chosen['run']} of the sweep 'made' (seed {chosen['seed'] + 1})")
    assert f"accuracy on validation {row['value']:.4f}" in text
    assert (
        f"{chosen['mean']:.4f} ± {chosen['deviation']:.4f} (mean over 3 seeds, on the split that "
        "chose)" in text
    )
    assert load_recipe(str(folder / "best.yaml")) == load_recipe(
        str(folder / "cells" / chosen["run"] / "recipe.yaml")
    )
    assert load_recipe(str(folder / "best.yaml")).optimizer.learning_rate == 3e-5


def test_the_test_split_is_shown_only_if_asked_for(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.9, 0.8])
    assert document_of(folder)["test"] is None
    assert "not scored" in shown(document_of(folder, test_split=True))
    for path in folder.glob("cells/*/metrics.json"):
        metrics = json.loads(path.read_text())
        entry = {"value": 0.8125, "low": 0.75, "high": 0.85, "n": 160, "higher_is_better": True}
        metrics["metrics"]["test"] = {"accuracy": entry}
        path.write_text(json.dumps(metrics))
    assert "0.8125" not in json.dumps(document_of(folder))
    document = document_of(folder, test_split=True)
    assert [(entry["run"], entry["value"]) for entry in document["test"]] == [
        (document["chosen"]["run"], 0.8125)
    ]
    assert shown(document).count("0.8125 (0.7500 to 0.8500)") == 1


def test_a_shard_says_that_others_are_missing(tmp_path: Path) -> None:
    states = {(1, seed): "missing" for seed in range(3)}
    document = document_of(
        made_sweep(tmp_path, RATES[:2], [0.9, 0.8], states=states, plan={"shard": [1, 2]})
    )
    assert any("shard 1 of 2" in note for note in document["notes"])
    assert document["settings"][1]["mean"] is None


# -- pictures and words
# ----------------------------------------------------------------------------------------------


def test_of_two_shards_in_one_folder_the_later_result_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has read all runs but the last.

    Another one that has them all is done before it writes.
    """
    folder = made_sweep(tmp_path / "sweep", RATES[:2], [0.9, 0.8], seeds=1, n=40)
    last = folder / "cells/0001000000000000"
    shutil.move(last, tmp_path / "last")
    other = threading.Thread(target=conclude, args=[folder])

    def slow(*given: Any, **options: Any) -> SweepDocument:
        if not last.exists():
            shutil.move(tmp_path / "last", last)
            other.start()
            other.join(2)
        return describe(*given, **options)

    monkeypatch.setattr("bertctl.sweeps.conclude.describe", slow)
    conclude(folder)
    other.join()
    assert json.loads((folder / "sweep.json").read_text())["counts"]["missing"] == 0


def test_a_grid_is_a_heat_map_by_learning_rate(tmp_path: Path) -> None:
    document = document_of(made_sweep(tmp_path, PAPER, [0.6 + 0.02 * i for i in range(18)], n=50))
    table = grid_table(SweepDocument.model_validate(document))
    assert table is not None
    assert [column.name for column in table.columns[:3]] == [
        "learning_rate",
        "batch_size 16, epochs 2",
        "batch_size 16, epochs 3",
    ]
    assert [row[0] for row in table.rows] == ["2e-05", "3e-05", "5e-05"]
    means = {tuple(row["values"].values()): row for row in document["settings"]}
    row = means[3e-5, 16, 3]
    assert table.rows[1][2].text == f"{row['mean']:.4f} ± {row['deviation']:.4f}"
    cells = [cell for cells in table.rows for cell in cells[1:]]
    assert len(cells) == 18
    best = max(cells, key=lambda cell: cell.shade)
    assert best.strong is True
    assert best.shade == 1.0
    assert min(cell.shade for cell in cells) == 0.0
    assert best.text.startswith(f"{document['chosen']['mean']:.4f}")
    assert sum(cell.strong for cell in cells) == 1


def test_the_lowest_loss_is_the_darkest_and_what_was_not_run_is_empty(tmp_path: Path) -> None:
    primary = {"split": "validation", "name": "loss", "higher_is_better": False}
    document = document_of(made_sweep(tmp_path, PAPER[:5], [0.8] * 5, plan={"primary": primary}))
    document["settings"] = [
        {**row, "mean": 0.1 * i} for i, row in enumerate(document["settings"], 1)
    ]
    table = grid_table(SweepDocument.model_validate(document))
    assert table is not None
    cells = {cell.text[:4]: cell for row in table.rows for cell in row[1:]}
    assert cells["0.10"].shade == 1.0
    assert cells["0.50"].shade == 0.0
    assert "" in cells


@pytest.mark.parametrize(
    "settings",
    [
        RATES,
        [
            {"optimizer.learning_rate": 1e-5 * i, "optimizer.warmup_fraction": 0.01 * i}
            for i in range(1, 8)
        ],
    ],
)
def test_what_is_no_grid_has_no_table(tmp_path: Path, settings: list[dict[str, Any]]) -> None:
    accuracies = [0.8] * len(settings)
    folder = made_sweep(tmp_path, settings, accuracies, seeds=1, n=20)
    document = SweepDocument.model_validate(document_of(folder))

    assert grid_table(document) is None


@pytest.mark.parametrize(
    "settings",
    [[{}], pytest.param([dict.fromkeys(COUNTS, i) for i in range(1, 10)], marks=pytest.mark.slow)],
)  # 9 of 9^12 combinations
def test_one_setting_and_far_too_few_of_many_have_the_dots_alone(
    tmp_path: Path, settings: list[dict[str, Any]]
) -> None:
    folder = made_sweep(tmp_path, settings, [0.8] * len(settings), seeds=1, n=20)
    assert grid_table(conclude(folder)) is None
    assert (folder / "scores.png").exists()


def test_words_of_a_setting() -> None:
    assert short_names(["training.batch_size", "evaluation.batch_size", "training.epochs"]) == [
        "training.batch_size",
        "evaluation.batch_size",
        "epochs",
    ]
    assert setting_text(PAPER[0], list(PAPER[0])) == "learning_rate 5e-05, batch_size 16, epochs 2"
    assert setting_text({}, []) == "the recipe as it is"
    assert seed_text({"init": 2, "order": 2}) == "seed 2"
    assert seed_text({"init": 1, "order": 2}) == "init 1, order 2"
