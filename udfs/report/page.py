"""A report as one HTML page, which loads nothing from elsewhere.

Style, scripts, cytoscape.js and data are inside the page, and its Content-Security-Policy forbids
every load. Names of users are data in it, never markup.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

_PARTS = files("stackcast.udfs.report")
_SCRIPTS = ("page.js", "moving.js", "links.js")


def render(title: str, body: str, script: str, content: Any, connects: bool = False) -> str:
    """Returns the page as text.

    title: plain text, put after the product's name. body: HTML. script: JavaScript that runs after
    ``page.js``, whose helpers it may use. content: what is JSON (else its ``str``), which the
    script has as ``data``; texts in it may hold any character. connects: whether the script may ask
    the server that the page is from; else it may load nothing at all.
    """
    page = _part("page.html")
    for mark, text in (
        ("/*{title}*/", title),
        ("/*{connects}*/", "connect-src 'self'; " if connects else ""),
        ("/*{style}*/", _part("page.css")),
        ("/*{body}*/", body),
        ("/*{cytoscape}*/", _part("cytoscape.min.js")),
        ("/*{script}*/", "".join(map(_part, _SCRIPTS)) + script),
        # Last, so that no mark inside a user's text is ever filled in.
        ("/*{data}*/", script_safe(content)),
    ):
        page = page.replace(mark, text, 1)
    return page


def script_safe(content: Any) -> str:
    """Returns JSON that cannot end, or start anything inside, the script element around it."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")
