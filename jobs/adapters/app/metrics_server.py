"""The HTTP server of a job: ``/metrics`` for Prometheus, ``/health`` for whoever restarts jobs.

It answers from what the job has written down, and asks neither Spark nor the broker nor a switch:
so it answers while those hang, and holds nothing up.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from jobs.adapters.app.settings import Settings
from udfs.errors import SettingsError

log = logging.getLogger(__name__)

#: How long a client may be silent before it is given up.
CLIENT_SECONDS = 10


@dataclass(frozen=True)
class Verdict:
    """How a job is. problems: why it does not do its work; remarks: what does it less well; facts:
    what can be put in JSON."""

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``unhealthy``, ``degraded`` or ``ok``."""
        return "unhealthy" if self.problems else "degraded" if self.remarks else "ok"

    def as_json(self) -> str:
        """The body of /health: status, problems, remarks, and all facts."""
        told = {"status": self.status, "problems": self.problems, "remarks": self.remarks}
        return json.dumps(told | self.facts, indent=1) + "\n"


@contextmanager
def serve(
    settings: Settings, registry: CollectorRegistry, judge: Callable[[], Verdict]
) -> Iterator[int]:
    """Serve until the block ends; nothing where ``spark.stackcast.metrics.port`` is 0.

    Yields the port. /health is 200 while ``judge()`` finds no problem, else 503. Raises
    SettingsError PORT_TAKEN, BAD_HOST.
    """
    if settings.metrics_port == 0:
        yield 0
        return
    server = _listen(settings.metrics_host, settings.metrics_port, registry, judge)
    thread = threading.Thread(
        target=partial(server.serve_forever, poll_interval=0.2), name="metrics", daemon=True
    )
    thread.start()
    port = server.server_address[1]
    log.info("metrics and health at http://%s:%d/metrics and /health", settings.metrics_host, port)
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A client that is slow must not keep the job from its end.
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], registry: CollectorRegistry, judge: Callable[[], Verdict]
    ) -> None:
        self.registry = registry
        self.judge = judge
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client at %s went away", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        path = self.path.split("?", maxsplit=1)[0]
        try:
            if path == "/metrics":
                self.server.judge()  # two of the metrics say what it finds
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                code, body = 200, encode(self.server.registry)
            elif path == "/health":
                verdict = self.server.judge()
                code, kind = 503 if verdict.problems else 200, "application/json"
                body = verdict.as_json().encode()
            else:
                code, kind, body = 404, "text/plain", b"/metrics and /health are here\n"
        except Exception:
            log.exception("%s could not be answered", path)
            code, kind, body = 500, "text/plain", b"the job's log says why\n"
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line every few seconds says nothing."""


def _listen(
    host: str, port: int, registry: CollectorRegistry, judge: Callable[[], Verdict]
) -> _Server:
    try:
        return _Server((host, port), registry, judge)
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
