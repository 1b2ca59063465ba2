"""Texts to ids, and what a vocabulary holds: the library `tokenizers`, never torch."""
