"""bertctl: one command for the whole life of a BERT encoder on a labelled task."""

__version__ = "0.1.0"
