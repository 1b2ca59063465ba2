"""Extractive question answering: the span of a context that answers a question."""
