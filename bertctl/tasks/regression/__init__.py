"""Text regression: a score for a text or a pair of texts."""
