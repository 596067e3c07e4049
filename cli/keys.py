"""``stackcast host-key``: the keys of one host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stackcast.cli.options import check_name


def host_key(
    master: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="File of master keys, with an id and a key in hex on each line"
        ),
    ],
    host: Annotated[str, typer.Argument(metavar="HOST", help="Name of the host in table hosts")],
) -> None:
    """Print the keys of one host for 'stackcast receive'.

    With these keys, a program can verify and forge summaries for this host, but for no other host.
    """
    check_name("HOST", host)
    from stackcast.jobs.adapters.app.key_files import keys_in  # noqa: PLC0415

    for key in keys_in(master):
        typer.echo(f"{key.id} {key.for_host(host).secret.hex()}")
