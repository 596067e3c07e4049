"""Messages of replicated state (STARE III-A, Fig. 3, Table I), all big-endian.

A switch tells them by the destination of a UDP datagram: port `STATES_PORT`, and of its address

    bits 31-24  PROTO_ID = 239
    bits 23-22  kind: 00 publish, 01 SUB-ack, 10 SUB-remove, 11 SUB-register
    bits 21-0   STATE_ID

Behind the UDP header, which the text draws without widths, are 8 bytes::

    VNF_ID 2 | UPDATE_NO 3 | TOT_SEGM 12 bits, SEGM_NO 12 bits

Kind and state are not repeated there: a socket learns them from the address that a datagram came
to. A publish has a segment of the state behind it. In register and remove, update is the number of
the request and total and segment are 0; the switch sends those 8 bytes back in its ack, so an ack
that comes late is not taken for another request's.

What middleware, programs and the replica controller tell each other over TCP is a `Signal`; its
length is that of what follows::

    length 4 | kind 1 | VNF_ID 2 | STATE_ID 4 | UPDATE_NO 4 | SEGM_NO 2 | count 2 | data
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from stackcast.udfs.errors import StateError

PROTO_ID = 239
STATES_PORT = 65432
"""UDP, of every message that switches read."""
MIDDLEWARE_PORT = 65431
"""TCP, where a host's middleware waits for its programs."""
CONTROLLER_PORT = 65430
"""TCP, where the replica controller waits for middlewares."""

MOST_STATE = (1 << 22) - 1
REGISTER_STATES = 1 << 11
"""The registers of ``p4/state_replication.p4`` have room for states below this number."""
MOST_VNF = (1 << 16) - 1
MOST_SEGMENTS = (1 << 12) - 1
SEGMENT_BYTES = 1400
MOST_BYTES = MOST_SEGMENTS * SEGMENT_BYTES
"""Bytes of one update of a state."""
UPDATES = 1 << 24
"""Update numbers; the one after the last is 0."""

HEADER_BYTES = 8
ACKNOWLEDGER = 0xC0000008
"""The source of a switch's acks, 192.0.0.8: a node without an address has this one (RFC 7600)."""


class MessageKind(IntEnum):
    """What a message asks of a switch (Table I)."""

    PUBLISH = 0b00
    ACK = 0b01
    REMOVE = 0b10
    REGISTER = 0b11


def group_of(kind: MessageKind, state: int) -> int:
    """Returns the IPv4 address of a message. Raises StateError ``BAD_ID``; state 0 is none."""
    _check("state", state, 1, MOST_STATE)
    return PROTO_ID << 24 | kind << 22 | state


def read_group(address: int) -> tuple[MessageKind, int]:
    """Splits an address into kind and state. Raises StateError ``BAD_MESSAGE`` if it is none."""
    state = address & MOST_STATE
    if address >> 24 != PROTO_ID or not state:
        raise StateError("BAD_MESSAGE", f"{address:#010x} is not the address of a state")
    return MessageKind(address >> 22 & 3), state


def multicast_mac(address: int) -> int:
    """Returns the MAC address of a group: 01:00:5e and its low 23 bits, so two kinds share one."""
    return 0x01005E000000 | address & (1 << 23) - 1


@dataclass(frozen=True)
class StateHeader:
    """The 8 bytes behind UDP. ``segment`` counts from 1 to ``total``; both 0 but in a publish."""

    vnf: int
    update: int
    total: int = 0
    segment: int = 0

    def pack(self) -> bytes:
        """Returns the bytes. Raises StateError ``BAD_ID`` for what does not fit."""
        _check("VNF", self.vnf, 0, MOST_VNF)
        _check("update", self.update, 0, UPDATES - 1)
        _check("total of segments", self.total, 0, MOST_SEGMENTS)
        _check("segment", self.segment, min(self.total, 1), self.total)
        words = self.update << 24 | self.total << 12 | self.segment
        return self.vnf.to_bytes(2) + words.to_bytes(6)


def read_message(data: bytes) -> tuple[StateHeader, bytes]:
    """Splits a datagram into header and segment. Raises StateError ``BAD_MESSAGE``."""
    if len(data) < HEADER_BYTES:
        raise StateError(
            "BAD_MESSAGE", f"the message has {len(data)} bytes, but its header needs {HEADER_BYTES}"
        )
    words = int.from_bytes(data[2:HEADER_BYTES])
    total, segment = words >> 12 & MOST_SEGMENTS, words & MOST_SEGMENTS
    if segment > total or (total and not segment):
        raise StateError(
            "BAD_MESSAGE",
            f"the message contains segment {segment} of {total}, which is not possible",
        )
    if len(data) > HEADER_BYTES + SEGMENT_BYTES:
        raise StateError("BAD_MESSAGE", f"the segment exceeds the maximum of {SEGMENT_BYTES} bytes")
    header = StateHeader(int.from_bytes(data[:2]), words >> 24, total, segment)
    return header, data[HEADER_BYTES:]


def is_later(update: int, other: int) -> bool:
    """Whether an update number comes after another, though numbers go round (RFC 1982)."""
    return 0 < (update - other) % UPDATES < UPDATES // 2


class SignalKind(IntEnum):
    """What a signal says; an answer has the kind of its question. (Arguments) are its fields."""

    INIT_VNF = 0  # (data: name) -> (vnf)
    INIT_PUB = 1  # (vnf, data: name of the state) -> (state)
    PUBLISH = 2  # (vnf, state, update, segment, count: total, data)
    SUB_REG = 3  # (vnf, state)
    SUB_REM = 4  # (vnf, state)
    STATE_ID_REQ = 5  # (vnf, data: name of the state) -> (state, 0 if there is none)
    RECOVER = 6  # (vnf, state, update, segment: first, count): what is wanted again, as PUBLISH
    ACKNOWLEDGED = 7  # (vnf, state, update, segment): the last received in full
    TRUNCATED = 8  # (vnf, state, update): the first that can still be recovered
    LEASE = 9  # (vnf): it lives
    SUMMARY = 10  # (vnf: publisher, state, update, count: total): the last one published
    LIVE = 11  # (vnf, state): its switch has acknowledged the subscription


_SIGNAL = struct.Struct(">BHIIHH")
_LENGTH = struct.Struct(">I")
#: First bytes of a handshake and of an alert of TLS. No signal is so long that it begins like this.
_TLS = (0x1603, 0x1503)
MOST_SIGNAL = _SIGNAL.size + MOST_BYTES


@dataclass(frozen=True)
class Signal:
    """One message over TCP; fields that its kind does not use are 0."""

    kind: SignalKind
    vnf: int = 0
    state: int = 0
    update: int = 0
    segment: int = 0
    count: int = 0
    data: bytes = b""

    def pack(self) -> bytes:
        """Returns length and message. Raises StateError ``BAD_ID`` for what does not fit."""
        _check("VNF", self.vnf, 0, MOST_VNF)
        _check("state", self.state, 0, MOST_STATE)
        _check("update", self.update, 0, UPDATES - 1)
        _check("segment", self.segment, 0, MOST_SEGMENTS)
        _check("count", self.count, 0, MOST_SEGMENTS)
        _check("length of data", len(self.data), 0, MOST_BYTES)
        fields = self.vnf, self.state, self.update, self.segment, self.count
        length = _SIGNAL.size + len(self.data)
        return _LENGTH.pack(length) + _SIGNAL.pack(self.kind, *fields) + self.data


class SignalReader:
    """Splits the bytes of one connection into signals."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Signal]:
        """Takes the next bytes; returns the signals that they complete.

        Raises StateError ``BAD_MESSAGE``, or ``BAD_TLS`` if they are of TLS: the connection cannot
        be read any further.
        """
        self._held += data
        found: list[Signal] = []
        at = 0
        while len(self._held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held, at)
            if length >> 16 in _TLS:
                raise StateError(
                    "BAD_TLS",
                    "the other side uses TLS, but this side does not: set "
                    "spark.stackcast.states.tls.* or --tls-* on both sides",
                )
            if not _SIGNAL.size <= length <= MOST_SIGNAL:
                raise StateError(
                    "BAD_MESSAGE",
                    f"the signal announces {length} bytes, which is not a valid length",
                )
            end = at + _LENGTH.size + length
            if len(self._held) < end:
                break
            found.append(_read_signal(bytes(self._held[at + _LENGTH.size : end])))
            at = end
        del self._held[:at]
        return found


def _read_signal(message: bytes) -> Signal:
    kind, vnf, state, update, segment, count = _SIGNAL.unpack_from(message)
    if kind not in list(SignalKind):
        raise StateError("BAD_MESSAGE", f"the signal has the unknown kind {kind}")
    signal = Signal(SignalKind(kind), vnf, state, update, segment, count, message[_SIGNAL.size :])
    try:
        signal.pack()
    except StateError as error:
        raise StateError("BAD_MESSAGE", f"the signal is not valid: {error.message}") from None
    return signal


def _check(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise StateError("BAD_ID", f"{what} is {value}, but must be {least} to {most}", value=value)
