"""``stackcast states``: controllers, a host's middleware, and states published and replicated."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from stackcast.cli.options import (
    BootstrapServers,
    Json,
    PropertiesFile,
    TlsCa,
    TlsCertificate,
    TlsKey,
    check_name,
)
from stackcast.udfs.errors import printable

app = typer.Typer(
    no_args_is_help=True, help="Replicated states: controller, middleware, publish, subscribe."
)

#: Default ports of `stackcast.udfs.states.messages`, which imports NumPy.
_CONTROLLER = "127.0.0.1:65430"
_MIDDLEWARE = "127.0.0.1:65431"

State = Annotated[str, typer.Argument(metavar="STATE", help="Name of the state")]
Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Name of this program",
        show_default="the name of the host",
    ),
]
Middleware = Annotated[
    str,
    typer.Option(
        "--middleware", metavar="HOST:PORT", help="TCP address of the middleware on this host"
    ),
]
Address = Annotated[
    str,
    typer.Option(
        "--address", metavar="IP", help="IPv4 address of this host in the network of states"
    ),
]
Listen = Annotated[
    str,
    typer.Option("--listen", metavar="HOST:PORT", help="TCP address to listen on"),
]
Link = Annotated[
    str,
    typer.Option(
        "--link",
        metavar="udp:NEAR:PORT/FAR:PORT",
        help="UDP tunnel to a port of a switch, used instead of the interface that has --address",
    ),
]


@app.command()
def controller(
    address: Address,
    listen: Listen = _CONTROLLER,
    link: Link = "",
    topics: Annotated[
        str,
        typer.Option(
            "--topics", metavar="PREFIX", help="Prefix of the names of the two Kafka topics"
        ),
    ] = "states",
    bootstrap: BootstrapServers = None,
    properties_file: PropertiesFile = None,
    tls_ca: TlsCa = "",
    tls_certificate: TlsCertificate = "",
    tls_key: TlsKey = "",
) -> None:
    """Run the replica controller until Ctrl-C or SIGTERM.

    The controller numbers programs and states, and keeps updates in Kafka to repair losses. Run
    only one at a time: a second one on the same topics takes over, and the first one ends.
    """
    from stackcast.cli.state_programs import run_controller  # noqa: PLC0415
    from stackcast.jobs.adapters.states.credentials import StateCredentials  # noqa: PLC0415

    credentials = StateCredentials(tls_ca, tls_certificate, tls_key)
    run_controller(address, listen, link, topics, bootstrap, properties_file, credentials)


@app.command()
def middleware(
    address: Address,
    controller: Annotated[
        str,
        typer.Option(
            "--controller", metavar="HOST:PORT", help="TCP address of the replica controller"
        ),
    ] = _CONTROLLER,
    listen: Listen = _MIDDLEWARE,
    link: Link = "",
    tls_ca: TlsCa = "",
    tls_certificate: TlsCertificate = "",
    tls_key: TlsKey = "",
) -> None:
    """Carry states between this host's programs and the network, until Ctrl-C or SIGTERM."""
    from stackcast.cli.state_programs import run_middleware  # noqa: PLC0415
    from stackcast.jobs.adapters.states.credentials import StateCredentials  # noqa: PLC0415

    credentials = StateCredentials(tls_ca, tls_certificate, tls_key)
    run_middleware(address, controller, listen, link, credentials)


@app.command("switch-controller")
def switch_controller(
    switch: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="P4Runtime address of the switch")
    ],
    device_id: Annotated[
        int,
        typer.Option(
            "--device-id", min=1, max=(1 << 64) - 1, help="P4Runtime device id of the switch"
        ),
    ] = 1,
    election_id: Annotated[
        int,
        typer.Option(
            "--election-id",
            min=1,
            max=(1 << 128) - 1,
            help="Election id; of all connected controllers, the one with the highest id writes",
        ),
    ] = 1,
    tls_ca: TlsCa = "",
    tls_certificate: TlsCertificate = "",
    tls_key: TlsKey = "",
) -> None:
    """Write the table of states of a switch that runs state_replication_table, until Ctrl-C.

    Run one for each such switch, in addition to the refresher. If the switch does not answer, or
    has no tree yet, the command tries again.
    """
    # gRPC takes half a second, and no other command of this module needs it.
    from stackcast.cli.signals import log_to_stderr, stop_on_signal  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.credentials import Credentials  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.state_controller import StateController  # noqa: PLC0415

    log_to_stderr()
    credentials = Credentials(tls_ca, tls_certificate, tls_key)
    with stop_on_signal() as stop:
        running = StateController(switch, device_id, election_id, credentials, name=switch)
        typer.echo(json.dumps({"controls": switch}))
        running.run(stop.is_set)


@app.command()
def show(
    state: Annotated[
        str,
        typer.Argument(metavar="STATE", help="Name of a state", show_default="all states"),
    ] = "",
    properties_file: PropertiesFile = None,
    as_json: Json = False,
) -> None:
    """Print the publishers and replicas of each state, and how far each replica is behind."""
    # A JVM takes seconds to start.
    from stackcast.cli.deployment import lab_properties  # noqa: PLC0415
    from stackcast.cli.spark_properties import start_with  # noqa: PLC0415
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.settings import Settings  # noqa: PLC0415
    from stackcast.jobs.adapters.states.overview import overview  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.open_tables import open_tables  # noqa: PLC0415

    start_with(properties_file or lab_properties())
    settings = Settings.read(session.properties())
    late_session: Any = session.LateSession("stackcast states show")
    for row in overview(open_tables(late_session, settings.tables), state):
        typer.echo(json.dumps(row, default=str) if as_json else text_of(row))


def text_of(row: dict[str, Any]) -> str:
    """Return a state of `overview` as text."""
    head = f"{row['name']}  state {row['state']}, {row['group']}"
    lines = [f"{head}, {row['segments']} segments kept"]
    for publisher in row["publishers"]:
        newest = publisher["newest"]
        update = "no update yet" if newest is None else f"update {newest}"
        ended = "" if publisher["alive"] else ", ended"
        lines.append(f"  published by {_place(publisher)}: {update}{ended}")
    for replica in row["replicas"]:
        since = replica["live_since"]
        live = f"live since {since:%Y-%m-%d %H:%M:%S} UTC" if since else "not live yet"
        missing = [
            f"no update of {vnf}" if behind is None else f"{behind} updates of {vnf} behind"
            for vnf, behind in replica["behind"].items()
            if behind != 0
        ]
        status = ", ".join(missing) or "up to date"
        lines.append(f"  replicated by {_place(replica)}: {live}, {status}")
    return "\n".join(map(printable, lines))


def _place(row: dict[str, Any]) -> str:
    return f"{row['name']} ({row['vnf']} at {row['host']})"


@app.command()
def publish(
    state: State,
    name: Name = "",
    middleware: Middleware = _MIDDLEWARE,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="Longest wait in seconds for the confirmation of the replica controller",
        ),
    ] = 30.0,
    tls_ca: TlsCa = "",
    tls_certificate: TlsCertificate = "",
    tls_key: TlsKey = "",
) -> None:
    """Publish each line of standard input as an update.

    The command ends when the replica controller has confirmed all updates.
    """
    _check_names(state, name)
    from stackcast.cli.state_programs import publish_lines  # noqa: PLC0415
    from stackcast.jobs.adapters.states.credentials import StateCredentials  # noqa: PLC0415

    credentials = StateCredentials(tls_ca, tls_certificate, tls_key)
    publish_lines(state, name, middleware, timeout, credentials)


@app.command()
def subscribe(
    state: State,
    name: Name = "",
    middleware: Middleware = _MIDDLEWARE,
    count: Annotated[
        int, typer.Option("--count", min=0, help="Number of updates to print; 0 means no limit")
    ] = 0,
    tls_ca: TlsCa = "",
    tls_certificate: TlsCertificate = "",
    tls_key: TlsKey = "",
) -> None:
    """Print each update as a JSON object, one per line, until Ctrl-C or SIGTERM."""
    _check_names(state, name)
    from stackcast.cli.state_programs import print_updates  # noqa: PLC0415
    from stackcast.jobs.adapters.states.credentials import StateCredentials  # noqa: PLC0415

    credentials = StateCredentials(tls_ca, tls_certificate, tls_key)
    print_updates(state, name, middleware, count, credentials)


def _check_names(state: str, program: str) -> None:
    check_name("STATE", state)
    if program:
        check_name("--name", program)
