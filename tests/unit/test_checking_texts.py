"""Faults planted into clean copies of SST-2: each is found, and nothing else is said of the copy.

Every plant changes a copy of the set that is then written to files, and names the code that has to
appear. What else appears must be named too, as what the plant brings along.
"""
# ruff: noqa: ARG005 - a plant changes one of the two splits or both

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertctl.checking.check import check_data
from bertctl.checking.findings import Finding
from bertctl.config.recipe_sections import DataSection, ModelSection, TextClassificationSection
from bertctl.config.schema import Recipe

Row = dict[str, Any]
Plant = Callable[[list[Row], list[Row]], object]

LONG = 60  # letters of a sentence that is long enough for near duplicates and languages


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> tuple[list[Row], list[Row]]:
    def read(name: str, count: int) -> list[Row]:
        lines = (
            (shared_data / "sst2-sentences" / name).read_text(encoding="utf-8").splitlines()[:count]
        )
        return [
            {"text": text, "label": ["neg", "pos"][int(label)]}
            for text, label in (x.split("\t") for x in lines)
        ]

    return read("train.tsv", 1000), read("dev.tsv", 300)


def check_files(
    folder: Path,
    train: list[Row],
    validation: list[Row],
    *,
    task: str = "text-classification",
    **recipe: Any,
) -> list[Finding]:
    """Writes both splits as CSV and checks them as the command does.

    It does without a tokenizer unless one is named.
    """
    for name, rows in (("train", train), ("validation", validation)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    data = DataSection(
        train_file=str(folder / "train.csv"), validation_file=str(folder / "validation.csv")
    )
    recipe.setdefault("model", ModelSection(name=str(_no_model(folder))))
    return list(check_data(Recipe(data=data, task=task, **recipe)).findings)


def _no_model(folder: Path) -> Path:
    (folder / "no-model").mkdir(exist_ok=True)
    return folder / "no-model"


def _long(rows: list[Row], nth: int) -> Row:
    long_rows = [row for row in rows if len(row["text"]) > 2 * LONG]
    return long_rows[nth]


def _set(rows: list[Row], index: int, text: str) -> None:
    rows[index]["text"] = text


def _every(rows: list[Row], change: Callable[[int, Row], None]) -> None:
    for i, row in enumerate(rows):
        change(i, row)


def _only(rows: list[Row], label: str, keep: int) -> None:
    """All rows of one label go, but the first few."""
    n_with_label = 0
    retained = []
    for row in rows:
        if row["label"] == label:
            n_with_label += 1
            if n_with_label > keep:
                continue
        retained.append(row)
    rows[:] = retained


def _half(rows: list[Row], index: int) -> str:
    """The first half of a long text: too little of it to be nearly the same."""
    texts = [row["text"].split() for row in rows]
    long_texts = [words for words in texts if len(words) >= 8]
    words = long_texts[index]
    return " ".join(words[: len(words) // 2])


def _cut_off(train: list[Row], validation: list[Row]) -> None:
    long = " ".join(row["text"] for row in train)
    for k in range(8):
        train[k * 9]["text"] = long[k * 3000 : k * 3000 + 280]


def _unbalanced(train: list[Row], validation: list[Row]) -> None:
    _only(train, "pos", 40)
    _only(validation, "pos", 12)


TEXT_PLANTS: list[tuple[str, Plant, set[str]]] = [
    ("missing-label", lambda t, v: t[5].update(label=""), set()),
    ("empty-text", lambda t, v: t[5].update(text="  "), set()),
    ("placeholder-text", lambda t, v: t[5].update(text="NaN"), set()),
    ("no-words", lambda t, v: t[5].update(text="?!"), set()),
    ("text-is-numbers", lambda t, v: _every(t, lambda i, row: row.update(text=str(i * 7))), set()),
    ("cut-off-export", _cut_off, set()),
    (
        "swallowed-rows",
        lambda t, v: t[5].update(text='a "fine film,pos\nand a dull one,neg\nso there'),
        set(),
    ),
    ("duplicate", lambda t, v: t.append({**t[3], "text": t[3]["text"].upper() + " "}), set()),
    (
        "near-duplicate",
        lambda t, v: t.append({**_long(t, 3), "text": "so " + _long(t, 3)["text"]}),
        set(),
    ),
    ("duplicate-across-splits", lambda t, v: v.append(dict(t[3])), set()),
    (
        "contained-across-splits",
        lambda t, v: _every(v[:40], lambda i, row: _set(v, i, _half(t, i))),
        set(),
    ),
    (
        "near-duplicate-across-splits",
        lambda t, v: v.append({**_long(t, 3), "text": _long(t, 3)["text"] + " ok"}),
        set(),
    ),
    (
        "conflicting-labels",
        lambda t, v: t.append(
            {"text": t[3]["text"], "label": "neg" if t[3]["label"] == "pos" else "pos"}
        ),
        {"duplicate"},
    ),
    ("rare-label", lambda t, v: (t[5].update(label="mixed"), v[5].update(label="mixed")), set()),
    ("imbalance", _unbalanced, set()),
    ("label-not-in-train", lambda t, v: v[5].update(label="mixed"), set()),
    ("label-only-in-train", lambda t, v: [row.update(label="mixed") for row in t[::30]], set()),
    (
        "label-spelling",
        lambda t, v: [row.update(label="Pos") for row in [*t[::40], *v[::40]]],
        {"imbalance"},
    ),
    ("label-shift", lambda t, v: _only(v, "pos", 40), set()),
    ("sorted-by-label", lambda t, v: t.sort(key=lambda row: row["label"]), set()),
    ("one-label", lambda t, v: _every(t + v, lambda i, row: row.update(label="pos")), set()),
    (
        "too-many-labels",
        lambda t, v: _every(t, lambda i, row: row.update(label=f"{i}.5")),
        {"label-not-in-train", "label-only-in-train", "label-shift"},
    ),
    ("replacement-character", lambda t, v: t[5].update(text="caf\ufffd and a film"), set()),
    ("control-character", lambda t, v: t[5].update(text="a fine\x08 film"), set()),
    ("invisible-character", lambda t, v: t[5].update(text="a fi\u200bne film"), set()),
    ("html-tag", lambda t, v: t[5].update(text="a fine film<br />and long"), set()),
    ("html-entity", lambda t, v: t[5].update(text="song &amp; dance"), set()),
    ("escape-sequence", lambda t, v: t[5].update(text="a fine film\\n\\nand long"), set()),
    ("csv-quotes", lambda t, v: t[5].update(text='"a ""fine"" film"'), set()),
    ("mojibake", lambda t, v: t[5].update(text="the cafÃ© of the clichÃ©s"), set()),
    ("other-script", lambda t, v: t[5].update(text="Очень хороший фильм, смотрите все"), set()),
    ("mixed-script-word", lambda t, v: t[5].update(text="a f\u0456ne film"), set()),
    (
        "other-language",
        lambda t, v: t[5].update(
            text="Ein sehr schöner Film, den man sich unbedingt mit der ganzen Familie ansehen "
            "sollte, auch zweimal"
        ),
        set(),
    ),
    (
        "leaky-column",
        lambda t, v: _every(t + v, lambda i, row: row.update(source="AB"[row["label"] == "pos"])),
        set(),
    ),
    (
        "leaky-length",
        lambda t, v: _every(
            t, lambda i, row: row["label"] == "pos" and row.update(text=row["text"][:20])
        ),
        {"duplicate", "conflicting-labels"},
    ),
    (
        "leaky-word",
        lambda t, v: _every(
            t, lambda i, row: row["label"] == "pos" and row.update(text=row["text"] + " #ad")
        ),
        set(),
    ),
]


def _codes(findings: list[Finding]) -> set[str]:
    return {finding.code for finding in findings}


def test_the_clean_copy_is_clean(sentences: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    assert check_files(tmp_path, *sentences) == []


@pytest.mark.parametrize(
    ("code", "plant", "brings"), TEXT_PLANTS, ids=[plant[0] for plant in TEXT_PLANTS]
)
def test_planted_into_texts(
    code: str,
    plant: Plant,
    brings: set[str],
    sentences: tuple[list[Row], list[Row]],
    tmp_path: Path,
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in sentences)
    plant(train, validation)
    findings = check_files(tmp_path, train, validation)
    assert code in _codes(findings)
    assert _codes(findings) <= {code, *brings}
    found = next(finding for finding in findings if finding.code == code)
    assert 1 <= found.count <= found.total
    assert all(Path(example.where.rpartition(":")[0]).is_file() for example in found.examples)


@pytest.mark.parametrize(
    "code",
    [
        "missing-label",
        "empty-text",
        "html-tag",
        "mojibake",
        "control-character",
        "other-language",
        "other-script",
    ],
)
def test_the_example_is_the_planted_line(
    code: str, sentences: tuple[list[Row], list[Row]], tmp_path: Path
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in sentences)
    next(plant for name, plant, _ in TEXT_PLANTS if name == code)(train, validation)
    (finding,) = check_files(tmp_path, train, validation)
    assert finding.count == 1
    assert [example.where for example in finding.examples] == [
        f"{tmp_path / 'train.csv'}:7"
    ]  # header, rows 0 to 5


def test_planted_label_that_the_recipe_does_not_name(
    sentences: tuple[list[Row], list[Row]], tmp_path: Path
) -> None:
    train, validation = ([dict(row) for row in rows] for rows in sentences)
    train[5]["label"] = "posi"
    settings = TextClassificationSection(labels=["neg", "pos"])
    findings = check_files(tmp_path, train, validation, text_classification=settings)
    assert (
        {"unknown-label"}
        <= _codes(findings)
        <= {"unknown-label", "rare-label", "label-only-in-train"}
    )
    assert "did you mean pos" in findings[0].message


def test_planted_twins_in_a_pair(sentences: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    pairs = [
        [
            {"text": row["text"], "pair": rows[i - 1]["text"], "label": row["label"]}
            for i, row in enumerate(rows)
        ]
        for rows in sentences
    ]
    assert check_files(tmp_path, *pairs) == []
    pairs[0][5]["pair"] = pairs[0][5]["text"]
    assert _codes(check_files(tmp_path, *pairs)) == {"same-text-twice"}


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("score-not-a-number", lambda rows: rows[5].update(label="high")),
        ("score-far-out", lambda rows: rows[5].update(label="999")),
        ("one-score", lambda rows: _every(rows, lambda i, row: row.update(label="2.5"))),
        (
            "imbalance",
            lambda rows: _every(
                rows, lambda i, row: row.update(label="2.5" if i % 40 else row["label"])
            ),
        ),
    ],
)
def test_planted_into_scores(
    code: str,
    change: Callable[[list[Row]], None],
    sentences: tuple[list[Row], list[Row]],
    tmp_path: Path,
) -> None:
    draw = random.Random(0)  # noqa: S311 - scores, not secrets
    scored = [[{**row, "label": f"{draw.uniform(0, 5):.2f}"} for row in rows] for rows in sentences]
    scored[0][0]["label"] = "0.0"
    scored[0][40]["label"] = "5.0"
    assert check_files(tmp_path, *scored, task="text-regression") == []
    change(scored[0])
    assert code in _codes(check_files(tmp_path, *scored, task="text-regression"))


def _letters_model(folder: Path) -> Path:
    """The tokenizer of a BERT that knows the letters, and no film and no popcorn."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
    folder.mkdir()
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        "fine",
    ]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    return folder


def test_planted_unknown_and_long_texts(
    sentences: tuple[list[Row], list[Row]], tmp_path: Path
) -> None:
    train, validation = ([dict(row) for row in rows[:300]] for rows in sentences)
    train[5]["text"] = "fine " * 900
    for row in validation[::10]:
        row["text"] = "🎬🎬🎬 🍿"
    model = ModelSection(name=str(_letters_model(tmp_path / "letters")), max_length=512)
    findings = {(f.code, f.split): f for f in check_files(tmp_path, train, validation, model=model)}
    assert findings["truncated", "train"].count == 1
    assert findings["truncated", "train"].severity == "note"
    assert findings["unknown-token", "validation"].count >= 30
    assert findings["nothing-known", "validation"].count == 30


def test_planted_broken_records(sentences: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    train, validation = sentences
    check_files(tmp_path, train, validation)
    path = tmp_path / "train.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[4] += ",one,more"
    lines[9] = "no label"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = DataSection(train_file=str(path), validation_file=str(tmp_path / "validation.csv"))
    report = check_data(Recipe(data=data, model=ModelSection(name=str(_no_model(tmp_path)))))
    (finding,) = report.findings
    assert finding.code == "bad-record"
    assert finding.severity == "error"
    assert finding.count == 2
    assert finding.total == 1000
    assert [example.where for example in finding.examples] == [f"{path}:5", f"{path}:10"]
    assert [(split, found["rows"]) for split, found in report.splits.items()] == [
        ("train", 998),
        ("validation", 300),
    ]


def test_planted_broken_json(sentences: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in sentences[0]]
    lines[7] = '{"text": "cut off in the'
    lines[9] = '["a list"]'
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = Recipe(
        data=DataSection(train_file=str(path)), model=ModelSection(name=str(_no_model(tmp_path)))
    )
    (finding,) = check_data(recipe).findings
    assert finding.code == "bad-record"
    assert finding.count == 2
    assert [example.where for example in finding.examples] == [f"{path}:8", f"{path}:10"]


def test_whole_numbers_that_no_float_holds(
    sentences: tuple[list[Row], list[Row]], tmp_path: Path
) -> None:
    lines = [json.dumps({**row, "number": 10**400 + i}) for i, row in enumerate(sentences[0])]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = Recipe(
        data=DataSection(train_file=str(path)), model=ModelSection(name=str(_no_model(tmp_path)))
    )
    assert not check_data(recipe).findings


def test_planted_wrong_encoding(sentences: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    train, validation = ([dict(row) for row in rows] for rows in sentences)
    train[5]["text"] = "le café du coin"
    check_files(tmp_path, train, validation)
    path = tmp_path / "train.csv"
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1", errors="ignore"))
    data = DataSection(train_file=str(path), validation_file=str(tmp_path / "validation.csv"))
    report = check_data(Recipe(data=data, model=ModelSection(name=str(_no_model(tmp_path)))))
    error = report.of("error")[0]
    assert error.code == "unreadable"
    assert "0xe9" in error.message
    assert "latin-1" in error.remedy
    assert "replacement-character" in report.codes()  # and so all of the places are shown


def test_a_good_number_of_kinds_is_planted() -> None:
    assert len({code for code, _, _ in TEXT_PLANTS}) >= 34


def _plain(count: int, text: str = "a fine film number") -> list[Row]:
    return [{"text": f"{text} {i}", "label": "ab"[i % 2]} for i in range(count)]


def _with_tokens(train: list[Row], tmp_path: Path) -> dict[str, Finding]:
    model = ModelSection(name=str(_letters_model(tmp_path / "letters")), max_length=64)
    findings = check_files(tmp_path, train, _plain(2), model=model)
    of_train = [finding for finding in findings if finding.split == "train"]
    return {finding.code: finding for finding in of_train}


@pytest.mark.parametrize(
    ("added", "says"),
    [
        (" \U0001f602 \U0001f380", "They are emoji and signs"),
        (" \u2603 \u20ac", "They are emoji and signs"),
        (" \u2192", "They are emoji and signs"),
        (" \u0436\u0434\u0443", "A cased model, or bert-base-multilingual"),
    ],
)
def test_the_advice_about_unknown_tokens_is_about_what_they_are(
    tmp_path: Path, added: str, says: str
) -> None:
    train = _plain(20)
    for row in train[:10]:
        row["text"] += added
    assert says in _with_tokens(train, tmp_path)["unknown-token"].remedy


@pytest.mark.parametrize(("words", "severity"), [(70, "note"), (900, "warning")])
def test_cut_texts_are_a_warning_where_much_is_lost(
    tmp_path: Path, words: int, severity: str
) -> None:
    train = _plain(60, "fine " * 40)
    for row in train[:2]:
        row["text"] = "fine " * words
    finding = _with_tokens(train, tmp_path)["truncated"]
    assert finding.count == 2
    assert finding.severity == severity


SCRIPTS: list[tuple[list[str], str, str]] = [
    (
        ["a fine film", "ຮູບເງົາດີ", "とても良い", "이 영화는"],
        "warning",
        "are in several scripts: Latin 1, Lao 1",
    ),
    (["a fine film", "бир жакшы", "ຮູບເງົາດີ"], "warning", "Lao 1"),
    (["这部电影很好看"] * 19 + ["plain English words"], "note", "are not in Han letters"),
    (["Очень хороший"] * 19 + ["plain English words"], "note", "are not in Cyrillic letters"),
    (["plain English words"] * 19 + ["ქართული ტექსტი"], "warning", "are not in Latin letters"),
]


@pytest.mark.parametrize(("texts", "severity", "says"), SCRIPTS)
def test_texts_in_other_scripts_are_told_in_one_sentence(
    tmp_path: Path, texts: list[str], severity: str, says: str
) -> None:
    train = [{"text": f"{text} {i}", "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    found = check_files(tmp_path, train, _plain(2))
    [finding] = [each for each in found if (each.code, each.split) == ("other-script", "train")]
    assert says in finding.message
    assert finding.message.count(" of train") == 1
    assert finding.severity == severity
    assert ("Nearly every model reads Latin letters" in finding.remedy) == (severity == "note")
