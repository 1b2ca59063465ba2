"""Features that were extracted before, as the training vectors of a probe."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertctl.data.load import LoadedData
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.features.store import FeatureFile, sidecar_of
from bertctl.modeling.source import ModelSource


@dataclass(frozen=True)
class GivenFeatures:
    """One file for the training rows, and perhaps one for the validation rows.

    Attributes:
        train: features of every row of the training file, in its order.
        validation: of the validation file; None where validation rows are held out of the training file.
    """

    train: FeatureFile
    validation: FeatureFile | None = None

    def __post_init__(self) -> None:
        for file in self._files:
            if not file.sidecar:
                raise DataError(
                    f"{file.path} has no {sidecar_of(file.path).name} that says which model and layer it is of",
                    remedy="Make it with `bertctl extract-features`.",
                )
        for name in ("model_hash", "layers", "pooling", "special_tokens", "normalize"):
            values = [file.sidecar[name] for file in self._files]
            if values[1:] and values[0] != values[1]:
                raise DataError(
                    f"{self._files[0].path} and {self._files[1].path} do not go together: {name} is {values[0]!r} and "
                    f"{values[1]!r}",
                    remedy="Extract both with the same settings.",
                )

    @property
    def _files(self) -> list[FeatureFile]:
        return [file for file in (self.train, self.validation) if file is not None]

    @property
    def layers(self) -> list[str]:
        """Names of the layers in the file."""
        return list(self.train.sidecar["layers"])

    @property
    def pooling(self) -> str:
        """The pooling."""
        return str(self.train.sidecar["pooling"])

    @property
    def special_tokens(self) -> bool:
        """Whether special tokens count."""
        return bool(self.train.sidecar["special_tokens"])

    @property
    def normalize(self) -> bool:
        """Whether vectors have length 1."""
        return bool(self.train.sidecar["normalize"])

    def check_model(self, source: ModelSource) -> None:
        """Refuse features of another model.

        Raises:
            DataError: the hashes differ.
            UsageError: windows, which a probe does not read again.
        """
        sidecar = self.train.sidecar
        if sidecar["model_hash"] != source.content_hash():
            raise DataError(
                f"{self.train.path} holds features of another model ('{sidecar['model']}', hash "
                f"{sidecar['model_hash'][:12]}) than '{source.name}'",
                remedy="Extract them again, or name the model they are of with --model.",
            )
        if sidecar.get("stride") is not None:
            raise UsageError(
                f"{self.train.path} pools windows of long texts, and a probe reads one",
                remedy="Extract without --stride.",
            )

    def check_rows(self, data: LoadedData) -> None:
        """Refuse labels of other rows.

        Raises:
            DataError: more rows than features, or fewer.
        """
        held_out = self.validation is None
        counts = {name: len(rows) for name, rows in data.splits.items()}
        expected = counts["train"] + (counts[data.validation_splits[0]] if held_out else 0)
        if len(self.train.vectors) != expected:
            raise DataError(
                f"{self.train.path} has {len(self.train.vectors)} rows, and the labels {expected}",
                remedy="Give the labels of the very rows that the features were extracted from.",
            )
        if self.validation is not None and len(self.validation.vectors) != counts[data.validation_splits[0]]:
            raise DataError(
                f"{self.validation.path} has {len(self.validation.vectors)} rows, and the labels "
                f"{counts[data.validation_splits[0]]}",
                remedy="Give the labels of the very rows that the features were extracted from.",
            )

    def vectors(self, splits: Sequence[Rows]) -> list[NDArray[np.float32]]:
        """For each layer the vectors of the training rows, then of the validation rows."""
        train, held = splits
        # Rows of a file without an id column are numbered as they stand in it; a hold-out keeps the numbers.
        inside = [int(identity) for identity in train.ids]
        outside = [int(identity) for identity in held.ids]
        rest = self.train if self.validation is None else self.validation
        parts = np.concatenate([self.train.vectors[inside], rest.vectors[outside]]).astype(np.float32)
        if parts.ndim == 2:
            return [parts]
        return [np.ascontiguousarray(parts[:, layer]) for layer in range(parts.shape[1])]
