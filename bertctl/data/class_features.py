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
    """Returns the features of the columns that have classes, by column.

    `{"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}`.

    Args:
        metadata: The metadata of a Parquet file's schema, in which `datasets` writes its features
            as JSON.
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

    The cells may be classes or lists of classes; other columns have none.
    """
    item = _item_feature(feature)
    cell_or_item = feature if item is None else item
    if _is_class(cell_or_item):
        return tuple(map(str, cell_or_item["names"]))
    return ()


def with_class_names(value: Any, feature: Any) -> Any:
    """Returns a cell with names in place of class numbers, in lists and objects too: 1 -> `pos`.

    Args:
        value: The cell.
        feature: The feature of its column; None if the column has none.
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
    # `datasets` stores a sequence of objects as an object of lists: `{"tag": [1, 0]}`. Its feature
    # gives the class of a single `tag`, and `[feature]` is the feature of a list of such items.
    return {name: with_class_names(field, [item.get(name)]) for name, field in value.items()}


def _named(number: Any, names: list[Any]) -> Any:
    """Returns the name of a class number, None for -1, and anything else as it is."""
    if number == NO_LABEL:
        return None  # GLUE's test sets have -1 where the label is not published
    is_known = isinstance(number, int) and 0 <= number < len(names)
    if is_known:
        return str(names[number])
    return number


def _is_class(feature: Any) -> bool:
    """Returns whether a feature is a `ClassLabel`: it has names, and no other type."""
    if not isinstance(feature, dict) or not isinstance(feature.get("names"), list):
        return False
    return bool(feature.get("_type", "ClassLabel") == "ClassLabel")


def _item_feature(feature: Any) -> Any:
    """Returns the feature of a list's items; None if the feature is not that of a list.

    Releases of `datasets` write it as `[item]` or as `{"feature": item, "_type": "List"}`.
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
