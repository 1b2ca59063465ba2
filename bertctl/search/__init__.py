"""Texts found by their vectors: compared, searched for, paired and put into groups.

The numbers are numpy's.
"""
