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
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_the_same_through_both_doors(
    case: str, bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    recipe, content, fields = CASES[case]
    file = tmp_path / "rows.csv"
    file.write_text(content, encoding="utf-8")
    shared = {"model.name": str(tiny_model), "model.max_length": 32, **fields}

    with pytest.raises(BertctlError) as raised:
        package.finetune(recipe, {"data.train_file": str(file), **shared}, output=tmp_path / "a")
    sets = [word for name, value in shared.items() for word in ("--set", f"{name}={value}")]
    done = bertctl("finetune", recipe, "--train-file", file, *sets, "-o", tmp_path / "b", "--json")
    error = json.loads(done.stdout)["error"]

    of_python = raised.value
    assert done.returncode == of_python.exit_code
    assert error["message"].removeprefix("--set: ") == as_options(of_python.message).removeprefix(
        "command line: "
    )
    assert (error["remedy"] or "") == as_options(of_python.remedy)
    assert "--" not in f"{of_python.message} {of_python.remedy}".replace(str(tmp_path), "")
