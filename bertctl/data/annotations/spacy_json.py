"""spaCy's training examples as JSON.

Each is `[text, {"entities": [[0, 4, "PER"]]}]`, in lists or one per line.

ner-annotator (tecoholic.github.io/ner-annotator) writes a list of them as
`{"classes": [...], "annotations": [...]}`.
"""

from collections.abc import Mapping
from typing import Any

_LIKELY = 0.5  # probability from which a category of `cats` holds


def is_example(value: Any) -> bool:
    """Returns whether a value is a text with its annotations: `["Anna", {"entities": [...]}]`."""
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and isinstance(value[0], str) and isinstance(value[1], Mapping)


def is_collection(document: Any) -> bool:
    """Returns whether a document is what ner-annotator writes: `{"classes", "annotations"}`."""
    if not isinstance(document, Mapping) or "classes" not in document:
        return False
    return isinstance(document.get("annotations"), list)


def examples_of(document: Any) -> Any:
    """Returns the examples of a document as objects; another document as it is."""
    if is_collection(document):
        examples = document["annotations"]
    else:
        examples = document
    if not isinstance(examples, list) or not any(map(is_example, examples)):
        return examples
    # ner-annotator writes null for a text that nobody has annotated yet.
    return [row_of(example) for example in examples if example is not None]


def row_of(example: Any) -> Any:
    """Returns an example as an object with `text`, `entities`, and `label` for its categories.

    `["Good", {"cats": {"pos": 1.0, "neg": 0.0}}]` -> `{"text": "Good", "label": "pos"}`; several
    likely categories are a list. Other values are returned as they are.
    """
    if not is_example(example):
        return example
    text, annotations = example
    row = {"text": text, **annotations}
    probabilities = row.get("cats")
    if isinstance(probabilities, Mapping) and probabilities and "label" not in row:
        chosen = [name for name, probability in probabilities.items() if probability >= _LIKELY]
        row["label"] = chosen[0] if len(chosen) == 1 else chosen
        del row["cats"]
    return row
