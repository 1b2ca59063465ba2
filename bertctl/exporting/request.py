"""The request of an export."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

USUAL_DROP = 0.005
"""Largest drop of the primary metric by smaller numbers where nothing is said."""

TOLERANCE = 1e-4
"""Largest difference of an output that is allowed where nothing is said."""


@dataclass(frozen=True)
class ExportRequest:
    """What to export, where to, and what has to hold.

    Attributes:
        path: A run, or a model.
        file_format: `onnx` or `openvino`.
        output: Folder that is made.
        rows: File to compare on; None for the run's validation rows.
        tolerance: Largest difference of an output that is allowed.
        overwrite: Whether an export in the folder is replaced.
        precision: fp32, or smaller numbers: fp16, bf16 or int8.
        max_drop: With smaller numbers, the largest drop by metric; None allows the primary one
            `USUAL_DROP`.
        options: Recipe fields that were given.
    """

    path: Path
    file_format: str
    output: Path
    rows: Path | None = None
    tolerance: float = TOLERANCE
    overwrite: bool = False
    precision: str = "fp32"
    max_drop: Mapping[str, float] | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_smaller(self) -> bool:
        """Whether the export has fewer bits per number than the model."""
        return self.precision != "fp32"
