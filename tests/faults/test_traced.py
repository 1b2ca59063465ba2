"""A stranger's run under `strace`.

No connection is tried, and nothing is touched that was not named.
"""

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fuzz import trained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

_CALLS = (
    "network,openat,open,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,"
    "unlinkat,mkdir,mkdirat"
)
_CHANGES = ("creat", "rename", "link", "symlink", "unlink", "mkdir")
_PATH = re.compile(
    r'(?:<((?:[^<>\\]|\\.)*)>, )?"((?:[^"\\]|\\.)*)"'
)  # the folder of its descriptor, the path
_OURS = (
    sys.prefix,
    sys.base_prefix,
    sysconfig.get_path("stdlib"),
    *site.getsitepackages(),
    str(ROOT),
    "/proc",
    "/sys",
    "/dev",
    "/usr",
    "/lib",
    "/lib64",
    "/etc",
    "/opt",
    "/bin",
    "/run/systemd/resolve",
    "/var/cache/fontconfig",
)
"""Where Python, the libraries and the system's own settings are: read by every program."""

COMMANDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    # words, what may be written beside the run's own folder
    (("gate", "run", "--min", "accuracy=0.1", "--policy", "point", "--allow-constant"), ()),
    (("compare", "run", "base"), ()),
    (("report", "run", "-o", "page.html"), ("page.html",)),
    (("predict", "run", "{trained}/rows.csv", "-o", "answers.jsonl"), ("answers.jsonl",)),
    (("evaluate", "run"), ("run",)),
    (
        ("extract-features", "few.txt", "--model", "run", "--max-length", "32", "-o", "v.npy"),
        ("v.npy", "v.npy.json", "v.npy.parts"),
    ),
    (("tokenize", "--file", "few.txt", "--model", "run", "--format", "ids", "-o", "ids"), ("ids",)),
    (("finetune", "run/recipe.yaml", "-o", "again"), ("again",)),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, and one with the data and the model that they name."""
    folder = tmp_path_factory.mktemp("traced")
    trained.write_inputs(folder / "trained")
    words = trained.words("text-classification", folder / "trained", folder / "work" / "run")
    subprocess.run(
        [sys.executable, "-m", "bertctl", *words], cwd=folder, check=True, capture_output=True
    )
    shutil.copytree(folder / "work" / "run", folder / "work" / "base")
    (folder / "work" / "few.txt").write_text("the film was fine\n")
    return folder


@pytest.mark.parametrize(
    ("words", "written"), COMMANDS, ids=lambda value: value[0] if value else "nothing"
)
def test_a_strangers_run(
    place: Path, tmp_path: Path, words: Sequence[str], written: Sequence[str]
) -> None:
    work = place / "work"
    spare = tmp_path / "spare"
    log = tmp_path / "log"
    spare.mkdir()
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "BERTCTL"))
    }
    env |= {
        "TMPDIR": str(spare),
        "HF_HOME": str(spare),
        "HOME": str(spare),
        "XDG_CACHE_HOME": str(spare),
    }
    typed = [word.format(trained=place / "trained") for word in words]
    command = [
        "strace",
        "-f",
        "-y",
        "-qq",
        "-e",
        f"trace={_CALLS}",
        "-o",
        str(log),
        sys.executable,
        "-m",
        "bertctl",
        *typed,
    ]
    done = subprocess.run(
        command, cwd=work, env=env, capture_output=True, text=True, check=False, timeout=3600
    )
    assert done.returncode == 0, done.stderr
    calls = [
        line.partition(" ")[2].strip() for line in log.read_text(errors="replace").splitlines()
    ]
    assert any("model" in call or "metrics.json" in call for call in calls), (
        "the tracer saw nothing"
    )
    connections = [
        call
        for call in calls
        if call.startswith(("connect(", "sendto(", "bind(")) and "AF_UNIX" not in call
    ]
    assert [call for call in connections if "AF_NETLINK" not in call] == []
    may_change = [str(spare), *(str(work / name) for name in written), "/dev/null", "/proc/self"]
    parts = re.compile(re.escape(str(work)) + r"(/again)?/\.bertctl-[0-9a-f]+\.part")
    may_read = [
        *_OURS,
        str(place),
        str(spare),
        str(Path(tempfile.gettempdir()) / "torchinductor_root"),
    ]
    for call in calls:
        name = call.partition("(")[0]
        changes = name.startswith(_CHANGES) or (
            name.startswith("open") and re.search(r"O_(WRONLY|RDWR|CREAT)", call)
        )
        if " = -1 " in call or not (changes or name.startswith("open")):
            continue
        for at, path in _PATH.findall(call):
            complete = os.path.normpath(work / at / path)
            allowed = may_change if changes else may_read
            is_present = any(
                complete == entry or complete.startswith(f"{entry}/") for entry in allowed
            )
            assert is_present or complete in ("/", str(place.parent)) or parts.match(complete), call
