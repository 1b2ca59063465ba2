"""What a machine, and a container on it, has; the files of the kernel are written by the tests."""

from pathlib import Path

import pytest

from bertctl import memory
from bertctl.memory import Limits, group_limits
from bertctl.runtime import machine


def files(root: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="ascii")


def test_limits_are_the_least_of_the_group_and_those_above_it(tmp_path: Path) -> None:
    files(
        tmp_path,
        {
            "self": "0::/pod/box",
            "groups/pod/box/memory.max": "max",
            "groups/pod/box/cpu.max": "150000 100000",
            "groups/pod/memory.max": "4000000000",
            "groups/pod/memory.current": "1000000000",
            "groups/pod/cpu.max": "400000 100000",
        },
    )
    assert group_limits(tmp_path / "self", tmp_path / "groups") == Limits(
        4_000_000_000, 1_000_000_000, 1.5
    )


def test_in_a_container_the_path_is_the_hosts_and_the_root_is_its_own(tmp_path: Path) -> None:
    files(
        tmp_path,
        {
            "self": "0::/kubepods/of/the/host",
            "groups/memory.max": "1000",
            "groups/cpu.max": "max 100000",
        },
    )
    assert group_limits(tmp_path / "self", tmp_path / "groups") == Limits(1000, None, None)


@pytest.mark.parametrize(
    "contents",
    [
        {},
        {"self": "0::/"},
        {"self": "", "groups/memory.max": "7"},
        {"self": "0::/", "groups/memory.max": "max", "groups/cpu.max": "max 100000"},
        {"self": "2:cpu:/", "groups/cpu.max": "50000 100000"},
        {"self": "nonsense", "groups/memory.max": "words"},
    ],
)
def test_no_limit(tmp_path: Path, contents: dict[str, str]) -> None:
    files(tmp_path, contents)
    assert group_limits(tmp_path / "self", tmp_path / "groups") == Limits()


def test_memory_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = memory.memory()
    assert 0 < complete["available"] <= complete["total"]
    monkeypatch.setattr(memory, "group_limits", lambda: Limits(memory=1000, used=400))
    assert memory.memory() == {"total": complete["total"], "available": 600, "limit": 1000}
    monkeypatch.setattr(memory, "group_limits", lambda: Limits(memory=2**63 - 4096, used=400))
    assert memory.memory()["limit"] is None


def test_packages_are_those_that_are_installed_and_each_fits() -> None:
    actual = {package["name"]: package for package in machine.packages()}
    assert {"torch", "transformers", "numpy"} <= actual.keys()
    assert "pytest" not in actual, "what tests need is not what a run needs"
    assert [package for package in actual.values() if not package["fits"]] == []


def test_a_version_that_is_not_wanted_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    installed = importlib.metadata.version

    def version(name: str) -> str:
        if name == "scipy":
            raise importlib.metadata.PackageNotFoundError
        return "1.0" if name == "torch" else installed(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    unfit = {
        package["name"]: package["version"] for package in machine.packages() if not package["fits"]
    }
    assert unfit == {"torch": "1.0", "scipy": None}


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    assert machine.free_bytes(tmp_path / "runs" / "a") == pytest.approx(
        machine.free_bytes(tmp_path), rel=0.01
    )
    assert machine.is_writable(tmp_path / "runs" / "a")
    (tmp_path / "file").write_text("")
    assert not machine.is_writable(tmp_path / "file")
    assert not machine.is_writable(tmp_path / "file" / "below")
    assert not machine.is_writable(Path("/proc/self"))
