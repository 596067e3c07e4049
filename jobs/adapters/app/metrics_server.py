"""The HTTP server of a job: ``/metrics`` for Prometheus, ``/health`` for whoever restarts jobs.

It answers from what the job has written down, and asks neither Spark nor the broker nor a switch:
so it answers while those hang, and holds nothing up.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge

from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.requirements import require_extra
from stackcast.udfs.errors import SettingsError

log = logging.getLogger(__name__)


@contextmanager
def serve(
    settings: Settings, registry: CollectorRegistry, health: Callable[[], Health]
) -> Iterator[int]:
    """Serves until the block ends; nothing where ``spark.stackcast.metrics.port`` is 0.

    Metrics are those of ``registry``, and two that say what ``health()`` finds.
    Yields the port. /health is 200 while ``health()`` has no problem, else 503. Raises
    SettingsError PORT_TAKEN, BAD_HOST, RequirementError MISSING_EXTRA.
    """
    if settings.metrics_port == 0:
        yield 0
        return
    require_extra("console", f"{PREFIX}metrics.port")
    # Jobs without this server do not need the packages that it imports.
    from stackcast.jobs.adapters.app import metrics_application  # noqa: PLC0415

    host = settings.metrics_host
    with _listen(host, settings.metrics_port) as listening:
        port: int = listening.getsockname()[1]
        look = told_by_metrics(registry, health)
        server = metrics_application.server(registry, look)
        thread = threading.Thread(
            target=server.run, args=([listening],), name="metrics", daemon=True
        )
        thread.start()
        log.info("metrics and health at http://%s:%d/metrics and /health", host, port)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


def told_by_metrics(
    registry: CollectorRegistry, health: Callable[[], Health]
) -> Callable[[], Health]:
    """Returns ``health``, which two metrics of the registry tell the last answer of."""
    healthy = Gauge(
        "stackcast_healthy", "1 if /health returns status 200, otherwise 0", registry=registry
    )
    degraded = Gauge("stackcast_degraded", "Number of remarks in /health", registry=registry)

    def look() -> Health:
        found = health()
        healthy.set(not found.problems)
        degraded.set(len(found.remarks))
        return found

    return look


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(
                "PORT_TAKEN",
                f"{host}:{port} is already in use: set a different spark.stackcast.metrics.port "
                "for each job on this machine, or 0 to disable the server",
                port=port,
            ) from error
        raise SettingsError(
            "BAD_HOST",
            f"metrics cannot be served at {host}:{port}: {error}; set "
            "spark.stackcast.metrics.host to an address of this machine, or change the port",
            host=host,
        ) from error
