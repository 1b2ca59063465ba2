"""Network, optimizer and schedule on their devices: what accelerate makes of a job."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.errors import DeviceError
from bertctl.inference.forward import batch_logits, on_device
from bertctl.run_folder import RunFolder
from bertctl.runtime.launch import Workers
from bertctl.training.craft import Unfreezing, freeze
from bertctl.training.job import Job
from bertctl.training.loop import Machine
from bertctl.training.optim import build_optimizer, build_schedule

if TYPE_CHECKING:
    from accelerate import Accelerator


def build_machine(job: Job, folder: RunFolder, workers: Workers) -> Machine:
    """Move and wrap the network, and make its optimizer and schedule.

    Args:
        job: made ready; its network is moved.
        folder: trackers write into it, in the first process.
        workers: the processes that share the job; dropout draws other numbers in each.

    Raises:
        DeviceError: accelerate would not exchange gradients among the workers.
    """
    import torch

    network = job.loaded.network
    accelerator = _accelerator(job, folder, workers)
    if accelerator.num_processes != workers.count:
        raise DeviceError(
            f"{workers.count} processes share this job, and accelerate sees {accelerator.num_processes}",
            remedy="Start them with --num-processes, torchrun or `accelerate launch`.",
        )
    if job.recipe.training.gradient_checkpointing:
        network.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    freeze(network, job.recipe.training)
    if workers.rank:
        seed = np.random.SeedSequence([job.recipe.training.seed_of_init, workers.rank]).generate_state(1)[0]
        torch.manual_seed(int(seed))
    optimizer = build_optimizer(network, job.recipe.optimizer)
    unfreezing = Unfreezing(network) if job.recipe.training.gradual_unfreezing else None
    wrapped, optimizer = accelerator.prepare(network, optimizer)
    schedule = build_schedule(optimizer, job.recipe.optimizer, steps=job.steps)
    return Machine(job.loaded, wrapped, optimizer, schedule, accelerator, job.compute, workers, unfreezing)


def _accelerator(job: Job, folder: RunFolder, workers: Workers) -> "Accelerator":
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin

    AcceleratorState._reset_state()  # an earlier run of this process may have had another precision
    trackers = list(job.recipe.runtime.log_to) if workers.is_first else []
    handlers = []
    if workers.count > 1:
        # Gradients live in the buckets that are exchanged: no copy (MiniLM in bf16, 2 processes: 11 % faster).
        handlers.append(
            DistributedDataParallelKwargs(
                find_unused_parameters=_has_unused_parameters(job), gradient_as_bucket_view=True
            )
        )
    accelerator = Accelerator(
        mixed_precision={"fp32": "no"}.get(job.compute.precision, job.compute.precision),
        cpu=job.compute.device == "cpu",
        log_with=trackers or None,
        project_dir=folder.path / "trackers" if trackers else None,
        kwargs_handlers=handlers,
        # The loop divides by the whole batch's count: a configuration's gradient_accumulation_steps is not its affair.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
    )
    if trackers:
        (folder.path / "trackers").mkdir(exist_ok=True)
        accelerator.init_trackers("bertctl", config=_flat(job))
    return accelerator


def _flat(job: Job) -> dict[str, Any]:
    return {
        f"{section}.{name}": value if isinstance(value, int | float | str) else json.dumps(value)
        for section, fields in job.recipe.model_dump().items()
        if isinstance(fields, dict)
        for name, value in fields.items()
    }


def _has_unused_parameters(job: Job) -> bool:
    """Whether a backward pass leaves a parameter without a gradient, for which the exchange would wait in vain."""
    import torch

    if job.recipe.training.gradual_unfreezing:  # later: parameters of which the exchange has to know from the start
        return True
    network, features = job.loaded.network, job.features["train"]
    with torch.random.fork_rng():
        batch = job.task.collate(
            features, np.zeros(1, dtype=np.int64), pad_id=job.loaded.pad_id, pad_left=job.loaded.pad_left
        )
        network.to(job.compute.device)
        network.train()
        logits = batch_logits(network, job.loaded, job.task, batch, job.compute)
        job.task.loss(logits, on_device(batch, job.compute)).sum().backward()  # type: ignore[no-untyped-call]
    unused = any(p.grad is None for p in network.parameters() if p.requires_grad)
    network.zero_grad(set_to_none=True)
    return unused
