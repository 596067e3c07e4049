"""The HTTP server of a job: ``/metrics`` for Prometheus, ``/health`` for whoever restarts jobs.

It answers from what the job has written down, and asks neither Spark nor the broker nor a switch:
so it answers while those hang, and holds nothing up.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.udfs.errors import SettingsError

log = logging.getLogger(__name__)

#: How long a client may be silent before it is given up.
CLIENT_SECONDS = 10


@dataclass(frozen=True)
class Health:
    """Health of a job. problems: why it does not do its work; remarks: what it does less well;
    facts: what can be put in JSON."""

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``unhealthy``, ``degraded`` or ``ok``."""
        return "unhealthy" if self.problems else "degraded" if self.remarks else "ok"

    def as_json(self) -> str:
        """Returns the body of /health: status, problems, remarks, and all facts."""
        found = {"status": self.status, "problems": self.problems, "remarks": self.remarks}
        return json.dumps(found | self.facts, indent=1) + "\n"


@contextmanager
def serve(
    settings: Settings, registry: CollectorRegistry, health: Callable[[], Health]
) -> Iterator[int]:
    """Serves until the block ends; nothing where ``spark.stackcast.metrics.port`` is 0.

    Metrics are those of ``registry``, and two that say what ``health()`` finds.
    Yields the port. /health is 200 while ``health()`` has no problem, else 503. Raises
    SettingsError PORT_TAKEN, BAD_HOST.
    """
    if settings.metrics_port == 0:
        yield 0
        return
    server = _listen(settings.metrics_host, settings.metrics_port, _application(registry, health))
    thread = threading.Thread(
        target=partial(server.serve_forever, poll_interval=0.2), name="metrics", daemon=True
    )
    thread.start()
    port = server.server_port
    log.info("metrics and health at http://%s:%d/metrics and /health", settings.metrics_host, port)
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def told_by_metrics(
    registry: CollectorRegistry, health: Callable[[], Health]
) -> Callable[[], Health]:
    """Returns ``health``, which two metrics of the registry tell the last answer of."""
    healthy = Gauge("stackcast_healthy", "1 while /health answers 200", registry=registry)
    degraded = Gauge(
        "stackcast_degraded", "Remarks that /health makes beside that", registry=registry
    )

    def look() -> Health:
        found = health()
        healthy.set(not found.problems)
        degraded.set(len(found.remarks))
        return found

    return look


def _application(registry: CollectorRegistry, health: Callable[[], Health]) -> WSGIApplication:
    metrics: WSGIApplication = make_wsgi_app(registry)
    look = told_by_metrics(registry, health)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        try:
            if path == "/metrics":
                look()
                return metrics(environ, start_response)
            if path == "/health":
                found = look()
                code = "503 Service Unavailable" if found.problems else "200 OK"
                kind, body = "application/json", found.as_json().encode()
            else:
                code, kind, body = "404 Not Found", "text/plain", b"/metrics and /health are here\n"
        except Exception:
            log.exception("%s could not be answered", path)
            code, kind = "500 Internal Server Error", "text/plain"
            body = b"the job's log says why\n"
        start_response(code, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    return answer


class _Server(ThreadingWSGIServer):
    # A client that is slow must not keep the job from its end.
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client at %s went away", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """A line every few seconds says nothing."""


def _listen(host: str, port: int, application: WSGIApplication) -> WSGIServer:
    try:
        return make_server(host, port, application, _Server, _Handler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(
                "PORT_TAKEN",
                f"something listens at {host}:{port} already: give each job on a machine a "
                "spark.stackcast.metrics.port of its own, or 0 to serve no metrics",
                port=port,
            ) from error
        raise SettingsError(
            "BAD_HOST",
            f"metrics cannot be served at {host}:{port}: {error}; correct "
            "spark.stackcast.metrics.host, an address of this machine, or the port",
            host=host,
        ) from error
