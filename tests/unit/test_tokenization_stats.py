"""The numbers of `tokenize --stats`, against numbers worked out by hand and by plain loops."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bertctl.tokenization.stats import StatsCollector, bins, collect, quantile
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.word_counts import WordCounter
from tests.minilm import MINILM


def of(
    texts: list[str], pairs: list[str] | None = None, *, portion: int = 1000, **options: int
) -> dict[str, Any]:
    portions = [
        TextChunk(texts[i : i + portion], None if pairs is None else pairs[i : i + portion])
        for i in range(0, len(texts), portion)
    ]
    (stats,) = collect(portions, [MINILM], **options)
    return stats


def test_lengths_and_losses() -> None:
    texts = ["a " * n for n in range(1, 101)]  # lengths 3 to 102
    stats = of(texts)
    assert stats["texts"] == 100
    assert stats["tokens"] == sum(range(3, 103))
    assert stats["length"]["mean"] == 52.5
    assert list(stats["length"].values())[1:] == [52, 92, 97, 101, 102]
    assert stats["losses"][0]["length"] == 64
    assert stats["losses"][0]["texts"] == 38
    assert stats["losses"][0]["tokens"] == sum(range(1, 39))
    assert [loss["texts"] for loss in stats["losses"][1:]] == [0, 0, 0]
    assert stats["enough_for_99_percent"]["of_texts"] == 101
    retained = [sum(min(n, cut) for n in range(3, 103)) for cut in range(103)]
    assert stats["enough_for_99_percent"]["of_tokens"] == next(
        cut for cut in range(103) if retained[cut] >= 0.99 * stats["tokens"]
    )


@pytest.mark.parametrize("portion", [1, 3, 7, 1000])
def test_padding_is_that_of_real_batches(portion: int) -> None:
    word_counts = [(7 * i) % 23 + 1 for i in range(50)]
    texts = ["a " * n_words for n_words in word_counts]
    lengths = [n_words + 2 for n_words in word_counts]

    def padding_share(lengths: list[int]) -> float:
        n_slots = 0
        for start in range(0, len(lengths), 4):
            batch = lengths[start : start + 4]
            n_slots += max(batch) * len(batch)
        return 1 - sum(lengths) / n_slots

    stats = of(texts, portion=portion, batch_size=4, fixed_length=12)

    padding = stats["padding"]
    cut_lengths = [min(length, 12) for length in lengths]
    share_of_fixed = 1 - sum(cut_lengths) / (12 * 50)
    assert padding["in_order"] == pytest.approx(padding_share(lengths), abs=1e-12)
    assert padding["by_length"] == pytest.approx(padding_share(sorted(lengths)), abs=1e-12)
    assert padding["fixed"] == pytest.approx(share_of_fixed, abs=1e-12)


def test_words_tokens_and_unknown_ones() -> None:
    stats = of(["Rumination, on love!", "rumination ❤ and ❤", "embeddings"])
    assert stats["words"] == 3 + 4 + 1  # punctuation is no word
    assert stats["pieces_per_word"] == (4 + 5 + 4) / 8
    assert stats["unknown"] == 2
    assert stats["unknown_share"] == 2 / 15
    assert [(w["word"], w["pieces"], w["count"]) for w in stats["broken_words"]] == [
        ("embeddings", ["em", "##bed", "##ding", "##s"], 1),
        ("rumination", ["rum", "##ination"], 2),
    ]
    assert [(w["word"], w["count"]) for w in stats["unknown_words"]] == [("❤", 2)]


def test_pairs_count_both_sides_and_their_frame() -> None:
    stats = of(["a b", "c"], ["d", "rumination"])
    assert stats["texts"] == 2
    assert stats["tokens"] == 6 + 6
    assert stats["length"]["longest"] == 6
    assert stats["words"] == 5


def test_a_tokenizer_without_continuation_marks_has_words_too() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2, "ab": 3}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    collector = StatsCollector(tokenizer)
    collector.add(TextChunk(["ab abc", "c c"]))
    stats = collector.result()
    assert stats["words"] == 4
    assert stats["tokens"] == 5
    assert [(w["pieces"], w["count"]) for w in stats["broken_words"]] == [(["ab", "c"], 1)]


def test_nothing_has_numbers_too() -> None:
    stats = StatsCollector(MINILM).result()
    assert stats["texts"] == 0
    assert stats["length"]["mean"] == 0.0
    assert stats["length"]["longest"] == 0
    assert stats["padding"]["in_order"] == 0.0


def test_too_many_different_words_are_forgotten_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bertctl.tokenization.word_counts._MOST_WORDS", 3)
    collector = StatsCollector(MINILM)
    collector.add(TextChunk(["rumination rumination embeddings bertctl zxqv qqzz"]))
    stats = collector.result()
    assert [w["word"] for w in stats["broken_words"]] == ["rumination"]
    assert stats["rare_words_forgotten"] == 4


def test_quantiles_are_numpy_s() -> None:
    lengths = np.array([3, 3, 4, 9, 12, 12, 15])
    for share in (0.01, 0.5, 0.9, 1.0):
        expected = int(np.quantile(lengths, share, method="inverted_cdf"))
        assert quantile(np.bincount(lengths), share) == expected


def test_bins_hold_every_text_once() -> None:
    histogram = np.bincount([3] * 500 + [40] * 500 + [60] * 400 + [5000])
    parts = bins(histogram)
    assert sum(count for _, _, count in parts) == 1401
    assert len(parts) <= 21
    assert parts[-1][1:] == (5000, 1)
    assert bins(np.zeros(1, dtype=np.int64)) == []


def test_counted_words_are_a_plain_loop_s() -> None:
    """Pieces put together again are the words that the library split."""
    texts = ["The hypothyroidism's angioplasty — of 2 carcinomas; re-ruminating", "naïve façade"]
    counter = WordCounter(MINILM)
    from bertctl.tokenization.encode import TextEncoder

    counter.add(texts, TextEncoder(MINILM, special_tokens=False).encode(texts))
    expected = set()
    for text in texts:
        normal = MINILM.normalizer.normalize_str(text)
        for word, _ in MINILM.pre_tokenizer.pre_tokenize_str(normal):
            if len(MINILM.encode(word, add_special_tokens=False)) > 1:
                expected.add(word)
    assert {w.word for w in counter.most_split(None)} == expected
