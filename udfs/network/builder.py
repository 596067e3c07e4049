"""Switches, ports, link ids and addresses of a network that is made, given out in one fixed order:
the same calls give the same network on any machine."""

from __future__ import annotations

from collections.abc import Sequence

from udfs.errors import NetworkError
from udfs.network.labels import NARROW, LabelFormat
from udfs.network.network import MAX_PORT, Host, Link, Network, Role, Switch

_SUBSCRIBERS = 0x0A000000
_PUBLISHERS = 0x0A400000
_LOCAL_MAC = 0x020000000000
#: Addresses below the publishers', and below the end of 10.0.0.0/8.
_MOST_SUBSCRIBERS = _PUBLISHERS - _SUBSCRIBERS - 1
_MOST_PUBLISHERS = 0x0B000000 - _PUBLISHERS - 2


class NetworkBuilder:
    """Device ids count from 1 in the order of the switches, link ids from 1 in that of the calls,
    ports from 1 on each switch; hosts have addresses of 10.0.0.0/8, publishers from 10.64.0.1."""

    def __init__(self) -> None:
        self._switches: list[Switch] = []
        self._hosts: list[Host] = []
        self._links: list[Link] = []
        self._ports: dict[str, int] = {}

    def add_switches(self, names: Sequence[str], layer: str | None = None) -> None:
        for name in names:
            self._switches.append(Switch(name, len(self._switches) + 1, layer))
            self._ports[name] = 0

    def add_hosts(self, switches: Sequence[str], each: int, publishers: int) -> None:
        """``each`` hosts ``h1`` … on every switch; ``feed1`` … on the switches in turn.

        To be called once. Raises NetworkError ``BAD_SIZE`` if there are no addresses for so many.
        """
        if len(switches) * each > _MOST_SUBSCRIBERS or publishers > _MOST_PUBLISHERS:
            raise NetworkError(
                "BAD_SIZE",
                f"{len(switches) * each} hosts and {publishers} publishers are more than there "
                f"are addresses for: at most {_MOST_SUBSCRIBERS} and {_MOST_PUBLISHERS}",
            )
        number = 0
        for switch in switches:
            for _ in range(each):
                number += 1
                self._attach(f"h{number}", switch, _SUBSCRIBERS + number, "subscriber")
        for index in range(publishers if switches else 0):
            switch = switches[index % len(switches)]
            self._attach(f"feed{index + 1}", switch, _PUBLISHERS + index + 1, "publisher")

    def connect(self, u: str, v: str, weight: float = 1.0, up: bool = True) -> None:
        """Link two switches, both ways."""
        port_u, port_v = self._next_port(u), self._next_port(v)
        self._link(u, port_u, v, port_v, weight, up)
        self._link(v, port_v, u, port_u, weight, up)

    def network(self, labels: LabelFormat = NARROW) -> Network:
        """Raises NetworkError as `Network.from_rows` does, ``TOO_MANY_PORTS`` with what to do."""
        for name, used in self._ports.items():
            if used > MAX_PORT:
                to_hosts = sum(host.switch == name for host in self._hosts)
                raise NetworkError(
                    "TOO_MANY_PORTS",
                    f"switch {name!r} needs {used} ports, {used - to_hosts} to switches and "
                    f"{to_hosts} to hosts, and a switch has ports 1..{MAX_PORT}: take fewer hosts "
                    "on a switch, or fewer links",
                    switch=name,
                    ports=used,
                )
        return Network.from_rows(self._switches, self._hosts, self._links, labels)

    def _attach(self, name: str, switch: str, ipv4: int, role: Role) -> None:
        port = self._next_port(switch)
        self._hosts.append(Host(name, switch, port, _LOCAL_MAC | ipv4, ipv4, role))
        self._link(switch, port, name, None, 1.0, True)

    def _link(
        self,
        switch: str,
        port: int,
        neighbor: str,
        neighbor_port: int | None,
        weight: float,
        up: bool,
    ) -> None:
        number = len(self._links) + 1
        self._links.append(Link(number, switch, port, neighbor, neighbor_port, weight, up))

    def _next_port(self, switch: str) -> int:
        self._ports[switch] += 1
        return self._ports[switch]
