"""The pages, the schemas and the licence that ship with the package."""

import io
import itertools
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from email.parser import Parser
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from bertctl.cli.app import VERBS
from bertctl.cli.framework.doc_pages import FOLDER, GROUPS, OVERVIEW, load_pages
from bertctl.cli.verbs.docs import markdown
from bertctl.errors import ExitCode
from bertctl.tasks.pretraining.pretraining_answers import PretrainingAnswers
from bertctl.tasks.registry import TASKS
from bertctl.training.trackers import _OFFLINE_WITHOUT_KEY
from tests.conftest import Run
from tests.documents.generated import FILES
from tests.documents.schemas import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(FOLDER.glob("*.md"))]
TOPICS = load_pages()


def test_every_file_is_a_topic_of_a_group() -> None:
    assert {*TOPICS, OVERVIEW} == {path.stem for path in PAGES[1:]}
    assert [group for group, _ in itertools.groupby(page.group for page in TOPICS.values())] == [
        *GROUPS
    ]


def test_the_readme_leads_to_each_group() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(bertctl/docs/([\w-]+)\.md[#)]", readme))
    assert {TOPICS[name].group for name in linked & TOPICS.keys()} == {*GROUPS}
    assert len(readme.splitlines()) <= 220


def test_every_verb_has_a_page() -> None:
    counts = Counter(verb for page in TOPICS.values() for verb in page.verbs)
    assert counts.keys() == {verb.name for verb in VERBS}
    assert max(counts.values()) <= 2


@pytest.mark.in_process
def test_help_ends_with_the_pages_of_the_verb(bertctl: Run) -> None:
    for command in (("gate", "--help"), ("gate", "--help-all"), ("vocab", "--help")):
        *_, last = bertctl(*command).stdout.splitlines()
        pages = [page.name for page in TOPICS.values() if command[0] in page.verbs]
        assert last == "Read more: " + ", ".join(f"bertctl docs {page}" for page in pages)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_and_pictures_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(r"(<!-- group: .* -->\n)?# \w", text)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        linked = page.parent / file
        assert linked.is_file(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [
                re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
            ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_verbs_and_options_in_commands_exist(page: Path) -> None:
    names = {verb.name for verb in VERBS}
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|yaml)\n(.*?)```", text, re.DOTALL)
    typed = re.findall(r"^\$ .*$", text, re.MULTILINE)
    verbs = re.findall(r"\bbertctl (?:\\n)?([a-z][a-z-]+)\b", "\n".join([*blocks, *typed]))
    assert set(verbs) <= names


@pytest.mark.parametrize("page", ["bertctl/README.md", "tests/README.md"])
def test_the_maps_name_files_that_are_there(page: str) -> None:
    files = set()
    for folder in ("bertctl", "tests"):
        files |= {path.as_posix() for path in (ROOT / folder).rglob("*.py")}
    named = re.findall(r"(?<![*\w/])[\w/]+\.py\b", (ROOT / page).read_text(encoding="utf-8"))
    assert len(named) >= 7
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


def test_a_recipe_walks_through_at_most_12_files_to_the_loop() -> None:
    text = (
        (ROOT / "bertctl" / "README.md")
        .read_text(encoding="utf-8")
        .split("## The walk of a recipe")[1]
    )
    steps = re.findall(r"^\d+\. `([\w/.]+)`", text, re.MULTILINE)
    assert steps[0] == "cli/verbs/finetune.py"
    assert steps[-1] == "training/loop/loop.py"
    assert len(steps) <= 12
    assert all((ROOT / "bertctl" / step).is_file() for step in steps)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_generated_files_are_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path](), "python -m tests.documents.generated"


def test_pictures_are_small() -> None:
    pictures = list((FOLDER / "images").iterdir())
    assert sorted(path.name for path in pictures) == [
        "finetune.svg",
        "gate.svg",
        "intervals.svg",
        "report.png",
        "sweep.svg",
        "tokenize.svg",
    ]
    assert sum(path.stat().st_size for path in pictures) <= 400_000


def test_the_exit_codes_are_all_there() -> None:
    page = TOPICS["exit-codes"].text
    rows = re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
    assert {int(number) for row in rows for number in row.split(",")} == {
        int(code) for code in ExitCode
    }


def test_the_metrics_are_all_there() -> None:
    text = TOPICS["metrics"].text
    names = set()
    for task in TASKS.values():
        names |= {metric.name for metric in task.answer_type.metrics}
    names |= {metric.name for metric in PretrainingAnswers.metrics}
    assert len(names) > 30
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_the_environment_variables_are_all_there() -> None:
    """A name in capitals on a line about the environment is a variable."""
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "bertctl").rglob("*.py"))
    lines = [line for line in code.splitlines() if re.search(r"environ\b|is_set\(", line)]
    names = {
        name
        for line in lines
        for name in re.findall(r"[\"']([A-Z][A-Z0-9]*_?[A-Z0-9_]+)[\"']", line)
    }
    names |= set(re.findall(r"\"(BERTCTL_[A-Z_]+)\"", code))
    names |= {variable for entry in _OFFLINE_WITHOUT_KEY.values() for variable in entry[:2]}
    assert {"BERTCTL_CACHE", "BERTCTL_LOCKED", "AI_AGENT", "HF_HUB_OFFLINE", "RANK"} <= names
    text = TOPICS["environment"].text
    assert [name for name in sorted(names) if f"`{name}" not in text] == []


def test_the_licence_is_the_whole_text() -> None:
    text = (ROOT / "bertctl" / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert len(text.splitlines()) > 195


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_schemas_are_schemas(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


def test_the_wheel_holds_what_ships(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, capture_output=True, cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(metadata_name).decode())
    folder = metadata_name.rpartition("/")[0]
    package = ROOT / "bertctl"
    shipped = [
        path.relative_to(ROOT)
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    shipped = [
        path.as_posix() for path in shipped if not any(part.startswith(".") for part in path.parts)
    ]
    for pattern, count in (
        ("docs/*.md", len(TOPICS) + 1),
        ("docs/images/*", 6),
        ("schemas/*.json", 14),
        ("py.typed", 1),
        ("LICENSE", 1),
    ):
        assert len(list(package.glob(pattern))) == count
    assert set(shipped) <= names
    recipes = {f"bertctl/_recipes/{path.name}" for path in (ROOT / "recipes").glob("*.yaml")}
    assert len(recipes) >= 29
    assert recipes <= names
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["bertctl/LICENSE"]
    assert f"{folder}/licenses/bertctl/LICENSE" in names
    assert not {name for name in names if name.startswith("tests/")}


@pytest.mark.in_process
def test_docs_lists_shows_and_knows_what_was_meant(bertctl: Run) -> None:
    listed = bertctl("docs")
    lines = listed.stdout.splitlines()
    assert [line for line in lines if line and line[0] != " "] == list(GROUPS.values())
    assert [line.split()[0] for line in lines if line.startswith(" ")] == list(TOPICS)
    page = bertctl("docs", "pipelines")
    assert page.stdout.startswith("# Run bertctl in CI\n")
    assert "<!--" not in page.stdout
    assert json.loads(bertctl("docs", "tasks", "--json").stdout)["topic"] == "tasks"
    wrong = bertctl("docs", "pipelnes")
    assert wrong.returncode == ExitCode.USAGE
    assert "did you mean pipelines?" in wrong.stderr


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("words", "topic", "section"),
    [
        ("gate", "write-a-gate", "Write a gate"),
        ("Exit code", "pipelines", "Exit codes"),
        ("mlflow", "pipelines", "Trackers"),
        ("learning rate", "training", "More methods"),
    ],
)
def test_docs_finds_words_in_all_pages(bertctl: Run, words: str, topic: str, section: str) -> None:
    done = bertctl("docs", *words.split(), "--json")

    matches = json.loads(done.stdout)["sections"]
    sections_of_topic = [match["section"] for match in matches if match["topic"] == topic]
    assert section in sections_of_topic


@pytest.mark.in_process
def test_docs_prefers_words_side_by_side_and_finds_them_apart(bertctl: Run) -> None:
    together = json.loads(bertctl("docs", "weight", "decay", "--json").stdout)["sections"]
    assert together[0]["line"].lower().count("weight decay") > 0
    apart = json.loads(bertctl("docs", "decay", "qqqq", "weight", "--json").stdout)
    assert "sections" not in apart
    apart = json.loads(bertctl("docs", "decay", "weight", "--json").stdout)["sections"]
    assert {(one["topic"], one["section"]) for one in apart} >= {
        (one["topic"], one["section"]) for one in together
    }


@pytest.mark.in_process
def test_docs_grep_prints_each_line_with_its_place(bertctl: Run) -> None:
    done = bertctl("docs", "--grep", r"exit code (7|8)\b")
    assert done.returncode == ExitCode.OK
    lines = done.stdout.splitlines()
    assert lines
    for line in lines:
        topic, number, text = line.split(":", 2)
        assert TOPICS[topic].text.splitlines()[int(number) - 1] == text[1:]
    found = json.loads(bertctl("docs", "--grep", r"exit code (7|8)\b", "--json").stdout)["lines"]
    assert len(found) == len(lines)


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["("], "is not a regular expression"),
        (["qqqqq"], "no line of any page matches"),
        (["gate", "tasks"], "takes no topic"),
    ],
)
def test_docs_grep_refuses(bertctl: Run, words: list[str], message: str) -> None:
    refused = bertctl("docs", "--grep", *words)
    assert refused.returncode == ExitCode.USAGE
    assert message in refused.stderr


@pytest.mark.parametrize("topic", ["models", "recipes", "run-folder", "pipelines"])
def test_no_name_in_a_table_is_cut_on_a_narrow_terminal(topic: str) -> None:
    text = (FOLDER / f"{topic}.md").read_text(encoding="utf-8")
    console = Console(width=80, file=io.StringIO())
    console.print(markdown(text))
    shown = console.file.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    if topic == "models":
        for family in ("deberta", "deberta-v2", "xlm-roberta-xl"):
            assert re.search(rf"^ {family} ", shown, re.MULTILINE)


def test_docs_needs_no_torch() -> None:
    code = (
        "import sys; from bertctl.cli.main import main; code = main(['docs', 'tutorial']);"
        "print(code, sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_recipes_schema_is_the_file_that_ships(bertctl: Run) -> None:
    assert bertctl("recipes", "schema").stdout == (SCHEMAS / "recipe.json").read_text(
        encoding="utf-8"
    )
