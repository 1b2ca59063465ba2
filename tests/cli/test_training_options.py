"""Training options through the real process.

Killed and resumed, in two processes, from another run, lr-find.
"""

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.nursery import Nursery
from tests.stopping import Training, difference, history_losses

CRAFT = (
    "training.average_best=3",
    "training.evaluate_every=6",
    "training.gradual_unfreezing=true",
    "training.reinit_layers=1",
    "training.class_weights=balanced",
    "training.label_smoothing=0.1",
    "optimizer.layer_decay=0.5",
)


class CraftyTraining(Training):
    """The run of tests/stopping.py, with everything switched on.

    3 epochs of 12 steps, an evaluation every 6.
    """

    def _command(
        self, run: Path, extra: tuple[object, ...], data: Path | None, task: str
    ) -> list[str]:
        extra = (*extra, "--epochs", 3, "--checkpoint-every", "10 steps")
        command = super()._command(run, extra, data, task)
        return [*command, *(word for entry in CRAFT for word in ("--set", entry))]


@pytest.fixture(scope="module")
def training(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nursery: Nursery
) -> Training:
    """A run of 36 steps, done once without a disturbance."""
    return CraftyTraining(tmp_path_factory.mktemp("crafty"), tiny_model, nursery)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_average(training: Training, tmp_path: Path) -> None:
    """Killed in the third epoch.

    What is trained by then, and which weights are averaged, come from the checkpoint.
    """
    run = tmp_path / "run"
    assert training.disturbed(run, signal.SIGKILL, after_steps=26).returncode == -signal.SIGKILL
    folder = run / "checkpoints"
    newest = max(folder.glob("step-*"))
    ranked = json.loads((newest / "state.json").read_text())["outcome"]["ranked"]
    assert len(ranked) == 3
    names = sorted(f"step-{step:08d}.safetensors" for _, step in ranked)
    assert sorted(path.name for path in (newest / "average").iterdir()) == names
    shutil.rmtree(
        folder / "average"
    )  # as if the better ones had pushed them all out before the kill
    gone_on = training.resume(run)
    assert difference(training.undisturbed, run) is None
    assert history_losses(run) == history_losses(training.undisturbed)
    assert "mean of the weights" in gone_on.stderr
    assert not folder.exists()


@pytest.mark.slow
def test_damage_to_one_of_the_averaged_files_leaves_the_checkpoint_before_whole(
    training: Training, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training.disturbed(run, signal.SIGKILL, after_steps=34)
    before, newest = sorted((run / "checkpoints").glob("step-*"))
    both = {path.name for path in (newest / "average").iterdir()} & {
        path.name for path in (before / "average").iterdir()
    }
    damaged = newest / "average" / min(both)
    with damaged.open("r+b") as file:
        file.seek(damaged.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    gone_on = training.resume(run)
    assert f"the checkpoint {newest} is not used: average/{damaged.name} " in gone_on.stderr
    assert difference(training.undisturbed, run) is None


FIELDS = [
    "--max-length",
    "32",
    "--epochs",
    "3",
    "--batch-size",
    "6",
    "--precision",
    "fp32",
    "--threads",
    "1",
]
SETS = (
    "model.dropout=0.0",
    "training.log_every=1",
    "evaluation.bootstrap_resamples=100",
    *CRAFT[:1],
    *CRAFT[2:],
)


@pytest.mark.slow
def test_two_processes_train_the_same_parts(
    bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    command = [
        "finetune",
        "text-classification",
        "--train-file",
        opinions,
        "--validation-file",
        opinions,
    ]
    command += [
        "--model",
        tiny_model,
        *FIELDS,
        *(word for entry in SETS for word in ("--set", entry)),
    ]
    command += ["--learning-rate", "5e-3"]
    alone = bertctl(*command, "-o", "alone")
    assert alone.returncode == 0, alone.stderr
    assert "unfreezing: " in alone.stderr
    assert "class weights: neg 1, pos 1" in alone.stderr
    shared = bertctl(*command, "--num-processes", "2", "-o", "shared")
    assert shared.returncode == 0, shared.stderr
    assert "reducer" not in shared.stderr, "torch's own warnings of the exchange"
    assert history_losses(tmp_path / "shared") == pytest.approx(
        history_losses(tmp_path / "alone"), abs=1e-4
    )
    averages = [
        json.loads((tmp_path / run / "metrics.json").read_text())["average"]
        for run in ("alone", "shared")
    ]
    assert averages[0]["steps"] == averages[1]["steps"] == [3, 6, 9]


def test_a_run_starts_from_another_one(
    bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """As RTE from MNLI.

    Three labels, then two; and once more with the same two, whose head is kept.
    """
    rows = opinions.read_text().splitlines()
    three = tmp_path / "three.csv"
    three.write_text("\n".join([*rows, *(f"it was the film {i},so" for i in range(6))]) + "\n")
    command = [
        "finetune",
        "text-classification",
        *FIELDS,
        "--set",
        "evaluation.bootstrap_resamples=100",
    ]

    def trained(data: Path, model: Path | str, run: str) -> str:
        done = bertctl(
            *command, "--train-file", data, "--validation-file", data, "--model", model, "-o", run
        )
        assert done.returncode == 0, done.stderr
        config = json.loads((tmp_path / run / "model" / "config.json").read_text())
        assert len(config["id2label"]) == (3 if data == three else 2)
        return done.stderr

    assert "fine-tuned before" not in trained(three, tiny_model, "mnli")
    assert "new head" in trained(opinions, "./mnli", "rte")
    assert "trained head is kept" in trained(opinions, "./rte", "again")


def test_lr_find_draws_what_it_found_and_leaves_no_run(
    bertctl: Run, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    command = [
        "lr-find",
        "text-classification",
        "--train-file",
        opinions,
        "--model",
        tiny_model,
        "--max-length",
        "32",
    ]
    command += [
        "--steps",
        "40",
        "--from",
        "1e-5",
        "--to",
        "10",
        "--precision",
        "fp32",
        "-o",
        "rates.json",
        "--json",
    ]
    done = bertctl(*command)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert json.loads((tmp_path / "rates.json").read_text()) == document
    assert document["rates"][0] == pytest.approx(1e-5)
    assert len(document["losses"]) == document["steps"] <= 40
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "rates.svg").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "opinions.csv",
        "rates.json",
        "rates.png",
        "rates.svg",
    ]
    again = bertctl(*command)
    assert again.returncode == 0
    assert "written: rates.json, rates.png, rates.svg" in again.stderr
    idle = bertctl(
        *command[:-3],
        "--from",
        "1e-12",
        "--to",
        "1e-11",
        "--batch-size",
        "4",
        "--seed",
        "3",
        "--json",
    )
    document = json.loads(idle.stdout)
    assert document["fall"] < document["noise"]
    assert "can be chance: the suggestion is a guess" in idle.stderr


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "1", "--to", "1e-3"], "from 1 to 0.001"),
        (["--from", "0"], "from 0 to 1"),
        (["--steps", "3"], "--steps 3 "),
        (["-o", "rates.txt"], "end in .json"),
    ],
)
def test_what_lr_find_can_not_do_is_refused(
    bertctl: Run, opinions: Path, arguments: list[str], message: str
) -> None:
    refused = bertctl("lr-find", "text-classification", "--train-file", opinions, *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
