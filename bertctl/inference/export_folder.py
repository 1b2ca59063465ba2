"""The files of an export: checked against their hashes, and the graph against its proof."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.documents import loading, read_json, read_json_document, sha256_of
from bertctl.errors import DataError, DeviceError, UnavailableError
from bertctl.inference.export_proof import FolderProof
from bertctl.inference.graph_session import RUNTIMES, GraphSession, open_graph
from bertctl.run_documents.export_document import DOCUMENT, ExportDocument, digest_of
from bertctl.runtime.batching import Padding
from bertctl.runtime.cpu import cpu_name
from bertctl.runtime.measured import measured_once

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AGAIN = "Copy it again from where it came from, or export the model again."
"""What to do about a folder that is not as it was written."""


@dataclass(frozen=True)
class ExportFolder:
    """The files of an export, each as it was written.

    Attributes:
        path: The folder.
        document: Its export.json.
    """

    path: Path
    document: ExportDocument

    @classmethod
    def open(cls, path: Path) -> "ExportFolder":
        """Opens a folder, and compares every file with its hash.

        Raises:
            UnavailableError: A file is missing or can't be read.
            DataError: A file is not as it was written; the error names it.
        """
        file = path / DOCUMENT
        document = read_json_document(file, ExportDocument, remedy=AGAIN)
        if digest_of(read_json(file)) != document.digest:
            raise DataError(
                f"{file} was changed after the export: its digest is another one",
                remedy=AGAIN,
                file=file,
            )
        for name, recorded in document.files.items():
            _check_file(path, name, recorded.bytes, recorded.sha256)
        return cls(path, document)

    @property
    def name(self) -> str:
        """The folder, as a message names it."""
        return str(self.path)

    @property
    def folder(self) -> Path:
        """The folder, as `ModelFiles` has it."""
        return self.path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Content of its config.json."""
        return read_json(self.path / "config.json")

    def content_hash(self) -> str:
        """Returns the hash of all that its answers depend on."""
        return self.document.digest

    @property
    def padding(self) -> Padding:
        """How the windows of a batch are filled up."""
        padding = self.document.padding
        return Padding(padding.id, left=padding.left, unwanted=padding.unwanted)

    def tokenizer(self) -> "Tokenizer":
        """Returns the tokenizer of the exported model, which neither pads nor truncates.

        A tokenizer.json may switch on both. Windows are cut and padded by bertctl itself.
        """
        from tokenizers import Tokenizer

        path = self.path / "tokenizer.json"
        with loading(path, kind=UnavailableError, remedy=AGAIN):
            tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def session(
        self, threads: int, *, accept_drift: float | None = None, outputs: Sequence[str] = ()
    ) -> GraphSession:
        """Opens the graph, and checks that it computes on this machine what it did at the export.

        Args:
            threads: Number of threads that compute.
            accept_drift: Largest difference that is accepted; None for what the proof allows.
            outputs: Names of the outputs that are needed; empty for all.

        Raises:
            UnavailableError: The runtime is not installed.
            DeviceError: The graph gives other numbers on this machine.
        """
        document = self.document
        session = open_graph(
            self.path / document.weights,
            document.format,
            threads=threads,
            outputs=outputs,
            precision=document.precision,
            remedy=AGAIN,
        )
        self._check_drift(session, threads, accept_drift)
        return session

    def _check_drift(self, session: GraphSession, threads: int, accept_drift: float | None) -> None:
        """Refuses a graph whose outputs differ too much from those of the model it was made of.

        The model's outputs for a few windows are in the folder. They are compared once for each
        machine and version of the runtime, and the difference is remembered.

        Raises:
            DeviceError: An output differs by more than is accepted.
        """
        document = self.document
        measured = measured_once(
            kind="exports",
            names=["difference"],
            about=[document.digest],
            threads=threads,
            measure=lambda: {"difference": self._difference(session)},
            library=RUNTIMES[document.format],
        )
        difference = measured["difference"]
        if accept_drift is None:
            accepted = document.proof.folder_tolerance
        else:
            accepted = accept_drift
        if difference <= accepted:
            return
        raise DeviceError(
            f"{self.path} gives other numbers here ({cpu_name()}) than where it was exported "
            f"({document.machine.cpu}): they differ by {difference:.2g}, and {accepted:.2g} is "
            "accepted",
            remedy="Export the model on this kind of machine, or accept it with "
            f"`accept_drift={_rounded_up(difference)}`.",
        )

    def _difference(self, session: GraphSession) -> float:
        """Returns how far the graph's outputs are from the model's, over the windows of the folder.

        The difference is divided by the scale of the proof, as the tolerance that it is compared
        with.
        """
        with loading(self.path, kind=UnavailableError, remedy=AGAIN):
            proof = FolderProof.read(self.path)
            return proof.difference(session, self.padding) / self.document.proof.scale


def _check_file(folder: Path, name: str, n_bytes: int, digest: str) -> None:
    """Compares a file with what export.json says of it.

    Raises:
        UnavailableError: It is missing or can't be read.
        DataError: It is not as it was exported.
    """
    path = folder / name
    try:
        size = path.stat().st_size
        is_same = size == n_bytes and sha256_of(path) == digest
    except OSError as error:
        raise UnavailableError(
            f"{path} can't be read: {error.strerror}", remedy=AGAIN, file=path
        ) from error
    if is_same:
        return
    if size != n_bytes:
        difference = f"it has {size:,} bytes, and had {n_bytes:,}"
    else:
        difference = "its content has another hash"
    raise DataError(f"{path} was changed after the export: {difference}", remedy=AGAIN, file=path)


def _rounded_up(value: float) -> str:
    """Returns a positive value with two digits, rounded up: `0.01234 -> "0.013"`."""
    exponent = math.floor(math.log10(value)) - 1
    return f"{math.ceil(value / 10**exponent) * 10.0**exponent:.2g}"
