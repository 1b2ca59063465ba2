"""`--shard K/N` and `--merge` of predict, evaluate and extract-features.

The bytes of one machine, and refusals.
"""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Run, TinyRun

pytestmark = pytest.mark.in_process


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,100 opinions, more than are predicted at once, of 1 to 12 words."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    words = ["the", "film", "was", "good", "it", "bad", "food", "dull", "very", "not", "fine"]
    lines = [
        f"{' '.join(words[i % 7 : i % 7 + 1 + i % 5])} {i},{'pos' if i % 3 else 'neg'}"
        for i in range(2100)
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


def _shards(bertctl: Run, words: list[object], count: int) -> None:
    for number in range(1, count + 1):
        done = bertctl(*words, "--shard", f"{number}/{count}")
        assert done.returncode == 0, done.stderr
        assert any(
            name in done.stderr for name in (f"{number}-of-{count}", f"0000{number}-of-0000{count}")
        )
        assert done.stdout == ""


@pytest.mark.parametrize(
    "name",
    [
        "answers.jsonl",
        pytest.param("answers.csv.gz", marks=pytest.mark.slow),
        pytest.param("answers.json", marks=pytest.mark.slow),
    ],
)
def test_four_shards_of_predict_are_the_bytes_of_one(
    bertctl: Run, tiny_run: TinyRun, rows: Path, tmp_path: Path, name: str
) -> None:
    words = ["predict", tiny_run.path, rows, "--batch-size", 16, "-o"]
    assert bertctl(*words, tmp_path / name).returncode == 0
    _shards(bertctl, [*words, tmp_path / "merged" / name], 4)
    assert not (tmp_path / "merged" / name).exists()
    records = [
        json.loads(path.read_text())
        for path in sorted((tmp_path / "merged" / f"{name}.parts").glob("*.json"))
    ]
    assert [record["counts"].get("examples", 0) for record in records] == [2048, 52, 0, 0], (
        "whole chunks of 2,048 rows"
    )
    merged = bertctl(*words, tmp_path / "merged" / name, "--merge", "--json")
    assert merged.returncode == 0, merged.stderr
    assert json.loads(merged.stdout)["examples"] == 2100
    assert (tmp_path / name).read_bytes() == (tmp_path / "merged" / name).read_bytes()


def test_shards_with_names_of_their_own_need_no_merge(
    bertctl: Run, tiny_run: TinyRun, rows: Path, tmp_path: Path
) -> None:
    words = ["predict", tiny_run.path, rows, "--batch-size", 16, "-o"]
    assert bertctl(*words, tmp_path / "all.jsonl").returncode == 0

    for number in (1, 2):
        done = bertctl(
            *words, tmp_path / "parts" / "part-{shard}.jsonl", "--shard", f"{number}/2", "--json"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["file"].endswith(f"part-0000{number}-of-00002.jsonl")

    names = [path.name for path in sorted((tmp_path / "parts").iterdir())]
    assert names == ["part-00001-of-00002.jsonl", "part-00002-of-00002.jsonl"]
    parts = b"".join((tmp_path / "parts" / name).read_bytes() for name in names)
    assert parts == (tmp_path / "all.jsonl").read_bytes(), "of two chunks each shard has one"


def test_three_shards_of_evaluate_are_the_bytes_of_one(
    bertctl: Run, tiny_run: TinyRun, rows: Path, tmp_path: Path
) -> None:
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("".join(rows.read_text().splitlines(keepends=True)[:401]))
    words = ["evaluate", tiny_run.path, "--file", fewer, "-o"]
    assert bertctl(*words, tmp_path / "whole").returncode == 0
    _shards(bertctl, [*words, tmp_path / "merged"], 3)
    assert not (tmp_path / "merged").exists()
    merged = bertctl(*words, tmp_path / "merged", "--merge")
    assert merged.returncode == 0, merged.stderr
    for name in ("metrics.json", "predictions/file.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "merged" / name).read_bytes()


def test_shards_of_a_split_are_added_to_the_run_by_the_merge(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path
) -> None:
    """The batch of 4 rows is one: the second shard has nothing to compute."""
    complete = shutil.copytree(tiny_run.path, tmp_path / "whole")
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    assert bertctl("evaluate", complete, "--split", "test").returncode == 0
    before = (run / "metrics.json").read_bytes()
    _shards(bertctl, ["evaluate", run, "--split", "test"], 2)
    assert (run / "metrics.json").read_bytes() == before
    assert bertctl("evaluate", run, "--split", "test", "--merge").returncode == 0
    for name in ("metrics.json", "predictions/test.jsonl"):
        assert (complete / name).read_bytes() == (run / name).read_bytes()


def test_shards_of_a_few_features_are_merged(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("the film was good\nthe film was bad\n", encoding="utf-8")
    words = [
        "extract-features",
        tmp_path / "lines.txt",
        "--model",
        tiny_model,
        "--max-length",
        8,
        "-o",
    ]
    assert bertctl(*words, tmp_path / "v.npy").returncode == 0
    _shards(bertctl, [*words, tmp_path / "merged.npy"], 2)
    merged = bertctl(*words, tmp_path / "merged.npy", "--merge")
    assert merged.returncode == 0, merged.stderr
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "merged.npy").read_bytes()


def test_shards_of_features_with_names_of_their_own_say_which_rows_they_have(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """Two rows are one chunk: the second shard has a file without rows."""
    (tmp_path / "lines.txt").write_text("the film was good\nthe film was bad\n", encoding="utf-8")
    words = [
        "extract-features",
        tmp_path / "lines.txt",
        "--model",
        tiny_model,
        "--max-length",
        8,
        "-o",
    ]

    for number in (1, 2):
        done = bertctl(*words, tmp_path / "part-{shard}.parquet", "--shard", f"{number}/2")
        assert done.returncode == 0, done.stderr

    parts = sorted(tmp_path.glob("part-*.parquet"))
    tables = [pq.read_table(part) for part in parts]
    documents = [json.loads(part.with_name(f"{part.name}.json").read_text()) for part in parts]
    assert [len(table) for table in tables] == [2, 0]
    assert tables[0].schema == tables[1].schema
    assert [document["row_ranges"] for document in documents] == [[[0, 2]], []]
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("v.npy", ()), pytest.param("v.safetensors", ("--pooling", "none"), marks=pytest.mark.slow)],
)
def test_shards_of_features_are_the_bytes_of_one(
    bertctl: Run, tiny_model: Path, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    """9,000 rows are two chunks, and the third shard has none."""
    (tmp_path / "lines.txt").write_text(
        "".join(f"the film was good {i}\n" for i in range(9000)), encoding="utf-8"
    )
    words = [
        "extract-features",
        tmp_path / "lines.txt",
        "--model",
        tiny_model,
        "--max-length",
        8,
        *options,
        "-o",
    ]
    assert bertctl(*words, tmp_path / name).returncode == 0
    _shards(bertctl, [*words, tmp_path / "merged" / name], 3)
    state = tmp_path / "merged" / f"{name}.parts" / "2-of-3.json"
    contents = state.read_bytes()
    state.write_bytes(contents.replace(b'"rows": 9000', b'"rows": 8192'))
    refused = bertctl(*words, tmp_path / "merged" / name, "--merge")
    assert refused.returncode == 2
    assert "2-of-3.json is of another whole, or not finished" in refused.stderr
    assert not (tmp_path / "merged" / name).exists()
    state.write_bytes(contents)
    merged = bertctl(*words, tmp_path / "merged" / name, "--merge")
    assert merged.returncode == 0, merged.stderr
    for entry in (name, f"{name}.json"):
        assert (tmp_path / entry).read_bytes() == (tmp_path / "merged" / entry).read_bytes()
    assert not state.parent.exists()


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, tiny_run: TinyRun, nursery) -> Path:
    """Two shards of the predictions of 16 rows."""
    folder = tmp_path_factory.mktemp("sharded")
    for shard in ("1/2", "2/2"):
        words = [
            "predict",
            tiny_run.path,
            tiny_run.path.parent / "opinions.csv",
            "-o",
            "out.jsonl",
            "--shard",
            shard,
        ]
        assert nursery.run([*map(str, words), "--batch-size", "4"], cwd=folder).returncode == 0
    return folder / "out.jsonl.parts"


def _fewer(data: Path, parts: Path) -> None:
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join(lines[:-1]))


def _other_text(data: Path, parts: Path) -> None:
    data.write_text(data.read_text().replace("dull 3", "dull 9"))


def _missing(data: Path, parts: Path) -> None:
    (parts / "2-of-2.json").unlink()


def _twice(data: Path, parts: Path) -> None:
    shutil.copy(parts / "1-of-2.json", parts / "2-of-2.json")


def _other_count(data: Path, parts: Path) -> None:
    shutil.copy(parts / "1-of-2.json", parts / "1-of-3.json")


def _cut(data: Path, parts: Path) -> None:
    (parts / "1-of-2.json").write_bytes((parts / "1-of-2.json").read_bytes()[:200])


def _cut_answers(data: Path, parts: Path) -> None:
    part = parts / "part-00001-of-00002.jsonl"
    part.write_bytes(part.read_bytes()[:200])


def _no_answers(data: Path, parts: Path) -> None:
    (parts / "part-00001-of-00002.jsonl").unlink()


def _changed_answers(data: Path, parts: Path) -> None:
    part = parts / "part-00001-of-00002.jsonl"
    part.write_bytes(part.read_bytes().replace(b"dull", b"fine"))


@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [
        (_fewer, (), 2, "1-of-2.json"),
        (_other_text, (), 2, "is another shard, or of other rows"),
        (None, ("--max-length", "9"), 2, "of other rows, run or options"),
        (None, ("--batch-size", "8"), 2, "1-of-2.json"),
        (_missing, (), 2, "out.jsonl.parts: missing, or of another whole: 2-of-2"),
        (_twice, (), 2, "2-of-2.json is another shard"),
        (_other_count, (), 2, "of another whole: 1-of-2, 2-of-2, 2-of-3, 3-of-3"),
        (_cut, (), 3, "1-of-2.json"),
        (_cut_answers, (), 3, "part-00001-of-00002.jsonl is damaged"),
        (_no_answers, (), 3, "part-00001-of-00002.jsonl is missing"),
        (_changed_answers, (), 3, "part-00001-of-00002.jsonl is damaged"),
        (None, ("--top-k", "1"), 2, "of other rows, run or options"),
        (None, ("--format", "csv"), 2, "1-of-2.json is another shard"),
    ],
)
def test_a_merge_refuses(
    bertctl: Run, tiny_run: TinyRun, sharded: Path, tmp_path: Path, change, options, code, message
) -> None:
    parts = shutil.copytree(sharded, tmp_path / "out.jsonl.parts")
    data = Path(shutil.copy(tiny_run.path.parent / "opinions.csv", tmp_path))
    if change is not None:
        change(data, parts)
    words = [
        "predict",
        tiny_run.path,
        data,
        "-o",
        tmp_path / "out.jsonl",
        "--batch-size",
        4,
        "--merge",
    ]
    refused = bertctl(*words, *options)
    assert refused.returncode == code, refused.stderr
    assert message in refused.stderr
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "0/4", "-o", "x"), "--shard 0/4: no such shard"),
        (("--shard", "5/4", "-o", "x"), "--shard 5/4: no such shard"),
        (("--shard", "a/b", "-o", "x"), "--shard a/b: no such shard"),
        (("--shard", "1/4"), "need -o"),
        (("--shard", "1/4", "--merge", "-o", "x"), "exclude each other"),
        (("--shard", "1/4", "--num-processes", "2", "-o", "x"), "exclude each other"),
        (("--merge", "-o", "x"), "x.parts: missing, or of another whole: 1-of-1"),
        (
            ("-o", "x-{shard}.jsonl"),
            "x-{shard}.jsonl has a place for the shard, but --shard is missing",
        ),
        (("--merge", "-o", "x-{shard}.jsonl"), "shards with names of their own need no merge"),
    ],
)
def test_refusals_before_anything_is_read(
    bertctl: Run, tiny_run: TinyRun, tmp_path: Path, options, message
) -> None:
    refused = bertctl("predict", tiny_run.path, "missing.csv", *options, cwd=tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert message in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_several_files_are_answered_as_one(
    bertctl: Run, tiny_run: TinyRun, rows: Path, tmp_path: Path
) -> None:
    header, *lines = rows.read_text().splitlines(keepends=True)
    (tmp_path / "part-9.csv").write_text(header + "".join(lines[:700]))
    (tmp_path / "part-10.csv").write_text(header + "".join(lines[700:]))
    words = ["predict", tiny_run.path, "-q"]
    done = bertctl(*words, rows)

    by_pattern = bertctl(*words, str(tmp_path / "part-*.csv"))
    by_names = bertctl(*words, tmp_path / "part-9.csv", tmp_path / "part-10.csv")

    assert done.returncode == 0, done.stderr
    assert by_pattern.stdout == done.stdout
    assert by_names.stdout == done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["evaluate", "extract-features", "index"])
def test_several_files_are_scored_and_indexed_as_one(
    bertctl: Run, tiny_run: TinyRun, tiny_model: Path, rows: Path, tmp_path: Path, verb: str
) -> None:
    header, *lines = rows.read_text().splitlines(keepends=True)
    (tmp_path / "part-9.csv").write_text(header + "".join(lines[:700]))
    (tmp_path / "part-10.csv").write_text(header + "".join(lines[700:]))
    options: list[object] = ["--model", tiny_model, "--text-column", "text", "--max-length", "16"]
    words = {
        "evaluate": (["evaluate", tiny_run.path, "--file"], [], "predictions/file.jsonl"),
        "extract-features": (["extract-features"], options, ".npy"),
        "index": (["index"], options, "vectors.npy"),
    }
    command, more, result = words[verb]
    outputs = []
    for name, source in (("whole", rows), ("parts", tmp_path / "part-*.csv")):
        output = tmp_path / (name + result if result.startswith(".") else name)
        done = bertctl(*command, str(source), *more, "-o", output)
        assert done.returncode == 0, done.stderr
        outputs.append(output if result.startswith(".") else output / result)

    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_a_text_without_its_quotes_is_no_list_of_files(bertctl: Run, tiny_run: TinyRun) -> None:
    refused = bertctl("predict", tiny_run.path, "a", "fine", "film")

    assert refused.returncode == 2
    assert 'Put a text in quotes: "a fine film"' in refused.stderr
