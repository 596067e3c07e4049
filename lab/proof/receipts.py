"""The receipts of hosts: the datagrams that they received, as they wrote them down."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stackcast.udfs.errors import LabError, MessageError
from stackcast.udfs.messages.reference import HEADER, read_packet
from stackcast.udfs.messages.summaries import is_summary

KEY = struct.Struct(">10sQ")
"""Payload of an event that the lab sends: session and sequence number, as in MoldUDP64."""


class Receipt(NamedTuple):
    """One datagram as a host received it."""

    session: bytes
    sequence: int
    messages: tuple[bytes, ...]


def packet_receipt(datagram: bytes) -> Receipt:
    """Returns the receipt of a MoldUDP64 packet; a summary is a heartbeat.

    Any other datagram becomes a receipt of the empty session with the datagram as its one message,
    so that it counts as extra.
    """
    if is_summary(datagram):
        datagram = datagram[: HEADER.size]
    try:
        session, sequence, messages = read_packet(datagram)
    except MessageError:
        return Receipt(b"", 0, (datagram,))
    return Receipt(session, sequence, tuple(messages))


def event_receipt(datagram: bytes) -> Receipt:
    """Returns the receipt of what follows Ethernet in a frame of EtherType 0x9001.

    That is an attribute/value header, the receipt's one message, and a payload that is a `KEY`.
    What is too short is treated as :func:`packet_receipt` treats what is no packet.
    """
    if len(datagram) <= KEY.size:
        return Receipt(b"", 0, (datagram,))
    session, sequence = KEY.unpack(datagram[-KEY.size :])
    return Receipt(session, sequence, (datagram[: -KEY.size],))


def receipts(
    folder: Path, receipt: Callable[[bytes], Receipt] = packet_receipt
) -> dict[str, list[Receipt]]:
    """Reads ``folder/receipts/<host>.mold`` of each host, in order of arrival.

    A file is a run of records: length u16 big-endian, then what the host's application was
    handed, of which ``receipt`` makes one. Raises LabError NO_RECEIPTS, TRUNCATED_RECEIPTS.
    """
    return {host: [*rows] for host, rows in receipt_streams(folder, receipt).items()}


def receipt_streams(
    folder: Path, receipt: Callable[[bytes], Receipt] = packet_receipt
) -> dict[str, Iterator[Receipt]]:
    """Reads as `receipts` does, a record at a time; TRUNCATED_RECEIPTS comes when it is reached."""
    directory = Path(folder) / "receipts"
    if not directory.is_dir():
        raise LabError("NO_RECEIPTS", f"{directory} does not exist; have the hosts been started?")
    return {
        path.stem: map(receipt, datagrams_of(path)) for path in sorted(directory.glob("*.mold"))
    }


def datagrams_of(path: Path) -> Iterator[bytes]:
    """Yields what one host's application was handed. Raises LabError TRUNCATED_RECEIPTS."""
    with path.open("rb", buffering=1 << 20) as file:
        at = 0
        while head := file.read(2):
            length = int.from_bytes(head)
            datagram = file.read(length)
            if len(head) < 2 or len(datagram) < length:
                raise LabError(
                    "TRUNCATED_RECEIPTS",
                    f"{path}: the record at byte {at} is truncated, because the host ended before "
                    "it was flushed",
                )
            yield datagram
            at += len(head) + length


def receipt_bytes(receipt: Receipt) -> bytes:
    """Returns a record of a receipts file, as :func:`receipts` reads it of packets."""
    packet = struct.pack(">10sQH", receipt.session, receipt.sequence, len(receipt.messages))
    packet += b"".join(struct.pack(">H", len(message)) + message for message in receipt.messages)
    return struct.pack(">H", len(packet)) + packet
