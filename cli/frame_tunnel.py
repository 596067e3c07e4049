"""Sends a frame into the UDP tunnel of a switch's port."""

from __future__ import annotations

import os
import socket

from stackcast.lab.fabric.ports import read_tunnel
from stackcast.lab.fabric.tunnel_sockets import open_tunnel
from stackcast.udfs.errors import LabError, SinkError


def send_into_tunnel(ends: str, frame: bytes) -> None:
    """Send a frame from the far end of a switch's tunnel to its near end.

    Raises:
        LabError: BAD_PORT, PORT_TAKEN, BAD_ADDRESS, NO_PERMISSION.
        SinkError: UNREACHABLE.
    """
    # The command acts as the far end, so both ends are exchanged.
    tunnel = read_tunnel(ends)
    own, switch = tunnel.remote, tunnel.local
    target = f"--tunnel {ends}: the frame cannot be sent"
    try:
        wire = open_tunnel(own, switch, target, ends=("far end", "near end"))
    except LabError as error:
        if error.what != "PORT_TAKEN":
            raise
        raise LabError(
            "PORT_TAKEN",
            f"{error.message}, and the frame must leave from there: stop that program, or write "
            "the end of the switch first",
        ) from error
    with wire:
        try:
            wire.send(frame)
            # For an address of its own, a system reports at once that nothing receives there.
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
