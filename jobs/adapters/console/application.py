"""The console as an ASGI application: one page, what it asks for as JSON, and a stream of news."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from stackcast.jobs.adapters.console import events as tail
from stackcast.jobs.adapters.console.events import EventsView
from stackcast.jobs.adapters.console.health import HealthView
from stackcast.jobs.adapters.console.link_metrics import LinkMetrics
from stackcast.jobs.adapters.console.network import NetworkView
from stackcast.jobs.adapters.console.subscriptions import MOST_RECORDS, RECORDS, SubscriptionsView
from stackcast.jobs.adapters.console.trees import TreesView
from stackcast.udfs.errors import ConsoleError, StackcastError
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.report.page import render

#: Between two looks for news, seconds.
LOOK_SECONDS = 1.0
#: Of a request, far more than the longest rule takes.
MOST_BYTES = 1 << 16
#: Nothing of the console belongs into another page, a cache or a guess at what it may be.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STATUS = {
    "CONSOLE.NO_TOKEN": 401,
    "CONSOLE.NO_SUBSCRIPTION": 404,
    "CONSOLE.NO_SUCH_NODE": 404,
    "CONSOLE.NO_BATCH": 404,
    "CONSOLE.BUSY": 409,
    "CONSOLE.TOO_LARGE": 413,
}
#: What the page is made of; each script is one view, after what all share.
_SCRIPTS = ("page", "editor", "health", "subscriptions", "map", "events", "trees", "views")

Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Views:
    """All that pages ask for."""

    health: HealthView
    subscriptions: SubscriptionsView
    network: NetworkView
    events: EventsView
    trees: TreesView


class Console:
    """Routes and what stands behind them.

    token: what a request that writes must bear. about: texts that the page shows as they are.
    names: by which the console may be called in an address, * for any: a page of somebody else's
    must not reach it by a name of its own.
    """

    def __init__(
        self,
        views: Views,
        token: str,
        about: Mapping[str, Any],
        names: Sequence[str],
    ) -> None:
        self._views = views
        self._ended = False
        self._token = token
        self._about = about
        self._news = _Shared(self._look)
        self._links = LinkMetrics(views.network)
        self.application = Starlette(
            routes=[
                Route("/", self._page),
                Route("/metrics", self._metrics),
                Route("/api/news", self._follow),
                Route("/api/health", self._read(lambda _: views.health.read())),
                Route("/api/subscriptions", self._read(self._find)),
                Route("/api/subscription", self._read(self._one)),
                Route("/api/network", self._read(lambda _: views.network.drawn())),
                Route("/api/loads", self._read(lambda _: views.network.loads())),
                Route("/api/detail", self._read(self._detail)),
                Route("/api/letters", self._read(lambda _: views.events.dead_letters())),
                Route("/api/trees", self._read(lambda _: views.trees.stored())),
                Route("/api/proposal", self._read(lambda _: views.trees.proposal())),
                Route("/api/events", self._asked(self._tail), methods=["POST"]),
                Route("/api/explain", self._asked(self._explain), methods=["POST"]),
                Route("/api/replay", self._asked(self._replay), methods=["POST"]),
                Route("/api/propose", self._asked(self._propose, writes=True), methods=["POST"]),
                Route("/api/check", self._asked(self._check), methods=["POST"]),
                Route("/api/preview", self._asked(self._preview), methods=["POST"]),
                Route("/api/save", self._asked(self._save, writes=True), methods=["POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names))],
            exception_handlers={StackcastError: _refused},
        )

    def end(self) -> None:
        """Is called when it is asked to end, before Spark goes. From any thread, and from signal
        handlers."""
        self._ended = True
        self._views.trees.end()

    async def _metrics(self, _: Request) -> Response:
        found = await run_in_threadpool(_in_our_words, lambda _: self._links.text(), None)
        return Response(found, 200, _HEADERS, CONTENT_TYPE_LATEST)

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._rendered), headers=_HEADERS)

    def _rendered(self) -> str:
        here = Path(__file__).parent
        body = (here / "console.html").read_text(encoding="utf-8")
        scripts = ((here / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
        about = {**self._about, **self._views.subscriptions.words()}
        return render("console", body, "".join(scripts), about, connects=True)

    async def _follow(self, request: Request) -> Response:
        async def news() -> AsyncIterator[str]:
            before = ""
            while not self._ended and not await request.is_disconnected():
                now = await run_in_threadpool(self._news.read)
                # What comes without news finds out that nobody listens any more.
                yield ":\n\n" if now == before else f"data: {now}\n\n"
                before = now
                await asyncio.sleep(LOOK_SECONDS)

        return StreamingResponse(news(), media_type="text/event-stream", headers=_HEADERS)

    def _look(self) -> str:
        try:
            found = {
                "health": self._views.health.read(),
                "subscriptions": self._views.subscriptions.versions(),
                "network": self._views.network.versions(),
            }
        except StackcastError as error:
            found = {"error": _told(error)}
        return _json(found)

    def _read(self, read: Callable[[Request], Any]) -> Answer:
        async def answer(request: Request) -> Response:
            return _answer(await run_in_threadpool(_in_our_words, read, request))

        return answer

    def _asked(self, do: Callable[[dict[str, Any]], Any], writes: bool = False) -> Answer:
        async def answer(request: Request) -> Response:
            if writes:
                self._authorize(request)
            asked = await _body(request)
            return _answer(await run_in_threadpool(_in_our_words, do, asked))

        return answer

    def _authorize(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise ConsoleError(
                "NO_TOKEN",
                "this writes, and takes the token that jobs/console.py prints as it starts: open "
                "the address that it prints, or give the token to the page",
            )

    def _find(self, request: Request) -> Any:
        return self._views.subscriptions.find(request.query_params.get("words", ""))

    def _one(self, request: Request) -> Any:
        return self._views.subscriptions.one(request.query_params.get("id", ""))

    def _detail(self, request: Request) -> Any:
        asked = request.query_params
        if asked.get("kind") == "switch":
            return self._views.network.switch(asked.get("id", ""))
        if asked.get("kind") == "link":
            return self._views.network.link(asked.get("u", ""), asked.get("v", ""))
        return self._views.network.host(asked.get("id", ""))

    def _tail(self, asked: dict[str, Any]) -> Any:
        wanted = asked.get("wanted", "")
        if not isinstance(wanted, str):
            raise _bad("wanted is a text")
        count = min(_count(asked, "records", tail.RECORDS), MOST_RECORDS)
        return self._views.events.tail(wanted.strip(), count, asked.get("matched") is True)

    def _explain(self, asked: dict[str, Any]) -> Any:
        session, sequence = asked.get("session"), asked.get("sequence")
        # A sequence number has more digits than JavaScript's numbers.
        if (
            not isinstance(session, str)
            or not isinstance(sequence, str)
            or not sequence.isdecimal()
        ):
            raise _bad("session and sequence are texts, the second of digits")
        return self._views.events.explain(session, int(sequence))

    def _replay(self, asked: dict[str, Any]) -> Any:
        return self._views.events.replay(_count(asked, "batch", -1, least=0))

    def _propose(self, _: dict[str, Any]) -> Any:
        return self._views.trees.propose()

    def _check(self, asked: dict[str, Any]) -> Any:
        return self._views.subscriptions.check(_draft(asked))

    def _preview(self, asked: dict[str, Any]) -> Any:
        count = _count(asked, "records", RECORDS)
        return self._views.subscriptions.preview(_draft(asked), count)

    def _save(self, asked: dict[str, Any]) -> Any:
        draft = _draft(asked)
        if not draft.id.strip():
            raise _bad("a subscription has an id")
        enabled = asked.get("enabled", True)
        if type(enabled) is not bool:
            raise _bad("enabled is true or false")
        return self._views.subscriptions.save(draft, enabled)


class _Shared:
    """A look that all pages share: anew when it is as old as `LOOK_SECONDS`."""

    def __init__(self, look: Callable[[], str]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._at = -LOOK_SECONDS
        self._found = ""

    def read(self) -> str:
        with self._lock:
            if not self._found or time.monotonic() - self._at >= LOOK_SECONDS / 2:
                self._found, self._at = self._look(), time.monotonic()
            return self._found


def _in_our_words(do: Callable[[Any], Any], asked: Any) -> Any:
    try:
        return do(asked)
    except SQL_ERRORS as error:
        raise table_error(error) from error


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise ConsoleError("TOO_LARGE", f"a request has {MOST_BYTES} bytes at most")
    # What a form of another page can send is of another type.
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise _bad("its type is application/json")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise _bad("it is no JSON") from None
    if not isinstance(found, dict):
        raise _bad("it is no object")
    return found


def _draft(asked: Mapping[str, Any]) -> Subscription:
    values = [asked.get(name, "") for name in Subscription._fields]
    if not all(isinstance(value, str) for value in values):
        raise _bad("id, subscriber and filter are texts")
    return Subscription(*values)


def _count(asked: Mapping[str, Any], name: str, usual: int, least: int = 1) -> int:
    count = asked.get(name, usual)
    if type(count) is not int or count < least:
        raise _bad(f"{name} is a whole number from {least} on")
    return count


def _bad(why: str) -> ConsoleError:
    return ConsoleError("BAD_REQUEST", f"the request cannot be read: {why}")


def _answer(found: Any, status: int = 200) -> Response:
    return Response(_json(found), status, _HEADERS, "application/json")


def _json(found: Any) -> str:
    # Times as JavaScript reads them; a text of a user's may have half a pair of surrogates.
    return json.dumps(found, ensure_ascii=True, default=_plain)


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, StackcastError)
    return _answer({"error": _told(error)}, _STATUS.get(error.code, 400))


def _told(error: StackcastError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message}
