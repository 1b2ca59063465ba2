"""The page of neighbours in a real browser.

It asks for nothing, complains of nothing, and shows texts as texts.
"""

import re
from pathlib import Path

import pytest

from bertctl.interpretability.neighbours import near_places, near_tokens
from bertctl.reporting.inside_pages import neighbours_page

pytestmark = pytest.mark.slow

HOSTILE = (
    "the bank </svg><script>document.title = 'hacked'</script> <img src=http://127.0.0.1:9/x> "
    "\u202egnp.exe"
)


@pytest.mark.parametrize("width", [1280, 380])
def test_hostile_and_long_texts_are_shown(visit, tmp_path: Path, width: int) -> None:
    texts = [
        HOSTILE,
        "x" * 5000 + " bank " + "y" * 5000,
        *(f"the bank number {i}" for i in range(30)),
    ]
    actual = near_places("minilm", "bank", HOSTILE, [texts], top=20)
    page = tmp_path / "neighbours.html"
    page.write_text(neighbours_page(actual), encoding="utf-8")
    requests, console, body = visit(page, "--dump-dom", width=width)
    assert requests == []
    assert console == []
    assert "<title>Neighbours of bank</title>" in body
    assert len(re.findall("<script|<img", body)) == 0
    assert body.count("</tr>") == 1 + len(actual["neighbours"])
    assert re.search(r'<svg[^>]*aria-label="[^"]+"|<svg[^>]*role="img"', body), (
        "a picture says what it shows"
    )


def test_tokens_of_a_vocabulary_are_shown(visit, tmp_path: Path) -> None:
    page = tmp_path / "neighbours.html"
    page.write_text(neighbours_page(near_tokens("minilm", "<", top=30)), encoding="utf-8")
    requests, console, body = visit(page, "--dump-dom")
    assert requests == []
    assert console == []
    assert "Neighbours of &lt;" in body
