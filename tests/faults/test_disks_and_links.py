"""Full disks and planted links, for every verb that writes.

No half file, nothing outside is touched.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.faults.test_kills import JOBS, Yard, files, halves, unequal
from tests.nursery import Nursery

pytestmark = pytest.mark.slow

FULL = [
    *(
        (name, most)
        for name in ("text-classification", "probe", "sweep")
        for most in (100, 3_000, 12_000)
    ),
    *(
        (name, most)
        for name in JOBS
        if name.startswith(("features", "tokenize", "predict", "report"))
        for most in (1, 600)
    ),
    *(("export", most) for most in (1, 600, 30_000, 200_000)),
]
"""A job of test_kills.py, and how many bytes a file may have."""

IN_A_RUN = (
    ".lock",
    "history.jsonl",
    "status.json",
    "metrics.json",
    "recipe.yaml",
    "environment.json",
    "performance.json",
    "log.txt",
    "predictions/validation.jsonl",
    "model/config.json",
    "model/model.safetensors",
    "decision.json",
    "report.html",
    "predictions",
    "model",
    "checkpoints",
)
"""What a stranger has replaced by a link to a file or folder outside."""
VERBS: dict[str, tuple[str, ...]] = {
    "finetune --resume-if-any": (*JOBS["text-classification"].words, "--resume-if-any"),
    "finetune --overwrite": (*JOBS["text-classification"].words, "--overwrite"),
    "evaluate": ("evaluate", "made"),
    "evaluate --calibrate": ("evaluate", "made", "--calibrate"),
    "report": ("report", "made"),
}
LINKS = [(verb, name) for verb in VERBS for name in IN_A_RUN]
OUTPUTS = [name for name, job in JOBS.items() if "." in job.made]
"""Jobs whose output, one file, is a link."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Yard:
    return Yard(tmp_path_factory.mktemp("yard"), nursery)


@pytest.mark.parametrize(("name", "most"), FULL)
def test_a_full_disk(yard: Yard, tmp_path: Path, name: str, most: int) -> None:
    job = JOBS[name]
    whole, _, _ = yard.whole(name)
    if job.over is not None:
        (tmp_path / job.made).write_bytes(job.over)
    full = yard.run(job.words, tmp_path, disk=most)
    assert full.returncode == (4 if full.returncode else 0), full.stderr
    if full.returncode:
        assert "the disk is full" in full.stderr
        assert list(halves(tmp_path, whole, job.over)) == []
        assert [
            name
            for name in files(tmp_path)
            if name.endswith(".part") or "/." in name or name[0] == "."
        ] == []
    done = yard.run([*job.words, *job.again], tmp_path)
    assert done.returncode == 0, done.stderr
    assert unequal(tmp_path, whole) == []


@pytest.mark.parametrize(("verb", "name"), LINKS)
def test_a_link_in_a_run(yard: Yard, tmp_path: Path, verb: str, name: str) -> None:
    """The verb takes away the link, refuses it, or leaves it alone.

    What it leads to stays as it is.
    """
    whole, _, _ = yard.whole("text-classification")
    shutil.copytree(whole / "made", tmp_path / "made")
    if verb == "finetune --resume-if-any":
        status = json.loads((tmp_path / "made/status.json").read_text())
        (tmp_path / "made/status.json").write_text(json.dumps(status | {"state": "interrupted"}))
    link = tmp_path / "made" / name
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / "precious"
    if link.is_dir():
        link.rename(target)
    elif link.exists():
        shutil.copy2(link, target)
        link.unlink()
    elif name == "checkpoints":
        target.mkdir()
        (target / "thesis.txt").write_text("precious\n")
    else:
        target.write_text("precious\n")
    link.symlink_to(target)
    before = {path: path.read_bytes() for path in files(outside).values()}
    done = yard.run(VERBS[verb], tmp_path)
    assert done.returncode in (0, 2, 3, 4), done.stderr
    assert {path: path.read_bytes() for path in files(outside).values()} == before, done.stderr


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_is_a_link(yard: Yard, tmp_path: Path, name: str) -> None:
    """It is replaced itself, and so is what stands under the names that were used aside."""
    job = JOBS[name]
    whole, _, _ = yard.whole(name)
    precious = tmp_path / "precious"
    precious.write_text("precious\n")
    made = [made for made in files(whole) if "/" not in made]
    for one in made:
        for planted in (one, f".{one}.part", f".{one}.{os.getpid()}.part"):
            (tmp_path / planted).symlink_to(precious)
    done = yard.run(
        [*job.words, *(("--overwrite",) if name.startswith("features") else ())], tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert precious.read_text() == "precious\n"
    for one in made:
        assert not (tmp_path / one).is_symlink()
        assert (tmp_path / one).read_bytes() == (whole / one).read_bytes()
