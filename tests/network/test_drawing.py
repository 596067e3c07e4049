"""A network is drawn in the unit square, the same way on any machine, and no two things meet."""

from __future__ import annotations

import pytest
from networks import from_graph

from stackcast.udfs.network.catalogue import geography, topohub_graph
from stackcast.udfs.network.drawing import layout
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.network.topology import fabric, jellyfish

pytestmark = pytest.mark.unit

FABRIC = fabric(pods=3, racks=2, hosts=2, planes=2, spines=2)
SINGLE = Network.from_rows(
    [Switch("s", 1)], [Host("h", "s", 1, 1, 1)], [Link(1, "s", 1, "h", None)]
)


@pytest.mark.parametrize(
    "network", [FABRIC, jellyfish(24, 4, 2, seed=1), SINGLE], ids=["fabric", "jellyfish", "one"]
)
def test_everything_has_a_place_of_its_own_in_the_unit_square(network: Network):
    places = layout(network)
    assert places.keys() == network.switches.keys() | network.hosts.keys()
    assert len(set(places.values())) == len(places)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places.values())
    assert places == layout(network)


def test_layers_are_rows_with_hosts_below_them():
    places = layout(FABRIC)
    heights = {}
    for switch in FABRIC.switches.values():
        heights.setdefault(switch.layer, set()).add(places[switch.name][1])
    assert all(len(found) == 1 for found in heights.values())
    (spine,), (rack,) = heights["spine"], heights["rack"]
    assert spine < rack < min(places[name][1] for name in FABRIC.hosts)


def test_switches_with_places_stand_as_on_a_map():
    graph = topohub_graph("topozoo/Abilene")
    network, places = from_graph(graph), geography(graph)
    assert places.keys() == network.switches.keys()
    at = layout(network, places)
    names = {
        data["name"]: name for (_, data), name in zip(graph.nodes.items(), places, strict=True)
    }
    east, west = (at[names[name]] for name in ("New York", "Seattle"))
    south = at[names["Houston"]]
    assert west[0] < south[0] < east[0] and south[1] > max(east[1], west[1])
    assert len(set(at.values())) == len(at) == len(network.switches) + len(network.hosts)
    for name in network.switches:
        own = [at[h.name] for h in network.hosts.values() if h.switch == name]
        assert all(abs(x - at[name][0]) + abs(y - at[name][1]) < 0.2 for x, y in own)


def test_a_switch_without_a_place_is_drawn_next_to_its_neighbors():
    graph = topohub_graph("topozoo/Abilene")
    network, places = from_graph(graph), geography(graph)
    for name in list(places)[:5]:
        del places[name]
    drawn = layout(network, places)
    assert drawn == layout(network, places)
    assert drawn.keys() == network.switches.keys() | network.hosts.keys()
    assert len(set(drawn.values())) == len(drawn)
    # Places on the map are as they were among each other.
    whole = layout(network, geography(graph))
    known = sorted(places, key=lambda name: whole[name][0])
    assert known == sorted(places, key=lambda name: drawn[name][0])


def test_with_few_places_distances_decide():
    graph = topohub_graph("topozoo/Abilene")
    network, places = from_graph(graph), geography(graph)
    assert layout(network, dict(list(places.items())[:5])) == layout(network)
    assert layout(network, {}) == layout(network)
