"""No circle of files: none imports one that imports it, at whatever place and by whatever way."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "bertctl"
IMPORT = re.compile(r"^ *from (bertctl[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def imports() -> dict[str, set[str]]:
    """Returns which files of the package each file imports, also within functions and for types."""
    files = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = path
    results = {}
    for name, path in files.items():
        imported = set()
        for module, text in IMPORT.findall(path.read_text(encoding="utf-8")):
            names = {f"{module}.{word}" for word in re.findall(r"\w+", text)}
            imported |= names & files.keys() or {module}
        results[name] = (imported & files.keys()) - {name}
    results["bertctl"] = set()  # its names are imported when they are used
    return results


def test_no_file_imports_one_that_imports_it() -> None:
    left = imports()
    while free := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported for name, imported in left.items() if name not in free}
    # What is left is on a circle, or imports a file that is.
    assert {name: sorted(imported & left.keys()) for name, imported in left.items()} == {}
