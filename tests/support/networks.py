"""Random networks, stored trees and publications, and the bytes on their links."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import networkx as nx

from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import read_graph
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import COUNT_BYTES, ETHERNET_BYTES, ForwardingResult

STATES = ("active", "active", "active", "installing", "retiring", "retired")


def from_graph(
    graph: nx.Graph, hosts_per_switch: int = 1, publishers: int = 1, labels: LabelFormat = NARROW
) -> Network:
    """Return the network of a graph without the names of its nodes and the parts left out."""
    return read_graph(graph, hosts_per_switch, publishers, labels).network


def random_network(
    rng: random.Random, switches: int, failing: float = 0.05, hosts: int = 2
) -> Network:
    """A connected network of 1..``switches`` switches with cycles and weights, 1..``hosts`` hosts
    a switch and a publisher or two, some of whose directed links have failed."""
    graph = nx.path_graph(rng.randint(1, switches))
    nodes = list(graph)
    graph.add_edges_from(rng.choices(nodes, k=2) for _ in range(rng.randint(0, 2 * len(nodes))))
    for _, _, data in graph.edges(data=True):
        data["weight"] = rng.choice([0.5, 1.0, 1.0, 3.0])
    whole = from_graph(graph, hosts_per_switch=rng.randint(1, hosts), publishers=rng.randint(1, 2))
    links = [dataclasses.replace(link, up=rng.random() >= failing) for link in whole.links]
    return Network.from_rows(whole.switches.values(), whole.hosts.values(), links)


def random_trees(
    rng: random.Random, network: Network, most: int, states: tuple[str, ...] = STATES
) -> list[VirtualTree]:
    """Up to ``most`` trees that overlap, close cycles between them and lie over failed links."""
    graph = network.graph()
    trees = []
    for number in range(1, rng.randint(1, most) + 1):
        inside, edges = {rng.choice(sorted(network.switches))}, set()
        for _ in range(rng.randint(1, len(graph))):
            border = sorted(
                (u, v) for u in inside if u in network.switches for v in graph[u] if v not in inside
            )
            if border:
                u, v = rng.choice(border)
                inside.add(v)
                edges.add((min(u, v), max(u, v)))
        if edges:
            trees.append(VirtualTree(number, frozenset(edges), "random", rng.choice(states)))
    return trees


def mended(network: Network) -> Network:
    """The network with all its links up again."""
    links = [dataclasses.replace(link, up=True) for link in network.links]
    return Network.from_rows(
        network.switches.values(), network.hosts.values(), links, network.labels
    )


def reachable(network: Network, publisher: str) -> list[str]:
    """Other hosts that usable links lead to."""
    up = nx.Graph((u, v) for u, v, data in network.graph().edges(data=True) if data["up"])
    within = nx.node_connected_component(up, publisher) if publisher in up else set()
    return sorted((within & set(network.hosts)) - {publisher})


def random_publication(rng: random.Random, network: Network) -> tuple[str, frozenset[str]]:
    """A publisher and some, maybe none, of the hosts within its reach."""
    publisher = rng.choice(network.publishers())
    within = reachable(network, publisher)
    return publisher, frozenset(rng.sample(within, rng.randint(0, len(within))))


def relabelled(network: Network, form: LabelFormat) -> Network:
    """The same network, whose stacks have labels of this format.

    Raises NetworkError where these cannot name a switch or a link of it.
    """
    return Network.from_rows(network.switches.values(), network.hosts.values(), network.links, form)


def bytes_on_links(
    network: Network, sent: ForwardingResult, datagram_bytes: int
) -> Counter[tuple[str, str]]:
    """Counts bytes by directed link ``(u, v)``.

    ``datagram_bytes`` is the length of the IPv4 datagram. A frame is Ethernet (14), label count
    (2) and labels (2 each, wide ones 4), datagram; towards a host Ethernet and datagram.
    """
    total: Counter[tuple[str, str]] = Counter()
    for u, v, labels in sent.links:
        stack = 0 if v in network.hosts else COUNT_BYTES + network.labels.size * labels
        total[u, v] += ETHERNET_BYTES + stack + datagram_bytes
    return total
