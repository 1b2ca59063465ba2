"""How far a job is, with the time that is left.

It is one bar on a terminal, and elsewhere a plain line now and then.

Off a terminal a line follows the one before by 30 s and by 5 % of the work, whichever is later; so
the longest job has at most 20 lines. Where nobody knows how much work there is, and in a part of
the work (the evaluations of a training), each line waits for a quarter of the time that has passed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bertctl.cli.framework.streams import is_set, scrolling
from bertctl.words import human_seconds

if TYPE_CHECKING:
    from rich.console import Console

_SECONDS_BETWEEN_LINES = 30.0
_SHARE_BETWEEN_LINES = 0.05
_SECONDS_BETWEEN_DRAWINGS = 0.1
_CELLS = 20
_ERASE = "\r\x1b[J"


@dataclass
class _Phase:
    """Part of the work that is under way.

    Attributes:
        name: Name of the phase, as it is shown.
        began: Time of the phase's first report, in seconds of `time.monotonic`.
        units_at_start: Units that were finished at the first report. Rates are computed from there
            on: a resumed run had some, and the first unit often takes longer.
        share_at_start: Share of the work that was finished then.
        reported_at: Time of the phase's last report.
        done: Units that are finished, such as steps or rows.
        total: Units in all; 0 where the job does not know.
        share: Share of the work that is finished, from 0 to 1; None where the job does not know.
        figures: Loss and rates, as texts.
    """

    name: str
    began: float
    units_at_start: int
    share_at_start: float
    reported_at: float = 0.0
    done: int = 0
    total: int = 0
    share: float | None = None
    figures: list[str] = field(default_factory=list)

    def left(self, now: float) -> str:
        """Returns the time until the phase ends, as `3 min left`, by its pace so far.

        The text is empty as long as no pace is known.

        Args:
            now: `time.monotonic()`. The time since the phase's last report is taken off.
        """
        share = self.share or 0.0
        if share <= self.share_at_start:
            return ""
        seconds_so_far = self.reported_at - self.began
        seconds_from_report = seconds_so_far * (1 - share) / (share - self.share_at_start)
        seconds = seconds_from_report - (now - self.reported_at)
        # Whole seconds: `human_seconds` gives short times with a decimal.
        text = human_seconds(max(0, round(seconds))).replace(".0 s", " s")
        return f"{text} left"

    def words(self, now: float) -> list[str]:
        """Returns the phase's figures, and its units per second if no figure is a rate.

        A rate below one unit per second is not shown.

        Args:
            now: `time.monotonic()`.
        """
        units = self.done - self.units_at_start
        seconds = max(now - self.began, 1e-9)
        rate = units / seconds
        figure_names = [text.partition(" ")[0] for text in self.figures]
        has_rate = any(name.endswith("/s") for name in figure_names)
        if has_rate or rate < 1:
            return self.figures
        return [*self.figures, f"{rate:,.0f}/s"]


class ProgressDisplay:
    """Shows how far the phases of a job are, as a bar or as lines.

    A phase that begins while another one is under way is a part of that one, as an evaluation is of
    a training.

    Args:
        console: Writes to stderr. A bar is drawn if this is a terminal, outside of CI and without
            an AI agent; otherwise `advance` returns lines.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._has_bar = console.is_terminal and not (is_set("CI") or is_set("AI_AGENT"))
        self._phases: dict[str, _Phase] = {}
        self._is_drawn = False
        self._drawn_at = 0.0
        # Time of the last line, and the share of the job that was finished then.
        self._line_at = 0.0
        self._line_share = 0.0

    def advance(
        self,
        name: str,
        done: int,
        total: int,
        figures: Mapping[str, float | str],
        share: float | None,
    ) -> str | None:
        """Records how far a phase is, and draws the bar or returns a line to write.

        Args:
            name: Name of the phase; the first call with it begins the phase.
            done: Units that are finished.
            total: Units in all; 0 where the job does not know.
            figures: Loss and rates, by name.
            share: Share of the work that is finished, from 0 to 1; None to take that of the units.

        Returns:
            The line, such as `training 100/400 (25 %), 3 min left  loss 0.3  12/s`; None if a bar
            shows it, or if the next line is not due yet.
        """
        now = time.monotonic()
        if share is None and total:
            share = done / total
        if name not in self._phases:
            self._phases[name] = _Phase(
                name,
                began=now,
                units_at_start=done,
                share_at_start=share or 0.0,
            )
            # The first open phase is the job. Phases that begin later are parts of it, such as an
            # evaluation during training.
            is_new_job = len(self._phases) == 1
            if is_new_job:
                # `_is_due` compares with the last line. The first line waits just as long from now.
                self._line_at = now
                self._line_share = share or 0.0
        phase = self._phases[name]
        phase.reported_at = now
        phase.done = done
        phase.total = total
        phase.share = share
        phase.figures = [f"{figure} {_figure(value)}" for figure, value in figures.items()]

        if self._has_bar:
            is_drawing_due = now - self._drawn_at >= _SECONDS_BETWEEN_DRAWINGS
            if is_drawing_due and not scrolling():
                self._draw(phase, now)
            return None
        if not self._is_due(phase, now):
            return None
        self._line_at = now
        # `_line_share` is the job's share; that of a part of it, such as an evaluation, is another.
        is_job = len(self._phases) == 1
        if is_job:
            self._line_share = share or 0.0
        position = f"{self._title(phase, now)} {_count(phase)}{_percent(phase)}"
        return "  ".join([_listed(position, phase.left(now)), *phase.words(now)])

    def finish(self, name: str) -> None:
        """Ends a phase, and takes the bar off the screen."""
        self._phases.pop(name, None)
        self.erase()

    def erase(self) -> None:
        """Takes the bar off the screen: for a line to be written, or at the end.

        The next `advance` draws it again.
        """
        if self._is_drawn:
            self._send(f"{_ERASE}\x1b[?25h")
            self._is_drawn = False
            self._drawn_at = 0.0

    def _is_due(self, phase: _Phase, now: float) -> bool:
        """Returns whether it is time for the next line about a phase.

        Since the last line, 30 s have to pass, and 5 % of the job have to be done. In a part of the
        job, or if its length is unknown, a quarter of the time so far has to pass instead of 5 %.
        """
        waited = now - self._line_at
        if waited < _SECONDS_BETWEEN_LINES:
            return False
        # The phase that began first is the job. All other phases are parts of it.
        job = next(iter(self._phases.values()))
        if phase is job and phase.share is not None:
            return phase.share - self._line_share >= _SHARE_BETWEEN_LINES
        return waited >= 0.25 * (now - job.began)

    def _title(self, phase: _Phase, now: float) -> str:
        """Returns the name of a phase after the names of the phases that it is a part of.

        These have their percentage and the time that is left, as in
        `training (25 %), 3 min left, evaluation`.
        """
        titles = []
        for outer_phase in self._phases.values():
            if outer_phase is phase:
                break
            title = f"{outer_phase.name}{_percent(outer_phase)}"
            titles.append(_listed(title, outer_phase.left(now)))
        return _listed(*titles, phase.name)

    def _draw(self, phase: _Phase, now: float) -> None:
        """Draws the bar on the last line, with as many of its parts as there is room for.

        The cursor waits at the beginning of that line. A terminal keeps it there when its width
        changes, even if the line is then folded. So erasing from the cursor on removes the whole
        bar and nothing else.
        """
        from rich.text import Text

        full, empty = "#-" if self._console.options.ascii_only else "━─"
        cells = round(_CELLS * min(1.0, phase.share or 0.0))
        bar = Text.assemble((full * cells, "green"), (empty * (_CELLS - cells), "dim"))
        texts = [_count(phase), phase.left(now), *phase.words(now)]
        parts = [Text(self._title(phase, now)), bar, *map(Text, filter(None, texts))]
        while len(parts) > 1 and sum(part.cell_len + 1 for part in parts) > self._console.width:
            parts.pop()
        line = Text(" ").join(parts)
        line.truncate(self._console.width - 1)
        with self._console.capture() as drawn:
            self._console.print(line, end="", no_wrap=True)
        hide_cursor = "" if self._is_drawn else "\x1b[?25l"
        self._send(f"{hide_cursor}{_ERASE}{drawn.get()}\r")
        self._is_drawn = True
        self._drawn_at = now

    def _send(self, text: str) -> None:
        """Writes control codes and text to the terminal at once."""
        self._console.file.write(text)
        self._console.file.flush()


def _count(phase: _Phase) -> str:
    """Returns the finished units of a phase, as `100/400` if their total is known."""
    if phase.total:
        return f"{phase.done}/{phase.total}"
    return str(phase.done)


def _listed(*parts: str) -> str:
    """Returns the texts that are not empty, with commas between them."""
    return ", ".join(filter(None, parts))


def _percent(phase: _Phase) -> str:
    """Returns the share of a phase that is finished, such as ` (25 %)`, or an empty text.

    It is empty if the share is not known, or if all units are finished but not all the work: a
    percentage below 100 would contradict the units next to it.
    """
    if phase.share is None:
        return ""
    is_last_unit_done = phase.total and phase.done >= phase.total
    if is_last_unit_done and phase.share < 1:
        return ""
    return f" ({100 * phase.share:.0f} %)"


def _figure(value: float | str) -> str:
    """Returns a figure with three digits, or all digits before the point; texts as they are."""
    if isinstance(value, str):
        return value
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
