"""Files of hub repositories: what they are called there, and where the cache keeps them.

Nothing is fetched here.
"""

import os
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import quote, urlsplit

from bertctl.catalog.lock import Kind
from bertctl.documents import loading
from bertctl.errors import UsageError

MODULES = "modules.json"
"""What sentence-transformers reads first of a model, and transformers, which may have cached the
others, never."""


@dataclass(frozen=True)
class HubFiles:
    """Files of a hub repository that are needed.

    Attributes:
        repo: `org/name`.
        repo_type: `model` or `dataset`.
        revision: commit, tag or branch; None is the default branch.
        files: paths inside the repository: those that are needed, if there are no `patterns`. Else
            alternatives, of which one is enough to mark a complete copy in the cache. To
            `remote_size` they are alternatives, too.
        patterns: Patterns of names. All files of the repository that match one of them are needed.
    """

    repo: str
    repo_type: Kind
    revision: str | None
    files: tuple[str, ...]
    patterns: tuple[str, ...] = ()

    @property
    def requested_revision(self) -> str:
        """Commit, tag or branch that is asked for."""
        return self.revision or "main"

    @property
    def folder(self) -> Path:
        """Folder where the cache keeps the repository."""
        from huggingface_hub.file_download import repo_folder_name

        return cache_folder() / repo_folder_name(repo_id=self.repo, repo_type=self.repo_type)

    def address(self, file: str) -> str:
        """Returns where the hub has a file."""
        prefix = "datasets/" if self.repo_type == "dataset" else ""  # models have none
        revision = quote(self.requested_revision, safe="")
        return f"{endpoint()}/{prefix}{self.repo}/resolve/{revision}/{quote(file)}"

    def matches(self, file: str) -> bool:
        """Returns whether a file fits one of the patterns, in the same depth of folders.

        `*.json` fits `config.json`, but not `1_Pooling/config.json`. `*_*/config.json` fits that.
        """
        return any(
            fnmatch(file, pattern) and file.count("/") == pattern.count("/")
            for pattern in self.patterns
        )

    def found_in(self, folder: Path) -> dict[str, Path]:
        """Returns the files of a folder that match the patterns, by their names in the repository.

        Links that lead nowhere are among them.
        """
        paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
        return {name: path for name, path in paths.items() if self.matches(name)}


def endpoint() -> str:
    """Returns the address of the hub, `HF_ENDPOINT` where it is set."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def cache_folder() -> Path:
    """Returns where the hub's files are kept (`HF_HUB_CACHE`, or `HF_HOME`/hub)."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def cached_files(hub_files: HubFiles) -> dict[str, Path]:
    """Returns name -> path of those files that are in the cache; nothing is downloaded.

    Raises:
        UsageError: The repository has an impossible name, or HF_ENDPOINT is no address.
    """
    remedy = (
        "Give org/name, such as google-bert/bert-base-uncased; HF_ENDPOINT is an address: "
        "https://hub.example."
    )
    repository = f"the hub's {hub_files.repo_type} {hub_files.repo}"
    cached: dict[str, Path] = {}
    with loading(repository, kind=UsageError, remedy=remedy):
        # A port that is no number raises here. The library would refuse it only when it is
        # imported, which may have been long ago.
        _ = urlsplit(endpoint()).port
        from huggingface_hub import try_to_load_from_cache

        for name in hub_files.files:
            path = try_to_load_from_cache(
                hub_files.repo,
                name,
                revision=hub_files.revision,
                repo_type=hub_files.repo_type,
            )
            if isinstance(path, str):  # else None, or a mark that the hub doesn't have it
                cached[name] = Path(path)
    return cached
