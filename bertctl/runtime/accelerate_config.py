"""Accelerate's configuration.

It is what a file or the environment of `accelerate launch` asks for, with refusals.

Only data parallel training (DDP) is done: each process has a whole copy of the model. Everything
else is refused before any data is read.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from bertctl.documents import loading, read_text
from bertctl.errors import UsageError

_KINDS = ("NO", "MULTI_CPU", "MULTI_GPU")
_TRUE = ("1", "true", "yes", "y", "on", "t")
_FALSE = ("0", "false", "no", "n", "off", "f")


@dataclass(frozen=True)
class AccelerateConfig:
    """The processes that a configuration file asks for.

    Attributes:
        kind: `NO`, `MULTI_CPU` or `MULTI_GPU`.
        processes: on all machines together.
        machines: how many there are.
        machine: this one's number, from 0.
        address: host name of the first machine.
        port: of the first machine, where the processes meet.
    """

    kind: str
    processes: int
    machines: int
    machine: int
    address: str
    port: int


def read_accelerate_config(path: Path) -> AccelerateConfig:
    """Reads a file that `accelerate config` wrote.

    Raises:
        UnavailableError: it can't be read.
        UsageError: it is no such file, or asks for something that bertctl does not do.
    """
    import yaml

    with loading(path, kind=UsageError):
        document = yaml.safe_load(read_text(path, limit=2**20, kind=UsageError))
    if not isinstance(document, dict) or "distributed_type" not in document:
        message = f"{path} is not a configuration of accelerate: it has no distributed_type"
        raise UsageError(
            message, remedy=f"Write one with `accelerate config --config_file {path}`."
        )
    if document["distributed_type"] is False:  # how YAML reads NO without quotes
        kind = "NO"
    else:
        kind = str(document["distributed_type"]).upper()
    if kind not in _KINDS:
        raise _unsupported(str(path), f"distributed_type: {kind}")
    if document.get("parallelism_config"):
        raise _unsupported(str(path), "parallelism_config")
    with loading(path, kind=UsageError):
        return AccelerateConfig(
            kind,
            processes=int(document.get("num_processes") or 1),
            machines=int(document.get("num_machines") or 1),
            machine=int(document.get("machine_rank") or 0),
            address=str(document.get("main_process_ip") or "127.0.0.1"),
            port=int(document.get("main_process_port") or 29500),
        )


def check_environment() -> None:
    """Refuses what somebody's own `accelerate launch` asks for and bertctl does not do.

    Raises:
        UsageError: DeepSpeed, Megatron, FSDP or a parallelism configuration; or a variable is
            neither true nor false.
    """
    _is_on("ACCELERATE_DEBUG_MODE")  # accelerate reads it too, and would stop at what is neither
    for kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "PARALLELISM_CONFIG"):
        if _is_on(f"ACCELERATE_USE_{kind}"):
            raise _unsupported("the configuration of `accelerate launch`", kind)
    _is_on("ACCELERATE_USE_CPU")  # only to refuse a value that is neither


def lone_process_warning() -> str:
    """Returns a warning if MASTER_ADDR is set and nothing says that this process has others.

    Without a reason to warn it is empty.
    """
    if not os.environ.get("MASTER_ADDR") or "RANK" in os.environ:
        return ""
    if "ACCELERATE_USE_CPU" in os.environ or "ACCELERATE_MIXED_PRECISION" in os.environ:
        return (
            "`accelerate launch` starts one process on CPUs, however many are asked for: bertctl's "
            "`num_processes=N` or `accelerate_config=FILE` starts all of them"
        )
    return (
        "MASTER_ADDR is set and RANK is not, so this process works alone. One of several needs "
        "RANK and WORLD_SIZE, too; torchrun, srun and bertctl's `num_processes=N` set them"
    )


def _unsupported(source: str, feature: str) -> UsageError:
    """Returns the refusal of a feature of accelerate that bertctl does not have."""
    return UsageError(
        f"{source} asks for {feature}, which bertctl does not do",
        remedy="Use MULTI_CPU or MULTI_GPU (a whole copy of the model in each process). For less "
        "memory per device, raise training.accumulation_steps, give "
        "`training.gradient_checkpointing=True` or lower `model.max_length=`.",
    )


def _is_on(name: str) -> bool:
    """Returns whether an environment variable is true; it is false where it is not set.

    Raises:
        UsageError: Its value is neither true nor false.
    """
    value = os.environ.get(name, "no")
    if value.lower() not in (*_TRUE, *_FALSE):
        message = f"{name}={value!r} in the environment: true or false fits"
        raise UsageError(message, remedy=f"Set one, or unset {name}.")
    return value.lower() in _TRUE
