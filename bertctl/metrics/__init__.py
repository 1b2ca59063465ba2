"""Metrics: a file for each family, their names in one table, and their intervals."""
