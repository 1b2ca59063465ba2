"""What the verbs that judge write for pipelines: JUnit, GitHub, GitLab.

The verbs are gate, compare and data check.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bertctl.cli.framework.folding import Decorator, folds, option
from bertctl.cli.framework.output import Output
from bertctl.errors import UnavailableError
from bertctl.reporting import github
from bertctl.reporting.findings import Check


@dataclass(frozen=True)
class ReportFiles:
    """Which files a verb's checks are written to, besides its answer; see the options."""

    junit: Path | None
    gitlab_codequality: Path | None
    gitlab_metrics: Path | None = None


_option = partial(option, kind=Path, metavar="FILE")
_QUALITY = (
    "Write the checks that did not pass as a GitLab code-quality report "
    "(artifacts:reports:codequality). An existing file is replaced."
)
_METRICS = (
    "Write the numbers as a GitLab metrics report (artifacts:reports:metrics). An existing file is "
    "replaced."
)
_OPTIONS = [
    _option(
        "junit",
        "--junit",
        "Write each check as a test case, JUnit XML. An existing file is replaced.",
    ),
    _option("gitlab_metrics", "--gitlab-metrics", _METRICS),
    _option("gitlab_codequality", "--gitlab-codequality", _QUALITY),
]


def takes_report_files(*left_out: str) -> Decorator:
    """Returns a decorator that gives a verb the options of files for pipelines, as `ReportFiles`.

    Args:
        left_out: Names of the options that the verb does not have.
    """
    options = [option for option in _OPTIONS if option.name not in left_out]

    def fold(arguments: dict[str, Any]) -> ReportFiles:
        """Removes these options from a verb's arguments, and returns them as one value."""
        return ReportFiles(**{option.name: arguments.pop(option.name) for option in options})

    return folds(before=[], after=options, fold=fold)


def publish_checks(
    out: Output,
    checks: Sequence[Check],
    files: ReportFiles,
    *,
    title: str,
    headline: str = "",
    notes: Sequence[str] = (),
    passed: Sequence[Check] = (),
    default_file: str = "",
) -> None:
    """Writes checks into the files that were typed and, in a job of GitHub, into what GitHub shows.

    GitHub shows a summary of the step, and annotations of lines. A summary that can't be written is
    a warning: the verdict must not depend on it.

    Args:
        out: Prints messages and annotations, both to stderr.
        checks: The checks.
        files: The files that were typed.
        title: Heading of the summary.
        headline: First sentence of the summary.
        notes: Further sentences of the summary.
        passed: More checks, which only the JUnit file lists.
        default_file: File that the code-quality report names for checks that are about no file.

    Raises:
        UnavailableError: A file that was typed can't be written.
    """

    def summary(n_bytes_left: int) -> str:
        """Returns the section of the step summary, in at most as many bytes as are left."""
        return github.checks_summary(
            title,
            checks,
            headline=headline,
            notes=notes,
            limit=n_bytes_left,
        )

    _summarise(out, summary)
    if github.wants_annotations():
        out.commands(github.annotations(checks))
    if files.junit is not None:
        from bertctl.reporting.junit import junit_document
        from bertctl.writing import write_text

        write_text(files.junit, junit_document([*checks, *passed]))
    if files.gitlab_codequality is not None:
        from bertctl.reporting.gitlab import write_code_quality

        write_code_quality(files.gitlab_codequality, checks, default_file=default_file)
    written = [str(path) for path in (files.junit, files.gitlab_codequality) if path is not None]
    if written:
        out.say(f"written: {', '.join(written)}")


def publish_tables(out: Output, title: str, tables: Sequence[github.TextTable]) -> None:
    """Writes tables into GitHub's step summary, if there is one; failing is a warning."""
    _summarise(out, lambda n_bytes_left: github.tables_summary(title, tables, limit=n_bytes_left))


def _summarise(out: Output, make: Callable[[int], str]) -> None:
    """Writes a section into GitHub's step summary, if there is one; failing is a warning.

    Args:
        out: Prints the warning.
        make: Takes how many bytes the summary may still get, and returns the section's Markdown.
    """
    try:
        github.write_summary(make)
    except UnavailableError as error:
        out.warn(f"no step summary: {error.message}")
