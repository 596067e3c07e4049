"""Destinations of the notifications that ``stackcast receive`` delivers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.itch_messages import message_row, message_text
from stackcast.cli.receive.failures import Failures, tell
from stackcast.cli.receive.options import OutputOptions
from stackcast.cli.receive.sockets import connected_socket
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import printable
from stackcast.udfs.messages.recovery.receiver import Notification
from stackcast.udfs.messages.reference import LENGTH, read_packet


class Outlet(Protocol):
    """Destination of the notifications that a receiver delivers."""

    def put(self, deliveries: Sequence[Notification]) -> None: ...
    def close(self) -> None: ...


class LineOutlet:
    """Prints a line for each message: session, number, and the message as text, JSON or hex.

    Args:
        as_json: print JSON.
        as_hex: print hex.
        itch: whether messages may be ITCH; all others are printed as hex.
        events: reader of messages that are attribute/value events.
    """

    def __init__(
        self,
        as_json: bool,
        as_hex: bool,
        *,
        itch: bool = True,
        events: EventReader | None = None,
    ) -> None:
        self._as_json, self._as_hex, self._itch = as_json, as_hex, itch
        self._events = events
        self._hinted = False

    def put(self, deliveries: Sequence[Notification]) -> None:
        lines = [
            self._line(delivery.session.decode("latin-1"), delivery.sequence + place, message)
            for delivery in deliveries
            for place, message in enumerate(read_packet(delivery.datagram)[2])
        ]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def _line(self, session: str, sequence: int, message: bytes) -> str:
        if self._as_hex:
            return f"{printable(session)} {sequence} {message.hex()}\n"
        if self._events is not None and (event := self._events.line(message)):
            if self._as_json:
                place = json.dumps({"session": session, "sequence": sequence})
                return f"{place[:-1]}, {event.members}}}\n"
            return f"{printable(session)} {sequence}  {event}\n"
        row = message_row(message) if self._itch else None
        if self._itch and not isinstance(row, dict) and not self._hinted:
            self._hinted = True
            tell(
                "some messages are not ITCH, and are printed as hex: if they are attribute/value "
                "events, give --attributes"
            )
        if self._as_json:
            fields = row if isinstance(row, dict) else {"hex": message.hex()}
            return json.dumps({"session": session, "sequence": sequence, **fields}) + "\n"
        text = message_text(row) if isinstance(row, dict) else message.hex()
        return f"{printable(session)} {sequence}  {text}\n"

    def close(self) -> None:
        """Do nothing: all lines are flushed."""


class ForwardOutlet:
    """Sends each notification once, as its unchanged MoldUDP64 datagram, to an address.

    Datagrams that cannot be sent are counted in ``failures``.
    """

    def __init__(self, host: str, port: int, failures: Failures) -> None:
        self._failures = failures
        self._socket = connected_socket("--forward", host, port)
        self._socket.setblocking(True)

    def put(self, deliveries: Sequence[Notification]) -> None:
        for delivery in deliveries:
            try:
                try:
                    self._socket.send(delivery.datagram)
                except OSError:
                    # The error may belong to an earlier datagram; then this one was not sent.
                    self._socket.send(delivery.datagram)
            except OSError as error:
                self._failures.add("forwarding", error)

    def close(self) -> None:
        self._socket.close()


class ReceiptOutlet:
    """Writes a file of datagrams, each preceded by its length (u16, big-endian)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def put(self, deliveries: Sequence[Notification]) -> None:
        parts = (part for d in deliveries for part in (LENGTH.pack(len(d.datagram)), d.datagram))
        self._file.write(b"".join(parts))

    def close(self) -> None:
        self._file.close()


def open_outlet(
    options: OutputOptions, has_events: bool, reader: EventReader | None, failures: Failures
) -> Outlet:
    """Open the destination that options choose.

    Args:
        options: options of the command.
        has_events: whether messages are attribute/value events.
        reader: reader of events; None prints them as hex.
        failures: counts datagrams that cannot be forwarded.
    """
    if options.forward:
        return ForwardOutlet(*parse_endpoint(options.forward, "--forward"), failures)
    if options.receipts:
        return ReceiptOutlet(options.receipts)
    return LineOutlet(options.as_json, options.as_hex, itch=not has_events, events=reader)
