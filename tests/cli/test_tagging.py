"""Token classification through the real process.

Training, scoring and answering in the tags' own scheme.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nursery import Nursery

pytestmark = pytest.mark.in_process

SENTENCES = [
    ("bad food", "the O|bad B-TASTE|food E-TASTE|was O|dull O"),
    ("good", "it O|was O|very O|good S-MOOD"),
    ("fine film", "a O|fine B-TASTE|film E-TASTE|! O"),
    ("dull", "dull S-MOOD|was O|the O|food O"),
    ("none", "it O|was O|not O|the O|film O"),
    ("bright", "the O|film O|was O|bright S-MOOD"),
]
SETTINGS = [
    "model.max_length=16",
    "model.dropout=0.0",
    "evaluation.bootstrap_resamples=100",
    "runtime.precision=fp32",
    "training.evaluate_every=120",
]


def columns(times: int = 1) -> str:
    sentences = [tags.replace("|", "\n") for _, tags in SENTENCES]
    return "-DOCSTART- O\n\n" + "\n\n".join(sentences * times) + "\n"


@dataclass(frozen=True)
class TagRun:
    """A run that the real process made, what it said, and its training file."""

    path: Path
    data: Path
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def tag_run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery) -> TagRun:
    """Six sentences in BIOES, learned by heart by the tiny model."""
    folder = tmp_path_factory.mktemp("tagging")
    data = folder / "train.conll"
    run = folder / "run"
    data.write_text(columns(4))
    arguments = [
        "--train-file",
        data,
        "--validation-file",
        data,
        "--model",
        tiny_model,
        "-o",
        run,
        "--epochs",
        "40",
        "--checkpoint-every",
        "off",
        "--learning-rate",
        "5e-3",
        *(word for setting in SETTINGS for word in ("--set", setting)),
    ]
    done = nursery.run(["finetune", "token-classification", *arguments], cwd=folder)
    assert done.returncode == 0, done.stderr
    return TagRun(run, data, done)


def test_training_says_columns_and_scheme_and_learns(tag_run):
    assert "column 0 (word), tags from column 1 (tag)" in tag_run.process.stderr
    assert f"{tag_run.data}: tags in BIOES" in tag_run.process.stderr
    metrics = json.loads((tag_run.path / "metrics.json").read_text())
    scored = metrics["metrics"]["validation"]
    assert metrics["primary"] == {"split": "validation", "name": "entity_f1"}
    assert (
        scored["entity_f1"]["value"]
        == scored["entity_f1:MOOD"]["value"]
        == scored["accuracy"]["value"]
        == 1.0
    )
    assert metrics["baseline"]["validation"]["entity_f1"] == 0.0
    lines = [
        json.loads(line)
        for line in (tag_run.path / "predictions/validation.jsonl").read_text().splitlines()
    ]
    assert lines[0]["words"] == ["the", "bad", "food", "was", "dull"]
    assert lines[0]["gold"] == lines[0]["prediction"] == ["O", "B-TASTE", "E-TASTE", "O", "O"]
    assert [(e["type"], e["start"], e["end"], e["text"]) for e in lines[0]["entities"]] == [
        ("TASTE", 1, 3, "bad food")
    ]


def test_plain_transformers_finds_the_entities(tag_run):
    from transformers import pipeline

    find = pipeline(
        "ner", model=str(tag_run.path / "model"), aggregation_strategy="simple", device="cpu"
    )
    assert [(e["entity_group"], e["word"]) for e in find("the bad food was dull")] == [
        ("TASTE", "bad food")
    ]


def test_running_text_gets_characters(bertctl, tag_run):
    done = bertctl(
        "predict", tag_run.path, "-", input="the bad  food was dull\n\nit was very good!\n"
    )
    assert done.returncode == 0, done.stderr
    first, blank, last = map(json.loads, done.stdout.splitlines())
    (entity,) = first["entities"]
    assert entity["start_char"] == 4
    assert entity["end_char"] == 13
    assert entity["text"] == "bad  food"
    assert blank["words"] == []
    assert blank["prediction"] == []
    assert blank["entities"] == []
    assert last["words"] == ["it", "was", "very", "good", "!"]
    assert last["prediction"][-2] == "S-MOOD"


def test_columns_in_columns_out_in_the_scheme_of_training(bertctl, tag_run, tmp_path):
    (tmp_path / "words.conll").write_text(columns())
    done = bertctl("predict", tag_run.path, "words.conll", "--format", "conll")
    assert done.returncode == 0, done.stderr
    assert done.stdout == columns().replace(" ", "\t") + "\n"
    (tmp_path / "answers.conll").write_text(done.stdout)
    scored = bertctl("evaluate", tag_run.path, "--file", "answers.conll", "-o", "again", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["metrics"]["file"]["entity_f1"]["value"] == 1.0


def test_spans_as_spacy_has_them_read_back(bertctl, tag_run, tmp_path):
    done = bertctl(
        "predict",
        tag_run.path,
        "-",
        "--format",
        "spacy",
        "-o",
        "spans.jsonl",
        input="dull was the food\n",
    )
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, (tmp_path / "spans.jsonl").read_text().splitlines())
    assert line["spans"] == [
        {"start": 0, "end": 4, "token_start": 0, "token_end": 0, "label": "MOOD"}
    ]
    scored = bertctl("evaluate", tag_run.path, "--file", "spans.jsonl", "-o", "again", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["metrics"]["file"]["accuracy"]["value"] == 1.0


def test_sentences_longer_than_the_model_are_answered_whole(bertctl, tag_run):
    text = " ".join(["the bad food was dull"] * 12)
    done = bertctl("predict", tag_run.path, "-", input=text + "\n")
    line = json.loads(done.stdout)
    assert len(line["prediction"]) == 60
    assert len(line["entities"]) >= 9
    assert line["truncated"] is False
    assert line["tokens"] > 60


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message", "code"),
    [
        ("a.conll", "the O\nbad\n", [], "a.conll:2: 1 column ", 3),
        ("a.conll", "the\nbad\n", [], "words but no tags", 3),
        ("a.conll", "the O\nbad B-X\n\nfood M-X\n", [], "a.conll:4, word 1: the tag 'M-X'", 3),
        ("a.conll", "the O\n", ["--label-column", "ner"], "column 'ner'", 2),
        ("a.jsonl", '{"text": "bad", "spans": [[0, 9, "X"]]}\n', [], "a.jsonl:1: the span", 3),
        ("a.jsonl", '{"words": ["bad"], "mine": ["O"]}\n', [], "known as the tags", 2),
    ],
)
def test_files_that_cannot_be_learned_from(
    bertctl, tmp_path, name, content, arguments, message, code
):
    (tmp_path / name).write_text(content)
    done = bertctl(
        "finetune", "token-classification", "--train-file", name, *arguments, "-o", "run"
    )
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_unknown_type_is_refused_with_both_lists(bertctl, tag_run, tmp_path):
    (tmp_path / "other.conll").write_text("the O\nbad B-TAST\n")
    done = bertctl("evaluate", tag_run.path, "--file", "other.conll", "-o", "again")
    assert done.returncode == 3
    assert "other.conll:1, word 2 ('bad'): " in done.stderr
    assert "'TAST'" in done.stderr
    assert "'MOOD', 'TASTE'" in done.stderr


TEXTS = "the bad food was dull\nit was very good\n"
ANNOTATED = {
    "label-studio": "a.json",
    "bioc": "a.json",
    "pubtator": "a.pubtator",
    "brat": "a.ann",
    "docbin": "a.spacy",
}


@pytest.mark.parametrize("layout", ANNOTATED)
def test_what_annotation_tools_take_reads_back_with_the_same_entities(
    bertctl, tag_run, tmp_path, layout
):
    if layout == "docbin":
        pytest.importorskip("spacy")
    name = ANNOTATED[layout]
    done = bertctl("predict", tag_run.path, "-", "--format", layout, "-o", name, input=TEXTS)
    assert done.returncode == 0, done.stderr
    of_model = ["--annotator", "predictions"] if layout == "label-studio" else []
    again = bertctl("evaluate", tag_run.path, "--file", name, "-o", "again", "--json", *of_model)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["file"]["entity_f1"]["value"] == 1.0
    lines = [
        json.loads(line)
        for line in (tmp_path / "again/predictions/file.jsonl").read_text().splitlines()
    ]
    actual = [(entity["type"], entity["text"]) for line in lines for entity in line["entities"]]
    assert actual == [("TASTE", "bad food"), ("MOOD", "good")]
    if layout == "brat":
        assert (
            tmp_path / "a.ann"
        ).read_text() == "T1\tTASTE 4 12\tbad food\nT2\tMOOD 34 38\tgood\n"
        assert (tmp_path / "a.txt").read_text() == TEXTS
    elif layout == "label-studio":
        first = json.loads((tmp_path / "a.json").read_text())[0]["predictions"][0]["result"][0]
        assert first["value"] == {"start": 4, "end": 12, "text": "bad food", "labels": ["TASTE"]}
        assert 0 < first["score"] <= 1
        refused = bertctl("evaluate", tag_run.path, "--file", name, "-o", "gold")
        assert refused.returncode == 3
        assert (
            "2 of 2 rows (100.0 %) have no label and are left out (predictions alone: 2)"
            in refused.stderr
        )


GOLD = {
    "words.jsonl": '{"words": ["the", "bad", "food"], "tags": ["O", "B-MOOD", "O"]}\n',
    "spans.jsonl": '{"text": "the bad food", "spans": [{"start": 4, "end": 7, "label": "MOOD"}]}\n',
    "a.pubtator": "1|t|the bad food\n1|a|\n1\t4\t7\tbad\tMOOD\n",
    "a.ann": "T1\tMOOD 4 7\tbad\n",
    "tasks.json": '[{"data": {"text": "the bad food"}, "annotations": [{"result": [{"type": '
    '"labels", "value": '
    '{"start": 4, "end": 7, "text": "bad", "labels": ["MOOD"]}}]}], "predictions": []}]',
    "bioc.json": '{"documents": [{"id": "1", "passages": [{"offset": 0, "text": "the bad food", '
    '"annotations": '
    '[{"infons": {"type": "MOOD"}, "text": "bad", "locations": [{"offset": 4, "length": 3}]}]}]}]}',
    "ud.conllu": "".join(
        f"{number}\t{word}\t_\t_\t_\t_\t_\t_\t_\t{misc}\n"
        for number, (word, misc) in enumerate(
            [("the", "_"), ("bad", "NER=B-MOOD"), ("food", "_")], start=1
        )
    ),
    "words.csv": "words,tags\n\"['the', 'bad', 'food']\",\"['O', 'B-MOOD', 'O']\"\n",
}


USUAL = ("words.jsonl", "tasks.json", "ud.conllu")
"""Of these files some are read in each test run, the others in slow ones."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.slow) for name in GOLD]
)
def test_gold_tags_stand_beside_the_answers_whatever_the_file_is(bertctl, tag_run, tmp_path, name):
    (tmp_path / name).write_text(GOLD[name])
    (tmp_path / "a.txt").write_text("the bad food")
    done = bertctl("predict", tag_run.path, name, "--format", "conlleval", "--scheme", "iob2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the\tO\tO\nbad\tB-MOOD\tB-TASTE\nfood\tO\tI-TASTE\n\n"
    done = bertctl("predict", tag_run.path, name, "--format", "label-studio")
    assert done.returncode == 0, done.stderr
    [task] = json.loads(done.stdout)
    values = [task[key][0]["result"][0]["value"] for key in ("annotations", "predictions")]
    assert [(value["text"], value["labels"]) for value in values] == [
        ("bad", ["MOOD"]),
        ("bad food", ["TASTE"]),
    ]


def test_conlleval_has_gold_tags_for_all_rows_or_for_none(bertctl, tag_run, tmp_path):
    words = '{"words": ["the", "bad", "food"]'
    (tmp_path / "a.jsonl").write_text(words + "}\n" + words + ', "tags": ["O", "B-MOOD", "O"]}\n')
    done = bertctl("predict", tag_run.path, "a.jsonl", "--format", "conlleval", "--scheme", "iob2")
    assert done.stdout == 2 * "the\tO\nbad\tB-TASTE\nfood\tI-TASTE\n\n"
    assert (
        "a.jsonl: 1 of 2 rows (50.0 %) have no tags, so those of the others are not used"
        in done.stderr
    )


def test_the_files_other_columns_and_its_gold_stay(bertctl, tag_run, tmp_path):
    (tmp_path / "four.conll").write_text(
        "-DOCSTART- -X- -X- O\n\nthe DT I-NP O\nbad JJ I-NP S-TASTE\n\ndull JJ O O\n"
    )
    done = bertctl("predict", tag_run.path, "four.conll", "--format", "conlleval")
    assert done.returncode == 0, done.stderr
    words = done.stdout.split("\n\n")[0].splitlines()
    assert [line.rsplit(" ", 1)[0] for line in words] == ["the DT I-NP O", "bad JJ I-NP S-TASTE"]
    assert words[0].endswith(" O O")
    split = bertctl("predict", tag_run.path, "--split", "validation", "--format", "conlleval")
    assert split.stdout.splitlines()[1] == "bad\tB-TASTE\tB-TASTE"
    ud = (
        "# sent_id = 1\n1-2\tthe bad\t_\t_\t_\t_\t_\t_\t_\t_\n1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n"
        + ("2\tbad\t_\tADJ\t_\t_\t3\tamod\t_\tX=1\n3\tfood\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    )
    (tmp_path / "ud.conllu").write_text(ud)
    done = bertctl("predict", tag_run.path, "ud.conllu", "--format", "conllu", "--scheme", "iob2")
    assert done.stdout == ud.replace("X=1", "X=1|NER=B-TASTE").replace(
        "root\t_\t_", "root\t_\tNER=I-TASTE"
    )
    old = ud.replace("2\tdet\t_\t_", "2\tdet\t_\tNER=B-OLD|Y=2")  # what the model no longer says
    (tmp_path / "ud.conllu").write_text(old)
    done = bertctl("predict", tag_run.path, "ud.conllu", "--format", "conllu", "--scheme", "iob2")
    assert done.stdout.splitlines()[2].endswith("2\tdet\t_\tY=2")
    (tmp_path / "odd.jsonl").write_text(json.dumps({"words": ["bad\tvery", "\n", "food"]}) + "\n")
    odd = bertctl("predict", tag_run.path, "odd.jsonl", "--format", "conllu")
    assert [line.count("\t") for line in odd.stdout.rstrip("\n").split("\n")] == [9, 9, 9]
    assert [line.split("\t")[1] for line in odd.stdout.splitlines()[:3]] == [
        "bad very",
        "_",
        "food",
    ]
    (tmp_path / "noted.conll").write_text("# id 1\nthe O\nbad S-TASTE\n\n")
    completed = bertctl("predict", tag_run.path, "noted.conll", "--format", "conlleval")
    assert [len(line.split()) for line in completed.stdout.splitlines()] == [3, 3, 0]
    made = bertctl("predict", tag_run.path, "-", "--format", "conllu", input="dull was\n")
    assert made.stdout.splitlines()[0] == "1\tdull\t_\t_\t_\t_\t_\t_\t_\tNER=S-MOOD"


def test_a_threshold_of_entities_and_spans_over_each_other(bertctl, tag_run, tmp_path):
    sure = bertctl("predict", tag_run.path, "-", "--entity-threshold", "0.9999999", input=TEXTS)
    assert sure.returncode == 0, sure.stderr
    for line in map(json.loads, sure.stdout.splitlines()):
        assert line["entities"] == []
        assert set(line["prediction"]) == {"O"}
    row = {"text": "the bad food", "spans": [[4, 12, "TASTE"], [4, 7, "MOOD"], [8, 12, "MOOD"]]}
    (tmp_path / "nested.jsonl").write_text(json.dumps(row) + "\n")
    refused = bertctl("evaluate", tag_run.path, "--file", "nested.jsonl", "-o", "s")
    assert refused.returncode == 3
    assert "data.overlapping_spans=longest" in refused.stderr
    arguments = [
        "--train-file",
        "nested.jsonl",
        "--validation-file",
        tag_run.data,
        "--model",
        tag_run.path,
    ]
    sets = ["data.overlapping_spans=longest", "training.max_steps=1", "model.max_length=16"]
    done = bertctl(
        "finetune",
        "token-classification",
        *arguments,
        "-o",
        "r",
        *(w for s in sets for w in ("--set", s)),
    )
    assert "2 of 3 spans lie over longer ones and are left out" in done.stderr
