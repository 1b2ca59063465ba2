"""Texts found by their vectors: compared, searched for, paired and put into groups; numbers are
numpy's.
"""
