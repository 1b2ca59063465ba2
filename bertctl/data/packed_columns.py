"""Columns of many rows in little memory: texts in a temporary file, values that recur as numbers.

A column of a small file is a list. From `MANY_ROWS` on, texts go into a temporary Arrow file, read
a batch at a time, and values that recur are held once, beside a number per row. Both can be read
like a list.

    texts    ["so good", "too long", ...]   80 bytes of a disk per row, none of memory
    labels   ["pos", "neg", "pos", ...]     4 bytes per row: codes [0, 1, 0, ...] and two values
    ids      ["0", "1", "2", ...]           nothing: made when asked for
"""

import itertools
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, cast, overload

from bertctl.documents import is_whole
from bertctl.errors import UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from bertctl.arrays import Array, Ints

MANY_ROWS = 50_000
"""Rows from which a column is packed."""

_BATCH_ROWS = 1024
"""Rows of a temporary file that are read at once."""

_MANY_VALUES = 1000
"""Different values up to which the first rows of a column make it one of values that recur."""

_MOST_VALUES = 50_000
"""Different values from which the texts of such a column go into a file after all."""

_READ_AHEAD = 65_536
"""Numbers that become Python objects at once."""

_CACHED_BATCHES = 64
"""Batches of a temporary file that stay decoded for reading single texts."""

_FEW_OF_BATCH = 32
"""Texts of a batch up to which they are read one by one: to decode all of it takes longer."""

_SCALARS = (str, bool, int, float, type(None))
_TEXT_OR_NONE = {str, type(None)}


class PackedTexts(Sequence[Any]):
    """Texts in a temporary file, which is deleted with them. Some may be None.

    Args:
        file: The texts.
        rows: (N,) positions in the file of the texts of this column; None for all in their order.
    """

    def __init__(self, file: "_TextFile", rows: "Ints | None" = None) -> None:
        self._file = file
        self._rows = rows  # positions in the file of the column's texts; None for all texts

    @property
    def has_nulls(self) -> bool:
        """Whether some of the file's texts are None."""
        return self._file.has_nulls

    def __len__(self) -> int:
        if self._rows is None:  # the column has all texts of the file
            return self._file.n_rows
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Returns the text of a row, read from the file; for a slice, the texts of these rows."""
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        position = range(len(self))[index]  # from 0 on, also for -1; refuses what is out of range
        if self._rows is None:  # the column has all texts of the file, in their order
            return self._file.text(position)
        return self._file.text(int(self._rows[position]))

    def __iter__(self) -> Iterator[Any]:
        """Yields the texts, read from the file many at a time."""
        for texts in self._parts():
            yield from texts

    def __reduce__(self) -> Any:
        """Pickles the texts as a list, because another process can't open the temporary file."""
        return list, (list(self),)

    def select(self, indices: "Sequence[int] | Ints") -> Sequence[Any]:
        """Returns the texts at these positions: few as a list, many as a view of the same file."""
        import numpy as np

        positions = np.asarray(indices, dtype=np.int64)
        if self._rows is None:
            rows = positions
        else:
            rows = self._rows[positions]
        view = PackedTexts(self._file, _in_few_bytes(rows))
        if is_many(len(rows)):
            return view
        return list(view)

    def _parts(self) -> Iterator[list[Any]]:
        """Yields the texts in order, as lists of texts that are in one batch of the file."""
        import numpy as np

        if self._rows is None:  # the column has all texts of the file, in their order
            for batch in range(self._file.n_batches):
                yield self._file.texts(batch)
            return
        for first in range(0, len(self._rows), _READ_AHEAD):
            rows = self._rows[first : first + _READ_AHEAD]
            batches = rows // _BATCH_ROWS  # number of the batch that each row is in
            borders = np.flatnonzero(np.diff(batches)) + 1  # where another batch begins
            for rows_of_batch in np.split(rows, borders):
                # To decode a whole batch takes longer than to read a few texts one by one.
                if len(rows_of_batch) < _FEW_OF_BATCH:
                    yield [self._file.text(row) for row in rows_of_batch.tolist()]
                else:
                    batch = int(rows_of_batch[0]) // _BATCH_ROWS
                    texts = self._file.texts(batch)
                    positions = (rows_of_batch - batch * _BATCH_ROWS).tolist()
                    yield [texts[position] for position in positions]


class _TextFile:
    """Texts in a temporary Arrow file that has no name, batch by batch.

    Args:
        file: Batches of `_BATCH_ROWS` texts each, only the last one of fewer.
        n_rows: Texts in it.
        has_nulls: Whether some are None.
    """

    def __init__(self, file: BinaryIO, n_rows: int, *, has_nulls: bool) -> None:
        """Opens a finished Arrow file of texts, which is closed with this object."""
        import pyarrow as pa

        self.n_rows = n_rows
        self.has_nulls = has_nulls
        reader = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
        self._reader = reader
        # Returns the texts of a batch by its number. A cache around a method would keep this object
        # alive; around a function, it goes when the object goes.
        self._column = lru_cache(_CACHED_BATCHES)(lambda batch: reader.get_batch(batch).column(0))
        # The temporary file has no name: closing it removes it from the disk.
        weakref.finalize(self, file.close)

    @property
    def n_batches(self) -> int:
        """Number of batches in the file."""
        return int(self._reader.num_record_batches)

    def texts(self, batch: int) -> list[Any]:
        """Returns the texts of a batch, by its number."""
        return list(self._reader.get_batch(batch).column(0).to_pylist())

    def text(self, row: int) -> Any:
        """Returns the text of a row; None if it has none."""
        return self._column(row // _BATCH_ROWS)[row % _BATCH_ROWS].as_py()


def _arrow_texts(texts: Sequence[Any]) -> "pa.Array[Any]":
    """Returns texts (or None) as an Arrow array.

    It is made of its buffers, because `pyarrow.array` would import pandas.
    """
    import numpy as np
    import pyarrow as pa

    encoded = [b"" if text is None else text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(text_bytes) for text_bytes in encoded], out=offsets[1:])
    null_bitmap = None
    if None in texts:
        bits = np.packbits([text is not None for text in texts], bitorder="little")
        null_bitmap = pa.py_buffer(bits.tobytes())
    return pa.StringArray.from_buffers(
        length=len(encoded),
        value_offsets=pa.py_buffer(offsets.tobytes()),
        data=pa.py_buffer(b"".join(encoded)),
        null_bitmap=null_bitmap,
    )


class CodedValues(Sequence[Any]):
    """Values that recur: each once, and a number for each row.

    Args:
        codes: (N,) numbers.
        values: By number.
    """

    def __init__(self, codes: "Array", values: Sequence[Any]) -> None:
        self.codes = codes
        self.values = values

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Returns the value of a row by its code; for a slice, the values of these rows."""
        if isinstance(index, slice):
            return _coded(self.codes[index], self.values)
        return self.values[self.codes.item(index)]

    def __iter__(self) -> Iterator[Any]:
        """Yields the value of each row; codes become Python numbers many at a time."""
        for first in range(0, len(self.codes), _READ_AHEAD):
            yield from map(
                self.values.__getitem__, self.codes[first : first + _READ_AHEAD].tolist()
            )

    def __reduce__(self) -> Any:
        """Pickles the codes and the different values."""
        return CodedValues, (self.codes, self.values)

    def select(self, indices: "Sequence[int] | Ints") -> Sequence[Any]:
        """Returns the values at these positions: few as a list, many in codes."""
        import numpy as np

        return _coded(self.codes[np.asarray(indices, dtype=np.int64)], self.values)

    def mapped(self, function: Callable[[Any], Any]) -> "CodedValues":
        """Returns the results of a function, which is called once for each different value."""
        return CodedValues(self.codes, [function(value) for value in self.values])


def _coded(codes: "Array", values: Sequence[Any]) -> Sequence[Any]:
    """Returns the value that each code stands for: few as a list, many as `CodedValues`.

    Values that no code stands for are left out of `CodedValues`, and the other values get new
    codes: codes `[2, 0, 2]` of `["a", "b", "c"]` become `[1, 0, 1]` of `["a", "c"]`.

    Args:
        codes: Position in `values`, for each row.
        values: The different values.
    """
    import numpy as np

    if not is_many(len(codes)):
        return list(CodedValues(codes, values))
    is_used = np.bincount(codes, minlength=len(values)) > 0
    if is_used.all():
        return CodedValues(codes, values)
    new_codes = np.cumsum(is_used) - 1  # of each value
    used_values = list(itertools.compress(values, is_used))
    return CodedValues(new_codes[codes].astype(codes.dtype), used_values)


class NumberedIds(Sequence[str]):
    """Numbers of rows as texts.

    Args:
        numbers: Numbers of the rows.
    """

    def __init__(self, numbers: "range | Ints") -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Returns the id of a row: its number as a text. For a slice, the ids of these rows."""
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        return str(self._numbers[index])

    def __iter__(self) -> Iterator[str]:
        """Yields the ids; numbers of an array become Python numbers many at a time."""
        for first in range(0, len(self), _READ_AHEAD):
            part = self._numbers[first : first + _READ_AHEAD]
            yield from map(str, part if isinstance(part, range) else part.tolist())

    def select(self, indices: "Sequence[int] | Ints") -> Sequence[str]:
        """Returns the ids at these positions: few as a list, many in this packed form."""
        import numpy as np

        positions = np.asarray(indices, dtype=np.int64)
        if isinstance(self._numbers, range):
            numbers = self._numbers.start + self._numbers.step * positions
        else:
            numbers = self._numbers[positions]
        ids = NumberedIds(_in_few_bytes(numbers))
        if is_many(len(numbers)):
            return ids
        return list(ids)


def numbered_ids(n_rows: int, *, first: int = 0) -> Sequence[str]:
    """Returns ids for `n_rows` rows: their numbers from `first` on, as texts."""
    ids = NumberedIds(range(first, first + n_rows))
    return ids if is_many(n_rows) else list(ids)


def is_many(n_rows: int) -> bool:
    """Returns whether a column of `n_rows` rows is packed."""
    return n_rows > MANY_ROWS


def is_packed(values: Sequence[Any]) -> bool:
    """Returns whether a column is packed.

    A packed column has only texts, numbers, truth values and None.
    """
    return isinstance(values, PackedTexts | CodedValues)


def selected(values: Sequence[Any], indices: "Sequence[int] | Ints") -> Sequence[Any]:
    """Returns the values at these positions, packed where they are many of a packed column."""
    import numpy as np

    if isinstance(values, PackedTexts | CodedValues | NumberedIds):
        return values.select(indices)
    if isinstance(values, array):
        numbers = np.frombuffer(values, dtype=values.typecode)
        return int_column(numbers[np.asarray(indices, dtype=np.int64)])
    if hasattr(indices, "tolist"):
        positions = indices.tolist()
    else:
        positions = indices
    return [values[i] for i in positions]


def int_column(numbers: "Ints") -> Sequence[int]:
    """Returns numbers as a column: few as a list, many as an `array`, which has Python numbers."""
    import numpy as np

    if not is_many(len(numbers)):
        return list(numbers.tolist())
    compact = np.ascontiguousarray(_in_few_bytes(numbers))
    column = array(compact.dtype.char)
    column.frombytes(compact.view(np.uint8).data)
    return column


def _in_few_bytes(numbers: "Ints") -> "Ints":
    """Returns whole numbers in 32 bits if all of them fit, else as they are."""
    import numpy as np

    if len(numbers) and np.abs(numbers).max() > np.iinfo(np.int32).max:
        return numbers
    few_bytes: Array = numbers.astype(np.int32)
    return few_bytes


def different_values(values: Sequence[Any]) -> Sequence[Any]:
    """Returns values among which each value of a column occurs at least once.

    For a column in codes, these are its few different values. Any other column is returned as it
    is.
    """
    if isinstance(values, CodedValues):
        return values.values
    return values


def mapped_values(values: Sequence[Any], function: Callable[[Any], Any]) -> Sequence[Any]:
    """Returns a function's result for each value; in coded columns, equal values share one call."""
    if isinstance(values, CodedValues):
        return values.mapped(function)
    return column_of(map(function, values))


def codes_of(values: Sequence[Any]) -> CodedValues:
    """Returns hashable values as `CodedValues`: `["a", "b", "a"]` -> values a, b, codes 0, 1, 0."""
    from bertctl.arrays import numbers_of

    if isinstance(values, CodedValues):
        # Mapped values can be equal, as if `pos` and `Pos` were one label: they get one number.
        numbers, different = numbers_of(values.values)
        return CodedValues(numbers[values.codes], different)
    return CodedValues(*numbers_of(values))


def are_different(values: Iterable[Any]) -> bool:
    """Returns whether no two values are the same text, and none is blank.

    Only hashes are compared, to hold 8 bytes per value. So it is also False, though hardly ever, if
    two different texts have the same hash.
    """
    import numpy as np

    hashes = array("q")
    for value in values:
        if value is None or value == "":
            return False
        hashes.append(hash(str(value)))
    ordered = np.sort(np.frombuffer(hashes, dtype=np.int64))
    return not (ordered[1:] == ordered[:-1]).any()


def column_of(values: Iterable[Any]) -> Sequence[Any]:
    """Returns values as a column: few as a list, many in a packed form."""
    builder = ColumnBuilder()
    for part in _batched(values, _BATCH_ROWS):
        builder.extend(part)
    return builder.finish()


def _batched(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yields the values in lists of `size`, the last one shorter."""
    iterator = iter(values)
    while part := list(itertools.islice(iterator, size)):
        yield part


class ColumnBuilder:
    """A column that is made part by part, and packed once it has many rows.

    Its values are in one of three forms at a time: a list, coded values or a file of texts.

    Attributes:
        n_rows: Values so far.
        _values: The values as a list; empty if they are in another form.
        _is_plain: Whether the list stays one, as something in it can't be packed.
        _coded: The values in codes, or None.
        _texts: The values in a file, or None.
    """

    def __init__(self) -> None:
        """Begins an empty column."""
        # The values are in one of these three at a time.
        self._values: list[Any] = []
        self._coded: _CodedBuilder | None = None
        self._texts: _TextsBuilder | None = None
        self._is_plain = False  # whether `_values` has something that can't be packed
        self.n_rows = 0

    def extend(self, values: Sequence[Any]) -> None:
        """Adds values, and changes how the column is held if they don't fit.

        Few values are a list. Many are coded as long as they recur, then a file of texts, and a
        list again if something is no text.

        Raises:
            UnavailableError: The disk is full.
        """
        self.n_rows += len(values)
        if self._coded is not None:
            if not self._coded.extend(values):
                earlier = self._coded.finish()
                self._coded = None
                self._pack_texts(itertools.chain(earlier, values))
        elif self._texts is not None:
            if not self._texts.extend(values):
                earlier_texts = self._texts.finish()
                self._texts = None
                self._keep([*earlier_texts, *values])
        else:
            self._values.extend(values)
            if is_many(len(self._values)) and not self._is_plain:
                self._pack()

    def finish(self) -> Sequence[Any]:
        """Returns the column."""
        if self._coded is not None:
            return self._coded.finish()
        if self._texts is not None:
            return self._texts.finish()
        return self._values

    def _pack(self) -> None:
        """Packs the values so far: coded if they have few different ones, else as texts."""
        values = self._values
        self._values = []
        coded = _CodedBuilder(_MANY_VALUES)
        if coded.extend(values):
            # The first rows have few different values, so the column is coded. From now on it may
            # gain many more.
            coded.limit = _MOST_VALUES
            self._coded = coded
        else:
            self._pack_texts(values)

    def _pack_texts(self, values: Iterable[Any]) -> None:
        """Writes values into a file of texts; keeps all of them as a list if one is no text."""
        texts = _TextsBuilder()
        parts = _batched(values, _READ_AHEAD)
        for part in parts:
            if not texts.extend(part):
                later_values = itertools.chain.from_iterable(parts)
                self._keep([*texts.finish(), *part, *later_values])
                return
        self._texts = texts

    def _keep(self, values: list[Any]) -> None:
        """Keeps values that can't be packed, such as lists, as a list from now on."""
        self._values = values
        self._is_plain = True


class _CodedBuilder:
    """Values that recur, as they come.

    Args:
        limit: How many different ones there may be. With more, the column isn't packed.

    Attributes:
        limit: How many different values there may be. It can be raised later.
        _codes: (rows,) number of the value of each row.
        _numbers: Key of each different value, as of `_code_of` -> its number.
        _values: The different values, by number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit  # of the number of different values
        self._codes = array("i")  # one for each row: the number of its value
        self._numbers: dict[Any, int] = {}  # key of a value -> its number
        self._values: list[Any] = []  # the different values, by number

    def extend(self, values: Sequence[Any]) -> bool:
        """Adds values, and returns whether the column is still packed.

        It adds no row if too many are different, or something is no scalar.
        """
        try:
            codes = list(map(self._numbers.__getitem__, values))  # quick for texts that are known
        except (KeyError, TypeError):
            codes = []
            for value in values:
                code = self._code_of(value)
                if code is None:
                    return False
                codes.append(code)
        self._codes.extend(codes)
        return True

    def _code_of(self, value: Any) -> int | None:
        """Returns the number of a value, a new one for a new value; None if it can't be coded."""
        # The key of a text is the text itself, which `extend` looks up. Others have their type in
        # it: 1, 1.0 and True are equal in Python, but not the same value of a file.
        key = value if type(value) is str else (type(value), repr(value))
        code = self._numbers.get(key)
        if code is not None:
            return code
        if type(value) not in _SCALARS or len(self._values) == self.limit:
            return None
        self._numbers[key] = len(self._values)
        self._values.append(value)
        return self._numbers[key]

    def finish(self) -> CodedValues:
        """Returns the column."""
        import numpy as np

        return CodedValues(np.frombuffer(self._codes, dtype=np.int32), self._values)


class _TextsBuilder:
    """Texts that go into a temporary Arrow file, as they come.

    Attributes:
        _file: The file, which has no name: closing it deletes it.
        _closing: Closes the file if this builder goes away without having made a column.
        _waiting: Texts that do not fill a batch yet.
        _n_rows: Texts in the file.
        _has_nulls: Whether some of them are None.
    """

    def __init__(self) -> None:
        """Makes a temporary Arrow file for texts that come later, in batches."""
        import pyarrow as pa

        self._schema = pa.schema([("text", pa.string())])
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115
        self._closing = weakref.finalize(self, self._file.close)
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), self._schema)
        self._waiting: list[Any] = []  # texts that do not fill a batch of the file yet
        self._n_rows = 0
        self._has_nulls = False

    def extend(self, texts: Sequence[Any]) -> bool:
        """Adds texts; returns False, and adds none, where something is no text.

        Raises:
            UnavailableError: The disk is full.
        """
        are_texts = set(map(type, texts)) <= _TEXT_OR_NONE
        # A text with half of a surrogate pair can't be encoded, so it can't go into a file.
        if not are_texts or not is_whole("".join(filter(None, texts))):
            return False
        self._waiting.extend(texts)
        n_full = len(self._waiting) // _BATCH_ROWS * _BATCH_ROWS
        for first in range(0, n_full, _BATCH_ROWS):
            self._write(self._waiting[first : first + _BATCH_ROWS])
        del self._waiting[:n_full]
        return True

    def finish(self) -> PackedTexts:
        """Returns the column."""
        if self._waiting:
            self._write(self._waiting)
        with self._reporting_full_disk():
            self._writer.close()
            self._file.flush()
        self._closing.detach()  # from here on `_TextFile` closes it
        return PackedTexts(_TextFile(self._file, self._n_rows, has_nulls=self._has_nulls))

    def _write(self, texts: Sequence[Any]) -> None:
        """Writes texts as the next batch of the file."""
        import pyarrow as pa

        column = _arrow_texts(texts)
        with self._reporting_full_disk():
            self._writer.write_batch(pa.record_batch([column], schema=self._schema))
        self._n_rows += len(texts)
        self._has_nulls = self._has_nulls or column.null_count > 0

    @contextmanager
    def _reporting_full_disk(self) -> Iterator[None]:
        """Turns an error of the file system into one that says where room is needed."""
        try:
            yield
        except OSError as error:
            message = (
                f"{tempfile.gettempdir()}: no room for the texts of more than {self._n_rows:,} rows"
            )
            raise UnavailableError(
                message, remedy="Set TMPDIR to a folder on a disk with more room."
            ) from error
