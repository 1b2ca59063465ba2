"""Vectors of texts in Python: computed, compared, searched."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertctl.addresses import refuse_address
from bertctl.api.fields import Fields, as_options
from bertctl.api.training import load_recipe
from bertctl.arrays import Floats32
from bertctl.data.memory_rows import RowsInMemory, memory_file
from bertctl.data.sources import MemoryFile
from bertctl.errors import UsageError
from bertctl.features.extract import compute_features
from bertctl.features.extract_job import VectorNames
from bertctl.features.source import Input
from bertctl.progress import SILENT, Listener
from bertctl.search.index import Index
from bertctl.search.requests import compare_texts, index_texts
from bertctl.search.vector_request import VectorRequest
from bertctl.words import names_in
from bertctl.writing import protect

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


def extract_features(
    texts: RowsInMemory,
    model: str | Path = "bert-base",
    *,
    layers: str = "last",
    pooling: str = "mean",
    fields: Fields | None = None,
    listener: Listener = SILENT,
) -> Floats32:
    """Returns vectors of a frozen encoder, shape (texts, layers and poolings side by side).

    Args:
        texts: Any number of them; or mappings or a data frame, whose columns are guessed as those
            of a file.
        model: A name, a folder, a hub id or a run folder.
        layers: As `bertctl extract-features --layers`, such as "last" or "-1,-2".
        pooling: As `--pooling`: "mean", "cls", "max", "pooler", or "model" as the folder says.
        fields: Recipe fields, such as `model.max_length` or `data.text_column`.
        listener: Receives progress messages.

    Raises:
        BertctlError: An unknown model, layer or pooling; columns that can't be guessed.
    """
    recipe = load_recipe("text-classification", {"model.name": str(model), **(fields or {})})
    names = VectorNames(tuple(names_in(layers)), tuple(names_in(pooling)))
    file = memory_file(texts, "texts")
    if file is None:
        # Without texts, the result has no rows, and as many columns as for one text.
        one_text = MemoryFile("texts", "lines", lambda: [b"\n"])
        return compute_features(recipe, Input(one_text, recipe.data), names)[:0]
    return compute_features(recipe, Input(file, recipe.data), names, listener=listener)


def similarity(
    first: str | RowsInMemory,
    second: str | RowsInMemory | None = None,
    model: str | Path = "minilm",
    *,
    every: bool = False,
    layer: str | None = None,
    pooling: str | None = None,
    measure: Similarity | None = None,
    fields: Fields | None = None,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Compares texts by meaning, and returns what `bertctl similarity --json` prints.

    Args:
        first: A text; texts; or rows with two columns of texts, which may have people's scores.
        second: A text or texts to compare `first` with, row by row.
        model: A name, a folder, a hub id or a run folder.
        every: Whether to compare all pairs: each text of `first` with each text of `second` or,
            without `second`, the texts of `first` with each other.
        layer: Layer by number or name. Default: the last.
        pooling: How the vectors of tokens become one vector of their text. Default: the setting in
            the model's folder, else the mean.
        measure: Measure of two vectors. Default: the setting in the model's folder, else the
            cosine.
        fields: Recipe fields, such as `data.text_column`.
        listener: Receives progress messages.

    Returns:
        `count`; correlations with people's scores, if the rows have them; and `answers`, one for
        each pair.

    Raises:
        BertctlError: Any refusal of texts, columns or model.
    """
    request = _request(
        {"model.name": str(model), **(fields or {})},
        layer=layer,
        pooling=pooling,
        similarity=measure,
    )
    compared = compare_texts(
        request,
        _texts(first, "first"),
        None if second is None else _texts(second, "second"),
        all_pairs=every,
        listener=listener,
    )
    answers = list(compared.lines)
    return {"count": len(answers), **compared.figures, "answers": answers}


def index(
    texts: RowsInMemory,
    output: Path | str,
    model: str | Path | None = None,
    *,
    layer: str | None = None,
    pooling: str | None = None,
    measure: Similarity | None = None,
    dtype: Literal["float32", "float16", "int8"] | None = None,
    append: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    fields: Fields | None = None,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Makes an index of texts, and returns its document.

    `search_index` and `bertctl search` read it.

    Args:
        texts: Texts, mappings or a data frame. A generator is read as it goes.
        output: Folder of the index.
        model: A name, a folder, a hub id or a run folder. Default: minilm; where an index is added
            to, its own.
        layer: Layer by number or name. Default: the last.
        pooling: How a text's vector is made of its tokens'.
        measure: Measure of two vectors.
        dtype: Type of the numbers on the disk. Default: float32.
        append: Whether to add the texts to the index that is there.
        resume: Whether to go on where an earlier attempt stopped.
        overwrite: Whether to replace the index that is there.
        fields: Recipe fields, such as `data.text_column`.
        listener: Receives progress messages.

    Raises:
        BertctlError: Any refusal of texts, index or model.
    """
    refuse_address(output, "output", is_output=True)
    if model is None:
        model_fields = {}
    else:
        model_fields = {"model.name": str(model)}
    request = _request(
        {**model_fields, **(fields or {})},
        layer=layer,
        pooling=pooling,
        similarity=measure,
    )
    # Files that earlier calls have read may be overwritten.
    protect(anew=True)
    document = index_texts(
        request,
        _texts(texts, "texts"),
        Path(output),
        dtype=dtype,
        append=append,
        resume=resume,
        overwrite=overwrite,
        listener=listener,
    )
    return document.as_json()


def search_index(
    folder: Path | str,
    queries: str | RowsInMemory,
    top_k: int = 10,
    *,
    fields: Fields | None = None,
    listener: Listener = SILENT,
) -> list[dict[str, Any]]:
    """Returns the texts of an index that are nearest in meaning, `top_k` for each query.

    Args:
        folder: Index, as `index` makes it; it names the model.
        queries: A text, texts, mappings or a data frame.
        top_k: How many texts to find for each.
        fields: Recipe fields, such as `runtime.device`.
        listener: Receives progress messages.

    Raises:
        BertctlError: Any refusal of index, queries or model.
    """
    if top_k < 1:
        raise UsageError(f"top_k is {top_k}", remedy="Give a positive number.")
    refuse_address(folder, "folder")
    opened = Index.open(Path(folder))
    request = _request(fields or {})
    rows = request.rows(_texts(queries, "queries"), listener)
    model = request.model(opened, "query")
    return list(opened.search(model.stream(rows, listener), top_k))


def _request(fields: Mapping[str, Any], **options: str | None) -> VectorRequest:
    """Returns a request for vectors, with fields and options as the command line gives them."""
    return VectorRequest(as_options(fields), options)


def _texts(texts: str | RowsInMemory, name: str) -> MemoryFile:
    """Returns a text, texts or rows as a file in memory.

    Args:
        texts: What was given to a function of this module.
        name: Name of the function's parameter, for messages.

    Raises:
        UsageError: No text was given.
    """
    rows = [texts] if isinstance(texts, str) else texts
    file = memory_file(rows, name)
    if file is None:
        raise UsageError(f"{name} has no texts", remedy="Give at least one.")
    return file
