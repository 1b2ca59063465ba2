"""Encoded texts as bytes for a file or a pipe (jsonl, ids, tokens, parquet), written chunk by chunk.

Letters: V tokens in the vocabulary.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from tokenizers import Tokenizer

from bertctl.tokenization.reference import tokens_by_id
from bertctl.tokenization.windows import TextWindows, Truncation

if TYPE_CHECKING:  # numpy is slow to import, and one text as JSON needs none of it
    from bertctl.tokenization.encode import EncodedTexts


class Writer(Protocol):
    """Takes encoded chunks in order."""

    def write(self, encoded: "EncodedTexts") -> None:
        """Writes one chunk."""


class JsonWriter:
    """Writes one JSON document per window."""

    def __init__(self, out: BinaryIO, truncation: Truncation) -> None:
        self._out = out
        self._truncation = truncation

    def write(self, texts: Sequence[TextWindows]) -> None:
        """Writes one chunk; what was written can be read at once."""
        for text in texts:
            for document in text.records(self._truncation):
                self._out.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
        self._out.flush()


class LineWriter:
    """Writes one line per text: a name for each of its ids, with a space between.

    Args:
        out: gets whole lines only.
        names: (V,) what each id is written as.
    """

    def __init__(self, out: BinaryIO, names: Sequence[str]) -> None:
        import pyarrow as pa

        self._out = out
        self._names = pa.array(names, pa.large_string())

    def write(self, encoded: "EncodedTexts") -> None:
        """Writes one chunk; what was written can be read at once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.LargeListArray.from_arrays(encoded.starts, self._names.take(pa.array(encoded.ids)))
        lines = pc.binary_join(rows, pa.scalar(" ", pa.large_string()))
        self._out.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())
        self._out.flush()


class ParquetWriter:
    """Writes the columns `ids` (list of int32), `type_ids` (list of uint8) and `full_length` (before truncation)."""

    def __init__(self, out: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        lists = {"ids": pa.list_(pa.int32()), "type_ids": pa.list_(pa.uint8())}
        self._schema = pa.schema([*lists.items(), ("full_length", pa.int64())])
        self._writer: Any = pq.ParquetWriter(out, self._schema)

    def write(self, encoded: "EncodedTexts") -> None:
        """Writes one row group."""
        import pyarrow as pa

        starts = pa.array(encoded.starts, pa.int32())
        lists = [pa.ListArray.from_arrays(starts, pa.array(values)) for values in (encoded.ids, encoded.type_ids)]
        table = pa.Table.from_arrays([*lists, pa.array(encoded.full_lengths)], schema=self._schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Writes the footer."""
        self._writer.close()


@contextmanager
def id_writer(layout: str, out: BinaryIO, tokenizer: Tokenizer) -> Iterator[Writer]:
    """Opens the writer of `ids`, `tokens` or `parquet`; what a file ends with is written when it is left."""
    if layout == "parquet":
        with closing(ParquetWriter(out)) as writer:
            yield writer
    else:
        tokens = tokens_by_id(tokenizer)
        yield LineWriter(out, tokens if layout == "tokens" else list(map(str, range(len(tokens)))))
