"""The token in the address of a page: the page removes it and keeps everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import MISSING, browser, there
from console_server import TOKEN, serving, stub
from waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not there(), reason=MISSING),
]

#: What the page offers in its editor.
WORDS = {"fields": ["add.price"], "hosts": ["h1"], "symbols": []}
#: Addresses with a token, and what remains of them.
ADDRESSES = {
    "/#token={}": "/",
    "/#map&token={}": "/#map",
    "/#token={}&map": "/#map",
    "/#token={}&events=price%20%3E%2020": "/#events=price%20%3E%2020",
    "/#events=1&token={}&matched=true": "/#events=1&matched=true",
    "/?token={}#events=1": "/#events=1",
    "/?token={}#event/1": "/#event/1",
    "/?a=1&token={}&b=2#trees": "/?a=1&b=2#trees",
    "/#events=%zz&token={}": "/#events=%zz",
    "/#subscriptions=a%26token=b&token={}": "/#subscriptions=a%26token=b",
}


def test_the_token_leaves_the_address_and_the_other_parts_stay(tmp_path: Path):
    console, _ = stub(words=lambda: WORDS)
    with serving(console) as address, browser(tmp_path) as page:
        for number, (text, remaining) in enumerate(ADDRESSES.items()):
            # Otherwise the browser would only change the view of the current page.
            page.open("about:blank")
            page.open(address + text.format(f"token-{number}"))
            page.wait_for("document.getElementById('where').textContent")
            assert page.run("return location.href") == address + remaining
            assert page.run("return sessionStorage.getItem('token')") == f"token-{number}"
        # A token with a percent sign that encodes nothing is taken as it is.
        page.open("about:blank")
        page.open(f"{address}/#token=token-%-of-it")
        page.wait_for("sessionStorage.getItem('token') === 'token-%-of-it'")


def test_a_page_follows_the_news_with_its_token(tmp_path: Path):
    console, _ = stub(words=lambda: WORDS)
    application: Any = console.application
    requests: list[tuple[str, bool]] = []

    async def record(scope: Any, receive: Any, send: Any) -> None:
        requests.append((scope["path"], console.has_token(scope)))
        await application(scope, receive, send)

    console.application = record  # type: ignore[assignment]
    with serving(console) as address, browser(tmp_path) as page:
        page.open(f"{address}/#map&token={TOKEN}")
        until(lambda: any(path == "/api/news" for path, _ in requests))
        assert ("/api/news", True) in requests
