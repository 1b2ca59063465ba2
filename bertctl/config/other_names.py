"""What other programs call our verbs, options, fields, values and metrics.

It is the table in `other_names.yaml`.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertctl.config.strict_yaml import read_document


@functools.cache
def other_names(section: str) -> Mapping[str, Any]:
    """Returns a section of the table.

    It is `names`, `values`, `metrics`, `verbs`, `group_verbs`, `options`, or `arguments`.
    """
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return dict(read_document(text).values[section])


def other_value(field: str, word: str) -> str:
    """Returns the value of a field that other programs name so; an empty text if unknown."""
    return str(other_names("values").get(field, {}).get(word.lower(), ""))


def other_metric(metric: str) -> str:
    """Returns the metric that other programs call so; an empty text where there is none."""
    name = metric.lower().replace("-", "_")
    return str(other_names("metrics").get(name, name if name != metric else ""))
