"""`bertctl data check` as a process.

Exit codes, the three outputs, what it refuses, and that torch stays away.
"""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.nursery import Nursery

pytestmark = pytest.mark.in_process


def write(path: Path, rows: list[tuple[str, str]], header: str = "text,label") -> Path:
    path.write_text(
        "\n".join([header, *(f"{text},{label}" for text, label in rows)]) + "\n", encoding="utf-8"
    )
    return path


def rows(start: int, stop: int) -> list[tuple[str, str]]:
    """Texts of unlike made-up words: no two of them are near each other."""
    syllables = ("ka", "lo", "mi", "ren", "tas", "vel", "dor", "pin", "sul", "gar", "mon", "tek")
    results = []
    for i in range(start, stop):
        words = []
        for k in range(1, 9):
            number = (i + 3) ** 3 * k * k + 7 * k * (i + 1) ** 2
            first = syllables[number % 12]
            second = syllables[number // 13 % 12]
            third = syllables[number // 171 % 12]
            words.append(first + second + third)
        label = "pos" if i % 2 else "neg"
        results.append((" ".join(words), label))
    return results


@pytest.fixture
def clean(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "train.csv", rows(0, 30)), write(
        tmp_path / "validation.csv", rows(41, 55)
    )


def test_clean_files_exit_0(bertctl, clean) -> None:
    done = bertctl("data", "check", *clean, "--model", "none/such", "--offline")
    assert done.returncode == 0, done.stderr
    assert "nothing to complain about" in done.stdout
    assert "not checked: " in done.stderr
    (clean[0].parent / "pairs.csv").write_text(
        "sentence1,sentence2,score\na film,a movie,1.5\nfood,a bore,4.5\n"
    )
    pairs = bertctl(
        "data",
        "check",
        "pairs.csv",
        "--task",
        "sentence-embeddings",
        "--model",
        "none/such",
        "--offline",
    )
    assert pairs.returncode in (0, 3), pairs.stderr
    assert "pairs.csv" in pairs.stdout


def test_warnings_exit_0_and_with_strict_3(bertctl, clean) -> None:
    train, validation = clean
    write(train, [*rows(0, 30), (rows(41, 42)[0][0], "neg")])
    done = bertctl("data", "check", train, validation, "--model", "none/such", "--offline")
    assert done.returncode == 0
    assert "warning duplicate-across-splits: 1 of 14 rows (7.1 %)" in done.stdout
    assert "validation.csv:2: " in done.stdout
    assert "→ " in done.stdout
    strict = bertctl(
        "data", "check", train, validation, "--model", "none/such", "--offline", "--strict"
    )
    assert strict.returncode == 3
    assert "duplicate-across-splits, conflicting-labels" in strict.stderr


def test_errors_exit_3_after_everything_was_said(bertctl, clean) -> None:
    train, validation = clean
    write(train, [*rows(0, 30), ("a row without its label", ""), ("caf\ufffd", "pos")])
    done = bertctl(
        "data", "check", train, validation, "--model", "none/such", "--offline", "--json"
    )
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["counts"] == {"error": 1, "warning": 1, "note": 0}
    assert [f["code"] for f in document["findings"]] == ["missing-label", "replacement-character"]
    missing = document["findings"][0]
    assert missing["severity"] == "error"
    assert missing["split"] == "train"
    assert missing["count"] == 1
    assert missing["total"] == 32
    assert missing["examples"][0]["where"].endswith("train.csv:32")
    assert document["splits"]["train"]["rows"] == 32
    assert len(document["skipped"]) == 1
    assert "1 error: missing-label" in done.stderr


def test_what_readers_refuse_is_a_finding_and_the_rest_goes_on(bertctl, clean) -> None:
    train, validation = clean
    validation.write_text(validation.read_text() + "one,field,too many\n")
    done = bertctl(
        "data", "check", train, validation, "--model", "none/such", "--offline", "--json"
    )
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert [f["code"] for f in document["findings"]] == ["bad-record"]
    assert document["splits"]["train"]["rows"] == 30
    assert document["splits"]["validation"]["rows"] == 14


def test_a_missing_column_is_a_finding(bertctl, clean) -> None:
    done = bertctl("data", "check", *clean, "--label-column", "labels", "--offline", "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert {f["code"] for f in document["findings"]} == {"unreadable"}
    assert "column 'labels': did you mean label?" in document["findings"][0]["message"]


def test_junit_github_and_gitlab(bertctl, clean, tmp_path: Path) -> None:
    write(
        clean[0],
        [*rows(0, 30), ("no label here", ""), ("a <script>alert(1)</script> & more", "pos")],
    )
    summary = tmp_path / "summary.md"
    junit = tmp_path / "junit.xml"
    quality = tmp_path / "quality.json"
    done = bertctl(
        "data",
        "check",
        "train.csv",
        "validation.csv",
        "--model",
        "none/such",
        "--offline",
        "--junit",
        junit,
        "--gitlab-codequality",
        quality,
        env={"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)},
    )
    assert done.returncode == 3
    assert "::error file=train.csv,line=32,title=missing-label train::1 of 32 rows" in done.stderr
    assert "::warning file=train.csv,line=33,title=html-tag train::" in done.stderr
    assert "missing-label" in summary.read_text()
    suite = ElementTree.parse(junit).getroot().find("testsuite")  # noqa: S314 - our own file
    assert suite is not None
    cases = {
        case.get("name"): case.find("failure") is not None for case in suite.findall("testcase")
    }
    assert (
        cases.items()
        >= {"rows": False, "missing-label train": True, "html-tag train": False}.items()
    )
    assert [name for name, failed in cases.items() if failed] == ["missing-label train"]
    assert {"duplicate", "leaky-word", "bad-record"} < set(cases), (
        "what was looked for and not found passes"
    )
    assert not {"missing-label", "truncated", "overlapping-spans"} & set(cases), (
        "found, without a tokenizer, of others"
    )
    assert "leaky-word" not in summary.read_text()
    assert {
        issue["check_name"]: issue["location"]["path"] for issue in json.loads(quality.read_text())
    } == {
        "bertctl/missing-label train": "train.csv",
        "bertctl/html-tag train": "train.csv",
    }


def _findings(bertctl, *arguments: object, code: int = 0) -> dict[str, dict[str, Any]]:
    done = bertctl("data", "check", *arguments, "--json")
    assert done.returncode == code, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert len({(finding["code"], finding["split"]) for finding in findings}) == len(findings), (
        "each is said once"
    )
    return {finding["code"]: finding for finding in findings}


def test_as_many_labels_as_rows_are_fine_where_each_row_has_several(
    bertctl, tmp_path: Path
) -> None:
    chosen = ["|".join(f"name {(7 * i + k) % 60}" for k in range(3)) for i in range(60)]
    write(tmp_path / "train.csv", [(f"text number {i}", labels) for i, labels in enumerate(chosen)])
    separated = ("--set", "text_classification.label_separator=|")
    assert not {"too-many-labels", "refused"} & set(
        _findings(bertctl, "train.csv", "--model", "none/such", *separated)
    )


def test_several_labels_in_one_field_are_a_separator_and_not_many_labels(
    bertctl, tmp_path: Path
) -> None:
    names = ["joy", "fear", "anger", "love", "hope", "pride", "grief"]
    chosen = [[name for k, name in enumerate(names) if i >> k & 1] for i in [*range(1, 128)] * 3]
    write(
        tmp_path / "train.csv",
        [(f"{' '.join(reversed(some))} and {i}", "|".join(some)) for i, some in enumerate(chosen)],
    )
    findings = _findings(bertctl, "train.csv", "--model", "none/such")
    assert "127 labels, or 7 with it between" in findings["several-labels-in-one"]["message"]
    assert "label_separator='|'" in findings["several-labels-in-one"]["remedy"]
    assert not {"too-many-labels", "rare-label"} & set(findings)
    write(tmp_path / "train.csv", [(f"text {i}", ["a", "b", "a "][i % 3]) for i in range(20)])
    assert "several-labels-in-one" not in _findings(bertctl, "train.csv", "--model", "none/such")
    separated = ("--set", "text_classification.label_separator=|")
    write(
        tmp_path / "train.csv",
        [("one text", "joy|fear"), ("one text", "fear"), *(("x", n) for n in names)],
    )
    findings = _findings(bertctl, "train.csv", "--model", "none/such", *separated)
    assert "several-labels-in-one" not in findings
    assert "Decide on one label" in findings["conflicting-labels"]["remedy"]
    assert "multi_label" not in findings["conflicting-labels"]["remedy"], "it is multi-label"


def test_another_language_than_the_vocabularys_is_told(bertctl, tmp_path: Path) -> None:
    german = (
        "Die Regierung hat gestern beschlossen dass die Steuern für Arbeiter im nächsten Jahr "
        "steigen {}"
    )
    write(tmp_path / "train.csv", [(german.format(i), ["a", "b"][i % 2]) for i in range(20)])
    findings = _findings(bertctl, "train.csv")
    assert (
        "are not a single token to bert-base, such as 'beschlossen'"
        in findings["words-in-pieces"]["message"]
    )
    assert "bert-base-multilingual" in findings["words-in-pieces"]["remedy"]
    write(
        tmp_path / "train.csv",
        [(f"the government decided yesterday to raise taxes {i}", "ab"[i % 2]) for i in range(20)],
    )
    assert "words-in-pieces" not in _findings(bertctl, "train.csv")


def test_a_copy_of_train_is_an_error_and_words_that_give_labels_away_are_one_finding(
    bertctl, tmp_path: Path
) -> None:
    rows = [(f"sign{i % 11} and {i * 7919 % 1000} more", f"class{i % 11}") for i in range(330)]
    write(tmp_path / "train.csv", rows)
    findings = _findings(bertctl, "train.csv", "train.csv", "--model", "none/such", code=3)
    assert findings["duplicate-across-splits"]["severity"] == "error"
    assert "rows of their own for validation" in findings["duplicate-across-splits"]["remedy"]
    assert (
        findings["leaky-word"]["message"]
        == "11 of 11 labels (100.0 %) can be predicted from a single word of the text"
    )
    assert len(findings["leaky-word"]["examples"]) == 11
    write(
        tmp_path / "dev.csv",
        [*rows[:30], *((f"sign{i % 11} or {i} less", f"class{i % 11}") for i in range(30))],
    )
    findings = _findings(bertctl, "train.csv", "dev.csv", "--model", "none/such")
    assert findings["duplicate-across-splits"]["severity"] == "warning"


@pytest.mark.parametrize(
    ("text", "written", "read", "says"),
    [
        ("Zürich \u201ewar\u201c {}", "cp1252", "latin-1", "--encoding cp1252."),
        ("a \x93 in UTF-8 {}", "utf-8", "utf-8", "Take them out."),
        ("Zürich \u201ewar\u201c {}", "cp1252", "", "add --encoding cp1252"),
        ("Zürich war {}", "latin-1", "", "add --encoding latin-1"),
        ("Привет мир {}", "cp1251", "", "add --encoding cp1251"),
    ],
)
def test_an_encoding_is_advised_where_it_helps(
    text, written, read, says, bertctl, tmp_path: Path
) -> None:
    lines = ["text,label", *(f"{text.format(i)},{'ab'[i % 2]}" for i in range(20))]
    (tmp_path / "train.csv").write_bytes("\n".join(lines).encode(written))
    how = ("--encoding", read) if read else ()
    findings = _findings(bertctl, "train.csv", "--model", "none/such", *how, code=0 if read else 3)
    assert (
        findings["control-character" if read else "unreadable"]["remedy"]
        .partition(", such as")[0]
        .endswith(says)
    )


def test_a_damaged_byte_in_utf8_is_no_other_encoding(bertctl, tmp_path: Path) -> None:
    lines = [f"Zürich für Öl {i},{'ab'[i % 2]}".encode() for i in range(20)]
    (tmp_path / "train.csv").write_bytes(
        b"\n".join([b"text,label", *lines[:10], b"caf\xe2\x80,a", *lines[10:]])
    )
    findings = _findings(bertctl, "train.csv", "--model", "none/such", code=3)
    assert "Line 12 alone is not UTF-8; 20 other lines" in findings["unreadable"]["remedy"]
    assert "--encoding" not in findings["unreadable"]["remedy"]


def test_utf8_that_is_read_as_another_encoding_is_an_error(bertctl, tmp_path: Path) -> None:
    lines = ["text,label", *(f"Zürich \u201ewar\u201c {i},{'ab'[i % 2]}" for i in range(20))]
    (tmp_path / "train.csv").write_text("\n".join(lines), encoding="utf-8")
    findings = _findings(
        bertctl, "train.csv", "--model", "none/such", "--encoding", "latin-1", code=3
    )
    assert "is UTF-8, and is read as latin-1" in findings["unreadable"]["message"]
    assert "--encoding utf-8" in findings["unreadable"]["remedy"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"anna B-PER\n\nbonn B-LOC\nist O gut\n", "a.conll:4: 3 columns where the file has 2"),
        ("anna B-PER\nK\xf6ln B-LOC\n".encode("latin-1"), "add --encoding latin-1"),
    ],
)
def test_a_faulty_file_of_columns_is_not_said_to_have_a_wrong_suffix(
    content, says, bertctl, tmp_path: Path
) -> None:
    (tmp_path / "a.conll").write_bytes(content)
    result = bertctl("data", "check", "a.conll")
    assert result.returncode == 3, result.stderr
    assert says in result.stderr


def test_a_recipe_and_its_file(bertctl, clean, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "task: text-classification\ndata: {train_file: train.csv, validation_file: "
        "validation.csv}\n"
    )
    done = bertctl("data", "check", recipe, "--model", "none/such", "--offline", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recipe"] == "mine"


def test_a_lone_training_file_is_checked_whole(bertctl, clean) -> None:
    done = bertctl("data", "check", clean[0], "--model", "none/such", "--offline", "--json")
    assert {name: split["rows"] for name, split in json.loads(done.stdout)["splits"].items()} == {
        "train": 30
    }


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sst3"], 2, "did you mean sst2?"),
        (["train.csv", "sst2"], 2, "a recipe and files"),
        (["train.csv", "--task", "text-clasification"], 2, "did you mean text-classification"),
        (["demo", "--task", "text-regression"], 2, "--task goes"),
        (["train.csv"] * 4, 2, "three splits"),
        (["absent.csv"], 4, "absent.csv does not exist"),
        (["demo", "cola"], 2, "one recipe is"),
        ([], 2, "Missing argument"),
        ([], 2, "For example: bertctl data check train.csv"),
    ],
)
def test_what_is_no_data_set_is_refused_with_its_code_and_no_answer(
    arguments: list[str], code: int, says: str, bertctl, clean
) -> None:
    done = bertctl("data", "check", *arguments, "--offline")
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == ""


def test_torch_and_transformers_stay_away(clean, nursery: Nursery, tmp_path: Path) -> None:
    code = (
        "import sys; from bertctl.cli.main import main; "
        f"code = main(['data', 'check', *{[str(path) for path in clean]!r}, '--model', 'minilm', "
        "'--json']); "
        "print(code, sorted({'torch', 'transformers', 'datasets', 'sklearn'} & set(sys.modules)), "
        "file=sys.stderr)"
    )
    done = nursery.run_code(code, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "0 []", done.stderr


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train.csv", "test.csv"], ["train", "test"]),
        (["train.csv", "my-test-rows.csv"], ["train", "test"]),
        (["train.csv", "TEST.csv", "dev.csv"], ["train", "test", "validation"]),
        (["train.csv", "dev.csv", "test.csv"], ["train", "validation", "test"]),
        (["train.csv", "contest.csv"], ["train", "validation"]),
        (["train.csv", "latest.csv"], ["train", "validation"]),
    ],
)
def test_a_file_that_is_called_test_is_checked_as_test(
    names: list[str], splits: list[str], bertctl, tmp_path: Path
) -> None:
    for number, name in enumerate(names):
        lines = []
        for i in range(9):
            lines += [
                f"a {word} film number {number}{i},{label}"
                for word, label in (("fine", 1), ("dull", 0))
            ]
        (tmp_path / name).write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    done = bertctl("data", "check", *names, "--model", "none/such", "--offline", "--json")
    actual = json.loads(done.stdout)["splits"]
    assert {name: Path(split["source"]).name for name, split in actual.items()} == dict(
        zip(splits, names, strict=True)
    )
    assert ("by their names" in done.stderr) == (
        names[1].lower() != "dev.csv" and splits[1] == "test"
    )


@pytest.mark.parametrize(
    "labels",
    [("pos", "neg"), (*"01" * 20, "1e3")],
    ids=["two rows", "a number in another spelling"],
)
def test_what_finetune_refuses_is_an_error_of_data_check(
    bertctl, tiny_model: Path, tmp_path: Path, labels: tuple[str, ...]
) -> None:
    texts = [text for text, _ in rows(0, len(labels))]
    path = write(tmp_path / "rows.csv", list(zip(texts, labels, strict=True)))
    model = ("--model", tiny_model, "--max-length", 32)
    trained = bertctl("finetune", path, *model, "--dry-run")
    checked = bertctl("data", "check", path, *model)
    assert trained.returncode == checked.returncode == 3, trained.stderr
    assert "error refused" in checked.stdout
