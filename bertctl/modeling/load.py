"""Model and tokenizer through the Auto classes of transformers."""

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from bertctl.catalog.hub import cut_off
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.modeling.model import Model
from bertctl.modeling.source import ModelSource, model_positions
from bertctl.runtime.batching import Padding
from bertctl.tokenization.reference import load_tokenizer

if TYPE_CHECKING:
    from torch import nn

_DROPOUT_FIELDS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob",
    "dropout", "attention_dropout", "seq_classif_dropout", "qa_dropout", "summary_last_dropout", "pooler_dropout",
    "embedding_dropout", "mlp_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout",
)  # fmt: skip
"""What the families call it: bert, distilbert, xlnet, deberta, modernbert, gpt2."""


_PADS_LEFT = ("xlnet",)
"""Families whose heads read the last position. All others count positions from the left (BERT, GPT) or don't mind, and
find GPT's last token by the pad id: on the right padding changes nothing, whichever side their tokenizer says."""


def load_model(
    source: ModelSource, auto_class: str, *, head: Mapping[str, Any] | None, dropout: float | None = None
) -> Model:
    """Loads weights, config and tokenizer; nothing downloaded is executed.

    Args:
        source: where the files are.
        auto_class: name of the Auto class in transformers that has the head; a BERT becomes a BertFor...
        head: config fields of a new head (num_labels, id2label, ...); None keeps the head that was trained.
        dropout: for every dropout of the network; None leaves the model's own.

    Raises:
        UnavailableError: files that transformers can't load.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # "newly initialized: classifier" is what fine-tuning means
    with _loadable(source, auto_class):
        config, saved_tokenizer, pad_id = _config_and_tokenizer(source, head)
        for field in _DROPOUT_FIELDS:
            if dropout is not None and hasattr(config, field):
                setattr(config, field, dropout)
        network, info = getattr(transformers, auto_class).from_pretrained(
            source.folder,
            config=config,
            trust_remote_code=False,
            use_safetensors=True,
            dtype="float32",
            ignore_mismatched_sizes=head is not None,  # another run's head may have other labels: it is new then
            output_loading_info=True,
        )
        _refuse_random_encoder(network, info, source)
        kept = head is None or (has_trained_head(source) and keeps_head(source, head))
        if not kept and has_trained_head(source):
            _renew_head(network)
        if auto_class != "AutoModel":
            from bertctl.modeling.heads import keep_in_fp32
            from bertctl.modeling.score_head import use_score_head

            if getattr(config, "score_scale", None):
                scores = use_score_head(network, *(config.score_scale if head is not None else ()))
                if head is not None and kept:
                    scores.unfold()
            keep_in_fp32(network)
        saved_tokenizer.model_max_length = model_positions(source.config) or saved_tokenizer.model_max_length
        pad_left, has_segments = config.model_type in _PADS_LEFT, _has_segments(network, config)
        _agree(saved_tokenizer, pad_left=pad_left, has_segments=has_segments)
        return Model(
            network=network,
            tokenizer=_backend(saved_tokenizer, source),
            saved_tokenizer=saved_tokenizer,
            padding=Padding(pad_id, left=pad_left),
            has_segments=has_segments,
        )


def load_tokenizer_of(source: ModelSource, auto_class: str, *, head: Mapping[str, Any] | None) -> Tokenizer:
    """Returns the tokenizer that `load_model` gives, without reading the weights or computing anything.

    Raises:
        UnavailableError: files that transformers can't load.
    """
    with _loadable(source, auto_class):
        _, saved_tokenizer, _ = _config_and_tokenizer(source, head)
        return _backend(saved_tokenizer, source)


def _config_and_tokenizer(source: ModelSource, head: Mapping[str, Any] | None) -> tuple[Any, Any, int]:
    """Returns the config with the head's fields, the tokenizer, and the id that fills up a batch."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(source.folder, trust_remote_code=False, **(head or {}))
    if head is not None and "score_scale" not in head:
        config.score_scale = None  # of another task, which the model was trained for before
    config.return_dict, config.chunk_size_feed_forward = True, 0  # outputs by name, and of any length
    for field, value in (head or {}).items():
        if not hasattr(config, field):  # one of ours (a tagger's scheme): transformers keeps it, but never sets it
            setattr(config, field, value)
    saved_tokenizer = transformers.AutoTokenizer.from_pretrained(
        source.folder, trust_remote_code=False, clean_up_tokenization_spaces=False
    )
    return config, saved_tokenizer, _ensure_pad(config, saved_tokenizer)


@contextlib.contextmanager
def _loadable(source: ModelSource, auto_class: str) -> Iterator[None]:
    """Raises whatever loading the files raises as one of our errors; the hub is out of reach meanwhile."""
    fits = f"config.json, model.safetensors and a tokenizer of one family that {auto_class} knows"
    what, remedy = f"the model in {source.folder}", f"The folder must hold {fits}."
    with loading(what, kind=UnavailableError, remedy=remedy), cut_off():
        yield


def _has_segments(network: "nn.Module", config: Any) -> bool:
    """Returns whether token type ids mean first and second sentence to this family.

    DistilBERT and ModernBERT take none; RoBERTa has one kind and DeBERTa none; GPT would look them up among its words.
    A tokenizer's own list of inputs is no guide: one that was saved by another family's class says what that one takes.
    """
    if "token_type_ids" not in inspect.signature(network.forward).parameters:
        return False
    kinds = getattr(config, "type_vocab_size", None)
    return bool(config.model_type == "xlnet" if kinds is None else kinds >= 2)


def _agree(saved_tokenizer: Any, *, pad_left: bool, has_segments: bool) -> None:
    """Has the saved tokenizer give the network what it is given here, so that plain transformers agrees.

    In transformers 5 ALBERT's and XLNet's leave the token type ids out by themselves.
    """
    names = ["input_ids", *(["token_type_ids"] if has_segments else []), "attention_mask"]
    if set(saved_tokenizer.model_input_names) != set(names):
        saved_tokenizer.model_input_names = saved_tokenizer.init_kwargs["model_input_names"] = names
    side = "left" if pad_left else "right"
    if saved_tokenizer.padding_side != side:
        saved_tokenizer.padding_side = saved_tokenizer.init_kwargs["padding_side"] = side


def _refuse_random_encoder(network: "nn.Module", info: Mapping[str, Any], source: ModelSource) -> None:
    """Refuses an encoder with random weights, which transformers would make as silently as a new head.

    A pooler may be missing too: models that were trained without one have none.

    Raises:
        UnavailableError: weights of the encoder are missing, or have other sizes than config.json says.
    """
    names = [*info.get("missing_keys", ()), *(name for name, *_ in info.get("mismatched_keys", ()))]
    encoder = [name for name in names if name.startswith(f"{network.base_model_prefix}.") and ".pooler." not in name]
    if encoder:
        shown = ", ".join(sorted(encoder)[:3]) + (f", ... ({len(encoder)} in all)" if len(encoder) > 3 else "")
        raise UnavailableError(
            f"the weights in {source.folder} are not those that its config.json describes: {shown} would be random",
            remedy="Give a folder whose config.json and model.safetensors were saved together (save_pretrained).",
        )


def has_trained_head(source: ModelSource) -> bool:
    """Returns whether the model was fine-tuned for labels before (a run, say), or is a bare encoder."""
    return "For" in str(source.config.get("architectures")) and "problem_type" in source.config


def keeps_head(source: ModelSource, head: Mapping[str, Any]) -> bool:
    """Returns whether a head that was trained answers the same labels, in the same order, as the one wanted."""
    trained = {int(number): name for number, name in source.config.get("id2label", {}).items()}
    return trained == head["id2label"] and source.config.get("problem_type") == head.get("problem_type")


def _renew_head(network: "nn.Module") -> None:
    """Initialises everything that is not the encoder: equal sizes do not make another task's head fit."""
    from bertctl.modeling.heads import head_modules

    for _, module in head_modules(network):
        if own := list(module.parameters(recurse=False)):
            for parameter in own:
                parameter._is_hf_initialized = False  # type: ignore[attr-defined]
            network._init_weights(module)  # type: ignore[operator]


def _backend(saved_tokenizer: Any, source: ModelSource) -> Tokenizer:
    if not getattr(saved_tokenizer, "is_fast", False):
        raise UnavailableError(
            f"the tokenizer in {source.folder} has no fast form (tokenizer.json)",
            remedy="Convert it once: AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
        )
    backend = saved_tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    document = json.loads(backend.to_str())
    normalizer = document.get("normalizer") or {}
    if source.lowercase is not None and normalizer.get("type") == "BertNormalizer":
        normalizer["lowercase"] = source.lowercase
        changed = Tokenizer.from_str(json.dumps(document))
        backend.normalizer = changed.normalizer
        document = json.loads(changed.to_str())
    return load_tokenizer(json.dumps(document))


def _ensure_pad(config: Any, saved_tokenizer: Any) -> int:
    """Gives families without a pad token (GPT) the end-of-text token, and tells the config so that the head finds the
    last real token.
    """
    if saved_tokenizer.pad_token_id is None:
        saved_tokenizer.pad_token = saved_tokenizer.eos_token or saved_tokenizer.unk_token
    pad_id = int(saved_tokenizer.pad_token_id)
    config.pad_token_id = pad_id
    return pad_id
