"""``stackcast frames send``: one frame with a header stack from the command line."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stackcast.cli.options import Group, LabelBits, SettingsFile, StackEncoding, StreamPort

if TYPE_CHECKING:
    from stackcast.cli.deployment import Deployment

#: MoldUDP64 session of the frame.
SESSION = b"BYHAND    "


def send(
    labels: Annotated[
        list[str],
        typer.Argument(
            metavar="LABEL",
            help="Labels of the header stack, such as tree:1 hop:17 stop:3 or switch:3:port:2",
        ),
    ],
    interface: Annotated[
        str,
        typer.Option(
            "--interface",
            metavar="NAME",
            help="Send the frame on this network interface (needs CAP_NET_RAW)",
        ),
    ] = "",
    tunnel: Annotated[
        str,
        typer.Option(
            "--tunnel",
            metavar="IP:PORT/IP:PORT",
            help="Send the frame into the UDP tunnel of a switch's port, written as in --port of "
            "the switch: first the end of the switch, then the end that the frame leaves from; "
            "port 0 there means a free one",
        ),
    ] = "",
    message: Annotated[
        str, typer.Option("--message", metavar="HEX", help="One message, in hex")
    ] = "",
    event: Annotated[
        str,
        typer.Option(
            "--event", metavar="JSON", help="One attribute/value event, instead of --message"
        ),
    ] = "",
    sequence: Annotated[
        int, typer.Option("--sequence", min=0, help="Sequence number of the MoldUDP64 packet")
    ] = 0,
    source_mac: Annotated[
        str, typer.Option("--source-mac", metavar="MAC", help="MAC address of the publisher")
    ] = "02:00:00:00:00:01",
    source: Annotated[
        str, typer.Option("--source", metavar="IP", help="IPv4 address of the publisher")
    ] = "10.0.0.1",
    group: Group = None,
    port: StreamPort = None,
    encoding: StackEncoding = None,
    label_bits: Annotated[
        LabelBits | None,
        typer.Option(
            "--label-bits",
            help="Width of a label in bits",
            show_default="that of the properties file, or 16",
        ),
    ] = None,
    attributes: Annotated[
        Path | None,
        typer.Option(
            "--attributes",
            metavar="FILE",
            help="Attributes of --event, a file that 'stackcast attributes export' writes",
        ),
    ] = None,
    properties_file: SettingsFile = None,
) -> None:
    """Send one frame into a network to see how its switches forward it, and print it as hex.

    Without --interface and --tunnel, the command only prints the frame, which 'frames dissect'
    reads. The payload is a MoldUDP64 packet of session BYHAND, with one message or as a heartbeat.
    """
    if interface and tunnel:
        raise typer.BadParameter("give either --interface or --tunnel")
    if event and message:
        raise typer.BadParameter("give either --event or --message")
    import numpy as np  # noqa: PLC0415

    from stackcast.cli.deployment import read_deployment  # noqa: PLC0415
    from stackcast.cli.frame_tunnel import send_into_tunnel  # noqa: PLC0415
    from stackcast.jobs.adapters.wire import SinkOptions, open_sink  # noqa: PLC0415
    from stackcast.udfs.network.encodings import ENCODINGS, label_format  # noqa: PLC0415
    from stackcast.udfs.stacks.frame import (  # noqa: PLC0415
        FrameTemplates,
        address_datagrams,
        header_template,
    )

    deployment = read_deployment(properties_file, attributes)
    settings = deployment.settings
    encoding = encoding or settings.encoding
    group, port = group or settings.group, port or settings.port
    if event:
        message = _header(event, deployment)
    if encoding not in ENCODINGS:
        raise typer.BadParameter(
            f"--encoding {encoding!r} is unknown: use one of {', '.join(ENCODINGS)}"
        )
    form = label_format(encoding, int(label_bits or settings.label_bits))
    template = header_template(
        [form.parse(text) for text in labels],
        _mac("--source-mac", source_mac),
        _ipv4("--source", source),
        _ipv4("--group", group),
        port,
        label_format=form,
    )
    frame, borders = address_datagrams(
        FrameTemplates.build([[template]]),
        np.zeros(1, np.int32),
        np.frombuffer(_payload(sequence, message), np.uint8).reshape(1, -1),
        port,
    )
    if tunnel:
        send_into_tunnel(tunnel, frame.tobytes())
    if interface:
        sink = open_sink(SinkOptions("af_packet", interface=interface))
        try:
            sink.send(frame, borders)
            sink.flush()
        finally:
            sink.close()
    typer.echo(frame.tobytes().hex())


def _header(event: str, deployment: Deployment) -> str:
    """Return the header of an event as hex. Raises typer.BadParameter."""
    if deployment.registry is None:
        raise typer.BadParameter("--event needs the names of the attributes: give --attributes")
    # This import compiles kernels, which a frame without an event does not need.
    from stackcast.cli.attributes.records import RecordEncoder  # noqa: PLC0415

    encoder = RecordEncoder(deployment.settings.attributes_encoding, deployment.registry)
    return encoder.encode_one(event.encode()).hex()


def _payload(sequence: int, message: str) -> bytes:
    """Return a packet with one message.

    Raises:
        StackError: NOT_HEX.
        MessageError: an error of `build_packet`.
    """
    from stackcast.udfs.errors import StackError  # noqa: PLC0415
    from stackcast.udfs.messages.reference import build_packet  # noqa: PLC0415

    try:
        messages = [bytes.fromhex(message)] if message else []
    except ValueError:
        raise StackError("NOT_HEX", f"the message {message!r} is not hex", offset=0) from None
    return build_packet(SESSION, sequence, messages)


def _mac(option: str, text: str) -> int:
    try:
        address = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        address = b""
    if len(address) != 6:
        raise typer.BadParameter(
            f"{option} {text!r} is not a MAC address such as 02:00:00:00:00:01"
        )
    return int.from_bytes(address)


def _ipv4(option: str, text: str) -> int:
    try:
        return int(IPv4Address(text))
    except AddressValueError:
        raise typer.BadParameter(f"{option} {text!r} is not an IPv4 address") from None
