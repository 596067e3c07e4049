"""``stackcast``: the console command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stackcast.cli.help import HelpCommand, HelpGroup
from stackcast.cli.standard_streams import fill
from stackcast.jobs.adapters.app.logs import guard_streams
from stackcast.udfs.errors import StackcastError, printable

if TYPE_CHECKING:
    from typer import Context


#: Module of each command, and the application or function in it.
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
#: First sentence of the help of each command. The list of commands would otherwise import them all.
SUMMARIES = {
    "itch": "Generate, inspect and publish ITCH 5.0 trading sessions.",
    "frames": "Dissect frames: header stacks and their content.",
    "jobs": "Print arguments for spark-submit: the path of a job, packages, properties.",
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
    "receive": "Print each message for this host once, and request lost messages again.",
    "host-key": "Print the keys of one host for 'stackcast receive'.",
}
#: Rich would format help with characters that `guard_streams` replaces.
PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": None}
#: Help is as wide as the terminal.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}


class Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is used."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        parent = typer.Typer(add_completion=False, **PLAIN)
        if isinstance(command, typer.Typer):
            for information in command.registered_commands:
                information.cls = HelpCommand
            parent.add_typer(command, name=name, cls=HelpGroup)
            return typer.main.get_group(parent).commands[name]
        parent.command(name, cls=HelpCommand)(command)
        return typer.main.get_command(parent)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandGroup(HelpGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": Commands()})

    def summary(self, ctx: Context, name: str) -> str:
        """Return the summary of a command without importing the command."""
        return SUMMARIES.get(name) or super().summary(ctx, name)


app = typer.Typer(
    name="stackcast", cls=CommandGroup, no_args_is_help=True, context_settings=CONTEXT, **PLAIN
)


def _show_version(is_given: bool) -> None:
    if is_given:
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
    """Run the command line.

    Errors of Stackcast and of files end it with exit code 2 and a line on standard error, or with
    three lines if the error shows a place in a text.
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
        print(f"stackcast: {' '.join(_error_text(error, sys.argv[1:]).split())}", file=sys.stderr)
        sys.exit(2)


def _error_text(error: OSError, words: Sequence[str]) -> str:
    """Return an error of the system with its file and without its number.

    Args:
        error: the error.
        words: command line; if an option of it has the file as its value, the text names it.
    """
    if error.strerror is None or error.filename is None:
        return str(error)
    name = str(error.filename)
    option = next(
        (
            f"{option} "
            for word, following in pairwise((*words, ""))
            for option, has_value, value in [word.partition("=")]
            if option.startswith("--") and Path(value if has_value else following) == Path(name)
        ),
        "",
    )
    return f"{option}'{printable(name)}': {error.strerror}"


if __name__ == "__main__":
    main()
