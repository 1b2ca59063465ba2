"""A network as a function of its input embeddings.

It is what the network gives between a baseline and a text, and how that changes.

The vectors of the token table are replaced behind the table itself, by a hook: positions, segments
and masks come from the ids as ever, whatever the family. Everything is computed in fp32, whatever
precision the run answers in: half precision is too coarse for differences of logits. Letters: B
lines of a batch, T tokens, E size of a token's vector.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.arrays import Bools, Floats
from bertctl.errors import UsageError
from bertctl.inference.engine import Engine
from bertctl.interpretability.attention_tap import attending
from bertctl.interpretability.lines import Line

if TYPE_CHECKING:
    from torch import Tensor

    from bertctl.tasks.batches import Batch
    from bertctl.tasks.objectives import HeadObjective

_CPU_BUDGET = 1024
"""Tokens of a pass on a CPU: more of them leave its caches."""

_GPU_BUDGET = 8192
"""Tokens of a pass on a GPU: activations of bert-base take 10 GB."""

# of a logit: far more than rounding, far less than what another path through the network gives
_TOLERANCE = 1e-3


@dataclass
class EmbeddedNetwork:
    """A network whose input embeddings can be set.

    Attributes:
        engine: The model on torch, in fp32.
        objective: Reads its outputs.
        baseline: Id of the token that stands for nothing, in the place of every word's tokens.
        first_alone: Whether the last layer gives the first token's vector alone, where the answer
            rests on no other.
    """

    engine: Engine
    objective: "HeadObjective[Batch]"
    baseline: int
    first_alone: bool = False

    def values(self, lines: Sequence[Line], shares: Floats | None = None) -> Floats:
        """Returns the (n,) outputs of the network for lines, or at `shares` as in `gradients`."""
        import torch

        values = np.zeros(len(lines))
        with torch.no_grad():
            for indices, _, scores, *_ in self._passes(lines, shares):
                values[indices] = scores.cpu().double().numpy()
        return values

    def gradients(
        self, lines: Sequence[Line], shares: Floats, *, of_input: bool = False
    ) -> tuple[Floats, list[Floats]]:
        """Returns gradients at points between baseline and lines, times (line - baseline).

        At a share s the embeddings are x' + s (x - x'), with the line's x and the baseline's x'.
        The mean of the products over s is what integrated gradients are (Sundararajan et al. 2017).

        Args:
            lines: Lines, n of them; the same one may be there several times.
            shares: (n,) s of each line.
            of_input: Multiplies by the embeddings at s, not by x - x'.

        Returns:
            The (n,) outputs of the network at these points, and the products of each line, (T,),
            summed over the dimensions of the embedding.
        """
        import torch

        values = np.zeros(len(lines))
        products = [np.zeros(0)] * len(lines)
        with torch.enable_grad():
            for indices, mask, scores, vectors, differences in self._passes(lines, shares):
                (gradient,) = torch.autograd.grad(scores.sum(), vectors)
                factors = vectors.detach() if of_input else differences
                token_products = (gradient * factors).sum(dim=2).cpu().double().numpy()
                values[indices] = scores.detach().cpu().double().numpy()
                for i, line_products, is_token in zip(indices, token_products, mask, strict=True):
                    products[i] = line_products[is_token]
        return values, products

    def attentions(self, lines: Sequence[Line]) -> Iterator[tuple[int, list[Floats]]]:
        """Yields for each line its number, and the (T, T) mean attention of each layer's heads.

        Raises:
            UsageError: A network that does not give them.
        """
        import torch

        try:
            with torch.no_grad(), attending(self.engine.network, "eager"):
                for indices, inputs in self.engine.line_batches(lines, self._budget):
                    backend: Any = self.engine.backend
                    outputs = backend(
                        **self.objective.of_lines(inputs).inputs, output_attentions=True
                    )
                    layers = [
                        layer.mean(dim=1).cpu().double().numpy() for layer in outputs.attentions
                    ]
                    for number, is_token in enumerate(
                        inputs["attention_mask"].cpu().numpy().astype(np.bool_)
                    ):
                        yield (
                            int(indices[number]),
                            [layer[number][np.ix_(is_token, is_token)] for layer in layers],
                        )
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            message = "this network gives no attention of each token to each"
            raise UsageError(message, remedy="Leave `method=rollout` out.") from error

    def require_path(self, lines: Sequence[Line], family: str) -> None:
        """Checks that embeddings put in place of the token table's give the network's own outputs.

        Gradients by the input need that. It also finds out whether the last layer may compute the
        first token alone, which is faster.

        Args:
            lines: A few lines to check with.
            family: Name of the model's family, for the message.

        Raises:
            UsageError: The token table is read elsewhere too, or not at all.
        """
        self.first_alone = False
        plain = self.values(lines)
        # At the end of the path, share 1, the embeddings are the line's own. If the network reads
        # its token table in another way, the values differ or one of these errors is raised.
        ends = np.ones(len(lines))
        for first_alone in (True, False):
            self.first_alone = first_alone
            with contextlib.suppress(
                AttributeError,
                IndexError,
                ValueError,
                RuntimeError,
                TypeError,
            ):
                if np.abs(self.values(lines, ends) - plain).max(initial=0) <= _TOLERANCE:
                    return
        message = (
            f"a network of the family '{family}' has no single table of token vectors that its "
            "answers go through"
        )
        raise UsageError(message, remedy="Explain it without gradients: `method=leave-one-out`.")

    @property
    def _budget(self) -> int:
        """Tokens of a batch, padding included."""
        if self.engine.compute.device == "cpu":
            return _CPU_BUDGET
        return _GPU_BUDGET

    def _passes(self, lines: Sequence[Line], shares: Floats | None) -> Iterator[tuple[Any, ...]]:
        """Yields, batch by batch, which B lines, their (B, T) mask and (B,) outputs.

        With shares it also yields the (B, T, E) embeddings that they were computed from, and how
        far those of the lines are from those of the baseline; otherwise None and None.

        Args:
            lines: Lines to explain, n of them.
            shares: (n,) positions on the path from the baseline (0) to the line (1).
        """
        import torch

        for indices, inputs in self.engine.line_batches(lines, self._budget):
            chosen = [lines[i] for i in indices]
            ids = inputs["input_ids"]
            mask = inputs["attention_mask"].cpu().numpy().astype(np.bool_)
            vectors = differences = None
            with contextlib.ExitStack() as stack:
                if self.first_alone:
                    stack.enter_context(_first_alone(self.engine.network))
                if shares is not None:
                    vectors, differences = self._on_path(chosen, ids, mask, shares[indices])
                    table = self.engine.network.get_input_embeddings()
                    stack.enter_context(_replaced(table, ids, vectors))
                outputs = self.objective.forward(
                    self.engine.backend, self.objective.of_lines(inputs)
                )
            n_padding_before = (~mask).sum(axis=1) * self.engine.padding.left
            shifts = n_padding_before.tolist()
            numbers = [
                _summed_outputs(line, output, shift)
                for line, output, shift in zip(chosen, outputs, shifts, strict=True)
            ]
            yield indices, mask, torch.stack(numbers), vectors, differences

    def _on_path(
        self, lines: Sequence[Line], ids: "Tensor", mask: Bools, shares: Floats
    ) -> "tuple[Tensor, Tensor]":
        """Returns (B, T, E) embeddings between baseline and lines, and line minus baseline.

        The baseline is the line with the baseline token in place of every token of a word.

        Args:
            lines: B lines.
            ids: (B, T) their tokens, padded.
            mask: (B, T) which of them are no padding.
            shares: (B,) positions on the path from the baseline (0) to the line (1).
        """
        import torch

        # Gradients go to the input alone, not to weights.
        self.engine.network.requires_grad_(False)
        table = self.engine.network.get_input_embeddings()
        is_word = np.zeros_like(mask)
        is_word[mask] = np.concatenate([line.word for line in lines]) >= 0
        baseline_ids = ids.clone()
        baseline_ids[torch.from_numpy(is_word).to(ids.device)] = self.baseline
        baseline_vectors = table(baseline_ids)
        differences = table(ids) - baseline_vectors
        share = torch.from_numpy(shares).to(differences)[:, None, None]
        vectors = (baseline_vectors + share * differences).detach()
        vectors.requires_grad_(torch.is_grad_enabled())
        return vectors, differences


def _summed_outputs(line: Line, output: "Tensor", shift: int) -> "Tensor":
    """Returns the number that is explained: the sum of the outputs that a line asks for.

    Args:
        line: Names the places of its outputs, by token and label or by label alone.
        output: Output of the network for this line.
        shift: Tokens of padding before the line.
    """
    numbers = []
    for place in line.places:
        index = place
        if len(place) > 1:
            index = (place[0] + shift, *place[1:])
        numbers.append(output[index])
    return sum(numbers, start=output.new_zeros(()))


@contextlib.contextmanager
def _replaced(table: Any, ids: "Tensor", vectors: "Tensor") -> Iterator[None]:
    """Makes the token table give these vectors for these ids, within `with`.

    Args:
        table: Embedding layer of a network.
        ids: (B, T) ids that the network will look up.
        vectors: (B, T, E) vectors in place of the table's own.

    Raises:
        ValueError: The network did not look anything up in the table, or did so several times.
    """
    n_calls = 0

    def give(_: Any, hook_inputs: "tuple[Tensor, ...]", output: "Tensor") -> "Tensor":
        """Returns the vectors in the shape of the table's own output."""
        nonlocal n_calls
        n_calls += 1
        # XLNet reads (T, B) ids.
        is_turned = hook_inputs[0].shape == ids.T.shape and bool((hook_inputs[0] == ids.T).all())
        if is_turned:
            return vectors.transpose(0, 1)
        return vectors.view(output.shape)

    with table.register_forward_hook(give):
        yield
    if n_calls != 1:
        raise ValueError(f"the token table was asked {n_calls} times")


@contextlib.contextmanager
def _first_alone(network: Any) -> Iterator[None]:
    """Makes the last layer of a network like BERT's compute only the first token.

    Its vectors (B, 1, H) are all that the head reads; that saves a sixth of the time.

    Raises:
        AttributeError: The layers are made otherwise.
    """
    from torch.nn.functional import scaled_dot_product_attention

    last_layer = network.base_model.encoder.layer[-1]
    attention = last_layer.attention.self

    def forward(states: "Tensor", mask: "Tensor | None" = None, *_: Any, **__: Any) -> "Tensor":
        """Returns the (B, 1, H) output of the last layer for the first of (B, T, H) tokens.

        The query is the first token's, the keys and values are those of all tokens. `attention` is
        the module of the last layer that computes these.
        """
        cls_states = states[:, :1]
        projected = attention.query(cls_states), attention.key(states), attention.value(states)
        query, key, value = (
            projection.unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
            for projection in projected
        )
        attended = scaled_dot_product_attention(
            query, key, value, None if mask is None else mask[:, :, :1]
        )
        output: Tensor = last_layer.feed_forward_chunk(
            last_layer.attention.output(attended.transpose(1, 2).flatten(2), cls_states)
        )
        return output

    last_layer.forward = forward
    try:
        yield
    finally:
        del last_layer.forward  # the method of its class again
