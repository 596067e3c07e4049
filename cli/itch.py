"""``stackcast itch``: generate, inspect and publish trading sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stackcast.cli.options import (
    BootstrapServers,
    DeploymentWidths,
    EventAttributes,
    Json,
    MessageEncoding,
    Partitions,
    PropertiesFile,
    SettingsFile,
)

app = typer.Typer(
    no_args_is_help=True, help="Generate, inspect and publish ITCH 5.0 trading sessions."
)

Seed = Annotated[
    int, typer.Option("--seed", help="Seed of the session; the same seed gives the same bytes")
]
Symbols = Annotated[
    int, typer.Option("--symbols", help="Number of stocks in the generated session")
]
Packets = Annotated[
    bool, typer.Option("--packets", help="Records are MoldUDP64 packets instead of messages")
]


@app.command()
def generate(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="File to write, compressed if its name ends in .gz"
        ),
    ],
    messages: Annotated[
        int,
        typer.Option("--messages", min=1, help="Number of messages", show_default="100,000"),
    ] = 100_000,
    seed: Seed = 1,
    symbols: Symbols = 200,
    packets: Packets = False,
) -> None:
    """Write a trading session as a Nasdaq BinaryFILE, a sequence of lengths and messages."""
    from stackcast.cli import itch_sessions  # noqa: PLC0415

    itch_sessions.generate(out, messages, seed, symbols, packets)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Nasdaq BinaryFILE, .gz or not")],
    *,
    packets: Packets = False,
    types: Annotated[
        str,
        typer.Option("--type", metavar="LETTERS", help="Only these message types, such as AF"),
    ] = "",
    symbol: Annotated[
        str, typer.Option("--symbol", metavar="STOCK", help="Only messages about this stock")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Largest number of messages to print")
    ] = 20,
    attributes: EventAttributes = None,
    encoding: MessageEncoding = None,
    widths: DeploymentWidths = None,
    properties_file: SettingsFile = None,
    as_json: Json = False,
) -> None:
    """Print messages, and then the count of each type.

    With --attributes, or with the properties file of a stream of attribute/value events, messages
    are events, which are printed as JSON.

    The command reads the file to its last byte. A file may contain several sessions: a record of
    length 0 ends a session, and is counted. Counts include all messages that --type and --symbol
    select, printed or not. The exit code is 0 if every byte was read. It is 1 if a message cannot
    be read or the file is truncated; the first faults are printed with their places. It is 2 if the
    file cannot be opened.
    """
    from stackcast.cli import itch_sessions  # noqa: PLC0415
    from stackcast.cli.deployment import read_deployment  # noqa: PLC0415

    itch_sessions.inspect(
        file,
        read_deployment(properties_file, attributes, encoding, widths),
        packets=packets,
        types=types,
        symbol=symbol,
        limit=limit,
        as_json=as_json,
    )


@app.command("publish")
def publish(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Nasdaq BinaryFILE or capture (pcap, pcapng) to publish, .gz or not",
        ),
    ] = None,
    *,
    packets: Packets = False,
    generated: Annotated[
        int,
        typer.Option(
            "--generate", min=0, help="Publish a generated session with this number of messages"
        ),
    ] = 0,
    speed: Annotated[
        str,
        typer.Option(
            "--speed",
            metavar="SPEED",
            help="Publishing speed: full (no limit), recorded (by timestamps), or messages per "
            "second",
        ),
    ] = "full",
    seed: Seed = 1,
    symbols: Symbols = 200,
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="NAME", help="Topic, which is created if it is missing"),
    ] = "itch.raw",
    partitions: Partitions = 2,
    bootstrap: BootstrapServers = None,
    properties_file: PropertiesFile = None,
) -> None:
    """Publish a session to Kafka as MoldUDP64 packets. Ctrl-C ends the command in order.

    A file is published to its last byte, session after session. With --packets its records are
    whole packets, which are sent unchanged. The MoldUDP64 packets of a capture are also sent
    unchanged, including heartbeats; other frames are left out, and standard error reports their
    number.

    The exit code is 2 if the file cannot be opened, is truncated or is damaged; messages before the
    fault may have been published.
    """
    if packets and generated:
        raise typer.BadParameter(
            "--packets applies to files, because generated sessions consist of messages"
        )
    if (file is None) == (generated == 0):
        raise typer.BadParameter("give either a file or --generate N")
    from stackcast.cli import itch_sessions  # noqa: PLC0415

    itch_sessions.publish_session(
        file,
        generated,
        topic,
        properties_file,
        bootstrap,
        packets=packets,
        speed=speed,
        seed=seed,
        symbols=symbols,
        partitions=partitions,
    )
