"""Whether bf16 is fast is measured, once per machine; flags do not say it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertctl.config.recipe_sections import RuntimeSection
from bertctl.runtime import measured
from bertctl.runtime.cpu import has_bf16
from bertctl.runtime.device import choose_compute
from bertctl.runtime.products import measured_products
from tests.conftest import ROOT, Run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "products"


def test_it_is_measured_once_and_the_first_of_several_is_right(cache: Path) -> None:
    threads = 1
    first = measured_products(threads)
    assert first["fp32"] > 0
    assert first["bf16"] > 0
    (known,) = cache.iterdir()
    assert measured_products(threads) == first
    known.write_text(json.dumps({"fp32": 100.0, "bf16": 110.0}))
    assert measured_products(threads) == {"fp32": 100.0, "bf16": 110.0}
    assert measured._kept({"fp32": 1.0, "bf16": 2.0}, known)["fp32"] == 100.0, (
        "another process was first"
    )
    measured_products(threads + 1)
    assert len(list(cache.iterdir())) == 2, "other threads are another machine"


_DAMAGES = ["", "[]", '{"fp32": "many"}', '{"fp32": 3}', '{"fp32": NaN, "bf16": 3}']


@pytest.mark.parametrize("damage", [*_DAMAGES, f'{{"fp32": {"9" * 400}, "bf16": 3}}'])
def test_a_damaged_file_is_measured_anew(cache: Path, damage: str) -> None:
    measured_products(1)
    (known,) = cache.iterdir()
    known.write_text(damage)
    assert measured_products(1)["fp32"] > 0
    assert json.loads(known.read_text())["fp32"] > 0, "the next process need not measure"
    assert list(cache.iterdir()) == [known]


def test_a_disk_without_links_keeps_it_all_the_same(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", link)
    first = measured_products(1)
    assert len(list(cache.iterdir())) == 1
    measured._kept({"fp32": 1.0, "bf16": 2.0}, *cache.iterdir())
    assert measured_products(1) == first
    assert len(list(cache.iterdir())) == 1


def test_bf16_has_to_be_worth_its_rounding(cache: Path) -> None:
    if not has_bf16():
        pytest.skip("this CPU has no bf16")
    threads = torch.get_num_threads()
    measured_products(threads)
    (known,) = cache.iterdir()
    for bf16, precision in ((119.0, "fp32"), (120.0, "bf16")):
        known.write_text(json.dumps({"fp32": 100.0, "bf16": bf16}))
        compute = choose_compute(RuntimeSection(device="cpu", threads=threads))
        assert compute.precision == precision
        assert f"{bf16:.0f}" in compute.why
    assert choose_compute(RuntimeSection(device="cpu", precision="fp32")).precision == "fp32", (
        "what is asked for stays"
    )


_RANK = """
import sys
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.runtime import device
from bertctl.runtime.launch import workers
shared = workers()
device.fastest_on_cpu = lambda threads: (("bf16", "fp32")[shared.rank], "measured")
sys.stdout.write(device.choose_compute(RuntimeSection(device="cpu")).precision)
"""


def test_processes_that_share_a_job_take_the_first_ones() -> None:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        meeting = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(connection.getsockname()[1]),
        }
    command = [sys.executable, "-c", _RANK]
    env = {**os.environ, **meeting}
    ranks = [
        subprocess.Popen(
            command, cwd=ROOT, env={**env, "RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    assert [rank.communicate(timeout=600)[0] for rank in ranks] == ["bf16", "bf16"]


def test_a_library_that_leaves_bf16_unused_is_noticed(
    bertctl: Run, cache: Path, tiny_model: Path
) -> None:
    """The flag stands in /proc/cpuinfo all the same.

    Who asks for bf16 gets it, by torch's own products.
    """
    if not has_bf16():
        pytest.skip("this CPU has no bf16")
    options = {"ONEDNN_MAX_CPU_ISA": "AVX2", "BERTCTL_CACHE": str(cache.parent)}
    done = bertctl("doctor", "--json", env=options)
    assert json.loads(done.stdout)["compute"].startswith(
        "cpu (no CUDA or MPS device here), fp32 (multiplied here at "
    )
    requests = ["--model", tiny_model, "--max-length", "40", "--precision", "bf16"]
    done = bertctl(
        "extract-features", "-", "-o", "x.npy", *requests, input="good film\n", env=options
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [1, 4])
def test_a_process_that_is_forked_after_it_computes_in_threads(cache: Path, threads: int) -> None:
    """As a worker of a sweep.

    OpenMP's threads are not there any more after a fork, and nothing would wake it.
    """
    code = f"""
import os, signal, torch
from bertctl.runtime.products import measured_products
torch.set_num_threads({threads})
measured_products(4)
assert torch.get_num_threads() == {threads}
if not os.fork():
    signal.alarm(900)
    torch.set_num_threads(4)
    torch.ones(1000, 1000) @ torch.ones(1000, 1000)
    os._exit(0)
assert not os.wait()[1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
