"""A recipe that is written to a file to be kept runs elsewhere.

Paths are seen from that file, nothing is pinned.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertctl.config.dump import dump_recipe
from bertctl.config.load import Origin, load_recipe, trace_recipe
from bertctl.config.portable_recipes import chosen_fields, portable
from bertctl.config.presets import PRESETS
from bertctl.config.schema import Recipe


def kept(traced: tuple[Recipe, Mapping[str, Origin]], file: Path) -> dict[str, Any]:
    """Writes the chosen fields to a file, and returns what other readers of YAML find in it."""
    recipe, origins = traced
    observed = portable(recipe, origins, file.parent)
    text = dump_recipe(
        observed, command="bertctl finetune x.yaml", only=chosen_fields(observed, origins)
    )
    file.write_text(text)
    return dict(yaml.safe_load(text))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data", "recipes", "encoder"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("folder", [".", "recipes"])
@pytest.mark.parametrize(
    ("recipe", "field", "typed"),
    [
        ("text-classification", "data.train_file", "data/train.csv"),
        ("text-classification", "data.test_file", "./data/test.csv"),
        ("sst2", "data.data_dir", "data"),
        ("text-classification", "model.name", "./encoder"),
        ("pretrain", "pretraining.from_scratch", "data/size.json"),
    ],
)
def test_a_relative_path_is_seen_from_the_file(
    project: Path, folder: str, recipe: str, field: str, typed: str
) -> None:
    traced = trace_recipe(recipe, options={field: typed})
    file = project / folder / "mine.yaml"
    section, _, name = field.partition(".")
    written = kept(traced, file)[section][name]
    assert not Path(written).is_absolute()
    assert (file.parent / written).resolve() == (project / typed).resolve()
    assert load_recipe(str(file)) == traced[0]


def test_an_absolute_path_stays_one(project: Path) -> None:
    typed = str(project / "data" / "train.csv")
    traced = trace_recipe("text-classification", options={"data.train_file": typed})
    assert kept(traced, project / "mine.yaml")["data"]["train_file"] == typed


def test_absolute_and_relative_corpora_stay_what_they_were(project: Path) -> None:
    traced = trace_recipe(
        "pretrain", options={"pretraining.corpus": ["data/a.txt", "/corpora/b.txt"]}
    )
    assert kept(traced, project / "recipes" / "mine.yaml")["pretraining"]["corpus"] == [
        "../data/a.txt",
        "/corpora/b.txt",
    ]
    assert load_recipe("recipes/mine.yaml") == traced[0]


def test_paths_of_a_recipe_file_move_with_it(project: Path) -> None:
    """`recipes show recipes/team.yaml > mine.yaml`, which lies elsewhere."""
    (project / "recipes" / "team.yaml").write_text(
        "task: text-classification\ndata: {train_file: ../data/t.csv}\n"
    )
    written = kept(trace_recipe("recipes/team.yaml"), project / "mine.yaml")
    assert written["data"]["train_file"] == "data/t.csv"
    assert load_recipe("mine.yaml") == load_recipe("recipes/team.yaml")


def test_a_name_stays_a_name(project: Path) -> None:
    names = {"model.name": "someone/their-bert"}
    assert (
        kept(trace_recipe("sst2", options=names), project / "mine.yaml")["model"]["name"]
        == "someone/their-bert"
    )


def test_places_of_this_machine_are_left_out(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTCTL_DATA", str(project / "data"))
    assert "data_dir" not in kept(trace_recipe("sst2"), project / "mine.yaml")["data"]
    assert load_recipe("mine.yaml") == load_recipe("sst2")


@pytest.mark.parametrize("sets", [[], ["runtime.device=cpu", "runtime.threads=3"]])
def test_only_what_was_chosen_is_written(project: Path, sets: list[str]) -> None:
    traced = trace_recipe(
        "text-classification", sets=sets, options={"data.train_file": "data/reviews.csv"}
    )
    written = kept(traced, project / "mine.yaml")
    assert written.get("runtime", {}) == ({"device": "cpu", "threads": 3} if sets else {})
    assert written["name"] == "reviews"
    assert {"checkpoints", "runtime" if not sets else "sweep", "sweep"}.isdisjoint(written)
    assert load_recipe("mine.yaml") == traced[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_reads_back_equal(project: Path, preset: str) -> None:
    traced = trace_recipe("rte", sets=[f"training.preset={preset}", "training.epochs=2"])
    kept(traced, project / "mine.yaml")
    assert load_recipe("mine.yaml") == traced[0]


def test_the_file_that_stdout_goes_to_is_known(tmp_path: Path) -> None:
    script = (
        "import sys; from bertctl.cli.framework.streams import stdout_file; print(stdout_file())"
    )
    target = tmp_path / "mine.yaml"
    with target.open("w") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True)
    is_known = Path("/proc/self/fd/1").exists()
    assert target.read_text().strip() == (str(target) if is_known else "None")
    piped = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert piped.stdout.strip() == "None"
