"""What the verbs that judge (gate, compare, data check) write for pipelines: JUnit, GitHub, GitLab."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bertctl.cli.output import Output
from bertctl.errors import UnavailableError
from bertctl.reporting import github
from bertctl.reporting.findings import Check

JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write each check as a test case, JUnit XML.")
]
GitlabMetricsOption = Annotated[
    Path | None,
    typer.Option(
        "--gitlab-metrics",
        metavar="FILE",
        help="Write the numbers as a GitLab metrics report (artifacts:reports:metrics).",
    ),
]
GitlabCodeQualityOption = Annotated[
    Path | None,
    typer.Option(
        "--gitlab-codequality",
        metavar="FILE",
        help="Write the checks that did not pass as a GitLab code-quality report (artifacts:reports:codequality).",
    ),
]


def publish_checks(
    out: Output,
    checks: Sequence[Check],
    *,
    title: str,
    headline: str = "",
    notes: Sequence[str] = (),
    passed: Sequence[Check] = (),
    junit: Path | None = None,
    gitlab_codequality: Path | None = None,
    default_file: str = "",
) -> None:
    """Writes checks in every form that was asked for, and for GitHub where it runs the process.

    A step summary that can't be written is a warning: the verdict must not depend on it.

    Args:
        out: where talk goes; annotations go to stderr, as stdout is the answer.
        checks: what was judged.
        title: of the summary's section.
        headline: one sentence under it.
        notes: more sentences.
        passed: what else was judged, for JUnit XML alone.
        junit: file for JUnit XML.
        gitlab_codequality: file for the code-quality report.
        default_file: shown there for checks that are about no file.

    Raises:
        UnavailableError: a file that was asked for can't be written.
    """
    _summarise(out, lambda room: github.checks_summary(title, checks, headline=headline, notes=notes, limit=room))
    if github.wants_annotations():
        out.commands(github.annotations(checks))
    if junit is not None:
        from bertctl.reporting.junit import junit_document
        from bertctl.writing import write_text

        write_text(junit, junit_document([*checks, *passed]))
    if gitlab_codequality is not None:
        from bertctl.reporting.gitlab import write_code_quality

        write_code_quality(gitlab_codequality, checks, default_file=default_file)
    written = [str(path) for path in (junit, gitlab_codequality) if path is not None]
    if written:
        out.say(f"written: {', '.join(written)}")


def publish_tables(out: Output, title: str, tables: Sequence[github.TextTable]) -> None:
    """Writes tables into GitHub's step summary where there is one; a summary that can't be written is a warning."""
    _summarise(out, lambda room: github.tables_summary(title, tables, limit=room))


def _summarise(out: Output, make: Callable[[int], str]) -> None:
    """Writes into the step summary what `make` makes of the room that is left there, in bytes."""
    try:
        github.write_summary(make)
    except UnavailableError as error:
        out.warn(f"no step summary: {error.message}")
