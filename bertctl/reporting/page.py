"""Every page is one HTML file.

It needs no network, is light and dark by the reader's setting, and is fit for paper.

A page is a template that extends `templates/page.html.j2`, rendered with autoescape on; its control
characters become visible. A Content-Security-Policy forbids requests, and all scripts but the
page's own, should anything ever slip through.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bertctl.words import harmless

# Marks of direction do their work inside an isolating element, and none outside of it.
_KEPT = "\n\t\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@cache
def page_templates() -> Environment:
    """Returns the environment that renders pages from templates, and escapes their values.

    There is one per process, as compiling takes time. Callers may add filters and tests to it.
    """
    return Environment(
        loader=PackageLoader("bertctl.reporting"),
        autoescape=True,
        finalize=visible_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_page(template: str, *, scripts: Sequence[str] = (), **values: Any) -> str:
    """Returns a whole page.

    Args:
        template: name of a file in `templates/` that extends `page.html.j2`.
        scripts: names of JavaScript files in `templates/`, run in this order at the end of the
            page.
        values: what the template shows. Scripts also need `data`, a value that is written into the
            page as JSON. They read it by
            `JSON.parse(document.getElementById("data").textContent)`. Its texts are not escaped:
            scripts put them into `textContent`, never into `innerHTML`.
    """
    pages = page_templates()
    script = "".join(_source(pages, name) for name in scripts)
    # The page's Content-Security-Policy allows this one script, by its hash, and no other.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    if script:
        source = f"script-src 'sha256-{digest}'; "
    else:
        source = ""
    return pages.get_template(template).render(script=script, script_source=source, **values)


def _source(pages: Environment, name: str) -> str:
    """Returns a file of `templates/` as it is.

    JavaScript must not be rendered: its braces would be taken for expressions of a template.
    """
    if pages.loader:
        return pages.loader.get_source(pages, name)[0]
    return ""


def visible_text(value: Any) -> Any:
    """Returns a text with its control characters made visible, and markup left as it is."""
    if type(value) is str:
        return harmless(value, keep=_KEPT)
    return value
