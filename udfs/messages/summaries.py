"""Summaries of the notifications that a host should have of a range, and requests for the rest.

A summary is a MoldUDP64 heartbeat with a tail, big-endian, 52 bytes::

    session 10 | until 8 | count 2 (= 0) | from 8 | notifications 8 | last 8 | digest 8

It is about one host and one session. Where summaries are authenticated, the id of a key and a tag
stand behind it, 72 bytes (see :mod:`stackcast.udfs.messages.summary_keys`)::

    summary 52 | key 4 | tag 16

A request is MoldUDP64's request packet, and the name of the
host may follow it::

    session 10 | sequence 8 | count 2 | name, UTF-8

Before a service answers at length, whoever asks proves its address: the service sends it a cookie
in place of an answer, and the request comes again with the cookie behind a zero byte::

    session 10 | sequence 8 | count 2 (= 0) | cookie 16
    session 10 | sequence 8 | count 2 | name, UTF-8 | 0 | cookie 16

A *notification* is the datagram of one frame. Its key is its session and the sequence number of
its first message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.reference import HEADER
from stackcast.udfs.messages.sequence import SESSION_LENGTH
from stackcast.udfs.names import MOST_NAME, name_fault

#: In place of a number of notifications: they cannot be computed again.
GONE = (1 << 64) - 1
#: Messages that a request may ask for at most.
MOST_MESSAGES = (1 << 16) - 1
#: Bytes of a cookie.
COOKIE_SIZE = 16

_SUMMARY = struct.Struct(">10sQHQQQQ")
#: Bytes of a summary.
SIZE = _SUMMARY.size
#: The id of the key of an authenticated summary, and bytes of its tag, and of all of it.
KEY_ID = struct.Struct(">I")
TAG_SIZE = 16
AUTHENTICATED_SIZE = SIZE + KEY_ID.size + TAG_SIZE

_ROW = np.dtype(
    [
        ("session", "S10"),
        ("until", ">u8"),
        ("count", ">u2"),
        ("from", ">u8"),
        ("notifications", ">u8"),
        ("last", ">u8"),
        ("digest", ">u8"),
    ]
)

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums up the first sequence numbers in [from_, until) that a host should have.

    session: 10 bytes. notifications: how many, or `GONE`. last: the largest, 0 if there is none.
    digest: see :func:`digest`.
    """

    session: bytes
    from_: int
    until: int
    notifications: int
    last: int
    digest: int

    @property
    def gone(self) -> bool:
        """True if nobody can say any more what was sent."""
        return self.notifications == GONE

    def pack(self) -> bytes:
        """Returns the datagram, 52 bytes.

        Raises MessageError BAD_SESSION (not 10 bytes), BAD_SEQUENCE (a number is not of 64 bits),
        BAD_SUMMARY (the range ends before it begins).
        """
        _check(self.session, self.from_, self.until, self.notifications, self.last, self.digest)
        if self.until < self.from_:
            raise MessageError(
                "BAD_SUMMARY",
                f"the range of the summary begins at {self.from_}, but ends at {self.until}",
            )
        return _SUMMARY.pack(
            self.session, self.until, 0, self.from_, self.notifications, self.last, self.digest
        )


@dataclass(frozen=True, slots=True)
class Request:
    """Asks for the notifications of a session from ``sequence`` on, up to ``count`` messages.

    name: of the host that asks; empty where its address tells. cookie: that the service sent it;
    empty, or `COOKIE_SIZE` bytes.
    """

    session: bytes
    sequence: int
    count: int
    name: str = ""
    cookie: bytes = b""


def summary_rows(
    session: bytes,
    from_: NDArray[np.int64],
    until: int,
    notifications: NDArray[Any],
    last: NDArray[np.uint64],
    digest: NDArray[np.uint64],
) -> NDArray[np.uint8]:
    """Makes the datagrams of summaries for h hosts, of ranges that end together: uint8[h, 52], as
    `Summary.pack`.

    from_, notifications: int64[h]. last, digest: uint64[h].
    """
    rows = np.empty(notifications.size, _ROW)
    rows["session"] = session
    rows["until"], rows["count"], rows["from"] = until, 0, from_
    rows["notifications"], rows["last"], rows["digest"] = notifications, last, digest
    return rows.view(np.uint8).reshape(-1, SIZE)


def is_summary(datagram: bytes) -> bool:
    """Returns True for a summary, False for a notification or a plain heartbeat (MoldUDP64)."""
    return len(datagram) in (SIZE, AUTHENTICATED_SIZE) and datagram[18:20] == b"\0\0"


def authentication(datagram: bytes) -> tuple[int, bytes] | None:
    """Returns the id of the key and the tag of an authenticated summary, None for any other
    datagram. Whether the tag is right only who has the key can tell."""
    if len(datagram) != AUTHENTICATED_SIZE or not is_summary(datagram):
        return None
    return KEY_ID.unpack_from(datagram, SIZE)[0], datagram[-TAG_SIZE:]


def unpack(datagram: bytes) -> Summary:
    """Reads a datagram as a summary, with a tag or without; the tag is not looked at.

    Raises MessageError BAD_SUMMARY: it has neither 52 nor 72 bytes, has messages, or ends before it
    begins.
    """
    if len(datagram) not in (SIZE, AUTHENTICATED_SIZE):
        raise MessageError(
            "BAD_SUMMARY",
            f"the datagram has {len(datagram)} bytes, but a summary has {SIZE}, or "
            f"{AUTHENTICATED_SIZE} with a tag",
        )
    session, until, count, from_, notifications, last, sums = _SUMMARY.unpack_from(datagram)
    if count:
        raise MessageError(
            "BAD_SUMMARY", f"a summary contains no messages, but this one announces {count}"
        )
    if until < from_:
        raise MessageError(
            "BAD_SUMMARY", f"the range of the summary begins at {from_}, but ends at {until}"
        )
    return Summary(session, from_, until, notifications, last, sums)


def request(
    session: bytes, sequence: int, count: int = MOST_MESSAGES, name: str = "", cookie: bytes = b""
) -> bytes:
    """Return the datagram that asks the service for notifications again.

    Args:
        session: 10 bytes.
        sequence: sequence number of the first notification.
        count: how many to ask for, up to 65,535.
        name: of the host, up to 255 bytes.
        cookie: what the service sent in its challenge.

    Raises:
        MessageError: ``BAD_SESSION``, ``BAD_SEQUENCE`` or ``BAD_REQUEST`` (count or name).

    Example:
        >>> request(b"0123456789", 100, 5, name="h3")
        b'0123456789\\x00\\x00\\x00\\x00\\x00\\x00\\x00d\\x00\\x05h3'
    """
    _check(session, sequence)
    if not 0 <= count <= MOST_MESSAGES:
        raise MessageError(
            "BAD_REQUEST",
            f"a request cannot ask for {count} messages: the maximum is {MOST_MESSAGES}",
        )
    tail = name.encode()
    if len(tail) > MOST_NAME:
        raise MessageError(
            "BAD_REQUEST",
            f"the host name has {len(tail)} bytes, but at most {MOST_NAME} are allowed",
        )
    return HEADER.pack(session, sequence, count) + tail + (b"\0" + cookie if cookie else b"")


def challenge(asked: Request, cookie: bytes) -> bytes:
    """Makes what is sent in place of an answer: 36 bytes, a heartbeat with a cookie behind it."""
    return HEADER.pack(asked.session, asked.sequence, 0) + cookie


def cookie_of(datagram: bytes) -> bytes:
    """Returns the cookie of a `challenge`; empty for any other datagram."""
    is_one = len(datagram) == HEADER.size + COOKIE_SIZE and datagram[18:20] == b"\0\0"
    return datagram[HEADER.size :] if is_one else b""


def read_request(datagram: bytes) -> Request:
    """Reads a datagram as a request.

    Raises MessageError BAD_REQUEST: it is too short or too long, or the name is no text.
    """
    datagram, cookie = _parted(datagram)
    if not HEADER.size <= len(datagram) <= HEADER.size + MOST_NAME:
        raise MessageError(
            "BAD_REQUEST",
            f"the datagram has {len(datagram)} bytes, but a request has {HEADER.size}, plus up to "
            f"{MOST_NAME} for a name",
        )
    session, sequence, count = HEADER.unpack_from(datagram)
    try:
        name = datagram[HEADER.size :].decode()
    except UnicodeDecodeError:
        raise MessageError("BAD_REQUEST", "the host name is not valid UTF-8") from None
    if name and name_fault(name):
        raise MessageError("BAD_REQUEST", f"the host name {name!r} is not valid")
    return Request(session, sequence, count, name, cookie)


def _parted(datagram: bytes) -> tuple[bytes, bytes]:
    """The request without its cookie, and the cookie; a name has no zero byte."""
    at = len(datagram) - COOKIE_SIZE - 1
    if at >= HEADER.size and datagram[at] == 0:
        return datagram[:at], datagram[at + 1 :]
    return datagram, b""


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Applies the finaliser of SplitMix64 to each: uint64[n] to uint64[n], both mod 2^64.

    Source: STEELE, LEA, FLOOD 2014, figure 17 (``mix64`` after one step of the generator).
    """
    z = values.astype(np.uint64) + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def digest(sequence: NDArray[np.uint64], count: NDArray[Any]) -> int:
    """Returns the sum mod 2^64 of splitmix64(sequence + count); 0 for none, the same in any order.

    sequence: uint64[n], of the first message of each notification. count: int[n], its messages.
    """
    mixed = splitmix64(sequence.astype(np.uint64) + count.astype(np.uint64))
    return int(mixed.sum(dtype=np.uint64))


def _check(session: bytes, *numbers: int) -> None:
    if len(session) != SESSION_LENGTH:
        raise MessageError("BAD_SESSION", f"session {session!r} must have {SESSION_LENGTH} bytes")
    for number in numbers:
        if not 0 <= number < 1 << 64:
            raise MessageError("BAD_SEQUENCE", f"number {number} does not fit in 64 bits")
