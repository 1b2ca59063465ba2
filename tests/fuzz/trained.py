"""Real runs of the small model, trained once, which the fuzzer then damages.

Each task, a probe, one that was stopped.

python -m tests.fuzz.trained FOLDER
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from tests.fuzz import originals

TASKS = (*originals.TASKS, "probe")


def data_of(task: str) -> str:
    """Name of the file with a task's rows."""
    files = ("rows.csv", "scores.csv", "tags.jsonl", "questions.json", "choices.jsonl", "rows.csv")
    return dict(zip(TASKS, files, strict=True))[task]


def words(task: str, folder: Path, run: Path) -> list[str]:
    """The command that trains a run of a task on 16 rows, in `folder`."""
    data = data_of(task)
    verb = (
        ["probe", str(folder / data)]
        if task == "probe"
        else ["finetune", task, "--train-file", str(folder / data)]
    )
    sets = ["evaluation.bootstrap_resamples=100", "runtime.threads=1", "runtime.precision=fp32"]
    if task == "probe":
        more = []
    else:
        sets += ["training.log_every=1"]
        more = [
            "--epochs",
            "2",
            "--batch-size",
            "4",
            "--learning-rate",
            "5e-3",
            "--checkpoint-every",
            "2 steps",
        ]
    more += ["--validation-file", str(folder / data)]
    return [
        *verb,
        "--model",
        str(folder / "tiny"),
        "-o",
        str(run),
        "--max-length",
        "32",
        *more,
        *(word for entry in sets for word in ("--set", entry)),
    ]


def write_inputs(folder: Path) -> None:
    """Writes the model and the data of every task."""
    (folder / "tiny").mkdir(parents=True, exist_ok=True)
    for name, content in originals.model().items():
        (folder / "tiny" / name).write_bytes(content)
    for name, (_, content) in originals.data_files().items():
        (folder / name).write_bytes(content)


def train(folder: Path) -> None:
    """Trains them all; `stopped` is a run that was killed after its second checkpoint."""
    from bertctl.cli.main import main

    write_inputs(folder)
    os.chdir(folder)
    for task in TASKS:
        if code := main([*words(task, folder, folder / task), "--quiet", "--json"]):
            raise RuntimeError(f"{task}: exit code {code}")
    child = os.fork()
    if child == 0:
        _die_at_the_third_checkpoint()
        with contextlib.suppress(BaseException):
            main([*words("text-classification", folder, folder / "stopped"), "--quiet", "--json"])
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise RuntimeError("the run was not stopped")


def _die_at_the_third_checkpoint() -> None:
    made: list[str] = []

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        if (
            event == "os.rename"
            and "/checkpoints/step-" in str(arguments[1])
            and str(arguments[1])[-1].isdigit()
        ):
            made.append(str(arguments[1]))
            if len(made) == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    train(Path(sys.argv[1]))
