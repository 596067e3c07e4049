"""The commands of ``stackcast rules``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stackcast.cli.options import Json, PropertiesFile, Tables

if TYPE_CHECKING:
    from pathlib import Path

    from stackcast.cli.rules.edits import DeployedRules

app = typer.Typer(no_args_is_help=True, help="Add, list and remove the rules of a deployment.")

RuleId = Annotated[str, typer.Argument(metavar="ID", help="Id of the rule")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait until a running stream uses the edit")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="Longest wait in seconds until a running stream uses the edit",
    ),
]


@app.command()
def add(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="Host that receives the events, the subscriber")
    ],
    rule: Annotated[
        str, typer.Argument(metavar="RULE", help="Text of the rule, or - for standard input")
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Id of the rule",
            show_default="HOST-1 or the next free number",
        ),
    ] = None,
    format_: Annotated[
        Literal["itch", "attributes"] | None,
        typer.Option(
            "--format",
            help="Format of the events",
            show_default="that of the properties file or of the other rules, or itch",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the rule that has this id")
    ] = False,
    disabled: Annotated[
        bool,
        typer.Option("--disabled", help="Write a rule that matches nothing until it is enabled"),
    ] = False,
    author: Annotated[
        str | None,
        typer.Option(
            "--author",
            metavar="NAME",
            help="Author of the row",
            show_default="the name of the user",
        ),
    ] = None,
    no_wait: NoWait = False,
    timeout: Timeout = 30.0,
    tables: Tables = None,
    properties_file: PropertiesFile = None,
) -> None:
    """Add a rule, or replace one.

    The command first checks the rule as a stream does: fields, constants, hosts and grants. It does
    not write a rule with an error. If a stream runs on the tables, the command waits until the rule
    is live and prints the version of table subscriptions since which it is live, or why the stream
    rejected it.

    The exit code is 1 if the rule is invalid or rejected, or if it is not live after the timeout.
    """
    from stackcast.cli.rules.edits import Draft  # noqa: PLC0415 - Delta takes long to import

    draft = Draft(host, rule, name, format_, not disabled, author)
    wait = None if no_wait else timeout
    raise typer.Exit(_open(tables, properties_file).add(draft, replace, wait))


@app.command()
def remove(
    name: RuleId,
    *,
    subscriber: Annotated[
        str | None,
        typer.Option(
            "--subscriber",
            metavar="HOST",
            help="Subscriber of the rule, if several rules have the id",
        ),
    ] = None,
    no_wait: NoWait = False,
    timeout: Timeout = 30.0,
    tables: Tables = None,
    properties_file: PropertiesFile = None,
) -> None:
    """Delete a rule, and wait until a running stream no longer uses it.

    The exit code is 1 if the rule is still live after the timeout.
    """
    wait = None if no_wait else timeout
    raise typer.Exit(_open(tables, properties_file).remove(name, subscriber, wait))


@app.command("list")
def list_command(
    *,
    subscriber: Annotated[
        str | None,
        typer.Option("--subscriber", metavar="HOST", help="Print only the rules of this host"),
    ] = None,
    state: Annotated[
        Literal["live", "rejected", "pending", "disabled"] | None,
        typer.Option("--state", help="Print only rules in this state"),
    ] = None,
    tables: Tables = None,
    properties_file: PropertiesFile = None,
    as_json: Json = False,
) -> None:
    """Print id, subscriber, format, state and text of the rules, ordered by id."""
    from stackcast.cli.rules import views  # noqa: PLC0415

    rows = _open(tables, properties_file).states()
    rows = [row for row in rows if subscriber in (None, row["subscriber"])]
    rows = [row for row in rows if state in (None, row["state"])]
    typer.echo(views.json_lines(rows) if as_json else views.table(rows), nl=not as_json)


@app.command()
def show(
    name: RuleId,
    *,
    tables: Tables = None,
    properties_file: PropertiesFile = None,
    as_json: Json = False,
) -> None:
    """Print a rule with its state, its author, and its errors or warnings."""
    from stackcast.cli.rules import views  # noqa: PLC0415

    rows = _open(tables, properties_file).details(name)
    text = views.json_lines(rows) if as_json else "\n\n".join(map(views.details, rows))
    typer.echo(text, nl=not as_json)


@app.command()
def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Ids of rules", show_default="all rules"),
    ] = None,
    *,
    tables: Tables = None,
    properties_file: PropertiesFile = None,
    as_json: Json = False,
) -> None:
    """Print which rules are live, rejected or pending, and which streams run on the tables.

    Rejected rules are printed with the place of each error. The exit code is 1 if one of the rules
    is rejected.
    """
    from stackcast.cli.rules import views  # noqa: PLC0415

    rules = _open(tables, properties_file)
    rows = rules.named(names or [])
    text = views.json_lines(rows) if as_json else views.status(rows, rules.streams())
    typer.echo(text, nl=not as_json)
    if any(row["state"] == "rejected" for row in rows):
        raise typer.Exit(1)


def _open(tables: str | None, properties_file: Path | None) -> DeployedRules:
    from stackcast.cli.rules.edits import open_rules  # noqa: PLC0415 - Delta takes long to import

    return open_rules(tables, properties_file)
