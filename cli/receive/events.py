"""Attribute/value events as switches that match bring them: frames of EtherType 0x9001, no IP."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import typer

from udfs.errors import MessageError
from udfs.messages.attributes.encodings import BITMASK_GROUP, ID_PAIRS_GROUP
from udfs.messages.attributes.events import ETHERTYPE, Widths
from udfs.messages.attributes.keyed_events import packet_of_event
from udfs.messages.summaries import is_summary

_BUFFER = 32 << 20
# Linux; Python's socket module does not name these.
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_MULTICAST = 0


def event_socket(interface: str) -> socket.socket:
    """Hears events on an interface, without their Ethernet header; needs CAP_NET_RAW."""
    it = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHERTYPE))
    try:
        index = socket.if_nametoindex(interface)
        it.bind((interface, ETHERTYPE))
    except OSError as error:
        it.close()
        raise typer.BadParameter(f"--interface {interface}: {error.strerror}") from None
    for group in (ID_PAIRS_GROUP, BITMASK_GROUP):
        member = struct.pack("=iHH8s", index, _PACKET_MR_MULTICAST, 6, group.to_bytes(6))
        it.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, member)
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    it.setblocking(False)
    return it


def event_reader(encoding: str, widths: Widths) -> Callable[[bytes], bytes]:
    """Returns what makes packets of MoldUDP64 of events, as the stream would send them.

    A summary stays what it is, and so does what is no event: a receiver counts that.
    """

    def read(datagram: bytes) -> bytes:
        if is_summary(datagram):
            return datagram
        try:
            return packet_of_event(datagram, encoding, widths)
        except MessageError:
            return datagram

    return read
