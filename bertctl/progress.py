"""How working code reports progress without printing.

It calls a listener. The command line has one that decides what is shown.
"""

from collections.abc import Mapping

Figures = Mapping[str, float | str]
"""Numbers that are shown beside the progress of a job, by name, such as the loss."""


class Listener:
    """Receives the messages and the progress of a long job.

    This class drops them. The one of the command line prints them.
    """

    def say(self, text: str) -> None:
        """Receives a line about what is about to happen, or has happened."""

    def warn(self, text: str) -> None:
        """Receives a warning: the job continues, but the user should know."""

    def advance(
        self,
        phase: str,
        done: int,
        total: int,
        figures: Figures | None = None,
        *,
        share: float | None = None,
    ) -> None:
        """Receives how far a phase of the job is.

        Args:
            phase: Name of the phase, shown to users.
            done: Number of finished units, such as steps or rows.
            total: Number of all units; 0 if it is unknown, as for a stream (see `expect`).
            figures: Numbers to show beside them, such as the loss.
            share: Finished share of the work, from 0 to 1, for units that take unlike times. The
                time left is computed from it.
        """

    def expect(self, rows: int) -> None:
        """Receives about how many rows the input has that is being read.

        Args:
            rows: Number of rows, estimated from the bytes read so far; 0 if it can't be estimated.
        """

    def finish(self, phase: str) -> None:
        """Receives that a phase is over, so that its progress bar can go away."""


SILENT = Listener()
