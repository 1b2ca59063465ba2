"""`bertctl recipes` through the real process, and the built-in recipes themselves."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from bertctl.catalog.datasets import builtin_datasets
from bertctl.catalog.models import MODELS
from bertctl.cli.verbs.recipes import check_recipe, copy_recipe
from bertctl.config.load import load_recipe
from bertctl.config.recipe_files import builtin_recipes
from bertctl.config.schema import fields

pytestmark = pytest.mark.in_process

ROOT = Path(__file__).resolve().parents[2]
GLUE = ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"]
TAGGING = ["bc5cdr", "conll2003", "ud-pos", "wnut17"]
DEMOS = ["demo", "demo-ner", "demo-qa"]
DATA_SETS = [*GLUE, *TAGGING, *DEMOS, "codah", "squad", "squad2", "swag"]
GENERIC = [
    "multiple-choice",
    "pretrain",
    "question-answering",
    "sentence-embeddings",
    "text-classification",
    "text-regression",
    "token-classification",
]
PRETRAINING = ["adapt-medical", "pretrain", "pretrain-demo"]
PROBES = ["probe-conll2003-paper", "probe-sst2-tutorial"]
SMALL = ["mrpc-small", "rte-small"]
VECTORS = [
    "few-shot",
    "nli-embeddings",
    "quora-embeddings",
    "sentence-embeddings",
    "squad-retrieval",
    "stsb-embeddings",
]
NAMES = sorted({*DATA_SETS, *GENERIC, *PROBES, *SMALL, *PRETRAINING, *VECTORS})


def test_there_are_38_recipes():
    assert list(builtin_recipes()) == NAMES
    assert len(list((ROOT / "recipes").rglob("*.y*ml"))) == len(NAMES) == 38


def test_ls_shows_every_recipe_with_what_it_is_for(bertctl):
    """Those of a task stand below the one for files of one's own."""
    result = bertctl("recipes", "ls")
    assert result.returncode == 0
    assert "bertctl recipes show NAME" in result.stderr
    lines = result.stdout.splitlines()
    assert sorted(line.split()[0] for line in lines[1:]) == NAMES
    assert [line.split()[0] for line in lines[1:] if line[0] != " "] == GENERIC
    first = [line.split()[0] for line in lines]
    personal = first.index("text-classification")
    sst2 = first.index("sst2")
    assert not [line for line in lines[personal + 1 : sst2 + 1] if line[0] != " "]
    assert first.index("pretrain") < first.index("adapt-medical")
    assert lines[sst2].rstrip().endswith("is a phrase from a film review positive?")


def test_ls_as_json_agrees_with_the_recipes(bertctl):
    result = bertctl("recipes", "ls", "--json")
    rows = json.loads(result.stdout)["recipes"]
    assert [row["name"] for row in rows] == NAMES
    for row in rows:
        recipe = load_recipe(row["name"])
        assert row["epochs"] == recipe.training.epochs
        assert row["batch_size"] == recipe.training.batch_size
        assert row["learning_rate"] == recipe.optimizer.learning_rate
        assert row["task"] == recipe.task
        assert row["data"] == recipe.data.name
        assert row["model"] == recipe.model.name


def test_ls_models_shows_size_and_vocabulary_of_each(bertctl):
    lines = bertctl("recipes", "ls", "--models").stdout.splitlines()
    assert set(MODELS) <= {line.split()[0] for line in lines if line.split()}
    (minilm,) = [line for line in lines if line.startswith("minilm ")]
    assert "23 M" in minilm
    assert MODELS["minilm"].hub_id in minilm
    refused = bertctl("recipes", "ls", "--long")
    assert refused.returncode == 2
    assert refused.stdout == ""
    longer = bertctl("recipes", "ls", "--models", "--long").stdout
    (minilm,) = [line for line in longer.splitlines() if line.startswith("minilm ")]
    assert minilm.split()[3:] == ["6", "WordPiece,", "30,522", "tokens,", "lower-cased"]
    words = " ".join(longer.split())
    for row in MODELS.values():  # the comparison of the lectures, each line with who says so
        assert f"{row.objective} ({row.source})" in words
        assert re.search(r"arXiv:\d{4}\.\d{5}", row.source)
        assert row.layers > 0
        assert re.fullmatch("[0-9a-f]{40}|", row.revision)
    rows = json.loads(bertctl("recipes", "ls", "--models", "--json").stdout)["models"]
    assert {row["name"]: row["vocabulary"] for row in rows} == {
        row.name: row.vocabulary for row in MODELS.values()
    }


def test_ls_data_shows_labels_metric_and_published_score(bertctl):
    both = json.loads(bertctl("recipes", "ls", "--data", "--models", "--json").stdout)
    assert set(both) == {"data", "models"}
    rows = {row["name"]: row for row in both["data"]}
    assert set(rows) == set(builtin_datasets())
    assert rows["sst2"]["labels"] == ["negative", "positive"]
    assert rows["sst2"]["published"][0]["value"] == builtin_datasets()["sst2"].published[0].value
    text = bertctl("recipes", "ls", "--data").stdout
    assert "None" not in text
    assert "stsb-embeddings sentence-embeddings   as its rows are" in text
    assert "matthews" in text
    assert "accuracy 0.935 (test)" in text


@pytest.mark.parametrize("name", NAMES)
def test_each_recipe_opens_with_its_command_and_says_why(name):
    path = builtin_recipes()[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    verb = "finetune"
    if name in PROBES:
        verb = "probe"
    elif name in PRETRAINING:
        verb = "pretrain"
    assert re.match(rf"# bertctl {verb} {name}( --| \w+\.txt|$)", lines[0])
    recipe = load_recipe(name)
    assert recipe.name == name == path.stem
    assert len(recipe.description) > 100
    stated = {
        "name",
        "description",
        "task",
        "data",
        "model",
        "training",
        "optimizer",
        "evaluation",
        "probe",
        "pretraining",
        "sentence_embeddings",
        "few_shot",
    }
    assert set(yaml.safe_load("\n".join(lines))) <= stated  # nothing a machine decides


@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if name not in (*DEMOS, *PROBES, *SMALL, *PRETRAINING, *VECTORS)],
)
def test_each_recipe_is_a_point_of_the_papers_grid_and_leaves_the_test_split_alone(name):
    recipe = load_recipe(name)
    assert recipe.training.batch_size in (
        (48,) if name == "squad2" else (16, 32)
    )  # 48: the paper's, section 4.3
    assert recipe.optimizer.learning_rate in (5e-5, 3e-5, 2e-5)
    assert recipe.training.epochs in (2, 3, 4)
    assert recipe.model.name == ("bert-base-cased" if name == "conll2003" else "bert-base")
    assert not [split for split in recipe.evaluation.splits if split.startswith("test")]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_is_the_preset_on_the_data_of_its_big_brother(name):
    recipe = load_recipe(name)
    other = load_recipe(name.removesuffix("-small"))
    assert recipe.training.preset == "small-data"
    assert recipe.training.epochs == 20
    assert recipe.optimizer.learning_rate == 2e-5
    assert recipe.data == other.data
    assert recipe.model == other.model
    assert recipe.evaluation == other.evaluation
    assert recipe.training.batch_size == other.training.batch_size


@pytest.mark.parametrize(
    ("name", "epochs", "rate", "batch"),
    [("squad", 3, 5e-5, 32), ("squad2", 2, 5e-5, 48), ("swag", 3, 2e-5, 16)],
)
def test_what_the_paper_says_of_a_set_is_its_recipe(name, epochs, rate, batch):
    recipe = load_recipe(name)
    assert recipe.training.epochs == epochs
    assert recipe.optimizer.learning_rate == rate
    assert recipe.training.batch_size == batch


@pytest.mark.parametrize("name", DATA_SETS)
def test_each_data_set_recipe_fits_its_catalog_row(name):
    recipe = load_recipe(name)
    row = builtin_datasets()[name]
    assert recipe.data.name == name
    assert recipe.task == row.task
    assert set(recipe.evaluation.splits) <= set(row.split_names)


def test_only_demos_score_their_test_split_and_the_demo_says_so():
    scoring = [name for name in NAMES if "test" in load_recipe(name).evaluation.splits]
    assert set(scoring) <= set(DEMOS)
    demo = load_recipe("demo")
    assert demo.evaluation.splits == ["validation", "test"]
    assert "test split" in demo.description
    assert "leaves the paper's grid" in demo.description


def test_show_prints_a_recipe_that_reads_back_equal(bertctl, tmp_path):
    result = bertctl("recipes", "show", "mnli", "--set", "training.epochs=2")
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("# bertctl finetune mnli --set training.epochs=2\n")
    (tmp_path / "shown.yaml").write_text(result.stdout, encoding="utf-8")
    recipe = load_recipe(str(tmp_path / "shown.yaml"))
    assert recipe == load_recipe("mnli", sets=["training.epochs=2"])
    assert recipe.training.epochs == 2
    for section_field in ("warmup_fraction:", "max_grad_norm:", "keep_text:", "threshold:"):
        assert section_field in result.stdout


@pytest.mark.parametrize(
    ("file", "name"),
    [("Büro mails.csv.gz", "Büro-mails"), ("banking/train.csv", "banking"), ("banking/a.csv", "a")],
)
def test_the_recipe_of_a_task_takes_the_name_of_the_data(bertctl, tmp_path, file, name):
    document = json.loads(
        bertctl("recipes", "show", GENERIC[2], "--set", f"data.train_file={file}", "--json").stdout
    )
    assert document["name"] == name
    assert document["description"] == ""
    (tmp_path / "mine.yaml").write_text(
        f"name: {GENERIC[2]}\ndescription: My own words.\ndata: {{train_file: {file}}}"
    )
    mine = json.loads(bertctl("recipes", "show", "mine.yaml", "--json").stdout)
    assert mine["name"] == name
    assert mine["description"] == "My own words."


def test_show_as_json_holds_every_field(bertctl):
    document = json.loads(bertctl("recipes", "show", "rte", "--json").stdout)
    for dotted in fields():
        section, _, name = dotted.rpartition(".")
        assert name in (document[section] if section else document)
    assert document["model"]["max_length"] == 256


def test_show_a_file_of_ones_own_with_odd_labels(bertctl, tmp_path):
    file = tmp_path / "my recipe.yaml"
    file.write_text(
        "text_classification: {labels: [no, 'null', größe]}\ndata: {train_file: a.csv}\n",
        encoding="utf-8",
    )
    result = bertctl("recipes", "show", file.name)
    assert result.stdout.startswith("# bertctl finetune 'my recipe.yaml'\n")
    assert "labels: ['no', 'null', größe]" in result.stdout
    assert "train_file: a.csv\n" in result.stdout, "a copy beside it reads the same file"


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_runs_as_the_original_does(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = copy_recipe(name, "mine/copy.yaml")
    original = builtin_recipes()[name].read_text(encoding="utf-8")
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    assert first == re.sub(
        rf" {name}(?= --| \w+\.txt|$)", " mine/copy.yaml", original.split("\n", 1)[0]
    )
    assert rest == original.split("\n", 1)[1]
    assert check_recipe("mine/copy.yaml") is None
    assert load_recipe("mine/copy.yaml") == load_recipe(name)


def test_copy_then_validate_then_show(bertctl, tmp_path):
    (tmp_path / "folder").mkdir()
    copied = bertctl("recipes", "cp", "sst2", "folder", "--json")
    assert json.loads(copied.stdout) == {
        "recipe": "sst2",
        "path": "folder/sst2.yaml",
        "command": "bertctl finetune folder/sst2.yaml",
    }
    validated = bertctl("recipes", "validate", "folder/sst2.yaml")
    assert validated.returncode == 0
    assert validated.stdout == "folder/sst2.yaml: ok\n"
    done = bertctl("recipes", "show", "folder/sst2.yaml")
    assert done.stdout.startswith("# bertctl finetune folder/sst2.yaml\n")


def test_a_copy_whose_name_is_a_recipes_is_still_named_as_a_file(bertctl, tmp_path):
    result = bertctl("recipes", "cp", "sst2", "cola")
    assert result.stdout == "bertctl finetune ./cola\n"
    assert load_recipe(shlex.split(result.stdout)[-1].replace("./", f"{tmp_path}/")).name == "sst2"


def test_a_copy_replaces_nothing_without_overwrite(bertctl, tmp_path):
    (tmp_path / "mine.yaml").write_text("precious")
    refused = bertctl("recipes", "cp", "sst2", "mine.yaml")
    assert refused.returncode == 2
    assert "mine.yaml exists" in refused.stderr
    assert "--overwrite" in refused.stderr
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    assert bertctl("recipes", "cp", "sst2", "mine.yaml", "--overwrite").returncode == 0
    assert load_recipe(str(tmp_path / "mine.yaml")).name == "sst2"


def test_only_built_in_recipes_are_copied(bertctl, tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine")
    assert "not a built-in recipe" in bertctl("recipes", "cp", "mine.yaml", "other.yaml").stderr
    nearest = bertctl("recipes", "cp", "sst", "other.yaml")
    assert nearest.returncode == 2
    assert "did you mean sst2?" in nearest.stderr
    assert not (tmp_path / "other.yaml").exists()


def test_a_copy_to_where_nothing_can_be_written_is_unavailable(bertctl, tmp_path):
    (tmp_path / "file").write_text("")
    result = bertctl("recipes", "cp", "sst2", "file/sst2.yaml")
    assert result.returncode == 4
    assert "file/sst2.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_validate_takes_all_built_in_recipes(bertctl):
    result = bertctl("recipes", "validate", *NAMES)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [f"{name}: ok" for name in NAMES]


def test_validate_lists_every_problem_of_every_file(bertctl, tmp_path):
    (tmp_path / "a.yaml").write_text("training: {epoch: 2, seed: -1}\n")
    (tmp_path / "b.yaml").write_text("data: {name: sst-3}\nmodel: {name: bert-bse}\n")
    (tmp_path / "c.yaml").write_text("task: text-regression\ndata: {name: sst2}\n")
    result = bertctl("recipes", "validate", "a.yaml", "sst2", "b.yaml", "c.yaml", "nope.yaml")
    assert result.returncode == 2
    assert result.stdout.splitlines() == [
        "a.yaml: refused",
        "sst2: ok",
        "b.yaml: refused",
        "c.yaml: refused",
        "nope.yaml: refused",
    ]
    for sentence in (
        "4 of 5 recipes",
        "a.yaml:1: training.epoch: ",
        "a.yaml:1: training.seed: -1 ",
        "b.yaml: data.name: ",
        "'sst-3': did you mean sst2",
        "b.yaml: model.name: ",
        "'bert-bse': did you mean bert-base",
        "c.yaml: task: text-regression ",
        "'sst2' is for text-classification",
        "nope.yaml does not exist",
    ):
        assert sentence in result.stderr
    documents = json.loads(bertctl("recipes", "validate", "a.yaml", "sst2", "--json").stdout)
    assert documents["ok"] is False
    assert [(row["recipe"], row["ok"], len(row["problems"])) for row in documents["recipes"]] == [
        ("a.yaml", False, 2),
        ("sst2", True, 0),
    ]


def test_validate_takes_hub_ids_and_folders_without_looking_for_them(bertctl, tmp_path):
    (tmp_path / "a.yaml").write_text(
        "model: {name: someone/some-bert}\ndata: {train_file: not-here.csv}\n"
    )
    (tmp_path / "b.yaml").write_text("model: {name: bert-base-uncased}\n")
    assert bertctl("recipes", "validate", "a.yaml", "b.yaml").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "stt2"], 2, "recipe 'stt2': did you mean sst2?"),
        (["show", "missing.yaml"], 4, "missing.yaml does not exist"),
        (["show", "sst2", "--set", "training.epoch=2"], 2, "did you mean training.epochs?"),
        (["show", "sst2", "--set", "training.epochs=none"], 2, "training.epochs: "),
        (["show", "sst2", "--set", "training.epochs"], 2, "section.field=value"),
        (["validate"], 2, "Missing argument"),
        (["validate"], 2, "`bertctl recipes validate --help`"),
        (["validate", "missing.yaml"], 4, "missing.yaml does not exist"),
        (["validate", "missing.yaml", "gone.yaml"], 4, "gone.yaml does not exist"),
        (["ls", "--model"], 2, "--model"),
    ],
)
def test_refusals_have_their_exit_code_and_no_traceback(bertctl, arguments, code, message):
    result = bertctl("recipes", *arguments)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


HEAVY = (
    "{'torch','transformers','datasets','accelerate','evaluate','sklearn','scipy','pyarrow',"
    "'numpy','huggingface_hub'}"
)


def test_nothing_heavy_is_imported(tmp_path):
    calls = [
        ["ls"],
        ["ls", "--models"],
        ["ls", "--data"],
        ["show", "sst2", "--set", "training.epochs=2"],
        ["validate", *NAMES],
        ["cp", "sst2", "x.yaml"],
    ]
    code = (
        "import sys; from bertctl.cli.main import main; "
        f"codes = [main(['recipes', *call]) for call in {calls!r}]; loaded = {HEAVY} & "
        "set(sys.modules); "
        "sys.exit(f'imported: {loaded}' if loaded else max(codes))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr


def run_from(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`bertctl` as it is installed in `site`, without the checkout."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "bertctl", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )


def test_an_installed_package_finds_its_recipes(tmp_path):
    """The layout of a wheel.

    The folder that pyproject.toml forces into it, and a stranger's `recipes` beside it.
    """
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
        "build"
    ]
    assert build["targets"]["wheel"]["force-include"] == {"recipes": "bertctl/_recipes"}
    site = tmp_path / "site"
    shutil.copytree(
        ROOT / "bertctl", site / "bertctl", ignore=shutil.ignore_patterns("__pycache__", "_recipes")
    )
    (site / "recipes").mkdir()
    (site / "recipes" / "stranger.yaml").write_text("name: stranger")
    without = run_from(site, tmp_path / "cwd", "recipes", "ls")
    assert without.returncode == 1
    assert "built-in recipes are missing" in without.stderr
    shutil.copytree(ROOT / "recipes", site / "bertctl" / "_recipes")
    result = run_from(site, tmp_path / "cwd", "recipes", "ls", "--json")
    assert [row["name"] for row in json.loads(result.stdout)["recipes"]] == NAMES


def test_the_wheel_ships_the_recipes_and_the_templates(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; pip install hatchling")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path / "dist"),
    ]
    subprocess.run(command, capture_output=True, cwd=ROOT, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [
            name
            for name in archive.namelist()
            if re.fullmatch(r"bertctl/_recipes/[\w-]+\.yaml", name)
        ]
        assert len(names) == len(NAMES)
        templates = {
            path.relative_to(ROOT).as_posix() for path in ROOT.glob("bertctl/reporting/templates/*")
        }
        assert len(templates) == 6
        assert templates <= set(archive.namelist())
        archive.extractall(tmp_path / "site")
    result = run_from(tmp_path / "site", tmp_path / "cwd", "recipes", "validate", *NAMES)
    assert result.stdout.splitlines() == [f"{name}: ok" for name in NAMES]


def test_ls_quiet_prints_names_alone(bertctl):
    assert bertctl("recipes", "ls", "-q").stdout.splitlines() == list(builtin_recipes())
    names = bertctl("recipes", "ls", "--models", "--data", "-q").stdout.splitlines()
    assert names == [*MODELS, *builtin_datasets()]
