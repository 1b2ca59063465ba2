"""Model and tokenizer through the Auto classes of transformers."""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from bertctl.catalog.hub import cut_off
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.modeling.families import (
    BARE,
    WORD_HEADS,
    model_positions,
    reads_padding,
    shortest_input,
)
from bertctl.modeling.missing_weights import (
    new_word_heads,
    random_weights,
    refuse_random_answers,
    refuse_random_encoder,
)
from bertctl.modeling.model import Model
from bertctl.modeling.saved_tokenizers import (
    ensure_pad,
    load_saved_tokenizer,
    make_inputs_agree,
    prepared_backend,
    read_as,
)
from bertctl.modeling.source import ModelSource
from bertctl.modeling.tensors import align
from bertctl.modeling.trained_heads import fit_head
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import Padding
from bertctl.session import current
from bertctl.tokenization.tokenizer_files import whole_tokenizer

if TYPE_CHECKING:
    from torch import nn

DROPOUT_FIELDS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "classifier_dropout_prob",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
    "qa_dropout",
    "summary_last_dropout",
    "pooler_dropout",
    "embedding_dropout",
    "mlp_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "summary_first_dropout",
    "hidden_dropout",
    "activation_dropout",
    "dropout_rate",
    "classifier_dropout_rate",
)
"""What the families call it: bert, distilbert, xlnet, deberta, modernbert, gpt2, funnel, t5."""


_PADS_LEFT = ("xlnet",)
"""Families whose heads read the last position. All others count positions from the left (BERT, GPT)
or don't mind, and find GPT's last token by the pad id: on the right padding changes nothing,
whichever side their tokenizer says."""


def silence_transformers() -> None:
    """Turns the bars and warnings of transformers off, until the command ends.

    What it warns of ("newly initialized: classifier") is what fine-tuning means.
    """
    from transformers.utils import logging

    session = current()
    restore_verbosity = partial(logging.set_verbosity, logging.get_verbosity())
    session.restore_later("verbosity of transformers", restore_verbosity)
    if logging.is_progress_bar_enabled():
        session.restore_later("bars of transformers", logging.enable_progress_bar)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_model(
    source: ModelSource,
    auto_class: str,
    *,
    head: Mapping[str, Any] | None,
    dropout: float | None = None,
    listener: Listener = SILENT,
) -> Model:
    """Loads weights, config and tokenizer with transformers; nothing downloaded is executed.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers that has the head; with a BERT,
            `AutoModelForTokenClassification` loads a `BertForTokenClassification`.
        head: Config fields of a new head (num_labels, id2label, ...). None keeps the trained head.
        dropout: Probability for every dropout of the network; None leaves the model's own.
        listener: Receives messages about what the files lack.

    Raises:
        UnavailableError: The files can't be loaded, or lack weights that can't be random.
    """
    import transformers

    silence_transformers()
    with loadable(source, auto_class):
        config, saved_tokenizer, pad_id = _config_and_tokenizer(source, head, listener)
        for field in DROPOUT_FIELDS:
            if dropout is not None and hasattr(config, field):
                setattr(config, field, dropout)
        network, info = getattr(transformers, auto_class).from_pretrained(
            source.folder,
            config=config,
            trust_remote_code=False,
            use_safetensors=True,
            dtype="float32",
            ignore_mismatched_sizes=True,  # they are refused below, unless a head is to be trained
            output_loading_info=True,
        )
        has_word_head = auto_class in WORD_HEADS
        new_weights = random_weights(info)
        if head is None:
            refuse_random_answers(
                network,
                auto_class,
                info,
                source,
                saved_tokenizer,
            )
        else:
            refuse_random_encoder(network, info, source)
        new_heads = new_word_heads(network, info) if has_word_head else ""
        if new_heads:
            listener.say(f"model: {source.name} has no {new_heads}: a new one is made")
        if dropout is not None:
            for module in network.modules():
                # GPT-2's head for tags has a dropout that no field of config.json sets.
                if type(module).__name__ == "Dropout":
                    module.p = dropout
        if auto_class != BARE and not has_word_head:
            fit_head(
                network,
                source,
                auto_class,
                head,
                new_weights=new_weights,
            )
        # Products are rounded by where in memory the weights begin, so this must not be by chance.
        align(network)
        if config.model_type == "big_bird":
            # Else its first short batch would change how it attends to all later ones.
            network.base_model.register_forward_pre_hook(_choose_attention, with_kwargs=True)
        saved_tokenizer.model_max_length = (
            model_positions(source.config) or saved_tokenizer.model_max_length
        )
        pad_left = config.model_type in _PADS_LEFT
        has_segments = _has_segments(network, config)
        # The tokenizer that is saved must give transformers the inputs that bertctl computes with.
        make_inputs_agree(saved_tokenizer, pad_left=pad_left, has_segments=has_segments)
        return Model(
            network=network,
            tokenizer=prepared_backend(saved_tokenizer, source, auto_class),
            saved_tokenizer=saved_tokenizer,
            padding=Padding(
                pad_id,
                left=pad_left,
                unwanted=bool(reads_padding(source.config)),
                shortest=shortest_input(source.config),
            ),
            has_segments=has_segments,
            cls_id=saved_tokenizer.cls_token_id,
            new_weights=new_weights,
        )


def _choose_attention(
    encoder: Any, inputs: tuple[Any, ...], keyword_inputs: Mapping[str, Any]
) -> None:
    """Makes BigBird attend in blocks if the texts of this batch are long enough.

    BigBird of transformers switches to full attention with the first short batch, for good. Its
    answers, and the numbers that dropout draws, would then depend on the order of the batches.

    The arguments are those of a forward pre-hook.

    Args:
        encoder: BigBird's encoder, changed in place.
        inputs: Positional arguments of its forward pass; the first one is (B, T) token ids.
        keyword_inputs: Keyword arguments of its forward pass, with `input_ids` if no positional
            ones were given.
    """
    import torch

    config = encoder.config
    if inputs:
        ids = inputs[0]
    else:
        ids = keyword_inputs["input_ids"]
    # Transformers' own bound: a block looks at the first and the last one, at itself, its two
    # neighbours and random ones, which is all of a shorter text.
    longest_short_text = (5 + 2 * config.num_random_blocks) * config.block_size
    is_short = ids is not None and ids.shape[1] <= longest_short_text
    # Both kinds of attention use the same layers with weights. On the device `meta` the new module
    # costs no memory before it takes them over.
    with torch.device("meta"):
        encoder.set_attention_type("original_full" if is_short else config.attention_type)


def read_model(source: ModelSource, auto_class: str, *, plain: bool = False) -> Model:
    """Returns a model for inference, with its trained head.

    It is computed by torch alone if its family and files allow that, which loads faster. Otherwise
    `load_model` loads it.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers that has the head.
        plain: Whether the network must be the one of transformers.

    Raises:
        UnavailableError: The files can't be loaded.
    """
    if not plain:
        model = _read_by_torch(source, auto_class)
        if model is not None:
            return model
    return load_model(source, auto_class, head=None)


def _read_by_torch(source: ModelSource, auto_class: str) -> Model | None:
    """Returns a model for inference without transformers; None if its files don't allow that.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers that has the head.

    Raises:
        UnavailableError: The files can't be loaded.
    """
    with loadable(source, auto_class):
        from bertctl.modeling.fast.bert_files import read_network

        network = read_network(source, auto_class)
        if network is None:
            return None
        tokenizer_and_roles = whole_tokenizer(source.folder)
        if tokenizer_and_roles is None:
            return None
        tokenizer, roles = tokenizer_and_roles
        has_special_tokens = "pad_token" in roles and "cls_token" in roles
        has_vectors = tokenizer.get_vocab_size() <= source.config["vocab_size"]
        if not has_special_tokens or not has_vectors:
            return None
        read_as(tokenizer, source, auto_class)
        return Model(
            network,
            tokenizer,
            saved_tokenizer=None,
            padding=Padding(roles["pad_token"]),
            has_segments=network.has_segments,
            cls_id=roles["cls_token"],
        )


def load_tokenizer_of(
    source: ModelSource, auto_class: str, *, head: Mapping[str, Any] | None
) -> Tokenizer:
    """Returns the tokenizer that `load_model` would return, without loading any weights.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers that has the head.
        head: Config fields of a new head; None for the trained one.

    Raises:
        Exception: Any error of transformers. Call it within `loadable`, which translates them.
    """
    _, saved_tokenizer, _ = _config_and_tokenizer(source, head, SILENT)
    return prepared_backend(saved_tokenizer, source, auto_class)


def _config_and_tokenizer(
    source: ModelSource, head: Mapping[str, Any] | None, listener: Listener
) -> tuple[Any, Any, int]:
    """Returns a model's config and tokenizer by transformers, and the id of the padding token.

    Args:
        source: Where the files are.
        head: Config fields of a new head, which the config gets; None for the trained one.
        listener: Receives messages about what the files lack.

    Raises:
        UnavailableError: The tokenizer has more tokens than the model, or none for padding.
    """
    config = _load_config(source, head)
    saved_tokenizer = load_saved_tokenizer(source, listener)
    names_pad_token = saved_tokenizer.pad_token is not None
    pad_id = ensure_pad(config, saved_tokenizer)
    if not names_pad_token:
        listener.say(
            f"model: its tokenizer names no padding token; {saved_tokenizer.pad_token!r} fills up "
            "batches"
        )
    n_vectors = getattr(config, "vocab_size", None)
    n_tokens = len(saved_tokenizer)
    if isinstance(n_vectors, int) and n_tokens > n_vectors:
        raise UnavailableError(
            f"the tokenizer in {source.folder} has {n_tokens} tokens, the last one "
            f"{saved_tokenizer.convert_ids_to_tokens(n_tokens - 1)!r}, and the model has vectors "
            f"for {n_vectors}",
            remedy="Save both again: model.resize_token_embeddings(len(tokenizer)), then "
            "save_pretrained of both.",
        )
    return config, saved_tokenizer, pad_id


def _load_config(source: ModelSource, head: Mapping[str, Any] | None) -> Any:
    """Returns a model's config by transformers, with the fields of its new head if it gets one."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(
        source.folder, trust_remote_code=False, **(head or {})
    )
    if head is not None:
        # Fields of bertctl that describe the head of an earlier run.
        if "score_scale" not in head:
            config.score_scale = None
        vars(config).pop("long_text", None)
        for field, value in head.items():
            # Transformers sets only fields that it knows, so those of bertctl (a tagger's scheme)
            # are set here.
            if not hasattr(config, field):
                setattr(config, field, value)
    # Outputs have names, and texts of any length are computed in one piece.
    config.return_dict = True
    config.chunk_size_feed_forward = 0
    # Attentions and hidden states are returned only if a call of the forward pass requests them. A
    # config with `output_attentions` also couldn't be saved.
    config.output_attentions = False
    config.output_hidden_states = False
    return config


@contextlib.contextmanager
def loadable(source: ModelSource, auto_class: str) -> Iterator[None]:
    """Turns any error of loading a model's files into `UnavailableError`, and blocks the hub.

    Args:
        source: Where the files are.
        auto_class: Name of the Auto class in transformers, for the message.

    Raises:
        UnavailableError: The block raised an error.
    """
    fits = f"config.json, model.safetensors and a tokenizer of one family that {auto_class} knows"
    message = f"the model in {source.folder}"
    remedy = f"The folder must hold {fits}."
    with loading(message, kind=UnavailableError, remedy=remedy), cut_off():
        yield


def _has_segments(network: "nn.Module", config: Any) -> bool:
    """Returns whether token type ids mean first and second sentence to this family.

    DistilBERT and ModernBERT take none; RoBERTa has one kind and DeBERTa none; GPT would look them
    up among its words. A tokenizer's own list of inputs is no guide: one that was saved by another
    family's class says what that one takes.
    """
    if "token_type_ids" not in inspect.signature(network.forward).parameters:
        return False
    kinds = getattr(config, "type_vocab_size", None)
    if kinds is None:
        return config.model_type in ("funnel", "xlnet")
    return bool(kinds >= 2)
