"""Versions in use that say the same are worked out once."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from tunnels import tunnelled

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import ATTRIBUTES, FILTERING, REPLICATING
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches import derivation
from stackcast.udfs.switches.derivation import Memo, derive
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.switches.tunnels import END, LINK
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
PIPELINES = dict.fromkeys(NETWORK.switches, "virtual_trees")
TABLES = {"virtual_trees": ["ingress.label_1.look_up"]}


def tree(number, host="h1", state="active"):
    return VirtualTree(number, frozenset({(host, NETWORK.hosts[host].switch)}), "test", state)


def source(*trees, **of_links):
    """The network, its first cable between switches changed."""
    first = next(link for link in NETWORK.links if link.neighbor in NETWORK.switches)
    cable = {first.switch, first.neighbor}
    links = [
        dataclasses.replace(link, **of_links) if {link.switch, link.neighbor} == cable else link
        for link in NETWORK.links
    ]
    return NetworkVersion(Network(NETWORK.switches.values(), NETWORK.hosts.values(), links), trees)


def test_a_switch_that_matches_has_64_ports_and_others_511():
    links = [dataclasses.replace(x, port=400) if x.neighbor == "h1" else x for x in NETWORK.links]
    hosts = [dataclasses.replace(NETWORK.hosts["h1"], port=400)]
    hosts += [host for name, host in NETWORK.hosts.items() if name != "h1"]
    wide = NetworkVersion(Network(NETWORK.switches.values(), hosts, links), ())
    rack = NETWORK.hosts["h1"].switch
    assert any(
        entry.switch == rack and dict(entry.params).get("ports") == (1 << 399).to_bytes(50)
        for entry in derive(wide, [], PIPELINES, TABLES).entries
    )
    # Another switch may match, where this one does not.
    others = {name: program for name, program in PIPELINES.items() if name != rack}
    derive(wide, [], dict.fromkeys(others, FILTERING) | {rack: "virtual_trees"}, TABLES)
    with pytest.raises(NetworkError, match=rf"TOO_MANY_PORTS.*port 400 of '{rack}'.*1\.\.64"):
        derive(wide, [], PIPELINES | {rack: FILTERING}, TABLES)


def test_a_tunnel_is_for_switches_that_read_stacks():
    link = next(link for link in NETWORK.links if link.neighbor in NETWORK.switches)
    islands = NetworkVersion(tunnelled(NETWORK, {link.id}), broadcast_trees(NETWORK))
    found = {(e.switch, e.table) for e in derive(islands, [], PIPELINES, TABLES).entries}
    ends = {link.switch, link.neighbor}
    assert {s for s, table in found if table == LINK} == ends
    assert {s for s, table in found if table == END} == ends
    for program in (FILTERING, ATTRIBUTES, *REPLICATING):
        with pytest.raises(NetworkError, match=rf"NO_TUNNELS.*'{link.switch}'.*{program}"):
            derive(islands, [], PIPELINES | {link.switch: program}, {})


@pytest.fixture
def worked_out(monkeypatch):
    """How often the entries of the program were worked out."""
    count = Counter()
    program = derivation.DERIVATIONS["virtual_trees"]

    def entries(*of):
        count["times"] += 1
        return program.entries(*of)

    counted = dataclasses.replace(program, entries=entries)
    monkeypatch.setattr(derivation, "DERIVATIONS", {"virtual_trees": counted})
    return count


def apart(newest, older):
    """What the switches should hold, each version in use worked out by itself."""
    program = derivation.DERIVATIONS["virtual_trees"]
    wanted = {e.key + e.switch: e for e in derive(newest, [], PIPELINES, TABLES).entries}
    for other in older:
        names = TABLES["virtual_trees"]
        for entry in program.entries(other.network, other.named, names):
            if program.kept(entry):
                wanted.setdefault(entry.key + entry.switch, entry)
    return wanted


def test_versions_that_differ_in_what_decides_routes_alone_cost_as_much_as_one(worked_out):
    older = [
        source(tree(1), tree(2, state="retiring"), up=number % 2 == 0, weight=1.0 + number)
        for number in range(20)
    ]
    older.insert(7, source(tree(1), tree(3, "h2")))
    newest = source(tree(1), up=False)
    wanted = apart(newest, older)
    worked_out.clear()
    memo: Memo = {}
    union = derive(newest, older, PIPELINES, TABLES, memo=memo)
    assert worked_out["times"] == 3
    assert {e.key + e.switch: e for e in union.entries} == wanted
    # Again, for another edit: what is in use is known.
    assert derive(newest, older, PIPELINES, TABLES, memo=memo) == union
    assert worked_out["times"] == 4
    # What is in use no more is forgotten.
    derive(newest, older[:1], PIPELINES, TABLES, memo=memo)
    assert worked_out["times"] == 5 and len(memo) == 1


def test_of_versions_in_use_the_newer_stands_also_where_an_older_says_what_the_newest_in_use_does():
    a, b = source(tree(1)), source(tree(2, "h2"))
    newest = source()
    assert derive(newest, [a, b, a], PIPELINES, TABLES) == derive(newest, [a, b], PIPELINES, TABLES)
