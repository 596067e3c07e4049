"""``stackcast switch``: a shell on a switch of table ``switches``, and a software switch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stackcast.cli.spark_properties import SparkPropertiesFile, start_with
from stackcast.udfs.errors import SwitchError, nearest

app = typer.Typer(
    no_args_is_help=True,
    help="Open a shell on a switch of table switches, or run a software switch.",
)

_RUN_HELP = """Run one software switch, for development, until SIGTERM or Ctrl-C.

In production, use BMv2 or hardware with the same files. The same switch with BMv2:

simple_switch_grpc --device-id 1 -i 1@veth0 -i 2@veth2 PROGRAM.json -- --grpc-server-addr HOST:PORT

The command prints a line of JSON when it is ready, and its counters on SIGUSR1 and at its end. See
docs/reference/lab-switch.md for ports, TLS and limits of the model.
"""


@app.command("run", help=_RUN_HELP)
def run(
    *,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="BMv2 JSON to run from the start; without it, a P4Runtime client sets a program.",
        ),
    ] = None,
    p4info: Annotated[
        Path | None,
        typer.Option("--p4info", metavar="FILE", help="P4Info (text) of the same program."),
    ] = None,
    grpc: Annotated[
        str, typer.Option("--grpc", metavar="HOST:PORT", help="Address of the P4Runtime server.")
    ] = "127.0.0.1:9559",
    port: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="N=LINK",
            help="1=udp:IP:PORT/IP:PORT (a tunnel, near end first) or 1=veth0 (an interface; "
            "root or CAP_NET_RAW). May be repeated.",
        ),
    ] = None,
    device_id: Annotated[
        int, typer.Option("--device-id", min=1, max=(1 << 64) - 1, help="P4Runtime device id.")
    ] = 1,
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", metavar="PEM", help="Serve TLS with this certificate."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="PEM", help="Private key of --tls-certificate."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca", metavar="PEM", help="Require client certificates signed by this CA."
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE=NAME,NAME",
            help="P4Runtime role, and the names in certificates of clients that may use it, or *; "
            "without ROLE, the default role. May be repeated.",
        ),
    ] = None,
) -> None:
    # Help does not need gRPC.
    from stackcast.lab.fabric import standalone  # noqa: PLC0415
    from stackcast.lab.fabric.ports import read_ports  # noqa: PLC0415
    from stackcast.switch.p4runtime.roles import read_roles  # noqa: PLC0415

    options = standalone.SwitchOptions(
        links=read_ports(port or ()),
        grpc=grpc,
        device_id=device_id,
        json=json_file,
        p4info=p4info,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_ca=tls_ca,
        roles=read_roles(role or ()),
    )
    standalone.serve(options, lambda line: typer.echo(json.dumps(line)))
    sys.stdout.flush()
    # Otherwise Python would wait for what a client still asks of the server.
    os._exit(0)


@app.command("shell")
def shell(
    name: Annotated[str, typer.Argument(help="Name of the switch in table switches.")],
    properties_file: SparkPropertiesFile = None,
    election_id: Annotated[
        int,
        typer.Option(
            "--election-id",
            min=0,
            max=(1 << 128) - 1,
            help="Election id to write with; 0 only reads. A refresher with a lower id pauses for "
            "this switch, and restores its entries when the shell ends.",
        ),
    ] = 0,
) -> None:
    """Open p4runtime-shell, an interactive shell for P4Runtime, on a switch.

    Leave it with exit or Ctrl-D. Credentials and role are those of the refresher,
    spark.stackcast.p4runtime.tls.* and spark.stackcast.p4runtime.role.
    """
    # Other commands do not need Spark.
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error  # noqa: PLC0415
    from stackcast.jobs.adapters.app.settings import Settings  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.credentials import Credentials  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.shell import open_shell  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.tables import Tables  # noqa: PLC0415

    start_with(properties_file)
    settings = Settings.read(session.properties())
    spark = session.start("stackcast switch shell")
    quiet(spark)
    try:
        switches = {row["switch"]: row for row in Tables(spark, settings.tables).rows("switches")}
    except SQL_ERRORS as error:
        typer.echo(str(table_error(error)), err=True)
        raise typer.Exit(2) from None
    finally:
        spark.stop()
    if name not in switches:
        similar = nearest(name, switches)
        hint = f"; did you mean {similar!r}?" if similar else ""
        raise SwitchError("UNKNOWN_SWITCH", f"table switches has no switch {name!r}{hint}")
    credentials = Credentials(
        settings.tls_ca, settings.tls_certificate, settings.tls_key, settings.role
    ).for_switch(name)
    row = switches[name]
    access = f"election id {election_id}" if election_id else "reading only; --election-id N writes"
    typer.echo(
        f"switch {name} at {row['address']}, {access}; exit or Ctrl-D ends the shell", err=True
    )
    open_shell(name, row["address"], row["device_id"], credentials, election_id)
