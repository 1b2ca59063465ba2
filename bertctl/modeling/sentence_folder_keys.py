"""Every key that sentence-transformers writes into a folder, and what is done with it here.

A key that is not in these tables is refused by its name: who wrote it meant something by it, and
the vectors may be others than those that are computed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertctl.errors import UnavailableError
from bertctl.metrics.similarity import MEASURES

REMEDY = (
    "Save the model again with sentence-transformers, or take its encoder alone: "
    "`probe.pooling=mean`."
)

_NOTHING: tuple[Any, ...] = (None, False, "", {}, [])
"""Values by which a key says nothing."""


@dataclass(frozen=True)
class FolderKey:
    """What is done with a key of a folder's file.

    Attributes:
        use: `read`: it decides how vectors are made or compared, and `finetune` writes it again.
            `ignored`: it changes no vector. `refused`: something that is not computed here, unless
                its value is one of `accepted`.
        reason: What the key is, and why this is done.
        accepted: Values of a `refused` key under which vectors are as computed here.
    """

    use: Literal["read", "ignored", "refused"]
    reason: str
    accepted: tuple[Any, ...] = _NOTHING


def _read(reason: str) -> FolderKey:
    return FolderKey("read", reason)


def _ignored(reason: str) -> FolderKey:
    return FolderKey("ignored", reason)


def _refused(reason: str, *accepted: Any) -> FolderKey:
    return FolderKey("refused", reason, (*_NOTHING, *accepted))


_LIBRARY_ARGUMENTS = (
    "arguments of transformers' loaders, which may change the network or the tokenizer"
)

_NAMES_OF_FEATURES = {
    "module_input_name": _refused("which of several vectors is read", "sentence_embedding"),
    "module_output_name": _refused(
        "under which name the result is passed on", "sentence_embedding"
    ),
}

_MODEL = {
    "__version__": _ignored("versions of the libraries that wrote the folder"),
    "model_type": _refused(
        "sparse, multi-vector and cross encoders have no single vector", "SentenceTransformer"
    ),
    "prompts": _read("words before a text, by name"),
    "default_prompt_name": _read("the prompt of a text without a named one"),
    "similarity_fn_name": _read(f"how two vectors are compared: {', '.join(MEASURES)}"),
    "truncate_dim": _refused("vectors are cut to the first so many numbers"),
}

_MODULE = {
    "idx": _ignored("modules are computed in the order in which they are listed"),
    "name": _ignored("a name for people"),
    "path": _read("folder of the module"),
    "type": _read("class of the module"),
    "kwargs": _refused("arguments that every call of the module gets"),
}

_TRANSFORMER = {
    "max_seq_length": _read("longest input in tokens"),
    "do_lower_case": _read("texts are lower-cased before the tokenizer"),
    "transformer_task": _refused("another head than the encoder alone", "feature-extraction"),
    "modality_config": _refused(
        "another output than the last layer's tokens, or other inputs than texts",
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        {"text": {"method": "forward", "method_output_name": ["last_hidden_state"]}},
    ),
    "module_output_name": _refused("under which name the tokens are passed on", "token_embeddings"),
    "processing_kwargs": _refused("arguments that every call of the tokenizer gets"),
    "unpad_inputs": _ignored("a faster way to the same numbers"),
    "query_length": _refused("another longest input for queries"),
    "document_length": _refused("another longest input for documents"),
    "query_expansion": _refused("queries are filled up with mask tokens (ColBERT)"),
    "model_args": _refused(_LIBRARY_ARGUMENTS),
    "tokenizer_args": _refused(_LIBRARY_ARGUMENTS),
    "config_args": _refused(_LIBRARY_ARGUMENTS),
    "model_kwargs": _refused(_LIBRARY_ARGUMENTS),
    "processor_kwargs": _refused(_LIBRARY_ARGUMENTS),
    "config_kwargs": _refused(_LIBRARY_ARGUMENTS),
}

_POOLING = {
    "embedding_dimension": _ignored("the encoder's hidden size says it"),
    "word_embedding_dimension": _ignored("the older name of embedding_dimension"),
    "pooling_mode": _read("cls, mean or max, or several of them; others are refused"),
    "pooling_mode_cls_token": _read("the older form of pooling_mode"),
    "pooling_mode_max_tokens": _read("the older form of pooling_mode"),
    "pooling_mode_mean_tokens": _read("the older form of pooling_mode"),
    "pooling_mode_mean_sqrt_len_tokens": _refused("a sum over the square root of the length"),
    "pooling_mode_weightedmean_tokens": _refused("a mean by position"),
    "pooling_mode_lasttoken": _refused("the last token"),
    "include_prompt": _read(
        "false leaves a prompt's tokens out: refused where the folder has prompts"
    ),
}

_DENSE = {
    "in_features": _ignored("the shape of the weights says it"),
    "out_features": _read("size of the result"),
    "bias": _read("whether there is one"),
    "activation_function": _read("one of torch.nn without settings; others are refused"),
    "use_residual": _refused("the input is added to the result"),
    **_NAMES_OF_FEATURES,
}

_NORMALIZE = {**_NAMES_OF_FEATURES}

_DROPOUT = {
    "dropout": _ignored("does nothing outside of training, which has a dropout of its own here")
}

MODULE_KEYS: Mapping[str, Mapping[str, FolderKey]] = {
    "Transformer": _TRANSFORMER,
    "Pooling": _POOLING,
    "Dense": _DENSE,
    "Normalize": _NORMALIZE,
    "Dropout": _DROPOUT,
}
"""Keys of the modules that can be computed, by class."""

FILE_KEYS: Mapping[str, Mapping[str, FolderKey]] = {
    "config_sentence_transformers.json": _MODEL,
    "modules.json": _MODULE,
}
"""Keys of the files in the folder itself."""

REFUSED_MODULES: Mapping[str, str] = {
    "Asym": "other modules for queries and documents",
    "BoW": "counts of words",
    "CLIPModel": "texts and pictures",
    "CNN": "convolutions over tokens",
    "HierarchicalTokenPooling": "vectors of groups of tokens (a multi-vector encoder)",
    "LambdaTokenPooling": "vectors of groups of tokens (a multi-vector encoder)",
    "LSTM": "a recurrent network over tokens",
    "LayerNorm": "a normalisation with weights of its own",
    "MLMTransformer": "vectors of words (a sparse encoder)",
    "MultiVectorMask": "a vector for each token (a multi-vector encoder)",
    "Router": "other modules for queries and documents",
    "SparseAutoEncoder": "sparse vectors",
    "SparseStaticEmbedding": "sparse vectors",
    "SpladePooling": "sparse vectors",
    "StaticEmbedding": "a table of token vectors",
    "TokenPooling": "vectors of groups of tokens (a multi-vector encoder)",
    "WeightedLayerPooling": "a weighted mean of several layers",
    "WordEmbeddings": "a table of word vectors",
    "WordWeights": "a weight for each word",
    "LogitScore": "a score in place of a vector (a cross encoder)",
}
"""Modules of sentence-transformers that can't be computed here, with what they are."""


def check_keys(settings: Mapping[str, Any], keys: Mapping[str, FolderKey], path: Path) -> None:
    """Refuses keys and values of a settings file that can't be computed here.

    Args:
        settings: The file's content.
        keys: Table of the keys that the file may have.
        path: The file, for the message.

    Raises:
        UnavailableError: A key that is not in the table, or one whose value can't be computed; with
            its name.
    """
    for name, value in settings.items():
        key = keys.get(name)
        if key is None:
            message = (
                f"{path} has the key '{name}', which is not known here: its vectors may be others"
            )
            raise UnavailableError(
                message, remedy=f"Leave the key out if it changes no vector. {REMEDY}"
            )
        if key.use == "refused" and value not in key.accepted:
            raise UnavailableError(
                f"{path} says {name} = {value!r} ({key.reason}), which is not done here",
                remedy=REMEDY,
            )
