"""The controller on a switch whose ports of states are in a table (STARE III-D, III-E-2).

The program (``p4/state_replication_table.p4``) hands it every register, remove and ack of a
neighbor that may be one; it says which row to write, what to acknowledge and what to send on. What
goes to a neighbor is sent again until that has acknowledged it, so no message between switches is
lost for long, whether or not somebody refreshes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stackcast.udfs.states.messages import (
    ACKNOWLEDGER,
    HEADER_BYTES,
    MessageKind,
    group_of,
    multicast_mac,
    read_group,
)
from stackcast.udfs.states.subscriptions import Subscriptions, ports_of

#: Microseconds until a message is sent again; each time twice as long, up to the second.
FIRST_PAUSE, LONGEST_PAUSE = 250_000, 8_000_000

_ETHERNET = 14
_UDP = 8
_ACKNOWLEDGER_MAC = 0x0200C0000008


@dataclass(frozen=True)
class SetPorts:
    """The row of a state is to have these ports, bit p - 1 for port p; 0: there is to be none."""

    state: int
    ports: int


@dataclass(frozen=True)
class Send:
    """A frame is to leave by these ports."""

    ports: int
    frame: bytes


Effect = SetPorts | Send


@dataclass
class _Unacknowledged:
    frame: bytes
    request: bytes
    due: int
    pause: int
    until: int


class SwitchController:
    """One switch's controller, without its connection; times are in microseconds.

    Parameters
    ----------
    links, hosts, lease: of the switch's entry of ``ingress.tree``.
    rows: ports by state that the switch holds already, of a controller before this one: taken as
        registered ``now``.

    Effects are to be done in their order, so nobody is told of what is not written yet.
    """

    def __init__(
        self, links: int, hosts: int, lease: int, rows: Mapping[int, int], now: int
    ) -> None:
        self._known = Subscriptions(links, hosts, lease)
        self._rows = dict(rows)
        for state, ports in rows.items():
            self._known.restore(state, ports, now)
        self._generation = now >> lease
        # By port and state: the last request, and what a neighbor has not acknowledged.
        self._last: dict[tuple[int, int], tuple[MessageKind, bytes]] = {}
        self._unacknowledged: dict[tuple[int, int], _Unacknowledged] = {}

    @property
    def waits(self) -> bool:
        """Whether a neighbor has something to acknowledge."""
        return bool(self._unacknowledged)

    def packet_in(self, port: int, frame: bytes, now: int) -> list[Effect]:
        """Takes a message that the program handed over."""
        message = _ETHERNET + 4 * (frame[_ETHERNET] & 0xF) + _UDP
        request = frame[message : message + HEADER_BYTES]
        kind, state = read_group(int.from_bytes(frame[30:34]))
        if kind == MessageKind.ACK:
            waiting = self._unacknowledged.get((port, state))
            if waiting is not None and waiting.request == request:
                del self._unacknowledged[port, state]
            return []
        if self._last.get((port, state)) == (kind, request):
            # It comes again because its ack was lost.
            return [Send(1 << port - 1, acknowledged(frame))]
        self._last[port, state] = kind, request
        register = kind == MessageKind.REGISTER
        change = self._known.register if register else self._known.remove
        onward = change(state, port, now)
        effects = self._written([state], now)
        effects.append(Send(1 << port - 1, acknowledged(frame)))
        if onward:
            effects.append(Send(onward, frame))
        until = now + (1 << self._known.lease)
        for link in ports_of(onward):
            self._unacknowledged[link, state] = _Unacknowledged(
                frame, request, now + FIRST_PAUSE, FIRST_PAUSE, until
            )
        return effects

    def tick(self, now: int) -> list[Effect]:
        """Lets time pass: what was not acknowledged is sent again, what is too old is forgotten."""
        effects: list[Effect] = []
        if now >> self._known.lease != self._generation:
            self._generation = now >> self._known.lease
            states = list(self._known.states())
            effects += self._written(states, now)
            gone = set(self._known.forget(now))
            self._last = {key: last for key, last in self._last.items() if key[1] not in gone}
        for key, waiting in list(self._unacknowledged.items()):
            if waiting.due > now:
                continue
            if now >= waiting.until or not self._known.links >> key[0] - 1 & 1:
                # Refreshes go on; a neighbor that is gone for so long has forgotten all.
                del self._unacknowledged[key]
                continue
            effects.append(Send(1 << key[0] - 1, waiting.frame))
            waiting.pause = min(2 * waiting.pause, LONGEST_PAUSE)
            waiting.due = now + waiting.pause
        return effects

    def span(self, links: int, hosts: int, now: int) -> list[Effect]:
        """The switch has other ports on the tree, or before hosts."""
        if (links, hosts) == (self._known.links, self._known.hosts):
            return []
        self._known.links, self._known.hosts = links, hosts
        return self._written(list(self._known.states()), now)

    def _written(self, states: list[int], now: int) -> list[Effect]:
        """Returns the rows of these states that must change."""
        effects: list[Effect] = []
        for state in states:
            ports = self._known.at(state, now)
            if ports != self._rows.get(state, 0):
                effects.append(SetPorts(state, ports))
                self._rows[state] = ports
                if not ports:
                    del self._rows[state]
        return effects


def acknowledged(frame: bytes) -> bytes:
    """Returns the ack of a register or remove: its header goes back as it came."""
    end = _ETHERNET + 4 * (frame[_ETHERNET] & 0xF)
    _, state = read_group(int.from_bytes(frame[30:34]))
    group = group_of(MessageKind.ACK, state)
    header = bytearray(frame[_ETHERNET:end])
    header[10:12] = bytes(2)
    header[12:20] = ACKNOWLEDGER.to_bytes(4) + group.to_bytes(4)
    # Words in ones' complement sum to the number modulo 65535.
    header[10:12] = (-int.from_bytes(header) % 0xFFFF).to_bytes(2)
    ethernet = multicast_mac(group).to_bytes(6) + _ACKNOWLEDGER_MAC.to_bytes(6) + frame[12:14]
    udp = frame[end : end + 6] + bytes(2)
    return ethernet + bytes(header) + udp + frame[end + _UDP :]
