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
        engine: Network and optimizer.
        state: Position of the training loop.
        random: States of the random generators after the last step.
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
    """Restores a run to a checkpoint, and returns the position of the training loop.

    Weights, optimizer, learning rate, random generators and the run's files are those of the
    checkpoint afterwards.

    Args:
        checkpoint: A whole one.
        engine: Made as for a new run; changed in place.
        folder: Of the run; its model/ and history.jsonl are restored by the first process.
        seed: For the generators of processes that the checkpoint doesn't know.
        listener: Receives a warning if the run will go on otherwise than without an interruption.

    Raises:
        UnavailableError: The tensors are not this model's.
    """
    from safetensors.torch import load_file

    workers = engine.workers
    try:
        engine.loaded.set_weights(load_file(checkpoint.path / "model.safetensors"))
        if engine.word_table is not None:
            # Rows of the word table that are not trained are computed as without an interruption:
            # from the rows at the start, times the product of all weight decays since then.
            engine.word_table.go_on(checkpoint.state["unused_words_decay"])
        _restore_moments(engine, load_file(checkpoint.path / "optimizer.safetensors"))
    except (RuntimeError, KeyError) as error:
        raise UnavailableError(f"{checkpoint.path} does not fit this model: {error}") from error

    state = TrainingState(**checkpoint.state["outcome"])
    state.plan_changes = [(step, steps) for step, steps in state.plan_changes]  # lists in JSON
    for step, steps in state.plan_changes:
        change_steps(engine.schedule, at=step, steps=steps)
    _advance_schedule(engine, state.step)
    if checkpoint.state["scaler"] is not None and engine.accelerator.scaler is not None:
        engine.accelerator.scaler.load_state_dict(checkpoint.state["scaler"])
    _restore_generators(checkpoint, workers, state.step, seed=seed, listener=listener)
    if workers.is_first:
        restore_files(checkpoint, folder)
    workers.wait()
    return state


def _restore_moments(engine: TrainingEngine, moments: "Mapping[str, Tensor]") -> None:
    """Restores AdamW's moments and step counts.

    Args:
        engine: Its optimizer is changed in place.
        moments: By `parameter|key`, as `take` names them.
    """
    for name, parameter in engine.loaded.network.named_parameters():
        values_by_key = {}
        for moment_name, value in moments.items():
            parameter_name, _, key = moment_name.partition("|")
            if parameter_name == name:
                values_by_key[key] = value
        if values_by_key:
            # The fused AdamW keeps its step counts on the device of the parameters, too.
            engine.optimizer.state[parameter] = {
                key: value.to(parameter.device) for key, value in values_by_key.items()
            }


def _restore_generators(
    checkpoint: Checkpoint, workers: Workers, step: int, *, seed: int, listener: Listener
) -> None:
    """Restores the random generators of this process.

    With another number of processes than before, they are seeded anew.

    Args:
        checkpoint: Has the generators of each process that the run had.
        workers: The processes of the run now.
        step: Steps that were taken.
        seed: Of the run.
        listener: Receives a warning if the generators are seeded anew.
    """
    import torch
    from safetensors.torch import load_file

    if checkpoint.state["workers"] == workers.count:
        suffix = f".{workers.rank}"
        generators = load_file(checkpoint.path / "random.safetensors")
        set_generators(
            {
                name.removesuffix(suffix): generator
                for name, generator in generators.items()
                if name.endswith(suffix)
            }
        )
        return
    listener.warn(
        f"the run was on {checkpoint.state['workers']} processes and continues with "
        f"{workers.count}: the examples of each step are the same, dropout draws other numbers"
    )
    sequence = np.random.SeedSequence([seed, step, workers.rank])
    torch.manual_seed(int(sequence.generate_state(1)[0]))


def _advance_schedule(engine: TrainingEngine, step: int) -> None:
    """Sets the learning rates to those of a step, without stepping through all steps before it."""
    rates = move_schedule(engine.schedule, step)
    for group, rate in zip(engine.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
