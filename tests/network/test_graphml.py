"""GraphML files are read as networkx reads them; parts that it refuses are read or named."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import topohub
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from stackcast.cli.main import app
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.graphml import read_graphml
from stackcast.udfs.network.topology import read_graph

pytestmark = pytest.mark.unit

HEAD = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/y">
<key id="n" for="node" attr.name="label" attr.type="string"/>
<key id="w" for="edge" attr.name="weight" attr.type="double"/>
<key id="s" for="edge" attr.name="LinkSpeed" attr.type="string"/>
<key id="g" for="node" yfiles.type="nodegraphics"/>
"""

MESH = """<graph id="G" edgedefault="undirected">
<node id="a"/><node id="b"/><node id="c"/><edge source="a" target="b"/>
<edge source="b" target="c"/></graph>"""


def parse(graphs: str, head: str = HEAD) -> tuple[nx.Graph, tuple[str, ...]]:
    file = read_graphml(f"{head}{graphs}</graphml>".encode(), "some.graphml")
    return file.graph, file.unread


def contents(graph: nx.Graph) -> tuple[Any, Any]:
    """Return nodes and edges with their data; edges of an undirected graph in one order of ends."""
    edges = Counter(
        (
            (u, v) if graph.is_directed() else tuple(sorted((u, v))),
            tuple(sorted((name, repr(value)) for name, value in data.items() if name != "id")),
        )
        for u, v, data in graph.edges(data=True)
    )
    return dict(graph.nodes(data=True)), edges


def written(graph: nx.Graph) -> bytes:
    stream = io.BytesIO()
    nx.write_graphml(graph, stream)
    return stream.getvalue()


NODES = st.integers(0, 6)
DATA = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.floats(0.25, 9) | st.integers(1, 9),
        "up": st.booleans(),
        "note": st.text("aä<&\"' ", min_size=1, max_size=5).filter(str.strip),
    },
)


@examples(60)
@given(
    st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]),
    st.lists(st.tuples(NODES, NODES, DATA), min_size=1, max_size=12),
    st.dictionaries(NODES, st.text("aÄ -", min_size=1, max_size=6).filter(str.strip), max_size=5),
)
def test_a_file_of_networkx_is_read_as_networkx_reads_it(kind, edges, labels) -> None:
    graph = kind()
    graph.add_edges_from(edges)
    graph.add_nodes_from((node, {"label": label}) for node, label in labels.items())
    content = written(graph)
    expected = nx.read_graphml(io.BytesIO(content))
    file = read_graphml(content, "some.graphml")
    assert contents(file.graph) == contents(expected)
    assert file.graph.is_directed() == expected.is_directed()
    for parallel in (False, True):
        ours, theirs = (read_graph(g, parallel=parallel) for g in (file.graph, expected))
        assert (ours.network, ours.switches) == (theirs.network, theirs.switches)


@pytest.mark.parametrize("name", ["topozoo/Abilene", "topozoo/Arnes", "sndlib/polska"])
def test_a_published_network_as_a_file_is_the_same_network(name: str) -> None:
    graph = nx.node_link_graph(topohub.get(name), edges="edges")
    for data in graph.nodes.values():
        data["Longitude"], data["Latitude"] = data.pop("pos")
    for data in graph.edges.values():
        # GraphML has no type for these.
        for key in [key for key, value in data.items() if isinstance(value, dict)]:
            del data[key]
    graph.graph.clear()
    file = read_graphml(written(graph), name)
    assert read_graph(file.graph).network == read_graph(graph).network


def test_nodes_and_edges_inside_of_other_nodes_are_read() -> None:
    graph, unread = parse(
        """<graph edgedefault="undirected"><node id="a"/>
        <node id="east"><data key="n">East</data><graph edgedefault="undirected">
          <node id="b"/>
          <node id="inner"><graph edgedefault="undirected"><node id="c"/></graph></node>
          <edge source="b" target="c"/>
        </graph></node>
        <edge source="a" target="b"/></graph>"""
    )
    assert set(graph.nodes) == {"a", "b", "c"}
    assert {frozenset(edge) for edge in graph.edges()} == {frozenset("ab"), frozenset("bc")}
    assert unread == (
        "2 nodes ignored, because they only contain other nodes and have no edges: East, inner",
    )


def test_a_node_that_contains_others_and_has_edges_is_a_switch() -> None:
    graph, unread = parse(
        """<graph edgedefault="undirected"><node id="a"/>
        <node id="b"><graph edgedefault="undirected"><node id="c"/></graph></node>
        <edge source="a" target="b"/><edge source="b" target="c"/></graph>"""
    )
    assert (set(graph.nodes), unread) == ({"a", "b", "c"}, ())


def test_edges_with_and_without_direction_may_be_mixed() -> None:
    graph, unread = parse(
        """<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>
        <edge source="a" target="b"><data key="w">2</data></edge>
        <edge source="b" target="c" directed="true"/>
        <edge source="a" target="b" directed="true"/></graph>"""
    )
    assert unread == ()
    read = read_graph(graph, parallel=True)
    assert read.dropped.one_way == ("a - b", "b - c")
    cables = [(x.switch, x.weight) for x in read.network.links if x.neighbor == "b"]
    assert sorted(cables) == [("a", 1), ("a", 2), ("c", 1)]


def test_hyperedges_of_two_ends_are_edges_and_others_are_named() -> None:
    graph, unread = parse(
        """<graph edgedefault="undirected">
        <node id="a"><data key="n">Köln</data></node><node id="b"/><node id="c"/>
        <hyperedge><endpoint node="a"/><endpoint node="b"/><data key="w">3</data></hyperedge>
        <hyperedge><endpoint node="a"/><endpoint node="b"/><endpoint node="c"/></hyperedge>
        </graph>"""
    )
    assert [(u, v, data) for u, v, data in graph.edges(data=True)] == [("a", "b", {"weight": 3.0})]
    assert unread == ("1 hyperedge ignored, because a link connects two nodes: Köln-b-c",)


def test_default_values_of_keys_count_where_an_edge_has_none() -> None:
    head = HEAD.replace('attr.type="double"/>', 'attr.type="double"><default>7</default></key>')
    graph, _ = parse(
        """<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>
        <edge source="a" target="b"/><edge source="b" target="c"><data key="w">2</data></edge>
        </graph>""",
        head,
    )
    assert sorted(data["weight"] for _, _, data in graph.edges(data=True)) == [2.0, 7.0]


def test_labels_of_yed_are_names() -> None:
    graph, _ = parse(
        """<graph edgedefault="directed">
        <node id="n0"><data key="g"><y:ShapeNode><y:Geometry x="1"/>
          <y:NodeLabel>Genève</y:NodeLabel></y:ShapeNode></data></node>
        <node id="n1"/><edge source="n0" target="n1"/></graph>"""
    )
    assert list(read_graph(graph).network.switches) == ["genève", "n1"]


def test_what_has_no_place_in_a_network_is_named() -> None:
    graph, unread = parse(
        """<graph edgedefault="undirected"><node id="a"><port name="1"/></node><node id="b"/>
        <edge source="a" target="b" sourceport="1"><data key="s">10 Gbps</data></edge>
        <edge source="b" target="z"/></graph>"""
        + MESH
    )
    assert set(graph.nodes) == {"a", "b", "z"}
    assert unread == (
        "1 further graph in the file ignored: G with 3 nodes",
        "1 node mentioned only by edges: z",
        "ignored elements: 1 port, 1 edge port",
        "ignored attributes: of edges LinkSpeed",
    )


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        ("", "it has no <graph>"),
        ("<graph><node/></graph>", "a node has no id"),
        ('<graph><node id="a"/><node id="a"/></graph>', "two nodes have the id 'a'"),
        ('<graph><edge source="a"/></graph>', "no source or no target"),
        (
            '<graph><edge source="a" target="b"><data key="w">heavy</data></edge></graph>',
            "'b' has the value 'heavy' for 'weight', but its key has type double",
        ),
        ('<graph><node id="a"><data key="x">1</data></node></graph>', "node 'a' has data for key"),
        (
            "".join(f'<graph><node id="{number}">' for number in range(5000))
            + "</node></graph>" * 5000,
            "its nodes contain each other too deeply",
        ),
    ],
)
def test_a_file_that_cannot_be_read_names_its_part(graphs: str, words: str) -> None:
    with pytest.raises(NetworkError, match=r"BAD_GRAPHML: some\.graphml") as failure:
        parse(graphs)
    assert words in failure.value.message


@pytest.mark.parametrize(
    "content", [b"<html></html>", b'<?xml version="1.0" encoding="no-such"?><graphml/>', b"{}"]
)
def test_a_file_of_another_kind_is_refused(content: bytes) -> None:
    with pytest.raises(NetworkError, match=r"BAD_GRAPHML: some\.graphml is not GraphML"):
        read_graphml(content, "some.graphml")


def test_lab_up_names_on_the_screen_what_a_network_leaves_out(tmp_path: Path) -> None:
    graph = nx.cycle_graph(3)
    graph.add_node(9, label="Island")
    file = tmp_path / "part.graphml"
    nx.write_graphml(graph, file)
    options = ["--folder", str(tmp_path / "lab"), "--network", str(file)]
    # The unknown host ends the command before anything starts.
    result = CliRunner().invoke(app, ["lab", "up", *options, "--external-host", "x=127.0.0.1:1"])
    assert result.exception is not None
    line = "1 smaller part of the graph ignored, with 1 of 4 nodes and 0 links: Island"
    assert f"network: {line}" in result.stderr
