"""``stackcast network``: a check of the rows of a network before they become tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stackcast.cli.options import LabelBits
from stackcast.udfs.errors import printable

if TYPE_CHECKING:
    from stackcast.jobs.adapters.tables.network_folder import CheckedFolder

app = typer.Typer(no_args_is_help=True, help="Check the rows of a network in a folder.")

#: Largest number of problems that are printed.
_MAX_PRINTED = 100


@app.callback()
def network() -> None:
    """Check the rows of a network in a folder."""


@app.command()
def check(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Folder with switches.jsonl, hosts.jsonl, links.jsonl and others"
        ),
    ],
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding",
            metavar="NAME",
            help="Encoding of header stacks, as in spark.stackcast.encoding",
            show_default="that of the switches' programs",
        ),
    ] = "",
    label_bits: Annotated[
        LabelBits,
        typer.Option("--label-bits", help="Width of a label in bits, if --encoding is given"),
    ] = "16",
) -> None:
    """Check rows of a network as jobs/create_tables.py reads them from a folder.

    The command prints each problem with its file, line and column. If there is none,
    jobs/create_tables.py accepts the files, and the stream and the refresher accept the network.
    The exit code is 0 without problems, 1 with problems, and 2 if there are no rows to check.
    """
    # The help does not need Arrow.
    from stackcast.jobs.adapters.tables.network_folder import (  # noqa: PLC0415
        check_folder,
        unreachable_hosts,
    )
    from stackcast.udfs.network.encodings import ENCODINGS, label_format  # noqa: PLC0415
    from stackcast.udfs.network.simple_graph import shortened  # noqa: PLC0415

    if encoding and encoding not in ENCODINGS:
        raise typer.BadParameter(
            f"--encoding {encoding!r} is unknown: use one of {', '.join(ENCODINGS)}"
        )
    labels = label_format(encoding, int(label_bits)) if encoding else None
    checked = check_folder(folder, labels)
    for problem in checked.problems[:_MAX_PRINTED]:
        typer.echo(printable(problem.text))
    if checked.problems:
        typer.echo(_verdict(checked), err=True)
        raise typer.Exit(1)
    assert checked.network is not None
    unreachable = list(unreachable_hosts(checked.network))
    if not checked.network.publishers():
        typer.echo("note: no host has the role publisher, so nothing can be sent")
    elif unreachable:
        typer.echo(
            f"note: failed links separate these hosts from publishers: {shortened(unreachable)}"
        )
    typer.echo(f"{_summary(checked)}: ok")


def _verdict(checked: CheckedFolder) -> str:
    number, more = len(checked.problems), len(checked.problems) - _MAX_PRINTED
    text = f"{number:,} problem{'s' * (number != 1)}"
    if more > 0:
        text += f", {more:,} of them not shown"
    if checked.unread:
        text += "; the network itself is checked when all its rows can be read"
    return text


def _summary(checked: CheckedFolder) -> str:
    network = checked.network
    assert network is not None
    cables = sum(
        link.neighbor in network.hosts or link.switch < link.neighbor for link in network.links
    )
    counts = [
        (len(network.switches), "switch", "switches"),
        (len(network.hosts), "host", "hosts"),
        (cables, "link", "links"),
        (len(checked.trees), "stored tree", "stored trees"),
    ]
    return ", ".join(
        f"{count:,} {singular if count == 1 else plural}"
        for count, singular, plural in counts
        if count or singular != "stored tree"
    )
