"""What the outputs of a trained model are called, by its config.json.

`id2label` says it, and `label2id` says the same the other way round. Files of other people have one
of them, or both in contradiction; an answer under the wrong name is worse than none.
"""

import re
from collections.abc import Mapping
from typing import Any

from bertctl.errors import UnavailableError

_UNNAMED = re.compile(r"LABEL_\d+")
_REMEDY = (
    "Correct config.json: `id2label` names each output by its number, from 0 on, and `label2id` "
    "says the same."
)


def output_names(model_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of a trained model's outputs, in their order.

    Args:
        model_config: Content of config.json. If no output has a name, they are LABEL_0, LABEL_1 and
            so on, as in transformers.

    Raises:
        UnavailableError: `id2label` leaves a number out or gives two outputs one name, or
            `label2id` says otherwise.
    """
    by_number = _names_by_number(model_config)
    names = tuple(by_number[number] for number in sorted(by_number))
    if sorted(by_number) != list(range(len(names))):
        numbers = ", ".join(map(str, sorted(by_number)[:5]))
        raise UnavailableError(
            f"config.json: id2label has the numbers {numbers}, and the outputs are counted from 0 "
            "without gaps: which "
            "output has which label can't be known",
            remedy=_REMEDY,
        )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UnavailableError(
            f"config.json: id2label calls two outputs '{repeated}'", remedy=_REMEDY
        )
    return _checked_by_label2id(names, model_config.get("label2id") or {})


def _names_by_number(model_config: Mapping[str, Any]) -> dict[int, str]:
    """Returns the names of a head's outputs: `id2label`, or `LABEL_0`, ... as transformers has it.

    Raises:
        UnavailableError: id2label has a key that is no number.
    """
    id2label = model_config.get("id2label")
    if id2label:
        by_number = {
            int(number): str(name) for number, name in id2label.items() if str(number).isdecimal()
        }
        if len(by_number) < len(id2label):
            raise UnavailableError(
                f"config.json: id2label has {', '.join(map(repr, list(id2label)[:5]))}, where each "
                "output has a number",
                remedy=_REMEDY,
            )
        return by_number
    count = model_config.get("num_labels")
    return {number: f"LABEL_{number}" for number in range(2 if count is None else int(count))}


def _checked_by_label2id(names: tuple[str, ...], numbers: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of a head's outputs, those by `label2id` if `id2label` has none.

    Transformers writes LABEL_0 and so on into the one of the two that nobody has set.

    Args:
        names: Names of the outputs by `id2label`, in their order.
        numbers: `label2id`: number of the output by its name.

    Raises:
        UnavailableError: The two contradict each other.
    """
    number_by_name = {
        str(name): int(number)
        for name, number in numbers.items()
        if not _UNNAMED.fullmatch(str(name))
    }
    is_unnamed = all(_UNNAMED.fullmatch(name) for name in names)
    if is_unnamed and sorted(number_by_name.values()) == list(range(len(names))):
        return tuple(sorted(number_by_name, key=lambda name: number_by_name[name]))
    for number, name in enumerate(names):
        if number_by_name.get(name, number) != number:
            raise UnavailableError(
                f"config.json: id2label says that output {number} is '{name}', and label2id that "
                f"'{name}' is output "
                f"{number_by_name[name]}",
                remedy=_REMEDY,
            )
    return names
