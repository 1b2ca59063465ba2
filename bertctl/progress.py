"""How working code speaks without printing: it calls a listener, the command line decides what is shown."""

from collections.abc import Mapping


class Listener:
    """Receives what a long job has to say. This one is silent; the command line has one that speaks."""

    def say(self, text: str) -> None:
        """One line of talk: what is about to happen, or has."""

    def warn(self, text: str) -> None:
        """Something the person should act on, though the job goes on."""

    def advance(self, phase: str, done: int, total: int, figures: Mapping[str, float | str] | None = None) -> None:
        """`done` of `total` units of `phase` are finished; `figures` are shown beside the bar (loss, rate).

        A total of 0 is one that nobody knows (a stream).
        """

    def finish(self, phase: str) -> None:
        """`phase` is over; its bar goes away."""


SILENT = Listener()
