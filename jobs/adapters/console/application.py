"""The console as an ASGI application: one page, what it asks for as JSON, and a stream of news."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from stackcast.jobs.adapters.app.connections import MOST_CONNECTIONS
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from stackcast.jobs.adapters.console import events as tail
from stackcast.jobs.adapters.console.events import EventsView
from stackcast.jobs.adapters.console.health import HealthView
from stackcast.jobs.adapters.console.link_metrics import LinkMetrics
from stackcast.jobs.adapters.console.network import NetworkView
from stackcast.jobs.adapters.console.subscriptions import (
    MOST_RECORDS,
    RECORDS,
    SubscriptionsView,
)
from stackcast.jobs.adapters.console.trees import TreesView
from stackcast.jobs.adapters.planning.rule_edits import EDITED
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import ConsoleError, StackcastError
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.names import MOST_NAME
from stackcast.udfs.report.page import render

#: Between two looks for news, seconds.
LOOK_SECONDS = 1.0
#: Of a request, far more than the longest rule takes.
MOST_BYTES = 1 << 16
#: After which a client asks again that found all threads busy, seconds.
RETRY_SECONDS = 2
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
    "CONSOLE.UNKNOWN_NODE": 404,
    "CONSOLE.NO_BATCH": 404,
    "CONSOLE.BUSY": 409,
    "CONSOLE.CONFLICT": 409,
    "CONSOLE.OVERLOADED": 503,
    "CONSOLE.TOO_LARGE": 413,
}
#: What the page is made of; each script is one view, after what all share.
_SCRIPTS = ("page", "editor", "health", "subscriptions", "map", "events", "trees", "views")

_SEQUENCE = re.compile("[0-9]{1,20}")

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

    token: what a request must bear that writes, or has the console compute or ask the broker.
    about: texts that the page shows as they are.
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
        # Requests wait only for requests of their kind, so that nothing delays health and news, and
        # those with the token do not wait for those without it.
        self._pages = _Lane(1, MOST_CONNECTIONS)
        self._looks = _Lane(2, 64)
        self._open_reads = _Lane(2, 64)
        self._reads = _Lane(2, 64)
        self._work = _Lane(2, 16)
        self._jobs = _Lane(1, 16)
        self._health = _Shared(lambda: _json(_in_our_words(lambda _: views.health.read(), None)))
        self._news = _Shared(self._look)
        self._links = LinkMetrics(views.network)
        self.application = Starlette(
            routes=[
                Route("/", self._page),
                Route("/metrics", self._metrics),
                Route("/api/news", self._follow),
                Route("/api/health", self._tell_health),
                Route("/api/subscriptions", self._read(self._find)),
                Route("/api/subscription", self._read(self._one)),
                Route("/api/network", self._read(lambda _: views.network.drawn())),
                Route("/api/loads", self._read(lambda _: views.network.loads())),
                Route("/api/detail", self._read(self._detail)),
                Route("/api/trees", self._read(lambda _: views.trees.stored())),
                Route("/api/proposal", self._read(lambda _: views.trees.proposal())),
                Route("/api/letters", self._asked(self._letters, self._work)),
                Route("/api/events", self._asked(self._tail, self._work), methods=["POST"]),
                Route("/api/explain", self._asked(self._explain, self._jobs), methods=["POST"]),
                Route("/api/replay", self._asked(self._replay, self._jobs), methods=["POST"]),
                Route("/api/propose", self._asked(self._propose, self._reads), methods=["POST"]),
                Route("/api/check", self._asked(self._check, self._reads), methods=["POST"]),
                Route("/api/preview", self._asked(self._preview, self._work), methods=["POST"]),
                Route("/api/save", self._asked(self._save, self._work), methods=["POST"]),
                Route("/api/delete", self._asked(self._delete, self._work), methods=["POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names))],
            exception_handlers={StackcastError: _refused},
        )
        # A redirect repeats the host name of the request, whatever that is.
        self.application.router.redirect_slashes = False

    def end(self) -> None:
        """Is called when it is asked to end, before Spark goes. From any thread, and from signal
        handlers."""
        self._ended = True
        self._views.trees.end()

    def has_token(self, scope: Scope) -> bool:
        """Returns whether a request has the token in its header `Authorization`."""
        given = Headers(scope=scope).get("authorization", "")
        return secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode())

    def _lane(self, request: Request, without_token: _Lane) -> _Lane:
        return self._reads if self.has_token(request.scope) else without_token

    async def _tell_health(self, request: Request) -> Response:
        lane = self._lane(request, self._looks)
        found = await lane.run(lambda _: self._health.read(), None)
        return Response(found, 200, _HEADERS, "application/json")

    async def _metrics(self, request: Request) -> Response:
        lane = self._lane(request, self._looks)
        found = await lane.run(lambda _: self._links.text(), None)
        return Response(found, 200, _HEADERS, CONTENT_TYPE_LATEST)

    async def _page(self, request: Request) -> Response:
        lane = self._lane(request, self._open_reads)
        return HTMLResponse(await lane.run(self._rendered, None), headers=_HEADERS)

    def _rendered(self, _: None) -> str:
        here = files("stackcast.jobs.adapters.console")
        body = (here / "console.html").read_text(encoding="utf-8")
        scripts = ((here / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
        about = {**self._about, **self._views.subscriptions.words()}
        return render("console", body, "".join(scripts), about, connects=True)

    async def _follow(self, request: Request) -> Response:
        async def news() -> AsyncIterator[str]:
            before = ""
            while not self._ended and not await request.is_disconnected():
                now = await self._pages.run(lambda _: self._news.read(), None)
                # What comes without news finds out that nobody listens any more.
                yield ":\n\n" if now == before else f"data: {now}\n\n"
                before = now
                await asyncio.sleep(LOOK_SECONDS)

        return StreamingResponse(news(), media_type="text/event-stream", headers=_HEADERS)

    def _look(self) -> str:
        try:
            found = _in_our_words(self._newest, None)
        except StackcastError as error:
            found = {"error": _told(error)}
        return _json(found)

    def _newest(self, _: None) -> dict[str, Any]:
        return {
            "health": self._views.health.read(),
            "subscriptions": self._views.subscriptions.versions(),
            "network": self._views.network.versions(),
        }

    def _read(self, read: Callable[[Request], Any]) -> Answer:
        async def answer(request: Request) -> Response:
            return _answer(await self._lane(request, self._open_reads).run(read, request))

        return answer

    def _asked(self, do: Callable[[dict[str, Any]], Any], lane: _Lane) -> Answer:
        """Returns a route that checks the token before it reads or computes anything."""

        async def answer(request: Request) -> Response:
            self._authorize(request)
            asked = await _body(request) if request.method == "POST" else {}
            return _answer(await lane.run(do, asked))

        return answer

    def _authorize(self, request: Request) -> None:
        if not self.has_token(request.scope):
            raise ConsoleError(
                "NO_TOKEN",
                "this request requires the token of the console: open the address that "
                "jobs/console.py prints when it starts, or enter the token in the view "
                "Subscriptions",
            )

    def _find(self, request: Request) -> Any:
        words = request.query_params.get("words", "")
        if len(words) > MOST_NAME:
            raise _bad(f"words must have at most {MOST_NAME} characters")
        return self._views.subscriptions.find(words)

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
            raise _bad("wanted must be a string")
        count = min(_count(asked, "records", tail.RECORDS), MOST_RECORDS)
        return self._views.events.tail(wanted.strip(), count, asked.get("matched") is True)

    def _explain(self, asked: dict[str, Any]) -> Any:
        session, sequence = asked.get("session"), asked.get("sequence")
        # A sequence number has more digits than JavaScript's numbers.
        if (
            not isinstance(session, str)
            or not isinstance(sequence, str)
            or not _SEQUENCE.fullmatch(sequence)
            or int(sequence) >= 1 << 64
        ):
            raise _bad(
                "session and sequence must be strings, and sequence must contain a whole number "
                "below 2^64"
            )
        return self._views.events.explain(session, int(sequence))

    def _replay(self, asked: dict[str, Any]) -> Any:
        return self._views.events.replay(_count(asked, "batch", -1, least=0))

    def _letters(self, _: dict[str, Any]) -> Any:
        return self._views.events.dead_letters()

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
            raise _bad("the subscription needs an id")
        enabled = asked.get("enabled", True)
        if type(enabled) is not bool:
            raise _bad("enabled must be true or false")
        # Programs that have not read the row leave this out; null is a new row.
        opened = None
        if "opened" in asked:
            row = asked["opened"]
            if row is not None and not isinstance(row, dict):
                raise _bad("opened must be null, or the row that the user opened")
            opened = [] if row is None else [{name: row.get(name) for name in EDITED}]
        return self._views.subscriptions.save(draft, enabled, opened)

    def _delete(self, body: dict[str, Any]) -> Any:
        name, row = body.get("id"), body.get("opened")
        if not isinstance(name, str) or not name:
            raise _bad("id must be the id of a subscription")
        # Programs that have not read the row leave this out.
        if "opened" in body and not isinstance(row, dict):
            raise _bad("opened must be the row that the user opened")
        opened = None if row is None else {column: row.get(column) for column in EDITED}
        return self._views.subscriptions.delete(name, opened)


class _Lane:
    """Limits the requests of one kind that are computed at once, and those that wait."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = asyncio.Semaphore(threads)
        self._most = threads + waiting
        self._requests = 0

    async def run(self, do: Callable[[Any], Any], asked: Any) -> Any:
        """Returns what ``do`` returns for ``asked``. Raises ConsoleError OVERLOADED."""
        if self._requests >= self._most:
            raise ConsoleError(
                "OVERLOADED",
                f"the console is overloaded: {self._requests} requests of this kind are pending; "
                f"try again in {RETRY_SECONDS} seconds",
            )
        self._requests += 1
        try:
            async with self._threads:
                return await run_in_threadpool(_in_our_words, do, asked)
        finally:
            self._requests -= 1


class _Shared:
    """A look that all pages share: anew when it is as old as `LOOK_SECONDS`."""

    def __init__(self, look: Callable[[], str], clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._look = look
        self._lock = threading.Lock()
        self._at = -LOOK_SECONDS
        self._found = ""

    def read(self) -> str:
        with self._lock:
            if not self._found or self._clock.monotonic() - self._at >= LOOK_SECONDS / 2:
                self._found, self._at = self._look(), self._clock.monotonic()
            return self._found


def _in_our_words(do: Callable[[Any], Any], asked: Any) -> Any:
    try:
        return do(asked)
    except SQL_ERRORS as error:
        raise table_error(error) from error


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    try:
        async for part in request.stream():
            content += part
            if len(content) > MOST_BYTES:
                raise ConsoleError(
                    "TOO_LARGE", f"the request exceeds the limit of {MOST_BYTES} bytes"
                )
    except ClientDisconnect:
        raise _bad("its body is incomplete") from None
    # What a form of another page can send is of another type.
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise _bad("its content type must be application/json")
    try:
        found = json.loads(content, parse_constant=_refuse_constant)
        # UTF-8 cannot encode half a surrogate pair.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise _bad("its body is not valid JSON") from None
    if not isinstance(found, dict):
        raise _bad("its body must be a JSON object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")


def _draft(asked: Mapping[str, Any]) -> Subscription:
    values = [asked.get(name, "") for name in Subscription._fields]
    if not all(isinstance(value, str) for value in values):
        raise _bad("id, subscriber and filter must be strings")
    return Subscription(*values)


def _count(asked: Mapping[str, Any], name: str, usual: int, least: int = 1) -> int:
    count = asked.get(name, usual)
    if type(count) is not int or count < least:
        raise _bad(f"{name} must be a whole number of at least {least}")
    return count


def _bad(why: str) -> ConsoleError:
    return ConsoleError("BAD_REQUEST", f"the request is not valid: {why}")


def _answer(found: Any, status: int = 200) -> Response:
    return Response(_json(found), status, _HEADERS, "application/json")


def _json(found: Any) -> str:
    # Times as JavaScript reads them; a text of a user's may have half a pair of surrogates.
    return json.dumps(found, ensure_ascii=True, default=_plain)


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, StackcastError)
    answer = _answer({"error": _told(error)}, _STATUS.get(error.code, 400))
    if answer.status_code == 503:
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _told(error: StackcastError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message}
