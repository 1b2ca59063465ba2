"""Heads that were trained before: kept for the same labels, renewed for others."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertctl.errors import UnavailableError
from bertctl.modeling.missing_weights import weight_before_bias
from bertctl.modeling.output_names import output_names
from bertctl.modeling.source import ModelSource
from bertctl.modeling.transformers_internals import initialise

if TYPE_CHECKING:
    from torch import nn

_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")


def has_trained_head(source: ModelSource) -> bool:
    """Returns whether the model was fine-tuned for labels before, such as the model of a run.

    If not, its files have an encoder alone, or with heads of pretraining.
    """
    return any(f"For{kind}" in str(source.config.get("architectures")) for kind in _HEADS)


def keeps_head(source: ModelSource, head: Mapping[str, Any], auto_class: str) -> bool:
    """Returns whether a trained head has the labels of the requested one, in any order.

    Args:
        source: The trained model's files.
        head: Config fields of the requested head.
        auto_class: Name of the Auto class in transformers that has the requested head.
    """
    kind = auto_class.removeprefix("AutoModelFor")
    problem = source.config.get("problem_type")
    if kind not in str(source.config.get("architectures")):
        return False
    # The outputs of these heads are positions or choices, which have no labels to compare.
    if problem is None and kind in ("QuestionAnswering", "MultipleChoice"):
        return True
    # On the hub, few heads name their problem type.
    if (problem or "single_label_classification") != head.get("problem_type"):
        return False
    return _trained_labels(source) == head["id2label"] or label_order(source, head) is not None


def label_order(source: ModelSource, head: Mapping[str, Any]) -> list[int] | None:
    """Returns for each output of a new head the number of the trained output with the same label.

    None if the order is the same already, or if the labels are not the same set.

    Args:
        source: The trained model's files.
        head: Config fields of the new head.
    """
    trained = _trained_labels(source)
    requested: Mapping[int, str] = head.get("id2label") or {}
    numbers = {name: number for number, name in trained.items()}
    is_same_set = sorted(numbers) == sorted(requested.values())
    if not is_same_set or trained == requested:
        return None
    return [numbers[requested[number]] for number in sorted(requested)]


def lost_of_head(network: "nn.Module", new_weights: Sequence[str]) -> list[str]:
    """Returns the weights of a head, by name, that were not in the model's files."""
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    return sorted(filter(is_head, new_weights), key=weight_before_bias)


def fit_head(
    network: "nn.Module",
    source: ModelSource,
    auto_class: str,
    head: Mapping[str, Any] | None,
    *,
    new_weights: Sequence[str] = (),
) -> None:
    """Renews a head that was trained for other labels, and makes the head compute as bertctl's.

    A head with the same labels is kept, its outputs in the requested order. Scores get their scale,
    windows of long texts are pooled, and the head computes in fp32.

    Args:
        network: The network that was loaded.
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the head.
        head: Config fields of the head that is to be trained; None keeps the one that was.
        new_weights: Names of weights that were not in the files. A head that lacks some is renewed
            as a whole.

    Raises:
        UnavailableError: The files lack what a head of long texts was trained with.
    """
    from bertctl.modeling.heads import allow_ends_within, keep_in_fp32, last_layer, use_score_head
    from bertctl.modeling.window_pooling import pool_windows, saved_query

    was_trained = has_trained_head(source)
    is_whole = not lost_of_head(network, new_weights)
    is_kept = head is None or (was_trained and is_whole and keeps_head(source, head, auto_class))
    if not is_kept and was_trained:
        _renew_head(network)
    if head is not None and is_kept:
        order = label_order(source, head)
        if order is not None:
            _, output_layer = last_layer(network)
            _reorder_outputs(output_layer, order)

    # Mean and deviation of the scores that a regression is trained with: its head learns
    # standardised scores. The saved weights give the scores themselves.
    scale: Any = getattr(network.config, "score_scale", None)
    if scale and head is None:
        use_score_head(network)  # only answers, so the saved weights are right as they are
    elif scale:
        score_head = use_score_head(network, *scale)
        if is_kept:
            score_head.unfold()  # weights of scores become weights of standardised scores

    # BART and T5 read the state at the last end-of-text token of each text.
    has_decoder = source.config.get("is_encoder_decoder")
    reads_end_token = has_decoder and auto_class.endswith("SequenceClassification")
    if reads_end_token and isinstance(getattr(network.config, "eos_token_id", None), int):
        allow_ends_within(network)

    long_text: Any = getattr(network.config, "long_text", None) or {}
    if long_text.get("long_text") == "window":
        # The learned vector that weighs the windows, by its name; empty if none was saved.
        query = saved_query(source.folder) if is_kept else {}
        needs_query = head is None and long_text["window_pooling"] == "attention"
        if needs_query and not query:
            raise UnavailableError(
                f"the weights in {source.folder} lack the vector by which windows are weighed, so "
                "its answers to long texts would be others than in training",
                remedy="Give the folder as the run wrote it, or train it again.",
            )
        pool_windows(network, long_text["window_pooling"], query)
    keep_in_fp32(network)


def _trained_labels(source: ModelSource) -> dict[int, str]:
    """Returns the labels of a trained head's outputs by their numbers, from config.json.

    Empty if config.json contradicts itself.
    """
    with contextlib.suppress(UnavailableError):
        return dict(enumerate(output_names(source.config)))
    return {}


def _reorder_outputs(output_layer: "nn.Linear", order: Sequence[int]) -> None:
    """Puts the outputs of a head into another order, in place."""
    import torch

    with torch.no_grad():
        for parameter in output_layer.parameters(recurse=False):
            parameter.copy_(parameter[list(order)].clone())


def _renew_head(network: "nn.Module") -> None:
    """Initialises all modules but the encoder's, in place.

    Transformers keeps the weights of another task's head if their shapes fit.
    """
    from bertctl.modeling.heads import head_modules

    for _, module in head_modules(network):
        if list(module.parameters(recurse=False)):
            initialise(network, module)
