"""Dissection of one frame's bytes: with a header stack, or as a host receives it.

Plain Python, apart from the builder's kernels, so that each can be checked by the other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stackcast.udfs.errors import MessageError, StackError
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP
from stackcast.udfs.messages.attributes.events import ETHERTYPE, WIDTHS, Widths
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.reference import read_packet
from stackcast.udfs.messages.summaries import Summary, authentication, is_summary, unpack
from stackcast.udfs.network.encodings import BY_ETHER_TYPE
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.tunnel import TUNNEL_PORT
from stackcast.udfs.stacks.frame import ETHERTYPE_IPV4, PROTOCOL_UDP

_ETHERNET = 14
_MOLDUDP64 = 20


@dataclass(frozen=True)
class IPv4:
    source: int
    destination: int
    ttl: int
    total_length: int


@dataclass(frozen=True)
class UDP:
    source_port: int
    destination_port: int
    length: int


@dataclass(frozen=True)
class Dissection:
    """Parts of a frame. ``labels`` is empty for a plain IPv4 frame.

    label_format: of ``labels``, by the EtherType.
    count: of the MoldUDP64 header (0: heartbeat, 0xFFFF: end of session).
    positions: byte position in the frame of each message, after its length field.
    padding: bytes after the IPv4 datagram, as Ethernet adds them to short frames.
    summary: None unless the datagram is a summary; it has no messages then.
    tag: of an authenticated one, the id of its key and the tag, which is not checked.
    """

    destination_mac: int
    source_mac: int
    ethertype: int
    labels: tuple[int, ...]
    ipv4: IPv4
    udp: UDP
    session: bytes
    sequence: int
    count: int
    messages: tuple[bytes, ...]
    positions: tuple[int, ...]
    padding: int
    summary: Summary | None = None
    tag: tuple[int, bytes] | None = None

    @property
    def label_format(self) -> LabelFormat:
        return BY_ETHER_TYPE.get(self.ethertype, NARROW)


@dataclass(frozen=True)
class EventFrame:
    """Parts of a frame of an attribute/value event (KUNDEL III-B).

    encoding: ``id_pairs`` or ``bitmask``, by its destination. values: raw, by id, in its order.
    payload: the bytes after the header, an Ethernet padding included.
    """

    destination_mac: int
    source_mac: int
    encoding: str
    values: dict[int, int]
    payload: bytes


def is_event(frame: bytes) -> bool:
    """Returns True if the EtherType is that of attribute/value events."""
    return frame[12:14] == ETHERTYPE.to_bytes(2)


def dissect_event(frame: bytes, widths: Widths = WIDTHS) -> EventFrame:
    """Dissects a frame of EtherType 0x9001; any id that the bitmask has may be an attribute's.

    Raises StackError with ``offset``, the byte of the frame where the fault is:
    ``TRUNCATED_FRAME``, or the code of `stackcast.udfs.messages.attributes.reference.read_event`.
    """
    _need(frame, 0, _ETHERNET, "the Ethernet header")
    destination = int.from_bytes(frame[:6])
    encoding = "bitmask" if destination == BITMASK_GROUP else "id_pairs"
    try:
        values, payload = read_event(frame[_ETHERNET:], encoding, widths.ids, len(frame), widths)
    except MessageError as error:
        at = _ETHERNET + error.fields.get("offset", 0)
        raise StackError(
            error.what, f"{encoding} header at byte {_ETHERNET}: {error.message}", offset=at
        ) from error
    return EventFrame(destination, int.from_bytes(frame[6:12]), encoding, values, payload)


def out_of_tunnel(frame: bytes) -> tuple[IPv4, bytes] | None:
    """Returns the frame that a switch has put into a tunnel, and the IPv4 header before it; None
    for a frame that is in none.

    Raises as :func:`dissect` where what is before it is damaged.
    """
    if frame[12:14] != ETHERTYPE_IPV4.to_bytes(2) or frame[23:24] != PROTOCOL_UDP.to_bytes():
        return None
    ipv4, at = _read_ipv4(frame, _ETHERNET)
    udp = _read_udp(frame, at, _ETHERNET + ipv4.total_length, ipv4)
    if udp.destination_port != TUNNEL_PORT:
        return None
    return ipv4, frame[at + 8 : at + udp.length]


def dissect(frame: bytes) -> Dissection:
    """Dissects a frame and checks lengths, checksums and labels.

    Raises StackError with ``offset``, the byte of the frame where the fault is:
    ``TRUNCATED_FRAME``, ``UNKNOWN_ETHERTYPE``, ``EMPTY_STACK``, ``TOO_MANY_LABELS``,
    ``BAD_LABEL``, ``BAD_IPV4``, ``FRAGMENT``, ``IPV4_CHECKSUM``, ``NOT_UDP``, ``BAD_UDP``,
    ``UDP_CHECKSUM``, or the code of a damaged MoldUDP64 packet
    (``TRUNCATED_MESSAGE``, ...) with the byte where that packet begins.
    """
    _need(frame, 0, _ETHERNET, "the Ethernet header")
    ethertype = int.from_bytes(frame[12:14])
    at = _ETHERNET
    labels: tuple[int, ...] = ()
    form = BY_ETHER_TYPE.get(ethertype)
    if form is not None:
        labels = _read_stack(frame, at, form)
        at += 2 + form.size * len(labels)
    elif ethertype != ETHERTYPE_IPV4:
        raise StackError(
            "UNKNOWN_ETHERTYPE",
            f"EtherType {ethertype:#06x} at byte 12 is neither "
            f"{' or '.join(f'{known:#06x}' for known in BY_ETHER_TYPE)} (header stack) nor "
            f"{ETHERTYPE_IPV4:#06x} (IPv4)",
            offset=12,
            ethertype=ethertype,
        )
    ipv4, udp_at = _read_ipv4(frame, at)
    end = at + ipv4.total_length
    udp = _read_udp(frame, udp_at, end, ipv4)
    payload_at = udp_at + 8
    payload = frame[payload_at : udp_at + udp.length]
    summary = None
    try:
        if is_summary(payload):
            summary = unpack(payload)
        session, sequence, messages = read_packet(payload[:_MOLDUDP64] if summary else payload)
    except MessageError as error:
        raise StackError(
            error.what, f"MoldUDP64 at byte {payload_at}: {error.message}", offset=payload_at
        ) from error
    positions = []
    position = payload_at + _MOLDUDP64
    for message in messages:
        positions.append(position + 2)
        position += 2 + len(message)
    return Dissection(
        destination_mac=int.from_bytes(frame[:6]),
        source_mac=int.from_bytes(frame[6:12]),
        ethertype=ethertype,
        labels=labels,
        ipv4=ipv4,
        udp=udp,
        session=session,
        sequence=sequence,
        count=int.from_bytes(payload[18:20]),
        messages=tuple(messages),
        positions=tuple(positions),
        padding=len(frame) - end,
        summary=summary,
        tag=authentication(payload) if summary else None,
    )


def _need(frame: bytes, at: int, size: int, what: str) -> None:
    if len(frame) < at + size:
        raise StackError(
            "TRUNCATED_FRAME",
            f"{what} at byte {at} needs {size} bytes; the frame ends at byte {len(frame)}",
            offset=len(frame),
        )


def _read_stack(frame: bytes, at: int, form: LabelFormat) -> tuple[int, ...]:
    _need(frame, at, 2, "the number of labels")
    entries = int.from_bytes(frame[at : at + 2])
    if entries > form.max_labels:
        raise StackError(
            "TOO_MANY_LABELS",
            f"{entries} labels are announced at byte {at}; {form.max_labels} are possible",
            offset=at,
            labels=entries,
        )
    if entries == 0:
        raise StackError(
            "EMPTY_STACK", f"no label is announced at byte {at}: switches drop this", offset=at
        )
    _need(frame, at + 2, form.size * entries, f"the stack of {entries} labels")
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


def _read_ipv4(frame: bytes, at: int) -> tuple[IPv4, int]:
    _need(frame, at, 20, "the IPv4 header")
    version, header = frame[at] >> 4, 4 * (frame[at] & 0xF)
    if version != 4 or header < 20:
        raise StackError(
            "BAD_IPV4",
            f"version {version}, header of {header} bytes at byte {at}: no IPv4 header",
            offset=at,
        )
    _need(frame, at, header, "the IPv4 header")
    total_length, _, flags, ttl, protocol = struct.unpack_from(">HHHBB", frame, at + 2)
    source, destination = struct.unpack_from(">II", frame, at + 12)
    if total_length < header:
        raise StackError(
            "BAD_IPV4",
            f"total length {total_length} at byte {at + 2} is less than the header of {header}",
            offset=at + 2,
        )
    _need(frame, at, total_length, "the IPv4 datagram")
    if _ones_complement_sum(frame[at : at + header]) != 0xFFFF:
        raise StackError(
            "IPV4_CHECKSUM", f"the IPv4 header checksum at byte {at + 10} is wrong", offset=at + 10
        )
    if flags & 0x3FFF:
        raise StackError(
            "FRAGMENT",
            f"a fragment of a datagram (byte {at + 6}): it cannot be read",
            offset=at + 6,
        )
    if protocol != PROTOCOL_UDP:
        raise StackError("NOT_UDP", f"protocol {protocol} at byte {at + 9}", offset=at + 9)
    return IPv4(source, destination, ttl, total_length), at + header


def _read_udp(frame: bytes, at: int, end: int, ipv4: IPv4) -> UDP:
    if end - at < 8:
        raise StackError("BAD_UDP", f"{end - at} bytes of UDP at byte {at}", offset=at)
    source_port, destination_port, length, checksum = struct.unpack_from(">HHHH", frame, at)
    if not 8 <= length <= end - at:
        raise StackError(
            "BAD_UDP",
            f"UDP length {length} at byte {at + 4}; the IPv4 datagram has {end - at} for it",
            offset=at + 4,
        )
    pseudo = struct.pack(">IIHH", ipv4.source, ipv4.destination, PROTOCOL_UDP, length)
    if checksum and _ones_complement_sum(pseudo + frame[at : at + length]) != 0xFFFF:
        raise StackError(
            "UDP_CHECKSUM", f"the UDP checksum at byte {at + 6} is wrong", offset=at + 6
        )
    return UDP(source_port, destination_port, length)


def _ones_complement_sum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) & 1)
    total: int = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
