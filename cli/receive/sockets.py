"""Sockets of ``stackcast receive``: stream, summaries and re-requests, and trials with loss."""

from __future__ import annotations

import math
import random
import select
import socket
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import typer

from stackcast.cli.receive.failures import Failures
from stackcast.cli.receive.memberships import Membership, is_ipv4
from stackcast.jobs.adapters.wire.receive_buffer import dropped, enlarge_receive_buffer, shortfall
from stackcast.udfs.errors import MessageError, ReceiveError
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.keyed_events import packet_of_event
from stackcast.udfs.messages.summaries import is_summary

_LARGEST = 65_535
_BUFFER = 32 << 20
#: Datagrams that are read from a socket before the other sockets have their turn.
MOST_AT_ONCE = 512


def group_socket(group: str, port: int) -> socket.socket:
    """Return a socket for a multicast group, which it has yet to join.

    Raises:
        BadParameter: ``group`` is not an IPv4 multicast address.
        ReceiveError: another program uses the port.
    """
    if not is_ipv4(group) or not IPv4Address(group).is_multicast:
        raise typer.BadParameter(f"--group {group}: give an IPv4 multicast address")
    wire = _udp_socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _bind(wire, group, port)
    return wire


def source_address(text: str) -> str:
    """Return the address of a publisher in the form in which sockets report senders.

    Raises:
        BadParameter: it is not the IPv4 address of a host.
    """
    if not is_ipv4(text) or IPv4Address(text).is_multicast:
        raise typer.BadParameter(f"--source {text}: give the IPv4 address of the publisher")
    return str(IPv4Address(text))


def listen_socket(host: str, port: int) -> socket.socket:
    """Return a socket for datagrams to an address of this machine.

    Raises:
        ReceiveError: the address is not of this machine, or another program uses the port.
    """
    wire = _udp_socket()
    _bind(wire, host, port)
    return wire


def event_socket() -> socket.socket:
    """Return a socket for frames without their Ethernet header; it has yet to join an interface.

    Raises:
        ReceiveError: the process does not have CAP_NET_RAW.
    """
    try:
        # Protocol 0 receives nothing. With any other, frames of all interfaces would arrive until
        # the socket is bound to one.
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    except PermissionError:
        raise ReceiveError(
            "PERMISSION",
            "--event-frames without --listen reads frames of an interface, which needs "
            "CAP_NET_RAW: run as root, or give the program the capability",
        ) from None
    enlarge_receive_buffer(wire, _BUFFER)
    wire.setblocking(False)
    return wire


def connected_socket(option: str, host: str, port: int) -> socket.socket:
    """Return a socket that exchanges datagrams with a single address.

    Raises:
        ReceiveError: the address, which the named option gives, is unknown or has no route.
    """
    wire = _udp_socket()
    try:
        wire.connect((host, port))
    except OSError as error:
        wire.close()
        raise ReceiveError(
            "UNREACHABLE", f"{option} {host}:{port}: {error.strerror}; check address and route"
        ) from None
    return wire


def event_reader(encoding: str, widths: Widths) -> Callable[[bytes], bytes]:
    """Return a function that turns an event into the MoldUDP64 packet that a stream would send.

    The function returns summaries, and datagrams that are not events, as they are: the receiver
    counts the latter.
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
    """The sockets of a receiver.

    An error of a socket ends nothing: it is counted in ``failures``.

    Args:
        stream: socket for notifications.
        summaries: socket for summaries, if they do not come to ``stream``.
        service: socket for re-requests and answers.
        loss: share of datagrams, in both directions, to discard as a trial; counted in ``thrown``.
        dice: chooses the datagrams to discard.
        sources: addresses from which stream and summaries are accepted, any if empty. Datagrams of
            others are counted in ``strangers``.
        own: addresses that are not accepted if ``sources`` is empty, counted in the same way.
        shape: converts each datagram of the stream.
        membership: of the sockets that joined a group.
    """

    stream: socket.socket
    summaries: socket.socket | None = None
    service: socket.socket | None = None
    loss: float = 0.0
    dice: random.Random = field(default_factory=random.Random)
    thrown: int = 0
    sources: frozenset[str] = frozenset()
    own: Container[str] = ()
    strangers: int = 0
    shape: Callable[[bytes], bytes] | None = None
    membership: Membership | None = None
    failures: Failures = field(default_factory=Failures)
    #: Datagrams of sockets that joined a group; without one, of stream and summaries.
    heard: int = 0

    def __post_init__(self) -> None:
        self._poll = select.poll()
        for wire in self._all():
            self._poll.register(wire, select.POLLIN)
        self._buffer = memoryview(bytearray(_LARGEST))
        self._watched = (
            self.membership.sockets if self.membership else (self.stream, self.summaries)
        )

    def wait(self, seconds: float) -> None:
        """Wait until a datagram arrives, for ``seconds`` at most."""
        self._poll.poll(max(0, math.ceil(1000 * seconds)))

    def read(self, wire: socket.socket | None) -> tuple[list[bytes], bool]:
        """Return the datagrams that a socket holds, and whether it may hold more."""
        if wire is None:
            return [], False
        datagrams, more = self._read(wire)
        if wire in self._watched:
            self.heard += len(datagrams)
        datagrams = self._lossy(datagrams)
        if self.shape is not None and wire is self.stream:
            datagrams = [self.shape(datagram) for datagram in datagrams]
        return datagrams, more

    def _read(self, wire: socket.socket) -> tuple[list[bytes], bool]:
        datagrams: list[bytes] = []
        receive, buffer = wire.recv_into, self._buffer
        # Frames without IP have no address to compare.
        has_source = wire is not self.service and wire.family == socket.AF_INET
        addresses = (self.sources or self.own) if has_source else ()
        accepted = bool(self.sources)
        try:
            for _ in range(MOST_AT_ONCE):
                if not addresses:
                    datagrams.append(bytes(buffer[: receive(buffer)]))
                    continue
                size, (address, _) = wire.recvfrom_into(buffer)
                if (address in addresses) is accepted:
                    datagrams.append(bytes(buffer[:size]))
                else:
                    self.strangers += 1
        except BlockingIOError:
            return datagrams, False
        except OSError as error:
            # Usually caused by a datagram sent earlier. The socket stays readable if it holds more;
            # a lasting error must not keep the other sockets waiting.
            self.failures.add("re-requests" if wire is self.service else "receiving", error)
            return datagrams, False
        return datagrams, True

    def ask(self, requests: Iterable[bytes]) -> None:
        """Send requests to the service; the receiver repeats those that cannot be sent."""
        for request in self._lossy(list(requests)) if self.service else []:
            try:
                self.service.send(request)
            except BlockingIOError:
                continue
            except OSError as error:
                self.failures.add("re-requests", error)

    def drops(self) -> int:
        """Return how many datagrams the kernel dropped at these sockets."""
        return sum(map(dropped, self._all()))

    def buffer_shortfall(self) -> str:
        """Return a sentence about receive buffers that are too small, or an empty text."""
        return shortfall(self.stream, _BUFFER)

    def close(self) -> None:
        for wire in self._all():
            wire.close()

    def _all(self) -> list[socket.socket]:
        return [s for s in (self.stream, self.summaries, self.service) if s is not None]

    def _lossy(self, datagrams: list[bytes]) -> list[bytes]:
        if not self.loss:
            return datagrams
        passed = [d for d in datagrams if self.dice.random() >= self.loss]
        self.thrown += len(datagrams) - len(passed)
        return passed


def _udp_socket() -> socket.socket:
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    enlarge_receive_buffer(wire, _BUFFER)
    wire.setblocking(False)
    return wire


def _bind(wire: socket.socket, host: str, port: int) -> None:
    try:
        wire.bind((host, port))
    except OSError as error:
        wire.close()
        raise ReceiveError(
            "CANNOT_LISTEN",
            f"UDP port {port} of {host} cannot be opened: {error.strerror}; give an address of "
            "this machine and a port that no other program uses",
        ) from None
