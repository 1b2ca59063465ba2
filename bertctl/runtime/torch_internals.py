"""What is used of torch that its documentation doesn't promise, all in one place.

Each use has a test in `tests/contract/test_private_parts.py`, which fails when a release takes it
away.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def softmax_gradient(
    gradient: "Tensor", weights: "Tensor", dim: int, dtype: "torch.dtype"
) -> "Tensor":
    """Returns the gradient of what a softmax was computed from.

    Args:
        gradient: Gradient of the weights.
        weights: Output of the softmax.
        dim: Dimension in which the weights sum up to 1.
        dtype: Number type of the softmax's input.
    """
    import torch

    return torch._softmax_backward_data(gradient, weights, dim, dtype)


def fill_with_zeros(tensors: "Sequence[Tensor]") -> None:
    """Fills tensors with zeros, in one kernel where they are on a GPU."""
    import torch

    torch._foreach_zero_([*tensors])


def move_schedule(schedule: Any, step: int) -> list[float]:
    """Sets a `LambdaLR` to where it stands after so many steps, without stepping through them.

    Returns:
        The learning rate of each group, which the optimizer does not have yet.
    """
    schedule.last_epoch = step
    rates = [
        rate * share(step)
        for rate, share in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
    ]
    schedule._last_lr = rates
    return rates


def count_in_store(name: str) -> int:
    """Adds 1 to a counter that the processes of a job share; returns what it is then.

    Raises:
        RuntimeError: The process that keeps the counter has gone.
    """
    from torch.distributed import distributed_c10d

    return int(distributed_c10d._get_default_store().add(name, 1))


class OneDnn:
    """oneDNN's product with a weight that is laid out for it.

    It is an operator of torch's compiler (`torch/_inductor/fx_passes/mkldnn_fusion.py`).
    """

    @staticmethod
    def is_available() -> bool:
        """Returns whether this build of torch has the operator."""
        import torch

        is_built: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        operators = torch.ops.mkldnn
        return is_built and all(
            hasattr(operators, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
        )

    @staticmethod
    def has_bf16() -> bool:
        """Returns whether oneDNN computes in bf16 here; ONEDNN_MAX_CPU_ISA can forbid it."""
        import torch

        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

    @staticmethod
    def lay_out(weight: "Tensor", rows: int) -> "Tensor":
        """Returns a weight as the product reads it fastest.

        Args:
            weight: (C, D) weight of a linear layer.
            rows: About how many rows the inputs have.
        """
        import torch

        laid_out: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        return laid_out

    @staticmethod
    def product(x: "Tensor", weight: "Tensor", bias: "Tensor | None", then: str) -> "Tensor":
        """Returns (..., C) products of (..., D) inputs with a weight of `lay_out`.

        Args:
            x: Inputs.
            weight: Weight as `lay_out` returns it.
            bias: (C,) bias, or None.
            then: What follows on the product: `gelu` or `none`.
        """
        import torch

        numbers_of_then: list[float] = []
        variant_of_then = "none"
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, weight, bias, then, numbers_of_then, variant_of_then
        )
        return result
