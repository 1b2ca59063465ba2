"""Question answering in numbers.

Windows, targets, decoding against loops over every pair, thresholds, loss.
"""

import io
import json
import math
import time

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from bertctl.config.recipe_sections import DataSection, ModelSection, QuestionAnsweringSection
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UsageError
from bertctl.inference.evaluate import report_truncation
from bertctl.metrics.squad import answer_f1
from bertctl.runtime.batching import Padding, evaluation_plan
from bertctl.tasks.questions.answer_decoding import best_spans, best_spans_of_arrays
from bertctl.tasks.questions.question_answering import QuestionAnswering
from tests.heard import Heard

TEXTS = (
    "Ada Lindqvist lives in  Rome, near the river; her brother Ben (31) moved to Oslo in "
    "1998.\nThey write often.",
    "Rome",
    "The café “Zur Post” opens at 7:30 — the naïve baker says 😀 it’s early. Zürich is 12 km away, "
    "Oslo is further.",
)
QUESTIONS = (
    "Where does Ada live?",
    "Which town is it?",
    "When does the café open ?",
    "Who moved to Oslo?",
)
PLACES = (0, 1, 2, 0)
ANSWERS = ("Rome", "Rome", "7:30", "her brother Ben")


def _trained(model, trainer, pre_tokenizer, template, special, normalizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator([*TEXTS, *QUESTIONS], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template[0],
        pair=template[1],
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in special],
    )
    return tokenizer


def _bert():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    template = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    model = models.WordPiece(unk_token="[UNK]")
    lower = normalizers.BertNormalizer(lowercase=True)
    return _trained(model, trainer, pre_tokenizers.BertPreTokenizer(), template, special[2:], lower)


def _roberta():
    special = ["<s>", "<pad>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    template = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _trained(models.BPE(), trainer, byte_level, template, ["<s>", "</s>"])


def _xlnet():
    special = ["<unk>", "<pad>", "<sep>", "<cls>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    template = ("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2")
    return _trained(
        models.Unigram(), trainer, pre_tokenizers.Metaspace(), template, ["<sep>", "<cls>"]
    )


KINDS = {"bert": (_bert, False), "roberta": (_roberta, False), "xlnet": (_xlnet, True)}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """A tokenizer, and whether its family pads on the left."""
    make, pad_left = KINDS[request.param]
    return make(), pad_left


def _rows(labelled=True, **changed):
    contexts = [TEXTS[place] for place in PLACES]
    columns = {"question": list(QUESTIONS), "context": contexts}
    if labelled:
        columns["label"] = [
            {"text": [answer], "answer_start": [context.index(answer)]}
            for answer, context in zip(ANSWERS, contexts, strict=True)
        ]
    return Rows("x", columns | changed, ["q1", "q2", "q3", "q4"], "x.json")


def _task(unanswerable=True, threshold=0.0, **settings):
    return QuestionAnswering(QuestionAnsweringSection(**settings), unanswerable, threshold)


def _logits(task, batch, features, indices, seed=0):
    """Scores that are the same for the same window, wherever its tokens stand in the batch."""
    mask = batch.inputs["attention_mask"].numpy()
    logits = np.full((*mask.shape, 2), 50.0, dtype=np.float32)  # padding looks tempting
    for place, unit in enumerate(indices):
        scores = np.random.default_rng([seed, unit]).normal(0, 4, (mask[place].sum(), 2))
        logits[place, mask[place] == 1] = scores
    return torch.from_numpy(logits)


def _outputs(task, features, *, pad_left, batch_size=3, seed=0, width=None):
    outputs = {}
    for first in range(0, len(features), batch_size):
        indices = np.arange(first, min(first + batch_size, len(features)))
        batch = features.collate(indices, Padding(0, left=pad_left, width=width))
        for name, retained in task.collect_outputs(
            _logits(task, batch, features, indices, seed), batch, features, indices
        ).items():
            outputs.setdefault(
                name, np.empty((features.num_predictions, *retained.shape[1:]), retained.dtype)
            )
            outputs[name][features.prediction_indices(indices)] = retained
    return outputs


@pytest.mark.parametrize(("max_length", "stride"), [(384, 128), (30, 7), (24, 100), (26, 1)])
def test_windows_are_those_of_the_library(kind, max_length, stride):
    tokenizer, _ = kind
    task = _task(doc_stride=stride, max_question_length=9)
    features = task.encode(_rows(), tokenizer, max_length=max_length)
    for i, (question, place) in enumerate(zip(QUESTIONS, PLACES, strict=True)):
        requests = tokenizer.encode(question, add_special_tokens=False)
        retained = int(features.questions.lengths[i])
        short = (
            question[: requests.offsets[retained - 1][1]] if retained < len(requests) else question
        )
        room = max_length - features.layout.special - retained
        tokenizer.enable_truncation(
            max_length, stride=room - min(stride, room), strategy="only_second"
        )
        theirs = tokenizer.encode(short, TEXTS[place])
        tokenizer.no_truncation()
        if len(tokenizer.encode(short, add_special_tokens=False)) != retained:
            continue  # a question cut within a word has no text of its own
        expected = [theirs, *theirs.overflowing]
        units = np.flatnonzero(features.rows == i)
        assert len(units) == len(expected)
        batch = features.collate(units, Padding(0))
        for unit, window, ids, types in zip(
            units, expected, batch.inputs["input_ids"], batch.inputs["token_type_ids"], strict=True
        ):
            length = features.lengths[unit]
            assert window.ids == ids[:length].tolist()
            if (
                window is theirs
            ):  # the library's further windows have segments that the template does not give
                assert window.type_ids == types[:length].tolist()


def test_targets_are_the_answers_and_windows_without_them_point_to_cls(kind):
    tokenizer, pad_left = kind
    rows = _rows()
    task = _task(doc_stride=6)
    features = task.encode(rows, tokenizer, max_length=36)
    batch = features.collate(np.arange(len(features)), Padding(0, left=pad_left))
    cls = {
        tokenizer.token_to_id("[CLS]"),
        tokenizer.token_to_id("<s>"),
        tokenizer.token_to_id("<cls>"),
    } - {None}
    answered = set()
    for unit in range(len(features)):
        i = features.rows[unit]
        start, end = batch.labels[unit].tolist()
        if int(batch.inputs["input_ids"][unit, start]) in cls:
            assert start == end
            continue
        offset = int(batch.inputs["attention_mask"][unit].argmax())
        first = features.contexts.tokens.starts[features.context_of[i]] + features.first[unit]
        at = first - features.context_at[unit] - offset
        text = rows.columns["context"][i][
            features.contexts.char_starts[at + start] : features.contexts.char_ends[at + end]
        ]
        assert ANSWERS[i] in text
        assert len(text) <= len(ANSWERS[i]) + 3  # a piece may hold a character more
        answered.add(int(i))
    assert answered == {0, 1, 2, 3}
    assert len(features) > 4


def test_tokens_that_two_windows_share_belong_to_the_one_that_shows_more_around_them(kind):
    tokenizer, _ = kind
    for stride, max_length in ((5, 40), (1, 30), (17, 36)):
        task = _task(doc_stride=stride)
        features = task.encode(_rows(), tokenizer, max_length=max_length)
        most = features.with_most_context(np.arange(len(features)))
        for i in range(4):
            units = np.flatnonzero(features.rows == i)
            length = features.contexts.tokens.lengths[features.context_of[i]]
            for token in range(length):
                best = None
                best_score = None
                for unit in units:  # run_squad.py, _check_is_max_context, in plain words
                    left = token - features.first[unit]
                    right = features.first[unit] + features.counts[unit] - 1 - token
                    if min(left, right) < 0:
                        continue
                    score = min(left, right) + 0.01 * features.counts[unit]
                    if best_score is None or score > best_score:
                        best = unit
                        best_score = score
                holding = [u for u in units if 0 <= token - features.first[u] < features.counts[u]]
                owners = [u for u in holding if most[u, token - features.first[u]]]
                assert owners == [best]


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_best_spans_are_those_of_a_loop_over_all_pairs(longest):
    rng = np.random.default_rng(longest)
    logits = rng.normal(size=(4, 12, 2)).astype(np.float32)
    starts = rng.random((4, 12)) < 0.6
    ends = rng.random((4, 12)) < 0.6
    starts[3] = False
    first, last = best_spans(
        torch.from_numpy(logits),
        torch.from_numpy(starts),
        torch.from_numpy(ends),
        longest=longest,
        n_best=7,
    )
    arrays = best_spans_of_arrays(logits, starts, ends, longest=longest, n_best=7)
    np.testing.assert_array_equal(arrays, (first.numpy(), last.numpy()))
    for row in range(4):
        pairs = [
            (float(logits[row, s, 0] + logits[row, e, 1]), s, e)
            for s in range(12)
            for e in range(s, min(12, s + longest))
            if starts[row, s] and ends[row, e]
        ]
        expected = [(s, e) for _, s, e in sorted(pairs, reverse=True)[:7]]
        actual = [
            (s, e) for s, e in zip(first[row].tolist(), last[row].tolist(), strict=True) if s >= 0
        ]
        assert actual == expected


def test_answers_are_those_of_a_loop_over_all_windows_and_pairs(kind):
    tokenizer, pad_left = kind
    rows = _rows(labelled=False)
    task = _task(doc_stride=6, max_answer_length=4, n_best=6)
    features = task.encode(rows, tokenizer, max_length=34)
    lines = task.decode(_outputs(task, features, pad_left=pad_left), features, rows)
    for row, line in enumerate(lines):
        best, null_score = _best_by_loop(features, rows, row, pad_left=pad_left)
        ranked_texts = sorted(best, key=lambda text: -best[text])
        best_text = ranked_texts[0]

        assert line["null_odds"] == pytest.approx(null_score - best[best_text], abs=1e-4)
        assert line["prediction"] == ("" if line["null_odds"] > 0 else best_text)
        texts = [entry["text"] for entry in line["n_best"]]
        assert texts.count("") == 1
        texts.remove("")
        assert texts == ranked_texts[: len(texts)]
        if len(ranked_texts) >= 20:  # equal texts may leave fewer than n_best
            assert len(texts) == 5
        probabilities = [entry["probability"] for entry in line["n_best"]]
        assert sum(probabilities) == pytest.approx(1)
        if line["prediction"]:
            start = line["start"]
            end = start + len(line["prediction"])
            assert rows.columns["context"][row][start:end] == line["prediction"]


def _best_by_loop(features, rows, row, *, pad_left):
    """Returns the best score of each text of a row's context, and the lowest one of no answer."""
    best = {}
    null_score = math.inf
    context = rows.columns["context"][row]
    context_start = features.contexts.tokens.starts[features.context_of[row]]
    has_most_context = features.with_most_context(np.arange(len(features)))
    for window in np.flatnonzero(features.rows == row):
        n_tokens = features.lengths[window]
        rng = np.random.default_rng([0, window])
        scores = rng.normal(0, 4, (n_tokens, 2)).astype(np.float32)
        cls = n_tokens - 1 if pad_left else 0
        null_score = min(null_score, float(scores[cls].sum()))

        offset = features.context_at[window]
        n_context_tokens = features.counts[window]
        first_token = context_start + features.first[window]
        for start in range(n_context_tokens):
            if not has_most_context[window, start]:
                continue
            for end in range(start, min(start + 4, n_context_tokens)):
                char_start = features.contexts.char_starts[first_token + start]
                char_end = features.contexts.char_ends[first_token + end]
                text = context[char_start:char_end].strip()
                score = float(scores[offset + start, 0] + scores[offset + end, 1])
                if text:
                    best[text] = max(best.get(text, -math.inf), score)
    return best, null_score


def test_padding_and_batch_size_change_nothing(kind):
    tokenizer, pad_left = kind
    rows = _rows(labelled=False)
    task = _task(doc_stride=6)
    features = task.encode(rows, tokenizer, max_length=34)
    text = task.decode(_outputs(task, features, pad_left=pad_left, batch_size=1), features, rows)
    assert text == task.decode(
        _outputs(task, features, pad_left=pad_left, batch_size=9, width=50), features, rows
    )


def test_without_unanswerable_questions_in_training_there_is_always_an_answer():
    tokenizer = _bert()
    rows = _rows(labelled=False)
    task = _task(unanswerable=False, threshold=-1e9)
    features = task.encode(rows, tokenizer, max_length=384)
    outputs = _outputs(task, features, pad_left=False)
    outputs["null"] += 100
    for line in task.decode(outputs, features, rows):
        assert line["prediction"]
        assert all(entry["text"] for entry in line["n_best"])
        assert line["null_odds"] > 0
    silent = _task().decode(outputs, features, rows)
    assert [line["prediction"] for line in silent] == [""] * 4
    assert all(line["probability"] > 0.99 and line["start"] is None for line in silent)


def test_a_context_without_tokens_has_no_answer():
    rows = _rows(labelled=False, context=["\u200b", *[TEXTS[place] for place in PLACES[1:]]])
    tokenizer = _bert()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace("\u200b", ""), tokenizer.normalizer]
    )
    for task in (_task(), _task(unanswerable=False)):
        features = task.encode(rows, tokenizer, max_length=384)
        line = task.decode(_outputs(task, features, pad_left=False), features, rows)[0]
        assert line["prediction"] == ""
        assert line["probability"] == 1.0
        assert line["n_best"][0]["text"] == ""
        json.dumps(line, allow_nan=False)


def test_the_loss_is_the_mean_of_two_cross_entropies_and_padding_takes_no_part(kind):
    tokenizer, pad_left = kind
    task = _task(doc_stride=6)
    features = task.encode(_rows(), tokenizer, max_length=34)
    indices = np.arange(len(features))
    batch = features.collate(indices, Padding(0, left=pad_left, width=40))
    logits = _logits(task, batch, features, indices)
    losses = task.objective(Padding(0)).window_losses(logits, batch)
    for unit in indices:
        real = batch.inputs["attention_mask"][unit].bool()
        by_hand = 0.0
        for side in (0, 1):
            scores = logits[unit, :, side].double()
            target = scores[batch.labels[unit, side]]
            by_hand += float(torch.logsumexp(scores[real], 0) - target) / 2
        assert float(losses[unit]) == pytest.approx(by_hand, rel=1e-5)


def _misplaced():
    labels = _rows().columns["label"]
    return _rows(label=[labels[0], labels[1], {"text": ["7:30"], "answer_start": [5]}, labels[3]])


def test_an_answer_that_is_not_at_its_offset_is_refused_with_its_id():
    recipe = Recipe(task="question-answering")
    message = r"x.json, row 3 \(id 'q3'\): .*'7:30' .*offset 5.*29"
    with pytest.raises(DataError, match=message) as caught:
        QuestionAnswering.from_data(recipe, _misplaced(), None).check(_misplaced())
    assert "misplaced_answers=leave-out" in caught.value.remedy
    with pytest.raises(DataError, match=message):
        _task().check(_misplaced())
    missing = _rows(label=[{"text": ["Paris"], "answer_start": [-1]}] * 4)
    with pytest.raises(DataError, match=r"'Paris' .*context \(4 questions of 4 "):
        _task().check(missing)
    beyond = _rows(label=[{"text": ["Paris"], "answer_start": [999]}] * 4)
    with pytest.raises(DataError, match="999"):
        _task().check(beyond)


def test_or_it_is_counted_and_left_out_of_the_loss():
    recipe = Recipe(
        task="question-answering", question_answering={"misplaced_answers": "leave-out"}
    )
    task = QuestionAnswering.from_data(recipe, _misplaced(), None)
    assert "1 with an answer that is not at its offset" in task.describe(_misplaced())
    assert "offset" not in task.describe(_rows())
    features = task.encode(_misplaced(), _bert(), max_length=384)
    assert features.weights.tolist() == [1, 1, 0, 1]
    batch = features.collate(np.arange(4), Padding(0, left=True))
    losses = task.objective(Padding(0)).window_losses(
        _logits(task, batch, features, range(4)), batch
    )
    assert (losses == 0).tolist() == [False, False, True, False]
    assert task.gold(_misplaced(), 2) == ["7:30"]  # it is scored all the same


def test_blanks_that_differ_do_not_misplace_an_answer():
    label = {"text": [" lives in Rome,\nnear"], "answer_start": [13]}
    rows = _rows(label=[label] * 4, context=[TEXTS[0]] * 4)
    task = _task()
    task.check(rows)
    features = task.encode(rows, _bert(), max_length=384)
    start, end = features.targets[0] - features.context_at[0]
    shelf = features.contexts
    assert TEXTS[0][shelf.char_starts[start] : shelf.char_ends[end]] == "lives in  Rome, near"


def test_long_questions_are_cut_at_the_end_and_counted():
    tokenizer = _bert()
    task = _task(max_question_length=4)
    features = task.encode(_rows(), tokenizer, max_length=384)

    question_ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in QUESTIONS]
    assert features.truncated_tokens.tolist() == [len(ids) - 4 for ids in question_ids]
    batch = features.collate(np.array([0]), Padding(0))
    first_ids = batch.inputs["input_ids"][0]
    assert first_ids[1:5].tolist() == question_ids[0][:4]
    n_special = 3
    expected_tokens = []
    for place in PLACES:
        context = tokenizer.encode(TEXTS[place], add_special_tokens=False)
        expected_tokens.append(n_special + 4 + len(context))
    assert features.tokens.tolist() == expected_tokens
    with pytest.raises(UsageError, match="no room"):
        task.encode(_rows(), _roberta(), max_length=4)


def _scored(odds, texts, gold):
    """Outputs of one window each, with these null odds.

    Their best answer is a word of its context.
    """
    rows = Rows(
        "x",
        {
            "question": ["Where ?"] * len(texts),
            "context": texts,
            "label": [{"text": g, "answer_start": [0] * len(g)} for g in gold],
        },
        [str(i) for i in range(len(texts))],
        "x",
    )
    outputs = {
        "spans": np.zeros((len(texts), 1, 2), dtype=np.int32),
        "scores": np.zeros((len(texts), 1, 2), dtype=np.float32),
        "null": np.array([[odd / 2, odd / 2] for odd in odds], dtype=np.float32),
    }
    return rows, outputs


def test_the_threshold_is_chosen_for_f1_and_applied():
    texts = ["Rome", "Oslo", "Ada", "Ben", "river"]
    gold = [["Rome"], ["Oslo"], [], ["Ben"], []]
    rows, outputs = _scored([-4.0, 1.0, 2.0, 4.0, 6.0], texts, gold)
    task = _task()
    features = task.encode(rows, _bert(), max_length=384)
    outputs["spans"][:, 0, 1] = features.contexts.tokens.lengths - 1
    untuned_lines = task.lines(outputs, features, rows)
    untuned = task.answers.score(untuned_lines, resamples=100, seed=0)
    assert untuned["f1"].value == pytest.approx(3 / 5)  # 0.0: only the first is answered

    decision = task.tune(outputs, features, rows)
    tuned_task = task.with_decision(decision)

    assert decision == {"null_threshold": 1.5}
    tuned_lines = tuned_task.lines(outputs, features, rows)
    tuned = tuned_task.answers.score(tuned_lines, resamples=100, seed=0)
    assert tuned["f1"].value == pytest.approx(4 / 5)
    answers = tuned_task.decode(outputs, features, rows)
    f1_of_rows = []
    for answer, gold_texts in zip(answers, gold, strict=True):
        f1_of_rows.append(answer_f1(answer["prediction"], gold_texts))
    assert tuned["f1"].value == pytest.approx(np.mean(f1_of_rows))
    assert tuned["best_f1"].value >= tuned["f1"].value
    assert tuned_task.with_decision({}) is tuned_task
    assert _task(unanswerable=False).tune(outputs, features, rows) == {}


def test_no_threshold_is_chosen_where_all_questions_have_answers():
    task = _task()
    rows, outputs = _scored([1.0, 2.0], ["Rome", "Oslo"], [["Rome"], ["Oslo"]])
    features = task.encode(rows, _bert(), max_length=384)

    assert task.tune(outputs, features, rows) == {}


def test_the_baseline_answers_nothing():
    rows, _ = _scored([0.0] * 4, ["Rome", "Oslo", "Ada", "Ben"], [["Rome"], [], [], []])
    baseline = _task().baseline(_task().constant_answer(rows), rows)
    assert baseline["f1"] == 0.75
    assert baseline["has_answer_f1"] == 0.0
    assert baseline["no_answer_f1"] == 1.0


def test_the_models_config_says_whether_it_has_learned_to_be_silent():
    recipe = Recipe(task="question-answering")
    for without, unanswerable in (([], False), ([{"text": [], "answer_start": []}], True)):
        labels = [*_rows().columns["label"][: 4 - len(without)], *without]
        task = QuestionAnswering.from_data(recipe, _rows(label=labels), None)
        head = task.head()
        assert task.unanswerable == unanswerable
        assert head["num_labels"] == 2
        saved = {"id2label": {str(number): name for number, name in head["id2label"].items()}}
        assert QuestionAnswering.from_model(recipe, saved) == task


def test_official_files_are_written():
    lines = [
        {
            "id": "a",
            "prediction": "Zürich",
            "null_odds": -2.5,
            "n_best": [{"text": "Zürich", "probability": 1.0}],
        },
        {
            "id": "b",
            "prediction": "",
            "null_odds": 3.0,
            "n_best": [{"text": "", "probability": 1.0}],
        },
    ]
    squad = QuestionAnswering.formats["squad"]
    written = {}
    for name, write in {"main": squad.write, **squad.extra}.items():
        out = io.StringIO()
        write(iter(lines), out)
        written[name] = json.loads(out.getvalue())
    assert written["main"] == {"a": "Zürich", "b": ""}
    assert written[".null_odds.json"] == {"a": -2.5, "b": 3.0}
    assert written[".nbest.json"]["a"][0]["text"] == "Zürich"


@pytest.mark.slow
def test_the_complete_development_set_is_decoded_in_seconds(shared_data):
    """10,570 questions after the forward passes.

    Here with random scores, 5 s on two quiet cores.
    """
    from bertctl.modeling.source import inspect_model
    from bertctl.tokenization.reference import load_tokenizer

    section = DataSection(name="squad", data_dir=str(shared_data))
    rows = load_data(Recipe(task="question-answering", data=section), splits=["validation"]).splits[
        "validation"
    ]
    source = inspect_model(ModelSection(name="minilm"))
    tokenizer = load_tokenizer((source.folder / "tokenizer.json").read_text())
    task = _task()
    features = task.encode(rows, tokenizer, max_length=384)
    batches = []
    for indices in evaluation_plan(features.lengths, 64):
        batch = features.collate(indices, Padding(0))
        batches.append((indices, batch, torch.randn(*batch.inputs["input_ids"].shape, 2)))
    started = time.perf_counter()
    outputs = {}
    for indices, batch, logits in batches:
        for name, retained in task.collect_outputs(logits, batch, features, indices).items():
            outputs.setdefault(
                name, np.empty((features.num_predictions, *retained.shape[1:]), retained.dtype)
            )[indices] = retained
    assert len(task.decode(outputs, features, rows)) == 10_570
    assert time.perf_counter() - started < 20


@pytest.mark.parametrize(("stride", "is_said"), [(6, False), (128, True)])
def test_windows_between_which_an_answer_is_lost_are_said(stride, is_said):
    """A stride may be larger than the room beside a question.

    Its windows were called overlapping.
    """
    features = _task(doc_stride=stride).encode(_rows(), _bert(), max_length=30)
    ends = {
        (row, first + n)
        for row, first, n in zip(features.rows, features.first, features.counts, strict=True)
    }
    seams = sum(
        (row, first) in ends for row, first in zip(features.rows, features.first, strict=True)
    )
    assert (seams > 0) == is_said
    assert features.seams == seams
    listener = Heard()
    recipe = Recipe(
        task="question-answering",
        model=ModelSection(name="x", max_length=30),
        question_answering=QuestionAnsweringSection(doc_stride=stride),
    )
    report_truncation("train", features, _task(doc_stride=stride), recipe, listener)
    assert (
        any(
            f"{seams} windows of 30 tokens begin where the one before ends" in message
            for message in listener.warned
        )
        == is_said
    )
