"""Show a deployment in the browser, from its tables and the health of its stream.

    spark-submit [--properties-file conf/X.conf] jobs/console.py [--listen HOST:PORT] [--stream URL]
    spark-submit jobs/console.py --demo [--speed 40] [--network topozoo/Abilene] ...

Start the job with the properties of the stream. The console reads everything from tables, from the
HTTP server of the stream (spark.stackcast.metrics.port) and, for previews of rules, from the topic;
the stream never waits for the console. The console prints its address and runs until Ctrl-C or
SIGTERM. Without --token-file, the address contains the token that allows a page to write and to
start computations. With --demo, the console starts the embedded lab with a stream and continuous
traffic, and stops it at its end.
"""

from __future__ import annotations

import argparse
import re
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from stackcast.jobs.command_lines.console import parser
from stackcast.requirements import exit_without_extra

if __name__ == "__main__":
    parser(__doc__).parse_args()
    exit_without_extra("console", "jobs/console.py")

import uvicorn

from stackcast.installation import shipped
from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.connections import Limits, configuration
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.alerts import read_alerts
from stackcast.jobs.adapters.console.application import Console, Views
from stackcast.jobs.adapters.console.events import EventsView
from stackcast.jobs.adapters.console.health import HealthView, runbook
from stackcast.jobs.adapters.console.network import NetworkView
from stackcast.jobs.adapters.console.reading import Reading
from stackcast.jobs.adapters.console.records import NewestRecords
from stackcast.jobs.adapters.console.subscriptions import SubscriptionsView
from stackcast.jobs.adapters.console.trees import TreesView
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.embedded.options import RunOptions
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.network.catalogue import geography, topohub_graph
from stackcast.udfs.network.graphml import read_graphml

#: How long pages that are open may keep it from its end, seconds.
END_SECONDS = 3
_TOKEN = re.compile("[!-~]{16,}")
_ANYWHERE = ("0.0.0.0", "::", "")


def main(arguments: list[str]) -> int:
    asked = parser(__doc__).parse_args(arguments)
    if not asked.demo:
        try:
            RunOptions.of(asked).require_none("need --demo")
        except SettingsError as error:
            parser(__doc__).error(error.message)
    return application.run(partial(demonstrate if asked.demo else serve, asked))


def demonstrate(asked: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    # The console of a deployment loads nothing of the lab.
    from stackcast.jobs.embedded import demo  # noqa: PLC0415
    from stackcast.jobs.embedded.progress import Progress  # noqa: PLC0415
    from stackcast.lab.fabric.topologies import LINE  # noqa: PLC0415

    options = RunOptions.of(asked)
    with Progress() as progress, demo.running(settings, options, lifecycle, progress) as running:
        if asked.topology is None and options.network_name not in ("", LINE):
            asked.topology = options.network_name
        return serve(asked, running, lifecycle, progress.say)


def serve(
    asked: argparse.Namespace,
    settings: Settings,
    lifecycle: Lifecycle,
    say: Callable[[str], None] = print,
) -> int:
    settings = formats.of_settings(settings, settings.format)
    host, port = asked.listen
    token = token_of(asked.token_file)
    made = console(settings, asked.stream, token, host, geography_of(asked.topology))
    with listener(host, port) as listening:
        name = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listening.getsockname()[1]}/"
        if asked.token_file is None:
            # Printed, because a log is kept, and others read it.
            say(f"the console: {address}#token={token}")
        else:
            say(f"the console: {address} (the token is in {asked.token_file})")
        sys.stdout.flush()
        limits = Limits(per_address=asked.per_address)
        config = configuration(made.application, limits, END_SECONDS, made.has_token)
        server = _Server(made.end, config)
        # A signal may reach the JVM alone, which passes it on.
        SYSTEM_THREADS.start("stop", _end_with, lifecycle, server)
        server.run(sockets=[listening])
    return 0


class _Server(uvicorn.Server):
    """Says at once that it was asked to end: Spark's workers get Ctrl-C, too, and fail."""

    def __init__(self, ended: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = ended

    def end(self) -> None:
        self._ended()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ended()
        super().handle_exit(sig, frame)


def _end_with(lifecycle: Lifecycle, server: _Server) -> None:
    lifecycle.stopping.wait()
    server.end()


def console(
    settings: Settings,
    stream: str | None,
    token: str,
    host: str,
    geography: Mapping[str, tuple[float, float]] | None = None,
) -> Console:
    """The console of a deployment. Spark starts only where tables are elsewhere than in a folder,
    when delta-rs cannot do what is asked, and for explanations, replays and retuning."""
    place = Path(settings.tables)
    local = "://" not in settings.tables and place.is_dir()
    spark: Any = session.LateSession("stackcast console")
    tables = open_tables(spark, f"file:{place.absolute()}" if local else settings.tables)
    reading = Reading(tables)
    records = NewestRecords(spark, settings)
    network = NetworkView(reading, settings, geography)
    subscriptions = SubscriptionsView(reading, settings, network.network, records)
    if stream is None:
        at = "127.0.0.1" if settings.metrics_host in _ANYWHERE else settings.metrics_host
        stream = f"http://{at}:{settings.metrics_port}" if settings.metrics_port else ""
    about = {
        "runbook": runbook(shipped("docs/how-to/runbook.md")),
        "tables": settings.tables,
        "topic": settings.topic,
        "format": settings.format,
    }
    names = ["*"] if host in _ANYWHERE else [host.lower(), "localhost", "127.0.0.1"]
    views = Views(
        HealthView(reading, stream.rstrip("/"), read_alerts(shipped("conf/prometheus-alerts.yml"))),
        subscriptions,
        network,
        EventsView(reading, settings, subscriptions, records, spark),
        TreesView(reading, settings, network, spark),
    )
    return Console(
        views,
        token,
        about,
        names,
    )


def geography_of(topology: str | None) -> dict[str, tuple[float, float]] | None:
    """Returns longitude and latitude of a published network's switches. Raises NetworkError,
    OSError."""
    if topology is None:
        return None
    if topology.endswith((".graphml", ".xml")):
        return geography(read_graphml(Path(topology).read_bytes(), topology).graph)
    return geography(topohub_graph(topology))


def token_of(path: Path | None) -> str:
    """Returns the first line of a file, or a new token. Raises OSError; SettingsError BAD_VALUE."""
    if path is None:
        return secrets.token_urlsafe(24)
    token = path.read_text(encoding="utf-8").partition("\n")[0].strip()
    if not _TOKEN.fullmatch(token):
        raise SettingsError(
            "BAD_VALUE",
            f"the first line of {path} is not a valid token: it must have at least 16 printable "
            "ASCII characters and no blanks",
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
            f"the console cannot listen on {host}:{port}: {error.strerror or error}; choose "
            "another address with --listen",
            port=port,
        ) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
