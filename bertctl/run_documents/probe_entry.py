"""What metrics.json has of a probe."""

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from bertctl.run_documents.document_base import Count, Document, Number, OrAbsent, SchemaNumber
from bertctl.run_documents.metric_entry import MetricEntry


class ProbeChoice(Document):
    """The layer and the pooling of a probe."""

    layer: str

    pooling: str


class HoldOuts(Document):
    """The primary metric over several hold-outs."""

    n: Count

    mean: Number

    deviation: Number

    values: OrAbsent[list[Number]] = None


class ProbeRow(Document):
    """A probe of one layer and pooling. The primary metric stands under its own name."""

    __pydantic_extra__: dict[str, MetricEntry]

    layer: str

    pooling: str

    strength: Number
    """C of the classifier; of ridge 1 / alpha."""

    cross_validation: Number
    """Mean score over the folds of the training rows, by which layer, pooling and C are chosen."""

    mix: OrAbsent[list[Number]] = None
    """Weights of a learned mix of layers."""

    hold_outs: OrAbsent[HoldOuts] = None

    def metric(self, name: str) -> MetricEntry:
        """Returns the primary metric of this probe, which stands in the file under its own name.

        Raises:
            KeyError: The row has another one.
        """
        return self.__pydantic_extra__[name]

    @model_serializer(mode="wrap")
    def _metric_first(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Writes the primary metric before `mix` and `hold_outs`, as in files of older versions.

        The metric is an extra field of this model, and pydantic writes extra fields last.
        """
        row: dict[str, Any] = write(self)
        last_fields = {name: row.pop(name) for name in ("mix", "hold_outs") if name in row}
        return row | last_fields


class ProbeEntry(Document):
    """What a probe tried."""

    schema_number: SchemaNumber = 1

    classifier: str

    best: ProbeChoice

    folds: OrAbsent[Count] = None
    """Folds of the cross-validation."""

    table: list[ProbeRow]
