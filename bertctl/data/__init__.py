"""Rows out of files and data sets: readers, column names, splits."""
