"""Checks for GitHub: the step summary (Markdown) and annotations (workflow commands).

Limits: a step's summary holds 1 MiB, and more is refused as a whole; of annotations 10 of a kind are shown for a step,
and more are dropped. So the worst come first, and what has no room is counted.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertctl.errors import UnavailableError
from bertctl.reporting.escape import command_message, command_property, markdown, one_line
from bertctl.reporting.findings import Check, Verdict, counts, worst_first
from bertctl.run_folder import write_failure

TextTable = tuple[str, list[str], list[list[str]]]
"""Title, header and rows of a table of plain texts."""

SUMMARY_LIMIT = 1024 * 1024
"""Bytes of a step's summary; what a step wrote before counts too."""

ANNOTATIONS_OF_A_KIND = 10

_RESERVE = 4096  # for the line that says how much was left out, and for a step that appends a line of its own
_TITLE = 100
_KINDS: Mapping[Verdict, str] = {"fail": "error", "inconclusive": "warning", "warning": "warning"}
_MARKS: Mapping[Verdict, str] = {"fail": "❌", "inconclusive": "❔", "warning": "⚠️", "pass": "✅"}


def summary_path(environment: Mapping[str, str]) -> Path | None:
    """Where GitHub wants the step's summary; None outside of it."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    return Path(path) if path else None


def wants_annotations(environment: Mapping[str, str]) -> bool:
    """Whether a GitHub runner reads along."""
    return environment.get("GITHUB_ACTIONS") == "true"


def annotations(checks: Sequence[Check]) -> list[str]:
    """Workflow commands for all checks that did not pass: at most 10 errors and 10 warnings, the worst first.

    Where there are more of a kind, the tenth says how many were left out.
    """
    lines: list[str] = []
    for kind in ("error", "warning"):
        bad = [check for check in worst_first(checks) if _KINDS.get(check.verdict) == kind]
        room = ANNOTATIONS_OF_A_KIND if len(bad) <= ANNOTATIONS_OF_A_KIND else ANNOTATIONS_OF_A_KIND - 1
        lines += [_annotation(kind, check) for check in bad[:room]]
        if len(bad) > room:
            lines.append(f"::{kind} title=bertctl::{len(bad) - room} more; the step summary lists them")
    return lines


def checks_summary(
    title: str, checks: Sequence[Check], *, headline: str = "", notes: Sequence[str] = (), limit: int = SUMMARY_LIMIT
) -> str:
    """Checks as Markdown, the worst first, in fewer than `limit` bytes.

    Args:
        title: of the section.
        checks: in any order.
        headline: a sentence under the title.
        notes: more sentences, under the table.
        limit: bytes.
    """
    tally = ", ".join(f"{number:,} {verdict}" for verdict, number in counts(checks).items())
    head = [f"## {markdown(title)}", "", f"{markdown(headline, limit=1000)} ({tally})" if headline else tally, ""]
    tail = ["", *(f"- {markdown(note, limit=1000)}" for note in notes)] if notes else []
    rows = [
        (_MARKS[check.verdict], check.verdict, check.name, _with_place(check), check.detail)
        for check in worst_first(checks)
    ]
    room = limit - _RESERVE - _size([*head, *tail])
    return "\n".join([*head, *_fitting_table(rows, room), *tail]) + "\n"


def tables_summary(title: str, tables: Sequence[TextTable], *, limit: int = SUMMARY_LIMIT) -> str:
    """Tables as Markdown in fewer than `limit` bytes; rows that don't fit are counted.

    Args:
        title: of the section.
        tables: in the order wanted; those without rows are left out.
        limit: bytes.
    """
    lines = [f"## {markdown(title)}", ""]
    used, left_out = _size(lines), 0
    for heading, header, rows in tables:
        head = [f"### {markdown(heading)}", "", *table(header, []), ""]
        used += _size(head)
        fitting = []
        for row in rows:
            used += len((line := _row(row)).encode("utf-8")) + 1
            if used > limit - _RESERVE:
                break
            fitting.append(line)
        left_out += len(rows) - len(fitting)
        if fitting:
            lines += [*head[:-1], *fitting, ""]
    if left_out:
        lines += [f"… and {left_out:,} more rows that have no room here.", ""]
    return "\n".join(lines)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, line by line; every cell is escaped."""
    return [
        _row(headers),
        "|" + " --- |" * len(headers),
        *(_row(row) for row in rows),
    ]


def append_summary(path: Path, text: str) -> bool:
    """Add a section to the step's summary.

    Returns:
        False where what stands there already leaves no room; nothing is written then, as GitHub would drop it all.

    Raises:
        UnavailableError: it can't be written.
    """
    try:
        used = path.stat().st_size if path.exists() else 0
        content = ("\n" if used else "").encode() + text.encode("utf-8")
        if used + len(content) >= SUMMARY_LIMIT:
            return False
        with path.open("ab") as out:
            out.write(content)
    except OSError as error:
        raise write_failure(path, error) from error
    return True


def room_left(path: Path) -> int:
    """Bytes that the step's summary can still hold."""
    try:
        return max(0, SUMMARY_LIMIT - path.stat().st_size)
    except OSError:
        return SUMMARY_LIMIT


def publish(title: str, checks: Sequence[Check], *, headline: str = "", notes: Sequence[str] = ()) -> list[str]:
    """Write the step summary where GitHub names one, and give the annotations where a runner reads along.

    Returns:
        Workflow commands, to be written to stderr by the caller.

    Raises:
        UnavailableError: the summary can't be written.
    """
    path = summary_path(os.environ)
    if path is not None:
        text = checks_summary(title, checks, headline=headline, notes=notes, limit=room_left(path))
        if not append_summary(path, text):
            raise UnavailableError(
                f"{path}: the step's summary is full (1 MiB)", remedy="Write less to it before, or use another step."
            )
    return annotations(checks) if wants_annotations(os.environ) else []


def _annotation(kind: str, check: Check) -> str:
    properties = [f"title={command_property(one_line(check.name, limit=_TITLE))}"]
    if check.file is not None:
        properties.insert(0, f"file={command_property(check.file)}")
        if check.line is not None:
            properties.insert(1, f"line={check.line}")
    return f"::{kind} {','.join(properties)}::{command_message(one_line(check.message, limit=1000))}"


def _with_place(check: Check) -> str:
    if check.file is None:
        return check.message
    return f"{check.message} ({check.file}{'' if check.line is None else f':{check.line}'})"


def _fitting_table(rows: Sequence[tuple[str, str, str, str, str]], room: int) -> list[str]:
    """The table of as many checks as fit, and how many did not."""
    lines = table(["", "verdict", "check", "found"], [])
    used = _size(lines)
    for number, (mark, verdict, name, found, detail) in enumerate(rows):
        more = f"<br>{markdown(detail, limit=400)}" if detail else ""
        line = _row([mark, verdict, name, ""])[:-3] + f" {markdown(found, limit=1000)}{more} |"
        used += len(line.encode("utf-8")) + 1
        if used > room:
            return [*lines, "", f"… and {len(rows) - number:,} more that have no room here."]
        lines.append(line)
    return lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(markdown(cell, limit=1000) for cell in cells) + " |"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8")) + 1 for line in lines)
