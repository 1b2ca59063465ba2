"""The usual names of columns, from which they are guessed."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

TEXT_NAMES = (
    "text", "sentence", "sentence1", "review", "content", "question1", "premise", "question",
    "document", "comment", "tweet", "message", "body", "utterance", "query", "satz", "frage",
    "kommentar", "nachricht", "rezension", "bewertungstext", "beitrag", "anfrage", "texte",
    "phrase", "texto",
)  # fmt: skip
PAIR_NAMES = (
    ("text", "pair"), ("sentence1", "sentence2"), ("question1", "question2"),
    ("premise", "hypothesis"), ("question", "sentence"), ("question", "answer"),
    ("question", "passage"), ("question", "context"), ("query", "passage"), ("query", "document"),
    ("text1", "text2"), ("text_1", "text_2"), ("text_a", "text_b"), ("sentence_a", "sentence_b"),
    ("sentence_1", "sentence_2"), ("satz1", "satz2"), ("frage1", "frage2"), ("anchor", "positive"),
    ("query", "positive"), ("query", "answer"), ("frage", "antwort"), ("prämisse", "hypothese"),
    ("sentence_good", "sentence_bad"),
)  # fmt: skip
SCORE_NAMES = (
    "score", "rating", "similarity", "similarity_score", "relatedness", "relatedness_score",
    "stars", "sterne", "note", "bewertung", "punkte", "ähnlichkeit",
)  # fmt: skip
CLASS_NAMES = (
    "label", "labels", "gold_label", "class", "category", "sentiment", "target", "is_duplicate",
    "y", "intent", "topic", "emotion", "klasse", "kategorie", "stimmung", "thema", "emotions",
    "categories", "topics", "genres",
)  # fmt: skip
LABEL_NAMES = (*CLASS_NAMES, *SCORE_NAMES)
ID_NAMES = ("id", "idx", "index", "guid", "uid", "__index_level_0__")
SPLIT_NAMES = (
    "split", "partition", "subset", "fold", "is_train", "is_valid", "is_validation", "is_val",
    "is_dev", "is_test",
)  # fmt: skip
"""Columns that say for what a row is meant: training or test."""
OWN_ID_NAMES = ("id", "_id", "guid", "uid", "uuid")
"""Columns with ids of a file's own. `idx` and `index` only count its rows: they are carried over as
they are."""

_ALL_NAMES = frozenset((*TEXT_NAMES, *chain.from_iterable(PAIR_NAMES), *LABEL_NAMES, *ID_NAMES))


def folded(name: str) -> str:
    """Returns a name as it is compared with the usual ones."""
    return name.strip().casefold()


def known_name(name: str) -> bool:
    """Whether a cell is one of the usual column names."""
    return folded(name) in _ALL_NAMES


def first_field(entry: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Returns the first field of these names that an object has; None if it has none of them."""
    for name in names:
        if name in entry:
            return entry[name]
    return None
