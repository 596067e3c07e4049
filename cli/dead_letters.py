"""``stackcast dead-letters``: the dead letters of a stream, from their topic."""

from __future__ import annotations

from typing import Annotated

import typer

from stackcast.cli.options import BootstrapServers, Json, PropertiesFile


def dead_letters(
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Topic of dead letters",
            show_default="that of the properties file, or itch.dead and attributes.dead",
        ),
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=0, help="Number of the newest dead letters to print; 0 prints all"
        ),
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Also print new dead letters, until Ctrl-C")
    ] = False,
    bootstrap: BootstrapServers = None,
    properties_file: PropertiesFile = None,
    as_json: Json = False,
) -> None:
    """Print the newest dead letters of a stream: time, source, reason, field and first bytes.

    A stream writes samples of the records and messages that it cannot deliver to this topic, and
    counts the others.
    """
    from stackcast.cli.dead_letter_reader import print_letters  # noqa: PLC0415 - it imports Kafka

    print_letters(properties_file, bootstrap, topic, limit, follow, as_json)
