"""The reference model of a switch that carries replicated state, which both programs equal.

It takes messages, not frames: what bytes make one, and plain IPv4, are the programs' matter
(``p4/state_replication.p4``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stackcast.udfs.states.messages import MessageKind
from stackcast.udfs.states.subscriptions import Subscriptions, ports_of


@dataclass(frozen=True)
class Port:
    """What is behind a port: a switch, or the host of address ``ipv4``, perhaps a publisher."""

    ipv4: int | None = None
    publisher: bool = False

    @property
    def is_host(self) -> bool:
        return self.ipv4 is not None


@dataclass(frozen=True)
class Message:
    """A message as switches see it. source: the IPv4 address that it says it is from."""

    kind: MessageKind
    state: int
    source: int = 0


@dataclass(frozen=True)
class Verdict:
    """What a switch does: ``(port, kind)`` of each copy, by port, or the reason of a drop.

    A copy is the message as it came, or an ack. A message that leads no further has neither.
    """

    copies: tuple[tuple[int, MessageKind], ...] = ()
    reason: str = ""


@dataclass
class SwitchModel:
    """One switch.

    ports: what is behind each; from any other nothing is taken. links: those to switches that are
    on the tree. capacity: states are below it, 0 for any that an address has room for; in hardware,
    of a register. acknowledges_switches: whether neighbors are told, too, as the switch's own
    controller does.
    """

    ports: Mapping[int, Port]
    links: int
    lease: int
    capacity: int = 0
    acknowledges_switches: bool = False
    subscriptions: Subscriptions = field(init=False)

    def __post_init__(self) -> None:
        hosts = sum(1 << number - 1 for number, port in self.ports.items() if port.is_host)
        self.subscriptions = Subscriptions(self.links, hosts, self.lease)

    def process(self, port: int, message: Message, now: int) -> Verdict:
        """Takes a message that came in by ``port`` at ``now``, in microseconds."""
        reason = self._refusal(port, message)
        if reason:
            return Verdict(reason=reason)
        known, state, kind = self.subscriptions, message.state, message.kind
        if kind == MessageKind.PUBLISH:
            copies = self._copies(known.at(state, now) & ~(1 << port - 1), kind)
            return Verdict(copies, "" if copies else "NO_SUBSCRIBER")
        if kind == MessageKind.ACK:
            return Verdict(reason="" if self.acknowledges_switches else "STRAY_ACK")
        change = known.register if kind == MessageKind.REGISTER else known.remove
        copies = self._copies(change(state, port, now), kind)
        if self.ports[port].is_host or self.acknowledges_switches:
            copies = tuple(sorted((*copies, (port, MessageKind.ACK))))
        return Verdict(copies)

    @staticmethod
    def _copies(mask: int, kind: MessageKind) -> tuple[tuple[int, MessageKind], ...]:
        return tuple((port, kind) for port in ports_of(mask))

    def restart(self) -> None:
        """Loses what was learned."""
        self.__post_init__()

    def _refusal(self, port: int, message: Message) -> str:
        behind = self.ports.get(port)
        if behind is None:
            return "UNKNOWN_PORT"
        if behind.is_host and message.source != behind.ipv4:
            return "FORGED_ADDRESS"
        if message.state == 0:
            return "UNKNOWN_STATE"
        if behind.is_host and message.kind == MessageKind.ACK:
            return "ACK_FROM_HOST"
        if behind.is_host and message.kind == MessageKind.PUBLISH and not behind.publisher:
            return "NO_PUBLISHER"
        if not behind.is_host and not self.links >> port - 1 & 1:
            return "NOT_ON_TREE"
        if self.capacity and message.state >= self.capacity:
            return "UNKNOWN_STATE"
        return ""
