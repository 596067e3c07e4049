"""The reader of GraphML files, which reads every kind of node and edge of the format.

It reads nodes and edges of nested graphs, parallel edges, edges from a node to itself, graphs in
which only some edges have a direction, default values of keys, and the labels of nodes that yEd
writes. Parts that have no place in a graph are listed: hyperedges of more than two nodes, ports,
further graphs of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.simple_graph import counted, node_title, shortened

if TYPE_CHECKING:
    import networkx as nx

_TRUTH = {"true": True, "1": True, "false": False, "0": False}
#: Attributes that have an effect: on names, weights and states of links, and on the map.
_USED = {"node": {"label", "name", "pos", "Longitude", "Latitude"}, "edge": {"weight", "up", "id"}}
#: Elements that have no data of their own.
_PLAIN = frozenset({"desc", "key", "data", "graph", "node", "edge", "hyperedge", "endpoint"})


@dataclass(frozen=True)
class GraphmlFile:
    """The graph of a GraphML file.

    Attributes:
        graph: a multigraph; directed if an edge has a direction. An edge without one in a directed
            graph leads both ways.
        unread: a line for each kind of part that is left out or has no effect.
    """

    graph: nx.MultiGraph | nx.MultiDiGraph
    unread: tuple[str, ...]


def read_graphml(content: bytes, source: str) -> GraphmlFile:
    """Read the first graph of a GraphML file.

    Args:
        content: bytes of the file.
        source: name of the file, for errors.

    Raises:
        NetworkError: ``BAD_GRAPHML`` names the file, and the part of it that cannot be read.
    """
    try:
        root = ET.fromstring(content)
    except (ET.ParseError, ValueError, LookupError) as error:
        raise _bad(source, f"it is not XML: {error}") from None
    space, _, name = root.tag.rpartition("}")
    if name != "graphml":
        raise _bad(source, f"its first element is <{name}>, not <graphml>")
    file = _Reader(source, f"{space}}}" if space else "")
    file.read_keys(root)
    graphs = root.findall(f"{file.space}graph")
    if not graphs:
        raise _bad(source, "it has no <graph>")
    try:
        file.read_graph(graphs[0])
    except RecursionError:
        raise _bad(source, "its nodes contain each other too deeply") from None
    file.leave_out_graphs(graphs[1:])
    return file.finish()


def _bad(source: str, fault: str) -> NetworkError:
    return NetworkError("BAD_GRAPHML", f"{source} is not GraphML: {fault}", source=source)


@dataclass(frozen=True)
class _Key:
    """A ``<key>``: an attribute, its type, the kind of part that has it, and its default value."""

    name: str
    kind: str
    part: str
    default: Any = None


@dataclass(frozen=True)
class _Edge:
    source: str
    target: str
    directed: bool
    data: dict[str, Any]


@dataclass
class _Reader:
    """Collects the parts of one file. ``space`` is what tags of GraphML begin with."""

    source: str
    space: str
    keys: dict[str, _Key] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: list[_Edge] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    hyperedges: list[list[str]] = field(default_factory=list)
    other_graphs: list[str] = field(default_factory=list)
    other_elements: Counter[str] = field(default_factory=Counter)

    def read_keys(self, root: ET.Element) -> None:
        for element in root.findall(f"{self.space}key"):
            identifier = element.get("id", "")
            yfiles = element.get("yfiles.type")
            name = yfiles or element.get("attr.name") or identifier
            kind = "yfiles" if yfiles else element.get("attr.type", "string")
            key = _Key(name, kind, element.get("for", "all"))
            text = element.findtext(f"{self.space}default")
            if text:
                value = self._value(key, text, f"the default of key {identifier!r}")
                key = _Key(name, kind, key.part, value)
            self.keys[identifier] = key

    def read_graph(self, graph: ET.Element) -> None:
        """Read a graph, and the graphs that its nodes and edges contain."""
        directed = graph.get("edgedefault") == "directed"
        for node in graph.findall(f"{self.space}node"):
            self._read_node(node)
        for edge in graph.findall(f"{self.space}edge"):
            self._read_edge(edge, directed)
        for hyperedge in graph.findall(f"{self.space}hyperedge"):
            self._read_hyperedge(hyperedge)
        self._count_other_elements(graph)

    def _read_node(self, node: ET.Element) -> None:
        identifier = node.get("id")
        if identifier is None:
            raise _bad(self.source, "a node has no id")
        if identifier in self.nodes:
            raise _bad(self.source, f"two nodes have the id {identifier!r}")
        self.nodes[identifier] = self._data(node, "node", f"node {identifier!r}")
        self._count_other_elements(node)
        for graph in node.findall(f"{self.space}graph"):
            self.containers.append(identifier)
            self.read_graph(graph)

    def _read_edge(self, edge: ET.Element, directed: bool) -> None:
        source, target = edge.get("source"), edge.get("target")
        if source is None or target is None:
            raise _bad(self.source, "an edge has no source or no target")
        direction = edge.get("directed")
        if direction is not None:
            directed = direction.lower() == "true"
        data = self._data(edge, "edge", f"the edge from {source!r} to {target!r}")
        if edge.get("id"):
            data["id"] = edge.get("id")
        self.edges.append(_Edge(source, target, directed, data))
        ports = [name for name in ("sourceport", "targetport") if edge.get(name)]
        self.other_elements["edge port"] += len(ports)
        self._count_other_elements(edge)
        for graph in edge.findall(f"{self.space}graph"):
            self.read_graph(graph)

    def _read_hyperedge(self, hyperedge: ET.Element) -> None:
        ends = [end.get("node", "") for end in hyperedge.findall(f"{self.space}endpoint")]
        if len(ends) == 2 and all(ends):
            data = self._data(hyperedge, "edge", f"the hyperedge from {ends[0]!r} to {ends[1]!r}")
            self.edges.append(_Edge(ends[0], ends[1], False, data))
        else:
            self.hyperedges.append(ends)
        self._count_other_elements(hyperedge)

    def leave_out_graphs(self, graphs: list[ET.Element]) -> None:
        for place, graph in enumerate(graphs, 2):
            nodes = sum(1 for _ in graph.iter(f"{self.space}node"))
            name = graph.get("id") or f"number {place}"
            self.other_graphs.append(f"{name} with {counted(nodes, 'node')}")

    def _count_other_elements(self, element: ET.Element) -> None:
        for child in element:
            name = child.tag.removeprefix(self.space) if isinstance(child.tag, str) else "desc"
            if name not in _PLAIN and "}" not in name:
                self.other_elements[name] += 1

    def _data(self, element: ET.Element, part: str, where: str) -> dict[str, Any]:
        """Return attributes of an element, with the defaults of those that it does not have."""
        values = {
            key.name: key.default
            for key in self.keys.values()
            if key.default is not None and key.part in (part, "all")
        }
        for data in element.findall(f"{self.space}data"):
            key = self.keys.get(data.get("key", ""))
            if key is None:
                raise _bad(
                    self.source,
                    f"{where} has data for key {data.get('key')!r}, which is not declared",
                )
            if len(data):
                if label := _yed_label(data):
                    values["label"] = label
            elif data.text:
                values[key.name] = self._value(key, data.text, where)
        return values

    def _value(self, key: _Key, text: str, where: str) -> Any:
        parse = _PARSERS.get(key.kind, str)
        try:
            return parse(text)
        except (ValueError, KeyError):
            raise _bad(
                self.source,
                f"{where} has the value {text!r} for {key.name!r}, but its key has type {key.kind}",
            ) from None

    def finish(self) -> GraphmlFile:
        # Workers of Spark read no graphs and need not load it.
        import networkx as nx  # noqa: PLC0415

        directed = any(edge.directed for edge in self.edges)
        graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
        ends = {end for edge in self.edges for end in (edge.source, edge.target)}
        empty = [name for name in dict.fromkeys(self.containers) if name not in ends]
        graph.add_nodes_from((n, data) for n, data in self.nodes.items() if n not in set(empty))
        graph.add_nodes_from(name for name in ends if name not in self.nodes)
        for edge in self.edges:
            graph.add_edge(edge.source, edge.target, **edge.data)
            if directed and not edge.directed and edge.source != edge.target:
                graph.add_edge(edge.target, edge.source, **edge.data)
        return GraphmlFile(graph, tuple(self._unread(empty, ends)))

    def _unread(self, empty: list[str], ends: set[str]) -> Iterator[str]:
        """Yield a line for each kind of part that is left out or has no effect."""
        titles = {name: node_title(name, data) for name, data in self.nodes.items()}
        if self.other_graphs:
            yield (
                f"{counted(len(self.other_graphs), 'further graph')} in the file ignored: "
                f"{shortened(self.other_graphs)}"
            )
        if empty:
            yield (
                f"{counted(len(empty), 'node')} ignored, because they only contain other "
                f"nodes and have no edges: {shortened([titles[name] for name in empty])}"
            )
        if self.hyperedges:
            hyperedges = [
                "-".join(titles.get(end, end) for end in nodes) for nodes in self.hyperedges
            ]
            yield (
                f"{counted(len(self.hyperedges), 'hyperedge')} ignored, because a link "
                f"connects two nodes: {shortened(hyperedges)}"
            )
        if undeclared := sorted(ends - self.nodes.keys()):
            yield (
                f"{counted(len(undeclared), 'node')} mentioned only by edges: "
                f"{shortened(undeclared)}"
            )
        elements = [counted(number, name) for name, number in self.other_elements.items() if number]
        if elements:
            yield f"ignored elements: {shortened(elements)}"
        unused = [
            f"of {part}s {shortened(names)}"
            for part, names in (
                ("edge", _unused("edge", (edge.data for edge in self.edges))),
                ("node", _unused("node", self.nodes.values())),
            )
            if names
        ]
        if unused:
            yield f"ignored attributes: {'; '.join(unused)}"


def _unused(part: str, all_data: Any) -> list[str]:
    return sorted({name for data in all_data for name in data} - _USED[part])


def _boolean(text: str) -> bool:
    return _TRUTH[text.strip().lower()]


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "int": int,
    "long": int,
    "integer": int,
    "float": float,
    "double": float,
}


def _yed_label(data: ET.Element) -> str:
    """Return the first label of a node or edge in the graphics of yEd; empty if there is none."""
    for element in data.iter():
        if isinstance(element.tag, str) and element.tag.endswith(("}NodeLabel", "}EdgeLabel")):
            return element.text or ""
    return ""
