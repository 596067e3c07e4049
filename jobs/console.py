"""The console: a deployment in the browser, on its tables and its stream's health.

    spark-submit [--properties-file conf/X.conf] jobs/console.py [--listen HOST:PORT] [--stream URL]

Give it the properties of the stream. Everything is read from tables, from the stream's HTTP server
(spark.stackcast.metrics.port) and, for previews of rules, from the topic; nothing waits for it. It
prints its address, with a token in it that lets a page write subscriptions, and runs until Ctrl-C
or SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from jobs.adapters.app import application, session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.console.application import Console
from jobs.adapters.console.health import HealthView, runbook
from jobs.adapters.console.reading import Reading
from jobs.adapters.console.subscriptions import SubscriptionsView
from jobs.adapters.planning import formats
from jobs.adapters.tables.tables import Tables
from udfs.errors import SettingsError

log = logging.getLogger("stackcast.console")

#: How long pages that are open may keep it from its end, seconds.
END_SECONDS = 1
_ANYWHERE = ("0.0.0.0", "::", "")


def main(arguments: list[str]) -> int:
    return application.run(partial(serve, parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="console.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=endpoint,
        default="127.0.0.1:8380",
        help="address to serve at (default: %(default)s); port 0 is a free one",
    )
    made.add_argument(
        "--stream",
        metavar="URL",
        help="address of the stream's /health, as http://stream1:9400; by default that of "
        "spark.stackcast.metrics.host and .port",
    )
    made.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="whose first line is the token; without it each start makes one",
    )
    return made


def endpoint(text: str) -> tuple[str, int]:
    """Returns host and port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not 0 <= int(port) < 1 << 16:
        raise ValueError(port)
    return host.strip("[]"), int(port)


def serve(asked: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    settings = formats.of_settings(settings, settings.format)
    host, port = asked.listen
    token = token_of(asked.token_file)
    made = console(settings, asked.stream, token, host)
    with listener(host, port) as listening:
        name = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
        log.info("the console: http://%s:%d/#token=%s", name, listening.getsockname()[1], token)
        server = uvicorn.Server(
            uvicorn.Config(
                made.application,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=END_SECONDS,
            )
        )
        server.run(sockets=[listening])
    return 0


def console(settings: Settings, stream: str | None, token: str, host: str) -> Console:
    """The console of a deployment. Spark starts only where tables are elsewhere than in a folder,
    or when delta-rs cannot do what is asked."""
    place = Path(settings.tables)
    local = "://" not in settings.tables and place.is_dir()
    spark: Any = session.LateSession("stackcast console")
    tables = Tables(spark, f"file:{place.absolute()}" if local else settings.tables)
    reading = Reading(tables)
    if stream is None:
        at = "127.0.0.1" if settings.metrics_host in _ANYWHERE else settings.metrics_host
        stream = f"http://{at}:{settings.metrics_port}" if settings.metrics_port else ""
    about = {
        "runbook": runbook(os.environ.get("STACKCAST_HOME", "")),
        "tables": settings.tables,
        "topic": settings.topic,
        "format": settings.format,
    }
    names = ["*"] if host in _ANYWHERE else [host.lower(), "localhost", "127.0.0.1"]
    return Console(
        HealthView(reading, stream.rstrip("/")),
        SubscriptionsView(reading, settings),
        token,
        about,
        names,
    )


def token_of(path: Path | None) -> str:
    """Returns the first line of a file, or a new token. Raises OSError; SettingsError BAD_VALUE."""
    if path is None:
        return secrets.token_urlsafe(24)
    token = path.read_text(encoding="utf-8").partition("\n")[0].strip()
    if len(token) < 16:
        raise SettingsError(
            "BAD_VALUE", f"{path} has no token of 16 characters or more in its first line"
        )
    return token


def listener(host: str, port: int) -> socket.socket:
    """Returns a socket that listens. Raises SettingsError PORT_TAKEN, or OSError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsError(
            "PORT_TAKEN",
            f"the console cannot listen at {host}:{port}: {error.strerror or error}; give --listen "
            "another address",
            port=port,
        ) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
