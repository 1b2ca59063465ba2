"""What is fuzzed: for each reader, right inputs and the commands that read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.hostile_models import HOSTILE
from tests.fuzz import originals, trained
from tests.fuzz.found import FOUND
from tests.fuzz.originals import Tree, read_tree
from tests.fuzz.places import Place


@dataclass(frozen=True)
class Target:
    """One kind of input.

    Attributes:
        name: of the target.
        share: how often it comes, beside the others.
        tree: relative name -> content of a folder with right inputs.
        damaged: the files of the tree of which one is damaged; empty where the tree is wrong as it
            is.
        commands: of `bertctl`, of which one is drawn; `{here}` is the folder, `{file}` what was
            damaged, `{trained}` the folder of trained.py.
        all_commands: whether every command is run, one after another, not one that is drawn.
        as_folder: whether a file may become a folder, a link, a pipe, or go missing too.
    """

    name: str
    share: int
    tree: Mapping[str, Place]
    damaged: Sequence[str]
    commands: Sequence[tuple[str, ...]]
    all_commands: bool = False
    as_folder: bool = False


def _under(folder: str, tree: Tree) -> Tree:
    return {f"{folder}/{name}": content for name, content in tree.items()}


def light(_: Path | None = None) -> tuple[Target, ...]:
    """Readers that need no torch, and so no time."""
    tiny = _under("tiny", originals.model())
    model = {name: content for name, content in tiny.items() if not name.endswith("safetensors")}
    rows = originals.as_table(originals.rows("text-classification"))
    texts = {"rows.csv": rows, "few.txt": b"the film was fine\nnot bad, it was\n"}
    results = [
        Target(
            "recipe",
            14,
            {"mine.yaml": originals.RECIPE, "rows.csv": rows},
            ["mine.yaml"],
            [("recipes", "validate", "{here}/mine.yaml"), ("recipes", "show", "{here}/mine.yaml")],
        ),
        Target(
            "data sets",
            8,
            {
                "mine.yaml": (
                    b"task: text-classification\n"
                    b"data: {name: mine, data_dir: .}\n"
                    b"model: {name: tiny/}\n"
                ),
                "datasets.yaml": originals.DATASETS,
                "rows.csv": rows,
                **model,
            },
            ["datasets.yaml"],
            [("recipes", "validate", "{here}/mine.yaml")],
        ),
        Target(
            "grid",
            2,
            {"mine.yaml": originals.RECIPE, "grid.yaml": originals.GRID, "rows.csv": rows, **tiny},
            ["grid.yaml"],
            [
                (
                    "sweep",
                    "{here}/mine.yaml",
                    "--grid",
                    "{here}/grid.yaml",
                    "--dry-run",
                    "-o",
                    "{here}/sweep",
                )
            ],
        ),
        Target(
            "tokenizer",
            10,
            {**model, **texts},
            [*model],
            [
                ("tokenize", "the film", "--model", "{here}/tiny"),
                ("tokenize", "--file", "{here}/few.txt", "--model", "{file}", "--format", "ids"),
                ("vocab", "stats", "{here}/tiny"),
                ("vocab", "search", "fi*", "{file}"),
                ("vocab", "diff", "{here}/tiny", "{file}"),
            ],
        ),
        Target(
            "merge",
            3,
            {**_under("one", originals.sweep()), **_under("other", originals.sweep())},
            [
                f"one/{name}"
                for name in originals.sweep()
                if name == "plan.json" or name.startswith("cells/00000000")
            ],
            [("sweep-merge", "{here}/one", "{here}/other", "-o", "{here}/whole")],
        ),
    ]
    results += [
        _read(name, task, content, model)
        for name, (task, content) in originals.data_files().items()
    ]
    for task in originals.TASKS:
        tree = {**_under("run", originals.run(task)), **_under("base", originals.run(task))}
        primary = originals.TASKS[task][1]
        damaged = [f"run/{name}" for name in originals.run(task) if name.count("/") < 2]
        commands = [
            ("gate", "{here}/run", "--min", f"{primary}=0.5", "--junit", "{here}/junit.xml"),
            (
                "gate",
                "{here}/run",
                "--baseline",
                "{here}/base",
                "--max-drop",
                f"{primary}=0.1",
                "--json",
            ),
            (
                "gate",
                "{here}/base",
                "--baseline",
                "{here}/run",
                "--min-slice",
                f"source=a:{primary}=0.1",
            ),
            ("compare", "{here}/run", "{here}/base"),
            ("compare", "{here}/base", "{here}/run", "--json"),
        ]
        results.append(Target(f"run of {task}", 8, tree, damaged, commands, as_folder=True))
        report = [
            ("report", "{here}/run", "--format", "md"),
            ("report", "{here}/run", "-o", "{here}/page.md"),
        ]
        results.append(Target(f"report of {task}", 2, tree, damaged, report, as_folder=True))
    costly = ("merge",)  # a second each
    return tuple(
        entry if entry.name in costly else replace(entry, share=20 * entry.share)
        for entry in results
    )


def quick(_: Path | None = None) -> tuple[Target, ...]:
    """The same, the cheap ones more often: a few milliseconds each."""
    cheap = ("recipe", "data sets", "run of")
    return tuple(
        replace(entry, share=150 if entry.name.startswith(cheap) else entry.share // 3)
        for entry in light()
    )


def _read(name: str, task: str, content: bytes, model: Tree) -> Target:
    commands = [("data", "check", "{file}", "--task", task, "--model", "{here}/tiny")]
    if task == "text-classification":
        commands.append(
            (
                "tokenize",
                "--file",
                "{file}",
                "--model",
                "{here}/tiny",
                "--format",
                "ids",
                "-o",
                "{here}/ids",
            )
        )
        commands.append(("vocab", "coverage", "{file}", "--model", "{here}/tiny"))
    return Target(f"rows in {name}", 3, {name: content, **model}, [name], commands)


_FINETUNE = (
    "--epochs",
    "1",
    "--batch-size",
    "8",
    "--max-length",
    "16",
    "--set",
    "evaluation.bootstrap_resamples=100",
)


def models(_: Path | None = None) -> tuple[Target, ...]:
    """The hostile models, each through five verbs."""
    rows = {
        "rows.csv": originals.as_table(originals.rows("text-classification")),
        "few.txt": b"the film was fine\n",
    }
    tiny = originals.model()
    commands = [
        (
            "tokenize",
            "the film was aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa fine",
            "--model",
            "{here}/model",
        ),
        ("vocab", "stats", "{here}/model"),
        ("data", "check", "{here}/rows.csv", "--model", "{here}/model"),
        (
            "extract-features",
            "{here}/few.txt",
            "--model",
            "{here}/model",
            "-o",
            "{here}/v.npy",
            "--max-length",
            "16",
        ),
        (
            "finetune",
            "text-classification",
            "--train-file",
            "{here}/rows.csv",
            "--model",
            "{here}/model",
            "-o",
            "{here}/run",
            *_FINETUNE,
        ),
    ]
    return tuple(
        Target(
            name,
            0,
            {**rows, **_under("model", {**tiny, **different})},
            (),
            commands,
            all_commands=True,
        )
        for name, different in HOSTILE.items()
    )


def runs(folder: Path | None) -> tuple[Target, ...]:
    """Real runs, each damaged folder through seven verbs."""
    assert folder is not None
    results = []
    for task in (*trained.TASKS, "stopped"):
        run = read_tree(folder / task)
        base = read_tree(folder / ("text-classification" if task == "stopped" else task))
        tree = {
            **_under("run", run),
            **_under("base", {name: base[name] for name in base if "model/" not in name}),
        }
        file = trained.data_of("text-classification" if task == "stopped" else task)
        resume = trained.words(
            "text-classification" if task == "stopped" else task,
            Path("{trained}"),
            Path("{here}/run"),
        )
        commands = [
            (
                "gate",
                "{here}/run",
                "--baseline",
                "{here}/base",
                "--max-drop",
                "loss=1",
                "--policy",
                "point",
            ),
            ("compare", "{here}/run", "{here}/base"),
            ("report", "{here}/run", "-o", "{here}/page.md"),
            ("predict", "{here}/run", f"{{trained}}/{file}", "-o", "{here}/answers.jsonl"),
            ("evaluate", "{here}/run"),
            (
                "extract-features",
                "{here}/base/few.txt",
                "--model",
                "{here}/run",
                "-o",
                "{here}/v.npy",
                "--max-length",
                "32",
            ),
            (*resume, *(("--resume",) if resume[0] == "finetune" else ("--overwrite",))),
        ]
        tree["base/few.txt"] = b"the film was fine\n"
        damaged = [f"run/{name}" for name in run]
        share = 3 if task == "stopped" else 1
        results.append(
            Target(
                f"trained {task}", share, tree, damaged, commands, all_commands=True, as_folder=True
            )
        )
    return tuple(results)


def found(_: Path | None = None) -> tuple[Target, ...]:
    """What found.py keeps, as it is, through every command of its target."""
    targets: dict[str, Target] = {}
    for target in light():
        for name in target.damaged:
            by_name = (
                f"{target.name} {name.removeprefix('run/')}"
                if len(target.damaged) > 1
                else target.name
            )
            targets[by_name] = replace(target, damaged=(name,))
    made = []
    for by_name, content in FOUND:
        target = targets[by_name]
        [name] = target.damaged
        report = (
            targets[by_name.replace("run of", "report of")]
            if by_name.startswith("run of")
            else None
        )
        commands = [*target.commands, *(report.commands if report else ())]
        words = [
            tuple(word.replace("{file}", f"{{here}}/{name}") for word in command)
            for command in commands
        ]
        made.append(
            Target(by_name, 0, {**target.tree, name: content}, (), words, all_commands=True)
        )
    return tuple(made)


KINDS: Mapping[str, Callable[[Path | None], tuple[Target, ...]]] = {
    "light": light,
    "quick": quick,
    "models": models,
    "runs": runs,
    "found": found,
}
"""The tables, by name; `runs` is made from the folder of what was trained."""
