"""`bertctl distill` by the real process: a run like any other, beside its teacher."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import TinyRun
from tests.documents.schemas import check
from tests.nursery import Nursery


def test_a_student_is_an_ordinary_run_and_is_compared_with_its_teacher(
    tiny_run: TinyRun, nursery: Nursery, tmp_path: Path
) -> None:
    arguments = ["distill", tiny_run.path, "--layers", "1", "--alpha", "0.2"]
    environment = {**nursery.env, "BERTCTL_CACHE": str(tmp_path / "cache")}
    result = nursery.run(
        [*arguments, "--epochs", "1", "-o", "student", "--json"], cwd=tmp_path, env=environment
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    comparison = document["distillation"]
    assert comparison["metric"] == "accuracy"
    assert comparison["student"]["parameters"] < comparison["teacher"]["parameters"]
    assert comparison["student"]["rows_per_second"] > 0
    assert comparison["difference"]["low"] <= comparison["difference"]["high"]
    recipe = (tmp_path / "student" / "recipe.yaml").read_text(encoding="utf-8")
    assert "alpha: 0.2" in recipe
    again = nursery.run(["evaluate", "student"], cwd=tmp_path, env=environment)
    assert again.returncode == 0, again.stderr


def test_the_report_shows_teacher_student_and_the_same_student_without_a_teacher(
    tiny_run: TinyRun, nursery: Nursery, tmp_path: Path
) -> None:
    environment = {**nursery.env, "BERTCTL_CACHE": str(tmp_path / "cache")}
    arguments = ["distill", tiny_run.path, "--layers", "1", "--epochs", "1", "--compare-plain"]

    result = nursery.run([*arguments, "-o", "student", "--json"], cwd=tmp_path, env=environment)
    report = nursery.run(["report", "student", "--format", "md"], cwd=tmp_path, env=environment)

    assert result.returncode == 0, result.stderr
    comparison = json.loads(result.stdout)["distillation"]
    assert comparison["plain"]["parameters"] == comparison["student"]["parameters"]
    assert comparison["student"]["low"] <= comparison["student"]["score"]
    assert "p" in comparison["plain_difference"]
    assert (tmp_path / "student-plain" / "metrics.json").exists()
    assert "distillation:" not in (tmp_path / "student-plain" / "recipe.yaml").read_text("utf-8")
    written = json.loads((tmp_path / "student" / "distillation.json").read_text("utf-8"))
    check("distillation", written, "student")
    assert written == comparison
    assert "student without a teacher" in report.stdout
    assert "of its teacher's accuracy" in report.stdout


def test_several_numbers_of_layers_train_several_students_and_draw_them(
    tiny_run: TinyRun, nursery: Nursery, tmp_path: Path
) -> None:
    environment = {**nursery.env, "BERTCTL_CACHE": str(tmp_path / "cache")}
    arguments = ["distill", tiny_run.path, "--layers", "1,2", "--epochs", "1", "-o", "students"]

    result = nursery.run([*arguments, "--json"], cwd=tmp_path, env=environment)
    again = nursery.run([*arguments, "--resume-if-any"], cwd=tmp_path, env=environment)
    refused = nursery.run(arguments, cwd=tmp_path, env=environment)

    assert result.returncode == 0, result.stderr
    students = json.loads(result.stdout)["students"]
    assert [student["layers"] for student in students] == [1, 2]
    assert students[0]["teacher"] == students[1]["teacher"]
    assert students[0]["student"]["parameters"] < students[1]["student"]["parameters"]
    assert (tmp_path / "students" / "students.png").read_bytes().startswith(b"\x89PNG")
    assert "2 layers" in (tmp_path / "students" / "students.svg").read_text("utf-8")
    assert again.returncode == 0, again.stderr
    assert "it is finished already" in again.stderr
    assert "Next: bertctl predict students/layers-2 FILE" in again.stderr
    assert refused.returncode == 2, refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere", "--layers", "1"], 4, "the run nowhere does not exist"),
        (["RUN"], 2, "--layers 3"),
        (["RUN", "--layers", "1", "--model", "minilm"], 2, "Give one of them"),
        (["RUN", "--layers", "7"], 2, "has 2"),
        (["RUN", "--layers", "1,7"], 2, "has 2"),
        (["RUN", "--layers", "one"], 2, "whole numbers fit"),
        (["RUN", "--layers", "1,1"], 2, "each once"),
        (["RUN", "--layers", "1,2", "--dry-run"], 2, "--layers N"),
        (["RUN", "--layers", "1,2", "--num-processes", "2"], 2, "--num-processes"),
        (["RUN", "--layers", "1", "--alpha", "-0.1"], 2, "distillation.alpha"),
        (["RUN", "--layers", "1", "--temperature", "0"], 2, "distillation.temperature"),
        (["RUN", "--layers", "1", "--unlabelled", "no.txt"], 4, "no.txt does not exist"),
    ],
)
def test_what_no_student_can_be_is_refused(
    arguments: list[str],
    code: int,
    words: str,
    tiny_run: TinyRun,
    nursery: Nursery,
    tmp_path: Path,
) -> None:
    typed = [str(tiny_run.path) if word == "RUN" else word for word in arguments]
    result = nursery.run(["distill", *typed, "-o", "student"], cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    assert not (tmp_path / "student").exists()


def test_a_student_is_refused_before_torch_is_imported(tiny_run: TinyRun, nursery: Nursery) -> None:
    code = """
import sys
from pathlib import Path
from bertctl.errors import UsageError
from bertctl.jobs.distill import student_options
try:
    student_options(Path(sys.argv[1]), layers=7, model=None)
except UsageError as error:
    assert "has 2" in error.message
    assert "torch" not in sys.modules
    sys.exit(9)
"""
    result = nursery.run_code(code, tiny_run.path, cwd=tiny_run.path)
    assert result.returncode == 9, result.stderr


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("distillation.unlabelled", "no.txt", "does not exist"),
        ("distillation.relation_heads", "7", "don't divide"),
        ("distillation.relation_layer", "9", "has 2 layers"),
        ("distillation.teacher", "nowhere/run", "does not exist"),
    ],
)
def test_recipes_of_students_are_refused_before_torch_is_imported(
    field: str, value: str, words: str, tiny_run: TinyRun, nursery: Nursery
) -> None:
    code = """
import sys
from bertctl.config.load import load_recipe
from bertctl.errors import BertctlError
from bertctl.training.job import prepare
run, field, value, words = sys.argv[1:]
sets = ["distillation.teacher=" + run, "distillation.relations=1", field + "=" + value]
try:
    prepare(load_recipe(run + "/recipe.yaml", sets=sets))
except BertctlError as error:
    assert words in error.message, error.message
    assert "torch" not in sys.modules
    sys.exit(9)
"""
    arguments = (tiny_run.path, field, value, words)
    result = nursery.run_code(code, *arguments, cwd=tiny_run.path)
    assert result.returncode == 9, result.stderr


OTHER_LABELS = "text,label\n" + "".join(f"film {i},{'abc'[i % 3]}\n" for i in range(12))
REFUSED: dict[str, tuple[list[str], int, str]] = {
    "rank 0": (["lora.rank=0"], 2, "lora.rank"),
    "rank that is no number": (["lora.rank=many"], 2, "lora.rank"),
    "LoRA on a frozen encoder": (
        ["lora.rank=2", "training.freeze_layers=2"],
        2,
        "nothing to adapt",
    ),
    "LoRA on layers of another family": (["lora.rank=2", "lora.targets=[q_proj]"], 2, "q_proj"),
    "LoRA for few labels": (["lora.rank=2", "few_shot.loss=cosine"], 2, "few-shot"),
    "layers that are not there": (["model.keep_layers=[1,7]"], 2, "model.keep_layers"),
    "layers out of order": (["model.keep_layers=[2,1]"], 2, "model.keep_layers"),
    "no teacher": (["distillation.alpha=0.2"], 2, "only with distillation.teacher"),
    "a missing teacher": (["distillation.teacher=nowhere"], 4, "nowhere does not exist"),
    "other labels": (["distillation.teacher=RUN", "data.train_file=other.csv"], 2, "'a', 'b', 'c'"),
    "another tokenizer with relations": (
        ["distillation.teacher=RUN", "distillation.relations=1", "model.name=other-model"],
        2,
        "relations compare the same tokens",
    ),
    "relation heads that do not divide": (
        ["distillation.teacher=RUN", "distillation.relations=1", "distillation.relation_heads=7"],
        2,
        "don't divide",
    ),
    "relations without a teacher": (["distillation.relations=1"], 2, "distillation.teacher"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_made_smaller_ends_with_its_exit_code_before_torch_is_imported(
    name: str, tiny_run: TinyRun, tiny_model: Path, nursery: Nursery, tmp_path: Path
) -> None:
    sets, exit_code, words = REFUSED[name]
    (tmp_path / "other.csv").write_text(OTHER_LABELS, encoding="utf-8")
    other = shutil.copytree(tiny_model, tmp_path / "other-model")
    tokenizer = other / "tokenizer.json"
    words_of_other = tokenizer.read_text("utf-8").replace('"film"', '"movie"')
    tokenizer.write_text(words_of_other, encoding="utf-8")
    code = """
import sys
from bertctl.cli.main import main
code = main()
assert "torch" not in sys.modules
sys.exit(code)
"""
    options = ["--max-length", "32", "-o", "run"]
    common = [f"data.train_file={tiny_run.data}", f"model.name={tiny_model}"]
    for entry in [*common, *sets]:
        options += ["--set", entry.replace("RUN", str(tiny_run.path))]

    done = nursery.run_code(code, "finetune", "text-classification", *options, cwd=tmp_path)

    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr
    assert not (tmp_path / "run").exists()
