"""The way of a frame through the network, in words: labels, links, and the path to each host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from udfs.network.labels import HOP, TREE, describe
from udfs.network.network import Network
from udfs.network.virtual_tree import VirtualTree, stored
from udfs.stacks.forwarding import ForwardingModel, network_tables


@dataclass(frozen=True)
class Way:
    """labels: one line each. paths: by host, the nodes from the publisher to it. links: every
    transmission ``(from, to, labels on the link)``. copies: how many each host gets."""

    labels: tuple[str, ...]
    paths: dict[str, tuple[str, ...]]
    links: tuple[tuple[str, str, int], ...]
    copies: dict[str, int]


def way_of(
    network: Network, trees: Iterable[VirtualTree], publisher: str, labels: Sequence[int]
) -> Way:
    """Where a stack leads, by the forwarding model (`udfs.stacks.forwarding`).

    The switches hold ``trees`` but for the retired ones. Errors: those of `network_tables`, and
    NetworkError UNKNOWN_HOST.
    """
    held = {tree.id: tree for tree in stored(trees)}
    model = ForwardingModel(network, network_tables(network, held.values()))
    went = model.deliver(publisher, tuple(labels))
    before: dict[str, str] = {}
    for u, v, _ in went.links:
        before.setdefault(v, u)
    return Way(
        tuple(_words(label, network, held) for label in labels),
        {host: _path(host, publisher, before) for host in sorted(went.hosts)},
        tuple(went.links),
        dict(sorted(went.hosts.items())),
    )


def _path(host: str, publisher: str, before: dict[str, str]) -> tuple[str, ...]:
    nodes = [host]
    # A stack that leads in a circle ends here as well: each node is passed once.
    while nodes[-1] != publisher and before[nodes[-1]] not in nodes:
        nodes.append(before[nodes[-1]])
    return tuple(reversed(nodes))


def _words(label: int, network: Network, trees: dict[int, VirtualTree]) -> str:
    kind, number = network.labels.split(label)
    name = describe(label, labels=network.labels)
    if kind == TREE:
        tree = trees.get(number)
        what = "unknown" if tree is None else f"{tree.strategy}, over {len(tree.edges)} links"
        return f"{name}: the stored tree ({what})"
    link = network.link_by_id.get(number)
    if link is None:
        return f"{name}: no link of the network"
    copy = "a copy" if kind == HOP else "no copy"
    return f"{name}: {copy} from {link.switch} to {link.neighbor} by port {link.port}"
