"""Stored trees from a publisher to some hosts and to nobody else (WERNECKE 4.2.3)."""

from __future__ import annotations

from collections.abc import Iterable

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.broadcast import RootedTree, broadcast_trees
from stackcast.udfs.trees.strategies.strategy import Edges
from stackcast.udfs.trees.switch_graph import SwitchGraph


def first_trees(network: Network) -> list[VirtualTree]:
    """Returns the trees to begin with in a network of any encoding, while nothing is on record.

    Stacks that prune begin with a broadcast tree. In ``tree`` and ``hybrid`` a tree leads to whom
    it leads, so there is for each publisher one to all subscribers, one to those of each switch and
    one to each: together they lead to any set.
    """
    if network.labels.trees not in ("whole", "alone"):
        return broadcast_trees(network)
    by_switch: dict[str, list[str]] = {}
    for host in network.subscribers():
        by_switch.setdefault(network.hosts[host].switch, []).append(host)
    sets = [network.subscribers(), *by_switch.values()]
    edges = {
        edges
        for publisher in network.publishers()
        for edges in publisher_edges(network, publisher, sets)
    } | set(host_trees(network, network.publishers()))
    return [
        VirtualTree(number, each, "publisher")
        for number, each in enumerate(sorted(edges, key=lambda e: (-len(e), sorted(e))), 1)
    ]


def host_trees(network: Network, publishers: Iterable[str]) -> list[Edges]:
    """Returns the trees from these publishers to each other host alone, all different: together
    they lead to any set of hosts."""
    edges: dict[Edges, None] = {}
    for publisher in publishers:
        sets = [[host] for host in network.hosts if host != publisher]
        edges |= dict.fromkeys(publisher_edges(network, publisher, sets))
    return list(edges)


def publisher_edges(
    network: Network, publisher: str, receivers: Iterable[Iterable[str]]
) -> list[Edges]:
    """Returns the tree to each of these sets by shortest paths from the publisher's switch.

    The publisher's own link is not among the edges. Hosts that no usable link leads to are left
    out.
    """
    graph = SwitchGraph(network)
    root = network.host(publisher).switch
    _, parents = graph.shortest_paths(graph.index[root])
    above = {graph.names[v]: graph.names[u] for v, u in enumerate(parents) if u >= 0}
    for host in network.hosts.values():
        if network.link(host.switch, host.name).up and (
            host.switch == root or host.switch in above
        ):
            above[host.name] = host.switch
    whole = RootedTree(root, above)
    found = (whole.joining([root, *hosts]) for hosts in receivers)
    return [edges for edges in found if edges]
