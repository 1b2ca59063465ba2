"""Writes encoded texts to a file or a pipe (jsonl, ids, tokens, parquet), chunk by chunk.

Letters: V tokens in the vocabulary.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from tokenizers import Tokenizer

from bertctl.tokenization.reference import tokens_by_id
from bertctl.tokenization.windows import TextWindows, Truncation

if TYPE_CHECKING:  # numpy is slow to import, and one text as JSON needs none of it
    from bertctl.tokenization.encode import EncodedTexts


def write_records(out: TextIO, truncation: Truncation, texts: Sequence[TextWindows]) -> None:
    """Writes one JSON document per window; what was written can be read at once."""
    documents = chain.from_iterable(text.records(truncation) for text in texts)
    out.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    out.flush()


def id_writer(
    layout: str, out: TextIO, tokenizer: Tokenizer
) -> AbstractContextManager[Callable[["EncodedTexts"], None]]:
    """Opens the writer of `ids`, `tokens` or `parquet`.

    The end of the file is written when the context ends.
    """
    if layout == "parquet":
        return _parquet_writer(out.buffer)
    tokens = tokens_by_id(tokenizer)
    return nullcontext(
        _line_writer(out, tokens if layout == "tokens" else list(map(str, range(len(tokens)))))
    )


def _line_writer(out: TextIO, names: Sequence[str]) -> Callable[["EncodedTexts"], None]:
    """Returns a function that writes one line per text.

    A line has the names of the text's ids with a space between; `names` are those of all V ids.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(names, pa.large_string())

    def write(encoded: "EncodedTexts") -> None:
        rows = pa.LargeListArray.from_arrays(encoded.starts, known.take(pa.array(encoded.ids)))
        lines = pc.binary_join(rows, pa.scalar(" ", pa.large_string()))
        out.write("".join(f"{line}\n" for line in lines.to_pylist()))
        out.flush()

    return write


@contextmanager
def _parquet_writer(out: BinaryIO) -> Iterator[Callable[["EncodedTexts"], None]]:
    """Opens what writes Parquet.

    Its columns are `ids`, `type_ids` (lists) and `full_length` (before truncation).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = {"ids": pa.list_(pa.int32()), "type_ids": pa.list_(pa.uint8())}
    schema = pa.schema([*lists.items(), ("full_length", pa.int64())])

    def write(encoded: "EncodedTexts") -> None:
        starts = pa.array(encoded.starts, pa.int32())
        columns: list[Any] = [
            pa.ListArray.from_arrays(starts, pa.array(values))
            for values in (encoded.ids, encoded.type_ids)
        ]
        file.write_table(
            pa.Table.from_arrays([*columns, pa.array(encoded.full_lengths)], schema=schema)
        )

    with pq.ParquetWriter(out, schema) as file:
        yield write
