"""What is used of transformers that its documentation doesn't promise, all in one place.

Each use has a test in `tests/contract/test_private_parts.py`, which fails when a release takes it
away. transformers is imported in the functions: to import it takes seconds.
"""

import functools
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.documents import read_text

if TYPE_CHECKING:
    from torch import nn


@functools.cache
def families_with(auto_class: str) -> frozenset[str]:
    """Returns the families that an Auto class of transformers knows.

    They are read from its source, as an import would also import torch.
    """
    words = re.sub("(?=[A-Z])", "_", auto_class.removeprefix("AutoModel")).upper()
    (folder,) = getattr(find_spec("transformers"), "submodule_search_locations", None) or ("",)
    source = read_text(Path(folder) / "models" / "auto" / "modeling_auto.py")
    table = source.partition(f"\nMODEL{words}_MAPPING_NAMES = OrderedDict(")[2]
    rows = table.partition("\n)\n")[0]
    return frozenset(re.findall(r'\n +\("([^"]+)", ', rows))


def model_class(auto_class: str, config_class: type) -> Any:
    """Returns the class that an Auto class makes for a configuration; None where it has none.

    Args:
        auto_class: Name of the Auto class.
        config_class: Class of the configuration, such as `BertConfig`.
    """
    import transformers

    mapping = getattr(transformers, auto_class)._model_mapping
    return mapping.get(config_class, None)


def attention_function(network: Any) -> str:
    """Returns the name of the function that a network computes its attention by.

    An example is `sdpa`, and `set_attn_implementation` sets it.
    """
    return str(network.config._attn_implementation)


def configured_attention(config: Any) -> str | None:
    """Returns the name of the attention function in a network's config; None where it has none."""
    return getattr(config, "_attn_implementation", None)


def initialise(network: "nn.Module", module: "nn.Module") -> None:
    """Draws the own parameters of a module anew, as the family of its network does.

    Args:
        network: A model of transformers.
        module: Part of it; the parts in it are left alone.
    """
    for parameter in module.parameters(recurse=False):
        parameter._is_hf_initialized = False  # type: ignore[attr-defined]
    network._init_weights(module)  # type: ignore[operator]
