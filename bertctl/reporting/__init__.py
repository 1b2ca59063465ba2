"""Reads run folders, never imports torch."""
