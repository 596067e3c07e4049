"""``stackcast switch``: a shell on a switch of table ``switches``, and a software switch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stackcast.cli.options import PropertiesFile
from stackcast.udfs.errors import SwitchError, nearest

app = typer.Typer(
    no_args_is_help=True,
    help="Open a shell on a switch of table switches, or run a software switch.",
)

_RUN_HELP = """Run one software switch for development, until SIGTERM or Ctrl-C.

In production, use BMv2 or hardware with the same files. The same switch with BMv2:

simple_switch_grpc --device-id 1 -i 1@veth0 -i 2@veth2 PROGRAM.json -- --grpc-server-addr HOST:PORT

The command prints a line of JSON when it is ready, and its counters on SIGUSR1 and at its end. See
docs/reference/lab-switch.md for ports, TLS and limits of the model.
"""


@app.command("run", help=_RUN_HELP)
def run(
    *,
    program: Annotated[
        Path | None,
        typer.Option(
            "--program",
            metavar="FILE",
            help="BMv2 JSON file of the program to start with; without it, a P4Runtime client "
            "sets a program",
        ),
    ] = None,
    p4info: Annotated[
        Path | None,
        typer.Option("--p4info", metavar="FILE", help="P4Info text file of the same program"),
    ] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            metavar="N=LINK",
            help="Port of the switch: 1=udp:IP:PORT/IP:PORT for a UDP tunnel, the end of the "
            "switch first, or 1=veth0 for an interface (needs root or CAP_NET_RAW); may be "
            "repeated",
        ),
    ] = None,
    grpc: Annotated[
        str, typer.Option("--grpc", metavar="HOST:PORT", help="Address of the P4Runtime server")
    ] = "127.0.0.1:9559",
    device_id: Annotated[
        int, typer.Option("--device-id", min=1, max=(1 << 64) - 1, help="P4Runtime device id")
    ] = 1,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE=NAME,NAME",
            help="P4Runtime role, and the names in the certificates of the clients that may use "
            "it, or *; without ROLE, the default role; may be repeated",
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca",
            metavar="FILE",
            help="PEM file of a CA; clients must have a certificate that it signed",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate",
            metavar="FILE",
            help="PEM file of the certificate to serve TLS with",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key", metavar="FILE", help="PEM file of the private key of --tls-certificate"
        ),
    ] = None,
) -> None:
    # The help does not need gRPC.
    from stackcast.lab.fabric import standalone  # noqa: PLC0415
    from stackcast.lab.fabric.ports import read_ports  # noqa: PLC0415
    from stackcast.switch.p4runtime.roles import read_roles  # noqa: PLC0415

    options = standalone.SwitchOptions(
        links=read_ports(port or ()),
        grpc=grpc,
        device_id=device_id,
        json=program,
        p4info=p4info,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_ca=tls_ca,
        roles=read_roles(role or ()),
    )
    standalone.serve(options, lambda line: typer.echo(json.dumps(line)))
    sys.stdout.flush()
    # Otherwise Python would wait for the requests of clients that are still connected.
    os._exit(0)


@app.command("shell")
def shell(
    name: Annotated[
        str, typer.Argument(metavar="SWITCH", help="Name of the switch in table switches")
    ],
    election_id: Annotated[
        int,
        typer.Option(
            "--election-id",
            min=0,
            max=(1 << 128) - 1,
            help="Election id to write with; 0 only reads. A refresher with a lower id does not "
            "write to this switch while the shell is open, and restores its entries afterwards",
        ),
    ] = 0,
    properties_file: PropertiesFile = None,
) -> None:
    """Open p4runtime-shell, an interactive shell for P4Runtime, on a switch.

    Leave it with exit or Ctrl-D. The shell has the credentials and the role of the refresher,
    spark.stackcast.p4runtime.tls.* and spark.stackcast.p4runtime.role.
    """
    # Most commands do not need Spark.
    from stackcast.cli.deployment import lab_properties  # noqa: PLC0415
    from stackcast.cli.spark_properties import start_with  # noqa: PLC0415
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error  # noqa: PLC0415
    from stackcast.jobs.adapters.app.settings import Settings  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.credentials import Credentials  # noqa: PLC0415
    from stackcast.jobs.adapters.switches.shell import open_shell  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.open_tables import open_tables  # noqa: PLC0415

    start_with(properties_file or lab_properties())
    settings = Settings.read(session.properties())
    spark = session.start("stackcast switch shell")
    quiet(spark)
    try:
        tables = open_tables(spark, settings.tables)
        switches = {row["switch"]: row for row in tables.rows("switches")}
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
    access = (
        f"election id {election_id}" if election_id else "read-only; --election-id N allows writing"
    )
    typer.echo(
        f"switch {name} at {row['address']}, {access}; exit or Ctrl-D ends the shell", err=True
    )
    open_shell(name, row["address"], row["device_id"], credentials, election_id)
