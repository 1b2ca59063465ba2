"""Opens the model of `extract-features` and its like: one on torch, or an export."""

from bertctl.config.recipe_files import expanded_path
from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.features.encoder import Encoder, TextEncoder, VectorSpec
from bertctl.features.exported_encoder import ExportedEncoder
from bertctl.inference.export_folder import ExportFolder
from bertctl.modeling.families import read_length
from bertctl.modeling.source import ModelFiles, ModelSource, inspect_model
from bertctl.run_folder import is_export


def find_files(model: ModelSection) -> ModelFiles:
    """Returns the files of a model, looked at but not loaded.

    Raises:
        UsageError: No such model, or one that can't be used.
        UnavailableError: Files that are missing.
        DataError: An export that was changed.
    """
    path = expanded_path(model.name)
    if is_export(path):
        return ExportFolder.open(path)
    return inspect_model(model)


def longest_read(files: ModelFiles) -> int:
    """Returns how many tokens of a text a model reads if no length is named."""
    if isinstance(files, ExportFolder):
        return files.document.max_length
    return read_length(files.config)


def open_text_encoder(files: ModelFiles, spec: VectorSpec, runtime: RuntimeSection) -> TextEncoder:
    """Returns the model, ready to make vectors.

    Raises:
        UsageError: Vectors that it does not have.
        UnavailableError: Files that can't be loaded.
    """
    if isinstance(files, ExportFolder):
        return ExportedEncoder.open(files, spec, runtime)
    assert isinstance(files, ModelSource)  # noqa: S101 - `find_files` returns one of the two
    return Encoder.open(files, spec, files.compute(runtime))
