"""Processes that srun, accelerate or a person starts.

Their ranks, their threads, and what a lone one is told.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertctl.run_folder import RunFolder
from bertctl.runtime import device
from bertctl.runtime.accelerate_config import lone_process_warning
from bertctl.runtime.launch import Workers, is_worker, take_ranks_of_slurm
from bertctl.training.job import prepare
from bertctl.training.loop import training_engine
from tests.tiny_recipes import tiny_recipe

_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "ACCELERATE_USE_CPU",
    "ACCELERATE_MIXED_PRECISION",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.setenv(name, "")  # so that what a test leaves is taken back
        monkeypatch.delenv(name)


def _set(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("cpu", ["true", "False", "FALSE", None])
def test_accelerate_that_starts_in_process_is_told_whatever_it_says_of_cpus(
    monkeypatch: pytest.MonkeyPatch, cpu: str | None
) -> None:
    """The plain line sets ACCELERATE_USE_CPU=False."""
    _set(monkeypatch, MASTER_ADDR="127.0.0.1", ACCELERATE_MIXED_PRECISION="no")
    if cpu is not None:
        _set(monkeypatch, ACCELERATE_USE_CPU=cpu)
    assert "`accelerate launch` starts one process on CPUs" in lone_process_warning()


def test_a_meeting_place_without_a_rank_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lone_process_warning() == ""
    _set(monkeypatch, MASTER_ADDR="node1")
    assert (
        "MASTER_ADDR is set and RANK is not, so this process works alone" in lone_process_warning()
    )
    _set(monkeypatch, RANK="0", WORLD_SIZE="2")
    assert lone_process_warning() == ""


def test_ranks_of_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(
        monkeypatch,
        MASTER_ADDR="node1",
        SLURM_STEP_ID="0",
        SLURM_STEP_NUM_TASKS="4",
        SLURM_NTASKS="8",
    )
    _set(monkeypatch, SLURM_PROCID="3", SLURM_LOCALID="1")
    take_ranks_of_slurm()
    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")] == ["3", "4", "1"]
    assert is_worker()


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_PROCID": "1"},  # shards: they never meet
        {
            "MASTER_ADDR": "node1",
            "SLURM_NTASKS": "4",
            "SLURM_PROCID": "0",
        },  # the batch script itself
        {"MASTER_ADDR": "node1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        {"MASTER_ADDR": "node1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4"},
    ],
)
def test_tasks_that_do_not_meet_stay_alone(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    _set(monkeypatch, **variables)
    take_ranks_of_slurm()
    assert "RANK" not in os.environ
    assert not is_worker()


def test_what_the_person_has_set_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(
        monkeypatch,
        MASTER_ADDR="node1",
        SLURM_STEP_ID="0",
        SLURM_NTASKS="4",
        SLURM_PROCID="3",
        RANK="1",
    )
    _set(monkeypatch, WORLD_SIZE="2")
    take_ranks_of_slurm()
    assert os.environ["RANK"] == "1"
    assert os.environ["WORLD_SIZE"] == "2"


class _Others(Workers):
    """This process among others, whose values are given."""

    def __init__(self, alike: int, count: int) -> None:
        super().__init__(0, count, group=object())
        object.__setattr__(self, "alike", alike)

    def gather(self, values: Any) -> list[Any]:
        alike = [values] * self.alike
        n_others = self.count - self.alike
        others = [np.zeros_like(values)] * n_others
        return alike + others


@pytest.mark.parametrize(
    ("alike", "count", "threads"), [(4, 4, 4), (2, 4, 8), (1, 4, 16), (8, 16, 2)]
)
def test_processes_without_a_launcher_share_the_cores_of_their_machine(
    monkeypatch: pytest.MonkeyPatch, alike: int, count: int, threads: int
) -> None:
    """Eight tasks on 64 cores took 64 threads each."""
    from bertctl.config.recipe_sections import RuntimeSection

    _set(monkeypatch, RANK="0", WORLD_SIZE=str(count))
    monkeypatch.setattr(device, "_has_met_others", lambda: True)
    monkeypatch.setattr(device, "workers", lambda: _Others(alike, count))
    monkeypatch.setattr(device, "available_cores", lambda: 16)
    monkeypatch.setattr(Workers, "share", lambda _, text: text)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    assert device.choose_compute(RuntimeSection(device="cpu", precision="fp32")).threads == threads
    _set(monkeypatch, LOCAL_WORLD_SIZE="16")
    assert device.choose_compute(RuntimeSection(device="cpu", precision="fp32")).threads == 1
    assert (
        device.choose_compute(RuntimeSection(device="cpu", precision="fp32", threads=3)).threads
        == 3
    )


def test_the_threads_are_those_that_are_said(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    """Accelerate sets torch's threads in some cases.

    It does where several processes meet and OMP_NUM_THREADS is not set.
    """
    make_accelerator = training_engine._accelerator
    threads_before = torch.get_num_threads()

    def make_as_several(*given: Any) -> Any:
        torch.set_num_threads(4)
        return make_accelerator(*given)

    monkeypatch.setattr(training_engine, "_accelerator", make_as_several)
    job = prepare(tiny_recipe(tiny_model, opinions, **{"runtime.threads": 3}))
    try:
        training_engine.build_engine(job, RunFolder(tmp_path), Workers())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads_before)
