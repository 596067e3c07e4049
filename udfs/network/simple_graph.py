"""Connected graphs of named switches from graphs as people draw networks."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from stackcast.udfs.errors import NetworkError, printable

if TYPE_CHECKING:
    import networkx as nx


#: Whether it is down, and its weight.
_Edge = tuple[bool, float]
#: No edge: worse than any.
_NONE: _Edge = (True, math.inf)

MOST_NAMES = 8
"""Names that a line about a graph lists at most."""


@dataclass(frozen=True)
class SimpleLink:
    """A link between two switches; ``weight`` and ``up`` hold both ways."""

    u: str
    v: str
    weight: float
    up: bool


@dataclass(frozen=True)
class Dropped:
    """The parts of a graph that its network does not have, by number and by name.

    Attributes:
        parts: components of the graph except the largest; ``links`` is the number of their links.
        nodes: number of nodes of the whole graph.
        left_out: titles of the nodes of these components.
        parallel: pairs of nodes, once for each edge that was merged into another.
        loops: nodes, once for each edge from the node to itself.
        unequal: pairs of nodes with edges in opposite directions that differ in weight or state.
        one_way: pairs of nodes, once for each directed edge without one in the other direction.
        unread: lines on parts of a file that have no place in a graph.
    """

    parts: int = 0
    links: int = 0
    nodes: int = 0
    left_out: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    unequal: tuple[str, ...] = ()
    one_way: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Return a line for each kind of loss; at most `MOST_NAMES` names are listed."""
        return (*self._lines(), *self.unread)

    def _lines(self) -> Iterator[str]:
        if self.left_out:
            yield (
                f"{counted(self.parts, 'smaller part')} of the graph ignored, with "
                f"{len(self.left_out)} of {counted(self.nodes, 'node')} and "
                f"{counted(self.links, 'link')}: {shortened(self.left_out)}"
            )
        if self.parallel:
            yield (
                f"{counted(len(self.parallel), 'parallel edge')} replaced by the lightest: "
                f"{shortened(self.parallel)}"
            )
        if self.loops:
            yield (
                f"{counted(len(self.loops), 'edge')} from a node to itself ignored: "
                f"{shortened(self.loops)}"
            )
        if self.unequal:
            yield (
                f"{counted(len(self.unequal), 'pair')} of opposite edges with different "
                "weights or states replaced by the lighter edge that is up: "
                f"{shortened(self.unequal)}"
            )
        if self.one_way:
            yield (
                f"{counted(len(self.one_way), 'one-way edge')} turned into bidirectional "
                f"links: {shortened(self.one_way)}"
            )


@dataclass(frozen=True)
class SimpleGraph:
    """A connected graph: ``switches`` maps nodes to names, in order; ``links`` by both ends, in
    order."""

    switches: dict[Hashable, str]
    links: tuple[SimpleLink, ...]
    dropped: Dropped


def simple_graph(graph: nx.Graph, parallel: bool = False) -> SimpleGraph:
    """Return the largest connected component, without directions and edges from a node to itself.

    If two components have the same size, the one with the first node counts. A link has the
    ``weight`` of its edge, by default 1, and is down if the edge's ``up`` is false. Two edges of a
    directed graph in opposite directions are one link. The switch of a node is named after its
    ``label`` or ``name``, otherwise after the node itself, in lower case with dashes; names are
    unique. The order in which the graph was built has no effect.

    Args:
        graph: any graph of networkx.
        parallel: keep parallel edges. Otherwise they are one: the lightest of those that are up.

    Raises:
        NetworkError: ``BAD_WEIGHT`` if a weight is not a number above 0.
    """
    nodes = sorted(graph.nodes, key=_natural)
    place = {node: index for index, node in enumerate(nodes)}
    titles = [node_title(node, graph.nodes[node]) for node in nodes]
    # By both ends: the edges one way, and in a directed graph those the other way.
    edges: dict[tuple[int, int], tuple[list[_Edge], list[_Edge]]] = {}
    neighbors: list[set[int]] = [set() for _ in nodes]
    loops = []
    for u, v, data in graph.edges(data=True):
        a, b = sorted((place[u], place[v]))
        if a == b:
            loops.append(a)
            continue
        way = edges.setdefault((a, b), ([], []))[graph.is_directed() and place[u] == b]
        way.append((not _is_up(data.get("up")), _weight(data.get("weight"), u, v)))
        neighbors[a].add(b)
        neighbors[b].add(a)
    parts = _components(neighbors)
    largest = max(parts, key=len, default=[])  # the first of equals
    names = _switch_names([(nodes[index], graph.nodes[nodes[index]]) for index in largest])
    by_index = dict(zip(largest, names, strict=True))
    pairs = {ends: _pairs(*ways) for ends, ways in sorted(edges.items())}
    # The best first.
    cables = {ends: sorted(map(min, both)) for ends, both in pairs.items()}
    chosen = {ends: both if parallel else both[:1] for ends, both in cables.items()}
    links = tuple(
        SimpleLink(by_index[a], by_index[b], weight, not down)
        for (a, b), both in chosen.items()
        if a in by_index
        for down, weight in both
    )
    dropped = Dropped(
        parts=max(len(parts) - 1, 0),
        links=sum(map(len, chosen.values())) - len(links),
        nodes=len(nodes),
        left_out=tuple(titles[index] for index in range(len(nodes)) if index not in by_index),
        parallel=tuple(
            f"{titles[a]} - {titles[b]}"
            for (a, b), both in cables.items()
            for _ in both[len(chosen[a, b]) :]
        ),
        loops=tuple(titles[index] for index in sorted(loops)),
        unequal=tuple(
            f"{titles[a]} - {titles[b]}"
            for (a, b), both in pairs.items()
            for one, other in both
            if graph.is_directed() and one != other and _NONE not in (one, other)
        ),
        one_way=tuple(
            f"{titles[b]} - {titles[a]}" if one == _NONE else f"{titles[a]} - {titles[b]}"
            for (a, b), both in pairs.items()
            for one, other in both
            if graph.is_directed() and _NONE in (one, other)
        ),
    )
    return SimpleGraph({nodes[index]: by_index[index] for index in largest}, links, dropped)


def _pairs(one: list[_Edge], other: list[_Edge]) -> list[tuple[_Edge, _Edge]]:
    """Return the cables between two nodes by their edges each way; equal ones belong together."""
    equal = Counter(one) & Counter(other)
    rest = [sorted((Counter(edges) - equal).elements()) for edges in (one, other)]
    return [(edge, edge) for edge in equal.elements()] + list(
        zip_longest(rest[0], rest[1], fillvalue=_NONE)
    )


def node_title(node: Hashable, data: Mapping[str, Any]) -> str:
    """Return the title of a node for people: its ``label`` or ``name``, otherwise the node."""
    return printable(" ".join(str(data.get("label") or data.get("name") or node).split()))


def shortened(names: Sequence[str]) -> str:
    """Return names for a line: the first `MOST_NAMES`, each once, and how many more there are."""
    names = list(dict.fromkeys(names))
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
            f"the edge from {u!r} to {v!r} has weight {value!r}, but a weight must be a number "
            "above 0",
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
