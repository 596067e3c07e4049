"""``stackcast states``: controllers, a host's middleware, states published and held."""

from __future__ import annotations

import json
import logging
import sys
from typing import Annotated, Any

import typer

from stackcast.cli.kafka_client import (
    Bootstrap,
    PropertiesFile,
    broker_errors,
    client_options,
)
from stackcast.cli.signals import stop_on_signal
from stackcast.cli.spark_properties import SparkPropertiesFile, start_with
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
from stackcast.udfs.states.messages import CONTROLLER_PORT, MIDDLEWARE_PORT

app = typer.Typer(
    no_args_is_help=True, help="Replicated states: controller, middleware, publish, subscribe."
)

_LOOK = 0.2

Middleware = Annotated[
    str,
    typer.Option("--middleware", metavar="HOST:PORT", help="Address of this host's middleware."),
]
State = Annotated[str, typer.Argument(help="Name of the state.")]
Name = Annotated[
    str, typer.Option("--name", help="Name of this program; by default the name of the host.")
]
_LOCAL = f"127.0.0.1:{MIDDLEWARE_PORT}"

Ca = Annotated[
    str,
    typer.Option("--tls-ca", help="PEM file of the CA that signs the peers' certificates."),
]
Certificate = Annotated[
    str, typer.Option("--tls-certificate", help="PEM file of this program's certificate.")
]
Key = Annotated[str, typer.Option("--tls-key", help="PEM file of the certificate's private key.")]

Own = Annotated[
    str, typer.Option("--address", help="IPv4 address of this host in the network of states.")
]
Link = Annotated[
    str,
    typer.Option(
        "--link",
        metavar="udp:NEAR:PORT/FAR:PORT",
        help="UDP tunnel to a port of a switch, in place of the interface that has --address.",
    ),
]


@app.command()
def controller(
    address: Own,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="TCP address for middlewares."),
    ] = f"127.0.0.1:{CONTROLLER_PORT}",
    link: Link = "",
    topics: Annotated[
        str, typer.Option("--topics", help="Prefix of the names of both Kafka topics.")
    ] = "states",
    properties_file: PropertiesFile = None,
    bootstrap: Bootstrap = None,
    ca: Ca = "",
    certificate: Certificate = "",
    key: Key = "",
) -> None:
    """Run the replica controller until Ctrl-C or SIGTERM.

    It numbers programs and states, and keeps updates in Kafka to repair losses. Run one at a time:
    another one on the same topics takes over and ends the first.
    """
    brokers, client = client_options(properties_file, bootstrap)
    with broker_errors():
        store = KafkaStore(brokers, *topics_of(topics), client)
    try:
        service = ControllerService(
            open_link(address, link),
            parse_endpoint(listen),
            store,
            credentials=StateCredentials(ca, certificate, key),
        )
        _serve(service)
    finally:
        store.close()
    made = service.controller
    typer.echo(json.dumps({"recovered": made.recovered, "dropped": dict(made.dropped)}))


@app.command()
def middleware(
    address: Own,
    controller: Annotated[
        str,
        typer.Option(
            "--controller", metavar="HOST:PORT", help="TCP address of the replica controller."
        ),
    ] = f"127.0.0.1:{CONTROLLER_PORT}",
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="TCP address for programs."),
    ] = _LOCAL,
    link: Link = "",
    ca: Ca = "",
    certificate: Certificate = "",
    key: Key = "",
) -> None:
    """Carry states between this host's programs and the network, until Ctrl-C or SIGTERM."""
    service = MiddlewareService(
        open_link(address, link),
        parse_endpoint(listen),
        parse_endpoint(controller),
        StateCredentials(ca, certificate, key),
    )
    _serve(service)
    made = service.middleware
    counts = {"recovered": made.recovered, "skipped": made.skipped, "dropped": dict(made.dropped)}
    typer.echo(json.dumps(counts))


@app.command("switch-controller")
def switch_controller(
    switch: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="P4Runtime address of the switch.")
    ],
    device_id: Annotated[
        int,
        typer.Option(
            "--device-id", min=1, max=(1 << 64) - 1, help="P4Runtime device id of the switch."
        ),
    ] = 1,
    election_id: Annotated[
        int,
        typer.Option(
            "--election-id",
            min=1,
            max=(1 << 128) - 1,
            help="Election id: the connected controller with the highest one writes.",
        ),
    ] = 1,
    ca: Annotated[
        str,
        typer.Option("--tls-ca", help="PEM file of the CA that signs the switch's certificate."),
    ] = "",
    certificate: Certificate = "",
    key: Key = "",
) -> None:
    """Write the table of states of a switch that runs state_replication_table, until Ctrl-C.

    Run one for each such switch, in addition to the refresher. If the switch does not answer, or
    has no tree yet, the command tries again.
    """
    # gRPC takes half a second, and no other command needs it.
    from stackcast.jobs.adapters.switches.credentials import Credentials  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.state_controller import StateController  # noqa: PLC0415

    _log()
    credentials = Credentials(ca, certificate, key)
    with stop_on_signal() as stop:
        made = StateController(switch, device_id, election_id, credentials, name=switch)
        typer.echo(json.dumps({"controls": switch}))
        made.run(stop.is_set)


def _serve(service: Service) -> None:
    """Raises what ended the service, unless it was a signal."""
    _log()
    with stop_on_signal() as stop:
        typer.echo(json.dumps({"listen": "{}:{}".format(*service.address)}))
        with serving(service) as running:
            while not running.done() and not stop.wait(_LOOK):
                pass


def _log() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)


@app.command()
def show(
    state: Annotated[str, typer.Argument(help="Name of a state; by default all states.")] = "",
    properties_file: SparkPropertiesFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each state.")
    ] = False,
) -> None:
    """Print publishers and replicas of each state, and how far they are, from the tables."""
    # No other command needs a JVM, or should wait for it.
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.settings import Settings  # noqa: PLC0415
    from stackcast.jobs.adapters.states.overview import overview  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.tables import Tables  # noqa: PLC0415

    start_with(properties_file)
    settings = Settings.read(session.properties())
    late: Any = session.LateSession("stackcast states show")
    for found in overview(Tables(late, settings.tables), state):
        typer.echo(json.dumps(found, default=str) if as_json else text_of(found))


def text_of(found: dict[str, Any]) -> str:
    """Returns a state of `overview` for people."""
    head = f"{found['name']}  state {found['state']}, {found['group']}"
    lines = [f"{head}, {found['segments']} segments kept"]
    for each in found["publishers"]:
        newest = "nothing yet" if each["newest"] is None else f"update {each['newest']}"
        ended = "" if each["alive"] else ", ended"
        lines.append(f"  published by {_who(each)}: {newest}{ended}")
    for each in found["replicas"]:
        since = each["live_since"]
        live = f"live since {since:%Y-%m-%d %H:%M:%S} UTC" if since else "not live yet"
        lacks = [
            f"{'none' if behind is None else f'{behind} behind'} of {vnf}"
            for vnf, behind in each["behind"].items()
            if behind != 0
        ]
        lines.append(f"  held by {_who(each)}: {live}, {', '.join(lacks) or 'has all'}")
    return "\n".join(map(printable, lines))


def _who(each: dict[str, Any]) -> str:
    return f"{each['name']} ({each['vnf']} at {each['host']})"


@app.command()
def publish(
    state: State,
    name: Name = "",
    middleware: Middleware = _LOCAL,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=0, help="Seconds to wait for the replica controller's confirmation."
        ),
    ] = 30.0,
    ca: Ca = "",
    certificate: Certificate = "",
    key: Key = "",
) -> None:
    """Publish each line of standard input as an update.

    The command ends when the replica controller has confirmed all updates.
    """
    credentials, place = StateCredentials(ca, certificate, key), parse_endpoint(middleware)
    with Replica(state, name, place, subscribes=False, credentials=credentials) as replica:
        for line in sys.stdin.buffer:
            replica.publish(line.rstrip(b"\n"))
        replica.flush(wait)


@app.command()
def subscribe(
    state: State,
    name: Name = "",
    middleware: Middleware = _LOCAL,
    count: Annotated[
        int, typer.Option("--count", min=0, help="Number of updates to print; 0 is no limit.")
    ] = 0,
    ca: Ca = "",
    certificate: Certificate = "",
    key: Key = "",
) -> None:
    """Print each update as a JSON object, one per line, until Ctrl-C or SIGTERM."""
    seen = 0
    credentials, place = StateCredentials(ca, certificate, key), parse_endpoint(middleware)
    with stop_on_signal() as stop, Replica(state, name, place, credentials=credentials) as replica:
        while not stop.is_set():
            for update in replica.updates(_LOOK):
                shown = {
                    "publisher": printable(update.publisher),
                    "vnf": update.vnf,
                    "update": update.number,
                    "data": update.data.decode(errors="backslashreplace"),
                }
                typer.echo(json.dumps(shown))
                seen += 1
                if seen == count or stop.is_set():
                    return
