"""What each family of transformers can be used for: the table of `bertctl/docs/models.md`.

    python tests/contract/matrix.py        # writes it anew

It is made of what the package says before it computes anything; `test_every_family.py` tries each
cell.
"""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from families import TRIED, encoder_config

import bertctl
from bertctl.errors import UsageError
from bertctl.modeling.families import only_fp32, reads_padding, require_head, slow_step
from bertctl.modeling.layers import layer_count
from bertctl.tasks.registry import TASKS

PAGE = Path(bertctl.__file__).parent / "docs" / "models.md"
_BEGIN = "<!-- the matrix: python tests/contract/matrix.py -->\n"
_END = "<!-- the end of the matrix -->\n"
_SHORT = {
    "text-classification": "text",
    "text-regression": "score",
    "token-classification": "tags",
    "question-answering": "questions",
    "multiple-choice": "choices",
    "sentence-embeddings": "sentences",
}


@functools.cache
def row(family: str) -> Mapping[str, str]:
    """Returns column -> cell, of a family's tiny network."""
    config = encoder_config(family, 99).to_dict()
    cells = {
        _SHORT[task]: "yes"
        if _passes(require_head, config, TASKS[task].auto_class, family)
        else "no"
        for task in TASKS
    }
    has_layers = _passes(layer_count, config)
    cells["vectors"] = "yes" if has_layers else "no"
    cells["layers"] = "yes" if has_layers and "num_hidden_groups" not in config else "no"
    cells["precision"] = "fp32" if only_fp32(config) else "any"
    cells["batches"] = "equal" if reads_padding(config) else "any"
    cells["step"] = "slow" if slow_step(config) else ""
    return cells


def cell(family: str, task: str) -> str:
    """Returns whether a family has a task: yes or no."""
    return row(family)[_SHORT[task]]


def _passes(check: Any, *arguments: object) -> bool:
    try:
        check(*arguments)
    except UsageError:
        return False
    return True


def table() -> str:
    """Returns the matrix as Markdown."""
    lines = [f"| {' | '.join(('family', *row(TRIED[0])))} |", f"|---|{'---|' * len(row(TRIED[0]))}"]
    lines += [f"| {' | '.join((f'`{family}`', *row(family).values()))} |" for family in TRIED]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Returns the page with the matrix of today in it."""
    before, rest = PAGE.read_text(encoding="utf-8").split(_BEGIN)
    return before + _BEGIN + "\n" + table() + "\n" + _END + rest.split(_END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(table())
