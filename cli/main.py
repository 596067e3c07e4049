"""``stackcast``: the console command, for what needs no Spark."""

from __future__ import annotations

import sys

import typer

from cli import frames, itch, lab
from udfs.errors import StackcastError

app = typer.Typer(
    name="stackcast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Deliver each event to exactly the hosts that subscribed to it.",
)
app.add_typer(itch.app, name="itch")
app.add_typer(frames.app, name="frames")
app.add_typer(lab.app, name="lab")


def main() -> None:
    """Run the command line; an error of ours is one line, ``CODE: message``, and exit code 2."""
    try:
        app()
    except StackcastError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
