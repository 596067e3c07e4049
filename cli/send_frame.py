"""``stackcast frames send``: one frame under a stack that somebody has written by hand."""

from __future__ import annotations

import os
import socket
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from stackcast.cli.deployment import Deployment, DeploymentFile, read_deployment
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.lab.fabric.ports import read_tunnel
from stackcast.lab.fabric.tunnel_sockets import open_tunnel
from stackcast.udfs.errors import LabError, SinkError, StackError
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.encodings import ENCODINGS, label_format
from stackcast.udfs.stacks.frame import FrameTemplates, address_datagrams, header_template

#: Of a frame that no publisher of a network has sent.
SESSION = b"BYHAND    "


def send(
    labels: Annotated[
        list[str],
        typer.Argument(
            help="The stack, as in tree:1 hop:17 stop:3, or switch:3:port:2.", metavar="LABEL..."
        ),
    ],
    interface: Annotated[
        str, typer.Option(help="Send on this network interface (needs CAP_NET_RAW).")
    ] = "",
    udp: Annotated[
        str,
        typer.Option(
            metavar="NEAR/FAR",
            help="Send into the UDP tunnel of a switch's port. Write both ends as --port of the "
            "switch does, its end first: IP:PORT/IP:PORT. The frame leaves from the second "
            "address; port 0 there takes a free one.",
        ),
    ] = "",
    properties_file: DeploymentFile = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help=f"Encoding of the network: {', '.join(ENCODINGS)}; virtual_trees by default."
        ),
    ] = None,
    label_bits: Annotated[
        Literal["16", "32"] | None, typer.Option(help="Width of labels; 16 by default.")
    ] = None,
    source_mac: Annotated[
        str, typer.Option(help="The publisher's address of Ethernet.")
    ] = "02:00:00:00:00:01",
    source: Annotated[str, typer.Option(help="The publisher's address of IPv4.")] = "10.0.0.1",
    group: Annotated[
        str | None, typer.Option(help="Multicast group; 233.54.12.1 by default.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="UDP port; 26400 by default.", min=1, max=65_535)
    ] = None,
    sequence: Annotated[int, typer.Option(help="Sequence number of MoldUDP64.", min=0)] = 0,
    message: Annotated[str, typer.Option(help="One message, as hex.")] = "",
    event: Annotated[
        str, typer.Option(help="One attribute/value event, as JSON, in place of --message.")
    ] = "",
    attributes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Attributes of --event, as 'stackcast attributes export' writes them.",
        ),
    ] = None,
) -> None:
    """Send one frame into a network, to see where its switches take it; print its hex.

    With neither --interface nor --udp it is only printed, as 'frames dissect' reads it. Its payload
    is a packet of MoldUDP64 with one message, or a heartbeat, of session BYHAND.
    """
    if interface and udp:
        raise typer.BadParameter("one of --interface and --udp is possible")
    if event and message:
        raise typer.BadParameter("one of --event and --message is possible")
    deployment = read_deployment(properties_file, attributes)
    settings = deployment.settings
    encoding = encoding or settings.encoding
    group, port = group or settings.group, port or settings.port
    if event:
        message = _header(event, deployment)
    if encoding not in ENCODINGS:
        raise typer.BadParameter(f"{encoding!r} is none of {', '.join(ENCODINGS)}")
    form = label_format(encoding, int(label_bits or settings.label_bits))
    template = header_template(
        [form.parse(text) for text in labels],
        _mac(source_mac),
        _ipv4(source),
        _ipv4(group),
        port,
        label_format=form,
    )
    frame, borders = address_datagrams(
        FrameTemplates.build([[template]]),
        np.zeros(1, np.int32),
        np.frombuffer(_payload(sequence, message), np.uint8).reshape(1, -1),
        port,
    )
    if udp:
        _send_into_tunnel(udp, frame.tobytes())
    if interface:
        sink = open_sink(SinkOptions("af_packet", interface=interface))
        try:
            sink.send(frame, borders)
            sink.flush()
        finally:
            sink.close()
    typer.echo(frame.tobytes().hex())


def _send_into_tunnel(ends: str, frame: bytes) -> None:
    """Sends a frame from the far end of a switch's tunnel to its near end.

    Raises:
        LabError: BAD_PORT, PORT_TAKEN, BAD_ADDRESS, NO_PERMISSION.
        SinkError: UNREACHABLE.
    """
    # The command takes the place of the far end, so both ends are exchanged.
    tunnel = read_tunnel(ends)
    own, switch = tunnel.remote, tunnel.local
    target = f"--udp {ends}: the frame cannot be sent"
    try:
        wire = open_tunnel(own, switch, target, ends=("far end", "near end"))
    except LabError as error:
        if error.what != "PORT_TAKEN":
            raise
        raise LabError(
            "PORT_TAKEN",
            f"{error.message}, and the frame has to leave from there: stop that program, or write "
            "the switch's end first",
        ) from error
    with wire:
        try:
            wire.send(frame)
            # If nothing receives at the address, a system reports it at once for its own addresses.
            refused = wire.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError as error:
            refused = error.errno or 0
    if refused:
        raise SinkError(
            "UNREACHABLE",
            f"{target}: {os.strerror(refused)}: check that a switch has its end of the tunnel at "
            f"{switch[0]}:{switch[1]}",
            errno=refused,
        )


def _header(event: str, deployment: Deployment) -> str:
    """Returns an event as the hex of its header. Raises typer.BadParameter."""
    if deployment.registry is None:
        raise typer.BadParameter("--event needs names: give --attributes")
    # It compiles kernels, which a frame without an event does not need.
    from stackcast.cli.attributes.records import RecordEncoder  # noqa: PLC0415

    encoder = RecordEncoder(deployment.settings.attributes_encoding, deployment.registry)
    return encoder.encode_one(event.encode()).hex()


def _payload(sequence: int, message: str) -> bytes:
    """Raises StackError NOT_HEX, MessageError as `build_packet`."""
    try:
        messages = [bytes.fromhex(message)] if message else []
    except ValueError:
        raise StackError("NOT_HEX", f"the message {message!r} is not hex", offset=0) from None
    return build_packet(SESSION, sequence, messages)


def _mac(text: str) -> int:
    try:
        address = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        address = b""
    if len(address) != 6:
        raise typer.BadParameter(f"{text!r} is no address of Ethernet, as 02:00:00:00:00:01 is")
    return int.from_bytes(address)


def _ipv4(text: str) -> int:
    try:
        return int(IPv4Address(text))
    except AddressValueError:
        raise typer.BadParameter(f"{text!r} is no address of IPv4") from None
