"""`dump_recipe` reads back equal.

`recipe_hash` covers what decides the numbers and nothing else.
"""

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertctl.config.dump import dump_recipe, recipe_hash
from bertctl.config.field_docs import field_docs
from bertctl.config.load import load_recipe
from bertctl.config.recipe_files import builtin_recipes
from bertctl.config.schema import Recipe, fields, sections

ODD = [
    "no",
    "yes",
    "on",
    "1",
    "1.5",
    "5e-5",
    "1e3",
    "null",
    "~",
    "true",
    "0x1",
    "1:30",
    "a: b",
    "a #b",
    "#",
    "- a",
]
ODD += [
    "[x]",
    "{x}",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a",
    "'",
    '"',
    "\\",
    " a",
    "a ",
    "a\nb",
    "a\tb",
    "\x85",
    "\u2028",
]
ODD += [
    "\x00",
    "\ufeff",
    "ü",
    "日本",
    "😀",
    "=",
    "<<",
    "?",
    ":",
    ",",
    "|",
    ">",
    ">-",
    "---",
    "...",
    "a" * 300,
    "2020-01-01",
]

texts = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40
) | st.sampled_from(ODD)
fractions = st.floats(0, 1, exclude_max=True)
rates = st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False)
counts = st.integers(1, 10**6)


def maybe(strategy):
    return st.none() | strategy


@st.composite
def recipes(draw) -> Recipe:
    """Any recipe, as far as its fields agree with each other and its paths are absolute."""
    task = draw(st.sampled_from(["text-classification", "text-regression"]))
    steps = draw(st.integers(1, 8))
    separator = draw(maybe(texts))
    multi_label = True if separator else draw(maybe(st.booleans()))
    labels = draw(maybe(st.lists(texts, unique=True)))
    fields = {
        "text_classification": {
            "labels": labels,
            "multi_label": multi_label,
            "label_separator": separator,
            "threshold": draw(st.floats(0, 1, exclude_min=True, exclude_max=True)),
        },
        "text_regression": {"clip_to_training_range": draw(st.booleans())},
    }
    column = draw(texts)
    section = task.replace("-", "_")
    return Recipe.model_validate(
        {
            "name": draw(st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}\Z")),
            "description": draw(st.lists(texts).map(" ".join)),
            "task": task,
            "data": {
                "train_file": draw(
                    maybe(
                        texts.map(lambda text: "/" + text.strip("/").replace("..", "")).map(_clean)
                    )
                ),
                "text_column": column,
                "label_column": column + "x",
                "delimiter": draw(maybe(st.sampled_from("\t;,| #:'\"\\"))),
                "header": draw(maybe(st.booleans())),
                "validation_fraction": draw(st.floats(0, 1, exclude_min=True, exclude_max=True)),
            },
            "model": {
                "name": draw(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9-]{0,10}\Z")),
                "dropout": draw(maybe(fractions)),
            },
            "training": {
                "batch_size": steps * draw(counts),
                "accumulation_steps": steps,
                "patience": draw(maybe(counts)),
            },
            "optimizer": {
                "learning_rate": draw(rates),
                "beta1": draw(fractions),
                "epsilon": draw(rates),
            },
            "evaluation": {
                "splits": draw(st.lists(texts, unique=True)),
                "keep_text": draw(st.booleans()),
            },
            "runtime": {"log_to": draw(st.lists(st.sampled_from(["wandb", "mlflow"])))},
            section: fields[section],
        }
    )


def _clean(path: str) -> str:
    return str(Path(path))  # as an absolute path is written once it has been through load_recipe


def read_back(text: str) -> Recipe:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dumped.yaml"
        path.write_text(text, encoding="utf-8")
        return load_recipe(str(path))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(recipes())
def test_forty_dumped_recipes_read_back_equal(recipe):
    assert read_back(dump_recipe(recipe, command="bertctl finetune x.yaml")) == recipe


@settings(max_examples=3, deadline=None)
@given(recipes())
@example(
    Recipe.model_validate({"text_classification": {"labels": ODD}, "description": " ".join(ODD)})
)
@example(Recipe.model_validate({"description": "a  b " * 60 + "c"}))
@example(Recipe.model_validate({"description": "word " * 60}))
@example(Recipe.model_validate({"description": "# " * 90 + "x"}))
def test_a_dumped_recipe_reads_back_equal(recipe):
    assert read_back(dump_recipe(recipe, command="bertctl finetune x.yaml")) == recipe


def test_other_yaml_readers_see_the_same_values():
    recipe = Recipe.model_validate(
        {"text_classification": {"labels": ODD}, "optimizer": {"learning_rate": 5e-5}}
    )
    read = yaml.safe_load(dump_recipe(recipe, command="x"))  # YAML 1.1
    assert read["text_classification"]["labels"] == ODD
    assert read["optimizer"]["learning_rate"] == 5e-5


def test_it_opens_with_the_command_and_every_field_stands_under_its_docstring():
    lines = dump_recipe(load_recipe("sst2"), command="bertctl finetune\nsst2 -o R").splitlines()
    assert lines[0] == "# bertctl finetune sst2 -o R"
    observed = set()
    comment = []
    section = ""
    for line in lines[1:]:
        words = line.strip()
        if words.startswith("#"):
            comment.append(words.removeprefix("# "))
            continue
        key = words.partition(":")[0]
        if key in sections() and not line.startswith(" "):
            section = key
        elif key in {name.split(".")[-1] for name in fields()} and words:
            dotted = f"{section}.{key}" if line.startswith("  ") else key
            if dotted in fields():
                assert " ".join(comment) == field_docs()[dotted].text
                observed.add(dotted)
        comment = []
    others = {
        "text_regression",
        "token_classification",
        "question_answering",
        "pretraining",
        "masking",
        "probe",
    }
    others |= {"sentence_embeddings", "few_shot", "lora", "distillation"}
    assert observed == {name for name in fields() if name.split(".")[0] not in others}


@pytest.mark.parametrize("name", builtin_recipes())
def test_built_in_recipes_are_dumped_and_read_equal(name):
    recipe = load_recipe(name)
    assert read_back(dump_recipe(recipe, command=f"bertctl finetune {name}")) == recipe


def hashed(
    *sets: str, recipe: str = "sst2", data: dict[str, str] | None = None, model: str = "m"
) -> str:
    return recipe_hash(
        load_recipe(recipe, sets=sets), data_hashes=data or {"train": "1"}, model_hash=model
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "name=other",
        "description=other",
        "data.data_dir=/elsewhere",
        "model.name=./elsewhere",
        "model.revision=main",
        "runtime.log_to=[wandb]",
        "evaluation.keep_text=false",
        "evaluation.slice_columns=[a]",
        "training.log_every=3",
    ],
)
def test_what_decides_no_number_is_not_in_the_hash(arguments):
    assert hashed(arguments) == hashed()


def test_the_place_of_a_persons_own_files_is_not_in_the_hash():
    files = [f"data.{split}_file=/{split}.csv" for split in ("train", "validation", "test")]
    assert hashed(*files, recipe="text-classification") == hashed(recipe="text-classification")


@pytest.mark.parametrize(
    "arguments",
    [
        "training.epochs=2",
        "training.seed=1",
        "training.group_by_length=false",
        "optimizer.learning_rate=5.1e-5",
        "model.max_length=64",
        "runtime.threads=1",
        "runtime.precision=fp32",
        "evaluation.batch_size=8",
        "text_classification.labels=[a, b]",
    ],
)
def test_what_decides_the_numbers_is_in_the_hash(arguments):
    assert hashed(arguments) != hashed()


def test_data_and_model_are_in_the_hash_by_content():
    assert (
        len(
            {
                hashed(),
                hashed(data={"train": "2"}),
                hashed(data={"train": "1", "test": "1"}),
                hashed(model="n"),
            }
        )
        == 4
    )


def test_the_hash_does_not_depend_on_the_order_of_the_data():
    assert hashed(data={"a": "1", "b": "2"}) == hashed(data={"b": "2", "a": "1"})


def test_the_hash_is_a_sha256_that_stays_the_same():
    recipe = Recipe()
    digest = recipe_hash(recipe, data_hashes={}, model_hash="")
    assert len(bytes.fromhex(digest)) == 32
    assert digest == recipe_hash(
        Recipe.model_validate(recipe.model_dump()), data_hashes={}, model_hash=""
    )
