"""`load_recipe`: which source wins, and what is refused, all at once."""

from pathlib import Path

import pytest

from bertctl.config import task_names as task_names_module
from bertctl.config.field_docs import field_docs
from bertctl.config.load import load_recipe, read_field
from bertctl.config.other_names import other_names
from bertctl.config.problems import RecipeError, field_schema
from bertctl.config.recipe_files import builtin_recipes, find_recipe
from bertctl.config.schema import Recipe, fields, recipe_schema
from bertctl.config.task_names import PRETRAINING, add_task_name, task_names
from bertctl.errors import ExitCode, UnavailableError, UsageError
from bertctl.tasks.registry import TASKS


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "mine.yaml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def problems(path: str, **more: object) -> list[str]:
    """The sentences of a refusal, each without the folder of the file."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, **more)
    assert caught.value.exit_code == ExitCode.USAGE
    folder = f"{Path(path).parent}/"
    assert all(sentence in caught.value.message for sentence in caught.value.problems)
    return [sentence.replace(folder, "") for sentence in caught.value.problems]


def assert_told(actual: list[str], *expected: tuple[str, ...]) -> None:
    """Each sentence begins with its place and names all that is to be known there.

    The wording is free.
    """
    assert len(actual) == len(expected)
    for sentence, (place, *facts) in zip(actual, expected, strict=True):
        assert sentence.startswith(place)
        for fact in facts:
            assert fact in sentence.removeprefix(place)


def test_nearest_source_wins(write):
    path = write(
        "training: {epochs: 2, batch_size: 16, seed: 1}\noptimizer: {learning_rate: 2.0e-5}\n"
    )
    recipe = load_recipe(
        path, sets=["training.batch_size=8", "training.seed=2"], options={"training.seed": 3}
    )
    assert recipe.training.seed == 3  # option over --set over file
    assert recipe.training.batch_size == 8  # --set over file
    assert recipe.training.epochs == 2  # file over default
    assert recipe.optimizer.learning_rate == 2e-5
    assert recipe.training.log_every == Recipe().training.log_every  # default


def test_an_option_of_none_was_not_given(write):
    assert (
        load_recipe(
            write("training: {epochs: 2}"), options={"training.epochs": None}
        ).training.epochs
        == 2
    )


def test_the_last_of_two_sets_wins(write):
    recipe = load_recipe(
        write("task: text-classification"), sets=["training.epochs=2", "training.epochs=4"]
    )
    assert recipe.training.epochs == 4


def test_an_option_for_no_field_is_a_bug_of_the_caller(write):
    with pytest.raises(KeyError):
        load_recipe(write("task: text-classification"), options={"training.epoch": 1})


def test_everything_wrong_in_file_and_sets_is_said_at_once_in_order(write):
    path = write(
        "learning_rate: 3e-5\n"
        "training:\n"
        "  epoch: 2\n"
        "  batch_size: '16'\n"
        "  seed: -1\n"
        "runtime: {precision: bf61, log_to: wandb}\n"
        "text_classification: {labels: [true, 3]}\n"
    )
    assert_told(
        problems(
            path, sets=["training.epochs=x", "evaluation.splts=[test]", "nonsense", "model=minilm"]
        ),
        ("mine.yaml:1: learning_rate: ", "optimizer.learning_rate"),
        ("mine.yaml:3: training.epoch: ", "training.epochs"),
        (
            "mine.yaml:4: training.batch_size: ",
            '"16"',
            "whole number",
            "at least 1",
            "without quotes",
        ),
        ("mine.yaml:5: training.seed: ", "-1", "at least 0", "at most 4294967295"),
        (
            "mine.yaml:6: runtime.precision: ",
            '"bf61"',
            "auto, fp32, bf16 or fp16",
            "did you mean bf16?",
        ),
        (
            "mine.yaml:6: runtime.log_to: ",
            '"wandb"',
            "tensorboard, mlflow, wandb, trackio, aim, clearml, comet_ml, dvclive or swanlab",
            "write [wandb]",
        ),
        ("mine.yaml:7: text_classification.labels[0]: ", "true", 'in quotes: "true"'),
        ("mine.yaml:7: text_classification.labels[1]: ", "3", 'in quotes: "3"'),
        ("--set: evaluation.splts: ", "evaluation.splits"),
        ("--set: ", "'nonsense'", "training.epochs=2"),
        ("--set: model: ", "section", "model.name"),
        ("--set: training.epochs: ", '"x"', "whole number", "at least 1"),
    )


def test_one_problem_is_one_line(write):
    path = write("training:\n  epoch: 2\n")
    with pytest.raises(UsageError) as caught:
        load_recipe(path)
    assert caught.value.message.startswith(f"{path}:2: training.epoch: ")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("arguments", "intended"),
    [
        ("training: {epoch: 1}", "training.epochs"),
        ("training: {batch-size: 1}", "training.batch_size"),
        ("training: {learning_rate: 1}", "optimizer.learning_rate"),
        ("optimizer: {lerning_rate: 1}", "optimizer.learning_rate"),
        ("model: {seed: 1}", "training.seed"),
        ("epochs: 1", "training.epochs"),
        ("batch_size: 1", "training.batch_size or evaluation.batch_size"),
        ("trainin: {}", "training"),
        ("text-classification: {}", "text_classification"),
        ("data: {max_seq_length: 1}", "model.max_length"),
        ("num_train_epochs: 1", "training.epochs"),
        ("optimizer: {lr: 1}", "optimizer.learning_rate"),
    ],
)
def test_the_right_field_is_named_in_whatever_section_it_is(write, arguments, intended):
    (sentence,) = problems(write(arguments))
    assert sentence.endswith(f"did you mean {intended}?")


def test_a_key_like_nothing_gets_no_guess(write):
    (sentence,) = problems(write("qwertz: 1"))
    assert sentence.startswith("mine.yaml:1: qwertz: ")
    assert "did you mean" not in sentence


def test_every_foreign_name_leads_to_a_field_or_an_option_that_exists():
    options = {
        "--output",
        "--overwrite",
        "--resume",
        "--num-processes",
        "--top-k",
        "--quiet",
        "--format",
    }
    ours = {
        name.partition("=")[0]
        for name in other_names("names").values()
        if not name.startswith("bertctl ")
    }
    assert ours <= {*fields(), *options, "base", "environment"}


@pytest.mark.parametrize("number", ["5e-5", "5E-5", "5.0e-05", "0.00005", ".5e-4", "+5e-5"])
def test_every_way_to_write_a_rate_is_a_number(write, number):
    assert (
        load_recipe(write(f"optimizer: {{learning_rate: {number}}}")).optimizer.learning_rate
        == 5e-5
    )
    assert (
        load_recipe("sst2", sets=[f"optimizer.learning_rate={number}"]).optimizer.learning_rate
        == 5e-5
    )


def test_a_whole_number_is_a_number_but_not_the_other_way_round(write):
    rate = load_recipe(write("optimizer: {learning_rate: 5}")).optimizer.learning_rate
    assert rate == 5.0
    assert isinstance(rate, float)
    assert_told(
        problems(write("training: {epochs: 3.0}")),
        ("mine.yaml:1: training.epochs: ", "3.0", "whole number"),
    )


@pytest.mark.parametrize(
    "word", ["no", "yes", "on", "off", "n", "y", "No", "ON", "1:30", "1_000", "0x10", "2020-01-01"]
)
def test_only_true_and_false_are_booleans_and_only_decimals_are_numbers(write, word):
    recipe = load_recipe(write(f"text_classification: {{labels: [{word}, other]}}"))
    assert recipe.text_classification.labels == [word, "other"]
    issues = problems(write(f"evaluation: {{keep_text: {word}}}"))
    assert_told(issues, ("mine.yaml:1: evaluation.keep_text: ", f'"{word}"', "true or false"))


def test_true_and_false_are_booleans(write):
    assert load_recipe(write("evaluation: {keep_text: false}")).evaluation.keep_text is False
    assert load_recipe(write("training: {group_by_length: True}")).training.group_by_length is True


def test_a_number_is_not_a_boolean_and_a_boolean_is_no_number(write):
    assert (
        len(
            problems(
                write(
                    "evaluation: {keep_text: 1}\ntraining: {epochs: true}\noptimizer: {beta1: "
                    "false}"
                )
            )
        )
        == 3
    )


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "0", "-1e-5", "1e999"])
def test_a_rate_must_be_a_finite_number_above_zero(write, value):
    (sentence,) = problems(write(f"optimizer: {{learning_rate: {value}}}"))
    assert sentence.startswith("mine.yaml:1: optimizer.learning_rate: ")
    assert "above 0" in sentence


def test_keys_given_twice_are_refused_with_both_lines(write):
    path = write("training:\n  epochs: 2\n  seed: 1\n  epochs: 3\ndata: {}\ntraining: {}\n")
    assert_told(
        problems(path),
        ("mine.yaml:4: training.epochs: ", "twice", "line 2"),
        ("mine.yaml:6: training: ", "twice", "line 1"),
    )


@pytest.mark.parametrize(
    ("text", "where", "subject"),
    [
        ("training:\n\tepochs: 1", "mine.yaml:2", "column 1"),
        ("name: x\ntraining: {epochs: 1", "mine.yaml:2", "not YAML"),
        ("name: x\n---\nname: y", "mine.yaml:2", "single document"),
        ("name: \x07", "mine.yaml:1", "character '\\x07'"),
        ("- name", "mine.yaml:1", "a list found"),
        ("just words", "mine.yaml:1", "single value"),
        ("", "mine.yaml:1", "nothing found"),
        ("# only a comment", "mine.yaml:1", "nothing found"),
        ("name: !!python/object:os.system x", "mine.yaml:1", "tag"),
        ("evaluation:\n  splits: &a [x]\n  slice_columns: *a", "mine.yaml:3", "alias *a"),
        ("[" * 5000, "mine.yaml:1", "nested"),
        ("? [a]\n: 1", "mine.yaml:1", "key"),
    ],
)
def test_what_is_no_recipe_is_refused_with_its_line(write, text, where, subject):
    (sentence,) = problems(write(text))
    assert sentence.startswith(f"{where}: ")
    assert subject in sentence


def test_problems_of_the_sets_are_said_with_a_syntax_error_too(write):
    issues = problems(write("training: {"), sets=["training.epoch=1", "data.data_dir=x"])
    assert len(issues) == 2  # data_dir without a name is no problem while the file can't be read
    assert issues[1].startswith("--set: training.epoch")


def test_bytes_that_are_not_utf8_are_refused_with_line_and_byte(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"name: x\ndescription: caf\xe9\n")
    with pytest.raises(UsageError, match=r"mine.yaml:2: byte 0xe9 is not UTF-8"):
        load_recipe(str(tmp_path / "mine.yaml"))


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xef\xbb\xbfname: x\r\ntraining:\r\n  epochs: 2\r\n")
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert recipe.name == "x"
    assert recipe.training.epochs == 2


def test_a_section_with_nothing_in_it_is_all_defaults(write):
    assert load_recipe(write("name: recipe\ntraining:\n  # epochs: 2\n")) == Recipe()


@pytest.mark.parametrize(
    ("file", "name"),
    [("my data (v2).yaml", "my-data-v2"), ("größe.yml", "größe"), ("a.b.yaml", "a.b")],
)
def test_a_recipe_without_a_name_is_named_after_its_file(write, file, name):
    assert load_recipe(write("task: text-classification", file)).name == name


def test_a_name_that_is_no_folder_name_is_refused(write):
    (sentence,) = problems(write("name: ../elsewhere"))
    assert sentence.startswith("mine.yaml:1: name: ")
    assert "`.`, `_` and `-`" in sentence


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        (
            "training: {batch_size: 32, accumulation_steps: 3}",
            "training.accumulation_steps",
            ("3", "training.batch_size 32"),
        ),
        ("data: {name: sst2, train_file: a.csv}", "data.train_file", ("data.name 'sst2'",)),
        ("data: {data_dir: d}", "data.data_dir", ("data.name", "data.train_file")),
        (
            "data: {text_column: a, label_column: a}",
            "data.label_column",
            ("same column", "data.text_column"),
        ),
        ("data: {encoding: utf-9}", "data.encoding", ("'utf-9'", "utf-8 or latin-1")),
        ("text_classification: {labels: [b, a, b]}", "text_classification.labels", ("twice: b",)),
        (
            "text_classification: {label_separator: '|', multi_label: false}",
            "text_classification.label_separator",
            ("text_classification.multi_label is false",),
        ),
        (
            "text_regression: {clip_to_training_range: true}",
            "text_regression.clip_to_training_range",
            ("'text-regression'", "'text-classification'"),
        ),
    ],
)
def test_fields_that_contradict_each_other_are_refused(write, text, field, message):
    assert_told(problems(write(text)), (f"mine.yaml:1: {field}: ", *message))


@pytest.mark.parametrize("field", ["pooling", "strengths"])
def test_a_probe_of_nothing_is_refused(write, field):
    assert_told(
        problems(write(f"probe: {{{field}: []}}")),
        (f"mine.yaml:1: probe.{field}: ", "a list of at least 1 ("),
    )
    (sentence,) = problems(write(f"probe: {{{field}: ''}}"))
    assert "write []" not in sentence


def test_another_tasks_section_at_its_defaults_is_no_contradiction(write):
    assert (
        load_recipe(write("text_regression: {clip_to_training_range: false}")).task
        == "text-classification"
    )


def test_contradictions_are_said_together_with_wrong_values(write):
    issues = problems(write("training: {batch_size: 32, accumulation_steps: 3, epochs: 0}"))
    assert [sentence.split(": ")[1] for sentence in issues] == [
        "training.epochs",
        "training.accumulation_steps",
    ]


def test_a_wrong_value_is_not_also_called_a_contradiction(write):
    issues = problems(
        write("training: {batch_size: many, accumulation_steps: 5}")
    )  # the default 32 would clash
    assert_told(issues, ("mine.yaml:1: training.batch_size: ", '"many"'))


def test_an_option_that_contradicts_the_file_is_laid_at_the_options_door(write):
    issues = problems("sst2", options={"data.train_file": "a.csv"})
    assert_told(issues, ("command line: data.train_file: ", "data.name 'sst2'"))


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("data.label_column=5", "5"),
        ("data.label_column=true", "true"),
        ("data.label_column='5'", "5"),
        ('data.label_column="a\\tb"', "a\tb"),
        ("data.label_column=a: b", "a: b"),
        ("data.label_column=a #b", "a #b"),
        ("data.label_column=#", "#"),
        ("data.label_column=[x", "[x"),
        ("data.label_column= padded ", "padded"),
        ("data.label_column=a=b", "a=b"),
        ("data.label_column=null", None),
        ("data.label_column=", None),
    ],
)
def test_a_text_after_set_needs_no_quotes(arguments, value):
    assert load_recipe("text-classification", sets=[arguments]).data.label_column == value


def test_sets_take_lists_booleans_and_null():
    sets = [
        "text_classification.labels=[no, yes]",
        "data.header=false",
        "runtime.threads=null",
        'data.delimiter="\\t"',
    ]
    recipe = load_recipe("text-classification", sets=sets)
    assert recipe.text_classification.labels == ["no", "yes"]
    assert recipe.data.header is False
    assert recipe.runtime.threads is None
    assert recipe.data.delimiter == "\t"


def test_paths_in_a_file_are_relative_to_the_file_and_typed_ones_to_the_folder_one_is_in(
    tmp_path, monkeypatch
):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "here").mkdir()
    file = tmp_path / "recipes" / "mine.yaml"
    file.write_text(
        "data: {train_file: a.csv, validation_file: ../b.csv, test_file: /c.csv}\nmodel: {name: "
        "./model}\n"
    )
    monkeypatch.chdir(tmp_path / "here")
    recipe = load_recipe("../recipes/mine.yaml")
    assert recipe.data.train_file == str(tmp_path / "recipes" / "a.csv")
    assert recipe.data.validation_file == str(tmp_path / "b.csv")
    assert recipe.data.test_file == "/c.csv"
    assert recipe.model.name == str(tmp_path / "recipes" / "model")
    typed = load_recipe(
        "../recipes/mine.yaml",
        sets=["data.validation_file=v.csv", "evaluation.metric_scripts=[m.py]"],
        options={"data.train_file": Path("t.csv"), "model.name": "minilm"},
    )
    assert typed.data.train_file == str(tmp_path / "here" / "t.csv")
    assert typed.data.validation_file == str(tmp_path / "here" / "v.csv")
    assert typed.evaluation.metric_scripts == [str(tmp_path / "here" / "m.py")]
    assert typed.model.name == "minilm"


def test_a_model_with_a_slash_is_a_folder_only_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub = "google-bert/bert-base-uncased"
    assert load_recipe("sst2", options={"model.name": hub}).model.name == hub
    (tmp_path / "runs" / "r").mkdir(parents=True)
    assert load_recipe("sst2", options={"model.name": "runs/r"}).model.name == str(
        tmp_path / "runs" / "r"
    )


def test_the_home_folder_is_written_out(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert (
        load_recipe("sst2", options={"data.data_dir": "~/glue"}).data.data_dir == "/somewhere/glue"
    )


def test_bertctl_data_stands_in_for_a_data_dir_that_was_not_given(tmp_path, monkeypatch, write):
    monkeypatch.setenv("BERTCTL_DATA", str(tmp_path))
    assert load_recipe("sst2").data.data_dir == str(tmp_path)
    assert load_recipe("sst2", options={"data.data_dir": "/glue"}).data.data_dir == "/glue"
    assert load_recipe("text-classification").data.data_dir is None  # no data set is named
    assert load_recipe(write("name: x"), sets=["data.name=sst2"]).data.data_dir == str(tmp_path)


def test_a_built_in_name_is_not_shadowed_by_a_file_but_a_path_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sst2").write_text("name: mine")
    assert load_recipe("sst2").name == "sst2"
    assert load_recipe("./sst2").name == "mine"
    (tmp_path / "other").write_text("name: other")
    assert load_recipe("other").name == "other"


def test_an_unknown_name_shows_the_nearest_and_where_the_others_are():
    with pytest.raises(UsageError, match=r"recipe 'sst-2': .*sst2") as caught:
        find_recipe("sst-2")
    assert "`bertctl recipes ls`" in caught.value.remedy
    assert all(name in caught.value.remedy for name in builtin_recipes())


@pytest.mark.parametrize("path", ["nowhere.yaml", "./nowhere", "/no/where.yml"])
def test_a_path_to_nothing_is_unavailable(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnavailableError, match="does not exist"):
        load_recipe(path)


def test_a_run_folder_is_pointed_to_its_recipe(tmp_path):
    (tmp_path / "recipe.yaml").write_text("name: x")
    with pytest.raises(UsageError, match="is a folder") as caught:
        load_recipe(str(tmp_path))
    assert str(tmp_path / "recipe.yaml") in caught.value.remedy


def test_an_empty_name_is_no_recipe():
    with pytest.raises(UsageError, match="recipe ''"):
        load_recipe("")


def test_every_field_and_section_says_what_it_is():
    for dotted in fields():
        text = field_docs()[dotted].text
        assert len(text) > 15
        assert "\n" not in text
        assert text.endswith(".")


def test_the_first_sentence_of_a_field_is_short_and_whole():
    summaries = {dotted: doc.help_text.partition("\n\n")[0] for dotted, doc in field_docs().items()}
    assert summaries["optimizer.warmup_fraction"].endswith("rises from 0 to its peak.")
    message = "Seed of the new head and of dropout alone. Default: `training.seed`."
    assert summaries["training.init_seed"] == message
    assert summaries.keys() == fields().keys()
    for dotted, summary in summaries.items():
        assert 10 < len(summary) <= 150, dotted
        assert summary.count("(") == summary.count(")"), dotted
        assert not summary.endswith("et al."), dotted


def test_choices_read_from_the_source_are_those_of_the_schema():
    assert list(field_docs()) == list(fields())
    for dotted, doc in field_docs().items():
        schema = field_schema(dotted)
        words = schema.get("enum") or schema.get("items", {}).get("enum") or schema.get("or", ())
        assert doc.choices == tuple(map(str, words)), dotted


def test_a_removed_field_is_read_over_at_its_default_and_refused_otherwise(tmp_path):
    path = tmp_path / "saved.yaml"
    text = "task: question-answering\nquestion_answering:\n  n_best: 5\n  derive_unanswerable: {}\n"
    path.write_text(text.format("0.0"))
    assert load_recipe(str(path)).question_answering.n_best == 5
    path.write_text(text.format("0.5"))
    with pytest.raises(RecipeError, match=r"derive_unanswerable: .* gone"):
        load_recipe(str(path))


def test_a_recipe_may_name_every_registered_task_and_no_other(monkeypatch):
    assert task_names() == (*TASKS, PRETRAINING)
    with pytest.raises(ValueError, match=r"task 'text-clasification': .*text-classification"):
        Recipe(task="text-clasification")
    monkeypatch.setattr(task_names_module, "_NAMES", list(task_names()))
    add_task_name("toy-task")
    assert Recipe(task="toy-task").task == "toy-task"
    _, sentences = read_field("task", "nothing")
    assert "pretraining or toy-task" in sentences[0]


def test_the_json_schema_has_every_field_with_its_documentation():
    schema = recipe_schema()
    for dotted in fields():
        section, _, name = dotted.rpartition(".")
        properties = schema["properties"]
        if section:
            properties = schema["$defs"][properties[section]["$ref"].rpartition("/")[2]][
                "properties"
            ]
        assert properties[name]["description"] == field_docs()[dotted].text
    assert schema["properties"]["task"]["enum"] == [*TASKS, PRETRAINING]
    assert schema["additionalProperties"] is False


def test_epochs_that_are_given_nearer_count_more_than_steps(tmp_path: Path) -> None:
    few = tmp_path / "few.yaml"
    few.write_text("base: sst2\ntraining:\n  max_steps: 7\n")
    assert load_recipe(str(few)).training.max_steps == 7
    assert load_recipe(str(few), options={"training.epochs": 2}).training.max_steps is None
    assert load_recipe(str(few), sets=["training.epochs=2"]).training.max_steps is None
    assert (
        load_recipe(
            str(few), options={"training.epochs": 2, "training.max_steps": 5}
        ).training.max_steps
        == 5
    )
    both = tmp_path / "both.yaml"
    both.write_text("base: few.yaml\ntraining:\n  epochs: 4\n")
    assert load_recipe(str(both)).training.max_steps is None
    both.write_text("base: sst2\ntraining:\n  epochs: 4\n  max_steps: 5\n")
    assert load_recipe(str(both)).training.max_steps == 5


def test_a_size_is_a_size_whatever_folder_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "mine.json").write_text("{}")
    recipes = [
        load_recipe("pretrain", options={"pretraining.from_scratch": name})
        for name in ("tiny", "mine.json")
    ]
    assert [recipe.pretraining.from_scratch for recipe in recipes] == [
        "tiny",
        str(tmp_path / "mine.json"),
    ]
