"""The same error from Python and from the command line: each in its own words."""

import json
from pathlib import Path
from typing import Any

import pytest

import bertctl as package
from bertctl.cli.framework.option_names import as_options
from bertctl.errors import BertctlError
from tests.conftest import Run

GOOD = "text,label\n" + "".join(f"a fine film {n},pos\na dull film {n},neg\n" for n in range(6))

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no label column": ("text-classification", "text,colour\na,red\nb,blue\n", {}),
    "no text column": ("text-classification", "a,b,label\nx,y,pos\nz,w,neg\n", {}),
    "several labels": ("text-classification", "text,score,rating\nx,1,2\ny,2,1\n", {}),
    "absent column": ("text-classification", GOOD, {"data.text_column": "body"}),
    "absent label column": ("text-classification", GOOD, {"data.label_column": "stars"}),
    "one label": ("text-classification", "text,label\na,pos\nb,pos\n", {}),
    "empty file": ("text-classification", "", {}),
    "a header alone": ("text-classification", "text,label\n", {}),
    "repeated header": ("text-classification", "text,text,label\na,b,pos\nc,d,neg\n", {}),
    "wrong delimiter": ("text-classification", GOOD, {"data.delimiter": "|"}),
    "labels are no scores": ("text-regression", GOOD, {}),
    "one score": ("text-regression", "text,label\na,1\nb,1\nc,1\n", {}),
    "no tags": ("token-classification", "text,colour\na b,red\nb c,blue\n", {}),
    "no choices": ("multiple-choice", "context,label\na,0\nb,1\n", {}),
    "no question": ("question-answering", "context,answers\na,b\nc,d\n", {}),
    "absent pair": ("sentence-embeddings", "text,label\na,1\nb,0\n", {"data.pair_column": "b"}),
    "absent id column": ("text-classification", GOOD, {"data.id_column": "number"}),
    "unknown encoding": ("text-classification", GOOD, {"data.encoding": "klingon"}),
    "a group column that is not there": (
        "text-classification",
        GOOD,
        {"data.group_column": "author"},
    ),
    "absent answers": ("question-answering", "question,context\na,b\nc,d\n", {}),
    "absent context": ("question-answering", "question,answers\na,b\nc,d\n", {}),
    "an answer that is not there": (
        "question-answering",
        "id,question,context,answers\n1,who?,a man ran,dog\n2,who?,a cat sat,cow\n",
        {},
    ),
    "an infinite score": ("text-regression", "text,label\na,1\nb,inf\nc,2\n", {}),
    "a score that is missing": ("text-regression", "text,label\na,1\nb,\nc,2\n", {}),
    "a label that is missing": ("text-classification", "text,label\na,pos\nb,\nc,neg\n", {}),
    "a text that is a number": ("text-classification", "label,number\npos,1\nneg,2\n", {}),
    "too wide a row": ("text-classification", "text,label\na,pos\nb,neg,more,fields\n", {}),
    "an open quote": ("text-classification", 'text,label\n"a,pos\nb,neg\n', {}),
    "no scored pairs": ("sentence-embeddings", "text,pair,label\na,b,nan\nc,d,4.3\n", {}),
    "one class of pairs": ("sentence-embeddings", "text,pair,label\na,b,x\nc,d,x\n", {}),
    "tags of another length": ("token-classification", "words,tags\na b,O\nb c,O O\n", {}),
    "one tag": ("token-classification", "words,tags\na b,O O\nb c,O O\n", {}),
    "a window over pairs": (
        "text-classification",
        "text,pair,label\na,b,pos\nc,d,neg\na,d,pos\nc,b,neg\n",
        {"model.long_text": "window"},
    ),
    "labels that are named and not there": (
        "text-classification",
        GOOD,
        {"text_classification.labels": ["a", "b"]},
    ),
    "a label that is not named": (
        "text-classification",
        GOOD,
        {"text_classification.labels": ["pos", "other"]},
    ),
    "too many folds": ("text-classification", "text,label\na,pos\nb,neg\n", {"data.folds": 5}),
    "too few rows to hold out": ("text-classification", "text,label\na,pos\nb,neg\n", {}),
    "an absent slice column": (
        "text-classification",
        GOOD,
        {"evaluation.slice_columns": ["author"]},
    ),
    "an unknown primary metric": (
        "text-classification",
        GOOD,
        {"evaluation.primary_metric": "bleu"},
    ),
    "an unknown positive label": (
        "text-classification",
        GOOD,
        {"evaluation.positive_label": "good"},
    ),
    "a loss that does not fit": (
        "sentence-embeddings",
        "text,pair,label\na,b,1.5\nc,d,4.3\ne,f,2\n",
        {"sentence_embeddings.loss": "triplet"},
    ),
    "texts longer than the model": ("text-classification", GOOD, {"model.max_length": 4000}),
}


QUICK = 19
"""So many of the cases are run by default, all of them with the slow tests."""


@pytest.mark.parametrize(
    "case",
    [
        case if number < QUICK else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(CASES)
    ],
)
def test_an_error_is_the_same_through_both_doors(
    case: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    recipe, content, fields = CASES[case]
    file = tmp_path / "rows.csv"
    file.write_text(content, encoding="utf-8")
    shared = {"model.name": str(tiny_model), "model.max_length": 32, **fields}

    with pytest.raises(BertctlError) as raised:
        package.finetune(recipe, {"data.train_file": str(file), **shared}, output=tmp_path / "a")
    sets = []
    for name, value in shared.items():
        sets += ("--set", f"{name}={value}")
    done = bertctl("finetune", recipe, "--train-file", file, *sets, "-o", tmp_path / "b", "--json")
    error = json.loads(done.stdout)["error"]

    of_python = raised.value
    assert done.returncode == of_python.exit_code
    assert error["message"].removeprefix("--set: ") == as_options(of_python.message).removeprefix(
        "command line: "
    )
    assert (error["remedy"] or "") == as_options(of_python.remedy)
    assert "--" not in f"{of_python.message} {of_python.remedy}".replace(str(tmp_path), "")
