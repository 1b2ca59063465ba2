"""What the layers of a bare encoder give.

A text is walked through them, and it says how alike those of two models are.

Letters: T tokens of a text, H hidden size, N texts, K and M layers of two models, P and Q sizes of
their vectors.
"""

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Floats, Floats32
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.features.encoded_windows import EncodedWindows, RowEncoder
from bertctl.features.encoder import Encoder, VectorSpec
from bertctl.features.extract_job import VectorNames
from bertctl.modeling.families import BARE
from bertctl.modeling.layers import layer_count
from bertctl.modeling.pooling import finite
from bertctl.modeling.source import find_encoder
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.long_texts import LongText

if TYPE_CHECKING:
    from tokenizers import Encoding
    from torch import Tensor


def open_encoder(
    name: str, names: VectorNames
) -> tuple[Encoder, Callable[[Sequence[str]], EncodedWindows]]:
    """Returns the encoder of a model, and a function that cuts texts into the windows it reads.

    Args:
        name: A model's name, folder or hub id.
        names: Which vectors the encoder gives.

    Raises:
        UsageError: No such model, layer or pooling.
        UnavailableError: Files that are not there, or can't be loaded.
    """
    source, length = find_encoder(name)
    spec = VectorSpec.of(names, source)
    encoder = Encoder.open(source, spec, source.compute(RuntimeSection(precision="fp32")))
    rows = RowEncoder(encoder.engine.tokenizer, LongText(max_length=length), by_token=spec.by_token)

    def windows(texts: Sequence[str]) -> EncodedWindows:
        """Returns a window for each text, cut to what the model reads."""
        return rows.encode(
            Rows("texts", {"text": texts}, [str(i) for i in range(len(texts))], "texts")
        )

    return encoder, windows


_TABLES = {
    "segment": re.compile("type|segment"),
    "position": re.compile("pos|wpe"),
    "token": re.compile("emb|wte|tok"),
}
"""What the families call their tables, looked up in this order: BERT's `token_type_embeddings` are
segments."""


def walk_input(
    name: str, text: str, pair: str | None = None, *, listener: Listener = SILENT
) -> dict[str, Any]:
    """Returns what a bare encoder computes from a text, or a pair, step by step.

    Args:
        name: A model's name, folder or hub id.
        text: The text.
        pair: Second text of a pair.
        listener: Receives a warning of a text that is cut.

    Returns:
        `tokens`, each with the lengths (norms) of the vectors that are added for it and of their
        normalised sum, and `states`, the shape and mean norm of what the embeddings and each layer
        give.

    Raises:
        UsageError: An empty text; no such model.
        UnavailableError: Files that are not there, or can't be loaded.
    """
    source, length = find_encoder(name)
    layer_count(source.config)  # refuses a model of an encoder and a decoder
    if not text.strip():
        raise UsageError(
            "the text is empty", remedy='Give one, such as `embeddings=` "the bank of the river".'
        )
    import torch
    from torch import nn

    from bertctl.modeling.load import load_model

    loaded = load_model(source, BARE, head=None)
    network = loaded.network.eval()
    inputs = loaded.saved_tokenizer(
        text,
        pair,
        truncation=True,
        max_length=length,
        return_tensors="pt",
    )
    [encoding] = inputs.encodings
    if encoding.overflowing:
        listener.warn(f"the input has more than {length} tokens; the first {length} are read")
    # Hooks fill this while the network reads the text: kind of table -> (T, D) vectors.
    added: dict[str, Tensor] = {}

    def keep(table_name: str, output: "Tensor") -> None:
        """Keeps the vectors that an embedding table adds for each token, by the table's kind.

        A table that gives something else, such as a vector for each pair of tokens, is left out. So
        are further tables of a kind that has been kept.
        """
        # (T, D) or (1, T, D), of XLNet (T, 1, D).
        has_vector_per_token = math.prod(output.shape[:-1]) == len(encoding)
        if has_vector_per_token:
            added.setdefault(_kind_of_table(table_name), output.reshape(len(encoding), -1))

    for path, module in network.named_modules():
        if isinstance(module, nn.Embedding):
            _, _, table_name = path.rpartition(".")
            module.register_forward_hook(
                lambda _, __, output, table_name=table_name: keep(table_name, output)
            )
    with torch.inference_mode():
        outputs = network(**inputs, output_hidden_states=True)
    states = [hidden_state[0].float() for hidden_state in outputs.hidden_states]
    finite(np.array([float(state.norm()) for state in states]), name)
    norms = {
        kind: vectors.norm(dim=-1).tolist()
        for kind, vectors in (*added.items(), ("embeddings", states[0]))
    }
    return {"tokens": _described_tokens(encoding, norms), "states": _described_states(states)}


def _described_tokens(
    encoding: "Encoding", norms: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Returns each token of a text with its id, segment, position and norms.

    Args:
        encoding: T tokens.
        norms: Kind of vector -> (T,) its norm for each token.
    """
    tokens = []
    for i, token in enumerate(encoding.tokens):
        tokens.append(
            {
                "token": token,
                "id": encoding.ids[i],
                "segment": encoding.type_ids[i],
                "position": i,
                "norms": {kind: round(token_norms[i], 4) for kind, token_norms in norms.items()},
            }
        )
    return tokens


def _described_states(states: "Sequence[Tensor]") -> list[dict[str, Any]]:
    """Returns number, shape and mean norm of (T, H) hidden states; number 0 are the embeddings."""
    return [
        {
            "layer": layer,
            "shape": [1, *state.shape],
            "mean_norm": round(float(state.norm(dim=-1).mean()), 4),
        }
        for layer, state in enumerate(states)
    ]


def _kind_of_table(name: str) -> str:
    """Returns the kind of an embedding table, such as `position`; its name if that tells none."""
    for kind, pattern in _TABLES.items():
        if pattern.search(name):
            return kind
    return name


_CHUNK = 1024  # texts whose vectors are in memory at once


def layer_similarity(
    first: str, second: str, texts: Iterable[Sequence[str]], *, listener: Listener = SILENT
) -> dict[str, Any]:
    """Returns the similarity (linear CKA) of each layer of one model with each of another.

    Layers go from 0 (the embeddings) to L. A text is the mean vector of its tokens. The vectors are
    in temporary files, so memory does not grow with them.

    Args:
        first: Name, folder or hub id of a model.
        second: Name of another model, or of the same.
        texts: Texts, some at a time.
        listener: Receives progress messages, and a warning of too few texts.

    Raises:
        DataError: Fewer than two texts.
        UsageError: No such model.
    """
    opened = [open_encoder(name, VectorNames(layers=("all",))) for name in (first, second)]
    with tempfile.TemporaryFile() as first_file, tempfile.TemporaryFile() as second_file:
        number = 0  # of texts so far
        for chunk in _chunks(texts):
            for (encoder, windows), file in zip(opened, (first_file, second_file), strict=True):
                vectors = np.stack(encoder.texts(windows(chunk)), axis=1)
                finite(vectors, encoder.source.name).tofile(file)
                file.flush()
            number += len(chunk)
            listener.advance("texts", number, 0)
        listener.finish("texts")
        if number < 2:
            raise DataError(
                "layers are compared on at least two texts",
                remedy="Give a file with a text on each line.",
            )
        mapped = []
        for (encoder, _), file in zip(opened, (first_file, second_file), strict=True):
            # (texts, layers, numbers of a vector): the vectors of all layers have the same size.
            shape = (number, len(encoder.sizes), encoder.sizes[0])
            mapped.append(np.memmap(file, np.float32, mode="r", shape=shape))
        a, b = mapped
        if number < min(a.shape[2], b.shape[2]):
            listener.warn(
                f"{number:,} texts: CKA is too high where texts are fewer than the numbers of a "
                "vector"
            )
        similarity = cka_matrix(a, b, listener=listener)
    return {"texts": number, "cka": [_rounded(row) for row in similarity.tolist()]}


def _rounded(values: Sequence[float]) -> list[float]:
    """Returns numbers with six decimals."""
    return [round(value, 6) for value in values]


def _chunks(texts: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yields texts, `_CHUNK` of them at most at once."""
    for some_texts in texts:
        for begin in range(0, len(some_texts), _CHUNK):
            yield some_texts[begin : begin + _CHUNK]


def cka_matrix(a: Floats32, b: Floats32, *, listener: Listener = SILENT) -> Floats:
    """Returns (K, M), the linear CKA of each layer of one model with each of another.

    With X and Y centred, CKA = ||Y'X||^2 / (||X'X|| ||Y'Y||), Frobenius norms (Kornblith et al.
    2019, section 3); 0 where all vectors of a layer are the same.

    Args:
        a: (N, K, P) vectors of N texts.
        b: (N, M, Q) vectors of the same texts.
        listener: Receives progress messages.
    """
    model_a = (a, a.mean(axis=0, dtype=np.float64))
    model_b = (b, b.mean(axis=0, dtype=np.float64))
    n_layers_a = a.shape[1]
    n_layers_b = b.shape[1]
    norms_b = np.array([_squared_norm(model_b, j, model_b, j) for j in range(n_layers_b)])

    similarity = np.zeros((n_layers_a, n_layers_b))
    for i in range(n_layers_a):
        norm_a = _squared_norm(model_a, i, model_a, i)
        scales = np.sqrt(norm_a * norms_b)
        shared = np.array([_squared_norm(model_a, i, model_b, j) for j in range(n_layers_b)])
        np.divide(
            shared,
            scales,
            out=similarity[i],
            where=scales > 0,
        )
        listener.advance("layers", i + 1, n_layers_a)
    listener.finish("layers")
    return similarity


_Side = tuple[Floats32, Floats]
"""(N, K, P) vectors of N texts by K layers, and their (K, P) centres."""


def _squared_norm(x: _Side, i: int, y: _Side, j: int) -> float:
    """Returns the squared Frobenius norm of X'Y, computed from some rows at a time.

    X is layer i of the vectors x, and Y is layer j of y, each without its centre.
    """
    a, centre_a = x
    b, centre_b = y
    chunks = [slice(begin, begin + _CHUNK) for begin in range(0, len(a), _CHUNK)]
    product = sum((a[rows, i] - centre_a[i]).T @ (b[rows, j] - centre_b[j]) for rows in chunks)
    return float(np.square(product).sum())
