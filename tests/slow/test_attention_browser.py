"""The page of attention in a real browser.

It asks for nothing, complains of nothing, and does what a person does.

Screenshots of both colour schemes, on paper and on a narrow screen, are left in the folder that
BERTCTL_SCREENSHOTS names.
"""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertctl.config.recipe_sections import ModelSection, RuntimeSection
from bertctl.interpretability.attention import AttentionReader, read_attention
from bertctl.modeling.source import inspect_model
from bertctl.reporting.inside_pages import attention_page

pytestmark = pytest.mark.slow

PATIENT = "--virtual-time-budget=120000"  # while bytes are unpacked, it runs ahead
HEADLESS = ("--headless=new", "--no-sandbox", "--disable-gpu")
TEXT = "He opened an account at the bank near the river."
PAIR = "The bank of the river was muddy."
HOSTILE = (
    "</script><script>window.hacked = 1</script> <img src=http://127.0.0.1:9/x onerror=hacked=1> "
    "\u202egnp.exe שלום"
)


@pytest.fixture(scope="module")
def reader() -> AttentionReader:
    source = inspect_model(ModelSection(name="minilm", max_length=4))
    return AttentionReader(source, RuntimeSection(device="cpu"))


def written(path: Path, expected: dict[str, Any], text: str, pair: str | None = None) -> Path:
    path.write_text(
        attention_page(expected, [text] if pair is None else [text, pair]), encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module")
def page(reader: AttentionReader, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(
        tmp_path_factory.mktemp("pages") / "a.html", read_attention(reader, TEXT, PAIR), TEXT, PAIR
    )


def driven(folder: Path, page: Path, steps: str, *, width: int = 1200) -> Path:
    """A page that shows another one and does things in it.

    `steps` fills `seen`, by the document `d`.
    """
    source = page.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    script = f"""
      const wait = () => new Promise((go) => setTimeout(go, 150));
      const until = async (holds) => {{ for (let i = 0; i < 100 && !holds(); i++) await wait(); }};
      const pixels = (canvas) => {{
        // of a copy: reading the canvas itself makes it slow, and the browser says so
        const copy = document.createElement("canvas");
        copy.width = canvas.width;
        copy.height = canvas.height;
        copy.getContext("2d").drawImage(canvas, 0, 0);
        return copy.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      }};
      onload = async () => {{
        const w = document.getElementById("f").contentWindow, d = w.document, seen = {{}};
        const said = () => d.getElementById("said").textContent;
        const chosen = () => d.getElementById("chosen").textContent;
        const ink = () => {{
          const values = pixels(d.getElementById("between"));
          return values.reduce((sum, value) => sum + (value > 0), 0);
        }};
        const at = (type, target, more) => {{
          const kind = more?.key ? w.KeyboardEvent : w.MouseEvent;
          target.dispatchEvent(new kind(type, {{bubbles: true, ...more}}));
        }};
        await until(() => said() && chosen());
        await wait(); await wait();
        {steps}
        document.title = JSON.stringify(seen);
      }};"""
    frame = folder / "driven.html"
    style = f"width:{width}px;height:2900px;border:0"
    text = f'<body style="margin:0"><iframe id="f" style="{style}" srcdoc="{source}">'
    frame.write_text(f"<meta charset=utf-8><script>{script}</script>{text}", encoding="utf-8")
    return frame


def seen_in(dom: str) -> dict:
    return json.loads(re.search(r"<title>(.*?)</title>", dom)[1].replace("&amp;", "&"))


def test_a_person_looks_at_tokens_heads_and_elements(visit, page, tmp_path) -> None:
    steps = """
        const from = d.getElementById("from");
        const token = (i) => from.children[i];
        const grid = d.getElementById("grid");
        seen.views = d.getElementById("views").hidden;
        seen.tokens = [...from.children].map((item) => item.textContent);
        seen.all = said(); seen.lines = ink();
        at("mouseover", token(3)); await wait();
        seen.pointed = said(); seen.fewer = ink();
        at("mouseleave", from); await wait();
        seen.left = said();
        at("click", token(3)); at("mouseleave", from); await wait();
        seen.kept = said(); seen.products = chosen();
        seen.active = from.getAttribute("aria-activedescendant");
        at("keydown", from, {key: "ArrowDown"}); await wait();
        seen.next = said();
        at("keydown", from, {key: "Escape"}); await wait();
        seen.freed = said();
        at("click", grid.querySelector('button[data-layer="1"][data-head="8"]'));
        at("click", token(3)); await wait();
        seen.head = said(); seen.layer = d.getElementById("layer").value;
        seen.pressed = [...grid.querySelectorAll('[aria-pressed="true"]')].map((b) => b.title);
        await until(() => chosen().startsWith("Layer 2, head 9"));
        const products = d.getElementById("products"), box = products.getBoundingClientRect();
        at("mousemove", products, {clientX: box.left + 140, clientY: box.top + 100}); await wait();
        seen.element = chosen();
        const sides = d.getElementById("sides");
        sides.value = "01"; at("change", sides); await wait();
        seen.sides = said();
        const special = d.getElementById("special"); sides.value = ""; at("change", sides);
        special.checked = false; at("change", special); await wait();
        seen.without = said();
        at("click", d.getElementById("none")); await wait();
        seen.none = said();
        grid.querySelector("button").focus();
        at("keydown", grid.querySelector("button"), {key: "ArrowRight"});
        seen.focus = d.activeElement.title;
        const is_drawn = (canvas) => pixels(canvas).some(Boolean);
        const drawn = () => [...grid.querySelectorAll("canvas")].filter(is_drawn).length;
        await until(() => drawn() === 72);
        seen.drawn = drawn();
    """
    requests, console, dom = visit(driven(tmp_path, page, steps), "--dump-dom", PATIENT)
    assert requests == []
    assert console == []
    observed = seen_in(dom)
    tokens = [
        "[CLS]",
        "he",
        "opened",
        "an",
        "account",
        "at",
        "the",
        "bank",
        "near",
        "the",
        "river",
        ".",
        "[SEP]",
        "the",
        "bank",
        "of",
        "the",
        "river",
        "was",
        "muddy",
        ".",
        "[SEP]",
    ]
    assert observed["views"] is False
    assert observed["tokens"] == tokens
    assert observed["all"] == observed["left"] == observed["freed"] == "Layer 1, 12 of 12 heads."
    assert observed["pointed"] == observed["kept"]
    assert observed["pointed"].startswith("Layer 1, from “an” (4): head 1 to ")
    assert observed["lines"] > observed["fewer"] > 0
    assert observed["products"].startswith("Layer 1, head 1, from “an” (4): ")
    assert observed["active"] == "token-3"
    assert observed["layer"] == "1"
    assert "from “account” (5)" in observed["next"]
    assert observed["head"].startswith("Layer 2, from “an” (4): head 9 to “account” (5) "), (
        "that head sees the next token"
    )
    assert observed["pressed"] == ["Layer 2, head 9"]
    assert re.match(
        r"Element \d+ of 32, from “an” \(4\) to “.*” \(\d+\): query -?\d\.\d\d × key -?\d\.\d\d = ",
        observed["element"],
    )
    assert re.search(r"head 9 to “\w+” \(1[4-9]\)", observed["sides"]), (
        "tokens of the second text only"
    )
    assert "[CLS]" not in observed["without"]
    assert observed["none"] == "Layer 2: no head is chosen."
    assert observed["focus"] == "Layer 1, head 2"
    assert observed["drawn"] == 72


def test_the_page_says_what_the_model_does(visit, page, reader, tmp_path) -> None:
    attention = read_attention(reader, TEXT, PAIR)
    steps = """
        const grid = d.getElementById("grid");
        at("click", grid.querySelector('button[data-layer="4"][data-head="6"]'));
        seen.rows = [];
        for (const token of d.getElementById("from").children) {
          at("click", token);
          const place = seen.rows.length + 1;
          const start = `Layer 5, head 7, from “${token.textContent}” (${place})`;
          await until(() => chosen().startsWith(start));
          seen.rows.push(chosen());
        }
    """
    _, _, dom = visit(driven(tmp_path, page, steps), "--dump-dom", PATIENT)
    for place, row in enumerate(seen_in(dom)["rows"]):
        shares = [
            (int(m[1]) - 1, float(m[2]) / 100) for m in re.finditer(r"\((\d+)\) ([\d.]+) %", row)
        ]
        assert len(shares) == 5
        for to, share in shares:
            assert share == pytest.approx(attention["attentions"][4, 6, place, to], abs=0.01)
        assert shares[0][1] == pytest.approx(attention["attentions"][4, 6, place].max(), abs=0.01)


@pytest.mark.parametrize("width", [400, 1280])
def test_hostile_and_long_texts(visit, reader, tmp_path, width) -> None:
    text = HOSTILE + " " + "wörter ohne ende " * 600
    assert len(text) > 10_000
    hostile = written(
        tmp_path / "hostile.html", read_attention(reader, text, HOSTILE), text, HOSTILE
    )
    assert visit(hostile, "--dump-dom")[:2] == ([], [])
    steps = """
        seen.mine = w.hacked === undefined;
        seen.needed = d.documentElement.scrollWidth;
        seen.images = d.images.length + d.scripts.length;
        seen.tokens = d.getElementById("from").children.length;
    """
    _, console, dom = visit(driven(tmp_path, hostile, steps, width=width), "--dump-dom")
    observed = seen_in(dom)
    assert console == []
    assert observed["mine"] is True
    assert observed["images"] == 2
    assert observed["tokens"] == 512
    assert observed["needed"] <= width


def noise(tokens: int, layers: int, heads: int, sharp: float) -> dict[str, Any]:
    """Attention that no model would have: nothing in it repeats."""
    rng = np.random.default_rng(0)
    scores = rng.normal(scale=sharp, size=(layers, heads, tokens, tokens)).astype(np.float32)
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    queries, keys = rng.normal(size=(2, layers, heads, tokens, 64)).astype(np.float32)
    return {
        "model": "noise",
        "scores": "made of noise",
        "cut": 0,
        "tokens": np.array([f"w{i}" for i in range(tokens)]),
        "sides": np.zeros(tokens, np.int8),
        "layers": np.arange(layers) + 1,
        "heads": np.arange(heads) + 1,
        "attentions": weights,
        "queries": queries,
        "keys": keys,
        "scaling": np.full(layers, 0.125, np.float32),
    }


def test_pages_are_small(reader, tmp_path) -> None:
    text = (
        "The bank of the river was muddy, and the account at the bank was empty; nobody went there "
        "any more. " * 60
    )
    reader.max_length = 128
    small = read_attention(reader, text)
    reader.max_length = 512
    assert small["attentions"].shape == (6, 12, 128, 128)
    assert written(tmp_path / "small.html", small, text).stat().st_size <= 1_500_000
    for sharp in (0.5, 2.0):
        assert (
            written(tmp_path / "noise.html", noise(128, 6, 12, sharp), "").stat().st_size
            <= 1_500_000
        )
    for sharp in (0.5, 2.0):
        assert (
            written(tmp_path / "large.html", noise(512, 12, 12, sharp), "").stat().st_size
            <= 25_000_000
        )


def test_a_large_page_opens_at_once(browser, reader, visit, tmp_path) -> None:
    large = written(tmp_path / "large.html", noise(512, 12, 12, 1.5), "")
    assert visit(large, "--dump-dom")[:2] == ([], [])

    def seconds(page: Path) -> float:
        flags = [
            *HEADLESS,
            f"--user-data-dir={tmp_path}/timed",
            "--no-first-run",
            "--window-size=1280,900",
        ]
        started = time.monotonic()
        command = [browser, *flags, f"--screenshot={tmp_path}/x.png", page.as_uri()]
        subprocess.run(command, capture_output=True, timeout=120, check=True)
        return time.monotonic() - started

    empty = tmp_path / "empty.html"
    empty.write_text("<p>nothing")
    started = min(seconds(empty) for _ in range(2))
    assert min(seconds(large) for _ in range(3)) - started < 3.0


@pytest.mark.parametrize("scheme", ["light", "dark", "narrow"])
def test_it_looks_right(visit, page, tmp_path, scheme) -> None:
    from matplotlib.image import imread

    picture = tmp_path / f"attention-{scheme}.png"
    flags = (
        ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    )
    width = 400 if scheme == "narrow" else 1280
    visit(driven(tmp_path, page, "", width=width), f"--screenshot={picture}", *flags)
    pixels = imread(picture)[..., :3]
    assert pixels[5, 5].mean() < 0.2 if scheme == "dark" else pixels[5, 5].mean() > 0.9
    saturation = pixels.max(axis=2) - pixels.min(axis=2)
    assert (saturation > 0.3).mean() > 0.005, "lines and squares have colours"
    if "BERTCTL_SCREENSHOTS" in os.environ:
        shutil.copy(picture, os.environ["BERTCTL_SCREENSHOTS"])


def test_it_prints(browser, page, tmp_path) -> None:
    paper = tmp_path / "attention.pdf"
    flags = [
        *HEADLESS,
        f"--user-data-dir={tmp_path}/profile",
        "--force-dark-mode",
        "--virtual-time-budget=3000",
    ]
    command = [browser, *flags, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri()]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 50_000, "the canvases are on it"
    if "BERTCTL_SCREENSHOTS" in os.environ:
        shutil.copy(paper, os.environ["BERTCTL_SCREENSHOTS"])
