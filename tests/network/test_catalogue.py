"""Networks that others have published are read, and what cannot be read is named."""

from pathlib import Path

import pytest
from networks import from_graph

from stackcast.lab.fabric.topologies import NetworkOptions, load_network
from stackcast.udfs.errors import LabError, NetworkError
from stackcast.udfs.network.catalogue import published_network, topohub_graph
from stackcast.udfs.network.graphml import read_graphml
from stackcast.udfs.network.labels import NARROW, WIDE

pytestmark = pytest.mark.unit

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d1" />
  <key attr.name="weight" attr.type="double" for="edge" id="d2" />
  <key attr.name="up" attr.type="boolean" for="edge" id="d3" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d1">Köln</data></node>
    <node id="1"><data key="d1">Bonn</data></node>
    <node id="2"><data key="d1">Trier</data></node>
    <node id="3"><data key="d1">Apart</data></node>
    <edge source="0" target="1"><data key="d2">2.5</data></edge>
    <edge source="0" target="1"><data key="d2">1.5</data></edge>
    <edge source="1" target="2"><data key="d3">false</data></edge>
  </graph>
</graphml>
""".encode()


def test_graphml_gives_names_weights_and_failed_links():
    read = published_network("here", GRAPHML, 1, 1, NARROW)
    network = read.network
    assert list(network.switches) == ["köln", "bonn", "trier"]
    assert (network.link("bonn", "köln").weight, network.link("köln", "bonn").up) == (1.5, True)
    assert not network.link("bonn", "trier").up
    assert read.dropped.lines() == (
        "1 smaller part of the graph ignored, with 1 of 4 nodes and 0 links: Apart",
        "1 parallel edge replaced by the lightest: Köln - Bonn",
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"no XML", b"<graphml></graph>", b"\xff\xfe\x00", GRAPHML.replace(b"2.5", b"heavy")],
)
def test_what_is_no_graphml_is_an_error_that_names_the_file(content: bytes):
    with pytest.raises(NetworkError, match=r"BAD_GRAPHML: some\.graphml"):
        read_graphml(content, "some.graphml")


def test_networks_of_topohub_have_their_known_sizes():
    abilene = from_graph(topohub_graph("topozoo/Abilene"))
    assert (len(abilene.switches), len(abilene.links)) == (11, 11 + 1 + 2 * 14)
    polska = from_graph(topohub_graph("sndlib/polska"))
    assert (len(polska.switches), len(polska.links)) == (12, 12 + 1 + 2 * 18)
    assert "gdansk" in polska.switches


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("topozoo/Abilen", "topozoo/Abilene"),
        ("Abilene", "topozoo/Abilene"),
        ("sndlib/polsk", "sndlib/polska"),
    ],
)
def test_an_unknown_name_suggests_those_that_are_near(name: str, near: str):
    with pytest.raises(NetworkError, match="UNKNOWN_NETWORK") as error:
        topohub_graph(name)
    assert near in error.value.suggestions


@pytest.mark.parametrize("name", ["", "/", "../setup", "topozoo", "\0", "a" * 300])
def test_what_is_no_name_at_all_is_refused_the_same_way(name: str):
    with pytest.raises(NetworkError, match="UNKNOWN_NETWORK"):
        topohub_graph(name)


def test_the_lab_takes_both_and_says_what_it_cannot_read(tmp_path: Path):
    file = tmp_path / "small.graphml"
    file.write_bytes(GRAPHML)
    small = load_network(NetworkOptions(name=str(file), hosts_per_switch=2, label_bits=32))
    assert (len(small.switches), len(small.subscribers()), small.labels) == (3, 6, WIDE)
    assert len(load_network(NetworkOptions(name="topozoo/Abilene")).switches) == 11
    file.write_bytes(b"no XML")
    for name, what in (
        (str(file), "BAD_GRAPHML"),
        (str(tmp_path / "none.graphml"), "UNKNOWN_NETWORK"),
        ("topozoo/Abilen", "UNKNOWN_NETWORK"),
    ):
        with pytest.raises(LabError) as error:
            load_network(NetworkOptions(name=name))
        assert error.value.code == f"LAB.{what}"
