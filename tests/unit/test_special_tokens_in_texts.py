"""Texts in which a special token is written are counted by the check of data."""

import pytest
from tokenizers import Tokenizer, models

from bertctl.checking.subject import Subject
from bertctl.checking.tokens import check_tokens
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.reporting.explanations import format_number


def _tokenizer(*special):
    vocabulary = {
        "[UNK]": 0,
        "a": 1,
        **{name: number for number, name in enumerate(special, start=2)},
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(special))
    return tokenizer


COLUMNS = {
    "text-classification": {"text": ["a fine [SEP] film", "a film", "a [sep]"]},
    "multiple-choice": {
        "context": ["a", "b", "c"],
        "choices": [["x", "[SEP] y"], ["x", "y"], ["x", "y"]],
    },
    "token-classification": {"words": [["a", "[SEP]"], ["b"], ["c"]]},
    "question-answering": {"question": ["a?", "b?", "c?"], "context": ["x [SEP] y", "x", "y"]},
}


@pytest.mark.parametrize("task", COLUMNS)
def test_special_tokens_in_texts_are_counted(task):
    rows = Rows("train", COLUMNS[task], ["0", "1", "2"], "x.csv", [2, 3, 4])
    recipe = Recipe(task=task, data=DataSection(train_file="x.csv"))
    findings = check_tokens(Subject(recipe, {"train": rows}, None, _tokenizer("[SEP]", "[MASK]")))
    [finding] = [finding for finding in findings if finding.code == "special-token"]
    assert finding.count == 1
    assert finding.total == 3
    assert finding.severity == "warning"
    assert finding.examples[0].where == "x.csv:2"
    assert "[SEP] in: " in finding.examples[0].text


def test_tags_of_html_are_special_tokens_of_roberta():
    rows = Rows("train", {"text": ["a <s>fine</s> film", "[SEP]"]}, ["0", "1"], "x.csv")
    recipe = Recipe(task="text-classification", data=DataSection(train_file="x.csv"))
    findings = check_tokens(Subject(recipe, {"train": rows}, None, _tokenizer("<s>", "</s>")))
    assert [finding.count for finding in findings if finding.code == "special-token"] == [1]


@pytest.mark.parametrize(
    ("value", "largest", "output"),
    [
        (1.234, 2.5, "+1.23"),
        (-0.00031, -0.00031, "-0.00031"),
        (0.00012, -0.00031, "+0.00012"),
        (-0.001, 2.5, "0.00"),
        (0.05, 0.05, "+0.050"),
        (-3e-9, 5e-9, "-3.0e-09"),
        (0.0, 0.0, "0.00"),
    ],
)
def test_explanations_show_digits_that_say_something(value, largest, output):
    assert format_number(value, largest) == output
