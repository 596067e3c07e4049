"""The answers of a job's HTTP server. It needs the packages of extra ``console``."""

from __future__ import annotations

import logging
from collections.abc import Callable

import uvicorn
from prometheus_client import CollectorRegistry, make_asgi_app
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stackcast.jobs.adapters.app.connections import Limits, configuration
from stackcast.jobs.adapters.app.health import Health

log = logging.getLogger(__name__)

LIMITS = Limits()
#: How long open connections may delay the end of a job, in seconds.
END_SECONDS = 1


def server(registry: CollectorRegistry, look: Callable[[], Health]) -> uvicorn.Server:
    """Return a server of ``/metrics`` and ``/health``.

    Args:
        registry: the metrics.
        look: returns the health of the job.
    """
    return uvicorn.Server(configuration(_application(registry, look), LIMITS, END_SECONDS))


def _application(registry: CollectorRegistry, look: Callable[[], Health]) -> ASGIApp:
    metrics: ASGIApp = make_asgi_app(registry)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        response = metrics
        try:
            if path == "/metrics":
                await run_in_threadpool(look)
            elif path == "/health":
                current = await run_in_threadpool(look)
                status = 503 if current.problems else 200
                response = Response(current.as_json(), status, media_type="application/json")
            else:
                response = PlainTextResponse(
                    "not found: this server has /metrics and /health\n", 404
                )
        except Exception:
            log.exception("request for %s failed", path)
            response = PlainTextResponse("internal error: see the log of the job\n", 500)
        await response(scope, receive, send)

    return answer
