"""FSDP 2 in two processes on CPUs, by accelerate's own configuration file: the numbers of one process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.stopping import Training, difference, history_losses

FIELDS = ["--max-length", "32", "--epochs", "2", "--batch-size", "6", "--precision", "fp32", "--threads", "1"]
SETS = ["training.log_every=1", "evaluation.bootstrap_resamples=100", "evaluation.batch_size=6", "model.dropout=0.0"]
CONFIG = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
{more}mixed_precision: 'no'
num_machines: 1
num_processes: 2
use_cpu: true
"""


def config(folder: Path, kind: str, **fsdp: object) -> Path:
    path = folder / f"{kind.lower()}.yaml"
    settings = "".join(f"  {name}: {value}\n" for name, value in fsdp.items())
    path.write_text(CONFIG.format(kind=kind, more=f"fsdp_config:\n{settings}" if settings else ""), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return config(
        tmp_path_factory.mktemp("accelerate"),
        "FSDP",
        fsdp_version=2,
        fsdp_auto_wrap_policy="TRANSFORMER_BASED_WRAP",
        fsdp_cpu_ram_efficient_loading="true",
        fsdp_reshard_after_forward="true",
    )


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Training:
    return Training(tmp_path_factory.mktemp("training"), tiny_model)


@pytest.fixture
def command(tiny_model: Path, opinions: Path) -> list[object]:
    files = ["--train-file", opinions, "--validation-file", opinions, "--model", tiny_model]
    return ["finetune", "text-classification", *files, *FIELDS, *(w for one in SETS for w in ("--set", one))]


def values(run: Path) -> dict[str, float]:
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["metrics"]["validation"]
    return {name: metric["value"] for name, metric in metrics.items()}


CRAFT = ["training.average_best=2", "optimizer.layer_decay=0.9", "training.freeze_embeddings=true"]


@pytest.mark.slow
@pytest.mark.parametrize("extra", [["--gradient-checkpointing"], [w for one in CRAFT for w in ("--set", one)]])
def test_sharded_training_gives_the_numbers_of_one_process(
    bertctl: Run, command: list[object], fsdp: Path, tmp_path: Path, extra: list[str]
) -> None:
    """Three batches of validation rows for two processes: one has to lend its part for a pass that is not its own."""
    alone = bertctl(*command, *extra, "-o", "alone")
    shared = bertctl(*command, *extra, "-o", "shared", "--accelerate-config", fsdp, "--json")
    assert (alone.returncode, shared.returncode) == (0, 0), shared.stderr
    assert history_losses(tmp_path / "shared") == pytest.approx(history_losses(tmp_path / "alone"), abs=1e-4)
    assert json.loads((tmp_path / "shared" / "performance.json").read_text())["processes"] == 2
    one, two = (values(tmp_path / run) for run in ("alone", "shared"))
    assert two == pytest.approx(one, abs=1e-4)

    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "shared" / "model")
    assert type(model).__name__ == "BertForSequenceClassification"
    whole = load_file(tmp_path / "alone" / "model" / "model.safetensors")
    assert model.state_dict().keys() == whole.keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, whole[name], atol=1e-5, rtol=0, msg=name)


@pytest.mark.slow
def test_a_sharded_run_that_was_killed_and_one_that_was_stopped_end_as_if_nothing_had_happened(
    training: Training, tmp_path: Path, fsdp: Path
) -> None:
    whole = tmp_path / "whole"
    done = training.start(whole, "--accelerate-config", fsdp)
    assert done.returncode == 0, done.stderr
    for number in (signal.SIGKILL, signal.SIGTERM):
        run = tmp_path / number.name
        stopped = training.disturbed(run, number, "--accelerate-config", fsdp, after_steps=15)
        assert stopped.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143}[number], stopped.stderr
        training.resume(run, "--accelerate-config", fsdp)
        assert difference(whole, run) is None
        assert not (run / "checkpoints").exists()


@pytest.mark.slow
def test_a_checkpoint_of_a_sharded_run_goes_on_alone(training: Training, tmp_path: Path, fsdp: Path) -> None:
    run = tmp_path / "run"
    plain = ("--set", "model.dropout=0.0")
    assert training.start(tmp_path / "plain", *plain).returncode == 0
    training.disturbed(run, signal.SIGTERM, "--accelerate-config", fsdp, *plain, after_steps=15)
    said = training.resume(run, *plain).stderr
    assert "the run was on 2 processes and goes on with 1" in said
    assert history_losses(run) == pytest.approx(history_losses(tmp_path / "plain"), abs=1e-4)


@pytest.mark.slow
def test_several_processes_on_cpus_by_a_configuration(bertctl: Run, command: list[object], tmp_path: Path) -> None:
    """`accelerate launch` itself would start one."""
    done = bertctl(*command, "-o", "run", "--accelerate-config", config(tmp_path, "MULTI_CPU"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "performance.json").read_text())["processes"] == 2


@pytest.mark.parametrize(
    ("kind", "fsdp_settings", "said"),
    [
        ("DEEPSPEED", {}, "asks for DeepSpeed"),
        ("MEGATRON_LM", {}, "distributed_type: MEGATRON_LM"),
        ("FSDP", {"fsdp_sharding_strategy": "FULL_SHARD"}, "asks for FSDP 1"),
        ("FSDP", {"fsdp_version": 2, "fsdp_activation_checkpointing": "true"}, "--gradient-checkpointing"),
        ("FSDP", {"fsdp_version": 2, "fsdp_offload_params": "true"}, "fsdp_offload_params"),
    ],
)
def test_what_is_not_done_is_refused_before_anything_starts(
    bertctl: Run, command: list[object], tmp_path: Path, kind: str, fsdp_settings: dict[str, object], said: str
) -> None:
    refused = bertctl(*command, "-o", "run", "--accelerate-config", config(tmp_path, kind, **fsdp_settings))
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr
    assert refused.stdout == ""
    assert not (tmp_path / "run").exists()


def test_a_configuration_that_is_missing_or_something_else_is_refused(
    bertctl: Run, command: list[object], opinions: Path
) -> None:
    missing = bertctl(*command, "--accelerate-config", "nowhere.yaml")
    assert missing.returncode == 4, missing.stderr
    other = bertctl(*command, "--accelerate-config", opinions)
    assert other.returncode == 2, other.stderr
    assert "no configuration of accelerate" in other.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs sched_setaffinity")
def test_more_processes_than_cores_are_warned_of(command: list[object], tmp_path: Path) -> None:
    """On one core; the data file is not there, so that nothing long follows."""
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-m", "bertctl", *map(str, command), "--train-file", "none.csv", "--num-processes", "2"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "warning: 2 processes on 1 core wait for each other" in done.stderr
    assert done.stderr.count("none.csv") == 1
