"""The frozen encoder.

Its vectors, the files they are kept in, and the classifiers on top of them.
"""
