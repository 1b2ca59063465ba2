"""JSON documents of every kind of folder, with their values taken out or replaced.

Never a bug (exit 1).
"""

import copy
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from made_runs import classified, made_run
from made_sweeps import RATES, made_sweep

from tests.conftest import Run, TinyRun

MISSING = object()

REPLACEMENTS: tuple[Any, ...] = (
    MISSING,
    None,
    True,
    -1,
    0.5,
    10**30,
    float("nan"),
    float("inf"),
    "",
    "evil",
    [],
    [[]],
    {},
    {"evil": 1},
)

STEP = 27
"""Every 27th alteration is tried: all of a run's by all of its verbs would be 39,000 commands.

No multiple of the number of replacements, so that each of them is tried in turn.
"""


class Folder(NamedTuple):
    """A kind of folder.

    Attributes:
        path: a sound one.
        documents: JSON in it, of one object per file.
        verbs: commands that read it; {folder} stands for an altered copy, {sound} for the sound
            one.
    """

    path: Path
    documents: tuple[str, ...]
    verbs: tuple[tuple[str, ...], ...]


def altered(document: Any, replacements: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yields copies of a document in which one value is another, and what was done.

    Of lists the first counts.
    """
    for path in paths_of(document):
        for replacement in replacements:
            changed = copy.deepcopy(document)
            parent = changed
            for key in path[:-1]:
                parent = parent[key]
            if replacement is MISSING:
                del parent[path[-1]]
            elif json.dumps(parent[path[-1]]) == json.dumps(replacement):
                continue
            else:
                parent[path[-1]] = replacement
            name = "gone" if replacement is MISSING else repr(replacement)
            yield f"{'.'.join(map(str, path))}: {name}", changed


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key in [*value][:40]:
            yield (*path, key)
            yield from paths_of(value[key], (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, 0)
        yield from paths_of(value[0], (*path, 0))


Make = Callable[[Run, Path, TinyRun, Path], Folder]


def make_index(bertctl: Run, place: Path, run: TinyRun, model: Path) -> Folder:
    (place / "texts.txt").write_text("good film\nbad food\n")
    made = bertctl("index", "texts.txt", "-o", "index", "--model", model, cwd=place)
    assert made.returncode == 0, made.stderr
    texts = str(place / "texts.txt")
    verbs = (
        ("search", "{folder}", "a film"),
        ("index", texts, "-o", "{folder}", "--append"),
        ("index", texts, "-o", "{folder}", "--append", "--resume"),
        ("index", texts, "-o", "{folder}", "--resume"),
    )
    return Folder(place / "index", ("index.json",), verbs)


def make_probe(bertctl: Run, place: Path, run: TinyRun, model: Path) -> Folder:
    made = bertctl(
        "probe", run.data, "--model", model, "--max-length", 32, "-o", "probe", cwd=place
    )
    assert made.returncode == 0, made.stderr
    verbs = (
        ("predict", "{folder}", str(run.data), "--text-column", "text"),
        ("inspect", "{folder}"),
        ("report", "{folder}", "-o", "report.html"),
        ("gate", "{folder}", "--min", "accuracy=0.1"),
    )
    return Folder(place / "probe", documents_in(place / "probe"), verbs)


def make_features(bertctl: Run, place: Path, run: TinyRun, model: Path) -> Folder:
    (place / "features").mkdir()
    made = bertctl(
        "extract-features",
        run.data,
        "-o",
        "features/texts.npz",
        "--model",
        model,
        "--max-length",
        32,
        cwd=place,
    )
    assert made.returncode == 0, made.stderr
    verbs = (
        (
            "extract-features",
            str(run.data),
            "-o",
            "{folder}/texts.npz",
            "--model",
            str(model),
            "--max-length",
            "32",
            "--resume",
        ),
    )
    return Folder(place / "features", documents_in(place / "features"), verbs)


def make_run(bertctl: Run, place: Path, run: TinyRun, model: Path) -> Folder:
    shutil.copytree(run.path, place / "run")
    verbs = (
        ("report", "{folder}", "-o", "report.html"),
        ("gate", "{folder}", "--min", "accuracy=0.1"),
        ("compare", "{folder}", "{sound}"),
        ("runs", "ls", "{folder}"),
        ("predict", "{folder}", str(run.data), "--text-column", "text"),
        ("evaluate", "{folder}"),
        ("explain", "{folder}", "a good film"),
        ("inspect", "{folder}"),
    )
    return Folder(place / "run", documents_in(place / "run"), verbs)


def make_made_run(bertctl: Run, place: Path, run: TinyRun, model: Path) -> Folder:
    made_run(place / "run", classified(20))
    verbs = (
        ("report", "{folder}", "-o", "report.html"),
        ("gate", "{folder}", "--min", "accuracy=0.1"),
        ("compare", "{folder}", "{sound}"),
        ("runs", "ls", "{folder}"),
    )
    return Folder(place / "run", documents_in(place / "run"), verbs)


def make_sweep(bertctl: Run, place: Path, run: TinyRun, model: Path) -> Folder:
    made_sweep(place / "sweep", RATES, (0.7, 0.8, 0.9))
    verbs = (
        ("report", "{folder}", "-o", "report.html"),
        ("runs", "ls", "{folder}"),
        ("gate", "{folder}", "--min", "accuracy=0.1"),
        ("compare", "{folder}", "{sound}"),
        ("sweep-merge", "{folder}"),
    )
    return Folder(place / "sweep", documents_in(place / "sweep"), verbs)


KINDS: dict[str, Make] = {
    "index": make_index,
    "probe": make_probe,
    "features": make_features,
    "run": make_run,
    "made run": make_made_run,
    "sweep": make_sweep,
}


def documents_in(folder: Path) -> tuple[str, ...]:
    """Returns the JSON documents of a folder; of a sweep's cells those of the first."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json"))
    cells = sorted({name.split("/")[1] for name in names if name.startswith("cells/")})
    left_out = tuple(f"cells/{cell}/" for cell in cells[1:])
    return tuple(
        name
        for name in names
        if not name.startswith(left_out) and not name.endswith("tokenizer.json")
    )


def bugs_of(
    bertctl: Run, folder: Folder, place: Path, replacements: tuple[Any, ...], *, step: int = 1
) -> list[str]:
    """Returns the commands that ended as a bug.

    Args:
        bertctl: Runs a command.
        folder: Whose documents are altered.
        place: For the altered copies.
        replacements: What comes in place of each value.
        step: Every so many alterations one is tried, by each verb another one.
    """
    bugs = []
    for first, verb in enumerate(folder.verbs):
        for name in folder.documents:
            document = json.loads((folder.path / name).read_bytes())
            alterations = altered(document, replacements)
            for change, changed in itertools.islice(alterations, first, None, step):
                copied = place / "copy"
                shutil.rmtree(copied, ignore_errors=True)
                shutil.copytree(folder.path, copied)
                (copied / name).write_text(json.dumps(changed))
                words = [word.format(folder=copied, sound=folder.path) for word in verb]
                done = bertctl(*words, cwd=place)
                if done.returncode == 1 or "Traceback" in done.stderr:
                    bugs.append(f"{verb[0]} with {name}, {change}: {done.stderr[-300:]}")
    return bugs


@pytest.mark.slow
@pytest.mark.in_process
@pytest.mark.parametrize("kind", KINDS)
def test_no_altered_document_is_a_bug(
    kind: str, bertctl: Run, tmp_path: Path, tiny_run: TinyRun, tiny_model: Path
) -> None:
    (tmp_path / "made").mkdir()
    folder = KINDS[kind](bertctl, tmp_path / "made", tiny_run, tiny_model)

    bugs = bugs_of(bertctl, folder, tmp_path, REPLACEMENTS, step=STEP)

    assert bugs == []


@pytest.mark.in_process
def test_metrics_without_one_of_their_keys_are_no_bug(
    bertctl: Run, tmp_path: Path, tiny_run: TinyRun, tiny_model: Path
) -> None:
    (tmp_path / "made").mkdir()
    folder = make_made_run(bertctl, tmp_path / "made", tiny_run, tiny_model)
    gated = folder._replace(verbs=(folder.verbs[1],), documents=("metrics.json",))

    bugs = bugs_of(bertctl, gated, tmp_path, (MISSING,))

    assert bugs == []
