"""Recipes that stand on others and on the environment.

What they come to, what is refused, that a run needs neither.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertctl.config.dump import dump_recipe, own_fields, recipe_hash
from bertctl.config.load import load_recipe, trace_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.reporting.recipe_diff import diff_recipes
from bertctl.sweeps.grid import read_grid
from tests.conftest import Run
from tests.made_runs import classified, made_run

pytestmark = pytest.mark.in_process


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_the_nearest_file_wins_field_by_field_and_paths_are_those_of_each_file(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        {
            "company/all.yaml": "name: all\ndescription: of all\nbase: sst2\n"
            "training: {epochs: 9, seed: 9, patience: 9}\nevaluation: {splits: [a, b]}\n"
            "data: {name: null, train_file: rows.csv, validation_file: rows.csv}\n",
            "team/ours.yaml": "base: ../company/all.yaml\ntraining: {epochs: 8, seed: 8}\n"
            "data: {train_file: ../own.csv}\n",
            "mine.yaml": "base: [team/ours.yaml]\ntraining: {epochs: 7, patience: "
            "null}\nevaluation: {splits: [c]}\n",
        },
    )
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert recipe.training.epochs == 7
    assert recipe.training.seed == 8
    assert recipe.training.patience is None
    assert recipe.training.batch_size == load_recipe("sst2").training.batch_size == 32
    assert recipe.evaluation.splits == ["c"]
    assert recipe.data.train_file == str(tmp_path / "own.csv")
    assert recipe.data.validation_file == str(tmp_path / "company" / "rows.csv")
    assert recipe.name == "mine"
    assert recipe.description == "", "those of the file itself"
    resolved = dump_recipe(recipe, command="x")
    assert not {"base", "environment"} & set(yaml.safe_load(resolved))
    write(tmp_path, {"resolved.yaml": resolved})
    shutil.rmtree(tmp_path / "company")
    assert load_recipe(str(tmp_path / "resolved.yaml")) == recipe


def test_a_base_of_several_lies_under_all_of_them_and_the_last_one_is_the_nearest(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        {
            "common.yaml": "training: {epochs: 1, seed: 1, batch_size: 8}\n",
            "a.yaml": "base: common.yaml\ntraining: {epochs: 2, seed: 2}\n",
            "b.yaml": "base: common.yaml\ntraining: {seed: 3}\n",
            "mine.yaml": "base: [a.yaml, b.yaml]\n",
        },
    )
    training = load_recipe(str(tmp_path / "mine.yaml")).training
    assert training.epochs == 2
    assert training.seed == 3
    assert training.batch_size == 8


def test_a_preset_is_as_near_as_the_file_that_names_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "low.yaml": "training: {epochs: 2}\noptimizer: {warmup_fraction: 0.3}\n",
            "small.yaml": "base: low.yaml\ntraining: {preset: small-data, patience: 4}\n",
            "mine.yaml": "base: small.yaml\noptimizer: {learning_rate: 1.0e-4}\n",
        },
    )
    recipe, origins = trace_recipe(str(tmp_path / "mine.yaml"))
    assert recipe.training.epochs == 20
    assert recipe.training.patience == 4
    assert recipe.optimizer.warmup_fraction == 0.1
    assert recipe.optimizer.learning_rate == 1e-4
    assert origins["training.epochs"].kind == "base"
    assert origins["training.epochs"].via == "preset small-data"


def test_data_sets_of_ones_own_are_found_beside_the_file_that_names_them(tmp_path: Path) -> None:
    row = "{task: text-classification, columns: {text: t, label: l}, splits: {train: rows.csv}}\n"
    write(tmp_path, {"low/datasets.yaml": f"mine: {row}", "low/all.yaml": "data: {name: mine}\n"})
    write(tmp_path, {"top.yaml": "base: low/all.yaml\n"})
    assert load_recipe(str(tmp_path / "top.yaml")).data.datasets_file == str(
        tmp_path / "low" / "datasets.yaml"
    )


def test_values_of_the_environment_are_read_as_the_field_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        {
            "mine.yaml": "environment: [EPOCHS, CORPUS, SPLIT, RATE, MODEL]\n"
            "training:\n  epochs: ${EPOCHS}\n  seed: ${SEEDLESS:-1}${EPOCHS}\n".replace(
                "${SEEDLESS:-1}", "1"
            )
            + "optimizer:\n  learning_rate: ${RATE:-3e-5}\ndata:\n  train_file: "
            "${CORPUS}/train.csv\n"
            'evaluation:\n  splits: ["${SPLIT}", test]\nmodel:\n  name: ${MODEL:-minilm}\n',
            "plain.yaml": "description: costs ${EPOCHS}\n",
        },
    )
    for name, value in {"EPOCHS": "4", "CORPUS": "données", "SPLIT": "7", "MODEL": ""}.items():
        monkeypatch.setenv(name, value)
    recipe, origins = trace_recipe(str(tmp_path / "mine.yaml"))
    assert recipe.training.epochs == 4
    assert recipe.training.seed == 14
    assert recipe.optimizer.learning_rate == 3e-5
    assert recipe.data.train_file == str(tmp_path / "données" / "train.csv")
    assert recipe.evaluation.splits == ["7", "test"], "a text stays one"
    assert recipe.model.name == "minilm", "empty is as good as not set"
    assert origins["training.epochs"].via == "${EPOCHS}"
    assert load_recipe(str(tmp_path / "plain.yaml")).description == "costs ${EPOCHS}", (
        "nobody asked for it"
    )


def test_a_list_may_come_from_the_environment(tmp_path: Path, bertctl: Run) -> None:
    text = (
        "environment: [LABELS]\ntask: text-classification\ntext_classification:\n  labels: "
        "${LABELS:-[a, b]}\n"
    )
    write(tmp_path, {"mine.yaml": text})
    for value, labels in {"": ["a", "b"], "[no, '1', a=b]": ["no", "1", "a=b"]}.items():
        done = bertctl("recipes", "show", "mine.yaml", env={"LABELS": value})
        assert done.returncode == 0, done.stderr
        assert yaml.safe_load(done.stdout)["text_classification"]["labels"] == labels
        typed = bertctl(
            "recipes",
            "show",
            "mine.yaml",
            "--set",
            f"text_classification.labels={value or '[a, b]'}",
        )
        assert yaml.safe_load(typed.stdout)["text_classification"]["labels"] == labels, (
            "as --set reads it"
        )


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "token",
        "MY_SECRET_2",
        "DB_PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "SSH_KEY_1",
        "GH_PAT",
        "CREDENTIALS",
    ],
)
def test_names_of_secrets_are_refused_before_they_are_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "harmless")
    write(tmp_path, {"mine.yaml": f"environment: [{name}]\nmodel:\n  name: ${{{name}}}\n"})
    with pytest.raises(UsageError, match="called like a secret") as caught:
        load_recipe(str(tmp_path / "mine.yaml"))
    assert "harmless" not in caught.value.message + caught.value.remedy


@pytest.mark.parametrize("name", ["TOKENIZER_DIR", "KEYWORD", "AUTHOR", "COMPASS", "PATH_OF_ROWS"])
def test_names_of_other_things_are_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "fine")
    write(tmp_path, {"mine.yaml": f"environment: {name}\nmodel:\n  name: ${{{name}}}\n"})
    assert load_recipe(str(tmp_path / "mine.yaml")).model.name == "fine"


def test_a_house_of_too_many_storeys_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {f"{i}.yaml": f"base: {i + 1}.yaml\n" for i in range(40)})
    with pytest.raises(UsageError, match=r"30.yaml:1: base: more than 30 storeys: "):
        load_recipe(str(tmp_path / "0.yaml"))


BAD: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "missing": (
        "base: nowhere/x.yaml\n",
        4,
        ("mine.yaml:1: base: ", "nowhere/x.yaml", "does not exist"),
    ),
    "no such name": (
        "task: text-classification\nbase: sst3\n",
        2,
        ("mine.yaml:2: base: ", "'sst3'", "sst2"),
    ),
    "a folder": ("base: folder\n", 2, ("mine.yaml:1: base: ", "is a folder")),
    "no name": ("base: 5\n", 2, ("mine.yaml:1: base: 5 given", "a list")),
    "not all names": ("base: [sst2, {a: 1}]\n", 2, ("mine.yaml:1: base: ", "given", "a list")),
    "a circle": (
        "base: round.yaml\n",
        2,
        ("round.yaml:1: base: ", "mine.yaml -> ", "be its own base"),
    ),
    "itself": ("base: mine.yaml\n", 2, ("mine.yaml:1: base: ", "be its own base")),
    "its field does not exist": (
        "base: wrong.yaml\n",
        2,
        ("wrong.yaml:2: training.epoch: ", "training.epochs"),
    ),
    "a field of no section": (
        "base: wrong.yaml\ntraining: {epochs: x}\n",
        2,
        ("wrong.yaml:2:", "mine.yaml:2: "),
    ),
    "no YAML": ("base: rows.csv\n", 2, ("rows.csv:1: ",)),
    "no text": ("base: bytes.yaml\n", 2, ("bytes.yaml:1: ", "UTF-8")),
    "what does not go together": (
        "base: sst2\ndata: {train_file: rows.csv}\n",
        2,
        ("data.train_file: ", "'sst2'"),
    ),
    "not set": (
        "environment: [CORPUS]\nname: ${CORPUS}\n",
        2,
        ("mine.yaml:2: name", "CORPUS is not set", "${CORPUS:"),
    ),
    "not listed": (
        "environment: [CORPUS]\nname: ${CORPS:-x}\n",
        2,
        ("mine.yaml:2: name: CORPS", "mean CORPUS?"),
    ),
    "no variable": (
        "environment: [CORPUS]\nname: ${CORPUS\n",
        2,
        ("mine.yaml:2: name: ", "${NAME:-default}"),
    ),
    "no number": (
        "environment: [HOST_X]\ntraining:\n  epochs: ${HOST_X}\n",
        2,
        ("mine.yaml:3: ", '"h"'),
    ),
    "a secret's name": (
        "environment: [API_TOKEN]\n",
        2,
        ("mine.yaml:1: environment: ", "'API_TOKEN'", "secret"),
    ),
    "a secret": (
        "environment: [HUB]\nname: ${HUB}\n",
        2,
        ("mine.yaml:2: name: ", "HUB looks like a secret"),
    ),
    "no list": ("environment: {A: b}\n", 2, ("mine.yaml:1: environment: ", "a list of names")),
    "a run's recipe with a base": (
        "base: run/recipe.yaml\n",
        2,
        ("run/recipe.yaml:1: base: ", "run is whole"),
    ),
    "a misspelt base": (
        "extends: sst2\n",
        2,
        ("mine.yaml:1: extends: unknown key, did you mean base?",),
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "round.yaml": "base: mine.yaml\n",
            "wrong.yaml": "training:\n  epoch: 2\n",
            "rows.csv": "a,b\n'x,\n",
            "folder/x.txt": "",
            "run/recipe.yaml": "base: sst2\n",
            "run/status.json": "{}",
        },
    )
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff\n")
    return tmp_path


@pytest.mark.parametrize("subject", BAD)
def test_bad_bases_and_variables_end_as_promised(subject: str, place: Path, bertctl: Run) -> None:
    text, code, message = BAD[subject]
    write(place, {"mine.yaml": text})
    environment = {"HOST_X": "h", "HUB": "hf_abcdefghijklmn", "API_TOKEN": "deep"}
    done = bertctl("recipes", "show", "mine.yaml", env=environment)
    assert done.returncode == code
    assert done.stdout == ""
    for words in message:
        assert words in done.stderr
    assert "abcdefgh" not in done.stderr
    assert "deep" not in done.stderr


def test_set_and_show_know_what_belongs_into_a_file(bertctl: Run, opinions: Path) -> None:
    done = bertctl("recipes", "show", "sst2", "--set", "base=demo")
    assert done.returncode == 2
    assert "base: belongs at the top of a recipe's file" in done.stderr
    done = bertctl("recipes", "show", opinions, "--origin")
    assert done.returncode == 2
    assert "is a file of rows" in done.stderr


def test_show_origin_says_of_each_field_where_its_value_comes_from(
    tmp_path: Path, bertctl: Run
) -> None:
    write(
        tmp_path,
        {
            "low.yaml": "training: {epochs: 4}\nmodel: {max_length: 64}\n",
            "mine.yaml": "base: low.yaml\nenvironment: [SEED_OF_ALL]\n"
            "training:\n  seed: ${SEED_OF_ALL}\n  batch_size: 8\n",
        },
    )
    words = ("recipes", "show", "mine.yaml", "--origin", "--set", "optimizer.learning_rate=1e-5")
    done = bertctl(*words, env={"SEED_OF_ALL": "5"})
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert lines["training.epochs"] == ["4", "base", "low.yaml:1"]
    assert lines["training.seed"] == ["5", "file", "mine.yaml:4", "(${SEED_OF_ALL})"]
    assert lines["training.batch_size"] == ["8", "file", "mine.yaml:5"]
    assert lines["optimizer.learning_rate"] == ["1e-05", "option", "--set"]
    assert lines["training.log_every"] == ["10", "default"]
    fields = json.loads(bertctl(*words, "--json", env={"SEED_OF_ALL": "5"}).stdout)["fields"]
    assert fields["model.max_length"] == {
        "value": 64,
        "from": "base",
        "place": "low.yaml:2",
        "via": "",
    }
    assert fields.keys() == dict(own_fields(Recipe())).keys()


def test_a_base_is_not_written_over(
    tmp_path: Path, bertctl: Run, opinions: Path, tiny_model: Path
) -> None:
    write(
        tmp_path,
        {"mine.yaml": "base: reports/low.yaml\n", "reports/low.yaml": "training: {epochs: 1}\n"},
    )
    words = ("mine.yaml", "--train-file", opinions, "--model", tiny_model)
    done = bertctl("tokenize", "--file", opinions, "--model", tiny_model, "-o", "reports/low.yaml")
    assert done.returncode in (0, 2), "nobody has named it as a base here"
    write(tmp_path, {"reports/low.yaml": "training: {epochs: 1}\n"})
    done = bertctl(
        "data", "check", *words[:3], "--model", tiny_model, "--junit", "reports/low.yaml"
    )
    assert done.returncode == 2
    assert "is an input of this command" in done.stderr
    assert (tmp_path / "reports" / "low.yaml").read_text() == "training: {epochs: 1}\n"


def test_what_a_runs_recipe_reaches_is_refused_as_a_base_too(tmp_path: Path, bertctl: Run) -> None:
    write(tmp_path, {"run/recipe.yaml": "runtime: {log_to: [mlflow]}\n", "run/status.json": "{}"})
    write(tmp_path, {"mine.yaml": "base: run/recipe.yaml\n"})
    done = bertctl("recipes", "show", "mine.yaml")
    assert done.returncode == 2
    assert "runtime.log_to: mlflow: named by run/recipe.yaml" in done.stderr


def test_a_run_of_three_storeys_replays_from_its_own_folder(
    tmp_path: Path, bertctl: Run, opinions: Path, tiny_model: Path
) -> None:
    write(
        tmp_path,
        {
            "company.yaml": "model: {max_length: 32, dropout: 0.0}\nruntime: {precision: fp32, "
            "threads: 1}\n"
            "evaluation: {bootstrap_resamples: 100}\ndata: {train_file: opinions.csv, "
            "validation_file: opinions.csv}\n",
            "team/team.yaml": "base: ../company.yaml\nenvironment: [EPOCHS_HERE, MODEL_HERE]\n"
            "training:\n  epochs: ${EPOCHS_HERE}\nmodel:\n  name: ${MODEL_HERE}\n",
            "mine.yaml": "base: team/team.yaml\noptimizer: {learning_rate: 1.0e-3}\n",
        },
    )
    environment = {"EPOCHS_HERE": "2", "MODEL_HERE": str(tiny_model)}
    done = bertctl("finetune", "mine.yaml", "-o", "run", env=environment)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "team")
    (tmp_path / "company.yaml").unlink()
    (tmp_path / "mine.yaml").unlink()
    done = bertctl("finetune", "run/recipe.yaml", "-o", "replay")
    assert done.returncode == 0, done.stderr
    for name in ("metrics.json", "predictions/validation.jsonl", "model/model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "replay" / name).read_bytes()
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["steps"] == 2
    recipes = diff_recipes(str(tmp_path / "run"), str(tmp_path / "replay" / "recipe.yaml"))
    assert recipes["differences"] == []


def _with(recipe: Recipe, dotted: str, value: Any) -> Recipe:
    document = recipe.model_dump()
    section, _, name = dotted.rpartition(".")
    (document[section] if section else document)[name] = value
    return Recipe.model_validate(document)


@pytest.mark.parametrize(
    ("dotted", "value", "moves"),
    [
        ("name", "x", False),
        ("description", "x", False),
        ("training.epochs", 9, True),
        ("training.log_every", 3, False),
        ("training.init_seed", 3, True),
        ("model.max_length", 64, True),
        ("model.name", "bert-tiny", None),
        ("data.data_dir", "/x", None),
        ("evaluation.keep_text", False, False),
        ("runtime.threads", 2, None),
        ("runtime.precision", "fp32", None),
        ("runtime.deterministic", True, True),
        ("text_classification.threshold", 0.4, True),
    ],
)
def test_diff_says_what_moves_numbers_as_the_hash_does(
    dotted: str, value: Any, moves: bool | None, tmp_path: Path
) -> None:
    entry = load_recipe("sst2")
    other = _with(entry, dotted, value)
    write(
        tmp_path,
        {"a.yaml": dump_recipe(entry, command="x"), "b.yaml": dump_recipe(other, command="x")},
    )
    recipes = diff_recipes(str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"))
    (row,) = recipes["differences"]
    assert row["field"] == dotted
    assert row["moves_numbers"] == moves
    assert recipes["moves_numbers"] == moves
    assert row["values"][1] == value
    if moves is not None:
        hashes = {recipe_hash(recipe, data_hashes={}, model_hash="") for recipe in (entry, other)}
        assert (len(hashes) == 2) is moves


def test_diff_of_runs_compares_what_is_behind_paths(tmp_path: Path, bertctl: Run) -> None:
    for name in ("one", "other"):
        made_run(tmp_path / name, classified(20), recipe={"data": {"train_file": f"/{name}.csv"}})
    done = json.loads(bertctl("recipes", "diff", "one", "other", "--json").stdout)
    assert done["differences"] == [
        {"field": "data.train_file", "values": ["/one.csv", "/other.csv"], "moves_numbers": False}
    ]
    path = tmp_path / "other" / "environment.json"
    path.write_text(path.read_text().replace("c2f5" * 16, "0000" * 16))
    done = bertctl("recipes", "diff", "one", "other")
    assert "content of train" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 differences: 1 move numbers, 0 perhaps"
    assert bertctl("recipes", "diff", "one", "one").stdout == "nothing differs\n"


def test_a_grid_stands_on_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path,
        {
            "low.yaml": "training: {epochs: [1, 2], batch_size: [8]}\n",
            "grid.yaml": "base: low.yaml\nenvironment: [RATE]\ntraining.epochs: [3]\n"
            "optimizer:\n  learning_rate: ['${RATE}']\n",
        },
    )
    monkeypatch.setenv("RATE", "3e-5")
    (setting,) = read_grid(str(tmp_path / "grid.yaml"))
    assert setting == {
        "training.batch_size": 8,
        "training.epochs": 3,
        "optimizer.learning_rate": 3e-5,
    }
