"""Connected graphs of named switches from graphs as people draw networks."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from stackcast.udfs.errors import NetworkError

if TYPE_CHECKING:
    import networkx as nx


#: Whether it is down, and its weight.
_Edge = tuple[bool, float]


@dataclass(frozen=True)
class SimpleLink:
    """A link between two switches; ``weight`` and ``up`` hold both ways."""

    u: str
    v: str
    weight: float
    up: bool


@dataclass(frozen=True)
class Dropped:
    """Counts the parts of a graph that its network has not."""

    parts: int = 0
    """Components but the largest; ``switches`` and ``links`` are theirs."""
    switches: int = 0
    links: int = 0
    parallel: int = 0
    """Edges between two nodes that have another."""
    loops: int = 0

    def __str__(self) -> str:
        """Says it in words, for a log; empty if nothing was dropped."""
        said = []
        if self.parts:
            said.append(
                f"{_count(self.parts, 'smaller part')} of the graph left out, with "
                f"{_count(self.switches, 'node')} and {_count(self.links, 'edge')}"
            )
        if self.parallel:
            said.append(f"{_count(self.parallel, 'parallel edge')} merged into the lightest")
        if self.loops:
            said.append(f"{_count(self.loops, 'edge')} from a node to itself left out")
        return "; ".join(said)


@dataclass(frozen=True)
class SimpleGraph:
    """A connected graph: ``switches`` maps nodes to names, in order; ``links`` by both ends, in
    order."""

    switches: dict[Hashable, str]
    links: tuple[SimpleLink, ...]
    dropped: Dropped


def simple_graph(graph: nx.Graph, parallel: bool = False) -> SimpleGraph:
    """Returns the largest connected component, without directions and self-loops.

    parallel: keeps parallel edges, which else are one: the lightest of those that are up. Of
    components of one size, the one with the first node counts. An edge's ``weight`` is kept, 1
    where it has none, and ``up`` if it says that it is not. A switch is called after the node's
    ``label`` or ``name``, else the node itself, in lower case with dashes, and no two alike. The
    order in which the graph was built has no effect.

    Raises NetworkError ``BAD_WEIGHT`` if a weight is no number above 0.
    """
    nodes = sorted(graph.nodes, key=_natural)
    place = {node: index for index, node in enumerate(nodes)}
    # By both ends: the edges one way, and in a directed graph those the other way.
    edges: dict[tuple[int, int], tuple[list[_Edge], list[_Edge]]] = {}
    neighbors: list[set[int]] = [set() for _ in nodes]
    loops = 0
    for u, v, data in graph.edges(data=True):
        a, b = sorted((place[u], place[v]))
        if a == b:
            loops += 1
            continue
        way = edges.setdefault((a, b), ([], []))[graph.is_directed() and place[u] == b]
        way.append((not _is_up(data.get("up")), _weight(data.get("weight"), u, v)))
        neighbors[a].add(b)
        neighbors[b].add(a)
    parts = _components(neighbors)
    kept = max(parts, key=len, default=[])  # the first of equals
    names = _switch_names([(nodes[index], graph.nodes[nodes[index]]) for index in kept])
    by_index = dict(zip(kept, names, strict=True))
    cables = {ends: _cables(*ways)[: None if parallel else 1] for ends, ways in edges.items()}
    links = tuple(
        SimpleLink(by_index[a], by_index[b], weight, not down)
        for (a, b), found in sorted(cables.items())
        if a in by_index
        for down, weight in found
    )
    total = sum(map(len, cables.values()))
    merged = 0 if parallel else graph.number_of_edges() - loops - total
    dropped = Dropped(
        max(len(parts) - 1, 0), len(nodes) - len(kept), total - len(links), merged, loops
    )
    return SimpleGraph({nodes[index]: by_index[index] for index in kept}, links, dropped)


def _cables(one: list[_Edge], other: list[_Edge]) -> list[_Edge]:
    """Returns the edges between two nodes, the best first; two that go opposite ways are one."""
    both = zip_longest(sorted(one), sorted(other), fillvalue=(True, math.inf))
    return [min(pair) for pair in both]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _weight(value: Any, u: Hashable, v: Hashable) -> float:
    if value is None:
        return 1.0
    try:
        weight = float(value)
    except (TypeError, ValueError):
        weight = math.nan
    if not weight > 0:
        raise NetworkError(
            "BAD_WEIGHT",
            f"the edge from {u!r} to {v!r} has weight {value!r}: it must be a number above 0",
        )
    return weight


def _is_up(value: Any) -> bool:
    """Reads truth, for which files have texts and numbers as well."""
    return value is None or str(value).strip().lower() not in ("false", "0", "0.0", "no", "down")


def _natural(node: Hashable) -> tuple[int, str]:
    text = str(node)
    return len(text), text


def _components(neighbors: list[set[int]]) -> list[list[int]]:
    """Returns the node indices of each component, ascending; in order of first nodes."""
    components = []
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
        components.append(sorted(component))
    return components


def _switch_names(nodes: list[tuple[Hashable, dict[str, Any]]]) -> list[str]:
    taken: set[str] = set()
    copies: dict[str, int] = {}
    names = []
    for node, data in nodes:
        text = str(data.get("label") or data.get("name") or node).lower()
        base = re.sub(r"\W+", "-", text).strip("-")
        # Hosts are called h1, feed1, …: a switch gets another name.
        if not base or base.isdecimal() or re.fullmatch(r"(h|feed)\d+", base):
            base = f"s{base}"
        name = base
        while name in taken:
            copies[base] = copies.get(base, 1) + 1
            name = f"{base}-{copies[base]}"
        taken.add(name)
        names.append(name)
    return names
