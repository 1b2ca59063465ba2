"""Memory that really runs out: a training process has a limit (Linux)."""

import os
import resource  # the package is for POSIX
import sys
import time
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from bertctl.errors import ExitCode
from tests.stopping import history_losses

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and its limits")

MB = 2**20


def wide_model(folder: Path, intermediate: int) -> Path:
    """A BERT whose memory is taken by few large tensors.

    Nothing small fails before one of them does.
    """
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    BertTokenizerFast(
        vocab={piece: i for i, piece in enumerate(pieces)}, do_lower_case=True
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=intermediate,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def start(model: Path, run: Path, *, batch_size: int, limit: int = 2**40) -> "Popen[str]":
    """Twelve steps of a process that may write so many bytes."""
    files = {
        "--train-file": (run.with_suffix(".train.csv"), 12 * batch_size),
        "--validation-file": (run.with_suffix(".csv"), 4),
    }
    for file, n in files.values():
        rows = [f"{'film ' * 130}{i},{'good' if i % 2 else 'bad'}" for i in range(n)]
        file.write_text("\n".join(["text,label", *rows]) + "\n")
    options: dict[str, object] = {option: file for option, (file, _) in files.items()}
    options |= {
        "--model": model,
        "-o": run,
        "--max-length": 128,
        "--batch-size": batch_size,
        "--epochs": 1,
    }
    options |= {"--precision": "fp32", "--threads": 1}
    sets = ["training.log_every=1", "evaluation.bootstrap_resamples=100", "evaluation.batch_size=1"]
    words = []
    for pair in options.items():
        words += [str(word) for word in pair]
    words += [word for entry in (*sets, "model.dropout=0.0") for word in ("--set", entry)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "bertctl", "finetune", "text-classification", *words]
    set_limit = partial(resource.setrlimit, resource.RLIMIT_DATA, (limit, limit))
    return Popen(
        command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
        env=environment,
        preexec_fn=set_limit,
    )


def memory(process: "Popen[str]") -> int:
    """Bytes it may write: what RLIMIT_DATA counts.

    (RLIMIT_AS counts what is only reserved, for each thread 64 MB.)
    """
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


def at_rest_and_at_most(process: "Popen[str]", run: Path) -> tuple[int, int]:
    """Bytes between the steps of a training that has begun, and within them."""
    while process.poll() is None and len(history_losses(run)) < 2:
        time.sleep(0.01)
    sizes = []
    begun = len(history_losses(run))
    while process.poll() is None and len(history_losses(run)) < begun + 3:
        sizes.append(memory(process))
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()[1]
    return min(sizes), max(sizes)


@pytest.mark.slow
def test_the_step_is_repeated_in_parts_to_the_same_losses(tmp_path: Path) -> None:
    model = wide_model(tmp_path / "wide", 4096)
    complete = start(model, tmp_path / "whole", batch_size=16)
    rest, most = at_rest_and_at_most(complete, tmp_path / "whole")
    assert most - rest > 100 * MB, "the steps take much memory, or the test means nothing"
    output = complete.communicate(timeout=3600)[1]
    assert complete.returncode == 0, output
    assert "out of memory" not in output

    parts = start(model, tmp_path / "parts", batch_size=16, limit=rest + int(0.75 * (most - rest)))
    output = parts.communicate(timeout=3600)[1]
    assert parts.returncode == 0, output
    assert "out of memory with 16 examples of 128 tokens" in output
    assert "batch stays 16" in output
    assert len(history_losses(tmp_path / "whole")) == 12
    assert history_losses(tmp_path / "parts") == pytest.approx(
        history_losses(tmp_path / "whole"), abs=1e-4
    )


@pytest.mark.slow
def test_where_one_example_is_too_much_it_says_what_would_help(tmp_path: Path) -> None:
    model = wide_model(tmp_path / "wide", 32768)
    complete = start(model, tmp_path / "whole", batch_size=2)
    rest, _ = at_rest_and_at_most(complete, tmp_path / "whole")
    complete.communicate(timeout=3600)
    process = start(model, tmp_path / "run", batch_size=2, limit=rest + 40 * MB)
    output = process.communicate(timeout=3600)[1]
    assert process.returncode == ExitCode.DEVICE, output
    assert "out of memory with 2 examples of 128 tokens" in output
    assert "error: out of memory with 1 example of 128 tokens" in output
    assert "--max-length" in output
    assert "--gradient-checkpointing" in output
