"""`bertctl export`: a run or a model becomes a folder that provably answers alike, or nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertctl.catalog.models import MODELS
from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.exporting.convert import (
    FORMATS,
    GRAPH_FILES,
    convert,
    require_packages,
    save_openvino,
)
from bertctl.exporting.folder import Graph, write_folder
from bertctl.exporting.proof import Comparison
from bertctl.exporting.quality import QualityCheck
from bertctl.exporting.request import TOLERANCE, USUAL_DROP, ExportRequest
from bertctl.exporting.rows import comparison_rows
from bertctl.exporting.scores import write_scores
from bertctl.exporting.shrink import shrink
from bertctl.exporting.smaller import check_precision
from bertctl.exporting.subject import Subject, open_subject
from bertctl.inference.graph_session import GraphSession, open_graph
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.export_document import (
    DOCUMENT,
    ExportDocument,
    ExportProof,
    ExportQuality,
)
from bertctl.run_folder import RunFolder
from bertctl.words import count_of, unknown
from bertctl.writing import refuse_input, replacing

SMALLER_TOLERANCE = 0.02
"""Difference from its own numbers that an export in fewer bits may show when it is opened.

On one machine it shows none, whatever the threads. Another processor adds in another order, and a
value then rounds to the next of 256 steps; products that saturate differ by a tenth and more.
"""


@dataclass(frozen=True)
class ExportResult:
    """Outcome of an export.

    Attributes:
        document: Document of the folder; None if the export failed, which leaves no folder.
        proof: How the export was compared.
        failures: Why there is no folder, a sentence each.
        quality: What smaller numbers cost.
    """

    document: ExportDocument | None
    proof: ExportProof
    failures: tuple[str, ...] = ()
    quality: ExportQuality | None = None

    def as_json(self, output: Path) -> dict[str, Any]:
        """Returns what `bertctl export --json` prints."""
        return {
            "verdict": "fail" if self.failures else "pass",
            "output": None if self.failures else str(output),
            "failures": list(self.failures),
            "proof": self.proof.as_json(),
            "quality": None if self.quality is None else self.quality.as_json(),
            "bytes": None if self.document is None else _size(self.document),
        }


class _NotProvedError(Exception):
    """Stops the writing of an export that failed its comparison, so that no folder is left."""

    def __init__(self, result: ExportResult) -> None:
        super().__init__("; ".join(result.failures))
        self.result = result


def export_model(request: ExportRequest, *, listener: Listener = SILENT) -> ExportResult:
    """Exports a model, and leaves a folder only if it answers as the model does.

    Args:
        request: What to export, how and where to.
        listener: Receives progress messages.

    Raises:
        UsageError: A request that makes no sense, or rows that are not the model's kind.
        UnavailableError: Missing packages, a model that can't be converted, a place that can't be
            written.
        DataError: Rows that can't be used.
    """
    check_request(request)
    subject = open_subject(request.path, request.options, listener)
    rows = comparison_rows(
        subject.run,
        request.rows,
        is_run=subject.is_run,
        with_labels=request.is_smaller,
        listener=listener,
    )
    comparison = Comparison(subject, rows, listener)
    try:
        with replacing(request.output) as aside:
            aside.mkdir()
            result = _exported(request, subject, comparison, aside, listener)
            # `replacing` would add the files to an older export, so the older one is moved into
            # the temporary folder, which is deleted at the end.
            if request.output.exists():
                request.output.rename(aside.with_name("replaced"))
    except _NotProvedError as error:  # the export differs from the model: no folder is left
        return error.result
    return result


def check_request(request: ExportRequest) -> None:
    """Refuses what can be refused before a model is loaded.

    Raises:
        UsageError: Another format, a tolerance below 0, a folder that holds something else.
        UnavailableError: Packages that are not installed.
    """
    if request.file_format not in FORMATS:
        raise UsageError(
            unknown("format", request.file_format, FORMATS),
            remedy=f"Choose from {', '.join(FORMATS)}.",
        )
    if not request.tolerance >= 0:  # NaN is refused, too
        raise UsageError(
            f"`tolerance={request.tolerance}` is not a difference that could be allowed",
            remedy=f"Give a number from 0 on; the default is {TOLERANCE:g}.",
        )
    check_precision(request.file_format, request.precision)
    if request.max_drop is not None and not request.is_smaller:
        raise UsageError(
            "`max_drop=` is about smaller numbers, and fp32 has to give the same answers",
            remedy="Add `int8=True`, or leave it out.",
        )
    path = request.path
    # A name without a slash, or below `runs` or another folder of this disk, is no hub id.
    is_here = path.parent.is_dir() or path.parts[0] == "runs"
    if is_here and not path.exists() and str(path) not in MODELS:
        RunFolder.open(path)  # raises that there is no such run
    require_packages(request.file_format, f"`to={request.file_format}`")
    _check_output(request)


def _check_output(request: ExportRequest) -> None:
    """Refuses an output that is not a new or empty folder, or an export that may be replaced.

    Raises:
        UsageError: The output is a file, or a folder with other content.
    """
    output = request.output
    if output.is_file():
        raise UsageError(f"{output} is a file", remedy="Name a folder with `output=`.")
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not (output / DOCUMENT).is_file():
        raise UsageError(
            f"{output} is not empty and holds no export, so nothing is written into it",
            remedy="Choose another folder with `output=`.",
        )
    if not request.overwrite:
        raise UsageError(
            f"{output} holds an export",
            remedy="Choose another folder with `output=`, or add `overwrite=True` to replace it.",
        )
    refuse_input(output, replaces=True)


def _exported(
    request: ExportRequest,
    subject: Subject,
    comparison: Comparison,
    folder: Path,
    listener: Listener,
) -> ExportResult:
    """Writes the export into a folder, and compares it with the model on the way.

    Args:
        request: What to export, how and where to.
        subject: The model.
        comparison: Rows, and how the model answers them.
        folder: An empty folder.
        listener: Receives progress messages.

    Raises:
        _NotProvedError: The export answers otherwise, or its metrics drop too much.
    """
    check = None
    if request.is_smaller:
        check = QualityCheck(comparison, request.max_drop or {}, USUAL_DROP)
    listener.say(f"'{request.path}' is converted to {request.file_format}")
    onnx = convert(
        comparison.network,
        comparison.sample(),
        folder,
        name=str(request.path),
        remedy="It stays usable as it is: `bertctl predict` computes with torch.",
    )
    path = onnx
    if request.file_format == "openvino":  # it is made of the ONNX graph
        path = folder / GRAPH_FILES["openvino"]
        save_openvino(onnx, path)
    session = _open(path, request.file_format, subject)
    with loading(
        f"the graph of '{request.path}'",
        kind=UnavailableError,
        remedy="It computes some batches only. `bertctl predict` computes with torch.",
    ):
        proof = comparison.prove(session, request.tolerance)
    failures = proof_failures(proof)
    if failures:
        raise _NotProvedError(ExportResult(None, proof, failures))

    quality = None
    if check is not None:
        small = shrink(comparison, check, onnx, session, request, listener)
        quality = small.quality
        if small.failures:
            raise _NotProvedError(ExportResult(None, proof, small.failures, quality))
        session = small.session
    if request.file_format == "openvino":
        for intermediate_file in folder.glob(f"{onnx.name}*"):
            intermediate_file.unlink()

    # Opening the folder will check a few windows again. Other machines round otherwise, so twice
    # the difference of today is allowed, and never less than the usual tolerance.
    folder_proof, difference = comparison.for_folder(session, is_smaller=request.is_smaller)
    least = SMALLER_TOLERANCE if request.is_smaller else request.tolerance
    proof = proof.model_copy(
        update={
            "folder_windows": len(folder_proof.windows),
            "folder_difference": difference,
            "folder_tolerance": max(least, 2 * difference),
            "scale": comparison.scale,
        }
    )
    graph = Graph(
        path.name, request.file_format, request.precision, session.inputs, session.outputs
    )
    if request.is_smaller:
        write_scores(folder, comparison, comparison.engine(session))
    document = write_folder(folder, subject, graph, proof, folder_proof, quality)
    return ExportResult(document, proof, (), quality)


def _open(path: Path, file_format: str, subject: Subject) -> GraphSession:
    """Returns a graph in fp32 as a session, with as many threads as the model computes with."""
    return open_graph(path, file_format, threads=subject.compute.threads)


def proof_failures(proof: ExportProof) -> tuple[str, ...]:
    """Returns why an export does not answer as the model does, a sentence each."""
    failures = []
    if not proof.max_difference <= proof.tolerance:  # "not <=" also refuses NaN
        failures.append(
            f"an output differs from the model's by {proof.max_difference:.2g}, and "
            f"{proof.tolerance:g} is allowed"
        )
    if proof.flips:
        failures.append(f"{count_of(proof.flips, proof.rows, 'row')} got another answer")
    return tuple(failures)


def _size(document: ExportDocument) -> int:
    """Returns how many bytes all files of an export have."""
    return sum(file.bytes for file in document.files.values())
