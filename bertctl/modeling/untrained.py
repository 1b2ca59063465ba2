"""A model's shape without its weights, to measure what it costs where its weights can't be had."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bertctl.catalog.models import MODELS, TOKENIZER_FILES, locate_model
from bertctl.config.schema import ModelSection
from bertctl.errors import UnavailableError
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.progress import SILENT, Listener

_BERT_BASE = MODELS["bert-base"]
_SAME_VOCABULARY = "minilm"


@contextlib.contextmanager
def untrained_source(settings: ModelSection, *, listener: Listener = SILENT) -> Iterator[ModelSource]:
    """Config and tokenizer of a model; `load_model(source, ..., weights=False)` makes the network of them.

    BERT-base needs no hub for this: the defaults of transformers' `BertConfig` are bert-base-uncased, and minilm has
    its vocabulary. The files stay as long as the context.

    Args:
        settings: the model, and how it reads.
        listener: told where the config came from if it was not the model's own.

    Raises:
        UnavailableError: the files are not there, the hub is out of reach, and it is not BERT-base.
        UsageError: see `inspect_model`.
    """
    try:
        source = inspect_model(settings, weights=False)
    except UnavailableError:
        if settings.name not in (_BERT_BASE.name, _BERT_BASE.hub_id):
            raise
        tokenizer = locate_model(_SAME_VOCABULARY, weights=False).folder
    else:
        yield source
        return
    listener.say(
        f"{settings.name}: no hub, so the shape is that of transformers' BertConfig() (which is bert-base-uncased) and "
        f"the tokenizer is that of {_SAME_VOCABULARY} (the same vocabulary)"
    )
    from transformers import BertConfig

    with tempfile.TemporaryDirectory() as folder:
        for name in (*TOKENIZER_FILES, "tokenizer_config.json", "special_tokens_map.json"):
            if (tokenizer / name).exists():
                shutil.copy(tokenizer / name, Path(folder) / name)
        config = BertConfig(architectures=["BertForMaskedLM"]).to_dict()
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield inspect_model(settings.model_copy(update={"name": folder, "revision": None}), weights=False)
