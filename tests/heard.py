"""A listener that tests look at."""

from bertctl.progress import Listener


class Heard(Listener):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def say(self, text: str) -> None:
        """Keeps a line of talk."""
        self.said.append(text)

    def warn(self, text: str) -> None:
        """Keeps a warning."""
        self.warned.append(text)
