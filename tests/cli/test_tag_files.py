"""Files of tags as people have them.

Numbers for names, comments, small letters, nothing to learn.
"""

import json

import pytest

pytestmark = pytest.mark.in_process

NAMES = ["O", "B-MOOD", "I-MOOD"]
ROWS = [(["the", "film", "was", "good"], [0, 0, 0, 1]), (["dull", "dull"], [1, 2])]


def trained(bertctl, tiny_model, name, *more):
    return bertctl(
        "finetune",
        "token-classification",
        "--train-file",
        name,
        "--validation-file",
        name,
        "--model",
        tiny_model,
        "-o",
        "run",
        "--overwrite",
        "--max-length",
        "16",
        "--set",
        "training.max_steps=1",
        "--set",
        "evaluation.bootstrap_resamples=100",
        *more,
    )


def gold(folder):
    lines = (folder / "run/predictions/validation.jsonl").read_text().splitlines()
    return [json.loads(line)["gold"] for line in lines]


def test_numbers_are_indexes_into_the_names_of_the_recipe_or_of_the_file(
    bertctl, tiny_model, tmp_path
):
    datasets = pytest.importorskip("datasets")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"tokens": w, "ner_tags": t}) + "\n" for w, t in ROWS)
    )
    unnamed = trained(bertctl, tiny_model, "a.jsonl")
    assert unnamed.returncode == 3
    assert "the tags are numbers" in unnamed.stderr
    labels = f"token_classification.labels=[{', '.join(NAMES)}]"
    run = trained(bertctl, tiny_model, "a.jsonl", "--set", labels)
    assert run.returncode == 0, run.stderr
    expected = [[NAMES[number] for number in tags] for _, tags in ROWS]
    assert gold(tmp_path) == expected
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert config["tag_scheme"] == "IOB2"
    assert list(config["id2label"].values()) == NAMES
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=NAMES)),
        }
    )
    columns = {"tokens": [words for words, _ in ROWS], "ner_tags": [tags for _, tags in ROWS]}
    datasets.Dataset.from_dict(columns, features=features).to_parquet(tmp_path / "a.parquet")
    trained_run = trained(bertctl, tiny_model, "a.parquet")
    assert trained_run.returncode == 0, trained_run.stderr
    assert gold(tmp_path) == expected


def test_comments_are_comments_and_small_letters_and_missing_words_are_asked_about(
    bertctl, tiny_model, tmp_path
):
    multiconer = "# id 1f domain=train\nthe _ _ O\ngood _ _ B-MOOD\n\n# _ _ O\nfilm _ _ O\n"
    (tmp_path / "a.conll").write_text(multiconer)
    done = trained(bertctl, tiny_model, "a.conll")
    assert done.returncode == 0, done.stderr
    assert "1 lines that begin with # before a sentence are taken as comments" in done.stderr
    assert gold(tmp_path) == [["O", "B-MOOD"], ["O", "O"]]
    for content, message in (
        ("the o\ngood b-mood\n", "a.conll:1, word 2: the tag 'b-mood' looks like one of a scheme"),
        ("the\tO\n\tB-MOOD\n", "a.conll:2: no word"),
        ("the O\nfilm O\n", "the training rows have no entity"),
    ):
        (tmp_path / "a.conll").write_text(content)
        refused = trained(bertctl, tiny_model, "a.conll")
        assert refused.returncode == 3
        assert message in refused.stderr


def test_data_check_guesses_the_task_and_right_tags_are_right(bertctl, tmp_path):
    sentences = ["the O\ngood I-MOOD\nfilm O\n", "dull I-MOOD\ndull B-MOOD\nfood O\n"]
    (tmp_path / "a.conll").write_text("\n".join(sentences * 30) + "\nbad B-MOOD\n")
    checked = bertctl("data", "check", "a.conll", "--model", "none/such", "--offline", "--json")
    assert "looks like token-classification" in checked.stderr
    report = json.loads(checked.stdout)
    findings = [finding for finding in report["findings"] if finding["code"] == "tag-scheme"]
    assert [finding["count"] for finding in findings] == [1]
    assert (
        "B-MOOD at 'bad' follows nothing, which IOB1 does not allow"
        in findings[0]["examples"][0]["text"]
    )
    question = {
        "question": "who?",
        "context": "Ada did",
        "answers": {"text": ["Ada"], "answer_start": [0]},
    }
    (tmp_path / "q.jsonl").write_text(json.dumps(question) + "\n")
    checked = bertctl("data", "check", "q.jsonl", "--model", "none/such", "--offline", "--json")
    assert "looks like question-answering" in checked.stderr


def test_choices_of_label_studio_are_labels_of_texts(bertctl, tiny_model, tmp_path):
    def annotated(*labels):
        messages = {
            "type": "choices",
            "from_name": "s",
            "to_name": "text",
            "value": {"choices": list(labels)},
        }
        return [{"was_cancelled": True, "result": []}, {"result": [messages]}]

    tasks = [
        {"id": 7 * i, "data": {"text": f"film {i}"}, "annotations": annotated("ab"[i % 2])}
        for i in range(12)
    ]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    options = ("--model", tiny_model, "--max-length", "32", "--dry-run")
    learned = bertctl("finetune", "tasks.json", *options)
    assert learned.returncode == 0, learned.stderr
    assert (
        "tasks.json looks like text-classification: text from 'text', label from 'label'"
        in learned.stderr
    )
    assert bertctl("data", "check", "tasks.json", "--json").returncode == 0
    refused = bertctl("finetune", "token-classification", "--train-file", "tasks.json", *options)
    assert refused.returncode == 3
    assert (
        "choices for whole texts, and no spans\nbertctl finetune text-classification --train-file "
        in refused.stderr
    )
    tasks[3]["annotations"] = annotated("a", "b")
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    several = bertctl("finetune", "tasks.json", *options)
    assert several.returncode == 0, several.stderr
    assert "held out for validation (seed 42, not stratified)" in several.stderr, (
        "several labels for a text"
    )


def test_the_first_example_of_a_tagged_sentence_has_its_tags_below_the_tokens(
    bertctl, tiny_model, tmp_path
):
    row = {"words": ["Ada", "read", "the", "book"], "tags": ["B-PER", "O", "O", "O"]}
    (tmp_path / "w.jsonl").write_text(f"{json.dumps(row)}\n" * 4)
    run = bertctl("finetune", "w.jsonl", "--model", tiny_model, "--max-length", "32", "--dry-run")
    lines = run.stderr.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("first example"))
    tokens, _, _, tags = (line.split() for line in lines[first + 1 : first + 5])
    assert "label" not in lines[first]
    assert tags[0] == "tag"
    assert len(tags) == len(tokens)
    assert tags[1:3] == ["-", "B-PER"]
    assert set(tags[3:]) == {"-", "O"}
