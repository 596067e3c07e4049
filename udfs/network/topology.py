"""Networks made from sizes or from a graph: switches, ports, link ids and addresses are given out
in one fixed order, so the same input gives the same network on any machine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.jellyfish import jellyfish_links
from stackcast.udfs.network.labels import MAX_PORT, NARROW, LabelFormat
from stackcast.udfs.network.network import Host, Link, Network, Role, Switch
from stackcast.udfs.network.simple_graph import Dropped, simple_graph

if TYPE_CHECKING:
    import networkx as nx

_SUBSCRIBERS = 0x0A000000
_PUBLISHERS = 0x0A400000
_LOCAL_MAC = 0x020000000000
#: Addresses below the publishers', and below the end of 10.0.0.0/8.
_MOST_SUBSCRIBERS = _PUBLISHERS - _SUBSCRIBERS - 1
_MOST_PUBLISHERS = 0x0B000000 - _PUBLISHERS - 2


def fabric(
    pods: int,
    racks: int,
    hosts: int,
    planes: int,
    spines: int,
    publishers: int = 1,
    labels: LabelFormat = NARROW,
) -> Network:
    """Makes the three-tier datacenter fabric of WERNECKE 5.3.1.

    Parameters
    ----------
    pods: pods of the fabric; each has ``racks`` top-of-rack switches with ``hosts`` hosts each,
        and one fabric switch a plane that is linked to all racks of the pod.
    planes, spines: ``spines`` spine switches a plane, each linked to the plane's fabric
        switch in every pod.
    publishers: hosts ``feed1``, ``feed2``, … on the first racks in turn.
    labels: the format of the network's header stacks.

    Hosts are ``h1`` … in the order of racks; switches ``pod1-rack1`` (layer ``rack``),
    ``pod1-fabric1`` (``fabric``) and ``plane1-spine1`` (``spine``).

    Raises NetworkError ``BAD_SIZE``, and ``TOO_MANY_LINKS`` or ``TOO_MANY_PORTS`` where the
    sizes exceed what a label or a switch can name.
    """
    sizes = {"pods": pods, "racks": racks, "hosts": hosts, "planes": planes, "spines": spines}
    _check_sizes(sizes, publishers)
    build = NetworkBuilder()
    rack_names = [
        [f"pod{pod}-rack{rack}" for rack in range(1, racks + 1)] for pod in range(1, pods + 1)
    ]
    fabric_names = [
        [f"pod{pod}-fabric{plane}" for plane in range(1, planes + 1)] for pod in range(1, pods + 1)
    ]
    # Spine by spine over all planes: broadcast trees take spines in this order, and spread so.
    spine_names = [
        [f"plane{plane}-spine{spine}" for plane in range(1, planes + 1)]
        for spine in range(1, spines + 1)
    ]
    for names in rack_names:
        build.add_switches(names, "rack")
    for names in fabric_names:
        build.add_switches(names, "fabric")
    for names in spine_names:
        build.add_switches(names, "spine")
    all_racks = [name for names in rack_names for name in names]
    build.add_hosts(all_racks, hosts, publishers)
    for pod in range(pods):
        for rack in rack_names[pod]:
            for switch in fabric_names[pod]:
                build.connect(rack, switch)
    for pod in range(pods):
        for names in spine_names:
            for switch, spine in zip(fabric_names[pod], names, strict=True):
                build.connect(switch, spine)
    return build.network(labels)


def jellyfish(
    switches: int,
    degree: int,
    hosts_per_switch: int = 1,
    publishers: int = 1,
    seed: int = 0,
    labels: LabelFormat = NARROW,
) -> Network:
    """Makes a Jellyfish: switches ``s1`` …, each linked to ``degree`` others at random.

    It is connected; where ``switches`` × ``degree`` is odd, one switch has a link less. Hosts are
    as in :func:`read_graph`. The same arguments give the same network on any machine
    (Singla et al., NSDI 2012).

    Raises NetworkError as :func:`fabric` does.
    """
    _check_sizes({"switches": switches, "hosts_per_switch": hosts_per_switch}, publishers)
    build = NetworkBuilder()
    names = [f"s{number}" for number in range(1, switches + 1)]
    links = jellyfish_links(switches, degree, seed)
    build.add_switches(names)
    build.add_hosts(names, hosts_per_switch, publishers)
    for u, v in links:
        build.connect(names[u], names[v])
    return build.network(labels)


def line(
    switches: int = 3,
    hosts_per_switch: int = 1,
    publishers: int = 1,
    labels: LabelFormat = NARROW,
) -> Network:
    """Makes switches ``s1`` … in a row, each linked to the next: with three, the testbed of KUNDEL
    IV.

    Hosts are as in :func:`read_graph`; the first publisher hangs on ``s1``.

    Raises NetworkError as :func:`fabric` does.
    """
    _check_sizes({"switches": switches, "hosts_per_switch": hosts_per_switch}, publishers)
    build = NetworkBuilder()
    names = [f"s{number}" for number in range(1, switches + 1)]
    build.add_switches(names)
    build.add_hosts(names, hosts_per_switch, publishers)
    for u, v in pairwise(names):
        build.connect(u, v)
    return build.network(labels)


@dataclass(frozen=True)
class GraphNetwork:
    """The network of a graph.

    Attributes:
        network: the network.
        switches: node of the graph → name of its switch.
        dropped: the parts of the graph that the network does not have.
    """

    network: Network
    switches: dict[Hashable, str]
    dropped: Dropped


def read_graph(
    graph: nx.Graph,
    hosts_per_switch: int = 1,
    publishers: int = 1,
    labels: LabelFormat = NARROW,
    parallel: bool = False,
) -> GraphNetwork:
    """Makes a network with one switch a node of ``graph``, ``hosts_per_switch`` hosts on each.

    It is that of :func:`simple_graph`: the largest connected component, with weights,
    failed links (``up``) and names; ``parallel`` edges are cables of their own. Publishers hang on
    the first switches in turn.

    Raises NetworkError as :func:`fabric` does, ``BAD_WEIGHT``, and ``NO_SWITCH`` for an empty
    graph.
    """
    _check_sizes({"hosts_per_switch": hosts_per_switch}, publishers)
    simple = simple_graph(graph, parallel)
    names = list(simple.switches.values())
    build = NetworkBuilder()
    build.add_switches(names)
    build.add_hosts(names, hosts_per_switch, publishers)
    for link in simple.links:
        build.connect(link.u, link.v, link.weight, link.up)
    return GraphNetwork(build.network(labels), simple.switches, simple.dropped)


def _check_sizes(sizes: dict[str, int], publishers: int) -> None:
    small = {name: size for name, size in sizes.items() if size < 1}
    if publishers < 0:
        small["publishers"] = publishers
    if small:
        said = ", ".join(f"{name}={size}" for name, size in small.items())
        raise NetworkError(
            "BAD_SIZE",
            "every size of a network must be at least 1, and the number of publishers at least 0, "
            f"but {said}",
        )


class NetworkBuilder:
    """Gives out switches, ports, link ids and addresses in one fixed order.

    Device ids count from 1 in the order of the switches, link ids from 1 in that of the calls,
    ports from 1 on each switch; hosts have addresses of 10.0.0.0/8, publishers from 10.64.0.1.
    """

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
        """Adds ``each`` hosts ``h1`` … on every switch; ``feed1`` … on the switches in turn.

        To be called once. Raises NetworkError ``BAD_SIZE`` if there are no addresses for so many.
        """
        if len(switches) * each > _MOST_SUBSCRIBERS or publishers > _MOST_PUBLISHERS:
            raise NetworkError(
                "BAD_SIZE",
                f"the network would have {len(switches) * each} hosts and {publishers} "
                f"publishers, but there are addresses for at most {_MOST_SUBSCRIBERS} and "
                f"{_MOST_PUBLISHERS}",
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
        """Links two switches, both ways."""
        port_u, port_v = self._next_port(u), self._next_port(v)
        self._link(u, port_u, v, port_v, weight, up)
        self._link(v, port_v, u, port_u, weight, up)

    def network(self, labels: LabelFormat = NARROW) -> Network:
        """Returns the network. Raises NetworkError as `Network.from_rows` does, ``TOO_MANY_PORTS``
        with advice."""
        for name, used in self._ports.items():
            if used > MAX_PORT:
                to_hosts = sum(host.switch == name for host in self._hosts)
                raise NetworkError(
                    "TOO_MANY_PORTS",
                    f"switch {name!r} needs {used} ports, {used - to_hosts} to switches and "
                    f"{to_hosts} to hosts, but ports are 1..{MAX_PORT}: reduce the number of "
                    "hosts per switch or of links",
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
