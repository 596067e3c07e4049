"""Simple, connected graphs from graphs as people draw networks."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from udfs.errors import NetworkError

if TYPE_CHECKING:
    import networkx as nx


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
    """A simple graph: ``switches`` maps nodes to names, in order; ``links`` by both ends, in
    order."""

    switches: dict[Hashable, str]
    links: tuple[SimpleLink, ...]
    dropped: Dropped


def simple_graph(graph: nx.Graph) -> SimpleGraph:
    """Returns the largest connected component, without directions, self-loops and parallel edges.

    Of parallel edges the lightest of those that are up counts; of components of one size, the one
    with the first node. An edge's ``weight`` is kept, 1 where it has none, and ``up`` if it says
    that it is not. A switch is called after the node's ``label`` or ``name``, else the node
    itself, in lower case with dashes, and no two alike. The order in which the graph was built has
    no effect.

    Raises NetworkError ``BAD_WEIGHT`` if a weight is no number above 0.
    """
    nodes = sorted(graph.nodes, key=_natural)
    place = {node: index for index, node in enumerate(nodes)}
    edges: dict[tuple[int, int], tuple[bool, float]] = {}
    neighbors: list[set[int]] = [set() for _ in nodes]
    loops = parallel = 0
    for u, v, data in graph.edges(data=True):
        a, b = sorted((place[u], place[v]))
        if a == b:
            loops += 1
            continue
        found = not _is_up(data.get("up")), _weight(data.get("weight"), u, v)
        parallel += (a, b) in edges
        edges[a, b] = min(found, edges.get((a, b), found))
        neighbors[a].add(b)
        neighbors[b].add(a)
    parts = _components(neighbors)
    kept = max(parts, key=len, default=[])  # the first of equals
    names = _switch_names([(nodes[index], graph.nodes[nodes[index]]) for index in kept])
    by_index = dict(zip(kept, names, strict=True))
    links = tuple(
        SimpleLink(by_index[a], by_index[b], weight, not down)
        for (a, b), (down, weight) in sorted(edges.items())
        if a in by_index
    )
    dropped = Dropped(
        max(len(parts) - 1, 0), len(nodes) - len(kept), len(edges) - len(links), parallel, loops
    )
    return SimpleGraph({nodes[index]: by_index[index] for index in kept}, links, dropped)


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
