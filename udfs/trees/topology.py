"""Networks made from sizes or from a graph: switches, ports, link ids and addresses are given out
in one fixed order, so the same input gives the same network on any machine."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from udfs.errors import NetworkError
from udfs.trees.network import Host, Link, Network, Role, Switch

if TYPE_CHECKING:
    import networkx as nx

_SUBSCRIBERS = 0x0A000000
_PUBLISHERS = 0x0A400000
_LOCAL_MAC = 0x020000000000


def fabric(
    pods: int, racks: int, hosts: int, planes: int, spines: int, publishers: int = 1
) -> Network:
    """The three-tier datacenter fabric of WERNECKE 5.3.1.

    Parameters
    ----------
    pods: pods of the fabric; each has ``racks`` top-of-rack switches with ``hosts`` hosts each,
        and one fabric switch a plane that is linked to all racks of the pod.
    planes, spines: ``spines`` spine switches a plane, each linked to the plane's fabric
        switch in every pod.
    publishers: hosts ``feed1``, ``feed2``, … on the first racks in turn.

    Hosts are ``h1`` … in the order of racks; switches ``pod1-rack1`` (layer ``rack``),
    ``pod1-fabric1`` (``fabric``) and ``plane1-spine1`` (``spine``).

    Raises NetworkError ``BAD_SIZE``, and ``TOO_MANY_LINKS`` or ``TOO_MANY_PORTS`` where the
    sizes exceed what a label or a switch can name.
    """
    sizes = {"pods": pods, "racks": racks, "hosts": hosts, "planes": planes, "spines": spines}
    _check_sizes(sizes, publishers)
    build = _Builder()
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
    return build.network()


def from_graph(graph: nx.Graph, hosts_per_switch: int = 1, publishers: int = 1) -> Network:
    """A network with one switch a node of ``graph`` and ``hosts_per_switch`` hosts on each.

    Takes the largest connected component; directions and self-loops are dropped, parallel links
    merged (the lightest counts). An edge's ``weight`` is kept, 1 where it has none. A switch is
    called after the node's ``label`` or ``name``, else the node itself, in lower case with
    dashes; publishers hang on the first switches in turn.

    Raises NetworkError as :func:`fabric` does, and ``NO_SWITCH`` for an empty graph.
    """
    _check_sizes({"hosts_per_switch": hosts_per_switch}, publishers)
    nodes = sorted(graph.nodes, key=_natural)
    place = {node: index for index, node in enumerate(nodes)}
    weights: dict[tuple[int, int], float] = {}
    neighbors: list[set[int]] = [set() for _ in nodes]
    for u, v, data in graph.edges(data=True):
        a, b = sorted((place[u], place[v]))
        if a == b:
            continue
        weight = float(data.get("weight", 1.0))
        weights[a, b] = min(weight, weights.get((a, b), weight))
        neighbors[a].add(b)
        neighbors[b].add(a)
    kept = _largest_component(neighbors)
    names = _switch_names([(nodes[index], graph.nodes[nodes[index]]) for index in kept])
    by_index = dict(zip(kept, names, strict=True))
    build = _Builder()
    build.add_switches(names, None)
    build.add_hosts(names, hosts_per_switch, publishers)
    for (a, b), weight in sorted(weights.items()):
        if a in by_index:
            build.connect(by_index[a], by_index[b], weight)
    return build.network()


class _Builder:
    """Gives out device ids, ports, link ids and addresses in the order of the calls."""

    def __init__(self) -> None:
        self._switches: list[Switch] = []
        self._hosts: list[Host] = []
        self._links: list[Link] = []
        self._ports: dict[str, int] = {}

    def add_switches(self, names: list[str], layer: str | None) -> None:
        for name in names:
            self._switches.append(Switch(name, len(self._switches) + 1, layer))
            self._ports[name] = 0

    def add_hosts(self, switches: list[str], each: int, publishers: int) -> None:
        number = 0
        for switch in switches:
            for _ in range(each):
                number += 1
                self._attach(f"h{number}", switch, _SUBSCRIBERS + number, "subscriber")
        for index in range(publishers if switches else 0):
            switch = switches[index % len(switches)]
            self._attach(f"feed{index + 1}", switch, _PUBLISHERS + index + 1, "publisher")

    def connect(self, u: str, v: str, weight: float = 1.0) -> None:
        port_u, port_v = self._next_port(u), self._next_port(v)
        self._link(u, port_u, v, port_v, weight)
        self._link(v, port_v, u, port_u, weight)

    def network(self) -> Network:
        return Network.from_rows(self._switches, self._hosts, self._links)

    def _attach(self, name: str, switch: str, ipv4: int, role: Role) -> None:
        port = self._next_port(switch)
        self._hosts.append(Host(name, switch, port, _LOCAL_MAC | ipv4, ipv4, role))
        self._link(switch, port, name, None, 1.0)

    def _link(
        self, switch: str, port: int, neighbor: str, neighbor_port: int | None, weight: float
    ) -> None:
        number = len(self._links) + 1
        self._links.append(Link(number, switch, port, neighbor, neighbor_port, weight))

    def _next_port(self, switch: str) -> int:
        self._ports[switch] += 1
        return self._ports[switch]


def _check_sizes(sizes: dict[str, int], publishers: int) -> None:
    small = {name: size for name, size in sizes.items() if size < 1}
    if publishers < 0:
        small["publishers"] = publishers
    if small:
        said = ", ".join(f"{name}={size}" for name, size in small.items())
        raise NetworkError("BAD_SIZE", f"a network needs at least one of each, but {said}")


def _natural(node: Hashable) -> tuple[int, str]:
    text = str(node)
    return len(text), text


def _largest_component(neighbors: list[set[int]]) -> list[int]:
    """Node indices of the largest component, ascending; the one with the first node of equals."""
    largest: list[int] = []
    seen: set[int] = set()
    for start in range(len(neighbors)):
        if start in seen:
            continue
        seen.add(start)
        component = [start]
        for node in component:
            fresh = neighbors[node] - seen
            seen |= fresh
            component.extend(fresh)
        if len(component) > len(largest):
            largest = sorted(component)
    return largest


def _switch_names(nodes: list[tuple[Hashable, dict[str, Any]]]) -> list[str]:
    taken: set[str] = set()
    names = []
    for node, data in nodes:
        text = str(data.get("label") or data.get("name") or node).lower()
        base = re.sub(r"\W+", "-", text).strip("-")
        # Hosts are called h1, feed1, …: a switch gets another name.
        if not base or base.isdecimal() or re.fullmatch(r"(h|feed)\d+", base):
            base = f"s{base}"
        name, copies = base, 1
        while name in taken:
            copies += 1
            name = f"{base}-{copies}"
        taken.add(name)
        names.append(name)
    return names
