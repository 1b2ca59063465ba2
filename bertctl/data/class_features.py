"""Names of classes that the library `datasets` writes into a Parquet file.

They replace the numbers of the classes.

A feature describes a column. Those with classes are `ClassLabel`s, alone, in lists, in objects and
in lists of objects.
"""

import json
from collections.abc import Mapping
from typing import Any

from bertctl.data.label_cells import NO_LABEL


def class_features(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Returns the features by column of columns that have classes.

    They are in the metadata of a file's schema.
    """
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    if not isinstance(features, dict):
        return {}
    return {column: feature for column, feature in features.items() if _has_classes(feature)}


def names_of_classes(feature: Any) -> tuple[str, ...]:
    """Returns the names of a column's classes, in the order of their numbers.

    The classes may also stand in the column's lists.
    """
    inner = _item_feature(feature)
    classes = feature if inner is None else inner
    if _is_class(classes):
        return tuple(map(str, classes["names"]))
    return ()


def with_class_names(value: Any, feature: Any) -> Any:
    """Returns a cell with names in place of class numbers.

    It also replaces those in lists and objects. -1 is no class.
    """
    if value is None or feature is None:
        return value
    if _is_class(feature):
        return _named(value, feature["names"])
    item = _item_feature(feature)
    if isinstance(value, list):
        return [with_class_names(element, item) for element in value]
    if not isinstance(value, dict):
        return value
    if item is None:
        return {name: with_class_names(field, feature.get(name)) for name, field in value.items()}
    # A sequence of objects is stored as an object of lists.
    return {name: with_class_names(field, [item.get(name)]) for name, field in value.items()}


def _named(number: Any, names: list[Any]) -> Any:
    if number == NO_LABEL:
        return None  # as in GLUE's test sets
    is_known = isinstance(number, int) and 0 <= number < len(names)
    if is_known:
        return str(names[number])
    return number


def _is_class(feature: Any) -> bool:
    return (
        isinstance(feature, dict)
        and isinstance(feature.get("names"), list)
        and feature.get("_type", "ClassLabel") == "ClassLabel"
    )


def _item_feature(feature: Any) -> Any:
    """Returns the feature of the items of a list; None where it is none.

    Earlier releases write a list of one.
    """
    if isinstance(feature, list):
        return feature[0] if feature else None
    is_list = isinstance(feature, dict) and feature.get("_type", "Sequence") in (
        "List",
        "LargeList",
        "Sequence",
    )
    if is_list:
        return feature.get("feature")
    return None


def _has_classes(feature: Any) -> bool:
    """Returns whether there are classes in a feature, however deep."""
    if _is_class(feature):
        return True
    if isinstance(feature, list):
        return any(map(_has_classes, feature))
    return isinstance(feature, dict) and any(map(_has_classes, feature.values()))
