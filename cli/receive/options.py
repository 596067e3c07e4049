"""Options of ``stackcast receive``; the help of each describes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from stackcast.cli.options import (
    DeploymentWidths,
    EventAttributes,
    EventEncoding,
    Group,
    Json,
    MessageEncoding,
    SettingsFile,
    StreamPort,
    check_name,
)


@dataclass(frozen=True)
class StreamOptions:
    """Addresses, ports and senders of the stream."""

    group: Group = None
    port: StreamPort = None
    interface: Annotated[
        str,
        typer.Option(
            "--interface",
            metavar="NAME",
            help="Name or address of the network interface to receive on; datagrams on other "
            "interfaces are ignored",
            show_default="the interface of the route to the group",
        ),
    ] = ""
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Receive unicast datagrams at this address instead of joining the group",
        ),
    ] = ""
    event_frames: Annotated[
        EventEncoding | None,
        typer.Option(
            "--event-frames",
            help="Receive frames of attribute/value events in this encoding, which have no IP "
            "header, as switches that match send them",
            show_default="that of the properties file, if switches match",
        ),
    ] = None
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="IP",
            help="Accept only datagrams from this publisher; may be repeated",
            show_default="all addresses except those of this host",
        ),
    ] = None
    summary_port: Annotated[
        int | None,
        typer.Option(
            "--summary-port",
            min=0,
            max=65535,
            help="UDP port for summaries; 0 disables them",
            show_default="that of the properties file, or 26401",
        ),
    ] = None
    summary_address: Annotated[
        str,
        typer.Option(
            "--summary-address",
            metavar="IP",
            help="Address of this host that summaries are sent to, if switches match",
        ),
    ] = ""
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Keys of this host; only authentic summaries are accepted",
        ),
    ] = None

    def check(self) -> None:
        """Check options that exclude or need each other.

        Raises:
            typer.BadParameter: they do.
        """
        if self.summary_address and self.listen:
            raise typer.BadParameter(
                "--summary-address cannot be given with --listen, whose address receives the "
                "summaries"
            )
        if self.summary_address and self.summary_port == 0:
            raise typer.BadParameter("--summary-address needs a --summary-port other than 0")


@dataclass(frozen=True)
class RecoveryOptions:
    """Requests for missing notifications."""

    rerequest: Annotated[
        str | None,
        typer.Option(
            "--rerequest",
            metavar="HOST:PORT",
            help="Address of the re-request service; an empty value only reports losses",
            show_default="that of the properties file",
        ),
    ] = None
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of this host, if the re-request service identifies hosts by name",
        ),
    ] = ""
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Also request all earlier notifications"),
    ] = False
    silence: Annotated[
        float,
        typer.Option(
            "--silence",
            metavar="SECONDS",
            min=0.01,
            help="Time in seconds without summaries before a request",
        ),
    ] = 5.0
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            help="Longest wait in seconds for the first answer to a request",
        ),
    ] = 0.25
    give_up: Annotated[
        float,
        typer.Option(
            "--give-up",
            metavar="SECONDS",
            min=0,
            help="Time in seconds before a missing range counts as lost; 0 means never",
        ),
    ] = 0.0
    keep: Annotated[
        int,
        typer.Option(
            "--keep",
            min=2,
            show_default="131,072",
            help="Largest number of notifications per session that are kept until a summary "
            "confirms them",
        ),
    ] = 1 << 17


@dataclass(frozen=True)
class TopicOptions:
    """The sessions of one topic."""

    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Receive only the sessions of this topic, including those that send nothing",
        ),
    ] = ""
    topic_id: Annotated[
        str | None,
        typer.Option(
            "--topic-id",
            metavar="ID",
            help="Id of --topic, as 'kafka-topics.sh --describe' prints it; an empty value if the "
            "broker is older than Kafka 2.8",
        ),
    ] = None
    generation: Annotated[
        int,
        typer.Option(
            "--generation", min=0, help="Number of times that --topic has begun new sessions"
        ),
    ] = 0
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions of --topic")
    ] = 1

    def check(self) -> None:
        """Check the options that name sessions.

        Raises:
            typer.BadParameter: an option needs another one, or the topic is not a valid name.
        """
        if self.topic:
            check_name("--topic", self.topic)
            if self.topic_id is None:
                raise typer.BadParameter(
                    "--topic needs --topic-id, because sessions depend on the id: see "
                    "'kafka-topics.sh --describe'"
                )
            if self.topic_id:
                check_name("--topic-id", self.topic_id)
            return
        values = {
            "--topic-id": self.topic_id,
            "--generation": self.generation,
            "--partitions": self.partitions > 1,
        }
        for option, value in values.items():
            if value:
                raise typer.BadParameter(f"{option} needs --topic")


@dataclass(frozen=True)
class TrialOptions:
    """Duration of the run, and simulated losses."""

    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="SECONDS",
            min=0,
            help="Time in seconds after which the command ends; 0 runs until Ctrl-C",
        ),
    ] = 0.0
    drop: Annotated[
        float,
        typer.Option(
            "--drop",
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of datagrams to discard, to test the recovery of losses",
        ),
    ] = 0.0
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of --drop; the same seed repeats the losses")
    ] = 1


@dataclass(frozen=True)
class EventOptions:
    """The format of events, and the settings of the deployment."""

    attributes: EventAttributes = None
    encoding: MessageEncoding = None
    widths: DeploymentWidths = None
    properties_file: SettingsFile = None


@dataclass(frozen=True)
class OutputOptions:
    """Format and destination of messages."""

    order: Annotated[
        Literal["arrival", "sequence"],
        typer.Option("--order", help="Order in which messages are printed or forwarded"),
    ] = "arrival"
    forward: Annotated[
        str,
        typer.Option(
            "--forward",
            metavar="HOST:PORT",
            help="Send each datagram once, unchanged, to this address instead of printing it",
        ),
    ] = ""
    receipts: Annotated[
        Path | None,
        typer.Option(
            "--receipts",
            metavar="FILE",
            help="Write each datagram, preceded by its length, to this file instead of printing it",
        ),
    ] = None
    as_hex: Annotated[bool, typer.Option("--hex", help="Print messages as hex")] = False
    as_json: Json = False

    def check(self) -> None:
        """Check that messages go to one place.

        Raises:
            typer.BadParameter: they go to several.
        """
        if self.forward and self.receipts:
            raise typer.BadParameter("give either --forward or --receipts")
