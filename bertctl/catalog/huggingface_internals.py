"""What is used of huggingface_hub that its documentation doesn't promise, all in one place.

Each use has a test in `tests/contract/test_private_parts.py`, which fails when a release takes it
away. huggingface_hub is imported in the functions: to import it takes a tenth of a second.
"""

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from bertctl.session import current

_ENVIRONMENT_CONSTANTS = (
    "ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    "HF_HUB_DISABLE_SYMLINKS",
    "HF_HUB_DISABLE_XET",
    "HF_HUB_DOWNLOAD_TIMEOUT",
    "HF_HUB_ETAG_TIMEOUT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN_PATH",
    "HUGGINGFACE_CO_URL_TEMPLATE",
)
"""Constants of the library that come from variables, as far as bertctl, or what it calls, looks at
them."""


def set_hub_variable(name: str, value: str | None) -> None:
    """Sets a variable that huggingface_hub reads at its import, before the import or after.

    It is restored at the end of the command.
    """
    current().set_variable(name, value)
    follow_environment()


def follow_environment() -> None:
    """Updates the constants of an imported huggingface_hub by the environment.

    The library reads variables such as HF_HOME once, when it is imported. At the end of the command
    the constants are restored.
    """
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is None:
        return
    session = current()
    try:
        constants_now = _read_again(constants)
    except ValueError:  # no address (HF_ENDPOINT): refused where the hub is needed
        return
    for name in _ENVIRONMENT_CONSTANTS:
        old_value = getattr(constants, name)
        value = getattr(constants_now, name)
        if value != old_value:
            restore = partial(setattr, constants, name, old_value)
            session.restore_later(f"huggingface_hub.constants.{name}", restore)
            setattr(constants, name, value)


def _read_again(module: ModuleType) -> ModuleType:
    """Returns a copy of a module as it would be if it were imported now."""
    spec = module.__spec__
    if spec is None or spec.loader is None:
        return module
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def pointer_path(repository: Path, commit: str, file: str) -> Path:
    """Returns where the cache has a file of a commit.

    Args:
        repository: The repository's folder in the cache.
        commit: Commit of the file.
        file: Path inside the repository.
    """
    from huggingface_hub.file_download import _get_pointer_path

    return Path(_get_pointer_path(str(repository), commit, file))


def name_commit(repository: Path, name: str, commit: str) -> None:
    """Notes in the cache which commit a branch or tag stands for; see `pointer_path`."""
    from huggingface_hub.file_download import _cache_commit_hash_for_specific_revision

    _cache_commit_hash_for_specific_revision(str(repository), name, commit)


def client_factory() -> Callable[[], Any]:
    """Returns the function that makes the library's HTTP clients, whoever has set it."""
    from huggingface_hub.utils import _http

    factory: Callable[[], Any] = _http._GLOBAL_CLIENT_FACTORY
    return factory
