"""Sweeps: statistics by setting, the choice, the comparison; from folders written by hand."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bertctl.errors import DataError, UnavailableError
from bertctl.sweeps.best_setting import (
    best_cell,
    compare_settings,
    expect,
    ranked,
    scores_of_the_choice,
)
from bertctl.sweeps.conclude import conclude
from bertctl.sweeps.disk import delete_models
from bertctl.sweeps.results import by_setting, read_cells
from bertctl.tasks.classification.class_answers import ClassAnswers
from tests.made_sweeps import (
    BASELINE,
    PAPER,
    RATES,
    accuracy,
    answers,
    document_of,
    made_cell,
    made_sweep,
    shown,
)


def value(folder: Path, setting: int, seed: int) -> float:
    accuracy_of_setting = [0.9, 0.8, 0.7][setting]
    lines = answers(accuracy_of_setting, seed=100 * setting + seed)
    return accuracy(lines)


# -- statistics
# -------------------------------------------------------------------------------------------------


def test_a_setting_has_mean_deviation_and_range_of_its_seeds(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES, [0.9, 0.8, 0.7], seeds=4)
    values = [value(tmp_path, 1, seed) for seed in range(4)]

    settings = document_of(folder)["settings"]

    second = settings[1]
    assert second["values"] == RATES[1]
    assert second["mean"] == pytest.approx(mean(values))
    assert second["deviation"] == pytest.approx(stdev(values))
    assert second["min"] == min(values)
    assert second["max"] == max(values)
    assert second["n"] == 4
    means = [setting["mean"] for setting in settings]
    assert means == sorted(means, reverse=True)


def test_a_diverged_run_counts_with_the_majority(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.9, 0.8], states={(0, 1): "diverged"})
    document = document_of(folder)
    row = next(row for row in document["settings"] if row["setting"] == 0)
    assert row["mean"] == pytest.approx(
        mean([value(tmp_path, 0, 0), BASELINE, value(tmp_path, 0, 2)])
    )
    assert row["n"] == 3
    assert row["diverged"] == 1
    assert row["min"] == BASELINE
    assert any(
        note.startswith("diverged, 1 run") and "0.6000" in note for note in document["notes"]
    )


def test_a_diverged_run_whose_majority_is_not_known_counts_with_the_worst_score(
    tmp_path: Path,
) -> None:
    folder = made_sweep(
        tmp_path, RATES[:2], [0.9, 0.8], states={(0, 1): "diverged"}, plan={"baseline": {}}
    )
    document = document_of(folder)
    worst = min(
        value(tmp_path, s, seed) for s in range(2) for seed in range(3) if (s, seed) != (0, 1)
    )
    row = next(row for row in document["settings"] if row["setting"] == 0)
    assert row["n"] == 3
    assert row["min"] == worst
    assert any("worst score of all runs" in note for note in document["notes"])


@pytest.mark.parametrize("state", ["failed", "missing"])
def test_what_will_be_run_again_may_still_be_the_best(tmp_path: Path, state: str) -> None:
    """The first setting wins once its second seed is there.

    The model of its first one stays until then.
    """
    folder = made_sweep(tmp_path, RATES[:2], [0.9, 0.7], seeds=2, states={(0, 1): state})
    _, cells = read_cells(folder)
    first_is_better = value(tmp_path, 1, 0) >= value(tmp_path, 1, 1)
    better_seed = 0 if first_is_better else 1

    delete_models(folder, {cell.name for cell in cells})

    has_model = {(cell.setting, cell.seed): (cell.path / "model").exists() for cell in cells}
    assert has_model[0, 0]
    assert has_model[1, better_seed]
    assert not has_model[1, 1 - better_seed]


def test_of_a_finished_sweep_one_model_stays(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.9, 0.7], seeds=2)
    _, cells = read_cells(folder)

    delete_models(folder, {cell.name for cell in cells})

    assert len([*folder.glob("cells/*/model")]) == 1


@pytest.mark.parametrize("state", ["failed", "missing"])
def test_what_can_not_be_valued_is_counted_beside_n(tmp_path: Path, state: str) -> None:
    document = document_of(made_sweep(tmp_path, RATES[:1], [0.9], states={(0, 1): state}))
    row = document["settings"][0]
    assert row["n"] == 2
    assert row[state] == 1
    assert row["mean"] == pytest.approx(mean([value(tmp_path, 0, 0), value(tmp_path, 0, 2)]))
    assert document["counts"] == {
        "runs": 3,
        "scores": 2,
        "done": 2,
        "collapsed": 0,
        "diverged": 0,
        "stopped": 0,
        "failed": 0,
        "missing": 0,
        state: 1,
    }
    assert any(note.startswith(f"{state}, 1 run") for note in document["notes"])


def test_a_collapsed_run_counts_with_its_score(tmp_path: Path) -> None:
    document = document_of(made_sweep(tmp_path, RATES[:1], [0.9], states={(0, 1): "collapsed"}))
    assert document["settings"][0]["n"] == 3
    assert document["settings"][0]["collapsed"] == 1
    assert [run["state"] for run in document["runs"]] == ["done", "collapsed", "done"]
    assert any(note.startswith("collapsed, 1 run") for note in document["notes"])


def test_a_run_that_an_earlier_version_stopped_in_favour_of_others_is_run_again(
    tmp_path: Path,
) -> None:
    """With `--early-kill`, which is gone; its sweep can still be read."""
    folder = made_sweep(
        tmp_path, RATES[:1], [0.9], states={(0, 1): "hopeless"}, plan={"early_kill": True}
    )
    assert [cell.state for cell in read_cells(folder)[1]] == ["done", "missing", "done"]


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_run_that_is_not_finished_is_missing(tmp_path: Path, state: str) -> None:
    folder = made_sweep(tmp_path, RATES[:1], [0.9])
    status = folder / "cells" / "0000000100000000" / "status.json"
    status.write_text(json.dumps({"state": state}), encoding="utf-8")
    assert [cell.state for cell in read_cells(folder)[1]] == ["done", "missing", "done"]


def test_a_damaged_run_is_a_failed_one_and_the_others_are_read(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:1], [0.9])
    (folder / "cells" / "0000000000000000" / "metrics.json").write_text("{", encoding="utf-8")
    (folder / "cells" / "0000000100000000" / "metrics.json").write_text(
        '{"metrics": {}}', encoding="utf-8"
    )
    cells = read_cells(folder)[1]
    assert [cell.state for cell in cells] == ["failed", "failed", "done"]
    assert "metrics.json" in cells[0].message
    assert "primary: field required" in cells[1].message


def test_no_sweep_and_a_damaged_plan_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no sweep"):
        read_cells(tmp_path)
    (tmp_path / "plan.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="no JSON"):
        read_cells(tmp_path)


# -- folds
# -------------------------------------------------------------------------------------------------


def test_folds_are_scored_over_all_their_answers_together(tmp_path: Path) -> None:
    folder = made_sweep(
        tmp_path,
        RATES[:1],
        [0.8],
        seeds=1,
        folds=3,
        n=60,
    )
    for fold, n in (
        (1, 60),
        (2, 60),
        (3, 20),
    ):  # of unequal sizes the mean over folds is another number
        path = folder / "cells" / f"00000000{fold:08x}"
        lines = answers(
            0.9 if n == 20 else 0.7,
            seed=fold,
            n=n,
            first=(fold - 1) * 60,
        )
        _replace(path, lines)
    everything = [
        line for fold in (1, 2, 3) for line in _lines(folder / "cells" / f"00000000{fold:08x}")
    ]
    score = document_of(folder)["scores"][0]
    assert score["how"] == "pooled folds"
    assert score["value"] == pytest.approx(accuracy(everything))
    assert score["runs"] == ["0000000000000001", "0000000000000002", "0000000000000003"]


def _replace(path: Path, lines: list[dict[str, Any]]) -> None:
    (path / "predictions/validation.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    metrics = json.loads((path / "metrics.json").read_text())
    metrics["metrics"]["validation"]["accuracy"]["value"] = accuracy(lines)
    (path / "metrics.json").write_text(json.dumps(metrics))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (path / "predictions/validation.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("fault", ["no predictions", "predictions of something else", "diverged"])
def test_folds_whose_answers_do_not_give_the_metric_are_averaged(
    tmp_path: Path, fault: str
) -> None:
    states = {(0, 0): "diverged"} if fault == "diverged" else {}
    folder = made_sweep(
        tmp_path,
        RATES[:1],
        [0.8],
        seeds=1,
        folds=2,
        n=50,
    )
    path = folder / "cells" / "0000000000000002"
    if states:
        shutil.rmtree(path)
        made_cell(path, answers(0.8, seed=1, n=50, first=50), "diverged", RATES[0])
    elif fault == "no predictions":
        (path / "predictions/validation.jsonl").unlink()
    else:
        text = (path / "predictions/validation.jsonl").read_text().splitlines()
        (path / "predictions/validation.jsonl").write_text("\n".join(text[:10]))
    document = document_of(folder)
    values = [run["value"] for run in document["runs"]]
    assert document["scores"][0]["how"] == "mean of folds"
    assert document["scores"][0]["value"] == pytest.approx(mean(values))
    assert any("the 2 folds" in note for note in document["notes"])


def test_a_seed_with_a_failed_fold_has_no_score(tmp_path: Path) -> None:
    folder = made_sweep(
        tmp_path, RATES[:1], [0.8], seeds=2, folds=2, n=50, states={(0, 1): "failed"}
    )
    document = document_of(folder)
    assert [score["state"] for score in document["scores"]] == ["done", "failed"]
    assert document["settings"][0]["n"] == 1
    assert document["settings"][0]["failed"] == 2


# -- the choice
# -------------------------------------------------------------------------------------------------


def test_the_mean_chooses_not_the_best_run(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.5, 0.8], seeds=3)
    _replace(folder / "cells" / "0000000000000000", answers(0.99, seed=1))
    by_mean = document_of(folder)["chosen"]
    assert by_mean["setting"] == 1
    assert by_mean["by"] == "mean"
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "choose": "best-run"}))
    document = document_of(folder)
    assert document["chosen"]["setting"] == 0
    assert document["chosen"]["value"] == pytest.approx(accuracy(answers(0.99, seed=1)))
    assert "best of 6 runs" in document["chosen"]["sentence"]
    assert "best of 6 runs" in shown(document)
    assert any("best of 6 runs" in note for note in document["notes"])


def test_where_lower_is_better_the_lowest_mean_is_chosen(tmp_path: Path) -> None:
    primary = {"split": "validation", "name": "loss", "higher_is_better": False}
    folder = made_sweep(
        tmp_path, RATES, [0.7, 0.9, 0.8], plan={"primary": primary, "baseline": {"loss": 0.69}}
    )
    for s in range(3):
        for seed in range(3):
            path = folder / "cells" / f"{s:04x}{seed:04x}00000000"
            metrics = json.loads((path / "metrics.json").read_text())
            loss = float(np.mean([line["loss"] for line in _lines(path)]))
            metrics["metrics"]["validation"]["loss"]["value"] = loss
            (path / "metrics.json").write_text(json.dumps(metrics))
    document = document_of(folder)
    means = [row["mean"] for row in document["settings"]]
    assert document["chosen"]["setting"] == 1
    assert means == sorted(means)
    assert document["chosen"]["value"] == document["settings"][0]["min"]
    assert document["comparison"]["difference"] < 0
    expected = [entry["value"] for entry in document["expected_best"]]
    assert expected == sorted(expected, reverse=True)


def test_of_equal_settings_the_one_with_fewer_epochs_is_chosen_then_the_earlier(
    tmp_path: Path,
) -> None:
    settings = [
        {"training.epochs": 4},
        {"training.epochs": 2},
        {"training.epochs": 2, "training.batch_size": 32},
    ]
    folder = made_sweep(tmp_path, settings, [0.8] * 3, seeds=1)
    for s in range(3):
        _replace(folder / "cells" / f"{s:04x}000000000000", answers(0.8, seed=1))
    plan, cells = read_cells(folder)
    assert [entry.index for entry in ranked(plan, by_setting(plan, cells))] == [1, 2, 0]


def test_the_recommended_run_was_trained_to_its_end(tmp_path: Path) -> None:
    folder = made_sweep(
        tmp_path, RATES[:1], [0.9], states={(0, seed): "collapsed" for seed in range(3)}
    )
    status = folder / "cells" / "0000000000000000" / "status.json"
    stopped = {"state": "done", "reason": "collapsed", "message": "stopped after step 24 of 48"}
    status.write_text(json.dumps(stopped), encoding="utf-8")
    plan, cells = read_cells(folder)
    values = {seed: value(tmp_path, 0, seed) for seed in (1, 2)}
    best = best_cell(plan, by_setting(plan, cells))
    assert best is not None
    assert best.seed == max(values, key=lambda seed: values[seed])


def test_nothing_is_chosen_where_nothing_has_a_score(tmp_path: Path) -> None:
    states = {}
    for s in range(2):
        states |= {(s, seed): "failed" for seed in range(3)}
    folder = made_sweep(tmp_path, RATES[:2], [0.9, 0.8], states=states)
    for name in ("best.yaml", "scores.png", "expected.svg"):
        (folder / name).write_text("of an earlier call")
    document = conclude(folder).as_json()
    assert document["chosen"] is None
    assert sorted(path.name for path in folder.glob("[!.]*")) == [
        "cells",
        "plan.json",
        "sweep.html",
        "sweep.json",
    ]
    assert "6 failed" in (folder / "sweep.html").read_text()
    assert "nothing is chosen" in shown(document)


# -- the comparison
# -------------------------------------------------------------------------------------------------


def test_equal_models_are_not_told_apart_and_different_ones_are(tmp_path: Path) -> None:
    near = document_of(made_sweep(tmp_path / "near", RATES[:2], [0.8, 0.8]))["comparison"]
    assert near["verdict"] == "undecided"
    assert "are not significantly different" in near["sentence"]
    assert near["of"] == 2
    far = document_of(made_sweep(tmp_path / "far", RATES[:2], [0.95, 0.7]))
    comparison = far["comparison"]
    assert comparison["verdict"] == "different"
    assert comparison["first"] == 0
    assert comparison["second"] == 1
    assert comparison["seeds"] == [0, 1, 2]
    assert comparison["difference"] == pytest.approx(
        far["settings"][0]["mean"] - far["settings"][1]["mean"]
    )
    assert 0 < comparison["low"] < comparison["difference"] < comparison["high"]
    assert "5e-05 is better than learning_rate 3e-05" in comparison["sentence"]


def test_the_interval_counts_seeds_and_examples_as_noise(tmp_path: Path) -> None:
    """The variance is computed by hand.

    It is that over examples and over seeds, less what is in both, with Satterthwaite's degrees of
    freedom.
    """
    folder = made_sweep(tmp_path, RATES[:2], [0.85, 0.8])

    comparison = document_of(folder)["comparison"]

    first = _correct_answers(comparison["first"])
    second = _correct_answers(comparison["second"])
    differences = first.mean(axis=0) - second.mean(axis=0)
    of_examples = np.var(differences, ddof=1) / 200
    of_first_seeds = np.var(first.mean(axis=1), ddof=1) / 3
    of_second_seeds = np.var(second.mean(axis=1), ddof=1) / 3
    in_both = _interaction_variance(first) + _interaction_variance(second)
    of_seeds = max(0, of_first_seeds + of_second_seeds - in_both)
    variance = of_examples + of_seeds
    freedom = variance**2 / (of_examples**2 / 199 + of_first_seeds**2 / 2 + of_second_seeds**2 / 2)
    deviation = np.sqrt(variance)
    half_width = stats.t.ppf(0.975, freedom) * deviation
    assert (comparison["high"] - comparison["low"]) / 2 == pytest.approx(half_width)
    p_value = 2 * stats.t.sf(comparison["difference"] / deviation, freedom)
    assert comparison["p"] == pytest.approx(p_value)


def _correct_answers(setting: int) -> np.ndarray:
    """1.0 where a seed's run is right: 3 seeds by 200 examples."""
    accuracy_of_setting = [0.85, 0.8][setting]
    table = []
    for seed in range(3):
        lines = answers(accuracy_of_setting, seed=100 * setting + seed)
        table.append([line["gold"] == line["prediction"] for line in lines])
    return np.array(table, dtype=float)


def _interaction_variance(table: np.ndarray) -> float:
    """The part of the variance of a mean that neither seeds nor examples alone explain."""
    of_examples = table.mean(axis=0)
    of_seeds = table.mean(axis=1, keepdims=True)
    residuals = table - of_examples - of_seeds + table.mean()
    return float((residuals**2).sum() / (199 * 2 * 200 * 3))


def test_one_seed_tells_no_settings_apart(tmp_path: Path) -> None:
    comparison = document_of(made_sweep(tmp_path, RATES[:2], [0.95, 0.7], seeds=1))["comparison"]
    assert comparison["p"] < 1e-6
    assert comparison["verdict"] == "undecided"
    assert "not significantly different, which takes two seeds" in comparison["sentence"]


@pytest.mark.slow
def test_what_to_expect_is_corrected_for_the_choice_and_both_numbers_are_said(
    tmp_path: Path,
) -> None:
    folder = made_sweep(tmp_path, PAPER, [0.8] * 18, n=60)
    document = conclude(folder).as_json()
    chosen = document["chosen"]
    assert chosen["expected"] < chosen["mean"] - 0.01
    assert chosen["run_expected"] < chosen["run_value"] - 0.01
    assert document["selected_on"] == {"setting": {"split": "validation", "of": 18}}
    assert document["comparison"]["of"] == 18
    assert "the first two of 18 settings" in document["comparison"]["sentence"]
    both = f"{chosen['expected']:.4f}, corrected for the choice"
    assert both in (folder / "best.yaml").read_text()
    assert both in shown(document)
    assert f"measured {chosen['mean']:.4f}" in shown(document)


def test_a_diverged_setting_takes_nothing_from_what_to_expect(tmp_path: Path) -> None:
    """It is worth what the other is.

    Whichever a draw of examples chooses, that is to be expected.
    """
    folder = made_sweep(
        tmp_path, RATES[:2], [0.8] * 2, seeds=1, states={(1, 0): "diverged"}, plan={"baseline": {}}
    )
    plan, cells = read_cells(folder)
    assert cells[0].value == cells[1].value
    assert expect(plan, by_setting(plan, cells)) == pytest.approx([cells[0].value] * 2, abs=0.003)


def test_what_to_expect_of_a_metric_that_is_no_mean(tmp_path: Path) -> None:
    """The metric is F1.

    Of one setting nothing is chosen, so that the mean over draws is near the mean over seeds.
    """
    primary = {"split": "validation", "name": "f1", "higher_is_better": True}
    folder = made_sweep(tmp_path, RATES[:1], [0.8], plan={"primary": primary})
    plan, cells = read_cells(folder)
    done_cells = [replace(cell, state="done", value=0.8, message="") for cell in cells]
    settings = by_setting(plan, done_cells)
    [setting] = settings
    f1_of_seeds = []
    for seed in range(3):
        lines = answers(0.8, seed=seed)
        f1 = ClassAnswers.from_lines(lines).contributions(lines, "f1")
        f1_of_seeds.append(f1.value)

    expected_best = expect(plan, settings)
    with_itself = compare_settings(plan, setting, setting)

    assert expected_best[0] == pytest.approx(mean(f1_of_seeds), abs=0.005)
    assert with_itself.difference.value == 0
    assert with_itself.verdict == "undecided"


def test_a_seed_without_predictions_is_left_out_of_the_comparison_and_that_is_said(
    tmp_path: Path,
) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.95, 0.7], states={(1, 1): "diverged"})
    comparison = document_of(folder)["comparison"]
    assert comparison["seeds"] == [0, 2]
    assert "2 scores without predictions" in comparison["sentence"]


def test_no_predictions_no_comparison(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.95, 0.7], seeds=1)
    (folder / "cells/0001000000000000/predictions/validation.jsonl").unlink()
    comparison = document_of(folder)["comparison"]
    assert comparison["verdict"] == "not compared"
    assert "can't be read" in comparison["sentence"]
    assert str(tmp_path) not in json.dumps(comparison)


def test_one_example_and_none_at_all_tell_nothing_of_others(tmp_path: Path) -> None:
    sweep_document = document_of(made_sweep(tmp_path / "one", RATES[:2], [0.9, 0.7], seeds=2, n=1))
    diverged = {}
    for setting in range(2):
        diverged |= {(setting, seed): "diverged" for seed in range(2)}
    none = document_of(
        made_sweep(tmp_path / "none", RATES[:2], [0.9, 0.7], seeds=2, states=diverged)
    )
    assert (
        sweep_document["comparison"]["verdict"] == none["comparison"]["verdict"] == "not compared"
    )
    for document in (sweep_document, none):
        assert document["chosen"]["expected"] is None
        assert "no run has answers to two unrelated examples" in document["chosen"]["not_corrected"]


def test_best_runs_are_compared_where_the_best_run_chooses(tmp_path: Path) -> None:
    document = document_of(made_sweep(tmp_path, RATES[:2], [0.9, 0.7], plan={"choose": "best-run"}))
    actual = document["comparison"]
    rows = {row["setting"]: row for row in document["settings"]}
    assert actual["difference"] == pytest.approx(rows[0]["max"] - rows[1]["max"])
    assert "the best run of each" in actual["sentence"]


@pytest.mark.parametrize("without", [None, 1, 2])
def test_clusters_of_one_fold_are_not_those_of_another(tmp_path: Path, without: int | None) -> None:
    """Each run numbers its clusters from 0, and may have none."""
    folder = made_sweep(
        tmp_path,
        RATES[:2],
        [0.8, 0.7],
        seeds=2,
        folds=3,
        n=40,
    )
    for path in (folder / "cells").iterdir():
        if int(path.name[8:], 16) != without:
            lines = [{**line, "cluster": i // 4} for i, line in enumerate(_lines(path))]
            _replace(path, lines)
    n_clusters = 30 if without is None else 20 + 40

    document = document_of(folder)

    ways = [score["how"] for score in document["scores"]]
    assert ways == ["pooled folds"] * 4
    assert document["comparison"]["clusters"] == n_clusters


@pytest.mark.parametrize("seeds", [1, 3])
def test_where_nothing_was_chosen_nothing_is_corrected(seeds):
    table = (np.random.default_rng(4).random((20, seeds)) < 0.7).astype(float)
    new_seed, _ = scores_of_the_choice([table], sign=1.0, by_best_run=False)
    assert new_seed == pytest.approx(table.mean(), abs=1e-12)


@pytest.mark.parametrize("choose", ["mean", "best-run"])
@pytest.mark.parametrize("collapsed", [0, 1])
def test_a_setting_whose_runs_have_all_collapsed_is_not_chosen(
    tmp_path: Path, collapsed: int, choose: Any
) -> None:
    """The majority's answer scores best here, and is no model."""
    scores = [0.7, 0.7]
    scores[collapsed] = 0.9
    states = {(collapsed, seed): "collapsed" for seed in range(3)}
    plan, cells = read_cells(made_sweep(tmp_path, RATES[:2], scores, states=states))
    order = [setting.index for setting in ranked(plan, by_setting(plan, cells), by=choose)]
    assert order == [1 - collapsed, collapsed]


def test_a_setting_of_which_one_run_collapsed_counts_as_any_other(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, RATES[:2], [0.9, 0.7], states={(0, 1): "collapsed"})
    plan, cells = read_cells(folder)
    assert ranked(plan, by_setting(plan, cells))[0].index == 0


def test_where_all_have_collapsed_the_best_score_is_first(tmp_path: Path) -> None:
    states = dict.fromkeys(itertools.product(range(2), range(3)), "collapsed")
    folder = made_sweep(tmp_path, RATES[:2], [0.7, 0.9], states=states)
    plan, cells = read_cells(folder)

    settings = ranked(plan, by_setting(plan, cells))

    assert [setting.index for setting in settings] == [1, 0]
