"""The lines of a file, decoded as the options say."""

from collections.abc import Iterator
from typing import BinaryIO, Literal

from bertctl.data.decoding import decoded_lines
from bertctl.data.read_options import ReadOptions


def text_lines(
    file: BinaryIO, name: str, options: ReadOptions, *, longest: int = 0
) -> Iterator[str]:
    """Yields the lines of an open file.

    Args:
        file: The open file.
        name: Name of the file in messages.
        options: How the file is read. If bad records are only reported (`on_bad_record` without
            `skipped`), bytes that are no text become U+FFFD. Otherwise they are an error.
        longest: Characters that a line may have, if they are more than `data.longest_line`.

    Raises:
        DataError: Bytes that are no text, or a line that is too long.
    """
    # `bertctl check` reads so to find all faults, and must not end at the first bad byte.
    only_reports = options.on_bad_record is not None and options.skipped is None
    errors: Literal["strict", "replace"] = "replace" if only_reports else "strict"
    settings = options.settings
    longest = max(longest, settings.longest_line * 1_000_000)
    return decoded_lines(
        file,
        name,
        settings.encoding,
        options.listener,
        errors=errors,
        longest=longest,
        all_stay=options.reads_whole_file,
    )


def weight_of_line(numbered_line: tuple[int, str]) -> int:
    """Returns the number of characters of a numbered line, by which `in_chunks` bounds chunks."""
    return len(numbered_line[1])
