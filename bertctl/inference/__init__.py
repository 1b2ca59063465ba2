"""Models that answer: the forward pass, scoring and predictions."""
