"""The content of a checkpoint: copied out of the engine at one moment, and put back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import UnavailableError
from bertctl.modeling.tensors import copy_tensor
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.runtime.launch import Workers
from bertctl.runtime.seeding import generator_states, set_generators
from bertctl.runtime.torch_internals import move_schedule
from bertctl.training.checkpoints.checkpoint import Checkpoint, Snapshot, restore_files
from bertctl.training.loop.loop import TrainingState
from bertctl.training.loop.optim import change_steps
from bertctl.training.loop.training_engine import TrainingEngine

if TYPE_CHECKING:
    from torch import Tensor

RandomStates = Mapping[str, NDArray[np.uint8]]
"""Generator states by `device.process`."""


def random_states(workers: Workers) -> RandomStates:
    """Returns the states of torch's generators as `cpu.0`, `cuda.0`, `cpu.1`, ...

    All processes must call it.
    """
    states = {}
    for device, mine in generator_states().items():
        for rank, state in enumerate(workers.gather(mine.numpy())):
            states[f"{device}.{rank}"] = state
    return states


def take(engine: TrainingEngine, state: TrainingState, random: RandomStates) -> Snapshot:
    """Copies everything a checkpoint needs out of the engine.

    Args:
        engine: network and optimizer.
        state: where the loop is.
        random: the generators' states after the last step.
    """
    import torch

    moments: dict[str, Tensor] = {}
    for name, parameter in engine.loaded.network.named_parameters():
        for key, value in engine.optimizer.state.get(parameter, {}).items():
            moments[f"{name}|{key}"] = copy_tensor(torch.as_tensor(value))
    scaler = engine.accelerator.scaler
    document = {
        "schema": SCHEMA,
        "outcome": asdict(state),
        "workers": engine.workers.count,
        "scaler": None if scaler is None else scaler.state_dict(),
        "unused_words_decay": None if engine.word_table is None else engine.word_table.decay,
    }
    generators = {name: torch.from_numpy(np.array(values)) for name, values in random.items()}
    return Snapshot(engine.loaded.copy_weights(), moments, generators, document)


def restore(
    checkpoint: Checkpoint,
    engine: TrainingEngine,
    folder: RunFolder,
    *,
    seed: int,
    listener: Listener = SILENT,
) -> TrainingState:
    """Puts a run back to where a checkpoint stands.

    That is weights, optimizer, learning rate, generators, and history.

    Args:
        checkpoint: a whole one.
        engine: made as for a new run.
        folder: whose model/ and history.jsonl go back too, in the first process.
        seed: for the generators of processes that the checkpoint doesn't know.
        listener: hears where the numbers will not be those of an undisturbed run.

    Raises:
        UnavailableError: tensors that are not this model's.
    """
    import torch
    from safetensors.torch import load_file

    network = engine.loaded.network
    workers = engine.workers
    try:
        engine.loaded.set_weights(load_file(checkpoint.path / "model.safetensors"))
        if engine.word_table is not None:
            engine.word_table.go_on(checkpoint.state["unused_words_decay"])
        moments = load_file(checkpoint.path / "optimizer.safetensors")
        for name, parameter in network.named_parameters():
            mine = {
                key.partition("|")[2]: value
                for key, value in moments.items()
                if key.partition("|")[0] == name
            }
            if mine:
                # The step count stays where AdamW keeps it, on the host unless the step is fused on
                # a device.
                engine.optimizer.state[parameter] = {
                    key: value.to(parameter.device) for key, value in mine.items()
                }
    except (RuntimeError, KeyError) as error:
        raise UnavailableError(f"{checkpoint.path} does not fit this model: {error}") from error
    state = TrainingState(**checkpoint.state["outcome"])
    state.plan_changes = [(step, steps) for step, steps in state.plan_changes]
    for step, steps in state.plan_changes:
        change_steps(engine.schedule, at=step, steps=steps)
    _advance_schedule(engine, state.step)
    if checkpoint.state["scaler"] is not None and engine.accelerator.scaler is not None:
        engine.accelerator.scaler.load_state_dict(checkpoint.state["scaler"])
    generators = load_file(checkpoint.path / "random.safetensors")
    if checkpoint.state["workers"] == workers.count:
        suffix = f".{workers.rank}"
        set_generators(
            {
                name.removesuffix(suffix): state
                for name, state in generators.items()
                if name.endswith(suffix)
            }
        )
    else:
        listener.warn(
            f"the run was on {checkpoint.state['workers']} processes and continues with "
            f"{workers.count}: the examples of each step are the same, dropout draws other numbers"
        )
        torch.manual_seed(
            int(np.random.SeedSequence([seed, state.step, workers.rank]).generate_state(1)[0])
        )
    if workers.is_first:
        restore_files(checkpoint, folder)
    workers.wait()
    return state


def _advance_schedule(engine: TrainingEngine, step: int) -> None:
    """Sets the schedule to where it stands after so many steps, without stepping through them."""
    rates = move_schedule(engine.schedule, step)
    for group, rate in zip(engine.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
