"""Options that several commands have, each with the same name, metavar and help everywhere.

Most commands have their options in this order: what to do, format of events, place of the
deployment, TLS, output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from stackcast.udfs.names import name_fault

EventEncoding = Literal["id_pairs", "bitmask"]
LabelBits = Literal["16", "32"]

# Format of events.
Attributes = Annotated[
    Path | None,
    typer.Option(
        "--attributes",
        metavar="FILE",
        help="Attributes of the events, a file that 'stackcast attributes export' writes",
        show_default="those of the lab's sensors",
    ),
]
EventAttributes = Annotated[
    Path | None,
    typer.Option(
        "--attributes",
        metavar="FILE",
        help="Read messages as attribute/value events with the attributes in this file, which "
        "'stackcast attributes export' writes",
    ),
]
Encoding = Annotated[EventEncoding, typer.Option("--encoding", help="Encoding of the events")]
MessageEncoding = Annotated[
    EventEncoding | None,
    typer.Option(
        "--encoding",
        help="Read messages as attribute/value events in this encoding",
        show_default="that of the properties file, or bitmask",
    ),
]
Widths = Annotated[
    str,
    typer.Option(
        "--widths",
        metavar="BITS/BITS",
        help="Width of an id in bits (8 or 16), and of a bitmask (8, 16, 32 or 64)",
    ),
]
DeploymentWidths = Annotated[
    str | None,
    typer.Option(
        "--widths",
        metavar="BITS/BITS",
        help="Width of an id in bits (8 or 16), and of a bitmask (8, 16, 32 or 64)",
        show_default="those of the properties file, or 8/32",
    ),
]
RuleFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Format of the events: itch, a file of attributes (.jsonl), or a file with a "
        "specification",
    ),
]
RuleFile = Annotated[
    Path, typer.Option("--rules", metavar="FILE", help="File of rules; - reads standard input")
]
EventFile = Annotated[
    str,
    typer.Option("--events", metavar="FILE", help="JSON lines of events; - reads standard input"),
]

# Format of header stacks.
StackEncoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of header stacks, as in spark.stackcast.encoding",
        show_default="that of the properties file, or virtual_trees",
    ),
]

# Place of the deployment.
PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="File with the Spark properties of the deployment's jobs",
        show_default="the file of the running lab",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="File with the Spark properties of the jobs, which replace the defaults of "
        "other options",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="Kafka brokers",
        show_default="those of the properties file, or 127.0.0.1:9092",
    ),
]
Tables = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="FOLDER",
        help="Folder of the tables",
        show_default="that of the properties file, or var/tables",
    ),
]
Partitions = Annotated[
    int,
    typer.Option(
        "--partitions", min=1, help="Number of partitions if the command creates the topic"
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="IP",
        help="Multicast group of the stream",
        show_default="that of the properties file, or 233.54.12.1",
    ),
]
StreamPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1,
        max=65_535,
        help="UDP port of the stream",
        show_default="that of the properties file, or 26400",
    ),
]
Interface = Annotated[
    str, typer.Option("--interface", metavar="NAME", help="Send frames on this network interface")
]

# TLS.
TlsCa = Annotated[
    str,
    typer.Option(
        "--tls-ca", metavar="FILE", help="PEM file of the CA that signs the certificates of peers"
    ),
]
TlsCertificate = Annotated[
    str,
    typer.Option(
        "--tls-certificate", metavar="FILE", help="PEM file of this program's certificate"
    ),
]
TlsKey = Annotated[
    str, typer.Option("--tls-key", metavar="FILE", help="PEM file of the certificate's private key")
]

# Output.
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line")]


def check_name(option: str, name: str) -> str:
    """Return a name that an option or argument has, if it is valid.

    Raises:
        typer.BadParameter: the name is empty or too long, or has characters that do not print.
    """
    if fault := name_fault(name):
        raise typer.BadParameter(f"{option} {fault}")
    return name
