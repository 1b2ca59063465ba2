"""Fields that recipes no longer have."""

from collections.abc import Mapping
from typing import Any

REMOVED: Mapping[str, Any] = {"probe.train_sizes": [], "question_answering.derive_unanswerable": 0.0}
"""Dotted field -> the default it had. Saved recipes name every field: with its default a removed one is read over, with
another value refused. Hashes count it with its default, so that a recipe which never used it keeps its hash."""
