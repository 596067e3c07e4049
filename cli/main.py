"""``stackcast``: the console command, for what needs no Spark."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from stackcast.cli import explain, frames, itch, keys, lab, send_frame, states, switch
from stackcast.cli.attributes import command
from stackcast.cli.filters import command as filters
from stackcast.cli.receive import command as receive
from stackcast.cli.standard_streams import fill
from stackcast.jobs.adapters.app.logs import guard_streams
from stackcast.udfs.errors import StackcastError

app = typer.Typer(
    name="stackcast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help in colours is made of what `guard_streams` writes out
)
app.add_typer(itch.app, name="itch")
app.add_typer(frames.app, name="frames")
frames.app.command("send")(send_frame.send)
app.add_typer(lab.app, name="lab")
app.add_typer(states.app, name="states")
app.add_typer(switch.app, name="switch")
app.add_typer(filters.app, name="filters")
app.add_typer(command.app, name="attributes")
app.command("explain")(explain.explain)
app.command("receive")(receive.receive)
app.command("host-key")(keys.host_key)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stackcast {version('stackcast')}")
        raise typer.Exit


@app.callback()
def stackcast(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Deliver each event to exactly the hosts that subscribed to it."""


def main() -> None:
    """Run the command line; an error of ours or of files ends it with exit code 2.

    An error is one line, or three if it shows the place in a text.
    """
    fill()
    guard_streams()
    try:
        app()
    except StackcastError as error:
        shows_place = "line" in error.fields
        print(str(error) if shows_place else " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"stackcast: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
