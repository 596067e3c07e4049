"""The network: switches, hosts and the directed links out of switches.

A link's id is what hop and stop labels carry, so a network holds at most 16,383 directed
links (14 bits, WERNECKE 5.2.6) or, with wide labels, 1,073,741,823 (30 bits). A switch has at
most 511 ports, which is what 9 bits of port number can say and ``bit<512>`` of served ports hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.names import name_fault
from stackcast.udfs.network.encodings import can_widen, with_room
from stackcast.udfs.network.labels import MAX_PORT, NARROW, LabelFormat
from stackcast.udfs.network.tunnel import Tunnel, TunnelEnd

if TYPE_CHECKING:
    import networkx as nx

MAX_WEIGHT = 1e12

Role = Literal["subscriber", "publisher"]

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Switch:
    """A switch; ``device_id`` (64 bits) is P4Runtime's and unique in the network."""

    name: str
    device_id: int
    layer: str | None = None


@dataclass(frozen=True)
class Host:
    """A host on one port of one switch; ``mac`` (48 bits) and ``ipv4`` (32 bits) are integers."""

    name: str
    switch: str
    port: int
    mac: int
    ipv4: int
    role: Role = "subscriber"


@dataclass(frozen=True)
class Link:
    """A directed link out of ``switch`` by ``port`` (1..511).

    ``id`` is unique and fits the network's labels; ``neighbor_port`` is None where the neighbor is
    a host. ``weight`` is what crossing the link costs: above 0, at most 1e12, without unit.
    ``tunnel``: its end here where the link is a tunnel.
    """

    id: int
    switch: str
    port: int
    neighbor: str
    neighbor_port: int | None
    weight: float = 1.0
    up: bool = True
    tunnel: TunnelEnd | None = None


class Network:
    """A validated, immutable network. Build it with :meth:`from_rows`; it pickles.

    ``labels`` is the format of its header stacks. ``tunnels`` are those that links are, by their
    ids.

    ``switches`` and ``hosts`` map names to rows, in ascending order of device id and of IPv4
    address; ``links`` is in ascending order of id. The order of the input has no effect, so
    what is computed from a network is the same on any machine.
    """

    def __init__(
        self,
        switches: Iterable[Switch],
        hosts: Iterable[Host],
        links: Iterable[Link],
        labels: LabelFormat = NARROW,
    ) -> None:
        self.labels = labels
        switch_rows = sorted(switches, key=lambda switch: switch.device_id)
        host_rows = sorted(hosts, key=lambda host: host.ipv4)
        self.links: tuple[Link, ...] = tuple(sorted(links, key=lambda link: link.id))
        self.switches: dict[str, Switch] = {switch.name: switch for switch in switch_rows}
        self.hosts: dict[str, Host] = {host.name: host for host in host_rows}
        self.link_by_id: dict[int, Link] = {link.id: link for link in self.links}
        self._by_port = {(link.switch, link.port): link for link in self.links}
        self._between: dict[tuple[str, str], list[Link]] = {}
        for link in sorted(self.links, key=self._cable):
            self._between.setdefault((link.switch, link.neighbor), []).append(link)
        self._by_ends = {ends: min(some, key=self._rank) for ends, some in self._between.items()}
        _check_names(switch_rows, host_rows)
        _check_room(switch_rows, self.links, labels)
        self._check_links()
        self._check_hosts()
        self._check_connected()
        self.tunnels: dict[int, Tunnel] = {
            link.id: tunnel for link, tunnel in _tunnels(self.links, self.hosts)
        }

    @classmethod
    def from_rows(
        cls,
        switches: Iterable[Switch],
        hosts: Iterable[Host],
        links: Iterable[Link],
        labels: LabelFormat = NARROW,
    ) -> Network:
        """Builds the network of these rows; ``labels``: the format of its stacks.

        Raises NetworkError: ``NO_SWITCH``, ``BAD_NAME``, ``DUPLICATE_NAME``,
        ``DUPLICATE_DEVICE_ID``, ``DUPLICATE_ADDRESS``, ``BAD_DEVICE_ID``, ``BAD_ADDRESS``,
        ``TOO_MANY_LINKS``, ``DUPLICATE_LINK``, ``UNKNOWN_SWITCH``, ``TOO_MANY_PORTS``,
        ``DUPLICATE_PORT``, ``ONE_WAY_LINK``, ``BAD_WEIGHT``, ``UNATTACHED_HOST``,
        ``DISCONNECTED``, ``BAD_TUNNEL``.
        """
        return cls(switches, hosts, links, labels)

    def link(self, switch: str, neighbor: str) -> Link:
        """Returns the link from ``switch`` to ``neighbor``: of parallel ones a usable one, of those
        the lightest, then that of the lowest ids. NetworkError ``UNKNOWN_LINK`` if none."""
        found = self._by_ends.get((switch, neighbor))
        if found is None:
            raise NetworkError(
                "UNKNOWN_LINK",
                f"no link leads from {switch!r} to {neighbor!r}",
                switch=switch,
                neighbor=neighbor,
            )
        return found

    def tree_link(self, switch: str, neighbor: str) -> Link:
        """Returns the link that a stored tree over these switches takes: of parallel ones that of
        the lowest ids, up or down. NetworkError ``UNKNOWN_LINK`` if none."""
        self.link(switch, neighbor)
        return self._between[switch, neighbor][0]

    def parallel(self) -> tuple[tuple[str, str], ...]:
        """Returns the pairs of switches that several links lead between, each way round."""
        return tuple(ends for ends, some in self._between.items() if len(some) > 1)

    def link_at(self, switch: str, port: int) -> Link:
        """Returns the link out of this port; NetworkError ``UNKNOWN_LINK`` if none."""
        found = self._by_port.get((switch, port))
        if found is None:
            raise NetworkError(
                "UNKNOWN_LINK",
                f"no link leaves {switch!r} by port {port}",
                switch=switch,
                port=port,
            )
        return found

    def host(self, name: str) -> Host:
        """Returns the host of this name; NetworkError ``UNKNOWN_HOST`` if none."""
        found = self.hosts.get(name)
        if found is None:
            raise NetworkError("UNKNOWN_HOST", f"the network has no host {name!r}", host=name)
        return found

    def usable(self, link: Link) -> bool:
        """Returns True if notifications may cross: a cable that failed one way counts as failed."""
        if link.neighbor in self.hosts:
            return link.up
        assert link.neighbor_port is not None
        return link.up and self._by_port[link.neighbor, link.neighbor_port].up

    def describe(self, label: int) -> str:
        """Words a label of this network for people: ``tree 1``, ``hop 17 (pod1-rack1:3)``."""
        text = self.labels.describe(label)
        link = self.link_of(label)
        return f"{text} ({link.switch}:{link.port})" if link else text

    def link_of(self, label: int) -> Link | None:
        """Returns the link that a label names, alone or as the way to a host or out of a switch;
        None where there is none."""
        of, number, _, port = self.labels.meaning(label)
        if of == "switch":
            switch = next((s.name for s in self.switches.values() if s.device_id == number), "")
            return self._by_port.get((switch, port))
        return self.link_by_id.get(number) if of in ("link", "host") else None

    def words(self) -> str:
        """Counts its parts in words, as the report's map does: a link is one each way."""
        links = len({self._cable(link) for link in self.links})
        publishers = len(self.publishers())
        return (
            f"{len(self.switches)} switches, {len(self.subscribers())} subscribers, "
            f"{publishers} publisher{'s' * (publishers != 1)}, {links} links"
        )

    def publishers(self) -> tuple[str, ...]:
        return tuple(name for name, host in self.hosts.items() if host.role == "publisher")

    def subscribers(self) -> tuple[str, ...]:
        return tuple(name for name, host in self.hosts.items() if host.role == "subscriber")

    def graph(self) -> nx.Graph:
        """Returns an undirected graph over switches and hosts; edges carry ``weight`` and
        ``up``."""
        # Spark's workers unpickle networks and never draw them: they need not load networkx.
        import networkx as nx  # noqa: PLC0415

        graph = nx.Graph()
        for switch in self.switches.values():
            graph.add_node(switch.name, kind="switch", layer=switch.layer)
        for host in self.hosts.values():
            graph.add_node(host.name, kind="host", role=host.role)
        for link in self._by_ends.values():
            graph.add_edge(link.switch, link.neighbor, weight=link.weight, up=self.usable(link))
        return graph

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Network):
            return NotImplemented
        return (self.switches, self.hosts, self.links, self.labels) == (
            other.switches,
            other.hosts,
            other.links,
            other.labels,
        )

    def __hash__(self) -> int:
        return hash((tuple(self.switches.values()), tuple(self.hosts.values()), self.links))

    def __repr__(self) -> str:
        counts = f"{len(self.switches)} switches, {len(self.hosts)} hosts, {len(self.links)} links"
        return f"Network({counts})"

    def _back(self, link: Link) -> Link | None:
        """Returns the link that should be the other way of this one."""
        return self._by_port.get((link.neighbor, link.neighbor_port or 0))

    def _cable(self, link: Link) -> int:
        """Returns what the two ways of a cable have in common, in the order of cables."""
        back = self._back(link)
        return min(link.id, back.id) if back else link.id

    def _rank(self, link: Link) -> tuple[bool, float, int]:
        """Returns the order of links between the same switches, the same from either end."""
        back = self._back(link) or link
        return not (link.up and back.up), link.weight + back.weight, self._cable(link)

    def _check_links(self) -> None:
        largest = self.labels.max_id
        if self.links and not 0 < self.links[0].id <= self.links[-1].id <= largest:
            worst = self.links[-1].id if self.links[-1].id > largest else self.links[0].id
            advice = "; labels of 32 bits have room for more" if can_widen(self.labels) else ""
            raise NetworkError(
                "TOO_MANY_LINKS",
                f"directed link id {worst} does not fit a label: ids are 1..{largest} "
                f"({largest.bit_length()} bits), and the network has {len(self.links)} directed "
                f"links{advice}",
                link=worst,
            )
        if len(self.link_by_id) < len(self.links):
            twice = _first_twice(link.id for link in self.links)
            raise NetworkError("DUPLICATE_LINK", f"two links have the id {twice}", link=twice)
        for link in self.links:
            self._check_ends(link)
        if len({(link.switch, link.port) for link in self.links}) < len(self.links):
            switch, port = _first_twice((link.switch, link.port) for link in self.links)
            raise NetworkError(
                "DUPLICATE_PORT",
                f"two links leave {switch!r} by port {port}",
                switch=switch,
                port=port,
            )
        for link in self.links:
            back = self._back(link)
            if link.neighbor in self.switches and (
                back is None or (back.neighbor, back.neighbor_port) != (link.switch, link.port)
            ):
                raise NetworkError(
                    "ONE_WAY_LINK",
                    f"link {link.id} leads from {link.switch}:{link.port} to "
                    f"{link.neighbor}:{link.neighbor_port}, but no link leads back by those ports",
                    link=link.id,
                )

    def _check_ends(self, link: Link) -> None:
        if link.switch not in self.switches:
            raise NetworkError(
                "UNKNOWN_SWITCH",
                f"link {link.id} leaves {link.switch!r}, which is no switch of the network",
                link=link.id,
                switch=link.switch,
            )
        if link.neighbor == link.switch or (
            link.neighbor not in self.switches and link.neighbor not in self.hosts
        ):
            raise NetworkError(
                "UNKNOWN_SWITCH",
                f"link {link.id} of {link.switch!r} leads to {link.neighbor!r}, which is no other "
                "switch and no host of the network",
                link=link.id,
                switch=link.neighbor,
            )
        if not 0 < link.port <= MAX_PORT:
            raise NetworkError(
                "TOO_MANY_PORTS",
                f"link {link.id} uses port {link.port} of {link.switch!r}: ports are 1..{MAX_PORT}",
                link=link.id,
                switch=link.switch,
                port=link.port,
            )
        if not 0 < link.weight <= MAX_WEIGHT:
            raise NetworkError(
                "BAD_WEIGHT",
                f"link {link.id} of {link.switch!r} has weight {link.weight}: it must be above 0 "
                f"and at most {MAX_WEIGHT:g}",
                link=link.id,
            )

    def _check_hosts(self) -> None:
        attached = {link.neighbor: link for link in self.links if link.neighbor in self.hosts}
        for host in self.hosts.values():
            link = self._by_ends.get((host.switch, host.name))
            if (
                link is None
                or link.port != host.port
                or link.neighbor_port is not None
                or attached[host.name] is not link
            ):
                raise NetworkError(
                    "UNATTACHED_HOST",
                    f"host {host.name!r} must hang on {host.switch}:{host.port} by one link "
                    "without neighbor_port, and on nothing else",
                    host=host.name,
                )
        hanging = sum(link.neighbor in self.hosts for link in self.links)
        if hanging > len(self.hosts):
            twice = _first_twice(x.neighbor for x in self.links if x.neighbor in self.hosts)
            raise NetworkError(
                "UNATTACHED_HOST", f"host {twice!r} hangs on more than one port", host=twice
            )

    def _check_connected(self) -> None:
        # Failed links count here: a network that lost a link is still the same network.
        neighbors: dict[str, list[str]] = {name: [] for name in self.switches}
        for link in self.links:
            if link.neighbor in self.switches:
                neighbors[link.switch].append(link.neighbor)
        start = next(iter(self.switches))
        seen, waiting = {start}, [start]
        while waiting:
            for name in neighbors[waiting.pop()]:
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
        if len(seen) < len(self.switches):
            apart = next(name for name in self.switches if name not in seen)
            raise NetworkError(
                "DISCONNECTED",
                f"no way leads from switch {start!r} to {apart!r}, not even over failed links",
                switch=apart,
            )


def _check_names(switches: list[Switch], hosts: list[Host]) -> None:
    if not switches:
        raise NetworkError("NO_SWITCH", "a network needs at least one switch")
    for kind, nodes in (("switch", switches), ("host", hosts)):
        for node in nodes:
            fault = name_fault(node.name)
            if fault:
                raise NetworkError("BAD_NAME", f"the name of a {kind} {fault}", name=node.name)
    names = [switch.name for switch in switches] + [host.name for host in hosts]
    if len(set(names)) < len(names):
        name = _first_twice(names)
        raise NetworkError("DUPLICATE_NAME", f"two nodes are called {name!r}", name=name)
    if len({row.device_id for row in switches}) < len(switches):
        number = _first_twice(row.device_id for row in switches)
        raise NetworkError(
            "DUPLICATE_DEVICE_ID", f"two switches have device id {number}", device_id=number
        )
    for switch in switches:
        if not 0 <= switch.device_id < 1 << 64:
            raise NetworkError(
                "BAD_DEVICE_ID",
                f"switch {switch.name!r} has device id {switch.device_id}: P4Runtime's have "
                "64 bits and no sign",
                switch=switch.name,
            )
    for what, bits in (("ipv4", 32), ("mac", 48)):
        for host in hosts:
            if not 0 <= getattr(host, what) < 1 << bits:
                raise NetworkError(
                    "BAD_ADDRESS",
                    f"host {host.name!r} has {what} {getattr(host, what)}: it must fit {bits} bits",
                    host=host.name,
                )
        if len({getattr(row, what) for row in hosts}) < len(hosts):
            value = _first_twice(getattr(row, what) for row in hosts)
            sharing = [row.name for row in hosts if getattr(row, what) == value]
            raise NetworkError(
                "DUPLICATE_ADDRESS", f"hosts {', '.join(sharing)} share one {what}", hosts=sharing
            )


def _check_room(switches: list[Switch], links: Sequence[Link], labels: LabelFormat) -> None:
    """Refuses switches and ports that labels have no room for."""
    for switch in switches:
        if not labels.names(switch.device_id):
            raise NetworkError(
                "NO_LABEL",
                f"switch {switch.name!r} has device id {switch.device_id}: "
                f"{_roomier(switches, links, labels)}, or give switches ids "
                f"1..{labels.max_device}",
                switch=switch.name,
            )
    for link in links:
        if link.port <= MAX_PORT and not labels.reaches(link.port, link.id):
            raise NetworkError(
                "NO_LABEL",
                f"link {link.id} leaves {link.switch!r} by port {link.port}: "
                f"{_roomier(switches, links, labels)}",
                switch=link.switch,
                port=link.port,
            )


def _roomier(switches: Iterable[Switch], links: Iterable[Link], labels: LabelFormat) -> str:
    """Says what to choose where labels have no room for a switch or port of these."""
    names = with_room(
        [switch.device_id for switch in switches], [(link.port, link.id) for link in links]
    )
    width = "set spark.stackcast.label.bits to 32, or " if labels.encoding in names else ""
    others = ", ".join(name for name in names if name != labels.encoding)
    return (
        f"labels of {labels.bits} bits of encoding {labels.encoding} cannot name it: "
        f"{width}choose another spark.stackcast.encoding: {others}"
    )


def _tunnels(links: Iterable[Link], hosts: Mapping[str, Host]) -> Iterator[tuple[Link, Tunnel]]:
    """Yields the links that are tunnels.

    One between switches is a tunnel both ways. What a publisher sends may come by one, from its own
    address, as the sink sends it; what goes to it leaves as it is.

    Raises NetworkError ``BAD_TUNNEL``.
    """
    links = list(links)
    by_port = {(link.switch, link.port): link for link in links}
    for link in links:
        back = by_port.get((link.neighbor, link.neighbor_port or 0))
        if link.tunnel is None:
            if back is not None and back.tunnel is not None:
                _bad_tunnel(link, "the link back is a tunnel, and this one is none")
            continue
        for what, value, bits in (
            ("ipv4", link.tunnel.ipv4, 32),
            ("mac", link.tunnel.mac, 48),
            ("next_hop", link.tunnel.next_hop, 48),
        ):
            if not 0 < value < 1 << bits:
                _bad_tunnel(
                    link, f"{what} of its tunnel is {value}: it must be above 0, of {bits} bits"
                )
        host = hosts.get(link.neighbor)
        if host is not None:
            if host.role != "publisher":
                _bad_tunnel(link, f"it is a tunnel, and {host.name!r} is no publisher")
            yield link, Tunnel(link.tunnel, host.ipv4, False)
        elif back is not None:
            if back.tunnel is None:
                _bad_tunnel(back, "the link back is a tunnel, and this one is none")
            if back.tunnel.ipv4 == link.tunnel.ipv4:
                _bad_tunnel(link, "both ends of its tunnel have the same ipv4")
            yield link, Tunnel(link.tunnel, back.tunnel.ipv4, True)


def _bad_tunnel(link: Link, why: str) -> NoReturn:
    raise NetworkError(
        "BAD_TUNNEL",
        f"link {link.id} of {link.switch!r} to {link.neighbor!r}: {why}",
        link=link.id,
    )


def _first_twice(values: Iterable[_Value]) -> _Value:
    seen: set[_Value] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    raise AssertionError("no value comes twice")
