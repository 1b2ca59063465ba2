"""How working code speaks without printing.

It calls a listener, the command line decides what is shown.
"""

from collections.abc import Mapping

Figures = Mapping[str, float | str]
"""Numbers beside how far a job is, by name."""


class Listener:
    """Receives what a long job has to say.

    This one is silent; the command line has one that speaks.
    """

    def say(self, text: str) -> None:
        """One line of talk: what is about to happen, or has."""

    def warn(self, text: str) -> None:
        """Something the person should act on, though the job goes on."""

    def advance(
        self,
        phase: str,
        done: int,
        total: int,
        figures: Figures | None = None,
        *,
        share: float | None = None,
    ) -> None:
        """`done` of `total` units of `phase` are finished.

        `figures` are shown beside them (loss, rate).

        A total of 0 is one that the caller does not know (a stream): see `expect`. `share` is that
        of the work, from 0 to 1, where units take unlike times; the time left is worked out from
        it.
        """

    def expect(self, rows: int) -> None:
        """The input that is being read has about so many rows.

        Its bytes so far say it; 0 where nobody can know.
        """

    def finish(self, phase: str) -> None:
        """`phase` is over; its bar goes away."""


SILENT = Listener()
