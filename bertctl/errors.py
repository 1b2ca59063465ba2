"""Every way `bertctl` refuses, each with its exit code and its remedy.

    BertctlError                 1  a bug of ours, when nothing better fits
    ├── UsageError               2  an option, a recipe, a combination that makes no sense
    ├── DataError                3  rows, columns, labels, bytes that are not what they should be
    │   ├── UnknownLabelError    3  a label that no training row has
    │   └── WholeFileError       3  rows that are wrong together, of which none can be skipped
    ├── UnavailableError         4  a file, model or data set that can't be had, or can't be written
    ├── DeviceError              5  a device that is absent, or out of memory
    ├── DivergedError            6  training exploded
    │   └── CollapsedError       6  the model gives every example the same answer, under --strict
    └── InterruptedRunError    130  Ctrl-C (143 for SIGTERM and SIGHUP), after saving what there was

Codes 7 (a gate is not met) and 8 (undecided) are verdicts, not errors: `gate` returns them with its
answer.

A message has three parts: what was given, what fits, what to type. The first is `message`, the rest
is `remedy`; the command line prints them on lines of their own, on stderr. A message about a place
begins with it: `FILE:LINE: `, `SECTION.FIELD: ` or both; `file`, `line` and `field` are read from
there.
"""

import re
import textwrap
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "bad_alloc",
    "could not create a primitive",  # oneDNN, where there is no memory for the code it would write
)
"""What torch, oneDNN and the system say where memory ran out."""


class ExitCode(IntEnum):
    """What the process returns; documented in the README and kept stable."""

    OK = 0
    BUG = 1
    USAGE = 2
    DATA = 3
    UNAVAILABLE = 4
    DEVICE = 5
    DIVERGED = 6
    GATE_NOT_MET = 7
    GATE_INCONCLUSIVE = 8
    INTERRUPTED = 130
    CUT = 141
    TERMINATED = 143


_SECTION = (
    r"(?:data|model|training|optimizer|evaluation|runtime|probe"
    r"|\w+_(?:classification|regression|answering))"
)
_PLACE = re.compile(
    rf"^ *(?:(?:--set|command line|BERTCTL_DATA):? )?(?=\S[^\n]*:\d+[:,] |{_SECTION}\.)"
    rf"(?:(?P<file>(?:(?!\w://)[^\n])+?):(?P<line>\d+)[:,] )?(?P<field>{_SECTION}\.\w+)?",
    re.MULTILINE,
)


class BertctlError(Exception):
    """Base class of all errors that bertctl explains.

    Args:
        message: What was given and why it does not work, in one or more lines.
        remedy: What fits and what to type; empty if the message says it all.
        file: File or folder that the error is about, if the message does not begin with it.

    Attributes:
        line: Line in the file, counted from 1; None if the message names none.
        field: Dotted name of a recipe field; None if the message names none.
        exit_code: Exit code of the process.
        kind: The class of the error in a word, for programs.
        task: Task that was guessed for a file before one of its rows turned out to be wrong; else
            empty.
    """

    exit_code: ExitCode = ExitCode.BUG
    kind: str = "bug"
    task: str = ""

    def __init__(self, message: str, *, remedy: str = "", file: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.file: str | None = None
        self.line: int | None = None
        self.field: str | None = None
        # A message may begin with `FILE:LINE:`, with the field of a recipe, or with both.
        place = _PLACE.search(message)
        if place is not None:
            self.file = place["file"]
            self.field = place["field"]
            if place["line"]:
                self.line = int(place["line"])
        if file is not None:
            self.file = str(file)

    def as_json(self) -> dict[str, Any]:
        """Returns the document that `--json` answers with, as `schemas/error.json` describes it."""
        names = ("kind", "message", "remedy", "file", "line", "field")
        return {
            "error": {
                "code": int(self.exit_code),
                **{name: getattr(self, name) or None for name in names},
            }
        }


class UsageError(BertctlError):
    """An option, a recipe key or a combination that can't be meant."""

    exit_code = ExitCode.USAGE
    kind = "usage"


class DataError(BertctlError):
    """Input whose content is wrong: a row, a column, a label, a byte."""

    exit_code = ExitCode.DATA
    kind = "data"


class UnknownLabelError(DataError):
    """A label that no training row has."""


class HeadlessModelError(DataError):
    """A model that can't predict for any task: it has no head, or a head that no task has."""


class WholeFileError(DataError):
    """Rows that are wrong together, though some of them may look right alone.

    Leaving out the others is no way out.
    """


class UnavailableError(BertctlError):
    """A file, model or data set that is not there, or a place that can't be written."""

    exit_code = ExitCode.UNAVAILABLE
    kind = "unavailable"


class DeviceError(BertctlError):
    """A device that was asked for and is not there, or has too little memory."""

    exit_code = ExitCode.DEVICE
    kind = "device"


class DivergedError(BertctlError):
    """A loss or gradient that is not a number, or exploded."""

    exit_code = ExitCode.DIVERGED
    kind = "diverged"


class CollapsedError(DivergedError):
    """A model that gives every example the same answer, if that is treated as an error."""

    kind = "collapsed"


class InterruptedRunError(BertctlError):
    """A signal ended the run, after its progress was saved."""

    exit_code = ExitCode.INTERRUPTED
    kind = "interrupted"

    def __init__(self, message: str, *, remedy: str = "", terminated: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        if terminated:
            self.exit_code = ExitCode.TERMINATED


def all_of(errors: Sequence[BertctlError], headline: str) -> BertctlError:
    """Returns several errors as one error, which lists their messages; a single one is returned.

    The new error has the exit code of the first error, and each remedy once. Its file, line and
    field are those of the first error that has any.

    Args:
        errors: The errors, at least one.
        headline: First line of the message.
    """
    if len(errors) == 1:
        return errors[0]
    messages = textwrap.indent("\n".join(error.message for error in errors), "  ")
    remedies = dict.fromkeys(error.remedy for error in errors if error.remedy)
    combined = BertctlError(f"{headline}\n{messages}", remedy="\n".join(remedies))
    combined.exit_code = errors[0].exit_code
    combined.kind = errors[0].kind
    for error in errors:
        if error.file or error.field:
            combined.file = error.file
            combined.line = error.line
            combined.field = error.field
            break
    return combined


def said_of(error: BaseException) -> str:
    """Returns the message of an error, as status.json records it.

    The message of an error that is not bertctl's begins with its class: `ValueError: ...`.
    """
    if isinstance(error, BertctlError):
        return error.message
    return f"{type(error).__name__}: {error}"


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error of torch (CUDA, CPU, MPS) or Python says that memory ran out."""
    return isinstance(error, MemoryError) or any(
        sign in str(error).lower() for sign in _OUT_OF_MEMORY
    )
