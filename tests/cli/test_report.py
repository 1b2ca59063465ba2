"""`bertctl report` as a person types it, and the model card.

`finetune` and `evaluate` write the latter.
"""

import json
import shutil

import pytest
from huggingface_hub import ModelCard
from made_runs import classified, made_run

pytestmark = pytest.mark.in_process

WITHOUT_TORCH = """
import sys
from bertctl.cli.main import main
code = main(sys.argv[1:])
heavy = {"torch", "transformers", "datasets", "evaluate", "accelerate"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else code)
"""


@pytest.fixture
def run(tmp_path):
    return made_run(tmp_path / "run", classified(900))


@pytest.mark.parametrize(
    ("name", "start"), [("report.html", "<!DOCTYPE html>"), ("report.md", "## made")]
)
def test_the_suffix_says_the_format(bertctl, run, tmp_path, name, start):
    done = bertctl("report", run, "-o", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{name}\n"
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_without_a_file_html_goes_into_the_run_and_markdown_to_stdout(bertctl, run):
    assert bertctl("report", run).returncode == 0
    assert (run / "report.html").stat().st_size > 20_000
    done = bertctl("report", run, "--format", "md")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## made\n")
    assert "| --- |" in done.stdout


def test_pages_in_the_run_are_linked(bertctl, run, tmp_path):
    for name in ("attention.html", "javascript:alert(1) & <b>.html"):
        (run / name).write_text("<!DOCTYPE html>")
    assert bertctl("report", run).returncode == 0
    assert bertctl("report", run, "-o", "elsewhere.html").returncode == 0
    inner = (run / "report.html").read_text()
    outside = (tmp_path / "elsewhere.html").read_text()
    assert '<a href="./attention.html">' in inner
    assert f'<a href="./{run.name}/attention.html">' in outside
    assert '<a href="./javascript%3Aalert%281%29%20%26%20%3Cb%3E.html">' in inner
    assert "report.html</bdi>" not in inner
    assert "More pages" not in bertctl("report", run, "--format", "md").stdout


def test_json_says_what_was_written(bertctl, run, tmp_path):
    answer = json.loads(bertctl("report", run, "-o", "r.html", "--json").stdout)
    size = (tmp_path / "r.html").stat().st_size
    assert answer == {
        "run": str(run),
        "split": "validation",
        "format": "html",
        "bytes": size,
        "report": "r.html",
    }
    text = json.loads(bertctl("report", run, "--format", "md", "--json").stdout)["text"]
    assert text.startswith("## made\n")


def test_numbers_are_slices_by_size_and_many_of_them_ranges(bertctl, tmp_path):
    lines = classified(201)
    for number, line in enumerate(lines):
        line |= {
            "price": f"{number / 4:.2f}" if number else "",
            "stars": (number + 1) % 3,
            "shop": f"s{number % 25}",
        }
    recipe = {"evaluation": {"slice_columns": ["price", "stars", "shop"]}}
    text = bertctl(
        "report", made_run(tmp_path / "sliced", lines, recipe=recipe), "--format", "md"
    ).stdout
    text = text[text.index("### By slice") :]
    names = [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| ")]
    parts = {
        "price": ["0.25 to 10", "10 to 20", "20 to 30.25", "30.25 to 40", "40 to 50", "(missing)"],
        "stars": ["0", "1", "2"],
    }
    for column, rows in parts.items():
        start = names.index(column) + 2  # after the line below the heads
        assert names[start : start + len(rows)] == rows
    assert "5 other values" in names, "those of words stay as they are"


def test_how_many_errors(bertctl, run):
    few = bertctl("report", run, "--format", "md", "--errors", 3).stdout
    none = bertctl("report", run, "--format", "md", "--errors", 0).stdout
    rows = few[few.index("### Most confident errors") :].split("###")[1].splitlines()
    assert sum(line.startswith("| `") for line in rows) == 3
    assert "Most confident errors" not in none


def test_it_answers_without_torch(run, nursery, tmp_path):
    done = nursery.run_code(WITHOUT_TORCH, "report", run, "-o", tmp_path / "r.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message", "remedy"),
    [
        (["RUN", "-o", "report.pdf"], 2, "says no format", ".html or .md"),
        (["RUN", "--format", "pdf"], 2, "'pdf'", "'html', 'md'"),
        (["RUN", "-o", ".", "--format", "md"], 2, "is a folder", "report.md"),
        (["RUN", "--split", "test"], 2, "split 'test'", "bertctl evaluate"),
        (["RUN/metrics.json"], 2, "metrics only", "run's folder"),
        (["empty"], 4, "not a run folder", "bertctl finetune"),
        (["nowhere"], 4, "does not exist", "bertctl finetune"),
        (["."], 2, "holds 1 run;", "run"),
    ],
)
def test_a_format_split_or_folder_that_makes_no_report_is_refused_with_a_remedy(
    bertctl, run, tmp_path, arguments, code, message, remedy
):
    (tmp_path / "empty").mkdir()
    done = bertctl("report", *(word.replace("RUN", str(run)) for word in arguments))
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert remedy in done.stderr
    assert done.stdout == ""


def test_a_run_of_another_version_or_without_a_recipe_is_told_as_what_it_is(bertctl, run):
    metrics = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps({**metrics, "schema": 99}))
    done = bertctl("report", run)
    assert done.returncode == 3
    assert (
        "schema: input should be 1, 99 given (written by another bertctl than this " in done.stderr
    )
    (run / "metrics.json").write_text(json.dumps(metrics))
    (run / "recipe.yaml").unlink()
    done = bertctl("report", run)
    assert done.returncode == 2, done.stderr
    assert "a report needs the recipe and predictions too" in done.stderr


def test_an_unfinished_run_is_refused(bertctl, run):
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "state": "running"}))
    done = bertctl("report", run)
    assert done.returncode == 4
    assert "'running'" in done.stderr


def test_a_trained_run_has_a_card_that_a_later_score_is_added_to(bertctl, tiny_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_run.path, folder)
    card = ModelCard.load(folder / "model" / "README.md")
    assert {result.dataset_split for result in card.data.eval_results} == {"validation"}
    assert str(tiny_run.path) not in card.content
    assert bertctl("report", folder, "-o", tmp_path / "r.html").returncode == 0
    assert card.data.model_name == "opinions", (
        "a run is named after its data, not after the recipe of its task"
    )
    assert "\n# opinions\n" in card.content
    assert "<h1>opinions</h1>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    for text in (card.content, (tmp_path / "r.html").read_text(encoding="utf-8")):
        assert "Your own texts" not in text, "what the recipe says to those who choose it"
    done = bertctl("evaluate", folder, "--split", "test", "-q")
    assert done.returncode == 0, done.stderr
    later = ModelCard.load(folder / "model" / "README.md")
    assert {result.dataset_split for result in later.data.eval_results} == {"validation", "test"}
    answer = json.loads(
        bertctl("report", folder, "--split", "test", "-o", tmp_path / "t.html", "--json").stdout
    )
    assert answer["split"] == "test"
