"""A publisher's feed as frames for a network that matches: MoldUDP64 packets in plain IPv4 and UDP,
or attribute/value events in both encodings."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, cycle
from typing import NamedTuple

from stackcast.lab.proof.attribute_reader import read_json
from stackcast.lab.proof.receipts import KEY
from stackcast.lab.traffic.packets import SESSION
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP, ID_PAIRS_GROUP
from stackcast.udfs.messages.attributes.events import ETHERTYPE
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.network.network import Host
from stackcast.udfs.stacks.frame import PROTOCOL_UDP, multicast_mac
from stackcast.udfs.stacks.link_layer import ETHERTYPE_IPV4

_IPV4, _UDP = 20, 8
_DONT_FRAGMENT = 0x4000


def feed_frames(
    packets: Iterable[bytes], publisher: Host, group: int, port: int, *, mtu: int = 1500
) -> Iterator[bytes]:
    """Yields a frame of each MoldUDP64 packet, with right checksums, from publisher to group.

    group: IPv4 multicast group as an integer. port: UDP port, source and destination. mtu: bytes
    that a frame may have after its Ethernet header.

    Raises LabError ``PACKET_TOO_LARGE``.
    """
    ethernet = multicast_mac(group).to_bytes(6) + publisher.mac.to_bytes(6)
    ethernet += ETHERTYPE_IPV4.to_bytes(2)
    addresses = struct.pack(">II", publisher.ipv4, group)
    for packet in packets:
        length = _UDP + len(packet)
        if _IPV4 + length > mtu:
            raise LabError(
                "PACKET_TOO_LARGE",
                f"a packet of {len(packet)} bytes needs an IPv4 datagram of {_IPV4 + length}, but "
                f"spark.stackcast.mtu is {mtu}",
                length=_IPV4 + length,
            )
        ipv4 = struct.pack(
            ">BBHHHBBH", 0x45, 0, _IPV4 + length, 0, _DONT_FRAGMENT, 64, PROTOCOL_UDP, 0
        )
        ipv4 = ipv4[:10] + _checksum(ipv4 + addresses) + addresses
        udp = struct.pack(">HHH", port, port, length)
        pseudo = addresses + struct.pack(">HH", PROTOCOL_UDP, length)
        # In UDP a checksum of 0 says that there is none; its other form is all ones (RFC 768).
        checksum = _checksum(pseudo + udp + packet)
        yield ethernet + ipv4 + udp + (checksum if any(checksum) else b"\xff\xff") + packet


def _checksum(data: bytes) -> bytes:
    """RFC 1071: the complement of the sum of 16-bit words in ones' complement."""
    # That sum is the number modulo 65535, where 65535 stands for 0: no sum over a header is 0.
    total = int.from_bytes(data + b"\0" * (len(data) % 2)) % 0xFFFF
    return (0xFFFF - (total or 0xFFFF)).to_bytes(2)


GROUPS = {"id_pairs": ID_PAIRS_GROUP, "bitmask": BITMASK_GROUP}
"""Ethernet address that the frames of an encoding go to."""


class SentEvent(NamedTuple):
    """A frame with the sequence number that is in its key."""

    sequence: int
    frame: bytes


def event_frames(
    records: Iterable[bytes],
    publisher: Host,
    registry: Registry,
    encodings: Sequence[str] = tuple(GROUPS),
    session: bytes = SESSION,
    sequence: int = 1,
    keys: Iterable[tuple[bytes, int]] | None = None,
) -> Iterator[SentEvent]:
    """Yields a frame of each JSON record: Ethernet, header (KUNDEL III-B), and a key as payload.

    encodings: which the frames have, in turn. session: ten bytes; the first frame has number
    ``sequence``, every other the next. keys: session and number of each frame, in place of these.

    Raises MessageError for a record that is no event.
    """
    source = publisher.mac.to_bytes(6) + ETHERTYPE.to_bytes(2)
    keys = ((session, number) for number in count(sequence)) if keys is None else keys
    for record, encoding, (name, number) in zip(records, cycle(encodings), keys, strict=False):
        ethernet = GROUPS[encoding].to_bytes(6) + source
        header = write_event(read_json(record, registry), encoding, b"", registry.widths)
        yield SentEvent(number, ethernet + header + KEY.pack(name, number))
