"""Addresses (`s3://bucket/file`) where a local path is needed.

They are recognized by their scheme, and refused by name.

`pathlib` makes of `s3://bucket/file` the local path `s3:/bucket/file`. What is written there is
lost with the container, so every option, recipe field and variable that names a file or a folder
asks here first.
"""

import re
from pathlib import Path

from bertctl.errors import UsageError
from bertctl.words import without_secrets

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?P<rest>.*)", re.DOTALL)
"""A scheme has at least two characters, so `C:/file` is none."""

_COPY_COMMANDS = {
    "s3": "aws s3 cp",
    "s3a": "aws s3 cp",
    "s3n": "aws s3 cp",
    "gs": "gcloud storage cp",
    "gcs": "gcloud storage cp",
    "az": "azcopy copy",
    "abfs": "azcopy copy",
    "abfss": "azcopy copy",
    "wasb": "azcopy copy",
    "wasbs": "azcopy copy",
    "hdfs": "hdfs dfs -cp",
    "dbfs": "databricks fs cp",
    "oss": "ossutil cp",
}
"""Command that copies between an address and a local file, by scheme."""

_FOLDER_FLAGS = {
    "aws s3 cp": " --recursive",
    "gcloud storage cp": " --recursive",
    "azcopy copy": " --recursive",
}

_HUB_KINDS = {"datasets": " --repo-type dataset", "spaces": " --repo-type space"}


def is_address(path: str | Path) -> bool:
    """Returns whether a value that should be a local path is an address, such as `s3://...`.

    `Path` turns `s3://` into `s3:/`. That is an address, too, unless a local folder is named `s3:`.
    """
    match = _ADDRESS.match(str(path))
    if match is None:
        return False
    has_two_slashes = match["rest"].startswith("/")
    return has_two_slashes or not Path(f"{match['scheme']}:").is_dir()


def address_problem(address: str | Path) -> str:
    """Returns the sentence that says what is wrong with an address, without the secrets in it."""
    return f"{_full_address(address)} is an address, and bertctl reads and writes local files"


def address_remedy(path: str | Path, *, is_output: bool = False, is_model: bool = False) -> str:
    """Returns what to type in place of an address.

    Args:
        path: The address.
        is_output: Whether something was to be written there.
        is_model: Whether a model was meant, for which the hub's id fits.
    """
    address = _full_address(path)
    scheme, _, rest = address.partition("://")
    scheme = scheme.lower()
    if scheme == "file":
        return f"Give the path itself: /{rest.lstrip('/')}"

    repository = _hub_repository(scheme, rest)
    if is_output:
        return _output_remedy(address, scheme, repository)
    if repository is not None:
        return _hub_remedy(*repository, is_model=is_model)
    name = rest.rstrip("/").rpartition("/")[2] or "FILE"
    if scheme in ("http", "https", "ftp"):
        return f"Download it first: curl -L -o {name} '{address}', and give {name}."
    command = _COPY_COMMANDS.get(scheme)
    if command:
        if Path(name).suffix:
            flags = ""
        else:
            flags = _FOLDER_FLAGS.get(command, "")
        return f"Copy it first: {command}{flags} {address} {name}, and give {name}."
    return "Copy it to this machine first, and give the local path."


def refuse_address(
    path: str | Path | None,
    name: str = "",
    *,
    is_output: bool = False,
    is_model: bool = False,
    is_perhaps_text: bool = False,
) -> None:
    """Refuses an address where a local path is needed.

    Args:
        path: A path as it was typed; None where nothing was.
        name: Option, field, argument or variable that it was given for.
        is_output: Whether something was to be written there.
        is_model: Whether a model was meant.
        is_perhaps_text: Whether a text is taken in the same place, so that the address may be meant
            as one.

    Raises:
        UsageError: It is an address.
    """
    if path is None or not is_address(path):
        return
    label = f"{name}: " if name else ""
    remedy = address_remedy(path, is_output=is_output, is_model=is_model)
    if is_perhaps_text:
        remedy += (
            " If the address itself is the text, put it into a file or into a pipe, and give that "
            "(- is stdin)."
        )
    raise UsageError(f"{label}{address_problem(path)}", remedy=remedy)


def _full_address(address: str | Path) -> str:
    """Returns an address as it was typed, but without secrets, such as `s3://bucket/file`.

    `Path` has turned `s3://` into `s3:/`, which is undone. `file:///folder` keeps its third slash.
    """
    match = _ADDRESS.match(str(address))
    if match is None:
        return str(address)
    # `rest` is what follows the first slash, so it begins with the other slashes.
    if match["rest"].startswith("//"):
        slashes = "///"
    else:
        slashes = "//"
    return without_secrets(f"{match['scheme']}:{slashes}{match['rest'].lstrip('/')}")


def _hub_repository(scheme: str, rest: str) -> tuple[str, str, str] | None:
    """Returns kind, id and file of a repository on the hub; None for other addresses.

    For example: `("datasets", "user/name", "train.csv")`.

    Args:
        scheme: `hf`, or `https` for an address of the website.
        rest: What comes after `://`.
    """
    parts = [part for part in rest.split("/") if part]
    if scheme != "hf":
        is_website = bool(parts) and parts[0] in ("huggingface.co", "hf.co")
        if scheme not in ("http", "https") or not is_website:
            return None
        del parts[0]
    # The website's addresses of models have no kind in front.
    kind = "models"
    if parts and parts[0] in (*_HUB_KINDS, "models"):
        kind = parts.pop(0)
    if len(parts) < 2:
        return None
    repository = "/".join(parts[:2])
    path_in_repository = parts[2:]
    # The website has such a word and the revision in front of the file: `blob/main/train.csv`.
    if path_in_repository and path_in_repository[0] in ("resolve", "blob", "tree", "raw"):
        path_in_repository = path_in_repository[2:]
    return kind, repository, "/".join(path_in_repository)


def _hub_remedy(kind: str, repository: str, file: str, *, is_model: bool) -> str:
    """Returns what to type instead of the address of a Hub repository, as a local path is needed.

    Args:
        kind: `models`, `datasets` or `spaces`.
        repository: Name of the repository, such as `user/name`, perhaps with `@revision`.
        file: Path in the repository; empty for the whole repository.
        is_model: Whether a model is needed, which a hub id can name, too.
    """
    identifier = repository.partition("@")[0]
    if is_model and kind == "models":
        return f"Give the hub id: {identifier}"
    flags = _HUB_KINDS.get(kind, "")
    words = f"{identifier} {file}".strip()
    local_name = file or identifier.rpartition("/")[2]
    folder = "." if file else local_name
    return (
        f"Download it first: hf download{flags} {words} --local-dir {folder}, and give "
        f"{local_name}."
    )


def _output_remedy(address: str, scheme: str, repository: tuple[str, str, str] | None) -> str:
    """Returns the advice to write to a local path, and to copy that to the address.

    Args:
        address: The address, such as `s3://bucket/run`.
        scheme: Its scheme, such as `s3`.
        repository: Kind, name and path of the Hub repository; None for any other address.
    """
    name = address.rstrip("/").rpartition("/")[2]
    if repository is not None or scheme == "hf":
        return (
            f"Write to a local path such as {name}, and upload that: `bertctl push RUN HUB-ID`, or "
            "hf upload."
        )
    command = _COPY_COMMANDS.get(scheme)
    if command:
        if Path(name).suffix:
            flags = ""
        else:
            flags = _FOLDER_FLAGS.get(command, "")
        return (
            f"Write to a local path such as {name}, and copy that: {command}{flags} {name} "
            f"{address}"
        )
    return f"Write to a local path such as {name}, and copy that."
