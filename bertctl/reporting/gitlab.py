"""Checks and metrics for GitLab.

They are a metrics report and a code-quality report, both shown in the merge request.

artifacts:reports:metrics takes OpenMetrics text, artifacts:reports:codequality a JSON list of
issues. https://docs.gitlab.com/ci/testing/metrics_reports/ and
https://docs.gitlab.com/ci/testing/code_quality/
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertctl.reporting.escape import one_line
from bertctl.reporting.findings import Check, Verdict, in_repository, worst_first
from bertctl.words import harmless
from bertctl.writing import write_text

_SEVERITY: Mapping[Verdict, str] = {"fail": "critical", "inconclusive": "major", "warning": "minor"}

_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

Sample = tuple[str, Mapping[str, str], float]
"""A metric's name, its labels, its value."""


def metrics_report(samples: Sequence[Sample]) -> str:
    """Returns OpenMetrics text, one line per sample: `bertctl_accuracy{split="validation"} 0.91`.

    GitLab compares samples of one name and the same labels between two pipelines: no label may
    change from run to run (no path, no date). What is no finite number is left out.
    """
    lines = []
    for name, labels, value in samples:
        if math.isfinite(value):
            labels_text = ",".join(
                f'{_NOT_A_NAME.sub("_", key)}="{_label(text)}"' for key, text in labels.items()
            )
            lines.append(f"bertctl_{_NOT_A_NAME.sub('_', name)}{{{labels_text}}} {value:.10g}\n")
    distinct_lines = dict.fromkeys(lines)
    return "".join(distinct_lines) + "# EOF\n"


def code_quality(checks: Sequence[Check], *, default_file: str) -> list[dict[str, Any]]:
    """Returns the checks that did not pass, the worst first, in GitLab's subset of Code Climate.

    Args:
        checks: in any order.
        default_file: the file that checks without one are shown at (a recipe, a pipeline's own
            file).
    """
    issues = []
    occurrences: dict[str, int] = {}
    for check in worst_first(checks):
        if check.verdict == "pass":
            continue
        path = harmless(in_repository(check.file or default_file))
        # GitLab knows a finding of an earlier pipeline by its fingerprint. Messages are not part of
        # it, as they have numbers that change.
        key = f"{check.name}\0{check.file or ''}\0{check.line}"
        # Findings with the same key are numbered, so that their fingerprints differ.
        occurrences[key] = occurrences.get(key, 0) + 1
        digest = hashlib.sha256(
            f"{key}\0{occurrences[key]}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        issues.append(
            {
                "description": one_line(f"{check.name}: {check.message}", limit=1000),
                "check_name": f"bertctl/{one_line(check.name)}",
                "fingerprint": digest,
                "severity": _SEVERITY[check.verdict],
                "location": {"path": path, "lines": {"begin": check.line or 1}},
            }
        )
    return issues


def write_code_quality(path: Path, checks: Sequence[Check], *, default_file: str) -> None:
    """Writes the code-quality report; an empty list where all passed.

    Raises:
        UnavailableError: it can't be written.
    """
    write_text(
        path,
        json.dumps(code_quality(checks, default_file=default_file), indent=2, ensure_ascii=False)
        + "\n",
    )


def _label(text: str) -> str:
    """Returns a text as the value of a label: on one line, backslashes and quotes escaped."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
