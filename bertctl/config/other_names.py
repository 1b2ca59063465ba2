"""What other programs call our verbs, options, fields, values and metrics: `other_names.yaml`."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertctl.config.strict_yaml import read_document


@functools.cache
def other_names(section: str) -> Mapping[str, Any]:
    """Returns a section of the table: name in other programs -> what bertctl has for it.

    Args:
        section: `names`, `values`, `metrics`, `verbs`, `group_verbs`, `options`, or `arguments`.
    """
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return dict(read_document(text).values[section])


def other_value(field: str, word: str) -> str:
    """Returns a field's value for a word of other programs; empty if the table lacks the word."""
    return str(other_names("values").get(field, {}).get(word.lower(), ""))


def other_metric(metric: str) -> str:
    """Returns bertctl's likely name of a metric that it does not know as typed; empty if none.

    A name of other programs is replaced by the metric that it means there. Another name is written
    as bertctl writes names: `Macro-F1` -> `macro_f1`.
    """
    name = metric.lower().replace("-", "_")
    names_elsewhere = other_names("metrics")
    if name in names_elsewhere:
        return str(names_elsewhere[name])
    return name if name != metric else ""
