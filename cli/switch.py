"""``stackcast switch``: work on one switch of table ``switches``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from stackcast.udfs.errors import SwitchError, nearest

app = typer.Typer(no_args_is_help=True, help="Work on one switch of table switches.")


@app.callback()
def switch() -> None:
    """Work on one switch of table switches."""


@app.command("shell")
def shell(
    name: Annotated[str, typer.Argument(help="Name of the switch in table switches.")],
    properties_file: Annotated[
        Path | None,
        typer.Option("--properties-file", exists=True, help="Spark properties of the deployment."),
    ] = None,
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

    if properties_file is not None:
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--properties-file {shlex.quote(str(properties_file.absolute()))} pyspark-shell"
        )
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
