"""What people type who know other programs leads to what there is here.

The table, and what is made of it.
"""

import re

import pytest

from bertctl.cli.app import VERBS
from bertctl.cli.main import main
from bertctl.config.other_names import other_names, other_value
from bertctl.config.problems import field_schema
from bertctl.config.schema import fields
from bertctl.tasks.registry import known_metrics
from bertctl.words import did_you_mean
from tests.cli.test_surface import COMMANDS

NAMES = {verb.name for verb in VERBS}


def options(command: str) -> set[str]:
    """Returns the options of a verb."""
    context = COMMANDS[command]
    return {flag for parameter in context.command.get_params(context) for flag in parameter.opts}


@pytest.mark.parametrize("section", ["verbs", "group_verbs", "options", "arguments"])
def test_commands_of_the_table_exist(section):
    """Each `bertctl VERB --option` that the table names can be typed."""
    for command in re.findall(r"bertctl [^,.`'\"]*", str(other_names(section))):
        words = command.split()[1:]
        if words[0].startswith("--") or words[0] == "VERB":
            continue
        verb = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), None)
        assert verb is not None, command
        for flag in re.findall(r" (-{1,2}[a-z-]+)", command):
            assert flag in options(verb) | {"--help"}, command


def test_no_alias_is_a_verb_or_an_option_that_exists():
    assert not NAMES & other_names("verbs").keys()
    for verb, aliases in other_names("options").items():
        assert not {f"--{name.replace('_', '-')}" for name in aliases} & options(verb), verb
    for group, aliases in other_names("group_verbs").items():
        known = {name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")}
        assert not known & aliases.keys()
        assert set(aliases.values()) <= known


def test_options_of_the_table_are_those_of_their_verb():
    for verb, aliases in other_names("options").items():
        for intended in aliases.values():
            if intended.startswith("--"):
                assert intended.split()[0] in options(verb), (verb, intended)
    for verb, intended in other_names("arguments").items():
        for flag in re.findall(r"^(-[-a-z]+)", intended):
            assert flag in options(verb), (verb, intended)


def test_values_and_metrics_of_the_table_exist():
    for field, values in other_names("values").items():
        assert field in fields()
        assert set(values.values()) <= {*field_schema(field)["enum"]}
    assert set(other_names("metrics").values()) <= {
        *known_metrics(),
        "loss",
        "f1_macro",
        "f1_micro",
        "f1_weighted",
    }


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("train a.csv", "use bertctl finetune FILE"),
        ("fit a.csv", "use bertctl finetune FILE"),
        ("Train", "use bertctl finetune FILE"),
        ("predict_proba", "use bertctl predict RUN FILE"),
        ("serve RUN", "no server is needed"),
        ("package RUN", "no export is needed"),
        ("help", "use bertctl --help"),
        ("version", "use bertctl --version"),
        ("ls", "use bertctl runs ls, or bertctl recipes ls"),
        ("models", "use bertctl recipes ls --models"),
        ("embed a.csv", "use bertctl extract-features FILE"),
        ("validate a.csv", "use bertctl data check FILE"),
        ("leaderboard", "use bertctl runs ls"),
        ("hyperopt", "use bertctl sweep FILE"),
        ("recipes list", "use bertctl recipes ls"),
        ("data validate a.csv", "use bertctl data check"),
        ("runs delete x", "use bertctl runs rm"),
        ("runs lss", "verb 'runs lss': did you mean runs ls"),
        (
            "finetune a.csv b.csv",
            "takes no further argument: b.csv; use --validation-file b.csv, or --test-file b.csv",
        ),
        ("probe a.csv b.csv", "use --validation-file b.csv"),
        ("gate RUN OTHER", "use --baseline OTHER"),
        ("finetune a.csv --target y", "use --label-column"),
        ("finetune a.csv --label y", "use --label-column"),
        ("finetune a.csv --config x.yaml", "use bertctl finetune CONFIG.yaml"),
        ("finetune a.csv --max-steps 5", "use --set training.max_steps=5"),
        ("finetune a.csv --max-steps=7", "use --set training.max_steps=7"),
        ("finetune a.csv --model_name_or_path bert", "use --model"),
        ("finetune a.csv --per_device_train_batch_size 8", "use --batch-size"),
        ("finetune a.csv --num_train_epochs 3", "use --epochs"),
        ("finetune a.csv --max_seq_length 64", "use --max-length"),
        ("finetune a.csv --train_file x", "use --train-file"),
        ("finetune a.csv --eval_dataset x", "use --validation-file"),
        ("finetune a.csv --random_state 1", "use --seed"),
        ("finetune a.csv --body_learning_rate 1", "use --learning-rate"),
        ("predict RUN --file a.csv", "use bertctl predict RUN FILE"),
        ("predict RUN --input a.csv", "use bertctl predict RUN FILE"),
        ("predict RUN a.csv --prob", "answers have their probabilities anyway"),
        ("predict RUN a.csv -k 3", "use --top-k"),
        ("explain RUN a.csv --target pos", "use --label"),
        ("evaluate RUN --input a.csv", "use --file FILE"),
        ("similarity a.csv --threshold 0.5", "use bertctl mine FILE --threshold X"),
        ("search a.index x --threshold 0.5", "unknown option --threshold: evaluate, mine have it"),
        ("predict RUN a.csv --tpo-k 3", "did you mean --top-k?"),
    ],
)
def test_a_guess_is_answered_with_what_to_type(typed, message, capsys):
    assert main(typed.split()) == 2
    stderr = capsys.readouterr().err
    assert message in stderr
    assert "--threads" not in stderr
    assert "pretrain?" not in stderr


def test_values_of_other_programs_lead_to_ours(capsys):
    assert other_value("runtime.device", "GPU") == "cuda"
    assert main(["finetune", "demo", "--device", "gpu"]) == 2
    assert "did you mean cuda?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("acc", "did you mean accuracy?"),
        ("prec", "did you mean precision?"),
        ("accurcy", "did you mean accuracy?"),
        ("ac", ""),
        ("xyz", ""),
    ],
)
def test_a_beginning_of_a_word_is_near(typed, hint):
    assert did_you_mean(typed, ["accuracy", "precision"]) == hint
