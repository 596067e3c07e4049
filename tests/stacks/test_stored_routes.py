"""Stored routes: what one switch does with a stack, by the thesis' examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import networkx as nx
import pytest
from networks import from_graph
from routes_cases import random_stack, random_tables

from stackcast.udfs.errors import StackError
from stackcast.udfs.network.labels import HOP, TREE, LabelFormat, SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.stored_routes import DESTINATIONS, HYBRID, PORT_BITMAPS, ROOT, TREES
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import ForwardingModel, forward, network_tables, path_of_stack
from stackcast.udfs.trees.encoders import encoder_of

pytestmark = pytest.mark.unit


def figure(labels: LabelFormat) -> Network:
    """A network of Figures 4.1 to 4.3, its switches N1 to N8 as s1 to s8: P at N1, and at each a
    host. N3 is behind N2, and N7 behind N6, which is behind N5."""
    graph = nx.Graph()
    graph.add_nodes_from(range(1, 9))
    graph.add_edges_from([(1, 2), (1, 5), (2, 3), (2, 4), (5, 6), (5, 8), (6, 7), (3, 7)])
    made = from_graph(graph)
    return Network.from_rows(made.switches.values(), made.hosts.values(), made.links, labels)


def test_of_destinations_each_copy_keeps_those_that_leave_by_its_port():
    """Figure 4.2: N1 sends S1 and S2 by port 2, S3, S4 and S5 by port 3, one copy each."""
    tables = SwitchTables(
        trees={11: 1 << 1, 12: 1 << 1, 13: 1 << 2, 14: 1 << 2, 15: 1 << 2}, labels=DESTINATIONS
    )
    copies = forward(tables, 1, (11, 13, 12, 14, 15, 99))
    assert copies == [(2, (11, 12)), (3, (13, 14, 15))]


def test_a_tree_goes_on_by_all_its_ports_but_the_one_it_came_by():
    tables = SwitchTables(trees={7: 0b10111}, labels=TREES, host_ports=frozenset({5}))
    assert forward(tables, 2, (7,)) == [(1, (7,)), (3, (7,)), (5, None)]
    assert forward(tables, 2, (8,)) == []


def hybrid(*words: str) -> tuple[int, ...]:
    return tuple(HYBRID.parse(word) for word in words)


def test_a_hybrid_stack_adds_branches_to_a_stored_tree():
    """Figure 4.3: T1 leads to S2, S3 and S5, and hops from N2 to S1 and from N6 to S4."""
    stack = hybrid("tree:1", "root:2", "hop:23", "hop:31", "root:6", "hop:67", "hop:74")
    n1 = SwitchTables(trees={1: 0b110}, hops={12: 2, 15: 3}, device=1, labels=HYBRID)
    assert forward(n1, 1, stack) == [(2, stack), (3, stack)]
    # The tree goes on without N2's subtree, and the hop takes along its own part alone, not T1.
    n2 = SwitchTables(trees={1: 0b1011}, hops={23: 3, 21: 1}, device=2, labels=HYBRID)
    n2.host_ports = frozenset({4})
    tree_only = stack[:1] + stack[4:]
    assert forward(n2, 1, stack) == [(2, tree_only), (3, hybrid("hop:31")), (4, None)]
    n6 = SwitchTables(trees={1: 0b11}, hops={67: 3}, device=6, labels=HYBRID)
    n6.host_ports = frozenset({2})
    assert forward(n6, 1, stack) == [(2, None), (3, hybrid("hop:74"))]


def test_what_follows_a_root_of_another_switch_is_no_hop_of_this_one():
    n2 = SwitchTables(trees={1: 0b11}, hops={23: 3}, device=2, labels=HYBRID)
    stack = hybrid("tree:1", "root:6", "hop:23", "hop:9")
    assert forward(n2, 1, stack) == [(2, stack)]


def test_the_figures_stack_is_what_the_encoder_makes():
    """Figure 4.3: T1 to the hosts of N4, N6 and N8; hops from N2 by N3, from N6 to N7."""
    network = figure(HYBRID)
    (publisher,) = network.publishers()
    at = {network.hosts[name].switch: name for name in network.subscribers()}
    assert network.hosts[publisher].switch == "s1"
    edges = [("s1", "s2"), ("s1", "s5"), ("s2", "s4"), ("s5", "s6"), ("s5", "s8")]
    edges += [(at[name], name) for name in ("s4", "s6", "s8")]
    tree = VirtualTree(1, frozenset(edges), "figure")
    receivers = frozenset(at[f"s{n}"] for n in (3, 4, 6, 7, 8))
    (stack,) = encoder_of(network, publisher, [tree]).encode(receivers)
    words = [HYBRID.split(label) for label in stack.labels]
    assert [kind for kind, _ in words] == [TREE, ROOT, HOP, HOP, ROOT, HOP, HOP]
    roots = [number for kind, number in words if kind == ROOT]
    assert roots == [network.switches[name].device_id for name in ("s2", "s6")]
    told = path_of_stack(network, [tree], publisher, stack.labels)
    assert told.copies == dict.fromkeys(sorted(receivers), 1)
    assert told.labels[1].endswith("hops from s2")


def bitmaps(*words: str) -> tuple[int, ...]:
    return tuple(PORT_BITMAPS.parse(word) for word in words)


def test_ports_behind_a_switch_lead_there_and_there_are_its_copies():
    stack = bitmaps("host:11", "switch:2", "ports:1,3", "ports:12,20", "switch:6", "ports:2")
    two, six = bitmaps("switch:2", "switch:6")
    n1 = SwitchTables(trees={11: 0b10, two: 0b10, six: 0b100}, own={1: 0b111}, device=1)
    n1.labels = PORT_BITMAPS
    assert forward(n1, 1, stack) == [(2, stack[:4]), (3, stack[4:])]
    # At the switch itself; that it has no port 20 is no fault of the others.
    n2 = SwitchTables(trees={11: 0b100, six: 0b1}, own={2: 0b1111 | 1 << 11}, device=2)
    n2.labels, n2.host_ports = PORT_BITMAPS, frozenset({1, 3, 12})
    assert forward(n2, 4, stack[:4]) == [(1, None), (3, None), (12, None)]
    # Ports behind no switch, or behind a host, mean nothing.
    assert forward(n2, 4, bitmaps("ports:1", "host:11", "ports:1")) == [(3, None)]


def test_labels_of_port_bitmaps_are_what_people_read():
    for value in range(1, 1 << 16):
        if value == 2 << 14 or (value >= 3 << 14 and not value & 2047):
            with pytest.raises(StackError, match=r"BAD_LABEL.*ports:2,5,9"):
                PORT_BITMAPS.describe(value)
        else:
            assert PORT_BITMAPS.parse(PORT_BITMAPS.describe(value).replace(" ", ":")) == value
    for wrong in ("host:0", "host:32768", "switch:16384", "ports:11,12", "ports:89", "ports:",
                  "tree:1", "host:x", "host:1,2", ""):  # fmt: skip
        with pytest.raises(StackError, match="BAD_LABEL"):
            PORT_BITMAPS.parse(wrong)
    assert PORT_BITMAPS.ports(0b11 << 10 | 1 << 87) == list(
        bitmaps("ports:11", "ports:12", "ports:88")
    )


def clone_by_clone(tables: SwitchTables, ingress: int, stack: tuple[int, ...]) -> Iterator[int]:
    """The twelve steps of Figure 4.4, one label after the other: the ports of its clones."""
    own = True
    while stack:
        label, *rest = stack  # 1, 2: the topmost label alone
        bitmask = 0  # 3: no clones are pending
        kind = label >> 14  # 4
        if kind == TREE:
            bitmask = tables.trees.get(label & 0x3FFF, 0)  # 5
        elif kind == ROOT:
            own = label & 0x3FFF == tables.device
        elif kind == HOP and own and label & 0x3FFF in tables.hops:
            bitmask = 1 << tables.hops[label & 0x3FFF] - 1  # 6
        bitmask &= ~(1 << ingress - 1)
        while bitmask:  # 7
            lowest = bitmask & -bitmask  # 8
            yield lowest.bit_length()  # 9, 10
            bitmask ^= lowest
        stack = tuple(rest)  # 11, 12


def test_the_batch_scan_sends_by_the_ports_of_the_twelve_steps_and_by_none_twice():
    """Figure 4.4, and the alternative of 4.3.2."""
    rng = random.Random(4)
    twice = 0
    for _ in range(400):
        tables = random_tables(rng, 16, HYBRID)
        tables.host_ports = frozenset(range(1, 17))
        tables.sources = frozenset(range(1, 17))
        stack = tuple(random_stack(rng, HYBRID))
        steps = Counter(clone_by_clone(tables, 3, stack))
        assert [port for port, _ in forward(tables, 3, stack)] == sorted(steps)
        twice += any(count > 1 for count in steps.values())
    assert twice > 50


def test_paths_to_destinations_are_rows_of_every_switch():
    """4.2.2: n participants take n² rows, less those that publish only."""
    network = figure(DESTINATIONS)
    tables = network_tables(network, ())
    assert {len(held.trees) for held in tables.values()} == {len(network.hosts)}
    (publisher,) = network.publishers()
    receivers = frozenset(network.subscribers())
    (stack,) = encoder_of(network, publisher, ()).encode(receivers)
    assert len(stack.labels) == len(receivers)
    model = ForwardingModel(network, tables)
    assert model.deliver(publisher, stack.labels).hosts == Counter(receivers)
