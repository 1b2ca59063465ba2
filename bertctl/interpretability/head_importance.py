"""How much each head matters to a task.

See Michel et al. 2019, "Are Sixteen Heads Really Better than One?".

A head's output is multiplied by a gate, which is 1. By gradient (their section 4.1) a head matters
as much as the mean size of the loss's derivative by its gate; by ablation (section 3.1) as much as
is lost with its gate closed, all others open. The gradient takes one pass for all heads, ablation a
pass for each.

Letters: L layers, H heads, N rows, U windows, B windows in a batch.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from bertctl.arrays import Floats
from bertctl.errors import DataError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import SplitResult, evaluate_split
from bertctl.inference.trained import NetworkRun
from bertctl.interpretability.attention_tap import Tap, tapped
from bertctl.modeling.families import family_of
from bertctl.modeling.layers import layer_count
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import evaluation_plan
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.choice.choices import ChoiceBatch

_BATCH = 32  # windows of which gradients are asked at once


def measure_importance(
    run: NetworkRun, *, ablate: bool, listener: Listener = SILENT
) -> dict[str, Any]:
    """Returns how much each head of a run matters on the validation rows of the run's own data.

    Args:
        run: An opened run.
        ablate: Whether each head is left out in turn too: L x H passes over the rows.
        listener: Receives progress messages.

    Returns:
        The `split` and its number of `rows`; the `value` of the whole model by the task's `metric`,
        and its `loss`; `columns` of (L, H): `gradient`, the mean over the windows of the size of
        the loss's derivative by the head's gate, and where heads were ablated, what rises without
        the head: `loss_rise`, `loss_error` (its standard error over the rows), `metric_rise`.

    Raises:
        UsageError: A model without data of its own; a family whose heads can't be weighed.
        DataError: Fewer than two rows with labels, or labels that the model doesn't know.
    """
    run.require_own_data()
    data = run.load_data(listener=listener)
    rows = data.splits[data.validation_splits[0]]
    if not rows.has("label") or len(rows) < 2:
        raise DataError(
            f"'{rows.split}' ({rows.source}) has fewer than two rows with labels, so no head "
            "matters on it"
        )
    run.task.check(rows)
    engine = run.load(plain=True)
    metric = run.task.primary_metric
    features = run.task.encode(rows, engine.tokenizer, max_length=run.recipe.model.max_length)
    recipe = run.recipe.with_fields("evaluation", metric_scripts=())
    measure = partial(
        evaluate_split,
        engine,
        run.task,
        rows,
        features,
        recipe=recipe,
    )
    has_attention_to_set = hasattr(engine.network, "set_attn_implementation")
    with tapped(engine.network) if has_attention_to_set else nullcontext(Tap()) as tap:
        intact = measure(listener=listener)
        # A gate is of one window, so each row must be one window. Some tasks make other windows
        # than these features when they score.
        scores_other_windows = run.task.scored(features) is not features
        reads_rows_in_parts = recipe.model.long_text == "window" or scores_other_windows
        # The tap sees the heads only if each layer has computed its attention through it.
        has_seen_all_layers = len(tap.scores) == layer_count(run.source.config)
        if not has_seen_all_layers or reads_rows_in_parts:
            raise UsageError(
                f"the heads of {run.folder.path} can't be weighed: a "
                f"'{family_of(run.source.config)}' attends in "
                "its own way, or it is a probe, or it reads a row in several windows or texts",
                remedy="Give a run that was fine-tuned as a whole, of a family such as BERT, "
                "RoBERTa or ModernBERT.",
            )
        columns = {"gradient": _by_gradient(tap, engine, intact, listener)}
        if ablate:
            shape = columns["gradient"].shape
            columns |= _by_ablation(tap, measure, intact, shape, listener)
    listener.finish("heads")
    return {
        "split": rows.split,
        "rows": len(rows),
        "metric": metric,
        "value": intact.metrics[metric].value,
        "loss": intact.metrics["loss"].value,
        "columns": columns,
    }


def _by_ablation(
    tap: Tap,
    measure: Callable[[], SplitResult],
    intact: SplitResult,
    shape: tuple[int, ...],
    listener: Listener,
) -> dict[str, Floats]:
    """Returns (L, H) how much the loss and the metric rise without each head.

    The rise of the loss comes with its standard error over the rows.

    Args:
        tap: The tap, which has the gates.
        measure: Evaluates the rows through the tap.
        intact: The rows, as the whole model answers them.
        shape: L and H.
        listener: Receives progress.
    """
    metric = intact.task.primary_metric
    loss_rise = np.zeros(shape)
    loss_error = np.zeros(shape)
    metric_rise = np.zeros(shape)
    for number, (layer, head) in enumerate(np.ndindex(*shape), start=1):
        tap.gates = tap.open_gates(1)
        tap.gates[layer, 0, head] = 0.0
        ablated = measure()
        gaps = ablated.losses - intact.losses
        loss_rise[layer, head] = ablated.metrics["loss"].value - intact.metrics["loss"].value
        loss_error[layer, head] = gaps.std(ddof=1) / np.sqrt(len(gaps))
        metric_rise[layer, head] = ablated.metrics[metric].value - intact.metrics[metric].value
        listener.advance("heads", number, loss_rise.size)
    return {"loss_rise": loss_rise, "loss_error": loss_error, "metric_rise": metric_rise}


def _by_gradient(tap: Tap, engine: Engine, intact: SplitResult, listener: Listener) -> Floats:
    """Returns (L, H) how much the loss depends on each head: its derivative by the head's gate.

    A gate multiplies the output of a head. The size of the derivative is averaged over windows
    (Michel et al. 2019, section 4.1).

    Args:
        tap: The tap, which has the gates.
        engine: The model.
        intact: The rows, as the whole model answers them.
        listener: Receives progress.
    """
    import torch

    engine.network.requires_grad_(False)
    engine.network.eval()
    features = intact.features
    objective = intact.task.objective(engine.padding)
    n_layers, _, n_heads = tap.open_gates(1).shape
    total = np.zeros((n_layers, n_heads))
    n_done = 0
    for indices in evaluation_plan(features.lengths, _BATCH, one_length=engine.padding.unwanted):
        batch: Any = objective.batch(features, indices, WindowRandom(0)).to(engine.compute.device)
        texts = len(batch.inputs["input_ids"])
        tap.gates = tap.open_gates(texts).requires_grad_()
        losses: Any = objective.window_losses(objective.forward(engine.backend, batch), batch)
        # Each is a sum over a window's words; the loss that is reported is their mean.
        losses = losses / losses.new_tensor(features.weights[indices]).clamp(min=1)
        (slopes,) = torch.autograd.grad(losses.sum(), tap.gates)
        # The choices of a row have one loss, so their slopes are added up.
        if isinstance(batch, ChoiceBatch):
            counts = batch.counts
        else:
            counts = (1,) * texts
        slopes_of_windows = torch.split(slopes, list(counts), dim=1)
        by_window = torch.stack([window_slopes.sum(dim=1) for window_slopes in slopes_of_windows])
        total += by_window.abs().sum(dim=0).double().cpu().numpy()
        n_done += len(indices)
        listener.advance("gradients", n_done, len(features))
    listener.finish("gradients")
    return total / len(features)
