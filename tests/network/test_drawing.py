"""A network is drawn in the unit square, the same way on any machine, and no two things meet."""

from __future__ import annotations

import pytest

from udfs.network.drawing import layout
from udfs.network.network import Host, Link, Network, Switch
from udfs.network.topology import fabric, jellyfish

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
