"""What a configuration of accelerate asks for, from its file or from the environment its launcher makes; and refusals.

DDP and FSDP 2 are taken. The rest is refused before anything is read, with what does the same here.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertctl.errors import UnavailableError, UsageError
from bertctl.progress import SILENT, Listener

_KINDS = ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP")
_YES = ("1", "true", "yes", "y", "on")
_INSTEAD = "`distributed_type: FSDP` with `fsdp_config: {fsdp_version: 2}`"


@dataclass(frozen=True)
class AccelerateConfig:
    """What a configuration file says of the processes.

    Attributes:
        kind: `NO`, `MULTI_CPU`, `MULTI_GPU` or `FSDP`.
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
    """Read a file that `accelerate config` wrote.

    Raises:
        UnavailableError: it can't be read.
        UsageError: it is no such file, or asks for something that bertctl does not do.
    """
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML file: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict) or "distributed_type" not in document:
        raise UsageError(
            f"{path} is no configuration of accelerate: it has no distributed_type",
            remedy=f"Write one with `accelerate config --config_file {path}`.",
        )
    kind = "NO" if document["distributed_type"] is False else str(document["distributed_type"]).upper()
    fsdp = document.get("fsdp_config") or {}
    settings = {f"fsdp_{str(name).lower().removeprefix('fsdp_')}": str(value) for name, value in fsdp.items()}
    _refuse(kind, settings, str(path))
    if document.get("parallelism_config"):
        raise _unfit(str(path), "parallelism_config")
    try:
        return AccelerateConfig(
            kind,
            int(document.get("num_processes") or 1),
            int(document.get("num_machines") or 1),
            int(document.get("machine_rank") or 0),
            str(document.get("main_process_ip") or "127.0.0.1"),
            int(document.get("main_process_port") or 29500),
        )
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def asks_for_sharding() -> bool:
    """Whether `accelerate launch` started this process with FSDP."""
    return _is_on("ACCELERATE_USE_FSDP")


def check_environment(*, listener: Listener = SILENT) -> None:
    """Refuse what somebody's own `accelerate launch` asks for and bertctl does not do.

    Args:
        listener: hears where fewer processes were started than were asked for.

    Raises:
        UsageError: DeepSpeed, Megatron, FSDP 1, or settings of FSDP that have another place here.
    """
    source = "the configuration of `accelerate launch`"
    for name, kind in (("DEEPSPEED", "DEEPSPEED"), ("MEGATRON_LM", "MEGATRON_LM")):
        if _is_on(f"ACCELERATE_USE_{name}"):
            _refuse(kind, {}, source)
    if _is_on("ACCELERATE_USE_PARALLELISM_CONFIG"):
        raise _unfit(source, "parallelism_config")
    if _is_on("ACCELERATE_USE_CPU") and "MASTER_ADDR" in os.environ and "RANK" not in os.environ:
        listener.warn(
            "`accelerate launch` starts one process on CPUs, however many are asked for: bertctl's --num-processes N "
            "or --accelerate-config FILE starts all of them"
        )
    if asks_for_sharding():
        _refuse("FSDP", {name.lower(): value for name, value in os.environ.items() if name.startswith("FSDP_")}, source)
        if os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no").lower() != "no":
            raise _unfit(source, "dynamo_backend with FSDP")
        # transformers would load the weights in the first process only; here each one reads them.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"


def _refuse(kind: str, fsdp: Mapping[str, str], source: str) -> None:
    if kind == "DEEPSPEED":
        raise UsageError(
            f"{source} asks for DeepSpeed: its engine takes the optimizer's step by itself and pickles its state, "
            "which bertctl can neither check nor resume",
            remedy=f"Use {_INSTEAD}: fsdp_reshard_after_forward: true shards as ZeRO 3 does, false as ZeRO 2; or "
            "--num-processes N, where the model fits on each device.",
        )
    if kind not in _KINDS:
        raise _unfit(source, f"distributed_type: {kind}")
    if kind != "FSDP":
        return
    version = fsdp.get("fsdp_version", "1")
    if version != "2":
        raise UsageError(f"{source} asks for FSDP {version}", remedy="bertctl does FSDP 2: write fsdp_version: 2.")
    if fsdp.get("fsdp_ignored_modules", "").lower() not in ("", "none"):
        raise _unfit(source, "fsdp_ignored_modules")
    for name, remedy in (
        ("fsdp_activation_checkpointing", "Leave it out and give --gradient-checkpointing, which does the same."),
        ("fsdp_offload_params", "Leave it out; for less memory lower --max-length or give --gradient-checkpointing."),
    ):
        if fsdp.get(name, "").lower() in _YES:
            raise UsageError(f"{source} asks for {name}, which bertctl does not do", remedy=remedy)


def _unfit(source: str, what: str) -> UsageError:
    return UsageError(
        f"{source} asks for {what}, which bertctl does not do",
        remedy=f"It does MULTI_CPU and MULTI_GPU (a copy of the model in each process) and {_INSTEAD}.",
    )


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in _YES
