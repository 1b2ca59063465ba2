"""The one place where a model is made.

to train     load with the task's head, re-initialise, freeze or adapt     build_model
to encode    its tokenizer alone                                           build_tokenizer
to answer    load a finished run's model, or a probe on its encoder        load_trained
to read      load the bare encoder in the precision it computes in         load_frozen
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from bertctl.catalog.models import MODELS
from bertctl.config.schema import Recipe
from bertctl.errors import DataError, UsageError
from bertctl.modeling.families import BARE, family_of, model_positions, reads_padding, slow_step
from bertctl.modeling.fast.bert_to_train import bert_to_train, bert_tokenizer
from bertctl.modeling.kept_layers import select_layers
from bertctl.modeling.layer_groups import (
    freeze,
    parameter_depths,
    reinitialise,
    reinitialised,
)
from bertctl.modeling.linear_head import is_probe, read_probe
from bertctl.modeling.load import load_model, load_tokenizer_of, loadable, read_model
from bertctl.modeling.model import Model
from bertctl.modeling.sentence_folder import SentenceModules, chosen_modules, read_modules
from bertctl.modeling.source import ModelSource
from bertctl.modeling.trained_heads import (
    has_trained_head,
    keeps_head,
    label_order,
    lost_of_head,
)
from bertctl.progress import SILENT, Listener
from bertctl.runtime.device import Compute

if TYPE_CHECKING:
    from torch import nn


def build_model(
    source: ModelSource,
    auto_class: str,
    head: Mapping[str, Any],
    recipe: Recipe,
    *,
    compute: Compute | None = None,
    listener: Listener = SILENT,
) -> Model:
    """Returns a model to be trained, on the CPU.

    The steps depend on each other: layers are selected, then initialised anew, then adapted by
    LoRA, then frozen.

    Args:
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the task's head.
        head: Config fields of the task's head (num_labels, id2label, ...).
        recipe: Has the dropout, and which layers start anew or are frozen.
        compute: Where and how the model is trained; None for a network of transformers.
        listener: Receives whether a trained head is kept, and what is special about the model.

    Raises:
        UnavailableError: The files can't be loaded.
        UsageError: The recipe treats some layers in another way, and this network's layers can't be
            told apart.
    """
    if reads_padding(source.config):
        reason = f"padding changes its answers ({reads_padding(source.config)})"
        listener.say(f"model: {reason}, so only texts of one length share a batch when it answers")
    if slow_step(source.config):
        listener.say(
            "model: a step takes longer than that of a BERT of this shape: "
            f"{slow_step(source.config)}"
        )
    model = None
    dropout = recipe.model.dropout
    # `packed_encoder.py` (CPU) and `step_graphs.py` (GPU) make a network without transformers fast.
    # Other devices, and layers that recompute their activations, get transformers' network.
    has_fast_steps = compute is not None and compute.device in ("cpu", "cuda")
    stored = source.with_all_layers()
    if has_fast_steps and not recipe.training.gradient_checkpointing:
        model = bert_to_train(stored, auto_class, head, dropout=dropout)
    if model is None:
        model = load_model(
            stored,
            auto_class,
            head=head,
            dropout=dropout,
            listener=listener,
        )
    if source.keep_layers:
        select_layers(model, source.keep_layers)
    if has_trained_head(source):
        listener.say(
            f"model: {source.name} was fine-tuned before; "
            f"{_fate_of_head(model, source, auto_class, head)}"
        )
    if recipe.training.reinit_layers is not None:
        reinitialise(model.network, recipe.training.reinit_layers)
    if auto_class == BARE:
        from bertctl.modeling.sentence_head import make_vectors

        sentence_modules = chosen_modules(
            source.folder, recipe.sentence_embeddings, max_length=recipe.model.max_length
        )
        make_vectors(
            model.network,
            sentence_modules,
            source.folder,
            is_to_train=True,
            **head["sentence_embeddings"],
        )
    _pad_to_multiples_of_8(model, source, compute)
    if recipe.lora.rank is not None:
        _adapt(model, source, recipe)
    freeze(model.network, recipe.training)
    model.frozen = frozenset(
        name for name, parameter in model.network.named_parameters() if not parameter.requires_grad
    )
    if recipe.training.gradient_checkpointing:
        _recompute_activations(model.network, source)
    return model


def _fate_of_head(
    model: Model, source: ModelSource, auto_class: str, head: Mapping[str, Any]
) -> str:
    """Returns, as half a sentence, whether a head that was trained before is kept.

    Args:
        model: The loaded model, whose new weights are known.
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the task's head.
        head: Config fields of the task's head.
    """
    lost = lost_of_head(model.network, model.new_weights)
    if not keeps_head(source, head, auto_class):
        return "other labels, so it gets a new head"
    if lost:
        return f"{lost[0]} is not in its files, so it gets a new head"
    if any("pooler" in name for name in model.new_weights):
        return "its trained head is kept, under a new pooler: that of the model is not in its files"
    if label_order(source, head) is not None:
        return "its trained head is kept, its labels in this run's order"
    return "its trained head is kept"


def build_tokenizer(
    source: ModelSource, auto_class: str, head: Mapping[str, Any] | None
) -> Tokenizer:
    """Returns the tokenizer of the model that `build_model` returns, without loading its weights.

    Args:
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the task's head.
        head: Config fields of the task's head; None for a trained head.

    Raises:
        UnavailableError: The files can't be loaded.
    """
    with loadable(source, auto_class):
        tokenizer_files = bert_tokenizer(source, auto_class)
        if tokenizer_files is None:
            return load_tokenizer_of(source, auto_class, head=head)
        return tokenizer_files.tokenizer


def _pad_to_multiples_of_8(model: Model, source: ModelSource, compute: Compute | None) -> None:
    """Pads batches on a GPU to multiples of 8 tokens, if padding cannot change the result.

    Batches then have fewer different shapes, for each of which a GPU records kernels once. The
    longest batch must not be padded beyond the model's positions.

    Args:
        model: The model, whose padding is changed in place.
        source: The model's files.
        compute: Where it computes.
    """
    n_positions = model_positions(source.config) or 0  # 0 for no limit
    can_be_padded = not model.padding.unwanted and n_positions % 8 == 0
    if compute is not None and compute.device == "cuda" and can_be_padded:
        model.padding = replace(model.padding, multiple=8)


def _adapt(model: Model, source: ModelSource, recipe: Recipe) -> None:
    """Makes a run train updates of low rank in place of the encoder's weights, as LoRA does.

    Args:
        model: Changed in place; it gets an adapter.
        source: The model's files.
        recipe: Has LoRA's settings, and the layers that are initialised anew or frozen.

    Raises:
        UsageError: No linear layer fits.
    """
    from bertctl.modeling.lora import Adapter, use_lora

    training = recipe.training
    new_weights = {*model.new_weights}
    frozen: set[str] = set()
    if training.reinit_layers is not None:
        new_weights |= reinitialised(model.network, training.reinit_layers)
    if training.freeze_layers:
        depths = parameter_depths(model.network)
        frozen = {name for name, depth in depths.items() if 1 <= depth <= training.freeze_layers}
    parts = use_lora(model.network, recipe.lora, new_weights=new_weights, left_out=frozen)
    row = MODELS.get(source.name)
    model.adapter = Adapter(recipe.lora, parts, base=row.hub_id if row else source.name)


def _recompute_activations(network: "nn.Module", source: ModelSource) -> None:
    """Makes training compute activations again in the backward pass, which saves their memory.

    Raises:
        UsageError: The model's family can't do it.
    """
    try:
        network.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    except ValueError as error:
        raise UsageError(
            "training.gradient_checkpointing: transformers has none for "
            f"{family_of(source.config)} ('{source.name}')",
            remedy="Leave it out. A smaller `training.batch_size=` with more "
            "training.accumulation_steps "
            "takes less memory too.",
        ) from error


def load_trained(
    folder: Path,
    source: ModelSource,
    auto_class: str,
    compute: Compute,
    *,
    to_input: bool = False,
    plain: bool = False,
    encoders: "FrozenEncoders | None" = None,
) -> Model:
    """Returns the model of a finished run on its device, ready to answer.

    A probe's head is put on its encoder, so that it is used like any other model.

    Args:
        folder: Folder of the run.
        source: The model's files; for a probe, those of its encoder.
        auto_class: Name of the Auto class in transformers that has the task's head.
        compute: Device, precision and threads.
        to_input: Whether the caller takes gradients with respect to the network's inputs. No
            weight gets one.
        plain: Whether the network must be the one of transformers, whose modules the caller looks
            up by name.
        encoders: Encoders of probes that are in memory already.

    Raises:
        DataError: The encoder is not the one that the probe was trained on.
        UnavailableError: The files can't be loaded.
    """
    from bertctl.modeling.fast.fast_linear import use_fast_linears
    from bertctl.modeling.fast.inference_attention import use_batched_attention

    if not is_probe(folder):
        model = read_model(source, auto_class, plain=plain or to_input)
        _pad_to_multiples_of_8(model, source, compute)
        if auto_class == BARE:
            from bertctl.modeling.sentence_head import make_vectors

            sentence_modules = read_modules(source.folder) or SentenceModules()
            make_vectors(
                model.network,
                sentence_modules,
                source.folder,
                **source.config.get("sentence_embeddings") or {},
            )
        model.network.to(compute.device)
        model.network.eval()
        # Batched attention gives no gradients. oneDNN's products pass them on to the inputs.
        if to_input:
            use_fast_linears(model.network, compute)
        else:
            use_batched_attention(model.network, compute)
        return model
    from bertctl.modeling.probe_network import with_head

    head, document = read_probe(folder)
    if source.content_hash() != document.encoder_hash:
        raise DataError(
            f"{source.folder} is not the encoder that the probe was trained on "
            f"('{document.encoder}', hash {document.encoder_hash[:12]})",
            remedy="Give that model its place again, or run `bertctl probe` once more.",
        )
    encoder = (encoders or FrozenEncoders()).load(source, compute)
    return with_head(encoder, head, source, compute)


class FrozenEncoders:
    """Encoders of probes in memory, each once."""

    def __init__(self) -> None:
        self._models: dict[object, Model] = {}

    def load(self, source: ModelSource, compute: Compute) -> Model:
        """Returns an encoder, loaded if it is not in memory yet.

        Args:
            source: The model's files.
            compute: Where and how.
        """
        # `why` is a text for people, and makes no other model.
        compute_alone = replace(compute, why="")
        key = (source.content_hash(), source.keep_layers, compute_alone)
        if key not in self._models:
            self._models[key] = load_frozen(source, compute)
        return self._models[key]


def load_frozen(source: ModelSource, compute: Compute, *, plain: bool = False) -> Model:
    """Returns the bare encoder on its device, with its weights in the precision of the products.

    This is as exact as autocast, and faster: autocast converts the weights in each batch again.

    Args:
        source: The model's files.
        compute: Device and precision.
        plain: Whether the layers are left as transformers made them, so that they can be traced.
    """
    import torch

    from bertctl.modeling.fast.fast_linear import use_fast_linears
    from bertctl.modeling.fast.inference_attention import use_batched_attention

    model = read_model(source.with_all_layers(), BARE, plain=plain)
    if source.keep_layers:
        select_layers(model, source.keep_layers)
    # Positions are counted from the left, whatever side the tokenizer would pad: a text stands at
    # the same positions alone and in a batch, so its vectors are the same.
    model.padding = replace(model.padding, left=False)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[
        compute.precision
    ]
    model.network.to(device=compute.device, dtype=dtype)
    model.network.eval()
    if not plain:
        use_fast_linears(model.network, compute)
        use_batched_attention(model.network, compute, is_exact=False)
    return model
