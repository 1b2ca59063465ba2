"""Masked language modelling and next-sentence prediction on a corpus."""
