"""A network as a function of its input embeddings: what it gives between a baseline and a text, and how that changes.

The vectors of the token table are replaced behind the table itself, by a hook: positions, segments and masks come from
the ids as ever, whatever the family. Everything is computed in fp32, whatever precision the run answers in: half
precision is too coarse for differences of logits. Letters: B lines of a batch, T tokens, E size of a token's vector.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import UsageError
from bertctl.interpretability.lines import Line
from bertctl.runtime.batching import token_budget_plan
from bertctl.tasks.batches import padded_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from bertctl.inference.engine import Engine
    from bertctl.tasks.objectives import HeadObjective

_CPU_BUDGET, _GPU_BUDGET = 1024, 8192
"""Tokens of a pass: on a CPU more of them leave its caches, on a GPU activations of bert-base take 10 GB."""
_TOLERANCE = 1e-3  # of a logit: far more than rounding, far less than what another path through the network gives

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EmbeddedNetwork:
    """A network whose input embeddings can be set.

    Attributes:
        engine: the model on torch, in fp32.
        objective: reads its outputs.
        baseline: id of the token that stands for nothing, in the place of every word's tokens.
    """

    engine: "Engine"
    objective: "HeadObjective"
    baseline: int

    def values(self, lines: Sequence[Line], share: float | None = None) -> Floats:
        """Returns the (n,) numbers that the network gives for lines, or at a share of the way to them."""
        import torch

        found = np.zeros(len(lines))
        shares = None if share is None else np.full(len(lines), share)
        with torch.no_grad():
            for indices in self._plan(lines):
                scores, *_ = self._through([lines[i] for i in indices], None if shares is None else shares[indices])
                found[indices] = scores.cpu().double().numpy()
        return found

    def gradients(
        self, lines: Sequence[Line], shares: Floats, *, of_input: bool = False
    ) -> Iterator[tuple[int, float, Floats]]:
        """Yields the (T,) products of the gradient of each line's number and the way from the baseline to the line.

        Args:
            lines: n lines; the same one may be there several times.
            shares: (n,) where on the way the gradient is taken.
            of_input: has the way begin at the zero vector.

        Yields:
            Which line, its number there, and the products, summed over E.
        """
        import torch

        for indices in self._plan(lines):
            chosen = [lines[i] for i in indices]
            with torch.enable_grad():
                scores, vectors, ways = self._through(chosen, shares[indices])
                (gradient,) = torch.autograd.grad(scores.sum(), vectors)
            products = (gradient * (vectors.detach() if of_input else ways)).sum(dim=2).cpu().double().numpy()
            mask = self.engine.padding.mask(np.array([len(line) for line in chosen]))
            values = scores.tolist()
            for number, index in enumerate(indices.tolist()):
                yield index, values[number], products[number][mask[number]]

    def attentions(self, lines: Sequence[Line]) -> Iterator[tuple[int, list[Floats]]]:
        """Yields for each line its number, and (T, T) of each layer: the mean attention of the heads.

        Raises:
            UsageError: a network that does not give them.
        """
        import torch

        with torch.no_grad(), _eager(self._network):
            for indices in self._plan(lines):
                chosen = [lines[i] for i in indices]
                backend: Any = self.engine.backend
                given = backend(**self.objective.of_lines(self._inputs(chosen)).inputs, output_attentions=True)
                layers = [layer.mean(dim=1) for layer in given.attentions]
                mask = self.engine.padding.mask(np.array([len(line) for line in chosen]))
                for number, (index, there) in enumerate(zip(indices.tolist(), mask, strict=True)):
                    yield index, [layer[number].cpu().double().numpy()[np.ix_(there, there)] for layer in layers]

    def require_path(self, lines: Sequence[Line], family: str) -> None:
        """Refuses a network that these lines do not go through as they should.

        Raises:
            UsageError: the token table is read elsewhere too, or not at all.
        """
        with contextlib.suppress(ValueError, RuntimeError, TypeError):
            if np.abs(self.values(lines, 1.0) - self.values(lines)).max(initial=0) <= _TOLERANCE:
                return
        raise UsageError(
            f"a network of the family '{family}' has no single table of token vectors that its answers go through",
            remedy="Explain it without gradients: --method leave-one-out.",
        )

    @cached_property
    def _network(self) -> Any:
        backend: Any = self.engine.backend
        backend.network.requires_grad_(False)  # only what lies on the way to the input is computed
        return backend.network

    def _plan(self, lines: Sequence[Line]) -> list[NDArray[np.int64]]:
        budget = _CPU_BUDGET if self.engine.compute.device == "cpu" else _GPU_BUDGET
        lengths = np.array([len(line) for line in lines], dtype=np.int64)
        return token_budget_plan(lengths, budget, one_length=self.engine.padding.unwanted)

    def _through(self, lines: Sequence[Line], shares: Floats | None) -> "tuple[Tensor, Tensor, Tensor]":
        """Returns (B,) numbers of lines; the (B, T, E) vectors that they were computed from, and the ways to them."""
        import torch

        inputs = self._inputs(lines)
        vectors = ways = torch.zeros(0)
        with contextlib.ExitStack() as stack:
            if shares is not None:
                table = self._network.get_input_embeddings()
                nothing = [replace(line, ids=np.where(line.word >= 0, self.baseline, line.ids)) for line in lines]
                begin = table(self._inputs(nothing)["input_ids"])
                ways = table(inputs["input_ids"]) - begin
                vectors = (begin + torch.from_numpy(shares).to(ways)[:, None, None] * ways).detach()
                vectors.requires_grad_(torch.is_grad_enabled())
                stack.enter_context(_replaced(table, inputs["input_ids"], vectors))
            outputs = self.objective.forward(self.engine.backend, self.objective.of_lines(inputs))
        return self._read(lines, outputs), vectors, ways

    def _inputs(self, lines: Sequence[Line]) -> "dict[str, Tensor]":
        ids, types = (np.concatenate([getattr(line, name) for line in lines]) for name in ("ids", "type_ids"))
        inputs = padded_inputs(ids, types, np.array([len(line) for line in lines]), self.engine.padding)
        return {name: tensor.to(self.engine.compute.device) for name, tensor in inputs.items()}

    def _read(self, lines: Sequence[Line], outputs: "Tensor") -> "Tensor":
        """Returns the (B,) sums of the outputs that the lines are about."""
        import torch

        longest = max(map(len, lines))
        sums = []
        for line, given in zip(lines, outputs, strict=True):
            before = longest - len(line) if self.engine.padding.left else 0
            sums.append(
                sum(given[(place[0] + before, *place[1:]) if len(place) > 1 else place] for place in line.places)
            )
        return torch.stack(sums)


@contextlib.contextmanager
def _eager(network: Any) -> Iterator[None]:
    """Has the network give its attentions, which the faster implementations don't keep.

    Raises:
        UsageError: it has none of each token to each.
    """
    try:
        before = network.config._attn_implementation
        network.set_attn_implementation("eager")
        yield
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise UsageError(
            "this network gives no attention of each token to each", remedy="Leave --method rollout out."
        ) from error
    network.set_attn_implementation(before)


@contextlib.contextmanager
def _replaced(table: Any, ids: "Tensor", vectors: "Tensor") -> Iterator[None]:
    """Has the token table give these vectors for these ids.

    Raises:
        ValueError: nobody asked it, or more than one did.
    """
    asked = 0

    def give(_: Any, given: "tuple[Tensor, ...]", found: "Tensor") -> "Tensor":
        nonlocal asked
        asked += 1
        is_turned = given[0].shape == ids.T.shape and bool((given[0] == ids.T).all())  # XLNet reads columns
        return vectors.transpose(0, 1) if is_turned else vectors.view(found.shape)

    handle = table.register_forward_hook(give)
    try:
        yield
    finally:
        handle.remove()
    if asked != 1:
        raise ValueError(f"the token table was asked {asked} times")
