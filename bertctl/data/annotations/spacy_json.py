"""spaCy's training examples as JSON.

Each is `[text, {"entities": [[0, 4, "PER"]]}]`, in lists or one per line.

ner-annotator (tecoholic.github.io/ner-annotator) writes a list of them as
`{"classes": [...], "annotations": [...]}`.
"""

from collections.abc import Mapping
from typing import Any

_LIKELY = 0.5  # probability from which a category of `cats` holds


def is_example(value: Any) -> bool:
    """Whether a value is a pair of a text and its annotations."""
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and isinstance(value[0], str) and isinstance(value[1], Mapping)


def is_collection(document: Any) -> bool:
    """Whether a document is what ner-annotator writes."""
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
    return [
        row_of(example) for example in examples if example is not None
    ]  # null: nobody came so far


def row_of(example: Any) -> Any:
    """Returns an example as an object with `text`, `entities`, and `label` for its categories.

    Other values are returned as they are.
    """
    if not is_example(example):
        return example
    text, annotations = example
    row = {"text": text, **annotations}
    cats = row.get("cats")
    if isinstance(cats, Mapping) and cats and "label" not in row:
        chosen = [name for name, probability in cats.items() if probability >= _LIKELY]
        row["label"] = chosen[0] if len(chosen) == 1 else chosen
        del row["cats"]
    return row
