"""What a folder of sentence-transformers says beside its encoder, read and written: no torch.

    modules.json                         the parts: Transformer, Pooling, perhaps Dense, Normalize
    1_Pooling/config.json                how the tokens' vectors become one
    2_Dense/config.json, .safetensors    a linear layer with an activation
    config_sentence_transformers.json    prompts that are put before texts, and the similarity
    sentence_bert_config.json            longest input in tokens (older folders: other names)

The files are those of version 2 on, which every later version reads. What is done with each of
their keys is in `sentence_folder_keys.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bertctl.config.recipe_sections import SentenceEmbeddingsSection
from bertctl.documents import loading, read_json, read_text
from bertctl.errors import UnavailableError
from bertctl.metrics.similarity import COSINE, MEASURES
from bertctl.modeling.families import model_positions
from bertctl.modeling.sentence_folder_keys import (
    FILE_KEYS,
    MODULE_KEYS,
    REFUSED_MODULES,
    REMEDY,
    check_keys,
)
from bertctl.words import listing

ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
"""Classes of torch.nn that may follow a Dense layer: none of them has a setting."""

SIDES = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Which prompts are for what is searched with, and for what is searched, the first that a folder
has."""

_OLD_MODES = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
}


@dataclass(frozen=True)
class Dense:
    """A linear layer after the pooling.

    Attributes:
        size: Size of its output.
        activation: Name of its activation, one of `ACTIVATIONS`.
        folder: Folder of its weights, within the model's; empty for new weights.
        bias: Whether it has a bias.
    """

    size: int
    activation: str = "Identity"
    folder: str = ""
    bias: bool = True


@dataclass(frozen=True)
class SentenceModules:
    """How a text's vector is made of its tokens'.

    Attributes:
        poolings: Names of poolings: cls, mean, max. Several vectors are joined in this order.
        steps: Steps after the pooling: linear layers, and None to scale the vector to length 1.
        prompts: Prompts by name: words that are put before a text.
        default_prompt: Name of the prompt of texts for which no other one is requested.
        max_length: Longest input in tokens; None if the folder doesn't have it.
        lowercase: Whether texts are lower-cased before the tokenizer sees them.
        similarity: Measure by which two vectors are compared, one of `MEASURES`.
    """

    poolings: tuple[str, ...] = ("mean",)
    steps: tuple[Dense | None, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None
    lowercase: bool = False
    # Not in the repr: the model_hash of an index is made of the repr, and must not change.
    similarity: str = field(default=COSINE, repr=False)

    @property
    def normalised(self) -> bool:
        """Whether every vector has length 1."""
        return bool(self.steps) and self.steps[-1] is None

    def prompt(self, side: str | None = None) -> str:
        """Returns the words before a text: the prompt of one of `SIDES`, else the default one."""
        names = (*SIDES.get(side or "", ()), self.default_prompt or "")
        return next((self.prompts[name] for name in names if name in self.prompts), "")

    def prepared(self, texts: Sequence[str], side: str | None = None) -> Sequence[str]:
        """Returns texts as the tokenizer is to see them."""
        before = self.prompt(side)
        if before:
            texts = [before + text for text in texts]
        if self.lowercase:
            return [text.lower() for text in texts]
        return texts


def read_modules(folder: Path) -> SentenceModules | None:
    """Returns how a model of sentence-transformers makes a text's vector, as its folder describes.

    None if the folder has no modules.json, so that it is of another kind.

    Raises:
        UnavailableError: A module that can't be computed here, or a file that is damaged or
            missing.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return None
    with loading(path, kind=UnavailableError, remedy=REMEDY):
        _, pooling, *later_parts = _read_parts(path)  # the first one is the encoder
        # Raises without this file: transformers would pool in another way.
        (folder / pooling.path / "config.json").stat()
        pooling_settings = _module_settings(pooling, folder)
        steps: list[Dense | None] = []
        later_settings = [_module_settings(part, folder) for part in later_parts]
        for part, module_settings in zip(later_parts, later_settings, strict=True):
            if part.kind == "Dense":
                steps.append(_dense(module_settings, part.path, folder))
            elif part.kind == "Normalize":
                steps.append(None)
        prompts, default_prompt, similarity = _read_comparison(
            folder / "config_sentence_transformers.json"
        )
        if any(prompts.values()) and pooling_settings.get("include_prompt") is False:
            message = (
                f"{folder / pooling.path} leaves the tokens of prompts out of the pooling "
                "(include_prompt)"
            )
            raise UnavailableError(f"{message}, which is not done here", remedy=REMEDY)
        max_length, lowercase = _read_input_limits(folder)
        return SentenceModules(
            poolings=_poolings(pooling_settings, folder),
            steps=tuple(steps),
            prompts=prompts,
            default_prompt=default_prompt,
            max_length=max_length,
            lowercase=lowercase,
            similarity=similarity,
        )


class _Part(NamedTuple):
    """One entry of modules.json.

    Attributes:
        kind: Name of its class.
        path: Folder of the module, within the model's.
    """

    kind: str
    path: str


def _module_settings(part: _Part, folder: Path) -> dict[str, Any]:
    """Returns the content of a module's config.json, whose keys are all known; empty without it."""
    path = folder / part.path / "config.json"
    settings = _settings(path)
    check_keys(settings, MODULE_KEYS[part.kind], path)
    return settings


def _read_parts(path: Path) -> list[_Part]:
    """Returns the modules in the order in which they are computed.

    That is the order of the list, whatever their `idx`.
    """
    entries = list(json.loads(read_text(path)))
    parts = []
    for entry in entries:
        check_keys(entry, FILE_KEYS["modules.json"], path)
        package, _, kind = str(entry["type"]).rpartition(".")
        if kind in MODULE_KEYS and package.partition(".")[0] != "sentence_transformers":
            message = (
                f"{path} names the class {entry['type']}, which is code of its own and no part of "
                "the library"
            )
            raise UnavailableError(message, remedy=REMEDY)
        parts.append(_Part(kind, str(entry["path"])))

    kinds = [part.kind for part in parts]
    is_inside = all(".." not in part.path and not part.path.startswith("/") for part in parts)
    if (
        kinds[:2] != ["Transformer", "Pooling"]
        or not {*kinds[2:]} <= {"Dense", "Normalize", "Dropout"}
        or not is_inside
    ):
        refused = [
            f"{kind} is {REFUSED_MODULES[kind]}" for kind in kinds if kind in REFUSED_MODULES
        ]
        fits = "Transformer, Pooling, then any of Dense, Normalize and Dropout, inside the folder,"
        reasons = "".join(f"; {reason}" for reason in refused)
        raise UnavailableError(
            f"{path} lists {listing(kinds)}: {fits} can be read{reasons}", remedy=REMEDY
        )
    return parts


def _read_comparison(path: Path) -> tuple[dict[str, str], str | None, str]:
    """Returns prompts by name, the default prompt's name, and how vectors are compared.

    Raises:
        UnavailableError: A default prompt that is none of the prompts, or a measure that is not
            known.
    """
    settings = _settings(path)
    check_keys(settings, FILE_KEYS["config_sentence_transformers.json"], path)
    default_prompt = settings.get("default_prompt_name")
    saved_prompts = settings.get("prompts") or {}
    if default_prompt and default_prompt not in saved_prompts:
        message = (
            f"{path} names the default prompt '{default_prompt}', which is none of its prompts"
        )
        raise UnavailableError(
            message, remedy=f"Prompts: {listing(sorted(saved_prompts)) or 'none'}."
        )
    # An empty prompt matters only if it can take the place of another one. If all are empty, the
    # model has no prompts.
    prompts: dict[str, str] = {}
    if default_prompt or any(saved_prompts.values()):
        prompts = {str(name): str(text or "") for name, text in saved_prompts.items()}

    similarity = str(settings.get("similarity_fn_name") or COSINE)
    if similarity not in MEASURES:
        message = (
            f"{path} compares vectors by {similarity!r} (similarity_fn_name), which is not done "
            "here"
        )
        raise UnavailableError(message, remedy=f"Measures: {', '.join(MEASURES)}. {REMEDY}")
    return prompts, default_prompt, similarity


def _read_input_limits(folder: Path) -> tuple[int | None, bool]:
    """Returns how many tokens of a text are read, and whether texts are lower-cased.

    The number is None if it is not limited.

    Args:
        folder: A model of sentence-transformers.
    """
    paths = sorted(folder.glob("sentence_*_config.json"))  # of bert, distilbert...
    settings: dict[str, Any] = {}
    if paths:
        settings = _settings(paths[0])
        check_keys(settings, MODULE_KEYS["Transformer"], paths[0])
    # From release 6 on, sentence-transformers writes the length only into transformers' file, where
    # 1e30 means that it is not limited.
    longest = settings.get("max_seq_length") or _settings(folder / "tokenizer_config.json").get(
        "model_max_length"
    )
    n_positions = model_positions(_settings(folder / "config.json")) or 10**9
    lowercase = bool(settings.get("do_lower_case"))
    if not longest or longest >= 1e9:
        return None, lowercase
    return min(longest, n_positions), lowercase


def _settings(path: Path) -> dict[str, Any]:
    """Returns the content of a settings file; empty without the file, which Normalize may lack."""
    if path.is_file():
        return read_json(path)
    return {}


def _poolings(settings: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Returns the names of the poolings whose vectors are joined, such as `("cls", "mean")`.

    Version 6 of sentence-transformers has `pooling_mode`, a name or several; earlier ones have a
    key such as `pooling_mode_mean_tokens` for each.

    Raises:
        UnavailableError: One of them can't be computed here.
    """
    modes = settings.get("pooling_mode")
    if modes is None:  # before version 6
        keys = {name for name in settings if name.startswith("pooling_mode_") and settings[name]}
        # Unknown ones too, to be refused below.
        unknown_keys = sorted(keys - {*_OLD_MODES.values()})
        modes = [name for name, key in _OLD_MODES.items() if key in keys] + unknown_keys
    if isinstance(modes, str):
        names = (modes,)
    else:
        names = tuple(modes) or ("mean",)
    if not {*names} <= {*_OLD_MODES}:
        message = (
            f"{folder / '1_Pooling' / 'config.json'} pools by "
            f"{listing([str(name) for name in names])}"
        )
        raise UnavailableError(f"{message}: {', '.join(_OLD_MODES)} can be computed", remedy=REMEDY)
    return names


def _dense(settings: Mapping[str, Any], subfolder: str, folder: Path) -> Dense:
    """Returns the dense layer that a Dense module's config.json describes.

    Args:
        settings: Content of the config.json.
        subfolder: Folder of the module, within the model's.
        folder: Folder of the model.

    Raises:
        UnavailableError: Its activation is not one of torch's that are known here.
    """
    module, _, activation = str(settings["activation_function"]).rpartition(".")
    if not (module.startswith("torch.nn") and activation in ACTIVATIONS):
        path = folder / subfolder / "config.json"
        message = f"{path} has an activation that is unknown here: {activation}"
        raise UnavailableError(
            message, remedy=f"Activations: {', '.join(ACTIVATIONS)} of torch.nn."
        )
    return Dense(
        size=int(settings["out_features"]),
        activation=activation,
        folder=subfolder,
        bias=bool(settings.get("bias", True)),
    )


def chosen_modules(
    folder: Path, settings: SentenceEmbeddingsSection, *, max_length: int
) -> SentenceModules:
    """Returns how vectors of texts are made: as the recipe says, else as the model's folder says.

    If the recipe has another pooling than the folder, the folder's linear layers are left out. A
    projection in the recipe is a new linear layer in their place.

    Args:
        folder: The model's files.
        settings: The recipe's fields; None in a field leaves it to the folder.
        max_length: The recipe's longest input in tokens.
    """
    folder_modules = read_modules(folder) or SentenceModules()
    poolings = folder_modules.poolings
    if settings.pooling is not None:
        poolings = {"mean-max": ("mean", "max")}.get(settings.pooling, (settings.pooling,))

    # Steps after the pooling: linear layers, and None for the normalisation, which is the last.
    steps = folder_modules.steps
    if folder_modules.normalised:
        steps = steps[:-1]
    if settings.projection is not None:
        steps = (Dense(settings.projection),)
    elif poolings != folder_modules.poolings:
        steps = ()
    normalise = settings.normalize
    if normalise is None:
        normalise = folder_modules.normalised
    if normalise:
        steps = (*steps, None)

    recipe_prompts = {"query": settings.query_prompt, "document": settings.document_prompt}
    prompts = {
        **folder_modules.prompts,
        **{name: text for name, text in recipe_prompts.items() if text is not None},
    }
    return replace(
        folder_modules,
        poolings=poolings,
        steps=steps,
        prompts=prompts,
        max_length=max_length,
    )


def files_of(modules: SentenceModules, *, size: int) -> dict[str, Any]:
    """Returns the files by which sentence-transformers makes the same vectors.

    The keys are paths in the model's folder, the values documents of JSON.

    Args:
        modules: How a text's vector is made.
        size: Numbers of a token's vector.
    """
    kinds = [
        "Transformer",
        "Pooling",
        *("Dense" if step else "Normalize" for step in modules.steps),
    ]
    parts = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    old_keys = {key: name in modules.poolings for name, key in _OLD_MODES.items()}
    pooling: dict[str, Any] = {"word_embedding_dimension": size, **old_keys}
    if len(modules.poolings) > 1:  # older versions know no order of several
        pooling = {"embedding_dimension": size, "pooling_mode": list(modules.poolings)}
    # sentence-transformers has no fallback for a missing prompt.
    sides = {side: modules.prompt(side) for side in SIDES}
    prompts = {
        "prompts": {**modules.prompts, **sides},
        "default_prompt_name": modules.default_prompt,
    }
    files: dict[str, Any] = {
        "modules.json": parts,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {
            "max_seq_length": modules.max_length,
            "do_lower_case": modules.lowercase,
        },
        "config_sentence_transformers.json": {**prompts, "similarity_fn_name": modules.similarity},
    }
    size *= len(modules.poolings)
    for part, step in zip(parts[2:], modules.steps, strict=True):
        module_config: dict[str, Any] = {}
        if step is not None:
            if step.activation == "Identity":
                module = "linear"
            else:
                module = "activation"
            module_config = {"in_features": size, "out_features": step.size, "bias": step.bias}
            module_config["activation_function"] = f"torch.nn.modules.{module}.{step.activation}"
            size = step.size
        files[f"{part['path']}/config.json"] = module_config
    return files
