"""The console as an ASGI application: one page, what it asks for as JSON, and a stream of news."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from jobs.adapters.console.health import HealthView
from jobs.adapters.console.subscriptions import RECORDS, SubscriptionsView
from udfs.errors import ConsoleError, StackcastError
from udfs.filters.subscriptions import Subscription
from udfs.report.page import render

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
_STATUS = {"CONSOLE.NO_TOKEN": 401, "CONSOLE.NO_SUBSCRIPTION": 404, "CONSOLE.TOO_LARGE": 413}

Answer = Callable[[Request], Awaitable[Response]]


class Console:
    """Routes and what stands behind them.

    token: what a request that writes must bear. about: texts that the page shows as they are.
    names: by which the console may be called in an address, * for any: a page of somebody else's
    must not reach it by a name of its own.
    """

    def __init__(
        self,
        health: HealthView,
        subscriptions: SubscriptionsView,
        token: str,
        about: Mapping[str, Any],
        names: Sequence[str],
    ) -> None:
        self._health = health
        self._subscriptions = subscriptions
        self._token = token
        self._about = about
        self._news = _Shared(self._look)
        self.application = Starlette(
            routes=[
                Route("/", self._page),
                Route("/api/news", self._follow),
                Route("/api/health", self._read(lambda _: health.read())),
                Route("/api/subscriptions", self._read(self._find)),
                Route("/api/subscription", self._read(self._one)),
                Route("/api/check", self._asked(self._check), methods=["POST"]),
                Route("/api/preview", self._asked(self._preview), methods=["POST"]),
                Route("/api/save", self._asked(self._save, writes=True), methods=["POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names))],
            exception_handlers={StackcastError: _refused},
        )

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._rendered), headers=_HEADERS)

    def _rendered(self) -> str:
        body, script = (
            Path(__file__).with_name(name).read_text(encoding="utf-8")
            for name in ("console.html", "console.js")
        )
        about = {**self._about, "fields": self._subscriptions.fields}
        return render("console", body, script, about, connects=True)

    async def _follow(self, request: Request) -> Response:
        async def news() -> AsyncIterator[str]:
            before = ""
            while not await request.is_disconnected():
                now = await run_in_threadpool(self._news.read)
                # What comes without news finds out that nobody listens any more.
                yield ":\n\n" if now == before else f"data: {now}\n\n"
                before = now
                await asyncio.sleep(LOOK_SECONDS)

        return StreamingResponse(news(), media_type="text/event-stream", headers=_HEADERS)

    def _look(self) -> str:
        try:
            found = {
                "health": self._health.read(),
                "subscriptions": self._subscriptions.versions(),
            }
        except StackcastError as error:
            found = {"error": _told(error)}
        return _json(found)

    def _read(self, read: Callable[[Request], Any]) -> Answer:
        async def answer(request: Request) -> Response:
            return _answer(await run_in_threadpool(read, request))

        return answer

    def _asked(self, do: Callable[[dict[str, Any]], Any], writes: bool = False) -> Answer:
        async def answer(request: Request) -> Response:
            if writes:
                self._authorize(request)
            asked = await _body(request)
            return _answer(await run_in_threadpool(do, asked))

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
        return self._subscriptions.find(request.query_params.get("words", ""))

    def _one(self, request: Request) -> Any:
        return self._subscriptions.one(request.query_params.get("id", ""))

    def _check(self, asked: dict[str, Any]) -> Any:
        return self._subscriptions.check(_draft(asked))

    def _preview(self, asked: dict[str, Any]) -> Any:
        count = asked.get("records", RECORDS)
        if type(count) is not int or count < 1:
            raise _bad("records is a whole number from 1 on")
        return self._subscriptions.preview(_draft(asked), count)

    def _save(self, asked: dict[str, Any]) -> Any:
        draft = _draft(asked)
        if not draft.id.strip():
            raise _bad("a subscription has an id")
        enabled = asked.get("enabled", True)
        if type(enabled) is not bool:
            raise _bad("enabled is true or false")
        return self._subscriptions.save(draft, enabled)


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
