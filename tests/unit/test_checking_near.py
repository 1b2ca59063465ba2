"""The near-duplicate finder against brute force, and what it leaves alone."""

import random
import tempfile
from itertools import chain, combinations
from pathlib import Path
from typing import IO

import pytest

from bertctl.checking import near
from bertctl.checking.near import SHORTEST, SIMILARITY, near_duplicates
from bertctl.errors import UnavailableError

WORDS = (
    *(
        "the",
        "a",
        "of",
        "and",
        "to",
        "in",
        "is",
        "was",
        "it",
        "for",
        "on",
        "with",
        "as",
        "by",
        "at",
        "from",
        "that",
    ),
    *(
        "story",
        "heart",
        "music",
        "night",
        "city",
        "river",
        "winter",
        "paper",
        "window",
        "garden",
        "letter",
        "market",
    ),
    *(
        "bridge",
        "silver",
        "morning",
        "question",
        "answer",
        "number",
        "people",
        "children",
        "this",
        "which",
        "were",
    ),
)


def _made(count: int, seed: int) -> list[str]:
    """Sentences of 4 to 40 words, a third of them edited copies of earlier ones."""
    draw = random.Random(seed)  # noqa: S311 - texts, not secrets
    texts: list[str] = []
    for _ in range(count):
        if texts and draw.random() < 0.33:
            words = draw.choice(texts).split()
            for _ in range(draw.randint(1, 3)):
                place = draw.randrange(len(words))
                words[place : place + draw.randint(0, 1)] = [draw.choice(WORDS)]
        else:
            words = draw.choices(WORDS, k=draw.randint(4, 40))
        texts.append(" ".join(words))
    return list(dict.fromkeys(texts))


def _letter_runs(text: str) -> set[str]:
    """All runs of 4 letters; none of a text that is too short to be compared."""
    if len(text) < SHORTEST:
        return set()
    return {text[i : i + 4] for i in range(len(text) - 3)}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_finds_what_brute_force_finds(seed: int) -> None:
    texts = _made(450, seed)
    actual = {(a, b): alike for a, b, alike in near_duplicates(texts)}
    sets = [_letter_runs(text) for text in texts]
    alike = {}
    for a, b in combinations(range(len(texts)), 2):
        n_shared = len(sets[a] & sets[b])
        n_in_either = len(sets[a] | sets[b])
        alike[a, b] = n_shared / max(1, n_in_either)
    true = {pair: value for pair, value in alike.items() if value >= SIMILARITY}

    assert len(true) > 40
    assert set(actual) <= set(true)
    assert all(actual[pair] == true[pair] for pair in actual)
    with_a_twin = set(chain.from_iterable(true))
    assert set(chain.from_iterable(actual)) == with_a_twin
    assert len(actual) > 0.9 * len(true)  # of large groups not every pair is listed


def test_texts_in_blocks_have_the_same_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _made(450, seed=2)
    at_once = near_duplicates(texts)
    monkeypatch.setattr(near, "_BLOCK", 50)
    monkeypatch.setattr(near, "_READ_LETTERS", 3000)
    monkeypatch.setattr(near, "_COMPARED_LETTERS", 500)

    assert len(at_once) > 40
    assert near_duplicates(texts) == at_once


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("with_room", [0, 1], ids=["signatures", "pairs"])
def test_a_full_disk_is_reported(with_room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _made(50, seed=3)
    made = tempfile.TemporaryFile
    n_made = 0

    def file_or_full_disk() -> IO[bytes]:
        nonlocal n_made
        n_made += 1
        if n_made <= with_room:
            return made()
        return Path("/dev/full").open("wb", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", file_or_full_disk)

    with pytest.raises(UnavailableError, match=r"no room for .*, by which near duplicates"):
        near_duplicates(texts)


def test_every_member_of_a_large_group_has_a_partner() -> None:
    group = [
        f"the same long sentence about the river and the bridge, told for the {i}th time"
        for i in range(500)
    ]
    paired = set()
    for pair in near_duplicates(group):
        paired.update(pair[:2])
    assert paired == set(range(500))


def test_only_letters_and_digits_count() -> None:
    (pair,) = near_duplicates(
        ["well , this is the end of it , is n't it ?", "well this is the end of it is n't it"]
    )
    assert pair == (0, 1, 1.0)


def test_short_texts_are_left_out() -> None:
    assert near_duplicates(["a fine film !", "a fine film .", "", "?"]) == []


def test_other_scripts_have_shingles_too() -> None:
    text = "это очень длинное предложение о мосте и о реке"
    assert [pair[:2] for pair in near_duplicates([text, "短い", text + " и"])] == [(0, 2)]


@pytest.mark.parametrize("texts", [[], ["one text only, and it is long enough to count"]])
def test_nothing_to_compare(texts: list[str]) -> None:
    assert near_duplicates(texts) == []
