"""The commands of ``stackcast rules``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(no_args_is_help=True, help="Add, list and remove the rules of a deployment.")

TablesOption = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="FOLDER",
        help="Folder of the tables; by default that of the properties file, of the running lab, "
        "or var/tables.",
    ),
]
PropertiesOption = Annotated[
    Path | None,
    typer.Option(
        "--properties-file", metavar="FILE", help="Spark properties of the stream on these tables."
    ),
]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait until a running stream has the edit.")
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", help="Longest wait for a running stream, in seconds."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a JSON object per rule.")]


@app.command()
def add(
    host: Annotated[str, typer.Argument(help="Host that receives the events: the subscriber.")],
    rule: Annotated[str, typer.Argument(help="Text of the rule; - reads it from standard input.")],
    *,
    name: Annotated[
        str | None,
        typer.Option("--id", help="Id of the rule; by default HOST-1 or the next free number."),
    ] = None,
    format_: Annotated[
        Literal["itch", "attributes"] | None,
        typer.Option(
            "--format",
            help="Format of the events; by default that of the properties file or of the other "
            "rules, or itch.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the rule that has this id.")
    ] = False,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Write a rule that matches nothing until enabled.")
    ] = False,
    author: Annotated[
        str | None,
        typer.Option("--author", help="Author of the row; by default the name of the user."),
    ] = None,
    tables: TablesOption = None,
    properties_file: PropertiesOption = None,
    no_wait: NoWaitOption = False,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Add a rule, or replace one.

    The rule is checked first, as a stream checks it: fields, constants, hosts and grants. A rule
    with an error is not written. If a stream runs on the tables, the command waits until the rule
    is live and prints since which version of table subscriptions, or why the stream rejected it.

    The exit code is 1 if the rule is not valid, is rejected, or is not live after the timeout.
    """
    from stackcast.cli.rules import edits  # noqa: PLC0415 - Delta takes long to import

    draft = edits.Draft(host, rule, name, format_, not disabled, author)
    wait = None if no_wait else timeout
    raise typer.Exit(edits.add(tables, properties_file, draft, replace, wait))


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the rule.")],
    *,
    subscriber: Annotated[
        str | None,
        typer.Option("--subscriber", help="Subscriber of the rule, if several rules have the id."),
    ] = None,
    tables: TablesOption = None,
    properties_file: PropertiesOption = None,
    no_wait: NoWaitOption = False,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Delete a rule, and wait until a running stream no longer uses it.

    The exit code is 1 if it is still live after the timeout.
    """
    from stackcast.cli.rules import edits  # noqa: PLC0415

    wait = None if no_wait else timeout
    raise typer.Exit(edits.remove(tables, properties_file, name, subscriber, wait))


@app.command("list")
def list_command(
    *,
    subscriber: Annotated[
        str | None, typer.Option("--subscriber", help="Print only the rules of this host.")
    ] = None,
    state: Annotated[
        Literal["live", "rejected", "pending", "disabled"] | None,
        typer.Option("--state", help="Print only rules in this state."),
    ] = None,
    as_json: JsonOption = False,
    tables: TablesOption = None,
    properties_file: PropertiesOption = None,
) -> None:
    """Print id, subscriber, format, state and text of the rules, ordered by id."""
    from stackcast.cli.rules import edits, views  # noqa: PLC0415

    rows = edits.open_rules(tables, properties_file).states()
    rows = [row for row in rows if subscriber in (None, row["subscriber"])]
    rows = [row for row in rows if state in (None, row["state"])]
    typer.echo(views.json_lines(rows) if as_json else views.table(rows))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the rule.")],
    *,
    as_json: JsonOption = False,
    tables: TablesOption = None,
    properties_file: PropertiesOption = None,
) -> None:
    """Print a rule with its state, its author, and its errors or warnings."""
    from stackcast.cli.rules import edits, views  # noqa: PLC0415

    rows = edits.open_rules(tables, properties_file).details(name)
    typer.echo(views.json_lines(rows) if as_json else "\n\n".join(map(views.details, rows)))


@app.command()
def status(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of rules; by default all.")
    ] = None,
    *,
    as_json: JsonOption = False,
    tables: TablesOption = None,
    properties_file: PropertiesOption = None,
) -> None:
    """Print which rules are live, rejected or pending, and which streams run on the tables.

    Rejected rules are printed with the place of each error. The exit code is 1 if one of the rules
    is rejected.
    """
    from stackcast.cli.rules import edits, views  # noqa: PLC0415

    rules = edits.open_rules(tables, properties_file)
    rows = rules.named(names or [])
    typer.echo(views.json_lines(rows) if as_json else views.status(rows, rules.streams()))
    if any(row["state"] == "rejected" for row in rows):
        raise typer.Exit(1)
