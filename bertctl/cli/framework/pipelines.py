"""What the verbs that judge write for pipelines: JUnit, GitHub, GitLab.

The verbs are gate, compare and data check.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
    """Returns a decorator that gives a verb, as a value, the files it writes for pipelines."""
    options = [option for option in _OPTIONS if option.name not in left_out]
    return folds(
        [],
        options,
        lambda arguments: ReportFiles(
            **{option.name: arguments.pop(option.name) for option in options}
        ),
    )


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
    """Writes checks in every form that was asked for, and for GitHub where it runs the process.

    A step summary that can't be written is a warning: the verdict must not depend on it.

    Args:
        out: where talk goes; annotations go to stderr, as stdout is the answer.
        checks: what was judged.
        files: where the reports go.
        title: of the summary's section.
        headline: one sentence under it.
        notes: more sentences.
        passed: what else was judged, for JUnit XML alone.
        default_file: shown in the code-quality report for checks that are about no file.

    Raises:
        UnavailableError: a file that was asked for can't be written.
    """
    _summarise(
        out,
        lambda room: github.checks_summary(
            title,
            checks,
            headline=headline,
            notes=notes,
            limit=room,
        ),
    )
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
    """Writes tables into GitHub's step summary where there is one.

    A summary that can't be written is a warning.
    """
    _summarise(out, lambda room: github.tables_summary(title, tables, limit=room))


def _summarise(out: Output, make: Callable[[int], str]) -> None:
    """Writes into the step summary what `make` makes of the room that is left there, in bytes."""
    try:
        github.write_summary(make)
    except UnavailableError as error:
        out.warn(f"no step summary: {error.message}")
