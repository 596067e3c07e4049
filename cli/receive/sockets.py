"""Sockets of ``stackcast receive``: what comes in, what is asked, and trials with loss."""

from __future__ import annotations

import fcntl
import math
import random
import select
import socket
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address

import typer

from cli.receive.failures import Failures
from udfs.errors import MessageError
from udfs.messages.attributes.encodings import BITMASK_GROUP, ID_PAIRS_GROUP
from udfs.messages.attributes.events import ETHERTYPE, Widths
from udfs.messages.attributes.keyed_events import packet_of_event
from udfs.messages.summaries import is_summary

_LARGEST = 65_535
_BUFFER = 32 << 20
#: Datagrams that are read before something else has its turn.
MOST_AT_ONCE = 512


# Linux; Python's socket module does not name these.
_IP_MULTICAST_ALL = 49
_IP_ADD_SOURCE_MEMBERSHIP = 39
_SIOCGIFADDR = 0x8915
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_MULTICAST = 0


def group_socket(
    group: str, port: int, interface: str, sources: Collection[str] = ()
) -> socket.socket:
    """Hears what is sent to a multicast group; ``interface`` is a name, an address, or empty.

    With ``sources`` it is a source-specific join (RFC 3569): of these addresses, and no others.
    """
    if not _is_ipv4(group) or not IPv4Address(group).is_multicast:
        raise typer.BadParameter(f"--group {group}: give an IPv4 multicast address")
    address, index = bytes(4), 0
    if _is_ipv4(interface):
        address = socket.inet_aton(interface)
    elif interface:
        try:
            index = socket.if_nametoindex(interface)
        except OSError:
            raise typer.BadParameter(
                f"--interface {interface}: this machine has no such interface"
            ) from None
    it = _socket()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    it.bind((group, port))
    if not sources:
        member = struct.pack("=4s4si", socket.inet_aton(group), address, index)
        it.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        return it
    if index:
        address = _address_of(interface)
    it.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    for source in sources:
        # struct ip_mreq_source: group, interface, source
        asked = socket.inet_aton(group) + address + socket.inet_aton(source)
        it.setsockopt(socket.IPPROTO_IP, _IP_ADD_SOURCE_MEMBERSHIP, asked)
    return it


def source_address(text: str) -> str:
    """Returns an address that may be heard, as sockets tell it."""
    if not _is_ipv4(text) or IPv4Address(text).is_multicast:
        raise typer.BadParameter(f"--source {text}: give the IPv4 address of the publisher")
    return str(IPv4Address(text))


def _address_of(interface: str) -> bytes:
    """The IPv4 address of an interface of this machine, which a join of sources names it by."""
    request = struct.pack("16s24x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24]
        except OSError:
            raise typer.BadParameter(
                f"--interface {interface}: it needs an IPv4 address for --source"
            ) from None


def listen_socket(host: str, port: int) -> socket.socket:
    """Hears what is sent to an address of this machine."""
    it = _socket()
    it.bind((host, port))
    return it


def event_socket(interface: str) -> socket.socket:
    """Hears attribute/value events as switches that match bring them, frames of EtherType 0x9001
    without their Ethernet header, on an interface; needs CAP_NET_RAW."""
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


def connected_socket(host: str, port: int) -> socket.socket:
    """Speaks with one far end, and hears nobody else."""
    it = _socket()
    it.connect((host, port))
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


@dataclass
class Wires:
    """The sockets of a receiver. ``loss``: share of datagrams, of all directions, to throw away.
    ``sources``: addresses that stream and summaries come from; without any, all are heard. What
    others send is left unread, and counted in ``strangers``. ``shape``: makes datagrams of what
    comes by the stream.

    An error of any of them ends nothing: it is counted in ``failures``.
    """

    stream: socket.socket
    summaries: socket.socket | None = None
    service: socket.socket | None = None
    loss: float = 0.0
    dice: random.Random = field(default_factory=random.Random)
    thrown: int = 0
    sources: frozenset[str] = frozenset()
    strangers: int = 0
    shape: Callable[[bytes], bytes] | None = None
    failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        self._poll = select.poll()
        for each in self._all():
            self._poll.register(each, select.POLLIN)
        self._buffer = memoryview(bytearray(_LARGEST))

    def wait(self, seconds: float) -> None:
        """Until a datagram is there, or the time is over."""
        self._poll.poll(max(0, math.ceil(1000 * seconds)))

    def read(self, wire: socket.socket | None) -> tuple[list[bytes], bool]:
        """Returns datagrams that are there, and whether there may be more."""
        found, more = self._read(wire)
        if self.shape is not None and wire is self.stream:
            found = [self.shape(each) for each in found]
        return found, more

    def _read(self, wire: socket.socket | None) -> tuple[list[bytes], bool]:
        found: list[bytes] = []
        if wire is None:
            return found, False
        into, buffer = wire.recv_into, self._buffer
        # Frames without IP have no address that could be known.
        named = wire is not self.service and wire.family == socket.AF_INET
        known = self.sources if named else frozenset()
        try:
            for _ in range(MOST_AT_ONCE):
                if not known:
                    found.append(bytes(buffer[: into(buffer)]))
                    continue
                size, (address, _) = wire.recvfrom_into(buffer)
                if address in known:
                    found.append(bytes(buffer[:size]))
                else:
                    self.strangers += 1
        except BlockingIOError:
            return self._lossy(found), False
        except OSError as error:
            # Mostly of something sent earlier. What waits behind it keeps the socket readable; an
            # error that stays must not keep all else waiting.
            self.failures.add("re-requests" if wire is self.service else "receiving", error)
            return self._lossy(found), False
        return self._lossy(found), True

    def ask(self, requests: Iterable[bytes]) -> None:
        """Send to the service; what cannot be sent is asked again later, as is what gets lost."""
        for request in self._lossy(list(requests)) if self.service else []:
            try:
                self.service.send(request)
            except BlockingIOError:
                continue
            except OSError as error:
                self.failures.add("re-requests", error)

    def close(self) -> None:
        for each in self._all():
            each.close()

    def _all(self) -> list[socket.socket]:
        return [s for s in (self.stream, self.summaries, self.service) if s is not None]

    def _lossy(self, datagrams: list[bytes]) -> list[bytes]:
        if not self.loss:
            return datagrams
        kept = [d for d in datagrams if self.dice.random() >= self.loss]
        self.thrown += len(datagrams) - len(kept)
        return kept


def _socket() -> socket.socket:
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    it.setblocking(False)
    return it


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
