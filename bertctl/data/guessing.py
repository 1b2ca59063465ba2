"""Which task a file is for, as far as its suffix and its beginning say."""

import re
from pathlib import Path

from bertctl.data.annotations.tables import SUFFIXES as ANNOTATED
from bertctl.data.files import suffix_of
from bertctl.data.text_files import open_bytes

_COLUMNS = (".conll", ".conllu", ".conllup", ".iob", ".iob2", ".bio")
_HEAD = 1 << 18  # bytes
_KEY = re.compile(r'"([^"\\]+)"\s*:')
_QUESTIONS = ({"paragraphs"}, {"question", "context"})
_TAGGED = ({"tokens", "ner_tags"}, {"tokens", "tags"}, {"words", "tags"}, {"words", "label"}, {"text", "spans"},
           {"text", "entities"}, {"passages"}, {"annotations"})  # fmt: skip


def guess_task(path: Path) -> str | None:
    """Returns the task that a file is for, where it is one of words with tags or of questions about texts."""
    suffix = suffix_of(path)
    if suffix in _COLUMNS or (suffix in ANNOTATED and suffix != ".json"):
        return "token-classification"
    if suffix not in (".json", ".jsonl", ".ndjson", ".parquet", ".pq") or not path.is_file():
        return None
    names = _columns_of(path) if suffix in (".parquet", ".pq") else _keys_of(path)
    if any(wanted <= names for wanted in _QUESTIONS):
        return "question-answering"
    return "token-classification" if any(wanted <= names for wanted in _TAGGED) else None


def _columns_of(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except pa.ArrowInvalid:  # it is refused where it is read
        return set()


def _keys_of(path: Path) -> set[str]:
    """Returns the names that stand before a colon at the beginning of a JSON file, of any depth."""
    with open_bytes(path) as file:
        head = file.read(_HEAD).decode("utf-8", "replace")
    return set(_KEY.findall(head))
