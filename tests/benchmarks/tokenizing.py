"""MB/s of tokenizing with minilm's vocabulary.

Bertctl against `encode_batch` and `datasets.map`, with equal ids.
"""

import argparse
import hashlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertctl.tokenization.encode import EncodedTexts, TextEncoder

Way = Callable[[Sequence[str]], Sequence[Sequence[int]] | EncodedTexts]
"""Takes texts, gives the ids of each, special tokens included."""

_PORTION = 8 << 20  # bytes of text that each way gets before the next one has its turn
_BATCH = 1000


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="one text per line")
    parser.add_argument("--mib", type=int, default=24, help="of text; the file is repeated or cut")
    parser.add_argument("--quick", action="store_true", help="100 texts, to see that it works")
    options = parser.parse_args()
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    lines = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    size = sum(len(line.encode()) + 1 for line in lines)
    count = 100 if options.quick else max(1, int(len(lines) * options.mib * (1 << 20) / size))
    texts = list(itertools.islice(itertools.cycle(lines), count))
    tokenizer = open_tokenizer("minilm").tokenizer
    rates = measure(tokenizer, texts, others={"datasets.map": datasets_map(tokenizer)})
    print(f"{'':16}{'MB/s':>8}{'tokens/s':>14}{'ours is':>10}")
    for rate in rates:
        megabytes = rate.megabytes_per_second
        ratio = rates[0].megabytes_per_second / megabytes
        print(f"{rate.name:16}{megabytes:8.1f}{rate.tokens_per_second:14,.0f}{ratio:8.1f} x")
    same = len({rate.checksum for rate in rates}) == 1
    print("the ids are equal" if same else "THE IDS DIFFER")


def datasets_map(tokenizer: Tokenizer) -> "Way":
    """Returns the usual way: a transformers tokenizer in `datasets.map`."""
    import datasets
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        settings = '{"tokenizer_class": "BertTokenizer", "model_max_length": 100000}'
        (Path(folder) / "tokenizer_config.json").write_text(settings, encoding="utf-8")
        by_transformers = AutoTokenizer.from_pretrained(folder)
    datasets.disable_progress_bars()
    datasets.disable_caching()

    def encode(texts: Sequence[str]) -> Any:
        rows = datasets.Dataset.from_dict({"text": list(texts)})
        mapped = rows.map(
            lambda batch: by_transformers(batch["text"]), batched=True, remove_columns=["text"]
        )
        return mapped["input_ids"][:]

    return encode


@dataclass(frozen=True)
class Rate:
    """What one way did.

    Attributes:
        name: of the way.
        megabytes_per_second: bytes of UTF-8 text, in millions.
        tokens_per_second: special tokens included.
        seconds: all of its turns together.
        checksum: of all ids and row borders; ways with the same one gave the same ids.
    """

    name: str
    megabytes_per_second: float
    tokens_per_second: float
    seconds: float
    checksum: str


def measure(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    others: Mapping[str, Way] | None = None,
    portion: int = _PORTION,
) -> list[Rate]:
    """Times `TextEncoder` (as `bertctl`) and others.

    They are `Tokenizer.encode_batch` on batches of 1,000, and what else is given.

    The ways take turns, portion by portion, so that a busy machine slows all of them alike.

    Args:
        tokenizer: with truncation and padding off.
        texts: what is tokenized, without any cut.
        others: more ways, by name.
        portion: bytes of a turn.
    """
    encoder = TextEncoder(tokenizer)
    ways: dict[str, Way] = {
        "bertctl": encoder.encode,
        "encode_batch": _Reference(tokenizer),
        **(others or {}),
    }
    seconds = dict.fromkeys(ways, 0.0)
    hashes = {name: hashlib.sha256() for name in ways}
    tokens = size = 0
    for part, part_size in _portions(texts, portion):
        size += part_size
        for name, way in ways.items():
            began = time.perf_counter()
            encoded = way(part)
            seconds[name] += time.perf_counter() - began
            ids, lengths = _flat(encoded)
            hashes[name].update(ids.tobytes())
            hashes[name].update(lengths.tobytes())
            tokens += len(ids) if name == "bertctl" else 0
    return [
        Rate(name, size / 1e6 / spent, tokens / spent, spent, hashes[name].hexdigest())
        for name, spent in seconds.items()
    ]


class _Reference:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        rows: list[list[int]] = []
        for first in range(0, len(texts), _BATCH):
            rows += [
                encoding.ids
                for encoding in self._tokenizer.encode_batch(texts[first : first + _BATCH])
            ]
        return rows


def _portions(texts: Sequence[str], size: int) -> Iterator[tuple[Sequence[str], int]]:
    first = used = 0
    for i, text in enumerate(texts):
        used += len(text.encode()) + 1
        if used >= size:
            yield texts[first : i + 1], used
            first = i + 1
            used = 0
    if used:
        yield texts[first:], used


def _flat(encoded: Sequence[Sequence[int]] | EncodedTexts) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(encoded, EncodedTexts):
        return encoded.ids, encoded.lengths
    lengths = np.array([len(row) for row in encoded], dtype=np.int64)
    ids = list(itertools.chain.from_iterable(encoded))
    return np.array(ids, dtype=np.int32), lengths


if __name__ == "__main__":
    main()
