"""Networks made from sizes or from a graph: switches, ports, link ids and addresses are given out
in one fixed order, so the same input gives the same network on any machine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from udfs.errors import NetworkError
from udfs.network.builder import NetworkBuilder
from udfs.network.jellyfish import jellyfish_links
from udfs.network.labels import NARROW, LabelFormat
from udfs.network.network import Network
from udfs.network.simple_graph import Dropped, simple_graph

if TYPE_CHECKING:
    import networkx as nx


def fabric(
    pods: int,
    racks: int,
    hosts: int,
    planes: int,
    spines: int,
    publishers: int = 1,
    labels: LabelFormat = NARROW,
) -> Network:
    """The three-tier datacenter fabric of WERNECKE 5.3.1.

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
    """A Jellyfish: ``switches`` switches ``s1`` …, each linked to ``degree`` others at random.

    It is connected; where ``switches`` × ``degree`` is odd, one switch has a link less. Hosts are
    as in :func:`from_graph`. The same arguments give the same network on any machine
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
    """Switches ``s1`` … in a row, each linked to the next: with three, the testbed of KUNDEL IV.

    Hosts are as in :func:`from_graph`; the first publisher hangs on ``s1``.

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
    """The network of a graph. ``switches``: node → name of its switch; what is not in it was
    ``dropped``."""

    network: Network
    switches: dict[Hashable, str]
    dropped: Dropped


def read_graph(
    graph: nx.Graph, hosts_per_switch: int = 1, publishers: int = 1, labels: LabelFormat = NARROW
) -> GraphNetwork:
    """A network with one switch a node of ``graph``, ``hosts_per_switch`` hosts on each.

    Takes what :func:`simple_graph` makes of it: the largest connected component, with weights,
    failed links (``up``) and names. Publishers hang on the first switches in turn.

    Raises NetworkError as :func:`fabric` does, ``BAD_WEIGHT``, and ``NO_SWITCH`` for an empty
    graph.
    """
    _check_sizes({"hosts_per_switch": hosts_per_switch}, publishers)
    simple = simple_graph(graph)
    names = list(simple.switches.values())
    build = NetworkBuilder()
    build.add_switches(names)
    build.add_hosts(names, hosts_per_switch, publishers)
    for link in simple.links:
        build.connect(link.u, link.v, link.weight, link.up)
    return GraphNetwork(build.network(labels), simple.switches, simple.dropped)


def from_graph(
    graph: nx.Graph, hosts_per_switch: int = 1, publishers: int = 1, labels: LabelFormat = NARROW
) -> Network:
    """The network of :func:`read_graph`, where nobody asks what was dropped."""
    return read_graph(graph, hosts_per_switch, publishers, labels).network


def _check_sizes(sizes: dict[str, int], publishers: int) -> None:
    small = {name: size for name, size in sizes.items() if size < 1}
    if publishers < 0:
        small["publishers"] = publishers
    if small:
        said = ", ".join(f"{name}={size}" for name, size in small.items())
        raise NetworkError("BAD_SIZE", f"a network needs at least one of each, but {said}")
