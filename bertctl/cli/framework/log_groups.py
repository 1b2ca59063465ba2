"""What the logs of GitHub and GitLab understand.

They are parts that are folded, and errors shown at their file and line.
"""

import os
import shlex
import time
from dataclasses import dataclass

from bertctl.errors import BertctlError
from bertctl.reporting.escape import command_message, one_line
from bertctl.session import command_words


@dataclass
class LogGroup:
    """Part of a job's log that is folded to one line.

    It holds what a verb says while it works.

    Attributes:
        gitlab: whether GitLab reads along, and not GitHub.
        is_open: whether it has begun and not ended.
        count: how many there were: a warning stands outside, and the talk after it in another one.
    """

    gitlab: bool
    is_open: bool = False
    count: int = 0

    def open(self) -> list[str]:
        """Returns the commands that begin it, none where it is open."""
        if self.is_open:
            return []
        self.is_open = True
        self.count = self.count + 1
        title = command_message(one_line(shlex.join(["bertctl", *command_words()]), limit=100))
        if self.gitlab:
            return [self._section("start", "[collapsed=true]", title)]
        return [f"::group::{title}"]

    def close(self) -> list[str]:
        """Returns the commands that end it, none where it is not open."""
        if not self.is_open:
            return []
        self.is_open = False
        return [self._section("end", "", "") if self.gitlab else "::endgroup::"]

    def _section(self, event: str, options: str, title: str) -> str:
        name = f"bertctl_{os.getpid()}_{self.count}"
        return f"\x1b[0Ksection_{event}:{int(time.time())}:{name}{options}\r\x1b[0K{title}"


def log_group() -> LogGroup | None:
    """Returns a group for the log of this job; None where neither GitHub nor GitLab reads along."""
    gitlab = os.environ.get("GITLAB_CI") == "true"
    if gitlab or os.environ.get("GITHUB_ACTIONS") == "true":
        return LogGroup(gitlab)
    return None


def error_annotations(error: BertctlError) -> list[str]:
    """Returns GitHub's commands that show an error at the lines it names.

    Outside of GitHub there are none.
    """
    from bertctl.reporting import github
    from bertctl.reporting.findings import Check

    problems = [
        problem for problem in map(BertctlError, error.message.splitlines()) if problem.line
    ]
    checks = [
        Check(
            f"bertctl: {error.kind}",
            "",
            "fail",
            problem.message,
            file=problem.file,
            line=problem.line,
        )
        for problem in problems
    ]
    if github.wants_annotations():
        return github.annotations(checks)
    return []
