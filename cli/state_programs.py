"""Programs of ``stackcast states``: controller, middleware, a publisher and a subscriber."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import typer

from stackcast.cli.kafka_client import broker_errors, client_options
from stackcast.cli.signals import log_to_stderr, stop_on_signal
from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.jobs.adapters.states.links import open_link
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.states.service import (
    ControllerService,
    MiddlewareService,
    Service,
    serving,
)
from stackcast.jobs.adapters.states.store import KafkaStore, topics_of
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import printable

#: Longest wait in seconds before a signal is noticed.
_SIGNAL_SECONDS = 0.2


def run_controller(
    address: str,
    listen: str,
    link: str,
    topics: str,
    bootstrap: str | None,
    properties_file: Path | None,
    credentials: StateCredentials,
) -> None:
    """Run the replica controller, and print its counters at its end.

    Args:
        address: IPv4 address of this host in the network of states.
        listen: TCP address for middlewares.
        link: UDP tunnel to a switch, if it is not an interface.
        topics: prefix of the names of the Kafka topics.
        bootstrap: brokers to use instead of those of the file.
        properties_file: properties file that configures the Kafka client; None for the running lab.
        credentials: credentials for TLS.
    """
    brokers, client = client_options(properties_file, bootstrap)
    with broker_errors():
        store = KafkaStore(brokers, *topics_of(topics), client)
    try:
        service = ControllerService(
            open_link(address, link),
            parse_endpoint(listen, "--listen"),
            store,
            credentials=credentials,
        )
        _serve(service)
    finally:
        store.close()
    controller = service.controller
    counts = {"recovered": controller.recovered, "dropped": dict(controller.dropped)}
    typer.echo(json.dumps(counts))


def run_middleware(
    address: str, controller: str, listen: str, link: str, credentials: StateCredentials
) -> None:
    """Run the middleware of this host, and print its counters at its end.

    Args:
        address: IPv4 address of this host in the network of states.
        controller: TCP address of the replica controller.
        listen: TCP address for programs.
        link: UDP tunnel to a switch, if it is not an interface.
        credentials: credentials for TLS.
    """
    service = MiddlewareService(
        open_link(address, link),
        parse_endpoint(listen, "--listen"),
        parse_endpoint(controller, "--controller"),
        credentials,
    )
    _serve(service)
    program = service.middleware
    counts = {
        "recovered": program.recovered,
        "skipped": program.skipped,
        "dropped": dict(program.dropped),
    }
    typer.echo(json.dumps(counts))


def _serve(service: Service) -> None:
    """Run a service until a signal. Raises the error that ended the service."""
    log_to_stderr()
    with stop_on_signal() as stop:
        typer.echo(json.dumps({"listen": "{}:{}".format(*service.address)}))
        with serving(service) as running:
            while not running.done() and not stop.wait(_SIGNAL_SECONDS):
                pass


def publish_lines(
    state: str, name: str, middleware: str, timeout: float, credentials: StateCredentials
) -> None:
    """Publish each line of standard input as an update of a state.

    Args:
        state: name of the state.
        name: name of this program; empty for that of the host.
        middleware: TCP address of the middleware.
        timeout: longest wait for the controller's confirmation, in seconds.
        credentials: credentials for TLS.
    """
    address = parse_endpoint(middleware, "--middleware")
    with Replica(state, name, address, subscribes=False, credentials=credentials) as replica:
        for line in sys.stdin.buffer:
            replica.publish(line.rstrip(b"\n"))
        replica.flush(timeout)


def print_updates(
    state: str, name: str, middleware: str, count: int, credentials: StateCredentials
) -> None:
    """Print the updates of a state as JSON.

    Args:
        state: name of the state.
        name: name of this program; empty for that of the host.
        middleware: TCP address of the middleware.
        count: number of updates to print; 0 for no limit.
        credentials: credentials for TLS.
    """
    printed = 0
    # Shows why the middleware does not answer.
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    address = parse_endpoint(middleware, "--middleware")
    with (
        stop_on_signal() as stop,
        Replica(state, name, address, credentials=credentials) as replica,
    ):
        while not stop.is_set():
            for update in replica.updates(_SIGNAL_SECONDS):
                row = {
                    "publisher": printable(update.publisher),
                    "vnf": update.vnf,
                    "update": update.number,
                    "data": update.data.decode(errors="backslashreplace"),
                }
                typer.echo(json.dumps(row))
                printed += 1
                if printed == count or stop.is_set():
                    return
