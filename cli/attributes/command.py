"""The commands of ``stackcast attributes``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from stackcast.cli.options import (
    Attributes,
    BootstrapServers,
    Encoding,
    EventEncoding,
    Interface,
    Partitions,
    PropertiesFile,
    Tables,
    Widths,
)

app = typer.Typer(no_args_is_help=True, help="Encode, decode and publish attribute/value events.")

#: MAC address of the lab's publisher, and session of its packets.
_SOURCE, _SESSION = "02:00:00:00:00:01", "STACKCAST1"
_WIDTHS = "8/32"

Source = Annotated[
    str,
    typer.Option("--source", metavar="MAC", help="MAC address that frames are sent from"),
]


@app.command()
def encode(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File of JSON lines, .gz or not, or - for standard input"
        ),
    ] = "-",
    *,
    frames: Annotated[
        bool, typer.Option("--frames", help="Write Ethernet frames of EtherType 0x9001")
    ] = False,
    source: Source = _SOURCE,
    encoding: Encoding = "id_pairs",
    attributes: Attributes = None,
    widths: Widths = _WIDTHS,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="File to write: a Nasdaq BinaryFILE, or a pcap file with --frames",
            show_default="hex on standard output",
        ),
    ] = None,
    as_hex: Annotated[
        bool, typer.Option("--hex", help="Write hex into --out, one record per line")
    ] = False,
) -> None:
    """Write each line of JSON, such as {"temp": 25.5, "hum": 30}, as a header.

    Without --out, the command prints hex, one record per line. A line that is not an event is
    reported with its number, the reason and the attribute at fault; the other lines are written,
    and the exit code is 1 then. Values between two steps of their attribute are rounded, and
    standard error reports their number.

    'stackcast attributes export' writes the attributes of a deployment.
    """
    from stackcast.cli.attributes import conversion  # noqa: PLC0415

    conversion.encode(
        file,
        encoding=encoding,
        attributes=attributes,
        widths=widths,
        frames=frames,
        source=source,
        out=out,
        as_hex=as_hex,
    )


@app.command()
def decode(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Hex lines, a Nasdaq BinaryFILE or a pcap file, .gz or not, or - for standard "
            "input",
        ),
    ] = "-",
    *,
    encoding: Annotated[
        EventEncoding | None,
        typer.Option(
            "--encoding",
            help="Encoding of events that are not in frames",
            show_default="id_pairs",
        ),
    ] = None,
    attributes: Attributes = None,
    widths: Widths = _WIDTHS,
) -> None:
    """Print each record as a line of JSON, with names, and with values in their units.

    The command detects whether a file has hex lines, records of a BinaryFILE, or frames. The
    destination of a frame names its encoding, as for switches. A record that is not an event is
    reported with its number, the reason and the attribute at fault, and the exit code is 1 then.
    """
    from stackcast.cli.attributes import conversion  # noqa: PLC0415

    conversion.decode(file, encoding, attributes, widths)


@app.command()
def publish(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File of JSON lines, .gz or not, or - for standard input"
        ),
    ] = "",
    *,
    sensors: Annotated[
        int,
        typer.Option("--sensors", min=0, help="Publish this number of events of generated sensors"),
    ] = 0,
    seed: Annotated[
        int,
        typer.Option("--seed", help="Seed of the sensors; the same seed gives the same events"),
    ] = 1,
    faults: Annotated[
        float,
        typer.Option(
            "--faults",
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of the sensors' events that are invalid",
        ),
    ] = 0.0,
    rate: Annotated[
        float,
        typer.Option("--rate", min=0, max=1e9, help="Events per second; 0 means no limit"),
    ] = 0.0,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Topic, which is created if it is missing",
            show_default="that of the properties file",
        ),
    ] = "",
    interface: Interface = "",
    tunnel: Annotated[
        str,
        typer.Option(
            "--tunnel", metavar="HOST:PORT", help="Send frames to the far end of this UDP tunnel"
        ),
    ] = "",
    source: Source = _SOURCE,
    session: Annotated[
        str,
        typer.Option(
            "--session", metavar="TEXT", help="Session in the keys of frames, ten characters"
        ),
    ] = _SESSION,
    encoding: Annotated[
        Literal["json", "id_pairs", "bitmask"] | None,
        typer.Option(
            "--encoding",
            help="Encoding of the events",
            show_default="that of the properties file, or json for a topic and id_pairs for frames",
        ),
    ] = None,
    attributes: Attributes = None,
    widths: Widths = _WIDTHS,
    partitions: Partitions = 2,
    bootstrap: BootstrapServers = None,
    properties_file: PropertiesFile = None,
) -> None:
    """Publish events to Kafka, or send them as frames. Ctrl-C ends the command in order.

    JSON is published unchanged, valid or not; with --attributes, lines that are not events are
    also reported. In other encodings, such lines are reported and left out. The exit code is 1
    if a line was reported. A frame has EtherType 0x9001, and its payload is its key, as in
    MoldUDP64: the session, and a number from 1.
    """
    from stackcast.cli.attributes import conversion  # noqa: PLC0415

    conversion.publish(
        file,
        sensors=sensors,
        seed=seed,
        fault_share=faults,
        rate=rate,
        topic=topic,
        interface=interface,
        tunnel=tunnel,
        source=source,
        session=session,
        partitions=partitions,
        encoding=encoding,
        attributes=attributes,
        widths=widths,
        bootstrap=bootstrap,
        properties_file=properties_file,
    )


@app.command()
def export(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write", show_default="standard output"),
    ] = None,
    tables: Tables = None,
    properties_file: PropertiesFile = None,
) -> None:
    """Write the attributes of a deployment as JSON lines, which --attributes of commands reads."""
    from stackcast.cli.attributes import conversion  # noqa: PLC0415

    conversion.export(out, properties_file, tables)
