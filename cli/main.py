"""``stackcast``: the console command, for what needs no Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from stackcast.cli.standard_streams import fill
from stackcast.jobs.adapters.app.logs import guard_streams
from stackcast.udfs.errors import StackcastError

if TYPE_CHECKING:
    from typer import Context


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
    "dead-letters": "stackcast.cli.dead_letters:dead_letters",
    "explain": "stackcast.cli.explain:explain",
    "receive": "stackcast.cli.receive.command:receive",
    "host-key": "stackcast.cli.keys:host_key",
}
#: The first sentence of each command's help, for the list of commands: without these, the list
#: would import all commands.
SUMMARIES = {
    "itch": "Make, read and publish ITCH 5.0 trading sessions.",
    "frames": "Look into frames: header stacks and what they carry.",
    "jobs": "Print what to give to spark-submit: the path of a job, packages, properties.",
    "lab": "Run broker, switches and hosts of the lab in the background.",
    "network": "Check the rows of a network in a folder.",
    "states": "Replicated states: controller, middleware, publish, subscribe.",
    "switch": "Open a shell on a switch of table switches, or run a software switch.",
    "rules": "Add, list and remove the rules of a deployment.",
    "filters": "Check, compile, test and explain subscriptions.",
    "attributes": "Encode, decode and publish attribute/value events.",
    "dead-letters": (
        "Print the newest dead letters of a stream: time, source, reason, field and first bytes."
    ),
    "explain": (
        "Explain why a notification was sent: event, rules, versions, batch, stack and path."
    ),
    "receive": "Print each message that this host is sent once, and request lost messages again.",
    "host-key": "Print the keys of one host, for its `stackcast receive --key-file`.",
}
# Help with colours consists of characters that `guard_streams` replaces.
PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}
#: Help is as wide as the terminal.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}


class HelpGroup(TyperGroup):
    """A group of commands whose help shows the whole summary of each command."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the commands. That of typer imports each command."""
        return list(self.commands)

    def format_commands(self, ctx: Context, formatter: Any) -> None:
        """Write the list of commands. That of typer cuts each summary to one line."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.summary(ctx, name)) for name in self.list_commands(ctx)]
            )

    def summary(self, ctx: Context, name: str) -> str:
        """Return the summary of a command: the first sentence of its help."""
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=1000) if command else ""


class Commands(Mapping[str, Any]):
    """The commands by name; each is imported when it is used.

    Their libraries take up to a second to import, and a command needs few of them.
    """

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(module), attribute)
        part = typer.Typer(add_completion=False, **PLAIN)
        if isinstance(found, typer.Typer):
            part.add_typer(found, name=name, cls=HelpGroup)
            return typer.main.get_group(part).commands[name]
        part.command(name)(found)
        return typer.main.get_command(part)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandGroup(HelpGroup):
    """The command line with `Commands`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": Commands()})

    def summary(self, ctx: Context, name: str) -> str:
        """Return the summary of a command, which is not imported for it."""
        return SUMMARIES.get(name) or super().summary(ctx, name)


app = typer.Typer(
    name="stackcast", cls=CommandGroup, no_args_is_help=True, context_settings=CONTEXT, **PLAIN
)


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
