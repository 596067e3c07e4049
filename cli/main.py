"""``stackcast``: the console command, for what needs no Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stackcast.cli.standard_streams import fill
from stackcast.jobs.adapters.app.logs import guard_streams
from stackcast.udfs.errors import StackcastError

#: Module, and the application or function in it, of each command.
COMMANDS = {
    "itch": "stackcast.cli.itch:app",
    "frames": "stackcast.cli.frames:app",
    "jobs": "stackcast.cli.jobs:app",
    "lab": "stackcast.cli.lab:app",
    "network": "stackcast.cli.network:app",
    "states": "stackcast.cli.states:app",
    "switch": "stackcast.cli.switch:app",
    "rules": "stackcast.cli.rules.command:app",
    "filters": "stackcast.cli.filters.command:app",
    "attributes": "stackcast.cli.attributes.command:app",
    "explain": "stackcast.cli.explain:explain",
    "receive": "stackcast.cli.receive.command:receive",
    "host-key": "stackcast.cli.keys:host_key",
}
# Help with colours consists of characters that `guard_streams` replaces.
PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}


class Commands(Mapping[str, Any]):
    """The commands by name; each is imported when it is used.

    Their libraries take up to a second to import, and a command needs few of them.
    """

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(module), attribute)
        part = typer.Typer(add_completion=False, **PLAIN)
        if isinstance(found, typer.Typer):
            part.add_typer(found, name=name)
            return typer.main.get_group(part).commands[name]
        part.command(name)(found)
        return typer.main.get_command(part)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandGroup(TyperGroup):
    """The command line with `Commands`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": Commands()})


app = typer.Typer(name="stackcast", cls=CommandGroup, no_args_is_help=True, **PLAIN)


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
