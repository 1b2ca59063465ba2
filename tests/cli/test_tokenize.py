"""`bertctl tokenize`, as a person types it."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bertctl.cli.main import main
from bertctl.errors import ExitCode
from tests.conftest import Run
from tests.minilm import MINILM
from tests.nursery import Nursery

IDS = [101, 1037, 17453, 14726, 19379, 12758, 2006, 2293, 102]
TEXT = "a visually stunning rumination on love"
TEXTS = ["it rained.", "", "a ❤, naïve café\ttab", "x" * 120]


def ids_of(texts: list[str]) -> str:
    return "".join(
        " ".join(map(str, encoding.ids)) + "\n" for encoding in MINILM.encode_batch(texts)
    )


@pytest.mark.in_process
def test_a_text_in_a_pipe_is_a_line_of_json_and_the_stand_in_is_said(bertctl: Run) -> None:
    done = bertctl("tokenize", TEXT)
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert record["ids"] == IDS
    assert record["pieces"] == record["tokens"]
    assert record["tokens"] == [
        "[CLS]",
        "a",
        "visually",
        "stunning",
        "rum",
        "##ination",
        "on",
        "love",
        "[SEP]",
    ]
    assert record["offsets"][4:6] == [[20, 23], [23, 30]]
    assert record["word_ids"] == [None, 0, 1, 2, 3, 3, 4, 5, None]
    assert done.stderr.startswith("bert-base ")
    assert "minilm" in done.stderr
    assert bertctl("tokenize", TEXT, "--quiet").stderr == ""


def test_neither_torch_nor_transformers_nor_numpy_is_loaded_for_one_text() -> None:
    code = (
        "import sys; from bertctl.cli.main import main; code = main(['tokenize', 'a film', '-q']);"
        "print(code, sorted({'torch', 'transformers', 'numpy', 'datasets', 'tokie'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_torch_is_never_loaded(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\na film,1\nno film,0\n")
    calls = [
        ["--stats"],
        ["--format", "parquet", "-o", "x.parquet"],
        ["--format", "tokens", "-o", "x"],
    ]
    code = (
        "import sys; from bertctl.cli.main import main;"
        f"codes = [main(['tokenize', '-q', '--file', 't.csv', *call]) for call in {calls!r}];"
        "print(codes, sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    done = nursery.run_code(code, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0] []", done.stderr


def test_the_aligned_view_of_a_pair(bertctl: Run) -> None:
    done = bertctl("tokenize", "it rained.", "--pair", "❤ embeddings", "--format", "view", "-q")
    lines = done.stdout.splitlines()
    assert [line.split() for line in lines[:4]] == [
        [
            "tokens",
            "[CLS]",
            "it",
            "rained",
            ".",
            "[SEP]",
            "[UNK]",
            "em",
            "##bed",
            "##ding",
            "##s",
            "[SEP]",
        ],
        ["ids", *map(str, MINILM.encode("it rained.", "❤ embeddings").ids)],
        ["segment", *"00000111111"],
        ["word", "-", "0", "1", "2", "-", "0", "1", "1", "1", "1", "-"],
    ]
    assert {
        line.index(part)
        for line, part in zip(lines, ["[UNK]", " 100 ", None, None], strict=False)
        if part
    } == {lines[0].index("[UNK]"), lines[1].index(" 100 ")}
    assert lines[-1] == "11 tokens, 3 special, 5 words, 1.60 tokens per word, 1 unknown (❤)"


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("source", "layout"),
    [
        ("arguments", "ids"),
        ("stdin", "tokens"),
        ("dash", "jsonl"),
        ("gz", "ids"),
        ("csv", "parquet"),
        ("jsonl", "parquet"),
        ("parquet", "ids"),
        *(("file", layout) for layout in ("ids", "tokens", "jsonl", "parquet")),
    ],
)
def test_every_input_and_every_layout_have_the_same_ids(
    bertctl: Run, tmp_path: Path, source: str, layout: str
) -> None:
    texts = [text for text in TEXTS if text] if source in {"csv", "jsonl", "parquet"} else TEXTS
    arguments, supplied = _give(tmp_path, source, texts)
    out = tmp_path / f"out.{layout}"
    done = bertctl(
        "tokenize", "-q", "-m", "minilm", *arguments, "--format", layout, "-o", out, input=supplied
    )
    assert done.returncode == 0, done.stderr
    expected = MINILM.encode_batch(texts)
    if layout == "ids":
        assert out.read_text() == ids_of(texts)
    elif layout == "tokens":
        assert out.read_text() == "".join(" ".join(e.tokens) + "\n" for e in expected)
    elif layout == "jsonl":
        assert [json.loads(line)["ids"] for line in out.read_text().splitlines()] == [
            e.ids for e in expected
        ]
    else:
        import pyarrow.parquet as pq

        assert pq.read_table(out)["ids"].to_pylist() == [e.ids for e in expected]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def _give(folder: Path, source: str, texts: list[str]) -> tuple[list[object], str | None]:
    lines = "".join(f"{text}\n" for text in texts)
    if source == "arguments":
        return list(texts), None
    if source in {"stdin", "dash"}:
        return (["-"] if source == "dash" else []), lines
    file = folder / {"file": "t.txt", "gz": "t.txt.gz"}.get(source, f"t.{source}")
    if source == "file":
        file.write_text(lines, encoding="utf-8")
    elif source == "gz":
        file.write_bytes(gzip.compress(lines.encode()))
    elif source == "csv":
        file.write_text(
            "id,review\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(texts)),
            encoding="utf-8",
        )
    elif source == "jsonl":
        file.write_text(
            "".join(json.dumps({"review": text}) + "\n" for text in texts), encoding="utf-8"
        )
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"review": texts}), file)
    column: list[object] = (
        ["--text-column", "review"] if source in {"csv", "jsonl", "parquet"} else []
    )
    return ["--file", file, *column], None


def test_pairs_from_columns(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("a\tb\nit rained\tthe ground is wet\nx\ty z\n")
    done = bertctl(
        "tokenize",
        "-q",
        "--file",
        "p.tsv",
        "--text-column",
        "a",
        "--pair-column",
        "b",
        "--format",
        "ids",
    )
    expected = MINILM.encode_batch([("it rained", "the ground is wet"), ("x", "y z")])
    assert done.stdout == "".join(" ".join(map(str, e.ids)) + "\n" for e in expected)


def test_a_data_set_of_the_catalog(bertctl: Run, shared_data: Path) -> None:
    done = bertctl(
        "tokenize",
        "-q",
        "--data",
        "sst2",
        "--split",
        "validation",
        "--data-dir",
        shared_data / "glue",
        "--format",
        "ids",
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 872


@pytest.mark.in_process
def test_known_sentences_without_special_tokens(bertctl: Run) -> None:
    text = "Our friends won't buy this analysis, let alone the next one we propose."
    done = bertctl("tokenize", text, "--no-special-tokens", "--format", "ids")
    assert (
        done.stdout
        == "2256 2814 2180 1005 1056 4965 2023 4106 1010 2292 2894 1996 2279 2028 2057 16599 1012\n"
    )
    text = "In terms of architecture, this has been identical to the Transformer"
    assert bertctl("tokenize", text, "--format", "tokens").stdout.endswith("transform ##er [SEP]\n")


def test_the_old_name_of_a_format_is_accepted_and_the_new_one_said(bertctl: Run) -> None:
    done = bertctl("tokenize", "a film", "--format", "pieces", "-m", "minilm")
    assert done.stdout == "[CLS] a film [SEP]\n"
    assert "--format tokens" in done.stderr


@pytest.mark.in_process
def test_there_and_back(bertctl: Run) -> None:
    ids = bertctl("tokenize", "a film", "the ❤ [MASK]", "--format", "ids").stdout
    assert bertctl("tokenize", "--decode", input=ids).stdout == "a film\nthe [UNK] [MASK]\n"
    assert bertctl("tokenize", "--decode", "101 2293 102").stdout == "love\n"
    records = bertctl("tokenize", "a film").stdout
    assert bertctl("tokenize", "--decode", "-", input=records).stdout == "a film\n"


@pytest.mark.in_process
def test_a_cut_is_reported_and_windows_lose_nothing(bertctl: Run) -> None:
    done = bertctl("tokenize", "a b c d e f g", "a", "--max-length", "5", "--format", "tokens")
    assert done.stdout == "[CLS] a b c [SEP]\n[CLS] a [SEP]\n"
    assert "1 of 2 texts (50.0%) " in done.stderr
    done = bertctl(
        "tokenize", "a b c d e", "--max-length", "5", "--stride", "1", "--format", "tokens", "-q"
    )
    assert done.stdout == "[CLS] a b c [SEP]\n[CLS] c d e [SEP]\n"
    assert done.stderr == ""


@pytest.mark.in_process
def test_a_table_without_pairs_is_cut_as_lines_are(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text\na b c d e\nf g\n")
    (tmp_path / "t.txt").write_text("a b c d e\nf g\n")
    for cut in (("--max-length", 5, "--stride", 1), ("--max-length", 3)):
        table = bertctl("tokenize", "-f", "t.csv", "-m", "minilm", *cut)
        lines = bertctl("tokenize", "-f", "t.txt", "-m", "minilm", *cut)
        assert table.returncode == 0, table.stderr
        assert table.stdout == lines.stdout
    refused = bertctl(
        "tokenize", "-f", "t.csv", "-m", "minilm", "--max-length", 4, "--truncation", "only_second"
    )
    assert refused.returncode == ExitCode.USAGE
    assert "--truncation only_second is for pairs" in refused.stderr
    (tmp_path / "t.csv").write_text("text,text_pair\na b c d e,f\n")
    refused = bertctl(
        "tokenize",
        "-f",
        "t.csv",
        "-m",
        "minilm",
        "--max-length",
        5,
        "--stride",
        1,
        "-o",
        "cut.jsonl",
        "--text-column",
        "text",
        "--pair-column",
        "text_pair",
    )
    assert refused.returncode == ExitCode.USAGE
    assert "only_second (or only_first)" in refused.stderr
    assert not (tmp_path / "cut.jsonl").exists()


def test_json_is_one_document(bertctl: Run, tmp_path: Path) -> None:
    document = json.loads(bertctl("tokenize", TEXT, "b", "--json").stdout)
    assert [text["text"] for text in document["texts"]] == [TEXT, "b"]
    assert document["texts"][0]["ids"] == IDS
    summary = json.loads(bertctl("tokenize", TEXT, "--json", "-o", "x.jsonl").stdout)
    assert summary["texts"] == 1
    assert summary["tokens"] == 9
    assert summary["unknown"] == 0
    assert json.loads((tmp_path / "x.jsonl").read_text())["ids"] == IDS


def test_stats_as_a_table_and_as_json(bertctl: Run, tmp_path: Path) -> None:
    lines = "".join(f"{'angioplasty ' * (1 + n % 3)} film {n}❤\n" for n in range(200))
    (tmp_path / "f.txt").write_text(lines, encoding="utf-8")
    table = bertctl("tokenize", "-f", "f.txt", "--stats")
    assert table.returncode == 0
    for words in (
        "90 % have at most",
        "what truncation would lose",
        "angioplasty",
        "ang ##io ##pl ##ast ##y",
        "[UNK]",
        "enough for 99 % of the tokens",
        "padding, batches of similar lengths",
    ):
        assert words in table.stdout
    document = json.loads(bertctl("tokenize", "-f", "f.txt", "--stats", "--json", "-q").stdout)
    assert document["texts"] == 200
    assert document["broken_words"][0] == {
        "word": "angioplasty",
        "pieces": ["ang", "##io", "##pl", "##ast", "##y"],
        "count": 399,
    }
    assert [loss["length"] for loss in document["losses"]] == [64, 128, 256, 512]
    assert document["unknown"] == 200


def test_two_tokenizers_side_by_side(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\nfilm\nf\n##ilms\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    done = bertctl(
        "tokenize", "the films rumination", "--stats", "--compare", "vocab.txt", "--json", "-q"
    )
    models = json.loads(done.stdout)["models"]
    assert [(model["tokens"], model["unknown"]) for model in models] == [(6, 0), (5, 2)]
    done = bertctl("tokenize", "the rumination", "--stats", "--compare", "vocab.txt", "-q")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split() == ["minilm", "vocab.txt"]


@pytest.mark.parametrize(
    ("arguments", "code", "message", "remedy"),
    [
        (["a", "--file", "f.txt"], ExitCode.USAGE, "exclude each other", "one of the three"),
        (["a", "b", "--pair", "c"], ExitCode.USAGE, "--pair belongs", "--pair-column"),
        (["a", "--format", "jsnl"], ExitCode.USAGE, "'--format': 'jsnl'", "tokenize --help"),
        (["a", "--format", "parquet"], ExitCode.USAGE, "a terminal or a pipe", "-o FILE.parquet"),
        (["a", "--max-length", "2"], ExitCode.USAGE, "2 special tokens", "at least 3"),
        (["a", "--stride", "3"], ExitCode.USAGE, "there is none", "--max-length"),
        (["a", "--compare", "minilm"], ExitCode.USAGE, "side by side", "--stats"),
        (["a", "--truncation", "only"], ExitCode.USAGE, "'--truncation': 'only'", "longest_first"),
        (["a", "--model", "minilmm"], ExitCode.USAGE, "did you mean minilm", "Names:"),
        (["a", "--model", "./nowhere"], ExitCode.UNAVAILABLE, "does not exist", "Give a folder"),
        (["a", "--model", "bert-large"], ExitCode.UNAVAILABLE, "not in the cache", "--model PATH"),
        (["--file", "gone.txt"], ExitCode.UNAVAILABLE, "gone.txt does not exist", ""),
        (["--file", "latin.txt"], ExitCode.DATA, "latin.txt:2: byte 4 ", "--errors replace"),
        (["--file", "bad.gz"], ExitCode.DATA, "is not gzip", ""),
        (["--decode", "1 x"], ExitCode.DATA, "line 1 ", "Give ids"),
        (["--decode", "30522"], ExitCode.DATA, "30522 is not an id", "--model"),
        (["--file", "empty.txt", "--stats"], ExitCode.DATA, "no texts to count", "Give a text"),
        (["--file", "f.txt", "--json"], ExitCode.USAGE, "one document", "--format jsonl"),
        (["--file", "t.csv", "--text-column", "b"], ExitCode.DATA, "'b'", ""),
        (
            ["a", "--model", "double.txt", "--cased"],
            ExitCode.DATA,
            "double.txt:3: the token 'a'",
            "",
        ),
        (
            ["a", "--model", "nounk.txt", "--cased"],
            ExitCode.DATA,
            "no token [UNK]",
            "Add a line [UNK]",
        ),
        (["a", "--model", "nounk.txt"], ExitCode.USAGE, "does not tell if", "--lowercase"),
    ],
)
def test_texts_and_vocabularies_that_cannot_be_read_are_refused_with_a_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: ExitCode,
    message: str,
    remedy: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.txt").write_text("a\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    (tmp_path / "t.csv").write_text("a,label\nx,1\ny,2\n")
    (tmp_path / "double.txt").write_text("[UNK]\na\na\n")
    (tmp_path / "nounk.txt").write_text("a\nb\n")
    assert main(["tokenize", *arguments]) == code
    done = capsys.readouterr()
    assert message in done.err
    assert remedy in done.err
    assert (done.out == "") is ("--json" not in arguments), "an error is the document"
    assert "Traceback" not in done.err


def test_a_parquet_file_that_was_broken_off_is_not_left(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    done = bertctl("tokenize", "-m", "minilm", "--file", "latin.txt", "-o", "out.parquet")
    assert done.returncode == ExitCode.DATA
    assert [path.name for path in tmp_path.iterdir()] == ["latin.txt"]
    assert "Exception ignored" not in done.stderr


def test_an_empty_file_is_said_and_is_no_error(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    done = bertctl("tokenize", "--file", "empty.txt", "--format", "ids", "-q")
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == "warning: empty.txt is empty\n"


def test_replaced_bytes_are_counted(bertctl: Run, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 \xff\nfine\n")
    done = bertctl(
        "tokenize", "--file", "latin.txt", "--errors", "replace", "--format", "tokens", "-q"
    )
    assert done.stdout == "[CLS] caf [SEP]\n[CLS] fine [SEP]\n"
    assert "2 byte sequences" in done.stderr


@pytest.mark.slow
def test_nuls_and_a_long_line_and_no_last_line_end(bertctl: Run, tmp_path: Path) -> None:
    texts = ["nul\x00nul", "word " * 100_000 + "e\u0301", "x" * 300_000, "end"]
    (tmp_path / "f.txt").write_text("\n".join(texts), encoding="utf-8")
    done = bertctl("tokenize", "-q", "--file", "f.txt", "--format", "ids")
    assert done.stdout == ids_of(texts)


def test_output_appears_while_the_input_is_still_open(nursery: Nursery, tmp_path: Path) -> None:
    ours, typed = os.pipe()
    process = nursery.start(
        ["tokenize", "-q", "--format", "ids"], cwd=tmp_path, env=os.environ, stdin=ours
    )
    os.close(ours)
    assert process.stdout is not None
    for text in ("a film", "love"):
        os.write(typed, f"{text}\n".encode())
        assert process.stdout.readline() == ids_of([text])
    os.close(typed)
    assert process.communicate(60) == ("", "")
    assert process.returncode == 0


def test_a_reader_that_leaves_ends_it_quietly(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a film about love\n" * 300_000)
    command = "bertctl tokenize -q --file f.txt --format ids | head -2; echo ${PIPESTATUS[0]}"
    env = {**os.environ, "PATH": f"{nursery.bin}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=env, check=False
    )
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)]
)
@pytest.mark.parametrize("to_file", [True, False])
def test_a_stop_leaves_whole_lines_on_stdout_and_no_half_file(
    bertctl: Run, nursery: Nursery, tmp_path: Path, number: signal.Signals, code: int, to_file: bool
) -> None:
    text = "a film about love and angioplasty"
    out = tmp_path / "out.txt"
    before = "of the day before\n" if to_file else ""
    out.write_text(before)
    ours, typed = os.pipe()
    words = ["tokenize", "-q", "-", *(["-o", str(out)] if to_file else []), "--format=ids"]
    with out.open("ab") as file:
        stdout = None if to_file else file.fileno()
        process = nursery.start(
            words,
            cwd=tmp_path,
            env=os.environ,
            stdin=ours,
            stdout=stdout,
        )
    os.close(ours)

    def type_on() -> (
        None
    ):  # input without an end, so that it is still at work when the signal comes
        with contextlib.suppress(BrokenPipeError):
            while True:
                os.write(typed, f"{text}\n".encode() * 1000)

    writer = threading.Thread(target=type_on)
    writer.start()
    deadline = time.monotonic() + 3600
    while not any(
        path.stat().st_size for path in tmp_path.glob(".*/out.txt" if to_file else "out.txt")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, number)
    _, errors = process.communicate(60)
    assert process.returncode == code
    writer.join()
    os.close(typed)
    assert "whole line" in errors or number == signal.SIGKILL
    if to_file:
        assert out.read_text() == before
        assert bertctl("tokenize", "-q", text, "-o", out).returncode == 0
        assert [path.name for path in tmp_path.iterdir()] == ["out.txt"], (
            "what the killed process left is swept"
        )
    elif number == signal.SIGINT:
        lines = out.read_text().split("\n")
        assert lines[-1] == ""
        assert set(lines[:-1]) == {ids_of([text]).rstrip("\n")}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_a_text_is_shown_aligned_in_colour(nursery: Nursery, tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {
        "TERM": "xterm-256color"
    }
    env = environment | {"COLUMNS": "80"}
    process = nursery.start(
        ["tokenize", "a ❤ rumination"],
        cwd=tmp_path,
        env=env,
        stdout=follower,
    )
    process.communicate(60)
    os.close(follower)
    text = os.read(leader, 65536).decode()
    os.close(leader)
    assert process.returncode == 0
    assert "\x1b[1;31m[UNK]" in text
    assert "##ination" in text
    assert "segment" in text
