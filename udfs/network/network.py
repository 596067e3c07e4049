"""The network: switches, hosts and the directed links out of switches.

A link's id is what hop and stop labels carry, so a network holds at most 16,383 directed
links (14 bits, WERNECKE 5.2.6) or, with wide labels, 1,073,741,823 (30 bits). A switch has at
most 511 ports, which is what 9 bits of port number can say and ``bit<512>`` of served ports hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.faults import faults
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.parts import Host, Link, Role, Switch
from stackcast.udfs.network.tunnel import Tunnel

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Host", "Link", "Network", "Role", "Switch"]


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
        for fault in faults(switch_rows, host_rows, self.links, labels):
            raise fault.error
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
                f"there is no link from {switch!r} to {neighbor!r}",
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
                f"no link uses port {port} of {switch!r}",
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


def _tunnels(links: Sequence[Link], hosts: Mapping[str, Host]) -> Iterator[tuple[Link, Tunnel]]:
    """Yields the links that are tunnels.

    One between switches is a tunnel both ways. What a publisher sends may come by one, from its own
    address, as the sink sends it; what goes to it leaves as it is.
    """
    by_port = {(link.switch, link.port): link for link in links}
    for link in links:
        if link.tunnel is None:
            continue
        host = hosts.get(link.neighbor)
        if host is not None:
            yield link, Tunnel(link.tunnel, host.ipv4, False)
            continue
        back = by_port[link.neighbor, link.neighbor_port or 0]
        assert back.tunnel is not None
        yield link, Tunnel(link.tunnel, back.tunnel.ipv4, True)
