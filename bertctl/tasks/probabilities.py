"""Probabilities of answers. That of scipy takes longer to import than a model takes to answer."""

import numpy as np

from bertctl.arrays import Floats32


def softmax(logits_NC: Floats32) -> Floats32:
    """Returns (N, C) the softmax of each row.

    It equals `scipy.special.softmax(logits_NC, axis=1)` to the last bit.
    """
    powers = np.exp(logits_NC - logits_NC.max(axis=1, keepdims=True))
    probabilities: Floats32 = powers / powers.sum(axis=1, keepdims=True)
    return probabilities
