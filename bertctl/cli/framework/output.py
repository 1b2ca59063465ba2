"""The one sink: stdout is the answer, stderr is the talk.

No bar and no prompt when nobody is watching.
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
"""What a part of an answer may be, for people."""

# A table in a pipe or a CI log is not folded at 80 columns, unless COLUMNS says so.
_PIPE_WIDTH = 200


@dataclass(kw_only=True, eq=False)
class Output(Listener):
    """Shows what a verb says and what it answers.

    Attributes:
        as_json: the answer is one JSON document instead of a table.
        quiet: no talk but warnings and errors.
        verbose: more talk: third-party warnings too.
        debug: errors come with their traceback.
        no_groups: talk is not folded in the logs of GitHub and GitLab.
        is_printed: what is printed is all that the verb makes, so that cutting it off is a failure.
    """

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    no_groups: bool = False
    is_printed: bool = False

    def __post_init__(self) -> None:
        self.answers = console_of(sys.stdout)
        self.talk = console_of(sys.stderr)
        self._document: Mapping[str, Any] | None = None
        self._progress = ProgressDisplay(self.talk)
        self._expected = 0
        if self.no_groups or self.is_printed or self.quiet:
            self._group = None
        else:
            self._group = log_group()
        self._folds = False  # whether talk belongs into the group now

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

        The parts are strings without markup. With `--json` the document is written later.
        """
        if self.as_json:
            self._document = document
            return
        from bertctl.reporting.document import TableBlock
        from bertctl.reporting.terminal import rich_table

        self.close()
        # In one piece, so that a reader of the first line (head, grep -q) has taken all of it.
        with self.answers:
            for part in parts:
                drawn = rich_table(part) if isinstance(part, TableBlock) else part
                self.answers.print(_text(drawn) if isinstance(drawn, str) else drawn)

    def deliver(self) -> None:
        """Writes the document, once nothing can fail any more.

        An error stands in it, beside what was found.
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
            from bertctl.catalog.hub import shown

            # Addresses of a hub or a proxy have passwords and signatures in them, which causes
            # repeat.
            self.talk.print(_text(shown("".join(traceback.format_exception(error)))))
        self.talk.print(_text(("error: ", "bold red"), error.message))
        if error.remedy:
            self.talk.print(_text(error.remedy))
        self.commands(error_annotations(error))
        if self.as_json:
            self._document = {**(self._document or {}), **error.as_json()}
            self.deliver()

    def commands(self, lines: Iterable[str]) -> None:
        """Writes workflow commands of our own (`::error ...`) to stderr.

        Our stderr makes commands in its text harmless (see `streams.py`), as they could come from
        the data. Those of our own go past that, straight into its buffer.

        Args:
            lines: Commands, with texts in them already escaped.
        """
        text = "".join(f"{line}\n" for line in lines)
        if not text:
            return

        self._progress.erase()
        sys.stderr.flush()
        buffer = getattr(sys.stderr, "buffer", None)
        if buffer is None:  # the stderr of a notebook: no buffer, and nothing is made harmless
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
        """Shows progress: a bar on a terminal, a plain line now and then elsewhere."""
        if not self.quiet:
            known = total or (max(self._expected, done) if self._expected else 0)
            line = self._progress.advance(
                phase,
                done,
                known,
                figures or {},
                share,
            )
            if line is not None:
                self._talk(line)

    def expect(self, rows: int) -> None:
        """Notes how many rows the input has, for progress that does not know it."""
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
        """Writes a message to stderr, inside the folded part of a log while there is work."""
        self._progress.erase()
        if self._group is not None:
            self.commands(self._group.open() if folded and self._folds else self._group.close())
        self.talk.print(_text(*parts))

    @contextlib.contextmanager
    def third_party_kept(self) -> Iterator["ThirdPartyLog"]:
        """Sends warnings and log lines of other libraries to the run's log.

        With `--verbose` they go to the screen, too.
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
    """Collects what other libraries log, and writes it to a file once there is one."""

    def __init__(self, *, echo: Callable[[str], None] | None) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        self._echo = echo
        self._waiting: list[str] = []
        self._path: Path | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
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
    """Returns a table as all tables look.

    It has no box, a bold header, and the columns named in `right` right-aligned.

    A narrow terminal cuts nothing: what has no room is folded, the widest column first.
    """
    from rich.table import Table

    # a string would be written on one line
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
    """Returns words, each as it is or with a style; nothing in them is markup."""
    from rich.text import Text

    # Text drops some of the control characters that the console would show.
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((harmless(text, keep="\n\t"), style) for text, style in styled))


def _one_line(text: str) -> str:
    """Returns a message with its indented lines below it, and other line breaks written out."""
    return re.sub(r"\n(?! )", r"\\n", text)


def console_of(stream: Any) -> "Console":
    """Returns what writes tables and coloured text to a stream, harmless and as wide as it is."""
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.table import Table

    from bertctl.reporting.document import filled

    class HarmlessConsole(Console):
        """Shows control characters of texts instead of sending them to the terminal.

        A string in a table has a line.

        Columns of a table in which no row has anything are left out.
        """

        def render_str(self, text: str, **options: Any) -> "Text":
            return super().render_str(harmless(text), **options)

        def render(
            self, renderable: "RenderableType", options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            if isinstance(renderable, Table):
                self._drop_empty_columns(renderable)
            for segment in super().render(renderable, options):
                if segment.control:  # rich's own, such as a move of the cursor
                    yield segment
                else:
                    yield Segment(harmless(segment.text, keep="\n\t"), segment.style)

        @staticmethod
        def _drop_empty_columns(table: Table) -> None:
            rows = list(zip(*(column.cells for column in table.columns), strict=True))
            columns = [table.columns[i] for i in filled(len(table.columns), rows)]
            # A column knows its own number, by which rich finds its cells.
            table.columns = [replace(column, _index=i) for i, column in enumerate(columns)]

    watched = stream.isatty() and os.environ.get("TERM") != "dumb"
    environ = {
        k: v
        for k, v in os.environ.items()
        if k not in ("COLUMNS", "LINES") or v.strip("0").isdecimal()
    }
    if stream is sys.stdout and not watched:
        narrow = int(environ.get("COLUMNS", 0))
    else:
        narrow = 0
    if not wants_colours(stream):
        colours: Literal["auto", "standard"] | None = None
    elif watched:
        colours = "auto"
    else:
        colours = "standard"
    return HarmlessConsole(
        file=stream,
        _environ=environ,  # rich takes `²` for a number, and writes nothing in 0 columns
        width=None if watched else narrow or _PIPE_WIDTH,
        force_terminal=watched,
        color_system=colours,
        highlight=False,
        markup=False,
        soft_wrap=not watched and not narrow,
    )
