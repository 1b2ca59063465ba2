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

    It has the messages of a verb while it works.

    Attributes:
        gitlab: Whether the job is GitLab's, and not GitHub's.
        is_open: Whether the part has begun and not ended.
        count: Number of parts so far. A warning ends a part, so that it is visible, and the next
            message begins another one.
    """

    gitlab: bool
    is_open: bool = False
    count: int = 0

    def open(self) -> list[str]:
        """Returns the log commands that begin the folded part; none if it has begun already."""
        if self.is_open:
            return []
        self.is_open = True
        self.count = self.count + 1
        title = command_message(one_line(shlex.join(["bertctl", *command_words()]), limit=100))
        if self.gitlab:
            return [self._section("start", "[collapsed=true]", title)]
        return [f"::group::{title}"]

    def close(self) -> list[str]:
        """Returns the log commands that end the folded part; none if it has not begun."""
        if not self.is_open:
            return []
        self.is_open = False
        if self.gitlab:
            return [self._section("end", "", "")]
        return ["::endgroup::"]

    def _section(self, event: str, options: str, title: str) -> str:
        """Returns GitLab's log command for the start or the end of a part.

        Args:
            event: `start` or `end`.
            options: Such as `[collapsed=true]`.
            title: The line that is shown while the part is folded.
        """
        name = f"bertctl_{os.getpid()}_{self.count}"
        return f"\x1b[0Ksection_{event}:{int(time.time())}:{name}{options}\r\x1b[0K{title}"


def log_group() -> LogGroup | None:
    """Returns a folded part for the log of a job of GitHub or GitLab; None outside of both."""
    gitlab = os.environ.get("GITLAB_CI") == "true"
    if gitlab or os.environ.get("GITHUB_ACTIONS") == "true":
        return LogGroup(gitlab)
    return None


def error_annotations(error: BertctlError) -> list[str]:
    """Returns log commands by which GitHub shows an error at the lines of files that it names.

    Outside of GitHub there are none.
    """
    from bertctl.reporting import github
    from bertctl.reporting.findings import Check

    # A message of several lines may name a place in each. A `BertctlError` finds the place in its
    # message, so each line is made one.
    problems = [BertctlError(message_line) for message_line in error.message.splitlines()]
    checks = [
        Check(
            name=f"bertctl: {error.kind}",
            group="",
            verdict="fail",
            message=problem.message,
            file=problem.file,
            line=problem.line,
        )
        for problem in problems
        if problem.line
    ]
    if github.wants_annotations():
        return github.annotations(checks)
    return []
