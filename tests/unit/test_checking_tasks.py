"""Faults planted into clean copies of WNUT-17, SQuAD and CODAH.

Each is found, and nothing else is said of the copy.

Every plant changes a copy of the set in memory, and names the code that has to appear. What else
appears must be named too, as what the plant brings along.
"""
# ruff: noqa: ARG005 - a plant changes one of the two splits or both

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertctl.checking.check import check_data, run_checks
from bertctl.checking.findings import Finding
from bertctl.checking.subject import Subject
from bertctl.config.recipe_sections import DataSection, ModelSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows

Row = dict[str, Any]
Plant = Callable[[list[Row], list[Row]], object]


# --- tags: WNUT-17
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tagged(shared_data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str, count: int) -> list[Row]:
        rows: list[Row] = []
        words: list[str] = []
        tags: list[str] = []
        for line in [*(shared_data / "wnut17" / name).read_text(encoding="utf-8").splitlines(), ""]:
            if line.strip():
                word, tag = line.split("\t")
                words.append(word)
                tags.append(tag.strip())
            elif words:
                rows.append({"words": words, "label": tags})
                words = []
                tags = []
        return rows[:count]

    return read("wnut17train.conll", 500), read("emerging.dev.conll", 150)


def _rows(rows: list[Row], split: str) -> Rows:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Rows(
        split,
        columns,
        [str(i) for i in range(len(rows))],
        f"{split}.x",
        [i + 1 for i in range(len(rows))],
    )


def check_rows(task: str, train: list[Row], validation: list[Row]) -> list[Finding]:
    recipe = Recipe(task=task)
    return run_checks(
        Subject(
            recipe, {"train": _rows(train, "train"), "validation": _rows(validation, "validation")}
        )
    )


_CLEAN: dict[str, Counter[tuple[str, str | None]]] = {}
"""By task: what is said of the clean copy, which is the same for all plants."""


def _new(task: str, train: list[Row], validation: list[Row], plant: Plant) -> set[str]:
    """Codes of which a split has more after the plant than before."""
    if task not in _CLEAN:
        _CLEAN[task] = _counts(task, train, validation)
    plant(train, validation)
    return {code for code, _ in _counts(task, train, validation) - _CLEAN[task]}


def _counts(task: str, train: list[Row], validation: list[Row]) -> Counter[tuple[str, str | None]]:
    counts = Counter[tuple[str, str | None]]()
    for finding in check_rows(task, train, validation):
        counts[finding.code, finding.split] = finding.count
    return counts


def _with_offsets(rows: list[Row]) -> None:
    for row in rows:
        row["text"] = " ".join(row["words"])
        ends = [0]
        for word in row["words"]:
            ends.append(ends[-1] + len(word) + 1)
        row["offsets"] = [
            [start, start + len(word)] for start, word in zip(ends, row["words"], strict=False)
        ]
        row["spans"] = [
            {"start": a, "end": b, "label": tag[2:]}
            for (a, b), tag, word in zip(row["offsets"], row["label"], row["words"], strict=True)
            if tag.startswith("B-") and any(map(str.isalnum, word))
        ]


def _span(rows: list[Row]) -> tuple[Row, dict[str, Any]]:
    row = next(
        row
        for row in rows
        if row["spans"] and row["spans"][0]["end"] - row["spans"][0]["start"] > 4
    )
    return row, row["spans"][0]


def _shift_span(rows: list[Row]) -> None:
    _span(rows)[1]["end"] -= 1


def _out_span(rows: list[Row]) -> None:
    row, span = _span(rows)
    span["end"] = len(row["text"]) + 3


def _overlap(rows: list[Row]) -> None:
    row, span = _span(rows)
    row["spans"].append({**span, "label": "creative-work"})


def _space_span(rows: list[Row]) -> None:
    row = next(row for row in rows if len(row["words"]) > 3)
    end = row["offsets"][0][1]
    row["spans"] = [{"start": end, "end": end + 1, "label": "person"}]


def _insert(row: Row, index: int, word: str, tag: str) -> None:
    words = list(row["words"])
    words.insert(index, word)
    tags = list(row["label"])
    tags.insert(index, tag)
    row["words"] = words
    row["label"] = tags


TAG_PLANTS: list[tuple[str, Plant, set[str]]] = [
    ("empty-sentence", lambda t, v: t[5].update(words=[], label=[]), {"empty-text"}),
    ("blank-word", lambda t, v: _insert(t[5], 1, " ", "O"), set()),
    ("space-in-word", lambda t, v: _insert(t[5], 1, "New York", "O"), set()),
    ("tag-scheme", lambda t, v: _insert(t[5], 1, "York", "I-location"), set()),
    ("malformed-tag", lambda t, v: _insert(t[5], 1, "York", "location"), set()),
    ("punctuation-entity", lambda t, v: _insert(t[5], 0, "...", "B-person"), set()),
    ("blank-entity", lambda t, v: _insert(t[5], 0, "\u00a0", "B-person"), {"blank-word"}),
    (
        "rare-label",
        lambda t, v: (_insert(t[5], 0, "Ada", "B-poet"), _insert(v[5], 0, "Bo", "B-poet")),
        set(),
    ),
    ("label-not-in-train", lambda t, v: _insert(v[5], 0, "Ada", "B-poet"), set()),
    (
        "label-only-in-train",
        lambda t, v: [
            row.update(label=["O" if tag.endswith("corporation") else tag for tag in row["label"]])
            for row in v
        ],
        set(),
    ),
    (
        "label-spelling",
        lambda t, v: [_insert(row, 0, "Ada", "B-Person") for row in [*t[:12], *v[:12]]],
        {"near-duplicate"},
    ),
    (
        "no-entity",
        lambda t, v: [row.update(label=["O"] * len(row["words"])) for row in v],
        {"label-only-in-train"},
    ),
    ("duplicate-across-splits", lambda t, v: v.append(t[0]), set()),
    (
        "conflicting-labels",
        lambda t, v: t.append(
            {"words": t[0]["words"], "label": ["B-person", *["O"] * (len(t[0]["words"]) - 1)]}
        ),
        {"duplicate"},
    ),
    ("word-off-offset", lambda t, v: (_with_offsets(t), t[5]["offsets"][1].reverse()), set()),
    ("span-off-word", lambda t, v: (_with_offsets(t), _shift_span(t)), set()),
    ("span-out-of-text", lambda t, v: (_with_offsets(t), _out_span(t)), set()),
    ("overlapping-spans", lambda t, v: (_with_offsets(t), _overlap(t)), set()),
    ("blank-entity", lambda t, v: (_with_offsets(t), _space_span(t)), set()),
]


@pytest.mark.parametrize(
    ("code", "plant", "brings"), TAG_PLANTS, ids=[plant[0] for plant in TAG_PLANTS]
)
def test_planted_into_tags(
    code: str, plant: Plant, brings: set[str], tagged: tuple[list[Row], list[Row]]
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in tagged)
    new = _new("token-classification", train, validation, plant)
    assert code in new
    assert new <= {code, *brings}


def test_what_is_said_of_the_clean_tags_is_true(tagged: tuple[list[Row], list[Row]]) -> None:
    findings = {(f.code, f.split): f for f in check_rows("token-classification", *tagged)}
    # Tweets: HTML entities, invisible characters, other languages and near retweets are there;
    # faults of tags are not.
    assert {code for code, _ in findings} <= {
        "duplicate",
        "near-duplicate",
        "near-duplicate-across-splits",
        "duplicate-across-splits",
        "html-entity",
        "other-script",
        "other-language",
        "invisible-character",
        "no-words",
        "html-tag",
        "mojibake",
        "rare-label",
        "escape-sequence",
        "punctuation-entity",
        "mixed-script-word",
        "conflicting-labels",
    }
    entity = findings.get(("html-entity", "train"))
    if entity is not None:
        assert entity.count == sum(
            "&" in " ".join(row["words"]) and ";" in " ".join(row["words"]) for row in tagged[0]
        )


_WRONG: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "multiple-choice": (
        {"context": "Ada opens it", "choices": ["she reads", "she runs"], "label": 1},
        [{"label": 7}, {"label": None}, {"choices": ["she reads"]}],
    ),
    "question-answering": (
        {
            "question": "Who?",
            "context": "Ada read",
            "answers": {"text": ["Ada"], "answer_start": [0]},
        },
        [
            {"answers": {"text": [" "], "answer_start": [0]}},
            {"answers": {"text": ["Ada"], "answer_start": "a"}},
        ],
    ),
    "token-classification": (
        {"words": ["Ada", "read"], "tags": ["B-PER", "O"]},
        [{"tags": ["B-PER"]}, {"words": "Ada read"}],
    ),
}


@pytest.mark.parametrize("task", _WRONG)
def test_rows_that_readers_refuse_are_all_listed_and_the_others_checked(
    task: Any, tmp_path: Path
) -> None:
    sound, wrong = _WRONG[task]
    lines = [sound, *({**sound, **entry} for entry in wrong), sound]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
    recipe = Recipe(
        task=task, data=DataSection(train_file=str(path)), model=ModelSection(name=str(tmp_path))
    )
    report = check_data(recipe)
    actual = {finding.code: finding for finding in report.findings}
    refused = actual["bad-record"]
    assert refused.severity == "error"
    assert refused.count == len(wrong)
    assert refused.total == len(lines)
    assert [example.where for example in refused.examples] == [
        f"{path}:{i + 2}" for i in range(len(wrong))
    ]
    assert report.splits["train"]["rows"] == 2
    assert "duplicate" in actual


def test_spans_that_readers_refuse_are_all_listed(tmp_path: Path) -> None:
    sound = {"text": "Ada met Bo in Rome", "spans": [{"start": 0, "end": 3, "label": "PER"}]}
    over = {"text": "Ada met Bo in Rome", "spans": [{"start": 14, "end": 18, "label": "LOC"}] * 2}
    out = {"text": "Ada", "spans": [{"start": 1, "end": 9, "label": "PER"}]}
    path = tmp_path / "train.jsonl"
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in (sound, over, out, over, sound)), encoding="utf-8"
    )
    recipe = Recipe(
        task="token-classification",
        data=DataSection(train_file=str(path)),
        model=ModelSection(name=str(tmp_path)),
    )
    actual = {finding.code: finding for finding in check_data(recipe).findings}
    assert actual["unreadable"].severity == "error"
    assert [example.where for example in actual["overlapping-spans"].examples] == [
        f"{path}:2",
        f"{path}:4",
    ]
    assert [example.where for example in actual["span-out-of-text"].examples] == [f"{path}:3"]


def test_one_span_at_fault_is_one_whatever_its_places_are_called(tmp_path: Path) -> None:
    rows = [
        {"text": "Ada met Bo", "spans": [{"begin": 0, "stop": 3, "class": "PER"}]} for _ in range(9)
    ]
    rows[4] = {"text": "Ada", "spans": [{"begin": 0, "stop": 9, "class": "PER"}]}
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recipe = Recipe(
        task="token-classification",
        data=DataSection(train_file=str(path)),
        model=ModelSection(name=str(tmp_path)),
    )
    actual = {finding.code: finding for finding in check_data(recipe).findings}
    assert [example.where for example in actual["span-out-of-text"].examples] == [f"{path}:5"]
    assert actual["span-out-of-text"].count == 1


def test_entities_are_counted_in_plain_english(tmp_path: Path) -> None:
    rows = [{"words": ["Ada", "met", "..."], "tags": ["B-PER", "O", "B-PER"]} for _ in range(9)]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recipe = Recipe(
        task="token-classification",
        data=DataSection(train_file=str(path)),
        model=ModelSection(name=str(tmp_path)),
    )
    actual = {finding.code: finding for finding in check_data(recipe).findings}
    assert actual["punctuation-entity"].message.startswith("9 of 18 entities ")


# --- answers: SQuAD
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def questions(shared_data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str, count: int) -> list[Row]:
        document = json.loads((shared_data / "squad" / name).read_text(encoding="utf-8"))
        return list(_questions(document))[:count]

    return read("train-v1.1.json", 300), read("dev-v1.1.json", 150)


def _questions(document: dict[str, Any]) -> Iterator[Row]:
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = question["answers"]
                label = {
                    "text": [a["text"] for a in answers],
                    "answer_start": [a["answer_start"] for a in answers],
                }
                yield {
                    "question": question["question"],
                    "context": paragraph["context"],
                    "label": label,
                }


def _answer(row: Row, text: str | None = None, start: int | None = None) -> None:
    label = row["label"]
    row["label"] = {
        "text": [label["text"][0] if text is None else text],
        "answer_start": [label["answer_start"][0] if start is None else start],
    }


def _off_by(train: list[Row], by: int) -> None:
    for row in train[::9]:
        _answer(row, start=row["label"]["answer_start"][0] + by)


def _padded(row: Row) -> None:
    start = row["context"].index(" ")
    _answer(row, text=row["context"][start : start + 9].rstrip() or " x", start=start)


ANSWER_PLANTS: list[tuple[str, Plant, set[str]]] = [
    ("answer-off-offset", lambda t, v: _off_by(t, 2), set()),
    ("answer-not-in-context", lambda t, v: _answer(t[5], text="an answer of nobody"), set()),
    (
        "answer-other-case",
        lambda t, v: _answer(t[5], text=t[5]["label"]["text"][0].swapcase()),
        set(),
    ),
    ("untrimmed-answer", lambda t, v: _padded(t[5]), set()),
    (
        "punctuation-answer",
        lambda t, v: _answer(t[5], text=",", start=t[5]["context"].index(",")),
        set(),
    ),
    ("answer-off-word", lambda t, v: _answer(t[5], text=t[5]["context"][1:7], start=1), set()),
    (
        "long-answer",
        lambda t, v: _answer(t[5], text=t[5]["context"][:400].rstrip(), start=0),
        set(),
    ),
    (
        "unanswerable-on-one-side",
        lambda t, v: v[5].update(label={"text": [], "answer_start": []}),
        set(),
    ),
    ("empty-text", lambda t, v: t[5].update(question=" "), set()),
    (
        "context-across-splits",
        lambda t, v: v[5].update(context=t[5]["context"], label=t[5]["label"]),
        set(),
    ),
    ("duplicate", lambda t, v: t.append(t[5]), set()),
    ("duplicate-across-splits", lambda t, v: v.append(t[5]), {"context-across-splits"}),
    (
        "near-duplicate",
        lambda t, v: t.append({**t[5], "question": t[5]["question"].replace("?", " exactly?")}),
        set(),
    ),
]


@pytest.mark.parametrize(
    ("code", "plant", "brings"),
    ANSWER_PLANTS,
    ids=[f"{i}-{plant[0]}" for i, plant in enumerate(ANSWER_PLANTS)],
)
def test_planted_into_answers(
    code: str, plant: Plant, brings: set[str], questions: tuple[list[Row], list[Row]]
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in questions)
    new = _new("question-answering", train, validation, plant)
    assert code in new
    assert new <= {code, *brings}


def test_an_answer_over_a_line_break_is_where_training_finds_it(
    questions: tuple[list[Row], list[Row]],
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in questions)

    def plant(t: list[Row], _: list[Row]) -> None:
        t[5].update(
            context="It was built\n   in 1907.",
            label={"text": ["built in 1907"], "answer_start": [7]},
        )

    assert not _new("question-answering", train, validation, plant)


def test_a_constant_slip_of_the_offsets_is_named(questions: tuple[list[Row], list[Row]]) -> None:
    train, validation = ([dict(row) for row in rows] for rows in questions)
    _off_by(train, 2)
    first = next(
        f
        for f in check_rows("question-answering", train, validation)
        if f.code == "answer-off-offset"
    )
    assert first.severity == "error"
    assert "2 characters earlier" in first.remedy


def test_no_answer_of_squad_is_at_fault(questions: tuple[list[Row], list[Row]]) -> None:
    errors = [f for f in check_rows("question-answering", *questions) if f.severity == "error"]
    assert errors == []


# --- choices: CODAH
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def choices(shared_data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str) -> list[Row]:
        lines = (shared_data / "codah" / name).read_text(encoding="utf-8").splitlines()
        return [
            {"context": fields[1], "choices": fields[2:6], "label": int(fields[6])}
            for fields in (line.split("\t") for line in lines)
        ]

    return read("train.tsv")[:600], read("dev.tsv")[:200]


def _right_longest(row: Row) -> None:
    choices = [choice[:20] for choice in row["choices"]]
    choices[row["label"]] += " and then some more words"
    row["choices"] = choices


CHOICE_PLANTS: list[tuple[str, Plant, set[str]]] = [
    ("number-of-choices", lambda t, v: t[5].update(choices=t[5]["choices"][:3], label=0), set()),
    ("blank-choice", lambda t, v: t[5].update(choices=[*t[5]["choices"][:3], " "]), set()),
    (
        "same-choice-twice",
        lambda t, v: t[5].update(choices=["yes", "No", "no ", "maybe"], label=0),
        set(),
    ),
    (
        "right-choice-twice",
        lambda t, v: t[5].update(choices=["yes", "No", "no ", "maybe"], label=1),
        set(),
    ),
    ("leaky-place", lambda t, v: [row.update(label=0) for row in t[:450]], {"conflicting-labels"}),
    (
        "leaky-length",
        lambda t, v: [_right_longest(row) for row in t],
        {"near-duplicate", "same-choice-twice"},
    ),
]


@pytest.mark.parametrize(
    ("code", "plant", "brings"), CHOICE_PLANTS, ids=[plant[0] for plant in CHOICE_PLANTS]
)
def test_planted_into_choices(
    code: str, plant: Plant, brings: set[str], choices: tuple[list[Row], list[Row]]
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in choices)
    new = _new("multiple-choice", train, validation, plant)
    assert code in new
    assert new <= {code, *brings}


def test_a_good_number_of_kinds_is_planted() -> None:
    codes = set()
    for plants in (TAG_PLANTS, ANSWER_PLANTS, CHOICE_PLANTS):
        codes |= {code for code, _, _ in plants}
    assert len(codes) == 36
