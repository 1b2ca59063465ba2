"""The usual names of columns, from which they are guessed."""

TEXT_NAMES = (
    "text", "sentence", "sentence1", "review", "content", "question1", "premise", "question", "document", "comment",
    "tweet", "message", "body",
)  # fmt: skip
PAIR_NAMES = (
    ("text", "pair"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question", "answer"),
    ("query", "passage"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
)
LABEL_NAMES = (
    "label", "labels", "gold_label", "class", "category", "sentiment", "target", "score", "rating", "is_duplicate",
    "y",
)  # fmt: skip
ID_NAMES = ("id", "idx", "index", "guid", "uid", "__index_level_0__")

_ALL_NAMES = frozenset((*TEXT_NAMES, *(name for pair in PAIR_NAMES for name in pair), *LABEL_NAMES, *ID_NAMES))


def folded(name: str) -> str:
    """Returns a name as it is compared with the usual ones."""
    return name.strip().casefold()


def known_name(name: str) -> bool:
    """Whether a cell is one of the usual column names."""
    return folded(name) in _ALL_NAMES
