"""Answers to questions as people use them.

Ids, thresholds, places, several questions, rows that can't be read.
"""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.in_process

CONTEXTS = ["the good film was fine 1. it was dull.", "the bad food was poor 2. it was not bright."]


def question(number: int, **more):
    return {"id": f"q{number}", "question": "what was it?", "context": CONTEXTS[number % 2], **more}


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def asked(tmp_path_factory, tiny_model, nursery) -> Path:
    """A run on 24 questions, every third without an answer, in windows of 20 tokens."""
    folder = tmp_path_factory.mktemp("asked")
    rows = []
    for number in range(24):
        word = "fine 1" if number % 2 == 0 else "poor 2"
        answer = {"text": word, "answer_start": CONTEXTS[number % 2].index(word)}
        none = {"question": "what is x?", "answers": []}
        rows.append(question(number, answers=[answer]) | (none if number % 3 == 2 else {}))
    (folder / "train.jsonl").write_text(lines(rows))
    sets = [
        "question_answering.doc_stride=6",
        "evaluation.bootstrap_resamples=100",
        "model.dropout=0.0",
    ]
    done = nursery.run(
        [
            "finetune",
            "question-answering",
            "--train-file",
            "train.jsonl",
            "--validation-file",
            "train.jsonl",
            "--model",
            str(tiny_model),
            "-o",
            "run",
            "--max-length",
            "20",
            "--epochs",
            "8",
            "--learning-rate",
            "5e-3",
            "--precision",
            "fp32",
            "--checkpoint-every",
            "off",
            *(word for entry in sets for word in ("--set", entry)),
        ],
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stderr)
    return folder / "run"


@pytest.mark.parametrize("positions", [(3, 9), (5, 2090), (2060, 2095)])
def test_two_questions_with_one_id_are_refused_wherever_they_stand(
    bertctl, asked, tmp_path, positions
):
    rows = [question(number) for number in range(2100)]
    rows[positions[1]]["id"] = rows[positions[0]]["id"]
    (tmp_path / "new.jsonl").write_text(lines(rows))
    document = {
        "data": [
            {
                "title": "t",
                "paragraphs": [{"context": row["context"], "qas": [row]} for row in rows],
            }
        ]
    }
    (tmp_path / "new.json").write_text(json.dumps(document))
    for name, where in (("new.jsonl", ":{}"), ("new.json", ", row {}")):
        done = bertctl("predict", asked, name, "--format", "squad", "-o", "answers.json")
        assert done.returncode == 3, done.stderr
        first, second = (name + where.format(place + 1) for place in positions)
        assert f"{second}: the id 'q{positions[0]}' is at {first} already" in done.stderr
        assert "numbered" not in done.stderr
        assert not (tmp_path / "answers.json").exists()


def test_distinct_ids_all_have_their_answer_and_other_layouts_keep_repeated_ones(
    bertctl, asked, tmp_path
):
    rows = [question(number) for number in range(2099)]
    (tmp_path / "new.jsonl").write_text(lines(rows))
    done = bertctl(
        "predict",
        asked,
        "new.jsonl",
        "--format",
        "squad",
        "-o",
        "answers.json",
        "--precision",
        "fp32",
    )
    assert done.returncode == 0, done.stderr
    assert list(json.loads((tmp_path / "answers.json").read_text())) == [row["id"] for row in rows]
    few = [
        question(0),
        question(0),
        {name: value for name, value in question(2).items() if name != "id"},
    ]
    answered = bertctl("predict", asked, "-", input=lines(few))
    # A number in place of the missing id could be the id of another row.
    assert [json.loads(line)["id"] for line in answered.stdout.splitlines()] == ["q0", "q0", None]
    missing = bertctl(
        "predict",
        asked,
        "-",
        "--format",
        "squad",
        "-o",
        "a.json",
        "--input-format",
        "jsonl",
        input=lines([few[0], few[2]]),
    )
    assert missing.returncode == 3
    assert "stdin:2: the id is blank" in missing.stderr


def test_answers_have_their_places_and_settings_of_their_own(bertctl, asked, tmp_path):
    (tmp_path / "text.txt").write_text(CONTEXTS[0])
    several = [
        "--question",
        "what was it?",
        "--question",
        "what is x?",
        "--context",
        "text.txt",
        "--precision",
        "fp32",
    ]
    done = bertctl(
        "predict", asked, *several, "--n-best", "3", "--null-threshold", "1000", "--json"
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert [answer["question"] for answer in answers] == ["what was it?", "what is x?"]
    for answer in answers:
        assert answer["prediction"] == CONTEXTS[0][answer["start"] : answer["end"]] != ""
        assert len(answer["n_best"]) == 3
        for entry in answer["n_best"]:
            assert entry["text"] == (
                "" if entry["start"] is None else CONTEXTS[0][entry["start"] : entry["end"]]
            )
    never = json.loads(
        bertctl("predict", asked, *several, "--null-threshold", "-1000", "--json").stdout
    )
    assert [(answer["prediction"], answer["start"], answer["end"]) for answer in never] == [
        ("", None, None)
    ] * 2
    short = json.loads(
        bertctl("predict", asked, *several, "--max-answer-length", "1", "--json").stdout
    )
    assert all(" " not in entry["text"] for answer in short for entry in answer["n_best"])


def test_windows_are_said_in_the_log_and_in_the_card(asked):
    text = asked.with_name("said").read_text()
    assert (
        "validation: 24 of 24 examples are longer than 20 tokens: they are read in windows" in text
    )
    card = (asked / "model/README.md").read_text()
    assert (
        "at most 20 tokens; longer texts were read in windows. The encoder takes 41 tokens." in card
    )
    assert "| read in windows, validation | 24 |" in card


def test_answers_without_an_offset_are_whole_words_first_and_blank_ones_are_asked_about(
    bertctl, asked, tmp_path
):
    context = "theatre: the art of the stage"
    rows = [
        {"id": "a", "question": "?", "context": context, "answers": ["the"]},
        {"id": "b", "question": "?", "context": context, "answers": ["art"]},
    ]
    (tmp_path / "new.jsonl").write_text(lines(rows))
    done = bertctl("evaluate", asked, "--file", "new.jsonl", "-o", "scores")
    assert done.returncode == 0, done.stderr
    assert (
        "1 answer without an offset occur several times in their contexts, such as 'the'"
        in done.stderr
    )
    (tmp_path / "blank.jsonl").write_text(lines([rows[0], rows[1] | {"answers": [""]}]))
    blank = bertctl("evaluate", asked, "--file", "blank.jsonl", "-o", "blank")
    assert blank.returncode == 3
    assert "blank.jsonl:2 (id 'b'): an answer is blank" in blank.stderr
    assert "Has the question no answer?" in blank.stderr


def test_rows_that_cannot_be_read_are_skipped_counted_and_written_beside(
    bertctl, asked, tiny_run, tmp_path
):
    rows = [question(0), question(1) | {"context": " "}, question(2)]
    broken = lines(rows) + "{no json\n" + lines([question(4)])
    (tmp_path / "new.jsonl").write_text(broken)
    stopped = bertctl("predict", asked, "new.jsonl")
    assert stopped.returncode == 3
    done = bertctl("predict", asked, "new.jsonl", "-o", "a.jsonl", "--on-error", "skip", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [
        "q0",
        "q2",
        "q4",
    ]
    assert json.loads(done.stdout)["skipped"] == 2
    assert "2 rows left out" in done.stderr
    beside = [
        json.loads(line) for line in (tmp_path / "a.jsonl.skipped.jsonl").read_text().splitlines()
    ]
    assert sorted(error["line"] for error in beside) == [2, 4]
    del rows[0]["id"], rows[2]["id"]  # records that are none count as rows with a fault do
    (tmp_path / "new.jsonl").write_text(lines(rows[:1]) + "{no json\n" + lines(rows[2:]))
    done = bertctl("predict", asked, "new.jsonl", "--on-error", "skip")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["0", "2"]
    texts = (
        '{"text": "fine", "label": "pos"}\n{"text": "oh", "label"\n{"text": "dull", "label": '
        '"neg"}\n'
    )
    (tmp_path / "texts.jsonl").write_text(texts)
    for verb in (
        ["evaluate", tiny_run.path, "--file", "texts.jsonl", "-o", "s"],
        ["tokenize", "--file", "texts.jsonl", "--model", tiny_run.path, "-o", "t.jsonl"],
        [
            "extract-features",
            "texts.jsonl",
            "--model",
            tiny_run.path,
            "-o",
            "x.npy",
            "--max-length",
            "32",
        ],
    ):
        assert bertctl(*verb).returncode == 3
        skipped = bertctl(
            *verb, "--on-error", "skip", *(["--overwrite"] if verb[0] == "extract-features" else [])
        )
        assert skipped.returncode == 0, skipped.stderr
        assert "1 row left out" in skipped.stderr
    for name in ("s/predictions.skipped.jsonl", "t.jsonl.skipped.jsonl", "x.npy.skipped.jsonl"):
        assert json.loads((tmp_path / name).read_text())["line"] == 2
    (tmp_path / "words.conll").write_text("the O\nfilm O\n\nfine\n\nit O\n")
    words = [
        "extract-features",
        "words.conll",
        "--model",
        tiny_run.path,
        "-o",
        "w.jsonl",
        "--words",
        "first",
        "--max-length",
        "32",
    ]
    assert bertctl(*words).returncode == 3
    assert bertctl(*words, "--on-error", "skip").returncode == 0
