"""Everything that verbs print: answers go to stdout, messages to stderr.

Progress bars are shown only on a terminal.
"""

import contextlib
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bertctl.cli.framework.log_groups import error_annotations, log_group
from bertctl.cli.framework.option_names import as_options
from bertctl.cli.framework.progress_display import ProgressDisplay
from bertctl.cli.framework.streams import wants_colours
from bertctl.errors import BertctlError
from bertctl.progress import Figures, Listener
from bertctl.words import harmless
from bertctl.writing import append_text

if TYPE_CHECKING:  # completion has no time for rich
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from bertctl.reporting.document import TableBlock

Shown: TypeAlias = "RenderableType | TableBlock"
"""Part of an answer without `--json`: a string, a table, or anything else that rich prints."""

# Columns of a pipe or a CI log, unless the variable COLUMNS has another number. Rich would fold
# tables at 80 columns.
_PIPE_WIDTH = 200


@dataclass(kw_only=True, eq=False)
class Output(Listener):
    """Prints the answer of a verb to stdout, and its messages and progress to stderr.

    Attributes:
        as_json: Whether the answer is one JSON document instead of a table.
        quiet: Whether warnings and errors are the only messages.
        verbose: Whether there are more messages, such as warnings of other libraries.
        debug: Whether errors are printed with their traceback.
        no_groups: Whether messages are never folded in the logs of GitHub and GitLab.
        is_printed: Whether the verb makes nothing but what it prints, so that it has failed if
            stdout can't be written to its end.
    """

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    no_groups: bool = False
    is_printed: bool = False

    def __post_init__(self) -> None:
        """Opens stdout for the answer, and stderr for messages (`talk`)."""
        self.answers = console_of(sys.stdout)
        self.talk = console_of(sys.stderr)
        self._document: Mapping[str, Any] | None = None  # for `--json`; printed by `deliver`
        self._progress = ProgressDisplay(self.talk)
        self._expected = 0  # rows of the input, from `expect`; 0 if unknown
        # A long command of a CI job folds its messages in the log. A verb that only prints, or is
        # quiet, has next to none.
        if self.no_groups or self.is_printed or self.quiet:
            self._group = None
        else:
            self._group = log_group()
        self._folds = False  # whether messages belong into the folded part now

    def say(self, text: str) -> None:
        """Writes a line to stderr; nothing with `--quiet`."""
        if not self.quiet:
            self._talk(_one_line(as_options(text)))

    def detail(self, text: str) -> None:
        """Writes a line to stderr with `--verbose` only."""
        if self.verbose:
            self._talk((as_options(text), "dim"))

    def warn(self, text: str) -> None:
        """Writes a warning to stderr, with `--quiet` too."""
        self._talk(("warning: ", "bold yellow"), _one_line(as_options(text)), folded=False)

    def answer(self, document: Mapping[str, Any], *parts: Shown) -> None:
        """Writes the verb's answer to stdout.

        Args:
            document: The answer for programs. With `--json`, `deliver` writes it later.
            parts: The answer for people: tables, and strings that are printed without markup.
        """
        if self.as_json:
            self._document = document
            return
        from bertctl.reporting.document import TableBlock
        from bertctl.reporting.terminal import rich_table

        self.close()
        # The console writes everything at once when the context ends. A reader that stops after the
        # first line (head, grep -q) then doesn't cut off the rest.
        with self.answers:
            for part in parts:
                if isinstance(part, TableBlock):
                    self.answers.print(rich_table(part))
                elif isinstance(part, str):
                    self.answers.print(_text(part))
                else:
                    self.answers.print(part)

    def deliver(self) -> None:
        """Writes the JSON document of `--json` to stdout, at the end of the command.

        It has the answer, the error that ended the command, or both. Without a document nothing is
        written.
        """
        if self._document is not None:
            text = json.dumps(
                self._document,
                indent=2,
                ensure_ascii=False,
                allow_nan=False,
            )
            sys.stdout.write(harmless(text, keep="\n") + "\n")

    def error(self, error: BertctlError) -> None:
        """Writes an error to stderr: what was given, then what to type.

        With `--json` it writes a document to stdout too.
        """
        self.close()
        if self.debug:
            from bertctl.catalog.hub import masked

            # The causes in a traceback may repeat addresses of a hub or a proxy, with passwords and
            # signatures that must not be shown.
            self.talk.print(_text(masked("".join(traceback.format_exception(error)))))
        self.talk.print(_text(("error: ", "bold red"), error.message))
        if error.remedy:
            self.talk.print(_text(error.remedy))
        self.commands(error_annotations(error))
        if self.as_json:
            self._document = {**(self._document or {}), **error.as_json()}
            self.deliver()

    def commands(self, lines: Iterable[str]) -> None:
        """Writes workflow commands, such as `::error ...`, to stderr for GitHub or GitLab.

        Our stderr escapes workflow commands in its text (see `streams.py`), because they could come
        from the data. The commands here are `bertctl`'s, so they are written into the stream's
        buffer, where nothing is escaped.

        Args:
            lines: The commands. Texts from outside are already escaped in them.
        """
        text = "".join(f"{line}\n" for line in lines)
        if not text:
            return

        self._progress.erase()
        sys.stderr.flush()
        buffer = getattr(sys.stderr, "buffer", None)
        if buffer is None:  # the stderr of a notebook has no buffer, and escapes nothing
            sys.stderr.write(text)
            return
        buffer.write(text.encode())
        buffer.flush()

    def advance(
        self,
        phase: str,
        done: int,
        total: int,
        figures: Figures | None = None,
        *,
        share: float | None = None,
    ) -> None:
        """Shows progress: a bar on a terminal, a plain line now and then elsewhere.

        Args:
            phase: What is being done, as the bar shows it.
            done: Number of steps or rows that are done.
            total: Number of all of them. If it is 0 (unknown), that of `expect` is taken.
            figures: Values to show beside the bar, such as the loss.
            share: Finished share of the work, from 0 to 1, if steps take unlike times.
        """
        if self.quiet:
            return
        if not total and self._expected:
            total = max(self._expected, done)  # the expected number is an estimate
        line = self._progress.advance(
            phase,
            done,
            total,
            figures or {},
            share,
        )
        if line is not None:
            self._talk(line)

    def expect(self, rows: int) -> None:
        """Notes about how many rows the input has, for progress whose total is unknown."""
        self._expected = rows

    def finish(self, phase: str) -> None:
        """Takes the bar of a phase off the screen."""
        self._progress.finish(phase)

    def close(self) -> None:
        """Takes the bar off the screen, and ends the folded part of a log.

        It is safe to call at any time.
        """
        self._progress.erase()
        if self._group is not None:
            self.commands(self._group.close())

    def _talk(self, *parts: "str | tuple[str, str]", folded: bool = True) -> None:
        """Writes a message to stderr.

        Args:
            parts: The words of the message, each with a style of rich or without.
            folded: Whether the message may be in the folded part of a CI log, where only messages
                of a verb at work are.
        """
        self._progress.erase()  # else the message would be written into the bar's line
        if self._group is not None:
            if folded and self._folds:
                group_commands = self._group.open()
            else:
                group_commands = self._group.close()
            self.commands(group_commands)
        self.talk.print(_text(*parts))

    @contextlib.contextmanager
    def third_party_kept(self) -> Iterator["ThirdPartyLog"]:
        """Sends warnings and log lines of other libraries to the run's log, inside the context.

        With `--verbose` they are also printed. Messages in the context are folded in CI logs.

        Yields:
            The log. It keeps its lines until `write_to` names a file.
        """
        log = ThirdPartyLog(echo=self.detail if self.verbose else None)
        root = logging.getLogger()
        handlers_before = root.handlers[:]
        logging.captureWarnings(capture=True)
        root.handlers = [log]
        self._folds = True
        try:
            yield log
        finally:
            self._folds = False
            self.close()
            root.handlers = handlers_before
            logging.captureWarnings(capture=False)
            log.close()


class ThirdPartyLog(logging.Handler):
    """Collects what other libraries log, and writes it to a file once `write_to` names one.

    Args:
        echo: Also receives each line, unless it is None.
    """

    def __init__(self, *, echo: Callable[[str], None] | None) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        self._echo = echo
        self._waiting: list[str] = []
        self._path: Path | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record as one line, or writes it to the file if there is one."""
        line = harmless(self.format(record), keep="\n\t")
        if self._echo is not None:
            self._echo(line)
        self._waiting.append(line)
        self._flush_lines()

    def write_to(self, path: Path) -> None:
        """Writes the lines kept so far to this file, and all that follow."""
        self._path = path
        self._flush_lines()

    def _flush_lines(self) -> None:
        """Appends the lines that wait to the file, if there is one.

        Lines that can't be written are dropped: a full disk must not end the run for its log.
        """
        if self._path is None or not self._waiting:
            return
        with contextlib.suppress(BertctlError):
            append_text(self._path, "".join(f"{line}\n" for line in self._waiting))
        self._waiting = []


def plain_table(
    *headers: str,
    title: str | None = None,
    right: tuple[str, ...] = (),
    rows: Iterable[Iterable[str]] = (),
) -> "Table":
    """Returns a table in the style of all tables: without a box, its header in bold.

    On a narrow terminal no text is cut off; long cells are folded, the widest column first.

    Args:
        headers: The header of each column.
        title: A line above the table.
        right: Headers of the columns that are aligned to the right.
        rows: The cells of each row.
    """
    from rich.table import Table

    # As a string, a title of several lines would be printed on one.
    if title is None:
        title_text = None
    else:
        title_text = _text(title)
    table = Table(
        title=title_text,
        box=None,
        title_justify="left",
        header_style="bold",
        pad_edge=False,
    )
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _text(*parts: "str | tuple[str, str]") -> "Text":
    """Returns rich's text made of strings, each plain or with a style; markup is not read.

    Args:
        parts: Strings, or pairs of a string and its style, such as "bold red".
    """
    from rich.text import Text

    # Control characters are escaped here, because rich's Text would drop some of them.
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((harmless(text, keep="\n\t"), style) for text, style in styled))


def _one_line(text: str) -> str:
    r"""Returns a message whose line breaks are written as `\n`, except before indented lines.

    `bertctl` indents further lines of its messages. Other line breaks come from names or data.
    """
    return re.sub(r"\n(?! )", r"\\n", text)


def console_of(stream: Any) -> "Console":
    """Returns rich's console for a stream, which escapes control characters in all texts.

    Its width is that of the terminal. Elsewhere it is COLUMNS (for stdout), or wide enough for most
    tables.
    """
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.table import Table

    from bertctl.reporting.document import filled

    class HarmlessConsole(Console):
        """Console that escapes control characters, so that texts can't control the terminal.

        Line breaks in a cell of a table are escaped as well. Columns without any value are left
        out of tables.
        """

        def render_str(self, text: str, **options: Any) -> "Text":
            """Returns rich's text for a string, with control characters escaped."""
            return super().render_str(harmless(text), **options)

        def render(
            self, renderable: "RenderableType", options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            """Yields the pieces of text that rich prints, with control characters escaped."""
            if isinstance(renderable, Table):
                self._drop_empty_columns(renderable)
            for segment in super().render(renderable, options):
                if segment.control:  # rich's own, such as a move of the cursor
                    yield segment
                else:
                    yield Segment(harmless(segment.text, keep="\n\t"), segment.style)

        @staticmethod
        def _drop_empty_columns(table: Table) -> None:
            """Removes the columns of a table in which no row has a value."""
            rows = list(zip(*(column.cells for column in table.columns), strict=True))
            columns = [table.columns[i] for i in filled(len(table.columns), rows)]
            # Rich finds the cells of a column by the number in it, so the columns are renumbered.
            table.columns = [replace(column, _index=i) for i, column in enumerate(columns)]

    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    environ = _environment_for_rich()
    # Off a terminal, only answers are folded, and only if COLUMNS is set.
    if stream is sys.stdout and not is_terminal:
        typed_width = int(environ.get("COLUMNS", 0))
    else:
        typed_width = 0
    if is_terminal:
        width = None  # rich asks the terminal
    else:
        width = typed_width or _PIPE_WIDTH
    if not wants_colours(stream):
        colours: Literal["auto", "standard"] | None = None
    elif is_terminal:
        colours = "auto"
    else:
        colours = "standard"  # FORCE_COLOR in a pipe, of whose reader nothing is known
    return HarmlessConsole(
        file=stream,
        _environ=environ,
        width=width,
        force_terminal=is_terminal,
        color_system=colours,
        highlight=False,
        markup=False,
        soft_wrap=not is_terminal and not typed_width,
    )


def _environment_for_rich() -> dict[str, str]:
    """Returns the environment variables, without COLUMNS and LINES if they are no positive numbers.

    Rich would take `²` for a number, and would print nothing in 0 columns.
    """
    environ = dict(os.environ)
    for name in ("COLUMNS", "LINES"):
        is_positive = environ.get(name, "").strip("0").isdecimal()
        if not is_positive:
            environ.pop(name, None)
    return environ
