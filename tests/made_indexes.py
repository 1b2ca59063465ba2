"""Documents of indexes, for tests that write the files of an index themselves."""

from typing import Any

from bertctl.run_documents.index_document import IndexDocument


def index_document(**fields: Any) -> IndexDocument:
    """The content of index.json, with these fields instead of those of an empty index."""
    values: dict[str, Any] = {
        "corpus": {"source": "", "rows": 0, "texts_sha256": ""},
        "model": "minilm",
        "model_hash": "",
        "layer": "last",
        "pooling": "mean",
        "max_length": 32,
        "size": 2,
        "rows": 0,
        "vectors": 0,
        "bytes": 0,
        "schema": 1,
        "dtype": "float32",
        "complete": True,
    }
    return IndexDocument.model_validate(values | fields)
