"""Where tokens stand in a text: no letter of an answer is lost, and none is cut off its accents."""

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from bertctl.checking.answers import check_answers
from bertctl.checking.subject import Subject
from bertctl.config.recipe_sections import DataSection, QuestionAnsweringSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.tasks.questions.answer_offsets import encode_contexts, offset_units
from bertctl.tasks.questions.question_answering import QuestionAnswering
from bertctl.tokenization.reference import load_tokenizer

TEXTS = (
    "Anna lives in Oslo, not  in Amsterdam (1998). 12km",
    "le cafe\u0301 ouvre; Zürich",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 हिन्दी น้ำ \U0001f1f3\U0001f1f4 \u200fשָׁלוֹם עולם",
    "\nbegins and ends with a line \r\n",
)
SPACE = pre_tokenizers.ByteLevel(add_prefix_space=True)
NO_SPACE = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTE_LEVEL = {
    "robbert": pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), SPACE]),
    "split at blanks": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), SPACE]),
    "split at marks": pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), SPACE]),
    "split at digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(), SPACE]),
    "split by a pattern": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s?\w+|\S"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "roberta": SPACE,
    "gpt2": NO_SPACE,
}
METASPACE = {
    "sentencepiece": pre_tokenizers.Metaspace(),
    "camembert": pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    ),
}


def _roberta(**options):
    return processors.RobertaProcessing(("</s>", 2), ("<s>", 0), **options)


POST = {
    "as the pre-tokenizer": _roberta(),
    "without a blank": _roberta(add_prefix_space=False),
    "untrimmed": _roberta(trim_offsets=False),
    "trimmed twice": processors.Sequence([processors.ByteLevel(trim_offsets=True), _roberta()]),
}


def _byte_level(pre_tokenizer, post_processor):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = post_processor
    return load_tokenizer(tokenizer.to_str())


def _sentencepiece(pre_tokenizer):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[UNK]"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


TOKENIZERS = {
    **{
        f"{name}, {post}": (_byte_level, BYTE_LEVEL[name], POST[post])
        for name in BYTE_LEVEL
        for post in POST
    },
    **{name: (_sentencepiece, pre_tokenizer) for name, pre_tokenizer in METASPACE.items()},
    "uncased bert": (_wordpiece,),
}
ANSWERS = (
    *((0, answer) for answer in ("Anna", "Oslo", "Amsterdam", "1998", "not  in Amsterdam")),
    *((1, answer) for answer in ("cafe\u0301", "Zürich")),
    *(
        (2, answer)
        for answer in (
            "\U0001f469\u200d\U0001f469\u200d\U0001f467",
            "हिन्दी",
            "น้ำ",
            "\U0001f1f3\U0001f1f4",
        )
    ),
    (2, "שָׁלוֹם"),
    (3, "begins"),
    (3, "line"),
)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_answers_are_cut_out_as_they_were_given(name):
    make, *arguments = TOKENIZERS[name]
    contexts = encode_contexts(TEXTS, make(*arguments))
    for context, answer in ANSWERS:
        start = TEXTS[context].index(answer)
        at = int(contexts.tokens.starts[context])
        first, last = contexts.tokens_of(context, start, start + len(answer))
        assert (
            TEXTS[context][contexts.char_starts[at + first] : contexts.char_ends[at + last]]
            == answer
        )


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_stand_one_behind_the_other_and_leave_no_letter_out(name):
    make, *arguments = TOKENIZERS[name]
    contexts = encode_contexts(TEXTS, make(*arguments))
    for number, text in enumerate(TEXTS):
        part = slice(
            contexts.tokens.starts[number],
            contexts.tokens.starts[number] + contexts.tokens.lengths[number],
        )
        starts = contexts.char_starts[part]
        ends = contexts.char_ends[part]
        assert (np.diff(starts) >= 0).all()
        assert (np.diff(ends) >= 0).all()
        covered = set()
        for start, end in zip(starts, ends, strict=True):
            covered.update(range(start, end))
        letters = {place for place, character in enumerate(text) if character.isalnum()}
        assert letters <= covered


def test_offsets_that_are_right_are_the_librarys():
    for post in (_roberta(), processors.ByteLevel(trim_offsets=True)):
        tokenizer = _byte_level(SPACE, post)
        as_it_is = Tokenizer.from_str(tokenizer.to_str())
        as_it_is.post_processor = post
        for text in TEXTS:
            assert tokenizer.encode(text).offsets == as_it_is.encode(text).offsets


EMOJI = "\U0001f600\U0001f600 Anna met Ben"
ACCENTS = "Zürich, Köln: Anna met Ben"
LINES = "one\ntwo\nAnna met Ben"


@pytest.mark.parametrize(
    ("context", "start", "unit"),
    [
        (EMOJI, EMOJI.index("Ben") + 2, "UTF-16 units, as JavaScript and Java do"),
        (ACCENTS, ACCENTS.index("Ben") + 2, "bytes of UTF-8"),
        (EMOJI, len(EMOJI[: EMOJI.index("Ben")].encode()), "bytes of UTF-8"),
        (LINES, LINES.index("Ben") + 2, r"two characters for a line end (\r\n)"),
        ("Anna met Ben", 10, "characters from 1"),
        ("Anna met Ben", 3, None),
        (EMOJI, -1, None),
        (EMOJI, 500, None),
    ],
)
def test_the_unit_that_offsets_count_is_named(context, start, unit):
    assert offset_units(context, "Ben", start) == ({unit} if unit else set())


def test_training_and_the_check_of_data_name_the_unit():
    contexts = [EMOJI, "\U0001f600" + EMOJI]
    labels = [
        {"text": ["Ben"], "answer_start": [len(c[: c.index("Ben")].encode("utf-16-le")) // 2]}
        for c in contexts
    ]
    rows = Rows(
        "train",
        {"question": ["Who?"] * 2, "context": contexts, "label": labels},
        ["a", "b"],
        "x.json",
    )
    with pytest.raises(DataError, match="is not at its offset") as caught:
        QuestionAnswering(QuestionAnsweringSection(), False).check(rows)
    assert (
        "All of these offsets count UTF-16 units, as JavaScript and Java do." in caught.value.remedy
    )
    subject = Subject(
        Recipe(task="question-answering", data=DataSection(train_file="x.json")),
        {"train": rows},
        None,
        None,
    )
    [finding] = [
        finding for finding in check_answers(subject) if finding.code == "answer-off-offset"
    ]
    assert finding.remedy.startswith("All of them count UTF-16 units")
