"""Token classification.

Windows and context, words without pieces, schemes in and out, answers and their layouts.
"""

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from bertctl.config.recipe_sections import DataSection, TokenClassificationSection
from bertctl.config.schema import Recipe
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.metrics.tagging import entities
from bertctl.runtime.batching import Padding
from bertctl.tasks.tagging.tag_formats import FORMATS
from bertctl.tasks.tagging.token_classification import TokenClassification
from bertctl.tasks.tagging.word_windows import IGNORED, WordFeatures, encode_words

CLS = 1
SEP = 2
UNK = 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A BERT tokenizer whose word of n letters has n pieces; capital letters are unknown."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = [
        "[PAD]",
        "[CLS]",
        "[SEP]",
        "[UNK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    made = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return made


def rows_of(
    sentences: list[list[str]], labels: list[list[str]] | None = None, **columns: list[object]
) -> Rows:
    found = {"words": sentences, **columns, **({"label": labels} if labels is not None else {})}
    return Rows(
        "train",
        found,
        [str(i) for i in range(len(sentences))],
        "f",
        [10 * i + 1 for i in range(len(sentences))],
    )


def recipe(**section: object) -> Recipe:
    return Recipe(
        task="token-classification", token_classification=TokenClassificationSection(**section)
    )


def first_pieces(features: WordFeatures, tokenizer: Tokenizer) -> list[str]:
    """The piece at each word's place, in the order of the words.

    It is in the unit that answers for the word.
    """
    found = {}
    for unit in range(len(features)):
        ids = features.encoded.ids[
            features.encoded.starts[unit] : features.encoded.starts[unit + 1]
        ]
        for word in features.prediction_indices(np.array([unit])):
            assert word not in found, "two units answer for a word"
            found[int(word)] = tokenizer.id_to_token(int(ids[features.places[word]]))
    return [found[word] for word in range(features.num_predictions)]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 13), max_size=30), max_size=5),
    st.integers(4, 12),
    st.booleans(),
    st.data(),
)
def test_every_word_is_answered_once_at_its_first_piece(
    tokenizer, lengths, max_length, neighbours, data
):
    sentences = [["abcdefghijklm"[:n] for n in row] for row in lengths]
    documents = data.draw(st.lists(st.integers(0, 1), min_size=len(lengths), max_size=len(lengths)))
    features = encode_words(
        sentences, documents if neighbours else None, tokenizer, max_length=max_length
    )
    words = []
    for sentence in sentences:
        words += sentence
    assert first_pieces(features, tokenizer) == [word[:1] or "[UNK]" for word in words]
    assert (features.lengths <= max_length).all()
    assert (np.diff(features.rows) >= 0).all()
    assert features.weights.sum() == len(words)
    room = max_length - 2
    wanted = [
        (sum(min(max(len(w), 1), room) for w in s), sum(max(0, len(w) - room) for w in s))
        for s in sentences
    ]
    assert [
        (t - 2 if t else 0, lost)
        for t, lost in zip(features.tokens, features.truncated_tokens, strict=True)
    ] == wanted
    assert features.unknown.tolist() == [sum(not w for w in s) for s in sentences]
    for unit, row in enumerate(features.rows):
        assert (
            features.starts[row]
            <= features.first[unit]
            < features.last[unit]
            <= features.starts[row + 1]
        )


def test_in_long_sentences_each_word_is_answered_where_it_has_most_context(tokenizer):
    n = 45
    room = 10
    features = encode_words([["a"] * n], None, tokenizer, max_length=room + 2)
    begins = [
        0,
        5,
        10,
        15,
        20,
        25,
        30,
        35,
    ]  # windows of 10 words, half a window apart; the last one ends with the text
    assert len(features) == len(begins)

    def context(word: int, begin: int) -> float:
        """What is there on the poorer side; where the sentence itself ends, nothing is missing."""
        left = np.inf if begin == 0 else word - begin
        return min(left, np.inf if begin + room == n else begin + room - 1 - word)

    for word in range(n):
        unit = int(np.flatnonzero((features.first <= word) & (word < features.last))[0])
        found = word - (int(features.places[word]) - 1)
        assert found == begins[unit]
        assert context(word, found) == max(context(word, b) for b in begins if b <= word < b + room)


def test_a_sentence_that_fits_is_one_unit_as_the_tokenizer_has_it(tokenizer):
    sentence = ["abc", "de", "f"]
    features = encode_words([sentence], None, tokenizer, max_length=8)
    assert features.encoded.ids.tolist() == tokenizer.encode(sentence, is_pretokenized=True).ids
    assert features.places.tolist() == [1, 4, 6]
    assert len(encode_words([sentence], None, tokenizer, max_length=7)) == 2


def test_neighbours_of_the_document_fill_a_unit_up_and_are_not_answered(tokenizer):
    sentences = [["a", "b"], ["c"], ["d", "e"], ["x"], ["y", "z"]]
    documents = ["one", "one", "one", "two", "two"]

    features = encode_words(sentences, documents, tokenizer, max_length=6)
    without_documents = encode_words(sentences, None, tokenizer, max_length=6)

    texts = []
    starts = features.encoded.starts
    for start, end in itertools.pairwise(starts):
        ids_without_special = features.encoded.ids[start + 1 : end - 1]
        tokens = [tokenizer.id_to_token(int(token_id)) for token_id in ids_without_special]
        texts.append("".join(tokens))
    # Four pieces fit: one on each side of two words; nothing of another document.
    assert texts == ["abcd", "bcde", "bcde", "xyz", "xyz"]
    assert features.weights.tolist() == [2, 1, 2, 1, 2]
    assert first_pieces(features, tokenizer) == list("abcdexyz")
    assert without_documents.lengths.tolist() == [4, 3, 4, 3, 4]
    tokens_of_rows = without_documents.tokens.tolist()
    assert features.tokens.tolist() == tokens_of_rows, "neighbours are not the row's own tokens"


def test_only_whole_words_of_neighbours_are_read(tokenizer):
    features = encode_words([["abc"], ["d"], ["efg"]], [0, 0, 0], tokenizer, max_length=7)
    assert features.lengths.tolist() == [6, 6, 6]


@pytest.mark.parametrize("pad_left", [False, True])
def test_batches_know_their_words_on_both_sides_of_padding(tokenizer, pad_left):
    sentences = [["ab", "c"], ["d"], [], ["e"] * 9]
    unlabelled = encode_words(sentences, None, tokenizer, max_length=8)
    features = replace(unlabelled, labels=np.arange(12))
    indices = np.arange(len(features))[::-1].copy()

    batch = features.collate(indices, Padding(0, left=pad_left, width=9))
    words = features.prediction_indices(indices)

    ids = batch.inputs["input_ids"].numpy()
    mask = batch.inputs["attention_mask"].numpy()
    labels = batch.labels.numpy()
    assert ids.shape == labels.shape == (len(indices), 9)
    assert (mask == (ids != 0)).all()
    assert sorted(words) == list(range(12))
    assert (labels != IGNORED).sum() == 12
    labels_of_words = labels[batch.windows, batch.columns]
    assert labels_of_words.tolist() == words.tolist()
    ids_of_words = ids[batch.windows, batch.columns]
    first_letters = "acd" + "e" * 9
    for word, token_id in zip(words, ids_of_words, strict=True):
        assert tokenizer.id_to_token(int(token_id)) == first_letters[word]


def byte_level(*, add_prefix_space: bool) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(["<s>", "</s>", *alphabet])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), add_prefix_space=add_prefix_space
    )
    return made


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_words_of_byte_level_families_begin_with_their_space(add_prefix_space):
    features = encode_words(
        [["ab", "", "c"]], None, byte_level(add_prefix_space=add_prefix_space), max_length=20
    )
    wanted = byte_level(add_prefix_space=True).encode(["ab", "c"], is_pretokenized=True).tokens
    tokens = [byte_level(add_prefix_space=True).id_to_token(int(i)) for i in features.encoded.ids]
    assert (
        [t for i, t in enumerate(tokens) if i != features.places[1]]
        == wanted
        == ["<s>", "Ġ", "a", "b", "Ġ", "c", "</s>"]
    )


def test_words_are_pieces_as_transformers_has_them(tiny_model: Path):
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(tiny_model)
    ours = Tokenizer.from_str(theirs.backend_tokenizer.to_str())
    sentences = [["The", "film", "was", "dull", "!"], ["it's", "(very)", "3.5", "good"]]
    features = encode_words(sentences, None, ours, max_length=40)
    for unit, sentence in enumerate(sentences):
        encoded = theirs(sentence, is_split_into_words=True)
        a, b = features.encoded.starts[unit : unit + 2]
        assert features.encoded.ids[a:b].tolist() == encoded["input_ids"]
        ids = encoded.word_ids()
        assert features.places[features.prediction_indices(np.array([unit]))].tolist() == [
            ids.index(w) for w in range(len(sentence))
        ]


IOB1 = [["I-PER", "I-PER", "O", "I-LOC", "B-LOC"], ["O"]]
SENTENCES = [["ab", "c", "in", "de", "fg"], ["hi"]]


def fitted(
    tags: list[list[str]], sentences: list[list[str]] = SENTENCES, **section: object
) -> TokenClassification:
    return TokenClassification.from_data(recipe(**section), rows_of(sentences, tags), None)


def outputs_for(task: TokenClassification, tags: list[str]) -> dict[str, np.ndarray]:
    """Logits that answer these tags of the model's, each with a probability of its own."""
    logits = np.zeros((len(tags), len(task.labels)), dtype=np.float32)
    logits[np.arange(len(tags)), [task.labels.index(tag) for tag in tags]] = 3.0 + np.arange(
        len(tags)
    )
    return {"logits": logits}


def test_iob1_is_learned_in_iob2_and_answered_in_iob1(tokenizer):
    rows = rows_of(SENTENCES, IOB1)
    task = fitted(IOB1)
    assert task.scheme == "IOB1"
    assert task.primary_metric == "entity_f1"
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    features = task.encode(rows, tokenizer, max_length=20)
    learned = [task.labels[i] for i in features.labels]
    assert learned == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
    answers = task.decode(outputs_for(task, learned), features, rows)
    assert (
        [answer["prediction"] for answer in answers]
        == IOB1
        == [task.gold(rows, i) for i in range(2)]
    )
    assert [(e["type"], e["start"], e["end"], e["text"]) for e in answers[0]["entities"]] == [
        ("PER", 0, 2, "ab c"),
        ("LOC", 3, 4, "de"),
        ("LOC", 4, 5, "fg"),
    ]
    least = np.exp(3) / (np.exp(3) + 4)
    assert answers[0]["entities"][0]["probability"] == pytest.approx(least, abs=1e-6)
    scores = task.answers.score(
        task.lines(outputs_for(task, learned), features, rows), resamples=100, seed=0
    )
    assert (
        scores["entity_f1"].value
        == scores["accuracy"].value
        == scores["entity_f1:LOC"].value
        == 1.0
    )
    baseline = task.baseline(task.constant_answer(rows), rows)
    assert {name: value for name, value in baseline.items() if ":" not in name} == {
        "accuracy": pytest.approx(1 / 3),
        "entity_precision": 0.0,
        "entity_recall": 0.0,
        "entity_f1": 0.0,
        "entity_f1_macro": 0.0,
        "entity_f1_relaxed": 0.0,
    }


def test_ill_formed_answers_are_read_as_conlleval_reads_them(tokenizer):
    task = fitted(IOB1)
    rows = rows_of(SENTENCES)
    features = task.encode(rows, tokenizer, max_length=20)
    answers = task.decode(
        outputs_for(task, ["I-PER", "I-LOC", "O", "I-LOC", "I-LOC", "B-PER"]), features, rows
    )
    assert answers[0]["prediction"] == ["I-PER", "I-LOC", "O", "I-LOC", "I-LOC"]
    assert [(e["type"], e["start"], e["end"]) for e in answers[0]["entities"]] == [
        ("PER", 0, 1),
        ("LOC", 1, 2),
        ("LOC", 3, 5),
    ]


def test_a_file_in_no_pure_scheme_is_answered_in_iob2():
    mixed = [["I-X", "O", "B-X", "I-X", "O"], ["O"]]
    task = fitted(mixed)
    assert task.scheme == "IOB2"
    assert task.labels == ("O", "B-X", "I-X")
    assert task.gold(rows_of(SENTENCES, mixed), 0) == mixed[0]  # as the file has them


def test_parts_of_speech_are_taken_as_they_are(tokenizer):
    tags = [["NOUN", "VERB", "ADP", "NOUN", "NOUN"], ["INTJ"]]
    task = fitted(tags)
    rows = rows_of(SENTENCES, tags)
    assert task.scheme is None
    assert task.primary_metric == "accuracy"
    assert task.labels == ("ADP", "INTJ", "NOUN", "VERB")
    features = task.encode(rows, tokenizer, max_length=20)
    outputs = outputs_for(task, [*tags[0], "VERB"])

    answers = task.decode(outputs, features, rows)
    lines = task.lines(outputs, features, rows)
    metrics = task.answers.score(lines, resamples=100, seed=0)

    assert answers == [{"prediction": tags[0]}, {"prediction": ["VERB"]}]
    assert list(metrics) == ["accuracy"]
    assert metrics["accuracy"].value == pytest.approx(5 / 6)
    assert task.baseline(task.constant_answer(rows), rows) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    "tags", [IOB1, [["S-X", "O", "B-Y", "I-Y", "E-Y"], ["O"]], [["NOUN"] * 5, ["VERB"]]]
)
def test_the_scheme_survives_in_the_model(tags):
    task = fitted(tags)
    config = json.loads(json.dumps(task.head()))
    assert TokenClassification.from_model(recipe(), config) == task


def test_a_model_that_was_trained_elsewhere_marks_entities_by_its_names():
    config = {"id2label": {"0": "O", "1": "B-MISC", "2": "I-MISC"}}
    assert TokenClassification.from_model(recipe(), config).scheme == "IOB2"


def test_named_labels_keep_their_order():
    order = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC"]
    assert fitted(IOB1, labels=order).labels == tuple(order)
    assert fitted(IOB1, labels=["O", "S-PER", "S-LOC", "S-ORG"]).labels == (
        "O",
        "B-PER",
        "I-PER",
        "B-LOC",
        "I-LOC",
        "B-ORG",
        "I-ORG",
    )
    official = TokenClassification.from_data(recipe(), rows_of(SENTENCES, IOB1), order)
    assert official.labels == tuple(order)


def test_unknown_types_and_tags_are_refused_with_their_word():
    task = fitted(IOB1)
    task.check(rows_of([["x", "y"]], [["S-PER", "S-LOC"]]))  # another scheme is no matter
    with pytest.raises(DataError, match=r"f:1, word 2 \('y'\): .*'LOK' .*'LOC', 'PER'") as caught:
        task.check(rows_of([["x", "y"]], [["O", "B-LOK"]]))
    assert "did you mean LOC" in caught.value.remedy
    assert "`token_classification.labels=" in caught.value.remedy, "the near one need not be meant"
    for stray in ("NN", "LOC"):  # tags that mark no entity would all be scored as O
        with pytest.raises(
            DataError, match=rf"f:1, word 2 \('y'\): the tag '{stray}' is not one the model knows"
        ):
            task.check(rows_of([["x", "y"]], [["O", stray]]))
    with pytest.raises(DataError, match="tag 'VREB'"):
        fitted([["NOUN"] * 5, ["VERB"]]).check(rows_of([["x"]], [["VREB"]]))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([["O"] * 5, ["O"]], "have no entity"),
        ([["NN"] * 5, ["NN"]], "have one tag"),
        ([["O"] * 4, ["O"]], "f:1: .*5 words .*4 tags"),
        ([["O"] * 5, None], "f:11: .*no tags"),
        ([["O", "B-X", "Q-X", "O", "O"], ["O"]], "of no scheme"),
    ],
)
def test_what_cannot_be_learned_is_refused(labels, said):
    with pytest.raises(DataError, match=said):
        fitted(labels)


def test_context_needs_documents(tokenizer):
    with pytest.raises(DataError, match=r"sentences .*document") as caught:
        fitted(IOB1, context="document")
    assert "-DOCSTART-" in caught.value.remedy
    rows = rows_of(SENTENCES, IOB1, document=[0, 0])
    task = TokenClassification.from_data(recipe(context="document"), rows, None)
    features = task.encode(rows, tokenizer, max_length=30)
    assert features.lengths[0] == features.lengths[1]
    assert task.encode(rows_of(SENTENCES, IOB1), tokenizer, max_length=30).lengths[1] == 4, (
        "alone where it has none"
    )


def test_losses_are_sums_over_the_labelled_words(tokenizer):
    import torch
    from torch.nn import functional

    task = fitted(IOB1)
    features = task.encode(rows_of(SENTENCES, IOB1), tokenizer, max_length=20)
    batch = features.collate(np.array([1, 0]), Padding(0))
    torch.manual_seed(1)
    logits = torch.randn(*batch.inputs["input_ids"].shape, len(task.labels))

    losses = task.objective(Padding(0)).window_losses(logits, batch)
    outputs = task.collect_outputs(logits, batch, features, np.array([1, 0]))

    logits_of_words = logits[batch.windows, batch.columns]
    labels_of_words = torch.from_numpy(features.labels[[5, 0, 1, 2, 3, 4]])
    losses_of_words = functional.cross_entropy(logits_of_words, labels_of_words, reduction="none")
    second_sentence = losses_of_words[:1].sum()
    first_sentence = losses_of_words[1:].sum()
    torch.testing.assert_close(losses, torch.stack([second_sentence, first_sentence]))
    assert features.weights.tolist() == [5, 1]
    np.testing.assert_array_equal(outputs["logits"], logits_of_words.numpy())


def answers_to_lines(
    task: TokenClassification, rows: Rows, tokenizer: Tokenizer, tags: list[str]
) -> list[dict]:
    features = task.encode(rows, tokenizer, max_length=20)
    shown = task.answers.columns
    return [
        {
            "id": rows.ids[i],
            **{name: rows.columns[name][i] for name in shown if rows.has(name)},
            **answer,
        }
        for i, answer in enumerate(task.decode(outputs_for(task, tags), features, rows))
    ]


TEXT = "ab  c in de-fg"
LEARNED = ["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC"]


def text_rows() -> Rows:
    words = ["ab", "c", "in", "de", "-", "fg"]
    offsets = [(0, 2), (4, 5), (6, 8), (9, 11), (11, 12), (12, 14)]
    return rows_of([words], text=[TEXT], offsets=[offsets])


def test_entities_of_running_text_know_their_characters(tokenizer):
    (line,) = answers_to_lines(fitted(IOB1), text_rows(), tokenizer, LEARNED)
    entity = line["entities"][0]
    assert entity["start_char"] == 0
    assert entity["end_char"] == 5
    assert entity["text"] == "ab  c"
    for entity in line["entities"]:
        assert TEXT[entity["start_char"] : entity["end_char"]] == entity["text"]
    silent = TokenClassification(fitted(IOB1).labels, "IOB1", context=False, keep_text=False)
    (line,) = answers_to_lines(silent, text_rows(), tokenizer, LEARNED)
    assert all("text" not in entity and "start_char" in entity for entity in line["entities"])


@pytest.mark.parametrize("layout", ["conll", "spacy"])
@pytest.mark.parametrize("rows", [text_rows(), rows_of([["ab", "c d", "in", "de", "-", "\u200b"]])])
def test_answers_in_own_layouts_read_back(tokenizer, tmp_path, layout, rows):
    lines = answers_to_lines(fitted(IOB1), rows, tokenizer, LEARNED)
    out = io.StringIO()
    FORMATS[layout].write(lines, out)
    path = tmp_path / ("a.conll" if layout == "conll" else "a.jsonl")
    path.write_text(out.getvalue(), encoding="utf-8")
    found = (
        READERS["token-classification"].read(path, DataSection(), split="x", label_needed=True).rows
    )
    words = [
        [word.replace(" ", "_") if layout == "conll" else word for word in s]
        for s in rows.columns["words"]
    ]
    assert found.columns["words"] == words
    assert entities(fitted(IOB1).gold(found, 0)) == entities(lines[0]["prediction"])


def test_columns_have_the_tags_scheme_and_the_documents(tokenizer):
    rows = rows_of(SENTENCES, document=[0, 1])
    out = io.StringIO()
    FORMATS["conll"].write(answers_to_lines(fitted(IOB1), rows, tokenizer, LEARNED), out)
    assert out.getvalue() == (
        "-DOCSTART-\tO\n\nab\tI-PER\nc\tI-PER\nin\tO\nde\tI-LOC\nfg\tO\n\n"
        "-DOCSTART-\tO\n\nhi\tI-LOC\n\n"
    )


def test_parts_of_speech_as_spacy_tokens(tokenizer):
    task = fitted([["NOUN"] * 5, ["VERB"]])
    out = io.StringIO()
    FORMATS["spacy"].write(
        answers_to_lines(task, rows_of([["ab", "c"]]), tokenizer, ["NOUN", "VERB"]), out
    )
    found = json.loads(out.getvalue())
    assert found["text"] == "ab c"
    assert found["spans"] == []
    assert [(t["text"], t["start"], t["end"], t["tag"]) for t in found["tokens"]] == [
        ("ab", 0, 2, "NOUN"),
        ("c", 3, 4, "VERB"),
    ]


@pytest.mark.parametrize("layout", ["conll", "spacy"])
def test_layouts_of_words_need_the_words(layout):
    with pytest.raises(UsageError, match="no words"):
        FORMATS[layout].write([{"id": "0", "prediction": ["O"], "entities": []}], io.StringIO())


def test_no_words_at_all(tokenizer):
    task = fitted(IOB1)
    rows = rows_of([[], []])
    features = task.encode(rows, tokenizer, max_length=20)
    assert len(features) == 0
    assert features.num_predictions == 0
    assert task.decode({}, features, rows) == [{"prediction": [], "entities": []}] * 2


@pytest.mark.parametrize(
    ("labels", "marks"),
    [
        (["o", "b-per", "i-per"], ("O", "B-per", "I-per")),
        (["O", "B_PER", "I_PER"], ("O", "B-PER", "I-PER")),
        (["PER-B", "PER-I", "O"], ("B-PER", "I-PER", "O")),
        (["O", "B:PER", "I:PER"], ("O", "B-PER", "I-PER")),
        (["NN", "VB", "X"], ("NN", "VB", "X")),
        (["LABEL_0", "LABEL_1"], ("LABEL_0", "LABEL_1")),
    ],
)
def test_the_tags_of_a_model_trained_elsewhere_are_read_as_schemes_write_them(labels, marks):
    task = TokenClassification.from_model(recipe(), {"id2label": dict(enumerate(labels))})
    assert task.labels == marks
    assert task.scheme == ("IOB2" if "O" in marks else None)


def test_types_of_a_file_get_the_names_of_the_model():
    config = {"id2label": dict(enumerate(["o", "b-per", "i-per"]))}
    rows = rows_of([["anna", "berg", "in"]], [["B-PERSON", "I-PERSON", "O"]])
    with pytest.raises(
        DataError, match="entity type 'PERSON' is not one the model knows"
    ) as caught:
        TokenClassification.from_model(recipe(), config).check(rows)
    assert "`rename_tag=PERSON=NAME`" in caught.value.remedy
    task = TokenClassification.from_model(recipe(rename_tags=["PERSON=per"]), config)
    task.check(rows)
    assert task.gold(rows, 0) == ["B-per", "I-per", "O"]


def test_types_are_merged_and_plain_tags_renamed_for_training():
    train = rows_of([["a", "b", "c"]], [["B-CITY", "B-COUNTRY", "O"]])
    task = TokenClassification.from_data(
        recipe(rename_tags=["CITY=LOC", "COUNTRY=LOC"]), train, None
    )
    assert task.labels == ("O", "B-LOC", "I-LOC")
    plain = rows_of([["a", "b"]], [["NNP", "NN"]])
    task = TokenClassification.from_data(recipe(rename_tags=["NNP=PROPN", "NN=NOUN"]), plain, None)
    assert task.labels == ("NOUN", "PROPN")
