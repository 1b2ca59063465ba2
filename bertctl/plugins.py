"""Extensions that installed packages bring, by entry points.

A package names what it adds in its pyproject.toml, in one of these groups:

    bertctl.verbs     name of the verb        the function of the verb, as in `cli/verbs`
    bertctl.tasks     name of the task        a subclass of `bertctl.tasks.base.Task`
    bertctl.readers   suffix without its dot  a function from a path to records (mappings)
    bertctl.metrics   any name                a `bertctl.tasks.answers.TaskMetric`
    bertctl.losses    name of the loss        a `bertctl.config.losses.Loss`

Built-in names win. Looking for plug-ins takes some milliseconds, so it is done where a name is not
built in, or where all of them are needed. A plug-in that can't be imported is named in a warning
and left out.
"""

import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["verbs", "tasks", "readers", "metrics", "losses"]


def _warn(message: str) -> None:
    """Reports a broken plug-in to code that does not run a command."""
    warnings.warn(message, BrokenPluginWarning, stacklevel=3)


on_broken: ContextVar[Callable[[str], None]] = ContextVar("on_broken", default=_warn)
"""Function that receives a message about a plug-in that can't be imported.

A command writes it to its output. Without a command, it becomes a Python warning."""


class BrokenPluginWarning(UserWarning):
    """A plug-in that can't be imported, and is left out."""


@cache
def installed(group: Group) -> Mapping[str, EntryPoint]:
    """Returns the entry points of a group by name; nothing is imported."""
    return {point.name: point for point in entry_points(group=f"bertctl.{group}")}


@cache
def plugin(group: Group, name: str) -> Any:
    """Returns what a plug-in adds under a name, imported; None if no plug-in has the name.

    It is also None if the plug-in can't be imported. Then `on_broken` receives a message, once.
    """
    point = installed(group).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
        package = point.dist.name if point.dist else point.module
        on_broken.get()(
            f"the plug-in {name} (bertctl.{group}) of {package} can't be imported and is left "
            f"out: {type(error).__name__}: {error}"
        )
        return None


def all_plugins(group: Group) -> dict[str, Any]:
    """Returns the plug-ins of a group that can be imported, by name."""
    additions = {name: plugin(group, name) for name in installed(group)}
    return {name: value for name, value in additions.items() if value is not None}
