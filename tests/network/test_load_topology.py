"""What may be asked of jobs/load_topology.py, and what it says of a network."""

from pathlib import Path

import networkx as nx
import pytest
from networks import from_graph

from stackcast.jobs import load_topology
from stackcast.jobs.adapters.tables.topologies import (
    Asked,
    addresses,
    build,
)
from stackcast.jobs.command_lines.load_topology import FABRIC, JELLYFISH, address_pattern, sizes
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import NARROW, WIDE
from stackcast.udfs.network.measures import measure
from stackcast.udfs.network.topology import fabric, jellyfish

pytestmark = pytest.mark.unit


def test_sizes_are_read_by_name_in_any_order():
    text = "spines=1, pods=8,racks=4,hosts=2,planes=2"
    assert fabric(**sizes(text, FABRIC)) == fabric(8, 4, 2, 2, 1)
    assert sizes("switches=9,degree=4,seed=7", JELLYFISH, ("seed",))["seed"] == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("switches=9", "missing degree"),
        ("", "'' is unknown: use switches, degree"),
        ("switches=9,degree=4,seed=1", "'seed' is unknown"),
        ("switches=9,degree=-4", "degree must be a whole number"),
        ("switches=9,degree=4,", "'' is unknown"),
        ("switches=9,degree=four", "degree must be a whole number"),
        ("switches=9,degree", "degree must be a whole number"),
        ("switches=9,switches=8,degree=4", "switches is set twice"),
    ],
)
def test_sizes_that_cannot_be_read_say_what_is_wrong(text: str, said: str):
    with pytest.raises(ValueError, match=said):
        sizes(text, JELLYFISH)


@pytest.mark.parametrize(
    ("pattern", "first", "second"),
    [
        ("{switch}.lan:9559", "s1.lan:9559", "s2.lan:9559"),
        ("10.0.0.1:{port}", "10.0.0.1:50001", "10.0.0.1:50002"),
        ("10.0.0.{device_id}:80", "10.0.0.1:80", "10.0.0.2:80"),
        ("[::1]:9559", "[::1]:9559", "[::1]:9559"),
    ],
)
def test_an_address_pattern_names_switch_device_id_and_port(pattern, first, second):
    network = jellyfish(4, 2)
    found = addresses(address_pattern(pattern), network, 50_001)
    assert (found["s1"], found["s2"]) == (first, second)
    assert list(found) == list(network.switches)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "{switch}",
        ":1",
        "{switch}:",
        "{host}:1",
        "{switch.name}:1",
        "{switch!r}:1",
        "{:1",
        "{}:1",
        "{switch}:{port:05}",
        "host:{switch}",
        "host:1{port}",
    ],
)
def test_an_address_pattern_that_makes_no_addresses_is_refused(pattern: str):
    with pytest.raises(ValueError, match=r"host:port|is unknown|expected"):
        address_pattern(pattern)


def test_ports_end_at_65535():
    network = jellyfish(4, 2)
    assert addresses("h:{port}", network, 65_532)["s4"] == "h:65535"
    for pattern, first in (("h:{port}", 65_533), ("h:70000", 1), ("h:0", 1)):
        with pytest.raises(NetworkError, match="BAD_ADDRESS"):
            addresses(pattern, network, first)


def test_each_kind_of_network_can_be_asked_for(tmp_path: Path):
    file = tmp_path / "ring.graphml"
    nx.write_graphml(nx.cycle_graph(5), file)
    wanted = [
        (Asked(fabric=sizes("pods=2,racks=1,hosts=3,planes=1,spines=1", FABRIC)), 5, 6),
        (Asked(jellyfish={"switches": 9, "degree": 4}, hosts_per_switch=2), 9, 18),
        (Asked(topohub="topozoo/Abilene", publishers=2), 11, 11),
        (Asked(graphml=file, hosts_per_switch=3), 5, 15),
    ]
    for asked, switches, hosts in wanted:
        network, dropped = build(asked, WIDE)
        assert (len(network.switches), len(network.subscribers())) == (switches, hosts)
        assert (network.labels, dropped.lines()) == (WIDE, ())


def test_what_cannot_be_built_is_an_error_with_the_way_out(tmp_path: Path):
    with pytest.raises(NetworkError, match=r"TOO_MANY_LINKS.*--label-bits 32"):
        build(Asked(jellyfish={"switches": 1024, "degree": 16}), NARROW)
    with pytest.raises(NetworkError, match=r"UNKNOWN_NETWORK.*cannot read.*No such file"):
        build(Asked(graphml=tmp_path / "none.graphml"), NARROW)
    with pytest.raises(NetworkError, match="BAD_SIZE"):
        build(Asked(jellyfish={"switches": 4, "degree": 9}), NARROW)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--fabric", "pods=8"],
        ["--topohub", "a/b", "--graphml", "c"],
        ["--topohub", "a/b", "--hosts-per-switch", "0"],
        ["--topohub", "a/b", "--publishers", "-1"],
        ["--topohub", "a/b", "--label-bits", "24"],
        ["--topohub", "a/b", "--address-pattern", "nowhere"],
    ],
)
def test_arguments_that_cannot_be_understood_end_the_job_at_once(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        load_topology.main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_network_is_described_in_figures():
    text = load_topology.describe(network := fabric(8, 4, 2, 2, 2), measure(network))
    assert "52 switches, 64 hosts, 1 publisher" in text
    assert "257 directed links of 16383" in text
    assert "2 to 8" in text
    assert "diameter  4" in text
    graph = nx.path_graph(3)
    graph.edges[0, 1].update(up=False, weight=5)
    text = load_topology.describe(network := from_graph(graph), measure(network))
    assert "failed links part the network" in text
    assert "weights   1 to 5" in text
    assert "failed    2 directed" in text
