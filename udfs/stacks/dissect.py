"""Dissection of one frame's bytes: with a header stack, or as a host receives it.

Frames may have VLAN tags, and captures other link types than Ethernet.

Plain Python, apart from the builder's kernels, so that each can be checked by the other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from stackcast.udfs.errors import MessageError, StackError
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP
from stackcast.udfs.messages.attributes.events import ETHERTYPE, WIDTHS, Widths
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.reference import read_packet
from stackcast.udfs.messages.summaries import Summary, authentication, is_summary, unpack
from stackcast.udfs.network.encodings import BY_ETHER_TYPE
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.tunnel import TUNNEL_PORT
from stackcast.udfs.stacks.frame import PROTOCOL_UDP
from stackcast.udfs.stacks.link_layer import (
    ETHERNET,
    ETHERTYPE_IPV4,
    LinkHeader,
    need,
    read_link_header,
)

_MOLDUDP64 = 20

#: ``offloaded``: the sender leaves it, or the rest of it, to its network card, and the frame was
#: captured before the card completed it.
Checksum = Literal["none", "right", "offloaded", "wrong"]


@dataclass(frozen=True)
class IPv4:
    source: int
    destination: int
    ttl: int
    total_length: int
    checksum: Checksum
    checksum_at: int


@dataclass(frozen=True)
class UDP:
    source_port: int
    destination_port: int
    length: int
    checksum: Checksum
    checksum_at: int


@dataclass(frozen=True)
class Dissection:
    """Parts of a frame. ``labels`` is empty for a plain IPv4 frame.

    link: the headers before the stack, or before IPv4.
    label_format: of ``labels``, by the EtherType.
    payload: of the UDP datagram.
    count: of the MoldUDP64 header (0: heartbeat, 0xFFFF: end of session).
    positions: byte position in the frame of each message, after its length field.
    padding: bytes after the IPv4 datagram, as Ethernet adds them to short frames.
    summary: None unless the datagram is a summary; it has no messages then.
    tag: of an authenticated one, the id of its key and the tag, which is not checked.
    """

    link: LinkHeader
    labels: tuple[int, ...]
    ipv4: IPv4
    udp: UDP
    payload: bytes
    session: bytes
    sequence: int
    count: int
    messages: tuple[bytes, ...]
    positions: tuple[int, ...]
    padding: int
    summary: Summary | None = None
    tag: tuple[int, bytes] | None = None

    @property
    def destination_mac(self) -> int | None:
        return self.link.destination_mac

    @property
    def source_mac(self) -> int | None:
        return self.link.source_mac

    @property
    def ethertype(self) -> int:
        return self.link.ethertype

    @property
    def label_format(self) -> LabelFormat:
        return BY_ETHER_TYPE.get(self.ethertype, NARROW)


@dataclass(frozen=True)
class EventFrame:
    """Parts of a frame of an attribute/value event (KUNDEL III-B).

    encoding: ``id_pairs`` or ``bitmask``, by its destination. values: raw, by id, in its order.
    payload: the bytes after the header, an Ethernet padding included.
    """

    link: LinkHeader
    encoding: str
    values: dict[int, int]
    payload: bytes


def is_event(link: LinkHeader) -> bool:
    """Returns True if the EtherType is that of attribute/value events."""
    return link.ethertype == ETHERTYPE


def dissect_event(
    frame: bytes,
    widths: Widths = WIDTHS,
    link_type: int = ETHERNET,
    unaddressed: str = "id_pairs",
) -> EventFrame:
    """Dissects a frame of EtherType 0x9001; any id that the bitmask has may be an attribute's.

    Args:
        frame: the bytes of the frame.
        widths: bits of an id and of the bitmask.
        link_type: of the link on which the frame was captured.
        unaddressed: encoding of the event if the link type records no destination.

    Raises:
        StackError: LINK_TYPE, TRUNCATED_FRAME, or the code of
            `stackcast.udfs.messages.attributes.reference.read_event`, with ``offset``, the byte of
            the frame where the fault is.
    """
    link = read_link_header(frame, link_type)
    encoding = "bitmask" if link.destination_mac == BITMASK_GROUP else "id_pairs"
    if link.destination_mac is None:
        encoding = unaddressed
    begin = link.payload_at
    try:
        values, payload = read_event(frame[begin:], encoding, widths.ids, len(frame), widths)
    except MessageError as error:
        at = begin + error.fields.get("offset", 0)
        raise StackError(
            error.what,
            f"the {encoding} header at byte {begin} is damaged: {error.message}",
            offset=at,
        ) from error
    return EventFrame(link, encoding, values, payload)


def out_of_tunnel(
    frame: bytes, link_type: int = ETHERNET, *, strict: bool = True
) -> tuple[IPv4, bytes] | None:
    """Returns the frame that a switch has put into a tunnel, and the IPv4 header before it; None
    for a frame that is in none.

    Arguments and errors are those of :func:`dissect`.
    """
    link = read_link_header(frame, link_type)
    begin = link.payload_at
    protocol = frame[begin + 9 : begin + 10]
    if link.ethertype != ETHERTYPE_IPV4 or protocol != PROTOCOL_UDP.to_bytes():
        return None
    ipv4, at = _read_ipv4(frame, begin, strict)
    udp = _read_udp(frame, at, begin + ipv4.total_length, ipv4, strict)
    if udp.destination_port != TUNNEL_PORT:
        return None
    return ipv4, frame[at + 8 : at + udp.length]


def dissect(frame: bytes, link_type: int = ETHERNET, *, strict: bool = True) -> Dissection:
    """Dissects a frame and checks lengths, checksums and labels.

    Args:
        frame: the bytes of the frame, from the header of its link on.
        link_type: of the link on which the frame was captured.
        strict: whether a checksum of IPv4 that is offloaded and a checksum of UDP that is offloaded
            or wrong are errors; otherwise ``ipv4.checksum`` and ``udp.checksum`` say so.

    Raises:
        StackError: with ``offset``, the byte of the frame where the fault is: LINK_TYPE,
            TRUNCATED_FRAME, UNKNOWN_ETHERTYPE, EMPTY_STACK, TOO_MANY_LABELS, BAD_LABEL, BAD_IPV4,
            FRAGMENT, IPV4_CHECKSUM, NOT_UDP, BAD_UDP, UDP_CHECKSUM, or the code of a damaged
            MoldUDP64 packet (TRUNCATED_MESSAGE, ...) with the byte where that packet begins.
    """
    link = read_link_header(frame, link_type)
    at = link.payload_at
    labels: tuple[int, ...] = ()
    form = BY_ETHER_TYPE.get(link.ethertype)
    if form is not None:
        labels = _read_stack(frame, at, form)
        at += 2 + form.size * len(labels)
    elif link.ethertype != ETHERTYPE_IPV4:
        raise StackError(
            "UNKNOWN_ETHERTYPE",
            f"EtherType {link.ethertype:#06x} at byte {link.ethertype_at} is neither "
            f"{' or '.join(f'{known:#06x}' for known in BY_ETHER_TYPE)} (header stack) nor "
            f"{ETHERTYPE_IPV4:#06x} (IPv4)",
            offset=link.ethertype_at,
            ethertype=link.ethertype,
        )
    ipv4, udp_at = _read_ipv4(frame, at, strict)
    end = at + ipv4.total_length
    udp = _read_udp(frame, udp_at, end, ipv4, strict)
    payload_at = udp_at + 8
    payload = frame[payload_at : udp_at + udp.length]
    summary = None
    try:
        if is_summary(payload):
            summary = unpack(payload)
        session, sequence, messages = read_packet(payload[:_MOLDUDP64] if summary else payload)
    except MessageError as error:
        raise StackError(
            error.what,
            f"the MoldUDP64 packet at byte {payload_at} is damaged: {error.message}",
            offset=payload_at,
        ) from error
    positions = []
    position = payload_at + _MOLDUDP64
    for message in messages:
        positions.append(position + 2)
        position += 2 + len(message)
    return Dissection(
        link=link,
        labels=labels,
        ipv4=ipv4,
        udp=udp,
        payload=payload,
        session=session,
        sequence=sequence,
        count=int.from_bytes(payload[18:20]),
        messages=tuple(messages),
        positions=tuple(positions),
        padding=len(frame) - end,
        summary=summary,
        tag=authentication(payload) if summary else None,
    )


def _read_stack(frame: bytes, at: int, form: LabelFormat) -> tuple[int, ...]:
    need(frame, at, 2, "the number of labels")
    entries = int.from_bytes(frame[at : at + 2])
    if entries > form.max_labels:
        raise StackError(
            "TOO_MANY_LABELS",
            f"the stack at byte {at} announces {entries} labels, but at most {form.max_labels} "
            "are allowed",
            offset=at,
            labels=entries,
        )
    if entries == 0:
        raise StackError(
            "EMPTY_STACK",
            f"the stack at byte {at} announces no labels, so switches drop the frame",
            offset=at,
        )
    need(frame, at + 2, form.size * entries, f"the stack of {entries} labels")
    labels = form.unpack(frame, at + 2, entries)
    for position, label in enumerate(labels):
        offset = at + 2 + form.size * position
        try:
            form.check(label)
        except StackError as error:
            raise StackError(
                error.what,
                f"label {label:#0{2 + 2 * form.size}x} at byte {offset}: {error.message}",
                offset=offset,
                label=label,
            ) from error
    return labels


def _read_ipv4(frame: bytes, at: int, strict: bool) -> tuple[IPv4, int]:
    need(frame, at, 20, "the IPv4 header")
    version, header = frame[at] >> 4, 4 * (frame[at] & 0xF)
    if version != 4 or header < 20:
        raise StackError(
            "BAD_IPV4",
            f"there is no IPv4 header at byte {at}: version {version}, header length {header}",
            offset=at,
        )
    need(frame, at, header, "the IPv4 header")
    total_length, _, flags, ttl, protocol = struct.unpack_from(">HHHBB", frame, at + 2)
    source, destination = struct.unpack_from(">II", frame, at + 12)
    if total_length < header:
        raise StackError(
            "BAD_IPV4",
            f"the total length {total_length} at byte {at + 2} is less than the header length "
            f"{header}",
            offset=at + 2,
        )
    need(frame, at, total_length, "the IPv4 datagram")
    checksum: Checksum = "right"
    if _ones_complement_sum(frame[at : at + header]) != 0xFFFF:
        # Systems that leave it to the network card write 0, as tools do that hide addresses.
        checksum = "wrong" if frame[at + 10] or frame[at + 11] else "offloaded"
    if checksum == "wrong" or (strict and checksum == "offloaded"):
        raise StackError(
            "IPV4_CHECKSUM", f"the IPv4 header checksum at byte {at + 10} is wrong", offset=at + 10
        )
    if flags & 0x3FFF:
        raise StackError(
            "FRAGMENT",
            f"the frame contains a fragment of an IPv4 datagram (byte {at + 6}), which cannot be "
            "dissected",
            offset=at + 6,
        )
    if protocol != PROTOCOL_UDP:
        raise StackError(
            "NOT_UDP",
            f"the IPv4 protocol at byte {at + 9} is {protocol}, but UDP ({PROTOCOL_UDP}) is "
            "expected",
            offset=at + 9,
        )
    return IPv4(source, destination, ttl, total_length, checksum, at + 10), at + header


def _read_udp(frame: bytes, at: int, end: int, ipv4: IPv4, strict: bool) -> UDP:
    if end - at < 8:
        raise StackError(
            "BAD_UDP", f"the UDP header at byte {at} is truncated to {end - at} bytes", offset=at
        )
    source_port, destination_port, length = struct.unpack_from(">HHH", frame, at)
    if not 8 <= length <= end - at:
        raise StackError(
            "BAD_UDP",
            f"the UDP length at byte {at + 4} is {length}, but the IPv4 datagram has {end - at} "
            "bytes for UDP",
            offset=at + 4,
        )
    pseudo = struct.pack(">IIHH", ipv4.source, ipv4.destination, PROTOCOL_UDP, length)
    udp = UDP(source_port, destination_port, length, _checksum(pseudo, frame, at, length), at + 6)
    if strict and udp.checksum in ("offloaded", "wrong"):
        raise StackError(
            "UDP_CHECKSUM", f"the UDP checksum at byte {at + 6} is wrong", offset=at + 6
        )
    return udp


def _checksum(pseudo: bytes, frame: bytes, at: int, length: int) -> Checksum:
    """Returns the state of the checksum of the UDP datagram at byte ``at``.

    A kernel that leaves the checksum to the network card writes the sum of the pseudo-header, to
    which the card adds the datagram.
    """
    checksum = int.from_bytes(frame[at + 6 : at + 8])
    if not checksum:
        return "none"
    if _ones_complement_sum(pseudo + frame[at : at + length]) == 0xFFFF:
        return "right"
    return "offloaded" if checksum == _ones_complement_sum(pseudo) else "wrong"


def _ones_complement_sum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) & 1)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
