"""What a training step is computed with: network, optimizer and schedule.

They are as accelerate puts them on their devices.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.documents import loading
from bertctl.errors import DeviceError, UnavailableError
from bertctl.inference.engine import Backend, TorchBackend
from bertctl.modeling.fast.training_attention import use_fp32_attention
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.accelerate_config import check_environment
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.runtime.seeding import WindowRandom
from bertctl.runtime.threads import set_threads
from bertctl.training.accelerate_internals import forget_accelerator
from bertctl.training.loop.layer_freezing import Unfreezing
from bertctl.training.loop.optim import build_optimizer, build_schedule
from bertctl.training.loop.step_graphs import StepGraphs
from bertctl.training.trackers import stdout_kept

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from bertctl.modeling.fast.used_tokens import UsedRows
    from bertctl.modeling.model import Model
    from bertctl.tasks.base import TaskObjective
    from bertctl.training.job import Job

_SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_OF_ONE_PROCESS = {"LOCAL_RANK": -1, **dict.fromkeys(_SIZES, 1)}
"""By what clusters, notebooks and mpirun leave in these, accelerate would have a process that is
alone meet others."""


@dataclass(frozen=True)
class TrainingEngine:
    """What a training step is computed with.

    Attributes:
        loaded: model and tokenizer as they were loaded.
        network: the model, perhaps wrapped.
        optimizer: its optimizer, perhaps wrapped.
        schedule: of the learning rate.
        accelerator: does devices, wrapping, precision and backward.
        objective: what is minimised.
        compute: device and precision.
        max_grad_norm: the gradient's norm is clipped to this.
        workers: the processes that share the job.
        begin_epoch: called with the number of each epoch (from 0) before it is trained, or gone on
            with.
        word_table: of the network, where only the rows of the tokens that are used are trained.
        graphs: start a GPU's passes at once; None where they are started one by one.
    """

    loaded: "Model"
    network: "nn.Module"
    optimizer: "Optimizer"
    schedule: "LRScheduler"
    accelerator: "Accelerator"
    objective: "TaskObjective"
    compute: Compute
    max_grad_norm: float
    workers: Workers = ALONE
    begin_epoch: Callable[[int], None] | None = None
    word_table: "UsedRows | None" = None
    graphs: StepGraphs | None = None

    @cached_property
    def backend(self) -> Backend:
        """Wrapped network's forward pass."""
        return TorchBackend(self.network, self.loaded.has_segments, self.compute)


def build_engine(
    job: "Job", folder: RunFolder, workers: Workers, listener: Listener = SILENT
) -> TrainingEngine:
    """Moves and wraps the network, and makes its optimizer and schedule.

    Args:
        job: made ready; its network is moved.
        folder: trackers write into it, in the first process.
        workers: the processes that share the job; dropout draws other numbers in each.
        listener: Receives the progress of a teacher that answers the training rows.

    Raises:
        UsageError: see `check_environment`.
        DeviceError: accelerate would not exchange gradients among the workers.
    """
    import torch
    from accelerate.utils import patch_environment

    from bertctl.modeling.fast.inference_attention import use_batched_attention
    from bertctl.modeling.fast.packed_encoder import use_packed_encoder
    from bertctl.modeling.fast.used_tokens import train_used_rows

    check_environment()
    objective = job.objective_with_teacher(listener)
    network = job.loaded.network
    settings: dict[str, int | str]
    if workers.count == 1:
        # Clusters and notebooks leave variables that would make accelerate wait for others.
        settings = {**_OF_ONE_PROCESS}
    else:
        # Without this variable, accelerate takes all cores for the threads of each process, and
        # warns.
        settings = {"OMP_NUM_THREADS": str(job.compute.threads)}
    with patch_environment(**settings):
        accelerator = _accelerator(job, folder, workers)
    # Another job, made ready after this one, may have set another number of threads.
    set_threads(job.compute.threads)
    if accelerator.num_processes != workers.count:
        message = (
            f"{workers.count} processes share this job, and accelerate sees "
            f"{accelerator.num_processes}"
        )
        raise DeviceError(
            message, remedy="Start them with `num_processes=`, torchrun or `accelerate launch`."
        )
    if workers.rank:
        # Dropout draws other numbers in each process.
        sequence = np.random.SeedSequence([job.recipe.training.seed_of_init, workers.rank])
        torch.manual_seed(int(sequence.generate_state(1)[0]))

    # The packed encoder reads weights and calls no layer whose vectors could be compared.
    has_relations = job.recipe.distillation.relations > 0
    if has_relations or not use_packed_encoder(network, job.compute):
        use_fp32_attention(network, job.compute)
    use_batched_attention(network, job.compute)  # in evaluations, as the finished run will use it

    word_table = train_used_rows(network, job.used_tokens)
    optimizer = build_optimizer(network, job.recipe.optimizer)
    if word_table is not None:
        # Rows of tokens that no training text has are not in the optimizer. They get its weight
        # decay all the same.
        word_table.follow(optimizer)
    if job.recipe.training.gradual_unfreezing:
        unfreezing = Unfreezing(network)
    else:
        unfreezing = None
    wrapped, optimizer = accelerator.prepare(network, optimizer)
    if _is_recordable(job, workers):
        graphs = StepGraphs([*network.parameters()])
    else:
        graphs = None
    return TrainingEngine(
        loaded=job.loaded,
        network=wrapped,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, job.recipe.optimizer, steps=job.steps),
        accelerator=accelerator,
        objective=objective,
        compute=job.compute,
        max_grad_norm=job.recipe.optimizer.max_grad_norm,
        workers=workers,
        begin_epoch=unfreezing,
        word_table=word_table,
        graphs=graphs,
    )


def _is_recordable(job: "Job", workers: Workers) -> bool:
    """Returns whether the passes of a step can be recorded as CUDA graphs.

    They can if each batch of a shape runs the same kernels, and the CPU waits for none of them.

    Networks of transformers and class weights make the CPU wait, but bertctl's own `Network` does
    not. The scaler of fp16 and gradual unfreezing change what is computed. The exchange of
    gradients, and a teacher that computes in each step, can't be recorded.
    """
    from bertctl.modeling.fast.torch_bert import Network

    training = job.recipe.training
    compute = job.compute
    varies = (
        workers.count > 1
        or compute.precision == "fp16"
        or training.gradual_unfreezing
        or training.class_weights
        or job.recipe.distillation.relations > 0
    )
    is_requested = compute.device == "cuda" and job.recipe.runtime.cuda_graphs
    return is_requested and not varies and isinstance(job.loaded.network, Network)


def _accelerator(job: "Job", folder: RunFolder, workers: Workers) -> "Accelerator":
    """Returns the run's accelerator, its trackers started by the first process.

    Raises:
        UnavailableError: A tracker can't be started.
    """
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin

    forget_accelerator()  # an earlier run of this process may have had another precision
    if workers.is_first:
        trackers = list(job.recipe.runtime.log_to)
    else:
        trackers = []
    handlers = []
    if workers.count > 1:
        handlers.append(
            DistributedDataParallelKwargs(
                find_unused_parameters=_has_unused_parameters(job),
                # Gradients are views of the buckets that are exchanged, so that none is copied
                # (MiniLM in bf16, 2 processes: 11 % faster).
                gradient_as_bucket_view=True,
            )
        )
    accelerator = Accelerator(
        mixed_precision={"fp32": "no"}.get(job.compute.precision, job.compute.precision),
        cpu=job.compute.device == "cpu",
        log_with=trackers or None,
        project_dir=folder.path / "trackers" if trackers else None,
        kwargs_handlers=handlers,
        # The training loop accumulates gradients itself. Otherwise, Accelerate would also divide
        # by the `gradient_accumulation_steps` of the user's Accelerate configuration.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
    )
    if trackers:
        (folder.path / "trackers").mkdir(exist_ok=True)
        remedy = (
            "Leave `runtime.log_to=` out, or say where it is (MLflow: MLFLOW_TRACKING_URI); "
            "then again with `overwrite=True`."
        )
        tracked = f"`runtime.log_to={','.join(trackers)}`"
        with loading(tracked, kind=UnavailableError, remedy=remedy), stdout_kept():
            accelerator.init_trackers("bertctl", config=_flat(job))
    return accelerator


def _flat(job: "Job") -> dict[str, Any]:
    """Returns the fields of the recipe's sections by their dotted names, as trackers take them."""
    flat = {}
    for section, fields in job.recipe.model_dump().items():
        if not isinstance(fields, dict):
            continue
        for name, value in fields.items():
            is_plain = isinstance(value, int | float | str)
            if is_plain:
                flat[f"{section}.{name}"] = value
            else:
                flat[f"{section}.{name}"] = json.dumps(value)
    return flat


def _has_unused_parameters(job: "Job") -> bool:
    """Returns whether a backward pass leaves a parameter without a gradient, which a trial shows.

    Processes that train together exchange the gradients of all parameters. Without this knowledge,
    they would wait for gradients that never come.
    """
    import torch

    # Layers that are unfrozen later have no gradient in the first steps, although they are part of
    # the exchange.
    if job.recipe.training.gradual_unfreezing:
        return True
    network = job.loaded.network
    features = job.features["train"]
    with torch.random.fork_rng():
        objective = job.objective
        batch = objective.batch(features, np.zeros(1, dtype=np.int64), WindowRandom(0)).to(
            job.compute.device
        )
        network.to(job.compute.device)
        network.train()
        outputs = objective.forward(
            TorchBackend(network, job.loaded.has_segments, job.compute), batch
        )
        losses = torch.stack(list(objective.losses(outputs, batch).values()))
        losses.sum().backward()  # type: ignore[no-untyped-call]
    unused = any(parameter.grad is None for parameter in job.loaded.trainable_parameters().values())
    network.zero_grad(set_to_none=True)
    return unused
