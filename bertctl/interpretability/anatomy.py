"""What a model is made of.

It is told by its config, its tokenizer and the headers of its weights: no torch, nothing is loaded.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertctl.catalog.models import locate_model
from bertctl.config.recipe_files import expanded_path
from bertctl.documents import loading, read_json
from bertctl.errors import BertctlError, UnavailableError
from bertctl.modeling.families import family_of, model_positions, model_sizes
from bertctl.modeling.output_names import output_names
from bertctl.modeling.stored_weights import (
    StoredTensor,
    places,
    stored_weights,
    tensors_in,
    trained_as,
)
from bertctl.run_folder import SCHEMA

_PROCESS = 400_000_000
"""Bytes of a process with torch and transformers, before a model (measured with the CPU build of
torch 2.13)."""

_STATES = 20
"""Numbers per token and unit of width that a forward pass without gradients holds at its peak
(MiniLM, SDPA on a CPU: 18.9 to 20.8 for batches of 64 x 256 and 32 x 512 tokens)."""

_BLOCKS = ("attention", "feed_forward", "other")


def inspect_model(name: str, *, length: int | None = None, batch_size: int = 32) -> dict[str, Any]:
    """Returns what is known of a model or a run without loading it, as plain values.

    Args:
        name: A name in the catalog, folder, hub id, or run.
        length: Tokens of an example, for FLOPs and memory; None takes 128, or all positions where
            there are fewer.
        batch_size: Examples of a batch, for memory.

    Raises:
        UsageError: No such model.
        UnavailableError: Files that are not there, or are damaged.
    """
    folder, run, probe_parameters, head = _find(name)
    config = read_json(folder / "config.json")
    weights = stored_weights(folder)
    with loading(
        folder / "config.json",
        kind=UnavailableError,
        remedy="Give files that save_pretrained wrote.",
    ):
        sizes = model_sizes(config)
        positions = model_positions(config)
        length = length or min(128, positions or 128)
        parts = parameters_by_part(weights)
        parts["head"] += probe_parameters
        layers = [sum(layer.values()) for layer in parts["layers"]]
        parameters = sum(layers) + sum(count for part, count in parts.items() if part != "layers")
        # What the run's recipe kept from training. Of a probe only the classifier was trained.
        frozen = sum(layers[: run.get("freeze_layers", 0)])
        if run.get("freeze_embeddings"):
            frozen += parts["embeddings"]
        return {
            "schema": SCHEMA,
            "model": name,
            "folder": str(folder),
            "run": run,
            "family": family_of(config),
            "trained_as": trained_as(config, weights),
            "labels": _labels(config if head is None else head),
            "parameters": parameters,
            "trainable": probe_parameters or parameters - frozen,
            "parts": parts,
            "bytes": _bytes_by_type(weights),
            "sizes": sizes | {"positions": positions},
            "flops": flops(weights, sizes, length),
            "memory_bytes": _memory(config, parameters, length, batch_size),
            "tokenizer": _tokenizer(folder),
        }


def _bytes_by_type(weights: Mapping[str, StoredTensor]) -> dict[str, int]:
    """Returns how many bytes the weights of each type of number take."""
    n_bytes: dict[str, int] = {}
    for weight in weights.values():
        n_bytes[weight.dtype] = n_bytes.get(weight.dtype, 0) + weight.bytes
    return n_bytes


def _labels(model_config: Mapping[str, Any]) -> list[str]:
    """Returns the names of the outputs by their ids.

    It is empty if config.json has none, as for an encoder.
    """
    if model_config.get("id2label"):
        return list(output_names(model_config))
    return []


def _find(name: str) -> tuple[Path, dict[str, Any], int, dict[str, Any] | None]:
    """Returns the folder of a model, and facts about its run and its probe.

    Returns:
        The folder of the model; what the recipe of its run says, empty for a model that is no run;
        the number of a probe's parameters, and the fields of its head: 0 and None without a probe.
    """
    path = expanded_path(name)
    if not (path / "status.json").exists():
        # Weights that come with an installed package are read as a whole to be checked, if they are
        # located. So they are only located if the folder lacks them.
        folder = locate_model(name, weights=False)
        if not any(folder.glob("model*.safetensors")):
            folder = locate_model(name)
        return folder, {}, 0, None

    from bertctl.inference.trained import open_run
    from bertctl.modeling.linear_head import WEIGHTS, is_probe, read_probe

    run = open_run(path)
    if is_probe(path):
        probe_parameters = sum(tensor.size for tensor in tensors_in(path / WEIGHTS).values())
    else:
        probe_parameters = 0
    frozen = run.recipe.training.model_dump(include={"freeze_embeddings", "freeze_layers"})
    run_facts = {
        "recipe": run.recipe.name,
        "task": run.recipe.task,
        "model": run.recipe.model.name,
        "probe": probe_parameters > 0,
    }
    if probe_parameters:
        head = read_probe(path)[1].head
    else:
        head = None
    return run.source.folder, run_facts | frozen, probe_parameters, head


def parameters_by_part(weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Returns how many parameters each part of a model has.

    The parts are embeddings, pooler, head, other, and `layers`: for each layer a dictionary of its
    blocks. A layer's block `other` is norms that its family counts neither to attention nor to
    feed_forward.
    """
    counts = Counter[tuple[str, tuple[int, ...], str]]()
    for name, place in places(weights).items():
        n_parameters = weights[name].size if weights[name].is_parameter else 0
        counts[place.part, place.layer, place.block] += n_parameters
    parts: dict[str, Any] = {}
    for part in ("embeddings", "pooler", "head", "other"):
        parts[part] = counts[part, (), ""]
    parts["layers"] = []
    for layer in sorted({layer for _, layer, _ in counts if layer}):
        parts["layers"].append({block: counts["layer", layer, block] for block in _BLOCKS})
    return parts


def flops(
    weights: Mapping[str, StoredTensor], sizes: Mapping[str, int], length: int
) -> dict[str, int]:
    """Returns the floating-point operations of the encoder's forward pass, per token and example.

    For each token, the product with a matrix takes two operations per weight. In each layer, the
    attention takes 4 T H more: the products of query and keys, and the weighted sum of the values
    (Kaplan et al. 2020, section 2.1). It is counted as dense, also if the family's is sparse.
    Training takes about three times as many operations.

    Args:
        weights: All weights of the model by name.
        sizes: As `model_sizes` returns them.
        length: T.
    """
    layer_of_name = {name: place.layer for name, place in places(weights).items() if place.layer}
    matrices = sum(weights[name].size for name in layer_of_name if len(weights[name].shape) > 1)
    n_stored = len(set(layer_of_name.values())) or 1
    layers = sizes["layers"] or n_stored
    # ALBERT's layers share weights, so fewer are stored than a text goes through.
    token = 2 * matrices * layers // n_stored + 4 * length * sizes["hidden"] * layers
    return {"length": length, "per_token": token, "per_example": token * length}


def _memory(
    config: Mapping[str, Any], parameters: int, length: int, batch_size: int
) -> dict[str, int]:
    """Returns about how many bytes fine-tuning and answering need on a CPU, in fp32.

    Args:
        config: Content of config.json.
        parameters: Number of the model's parameters.
        length: Tokens of a text.
        batch_size: Texts of a batch.
    """
    from bertctl.training.step_memory import estimate_memory

    n_trained = parameters  # all of them
    train = estimate_memory(
        config,
        parameters=(parameters, n_trained),
        longest=length,
        examples=batch_size,
    )
    states = 4 * _STATES * batch_size * length * model_sizes(config)["hidden"]
    loaded = _PROCESS + 4 * parameters
    return {
        "length": length,
        "batch_size": batch_size,
        "run": loaded + states,
        "train": loaded + train,
    }


def _tokenizer(folder: Path) -> dict[str, Any] | None:
    """Returns facts about the tokenizer; None if only transformers reads its files."""
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    with suppress(BertctlError):
        opened = open_tokenizer(str(folder))
        added = opened.tokenizer.get_added_tokens_decoder()
        special = {token.content: index for index, token in sorted(added.items()) if token.special}
        return {
            "kind": opened.kind,
            "tokens": opened.tokenizer.get_vocab_size(),
            "special": special,
        }
    return None
