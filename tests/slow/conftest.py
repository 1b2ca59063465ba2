"""Pages in a real browser: what they ask for, what their console says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_OWN = re.compile(
    r"https?://([\w-]+\.)*(google|gvt1|googleapis|gstatic)\.com/"
)  # the browser's own questions


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    return BROWSER


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page.

    What it asked for, what the console said, and the page as it stood at the end.
    """

    def open_page(page: Path, *flags: str, width: int = 1280) -> tuple[list[str], list[str], str]:
        log = tmp_path / "net.json"
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            f"--window-size={width},3000",
            "--enable-logging=stderr",
            f"--log-net-log={log}",
            "--virtual-time-budget=3000",
            *flags,
            page.as_uri(),
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        urls = re.findall(r'"url":"(http[^"]+|ftp[^"]+|ws[^"]+)"', log.read_text(encoding="utf-8"))
        selected_lines = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return [url for url in urls if not _OWN.match(url)], selected_lines, done.stdout

    return open_page
