"""Opens what answers: a run, a model of transformers, or an export."""

from collections.abc import Mapping
from pathlib import Path

from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import is_export


def open_trained(
    path: Path, *, options: Mapping[str, object] | None = None, listener: Listener = SILENT
) -> TrainedRun:
    """Opens a run folder, a fine-tuned model, or a folder of `bertctl export`.

    Args:
        path: The folder, or a model's name.
        options: Recipe fields to change, by dotted name: `runtime.threads`, `data.data_dir`.
        listener: Receives what a model is that is no run: its task and labels.

    Raises:
        UnavailableError: No run, one without a model, or files that are missing.
        DataError: An export that was changed.
        UsageError: Options that don't fit.
    """
    if is_export(path):
        from bertctl.inference.exported import open_export

        return open_export(path, options=options)
    from bertctl.inference.trained import open_run

    return open_run(path, options=options, listener=listener)
