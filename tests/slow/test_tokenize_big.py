"""Tokenizing at size: the speed, memory and equality that `bertctl tokenize` promises.

Prints its figures (-s).

Machines are shared, so speeds are ratios: all ways take turns on the same portions of text.
"""

import csv
import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from bertctl.tokenization.encode import TextEncoder, encode_texts
from bertctl.tokenization.route import find_route, split_flat
from tests.benchmarks.tokenizing import datasets_map, measure
from tests.minilm import MINILM

pytestmark = pytest.mark.slow

MIB = 1 << 20


def rows_of(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


@pytest.fixture(scope="module")
def english(shared_data: Path) -> list[str]:
    """All texts of the GLUE sets, SQuAD and the medical sets, a text a line, shuffled."""
    texts: list[str] = []
    for path in sorted(
        [*(shared_data / "glue").rglob("*.tsv"), *(shared_data / "glue-samples").rglob("*.tsv")]
    ):
        texts += [field for row in rows_of(path) for field in row if " " in field]
    for path in sorted(shared_data.glob("squad*/*.json")):
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                texts.append(paragraph["context"])
                texts += [question["question"] for question in paragraph["qas"]]
    for path in sorted(
        [
            *(shared_data / "mlm-medical").glob("*.txt"),
            *(shared_data / "medical-abstracts").glob("*"),
        ]
    ):
        texts += path.read_text(encoding="utf-8").splitlines()
    texts = [" ".join(text.split("\n")) for text in texts if text.strip()]
    random.Random(0).shuffle(texts)  # noqa: S311
    return texts


def repeated(texts: Sequence[str], size: int) -> Iterator[str]:
    written = 0
    while True:
        for text in texts:
            yield text
            written += len(text.encode()) + 1
            if written >= size:
                return


@pytest.fixture(scope="module")
def big_file(english: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 GiB of it."""
    part = "".join(f"{text}\n" for text in repeated(english, 64 * MIB))
    path = tmp_path_factory.mktemp("big") / "big.txt"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(16):
            file.write(part)
    return path


def test_all_real_data_has_the_reference_s_ids(english: list[str]) -> None:
    encoder = TextEncoder(MINILM)
    for first in range(0, len(english), 20_000):
        part = english[first : first + 20_000]
        encoded = encoder.encode(part)
        assert split_flat(encoded.ids, encoded.lengths) == [
            e.ids for e in MINILM.encode_batch(part)
        ]
    assert encoder.route is not None
    share = len(encoder.route.unsafe(english)) / len(english)
    print(f"\n{len(english):,} texts, {share:.2%} of them by the reference")  # noqa: T201
    assert share < 0.01


def test_all_of_unicode_has_the_reference_s_ids() -> None:
    """Every code point of the planes with characters.

    The empty planes between them are one like the other.
    """
    encoder = TextEncoder(MINILM)
    encoder.route = find_route(MINILM)
    for first in [*range(0, 0x34000, 4096), 0x40000, 0xE0000, 0xF0000, 0x10F000]:
        characters = [chr(i) for i in range(first, first + 4096) if not 0xD800 <= i < 0xE000]
        batch = []
        for c in characters:
            batch += (c, f"a{c}b", f"in{c}{c}ing", f"{c} é{c}")
        encoded = encoder.encode(batch)
        assert split_flat(encoded.ids, encoded.lengths) == [
            e.ids for e in MINILM.encode_batch_fast(batch)
        ], hex(first)


def test_five_times_the_speed_of_encode_batch(english: list[str]) -> None:
    """200 MiB, the same ids by checksum."""
    pytest.importorskip("tokie")
    ours, reference = measure(MINILM, list(repeated(english, 200 * MIB)))
    for rate in (ours, reference):
        print(  # noqa: T201
            f"\n{rate.name}: {rate.megabytes_per_second:.1f} MB/s, {rate.tokens_per_second:,.0f} "
            "tokens/s",
            end="",
        )
    assert ours.checksum == reference.checksum
    assert ours.megabytes_per_second > 5 * reference.megabytes_per_second


def test_twelve_times_the_speed_of_datasets_map(english: list[str]) -> None:
    pytest.importorskip("tokie")
    rates = measure(
        MINILM, list(repeated(english, 24 * MIB)), others={"datasets.map": datasets_map(MINILM)}
    )
    for rate in rates:
        print(f"\n{rate.name}: {rate.megabytes_per_second:.1f} MB/s", end="")  # noqa: T201
    assert len({rate.checksum for rate in rates}) == 1
    assert rates[0].megabytes_per_second > 12 * rates[2].megabytes_per_second


def test_a_gibibyte_in_less_than_400_mib(big_file: Path) -> None:
    began = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bertctl",
            "tokenize",
            "-q",
            "-m",
            "minilm",
            "--file",
            big_file,
            "--format",
            "ids",
        ],
        stdout=subprocess.DEVNULL,
    )
    watched = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.05)
    assert process.wait() == 0
    seconds = time.monotonic() - began
    print(  # noqa: T201
        f"\n1 GiB in {seconds:.0f} s, {big_file.stat().st_size / seconds / 1e6:.1f} MB/s, peak "
        f"{peak / MIB:.0f} MiB"
    )
    assert 30 * MIB < peak < 400 * MIB


def test_a_line_of_50_mb(tmp_path: Path, english: list[str]) -> None:
    line = " ".join(repeated(english, 50_000_000))
    (tmp_path / "line.txt").write_text(f"{line}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "bertctl",
        "tokenize",
        "-q",
        "-m",
        "minilm",
        "-f",
        "line.txt",
        "--format",
        "ids",
    ]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.count(b"\n") == 1
    words = [" ".join(part) for part in batched(line.split(" "), 200)]
    expected = [
        101,
        *(i for e in MINILM.encode_batch_fast(words, add_special_tokens=False) for i in e.ids),
        102,
    ]
    assert list(map(int, done.stdout.split())) == expected


def batched(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def test_sst2_for_training_in_two_seconds(shared_data: Path) -> None:
    texts = [row[0] for row in rows_of(shared_data / "glue" / "SST-2" / "train.tsv")][1:]
    assert len(texts) == 67_349
    began = time.perf_counter()
    encoded = encode_texts(MINILM, texts, max_length=128)
    seconds = time.perf_counter() - began
    print(f"\nSST-2's training rows in {seconds:.2f} s")  # noqa: T201
    expected = hashlib.sha256()
    MINILM.enable_truncation(128)
    try:
        for encoding in MINILM.encode_batch_fast(texts):
            expected.update(bytes(str(encoding.ids), "ascii"))
    finally:
        MINILM.no_truncation()
    digest = hashlib.sha256()
    for ids in split_flat(encoded.ids, encoded.lengths):
        digest.update(bytes(str(ids), "ascii"))
    assert digest.hexdigest() == expected.hexdigest()
    assert seconds < 2


def test_one_text_in_three_tenths_of_a_second() -> None:
    """The best of several counts, in CPU time of the process and its children.

    Other jobs do not change it.
    """
    command = [
        sys.executable,
        "-m",
        "bertctl",
        "tokenize",
        "-q",
        "a visually stunning rumination on love",
    ]
    walls = []
    processors = []
    for _ in range(8):
        before = psutil.Process().cpu_times()
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        walls.append(time.perf_counter() - began)
        after = psutil.Process().cpu_times()
        processors.append(
            after.children_user
            - before.children_user
            + after.children_system
            - before.children_system
        )
        assert json.loads(done.stdout)["ids"] == [
            101,
            1037,
            17453,
            14726,
            19379,
            12758,
            2006,
            2293,
            102,
        ]
    print(f"\none text: {min(walls):.2f} s, of CPU {min(processors):.2f} s")  # noqa: T201
    assert min(processors) < 0.3
