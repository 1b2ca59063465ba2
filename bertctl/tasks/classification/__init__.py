"""Text classification: one label or several for a text or a pair of texts."""
