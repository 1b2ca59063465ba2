"""Sentence embeddings: vectors whose cosine says how alike two texts are."""
