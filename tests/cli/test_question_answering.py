"""Question answering through the real process.

Train, score, predict in the official layout, refuse.
"""

import json
import shutil

import pytest

from tests.scoring import official_scores

pytestmark = pytest.mark.in_process

SHOWN = [
    "exact_match",
    "f1",
    "has_answer_exact",
    "has_answer_f1",
    "no_answer_exact",
    "no_answer_f1",
]
SCORER = ["exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"]


def _document():
    paragraphs = []
    for i in range(8):
        context = (
            f"the good film was fine {i}. it was dull and not bright. the bad food was poor "
            f"{9 - i}."
        )
        first = f"fine {i}"
        last = f"poor {9 - i}"
        paragraphs.append(
            {
                "context": context,
                "qas": [
                    {
                        "id": f"film-{i}",
                        "question": "what was the film?",
                        "answers": [{"text": first, "answer_start": context.index(first)}],
                    },
                    {
                        "id": f"food-{i}",
                        "question": "what was the food?",
                        "answers": [
                            {"text": text, "answer_start": context.index(text)}
                            for text in (last, f"was {last}")
                        ],
                    },
                    {
                        "id": f"none-{i}",
                        "question": "what is x?",
                        "answers": [],
                        "is_impossible": True,
                    },
                ],
            }
        )
    return {"version": "v2.0", "data": [{"title": "opinions", "paragraphs": paragraphs}]}


def _write(path, change=None):
    document = _document()
    if change:
        change(document["data"][0]["paragraphs"])
    path.write_text(json.dumps(document))
    return path


def _gold():
    questions = []
    for p in _document()["data"][0]["paragraphs"]:
        questions += p["qas"]
    return {q["id"]: [answer["text"] for answer in q["answers"]] for q in questions}


def _command(data, model, output, *more):
    windows = ["question_answering.doc_stride=6", "question_answering.max_question_length=8"]
    sets = [*windows, "evaluation.bootstrap_resamples=100", "model.dropout=0.0", *more]
    sets.append("training.preset=null")
    return [
        "finetune",
        "question-answering",
        "--train-file",
        data,
        "--validation-file",
        data,
        "--model",
        model,
        "-o",
        output,
        "--max-length",
        "30",
        "--epochs",
        "12",
        "--learning-rate",
        "5e-3",
        "--precision",
        "fp32",
        "--checkpoint-every",
        "off",
        *(word for entry in sets for word in ("--set", entry)),
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_model, nursery):
    """A run on 24 questions, a third without an answer, in windows; and the file."""
    folder = tmp_path_factory.mktemp("qa")
    data = _write(folder / "data.json")
    run = folder / "run"
    done = nursery.run(_command(data, tiny_model, run), cwd=folder)
    assert done.returncode == 0, done.stderr
    return run, data, done


def test_a_run_holds_scores_of_both_kinds_a_threshold_and_lines(trained):
    run, _, done = trained
    assert "24 examples (about 8 texts, 8 unanswerable)" in done.stderr
    metrics = json.loads((run / "metrics.json").read_text())
    validation = metrics["metrics"]["validation"]
    assert metrics["primary"] == {"split": "validation", "name": "f1"}
    thresholds = ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
    assert sorted(validation) == sorted([*SHOWN, *thresholds, "loss"])
    assert (
        validation["f1"]["value"] > metrics["baseline"]["validation"]["f1"] == pytest.approx(1 / 3)
    )
    chosen = {name: entry["split"] for name, entry in metrics["selected_on"].items()}
    assert chosen == {"epoch": "validation", "threshold": "validation"}
    assert "epoch (best of 12), threshold" in (run / "model" / "README.md").read_text(), (
        "f1 is marked as best_f1 is"
    )
    assert validation["f1"]["clusters"] == 8, "questions about one text are drawn together"
    decision = json.loads((run / "decision.json").read_text())
    assert decision["fitted_on"] == "validation"
    assert isinstance(decision["null_threshold"], float)
    lines = [
        json.loads(line)
        for line in (run / "predictions" / "validation.jsonl").read_text().splitlines()
    ]
    assert len(lines) == 24
    assert list(lines[0])[:6] == ["id", "question", "context", "gold", "prediction", "probability"]
    assert {line["id"]: line["gold"] for line in lines} == _gold()
    for line in lines:
        assert (line["null_odds"] > decision["null_threshold"]) == (line["prediction"] == "")
        assert line["prediction"] in line["context"]
        assert {"loss", "tokens", "truncated"} <= set(line)
        assert sum(entry["probability"] for entry in line["n_best"]) == pytest.approx(1)


def test_the_official_predictions_file_has_the_scores_of_the_run(trained, bertctl, tmp_path):
    run, data, _ = trained
    done = bertctl(
        "predict",
        run,
        data,
        "--format",
        "squad",
        "-o",
        tmp_path / "predictions.json",
        "--precision",
        "fp32",
    )
    assert done.returncode == 0, done.stderr
    names = ["predictions.json", "predictions.nbest.json", "predictions.null_odds.json"]
    predictions, n_best, odds = (json.loads((tmp_path / name).read_text()) for name in names)
    assert list(predictions) == list(n_best) == list(odds) == list(_gold())
    assert all(predictions[key] in [entry["text"] for entry in n_best[key]] for key in predictions)
    official = official_scores(predictions, _gold(), version=2)
    validation = json.loads((run / "metrics.json").read_text())["metrics"]["validation"]
    assert [official[name] / 100 for name in SCORER] == pytest.approx(
        [validation[name]["value"] for name in SHOWN]
    )
    best = official_scores(predictions, _gold(), null_odds=odds, version=2)
    assert best["best_f1"] / 100 == pytest.approx(validation["best_f1"]["value"])
    assert best["best_f1_thresh"] == pytest.approx(validation["best_f1_thresh"]["value"], abs=1e-4)
    refused = bertctl("predict", run, data, "--format", "squad")
    assert refused.returncode == 2
    assert "writes several files" in refused.stderr


def test_files_are_scored_and_lines_of_json_are_answered(trained, bertctl, tmp_path):
    run, data, _ = trained
    done = bertctl("evaluate", run, "--file", data, "-o", tmp_path / "scores", "--json")
    assert done.returncode == 0, done.stderr
    before = json.loads((run / "metrics.json").read_text())["metrics"]["validation"]
    assert json.loads(done.stdout)["metrics"]["file"]["f1"]["value"] == before["f1"]["value"]
    context = _document()["data"][0]["paragraphs"][0]["context"]
    lines = "".join(
        json.dumps({"id": i, "question": "what was the film?", "context": context}) + "\n"
        for i in "xy"
    )
    answered = bertctl("predict", run, "-", input=lines)
    assert answered.returncode == 0, answered.stderr
    answers = [json.loads(line) for line in answered.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == ["x", "y"]
    first = (run / "predictions" / "validation.jsonl").read_text().splitlines()[0]
    assert answers[0]["prediction"] == json.loads(first)["prediction"]
    again = bertctl(
        "evaluate",
        run,
        "--file",
        run / "predictions" / "validation.jsonl",
        "-o",
        tmp_path / "again",
        "--json",
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["file"]["f1"]["value"] == before["f1"]["value"]


def test_the_model_loads_in_plain_transformers(trained):
    import transformers

    run, _, _ = trained
    model, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
        run / "model", output_loading_info=True
    )
    assert type(model).__name__ == "BertForQuestionAnswering"
    assert not info["missing_keys"]
    assert model.config.id2label == {0: "start or none", 1: "end or none"}


def _shift(paragraphs):
    paragraphs[2]["qas"][1]["answers"][0]["answer_start"] += 3


def _no_context(paragraphs):
    paragraphs[1]["context"] = ""


def _no_answers(paragraphs):
    del paragraphs[3]["qas"][0]["answers"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_shift, "(id 'food-2'): the answer 'poor 7'"),
        (_no_context, "(id 'film-1'): the question has no context"),
        (_no_answers, "(id 'film-3'): no answers"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_the_id(
    bertctl, tmp_path, tiny_model, change, message
):
    data = _write(tmp_path / "bad.json", change)
    done = bertctl(*_command(data, tiny_model, tmp_path / "run"))
    assert done.returncode == 3
    assert f"{data}, row " in done.stderr
    assert message in done.stderr.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_misplaced_answers_can_be_counted_and_left_out(bertctl, tmp_path, tiny_model):
    data = _write(tmp_path / "bad.json", _shift)
    option = "question_answering.misplaced_answers=leave-out"
    command = _command(data, tiny_model, tmp_path / "run", option, "training.epochs=1")
    at = command.index("--epochs")
    done = bertctl(*command[:at], *command[at + 2 :])
    assert done.returncode == 0, done.stderr
    assert "1 with an answer" in done.stderr


def test_a_model_trained_on_answers_alone_never_gives_none(trained, bertctl, tmp_path, tiny_model):
    data = _write(
        tmp_path / "answerable.json", lambda paragraphs: [p["qas"].pop() for p in paragraphs]
    )
    command = _command(data, tiny_model, tmp_path / "run")
    command[command.index("--epochs") + 1] = "1"
    done = bertctl(*command)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "decision.json").exists()
    validation = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"][
        "validation"
    ]
    assert sorted(validation) == ["exact_match", "f1", "loss"]
    shutil.copy(trained[1], tmp_path / "all.json")
    answered = bertctl("predict", tmp_path / "run", tmp_path / "all.json")
    assert all(json.loads(line)["prediction"] for line in answered.stdout.splitlines())


def test_one_question_about_a_file(bertctl, trained, tiny_run, tmp_path):
    run, *_ = trained
    (tmp_path / "film.txt").write_text("the good film was fine 3. it was dull and not bright.")
    requests = ("--question", "what was the film?", "--context", "film.txt")
    answer = bertctl("predict", run, *requests, "--json")
    assert answer.returncode == 0, answer.stderr
    (line,) = json.loads(answer.stdout)
    assert line["question"] == "what was the film?"
    assert line["prediction"] in line["context"]
    assert 0 <= line["probability"] <= 1
    alone = bertctl("predict", run, "--question", "what was the film?")
    assert alone.returncode == 2
    assert "--question and --context" in alone.stderr
    other = bertctl("predict", tiny_run.path, *requests)
    assert other.returncode == 2
    assert "answers no questions" in other.stderr
