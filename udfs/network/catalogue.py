"""Graphs of networks that others have published: those of topohub, by name, and GraphML."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.graphml import read_graphml
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.simple_graph import simple_graph
from stackcast.udfs.network.topology import GraphNetwork, read_graph

if TYPE_CHECKING:
    import networkx as nx

#: Groups of real networks, where a name without a group is looked for.
_REAL = ("topozoo", "sndlib")


def published_network(
    name: str,
    content: bytes | None,
    hosts_per_switch: int,
    publishers: int,
    labels: LabelFormat,
    parallel: bool = False,
) -> GraphNetwork:
    """Returns the network of a GraphML file, or of topohub where there is no file's ``content``.

    name: of the file, or of the network in topohub. parallel: as of `read_graph`. Raises
    NetworkError ``UNKNOWN_NETWORK``, ``BAD_GRAPHML`` and those of `read_graph`.
    """
    if content is None:
        return read_graph(topohub_graph(name), hosts_per_switch, publishers, labels, parallel)
    file = read_graphml(content, name)
    read = read_graph(file.graph, hosts_per_switch, publishers, labels, parallel)
    return replace(read, dropped=replace(read.dropped, unread=file.unread))


def geography(graph: nx.Graph) -> dict[str, tuple[float, float]]:
    """Returns longitude and latitude, degrees, of the switches that `read_graph` makes of a graph;
    those of nodes that do not say are left out.

    Of a node: ``pos``, as topohub has it, or ``Longitude`` and ``Latitude``, as the Topology Zoo.
    """
    found = {}
    for node, switch in simple_graph(graph).switches.items():
        said = graph.nodes[node]
        pair = said.get("pos") or (said.get("Longitude"), said.get("Latitude"))
        with suppress(TypeError, ValueError):
            longitude, latitude = map(float, pair)
            found[switch] = longitude, latitude
    return found


def topohub_graph(name: str) -> nx.Graph:
    """Returns the graph of a network of the package topohub, called ``group/name``.

    For instance ``topozoo/Abilene``.

    Raises NetworkError ``UNKNOWN_NETWORK``, with names that are near.
    """
    # Workers of Spark read no graphs: they need load neither.
    import networkx as nx  # noqa: PLC0415
    import topohub  # noqa: PLC0415

    try:
        return nx.node_link_graph(topohub.get(name), edges="edges")
    except (KeyError, OSError, ValueError):
        near = get_close_matches(name, _names(name), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise NetworkError(
            "UNKNOWN_NETWORK",
            f"topohub has no network {name!r}{hint}",
            name=name,
            suggestions=near,
        ) from None


def _names(name: str) -> list[str]:
    """Lists the names of the group that ``name`` asks for, or of the groups of real networks."""
    group = name.split("/", 1)[0]
    data = files("topohub") / "data"
    groups = {entry.name for entry in data.iterdir() if entry.is_dir()}
    found = []
    for each in (group,) if group in groups else _REAL:
        entries = [entry.name for entry in (data / each).iterdir()]
        found += [f"{each}/{entry.removesuffix('.json')}" for entry in sorted(entries)]
    return found
