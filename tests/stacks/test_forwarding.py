"""What switches do with a header stack: the text's two examples, and its program step by step."""

from collections import Counter

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import bytes_on_links

from stackcast.udfs.errors import NetworkError, StackError
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, SwitchTables
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import ForwardingModel, forward, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit


def drawn(ports):
    """A network as in a figure: ``{"N1": {1: "P", 2: "N2"}, …}``, ports by switch."""
    port_of = {(s, n): p for s, ends in ports.items() for p, n in ends.items()}
    hosts = sorted({n for _, n in port_of if n not in ports})
    links = [
        Link(number, s, p, n, port_of.get((n, s)))
        for number, ((s, n), p) in enumerate(sorted(port_of.items()), start=1)
    ]
    attached = {n: (s, p) for (s, n), p in port_of.items() if n in hosts}
    return Network.from_rows(
        [Switch(name, number) for number, name in enumerate(sorted(ports), start=1)],
        [
            Host(
                name,
                *attached[name],
                100 + i,
                100 + i,
                "publisher" if name == "P" else "subscriber",
            )
            for i, name in enumerate(hosts)
        ],
        links,
    )


def tree(number, *edges):
    return VirtualTree(number, frozenset(tuple(sorted(pair)) for pair in edges), "figure")


def test_figure_5_2_overlapping_trees_with_a_stop_and_a_hop():
    network = drawn(
        {
            "N1": {1: "P", 2: "N2", 3: "N4"},
            "N2": {1: "N1", 2: "S1", 3: "N3", 4: "S2"},
            "N3": {1: "N2", 2: "S3", 3: "S7", 4: "S4"},
            "N4": {1: "N1", 2: "S5", 3: "S6"},
        }
    )
    vt1 = tree(1, ("N1", "N2"), ("N1", "N4"), ("N2", "S1"), ("N4", "S5"), ("N4", "S6"))
    vt2 = tree(2, ("N1", "N2"), ("N2", "N3"), ("N2", "S2"), ("N3", "S3"), ("N3", "S7"))
    stop = NARROW.label(STOP, network.link("N3", "S7").id)
    hop = NARROW.label(HOP, network.link("N3", "S4").id)
    tables = network_tables(network, [vt1, vt2])
    stack = (NARROW.label(TREE, 1), NARROW.label(TREE, 2), stop, hop)

    # N1 serves port 2 once, although both trees ask for it; both copies keep the whole stack.
    assert forward(tables["N1"], 1, stack) == [(2, stack), (3, stack)]
    # N3 stops the copy to S7 and adds the one to S4.
    assert forward(tables["N3"], 1, stack) == [(2, None), (4, None)]
    delivery = ForwardingModel(network, tables).deliver("P", stack)
    assert delivery.hosts == Counter({f"S{i}": 1 for i in range(1, 7)})
    assert not delivery.loop
    # The hop and stop of N3 also travel to N4, which never uses them.
    assert {(u, v): n for u, v, n in delivery.links if v.startswith("N")} == {
        ("P", "N1"): 4,
        ("N1", "N2"): 4,
        ("N1", "N4"): 4,
        ("N2", "N3"): 4,
    }


def test_figure_5_3_distant_trees_bridged_by_a_hop():
    network = drawn(
        {
            "N1": {1: "P", 2: "N2", 3: "N5"},
            "N2": {1: "N3", 2: "S1", 3: "S2", 4: "N1"},
            "N3": {1: "N2", 2: "N4", 3: "S6"},
            "N4": {1: "N3", 2: "S3", 3: "S4"},
            "N5": {1: "N1", 2: "S5"},
        }
    )
    vt1 = tree(1, ("N1", "N2"), ("N1", "N5"), ("N2", "S1"), ("N2", "S2"))
    vt2 = tree(2, ("N3", "N4"), ("N3", "S6"), ("N4", "S3"), ("N4", "S4"))
    bridge = NARROW.label(HOP, network.link("N2", "N3").id)
    last = NARROW.label(HOP, network.link("N5", "S5").id)
    stop = NARROW.label(STOP, network.link("N3", "S6").id)
    stack = (NARROW.label(TREE, 1), bridge, NARROW.label(TREE, 2), stop, last)
    delivery = ForwardingModel(network, network_tables(network, [vt1, vt2])).deliver("P", stack)
    assert delivery.hosts == Counter({f"S{i}": 1 for i in range(1, 6)})
    assert not delivery.loop
    # The bridge is taken off where it is used, then the stop; N5 sees all five labels.
    assert delivery.links[:5] == [
        ("P", "N1", 5),
        ("N1", "N2", 5),
        ("N1", "N5", 5),
        ("N2", "N3", 4),
        ("N2", "S1", 0),
    ]
    assert ("N3", "N4", 3) in delivery.links
    assert bytes_on_links(network, delivery, 28)["N2", "N3"] == 14 + 2 + 2 * 4 + 28
    assert bytes_on_links(network, delivery, 28)["N2", "S1"] == 14 + 28


def test_a_ring_of_trees_is_seen_as_a_loop_and_ends():
    network = drawn({"A": {1: "P", 2: "B", 3: "C"}, "B": {1: "A", 2: "C"}, "C": {1: "B", 2: "A"}})
    trees = [tree(1, ("A", "B"), ("B", "C")), tree(2, ("A", "C"))]
    stack = (NARROW.label(TREE, 1), NARROW.label(TREE, 2))
    assert ForwardingModel(network, network_tables(network, trees)).deliver("P", stack).loop
    cut = (
        *stack,
        NARROW.label(STOP, network.link("B", "C").id),
        NARROW.label(STOP, network.link("C", "B").id),
    )
    assert not ForwardingModel(network, network_tables(network, trees)).deliver("P", cut).loop


def test_a_storm_over_a_dense_network_ends():
    names = [chr(ord("A") + i) for i in range(12)]
    ports = {u: {p: v for p, v in enumerate((n for n in names if n != u), 1)} for u in names}
    ports["A"][12] = "P"
    network = drawn(ports)
    trees = [tree(i + 1, *((u, v) for v in names if v != u)) for i, u in enumerate(names)]
    stack = tuple(NARROW.label(TREE, t.id) for t in trees)
    assert ForwardingModel(network, network_tables(network, trees)).deliver("P", stack).loop


@pytest.mark.parametrize(
    "labels",
    [(), (1,), (NARROW.label(TREE, 1), 0x0001), (NARROW.label(TREE, 1),) * 65],
    ids=["empty", "type 00", "type 00 behind a tree", "65 labels"],
)
def test_a_stack_that_no_switch_can_read_is_dropped(labels):
    tables = SwitchTables(trees={1: 0b110})
    assert forward(tables, 1, (NARROW.label(TREE, 1),) * 64) != []
    assert forward(tables, 1, labels) == []


def test_nothing_crosses_a_failed_link_or_reaches_a_host_that_is_not_marked_as_one():
    network = fabric(1, 1, 2, 1, 1)
    stack = (NARROW.label(HOP, network.link("pod1-rack1", "h1").id),)
    tables = network_tables(network, [])
    assert ForwardingModel(network, tables).deliver("feed1", stack).hosts == {"h1": 1}
    tables["pod1-rack1"].host_ports = frozenset()
    assert ForwardingModel(network, tables).deliver("feed1", stack).hosts == {}
    assert ForwardingModel(network, {}).deliver("feed1", stack).hosts == {}
    with pytest.raises(NetworkError, match="UNKNOWN_HOST"):
        ForwardingModel(network, tables).deliver("nobody", stack)


def test_a_stack_comes_in_from_switches_and_publishers_alone():
    network = fabric(2, 2, 2, 2, 2)
    trees = broadcast_trees(network)
    model = ForwardingModel(network, network_tables(network, trees))
    stack = (NARROW.label(TREE, 1),)
    for name, host in network.hosts.items():
        reached = model.deliver(name, stack).hosts
        assert reached == (
            Counter(set(network.hosts) - {name}) if host.role == "publisher" else Counter()
        )


PORTS = st.integers(1, 6)
TABLES = st.builds(
    SwitchTables,
    trees=st.dictionaries(st.integers(1, 4), st.integers(0, 63), max_size=4),
    hops=st.just({10 + port: port for port in range(1, 7)}),
    stops=st.just({10 + port: port for port in range(1, 7)}),
    host_ports=st.frozensets(PORTS),
)
TREES_AND_HOPS = st.lists(
    st.one_of(
        st.builds(NARROW.label, st.just(TREE), st.integers(1, 5)),
        st.builds(NARROW.label, st.just(HOP), st.integers(9, 17)),
    ),
    min_size=1,
    max_size=8,
)
STOPS = st.lists(st.builds(NARROW.label, st.just(STOP), st.integers(9, 17)), max_size=5)


@examples(200)
@given(TABLES, PORTS, TREES_AND_HOPS, STOPS)
def test_own_hops_and_stops_leave_every_copy_and_hosts_get_no_stack(tables, ingress, first, stops):
    labels = (*first, *stops)
    kept = tuple(
        x for x in labels if NARROW.split(x)[0] == TREE or NARROW.split(x)[1] not in tables.hops
    )
    copies = forward(tables, ingress, labels)
    assert all(left == (None if port in tables.host_ports else kept) for port, left in copies)


@examples(100)
@given(TABLES, PORTS, TREES_AND_HOPS, STOPS, st.randoms(use_true_random=False))
def test_the_order_of_labels_does_not_change_who_is_served(tables, ingress, first, stops, rng):
    labels = [*first, *stops]
    ports = [port for port, _ in forward(tables, ingress, tuple(labels))]
    rng.shuffle(labels)
    assert [port for port, _ in forward(tables, ingress, tuple(labels))] == ports


def test_labels_split_as_they_were_made_and_are_named_for_people():
    for kind in (TREE, HOP, STOP):
        for number in (1, 5, 16383):
            assert NARROW.split(NARROW.label(kind, number)) == (kind, number)
    assert NARROW.label(TREE, 1) == 0x4001
    for bad in (
        lambda: NARROW.label(TREE, 16384),
        lambda: NARROW.label(HOP, 0),
        lambda: NARROW.label(0, 1),
    ):
        with pytest.raises(StackError, match="BAD_LABEL"):
            bad()
    for bad_label in (0x0001, 0x4000, 1 << 16, -1):
        with pytest.raises(StackError, match="BAD_LABEL"):
            NARROW.split(bad_label)
    network = fabric(1, 1, 2, 1, 1)
    link = network.link("pod1-rack1", "h2")
    assert network.describe(NARROW.label(TREE, 7)) == "tree 7"
    assert network.describe(NARROW.label(HOP, link.id)) == f"hop {link.id} (pod1-rack1:2)"
    assert network.describe(NARROW.label(STOP, 9999)) == "stop 9999"
    assert NARROW.describe(NARROW.label(STOP, 17)) == "stop 17"
