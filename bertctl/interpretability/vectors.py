"""The frozen encoder in fp32, opened by a model's name, for what compares vectors."""

from collections.abc import Callable, Sequence

from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.data.rows import Rows
from bertctl.features.encoded_windows import EncodedWindows, RowEncoder
from bertctl.features.encoder import Encoder, VectorSpec, frozen_engine
from bertctl.features.extract_job import VectorNames
from bertctl.modeling.families import model_positions
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.tokenization.long_texts import LongText

LONGEST = 512
"""Tokens that are read of a text, of models that could read more."""


def find_encoder(name: str) -> tuple[ModelSource, int]:
    """Returns a model's files, looked at but not loaded, and the tokens that are read of a text.

    Raises:
        UsageError: no such model, or one that can't be used.
        UnavailableError: files that are not there.
    """
    source = inspect_model(ModelSection(name=name, max_length=4))
    return source, min(model_positions(source.config) or LONGEST, LONGEST)


def open_encoder(name: str, names: VectorNames) -> tuple[Encoder, Callable[[Sequence[str]], EncodedWindows]]:
    """Returns a model ready to compute vectors, and what makes of texts what it reads, a window each.

    Raises:
        UsageError: no such model, layer or pooling.
        UnavailableError: files that are not there, or can't be loaded.
    """
    source, length = find_encoder(name)
    spec = VectorSpec.of(names, source)
    from bertctl.modeling.build import load_frozen

    compute = source.compute(RuntimeSection(precision="fp32"))
    loaded = load_frozen(source, compute)
    rows = RowEncoder(loaded.tokenizer, LongText(max_length=length), by_token=spec.by_token)

    def windows(texts: Sequence[str]) -> EncodedWindows:
        return rows.encode(Rows("texts", {"text": texts}, [str(i) for i in range(len(texts))], "texts"))

    return Encoder(source, loaded, spec, frozen_engine(loaded, compute)), windows
