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
    """Writes one JSON document per window, and flushes them for the reader of a pipe."""
    documents = chain.from_iterable(text.records(truncation) for text in texts)
    out.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    out.flush()


def id_writer(
    layout: str, out: TextIO, tokenizer: Tokenizer
) -> AbstractContextManager[Callable[["EncodedTexts"], None]]:
    """Opens the writer of encoded texts: a function that writes a chunk of them.

    The end of a Parquet file is written when the context ends.

    Args:
        layout: `ids`, `tokens` or `parquet`.
        out: Where to write.
        tokenizer: Its tokens are the names of the ids.
    """
    if layout == "parquet":
        return _parquet_writer(out.buffer)
    names = tokens_by_id(tokenizer)
    if layout == "ids":
        names = list(map(str, range(len(names))))
    return nullcontext(_line_writer(out, names))


def _line_writer(out: TextIO, names: Sequence[str]) -> Callable[["EncodedTexts"], None]:
    """Returns a function that writes one line per text: `[CLS] it rained [SEP]`, or its ids.

    Args:
        out: Where to write.
        names: (V,) what to write for each id.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names_by_id = pa.array(names, pa.large_string())

    def write(encoded: "EncodedTexts") -> None:
        """Writes the lines of a chunk. Arrow joins them many times faster than Python."""
        token_names = names_by_id.take(pa.array(encoded.ids))
        rows = pa.LargeListArray.from_arrays(encoded.starts, token_names)
        lines = pc.binary_join(rows, pa.scalar(" ", pa.large_string()))
        out.write("".join(f"{line}\n" for line in lines.to_pylist()))
        out.flush()

    return write


@contextmanager
def _parquet_writer(out: BinaryIO) -> Iterator[Callable[["EncodedTexts"], None]]:
    """Opens a function that writes chunks of texts into a Parquet file.

    Its columns are `ids`, `type_ids` (lists) and `full_length` (before truncation).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = {"ids": pa.list_(pa.int32()), "type_ids": pa.list_(pa.uint8())}
    schema = pa.schema([*lists.items(), ("full_length", pa.int64())])

    def write(encoded: "EncodedTexts") -> None:
        """Writes a chunk as a row group of the file that is opened below."""
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
