"""Parquet files as tables, whole or in chunks."""

import io
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from bertctl.data.class_features import class_features, names_of_classes, with_class_names
from bertctl.data.decoding import NoRowsError
from bertctl.data.file_contents import PARQUET
from bertctl.data.packed_columns import is_many
from bertctl.data.pipes import copy_bounded
from bertctl.data.read_options import ReadOptions
from bertctl.data.sources import Source, source_name
from bertctl.data.table import Table, joined_tables
from bertctl.documents import loading
from bertctl.errors import DataError
from bertctl.unpacking import UnpackedFile

if TYPE_CHECKING:
    from bertctl.data.parquet_batches import ParquetBatches


_WHOLE_BATCH = 16_384
"""Rows of a Parquet file that are decoded at once, where all of them are read."""


def tables_of_parquet(source: Source, file: BinaryIO, options: ReadOptions) -> Iterator[Table]:
    """Yields the rows of an open Parquet file, through a temporary file if it can't be sought."""
    name = source_name(source)
    _require_parquet(file, name)
    can_seek = source != "-" and not isinstance(file, UnpackedFile)
    if can_seek:
        yield from _parquet_tables(file, name, options)
        return
    with tempfile.TemporaryFile() as spool:
        copy_bounded(file, spool, name)
        spool.seek(0)
        yield from _parquet_tables(cast(BinaryIO, spool), name, options)


def _require_parquet(file: BinaryIO, name: str) -> None:
    """Refuses a file that does not begin like Parquet.

    Raises:
        DataError: The file begins with something else, which the message shows.
    """
    head = cast(io.BufferedReader, file).peek(len(PARQUET))[:64]
    if not head:
        raise NoRowsError(f"{name} is empty: it has no rows", remedy="Give a file with rows.")
    if not head.startswith(PARQUET):
        message = f"{name} is not a Parquet file: it begins with {head[:24]!r}"
        raise DataError(
            message, remedy="Name it by its format: .csv, .tsv, .jsonl or .txt, each also with .gz."
        )


def _parquet_tables(file: BinaryIO, source: str, options: ReadOptions) -> Iterator[Table]:
    """Yields the rows of a Parquet file, in chunks of `options.chunk_rows` or as one table.

    Raises:
        DataError: The file is not Parquet, is damaged, or has too many rows or too long cells.
        DeviceError: There is too little memory for the rows.
    """
    from bertctl.data.parquet_batches import ParquetBatches

    with loading(
        source, remedy="Write the file again, with columns of texts, numbers or lists of them."
    ):
        parquet = ParquetBatches(
            file, source, longest_cell=options.settings.longest_line * 1_000_000
        )
        features = class_features(parquet.schema.metadata)
        if options.chunk_rows is None:
            yield _whole_parquet_table(parquet, features, source)
            return

        first_row = 0
        options.listener.expect(parquet.num_rows)
        for batch in parquet.batches(options.chunk_rows, all_stay=False):
            yield _typed_table(batch.to_pydict(), features, source, first=first_row)
            first_row += len(batch)


def _whole_parquet_table(
    parquet: "ParquetBatches", features: Mapping[str, Any], source: str
) -> Table:
    """Returns all rows of a Parquet file as one table.

    Args:
        parquet: The open file.
        features: Features of the columns that have classes, as `class_features` returns them.
        source: Name of the file.
    """
    batches = parquet.batches(_WHOLE_BATCH, all_stay=True)
    if is_many(parquet.num_rows):
        # `joined_tables` packs each batch, which needs less memory than lists of objects.
        parts = (_typed_table(batch.to_pydict(), features, source) for batch in batches)
        return joined_tables(parts)

    columns: dict[str, list[Any]] = {name: [] for name in parquet.schema.names}
    for batch in batches:
        for name, values in batch.to_pydict().items():
            columns[name] += values
    return _typed_table(columns, features, source)


def _typed_table(
    columns: dict[str, list[Any]], features: Mapping[str, Any], source: str, *, first: int = 0
) -> Table:
    """Returns the columns of a Parquet file as a table, with names of classes for their numbers.

    Args:
        columns: Name -> cells. Those with classes are replaced in place.
        features: Features of the columns that have classes, as `class_features` returns them.
        source: Name of the file.
        first: Number of rows of the file before these.
    """
    for column in features.keys() & columns.keys():
        columns[column] = [with_class_names(value, features[column]) for value in columns[column]]
    class_names: dict[str, tuple[str, ...]] = {}
    for column, feature in features.items():
        names = names_of_classes(feature)
        if names:
            class_names[column] = names
    return Table(
        columns,
        source,
        first=first,
        is_typed=True,
        class_names=class_names,
    )
