"""Checkpoints: when they are written, what is in them, their files."""
