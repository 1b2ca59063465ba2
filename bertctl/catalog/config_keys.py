"""Keys of config.json that are ours."""

WORD_VECTORS = "word_vectors"
"""True of a model that is a table of words' vectors (`word_vectors.py` makes it)."""
