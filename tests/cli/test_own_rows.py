"""Whatever reads a run's own splits again refuses other rows.

They must be those that the run was made with.
"""

import csv
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.nursery import Nursery

Row = dict[str, str]
TRAIN = [
    {"text": f"the film was {'good' if i % 2 else 'bad'} {i}", "label": "ny"[i % 2]}
    for i in range(30)
]
VALIDATION = [
    {
        "text": f"the food {'fine' if i % 2 else 'dull'} {i}",
        "label": "ny"[i % 2],
        "kind": "ab"[i // 6],
    }
    for i in range(12)
]


def write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@dataclass(frozen=True)
class Trained:
    """Two runs of one folder.

    `held` holds out its validation rows, `named` has a file of them and one for testing.
    """

    folder: Path

    def restore(self) -> None:
        for name, rows in (
            ("train", TRAIN),
            ("held", TRAIN),
            ("validation", VALIDATION),
            ("test", VALIDATION),
        ):
            write(self.folder / f"{name}.csv", rows)


@pytest.fixture(scope="module")
def made(tiny_model: Path, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    trained = Trained(tmp_path_factory.mktemp("own-rows"))
    trained.restore()
    common = ["--model", tiny_model, "--epochs", 1, "--max-length", 16, "--checkpoint-every", "off"]
    sets = ["--set", "evaluation.bootstrap_resamples=100"]
    files = ["--validation-file", "validation.csv", "--test-file", "test.csv"]
    slices = ["--set", "evaluation.slice_columns=[kind]", "--set", "evaluation.splits=[validation]"]
    for words in (["held.csv", "-o", "held"], ["train.csv", "-o", "named", *files, *slices]):
        done = nursery.run(
            list(map(str, ["finetune", *words, *common, *sets])),
            cwd=trained.folder,
            env=dict(os.environ),
        )
        assert done.returncode == 0, done.stderr
    scored = nursery.run(
        ["evaluate", "named", "--split", "test"], cwd=trained.folder, env=dict(os.environ)
    )
    assert scored.returncode == 0, scored.stderr
    return trained


@pytest.fixture
def trained(made: Trained) -> Trained:
    made.restore()
    return made


Edit = Callable[[list[Row]], list[Row]]


def _relabelled(rows: list[Row]) -> list[Row]:
    other_label = {"y": "n", "n": "y"}
    return [{**row, "label": other_label[row["label"]]} for row in rows]


EDITS: dict[str, Edit] = {
    "grown": lambda rows: [*rows, *({**row, "text": f"more {row['text']}"} for row in rows[:10])],
    "shrunk": lambda rows: rows[8:],
    "edited labels": _relabelled,
    "edited text": lambda rows: [
        {**rows[0], "text": "other"},
        *({**row, "text": f"{row['text']}!"} for row in rows[1:]),
    ],
    "reordered": lambda rows: rows[::-1],
}


@pytest.mark.in_process
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize(("run", "name"), [("held", "held"), ("named", "validation")])
def test_scores_are_not_replaced_by_those_of_other_rows(
    run: str, name: str, edit: str, trained: Trained, bertctl: Run
) -> None:
    metrics = (trained.folder / run / "metrics.json").read_bytes()
    write(trained.folder / f"{name}.csv", EDITS[edit](TRAIN if name == "held" else VALIDATION))
    refused = bertctl("evaluate", run, cwd=trained.folder)
    assert refused.returncode == 3, refused.stderr
    assert "the rows of validation" in refused.stderr
    assert f"{name}.csv" in refused.stderr
    assert f"bertctl evaluate {run} --file FILE -o NEW" in refused.stderr
    assert (trained.folder / run / "metrics.json").read_bytes() == metrics


VERBS: dict[str, list[object]] = {
    "evaluate": ["evaluate", "held"],
    "calibrate": ["evaluate", "held", "--calibrate"],
    "threshold": ["evaluate", "held", "--threshold", "f1"],
    "a sample": ["evaluate", "held", "--max-eval-rows", 2],
    "predict": ["predict", "held", "--split", "validation"],
    "predict training rows": ["predict", "held", "--split", "train"],
    "explain": ["explain", "held", "--split", "validation"],
    "weigh heads": ["attention", "held", "--importance", "gradient"],
}


@pytest.mark.in_process
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_reads_a_split_refuses_a_file_that_has_grown(
    verb: str, trained: Trained, bertctl: Run
) -> None:
    write(trained.folder / "held.csv", EDITS["grown"](TRAIN))
    refused = bertctl(*VERBS[verb], cwd=trained.folder)
    assert refused.returncode == 3, refused.stderr
    assert "are not those that the run in held was made with" in refused.stderr
    assert not (trained.folder / "held" / "decision.json").exists()


@pytest.mark.in_process
def test_a_split_that_was_scored_after_the_training_is_compared_with_those_scores(
    trained: Trained, bertctl: Run
) -> None:
    assert bertctl("evaluate", "named", "--split", "test", cwd=trained.folder).returncode == 0
    write(trained.folder / "test.csv", _relabelled(VALIDATION))
    refused = bertctl("evaluate", "named", "--split", "test", cwd=trained.folder)
    assert refused.returncode == 3, refused.stderr
    assert "the rows of test" in refused.stderr


@pytest.mark.in_process
def test_columns_that_metrics_are_sliced_by_are_compared_too(
    trained: Trained, bertctl: Run
) -> None:
    write(
        trained.folder / "validation.csv",
        [{**row, "kind": "a"} for row in VALIDATION[:-1]] + VALIDATION[-1:],
    )
    refused = bertctl("evaluate", "named", cwd=trained.folder)
    assert refused.returncode == 3, refused.stderr
    assert "the columns kind of validation" in refused.stderr


@pytest.mark.in_process
def test_a_file_that_is_gone_is_named(trained: Trained, bertctl: Run) -> None:
    (trained.folder / "validation.csv").unlink()
    refused = bertctl("evaluate", "named", cwd=trained.folder)
    assert refused.returncode == 4, refused.stderr
    assert "validation.csv" in refused.stderr


@pytest.mark.in_process
def test_rows_that_did_not_change_are_scored_as_before(trained: Trained, bertctl: Run) -> None:
    """A training file that has grown is no matter here.

    The validation rows have a file of their own.
    """
    write(trained.folder / "train.csv", EDITS["grown"](TRAIN))
    before = json.loads((trained.folder / "named" / "metrics.json").read_text())["metrics"][
        "validation"
    ]
    done = bertctl("evaluate", "named", cwd=trained.folder)
    assert done.returncode == 0, done.stderr
    after = json.loads((trained.folder / "named" / "metrics.json").read_text())["metrics"][
        "validation"
    ]
    assert after["accuracy"] == before["accuracy"]
    sampled = bertctl("evaluate", "held", "--max-eval-rows", 2, cwd=trained.folder)
    assert sampled.returncode == 0, sampled.stderr
    data = json.loads((trained.folder / "held" / "metrics.json").read_text())["data"]["validation"]
    assert data["max_eval_rows"] == 2


@pytest.mark.in_process
def test_other_rows_are_scored_as_a_file_in_a_folder_of_their_own(
    trained: Trained, bertctl: Run
) -> None:
    write(trained.folder / "held.csv", EDITS["grown"](TRAIN))
    done = bertctl("evaluate", "held", "--file", "held.csv", "-o", "elsewhere", cwd=trained.folder)
    assert done.returncode == 0, done.stderr
