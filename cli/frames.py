"""``stackcast frames``: dissect frames of a capture, or send one."""

from __future__ import annotations

from typing import Annotated

import typer

from stackcast.cli import send_frame
from stackcast.cli.options import (
    Attributes,
    DeploymentWidths,
    Json,
    MessageEncoding,
    SettingsFile,
)

app = typer.Typer(no_args_is_help=True, help="Dissect frames: header stacks and their content.")


@app.callback()
def frames() -> None:
    """Dissect frames: header stacks and their content."""


app.command("send")(send_frame.send)


@app.command("dissect")
def dissect_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Capture (pcap or pcapng, .gz or not), hex of one frame, or - for standard input",
        ),
    ] = "-",
    attributes: Attributes = None,
    encoding: MessageEncoding = None,
    widths: DeploymentWidths = None,
    properties_file: SettingsFile = None,
    as_json: Json = False,
) -> None:
    """Print each frame of a capture or of hex text: stack, addresses, sequence, messages.

    Standard input may be a capture, or hex with one frame per line; colons, spaces and 0x are
    ignored. The link layer of a capture may be Ethernet, with or without VLAN tags, Linux cooked
    (tcpdump -i any), or raw IP. Frames of EtherType 0x9001 are attribute/value events, whose
    destination names their encoding. Messages in MoldUDP64 packets are ITCH messages, unless
    --encoding or the properties file says that they are attribute/value events.

    Errors are printed with a code and the byte of the frame, and the exit code is 1 then. A remark
    is not an error: it names a gap in the capture, such as a checksum that the sender's network
    card completes.
    """
    from stackcast.cli.frame_dissection import dissect_frames  # noqa: PLC0415

    if not dissect_frames(source, properties_file, attributes, encoding, widths, as_json):
        raise typer.Exit(1)
