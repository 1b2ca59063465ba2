"""The page of `explain` in a real browser.

Nothing asked for, nothing complained of, nothing run that a text holds.
"""

from pathlib import Path
from typing import Any

import pytest

from bertctl.reporting.explanations import MOST_ROWS, explained_page
from bertctl.reporting.html import render_html

pytestmark = pytest.mark.slow

METHOD = "integrated-gradients"
HOSTILE = [
    "<script>window.hacked=1;console.error('hacked')</script>",
    "<img src=http://127.0.0.1:9/x onerror=1>",
    "\u202egnp.exe",
    "שלום",
    "x" * 10_000,
]


def explained(number: int) -> dict[str, Any]:
    """A row of hostile words, every other one against the answer."""
    words = []
    at = 0
    for i, text in enumerate(HOSTILE):
        words.append(
            {
                "word": text,
                "column": "text",
                "start": at,
                "end": at + len(text),
                METHOD: (-1) ** i * (i + 1),
            }
        )
        at += len(text) + 1
    facts = {"apart": 0.0, "change": 3.0, "error": 0.5, "steps": 512, "converged": False}
    target = {"label": HOSTILE[0], "value": 2.0, "words": words, "methods": {METHOD: facts}}
    return {
        "id": f"{HOSTILE[1]}{number}",
        "prediction": HOSTILE[0],
        "gold": HOSTILE[1],
        "targets": [target],
    }


@pytest.mark.parametrize("width", [500, 1280])
def test_a_page_of_hostile_words_is_harmless(visit, tmp_path: Path, width: int) -> None:
    counts = {
        "examples": MOST_ROWS + 3,
        "targets": MOST_ROWS + 3,
        "not_converged": 1,
        "baseline": "[PAD]",
    }
    page = tmp_path / "explained.html"
    rows = (explained(number) for number in range(MOST_ROWS + 3))
    page.write_text(render_html(explained_page("run", rows, lambda: counts)), encoding="utf-8")
    requests, console, output = visit(page, "--dump-dom", width=width)
    assert requests == console == []
    assert output.count('class="passage"') == MOST_ROWS
    assert f"the first {MOST_ROWS} of {MOST_ROWS + 3}" in output
    assert output.count("NOT CONVERGED") == MOST_ROWS
    assert "<script" not in output
    assert "<img" not in output
