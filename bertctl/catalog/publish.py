"""A finished run's model, put on the hub in one commit.

It has weights, tokenizer, config and card, and predictions only if asked.
"""

from pathlib import Path
from typing import Any

from bertctl.catalog.downloads import limit_sessions
from bertctl.catalog.hub import has_token, is_offline, masked, unreachable
from bertctl.catalog.hub_files import endpoint
from bertctl.errors import UnavailableError, UsageError
from bertctl.progress import Listener
from bertctl.run_folder import SCHEMA, UNFINISHED, RunFolder

CARD = "README.md"

_UPLOAD_LATER = "RUN/model can be uploaded later, from any machine: `hf upload HUB-ID RUN/model`."


def push_run(
    folder: RunFolder,
    hub_id: str,
    *,
    private: bool,
    predictions: bool,
    message: str | None,
    listener: Listener,
) -> dict[str, Any]:
    """Uploads RUN/model to a repository of the hub, which is made if it does not exist.

    Checkpoints and the rest of the run stay here.

    Args:
        folder: a finished run.
        hub_id: `org/name`, or `name` for the token's own user.
        private: a repository that is made is private; one that is there stays as it is.
        predictions: RUN/predictions too. They hold the texts of the data, unless the run was made
            with --no-text.
        message: Message of the commit.
        listener: Receives what is uploaded, and a warning if the card is missing.

    Returns:
        `hub_id`, `url`, `commit` and the `files` with their sizes.

    Raises:
        UsageError: a name that can't be one of the hub.
        UnavailableError: the run is not finished or has no model; offline; no token; the hub
            refuses or is silent.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    check_hub_id(hub_id)
    files = files_to_push(folder, predictions=predictions)
    _check_can_push(hub_id)
    if CARD not in files:
        listener.warn(f"{folder.model} has no {CARD}: the hub will show no model card")
    size = sum(path.stat().st_size for path in files.values())
    listener.say(
        f"uploading {len(files)} files, {size / 1e6:.1f} MB, to {masked(endpoint())}/{hub_id}"
    )
    disable_progress_bars()
    limit_sessions()
    hub = HfApi(endpoint=endpoint(), library_name="bertctl")
    try:
        # Without a request for a private one, the settings of the hub's organisation decide (None).
        repository = hub.create_repo(hub_id, private=private or None, exist_ok=True)
        commit = hub.create_commit(
            repository.repo_id,
            [CommitOperationAdd(name, str(path)) for name, path in files.items()],
            commit_message=message or f"bertctl push {folder.path.name}",
        )
    except Exception as error:
        raise _refused(hub_id, error) from error
    return {
        "schema": SCHEMA,
        "run": str(folder.path),
        "hub_id": repository.repo_id,
        "url": str(repository),
        "commit": commit.oid,
        "files": {name: path.stat().st_size for name, path in files.items()},
    }


def check_hub_id(hub_id: str) -> None:
    """Refuses what can't be the name of a repository.

    Raises:
        UsageError: with the rule that it breaks.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(hub_id)
    except HFValidationError as error:
        message = f"'{hub_id}' is not a hub id: {error}"
        raise UsageError(message, remedy="Give org/name, such as my-org/my-model.") from error


def files_to_push(folder: RunFolder, *, predictions: bool) -> dict[str, Path]:
    """Returns path in the repository -> file, for the model's files and perhaps the predictions.

    Raises:
        UnavailableError: the run is not done, or holds no model of transformers.
    """
    state = folder.read_status().state
    if state != "done":
        remedy = f"{UNFINISHED} To upload the weights all the same: `hf upload HUB-ID RUN/model`."
        raise UnavailableError(
            f"{folder.path} is not finished: its state is '{state}'", remedy=remedy
        )
    paths = (path for path in sorted(folder.model.rglob("*")) if path.is_file())
    all_files = {path.relative_to(folder.model).as_posix(): path for path in paths}
    # Hidden files are left out.
    files = {name: path for name, path in all_files.items() if "/." not in f"/{name}"}
    if "config.json" not in files:
        remedy = "Give a run of `bertctl finetune`; a probe has no weights of its own to publish."
        raise UnavailableError(
            f"{folder.model} holds no model of transformers (no config.json)", remedy=remedy
        )
    if predictions:
        files |= {
            f"predictions/{path.name}": path
            for path in sorted(folder.path.glob("predictions/*.jsonl"))
        }
    return files


def _check_can_push(hub_id: str) -> None:
    """Refuses an upload that can't succeed, before anything is sent.

    Raises:
        UnavailableError: Offline, no token, or no answer.
    """
    if is_offline():
        message = f"offline mode is on, so nothing is pushed to {hub_id}"
        raise UnavailableError(
            message, remedy=f"Leave `offline=True` out and HF_HUB_OFFLINE unset. {_UPLOAD_LATER}"
        )
    if not has_token():
        raise UnavailableError(
            f"nobody is logged in at {masked(endpoint())}, so nothing is pushed to {hub_id}",
            remedy="Set HF_TOKEN to a token that may write "
            "(https://huggingface.co/settings/tokens), or type "
            "`hf auth login` once.",
        )
    problem = unreachable()
    if problem:
        raise UnavailableError(
            masked(f"the hub at {endpoint()} can't be reached: {problem}"),
            remedy=_UPLOAD_LATER,
        )


def _refused(hub_id: str, error: Exception) -> UnavailableError:
    """Returns the error for an upload that the hub refuses, with its reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    status = getattr(getattr(error, "response", None), "status_code", None)
    remedy = _UPLOAD_LATER
    if status in (401, 403):
        remedy = (
            "Is HF_TOKEN a token that may write there? https://huggingface.co/settings/tokens "
            "shows it."
        )
    # Of the library's long messages the first and the last line say most.
    reason = " ".join(dict.fromkeys(lines[:1] + lines[-1:]))
    message = masked(f"{hub_id} can't be pushed to {endpoint()}: {type(error).__name__}: {reason}")
    return UnavailableError(message, remedy=remedy)
