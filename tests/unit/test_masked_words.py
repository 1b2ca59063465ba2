"""Texts with a masked word put in.

Blanks where the tokens have them, and pieces at the words they go on with.
"""

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from bertctl.inference.masked_words import filled_text

TEXTS = ["Anna lives in Oslo.", "Ben is in Rome, not in Oslo.", "dance, chance and finance"] * 3


def _byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _sentencepiece():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _with_mask(make, **flags):
    tokenizer = make()
    mask = AddedToken("<mask>", normalized=False, special=True, **flags)
    tokenizer.add_special_tokens([mask])
    return tokenizer, mask


@pytest.mark.parametrize("make", [_byte_level, _sentencepiece])
@pytest.mark.parametrize("flags", [{"lstrip": True}, {}])
@pytest.mark.parametrize(
    "text",
    [
        "Anna <mask> in Oslo",
        "Anna lives in <mask>",
        "Anna<mask> in Oslo",
        "<mask> is in Rome",
        "Anna  <mask>",
    ],
)
def test_the_text_is_what_all_tokens_decode_to(make, flags, text):
    """As in transformers, which decodes the whole text with the token in it."""
    tokenizer, mask = _with_mask(make, **flags)
    mask_id = tokenizer.token_to_id("<mask>")
    encoding = tokenizer.encode(text)
    place = encoding.ids.index(mask_id)
    begin, end = encoding.offsets[place]
    words = [
        number
        for token, number in tokenizer.get_vocab().items()
        if number != mask_id and token.strip("Ġ▁").isalpha()
    ]
    assert len(words) > 20
    for word in words:
        ids = [*encoding.ids[:place], word, *encoding.ids[place + 1 :]]
        assert filled_text(tokenizer, mask, [word], text[:begin], text[end:]) == tokenizer.decode(
            ids
        )


def test_a_piece_without_a_blank_goes_on_with_the_word_before():
    tokenizer, mask = _with_mask(_byte_level, lstrip=True)
    ids = tokenizer.encode("ance").ids
    assert filled_text(tokenizer, mask, ids, "Anna ", " in Oslo .") == "Annaance in Oslo ."
    assert (
        filled_text(tokenizer, mask, tokenizer.encode(" Oslo").ids, "Anna lives in ", ".")
        == "Anna lives in Oslo."
    )


@pytest.mark.parametrize(
    ("token", "before", "after", "text"),
    [
        ("oslo", "Anna lives in ", ".", "Anna lives in oslo."),
        ("##ance", "Anna ", " in Oslo.", "Annaance in Oslo."),
        ("##ance", "", " in Oslo.", "##ance in Oslo."),
        ("oslo", "Anna", " now", "Anna oslo now"),
        ("oslo", "(", ")", "(oslo)"),
        ("[SEP]", "Anna ", ".", "Anna ."),
    ],
)
def test_wordpieces_go_on_with_the_word_before_and_words_stand_alone(token, before, after, text):
    tokenizer = Tokenizer(
        models.WordPiece(
            {"[UNK]": 0, "[SEP]": 1, "[MASK]": 2, "oslo": 3, "##ance": 4}, unk_token="[UNK]"
        )
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[SEP]", "[MASK]"])
    assert filled_text(tokenizer, None, [tokenizer.token_to_id(token)], before, after) == text
