"""Model and tokenizer through the Auto classes of transformers."""

import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from bertctl.catalog.hub import cut_off
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.modeling.families import (
    BARE,
    COUNTS_FROM_PAD,
    family_of,
    model_positions,
    reads_padding,
    shortest_input,
)
from bertctl.modeling.model import Model
from bertctl.modeling.output_names import output_names
from bertctl.modeling.source import ModelSource
from bertctl.modeling.tensors import align
from bertctl.modeling.transformers_internals import initialise
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import Padding
from bertctl.session import current
from bertctl.tokenization.reference import needs_space, repair_offsets
from bertctl.tokenization.tokenizer_files import whole_tokenizer
from bertctl.words import command

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


_SAMPLES = (
    "The film wasn't GOOD, was it?",
    " two  spaces\tand\na line",
    "Île-de-France ﬁn ½ 東京 3.14 ``so''",
    ("Who was it?", "It was he."),
)
"""What is read otherwise by most other ways to normalise and split texts, and to put two into one
line."""

WORD_HEADS = ("AutoModelForMaskedLM", "AutoModelForPreTraining")
"""Classes with the heads of pretraining, which compute in the precision of the network."""

_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")

_WRAPPERS = {"module.": "DataParallel or DistributedDataParallel", "_orig_mod.": "torch.compile"}
"""Begin the names of weights that were saved together with what a model was wrapped in."""

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
        new_weights = _random_names(info)
        if head is None:
            _refuse_random_answers(
                network,
                auto_class,
                info,
                source,
                saved_tokenizer,
            )
        else:
            _refuse_random_encoder(network, info, source)
        new_heads = _new_heads(network, info) if has_word_head else ""
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
        align(network)
        if config.model_type == "big_bird":
            network.base_model.register_forward_pre_hook(_choose_attention, with_kwargs=True)
        saved_tokenizer.model_max_length = (
            model_positions(source.config) or saved_tokenizer.model_max_length
        )
        pad_left = config.model_type in _PADS_LEFT
        has_segments = _has_segments(network, config)
        _agree(saved_tokenizer, pad_left=pad_left, has_segments=has_segments)
        return Model(
            network=network,
            tokenizer=_backend(saved_tokenizer, source, auto_class),
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
    return _backend(saved_tokenizer, source, auto_class)


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
    saved_tokenizer = _load_saved_tokenizer(source, listener)
    names_pad_token = saved_tokenizer.pad_token is not None
    pad_id = _ensure_pad(config, saved_tokenizer)
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


def _load_saved_tokenizer(source: ModelSource, listener: Listener) -> Any:
    """Returns a model's tokenizer by transformers, which reads texts as tokenizer.json does.

    Some classes of transformers build the tokenizer anew and then read texts in another way. A
    tokenizer that follows the file is returned instead, and the listener is told.
    """
    import transformers

    if source.lowercase is None:
        case_options = {}
    else:
        case_options = {"do_lower_case": source.lowercase}
    # Read first, so that two tokenizers are never in memory at once: XLM-R's takes 300 MB. It is
    # empty without a tokenizer.json.
    ids_by_file = _read_by_its_file(source)
    saved_tokenizer = transformers.AutoTokenizer.from_pretrained(
        source.folder,
        trust_remote_code=False,
        clean_up_tokenization_spaces=False,
        **case_options,
    )
    if not ids_by_file or not getattr(saved_tokenizer, "is_fast", False):
        return saved_tokenizer
    if _samples_read(saved_tokenizer.backend_tokenizer) == ids_by_file:
        return saved_tokenizer

    message = (
        f"{type(saved_tokenizer).__name__} of transformers reads texts otherwise than "
        "tokenizer.json"
    )
    listener.say(f"model: {message} in {source.folder}, which is followed")
    names: dict[str, Any] = saved_tokenizer.special_tokens_map
    return transformers.PreTrainedTokenizerFast.from_pretrained(
        source.folder, clean_up_tokenization_spaces=False, **names
    )


def _read_by_its_file(source: ModelSource) -> list[list[int]]:
    """Returns the token ids of `_SAMPLES` by a folder's tokenizer.json; none without such a file.

    Classes of transformers take only the vocabulary from the file. They build the steps that
    normalise and split texts themselves, which may differ from the file's.
    """
    file = source.folder / "tokenizer.json"
    if not file.exists():
        return []
    tokenizer = Tokenizer.from_file(str(file))
    read_as(tokenizer, source, BARE)
    return _samples_read(tokenizer)


def _samples_read(tokenizer: Tokenizer) -> list[list[int]]:
    """Returns a tokenizer's ids of each of `_SAMPLES`, and turns off its truncation and padding."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [encoding.ids for encoding in tokenizer.encode_batch([*_SAMPLES])]


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


def _agree(saved_tokenizer: Any, *, pad_left: bool, has_segments: bool) -> None:
    """Makes the saved tokenizer produce the same inputs as bertctl, also with plain transformers.

    Fields are set only where they differ, and in `init_kwargs` too, from which they are saved. In
    transformers 5 the tokenizers of ALBERT and XLNet leave the token type ids out by themselves.

    Args:
        saved_tokenizer: A tokenizer of transformers, changed in place.
        pad_left: Whether padding goes before the text.
        has_segments: Whether the network reads token type ids.
    """
    names = ["input_ids", "attention_mask"]
    if has_segments:
        names.insert(1, "token_type_ids")
    if set(saved_tokenizer.model_input_names) != set(names):
        saved_tokenizer.model_input_names = saved_tokenizer.init_kwargs["model_input_names"] = names
    if saved_tokenizer.truncation_side != "right":  # where texts are cut here
        saved_tokenizer.truncation_side = saved_tokenizer.init_kwargs["truncation_side"] = "right"
    side = "left" if pad_left else "right"
    if saved_tokenizer.padding_side != side:
        saved_tokenizer.padding_side = saved_tokenizer.init_kwargs["padding_side"] = side


def _random_names(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of weights that the files lack or have in another shape, sorted.

    Transformers has drawn these weights at random.

    Args:
        info: What transformers reports of loading a network.
    """
    mismatched = [name for name, *_ in info.get("mismatched_keys", ())]
    names = {*info.get("missing_keys", ()), *mismatched}
    return tuple(sorted(names, key=_weight_before_bias))


def _weight_before_bias(name: str) -> tuple[str, bool, str]:
    """Returns what names of weights are sorted by: the layer's name, its weight before its bias."""
    return name.rpartition(".")[0], name.endswith("bias"), name


def _refuse_random_encoder(
    network: "nn.Module", info: Mapping[str, Any], source: ModelSource
) -> None:
    """Refuses to train on an encoder with random weights.

    Transformers draws weights that the files lack, in the encoder as silently as in a new head. A
    pooler may be missing: models that were trained without one have none.

    Args:
        network: The network that was loaded.
        info: What transformers reports of loading it.
        source: The model's files.

    Raises:
        UnavailableError: Weights are missing, or have other shapes than config.json says.
    """
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    random_names = [
        name for name in _random_names(info) if not is_head(name) and "pooler" not in name
    ]
    if random_names:
        raise UnavailableError(
            f"the weights in {source.folder} are not those that its config.json describes: "
            f"{_described_names(random_names, info)} would be random",
            remedy=_prefix_remedy(info)
            or "Give a folder whose config.json and model.safetensors were saved together "
            "(save_pretrained).",
        )


def _refuse_random_answers(
    network: "nn.Module",
    auto_class: str,
    info: Mapping[str, Any],
    source: ModelSource,
    saved_tokenizer: Any,
) -> None:
    """Refuses to answer with any weight that is not in the files.

    Args:
        network: The network that was loaded.
        auto_class: Name of the Auto class in transformers that has the head.
        info: What transformers reports of loading it.
        source: The model's files.
        saved_tokenizer: The model's tokenizer.

    Raises:
        UnavailableError: A weight that the answers are made with is missing, or is not of the shape
            by config.json.
    """
    from bertctl.modeling.heads import head_test

    random_names = _random_names(info)
    # A random pooler does no harm if the answers don't depend on it.
    poolers = [name for name in random_names if "pooler" in name]
    if poolers:
        reads_pooler = auto_class != BARE and _answers_with(
            network, poolers, auto_class, saved_tokenizer
        )
        if not reads_pooler:
            random_names = tuple(name for name in random_names if name not in poolers)
    if not random_names:
        return

    shapes = {name: shapes for name, *shapes in info.get("mismatched_keys", ())}
    is_head = head_test(network)
    is_of_head = all(is_head(name) or "pooler" in name for name in random_names)
    remedy = (
        "Give a folder whose config.json and model.safetensors were saved together "
        "(save_pretrained)."
    )
    if auto_class != BARE and auto_class not in WORD_HEADS and is_of_head:
        remedy = (
            "Give the folder of the whole model, as save_pretrained of its class wrote it. To "
            "train a new head: "
            f"{command('finetune FILE', model=source.folder)}"
        )
    if all(name in shapes for name in random_names):
        in_file, described = shapes[random_names[0]]
        fault = (
            f"{random_names[0]} has {_shape(in_file)} numbers in the file, and {_shape(described)} "
            "by config.json"
        )
    else:
        if len(random_names) == 1:
            verb = "is"
        else:
            verb = "are"
        fault = f"{_described_names(random_names, info)} {verb} not in the file"
    raise UnavailableError(
        f"the weights in {source.folder} are not those that its config.json describes: {fault}: "
        "its answers would be "
        "random",
        remedy=_prefix_remedy(info) or remedy,
    )


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)


def _described_names(names: Sequence[str], info: Mapping[str, Any]) -> str:
    """Returns the first three names of weights for a message, and how many there are in all.

    Args:
        names: Names of weights that the files lack, or have in another shape.
        info: What transformers reports of loading the network; it has those of another shape.
    """
    mismatched = {name for name, *_ in info.get("mismatched_keys", ())}
    visible_names = [
        f"{name} (of another shape)" if name in mismatched else name for name in names[:3]
    ]
    if len(names) > 3:
        total = f", ... ({len(names)} in all)"
    else:
        total = ""
    return ", ".join(visible_names) + total


def _prefix_remedy(info: Mapping[str, Any]) -> str:
    """Returns what to do about weights that were saved within a wrapper such as torch.compile.

    Empty if no name in the file begins with a wrapper's prefix.
    """
    for stored in sorted(info.get("unexpected_keys", ())):
        for prefix, wrapper in _WRAPPERS.items():
            if stored.startswith(prefix):
                return (
                    f"The names in the file begin with '{prefix}', which {wrapper} adds. "
                    f"Save the model inside: model.{prefix}save_pretrained(folder)."
                )
    return ""


def _answers_with(
    network: "nn.Module", names: Sequence[str], auto_class: str, saved_tokenizer: Any
) -> bool:
    """Returns whether a network's logits depend on some of its weights.

    The weights are filled with NaN for one forward pass; a logit that depends on them is NaN, too.
    Many families have a pooler that their head does not read, so that it does no harm if its
    weights are missing.
    """
    import torch

    weights = network.state_dict(keep_vars=True)
    kept_weights = {name: weights[name].detach().clone() for name in names if name in weights}
    encoding = saved_tokenizer("a", return_tensors="pt")
    inputs = {name: encoding[name] for name in ("input_ids", "attention_mask")}
    if auto_class.endswith("MultipleChoice"):
        inputs = {name: ids[None] for name, ids in inputs.items()}  # (B, choices, T)
    try:
        with torch.no_grad():
            for name in kept_weights:
                weights[name].fill_(torch.nan)
            output = network.eval()(**inputs)
        logits = [value for name, value in output.items() if name.endswith("logits")]
        return not logits or any(bool(value.isnan().any()) for value in logits)
    finally:
        with torch.no_grad():
            for name, values in kept_weights.items():
                weights[name].copy_(values)


_ORDER_HEAD = re.compile("relationship|sop_|pooler")
"""Names of weights that only heads for the order of sentences have."""


def _new_heads(network: "nn.Module", info: Mapping[str, Any]) -> str:
    """Returns which heads of pretraining were not in the files, as the words after "has no ".

    Args:
        network: Model with the heads of pretraining.
        info: What transformers reports of loading it; `missing_keys` are weights that no file had.
    """
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    missing = [name for name in info.get("missing_keys", ()) if is_head(name) or "pooler" in name]
    order_weights = [name for name in missing if _ORDER_HEAD.search(name)]
    heads = []
    if len(order_weights) < len(missing):
        heads.append("masked-word head (its matrix is the table of token embeddings)")
    if order_weights:
        heads.append("head for the order of sentences")
    return " and no ".join(heads)


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


def _trained_labels(source: ModelSource) -> dict[int, str]:
    """Returns the labels of a trained head's outputs by their numbers, from config.json.

    Empty if config.json contradicts itself.
    """
    with contextlib.suppress(UnavailableError):
        return dict(enumerate(output_names(source.config)))
    return {}


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


def _reorder_outputs(output_layer: "nn.Linear", order: Sequence[int]) -> None:
    """Puts the outputs of a head into another order, in place."""
    import torch

    with torch.no_grad():
        for parameter in output_layer.parameters(recurse=False):
            parameter.copy_(parameter[list(order)].clone())


def lost_of_head(network: "nn.Module", new_weights: Sequence[str]) -> list[str]:
    """Returns the weights of a head, by name, that were not in the model's files."""
    from bertctl.modeling.heads import head_test

    is_head = head_test(network)
    return sorted(filter(is_head, new_weights), key=_weight_before_bias)


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

    # Mean and deviation of the training scores. Saved weights give the score itself, so a head that
    # only answers needs no scale, and one that is trained on is converted to scaled scores.
    scale: Any = getattr(network.config, "score_scale", None)
    if scale and head is None:
        use_score_head(network)
    elif scale:
        scores = use_score_head(network, *scale)
        if is_kept:
            scores.unfold()

    # BART and T5 read the state at the last end-of-text token of each text.
    has_decoder = source.config.get("is_encoder_decoder")
    reads_end_token = has_decoder and auto_class.endswith("SequenceClassification")
    if reads_end_token and isinstance(getattr(network.config, "eos_token_id", None), int):
        allow_ends_within(network)

    long: Any = getattr(network.config, "long_text", None) or {}
    if long.get("long_text") == "window":
        query = saved_query(source.folder) if is_kept else {}
        if head is None and long["window_pooling"] == "attention" and not query:
            raise UnavailableError(
                f"the weights in {source.folder} lack the vector by which windows are weighed, so "
                "its answers to long "
                "texts would be others than in training",
                remedy="Give the folder as the run wrote it, or train it again.",
            )
        pool_windows(network, long["window_pooling"], query)
    keep_in_fp32(network)


def _renew_head(network: "nn.Module") -> None:
    """Initialises all modules but the encoder's, in place.

    Transformers keeps the weights of another task's head if their shapes fit.
    """
    from bertctl.modeling.heads import head_modules

    for _, module in head_modules(network):
        if list(module.parameters(recurse=False)):
            initialise(network, module)


def _backend(saved_tokenizer: Any, source: ModelSource, auto_class: str) -> Tokenizer:
    """Returns the fast tokenizer inside a tokenizer of transformers, prepared for a task.

    It neither truncates nor pads by itself, and its offsets are repaired.

    Args:
        saved_tokenizer: Tokenizer of transformers. Its tokenizer inside is changed in place, and is
            saved with these changes.
        source: The model's files.
        auto_class: Name of the Auto class in transformers that has the head.

    Raises:
        UnavailableError: The tokenizer has no fast form, or doesn't fit a Longformer for pairs.
    """
    if not getattr(saved_tokenizer, "is_fast", False):
        remedy = "Convert it once: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
        raise UnavailableError(
            f"the tokenizer in {source.folder} has no fast form (tokenizer.json)", remedy=remedy
        )
    backend: Tokenizer = saved_tokenizer.backend_tokenizer
    of_pairs = auto_class.endswith(("QuestionAnswering", "MultipleChoice"))
    separator: Any = source.config.get("sep_token_id")
    if (
        family_of(source.config) == "longformer"
        and of_pairs
        and backend.encode("a", "b").ids.count(separator) != 3
    ):
        raise UnavailableError(
            f"Longformer finds where a question ends by three separators (id {separator}) in a "
            "pair of texts, and the "
            f"tokenizer in {source.folder} sets another number of them",
            remedy="Give a Longformer with RoBERTa's tokenizer, or another encoder.",
        )
    backend.no_truncation()
    backend.no_padding()
    repair_offsets(backend)
    puts_space_before_words = read_as(backend, source, auto_class)
    if puts_space_before_words:
        saved_tokenizer.add_prefix_space = True
        saved_tokenizer.init_kwargs["add_prefix_space"] = True
    return backend


def read_as(tokenizer: Tokenizer, source: ModelSource, auto_class: str) -> bool:
    """Makes a tokenizer lower-case as the source says, and read the words of taggers as in a text.

    Taggers get words one by one. Tokenizers that mark the beginning of a word by a space before it
    (RoBERTa's) must see that space.

    Args:
        tokenizer: Changed in place.
        source: The model's files, and whether its texts are lower-cased.
        auto_class: Name of the Auto class in transformers that has the head.

    Returns:
        Whether the pre-tokenizer was changed to put a space before words. Transformers has a field
        for that, `add_prefix_space`.
    """
    if source.lowercase is not None and isinstance(
        tokenizer.normalizer, normalizers.BertNormalizer
    ):
        tokenizer.normalizer.lowercase = source.lowercase
    if auto_class != "AutoModelForTokenClassification" or not needs_space(tokenizer):
        return False
    if isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
        tokenizer.pre_tokenizer.add_prefix_space = True
        return True
    # Another pre-tokenizer would put a space before each part of a word, so the normalizer does it.
    existing = []
    if tokenizer.normalizer:
        existing = [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([*existing, normalizers.Prepend(" ")])
    return False


def _ensure_pad(config: Any, saved_tokenizer: Any) -> int:
    """Gives a tokenizer without a padding token one, and returns the id of the padding token.

    It is the first that exists of: the config's, a token with the usual name (for files that name
    no special tokens), the end-of-text token (GPT), the unknown token. The config gets the id as
    well, by which GPT's head finds the last real token.

    Args:
        config: Of the model, changed in place.
        saved_tokenizer: Of transformers, changed in place.

    Raises:
        UnavailableError: No token could be one.
    """
    if saved_tokenizer.pad_token_id is None:
        vocabulary = saved_tokenizer.get_vocab()
        pad_token = None
        if config.pad_token_id:  # the tokenizer may lack that id
            pad_token = saved_tokenizer.convert_ids_to_tokens(config.pad_token_id)
        usual_names = [name for name in ("[PAD]", "<pad>") if name in vocabulary]
        if not pad_token and usual_names:
            pad_token = usual_names[0]
        if not pad_token:  # read only now: transformers logs an error for a token that isn't set
            pad_token = saved_tokenizer.eos_token or saved_tokenizer.unk_token
        saved_tokenizer.pad_token = pad_token
    if saved_tokenizer.pad_token_id is None:
        message = "the model's tokenizer names no padding token, and nothing in it could be one"
        remedy = (
            "Name one and save it: tokenizer.pad_token = '...'; tokenizer.save_pretrained(folder)."
        )
        raise UnavailableError(message, remedy=remedy)
    pad_id = int(saved_tokenizer.pad_token_id)
    if config.pad_token_id is None or config.model_type not in COUNTS_FROM_PAD:
        config.pad_token_id = pad_id
    return pad_id
