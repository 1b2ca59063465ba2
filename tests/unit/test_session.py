"""State of a command: in its session, and nowhere else in the package."""

import ast
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import bertctl
from bertctl.catalog.lock import file_sha256
from bertctl.errors import UsageError
from bertctl.runtime.seeding import only_deterministic, seed_everything
from bertctl.runtime.stopping import Terminated, asked, end_now
from bertctl.runtime.threads import set_threads, threads_set
from bertctl.session import carried, current, opened
from bertctl.writing import protect, refuse_input

PACKAGE = Path(bertctl.__file__).parent


class Notes(list[str]):
    """Some state of a module."""


def test_each_session_has_its_own_parts() -> None:
    process = current()
    with opened() as outer:
        outer.part(Notes).append("outer")
        with opened() as inner:
            assert inner.part(Notes) == []
        assert current() is outer
        assert current().part(Notes) == ["outer"]
    assert current() is process


def test_variables_are_as_before_when_a_session_is_closed(monkeypatch) -> None:
    monkeypatch.setenv("BERTCTL_OLD", "old")
    monkeypatch.delenv("BERTCTL_NEW", raising=False)
    with opened() as session:
        for value in ("1", "2", None):
            session.set_variable("BERTCTL_OLD", value)
        session.set_variable("BERTCTL_NEW", "3")
        assert session.default_variable("BERTCTL_NEW", "4") == "3"
        assert "BERTCTL_OLD" not in os.environ
    assert os.environ["BERTCTL_OLD"] == "old"
    assert "BERTCTL_NEW" not in os.environ


def test_a_session_is_closed_when_its_command_fails(monkeypatch) -> None:
    monkeypatch.delenv("BERTCTL_NEW", raising=False)
    before = current()

    def fail() -> None:
        with opened() as session:
            session.set_variable("BERTCTL_NEW", "1")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert "BERTCTL_NEW" not in os.environ
    assert current() is before


def test_the_last_change_is_undone_first() -> None:
    undone: list[str] = []
    with opened() as session:
        session.restore_later("first", lambda: undone.append("first"))
        session.restore_later("second", lambda: undone.append("second"))
        session.restore_later("first", lambda: undone.append("never"))
    assert undone == ["second", "first"]


def test_work_in_other_threads_belongs_to_the_command_that_sent_it() -> None:
    with opened() as session, ThreadPoolExecutor(1) as pool:
        assert pool.submit(carried(current)).result() is session
        assert pool.submit(current).result() is session, "a library's thread"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() is not session


def test_sessions_in_several_threads_take_turns() -> None:
    inner: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            with opened():
                inner.append(number)
                most.append(len(inner))
                inner.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 800
    assert max(most) == 1


def test_an_input_is_protected_in_its_session_alone(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text\n")
    with opened():
        protect(file)
        with pytest.raises(UsageError, match="is an input of this command"):
            refuse_input(file)
    with opened():
        refuse_input(file)


def test_a_file_that_changed_has_another_hash(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("a")
    first = file_sha256(file)
    assert file_sha256(file) == first
    file.write_text("longer")
    assert file_sha256(file) != first


def test_a_signal_is_forgotten_with_its_session() -> None:
    with opened():
        with pytest.raises(Terminated):
            end_now(15)  # outside of a process of the command's own it raises
        assert asked() == 15
    with opened():
        assert asked() == 0


def test_what_is_set_in_torch_is_as_before() -> None:
    import torch

    threads = torch.get_num_threads()
    generator = torch.get_rng_state()
    with opened():
        seed_everything(7)
        only_deterministic()
        set_threads(threads + 1)
        with threads_set(threads + 2):
            assert torch.get_num_threads() == threads + 2
        assert torch.get_num_threads() == threads + 1
        assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), generator)


CHANGES = {
    "os.environ": ("session.py",),
    "torch.set_num_threads": ("runtime/threads.py",),
}
"""What of the process is changed where alone."""


def _changes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields changes of environment variables and of the number of torch's threads."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del(), lineno=line):
                changed = ast.unparse(value)
            case ast.AugAssign(target=target, lineno=line):
                changed = ast.unparse(target)
            case ast.Call(
                func=ast.Attribute(value=value, attr="setdefault" | "pop" | "update" | "clear"),
                lineno=line,
            ):
                changed = ast.unparse(value)
            case ast.Call(func=function, lineno=line):
                changed = ast.unparse(function)
            case _:
                continue
        if changed in CHANGES:
            yield changed, line


def _module_state(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields names of a module that functions fill or set anew."""
    made = {"set", "dict", "list", "defaultdict", "deque", "Lock", "RLock", "Event"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield ", ".join(node.names), node.lineno
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=value, lineno=line):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value, lineno=line):
                pass
            case _:
                continue
        is_empty = isinstance(value, ast.Dict | ast.List) and not ast.unparse(value).strip("{}[]")
        is_call = isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in made
        if is_empty or (is_call and not value.args):
            yield name, line


REGISTRIES = {"TASKS", "_TURN", "_open"}
"""Tables that a module fills when it is imported, and the lock and the list of the sessions."""


def test_the_process_is_changed_through_the_session_alone() -> None:
    wrong = []
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        wrong += [
            f"{name}:{line}: {changed}"
            for changed, line in _changes(tree)
            if name not in CHANGES[changed]
        ]
    assert wrong == []


def test_no_module_keeps_state_of_its_own() -> None:
    wrong = []
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        wrong += [
            f"{file.relative_to(PACKAGE)}:{line}: {name}"
            for name, line in _module_state(tree)
            if name not in REGISTRIES
        ]
    assert wrong == []


def test_the_searches_find_what_they_are_for() -> None:
    tree = ast.parse(
        "import os, torch\nseen = {}\nlock = threading.Lock()\n"
        "def f():\n    global count\n    os.environ['A'] = '1'\n    os.environ.setdefault('A', "
        "'1')\n"
        "    del os.environ['A']\n    os.environ |= {}\n    torch.set_num_threads(1)\n"
    )
    assert sorted(line for _, line in _changes(tree)) == [6, 7, 8, 9, 10]
    assert sorted(line for _, line in _module_state(tree)) == [2, 3, 5]
