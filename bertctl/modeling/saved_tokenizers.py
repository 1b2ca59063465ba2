"""Tokenizers of transformers: loaded as tokenizer.json reads texts, and made to fit bertctl."""

from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from bertctl.errors import UnavailableError
from bertctl.modeling.families import BARE, COUNTS_FROM_PAD, family_of
from bertctl.modeling.source import ModelSource
from bertctl.progress import Listener
from bertctl.tokenization.reference import needs_space, repair_offsets

_SAMPLES = (
    "The film wasn't GOOD, was it?",
    " two  spaces\tand\na line",
    "Île-de-France ﬁn ½ 東京 3.14 ``so''",
    ("Who was it?", "It was he."),
)
"""What is read otherwise by most other ways to normalise and split texts, and to put two into one
line."""


def load_saved_tokenizer(source: ModelSource, listener: Listener) -> Any:
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


def make_inputs_agree(saved_tokenizer: Any, *, pad_left: bool, has_segments: bool) -> None:
    """Makes the saved tokenizer produce the same inputs as bertctl, also with plain transformers.

    The names of the inputs and the sides of truncation and padding are set if they differ. (In
    transformers 5, the tokenizers of ALBERT and XLNet leave out the token type ids, for example.)

    Args:
        saved_tokenizer: A tokenizer of transformers, changed in place.
        pad_left: Whether padding goes before the text.
        has_segments: Whether the network reads token type ids.
    """
    names = ["input_ids", "attention_mask"]
    if has_segments:
        names.insert(1, "token_type_ids")
    changes: dict[str, Any] = {}
    if set(saved_tokenizer.model_input_names) != set(names):
        changes["model_input_names"] = names
    if saved_tokenizer.truncation_side != "right":  # bertctl cuts texts at their ends
        changes["truncation_side"] = "right"
    side = "left" if pad_left else "right"
    if saved_tokenizer.padding_side != side:
        changes["padding_side"] = side
    for name, value in changes.items():
        setattr(saved_tokenizer, name, value)
        saved_tokenizer.init_kwargs[name] = value  # which is saved


def prepared_backend(saved_tokenizer: Any, source: ModelSource, auto_class: str) -> Tokenizer:
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


def ensure_pad(config: Any, saved_tokenizer: Any) -> int:
    """Gives a tokenizer without a padding token one, and returns the id of the padding token.

    It is the first that exists of: the config's, a token with the usual name (for files that name
    no special tokens), the end-of-text token (GPT), the unknown token. The config gets the id as
    well, by which GPT's head finds the last real token.

    Args:
        config: Config of the model, changed in place.
        saved_tokenizer: A tokenizer of transformers, changed in place.

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
