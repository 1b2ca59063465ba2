"""Data sets and models by name, and the one door to the hub."""
