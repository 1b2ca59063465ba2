"""The report in a real browser.

Nothing asked for, nothing complained of, nothing wider than the screen.

Screenshots in both colour schemes and at both widths are left in the folder that
BERTCTL_SCREENSHOTS names.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_runs import TASKS, classified, made_run

from bertctl.reporting.html import render_html
from bertctl.reporting.report import build_report, gather

pytestmark = pytest.mark.slow

WIDTHS = (400, 1280)


def _framed(tmp_path: Path, page: Path, width: int) -> Path:
    """A page that shows another one at a width.

    Chromium's own window is never narrower than 500.
    """
    measure = (
        "<script>onload = () => { const d = f.contentDocument.documentElement, b = "
        "f.contentDocument.body;"
        "document.title = JSON.stringify({width: f.contentWindow.innerWidth, needed: d.scrollWidth,"
        "charts: [...b.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width),"
        "texts: [...b.querySelectorAll('svg text')].map(s => s.getBoundingClientRect().height),"
        "heads: [...b.querySelectorAll('th.turned')].map(s => [s.firstChild, s].map(e => "
        "e.getBoundingClientRect()))"
        ".map(([i, o]) => i.left >= o.left && i.right <= o.right && i.top >= o.top),"
        "errors: b.querySelector('#errors table').getBoundingClientRect().right,"
        "mine: f.contentWindow.hacked === undefined}) }</script>"
    )
    frame = tmp_path / f"frame-{width}.html"
    source = page.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    style = f"width:{width}px;height:2900px;border:0"
    # srcdoc has the origin of this page, so that the script here may measure; the report's own
    # policy stays in force.
    frame.write_text(
        f'{measure}<body style="margin:0"><iframe id="f" style="{style}" '
        f'srcdoc="{source}"></iframe>',
        encoding="utf-8",
    )
    return frame


@pytest.fixture
def hostile(tmp_path):
    lines = classified(60, ["one", "a label with a rather long name"])
    texts = [
        "<script>window.hacked = 1; console.error('hacked')</script>",
        "<img src=http://127.0.0.1:9/x onerror=1>",
        "שלום עולם (123)",
        "\u202egnp.exe",
        "x" * 900,
    ]
    for line, text in zip(lines, texts, strict=False):
        line |= {"text": text, "gold": "one", "prediction": "a label with a rather long name"}
        line["probabilities"] = {"one": 0.0001, "a label with a rather long name": 0.9999}
    page = tmp_path / "report.html"
    page.write_text(
        render_html(build_report(gather(made_run(tmp_path / "run", lines)))), encoding="utf-8"
    )
    return page


def test_the_test_sees_requests_and_console_errors(visit, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('seen')</script>")
    requests, console, _ = visit(page, "--dump-dom")
    assert any("127.0.0.1:9/x.png" in url for url in requests)
    assert any("seen" in line for line in console)


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_texts_ask_for_nothing_and_run_nothing(visit, hostile, tmp_path, width):
    requests, console, _ = visit(hostile, "--dump-dom", width=width)
    assert requests == []
    assert console == []
    _, _, dom = visit(_framed(tmp_path, hostile, width), "--dump-dom")
    assert json.loads(re.search(r"<title>(.*?)</title>", dom)[1])["mine"] is True


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_the_screen_and_can_be_read(visit, tmp_path, task, width):
    lines, primary = TASKS[task]
    page = tmp_path / "report.html"
    run = made_run(tmp_path / "run", lines(), task=task, primary=primary)
    page.write_text(render_html(build_report(gather(run))), encoding="utf-8")
    requests, console, dom = visit(_framed(tmp_path, page, width), "--dump-dom")
    assert requests == []
    assert console == []
    document = json.loads(re.search(r"<title>(.*?)</title>", dom)[1])
    assert document["width"] == width
    assert document["needed"] <= width  # wide tables scroll in themselves
    assert min(document["charts"]) >= 0.6 * min(width, 560)
    assert min(document["texts"]) >= 8  # pixels


@pytest.mark.parametrize("width", WIDTHS)
def test_long_labels_stay_in_their_columns_and_the_errors_on_the_page(visit, tmp_path, width):
    nouns = ("country", "currency", "date", "sum", "account_that_is_not_in_use_any_more")
    verbs = ("cancel", "change", "request", "verify")
    labels = []
    for verb in verbs:
        labels += [f"{verb}_beneficiary_not_allowed_because_of_the_{noun}" for noun in nouns]
    page = tmp_path / "report.html"
    lines = [
        {**line, "text": "Why was my payment not accepted? " * 5}
        for line in classified(400, labels)
    ]
    page.write_text(
        render_html(build_report(gather(made_run(tmp_path / "run", lines)))), encoding="utf-8"
    )
    _, _, dom = visit(_framed(tmp_path, page, width), "--dump-dom")
    document = json.loads(re.search(r"<title>(.*?)</title>", dom)[1])
    assert document["heads"] == [True] * len(labels)
    assert document["errors"] <= width
    assert document["needed"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_both_colour_schemes(visit, hostile, tmp_path, scheme, width):
    from matplotlib.image import imread

    picture = tmp_path / f"{scheme}-{width}.png"
    flags = (
        ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    )
    visit(_framed(tmp_path, hostile, width), f"--screenshot={picture}", *flags)
    corner = imread(picture)[5, 5, :3].mean()
    assert corner < 0.2 if scheme == "dark" else corner > 0.9
    if "BERTCTL_SCREENSHOTS" in os.environ:
        shutil.copy(picture, os.environ["BERTCTL_SCREENSHOTS"])


def test_it_prints(browser, hostile, tmp_path):
    paper = tmp_path / "report.pdf"
    subprocess.run(
        [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
            "--force-dark-mode",
            f"--print-to-pdf={paper}",
            hostile.as_uri(),
        ],
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000
