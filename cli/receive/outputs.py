"""Where ``stackcast receive`` puts notifications: lines, a socket, a file of receipts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from cli.itch import message_row, message_text
from cli.receive.sockets import connected_socket
from udfs.errors import MessageError
from udfs.messages.recovery.receiver import Delivery
from udfs.messages.reference import LENGTH, read_packet


class Outlet(Protocol):
    def put(self, deliveries: Sequence[Delivery]) -> None: ...
    def close(self) -> None: ...


class Lines:
    """A line a message: session, number, and the message as text, JSON or hex."""

    def __init__(self, as_json: bool, as_hex: bool) -> None:
        self._as_json, self._as_hex = as_json, as_hex

    def put(self, deliveries: Sequence[Delivery]) -> None:
        lines = [
            self._line(delivery.session.decode("latin-1"), delivery.sequence + place, message)
            for delivery in deliveries
            for place, message in enumerate(read_packet(delivery.datagram)[2])
        ]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def _line(self, session: str, sequence: int, message: bytes) -> str:
        if self._as_hex:
            return f"{session} {sequence} {message.hex()}\n"
        row = message_row(message)
        if self._as_json:
            fields = {"hex": message.hex()} if isinstance(row, MessageError) else row
            return json.dumps({"session": session, "sequence": sequence, **fields}) + "\n"
        text = message.hex() if isinstance(row, MessageError) else message_text(row)
        return f"{session} {sequence}  {text}\n"

    def close(self) -> None:
        """Lines are out already."""


class Forward:
    """Each notification once, as the MoldUDP64 datagram that it is, to one address."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = connected_socket(host, port)
        self._socket.setblocking(True)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            try:
                self._socket.send(delivery.datagram)
            except ConnectionError:
                # The error is of an earlier one that nobody listened for; this one is not sent.
                with suppress(ConnectionError):
                    self._socket.send(delivery.datagram)

    def close(self) -> None:
        self._socket.close()


class Receipts:
    """A file of datagrams, each with its length (u16, big-endian) before."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        parts = (part for d in deliveries for part in (LENGTH.pack(len(d.datagram)), d.datagram))
        self._file.write(b"".join(parts))

    def close(self) -> None:
        self._file.close()
