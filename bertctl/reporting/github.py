"""Checks for GitHub: the step summary (Markdown) and annotations (workflow commands).

Limits: a step's summary holds 1 MiB, and more is refused as a whole; of annotations 10 of a kind
are shown per step, and more are dropped. So the worst come first, and what has no room is counted.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bertctl.errors import UnavailableError
from bertctl.reporting.document import filled
from bertctl.reporting.escape import command_message, command_property, markdown, one_line
from bertctl.reporting.findings import Check, Verdict, counts, in_repository, worst_first
from bertctl.writing import append_text, failures_of

TextTable = tuple[str, list[str], list[list[str]]]
"""Title, header and rows of a table of plain texts."""

SUMMARY_LIMIT = 1024 * 1024
"""Bytes of a step's summary; what a step wrote before counts too."""

ANNOTATIONS_OF_A_KIND = 10

# Bytes for the line that says how much was left out, and for a step that appends its own line.
_RESERVE = 4096
_TITLE = 100
_KINDS: Mapping[Verdict, str] = {"fail": "error", "inconclusive": "warning", "warning": "warning"}
_MARKS: Mapping[Verdict, str] = {"fail": "❌", "inconclusive": "❔", "warning": "⚠️", "pass": "✅"}


def wants_annotations() -> bool:
    """Returns whether a GitHub runner reads along."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotations(checks: Sequence[Check]) -> list[str]:
    """Returns workflow commands for checks that did not pass: at most 10 errors and 10 warnings.

    Where there are more of a kind, the tenth says how many were left out.
    """
    lines: list[str] = []
    for kind in ("error", "warning"):
        bad = [check for check in worst_first(checks) if _KINDS.get(check.verdict) == kind]
        if len(bad) <= ANNOTATIONS_OF_A_KIND:
            room = ANNOTATIONS_OF_A_KIND
        else:
            room = ANNOTATIONS_OF_A_KIND - 1  # the last one counts what is left out
        lines += [_annotation(kind, check) for check in bad[:room]]
        if len(bad) > room:
            lines.append(
                f"::{kind} title=bertctl::{len(bad) - room} more; the step summary lists them"
            )
    return lines


def write_summary(make: Callable[[int], str]) -> None:
    """Adds a section to the step's summary, where GitHub names a file for it.

    Args:
        make: returns the section's Markdown, told how many bytes the summary can still hold.

    Raises:
        UnavailableError: it can't be written, or is full: GitHub would drop all of it.
    """
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    with failures_of(path):
        if path.exists():
            used = path.stat().st_size
        else:
            used = 0
        content = ("\n" if used else "") + make(SUMMARY_LIMIT - used)
        if used + _size([content]) > SUMMARY_LIMIT:
            message = f"{path}: the step's summary is full (1 MiB)"
            raise UnavailableError(message, remedy="Write less to it before, or use another step.")
        append_text(path, content)


def checks_summary(
    title: str,
    checks: Sequence[Check],
    *,
    headline: str = "",
    notes: Sequence[str] = (),
    limit: int = SUMMARY_LIMIT,
) -> str:
    """Returns checks as Markdown, the worst first, in fewer than `limit` bytes.

    Args:
        title: of the section.
        checks: in any order.
        headline: a sentence under the title.
        notes: more sentences, under the table.
        limit: bytes.
    """
    tally = ", ".join(f"{number:,} {verdict}" for verdict, number in counts(checks).items())
    head = [
        f"## {markdown(title)}",
        "",
        f"{markdown(headline, limit=1000)} ({tally})" if headline else tally,
        "",
    ]
    if notes:
        tail = ["", *(f"- {markdown(note, limit=1000)}" for note in notes)]
    else:
        tail = []
    table = (
        _table_head(["", "verdict", "check", "found"]),
        [_check_row(check) for check in worst_first(checks)],
    )
    return _fitted(head, [table], tail, limit)


def tables_summary(title: str, tables: Sequence[TextTable], *, limit: int = SUMMARY_LIMIT) -> str:
    """Returns tables as Markdown in fewer than `limit` bytes.

    Tables without rows are left out, and so are empty columns. If the tables are too long, rows at
    their ends are left out, and a line says how many.
    """
    sections = []
    for heading, header, rows in tables:
        columns = filled(len(header), rows)
        head = [header[i] for i in columns]
        lines = []
        for row in rows:
            cells = [row[i] for i in columns]
            lines.append(_row(cells))
        sections.append(([f"### {markdown(heading)}", "", *_table_head(head)], lines))
    return _fitted([f"## {markdown(title)}", ""], sections, tail=[], limit=limit)


def _fitted(
    head: Sequence[str],
    tables: Sequence[tuple[Sequence[str], Sequence[str]]],
    tail: Sequence[str],
    limit: int,
) -> str:
    """Returns head, tables and tail as one text of at most so many bytes.

    Rows of the tables that don't fit are left out, and a line tells their number.

    Args:
        head: Lines before the tables; the last one is empty.
        tables: Heading lines and rows of each table.
        tail: Lines after the tables.
        limit: Bytes.
    """
    lines = list(head)
    left_out = 0
    room = limit - _RESERVE - _size([*head, *tail])  # bytes for tables
    for table_head, rows in tables:
        room -= _size(table_head)
        fitting_rows = []
        for row in rows:
            room -= _size([row])
            if room < 0:
                break
            fitting_rows.append(row)
        left_out += len(rows) - len(fitting_rows)
        if fitting_rows:
            lines += [*table_head, *fitting_rows, ""]
    if left_out:
        lines += [f"… and {left_out:,} more rows that have no room here.", ""]
    lines_without_last_gap = lines[:-1]
    return "\n".join([*lines_without_last_gap, *tail]) + "\n"


def _annotation(kind: str, check: Check) -> str:
    """Returns a check as a workflow command: `::error file=a.csv,line=3,title=T::MESSAGE`."""
    if check.file is None:
        file = None
    else:
        file = in_repository(check.file)
    properties = {"file": file, "line": check.line, "title": one_line(check.name, limit=_TITLE)}
    properties_text = ",".join(
        f"{name}={command_property(str(text))}"
        for name, text in properties.items()
        if text is not None
    )
    return f"::{kind} {properties_text}::{command_message(one_line(check.message, limit=1000))}"


def _check_row(check: Check) -> str:
    """Returns a check as a row of the table, with its detail below the message."""
    if check.place:
        message = f"{check.message} ({check.place})"
    else:
        message = check.message
    if check.detail:
        detail = f"<br>{markdown(check.detail, limit=400)}"
    else:
        detail = ""
    row = _row([_MARKS[check.verdict], check.verdict, check.name, message])
    # Added to the last cell as it is: `_row` would escape the line break.
    return row.removesuffix(" |") + f"{detail} |"


def _table_head(headers: Sequence[str]) -> list[str]:
    """Returns the heading of a Markdown table and the line below it."""
    return [_row(headers), "|" + " --- |" * len(headers)]


def _row(cells: Sequence[str]) -> str:
    """Returns cells as a row of a Markdown table."""
    return "| " + " | ".join(markdown(cell, limit=1000) for cell in cells) + " |"


def _size(lines: Sequence[str]) -> int:
    """Returns the bytes of lines, line feeds included."""
    return sum(len(line.encode("utf-8")) + 1 for line in lines)
