"""`bertctl finetune FILE`.

The task is guessed and said, or the file is refused with what could be meant.
"""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Run

pytestmark = pytest.mark.in_process

GOOD = [
    "the film was good",
    "a very good film it was",
    "good food and a bright day",
    "it was not bad at all",
]
BAD = [
    "the film was bad",
    "a very bad film it was",
    "dull food on a poor day",
    "it was not good at all",
]
TEXTS = [text for pair in zip(GOOD, BAD, strict=True) for text in pair]
OTHER = [f"and then {text}" for text in reversed(TEXTS)]
ROWS = range(len(TEXTS))


def table(separator: str, header: str, *columns: list) -> str:
    out = io.StringIO()
    rows = list(zip(*columns, strict=True))
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows(
        [header.split(separator)] * bool(header) + rows
    )
    return out.getvalue()


def lines(**columns: list) -> str:
    return "".join(json.dumps(row) + "\n" for row in records(**columns))


def records(**columns: list) -> list[dict]:
    results = []
    for values in zip(*columns.values(), strict=True):
        record = dict(zip(columns, values, strict=True))
        results.append(record)
    return results


def cycle(*values: object) -> list:
    return [values[i % len(values)] for i in ROWS]


WORDS = [text.split() for text in TEXTS]
TAGS = [["B-X"] + ["O"] * (len(words) - 1) for words in WORDS]
PAIRS = [list(zip(words, tags, strict=True)) for words, tags in zip(WORDS, TAGS, strict=True)]
CONLL = "\n".join("".join(f"{word} {tag}\n" for word, tag in pairs) for pairs in PAIRS)
STARTS = [text.rindex(text.split()[-1]) for text in TEXTS]
ANSWERS = [
    {"text": [text.split()[-1]], "answer_start": [s]} for text, s in zip(TEXTS, STARTS, strict=True)
]
SQUAD = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": text,
                    "qas": [
                        {
                            "id": str(i),
                            "question": f"what is {i}?",
                            "answers": [{"text": text.split()[-1], "answer_start": STARTS[i]}],
                        }
                    ],
                }
                for i, text in enumerate(TEXTS)
            ],
        }
    ]
}
HEX = [f"{i:04x}" for i in ROWS]
ENDS = {f"ending{i}": [f"{word} {i}" for word in cycle("good", "bad")] for i in range(4)}
CLASSES = "text-classification"
SCORES = "text-regression"
TAGGED = "token-classification"
ASKED = "question-answering"
CHOSEN = "multiple-choice"

RIGHT = {
    "reviews.csv": (CLASSES, "review stars", table(",", "review,stars", TEXTS, cycle(1, 2, 3, 5))),
    "text.tsv": (CLASSES, "text label", table("\t", "text\tlabel", TEXTS, cycle("pos", "neg"))),
    "intents.csv": (
        CLASSES,
        "sentence intent",
        table(",", "sentence,intent", TEXTS, cycle("a_b", "c_d")),
    ),
    "saetze.csv": (
        CLASSES,
        "Satz Klasse",
        table(";", "Satz;Klasse", TEXTS, cycle("gut", "schlecht")),
    ),
    "bare.csv": (CLASSES, "column1 column2 good", table(",", "", TEXTS, cycle("pos", "neg"))),
    "numbered.tsv": (CLASSES, "column2 column1", table("\t", "", cycle(0, 1), TEXTS)),
    "scored.csv": (SCORES, "column1 column2 0.5", table(",", "", TEXTS, [0.5 + i for i in ROWS])),
    "unusual.csv": (
        CLASSES,
        "Aussage Art",
        table(",", "nr,Aussage,Art", list(ROWS), TEXTS, cycle("x", "y")),
    ),
    "several.jsonl": (
        CLASSES,
        "text labels",
        lines(text=TEXTS, labels=cycle(["a"], ["a", "b"], ["b"])),
    ),
    "toxic.csv": (
        CLASSES,
        "comment_text toxic severe_toxic insult",
        table(
            ",",
            "id,comment_text,toxic,severe_toxic,insult",
            HEX,
            TEXTS,
            cycle(0, 1),
            cycle(1, 0, 0),
            cycle(0),
        ),
    ),
    "listed.csv": (
        CLASSES,
        "text emotions",
        table(",", "text,emotions", TEXTS, cycle(["joy", "it's"], ["fear"], [])),
    ),
    "array.json": (
        CLASSES,
        "text label",
        json.dumps(records(text=TEXTS, label=cycle(0, 1)), indent=1),
    ),
    "nli.jsonl": (
        CLASSES,
        "premise hypothesis label",
        lines(premise=TEXTS, hypothesis=OTHER, label=cycle("e", "n")),
    ),
    "faq.csv": (
        CLASSES,
        "frage antwort label",
        table(",", "frage,antwort,label", TEXTS, OTHER, cycle(0, 1)),
    ),
    "pairs.tsv": (
        CLASSES,
        "column1 column2 column3",
        table("\t", "", TEXTS, OTHER, cycle("same", "not")),
    ),
    "sts.csv": (
        SCORES,
        "sentence1 sentence2 score",
        table(",", "sentence1,sentence2,score", TEXTS, OTHER, cycle(0.5, 3.2)),
    ),
    "valence.tsv": (
        SCORES,
        "tweet Bewertung",
        table("\t", "tweet\tBewertung", TEXTS, cycle(0.25, 0.5, 0.8)),
    ),
    "tagged.conll": (TAGGED, "", CONLL),
    "eng.train": (TAGGED, "", CONLL),
    "ner.jsonl": (TAGGED, "tokens ner_tags", lines(id=list(ROWS), tokens=WORDS, ner_tags=TAGS)),
    "ner.csv": (TAGGED, "tokens ner_tags", table(";", "tokens;ner_tags", WORDS, TAGS)),
    "spans.json": (
        TAGGED,
        "text spans",
        json.dumps(
            records(
                text=TEXTS, spans=[[{"start": 0, "end": len(w[0]), "label": "X"}] for w in WORDS]
            )
        ),
    ),
    "squad.json": (ASKED, "question context answers", json.dumps(SQUAD)),
    "questions.jsonl": (
        ASKED,
        "question context answers",
        lines(question=[f"what is {i}?" for i in ROWS], context=TEXTS, answers=ANSWERS),
    ),
    "swag.csv": (
        CHOSEN,
        "ctx ending0 ending3 label",
        table(
            ",",
            "ctx,ending0,ending1,ending2,ending3,label",
            TEXTS,
            *ENDS.values(),
            cycle(0, 1, 2, 3),
        ),
    ),
    "choices.jsonl": (
        CHOSEN,
        "question choices answer",
        lines(question=TEXTS, choices=[["good", "bad"]] * len(TEXTS), answer=cycle("A", "B")),
    ),
}

UNCLEAR = {
    "only.csv": (table(",", "text", TEXTS), ["label", "--label-column"]),
    "labels.csv": (
        table(",", "text,sentiment,topic", TEXTS, cycle("a", "b"), cycle("c", "d")),
        ["--label-column sentiment or --label-column topic"],
    ),
    "texts.csv": (
        table(",", "title,body,label", OTHER, TEXTS, cycle("a", "b")),
        ["--text-column body or --text-column title"],
    ),
    "unusual.csv": (
        table(",", "eins,zwei,label", OTHER, TEXTS, cycle("a", "b")),
        ["--text-column eins or --text-column zwei"],
    ),
    "points.csv": (
        table(",", "text,score", TEXTS * 4, list(range(32))),
        ["classes or scores", "text-regression"],
    ),
    "floats.csv": (
        table(",", "text,score", TEXTS, cycle(1.0, 2.0)),
        ["classes or scores", "text-regression"],
    ),
    "commas.csv": (
        table(";", "text;score", TEXTS * 4, [f"{i % 7},{i}" for i in range(32)]),
        ["decimal comma", "as in 1.90"],
    ),
    "bare.csv": (
        table(",", "", cycle("a", "b"), cycle(1, 2), cycle("c", "d")),
        ["no header", "column1 ('a')"],
    ),
    "words.csv": (
        table(",", "word,tag", *zip(*[pair for pairs in PAIRS for pair in pairs], strict=True)),
        ["--text-column"],
    ),
    "faq.csv": (table(",", "frage,antwort", TEXTS, OTHER), ["label", "--label-column"]),
    "choices.jsonl": (lines(question=TEXTS, choices=[["good", "bad"]] * len(TEXTS)), ["label"]),
    "nothing.json": (json.dumps({"a": {"b": 1}}), ["text"]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_file_is_enough(name: str, bertctl: Run, tiny_model: Path, tmp_path: Path) -> None:
    task, columns, content = RIGHT[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    planned = bertctl(
        "finetune", name, "--model", tiny_model, "--max-length", "32", "--dry-run", "--json"
    )
    assert planned.returncode == 0, planned.stderr
    [message] = [
        line for line in planned.stderr.splitlines() if line.startswith(f"{name} looks like {task}")
    ]
    assert all(column in message for column in columns.split())
    assert f"bertctl finetune TASK --train-file {name}" in message
    recipe = json.loads(planned.stdout)["recipe"]
    assert recipe["task"] == task
    if name == "toxic.csv":
        assert recipe["data"]["label_columns"] == ["toxic", "severe_toxic", "insult"]
        assert recipe["data"]["label_column"] is None
    assert recipe["name"] == name.partition(".")[0]


@pytest.mark.parametrize("name", UNCLEAR)
def test_an_unclear_file_is_refused_with_the_choices(
    name: str, bertctl: Run, tmp_path: Path
) -> None:
    content, message = UNCLEAR[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    refused = bertctl("finetune", name)
    assert refused.returncode == 2, refused.stderr
    text = " ".join(refused.stderr.split())
    assert all(part in text for part in message), text
    assert f"bertctl finetune TASK --train-file {name}" in text
    assert CHOSEN in text


def test_a_wrong_label_among_choices_is_told_of_and_makes_no_other_task(
    bertctl: Run, tmp_path: Path
) -> None:
    labels = [7, *(i % 2 for i in range(1, len(TEXTS)))]
    choices = lines(question=TEXTS, choices=[["good", "bad"]] * len(TEXTS), label=labels)
    (tmp_path / "choices.jsonl").write_text(choices, encoding="utf-8")
    refused = bertctl("finetune", "choices.jsonl")
    assert refused.returncode == 3, refused.stderr
    assert "choices.jsonl:1: the label 7 points outside its 2 choices" in refused.stderr


def test_every_verb_that_takes_a_recipe_takes_a_file(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    rows = {"text": TEXTS * 3, "similarity": cycle(0.5, 1.5) * 3}
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    (tmp_path / "dev.tsv").write_text(table("\t", "text\tsimilarity", OTHER, cycle(0.5, 1.5)))
    common = ("--model", tiny_model, "--max-length", "16")
    for words in (
        ("finetune", "train.parquet", "--validation-file", "dev.tsv", "--dry-run"),
        ("sweep", "train.parquet", "--validation-file", "dev.tsv", "--seeds", "2", "--dry-run"),
        ("estimate", "train.parquet", "--validation-file", "dev.tsv", "--steps", "1"),
        ("probe", "train.parquet", "--validation-file", "dev.tsv", "--layers", "last"),
        ("data check", "train.parquet", "dev.tsv"),
    ):
        done = bertctl(*words[0].split(), *words[1:], *common)
        assert done.returncode == 0, done.stderr
        assert f"looks like {SCORES}: text from 'text', label from 'similarity'" in done.stderr
    gone = bertctl("finetune", "trian.parquet")
    assert gone.returncode == 4
    assert "did you mean train.parquet?" in gone.stderr


def test_a_column_for_each_label_makes_several_labels(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "toxic.csv").write_text(RIGHT["toxic.csv"][2])
    done = bertctl(
        "finetune",
        "toxic.csv",
        "--model",
        tiny_model,
        "--epochs",
        "1",
        "--max-length",
        "16",
        "-o",
        "run",
    )
    assert done.returncode == 0, done.stderr
    scored = bertctl("evaluate", "run", "--file", "toxic.csv", "--json")
    assert scored.returncode == 0, scored.stderr
    lines = (tmp_path / "run-on-toxic" / "predictions" / "file.jsonl").read_text().splitlines()
    assert [json.loads(line)["gold"] for line in lines[:3]] == [["severe_toxic"], ["toxic"], []]
    [answer] = [
        json.loads(line) for line in bertctl("predict", "run", "a dull film").stdout.splitlines()
    ]
    assert list(answer["probabilities"]) == ["severe_toxic", "toxic"]
    (tmp_path / "words.csv").write_text(
        RIGHT["toxic.csv"][2].replace(",0", ",false").replace(",1", ",true")
    )
    guessed = bertctl("finetune", "words.csv", "--model", tiny_model, "--dry-run")
    assert "text from 'comment_text', label from 'toxic, severe_toxic, insult'" in guessed.stderr
    assert bertctl("evaluate", "run", "--file", "words.csv", "-o", "words").returncode == 0
    assert (tmp_path / "words/metrics.json").read_bytes() == (
        tmp_path / "run-on-toxic/metrics.json"
    ).read_bytes()
    (tmp_path / "test.csv").write_text(RIGHT["toxic.csv"][2].replace(",1,", ",-1,"))
    refused = bertctl(
        "finetune", "toxic.csv", "--validation-file", "test.csv", "--model", tiny_model, "--dry-run"
    )
    assert refused.returncode == 3
    assert "holds '-1' where 0 or 1 is needed" in refused.stderr


@pytest.mark.parametrize(
    ("task", "form"),
    [(CLASSES, '"text": "..."'), (TAGGED, '"tags": ['), (ASKED, "SQuAD"), (CHOSEN, '"choices": [')],
)
def test_broken_json_is_answered_with_the_form_of_the_task(
    task: str, form: str, bertctl: Run, tmp_path: Path
) -> None:
    for name, content in {
        "broken.json": '[{"text": ',
        "blank.json": " \n",
        "none.json": "[]",
    }.items():
        (tmp_path / name).write_text(content)
        refused = bertctl("finetune", task, "--train-file", name)
        assert refused.returncode == 3, refused.stderr
        assert form in refused.stderr
        assert task == ASKED or "SQuAD" not in refused.stderr


@pytest.mark.parametrize("wrong", [1, len(TEXTS)])
def test_spans_of_which_some_are_wrong_are_no_labels_of_texts(
    bertctl: Run, tmp_path: Path, wrong: int
) -> None:
    spans = [[[0, len(text) + 5 * (i < wrong), "X"]] for i, text in enumerate(TEXTS)]
    (tmp_path / "doccano.jsonl").write_text(lines(text=TEXTS, label=spans), encoding="utf-8")
    refused = bertctl("finetune", "doccano.jsonl", "--dry-run")
    assert refused.returncode == 3, refused.stderr
    assert "doccano.jsonl:1: the span " in refused.stderr


@pytest.mark.parametrize("name", ["ner.jsonl", "squad.jsonl", "choices.jsonl"])
def test_data_check_knows_the_task_of_rows_of_which_one_is_wrong(
    bertctl: Run, tmp_path: Path, name: str
) -> None:
    ends = [{"text": "zz" if not i else text.split()[-1]} for i, text in enumerate(TEXTS)]
    rows = {
        "ner.jsonl": {
            "words": [text.split() for text in TEXTS],
            "tags": [["O"], *(["O"] * len(text.split()) for text in TEXTS[1:])],
        },
        "squad.jsonl": {
            "question": [None, *TEXTS[1:]],
            "context": TEXTS,
            "answers": [[end] for end in ends],
        },
        "choices.jsonl": {
            "question": TEXTS,
            "choices": [["good", "bad"]] * len(TEXTS),
            "answer": [9, *cycle(0, 1)[1:]],
        },
    }
    (tmp_path / name).write_text(lines(**rows[name]), encoding="utf-8")
    checked = bertctl("data", "check", name, "--model", "none/such", "--offline", "--json")
    assert checked.returncode == 3, checked.stderr
    report = json.loads(checked.stdout)
    assert (
        report["task"] == {"ner.jsonl": TAGGED, "squad.jsonl": ASKED, "choices.jsonl": CHOSEN}[name]
    )
    assert report["findings"][0]["examples"][0]["where"].endswith(f"{name}:1")
