"""Hosts: a network card that checks frames, a real UDP socket, and an application that reads it."""

from __future__ import annotations

import select
import socket
import struct
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from ipaddress import AddressValueError, IPv4Address
from itertools import islice
from pathlib import Path

from stackcast.lab.fabric.ports import UdpTunnel
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.attributes.events import ETHERTYPE
from stackcast.udfs.network.network import Network

_ATTRIBUTES = ETHERTYPE.to_bytes(2)
_ETHERNET = 14

# What a datagram may take of a socket's buffer: the kernel rounds up, and adds its own books.
_BOOKKEEPING = 1024
_RECEIVE_BUFFER = 4 << 20
_LOOPBACK_SECONDS = 1.0
_LARGEST = 65_535
_IN_TURN = 64


class BadFrame(Exception):  # noqa: N818 - a verdict on a frame, not a fault of the program
    """A frame that a host's network card or IP stack discards; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def udp_payload(frame: bytes) -> bytes:
    """Returns the payload of a plain Ethernet frame's UDP datagram, as an application gets it.

    Raises :class:`BadFrame`: ``unknown_ethertype``, ``truncated_frame``, ``bad_ipv4_header``,
    ``bad_ipv4_checksum``, ``bad_ipv4_length``, ``fragment``, ``not_udp``, ``bad_udp_length``,
    ``bad_udp_checksum``.
    """
    if len(frame) < 42:
        raise BadFrame("truncated_frame")
    if frame[12:14] != b"\x08\x00":
        raise BadFrame("unknown_ethertype")
    header = 4 * (frame[14] & 0xF)
    if frame[14] >> 4 != 4 or header < 20 or len(frame) < 14 + header + 8:
        raise BadFrame("bad_ipv4_header")
    # The sum of 16-bit words in ones' complement is the number modulo 65535; a header or
    # datagram with its checksum in it sums to 0.
    if int.from_bytes(frame[14 : 14 + header]) % 0xFFFF:
        raise BadFrame("bad_ipv4_checksum")
    total, _, fragment, _, protocol = struct.unpack_from(">HHHBB", frame, 16)
    if not header + 8 <= total <= len(frame) - 14:
        raise BadFrame("bad_ipv4_length")
    if fragment & 0x3FFF:
        raise BadFrame("fragment")
    if protocol != 17:
        raise BadFrame("not_udp")
    at = 14 + header
    length, checksum = struct.unpack_from(">HH", frame, at + 4)
    if not 8 <= length <= total - header:
        raise BadFrame("bad_udp_length")
    if checksum:
        datagram = frame[at : at + length]
        if length % 2:
            datagram += b"\0"
        addresses = int.from_bytes(frame[26:34])
        if (int.from_bytes(datagram) + addresses + protocol + length) % 0xFFFF:
            raise BadFrame("bad_udp_checksum")
    return frame[at + 8 : at + length]


def payload(frame: bytes) -> bytes:
    """Returns what an application gets of a plain Ethernet frame.

    Of attribute/value events (EtherType 0x9001) it is all that follows the Ethernet header, since
    they travel without IP (KUNDEL III-B); else what :func:`udp_payload` finds.

    Raises :class:`BadFrame`.
    """
    if frame[12:_ETHERNET] == _ATTRIBUTES and len(frame) > _ETHERNET:
        return frame[_ETHERNET:]
    return udp_payload(frame)


class NetworkCard:
    """Reads plain frames; ``drops`` counts those that it discards, by reason.

    A notification reaches many hosts as one and the same frame: the last answer is kept.
    """

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()
        self._last = b""
        self._payload = b""

    def read(self, frame: bytes) -> bytes | None:
        """Returns what the application gets, or None if the frame is discarded."""
        if frame != self._last:
            try:
                found = payload(frame)
            except BadFrame as bad:
                self.drops[bad.reason] += 1
                return None
            self._last, self._payload = frame, found
        return self._payload


class LabHost:
    """A host with its own UDP socket, whose application appends what it reads to a file.

    The file has a u16 big-endian length before each payload; a file ``.times`` beside it has an u64
    for each: when its frame came to the network. No more payloads are under way than the socket's
    buffer holds: the application reads in between. ``more``: the files go on where they end.

    ``delivered`` counts payloads in the file, ``outstanding`` those sent and not read yet,
    ``lost`` those that the kernel never handed over.
    """

    def __init__(self, name: str, receipts: Path, more: bool = False) -> None:
        self.name = name
        self.delivered = 0
        self.outstanding = 0
        self.lost = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        granted = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self._room = granted // 2
        self._taken = 0
        self._wire = _connected(self._socket.getsockname())
        mode = "ab" if more else "wb"
        self._file = receipts.open(mode, buffering=0)
        self._times = receipts.with_suffix(".times").open(mode, buffering=0)
        self._unwritten: list[bytes] = []
        self._arrived: deque[int] = deque()

    @property
    def address(self) -> str:
        ip, port = self._socket.getsockname()
        return f"{ip}:{port}"

    def take(self, payload: bytes, arrived: int = 0) -> None:
        """Send a payload to the host's socket. ``arrived``: when its frame came to the network,
        nanoseconds since 1970."""
        cost = 2 * len(payload) + _BOOKKEEPING
        if self._taken + cost > self._room:
            self.settle()
        self._wire.send(payload)
        self._arrived.append(arrived)
        self.outstanding += 1
        self._taken += cost

    def settle(self) -> None:
        """Read all that is under way and write it to the file."""
        while self.outstanding:
            try:
                payload = self._socket.recv(_LARGEST)
            except BlockingIOError:
                # The kernel hands over a little later, at the worst.
                if not select.select([self._socket], [], [], _LOOPBACK_SECONDS)[0]:
                    self.lost += self.outstanding
                    self.outstanding = 0
                continue
            self.outstanding -= 1
            self.delivered += 1
            self._unwritten += (len(payload).to_bytes(2), payload)
        self._taken = 0
        if self._unwritten:
            times = islice(self._arrived, len(self._unwritten) // 2)
            self._times.write(struct.pack(f">{len(self._unwritten) // 2}Q", *times))
            self._file.write(b"".join(self._unwritten))
            self._unwritten.clear()
        self._arrived.clear()

    def close(self) -> None:
        self.settle()
        self._wire.close()
        self._socket.close()
        self._file.close()
        self._times.close()


class ExternalHost:
    """A host whose application is another program, at an address of its own.

    Nobody counts what it reads: ``delivered`` counts payloads sent, ``lost`` those refused.
    """

    outstanding = 0

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.delivered = 0
        self.lost = 0
        ip, _, port = address.rpartition(":")
        self._wire = _connected((ip, int(port)))

    def take(self, payload: bytes, arrived: int = 0) -> None:
        """Send a payload to the host."""
        try:
            self._wire.send(payload)
        except OSError:
            # The error is of an earlier payload that nobody listened for; this one is not sent.
            try:
                self._wire.send(payload)
            except OSError:
                self.lost += 1
                return
        self.delivered += 1

    def settle(self) -> None:
        """Nothing to wait for: the other program reads when it likes."""

    def close(self) -> None:
        self._wire.close()


class TunnelHost:
    """A host that is another program, which sends and gets whole frames, each in a datagram.

    ``address``: the near end, where it sends to; with ``port`` 0 a free one. ``delivered`` counts
    frames that it was sent, ``lost`` those that it could not be.
    """

    def __init__(self, name: str, far: str, port: int = 0) -> None:
        self.name = name
        ip, _, number = far.rpartition(":")
        self._port = UdpTunnel(("127.0.0.1", port), (ip, int(number))).open(1)

    @property
    def address(self) -> str:
        return self._port.what.removeprefix("udp:").partition("/")[0]

    @property
    def delivered(self) -> int:
        return self._port.counters.frames_out

    @property
    def lost(self) -> int:
        return self._port.drops.total() - self.unknown_senders

    @property
    def unknown_senders(self) -> int:
        """The number of frames to the near end that did not come from the host."""
        return self._port.drops["unknown_sender"]

    def fileno(self) -> int:
        return self._port.fileno()

    def receive(self) -> Iterator[bytes]:
        """Yields frames that wait, a few at most."""
        for _ in range(_IN_TURN):
            frame = self._port.receive()
            if frame is None:
                return
            yield frame

    def send(self, frame: bytes) -> None:
        self._port.send(frame)

    def close(self) -> None:
        self._port.close()


def external_hosts(texts: Iterable[str], option: str = "--external-host") -> dict[str, str]:
    """Address by host of such options, ``"h3=127.0.0.1:26400"`` each.

    Raises LabError ``BAD_EXTERNAL_HOST``.
    """
    found = {}
    for text in texts:
        name, _, address = text.partition("=")
        ip, _, port = address.rpartition(":")
        try:
            IPv4Address(ip)
        except AddressValueError:
            ip = ""
        if not (name and ip and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise LabError(
                "BAD_EXTERNAL_HOST", f"{option} {text}: expected HOST=IP:PORT", text=text
            )
        found[name] = address
    return found


def receivers(network: Network) -> tuple[str, ...]:
    """Returns the hosts that may receive: subscribers, and publishers where there are several."""
    return network.subscribers() if len(network.publishers()) < 2 else tuple(network.hosts)


def check_external(
    external: Iterable[str], known: Collection[str], option: str = "--external-host"
) -> None:
    """Raises LabError ``UNKNOWN_HOST`` for the first one that is none of those known."""
    for name in external:
        if name not in known:
            raise LabError("UNKNOWN_HOST", f"{option} {name}: the network has no such subscriber")


def _connected(address: tuple[str, int]) -> socket.socket:
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.connect(address)
    return wire
