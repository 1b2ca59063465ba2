"""Simple models beside a run: what it says of them, what it leaves, and `gate --beats`."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertctl.api import finetune
from bertctl.baselines.run_baselines import make_baselines
from bertctl.config.load import load_recipe
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.run_folder import RunFolder
from bertctl.training.job import prepare
from bertctl.writing import write_json, write_jsonl
from tests.cli.test_gate import LABELS, make_run
from tests.heard import Heard

pytestmark = pytest.mark.in_process

GOOD = ["good", "fine", "bright"]
BAD = ["bad", "poor", "dull"]


def write_reviews(path, n=100):
    """Reviews whose words tell the label to whoever counts them."""
    draws = np.random.default_rng(0)
    rows = ["text,label"]
    for i in range(n):
        is_good = bool(draws.random() < 0.5)
        word = draws.choice(GOOD if is_good else BAD)
        rows.append(f"the film was {word} {i},{'pos' if is_good else 'neg'}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def words_of_run(tiny_model, tmp_path_factory):
    """Makes the command of a run that word counts beat, and the folder to run it in.

    The command has no folder.
    """
    folder = tmp_path_factory.mktemp("weak")
    data = write_reviews(folder / "reviews.csv")
    options = ["--model", tiny_model, "--epochs", "1", "--max-length", "24", "--precision", "fp32"]
    options += ["--set", "model.head_start=random", "--set", "training.preset=null"]
    sets = ["--set", "data.validation_fraction=0.3", "--set", "evaluation.bootstrap_resamples=100"]
    return [str(word) for word in ("finetune", data, *options, *sets)], folder


@pytest.fixture(scope="module")
def weak_run(nursery, words_of_run):
    """A run that word counts beat, and what its process said."""
    words, folder = words_of_run
    process = nursery.run([*words, "-o", "run"], cwd=folder)
    assert process.returncode == 0, process.stderr
    return folder / "run", process


def test_a_run_that_is_not_better_says_so_everywhere_with_what_to_type(bertctl, weak_run):
    run, process = weak_run

    bertctl("report", run)

    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert list(metrics["baselines"]) == ["frozen", "tfidf"]
    comparison = metrics["baselines"]["tfidf"]["differences"]["validation"]
    assert comparison["verdict"] == "not better"
    assert comparison["value"] == pytest.approx(
        metrics["metrics"]["validation"]["accuracy"]["value"] - comparison["baseline"]
    )
    [warning] = [
        line
        for line in process.stderr.splitlines()
        if "TF-IDF" in line and line.startswith("warning: ")
    ]
    assert f"the {comparison['baseline']:.3f} of TF-IDF" in warning
    assert f"95 % {100 * comparison['corrected']['low']:.1f} to" in warning
    assert "`bertctl probe run/recipe.yaml`" in process.stderr
    assert process.stderr.splitlines()[-1] == "Next: bertctl probe run/recipe.yaml"
    for page in (run / "report.html", run / "model" / "README.md"):
        text = page.read_text(encoding="utf-8")
        assert "TF-IDF, linear model" in text
        assert f"{comparison['value']:+.4f}" in text


def test_no_probe_is_advised_that_would_refuse_the_recipe(bertctl, words_of_run):
    words, folder = words_of_run

    trained = bertctl(*words, "-o", "lora", "--set", "lora.rank=2", cwd=folder)
    probed = bertctl("probe", "lora/recipe.yaml", "-o", "probe", cwd=folder)

    assert trained.returncode == 0, trained.stderr
    assert "of the frozen encoder's classifier" in trained.stderr, "the run is not better"
    assert "bertctl probe" not in trained.stderr
    assert trained.stderr.splitlines()[-1] == "Next: bertctl predict lora FILE"
    assert probed.returncode == 2


def read_lines(path: Path) -> list[dict]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("baseline", ["frozen", "tfidf"])
def test_every_row_that_the_run_is_scored_on_has_the_baselines_answer(weak_run, baseline):
    run, _ = weak_run
    folder = RunFolder.open(run)
    lines = read_lines(folder.predictions("validation"))
    theirs = read_lines(folder.baseline_predictions(baseline, "validation"))
    assert len(lines) == len(theirs)
    for line, baseline_line in zip(lines, theirs, strict=True):
        assert line["id"] == baseline_line["id"]
        assert line["gold"] == baseline_line["gold"]
    value = json.loads(folder.metrics.read_text())["baselines"][baseline]["metrics"]["validation"][
        "accuracy"
    ]
    assert value == pytest.approx(
        sum(line["gold"] == line["prediction"] for line in theirs) / len(theirs)
    )


def test_without_baselines_every_number_of_the_run_is_the_same(bertctl, words_of_run, weak_run):
    words, folder = words_of_run
    run, _ = weak_run

    process = bertctl(*words, "-o", "plain", "--no-baselines", cwd=folder)

    assert process.returncode == 0, process.stderr
    assert "TF-IDF" not in process.stderr
    plain = json.loads((folder / "plain" / "metrics.json").read_text(encoding="utf-8"))
    with_baselines = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert with_baselines.pop("baselines")
    assert plain == with_baselines
    assert not (folder / "plain" / "baselines").exists()


def test_an_estimate_has_the_time_of_the_baselines(bertctl, words_of_run):
    words, folder = words_of_run

    estimate = bertctl("estimate", *words[1:], "--json", cwd=folder)

    seconds = json.loads(estimate.stdout)["seconds"]
    assert 0 < seconds["baselines"]["estimate"] <= 0.1 * seconds["train"]["estimate"] + 1e-3


def test_an_interrupted_run_keeps_its_baselines(weak_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(weak_run[0], run)
    scores = run / "baselines" / "scores.json"
    document = json.loads(scores.read_text(encoding="utf-8"))
    document["baselines"]["tfidf"]["details"]["rows"] = 12345
    write_json(scores, document)
    RunFolder.open(run).set_status("interrupted", step=0)
    (run / "metrics.json").unlink()
    job = prepare(load_recipe(str(weak_run[0] / "recipe.yaml")))

    baselines = make_baselines(job, RunFolder(run), Heard())

    assert baselines.metrics({}, {})["baselines"]["tfidf"]["rows"] == 12345


def test_a_run_that_its_time_limit_cut_is_told_to_take_more_time(weak_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(weak_run[0], run)
    document = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    limited = {"limit": "30s", "steps": 1, "whole_steps": 9, "epochs": 0.1, "whole_epochs": 1}
    metrics = MetricsDocument.model_validate(document | {"time_limit": limited})
    heard = Heard()
    job = prepare(load_recipe(str(weak_run[0] / "recipe.yaml")))

    make_baselines(job, RunFolder(run), heard).announce(metrics)

    assert heard.said[-1] == "to get above it: a longer `training.time_limit=`"


def test_texts_without_a_word_cost_the_run_one_warning(bertctl, tiny_model, tmp_path):
    rows = []
    for i in range(20):
        rows += [f"{mark * (1 + i)},{label}" for mark, label in (("!", "loud"), ("?", "asking"))]
    (tmp_path / "marks.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    options = [
        "--model",
        tiny_model,
        "--epochs",
        "1",
        "--max-length",
        "24",
        "--set",
        "data.validation_fraction=0.5",
    ]

    process = bertctl("finetune", "marks.csv", *options, "-o", "run", cwd=tmp_path)

    assert process.returncode == 0, process.stderr
    assert (
        "warning: TF-IDF with a linear model could not be computed, the run continues: "
        in process.stderr
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert list(metrics["baselines"]) == ["frozen"]


def test_few_rows_to_score_on_have_no_baselines(bertctl, tiny_model, tmp_path):
    write_reviews(tmp_path / "reviews.csv", n=40)
    options = ["--model", tiny_model, "--epochs", "1", "--max-length", "24"]

    process = bertctl("finetune", "reviews.csv", *options, "-o", "run", cwd=tmp_path)

    assert "baselines: none, as 4 rows to score on can't tell models apart" in process.stderr
    assert "baselines" not in json.loads(
        (tmp_path / "run" / "metrics.json").read_text(encoding="utf-8")
    )


def write_scores(path):
    rows = []
    for i in range(25):
        rows += [
            f"the film was {word} {i},{score + i / 100}"
            for word, score in (("good", 3), ("bad", 1))
        ]
    path.write_text("text,score\n" + "\n".join(rows) + "\n", encoding="utf-8")


def write_pairs(path):
    rows = [
        f"a {a} film {i},it was {b},{a == b}"
        for i in range(13)
        for a in ("good", "bad")
        for b in ("good", "bad")
    ]
    path.write_text("text_a,text_b,label\n" + "\n".join(rows) + "\n", encoding="utf-8")


def write_several(path):
    rows = [
        {"text": f"the {a} film was {b} {i}", "label": [word for word in (a, b) if word != "not"]}
        for i in range(13)
        for a in ("good", "not")
        for b in ("fine", "not")
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")


def write_tags(path):
    sentence = "the O\n{} B-ADJ\n{} B-NOUN\n"
    sentences = [
        sentence.format(a, b) for _ in range(13) for a in ("good", "bad") for b in ("film", "food")
    ]
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("write", "task", "name", "metric", "baselines"),
    [
        (write_scores, "text-regression", "scores.csv", "spearman", ["frozen", "tfidf"]),
        (write_pairs, "text-classification", "pairs.csv", "accuracy", ["frozen", "tfidf"]),
        (write_several, "text-classification", "several.jsonl", "f1_micro", ["frozen", "tfidf"]),
        (write_tags, "token-classification", "tags.conll", "entity_f1", ["frozen", "word-tags"]),
    ],
)
def test_every_task_with_labels_has_its_baselines(
    tiny_model, tmp_path, write, task, name, metric, baselines
):
    write(tmp_path / name)
    fields = {
        "data.train_file": str(tmp_path / name),
        "data.validation_fraction": 0.5,
        "model.name": str(tiny_model),
        "model.max_length": 24,
        "training.epochs": 1,
        "training.checkpoint_every": "off",
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
    }

    finetune(task, fields, output=tmp_path / "run")

    metrics = RunFolder.open(tmp_path / "run").read(tmp_path / "run" / "metrics.json")
    assert list(metrics["baselines"]) == baselines
    entries = metrics["baselines"].values()
    assert max(entry["metrics"]["validation"][metric] for entry in entries) > 0.5
    assert all(entry["differences"]["validation"]["n"] > 20 for entry in entries)


def test_a_recipe_named_after_a_task_of_the_paper_has_none():
    assert not load_recipe("sst2").evaluation.baselines
    assert not load_recipe("demo").evaluation.baselines
    assert not load_recipe("question-answering").evaluation.baselines


def with_other_answers(lines, *, worse, better):
    """The lines, with so many right answers made wrong and so many wrong ones made right."""
    changed = []
    for line in lines:
        is_right = line["prediction"] == line["gold"]
        answer = line["prediction"]
        if is_right and worse:
            answer = next(label for label in LABELS if label != line["gold"])
            worse -= 1
        elif not is_right and better:
            answer = line["gold"]
            better -= 1
        changed.append({"id": line["id"], "gold": line["gold"], "prediction": answer})
    return changed


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run with a baseline that is clearly worse, and one that is about as good."""
    run = RunFolder.open(make_run(tmp_path_factory.mktemp("judged") / "run", seed=1, right=0.93))
    lines = [
        json.loads(line)
        for line in run.predictions("validation").read_text(encoding="utf-8").splitlines()
    ]
    metrics = run.read(run.metrics) | {"constant_answer": "pos", "baselines": {}}
    for name, worse, better in (("frozen", 90, 20), ("tfidf", 24, 20)):
        answers = with_other_answers(lines, worse=worse, better=better)
        write_jsonl(run.baseline_predictions(name, "validation"), answers)
        share = sum(line["gold"] == line["prediction"] for line in answers) / len(answers)
        scores = {"validation": {"accuracy": share}}
        metrics["baselines"][name] = {"rows": 100, "metrics": scores, "differences": {}}
    write_json(run.metrics, metrics)
    return run


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        (["--beats", "frozen"], 0, "pass"),
        (["--beats", "majority"], 0, "pass"),
        (["--beats", "tfidf"], 8, "inconclusive"),
        (["--beats", "tfidf", "--policy", "lenient"], 0, "inconclusive"),
        (["--beats", "frozen", "--beats", "tfidf"], 8, "inconclusive"),
        (["--beats", "frozen", "--min", "accuracy=0.99"], 7, "fail"),
    ],
)
def test_beats_passes_where_the_interval_excludes_no_gain(
    bertctl, judged, arguments, code, verdict
):
    process = bertctl("gate", judged.path, *arguments, "--json")

    assert process.returncode == code, process.stderr
    answer = json.loads(process.stdout)
    assert answer["verdict"] == verdict
    check = next(check for check in answer["checks"] if check["check"] == f"beats {arguments[1]}")
    assert check["beats"] == arguments[1]
    assert check["metric"] == "accuracy"
    assert check["change"]["value"] == pytest.approx(check["value"] - check["baseline_value"])


def test_beats_fails_where_the_run_is_worse(bertctl, weak_run):
    run, _ = weak_run

    process = bertctl("gate", run, "--beats", "tfidf")

    assert process.returncode == 7
    assert "of TF-IDF with a linear model, a change of -" in process.stdout


def test_metrics_alone_are_judged_by_the_difference_in_them(bertctl, weak_run):
    run, _ = weak_run

    process = bertctl("gate", run / "metrics.json", "--beats", "tfidf", "--json")

    assert process.returncode == 7
    document = json.loads(bertctl("gate", run, "--beats", "tfidf", "--json").stdout)
    assert json.loads(process.stdout)["checks"][0]["change"] == document["checks"][0]["change"]


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        ("frozn", ["unknown baseline 'frozn'", "did you mean frozen?"]),
        ("word-tags", ["has no baseline 'word-tags'", "'frozen', 'tfidf', 'majority'"]),
    ],
)
def test_a_baseline_that_is_not_there_is_refused_with_those_that_are(
    bertctl, judged, baseline, words
):
    process = bertctl("gate", judged.path, "--beats", baseline)

    assert process.returncode == 2
    assert all(word in process.stderr for word in words)


def test_a_run_without_baselines_says_how_to_get_them(bertctl, tmp_path):
    make_run(tmp_path / "run", seed=1, right=0.93)

    process = bertctl("gate", "run", "--beats", "frozen", cwd=tmp_path)

    assert process.returncode == 2
    assert "Train with --baselines." in process.stderr
    assert "bertctl probe" in process.stderr
