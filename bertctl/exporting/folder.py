"""The folder of an export: what lies beside the graph, and the document about all of it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bertctl.catalog.models import SENTENCEPIECE_FILES
from bertctl.config.dump import dump_recipe
from bertctl.documents import loading, sha256_of
from bertctl.errors import UnavailableError
from bertctl.exporting.convert import PACKAGES
from bertctl.exporting.subject import Subject
from bertctl.inference.export_proof import FolderProof
from bertctl.modeling.linear_head import is_probe, read_probe
from bertctl.modeling.sentence_folder import files_of
from bertctl.run_documents.export_document import (
    DOCUMENT,
    PROOF,
    ExportDocument,
    ExportedFile,
    ExportMachine,
    ExportPadding,
    ExportProof,
    ExportQuality,
    ExportSource,
    ExportVectors,
    digest_of,
)
from bertctl.run_folder import RunFolder
from bertctl.runtime.cpu import cpu_name, cpu_words
from bertctl.tokenization.long_texts import LongText
from bertctl.version import __version__
from bertctl.writing import copy_file, write_json, write_text

_OF_TOKENIZER = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    *SENTENCEPIECE_FILES,
)
_OF_VECTORS = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
_INSTRUCTIONS = (
    "avx2",
    "avx512f",
    "avx_vnni",
    "avx512_vnni",
    "amx_int8",
    "avx512_bf16",
    "amx_bf16",
    "asimddp",
    "i8mm",
    "bf16",
)


@dataclass(frozen=True)
class Graph:
    """A converted model in the folder that is being made.

    Attributes:
        weights: Name of the file that the runtime opens.
        file_format: `onnx` or `openvino`.
        precision: Precision of its arithmetic.
        inputs: Names of the graph's inputs.
        outputs: Names of the graph's outputs.
    """

    weights: str
    file_format: str
    precision: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def write_folder(
    folder: Path,
    subject: Subject,
    graph: Graph,
    proof: ExportProof,
    folder_proof: FolderProof,
    quality: ExportQuality | None = None,
) -> ExportDocument:
    """Writes everything beside the graph into a folder, and returns the document.

    Args:
        folder: The export's folder, with the graph in it.
        subject: The exported model.
        graph: The graph's file, format and inputs.
        proof: How the graph was compared with the model.
        folder_proof: A few windows with the model's outputs, which are compared again when the
            folder is opened.
        quality: What smaller numbers cost; None for fp32.
    """
    from safetensors.numpy import save_file

    config = _config(subject)
    _write_tokenizer(folder, subject)
    write_json(folder / "config.json", config)
    _write_run(folder, subject, is_smaller=graph.precision != "fp32")
    _write_modules(folder, subject)
    if subject.windows is not None:
        subject.windows.save(folder)
    save_file(folder_proof.arrays(), folder / PROOF)
    # safetensors writes files that only the owner may read, whatever the umask says.
    for path in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", path)

    content = _content(folder, subject, graph, config)
    content["proof"] = proof.as_json()
    if quality is not None:
        content["quality"] = quality.as_json()
    content["versions"] = _versions(graph.file_format)
    content["machine"] = machine().as_json()
    content["files"] = {
        path.relative_to(folder).as_posix(): _file(path).as_json()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content["digest"] = digest_of(content)  # of all other fields, so it comes last
    document = ExportDocument.model_validate(content)
    write_json(folder / DOCUMENT, document.as_json())
    return document


def _content(
    folder: Path, subject: Subject, graph: Graph, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what export.json says of the model."""
    run = subject.run
    reading = LongText.of(run.recipe.model)
    padding = subject.model.padding
    content: dict[str, Any] = {
        "schema": 1,
        "bertctl": __version__,
        "name": run.recipe.name,
        "task": run.task.name,
        "format": graph.file_format,
        "precision": graph.precision,
        "weights": graph.weights,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "labels": list(run.task.label_names),
        "max_length": run.recipe.model.max_length,
        "reading": {
            "long_text": reading.mode,
            "window_stride": reading.stride,
            "window_pooling": reading.pooling,
        },
        "padding": ExportPadding(
            id=padding.id, left=padding.left, unwanted=padding.unwanted
        ).as_json(),
        "pairs": run.pairs,
        "source": _source(subject).as_json(),
    }
    if config.get("problem_type"):
        content["problem_type"] = config["problem_type"]
    decision = folder / "decision.json"
    if decision.exists():
        content["decision"] = json.loads(decision.read_text(encoding="utf-8"))
    if subject.windows is not None:
        content["windows"] = subject.windows.how.as_json()
    if subject.modules is not None:
        content["vectors"] = _vectors(subject).as_json()
    return content


def _source(subject: Subject) -> ExportSource:
    """Returns what export.json says of the model that was exported: name, hashes, architecture."""
    source = subject.run.source
    network = subject.model.network
    fields: dict[str, Any] = {
        "name": str(subject.path),
        "model_hash": source.content_hash(),
        "family": str(source.config.get("model_type", "")),
        "architecture": type(getattr(network, "encoder", network)).__name__,
    }
    if subject.is_run:
        fields["recipe_hash"] = subject.run.hash
    return ExportSource(**fields)


def _vectors(subject: Subject) -> ExportVectors:
    """Returns how a sentence-embedding model makes its vectors, and their size."""
    from bertctl.modeling.sentence_head import sentence_head

    modules = subject.modules
    head = sentence_head(subject.model.network)
    assert modules is not None  # noqa: S101 - of a task about vectors
    assert head is not None  # noqa: S101
    return ExportVectors(
        poolings=list(modules.poolings),
        normalize=modules.normalised,
        size=head.size,
        # A step that is no layer is the normalization, which stands as None in the list.
        is_layered=any(step is not None for step in modules.steps),
    )


def _config(subject: Subject) -> dict[str, Any]:
    """Returns the model's config with the fields of its head."""
    config = dict(subject.run.source.config)
    if is_probe(subject.run.folder.path):
        _, document = read_probe(subject.run.folder.path)
        config |= document.head
    return config


def _write_tokenizer(folder: Path, subject: Subject) -> None:
    """Writes the tokenizer as one tokenizer.json, and copies its settings.

    Raises:
        UnavailableError: The tokenizer can't be written as one file.
    """
    tokenizer = subject.model.tokenizer
    remedy = "Its tokenizer can't be written as one file, so it can't be exported."
    with loading(f"the tokenizer of {subject.path}", kind=UnavailableError, remedy=remedy):
        text = tokenizer.to_str(pretty=True)
    write_text(folder / "tokenizer.json", text)
    for name in _OF_TOKENIZER:
        _copy(subject.run.source.folder / name, folder)


def _write_run(folder: Path, subject: Subject, *, is_smaller: bool) -> None:
    """Writes the files of a run into an export: recipe.yaml, decision.json, and the metrics.

    Args:
        folder: The export.
        subject: The exported model. If it is no run, it has only a recipe.
        is_smaller: Whether the export has fewer bits. The run's metrics are then not copied: they
            are not those of the export.
    """
    run = subject.run
    if subject.is_run:
        _copy(run.folder.recipe, folder)
        _copy(run.folder.decision, folder)
        if not is_smaller:
            _copy_scores(run.folder, folder)
    else:
        text = dump_recipe(run.recipe, command=f"bertctl export {subject.path}")
        write_text(folder / "recipe.yaml", text)


def _copy_scores(run: RunFolder, folder: Path) -> None:
    """Copies the run's metrics, and the predictions for the splits that have metrics."""
    if not run.metrics.is_file():
        return
    copy_file(run.metrics, folder / run.metrics.name)
    predictions = folder / "predictions"
    for split in run.read_metrics().metrics:
        source = run.predictions(split)
        if source.is_file():
            predictions.mkdir(exist_ok=True)
            copy_file(source, predictions / source.name)


def _write_modules(folder: Path, subject: Subject) -> None:
    """Writes sentence-transformers' files on pooling and normalization, without weights.

    A model that does not compare vectors has none.
    """
    if subject.modules is None:
        return
    hidden = int(getattr(subject.model.network.config, "hidden_size", 0))
    for name, content in files_of(subject.modules, size=hidden).items():
        path = folder / name
        write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    for name in _OF_VECTORS:
        _copy(subject.run.source.folder / name, folder)


def _copy(source: Path, folder: Path) -> None:
    """Copies a file into a folder, if it exists."""
    if source.is_file():
        copy_file(source, folder / source.name)


def _file(path: Path) -> ExportedFile:
    """Returns size and hash of a file, by which later changes are noticed."""
    return ExportedFile(bytes=path.stat().st_size, sha256=sha256_of(path))


def _versions(file_format: str) -> dict[str, str]:
    """Returns the versions of the installed packages that an export depends on, by name."""
    versions = {}
    for package in ("torch", "transformers", "tokenizers", "numpy", *PACKAGES[file_format]):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def machine() -> ExportMachine:
    """Returns the processor of this machine and those of its instructions that change results."""
    flags = cpu_words()
    instructions = [flag for flag in _INSTRUCTIONS if flag in flags]
    return ExportMachine(cpu=cpu_name(), instructions=instructions)
