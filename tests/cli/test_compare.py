"""`bertctl compare` through the real process."""

import json
import re
import shutil

import numpy as np
import pytest

from bertctl.metrics.paired import holm, mcnemar
from bertctl.run_folder import RunFolder
from bertctl.writing import write_json, write_jsonl, write_text
from tests.made_runs import made_run
from tests.scoring import classification_metrics, loss_metric, regression_metrics

pytestmark = pytest.mark.in_process

LABELS = ["neg", "pos"]
N = 400


def _write(path, *, task, lines, metrics, seed, rate, digest):
    folder = RunFolder.create(path)
    recipe = (
        f"name: {path.name}\ntask: {task}\ntraining:\n  seed: {seed}\noptimizer:\n  learning_rate: "
        f"{rate}\n"
    )
    write_text(folder.recipe, recipe)
    by_name = {name: metric.as_json() for name, metric in metrics.items()}
    primary = {"split": "validation", "name": next(iter(by_name))}
    data = {"validation": {"examples": len(lines), "truncated": seed}}
    write_json(
        folder.metrics,
        {"schema": 1, "metrics": {"validation": by_name}, "primary": primary, "data": data},
    )
    write_json(
        folder.environment,
        {"data_hashes": {"train": digest}, "threads": 2, "packages": {"torch": "2.13"}},
    )
    speed = {
        "seconds": {"train": 100.0 * seed},
        "examples_per_second": 100.0,
        "peak_memory_bytes": 1_707_405_312,
    }
    write_json(folder.performance, speed)
    write_jsonl(folder.predictions("validation"), lines)
    folder.set_status("done", step=10)
    return path


def _labels_run(path, *, seed, right, n=N, digest="aaaaaaaaaa"):
    gold = np.random.default_rng(0).integers(0, 2, n)
    rng = np.random.default_rng([seed, 1])
    answers = np.where(rng.random(n) < right, gold, 1 - gold)
    losses = rng.exponential(0.3, n)
    metrics = classification_metrics(
        gold,
        answers,
        n_labels=2,
        positive=1,
        resamples=200,
        seed=0,
    )
    metrics["loss"] = loss_metric(losses, np.ones(n), resamples=200, seed=0)
    lines = [
        {
            "id": str(i),
            "text": f"::error::text {i} [b] | \x1b[31m\nsecond",
            "gold": LABELS[gold[i]],
            "prediction": LABELS[answers[i]],
            "probabilities": {"neg": 0.5, "pos": 0.5},
            "loss": float(losses[i]),
        }
        for i in range(n)
    ]
    return _write(
        path,
        task="text-classification",
        lines=lines,
        metrics=metrics,
        seed=seed,
        rate=seed * 1e-5,
        digest=digest,
    )


def _scores_run(path, *, seed, shift=0.0, factor=1.0):
    rng = np.random.default_rng(0)
    gold = rng.normal(size=N)
    answers = gold + np.random.default_rng([seed, 1]).normal(0, 0.3 * seed, N)
    answers = factor * answers + shift
    metrics = regression_metrics(gold, answers, resamples=200, seed=0)
    lines = [
        {"id": str(i), "text": "t", "gold": float(g), "prediction": float(a)}
        for i, (g, a) in enumerate(zip(gold, answers, strict=True))
    ]
    return _write(
        path, task="text-regression", lines=lines, metrics=metrics, seed=seed, rate=1e-5, digest="a"
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    _labels_run(folder / "a", seed=1, right=0.8)
    _labels_run(folder / "b", seed=2, right=0.95)
    _labels_run(folder / "c", seed=3, right=0.82, digest="bbbbbbbbbb")
    _labels_run(folder / "other", seed=4, right=0.9, n=N - 1)
    _scores_run(folder / "s1", seed=1)
    _scores_run(folder / "s2", seed=2)
    _labels_run(folder / "renamed", seed=2, right=0.95)
    lines = folder / "renamed" / "predictions" / "validation.jsonl"
    lines.write_text(lines.read_text().replace('"neg"', '"negative"'))
    loss = {"value": 9.0, "low": 8.0, "high": 10.0, "n": N, "higher_is_better": False}
    primary = {"split": "validation", "name": "spearman"}
    write_json(
        folder / "scores.json",
        {"metrics": {"validation": {"spearman": loss, "loss": loss}}, "primary": primary},
    )
    return folder


def _read_lines(folder):
    return [
        json.loads(line)
        for line in (folder / "predictions" / "validation.jsonl").read_text().splitlines()
    ]


def _by_hand(a, b):
    a = [line["gold"] == line["prediction"] for line in _read_lines(a)]
    b = [line["gold"] == line["prediction"] for line in _read_lines(b)]
    return sum(x and not y for x, y in zip(a, b, strict=True)), sum(
        y and not x for x, y in zip(a, b, strict=True)
    )


def test_differences_are_paired_and_adjusted(bertctl, runs):
    result = bertctl("compare", "a", "b", "c", "--json", "--examples", "3", cwd=runs)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    accuracies = [
        difference for difference in document["differences"] if difference["metric"] == "accuracy"
    ]
    assert [accuracy["run"] for accuracy in accuracies] == ["b", "c"]
    p_values = [mcnemar(*_by_hand(runs / run, runs / "a")) for run in "bc"]
    assert [accuracy["p"] for accuracy in accuracies] == pytest.approx(p_values)
    every = document["differences"]
    assert [entry["p_adjusted"] for entry in every] == pytest.approx(
        holm([entry["p"] for entry in every])
    ), "over all metrics"
    assert [accuracy["verdict"] for accuracy in accuracies] == ["better", "undecided"]
    assert all(difference["paired"] for difference in document["differences"])
    assert {difference["metric"] for difference in document["differences"]} == {
        "accuracy",
        "f1",
        "matthews",
        "loss",
    }
    assert [(side["won"], side["lost"]) for side in document["changed_sides"]] == [
        _by_hand(runs / run, runs / "a") for run in "bc"
    ]
    assert len(document["changed_sides"][0]["examples"]) == 3


def test_what_the_runs_differ_in_is_told_and_nothing_else(bertctl, runs):
    document = json.loads(bertctl("compare", "a", "c", "--json", cwd=runs).stdout)
    assert document["recipe"] == {
        "training.seed": [1, 3],
        "optimizer.learning_rate": [1e-5, pytest.approx(3e-5)],
    }
    assert document["data"] == {
        "train.content": ["aaaaaaaa", "bbbbbbbb"],
        "validation.truncated": [1, 3],
    }
    assert document["environment"] == {}
    figures = {"examples_per_second": [100.0, 100.0], "peak_memory_bytes": [1_707_405_312] * 2}
    assert document["speed"] == {"seconds.train": [100.0, 300.0], **figures}


def test_the_examples_are_those_that_changed_sides_the_lost_ones_first(bertctl, runs):
    document = json.loads(
        bertctl("compare", "a", "b", "--json", "--examples", "1000", cwd=runs).stdout
    )
    (changes,) = document["changed_sides"]
    lines = {run: {line["id"]: line for line in _read_lines(runs / run)} for run in "ab"}
    assert len(changes["examples"]) == changes["won"] + changes["lost"]
    for example in changes["examples"]:
        a, b = (lines[run][example["id"]] for run in "ab")
        assert example["predictions"] == [a["prediction"], b["prediction"]]
        assert example["won"] == (b["prediction"] == b["gold"])
        assert a["prediction"] != b["prediction"]
    assert [example["won"] for example in changes["examples"]] == [False] * changes["lost"] + [
        True
    ] * changes["won"]


def test_a_person_sees_tables_and_no_text_breaks_them(bertctl, runs):
    result = bertctl("compare", "a", "b", cwd=runs)
    assert result.returncode == 0
    for heading in (
        "metrics of validation",
        "differences",
        "recipes differ in",
        "speed",
        "examples that changed sides",
    ):
        assert heading in result.stdout
    assert "McNemar, exact" in result.stdout
    assert "\\n" not in result.stdout.partition("examples that changed sides")[0]
    tables = [line.split("  ") for line in result.stdout.splitlines()]
    output = [[cell.strip() for cell in line if cell.strip()] for line in tables]
    assert ["training", "1 min 40 s", "3 min 20 s"] in output
    assert ["peak memory", "1.7 GB", "1.7 GB"] in output
    assert "\x1b" not in result.stdout
    assert not any(line.lstrip().startswith("::") for line in result.stdout.splitlines())


def test_no_word_of_the_differences_is_broken_at_80_columns(bertctl, runs):
    wide = bertctl("compare", "a", "b", cwd=runs, env={"COLUMNS": "120"}).stdout
    narrow = bertctl("compare", "a", "b", cwd=runs, env={"COLUMNS": "80"}).stdout

    lines = [line.rstrip() for line in narrow.splitlines()]
    section = lines[lines.index("differences") + 1 : lines.index("recipes differ in")]
    assert re.sub(r"\s+", " ", section[0]) == "metric runs difference 95 % interval p p, Holm"
    assert max(map(len, section)) <= 80
    assert "p of accuracy: McNemar, exact" in section
    words = set(re.findall(r"[A-Za-z_]{3,}", "\n".join(section)))
    assert words <= set(re.findall(r"[A-Za-z_]{3,}", wide))


def test_runs_on_other_data_are_not_compared_silently(bertctl, runs):
    result = bertctl("compare", "a", "other", "--json", cwd=runs)
    assert result.returncode == 0
    assert json.loads(result.stdout)["differences"] == []
    assert "different data" in result.stderr


def test_a_bare_metrics_file_is_compared_unpaired(bertctl, runs):
    result = bertctl("compare", "a", "b/metrics.json", "--json", cwd=runs)
    document = json.loads(result.stdout)
    assert document["differences"]
    assert not any(difference["paired"] for difference in document["differences"])
    assert document["changed_sides"] == []
    assert "can't be paired" in result.stderr


def test_scores_have_differences_but_no_sides(bertctl, runs):
    document = json.loads(bertctl("compare", "s1", "s2", "--json", cwd=runs).stdout)
    verdicts = {
        difference["metric"]: difference["verdict"] for difference in document["differences"]
    }
    assert verdicts == {"pearson": "worse", "spearman": "worse", "mse": "worse"}
    assert document["changed_sides"] == []


@pytest.mark.parametrize(("shift", "factor"), [(2.0, 1.0), (0.0, 0.5), (-4.0, 10.0)])
def test_p_of_a_correlation_does_not_move_with_the_scale_of_a_runs_scores(
    bertctl, runs, tmp_path, shift, factor
):
    moved = _scores_run(tmp_path / "moved", seed=2, shift=shift, factor=factor)

    documents = [
        json.loads(bertctl("compare", "s1", other, "--json", cwd=runs).stdout)
        for other in ("s2", moved)
    ]

    before, after = (
        {difference["metric"]: difference for difference in document["differences"]}
        for document in documents
    )
    for metric in ("pearson", "spearman"):
        assert after[metric]["p"] == before[metric]["p"] < 0.05
        for end in ("value", "low", "high"):
            assert after[metric][end] == pytest.approx(before[metric][end])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a"], 2, "one run"),
        (["a", "nothing"], 4, "does not exist"),
        (["a", "s1"], 2, "different tasks: text-regression and text-classification"),
        (["a", "scores.json"], 2, "no metric of 'validation' in common"),
        (["a", "renamed"], 2, "different labels: 'negative' and 'neg'"),
        (["a", "b", "--split", "test"], 2, "split 'test'"),
    ],
)
def test_what_can_not_be_compared_is_refused(bertctl, runs, arguments, code, message):
    result = bertctl("compare", *arguments, cwd=runs)
    assert result.returncode == code
    assert message in result.stderr
    assert result.stdout == ""


def test_scores_of_a_file_are_no_split_of_a_run(bertctl, runs, tmp_path):
    """No command makes a split `file` of a run, or a split of what is the scores of a file.

    What fits is said.
    """
    scores = shutil.copytree(runs / "s1", tmp_path / "scores")
    (scores / "predictions" / "validation.jsonl").rename(scores / "predictions" / "file.jsonl")
    metrics = scores / "metrics.json"
    metrics.write_text(metrics.read_text().replace('"validation"', '"file"'))
    for pair in ((scores, runs / "s2"), (runs / "s2", scores)):
        done = bertctl("compare", *pair)
        assert done.returncode == 2, done.stderr
        assert "--split" not in done.stderr
        assert "bertctl evaluate RUN --file FILE -o SCORES" in done.stderr
    done = bertctl("evaluate", scores, "--split", "validation")
    assert "give the run or the model that was scored" in done.stderr


def test_the_step_summary_gets_the_tables(bertctl, runs, tmp_path):
    summary = tmp_path / "summary.md"
    result = bertctl("compare", "a", "b", cwd=runs, env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert result.returncode == 0
    text = summary.read_text(encoding="utf-8")
    assert "### differences" in text
    assert "\\[b\\] \\|" in text
    assert "\x1b" not in text


def _also_on_test(run, examples=30):
    """Adds to a run that it was scored on the test split, too."""
    folder = RunFolder.open(run)
    metrics = folder.read(folder.metrics)
    metrics["metrics"]["test"] = metrics["metrics"]["validation"]
    metrics["data"]["test"] = {"examples": examples, "sha256": "abc"}
    write_json(folder.metrics, metrics)
    write_json(folder.environment, {"data_hashes": {"train": "aaaaaaaaaa", "test": "bbb"}})


def test_a_split_that_one_run_was_scored_on_is_no_difference_of_the_data(bertctl, tmp_path):
    for seed, name in ((1, "a"), (1, "b")):
        _labels_run(tmp_path / name, seed=seed, right=0.9)
    _also_on_test(tmp_path / "b")
    document = json.loads(bertctl("compare", "a", "b", "--json").stdout)
    assert document["data"] == {}
    assert document["notes"] == ["b has also been scored on test"]
    _also_on_test(tmp_path / "a", examples=31)
    both = json.loads(bertctl("compare", "a", "b", "--json").stdout)
    assert both["data"] == {"test.examples": [31, 30]}
    assert both["notes"] == []


def test_examples_lost_and_won_are_both_shown(bertctl, runs):
    document = json.loads(
        bertctl("compare", "a", "b", "--json", "--examples", "6", cwd=runs).stdout
    )
    [changes] = document["changed_sides"]
    assert [example["won"] for example in changes["examples"]] == [False] * 3 + [True] * 3


def test_a_cell_of_a_fact_that_a_run_lacks_says_so(bertctl, tmp_path):
    for name in ("a", "b"):
        _labels_run(tmp_path / name, seed=1, right=0.9)
    recipe = tmp_path / "b" / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "data:\n  test_file: t.csv\n")
    answer = bertctl("compare", "a", "b").stdout
    assert re.search(r"data.test_file +not set +t.csv", answer)


def test_what_is_searched_is_compared_and_gated_by_query(bertctl, tmp_path):
    """Query 0 has three rows and is lost, queries 1 to 30 have one row each and are won."""
    rows = [0, 0, 0, *range(1, 31)]
    for name, rank_of_first, rank_of_others in (("a", 1, 2), ("b", 2, 1)):
        lines = []
        for number, query in enumerate(rows):
            rank = rank_of_others if query else rank_of_first
            relevant = 1 if query else 3
            ranks = [rank + more for more in range(relevant)]
            line = {
                "id": str(number),
                "text": f"q{query}",
                "gold": 1,
                "query": query,
                "similarity": number / 50,
            }
            line |= {"prediction": rank, "ranks": ranks, "relevant": relevant, "loss": float(rank)}
            lines.append(line)
        value = (1 / rank_of_first + 30 / rank_of_others) / 31
        made_run(
            tmp_path / name, lines, task="sentence-embeddings", primary="mrr_at_10", value=value
        )
    document = json.loads(bertctl("compare", "a", "b", "--json", cwd=tmp_path).stdout)
    (difference,) = (entry for entry in document["differences"] if entry["metric"] == "mrr_at_10")
    assert difference["n"] == 31
    assert difference["paired"] is True
    assert difference["value"] == pytest.approx((30 - 1) / 2 / 31)
    (changes,) = document["changed_sides"]
    assert changes["won"] == 30
    assert changes["lost"] == 1
    gate = ("gate", "b", "--baseline", "a", "--max-drop", "mrr_at_10=0.01", "--json")
    (check,) = json.loads(bertctl(*gate, cwd=tmp_path).stdout)["checks"]
    assert check["verdict"] == "pass"
    assert check["change"]["n"] == 31
