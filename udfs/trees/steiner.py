"""Steiner trees by shortest paths (Takahashi and Matsuyama 1980): the nearest terminal is joined to
the tree by a shortest path, again and again. At most twice the cost of the best tree, but for the
rounding of weights (`stackcast.udfs.trees.switch_graph`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.switch_graph import SwitchGraph, edge


def steiner_tree(
    network: Network,
    terminals: Iterable[str],
    free: Collection[tuple[str, str]] = frozenset(),
    graph: SwitchGraph | None = None,
) -> frozenset[tuple[str, str]]:
    """Returns the undirected edges (sorted pairs) of a light tree that joins ``terminals``.

    Terminals are hosts or switches; a host always brings its link and is never passed through.
    Edges of ``free`` (sorted pairs) cost nothing. Failed links are not used. Ties are settled
    by device id. ``graph``: of this network, made if not given.

    Raises NetworkError ``UNREACHABLE``, ``UNKNOWN_HOST``.
    """
    graph = graph or SwitchGraph(network)
    joined: set[tuple[str, str]] = set()
    switches: set[int] = set()
    for name in terminals:
        if name in graph.index:
            switches.add(graph.index[name])
            continue
        host = network.host(name)
        check_attached(network, [name])
        joined.add(edge(host.switch, name))
        switches.add(graph.index[host.switch])
    if switches:
        members, parent = graph.grow(min(switches), switches, free)
        joined.update(edge(graph.names[parent[v]], graph.names[v]) for v in members[1:])
    return frozenset(joined)


def check_receivers(network: Network, publisher: str, receivers: frozenset[str]) -> None:
    """Raises NetworkError ``UNKNOWN_HOST``, ``PUBLISHER_AS_RECEIVER`` and, if a host's only link
    has failed, ``UNREACHABLE``."""
    for name in sorted(receivers):
        network.host(name)
    if publisher in receivers:
        raise NetworkError(
            "PUBLISHER_AS_RECEIVER",
            f"publisher {publisher!r} cannot receive its own events",
            host=publisher,
        )
    if receivers:
        check_attached(network, [*receivers, publisher])


def check_attached(network: Network, hosts: Iterable[str]) -> None:
    """Raises NetworkError ``UNREACHABLE`` if a host's only link has failed."""
    cut = sorted(name for name in hosts if not network.link(network.hosts[name].switch, name).up)
    if cut:
        raise NetworkError(
            "UNREACHABLE", f"the only link to {', '.join(cut)} has failed", receivers=cut
        )
