"""What `similarity` and `index` do, for a command line and for Python alike."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.errors import UsageError
from bertctl.features.source import input_name
from bertctl.metrics.similarity import COSINE
from bertctl.progress import SILENT, Listener
from bertctl.run_documents.index_document import IndexDocument
from bertctl.run_folder import hold
from bertctl.search.indexing import identified, make_index, open_existing
from bertctl.search.nearest import both_sides, correlation, pair_lines, pairs_above, row_by_row
from bertctl.search.vector_request import VectorRequest

if TYPE_CHECKING:
    from bertctl.search.nearest import Pairs


@dataclass(frozen=True)
class ComparedTexts:
    """Similarities of texts.

    Attributes:
        lines: One answer for each pair.
        figures: What is known of all of them: correlations with people's scores; the measure, where
            it is not the cosine.
        sides: The texts of both sides.
        similarity: Measure by which they are compared.
    """

    lines: Iterable[dict[str, Any]]
    figures: Mapping[str, Any]
    sides: tuple[Rows, Rows]
    similarity: str


def compare_texts(
    request: VectorRequest,
    first: str | MemoryFile,
    second: str | MemoryFile | None = None,
    *,
    all_pairs: bool = False,
    listener: Listener = SILENT,
) -> ComparedTexts:
    """Compares texts by their vectors: row by row, or each with each.

    Args:
        request: The model, and how files are read.
        first: Texts; without `second`, also pairs of texts.
        second: Texts that `first` is compared with; None without.
        all_pairs: Whether each text of `first` is compared with each of `second`; without `second`,
            the texts of `first` with each other.
        listener: Receives progress messages.

    Raises:
        BertctlError: Any refusal of texts, columns or model.
    """
    second_texts = None
    if second is not None:
        second_texts = request.read(second, listener, typed=True)
    texts = request.read(
        first,
        listener,
        pairs=second is None,
        typed=True,
    )
    sides = both_sides(texts, second_texts, all_pairs=all_pairs)
    label = request.fields.get("data.label_column")
    if label and not sides[0].has("label"):
        raise UsageError(
            f"{first} has no column '{label}'",
            remedy="Name the one with the scores, or leave it out.",
        )
    # In fp32: rounding would change the ranks, by which Spearman's correlation goes.
    model = request.model(exact=True)
    # Texts that are compared with each other are one side, and are encoded once.
    different_sides = sides[:1] if sides[1] is sides[0] else sides
    # Unreadable rows are texts of which the model knows no token. Their vectors say nothing, so the
    # lines name them.
    vectors_of_sides = model.of_sides(different_sides, listener)
    vectors = [side_vectors for side_vectors, _ in vectors_of_sides]
    unreadable = [side_unreadable for _, side_unreadable in vectors_of_sides]
    figures: dict[str, Any] = {}
    if all_pairs:
        second_vectors = vectors[1] if len(vectors) > 1 else None
        pairs: Iterable[Pairs] = pairs_above(-np.inf, vectors[0], second_vectors, model.similarity)
    else:
        row_pairs = row_by_row(vectors[0], vectors[-1], model.similarity)
        _, _, similarities = row_pairs
        figures |= correlation(sides[0], similarities, listener)
        pairs = [row_pairs]
    if model.similarity != COSINE:
        figures["similarity"] = model.similarity
    return ComparedTexts(
        lines=pair_lines(*sides, pairs, *unreadable),
        figures=figures,
        sides=sides,
        similarity=model.similarity,
    )


def index_texts(
    request: VectorRequest,
    corpus: Sequence[str] | MemoryFile,
    output: Path,
    *,
    dtype: str | None = None,
    append: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener = SILENT,
    quiet_libraries: AbstractContextManager[Any] | None = None,
) -> IndexDocument:
    """Makes an index of texts, adds to one, or continues one that is not finished.

    Args:
        request: The model, and how files are read.
        corpus: Files, stdin or rows in memory with the texts.
        output: Folder of the index.
        dtype: Number type of the vectors; None for that of the index, else float32.
        append: Whether the texts are added to the index in the folder.
        resume: Whether an earlier attempt is continued.
        overwrite: Whether the index in the folder is replaced.
        listener: Receives progress messages.
        quiet_libraries: Context that keeps messages of other libraries off the screen, while the
            model computes; None without.

    Returns:
        The content of index.json.

    Raises:
        BertctlError: Any refusal of texts, index or model.
    """
    modes = {"append": append, "resume": resume, "overwrite": overwrite}
    existing = open_existing(output, **modes)
    kind = dtype or (existing.document.dtype if existing else "float32")
    texts = request.corpus(corpus, listener, existing)
    index = existing  # what the rows are added to: `to_append` if the corpus begins only now
    if append and resume and existing is not None and existing.document.complete:
        # The comparison reads the first rows, and stdin can be read only once: they are kept.
        rows_read: list[Rows] = []
        has_begun = existing.has_begun(_remembered(texts.rows, rows_read))
        texts = replace(texts, rows=chain(rows_read, texts.rows))
        # An earlier attempt to add the corpus may have been killed before its first rows were
        # saved. It has left no trace in the index, so the addition begins now.
        if not has_begun:
            index = existing.to_append()
            listener.say(
                f"{output} has no rows of {input_name(corpus)} yet: they are added from the first "
                "one on"
            )
    rows = identified(texts.rows, index, listener, has_ids=texts.has_ids)
    with quiet_libraries or nullcontext():
        model = request.model(index, "document", dtype=kind)
        with hold(output / ".lock"):
            if open_existing(output, **modes) != existing:  # another command has ended since
                raise UsageError(f"{output} has changed just now", remedy="Type the command again.")
            return make_index(
                output,
                source=input_name(corpus),
                parts=rows,
                model=model,
                dtype=kind,
                before=index,
                listener=listener,
                remembered=texts.remembered,
            )


def _remembered(parts: Iterable[Rows], rows_read: list[Rows]) -> Iterator[Rows]:
    """Yields rows, and adds them to `rows_read`: an input that is a pipe can be read only once."""
    for rows in parts:
        rows_read.append(rows)
        yield rows
