"""Checks as JUnit XML, the form that Jenkins, GitLab, GitHub actions and the rest read.

`<testsuites>` holds a `<testsuite>` for each group and a `<testcase>` for each check. A failed
check has a `<failure>`, an undecided one an `<error>`, a warning passes and has its text in
`<system-out>`. Only elements and attributes that the Jenkins schema and Ant's have in common are
used; a file and line stand in the text.
"""

from collections.abc import Sequence
from xml.etree import ElementTree

from bertctl.reporting.escape import xml
from bertctl.reporting.findings import Check

_MESSAGE = 500
"""Characters of the `message` attribute, which a reader shows in one line."""

_DETAIL = 20_000
"""Characters of an element's text."""


def junit_document(checks: Sequence[Check]) -> str:
    """Returns the XML text, declaration included; checks stay in their order within a group."""
    root = ElementTree.Element("testsuites", _numbers("bertctl", checks))
    groups: dict[str, list[Check]] = {}
    for check in checks:
        groups.setdefault(check.group, []).append(check)
    for group, members in groups.items():
        suite = ElementTree.SubElement(
            root, "testsuite", _numbers(group, members) | {"skipped": "0"}
        )
        for check in members:
            _add_case(suite, check)
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _numbers(name: str, checks: Sequence[Check]) -> dict[str, str]:
    """Returns a suite's attributes: name and counts; inconclusive checks are its errors."""
    return {
        "name": xml(name),
        "tests": str(len(checks)),
        "failures": str(sum(check.verdict == "fail" for check in checks)),
        "errors": str(sum(check.verdict == "inconclusive" for check in checks)),
        "time": "0",
    }


def _add_case(suite: ElementTree.Element, check: Check) -> None:
    """Adds a check to a suite: a failure, an error if it is inconclusive, or a passed case."""
    names = {"classname": xml(check.group), "name": xml(check.name), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", names)
    lines = filter(None, (check.place, check.message, check.detail))
    text = xml("\n".join(lines)[:_DETAIL])
    if check.verdict in ("fail", "inconclusive"):
        if check.verdict == "fail":
            tag = "failure"
        else:
            tag = "error"
        outcome = ElementTree.SubElement(
            case, tag, {"message": xml(check.message[:_MESSAGE]), "type": check.verdict}
        )
        outcome.text = text
    else:
        ElementTree.SubElement(case, "system-out").text = f"{check.verdict}: {text}"
