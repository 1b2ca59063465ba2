"""What a folder of sentence-transformers says beside its encoder, read and written: no torch.

    modules.json                         the parts in their order: Transformer, Pooling, then any of Dense and Normalize
    1_Pooling/config.json                how the tokens' vectors become one
    2_Dense/config.json, .safetensors    a linear layer with an activation
    config_sentence_transformers.json    prompts: words that are put before texts
    sentence_bert_config.json            longest input in tokens; of old folders sentence_distilbert_config.json, ...

The files are those of version 2 on, which every later version reads.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertctl.config.recipe_sections import SentenceEmbeddingsSection
from bertctl.documents import loading, read_json, read_text
from bertctl.errors import UnavailableError
from bertctl.metrics.similarity import COSINE
from bertctl.modeling.families import model_positions
from bertctl.words import listing

ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
"""Classes of torch.nn that may follow a Dense layer: none of them has a setting."""

SIDES = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Which prompts are for what is searched with, and for what is searched, the first that a folder has."""

_OLD_MODES = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens"}
_REMEDY = "Save the model again with sentence-transformers, or take its encoder alone: --pooling mean."


@dataclass(frozen=True)
class Dense:
    """A linear layer after the pooling.

    Attributes:
        size: of its output.
        activation: of `ACTIVATIONS`.
        folder: of its weights, within the model's; empty where they are new.
        bias: whether it has one.
    """

    size: int
    activation: str = "Identity"
    folder: str = ""
    bias: bool = True


@dataclass(frozen=True)
class SentenceModules:
    """How a text's vector is made of its tokens'.

    Attributes:
        poolings: of cls, mean, max; the vectors of several stand one after the other.
        steps: what follows: linear layers, and None where the vector is brought to length 1.
        prompts: words before a text, by name.
        default_prompt: name of the one that every text gets where nothing is said.
        max_length: longest input in tokens; None where the folder does not say.
        lowercase: whether texts are lower-cased before the tokenizer sees them.
        similarity: Measure by which two vectors are compared, one of `MEASURES`.
    """

    poolings: tuple[str, ...] = ("mean",)
    steps: tuple[Dense | None, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None
    lowercase: bool = False
    similarity: str = COSINE

    @property
    def normalised(self) -> bool:
        """Is whether every vector has length 1."""
        return bool(self.steps) and self.steps[-1] is None

    def prompt(self, side: str | None = None) -> str:
        """Returns the words before a text: of one of `SIDES` where there are such, else the default ones."""
        names = (*SIDES.get(side or "", ()), self.default_prompt or "")
        return next((self.prompts[name] for name in names if name in self.prompts), "")

    def prepared(self, texts: Sequence[str], side: str | None = None) -> Sequence[str]:
        """Returns texts as the tokenizer is to see them."""
        before = self.prompt(side)
        texts = [before + text for text in texts] if before else texts
        return [text.lower() for text in texts] if self.lowercase else texts


def read_modules(folder: Path) -> SentenceModules | None:
    """Returns what a folder says; None where it is no folder of sentence-transformers.

    Raises:
        UnavailableError: a part that there is nothing for here, or files that are not what they should be.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return None
    with loading(path, kind=UnavailableError, remedy=_REMEDY):
        parts = list(json.loads(read_text(path)))  # computed as they are listed, whatever their `idx`
        kinds = [str(part["type"]).rpartition(".")[2] for part in parts]
        is_inside = all(".." not in str(part["path"]) and not str(part["path"]).startswith("/") for part in parts)
        if kinds[:2] != ["Transformer", "Pooling"] or not {*kinds[2:]} <= {"Dense", "Normalize"} or not is_inside:
            fits = "Transformer, Pooling, then any of Dense and Normalize, inside the folder,"
            raise UnavailableError(f"{path} lists {listing(kinds)}: {fits} can be read", remedy=_REMEDY)
        (folder / str(parts[1]["path"]) / "config.json").stat()  # it must be there: who lacks it pools otherwise
        settings = [_settings(folder / str(part["path"]) / "config.json") for part in parts[1:]]
        said = _settings(folder / "config_sentence_transformers.json")
        of_text = next(map(_settings, sorted(folder.glob("sentence_*_config.json"))), {})  # of bert, distilbert...
        default, found = said.get("default_prompt_name"), said.get("prompts") or {}
        is_said = default or any(found.values())  # an empty prompt stands in the place of another one
        prompts = {str(name): str(text or "") for name, text in found.items() if is_said}
        steps = tuple(
            None if kind == "Normalize" else _dense(found, str(part["path"]), folder)
            for kind, found, part in zip(kinds[2:], settings[1:], parts[2:], strict=True)
        )
        prompting = (prompts, default)
        # Folders of release 6 say the length where transformers does, which writes 1e30 for none.
        longest = of_text.get("max_seq_length") or _settings(folder / "tokenizer_config.json").get("model_max_length")
        most = model_positions(_settings(folder / "config.json")) or 10**9
        reading = (min(longest, most) if longest and longest < 1e9 else None, bool(of_text.get("do_lower_case")))
        modules = SentenceModules(_poolings(settings[0], folder), steps, *prompting, *reading)
    if any(prompts.values()) and settings[0].get("include_prompt") is False:
        what = "leaves the tokens of prompts out of the pooling (include_prompt)"
        raise UnavailableError(f"{folder / '1_Pooling'} {what}, which is not done here", remedy=_REMEDY)
    if said.get("truncate_dim"):
        what = f"cuts vectors to {said['truncate_dim']} numbers (truncate_dim)"
        raise UnavailableError(f"{folder} {what}, which is not done here", remedy=_REMEDY)
    return modules


def _settings(path: Path) -> dict[str, Any]:
    """Returns a part's file; Normalize may have none."""
    return read_json(path) if path.is_file() else {}


def _poolings(settings: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    found = settings.get("pooling_mode")
    if found is None:  # before version 6
        old = {name for name in settings if name.startswith("pooling_mode_") and settings[name]}
        found = [name for name, key in _OLD_MODES.items() if key in old] + sorted(old - {*_OLD_MODES.values()})
    names = (found,) if isinstance(found, str) else tuple(found) or ("mean",)
    if not {*names} <= {*_OLD_MODES}:
        what = f"{folder / '1_Pooling' / 'config.json'} pools by {listing([str(name) for name in names])}"
        raise UnavailableError(f"{what}: {', '.join(_OLD_MODES)} can be computed", remedy=_REMEDY)
    return names


def _dense(settings: Mapping[str, Any], place: str, folder: Path) -> Dense:
    module, _, activation = str(settings["activation_function"]).rpartition(".")
    reads = all(settings.get(f"module_{way}_name") in (None, "sentence_embedding") for way in ("input", "output"))
    if not (module.startswith("torch.nn") and activation in ACTIVATIONS and reads) or settings.get("use_residual"):
        what = f"{folder / place / 'config.json'} has an activation, a residual, an input or output unknown here"
        raise UnavailableError(what, remedy=f"Activations: {', '.join(ACTIVATIONS)} of torch.nn.")
    return Dense(int(settings["out_features"]), activation, place, bool(settings.get("bias", True)))


def chosen_modules(folder: Path, settings: SentenceEmbeddingsSection, *, max_length: int) -> SentenceModules:
    """Returns how vectors are made where a recipe has its say: what it leaves open is as the model's folder says.

    Another pooling, or a new projection, takes the place of the folder's linear layers.
    """
    said = read_modules(folder) or SentenceModules()
    poolings, steps, normalise = said.poolings, said.steps, settings.normalize
    if settings.pooling is not None:
        poolings = {"mean-max": ("mean", "max")}.get(settings.pooling, (settings.pooling,))
    normalise = said.normalised if normalise is None else normalise
    steps = steps[:-1] if said.normalised else steps
    if settings.projection is not None:
        steps = (Dense(settings.projection),)
    elif poolings != said.poolings:
        steps = ()
    given = {"query": settings.query_prompt, "document": settings.document_prompt}
    prompts = {**said.prompts, **{name: text for name, text in given.items() if text is not None}}
    steps = (*steps, None) if normalise else steps
    return replace(said, poolings=poolings, steps=steps, prompts=prompts, max_length=max_length)


def files_of(modules: SentenceModules, *, size: int) -> dict[str, Any]:
    """Returns the files that say the same, by their path in the folder, as documents of JSON.

    Args:
        modules: what they say.
        size: of a token's vector.
    """
    kinds = ["Transformer", "Pooling", *("Dense" if step else "Normalize" for step in modules.steps)]
    parts = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    old = {key: name in modules.poolings for name, key in _OLD_MODES.items()}
    pooling: dict[str, Any] = {"word_embedding_dimension": size, **old}
    if len(modules.poolings) > 1:  # older versions know no order of several
        pooling = {"embedding_dimension": size, "pooling_mode": list(modules.poolings)}
    sides = {side: modules.prompt(side) for side in SIDES}  # the library puts nothing in the place of one that lacks
    prompts = {"prompts": {**modules.prompts, **sides}, "default_prompt_name": modules.default_prompt}
    files: dict[str, Any] = {
        "modules.json": parts,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": modules.max_length, "do_lower_case": modules.lowercase},
        "config_sentence_transformers.json": {**prompts, "similarity_fn_name": "cosine"},
    }
    size *= len(modules.poolings)
    for part, step in zip(parts[2:], modules.steps, strict=True):
        said: dict[str, Any] = {}
        if step is not None:
            module = "linear" if step.activation == "Identity" else "activation"
            said = {"in_features": size, "out_features": step.size, "bias": step.bias}
            said["activation_function"] = f"torch.nn.modules.{module}.{step.activation}"
            size = step.size
        files[f"{part['path']}/config.json"] = said
    return files
