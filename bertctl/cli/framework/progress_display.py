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
        name: what it is called.
        began: when it was first heard of, in seconds.
        start: units and share that were done then: the first unit often takes longer, and a resumed
            run had some.
        heard: when there was news last.
        done: units.
        total: units in all; 0 where nobody knows.
        share: of the work, from 0 to 1; None where nobody knows.
        figures: loss, rates.
    """

    name: str
    began: float
    start: tuple[int, float]
    heard: float = 0.0
    done: int = 0
    total: int = 0
    share: float | None = None
    figures: list[str] = field(default_factory=list)

    def left(self, now: float) -> str:
        """Returns the time that is left, by the pace so far; nothing where that can't be known."""
        share = self.share or 0.0
        if share <= self.start[1]:
            return ""
        seconds = (self.heard - self.began) * (1 - share) / (share - self.start[1]) - (
            now - self.heard
        )
        return f"{human_seconds(max(0, round(seconds))).replace('.0 s', ' s')} left"

    def words(self, now: float) -> list[str]:
        """Returns loss and rates; the rate of the phase itself where the job names none."""
        rate = (self.done - self.start[0]) / max(now - self.began, 1e-9)
        has_rate = any(text.partition(" ")[0].endswith("/s") for text in self.figures) or rate < 1
        if has_rate:
            return self.figures
        return [*self.figures, f"{rate:,.0f}/s"]


class ProgressDisplay:
    """Shows how far the phases of a job are.

    One that begins while another is under way is a part of it.

    Args:
        console: of stderr. It has a bar where it is a terminal, outside of CI and not under an AI
            agent.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._has_bar = console.is_terminal and not (is_set("CI") or is_set("AI_AGENT"))
        self._phases: dict[str, _Phase] = {}
        self._is_drawn = False
        self._drawn_at = 0.0
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
        """Takes news of a phase as `Listener.advance` gets them.

        It returns the line to write, where one is due.
        """
        now = time.monotonic()
        if share is None and total:
            share = done / total
        if name not in self._phases:
            self._phases[name] = _Phase(name, now, (done, share or 0.0))
            if len(self._phases) == 1:
                self._line_at = now
                self._line_share = share or 0.0
        phase = self._phases[name]
        phase.heard = now
        phase.done = done
        phase.total = total
        phase.share = share
        phase.figures = [f"{figure} {_figure(value)}" for figure, value in figures.items()]
        if self._has_bar:
            if now - self._drawn_at >= _SECONDS_BETWEEN_DRAWINGS and not scrolling():
                self._draw(phase, now)
        elif self._is_due(phase, now):
            self._line_at = now
            if len(self._phases) == 1:
                self._line_share = share or 0.0
            left = _listed(
                f"{self._title(phase, now)} {_count(phase)}{_percent(phase)}", phase.left(now)
            )
            return "  ".join([left, *phase.words(now)])
        return None

    def finish(self, name: str) -> None:
        """Ends a phase."""
        self._phases.pop(name, None)
        self.erase()

    def erase(self) -> None:
        """Takes the bar off the screen: for a line to be written, or at the end.

        The next news bring it back.
        """
        if self._is_drawn:
            self._send(f"{_ERASE}\x1b[?25h")
            self._is_drawn = False
            self._drawn_at = 0.0

    def _is_due(self, phase: _Phase, now: float) -> bool:
        """Whether a plain line is due: by time and share of the work, see the module."""
        waited = now - self._line_at
        outermost = next(iter(self._phases.values()))
        if waited < _SECONDS_BETWEEN_LINES:
            return False
        if phase is outermost and phase.share is not None:
            return phase.share - self._line_share >= _SHARE_BETWEEN_LINES
        return waited >= 0.25 * (now - outermost.began)

    def _title(self, phase: _Phase, now: float) -> str:
        """Returns the phase's name after those of which it is a part."""
        titles = []
        for outer_phase in self._phases.values():
            if outer_phase is phase:
                break
            title = f"{outer_phase.name}{_percent(outer_phase)}"
            titles.append(_listed(title, outer_phase.left(now)))
        return _listed(*titles, phase.name)

    def _draw(self, phase: _Phase, now: float) -> None:
        """Draws the bar on the last line, with as many of its parts as there is room for.

        The cursor waits at the beginning of that line, where a terminal keeps it when its width
        changes, also if it folds the line then: so what is erased is the bar, all of it, and
        nothing else.
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
        self._console.file.write(text)
        self._console.file.flush()


def _count(phase: _Phase) -> str:
    if phase.total:
        return f"{phase.done}/{phase.total}"
    return str(phase.done)


def _listed(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _percent(phase: _Phase) -> str:
    """Returns the share of a phase that is done.

    After the last step the text is empty if a part of that step is left.
    """
    if phase.share is None or (phase.total and phase.done >= phase.total and phase.share < 1):
        return ""
    return f" ({100 * phase.share:.0f} %)"


def _figure(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
