"""The weights of a model as they lie on the disk.

Names, shapes and types come from the files' headers, and nothing is loaded.

A safetensors file begins with the length of its header (8 bytes, little-endian) and the header,
which is JSON (huggingface/safetensors, "Format").
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertctl.documents import SAVE_WEIGHTS, loading, weight_files
from bertctl.errors import UnavailableError
from bertctl.run_folder import refuse_export

_HEADER_LIMIT = 100 * 2**20  # bytes, that of the library
_LAYER = re.compile(r"(?:^|\.)(\d+(?:\.\d+)?)\.")  # Funnel numbers blocks, and layers within them
_ATTENTION = re.compile(r"att(?:entio)?n|(?:^|\.)sa_|mixer|fourier", re.IGNORECASE)
_FEED_FORWARD = re.compile(r"ffn|mlp|intermediate|output|dense|feed_?forward|\bff\b", re.IGNORECASE)
_EMBEDDINGS = re.compile(r"emb|wte|wpe|shared|relative", re.IGNORECASE)
# Rotary angles, and the scales of I-BERT.
_CONSTANT = re.compile(r"(?:inv_freq|x_min|x_max|shift|scaling_factor|_integer)$")


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        file: File with the tensor.
        name: Name in the file.
        dtype: Dtype as safetensors calls it: F32, F16, BF16, I64.
        shape: Shape of the tensor.
        bytes: Number of its bytes in the file.
        first: Position of the first byte in the file.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    first: int

    @property
    def size(self) -> int:
        """Returns how many numbers it holds."""
        return math.prod(self.shape)

    @property
    def is_parameter(self) -> bool:
        """Returns whether it was learned.

        Position ids are integers, and some constants are saved too.
        """
        return "F" in self.dtype and not _CONSTANT.search(self.name)


@dataclass(frozen=True)
class Place:
    """Which part of a model a tensor belongs to, by its name alone.

    Attributes:
        part: One of `embeddings`, `layer`, `pooler`, `head`, and `other` (a last norm, a
            convolution beside the layers).
        layer: Number of its layer as the name has it; Funnel's names have two numbers.
        block: One of `attention`, `feed_forward` and `other` if it is in a layer; else empty.
    """

    part: str
    layer: tuple[int, ...] = ()
    block: str = ""


def stored_weights(folder: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a model's folder by name.

    A model in parts has those of all files that its index names.

    Raises:
        UnavailableError: No weights, or files that are cut off or are no safetensors.
    """
    single_file = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if single_file.is_file() or not index.is_file():
        return tensors_in(single_file)
    tensors: dict[str, StoredTensor] = {}
    for file in weight_files(index):
        tensors |= tensors_in(file)
    return tensors


def tensors_in(file: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of one file by name.

    Raises:
        UnavailableError: It is not there, is cut off, or is no safetensors file.
    """
    if not file.is_file():  # a pipe would be waited for
        refuse_export(file.parent)
        raise UnavailableError(
            f"the model folder {file.parent} has no {file.name}", remedy=SAVE_WEIGHTS
        )
    with (
        loading(f"the model in {file.parent}", kind=UnavailableError, remedy=SAVE_WEIGHTS),
        file.open("rb") as opened,
    ):
        length = int.from_bytes(opened.read(8), "little")
        if length > _HEADER_LIMIT:
            raise ValueError(f"a header of {length:,} bytes")
        header: dict[str, Any] = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            shape = tuple(map(int, entry["shape"]))
            place = 8 + length + first
            tensors[name] = StoredTensor(
                file,
                name,
                dtype=str(entry["dtype"]),
                shape=shape,
                bytes=last - first,
                first=place,
            )
        n_bytes = file.stat().st_size
        expected_bytes = 8 + length + sum(tensor.bytes for tensor in tensors.values())
        if n_bytes != expected_bytes:
            raise ValueError(f"{n_bytes:,} bytes where its header tells of {expected_bytes:,}")
    return tensors


def places(names: Iterable[str]) -> dict[str, Place]:
    """Returns the part of a model that each of its tensors belongs to, by the tensors' names.

    Args:
        names: Names of all tensors of the model.
    """
    names = list(names)
    roots = {
        name.partition(".")[0] for name in names if _LAYER.search(name) or _EMBEDDINGS.search(name)
    }
    # If layers and embeddings are all in one module, such as `bert`, that is the encoder, and
    # the head is beside it. A bare encoder has no such module.
    if len(roots) == 1:
        encoder_prefix = f"{roots.pop()}."
    else:
        encoder_prefix = ""
    return {
        name: _place(name.removeprefix(encoder_prefix), is_head=not name.startswith(encoder_prefix))
        for name in names
    }


def _place(name: str, *, is_head: bool) -> Place:
    """Returns the part of a model that a tensor belongs to.

    Args:
        name: Name of the tensor, within the encoder if it is a part of that.
        is_head: Whether the tensor is beside the encoder.
    """
    if is_head:
        return Place("head")
    numbered = _LAYER.search(name)
    if numbered:
        if _ATTENTION.search(name):
            block = "attention"
        elif _FEED_FORWARD.search(name):
            block = "feed_forward"
        else:
            block = "other"
        return Place("layer", tuple(map(int, numbered[1].split("."))), block)
    if "pooler" in name:
        return Place("pooler")
    if _EMBEDDINGS.search(name):
        return Place("embeddings")
    return Place("other")


def word_table(weights: Mapping[str, StoredTensor]) -> StoredTensor:
    """Returns the table that has a vector for each token.

    It is a table of embeddings with "word" in its name; if several or none have it, the one with
    the most rows.

    Args:
        weights: All weights of a model, by name.

    Raises:
        UnavailableError: There is no table of embeddings.
    """
    place_of_weight = places(weights)
    tables = [
        tensor
        for name, tensor in weights.items()
        if place_of_weight[name].part == "embeddings" and len(tensor.shape) == 2
    ]
    if not tables:
        raise UnavailableError(
            "the weights hold no table of token vectors", remedy="Give an encoder of text."
        )
    return max(tables, key=lambda table: ("word" in table.name, table.shape[0]))


def trained_as(config: Mapping[str, Any], weights: Mapping[str, StoredTensor]) -> str:
    """Returns the class of transformers that the weights were saved from, for people.

    If the class has a head and its weights are missing, the text says so.
    """
    architecture = str((config.get("architectures") or ["an unknown class"])[0])
    lacks = "For" in architecture and not any(
        place.part == "head" for place in places(weights).values()
    )
    if lacks:
        return f"{architecture} without the weights of its head"
    return architecture
