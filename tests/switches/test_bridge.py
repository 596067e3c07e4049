"""ARP and IPv6 pass switches that match attributes: a host's frames by its address, others once."""

from __future__ import annotations

import random
from dataclasses import replace

import attribute_value_cases as cases
import networkx as nx
import pytest
from virtual_trees_cases import plain_frame

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import ATTRIBUTES
from stackcast.udfs.network.topology import fabric, jellyfish, line
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.rollout import NetworkVersion

pytestmark = pytest.mark.unit

NETWORKS = {
    "line": line(3, 2),
    "fabric": fabric(2, 2, 2, 2, 2),
    "jellyfish": jellyfish(8, 3, 1, 1, seed=2),
}


def broken(network: Network, rng: random.Random) -> Network:
    """The network with some of its links down and some dearer."""
    links = [
        replace(link, up=rng.random() > 0.15, weight=rng.choice([1.0, 3.0]))
        for link in network.links
    ]
    return Network(network.switches.values(), network.hosts.values(), links)


def running(network: Network) -> dict[str, SimpleSwitch]:
    pipelines = dict.fromkeys(network.switches, ATTRIBUTES)
    derived = derive(NetworkVersion(network, []), [], pipelines, {})
    found = {}
    for name in network.switches:
        found[name] = SimpleSwitch()
        found[name].load(cases.PROGRAM.read_bytes())
        own = {entry.key: entry for entry in derived.entries if entry.switch == name}
        found[name].apply(own)
    return found


def received(network: Network, switches, sender: str, frame: bytes) -> list[str]:
    """The hosts that a frame of a host comes to, once for each copy."""
    onward = {(link.switch, link.port): link for link in network.links}
    host = network.hosts[sender]
    pending, found = [(host.switch, host.port, frame)], []
    while pending:
        name, port, data = pending.pop()
        for out, copy in switches[name].process(port, data):
            link = onward[name, out]
            assert copy == frame
            if link.neighbor in network.switches:
                if network.usable(link):
                    pending.append((link.neighbor, link.neighbor_port, copy))
            else:
                found.append(link.neighbor)
        assert len(found) <= 10 * len(network.hosts)
    return sorted(found)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_frames_of_other_protocols_reach_whom_they_are_for_exactly_once(name, seed):
    network = NETWORKS[name]
    if seed is not None:
        network = broken(network, random.Random(seed))
    switches = running(network)
    graph = nx.Graph()
    graph.add_nodes_from(network.switches)
    for link in network.links:
        if network.usable(link):
            graph.add_edge(link.switch, link.neighbor)
    reached = 0
    for sender in network.hosts:
        if sender not in graph:
            continue
        part = nx.node_connected_component(graph, sender)
        others = sorted(h for h in network.hosts if h in part and h != sender)
        for target in (0xFFFFFFFFFFFF, 0x333300000001):
            for kind in (0x0806, 0x86DD):
                frame = plain_frame(b"who has" * 5, kind, target)
                assert received(network, switches, sender, frame) == others
        for other in network.hosts.values():
            frame = plain_frame(b"it is I" * 5, 0x86DD, other.mac)
            wanted = [other.name] if other.name in others else []
            assert received(network, switches, sender, frame) == wanted
            reached += len(wanted)
    assert reached
