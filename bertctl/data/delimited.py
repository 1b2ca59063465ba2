"""CSV and TSV, with every record checked and its line kept.

Delimiter, quoting and header are detected where they are not said.
"""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bertctl.config.recipe_sections import DataSection
from bertctl.data.column_contents import MOSTLY, names_with_values
from bertctl.data.names import known_name
from bertctl.data.read_options import OnBadRecord
from bertctl.data.table import Table
from bertctl.errors import DataError, UsageError, WholeFileError
from bertctl.progress import Listener
from bertctl.session import current
from bertctl.words import count, human_bytes

SAMPLE_LINES = 1000
"""Lines that delimiter and header are detected from."""

_DELIMITERS = (",", "\t", ";", "|")
_CLEARLY = (
    0.6  # share of like records from which a separator that the suffix doesn't suggest is believed
)
_WORDS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?")

Record = tuple[int, list[str]]
"""Line where it begins, and its fields."""


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written.

    Attributes:
        delimiter: The character between fields.
        quoted: Whether fields may be quoted as in CSV; else quotes are characters like any other.
        header: Whether the first record has the names of the columns.
        names: Names of the columns, from the file or `column1`, `column2`, ...
    """

    delimiter: str
    quoted: bool
    header: bool
    names: tuple[str, ...]


def detect_dialect(
    sample: Sequence[str],
    all_lines: Iterable[str],
    *,
    tabs: bool,
    settings: DataSection,
    source: str,
    listener: Listener,
) -> Dialect:
    """Finds out how a CSV or TSV file is written, and reports what its suffix does not say.

    Args:
        sample: The first lines of the file, at most `SAMPLE_LINES`.
        all_lines: All lines of the file, or the sample again if the file can't be read twice (a
            pipe). They show whether a tab-separated file has quoted fields.
        tabs: Whether the suffix says that tabs separate the fields.
        settings: Delimiter, header and names of columns, if the user has given them.
        source: Name of the file in messages.
        listener: Receives a message about a delimiter, quotes or a header that were guessed.

    Raises:
        UsageError: The delimiter in the settings can't separate fields.
        DataError: All lines are blank, or two columns have one name.
    """
    _allow_long_fields(settings)
    if sample and sample[0].startswith("sep="):
        message = f"{source}:1: {sample[0].rstrip()!r} is a note to a spreadsheet and no header"
        raise DataError(message, remedy="Take the line out; the separator is found without it.")
    expected = "\t" if tabs else ","
    delimiter = _delimiter(sample, expected, settings)
    if delimiter != expected and settings.delimiter is None:
        listener.say(f"{source}: fields are separated by {_WORDS[delimiter]}s")
    quoted = _quoted(all_lines, delimiter, source, listener)
    records = [fields for fields in _sample_records(sample, delimiter, quoted=quoted) if fields]
    if not records:
        # `_sample_records` raises no errors. If the first record can't be read, `_split` raises its
        # error here.
        first_records = _split(
            sample,
            delimiter,
            quoted=quoted,
            source=source,
        )
        deque(first_records, maxlen=0)
        raise DataError(f"{source} holds nothing but blank lines", remedy="Give a file with rows.")
    first_record = records[0]
    if settings.header is None:
        header = _has_header(records, settings)
    else:
        header = settings.header
    if header:
        return Dialect(delimiter, quoted, header, _names_in_header(first_record, source))

    names = tuple(f"column{i}" for i in range(1, len(first_record) + 1))
    if settings.header is None:
        first_row = {name: [cell] for name, cell in zip(names, first_record, strict=True)}
        columns = names_with_values(Table(first_row, source, header=False))
        listener.say(f"{source}: no header found, its columns are called {columns}")
    return Dialect(delimiter, quoted, header, names)


def _allow_long_fields(settings: DataSection) -> None:
    """Sets the csv module's limit of a field's characters to `data.longest_line`.

    The limit is a setting of the whole process, so the session restores it. It must fit a C long,
    which has 32 bits on some platforms.
    """
    longest_cell = min(settings.longest_line * 1_000_000, 2**31 - 1)
    limit_before = csv.field_size_limit(longest_cell)
    current().restore_later("csv.field_size_limit", partial(csv.field_size_limit, limit_before))


def _names_in_header(first_record: Sequence[str], source: str) -> tuple[str, ...]:
    """Returns the names of the columns; an empty one is called by its number: `column3`.

    Raises:
        DataError: Two columns have the same name.
    """
    names = tuple(cell.strip() or f"column{i}" for i, cell in enumerate(first_record, start=1))
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"{source}:1: two columns are called '{name}'",
                remedy="Rename one of them; if the first line is data, add `data.header=False`.",
            )
    return names


def records(
    lines: Iterable[str],
    dialect: Dialect,
    *,
    source: str,
    listener: Listener,
    on_bad_record: OnBadRecord | None = None,
) -> Iterator[Record]:
    """Yields the records of a file without its header, each with as many fields as there are names.

    Args:
        lines: All lines of the file.
        dialect: How they are written.
        source: Name of the file.
        listener: Receives messages about skipped blank lines and values in columns without a name.
        on_bad_record: Called with the error of each bad record, which is then left out. Reading
            goes on after the line with the error, but a quoted field that is never closed takes all
            further lines. If None, the first error is raised.

    Raises:
        DataError: A record has more or fewer fields, a quoted field is not closed, or the header is
            repeated; with file and line.
        WholeFileError: A second header has its columns in another order than the first one.
    """
    width = len(dialect.names)
    pending_header = dialect.header  # whether the next record is the header
    header: _Header | None = None
    unnamed: list[int] = []  # positions of the columns without a name
    n_in_unnamed = 0  # records with a value in such a column
    n_blank = 0  # blank lines since the last record
    n_skipped = 0  # blank lines between records; those at the end of a file are no fault
    numbered_fields = _split(
        lines,
        dialect.delimiter,
        quoted=dialect.quoted,
        source=source,
        on_bad_record=on_bad_record,
    )
    for line, fields in numbered_fields:
        if not fields:
            n_blank += 1
            continue
        n_skipped += n_blank
        n_blank = 0
        if len(fields) != width:
            error = _wrong_width(fields, line, dialect, source)
            if on_bad_record is None:
                raise error
            on_bad_record(error)
            continue
        if pending_header:
            pending_header = False
            header = _Header(fields)
            # A first column without a name is the index that pandas writes.
            unnamed = [i for i, cell in enumerate(fields) if i > 0 and not cell.strip()]
            continue
        if header is not None and header.is_repeated_by(fields):
            repeated = header.repeated(fields, f"{source}:{line}")
            if on_bad_record is None or isinstance(repeated, WholeFileError):
                raise repeated
            on_bad_record(repeated)
            continue
        if any(fields[i].strip() for i in unnamed):
            n_in_unnamed += 1
        yield line, fields
    if n_in_unnamed:
        columns = ", ".join(dialect.names[i] for i in unnamed)
        listener.say(
            f"{source}: {count(n_in_unnamed, 'row')} have something in columns without a name "
            f"({columns}): are parts of texts there, cut at separators that are not quoted?"
        )
    if n_skipped:
        listener.warn(f"{source}: {n_skipped} blank lines between the rows are skipped")


class _Header:
    """The names in a file's first record, which no later record may repeat.

    Args:
        fields: The fields of the first record.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = [_bare_name(cell) for cell in fields]
        self._names = [name.casefold() for name in self._fields]
        self._sorted_names = sorted(self._names)

    def is_repeated_by(self, fields: Sequence[str]) -> bool:
        """Returns whether a record has these names again, in any order.

        Case and blanks do not count, except in a file of one column: there, a text may be the
        column's name.
        """
        if len(self._fields) == 1:
            return [_bare_name(cell) for cell in fields] == self._fields
        if (
            _bare_name(fields[0]).casefold() not in self._names
        ):  # a quick test, which nearly all records fail
            return False
        return sorted(_bare_name(cell).casefold() for cell in fields) == self._sorted_names

    def repeated(self, fields: Sequence[str], where: str) -> DataError:
        """Returns the error for a record that repeats the names, as in files joined by `cat`.

        If the record has the names in another order, it is a `WholeFileError`: the records below
        it have their fields in that order, and can't be read.
        """
        names = [_bare_name(cell) for cell in fields]
        if [name.casefold() for name in names] != self._names:
            return WholeFileError(
                f"{where}: a second header has its columns in another order: {', '.join(names)}, "
                f"where the first has {', '.join(self._fields)}",
                remedy="Bring the files' columns into one order before you join them, or give one "
                "file. If the first line is data, add `data.header=False`.",
            )
        return DataError(
            f"{where}: the header is repeated here ({', '.join(names)})",
            remedy="Take the line out: files are joined without further headers, as by (cat a.csv; "
            "tail -n +2 b.csv). If the first line is data, add `data.header=False`.",
        )


def _bare_name(cell: str) -> str:
    """Returns a column's name as names are compared: without blanks, quotes and byte-order mark.

    The CSV reader leaves quotes in a name if a byte-order mark stands before them.
    """
    return cell.strip().removeprefix("\ufeff").strip('" ')


def _split(
    lines: Iterable[str],
    delimiter: str,
    *,
    quoted: bool,
    source: str,
    on_bad_record: OnBadRecord | None = None,
) -> Iterator[Record]:
    """Yields all records with the number of their first line; blank lines are empty lists.

    `"a,b"` on line 7 -> `(7, ["a", "b"])`.

    Args:
        lines: Lines of the file.
        delimiter: The character between fields.
        quoted: Whether fields may be quoted. A quoted field may contain line ends and delimiters.
        source: Name of the file.
        on_bad_record: Called with the error of each record with wrong quotes. If None, the first
            error is raised.

    Raises:
        DataError: Wrong quotes, with file and line.
    """
    if not quoted:
        for number, line in enumerate(lines, start=1):
            bare = line.rstrip("\n").removesuffix("\r")
            yield number, bare.split(delimiter) if bare else []
        return
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first_line = 1  # of the next record, which may have several lines
    while True:
        try:
            for fields in reader:
                yield first_line, fields
                first_line = reader.line_num + 1
            return
        except csv.Error as error:
            data_error = _bad_quotes(error, first_line, reader.line_num, source)
            if on_bad_record is None:
                raise data_error from error
            on_bad_record(data_error)
            # The reader goes on with the line after the one where the record went wrong.
            first_line = reader.line_num + 1


def _wrong_width(fields: Sequence[str], line: int, dialect: Dialect, source: str) -> DataError:
    """Returns the error for a record that has more or fewer fields than the first one.

    Args:
        fields: The fields of the record.
        line: Number of the line where the record begins.
        dialect: How the file is written.
        source: Name of the file.
    """
    delimiter = _WORDS.get(dialect.delimiter, repr(dialect.delimiter))
    first_record = "header" if dialect.header else "first row"
    if dialect.quoted:
        remedy = f"A {delimiter} inside a field needs quotes around the field."
    else:
        remedy = (
            f"A {delimiter} can't stand inside a field of this file, whose quotes are not CSV "
            "quotes."
        )
    text = dialect.delimiter.join(fields)
    if len(text) > 80:
        text = text[:80] + "…"
    names = ", ".join(dialect.names)
    return DataError(
        f"{source}:{line}: {count(len(fields), 'field')} where the {first_record} has "
        f"{len(dialect.names)} ({names}): {text!r}",
        remedy=remedy
        + " Separator and header can be said: `data.delimiter=tab`, `data.header=False`.",
    )


def _bad_quotes(error: csv.Error, begins: int, last_line: int, source: str) -> DataError:
    """Returns the error for a record that the csv module can't read.

    Args:
        error: The error that the module raised. Its text shows what is wrong.
        begins: Line on which the record begins.
        last_line: Line up to which the module read.
        source: Name of the file.
    """
    remedy = 'A quote inside a quoted field is written twice: "He said ""no""."'
    if "unexpected end" in str(error):
        message = (
            "a quoted field is opened in this record and never closed: it takes all lines to "
            f"{last_line}"
        )
    elif "field larger" in str(error):
        size = human_bytes(csv.field_size_limit())
        message = f"a field of this record has more than {size}, up to line {last_line}"
        remedy = (
            "Is its quote never closed? Else cut it, or train with "
            f"`data.longest_line=MEGABYTES`. {remedy}"
        )
    elif "new-line character" in str(error):
        message = "a carriage return stands inside a field that is not quoted"
        remedy = (
            "Where it ends a line, as in CSV (Macintosh): save the file as CSV (UTF-8), which has "
            "line feeds."
        )
    else:
        message = (
            f"after a closing quote (line {last_line}) there is neither a separator nor the end of "
            "the line"
        )
    return DataError(f"{source}:{begins}: {message}", remedy=remedy)


def _delimiter(sample: Sequence[str], expected: str, settings: DataSection) -> str:
    """Returns the separator of fields: from the settings, else the one with the most even records.

    Args:
        sample: The first lines of the file.
        expected: The separator that the suffix suggests. Another one must fit clearly to win.
        settings: `delimiter` is the separator, or None.

    Raises:
        UsageError: The delimiter in the settings can't separate fields.
    """
    if settings.delimiter is not None:
        if settings.delimiter in '"\r\n':
            message = f"{settings.delimiter!r} can't separate fields"
            raise UsageError(message, remedy="Give another one, such as `data.delimiter=tab`.")
        return settings.delimiter
    best = expected
    best_share = _consistency(sample, expected)
    for candidate in _DELIMITERS:
        if candidate == expected:
            continue
        share = _consistency(sample, candidate)
        # Of separators with the same share, the expected one or the first one stays.
        if share >= _CLEARLY and share > best_share:
            best = candidate
            best_share = share
    return best


def _consistency(sample: Sequence[str], delimiter: str) -> float:
    """Returns the share of records with as many fields as the first.

    It is 0 if the first record has only one field. Tabs may separate fields with or without quotes,
    so for them the better share of the two counts.
    """
    share = _share_as_wide_as_first(_sample_records(sample, delimiter, quoted=True))
    if delimiter == "\t":
        unquoted_records = _sample_records(sample, delimiter, quoted=False)
        share = max(share, _share_as_wide_as_first(unquoted_records))
    return share


def _share_as_wide_as_first(records: Sequence[Sequence[str]]) -> float:
    """Returns the share of non-empty records with as many fields as the first; 0 for one field."""
    widths = [len(fields) for fields in records if fields]
    if not widths or widths[0] < 2:
        return 0.0

    n_as_wide = sum(width == widths[0] for width in widths)
    return n_as_wide / len(widths)


def _sample_records(sample: Sequence[str], delimiter: str, *, quoted: bool) -> list[list[str]]:
    """Returns the records of a file's first lines, up to the first one that can't be read.

    The last record is left out if the end of the sample may have cut it off.

    Args:
        sample: The first lines of the file.
        delimiter: The character between fields.
        quoted: Whether fields may be quoted.
    """
    if not quoted:
        return [
            fields
            for _, fields in _split(
                sample,
                delimiter,
                quoted=False,
                source="",
            )
        ]
    reader = csv.reader(sample, delimiter=delimiter)
    sample_records: list[list[str]] = []
    try:
        sample_records.extend(reader)
    except csv.Error:
        return sample_records
    if len(sample) >= SAMPLE_LINES and len(sample_records) > 1:
        return sample_records[:-1]
    return sample_records


def _quoted(lines: Iterable[str], delimiter: str, source: str, listener: Listener) -> bool:
    """Returns whether quotes enclose fields, as in CSV, or are characters like any other.

    With other delimiters than tabs they always enclose fields. Tab-separated files such as GLUE's
    often have no quoting. There, quotes enclose fields if they are balanced and all records then
    have equally many fields. But if all lines have equally many fields without quoting, too, quotes
    must not join lines.

    Args:
        lines: All lines of the file if they can be had, else the first ones. They are read once.
        delimiter: The character between fields.
        source: Name of the file.
        listener: Receives a message if quotes are characters like any other.
    """
    if delimiter != "\t":
        return True
    quoted_widths = Counter[int]()  # number of fields -> records, with quoting
    # The lines can be read only once. So `plain` counts the fields without quoting of each line
    # that the CSV reader takes from `counted_lines`.
    plain = _PlainFields()
    counted_lines = plain.counted(lines)
    try:
        quoted_records = csv.reader(counted_lines, delimiter="\t", strict=True)
        quoted_widths.update(len(fields) for fields in quoted_records if fields)
        is_even_with_quotes = len(quoted_widths) == 1
    except csv.Error:
        is_even_with_quotes = False
        # The CSV reader has stopped. `plain` counts the rest of the lines while they are dropped.
        deque(counted_lines, maxlen=0)

    if not plain.has_opening_quotes:
        return False  # with and without quoting the fields are the same
    is_even_without_quotes = len(plain.widths) == 1
    n_records = quoted_widths.total()
    n_lines = plain.widths.total()
    quotes_join_lines = n_records != n_lines  # a quoted field goes over the end of a line
    is_likely_accident = quotes_join_lines and is_even_without_quotes
    if is_even_with_quotes and not is_likely_accident:
        return True
    listener.say(
        f"{source}: quotes are taken as plain characters, since they are not balanced as CSV "
        "quotes are"
    )
    return False


class _PlainFields:
    """Counts of the fields that lines with tabs have if quotes are characters like any other.

    Attributes:
        widths: Number of fields -> number of lines with so many fields, without blank lines.
        has_opening_quotes: Whether a field begins with a quote.
    """

    def __init__(self) -> None:
        self.widths = Counter[int]()
        self.has_opening_quotes = False

    def counted(self, lines: Iterable[str]) -> Iterator[str]:
        """Yields the lines as they are, and counts the fields of each."""
        for line in lines:
            if line.strip("\r\n"):
                self.widths[line.count("\t") + 1] += 1
                if line.startswith('"') or '\t"' in line:
                    self.has_opening_quotes = True
            yield line


def _has_header(records: Sequence[Sequence[str]], settings: DataSection) -> bool:
    """Returns whether the first record has the names of the columns.

    It has them if a cell is a name from the settings, a usual name that does not occur again below
    it, or a word above a column of numbers. It also has them if no cell looks like data.

    Args:
        records: The first records of a file.
        settings: The settings, which may name columns.
    """
    first_record = [cell.strip() for cell in records[0]]
    first_record, records = _without_empty_columns(first_record, records)
    same_width = [record for record in records[1:] if len(record) == len(first_record)]
    header = _Header(first_record)
    # Files that were joined repeat their header. These records are no rows of data.
    later_records = [record for record in same_width if not header.is_repeated_by(record)]
    if not later_records:
        # If all records repeat the first one, they are data, and so is the first one.
        later_records = same_width

    named_columns = {
        settings.text_column,
        settings.pair_column,
        settings.label_column,
        settings.id_column,
    }
    if named_columns & set(first_record):
        return True

    # Positions of the cells that occur again below in their column, as values do.
    recurring = {i for i, cell in enumerate(first_record) if _is_in_column(cell, i, later_records)}
    if any(known_name(cell) and i not in recurring for i, cell in enumerate(first_record)):
        return True
    if len(first_record) == 1:  # an unusual name can't be told from a text
        return False

    for i, cell in enumerate(first_record):
        has_numbers_below = bool(later_records) and all(
            _NUMBER.fullmatch(record[i].strip()) for record in later_records
        )
        if has_numbers_below and not _NUMBER.fullmatch(cell):
            return True

    has_numbers = any(_NUMBER.fullmatch(cell) for cell in first_record)
    has_blanks = not all(first_record)
    looks_like_data = bool(recurring) or has_blanks or has_numbers
    return not looks_like_data


def _is_in_column(cell: str, position: int, records: Sequence[Sequence[str]]) -> bool:
    """Returns whether a record has a text in the column with this position."""
    return any(record[position].strip() == cell for record in records)


def _without_empty_columns(
    first: list[str], records: Sequence[Sequence[str]]
) -> tuple[list[str], Sequence[Sequence[str]]]:
    """Returns the first record, and all records, without columns that are empty or nearly so.

    Spreadsheets and broken exports leave such columns (`v1,v2,,,`). They don't show whether there
    is a header. If there are any, the first record loses all its blank cells, and records of
    another width are left out.

    Args:
        first: The first record, its cells stripped.
        records: All records, the first one among them.
    """
    unnamed = [i for i, cell in enumerate(first) if not cell]  # positions
    later_records = [record for record in records[1:] if len(record) == len(first)]
    empty = set[int]()
    for i in unnamed:
        n_empty = sum(record[i].strip() == "" for record in later_records)
        if n_empty >= MOSTLY * len(later_records):
            empty.add(i)
    if not empty or len(empty) == len(first):
        return first, records
    shorter = [
        [cell for i, cell in enumerate(record) if i not in empty]
        for record in records
        if len(record) == len(first)
    ]
    return [cell for cell in first if cell], shorter
