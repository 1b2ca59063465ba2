"""The head that makes a text's vector of its tokens' vectors: pooling, linear layers, length 1.

A network with it takes (B, K, T) inputs, the K texts of each of B rows, and returns (B, K, D)
vectors.

Letters: B rows, K texts of a row, S = B x K texts, T tokens, H hidden size, D size of a text's
vector, C classes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.pooling import pool
from bertctl.modeling.sentence_folder import Dense, SentenceModules, files_of
from bertctl.modeling.tensors import copy_tensor

_NAME = "sentence_head"
_CLASSES = "softmax"


class SentenceOutputs(NamedTuple):
    """Outputs of a network with a `SentenceHead`.

    Attributes:
        vectors: (B, K, D) in fp32.
        logits: (B, W, C) of the classes of pairs, from each of W widths of the vectors; None
            without classes.
    """

    vectors: Tensor
    logits: Tensor | None


class SentenceHead(nn.Module):
    """Makes one vector of each text, and logits of the classes of pairs of texts, in fp32.

    The classes are computed as in section 3 of the SBERT paper.

    Args:
        sentence_modules: Poolings and the steps after them.
        size: H.
        classes: C; 0 for none.
        widths: For each of them the classes are also predicted from the first so many numbers of
            the vectors, so that shortened vectors are useful too.

    Raises:
        UsageError: A width is larger than the vectors.
    """

    def __init__(
        self,
        sentence_modules: SentenceModules,
        size: int,
        *,
        classes: int = 0,
        widths: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.sentence_modules = sentence_modules
        self.token_size = size
        self.dense = nn.ModuleDict()
        size *= len(sentence_modules.poolings)
        for i, step in enumerate(sentence_modules.steps):
            if step is not None:
                self.dense[str(i)] = nn.Linear(size, step.size, bias=step.bias)
                size = step.size
        self.size = size
        self.widths = sorted({*widths, size})
        if max(self.widths) > size:
            message = (
                f"sentence_embeddings.widths: {max(self.widths):,} is more than the {size:,} "
                "numbers of a vector"
            )
            raise UsageError(message, remedy=f"Give sizes of at most {size:,}.")
        # It reads the vectors u and v of two texts, and |u - v|.
        self.classifier = nn.Linear(3 * size, classes) if classes else None

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Returns (S, D) vectors of texts.

        Args:
            states: (S, T, H) vectors of their tokens.
            mask: (S, T), false for padding; None without padding.
        """
        pooled = torch.cat(pool(states.float(), mask, self.sentence_modules.poolings), dim=-1)
        for i, step in enumerate(self.sentence_modules.steps):
            if step is None:
                pooled = functional.normalize(pooled, dim=-1)
            else:
                pooled = getattr(nn, step.activation)()(self.dense[str(i)](pooled))
        return pooled

    def logits(self, vectors: Tensor) -> Tensor | None:
        """Returns (B, W, C) logits of the pair of the first two texts; None without classes.

        The classifier reads the vectors u and v of the two, and |u - v|. There are logits for each
        of W widths: the numbers of u and v behind the width are then 0.

        Args:
            vectors: (B, K, D).
        """
        if self.classifier is None or vectors.shape[1] < 2:
            return None
        columns = torch.arange(self.size, device=vectors.device)
        logits_by_width = []
        for width in self.widths:
            u = vectors[:, 0] * (columns < width)
            v = vectors[:, 1] * (columns < width)
            logits_by_width.append(self.classifier(torch.cat([u, v, (u - v).abs()], dim=-1)))
        return torch.stack(logits_by_width, dim=1)


def load_head(head: SentenceHead, folder: Path, *, is_to_train: bool = False) -> SentenceHead:
    """Returns the head with the weights that the model's folder has.

    Args:
        head: A head with random weights, changed in place.
        folder: Folder of the model.
        is_to_train: Whether weights may be missing, to be trained.

    Raises:
        UnavailableError: Weights are missing, pickled, or of other sizes.
    """
    remedy = "Give a folder that was saved whole, its weights as model.safetensors."
    with loading(f"the model in {folder}", kind=UnavailableError, remedy=remedy):
        weights = _weights(head, folder)
        missing = sorted(head.state_dict().keys() - weights.keys())
        if missing and not is_to_train:
            message = f"{missing[-1]} is not in the files of {folder}: its answers would be random"
            raise UnavailableError(message, remedy=remedy)
        head.load_state_dict(weights, strict=False)
    # From here on, linear layers name the folders that they will be written to. Modules 0 and 1 are
    # the encoder and the pooling. A step that is None has no weights.
    steps: list[Dense | None] = []
    for i, step in enumerate(head.sentence_modules.steps, start=2):
        if step is None:
            steps.append(None)
        else:
            steps.append(replace(step, folder=f"{i}_Dense"))
    head.sentence_modules = replace(head.sentence_modules, steps=tuple(steps))
    return head


def make_vectors(
    network: nn.Module,
    sentence_modules: SentenceModules,
    folder: Path,
    *,
    is_to_train: bool = False,
    **sizes: Any,
) -> None:
    """Adds a `SentenceHead` to a bare encoder, which then returns vectors of texts.

    Its forward pass takes (B, K, T) inputs: rows of K texts, such as a pair, of T tokens each. It
    returns `SentenceOutputs`.

    Args:
        network: The encoder, changed in place.
        sentence_modules: Poolings and the steps after them.
        folder: Folder of the model, with the trained weights of the head.
        is_to_train: Whether weights of the head may be missing, to be trained.
        sizes: `classes` and `widths` of a `SentenceHead`.

    Raises:
        UnavailableError: The weights can't be used.
    """
    config: Any = network.config
    head = load_head(
        SentenceHead(sentence_modules, config.hidden_size, **sizes), folder, is_to_train=is_to_train
    )
    setattr(network, _NAME, head)
    alone: Any = network.forward

    def forward(**inputs: Tensor) -> SentenceOutputs:
        """Returns the vectors of B x K texts, and the logits of the head's classes.

        `alone` is the bare encoder's own forward pass, over (B x K, T) tokens.
        """
        rows, texts = inputs["input_ids"].shape[:2]
        flat = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        states = alone(**flat).last_hidden_state
        with torch.autocast(states.device.type, enabled=False):
            vectors = head(states, flat["attention_mask"].bool()).view(rows, texts, head.size)
            return SentenceOutputs(vectors, head.logits(vectors))

    network.forward = forward


def sentence_head(network: nn.Module) -> SentenceHead | None:
    """Returns the `SentenceHead` of a network, None without one."""
    return getattr(network, _NAME, None)


def saved_head(network: nn.Module, folder: Path) -> dict[str, Tensor]:
    """Returns the weights that `save_head` wrote, by their names in the network.

    Empty for a network without a `SentenceHead`.
    """
    head = sentence_head(network)
    if head is None:
        return {}
    return {f"{_NAME}.{name}": tensor for name, tensor in _weights(head, folder).items()}


def _saved_locations(head: SentenceHead) -> dict[str, tuple[str, str]]:
    """Returns where each weight of a head is saved: the folder, and the weight's name in its file.

    The keys are the names of the weights in the head. The folder is empty for a new linear layer,
    which was not saved yet. The weights of the classifier have a folder of bertctl's own.
    """
    locations = {}
    for name in head.state_dict():
        part, _, rest = name.partition(".")
        locations[name] = (_CLASSES, rest)
        # A linear layer is named by its number among the steps after the pooling: `dense.2.weight`.
        if part == "dense":
            number, _, parameter = rest.partition(".")
            step = head.sentence_modules.steps[int(number)]
            if step is not None:
                locations[name] = (step.folder, f"linear.{parameter}")
    return locations


def _weights(head: SentenceHead, folder: Path) -> dict[str, Tensor]:
    """Returns the weights of a head that a model's folder has, by their names in the head.

    Raises:
        OSError: The file of a layer that was saved is missing; a classifier may be.
    """
    from safetensors.torch import load_file

    weights = {}
    for name, (subfolder, stored_name) in _saved_locations(head).items():
        path = folder / subfolder / "model.safetensors"
        is_new_layer = not subfolder  # not saved yet, so it has no folder
        lacks_classifier = subfolder == _CLASSES and not path.is_file()
        if not (is_new_layer or lacks_classifier):
            weights[name] = load_file(path)[stored_name]
    return weights


def save_head(head: SentenceHead, folder: Path, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Writes the files of a head as sentence-transformers has them; returns the other weights.

    Args:
        head: Head of the network.
        folder: Folder of the model.
        weights: Weights of the whole network by name.

    Returns:
        The weights of the encoder, by name.
    """
    from safetensors.torch import save_file

    for name, document in files_of(head.sentence_modules, size=head.token_size).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")

    tensors: dict[str, dict[str, Tensor]] = {}
    for name, (subfolder, stored_name) in _saved_locations(head).items():
        tensor = copy_tensor(weights[f"{_NAME}.{name}"])
        tensors.setdefault(subfolder, {})[stored_name] = tensor
    for subfolder, of_subfolder in tensors.items():
        path = folder / subfolder / "model.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file(of_subfolder, path)
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_NAME)}
