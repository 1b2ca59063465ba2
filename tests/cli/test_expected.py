"""What a person types without reading.

A text in the file's place, a model of somebody else in the run's place.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process


def answers(done) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_text_is_answered(tiny_run: TinyRun, bertctl: Run) -> None:
    [piped] = answers(bertctl("predict", tiny_run.path, "-", input="the film was good\n"))
    for words in (["the film was good"], ["--text", "the film was good"]):
        assert answers(bertctl("predict", tiny_run.path, *words)) == [piped]
    two = answers(bertctl("predict", tiny_run.path, "good", "--text", "bad.csv", "--top-k", "1"))
    assert [answer["text"] for answer in two] == ["good", "bad.csv"]
    [top] = two[0]["top"]
    assert top["label"] == two[0]["prediction"]
    assert 0.5 < top["probability"] <= 1
    assert "probabilities" not in two[0]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["bad.csv"], 4, "bad.csv does not exist"),
        (["new/bad"], 4, "new/bad does not exist"),
        (["a text", "--split", "test"], 2, "exclude each other"),
        (["--text", "a", "--text-pair", "b"], 2, "on single texts; --text: 1, --text-pair: 1"),
        (["--split", "test", "--text-pair", "b"], 2, "--text-pair is the second text of --text"),
        (["a text", "--format", "glue"], 2, "--format glue answers a GLUE split"),
    ],
)
def test_what_is_no_text_is_refused(
    words: list[str], code: int, message: str, tiny_run: TinyRun, bertctl: Run
) -> None:
    refused = bertctl("predict", tiny_run.path, *words)
    assert refused.returncode == code
    assert refused.stdout == ""
    assert message in refused.stderr


@pytest.mark.parametrize(
    "typed", ["my reviews.csv", "/data/my file.jsonl", "./my file", "my tags.conllu.gz"]
)
@pytest.mark.parametrize(
    "command",
    [
        "predict RUN",
        "explain RUN",
        "similarity",
        "similarity hello",
        "tokenize",
        "tokenize hello",
        "index -o x",
        "fill-mask MODEL",
        "score MODEL",
        "attention MODEL",
    ],
)
def test_a_missing_file_is_no_text_though_its_name_has_a_blank(
    command: str, typed: str, tiny_run: TinyRun, bertctl: Run
) -> None:
    positions = {"RUN": tiny_run.path, "MODEL": tiny_run.path / "model"}
    refused = bertctl(*(positions.get(word, word) for word in command.split()), typed)
    assert refused.returncode == 4
    assert refused.stdout == ""
    assert f"{typed.removeprefix('./')} does not exist" in refused.stderr


@pytest.mark.parametrize("verb", ["tokenize", "attention MODEL"])
def test_a_file_beside_a_text_is_refused(
    verb: str, tiny_run: TinyRun, bertctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("text\nfine\n", encoding="utf-8")
    words = [tiny_run.path / "model" if word == "MODEL" else word for word in verb.split()]
    refused = bertctl(*words, "a text", "a.csv")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "a.csv is a file" in refused.stderr
    assert "--file a.csv" in refused.stderr


def test_a_fine_tuned_model_is_used_like_a_run(
    tiny_run: TinyRun, bertctl: Run, tmp_path: Path
) -> None:
    model = tmp_path / "somebody" / "opinions"
    shutil.copytree(tiny_run.path / "model", model)
    ours = answers(bertctl("predict", tiny_run.path, tiny_run.data, "--precision", "fp32"))
    theirs = bertctl("predict", "somebody/opinions", tiny_run.data, "--precision", "fp32")
    assert [answer["prediction"] for answer in answers(theirs)] == [
        answer["prediction"] for answer in ours
    ]
    assert (
        "somebody/opinions is a model for text-classification: BertForSequenceClassification"
        in theirs.stderr
    )
    scored = bertctl("evaluate", model, "--file", tiny_run.data, "-o", "scores", "--json")
    assert scored.returncode == 0, scored.stderr
    right = sum(
        answer["prediction"] == label
        for answer, label in zip(ours, labels_of(tiny_run), strict=True)
    )
    assert json.loads(scored.stdout)["metrics"]["file"]["accuracy"]["value"] == pytest.approx(
        right / len(ours)
    )
    for words in (["evaluate", model], ["predict", model, "--split", "test"]):
        refused = bertctl(*words)
        assert refused.returncode == 2
        assert "a model without data of its own" in refused.stderr

    config = json.loads((model / "config.json").read_text())
    del config["id2label"], config["label2id"]
    (model / "config.json").write_text(json.dumps(config))
    unnamed = bertctl("predict", model, "good")
    assert answers(unnamed)[0]["prediction"] in ("LABEL_0", "LABEL_1")
    assert "the labels have no names" in unnamed.stderr
    (model / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    headless = bertctl("predict", model, "good")
    assert headless.returncode == 3
    assert "has no head that answers: it is a BertModel" in headless.stderr
    assert "bertctl finetune FILE --model" in headless.stderr
    missing = bertctl("predict", "some-body/opinions", "good")
    assert missing.returncode == 4
    assert "not in the cache" in missing.stderr


def test_scores_by_label_come_with_v(tiny_run: TinyRun, bertctl: Run, tmp_path: Path) -> None:
    words = ("evaluate", tiny_run.path, "--file", tiny_run.data, "--overwrite")
    plain = bertctl(*words, "-o", "plain")
    verbose = bertctl(*words, "-o", "verbose", "-v", env={"COLUMNS": "80"})
    assert "by label" not in plain.stdout
    assert verbose.stdout.startswith(plain.stdout.rstrip("\n"))
    head, *rows = verbose.stdout.partition("file, by label")[2].strip().splitlines()
    assert head.split() == ["label", "in", "gold", "predicted", "precision", "recall", "F1"]
    negative_row, positive_row = (row.split() for row in rows)
    labels = labels_of(tiny_run)
    assert negative_row[:2] == ["neg", str(labels.count("neg"))]
    assert positive_row[:2] == ["pos", str(labels.count("pos"))]
    assert len(negative_row) == 6
    assert len(positive_row) == 6


def labels_of(run: TinyRun) -> list[str]:
    _header, *lines = run.data.read_text().splitlines()
    return [line.rpartition(",")[2] for line in lines]


@pytest.mark.parametrize(
    ("head", "words", "message"),
    [
        ("TokenClassification", ["Anna was good"], {"words": ["Anna", "was", "good"]}),
        (
            "QuestionAnswering",
            ["--question", "who?", "--context", "Anna was good"],
            {"question": "who?"},
        ),
    ],
)
def test_models_with_other_heads(
    head: str, words: list[str], message: dict, tiny_model: Path, bertctl: Run, tmp_path: Path
) -> None:
    import transformers

    config = transformers.AutoConfig.from_pretrained(
        tiny_model, num_labels=2, id2label={0: "O", 1: "B-X"}
    )
    getattr(transformers, f"BertFor{head}")(config).save_pretrained(tmp_path / "model")
    transformers.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "model")
    [answer] = answers(bertctl("predict", "model", *words))
    assert message.items() <= answer.items()
    assert bertctl("predict", "model", "a", "--top-k", "2").returncode == 2
