"""The names of a model's outputs, by `id2label` of its config.json."""

from collections.abc import Mapping
from typing import Any

from bertctl.errors import UnavailableError
from bertctl.words import count, natural_order


def output_names(model_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of a trained model's outputs, in their order.

    A config.json is often written with sorted keys, in which "10" comes before "2".

    Raises:
        UnavailableError: the ids are not 0, 1, 2, ..., so that nobody knows which output has which name.
    """
    by_id = {str(number): str(name) for number, name in model_config["id2label"].items()}
    ids = [str(number) for number in range(len(by_id))]
    if by_id.keys() != {*ids}:
        shown = ", ".join(sorted(by_id.keys() - {*ids}, key=natural_order)[:3])
        what = f"`id2label` in config.json names {count(len(by_id), 'output')}, also {shown}; ids count from 0"
        raise UnavailableError(what, remedy='Name each output by its place: {"0": NAME, "1": NAME, ...}.')
    return tuple(by_id[number] for number in ids)


def unnamed_outputs(model_config: Mapping[str, Any]) -> dict[int, str]:
    """Returns the names that transformers gives outputs if config.json names none: LABEL_0, LABEL_1, ..."""
    return {number: f"LABEL_{number}" for number in range(model_config.get("num_labels") or 2)}
