"""What a gate, a data check or any other judgement found.

It is the one form that every pipeline writer takes.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Verdict = Literal["pass", "fail", "inconclusive", "warning"]

BAD_FIRST: tuple[Verdict, ...] = ("fail", "inconclusive", "warning", "pass")
"""The worst verdict first: the order in which reports list checks and annotations are spent."""


@dataclass(frozen=True)
class Check:
    """Thing that was judged.

    Attributes:
        name: what was asked, short and the same from one build to the next: `min accuracy=0.91`.
        group: what it belongs to: `gate runs/sst2-1a2b3c4d`, `data check recipe.yaml`. A JUnit
            suite, a heading.
        verdict: `warning` is a pass with something to look at.
        message: one line: what was found.
        detail: more lines (examples, what to do); may be empty. Text of the data may stand in it:
            writers escape it.
        file: the file it is about, as the person named it; None where there is none.
        line: in that file, from 1.
    """

    name: str
    group: str
    verdict: Verdict
    message: str
    detail: str = ""
    file: str | None = None
    line: int | None = None

    @property
    def place(self) -> str:
        """Returns `file:line`, the file alone, or nothing where there is none."""
        file = self.file or ""
        if self.line is None:
            return file
        return f"{file}:{self.line}"


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """Returns the checks by verdict, the worst first; equals stay in the order given."""
    return sorted(checks, key=lambda check: BAD_FIRST.index(check.verdict))


def counts(checks: Iterable[Check]) -> dict[Verdict, int]:
    """Returns how many checks have each verdict, the worst first.

    Verdicts that don't occur are left out.
    """
    verdicts = [check.verdict for check in checks]
    return {verdict: verdicts.count(verdict) for verdict in BAD_FIRST if verdict in verdicts}


def in_repository(file: str) -> str:
    """Returns a file's path relative to the root of the checkout, as GitHub and GitLab want it.

    If the job runs in `train/`, `../data/a.csv` becomes `data/a.csv`. Without a checkout, the path
    is relative to the current folder. A file that is outside of both stays as it is.
    """
    path = Path(os.path.normpath(Path.cwd() / file))
    for root in (os.environ.get("GITHUB_WORKSPACE"), os.environ.get("CI_PROJECT_DIR"), "."):
        if not root:
            continue
        root_path = Path(root).resolve()
        if path.is_relative_to(root_path):
            return path.relative_to(root_path).as_posix()
    return file
